//! Whether this process is dying of a signal ([`crate::signals::handler`]). If so, nothing is
//! launched, and a thread that reaches the guard or the gate stops. Not in the shim: it handles no
//! signals.

#[cfg(not(shim))]
use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering};

use protocol::clock::Clock;

/// The signal that this process is dying of; 0: none.
static DYING_OF: AtomicI32 = AtomicI32::new(0);

/// Sets the signal that this process is dying of. Returns whether it is the first.
#[cfg(not(shim))]
pub(crate) fn try_begin(signal: c_int) -> bool {
    // AcqRel pairs with the Acquire in `of`. Only the number is used, so nothing depends on it.
    DYING_OF
        .compare_exchange(0, signal, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

#[cfg(not(shim))]
pub(crate) fn of() -> c_int {
    DYING_OF.load(Ordering::Acquire)
}

#[inline]
pub(crate) fn is_dying() -> bool {
    cfg!(not(shim)) && DYING_OF.load(Ordering::Relaxed) != 0
}

#[inline]
pub(crate) fn stop_if_dying() {
    if is_dying() {
        stop();
    }
}

/// Stops the calling thread for good. It leaves virtual time.
#[cold]
pub(crate) fn stop() -> ! {
    Clock::process().leave();
    loop {
        // In real time, whatever the clock: no participant waits here. Signals end a wait.
        Clock::monotonic().sleep_until(u64::MAX);
    }
}
