//! How long each step takes at most in which a process is made to end: those who ask for it (`pillion stop`, the daemon) and the
//! process itself, which dies in the end whoever is left of them, go by the same times.
//!
//! ```text
//! asked to drain        MPS asked to end its work   killed                         dies by itself
//! ├──── DRAIN_NS ───────┼──────── TERMINATE_NS ─────┤ ···· SPARE_NS, at least ····· ┤
//! └──────────────────────────────────── FROZEN_NS ──────────────────────────────────┘
//! ```
//!
//! Before that it is asked by SIGTERM, and has a grace. A process that handles none drains by itself for as long as it was told to
//! (`PILLION_DRAIN_MS`); if that is over and work is in flight it says so ([`crate::pages::STOP_OVERDUE`]), MPS is asked at once, and it
//! dies by itself `FROZEN_NS` later, or as often as that later while somebody still sees to its end: where MPS refuses, work that ends within the
//! grace takes nobody along.
//!
//! The process must not die by itself before MPS has answered: it would take other clients along, which asking MPS is to spare them.

/// Time for what is in flight to complete once nothing more is launched, ns.
pub const DRAIN_NS: u64 = 4_000_000_000;
/// Time for MPS to end what is in flight of all processes that are still there, ns.
pub const TERMINATE_NS: u64 = 5_000_000_000;
/// Time for what was killed to be gone, ns. One that hangs in the driver can take longer, and is given up.
pub const KILL_NS: u64 = 5_000_000_000;
/// How long a process that was asked to drain lives at most, ns. That is for when those who asked have themselves ended.
pub const FROZEN_NS: u64 = 15_000_000_000;

/// How long all of them take at most after the grace, with time to begin and to say so, ns: as long somebody sees to the end of a process
/// ([`crate::pages::ClientPage::seen_to_until_s`]).
pub const SEEN_TO_NS: u64 = DRAIN_NS + TERMINATE_NS + KILL_NS + SPARE_NS;

/// What the steps may be late by on a machine that is busy: looks of the daemon (100 ms apart), threads that wait for their turn.
const SPARE_NS: u64 = 5_000_000_000;

const _: () = assert!(DRAIN_NS + TERMINATE_NS + SPARE_NS <= FROZEN_NS);

/// Until when somebody sees to the end of a process who begins at `now_ns` of `CLOCK_MONOTONIC` and needs `within_ns`, as the page says it.
#[must_use]
pub fn seen_to_until_s(now_ns: u64, within_ns: u64) -> u32 {
    let until_s = now_ns.saturating_add(within_ns).div_ceil(1_000_000_000);
    u32::try_from(until_s).unwrap_or(u32::MAX)
}
