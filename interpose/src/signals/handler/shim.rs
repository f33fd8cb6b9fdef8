//! The shim's side of `signals`: the driver's library exports no function of libc's, so a program would see a handler that is
//! not its own. The signals stay as they are.

/// The daemon asks this process to end: whoever asked it kills the process.
pub(crate) const fn handle_stop() {}

/// What was in flight on one device is complete.
pub(crate) const fn handle_drained(_clients: u32) {}
