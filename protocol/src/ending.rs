//! The time limits of the steps that end a process. The supervisors of an exit (`pillion stop`, the
//! daemon) and the process itself, which exits at last even without a supervisor, share them.
//! ```text
//! asked to drain        MPS asked to end its work   killed                         dies by itself
//! ├──── DRAIN_NS ───────┼──────── TERMINATE_NS ─────┤ ···· SPARE_NS, at least ····· ┤
//! └──────────────────────────────────── FROZEN_NS ──────────────────────────────────┘
//! ```
//! Before these steps, the supervisor sends SIGTERM and waits for a grace period. A process without
//! a handler for it drains by itself for its configured time (`PILLION_DRAIN_MS`). If work is still
//! in flight then, it reports [`crate::pages::STOP_OVERDUE`], and the supervisor asks MPS at once.
//! The process exits by itself `FROZEN_NS` later; while supervised it waits that long repeatedly:
//! if MPS refuses, work that ends in the grace period harms none. The process must not die by
//! itself before MPS has answered: its death would end others' work, which asking MPS avoids.

/// Time for work in flight to complete after launches have stopped, ns.
pub const DRAIN_NS: u64 = 4_000_000_000;
/// Time for MPS to terminate the work in flight of all processes that are left, ns.
pub const TERMINATE_NS: u64 = 5_000_000_000;
/// Time for killed processes to disappear, ns. One that hangs in the driver longer is given up.
pub const KILL_NS: u64 = 5_000_000_000;
/// Longest life of a process after a request to drain, ns, if its supervisor has ended.
pub const FROZEN_NS: u64 = 15_000_000_000;

/// Longest duration of all steps after the grace period, with time to begin and to report, ns: a
/// process's exit is supervised for as long ([`crate::pages::ClientPage::seen_to_until_s`]).
pub const SEEN_TO_NS: u64 = DRAIN_NS + TERMINATE_NS + KILL_NS + SPARE_NS;

/// Margin for delays on a busy machine: the daemon's polls (100 ms apart), scheduling of threads.
const SPARE_NS: u64 = 5_000_000_000;

const _: () = assert!(DRAIN_NS + TERMINATE_NS + SPARE_NS <= FROZEN_NS);

/// A supervised exit's end for the page, from `now_ns` (`CLOCK_MONOTONIC`) and the time needed.
#[must_use]
pub fn seen_to_until_s(now_ns: u64, within_ns: u64) -> u32 {
    let until_s = now_ns.saturating_add(within_ns).div_ceil(1_000_000_000);
    u32::try_from(until_s).unwrap_or(u32::MAX)
}
