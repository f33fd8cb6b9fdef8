//! Who sees to the end of this process, and is told when work is in flight although it was waited for.
//!
//! Where MPS shares the GPU a process that ends with work in flight can take others along. Whoever ends it (`pillion stop`, the daemon) says
//! so before it sends a signal ([`protocol::pages::ClientPage::seen_to_until_s`]); the process says when its time to drain is over
//! ([`ending::tell_overdue`]) and lives for [`FROZEN_MS`] more, in which MPS is asked to end the
//! work, and for as long again while somebody sees to its end: where MPS cannot be asked, work that
//! takes its time has all the grace that its job was given. In a signal handler these are atomics.

use client::ending;
use protocol::ending::FROZEN_NS;

use crate::process;

/// How long a process that the daemon has asked to end drains at most, and one lives whose time to drain is over while somebody sees to
/// its end, before it looks whether somebody still does, ms: longer than those who asked for it wait, have MPS end
/// what is in flight, and kill.
pub(crate) const FROZEN_MS: u32 = (FROZEN_NS / 1_000_000) as u32;

/// Whether somebody does at that time of `CLOCK_MONOTONIC`, as the daemon told one of the clients.
pub(crate) fn is_seen_to(now_ns: u64) -> bool {
    process::clients().any(|client| ending::is_supervised(&client.page, now_ns))
}

/// The time to wait is over, and who sees to the end of this process is told. What the daemon has asked meanwhile stays.
pub(crate) fn tell_overdue() {
    process::clients().for_each(|client| ending::tell_overdue(&client.page));
}
