//! Flags in the client page of a process that ends, or whose context is broken. Under MPS, a
//! process that ends with work in flight can take others with it. A supervisor (`pillion stop`, the
//! daemon) therefore sets a flag before it sends a signal ([`ClientPage::seen_to_until_s`]). The
//! process reports when its time to drain is over, and lives on while supervised. All flags are
//! atomics, so a signal handler may use them.

use protocol::pages::{ClientPage, STOP_ASKED, STOP_GAVE_UP, STOP_OVERDUE};
use protocol::sync::Ordering;

/// Whether the daemon asks the process to stop launching, drain and end.
pub fn is_asked(page: &ClientPage) -> bool {
    page.stop.load(Ordering::SeqCst) == STOP_ASKED
}

/// Whether the exit is supervised at `now_ns` of `CLOCK_MONOTONIC`.
pub fn is_supervised(page: &ClientPage, now_ns: u64) -> bool {
    u64::from(page.seen_to_until_s.load(Ordering::SeqCst)) > now_ns / 1_000_000_000
}

/// Reports to the supervisor that drain time is over with work in flight. A daemon's request stays.
pub fn tell_overdue(page: &ClientPage) {
    let (order, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
    let _ = page.stop.compare_exchange(0, STOP_OVERDUE, order, relaxed);
}

/// Reports that the time to drain is over and the process ends with work in flight.
pub fn tell_gave_up(page: &ClientPage) {
    page.stop.store(STOP_GAVE_UP, Ordering::SeqCst);
}

/// Reports a CUDA result after which nothing more gets done. The first, the cause, stays.
pub fn tell_sticky(page: &ClientPage, result: u32) {
    // Relaxed: the value guards no other data.
    let relaxed = Ordering::Relaxed;
    let _ = page.sticky.compare_exchange(0, result, relaxed, relaxed);
}
