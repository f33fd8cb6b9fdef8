//! `launch-gate`: at most one best-effort kernel in flight, and only while HP is idle. The simplest
//! gate that protects HP: no class, SMs or durations. HP waits for at most one kernel, however
//! long. This is what remains of Tally (ASPLOS'25) without kernel transformation, the ablation
//! `disable_transformation` of its artefact: there it costs HP's p99 13 % in the median and 146 %
//! at worst, and best-effort jobs keep half of the GPU. It shows what every cleverer policy adds. A
//! BE kernel goes iff all of:
//! 1. HP is idle.
//! 2. Nothing of any BE job is in flight, counted in launches, not in expected ns.
//! 3. It is the job's turn: while others wait, each has one kernel, in order of ids.
//!
//! A lease states this exactly. `budget_ns` is 1, so that spent < budget only before the first
//! charge, because the launch path charges at least 1 ns for each launch; classes and SMs are not
//! limited. The next lease opens at the poll after the completion was seen: with a daemon that
//! polls every 50 µs, a job of short kernels runs one in 50 to 100 µs. The law is the same in time
//! slices.

use crate::orion::LEASE_NS;
use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::turn::Turn;
use crate::{Kernel, Lease, Limit, Policy, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "launch-gate",
    about: "one best-effort kernel at a time, and only while high-priority jobs are idle",
    settings: Settings::Own(|| Policy::LaunchGate(LaunchGateParams::default())),
};

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

/// What a job may charge in one turn while others wait: any launch uses it up.
const QUANTUM_NS: u64 = 1;

#[derive(Debug)]
pub(crate) struct LaunchGate {
    params: LaunchGateParams,
    turn: Turn,
}

impl LaunchGate {
    pub(crate) fn new(params: LaunchGateParams) -> Self {
        Self {
            params,
            turn: Turn::default(),
        }
    }
}

impl Rules for LaunchGate {
    fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        let is_open = !snapshot.hp.busy && is_drained(snapshot);
        self.turn.handle_snapshot(snapshot, QUANTUM_NS, is_open);
    }

    fn lease(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        let expiry_ns = snapshot.now_ns.saturating_add(self.params.lease_ns);
        let closed = Lease::closed(snapshot.epoch, expiry_ns);
        if snapshot.hp.busy {
            return (closed, Limit::HpBusy);
        }
        match self.turn.budget_ns(&snapshot.be[job], QUANTUM_NS) {
            None | Some(0) => return (closed, Limit::Turn),
            Some(_) => {}
        }
        match is_drained(snapshot) {
            true => (closed.with_budget(QUANTUM_NS), Limit::Budget),
            false => (closed, Limit::Throttle),
        }
    }

    /// Nonzero `spent_ns` means at least one kernel, which is in flight.
    fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        _kernel: &Kernel,
    ) -> bool {
        let best_effort_in_flight = spent_ns > 0 || snapshot.be.iter().any(|job| !job.drained);
        let is_turn = self.turn.admits(&snapshot.be[job], spent_ns, QUANTUM_NS);
        !snapshot.hp.busy && !best_effort_in_flight && is_turn
    }
}

fn is_drained(snapshot: &Snapshot<'_>) -> bool {
    snapshot.be.iter().all(|job| job.drained)
}
