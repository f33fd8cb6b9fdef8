//! The supervised exit of this process, and the report that its time to drain is over with work in
//! flight. Under MPS, a process that ends with work in flight can take others with it. A supervisor
//! (`pillion stop`, the daemon) therefore sets a flag before it sends a signal
//! ([`protocol::pages::ClientPage::seen_to_until_s`]). The process reports when its time to drain
//! is over ([`ending::tell_overdue`]) and lives [`FROZEN_MS`] longer, in which MPS is asked to end
//! the work, and as long again while supervised: where MPS cannot be asked, slow work has all the
//! grace that its job was given. All are atomics, for signal handlers.

use client::ending;
use protocol::ending::FROZEN_NS;

use crate::process;

/// Longest drain of a process that the daemon has asked to end; also the interval at which an
/// overdue process checks whether its exit is still supervised, ms. Longer than the supervisors
/// wait, have MPS end work in flight, and kill.
pub(crate) const FROZEN_MS: u32 = (FROZEN_NS / 1_000_000) as u32;

/// Whether the exit is supervised at that time of `CLOCK_MONOTONIC`, for any of the clients.
pub(crate) fn is_seen_to(now_ns: u64) -> bool {
    process::clients().any(|client| ending::is_supervised(&client.page, now_ns))
}

pub(crate) fn tell_overdue() {
    process::clients().for_each(|client| ending::tell_overdue(&client.page));
}
