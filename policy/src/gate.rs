//! The gate: which lease a best-effort job gets at this moment.
//!
//! Each policy is a file of its own, and its head the definition: [`crate::none`], [`crate::orion`],
//! [`crate::temporal`], [`crate::launch_gate`], [`crate::pillion`]; each implements
//! [`crate::Rules`]. Here is what they share.
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
//! A job with a cap ([`crate::usage`]) keeps it then: its lease has a budget, and is no matter of
//! high-priority work.
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
//! - has charged a *quantum*, T + 1 ns (`launch-gate`: one kernel; `pillion`: as many as its weight is, and jobs
//!   that are behind have every second turn, see [`crate::terms`]); or
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
//! [`Gate::handle_jobs`], [`Gate::handle_request`] for each HP request that has ended,
//! [`Gate::handle_snapshot`] once per poll, then [`Gate::gate`] for each job of that same snapshot.
//! `gate` changes nothing: the same snapshot gives the same lease however often it is asked.

use crate::rules::Rules;
use crate::terms::JobTerms;
use crate::throttle::Throttle;
use crate::usage::{Caps, Debt};
use crate::{
    Ceiling, DeviceReading, Goal, JobId, JobView, Kept, Kernel, Lease, Limit, Mark, Outlook,
    Policy, Request, RequestTarget, SloView, Snapshot, ThrottleParams, ThrottleView, none,
};

/// Most BE jobs that one gate decides for. A daemon refuses more: each poll
/// looks at every pair of them, and no GPU has room for so many.
pub const JOBS_MAX: usize = 64;

/// A policy at work.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    rules: Box<dyn Rules>,
    caps: Caps,
    throttle: Throttle,
    /// All best-effort jobs are paused, whatever the other laws say.
    is_paused: bool,
    /// Jobs as the policy is to see them, where one is closed by its cap, the throttle or a pause.
    masked: Vec<JobView>,
}

impl Gate {
    /// A gate that has seen nothing yet.
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

    /// An HP request took `duration_ns`. Only a search for `SM_THRESHOLD`
    /// ([`crate::sm_search`]) listens.
    pub fn handle_hp_request(&mut self, duration_ns: u64) {
        self.rules.handle_hp_request(duration_ns);
    }

    /// What best-effort jobs have in flight or wait for, as of this look. Before
    /// [`Gate::handle_request`].
    pub fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        self.caps.handle_jobs(now_ns, jobs);
        self.throttle.handle_jobs(now_ns, jobs);
        let is_closed = self.is_closed();
        let jobs = masked(&self.caps, is_closed, &mut self.masked, jobs);
        self.rules.handle_jobs(now_ns, jobs);
    }

    /// A best-effort job that is left out of the snapshots has work in flight, or had since the
    /// last look: requests that meet it tell nothing of what they take alone, and let no bound
    /// grow. Before [`Gate::handle_request`]. Only `pillion` listens.
    pub fn handle_excluded(&mut self, now_ns: u64) {
        self.rules.handle_excluded(now_ns);
    }

    /// A request of the HP client `client` has ended, as the client's timeline tells it
    /// ([`crate::HpTimeline::take_request`]). Before [`Gate::handle_snapshot`] of the same poll. Only
    /// `pillion` listens.
    pub fn handle_request(&mut self, client: u64, request: &Request) {
        self.rules.handle_request(client, request);
    }

    /// The HP client `client` says that a request begins or ends, in the order in which it happened. From the first on its
    /// requests are those that it marks. After [`Gate::handle_jobs`]. Only `pillion` listens.
    pub fn handle_mark(&mut self, client: u64, mark: &Mark) {
        self.rules.handle_mark(client, mark);
    }

    /// Requests of the HP client `client` have a goal of their own, in the place of the configured one; `None`: the configured.
    /// Holds until [`Gate::handle_detach`], and is to be told anew after it if the client stays. One that [`Goal::validate`]
    /// refuses is as `None`. Only `pillion` listens.
    pub fn handle_goal(&mut self, client: u64, goal: Option<Goal>) {
        self.rules.handle_goal(client, goal);
    }

    /// Whether HP launches go without a greater priority than BE ones, as of the last snapshot: every HP client marks its
    /// requests, and these have so much time left that BE blocks may go first. Holds until the next snapshot.
    #[must_use]
    pub fn gives_priority(&self) -> bool {
        self.rules.gives_priority()
    }

    /// How the goal of the HP client `client` is kept; `None` if it has marked no request, and for another policy.
    #[must_use]
    pub fn slo_view(&self, client: u64) -> Option<SloView> {
        self.rules.slo_view(client)
    }

    /// What a request of that kind of the HP client `client` may take; `None` while that is not
    /// known, where the client has marked no request, and for another policy.
    #[must_use]
    pub fn request_target(&self, client: u64, kind: u32) -> Option<RequestTarget> {
        self.rules.request_target(client, kind)
    }

    /// What was learnt of the requests that the HP client `client` marks; `None` while nothing is known, and for another policy. It
    /// copies some thousand numbers.
    #[must_use]
    pub fn kept(&self, client: u64) -> Option<Kept> {
        self.rules.kept(client)
    }

    /// The HP client `client` marks its requests, and begins with what was learnt of them before: by another gate, it may be, or
    /// of another process of the same program. Counts of requests begin anew. After [`Gate::handle_goal`]. Only `pillion` listens.
    pub fn restore(&mut self, client: u64, kept: &Kept) {
        self.rules.restore(client, kept);
    }

    /// The HP client `client` has gone: what was learnt of it is forgotten, and its goal.
    pub fn handle_detach(&mut self, client: u64) {
        self.rules.handle_detach(client);
    }

    /// What the best-effort job `job` was promised ([`crate::terms`]), and whether it gets it. Holds until the job leaves the
    /// snapshot. Before [`Gate::handle_snapshot`]. Only `pillion` listens.
    pub fn handle_terms(&mut self, job: JobId, terms: JobTerms) {
        self.rules.handle_terms(job, terms);
    }

    /// What the job was promised, as far as this was told.
    #[must_use]
    pub fn terms(&self, job: JobId) -> JobTerms {
        self.rules.terms(job)
    }

    /// The most of the GPU's time that the best-effort job `job` may use ([`crate::usage`]), under every policy; 1 is no cap, and so
    /// is what [`crate::usage::is_share`] refuses. Holds until
    /// [`Gate::handle_job_gone`]. Before [`Gate::handle_jobs`].
    pub fn handle_cap(&mut self, job: JobId, share: f64) {
        self.caps.set(job, share);
    }

    /// The best-effort job has gone; what it has used beyond its share.
    pub fn handle_job_gone(&mut self, job: JobId) -> Option<Debt> {
        self.caps.handle_gone(job)
    }

    /// A job owes that since it was here before; after [`Gate::handle_cap`].
    pub fn restore_debt(&mut self, now_ns: u64, job: JobId, debt: Debt) {
        self.caps.restore(now_ns, job, debt);
    }

    /// What [`Gate::handle_busy`] tells of the job from now on is of other processes than before.
    pub fn handle_other_processes(&mut self, job: JobId) {
        self.caps.handle_other_processes(job);
    }

    /// A gate with another policy, and caps, throttle and pause of this one with what was measured
    /// and is owed.
    #[must_use]
    pub fn replaced(&mut self, policy: Policy) -> Self {
        Self {
            caps: std::mem::take(&mut self.caps),
            throttle: std::mem::take(&mut self.throttle),
            is_paused: self.is_paused,
            ..Self::new(policy)
        }
    }

    /// A job with a cap was measured to compute in that share of the time lately ([`crate::usage`]); after
    /// [`Gate::handle_jobs`]. A number that is none counts as nothing.
    pub fn handle_busy(&mut self, now_ns: u64, job: JobId, share: f64) {
        self.caps.handle_busy(now_ns, job, share);
    }

    /// What a launch of the job costs of its share, in times what it is expected to take, and whether nothing was measured of
    /// that for [`crate::usage::BLIND_NS`]; `None` of a job without a cap.
    #[must_use]
    pub fn cost_factor(&self, now_ns: u64, job: JobId) -> Option<(f64, bool)> {
        self.caps.factor(now_ns, job)
    }

    /// The job's cap, as far as this was told; 1 if it has none.
    #[must_use]
    pub fn cap(&self, job: JobId) -> f64 {
        self.caps.share(job)
    }

    /// The throttle that holds from now on ([`crate::throttle`]), under every policy; `None`: there is none, and so of a set point
    /// out of [`crate::throttle::UTILISATION`].
    pub fn handle_throttle(&mut self, params: Option<ThrottleParams>) {
        let [least, most] = crate::throttle::UTILISATION;
        let is_one = |params: &ThrottleParams| (least..=most).contains(&params.utilisation);
        self.throttle.set(params.filter(is_one));
    }

    /// All best-effort jobs together may use at most that share of the GPU's time while a
    /// high-priority client is there, 0.02 to 1, under every policy: what [`crate::share`] comes to in
    /// time slices. 1, and what is no number, is no bound. Before [`Gate::handle_jobs`].
    pub fn handle_share(&mut self, share: f64) {
        self.throttle
            .set_ceiling(if share.is_nan() { 1.0 } else { share });
    }

    /// From now on nothing of best-effort work goes while a high-priority client is there, not even
    /// by `max_hold`, under every policy; or the other laws say what does. No batch of
    /// high-priority requests is safe beside it ([`crate::tuner::Choice::Infeasible`]). Before
    /// [`Gate::handle_jobs`].
    pub fn handle_pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Whether throttle or pause lets nothing go.
    fn is_closed(&self) -> bool {
        self.is_paused || self.throttle.is_closed()
    }

    /// The device was read; after [`Gate::handle_snapshot`]. Only a throttle listens.
    pub fn handle_reading(&mut self, now_ns: u64, reading: DeviceReading) {
        self.throttle.handle_reading(now_ns, reading);
    }

    /// The throttle as it stands; `None` where there is none.
    #[must_use]
    pub fn throttle_view(&self, now_ns: u64) -> Option<ThrottleView> {
        self.throttle.view(now_ns)
    }

    /// When a job that waits and has used up its share may go on, or all that are throttled, if there is one: when to look at the
    /// latest, high-priority clients or none.
    #[must_use]
    pub fn opens_ns(&self, snapshot: &Snapshot<'_>) -> Option<u64> {
        let is_waited_for = snapshot.be.iter().any(|job| job.waiting);
        let throttle = self.throttle.opens_ns().filter(|_| is_waited_for);
        let caps = self.caps.opens_ns(snapshot.be);
        caps.into_iter().chain(throttle).min()
    }

    /// What `pillion` lets best-effort work do, the meet of its laws, as of the last snapshot; `None` for another policy.
    #[must_use]
    pub fn ceiling(&self) -> Option<Ceiling> {
        self.rules.ceiling()
    }

    /// The gain of `pillion`: how many slacks the bound of idle time is, as far as that has no floor ([`Ceiling::floor`]);
    /// `None` for another policy.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        self.rules.gain()
    }

    /// How long an HP request takes alone, as `pillion` has learnt it or was told; `None` while that is
    /// not known, and for another policy.
    #[must_use]
    pub fn solo_ns(&self) -> Option<u64> {
        self.rules.solo_ns()
    }

    /// What an HP request can afford, as `pillion` sees it: how much longer than alone it may take, in ns. A
    /// kernel that is longer, and cannot be passed, makes a request late by itself. `None` for another policy.
    #[must_use]
    pub fn slack_ns(&self) -> Option<u64> {
        self.rules.slack_ns()
    }

    /// `SM_THRESHOLD` of `orion` now; `None` for a policy without one.
    #[must_use]
    pub fn sm_threshold(&self, device_sms: u32) -> Option<u32> {
        self.rules.sm_threshold(device_sms)
    }

    /// Takes in what has happened since the last snapshot: what was charged,
    /// whether the throttle is lifted, whose turn it is. Once per poll, before
    /// [`Gate::gate`].
    pub fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        debug_assert!(snapshot.hp.is_valid());
        debug_assert!(snapshot.be.len() <= JOBS_MAX);
        self.caps.handle_jobs(snapshot.now_ns, snapshot.be);
        self.throttle.handle_snapshot(snapshot);
        let is_closed = self.is_closed();
        let be = masked(&self.caps, is_closed, &mut self.masked, snapshot.be);
        self.rules.handle_snapshot(&Snapshot { be, ..*snapshot });
    }

    /// When to look again after the snapshot that was taken in last, if nobody rings, while BE work
    /// waits or is in flight: not earlier than `pause_ns` after it. `outlook` is what is predicted
    /// of all HP clients. See [`crate::pillion::pacing`]; the other policies look after every
    /// pause.
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
        let is_whole = snapshot.hp.present && self.rules.lease(snapshot, job).0.whole;
        let is_paused = self.is_paused && snapshot.hp.present;
        !is_paused
            && self.caps.admits(snapshot.be[job].id, spent_ns, is_whole)
            && self.throttle.admits(spent_ns, is_whole)
            && (!snapshot.hp.present || self.rules.eligible(snapshot, job, spent_ns, kernel))
    }
}

/// The jobs as a policy is to see them: one that is closed by its cap does not wait for what the
/// policy will say, and none does where all are closed.
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

/// Which of both budgets is used up.
pub(crate) fn limit_of(throttle_ns: u64, turn_ns: u64) -> Limit {
    match (throttle_ns, turn_ns) {
        (0, _) => Limit::Throttle,
        (_, 0) => Limit::Turn,
        _ => Limit::Budget,
    }
}

/// What a job may charge in one turn while others wait. One more than the
/// bound, because a sum that equals the bound is still allowed.
pub(crate) fn quantum_ns(bound_ns: u64) -> u64 {
    bound_ns + 1
}

/// Expected ns of all BE jobs together, launched and not complete.
pub(crate) fn in_flight_ns(snapshot: &Snapshot<'_>) -> u64 {
    snapshot
        .be
        .iter()
        .fold(0, |sum: u64, job| sum.saturating_add(job.in_flight_ns()))
}
