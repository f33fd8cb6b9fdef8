//! The shim's side of `signals`: the driver's library exports no function of libc's, so a program would see a handler that is
//! not its own. The signals stay as they are.

/// Whether this process is dying of a signal and launches nothing more.
#[inline]
pub(crate) const fn is_dying() -> bool {
    false
}

/// The daemon asks this process to end: whoever asked it kills the process.
pub(crate) const fn handle_stop() {}

/// Stops the calling thread for good if this process is dying.
#[inline]
pub(crate) const fn stop_if_dying() {}

/// What was in flight on one device is complete.
pub(crate) const fn handle_drained(_clients: u32) {}
