//! `launch-gate`: at most one best-effort kernel in flight, and only while HP is idle.
//!
//! The plainest gate that protects HP: it knows nothing of kernels, neither class nor SMs nor
//! duration. HP waits for at most one kernel, however long that is. It is what is left of Tally
//! (ASPLOS'25) when its kernels are not transformed, the ablation `disable_transformation` of its
//! artefact: there it costs HP's p99 13 % in the median and 146 % at worst, and best-effort jobs
//! keep half of the GPU. So it shows what every cleverer policy has to add.
//!
//! A BE kernel goes iff all of:
//!
//! 1. HP is idle.
//! 2. Nothing of any BE job is in flight, counted in launches, not in expected ns.
//! 3. It is the job's turn: while others wait, each has one kernel, in order of ids.
//!
//! A lease says this exactly. `budget_ns` is 1, so that spent < budget only before the first charge,
//! because the launch path charges at least 1 ns for whatever it launches (it counts what is in
//! flight by these charges); classes and SMs are not limited. The next lease opens at the poll after
//! the completion was seen: with a daemon that polls every 50 µs, a job of short kernels runs one in
//! 50 to 100 µs. In time-slice mode the law is the same.

use crate::gate::Memory;
use crate::orion::LEASE_NS;
use crate::{ClassSet, Kernel, Lease, Limit, Snapshot};

/// The numbers of `launch-gate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchGateParams {
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
}

impl Default for LaunchGateParams {
    fn default() -> Self {
        Self { lease_ns: LEASE_NS }
    }
}

/// What a job may charge in one turn while others wait: whatever it launches uses it up.
pub(crate) const QUANTUM_NS: u64 = 1;

/// The lease of the job at index `job`.
pub(crate) fn lease(
    params: &LaunchGateParams,
    memory: &Memory,
    snapshot: &Snapshot<'_>,
    job: usize,
) -> (Lease, Limit) {
    let expiry_ns = snapshot.now_ns.saturating_add(params.lease_ns);
    let closed = Lease::closed(snapshot.epoch, expiry_ns);
    if snapshot.hp.busy {
        return (closed, Limit::HpBusy);
    }
    match memory.turn.budget_ns(&snapshot.be[job], QUANTUM_NS) {
        None => return (closed, Limit::Turn),
        Some(0) => return (closed, Limit::Turn),
        Some(_) => {}
    }
    if !is_drained(snapshot) {
        return (closed, Limit::Throttle);
    }
    let lease = Lease {
        classes: ClassSet::ALL,
        sms_max: u32::MAX,
        budget_ns: QUANTUM_NS,
        ..closed
    };
    (lease, Limit::Budget)
}

/// The law: whether a kernel, whichever, goes after `spent_ns`. What was spent is at least one
/// kernel, and that one is in flight.
pub(crate) fn eligible(
    memory: &Memory,
    snapshot: &Snapshot<'_>,
    job: usize,
    spent_ns: u64,
    _kernel: &Kernel,
) -> bool {
    let best_effort_in_flight = spent_ns > 0 || snapshot.be.iter().any(|job| !job.drained);
    !snapshot.hp.busy && !best_effort_in_flight && memory.is_turn_of(snapshot, job, spent_ns, 0)
}

/// Whether the holder of the turn could launch something now.
pub(crate) fn is_open(snapshot: &Snapshot<'_>) -> bool {
    !snapshot.hp.busy && is_drained(snapshot)
}

fn is_drained(snapshot: &Snapshot<'_>) -> bool {
    snapshot.be.iter().all(|job| job.drained)
}
