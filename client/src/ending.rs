//! What a process that ends, or whose context is broken, reads and says in its client page.
//!
//! Where MPS shares the GPU a process that ends with work in flight can take others along. Whoever
//! ends it (`pillion stop`, the daemon) says so before it sends a signal
//! ([`ClientPage::seen_to_until_s`]). The process says when its time to drain is over, and lives
//! on while somebody sees to its end. All of it is atomics: a signal handler may do it.

use protocol::pages::{ClientPage, STOP_ASKED, STOP_GAVE_UP, STOP_OVERDUE};
use protocol::sync::Ordering;

/// Whether the daemon asks the process to launch nothing more, to drain and to end.
pub fn is_asked(page: &ClientPage) -> bool {
    page.stop.load(Ordering::SeqCst) == STOP_ASKED
}

/// Whether somebody sees to the end of the process at that time of `CLOCK_MONOTONIC`.
pub fn is_supervised(page: &ClientPage, now_ns: u64) -> bool {
    u64::from(page.seen_to_until_s.load(Ordering::SeqCst)) > now_ns / 1_000_000_000
}

/// The time to drain is over with work in flight: reports that to those who supervise the exit.
/// What the daemon has asked meanwhile stays.
pub fn tell_overdue(page: &ClientPage) {
    let (order, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
    let _ = page.stop.compare_exchange(0, STOP_OVERDUE, order, relaxed);
}

/// The time to drain is over, and the process ends with work in flight.
pub fn tell_gave_up(page: &ClientPage) {
    page.stop.store(STOP_GAVE_UP, Ordering::SeqCst);
}

/// A call failed with a CUDA result after which the process gets nothing more done. The first one
/// stays: it is the cause of those that follow.
pub fn tell_sticky(page: &ClientPage, result: u32) {
    // Relaxed: the word stands for itself.
    let relaxed = Ordering::Relaxed;
    let _ = page.sticky.compare_exchange(0, result, relaxed, relaxed);
}
