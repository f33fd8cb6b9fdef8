//! The gate: which lease a best-effort job gets at this moment.
//!
//! Every policy is written twice. [`Gate::gate`] makes a [`Lease`], a few
//! numbers that can be checked far away without asking. [`Gate::eligible`] is
//! the policy's law for one kernel, as its paper states it. They share the
//! state and the threshold's value, no more, and for all snapshots, jobs, sums
//! and kernels
//!
//! ```text
//! admits(gate(snapshot, job), spent, kernel)  ⇔  eligible(snapshot, job, spent, kernel)
//! ```
//!
//! so the launch path allows what the policy would have granted, all of it and
//! nothing else (`tests/gate.rs`).
//!
//! ## `none`
//!
//! Everything goes, always. The baseline, and the switch to turn Pillion off
//! without restarting jobs.
//!
//! ## `orion` — the paper's Listing 1
//!
//! A BE kernel goes iff all of:
//!
//! 1. *Throttle.* `be_duration ≤ DUR_THRESHOLD`. `be_duration` is the expected
//!    ns of what all BE jobs launched since it was last zero. It becomes zero
//!    when it is over the threshold and everything BE is complete: never before
//!    it is over, and never while something runs. The throttle binds while HP
//!    is idle too. `DUR_THRESHOLD` is 2.5 % of the HP request latency.
//! 2. *Interference.* HP is idle; or `sm_needed < SM_THRESHOLD` and the kernel's
//!    class is the opposite of the class of *every* HP kernel that executes,
//!    where unknown on either side counts as opposite. `SM_THRESHOLD` is the
//!    device's number of SMs unless configured.
//! 3. *Turn.* It is the job's turn, below.
//!
//! From that the lease: with T = `DUR_THRESHOLD`, d = `be_duration` in integer
//! ns, d + spent ≤ T ⇔ spent < T + 1 − d, so `budget_ns` = T + 1 − d, or 0 when
//! d > T; `sms_max` = `SM_THRESHOLD` − 1; classes = those opposite to all.
//!
//! ```text
//! T = 150 000, nothing launched           budget 150 001
//! a 100 µs kernel goes       d = 100 000  budget  50 001
//! another                    d = 200 000  budget       0   until both are complete
//! both complete              d = 0        budget 150 001
//! ```
//!
//! The listing is for one BE job and has one `be_duration`; with several, the
//! sum over all is what HP would have to wait for, so it stays one. In
//! time-slice mode kernels of two processes never overlap: class and SMs mean
//! nothing, and `orion` is `temporal` with its own numbers.
//!
//! ## `temporal` — only while HP is idle
//!
//! A BE kernel goes iff HP is idle, it is the job's turn, and the expected ns of
//! BE work in flight are ≤ the same `DUR_THRESHOLD`. The bound rolls: what has
//! completed leaves it at once, there is no bubble in which everything drains.
//! `budget_ns` = T + 1 − in flight. HP waits for at most T plus one kernel.
//!
//! ## Nobody to protect
//!
//! While no HP client is attached a BE job is ungated under every policy. There
//! is no latency to hold the work against, and a BE job alone on its GPU should
//! run as if we were not there. It is safe because an HP process attaches when
//! it creates its context, which takes tens of milliseconds before its first
//! launch; the daemon publishes gated leases when it accepts the client, and
//! what was launched until then is charged and drains meanwhile: on the way
//! back `be_duration` starts with all that is in flight.
//!
//! ## Turns
//!
//! "Orion generalizes to an arbitrary number of best-effort clients by serving
//! clients round-robin." One job at a time has the *turn*; all others get a
//! budget of 0. Else the bound would be overshot by one kernel per job. Only
//! jobs whose threads wait at the gate compete. While nobody else waits, the
//! turn stays where it is and has no end. While others wait, it passes to the
//! next waiting job, in order of ids, when its holder
//!
//! - has charged a *quantum*, T + 1 ns; or
//! - is idle: none of its threads waits and all it launched is complete; or
//! - has charged nothing for [`crate::TURN_PATIENCE_NS`] though there was budget: it
//!   computes on the CPU, or waits with a kernel that does not suit HP's while
//!   another job's might.
//!
//! So in each turn a job that always wants to launch charges at least a quantum
//! and less than a quantum plus one kernel: two such jobs differ by at most one
//! kernel per turn. And no job starves: each turn ends after a quantum, or after
//! the patience, and between two turns of a waiting job each other has one.
//!
//! ## Order of calls
//!
//! [`Gate::handle_snapshot`] once per poll, then [`Gate::gate`] for each job of
//! that same snapshot. `gate` changes nothing: the same snapshot gives the same
//! lease however often it is asked.

use crate::throttle::Throttle;
use crate::turn::Turn;
use crate::{
    Class, ClassSet, Kernel, Lease, Limit, OrionParams, Policy, Sharing, Snapshot, TemporalParams,
};

/// Most BE jobs that one gate decides for. A daemon refuses more: each poll
/// looks at every pair of them, and no GPU has room for so many.
pub const JOBS_MAX: usize = 64;

/// A policy and what it remembers between snapshots.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    throttle: Throttle,
    turn: Turn,
}

impl Gate {
    /// A gate that has seen nothing yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            throttle: Throttle::default(),
            turn: Turn::default(),
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Takes in what has happened since the last snapshot: what was charged,
    /// whether the throttle is lifted, whose turn it is. Once per poll, before
    /// [`Gate::gate`].
    pub fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        debug_assert!(snapshot.hp.is_valid());
        debug_assert!(snapshot.be.len() <= JOBS_MAX);
        let Some(params) = self.policy.throttle_params() else {
            return;
        };
        let bound_ns = params.dur_threshold_ns(&snapshot.hp);
        self.throttle.handle_jobs(snapshot.be);
        if snapshot.hp.present {
            self.throttle.lift_if_drained(snapshot.be, bound_ns);
        } else {
            self.throttle.restart(snapshot.be);
        }
        let is_open = match self.regime(snapshot) {
            Regime::Free => true,
            Regime::Orion(_) => self.throttle.budget_ns(bound_ns) > 0,
            Regime::Temporal(_) => !snapshot.hp.busy && rolling_budget_ns(snapshot, bound_ns) > 0,
        };
        self.turn
            .handle_jobs(snapshot.now_ns, snapshot.be, quantum_ns(bound_ns), is_open);
    }

    /// The lease of the job at index `job` of `snapshot.be`, under the epoch of
    /// the snapshot. Total: every job gets one, if only a closed one.
    ///
    /// # Panics
    ///
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn gate(&self, snapshot: &Snapshot<'_>, job: usize) -> Lease {
        self.gate_with_limit(snapshot, job).0
    }

    /// [`Gate::gate`], and which rule limits the lease.
    ///
    /// # Panics
    ///
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn gate_with_limit(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        match self.regime(snapshot) {
            Regime::Free => (Lease::ungated(snapshot.epoch), Limit::Ungated),
            Regime::Orion(params) => self.gate_orion(&params, snapshot, job),
            Regime::Temporal(params) => self.gate_temporal(&params, snapshot, job),
        }
    }

    /// Whether the policy's law lets `kernel` of the job at index `job` go,
    /// after `spent_ns` were charged since the snapshot. The law as the paper
    /// has it, kept apart from [`Gate::gate`] so that each checks the other.
    ///
    /// # Panics
    ///
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        kernel: &Kernel,
    ) -> bool {
        let hp_task_running = snapshot.hp.busy;
        match &self.policy {
            Policy::None => true,
            Policy::Orion(_) | Policy::Temporal(_) if !snapshot.hp.present => true,
            Policy::Orion(params) => {
                let dur_threshold_ns = params.throttle().dur_threshold_ns(&snapshot.hp);
                if !self.is_turn_of(snapshot, job, spent_ns, dur_threshold_ns) {
                    return false;
                }
                if snapshot.sharing == Sharing::TimeSlice {
                    let in_flight_ns = in_flight_ns(snapshot).saturating_add(spent_ns);
                    return !hp_task_running && in_flight_ns <= dur_threshold_ns;
                }
                // Listing 1, lines 12 to 16. What is over the threshold here was
                // not drained at the snapshot, or handle_snapshot had zeroed it.
                let be_duration_ns = self.throttle.be_duration_ns().saturating_add(spent_ns);
                if be_duration_ns > dur_threshold_ns {
                    return false;
                }
                // Lines 22 to 30, schedule_be.
                let sm_threshold = params.sm_threshold.unwrap_or(snapshot.sms);
                !hp_task_running
                    || (kernel.sm_needed < sm_threshold
                        && Class::ALL
                            .into_iter()
                            .filter(|&hp| snapshot.hp.executing.contains(hp))
                            .all(|hp| have_different_profiles(hp, kernel.class)))
            }
            Policy::Temporal(params) => {
                let dur_threshold_ns = params.dur_threshold_ns(&snapshot.hp);
                let in_flight_ns = in_flight_ns(snapshot).saturating_add(spent_ns);
                !hp_task_running
                    && self.is_turn_of(snapshot, job, spent_ns, dur_threshold_ns)
                    && in_flight_ns <= dur_threshold_ns
            }
        }
    }

    /// Which rules hold at this moment.
    fn regime(&self, snapshot: &Snapshot<'_>) -> Regime {
        if !snapshot.hp.present {
            return Regime::Free;
        }
        match (&self.policy, snapshot.sharing) {
            (Policy::None, _) => Regime::Free,
            (Policy::Orion(params), Sharing::Mps) => Regime::Orion(*params),
            (Policy::Orion(params), Sharing::TimeSlice) => Regime::Temporal(params.throttle()),
            (Policy::Temporal(params), _) => Regime::Temporal(*params),
        }
    }

    fn gate_orion(
        &self,
        params: &OrionParams,
        snapshot: &Snapshot<'_>,
        job: usize,
    ) -> (Lease, Limit) {
        let bound_ns = params.throttle().dur_threshold_ns(&snapshot.hp);
        let expiry_ns = snapshot.now_ns.saturating_add(params.lease_ns);
        let closed = Lease::closed(snapshot.epoch, expiry_ns);
        let job = &snapshot.be[job];
        let Some(turn_ns) = self.turn.budget_ns(job, quantum_ns(bound_ns)) else {
            return (closed, Limit::Turn);
        };
        let throttle_ns = self.throttle.budget_ns(bound_ns);
        let idle = Lease {
            classes: ClassSet::ALL,
            sms_max: u32::MAX,
            budget_ns: throttle_ns.min(turn_ns),
            ..closed
        };
        let limit = limit_of(throttle_ns, turn_ns);
        if !snapshot.hp.busy {
            return (idle, limit);
        }
        // A threshold of 0 lets no kernel go beside HP, even one of 0 SMs.
        let Some(sms_max) = params.sm_threshold.unwrap_or(snapshot.sms).checked_sub(1) else {
            return (closed, Limit::HpBusy);
        };
        let classes = suiting(snapshot.hp.executing);
        let lease = Lease {
            classes,
            sms_max,
            beside_hp: true,
            ..idle
        };
        let is_open = limit == Limit::Budget;
        (lease, if is_open { Limit::Interference } else { limit })
    }

    fn gate_temporal(
        &self,
        params: &TemporalParams,
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
        let Some(turn_ns) = self.turn.budget_ns(job, quantum_ns(bound_ns)) else {
            return (closed, Limit::Turn);
        };
        let rolling_ns = rolling_budget_ns(snapshot, bound_ns);
        let lease = Lease {
            classes: ClassSet::ALL,
            sms_max: u32::MAX,
            budget_ns: rolling_ns.min(turn_ns),
            ..closed
        };
        (lease, limit_of(rolling_ns, turn_ns))
    }

    /// The third rule of the law: the job has the turn, and either nobody else
    /// waits or it has not yet charged more than the threshold in this turn.
    fn is_turn_of(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        dur_threshold_ns: u64,
    ) -> bool {
        let job = &snapshot.be[job];
        let used_ns = self.turn.used_ns(job).saturating_add(spent_ns);
        self.turn.holder() == Some(job.id)
            && (!self.turn.is_contended() || used_ns <= dur_threshold_ns)
    }
}

/// Which rules hold at a moment; a policy's parameters with it.
#[derive(Clone, Copy, Debug)]
enum Regime {
    Free,
    Orion(OrionParams),
    Temporal(TemporalParams),
}

/// Listing 1's function: opposite, or unknown on either side.
fn have_different_profiles(hp: Class, be: Class) -> bool {
    match (hp, be) {
        (Class::Unknown, _) | (_, Class::Unknown) => true,
        (Class::Compute, Class::Memory) | (Class::Memory, Class::Compute) => true,
        (Class::Compute, Class::Compute) | (Class::Memory, Class::Memory) => false,
    }
}

/// The classes that suit everything that executes: all but the ones that do,
/// and unknown always.
fn suiting(executing: ClassSet) -> ClassSet {
    ClassSet::from_bits_truncate(!executing.bits()).with(Class::Unknown)
}

/// Which of both budgets is used up.
fn limit_of(throttle_ns: u64, turn_ns: u64) -> Limit {
    match (throttle_ns, turn_ns) {
        (0, _) => Limit::Throttle,
        (_, 0) => Limit::Turn,
        _ => Limit::Budget,
    }
}

/// What a job may charge in one turn while others wait. One more than the
/// bound, because a sum that equals the bound is still allowed.
fn quantum_ns(bound_ns: u64) -> u64 {
    bound_ns + 1
}

/// What may still be charged before more than the bound is in flight.
fn rolling_budget_ns(snapshot: &Snapshot<'_>, bound_ns: u64) -> u64 {
    (bound_ns + 1).saturating_sub(in_flight_ns(snapshot))
}

/// Expected ns of all BE jobs together, launched and not complete.
fn in_flight_ns(snapshot: &Snapshot<'_>) -> u64 {
    snapshot
        .be
        .iter()
        .fold(0, |sum: u64, job| sum.saturating_add(job.in_flight_ns()))
}
