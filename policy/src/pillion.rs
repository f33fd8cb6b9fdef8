//! `pillion`: as much best-effort work as the high-priority job can afford, and no more.
//! ## The slack
//! Launched work cannot be stopped. A request may therefore have to wait for the BE work in flight
//! when it arrives, and for the work beside it. How much it can afford follows from a *target*: by
//! default a request may take 1.05 times its solo latency ([`Slo`]). The difference is its *slack*,
//! ```text
//! slack = target − solo          ResNet-50, solo 6.8 ms, target 1.05x: 340 µs
//! ```
//! and both bounds of this policy are multiples of it. They bound expected ns in flight, over all
//! BE jobs, and both slide: completed work leaves them at once, without a drain.
//!
//! | | bound | at gain 1 | at gain 16 |
//! |---|---|---|---|
//! | HP idle | gain × slack, and no less than the *floor* below | 1 slack | 16 slacks |
//! | HP busy | max(min(gain, 1) ÷ 8, gain ÷ 4 − 1) × slack | ⅛ slack | 3 slacks |
//! ## The gain: feedback from requests
//! The slack alone is not a sufficient bound. With priorities between blocks a request waits for
//! executing blocks and not for queued ones; a slowly launching host leaves pauses in which BE work
//! costs nothing; or a profile is wrong by a factor of ten. The law therefore compares each HP
//! request during which BE work was present with its target ([`feedback`]), or with the solo spread
//! of its kind, if that is more. A request within the target raises the gain a little (faster until
//! the first miss). A request over it lowers the gain, the more the longer it took. The gain spends
//! idle time first, which costs HP least per ns, and work beside HP only from gain 4 on.
//!
//! A request's beginning is known to the ns where it voided a lease. Otherwise it is as exact as
//! the poll that found it: if the uncertainty is more than twice the daemon's least pause and 100
//! µs (200 µs), the request is ignored. Requests that met no BE work give the solo latency
//! ([`solo`]). While the gain is at its least, so do those that met at most the work that it
//! allows, or at most `residual_ns_unknown` and a quarter of the slack. Until 16 were seen, all
//! requests count, the bounds are `residual_ns_unknown` (100 µs, but no more than a fiftieth of the
//! shortest) and an eighth of it, work beside HP must suit it, and the gain is 1.
//! Each request is compared with its own *kind*, requests of the same client and about as many
//! launches; the slack follows from the quickest client's main kind.
//!
//! A training job has a share of its solo rate as its target ([`Slo::Throughput`]): the mean of its
//! requests counts, not their tail. A job that is never idle has no requests; it is measured in
//! pieces ([`crate::timeline`]).
//! ## The floor
//! Where requests are over their target the gain falls, to a sixteenth at the least: beside
//! requests of a few ms a bound of some 10 µs. It cost BE work several per cent of its rate and
//! spared HP almost nothing, because it affects single kernels. While HP is idle, as much may
//! therefore be in flight as in [`orion`], 2.5 % of a request, but half a slack at most: for the
//! default target that is the same. The gain itself still falls, and with it the bound beside HP,
//! where a narrower one does spare HP, and quiet times. There is no floor
//! - in time slices and where `block_priority` is off: HP then waits for everything;
//! - for a training job, and while a client's solo latency is not known;
//! - for one request in four while the gain is at its least. Work under the floor means that the
//!   request is not alone, and beside BE jobs that always want to launch none would be: this
//!   quarter detects requests that have become longer by themselves.
//! ## Beside HP
//! A kernel must fit into the rest of the bound ([`crate::lease`], "Whole"): short ones go beside
//! HP, long ones wait until it is idle. Below gain 1, when HP is being hurt, a kernel must suit as
//! well, as in [`orion`]: need fewer SMs than the device has, and be of the other class than every
//! executing HP kernel, or one of both unknown.
//! ## Long kernels
//! While HP is idle the last kernel may pass the end of the bound: with the least bound and no
//! floor, one kernel at a time. With priorities between blocks a request then waits for a wave of
//! blocks and not for the kernel. Where `block_priority` is declared not to work, and single
//! kernels hurt requests ([`feedback`]), a kernel must fit; a longer one then goes in a quiet time,
//! or after a wait of `max_hold` at the gate. Where priorities work, a kernel without waves that is
//! longer than a request's slack hurts all the same, but holding it did not help in measurements:
//! it goes by `max_hold`, at a worse time.
//!
//! *Quiet time* ([`quiet`]): none of HP's last 128 pauses was shorter; for the rest of that time,
//! less a tenth, BE work may be in flight, up to 16 slacks. This predicts periodic requests only.
//! ## Unobserved completions
//! The daemon learns of a completion tens of µs late, and of several at once. Waiting for the
//! report with a full bound would idle the device. While HP is idle, work in flight is therefore
//! predicted to complete at one expected ns per ns, counted from the last report, and leaves the
//! bound before its completion is observed. At most one bound is predicted complete, so at most
//! twice the bound is in flight, however wrong a profile is. Beside HP nothing is predicted.
//! ## Time slices
//! Without MPS nothing executes beside HP and there are no priorities: no BE work while HP is busy.
//! ## Wrong profiles
//! Bounds are in expected ns. The client learns BE kernels' durations from their completions, with
//! or without a profile ([`crate::durations`]), as a gate sees no kernels.
//! ## Jobs and turns
//! Turns are those of [`crate::gate`], except that a turn does not end in the middle of a lease: a
//! job that has charged no more than the idle bound (times its weight) in its turn gets all of the
//! free bound. [`crate::terms`] has the promises, and HP's precedence.

use crate::ceiling::Binding;
use crate::gate::{in_flight_ns, quantum_ns};
use crate::orion;
use crate::registry::{Entry, Settings};
use crate::rules::Rules;
use crate::terms::{BEHIND_BESIDE, BEHIND_IDLE, Terms};
use crate::timeline::Request;
use crate::turn::{Rules as TurnRules, Turn};
use crate::{
    Ceiling, Class, ClassSet, Duty, JobId, JobView, Kernel, Lease, Limit, Outlook, Policy, Sharing,
};
use crate::{JobTerms, Snapshot};

/// Its line in the registry.
pub const ENTRY: Entry = Entry {
    name: "pillion",
    about: "as much best-effort work as high-priority requests can afford, as measured",
    settings: Settings::Own(|| Policy::Pillion(PillionParams::default())),
};

pub mod feedback;
mod marked;
pub mod pacing;
mod params;
pub mod quiet;
pub mod solo;
mod target;

use feedback::{GAIN_MAX, GAIN_MIN, Gain};
pub use marked::{Kept, KeptKind, Mark};
use marked::{Marked, Since};
pub use params::{PillionParams, look_ns_max};
use quiet::Quiet;
use solo::Solo;
pub(crate) use target::SLOWDOWN_MAX;
pub use target::{
    Goal, MISS, MISS_MAX, RequestTarget, Slo, SloEnd, SloError, SloView, THROUGHPUT_MIN,
};

#[derive(Debug, Default)]
struct Learnt {
    solo: Solo,
    gain: Gain,
    marked: Marked,
    goals: Vec<(u64, Goal)>,
    quiet: Quiet,
    bounds: Ceiling,
    binding: Binding,
    seen_ns: u64,
    /// The part of the work in flight that is predicted to be complete.
    ahead_ns: u64,
    /// Since when BE work has been in flight beside an idle HP without an observed completion.
    unseen_since_ns: Option<u64>,
    completed_ns: u64,
    jobs_ns: Option<u64>,
    exposed_ns: Option<u64>,
    wanted_ns: Option<u64>,
    excluded_ns: Option<u64>,
    /// Since when no more than the least has been in flight.
    calm_since_ns: Option<u64>,
    requests: u64,
}

impl Learnt {
    fn gain(&self) -> f64 {
        self.gain.value()
    }

    fn solo_ns(&self, params: &PillionParams) -> Option<u64> {
        params.solo_ns.or_else(|| self.solo.least_ns())
    }

    fn goal(&self, params: &PillionParams, client: u64, is_marked: bool) -> Goal {
        let own = self.goals.iter().find(|(id, _)| *id == client);
        own.map_or_else(|| params.goal(is_marked), |(_, goal)| *goal)
    }

    /// Solo latency and slack of the client with the least slack; `None` while none is known.
    fn afforded(&self, params: &PillionParams) -> Option<(u64, u64)> {
        let clients = self.solo.mains().map(|(id, main_ns)| {
            let solo_ns = params.solo_ns.unwrap_or(main_ns);
            (solo_ns, self.goal(params, id, false).slo.slack_ns(solo_ns))
        });
        let told = params
            .solo_ns
            .map(|solo_ns| (solo_ns, params.goal(false).slo.slack_ns(solo_ns)));
        clients.min_by_key(|(_, slack_ns)| *slack_ns).or(told)
    }

    /// Whether the job has a target for its rate: then a mean counts.
    fn is_training(&self, params: &PillionParams) -> bool {
        let slos = self.goals.iter().map(|(_, goal)| goal.slo);
        let is_rate = |slo: Slo| matches!(slo, Slo::Throughput(_));
        is_rate(params.goal(false).slo) || slos.into_iter().any(is_rate)
    }

    fn slack_ns(&self, params: &PillionParams) -> u64 {
        self.afforded(params)
            .map_or(params.residual_ns_unknown, |(_, slack_ns)| slack_ns)
    }

    fn handle_request(&mut self, params: &PillionParams, client: u64, request: &Request) {
        self.requests = self.requests.wrapping_add(1);
        if self.marked.is_of(client) {
            return;
        }
        if request.unsure_ns > params.look_ns_max {
            return;
        }
        let alone = self.solo.alone(client, request.launches);
        let solo_ns = params.solo_ns.or(alone.map(|alone| alone.latency_ns));
        let since = |at_ns: Option<u64>| at_ns.is_some_and(|at_ns| at_ns >= request.began_ns);
        let (was_exposed, was_wanted) = (since(self.exposed_ns), since(self.wanted_ns));
        let was_calm = self.calm_since_ns.is_some_and(|at| at <= request.began_ns);
        // Work of a job that is excluded from the decision.
        let was_excluded = since(self.excluded_ns);
        let is_alone = !was_excluded && (was_calm || !was_exposed);
        self.solo
            .handle_request(client, request.launches, request.measure_ns(), is_alone);
        if let Some(solo_ns) = solo_ns
            && was_wanted
            && params.feedback
        {
            let slo = self.goal(params, client, false).slo;
            let slack_ns = slo.slack_ns(solo_ns);
            let spread_ns = alone.map_or(0, |alone| alone.spread_ns);
            let slack_ns = slack_ns.max(spread_ns.min(slack_ns.saturating_mul(SPREAD_MAX)));
            let excess_ns = request.measure_ns().saturating_sub(solo_ns);
            let spent = excess_ns as f64 / slack_ns.max(1) as f64;
            // Excluded work may have caused a late request, and bounds shrink for nothing; a timely
            // request beside it, or protected by another law, justifies no growth.
            let may_rise = !was_excluded && self.binding.may_rise();
            if !may_rise && spent <= 1.0 {
                return;
            }
            match slo {
                slo if slo.is_mean() => self.gain.handle_mean(spent),
                _ => self.gain.handle_request(spent),
            }
        }
    }

    fn handle_mark(&mut self, params: &PillionParams, client: u64, mark: &Mark) {
        let goal = self.goal(params, client, true);
        if !self.marked.is_of(client) {
            self.solo.handle_detach(client);
        }
        let is_now = |at_ns: Option<u64>| at_ns.is_some() && at_ns == self.jobs_ns;
        let since = Since {
            now_ns: self.jobs_ns,
            wanted_ns: self.wanted_ns,
            is_exposed: self.jobs_ns.is_none()
                || is_now(self.exposed_ns)
                || is_now(self.excluded_ns),
            feedback: params.feedback,
        };
        self.marked.handle_mark(client, mark, &goal, &since);
    }

    fn restore(&mut self, params: &PillionParams, client: u64, kept: &Kept) {
        let goal = self.goal(params, client, true);
        self.solo.handle_detach(client);
        self.marked.restore(client, kept, &goal);
    }

    fn handle_goal(&mut self, params: &PillionParams, client: u64, goal: Option<Goal>) {
        self.goals.retain(|(id, _)| *id != client);
        if let Some(goal) = goal.filter(|goal| goal.validate().is_ok()) {
            if self.goals.len() >= marked::CLIENTS_MAX {
                self.goals.remove(0);
            }
            self.goals.push((client, goal));
        }
        let goal = self.goal(params, client, true);
        self.marked.handle_goal(client, &goal);
    }

    /// Work in flight or waiting overlaps the requests of this poll, as does work completed since.
    fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        self.jobs_ns = Some(now_ns);
        if jobs.iter().any(|job| !job.drained) || completed_ns(jobs) != self.completed_ns {
            self.exposed_ns = Some(now_ns);
        }
        if jobs.iter().any(|job| !job.drained || job.waiting) {
            self.wanted_ns = Some(now_ns);
        }
    }

    fn handle_excluded(&mut self, now_ns: u64) {
        self.excluded_ns = Some(now_ns);
    }

    fn handle_detach(&mut self, client: u64) {
        self.marked.handle_detach(client);
        self.solo.handle_detach(client);
        self.goals.retain(|(id, _)| *id != client);
    }

    /// Updates pauses and bounds. `is_behind`: a waiting job is behind its least share.
    fn handle_snapshot(
        &mut self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) {
        if !snapshot.hp.present {
            *self = Self {
                goals: std::mem::take(&mut self.goals),
                ..Self::default()
            };
            return;
        }
        let now_ns = snapshot.now_ns;
        let since_ns = match snapshot.hp.since_ns {
            0 => now_ns,
            since_ns => since_ns,
        };
        self.quiet.handle_hp(since_ns, snapshot.hp.busy);
        let in_flight_ns = in_flight_ns(snapshot);
        self.handle_jobs(now_ns, snapshot.be);
        let completed_ns = completed_ns(snapshot.be);
        let is_excluded = self.excluded_ns == Some(now_ns);
        let is_exposed = in_flight_ns > 0 || completed_ns != self.completed_ns || is_excluded;
        self.marked
            .handle_time(now_ns, is_exposed, snapshot.hp.busy);
        self.bounds = self.next_bounds(params, snapshot, is_behind);
        self.seen_ns = now_ns;
        self.predict(snapshot, in_flight_ns, completed_ns);
        // A loss below a quarter of the slack is as good as none. The work that the least gain
        // allows is unavoidable; work under the floor or in a quiet time is not.
        let slack_ns = self.slack_ns(params);
        let little_ns = params.residual_ns_unknown.min(slack_ns / 4);
        let least_ns = scaled(slack_ns, GAIN_MIN);
        let calm_ns = little_ns.max(least_ns);
        let is_calm =
            self.is_learning(params, snapshot) || (self.gain.is_least() && in_flight_ns <= calm_ns);
        if is_calm {
            self.calm_since_ns.get_or_insert(now_ns);
        } else {
            self.calm_since_ns = None;
        }
    }

    /// Predicts how much of the work in flight is complete already.
    fn predict(&mut self, snapshot: &Snapshot<'_>, in_flight_ns: u64, completed_ns: u64) {
        let is_news = completed_ns != std::mem::replace(&mut self.completed_ns, completed_ns);
        if in_flight_ns == 0 || is_news || snapshot.hp.busy {
            self.unseen_since_ns = None;
        }
        if in_flight_ns == 0 || snapshot.hp.busy {
            self.ahead_ns = 0;
            return;
        }
        let since_ns = *self.unseen_since_ns.get_or_insert(snapshot.now_ns);
        let passed_ns = snapshot.now_ns.saturating_sub(since_ns);
        self.ahead_ns = passed_ns.min(self.bounds.idle_ns).min(in_flight_ns);
    }

    fn is_learning(&self, params: &PillionParams, snapshot: &Snapshot<'_>) -> bool {
        let is_new = snapshot.hp.requests_least < solo::REQUESTS_MIN as u64;
        let is_known = self.solo.least_ns().is_some() && !self.solo.is_learning();
        params.solo_ns.is_none() && (is_new || !is_known)
    }

    /// The meet of all laws: the gain's, for inferred requests, and that of each client with marks.
    fn next_bounds(
        &mut self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) -> Ceiling {
        let by_gain = match (self.marked.is_empty(), self.solo.is_empty()) {
            (true, _) => Some(self.bounds_with_floor(params, snapshot, is_behind)),
            (false, true) => None,
            (false, false) => Some(self.bounds_by_gain(params, snapshot, is_behind)),
        };
        let by_level = self.marked.ceilings(params, snapshot, is_behind);
        let all = by_gain.into_iter().chain(by_level).reduce(Ceiling::meet);
        let Some(all) = all else {
            return Ceiling::default();
        };
        if self.wanted_ns == Some(snapshot.now_ns) {
            let ns = snapshot.now_ns.saturating_sub(self.seen_ns);
            let busy = snapshot.hp.busy;
            if let Some(by_gain) = by_gain {
                self.binding.handle_time(ns, by_gain.binds(&all, busy));
            }
            self.marked.handle_binding(ns, &all, busy);
        }
        all
    }

    fn bounds_with_floor(
        &self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) -> Ceiling {
        let bounds = self.bounds_by_gain(params, snapshot, is_behind);
        let floor_ns = self.floor_ns(params, snapshot);
        Ceiling {
            idle_ns: bounds.idle_ns.max(floor_ns),
            floor: bounds.idle_ns < floor_ns,
            ..bounds
        }
    }

    /// The least bound while HP is idle, regardless of the gain; 0 where there is no floor.
    fn floor_ns(&self, params: &PillionParams, snapshot: &Snapshot<'_>) -> u64 {
        let is_meant =
            params.block_priority && snapshot.sharing == Sharing::Mps && !self.is_training(params);
        if !is_meant || self.is_learning(params, snapshot) || self.is_bare() {
            return 0;
        }
        self.afforded(params).map_or(0, |(solo_ns, slack_ns)| {
            let orion_ns = scaled(solo_ns, orion::DUR_THRESHOLD_PCT / 100.0);
            orion_ns.min(scaled(slack_ns, FLOOR_MAX))
        })
    }

    /// Whether the next request meets no more than the gain allows, to reveal its solo latency: one
    /// in four at the least gain. By the golden ratio: alternating kinds each have a share.
    fn is_bare(&self) -> bool {
        self.gain.is_least() && self.requests.wrapping_mul(GOLDEN) >> 62 == 0
    }

    fn bounds_by_gain(
        &self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) -> Ceiling {
        let mps = snapshot.sharing == Sharing::Mps;
        let gain = self.gain.value();
        // A promise to a best-effort job holds while HP's requests are within their target.
        let (idle_least, beside_least) = match is_behind && gain >= 1.0 {
            true => (BEHIND_IDLE, BEHIND_BESIDE),
            false => (0.0, 0.0),
        };
        let is_learning = self.is_learning(params, snapshot);
        let known = self.afforded(params).map(|(_, slack_ns)| {
            let quiet_ns = match params.gap_prediction {
                true => self.quiet.left_ns(snapshot.now_ns),
                false => 0,
            };
            let quiet_ns = quiet_ns.min(scaled(slack_ns, GAIN_MAX * gain.min(1.0)));
            let beside = (gain / GAIN_BESIDE - 1.0).max(BESIDE_LEAST * gain.min(1.0));
            (
                scaled(slack_ns, gain.max(idle_least)).max(quiet_ns),
                scaled(slack_ns, beside.max(beside_least)),
            )
        });
        // Learning a short request allows less work beside it, which would count as part of it.
        let seen_ns = self.solo.shortest_ns().filter(|_| params.solo_ns.is_none());
        let unknown_ns = params.residual_ns_unknown;
        let unknown_ns = seen_ns.map_or(unknown_ns, |ns| unknown_ns.min(ns / LEARNING_SHARE));
        let unknown = (unknown_ns, scaled(unknown_ns, BESIDE_LEAST));
        let (idle_ns, beside_ns) = match known {
            None => unknown,
            // Some client is known and another is not: the lesser bounds.
            Some(known) if is_learning => (known.0.min(unknown.0), known.1.min(unknown.1)),
            Some(known) => known,
        };
        // The gate counts up to one more than the bound.
        let idle_ns = idle_ns.min(u64::MAX - 1);
        Ceiling {
            idle_ns,
            beside_ns: match params.beside && mps {
                true => beside_ns.min(idle_ns),
                false => 0,
            },
            whole: !params.block_priority && self.gain.is_hurt(),
            pairs: params.kernel_pairs && (gain < GAIN_PAIRS || is_learning),
            floor: false,
            duty: Duty::On,
        }
    }
}

fn completed_ns(jobs: &[JobView]) -> u64 {
    let completed = jobs.iter().map(|job| job.completed_total_ns);
    completed.fold(0, u64::saturating_add)
}

fn scaled(ns: u64, by: f64) -> u64 {
    (ns as f64 * by) as u64
}

#[derive(Debug)]
pub(crate) struct Pillion {
    params: PillionParams,
    turn: Turn,
    terms: Terms,
    learnt: Learnt,
}

impl Pillion {
    pub(crate) fn new(params: PillionParams) -> Self {
        Self {
            params,
            turn: Turn::default(),
            terms: Terms::default(),
            learnt: Learnt::default(),
        }
    }

    fn turn_rules(&self) -> TurnRules<'_> {
        TurnRules {
            quantum_ns: quantum_ns(self.learnt.bounds.idle_ns),
            terms: &self.terms,
        }
    }

    fn is_open(&self, snapshot: &Snapshot<'_>) -> bool {
        let bounds = self.learnt.bounds;
        let used_ns = self.used_ns(snapshot);
        match snapshot.hp.busy {
            true => free_ns(bounds.beside_ns, used_ns, true) > 0,
            false => free_ns(bounds.idle_ns, used_ns, bounds.whole) > 0,
        }
    }

    /// The used part of the bounds: work in flight that is not predicted to be complete.
    fn used_ns(&self, snapshot: &Snapshot<'_>) -> u64 {
        in_flight_ns(snapshot).saturating_sub(self.learnt.ahead_ns)
    }
}

impl Rules for Pillion {
    fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        self.learnt.handle_jobs(now_ns, jobs);
    }

    fn handle_excluded(&mut self, now_ns: u64) {
        self.learnt.handle_excluded(now_ns);
    }

    fn handle_request(&mut self, client: u64, request: &Request) {
        self.learnt.handle_request(&self.params, client, request);
    }

    fn handle_mark(&mut self, client: u64, mark: &Mark) {
        self.learnt.handle_mark(&self.params, client, mark);
    }

    fn handle_goal(&mut self, client: u64, goal: Option<Goal>) {
        self.learnt.handle_goal(&self.params, client, goal);
    }

    fn kept(&self, client: u64) -> Option<Kept> {
        self.learnt.marked.kept(client)
    }

    fn restore(&mut self, client: u64, kept: &Kept) {
        self.learnt.restore(&self.params, client, kept);
    }

    fn gives_priority(&self) -> bool {
        // Clients with inferred requests have no guard, so they keep their priority.
        let has_unmarked = self.learnt.solo.mains().next().is_some();
        self.params.block_priority && !has_unmarked && self.learnt.marked.gives_priority()
    }

    fn slo_view(&self, client: u64) -> Option<SloView> {
        self.learnt.marked.slo_view(client)
    }

    fn request_target(&self, client: u64, kind: u32) -> Option<RequestTarget> {
        self.learnt.marked.request_target(client, kind)
    }

    fn handle_detach(&mut self, client: u64) {
        self.learnt.handle_detach(client);
    }

    fn handle_terms(&mut self, job: JobId, terms: JobTerms) {
        self.terms.set(job, terms);
    }

    fn terms(&self, job: JobId) -> JobTerms {
        self.terms.of(job)
    }

    fn ceiling(&self) -> Option<Ceiling> {
        Some(self.learnt.bounds)
    }

    fn gain(&self) -> Option<f64> {
        Some(self.learnt.gain())
    }

    fn solo_ns(&self) -> Option<u64> {
        self.learnt.solo_ns(&self.params)
    }

    fn slack_ns(&self) -> Option<u64> {
        Some(self.learnt.slack_ns(&self.params))
    }

    fn handle_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        self.terms.retain(snapshot.be);
        let is_behind = self.terms.is_any_behind(snapshot.be);
        self.learnt
            .handle_snapshot(&self.params, snapshot, is_behind);
        let is_open = !snapshot.hp.present || self.is_open(snapshot);
        let rules = TurnRules {
            quantum_ns: quantum_ns(self.learnt.bounds.idle_ns),
            terms: &self.terms,
        };
        self.turn
            .handle_jobs(snapshot.now_ns, snapshot.be, &rules, is_open);
    }

    fn next_look_ns(&self, snapshot: &Snapshot<'_>, outlook: &Outlook, pause_ns: u64) -> u64 {
        match snapshot.hp.present {
            true => pacing::next_look_ns(self, snapshot, outlook, pause_ns),
            false => snapshot.now_ns.saturating_add(pause_ns),
        }
    }

    fn lease(&self, snapshot: &Snapshot<'_>, job: usize) -> (Lease, Limit) {
        let expiry_ns = snapshot.now_ns.saturating_add(self.params.lease_ns);
        let closed = Lease::closed(snapshot.epoch, expiry_ns);
        let bounds = self.learnt.bounds;
        let job = &snapshot.be[job];
        let quantum_ns = self.turn_rules().quantum_ns(job.id);
        match self.turn.budget_ns(job, quantum_ns) {
            None | Some(0) => return (closed, Limit::Turn),
            Some(_) => {}
        }
        match bounds.duty {
            Duty::On => {}
            Duty::Off => return (closed, Limit::Duty),
            Duty::Paused => return (closed, Limit::Paused),
        }
        let used_ns = self.used_ns(snapshot);
        if !snapshot.hp.busy {
            let lease = Lease {
                whole: bounds.whole,
                ..closed.with_budget(free_ns(bounds.idle_ns, used_ns, bounds.whole))
            };
            return (lease, limit_of(&lease, Limit::Budget));
        }
        if bounds.beside_ns == 0 {
            return (closed, Limit::HpBusy);
        }
        let (classes, sms_max) = match bounds.pairs {
            true => (
                orion::suiting(snapshot.hp.executing),
                snapshot.sms.saturating_sub(1),
            ),
            false => (ClassSet::ALL, u32::MAX),
        };
        let lease = Lease {
            classes,
            sms_max,
            budget_ns: free_ns(bounds.beside_ns, used_ns, true),
            beside_hp: true,
            whole: true,
            ..closed
        };
        (lease, limit_of(&lease, Limit::Interference))
    }

    fn eligible(
        &self,
        snapshot: &Snapshot<'_>,
        job: usize,
        spent_ns: u64,
        kernel: &Kernel,
    ) -> bool {
        let bounds = self.learnt.bounds;
        let job = &snapshot.be[job];
        if !(self.turn).admits(job, 0, self.turn_rules().quantum_ns(job.id)) {
            return false;
        }
        if bounds.duty != Duty::On {
            return false;
        }
        let before_ns = self.used_ns(snapshot).saturating_add(spent_ns);
        let after_ns = before_ns.saturating_add(kernel.expected_ns);
        if !snapshot.hp.busy {
            return match bounds.whole {
                true => before_ns < bounds.idle_ns && after_ns <= bounds.idle_ns,
                false => before_ns <= bounds.idle_ns,
            };
        }
        let fits = before_ns < bounds.beside_ns && after_ns <= bounds.beside_ns;
        let suits = Class::ALL
            .into_iter()
            .filter(|&hp| snapshot.hp.executing.contains(hp))
            .all(|hp| orion::have_different_profiles(hp, kernel.class));
        fits && (!bounds.pairs || (suits && kernel.sm_needed < snapshot.sms.max(1)))
    }
}

/// The free part of a bound, plus one where the last kernel may pass the end.
fn free_ns(bound_ns: u64, used_ns: u64, whole: bool) -> u64 {
    (bound_ns + u64::from(!whole)).saturating_sub(used_ns)
}

fn limit_of(lease: &Lease, open: Limit) -> Limit {
    if lease.budget_ns == 0 {
        Limit::Throttle
    } else {
        open
    }
}

/// The cap, in slacks, on the spread that a kind's requests are compared with: without it nine of
/// ten may take up to several times the shortest.
const SPREAD_MAX: u64 = 4;

/// While a kind is learnt, BE work up to its shortest request divided by this may be in flight.
const LEARNING_SHARE: u64 = 50;

/// From this gain on the bound beside HP grows with it.
const GAIN_BESIDE: f64 = 4.0;

/// The bound beside HP below that, in slacks.
const BESIDE_LEAST: f64 = 0.125;

/// Below this gain work beside HP must suit it.
const GAIN_PAIRS: f64 = 1.0;

/// The cap on the floor, in slacks: its value for the default target.
const FLOOR_MAX: f64 = 0.5;

/// The golden ratio's fractional part, in 2^-64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
