//! Whether this process is dying of a signal ([`crate::signals::handler`]): then nothing more is
//! launched, and a thread that comes to the guard or the gate stops there. Not in the shim, which
//! handles no signals.

#[cfg(not(shim))]
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use protocol::clock::Clock;

/// The signal that this process is dying of; 0 while it is not.
static DYING_OF: AtomicI32 = AtomicI32::new(0);

/// This process is to die of that signal; whether it is the first.
#[cfg(not(shim))]
pub(crate) fn try_begin(signal: c_int) -> bool {
    DYING_OF
        .compare_exchange(0, signal, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// The signal that this process is dying of; 0 while it is not.
#[cfg(not(shim))]
pub(crate) fn of() -> c_int {
    DYING_OF.load(Ordering::Acquire)
}

/// Whether this process is dying of a signal and launches nothing more.
#[inline]
pub(crate) fn is_dying() -> bool {
    cfg!(not(shim)) && DYING_OF.load(Ordering::Relaxed) != 0
}

/// Stops the calling thread for good if this process is dying.
#[inline]
pub(crate) fn stop_if_dying() {
    if is_dying() {
        stop();
    }
}

/// Stops the calling thread for good. On virtual time it takes part no more.
#[cold]
pub(crate) fn stop() -> ! {
    Clock::process().leave();
    loop {
        // In real time, whatever the clock is: no participant waits here. Signals end a wait.
        Clock::monotonic().sleep_until(u64::MAX);
    }
}
