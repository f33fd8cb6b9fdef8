//! The gate: which lease a best-effort job gets at this moment. Each policy has its own file, whose
//! head is its definition ([`crate::none`], [`crate::orion`], [`crate::temporal`],
//! [`crate::launch_gate`], [`crate::pillion`]), and implements [`crate::Rules`]. This file has what
//! they share. Every policy is written twice. [`Gate::gate`] makes a [`Lease`], a few numbers that
//! the launch path can check without asking. [`Gate::eligible`] is the policy's law for one kernel,
//! as its paper states it. Both share only the state and the threshold's value, and for all inputs
//! ```text
//! admits(gate(snapshot, job), spent, kernel)  ⇔  eligible(snapshot, job, spent, kernel)
//! ```
//! so the launch path allows exactly what the policy would have granted (`tests/gate.rs`).
//! ## Nobody to protect
//! While no HP client is attached, a BE job is ungated under every policy: there is no latency to
//! protect, and a BE job alone should run as without Pillion. This is safe because an HP process
//! attaches when it creates its context, tens of milliseconds before its first launch, and the
//! daemon publishes gated leases when it accepts the client. Work launched until then is charged
//! and drains meanwhile: when gating resumes, `be_duration` starts with all that is in flight. A
//! job with a cap ([`crate::usage`]) keeps it meanwhile: its lease has its own budget.
//! ## Turns
//! "Orion generalizes to an arbitrary number of best-effort clients by serving clients
//! round-robin." One job at a time has the *turn*; all others get a budget of 0, because each could
//! overshoot the bound by one kernel. Only jobs with threads waiting at the gate compete. While no
//! other job waits, the turn has no end. While others wait, it passes to the next waiting job, in
//! order of ids, when its holder
//! - has charged a *quantum*, T + 1 ns (`launch-gate`: one kernel; `pillion`: in proportion to its
//!   weight, and jobs that are behind have every second turn, see [`crate::terms`]); or
//! - is idle: none of its threads waits and all it launched is complete; or
//! - has charged nothing for [`crate::TURN_PATIENCE_NS`] despite a budget: it computes on the CPU,
//!   or waits with a kernel that does not suit HP's while another job's might.
//!
//! In each turn, a job that always wants to launch charges at least a quantum and less than a
//! quantum plus one kernel: two such jobs differ by at most one kernel per turn. No job starves: a
//! turn ends after a quantum or the patience, and every other job has one in between.
//! ## Order of calls
//! [`Gate::handle_jobs`], [`Gate::handle_request`] for each ended HP request,
//! [`Gate::handle_snapshot`] once per poll, then [`Gate::gate`] for each job of that snapshot.
//! `gate` changes nothing: the same snapshot gives the same lease.

use crate::rules::Rules;
use crate::terms::JobTerms;
use crate::throttle::Throttle;
use crate::usage::{Caps, Debt};
use crate::{
    Ceiling, DeviceReading, Goal, JobId, JobView, Kept, Kernel, Lease, Limit, Mark, Outlook,
    Policy, Request, RequestTarget, SloView, Snapshot, ThrottleParams, ThrottleView, none,
};

/// Most BE jobs of one gate; a daemon refuses more. Each poll visits every pair of them, and no GPU
/// has room for so many.
pub const JOBS_MAX: usize = 64;

/// A policy at work.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    rules: Box<dyn Rules>,
    caps: Caps,
    throttle: Throttle,
    /// All best-effort jobs are paused, regardless of the other laws.
    is_paused: bool,
    /// The jobs as shown to the policy, where a cap, the throttle or a pause closes one.
    masked: Vec<JobView>,
}

impl Gate {
    /// A gate without any observations.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            rules: policy.rules(),
            caps: Caps::default(),
            throttle: Throttle::default(),
            is_paused: false,
            masked: Vec::new(),
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// An HP request took `duration_ns`. For a search for `SM_THRESHOLD` ([`crate::sm_search`]).
    pub fn handle_hp_request(&mut self, duration_ns: u64) {
        self.rules.handle_hp_request(duration_ns);
    }

    /// Best-effort work in flight or waiting, as of this poll. Before [`Gate::handle_request`].
    pub fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        self.caps.handle_jobs(now_ns, jobs);
        self.throttle.handle_jobs(now_ns, jobs);
        let is_closed = self.is_closed();
        let jobs = masked(&self.caps, is_closed, &mut self.masked, jobs);
        self.rules.handle_jobs(now_ns, jobs);
    }

    /// A best-effort job in no snapshot has work in flight, or had since the last poll: requests
    /// that overlap it teach no solo duration and raise no bound. Before [`Gate::handle_request`];
    /// used only by `pillion`.
    pub fn handle_excluded(&mut self, now_ns: u64) {
        self.rules.handle_excluded(now_ns);
    }

    /// A request of the HP client `client` has ended ([`crate::HpTimeline::take_request`]). Call
    /// before [`Gate::handle_snapshot`] of the same poll. Used only by `pillion`.
    pub fn handle_request(&mut self, client: u64, request: &Request) {
        self.rules.handle_request(client, request);
    }

    /// The HP client `client` marks the beginning or end of a request, in order. From the first
    /// mark on, its requests are those that it marks. After [`Gate::handle_jobs`]; used only by
    /// `pillion`.
    pub fn handle_mark(&mut self, client: u64, mark: &Mark) {
        self.rules.handle_mark(client, mark);
    }

    /// Replaces the configured goal of an HP client until [`Gate::handle_detach`]; `None`, and a
    /// goal that [`Goal::validate`] refuses: the configured one. Used only by `pillion`.
    pub fn handle_goal(&mut self, client: u64, goal: Option<Goal>) {
        self.rules.handle_goal(client, goal);
    }

    /// Whether HP launches need no greater priority than BE ones, until the next snapshot: every HP
    /// client marks its requests, and these have enough time left for BE blocks to go first.
    #[must_use]
    pub fn gives_priority(&self) -> bool {
        self.rules.gives_priority()
    }

    /// How well an HP client's goal is kept; `None` without marks or under other policies.
    #[must_use]
    pub fn slo_view(&self, client: u64) -> Option<SloView> {
        self.rules.slo_view(client)
    }

    /// The target for a request of kind `kind` of `client`; `None` while unknown, where the client
    /// has marked no request, and under other policies.
    #[must_use]
    pub fn request_target(&self, client: u64, kind: u32) -> Option<RequestTarget> {
        self.rules.request_target(client, kind)
    }

    /// What was learnt of the client's marked requests; `None` while nothing is known, and under
    /// other policies. Copies some thousand numbers.
    #[must_use]
    pub fn kept(&self, client: u64) -> Option<Kept> {
        self.rules.kept(client)
    }

    /// The client marks its requests and starts with what an earlier gate or process of the same
    /// program learnt of them. Counts restart. After [`Gate::handle_goal`]; used only by `pillion`.
    pub fn restore(&mut self, client: u64, kept: &Kept) {
        self.rules.restore(client, kept);
    }

    /// The HP client `client` has detached: its goal and everything learnt of it are forgotten.
    pub fn handle_detach(&mut self, client: u64) {
        self.rules.handle_detach(client);
    }

    /// The terms of a best-effort job ([`crate::terms`]), until it leaves the snapshot. Call before
    /// [`Gate::handle_snapshot`]. Used only by `pillion`.
    pub fn handle_terms(&mut self, job: JobId, terms: JobTerms) {
        self.rules.handle_terms(job, terms);
    }

    /// The terms promised to the job, as last set.
    #[must_use]
    pub fn terms(&self, job: JobId) -> JobTerms {
        self.rules.terms(job)
    }

    /// The job's cap on the GPU's time ([`crate::usage`]), under every policy, until
    /// [`Gate::handle_job_gone`]; 1 and any value that [`crate::usage::is_share`] refuses: none.
    /// Before [`Gate::handle_jobs`].
    pub fn handle_cap(&mut self, job: JobId, share: f64) {
        self.caps.set(job, share);
    }

    /// The best-effort job has detached; returns what it has used beyond its share.
    pub fn handle_job_gone(&mut self, job: JobId) -> Option<Debt> {
        self.caps.handle_gone(job)
    }

    /// Restores what a job owes from an earlier attachment. Call after [`Gate::handle_cap`].
    pub fn restore_debt(&mut self, now_ns: u64, job: JobId, debt: Debt) {
        self.caps.restore(now_ns, job, debt);
    }

    /// From now on [`Gate::handle_busy`] reports on other processes of the job than before.
    pub fn handle_other_processes(&mut self, job: JobId) {
        self.caps.handle_other_processes(job);
    }

    /// A gate with another policy, but this one's caps, throttle, pause, measurements and debts.
    #[must_use]
    pub fn replaced(&mut self, policy: Policy) -> Self {
        Self {
            caps: std::mem::take(&mut self.caps),
            throttle: std::mem::take(&mut self.throttle),
            is_paused: self.is_paused,
            ..Self::new(policy)
        }
    }

    /// A job with a cap was measured to compute for that share of the time ([`crate::usage`]). Call
    /// after [`Gate::handle_jobs`]. NaN counts as 0.
    pub fn handle_busy(&mut self, now_ns: u64, job: JobId, share: f64) {
        self.caps.handle_busy(now_ns, job, share);
    }

    /// The factor from expected durations to charges against the job's share, and whether it was
    /// not measured for [`crate::usage::BLIND_NS`]; `None` for a job without a cap.
    #[must_use]
    pub fn cost_factor(&self, now_ns: u64, job: JobId) -> Option<(f64, bool)> {
        self.caps.factor(now_ns, job)
    }

    /// The job's cap, as last set; 1 if it has none.
    #[must_use]
    pub fn cap(&self, job: JobId) -> f64 {
        self.caps.share(job)
    }

    /// Sets the throttle ([`crate::throttle`]), under every policy. `None`, or a set point outside
    /// [`crate::throttle::UTILISATION`]: no throttle.
    pub fn handle_throttle(&mut self, params: Option<ThrottleParams>) {
        let [least, most] = crate::throttle::UTILISATION;
        let is_one = |params: &ThrottleParams| (least..=most).contains(&params.utilisation);
        self.throttle.set(params.filter(is_one));
    }

    /// Bounds the share of the GPU's time of all best-effort jobs together while a high-priority
    /// client is attached, 0.02 to 1, under every policy: [`crate::share`] in time slices. 1 and
    /// NaN are no bound. Before [`Gate::handle_jobs`].
    pub fn handle_share(&mut self, share: f64) {
        self.throttle
            .set_ceiling(if share.is_nan() { 1.0 } else { share });
    }

    /// Pauses all BE work while an HP client is attached, `max_hold` included, under every policy;
    /// or ends the pause. For [`crate::tuner::Choice::Infeasible`]. Before [`Gate::handle_jobs`].
    pub fn handle_pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    fn is_closed(&self) -> bool {
        self.is_paused || self.throttle.is_closed()
    }

    /// A reading of the device. Call after [`Gate::handle_snapshot`]. Used only by a throttle.
    pub fn handle_reading(&mut self, now_ns: u64, reading: DeviceReading) {
        self.throttle.handle_reading(now_ns, reading);
    }

    /// The throttle's current state; `None` without one.
    #[must_use]
    pub fn throttle_view(&self, now_ns: u64) -> Option<ThrottleView> {
        self.throttle.view(now_ns)
    }

    /// The latest time for the next poll: when a waiting job that has used up its share, or all
    /// throttled jobs, may go on.
    #[must_use]
    pub fn opens_ns(&self, snapshot: &Snapshot<'_>) -> Option<u64> {
        let is_waited_for = snapshot.be.iter().any(|job| job.waiting);
        let throttle = self.throttle.opens_ns().filter(|_| is_waited_for);
        let caps = self.caps.opens_ns(snapshot.be);
        caps.into_iter().chain(throttle).min()
    }

    /// The meet of `pillion`'s laws as of the last snapshot; `None` under other policies.
    #[must_use]
    pub fn ceiling(&self) -> Option<Ceiling> {
        self.rules.ceiling()
    }

    /// The gain of `pillion`: the bound of idle time in slacks before any floor; `None` elsewhere.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        self.rules.gain()
    }

    /// The solo duration of an HP request, learnt or configured; `None` while unknown, and under
    /// other policies than `pillion`.
    #[must_use]
    pub fn solo_ns(&self) -> Option<u64> {
        self.rules.solo_ns()
    }

    /// How much longer than solo an HP request may take under `pillion`, ns: a longer kernel that
    /// cannot be passed makes a request late. `None` under other policies.
    #[must_use]
    pub fn slack_ns(&self) -> Option<u64> {
        self.rules.slack_ns()
    }

    /// The current `SM_THRESHOLD` of `orion`; `None` for a policy without one.
    #[must_use]
    pub fn sm_threshold(&self, device_sms: u32) -> Option<u32> {
        self.rules.sm_threshold(device_sms)
    }

    /// Handles charges, the end of a drain, the turn. Once per poll, before [`Gate::gate`].
    pub fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        debug_assert!(snapshot.hp.is_valid());
        debug_assert!(snapshot.be.len() <= JOBS_MAX);
        self.caps.handle_jobs(snapshot.now_ns, snapshot.be);
        self.throttle.handle_snapshot(snapshot);
        let is_closed = self.is_closed();
        let be = masked(&self.caps, is_closed, &mut self.masked, snapshot.be);
        self.rules.handle_snapshot(&Snapshot { be, ..*snapshot });
    }

    /// When to poll again without a ring, while BE work waits or is in flight: `pause_ns` after the
    /// snapshot at the earliest. `outlook` is of all HP clients. See [`crate::pillion::pacing`];
    /// the other policies poll after every pause.
    #[must_use]
    pub fn next_look_ns(&self, snapshot: &Snapshot<'_>, outlook: &Outlook, pause_ns: u64) -> u64 {
        let be = match self.masked.len() == snapshot.be.len() {
            true => &self.masked,
            false => snapshot.be,
        };
        let seen = Snapshot { be, ..*snapshot };
        let by_rules = self.rules.next_look_ns(&seen, outlook, pause_ns);
        let soon_ns = snapshot.now_ns.saturating_add(pause_ns);
        match self.opens_ns(snapshot) {
            Some(opens_ns) => by_rules.min(opens_ns.max(soon_ns)),
            None => by_rules,
        }
    }

    /// The lease of the job at index `job` of `snapshot.be`: every job gets one, even if closed.
    /// # Panics
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn gate(&self, snapshot: &Snapshot<'_>, job: usize) -> Lease {
        self.gate_with_limit(snapshot, job).0
    }

    /// [`Gate::gate`], and the rule that limits the lease.
    /// # Panics
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn gate_with_limit(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        let decided = match snapshot.hp.present {
            true => self.rules.lease(snapshot, job),
            false => none::lease(snapshot),
        };
        if self.is_paused && snapshot.hp.present {
            let closed = Lease::closed(snapshot.epoch, decided.0.expiry_ns);
            return (closed, Limit::Paused);
        }
        let capped = self.caps.meet(snapshot, job, decided);
        self.throttle.meet(snapshot, capped)
    }

    /// Whether the law lets `kernel` of the job at index `job` go, after `spent_ns` were charged:
    /// the paper's law, separate from [`Gate::gate`], so that each checks the other.
    /// # Panics
    /// When there is no such job: a bug of the caller.
    #[must_use]
    pub fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        kernel: &Kernel,
    ) -> bool {
        let is_whole = snapshot.hp.present && self.rules.lease(snapshot, job).0.whole;
        let is_paused = self.is_paused && snapshot.hp.present;
        !is_paused
            && self.caps.admits(snapshot.be[job].id, spent_ns, is_whole)
            && self.throttle.admits(spent_ns, is_whole)
            && (!snapshot.hp.present || self.rules.eligible(snapshot, job, spent_ns, kernel))
    }
}

/// The jobs as shown to a policy: a job closed by its cap, or where all are, does not wait.
fn masked<'a>(
    caps: &Caps,
    is_closed: bool,
    buffer: &'a mut Vec<JobView>,
    jobs: &'a [JobView],
) -> &'a [JobView] {
    buffer.clear();
    if caps.is_empty() && !is_closed {
        return jobs;
    }
    buffer.extend(jobs.iter().map(|job| JobView {
        waiting: job.waiting && !is_closed && !caps.is_closed(job.id),
        ..*job
    }));
    buffer
}

pub(crate) fn limit_of(throttle_ns: u64, turn_ns: u64) -> Limit {
    match (throttle_ns, turn_ns) {
        (0, _) => Limit::Throttle,
        (_, 0) => Limit::Turn,
        _ => Limit::Budget,
    }
}

/// A job's charge in one contended turn: the bound plus one, as a sum equal to it is allowed.
pub(crate) fn quantum_ns(bound_ns: u64) -> u64 {
    bound_ns + 1
}

pub(crate) fn in_flight_ns(snapshot: &Snapshot<'_>) -> u64 {
    snapshot
        .be
        .iter()
        .fold(0, |sum: u64, job| sum.saturating_add(job.in_flight_ns()))
}
