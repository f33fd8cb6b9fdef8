//! `temporal`: best-effort work only while HP is idle. A BE kernel goes iff HP is idle, it is the
//! job's turn, and the expected ns of BE work in flight are ≤ `DUR_THRESHOLD`, that of `orion`. The
//! bound rolls: completed work leaves it at once, without draining. `budget_ns` = T + 1 − in
//! flight. HP waits for at most T plus one kernel. It is neither the Orion paper's temporal
//! sharing, which runs one *request* at a time, so that HP waits for a training iteration; nor
//! `none` without MPS, the driver's time slices.

use crate::gate::{in_flight_ns, limit_of, quantum_ns};
use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::turn::Turn;
use crate::{HpView, Kernel, Lease, Limit, OrionParams, Policy, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "temporal",
    about: "best-effort jobs only while high-priority jobs are idle",
    settings: Settings::Own(|| Policy::Temporal(TemporalParams::default())),
};

/// The numbers of `temporal`, as in [`OrionParams`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TemporalParams {
    /// BE work in flight, in per cent of the HP request latency.
    pub dur_threshold_pct: f64,
    /// BE work in flight while the HP latency is not known, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts unless it is renewed, in ns.
    pub lease_ns: u64,
}

impl TemporalParams {
    /// `DUR_THRESHOLD` in ns: the percentage of HP's latency; the fixed number if unknown; the
    /// smaller if known of some clients only. 0 means one kernel at a time.
    #[must_use]
    pub fn dur_threshold_ns(&self, hp: &HpView) -> u64 {
        let known_ns = hp.latency_ns.map(|latency_ns| {
            // Exact up to 2^53 ns, 104 days; the conversion back saturates.
            (latency_ns as f64 * self.dur_threshold_pct / 100.0) as u64
        });
        let bound_ns = match (known_ns, hp.learning) {
            (Some(known_ns), false) => known_ns,
            (Some(known_ns), true) => known_ns.min(self.residual_ns_unknown),
            (None, _) => self.residual_ns_unknown,
        };
        // The gate counts up to one more than the bound ([`quantum_ns`]).
        bound_ns.min(u64::MAX - 1)
    }
}

impl Default for TemporalParams {
    fn default() -> Self {
        OrionParams::default().throttle()
    }
}

#[derive(Debug)]
pub(crate) struct Temporal {
    params: TemporalParams,
    turn: Turn,
}

impl Temporal {
    pub(crate) fn new(params: TemporalParams) -> Self {
        Self {
            params,
            turn: Turn::default(),
        }
    }
}

impl Rules for Temporal {
    fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        let quantum_ns = quantum_ns(self.params.dur_threshold_ns(&snapshot.hp));
        let is_open = is_open(&self.params, snapshot);
        self.turn.handle_snapshot(snapshot, quantum_ns, is_open);
    }

    fn lease(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        lease(&self.params, &self.turn, snapshot, job)
    }

    fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        _kernel: &Kernel,
    ) -> bool {
        eligible(&self.params, &self.turn, snapshot, job, spent_ns)
    }
}

pub(crate) fn lease(
    params: &TemporalParams,
    turn: &Turn,
    snapshot: &Snapshot<'_>,
    job: usize,
) -> (Lease, Limit) {
    let bound_ns = params.dur_threshold_ns(&snapshot.hp);
    let expiry_ns = snapshot.now_ns.saturating_add(params.lease_ns);
    let closed = Lease::closed(snapshot.epoch, expiry_ns);
    if snapshot.hp.busy {
        return (closed, Limit::HpBusy);
    }
    let job = &snapshot.be[job];
    let Some(turn_ns) = turn.budget_ns(job, quantum_ns(bound_ns)) else {
        return (closed, Limit::Turn);
    };
    let rolling_ns = rolling_budget_ns(snapshot, bound_ns);
    let lease = closed.with_budget(rolling_ns.min(turn_ns));
    (lease, limit_of(rolling_ns, turn_ns))
}

pub(crate) fn eligible(
    params: &TemporalParams,
    turn: &Turn,
    snapshot: &Snapshot<'_>,
    job: usize,
    spent_ns: u64,
) -> bool {
    let dur_threshold_ns = params.dur_threshold_ns(&snapshot.hp);
    let in_flight_ns = in_flight_ns(snapshot).saturating_add(spent_ns);
    !snapshot.hp.busy
        && turn.admits(&snapshot.be[job], spent_ns, quantum_ns(dur_threshold_ns))
        && in_flight_ns <= dur_threshold_ns
}

pub(crate) fn is_open(params: &TemporalParams, snapshot: &Snapshot<'_>) -> bool {
    let bound_ns = params.dur_threshold_ns(&snapshot.hp);
    !snapshot.hp.busy && rolling_budget_ns(snapshot, bound_ns) > 0
}

fn rolling_budget_ns(snapshot: &Snapshot<'_>, bound_ns: u64) -> u64 {
    quantum_ns(bound_ns).saturating_sub(in_flight_ns(snapshot))
}
