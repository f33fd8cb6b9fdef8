//! `pillion`: as much best-effort work as the high-priority job can afford, and no more.
//!
//! ## What harms HP, and what it can afford
//!
//! What was launched cannot be stopped. So what a request may have to wait for is the BE work in flight
//! when it arrives, and what goes beside it. How much of that it can afford follows from a *target*: by
//! default a request may take 1.05 times as long as alone ([`Slo`]). The difference is its *slack*,
//!
//! ```text
//! slack = target − solo          ResNet-50, solo 6.8 ms, target 1.05x: 340 µs
//! ```
//!
//! and the two bounds of this policy are multiples of it. Both bound expected ns in flight, over all BE
//! jobs, and both slide: what is complete leaves them at once, nothing has to drain.
//!
//! | | bound | at gain 1 | at gain 16 |
//! |---|---|---|---|
//! | HP idle | gain × slack, and no less than the *floor* below | 1 slack | 16 slacks |
//! | HP busy | ⅛ slack (gain × ⅛ below gain 1), and (gain ÷ 4 − 1) × slack where that is more | ⅛ slack | 3 slacks |
//!
//! ## The gain: what requests were seen to afford
//!
//! The slack alone is no bound: with priorities between blocks a request waits for what executes and not
//! for what is queued; a host that launches slowly leaves pauses in which BE work costs nothing; or
//! profiles are off, and a kernel takes ten times as long as expected. So the law looks at what happens.
//! Each HP request while BE work was there is compared with its target ([`feedback`]), or with what
//! requests of its kind differ by alone, if that is more: within it, the gain
//! rises a little (until one was over it, faster); over it, the gain falls, the more the longer the request took. Idle
//! time is spent first and work beside HP grows only from gain 4 on, because a nanosecond of idle time costs HP least.
//!
//! A request's beginning is known to the ns where it voided a lease. Where it did not, because no
//! BE work could have gone, it is as exact as the look that found it: if that leaves open by more
//! than twice the daemon's least pause and 100 µs (200 µs) when it began, nothing is concluded.
//! Requests that met no BE work say how long requests take alone ([`solo`]); so do those that met
//! no more than the least gain allows, while the gain is at its least. Until 16 were seen, the
//! bounds are `residual_ns_unknown` (100 µs, but no more than a fiftieth of the shortest) and an
//! eighth of it, what goes beside HP must suit it, and the gain is 1. Each request is held against
//! its own *kind*, requests of the same client and about as many launches; the slack is that of the
//! quickest client's main kind.
//!
//! A job that trains has a share of its rate alone as its target ([`Slo::Throughput`]): then the mean of what its requests
//! take counts, and not their tail. One that is never idle has no requests; it is measured in pieces ([`crate::timeline`]).
//!
//! ## The floor
//!
//! Where requests are over their target the gain falls, to a sixteenth at the least. Beside requests of a few ms that is a bound of
//! some 10 µs, which costs BE work several per cent of its rate and was seen to spare HP as good as nothing: what it meets is single kernels.
//! So while HP is idle as much may be in flight as [`orion`] lets, 2.5 % of a request, but half a slack at most: for the default target
//! that is the same. The gain itself falls on, and with it the bound beside HP, where a narrower one does spare it, and quiet times.
//! There is no floor
//!
//! - in time slices and where `block_priority` is said not to work: what is in flight is then waited for whole;
//! - for a job that trains, and while what requests of a client take alone is not known;
//! - for one request in four while the gain is at its least. What runs under the floor is not alone, and beside BE jobs that always want
//!   no other request would be: so these say what requests take that have come to take longer by themselves.
//!
//! ## Beside HP
//!
//! A kernel must fit into what is left of the bound ([`crate::lease`], "Whole"): short ones go beside HP,
//! long ones wait until it is idle. Below gain 1, when HP is being hurt, a kernel must suit as well, as in
//! [`orion`]: need fewer SMs than the device has, and be of the other class than every HP kernel that
//! executes, or one of both unknown.
//!
//! ## Long kernels
//!
//! While HP is idle the last kernel may pass the end of the bound: with the least bound and no floor, one kernel at a
//! time. With priorities between blocks a request then waits for a wave of blocks and not for the kernel.
//! Where `block_priority` is said not to work, and requests are hurt by single kernels ([`feedback`]), a
//! kernel must fit; one that is longer than the bound goes then in a quiet time, or when its wait at the gate
//! has lasted `max_hold`. Where they work, a kernel that has no waves and is longer than a request's slack
//! hurts all the same, and holding it was seen to help nobody: it goes by `max_hold`, at a worse time.
//!
//! *Quiet time* ([`quiet`]): none of HP's last 128 pauses was shorter; for what is left of that, less a
//! tenth, BE work may be in flight, up to 16 slacks. Periodic requests are predicted so, random ones not.
//!
//! ## Completions that are not seen yet
//!
//! The daemon learns of a completion tens of µs late, and of several at once. If a full bound waited for
//! the news, the device would be idle meanwhile. So while HP is idle, work in flight is predicted to
//! complete at one expected ns per ns, counted from the last news, and leaves the bound before it is
//! seen; but never more than one bound of it, so that twice the bound is in flight at most, however wrong
//! a profile is. Beside HP nothing is predicted.
//!
//! ## Time slices
//!
//! Without MPS nothing executes beside HP and there are no priorities: no BE work while HP is busy.
//!
//! ## Wrong profiles
//!
//! Bounds are in expected ns. What a BE kernel is expected to take is learnt from its completions, whatever its profile
//! says or if it has none ([`crate::durations`]): that is done where it is launched, as a gate sees sums and no kernels.
//!
//! ## Jobs and turns
//!
//! Turns are those of [`crate::gate`], except that a turn does not end in the middle of a lease: a job that
//! has charged no more than the idle bound (times its weight) in its turn gets all of the bound that is free. What jobs
//! were promised, and when HP's target comes before it: [`crate::terms`].

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
    about: "as much best-effort work as high-priority requests can afford, by what they take",
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

/// What has been learnt of HP's requests and pauses, and the bounds that follow.
#[derive(Debug, Default)]
struct Learnt {
    solo: Solo,
    gain: Gain,
    marked: Marked,
    /// Goals that clients have of their own.
    goals: Vec<(u64, Goal)>,
    quiet: Quiet,
    /// The meet of all laws.
    bounds: Ceiling,
    /// Whether the gain's ceiling was the one in force.
    binding: Binding,
    /// The last snapshot.
    seen_ns: u64,
    /// Of what is in flight so much is predicted to be complete.
    ahead_ns: u64,
    /// Since when BE work has been in flight beside an idle HP, and no completion was seen.
    unseen_since_ns: Option<u64>,
    /// What had completed of all BE jobs.
    completed_ns: u64,
    /// When jobs were last seen.
    jobs_ns: Option<u64>,
    /// When BE work was last seen in flight.
    exposed_ns: Option<u64>,
    /// When it was last seen in flight or waiting.
    wanted_ns: Option<u64>,
    /// When work of a BE job that is not decided about was last seen.
    excluded_ns: Option<u64>,
    /// Since when no more than the least has been in flight.
    calm_since_ns: Option<u64>,
    /// Requests that have ended.
    requests: u64,
}

impl Learnt {
    /// The gain; the bound of idle time may have its floor in place of what follows from it.
    fn gain(&self) -> f64 {
        self.gain.value()
    }

    /// How long a request of HP takes alone, as far as that is known.
    fn solo_ns(&self, params: &PillionParams) -> Option<u64> {
        params.solo_ns.or_else(|| self.solo.least_ns())
    }

    /// What a client's requests may take, where they are marked or inferred.
    fn goal(&self, params: &PillionParams, client: u64, is_marked: bool) -> Goal {
        let own = self.goals.iter().find(|(id, _)| *id == client);
        own.map_or_else(|| params.goal(is_marked), |(_, goal)| *goal)
    }

    /// What a request takes alone and what it can afford, of the client that can afford least; `None` while none is known.
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

    /// Whether a job that trains is held to its rate: then a mean counts.
    fn is_training(&self, params: &PillionParams) -> bool {
        let slos = self.goals.iter().map(|(_, goal)| goal.slo);
        let is_rate = |slo: Slo| matches!(slo, Slo::Throughput(_));
        is_rate(params.goal(false).slo) || slos.into_iter().any(is_rate)
    }

    /// What a request can afford; while that is not known, the bound that stands for it.
    fn slack_ns(&self, params: &PillionParams) -> u64 {
        self.afforded(params)
            .map_or(params.residual_ns_unknown, |(_, slack_ns)| slack_ns)
    }

    /// A request of an HP client has ended. Before the snapshot of the same look.
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
        // Work of a job that is left out of the decision.
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
            // It may be what made the request late, and then bounds shrink for nothing; a request
            // that was in time beside it is no reason to let them grow.
            // Nor is one that another law has kept it from.
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
            // What was inferred of it no longer counts.
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

    /// What is in flight, or waits, meets the requests of this look. What has completed since the
    /// last snapshot was in flight between both.
    fn handle_jobs(&mut self, now_ns: u64, jobs: &[JobView]) {
        self.jobs_ns = Some(now_ns);
        if jobs.iter().any(|job| !job.drained) || completed_ns(jobs) != self.completed_ns {
            self.exposed_ns = Some(now_ns);
        }
        if jobs.iter().any(|job| !job.drained || job.waiting) {
            self.wanted_ns = Some(now_ns);
        }
    }

    /// Work of a BE job that is in no snapshot is in flight, or was since the last look.
    fn handle_excluded(&mut self, now_ns: u64) {
        self.excluded_ns = Some(now_ns);
    }

    /// An HP client has gone.
    fn handle_detach(&mut self, client: u64) {
        self.marked.handle_detach(client);
        self.solo.handle_detach(client);
        self.goals.retain(|(id, _)| *id != client);
    }

    /// Takes in a snapshot: pauses, exposure, bounds.
    /// `is_behind`: a job waits that gets less than its least share.
    fn handle_snapshot(
        &mut self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) {
        if !snapshot.hp.present {
            // Nobody is left of whom anything was learnt.
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
        // What takes less than a quarter of the slack from a request leaves it as good as alone; and what the least gain
        // allows nobody can do without. What the floor or a quiet time allows beyond that is neither.
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

    /// Predicts what of the work in flight is complete already.
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

    /// The meet of all laws: that of the gain, which goes by what is inferred, and that of each client that marks its requests.
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

    /// What may be in flight while HP is idle however little the gain is; 0 where there is no floor.
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

    /// Whether the request that comes next meets no more than the gain allows, to say what it takes alone: one in four while
    /// the gain is at its least. By the golden ratio, so that of requests that alternate each kind has its share.
    fn is_bare(&self) -> bool {
        self.gain.is_least() && self.requests.wrapping_mul(GOLDEN) >> 62 == 0
    }

    /// The bounds without the floor.
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
        // A short request is not learnt beside as much as a long one: it would be taken for part of it.
        let seen_ns = self.solo.shortest_ns().filter(|_| params.solo_ns.is_none());
        let unknown_ns = params.residual_ns_unknown;
        let unknown_ns = seen_ns.map_or(unknown_ns, |ns| unknown_ns.min(ns / LEARNING_SHARE));
        let unknown = (unknown_ns, scaled(unknown_ns, BESIDE_LEAST));
        let (idle_ns, beside_ns) = match known {
            None => unknown,
            // Some client is known and another is not: what suits both.
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

/// The policy and what it remembers.
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

    /// How long turns last now.
    fn turn_rules(&self) -> TurnRules<'_> {
        TurnRules {
            quantum_ns: quantum_ns(self.learnt.bounds.idle_ns),
            terms: &self.terms,
        }
    }

    /// Whether the holder of the turn could launch something now.
    fn is_open(&self, snapshot: &Snapshot<'_>) -> bool {
        let bounds = self.learnt.bounds;
        let used_ns = self.used_ns(snapshot);
        match snapshot.hp.busy {
            true => free_ns(bounds.beside_ns, used_ns, true) > 0,
            false => free_ns(bounds.idle_ns, used_ns, bounds.whole) > 0,
        }
    }

    /// What of the bounds is used up: what is in flight and not predicted to be complete.
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
        // Of clients whose requests are inferred nothing is held, so they keep what they have.
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

/// What of a bound is free. One more where the last kernel may pass the end: a sum that equals the bound
/// is still allowed.
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

/// Requests of one kind that differ by themselves are held against so many slacks at most: what nine of ten stay within may
/// else be several times the shortest.
const SPREAD_MAX: u64 = 4;

/// While a kind of requests is learnt BE work may be in flight for one in so many of the shortest seen.
const LEARNING_SHARE: u64 = 50;

/// From this gain on the bound beside HP grows with it.
const GAIN_BESIDE: f64 = 4.0;

/// The bound beside HP below that, in slacks.
const BESIDE_LEAST: f64 = 0.125;

/// Below this gain what goes beside HP must suit it.
const GAIN_PAIRS: f64 = 1.0;

/// The floor in slacks at most: what it is for the default target.
const FLOOR_MAX: f64 = 0.5;

/// The golden ratio's part after the point, in 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
