//! A client that marks its requests: open requests, their judgement, and the resulting bounds.

use super::Since;
use super::kind::{Kind, Target};
use super::law::{Judged, Law};
use crate::ceiling::{Binding, Ceiling, Duty};
use crate::pillion::quiet::Quiet;
use crate::pillion::{GOLDEN, Goal, RequestTarget, Slo, SloEnd, SloView, scaled};
use crate::slo::GREATEST;
use crate::terms;

/// Open requests of a client; one more makes the oldest count as given up.
pub(super) const OPEN_MAX: usize = 256;

/// Kinds of a client; further ones share the last.
pub(super) const KINDS_MAX: usize = 8;

/// Requests in progress at once that the replay distinguishes.
pub(super) const SERVERS_MAX: usize = 16;

/// The replay has as many servers as requests were open at once among this many.
const SERVERS_OF: u64 = 256;

/// The longest wait of a request in the replay, in services.
const BACKLOG: u64 = 100;

/// A request that has taken this long, and ten times its target, counts as given up.
const ENDLESS_NS: u64 = 10_000_000_000;

/// The same without a known target.
const ENDLESS_UNKNOWN_NS: u64 = 600_000_000_000;

/// The level does not rise after best-effort work has wanted nothing for this long, and no duty
/// applies after this long without a request.
const IDLE_NS: u64 = 1_000_000_000;

const PERIOD_NS: u64 = 20_000_000;

/// The level at which the duty begins to fall.
pub(super) const DUTY_FROM: f64 = -2.0;

/// The narrow bound of idle time, as a share of the service.
const NARROW: f64 = 0.05;

/// The narrow bound beside HP, as a share of that.
const NARROW_BESIDE: f64 = 0.125;

/// The bound of idle time at level 0 and what level 1 adds, as shares of a fresh request's slack.
const WIDE_IDLE: (f64, f64) = (0.05, 0.45);

/// The part of the slack above the threshold that may be in flight beside a request.
const WIDE_BESIDE: f64 = 0.5;

/// The least wide bound: the length of a training job's kernel.
const WIDE_LEAST_NS: u64 = 100_000;

/// The greatest bound in flight, whatever the slack: launched work cannot be recalled.
const WIDE_MOST_NS: u64 = 20_000_000;

/// The shift that leaves seven bits: one request in 128 meets no best-effort work.
const BARE_SHIFT: u32 = 57;

/// A kind never observed alone among this many requests has its solo service estimated.
const UNSEEN: usize = 100;

/// Requests with at most this part of their time (a divisor) beside best-effort work were alone.
const ALONE_SHARE: u64 = 50;

/// The longest time between two polls while something is in flight.
const LOOK_NS: u64 = 400_000;

/// The level counts as at its top within this distance: a miss in hundreds does not end that.
const TOP: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) goal: Goal,
    pub(super) law: Law,
    pub(super) open: Vec<Open>,
    pub(super) kinds: Vec<Kind>,
    pub(super) servers: Vec<u64>,
    at_once: usize,
    /// The times between arrivals: no request is expected before the shortest of the last is over.
    quiet: Quiet,
    /// The progress of a request in a ns beside best-effort work, in solo ns.
    pub(super) rate: f64,
    pub(super) begun: u64,
    pub(super) seen_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) ceiling: Ceiling,
    /// Whether that was in force; otherwise the level does not rise.
    pub(super) binding: Binding,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) id: u64,
    pub(super) kind: usize,
    pub(super) arrived_ns: u64,
    pub(super) began_ns: u64,
    /// Time without best-effort work in flight, and with.
    pub(super) alone_ns: u64,
    pub(super) exposed_ns: u64,
    /// No best-effort work goes beside it.
    pub(super) is_bare: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) ns: u64,
    /// The bound on work in flight where nothing is known.
    pub(super) unknown_ns: u64,
    pub(super) is_behind: bool,
    pub(super) is_foreign: bool,
    pub(super) gap_prediction: bool,
}

impl Open {
    /// Counts the time between both moments as with or without best-effort work in flight.
    fn pass(&mut self, since_ns: u64, now_ns: u64, is_exposed: bool) {
        let ns = now_ns.saturating_sub(since_ns.max(self.began_ns));
        match is_exposed {
            true => self.exposed_ns = self.exposed_ns.saturating_add(ns),
            false => self.alone_ns = self.alone_ns.saturating_add(ns),
        }
    }

    fn is_alone(&self, served_ns: u64) -> bool {
        let little_ns = served_ns / ALONE_SHARE;
        self.exposed_ns <= little_ns && self.alone_ns >= served_ns - little_ns
    }
}

impl Client {
    pub(super) fn new(id: u64, goal: Goal) -> Self {
        Self {
            id,
            goal,
            law: Law::new(&goal, 0.0, false),
            open: Vec::new(),
            kinds: Vec::new(),
            servers: vec![0],
            at_once: 1,
            quiet: Quiet::default(),
            rate: 0.6,
            begun: 0,
            seen_ns: 0,
            ended_ns: 0,
            ceiling: Ceiling::default(),
            binding: Binding::default(),
        }
    }

    pub(super) fn handle_goal(&mut self, goal: &Goal) {
        self.law.handle_goal(&self.goal, goal);
        self.goal = *goal;
        let kinds = self.kinds.iter_mut();
        kinds.for_each(|kind| kind.handle_goal(goal));
    }

    pub(super) fn kind(&mut self, number: u32) -> usize {
        let known = self.kinds.iter().position(|kind| kind.number == number);
        known.unwrap_or_else(|| {
            if self.kinds.len() < KINDS_MAX {
                self.kinds.push(Kind::new(number));
            }
            self.kinds.len() - 1
        })
    }

    pub(super) fn handle_begin(&mut self, id: u64, kind: u32, arrived_ns: u64, began_ns: u64) {
        let kind = self.kind(kind);
        let same = self.open.iter().position(|open| open.id == id);
        let oldest = (self.open.len() >= OPEN_MAX).then_some(0);
        if let Some(place) = same.or(oldest) {
            self.give_up(place, began_ns);
        }
        self.open.push(Open {
            id,
            kind,
            arrived_ns,
            began_ns,
            alone_ns: 0,
            exposed_ns: 0,
            is_bare: self.is_next_bare(),
        });
        self.begun += 1;
        self.quiet.handle_hp(arrived_ns, true);
        self.quiet.handle_hp(arrived_ns, false);
        self.at_once = self.at_once.max(self.open.len().min(SERVERS_MAX));
        if self.servers.len() < self.at_once {
            self.servers.resize(self.at_once, 0);
        }
        if self.begun.is_multiple_of(SERVERS_OF) {
            self.servers.sort_unstable_by(|a, b| b.cmp(a));
            self.servers.truncate(self.at_once);
            self.at_once = self.open.len().clamp(1, SERVERS_MAX);
        }
    }

    /// Whether the next request meets no best-effort work, to reveal the solo service of its kind.
    fn is_next_bare(&self) -> bool {
        (self.begun + 1).wrapping_mul(GOLDEN) >> BARE_SHIFT == 0
    }

    fn give_up(&mut self, place: usize, now_ns: u64) {
        let open = self.open.remove(place);
        self.judge(&open, now_ns, true, false);
    }

    /// Moves the level. A cancelled request counts only if its target has passed.
    fn judge(&mut self, open: &Open, at_ns: u64, is_cancelled: bool, may_rise: bool) {
        let took_ns = at_ns.saturating_sub(open.arrived_ns);
        let kind = &mut self.kinds[open.kind];
        let Some((target, alone_ns)) = kind.target(&self.goal).zip(kind.alone_ns) else {
            return;
        };
        if took_ns > target.ns || !is_cancelled {
            self.law.handle_request(&Judged {
                arrived_ns: open.arrived_ns,
                began_ns: open.began_ns,
                at_ns,
                alone_ns,
                target,
                may_rise,
            });
            kind.push_took(took_ns);
        }
    }

    fn replay(&mut self, kind: usize, arrived_ns: u64) {
        let kind = &mut self.kinds[kind];
        let known = kind.service_ns.zip(kind.next_service_ns());
        let Some((usual_ns, service_ns)) = known else {
            return;
        };
        if let Some(free_ns) = self.servers.iter_mut().min() {
            let most_ns = usual_ns.saturating_mul(BACKLOG);
            let wait_ns = free_ns.saturating_sub(arrived_ns).min(most_ns);
            let latency_ns = wait_ns.saturating_add(service_ns);
            *free_ns = arrived_ns.saturating_add(latency_ns);
            kind.push_latency(arrived_ns, latency_ns, &self.goal);
        }
    }

    pub(super) fn handle_target(&mut self, number: u32, ns: u64, per_mille: u32) {
        // A share of 0 or less cannot be kept.
        if per_mille < 1_000 {
            let miss = f64::from(1_000 - per_mille) / 1_000.0;
            let kind = self.kind(number);
            self.kinds[kind].handle_own(number, ns, miss);
        }
    }

    pub(super) fn handle_end(&mut self, id: u64, at_ns: u64, is_cancelled: bool, since: &Since) {
        let Some(place) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let mut open = self.open.remove(place);
        let at_ns = at_ns.max(open.began_ns);
        open.pass(self.seen_ns, at_ns, since.is_exposed);
        self.ended_ns = self.ended_ns.max(at_ns);
        if since.feedback {
            let wanted = |ns: u64| at_ns.saturating_sub(ns) < IDLE_NS;
            let may_rise = since.wanted_ns.is_some_and(wanted) && self.binding.may_rise();
            self.judge(&open, at_ns, is_cancelled, may_rise);
        }
        if !is_cancelled {
            self.learn(&open, at_ns - open.began_ns);
            self.replay(open.kind, open.arrived_ns);
        }
    }

    /// Learns the solo service of a kind, or the cost of best-effort work, from a served request.
    fn learn(&mut self, open: &Open, served_ns: u64) {
        let kind = &mut self.kinds[open.kind];
        kind.ended += 1;
        let exposed_ns = open.exposed_ns.min(served_ns);
        if open.is_alone(served_ns) {
            kind.push_service(served_ns);
        } else if kind.service_ns.is_none() && kind.ended >= UNSEEN {
            // No request of its kind is ever alone, perhaps because of unmanaged work.
            let done_ns = scaled(exposed_ns, self.rate);
            kind.push_service(served_ns - exposed_ns + done_ns);
        } else if let Some(service_ns) = kind.service_ns
            && exposed_ns > service_ns / 10
        {
            let done_ns = service_ns as f64 - (served_ns - exposed_ns) as f64;
            let rate = (done_ns / exposed_ns.max(1) as f64).clamp(0.1, 1.0);
            self.rate += 0.05 * (rate - self.rate);
        }
    }

    pub(super) fn handle_time(&mut self, now_ns: u64, is_exposed: bool) {
        let since_ns = std::mem::replace(&mut self.seen_ns, now_ns);
        for open in &mut self.open {
            open.pass(since_ns, now_ns, is_exposed);
        }
        while let Some(place) = (self.open.iter()).position(|open| self.is_endless(open, now_ns)) {
            self.give_up(place, now_ns);
        }
    }

    /// Whether to give the request up: one that does not end would hold best-effort work for good.
    fn is_endless(&self, open: &Open, now_ns: u64) -> bool {
        let target = self.kinds[open.kind].target(&self.goal);
        let most_ns = target.map_or(ENDLESS_UNKNOWN_NS, |target| {
            target.ns.saturating_mul(10).max(ENDLESS_NS)
        });
        now_ns.saturating_sub(open.began_ns) >= most_ns
    }

    pub(super) fn has_time_to_spare(&self) -> bool {
        self.law.has_time_to_spare()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether requests miss their target more often than they may, and there are requests.
    pub(super) fn is_hurt(&self, now_ns: u64) -> bool {
        self.law.is_over() && !self.is_silent(now_ns)
    }

    /// The least predicted slack of an open request, and its target, ns; `None` if none is open,
    /// and zeros if one is bare or unknown.
    fn slack(&self, now_ns: u64) -> Option<(f64, u64)> {
        let slack = |open: &Open| {
            let kind = &self.kinds[open.kind];
            let known = kind.service_ns.zip(kind.target(&self.goal));
            let (service_ns, target) = known.filter(|_| !open.is_bare)?;
            let done_ns = open.alone_ns as f64 + self.rate * open.exposed_ns as f64;
            // The remaining service is never 0 before the request has ended.
            let left_ns = (service_ns as f64 - done_ns).max(service_ns as f64 / 20.0);
            let waited_ns = now_ns.saturating_sub(open.arrived_ns) as f64;
            let slack = 1.0 - (waited_ns + left_ns) / target.ns.max(1) as f64;
            Some((slack, target.ns))
        };
        let mut least = None;
        for open in &self.open {
            let Some(slack) = slack(open) else {
                return Some((0.0, 0));
            };
            least = least
                .into_iter()
                .chain([slack])
                .min_by(|a, b| a.0.total_cmp(&b.0));
        }
        least
    }

    /// Service and target of the kind with the least fresh slack; `None` while none is known.
    fn fresh(&self) -> Option<(u64, u64)> {
        let known = self.kinds.iter().filter_map(|kind| {
            let Target { ns, .. } = kind.target(&self.goal)?;
            Some((kind.service_ns?, ns))
        });
        known.min_by_key(|(service_ns, target_ns)| target_ns.saturating_sub(*service_ns))
    }

    /// The predicted time without a request, times the duty that the level leaves.
    fn quiet_ns(&self, now_ns: u64) -> u64 {
        let is_meant = self.is_idle() && !self.is_next_bare() && self.fresh().is_some();
        match is_meant {
            true => scaled(self.quiet.left_ns(now_ns), self.duty()).min(WIDE_MOST_NS),
            false => 0,
        }
    }

    pub(super) fn bounds(&self, now: &Now) -> Ceiling {
        let bounds = self.bounds_by_level(now);
        let quiet_ns = match now.gap_prediction && !now.is_foreign {
            true => self.quiet_ns(now.ns),
            false => 0,
        };
        match quiet_ns > bounds.idle_ns {
            true => Ceiling {
                idle_ns: quiet_ns,
                whole: self.law.is_over(),
                duty: Duty::On,
                ..bounds
            },
            false => bounds,
        }
    }

    fn bounds_by_level(&self, now: &Now) -> Ceiling {
        let Now {
            ns: now_ns,
            unknown_ns,
            is_behind,
            is_foreign,
            ..
        } = *now;
        let bounds = |idle_ns, beside_ns, pairs| Ceiling {
            idle_ns,
            beside_ns,
            // A bound of 0 lets no kernel pass its end.
            whole: idle_ns == 0,
            pairs,
            floor: false,
            duty: Duty::On,
        };
        let Some((service_ns, fresh_ns)) = self.fresh() else {
            // All later requests are compared with the services being learnt now: nothing goes
            // beside them. Latencies are computed, and need no such care.
            let services = self.kinds.iter().map(|kind| kind.service_ns);
            let idle_ns = match services.min().flatten() {
                Some(service_ns) => scaled(service_ns, NARROW),
                None if self.is_silent(now_ns) => unknown_ns,
                None => self.learning_ns().min(unknown_ns),
            };
            return bounds(idle_ns, 0, true);
        };
        let duty = self.duty_now(now_ns);
        let waits_for_bare = self.is_idle() && self.is_next_bare() && !self.is_silent(now_ns);
        if duty != Duty::On || waits_for_bare {
            return Ceiling {
                duty,
                ..bounds(0, 0, true)
            };
        }
        let level = self.law.value();
        let lift = if is_behind && !self.law.is_over() {
            (terms::BEHIND_IDLE, terms::BEHIND_BESIDE)
        } else {
            (0.0, 0.0)
        };
        let narrow_ns = scaled(service_ns, NARROW).max(1);
        let slack_ns = fresh_ns.saturating_sub(service_ns);
        let wide = WIDE_IDLE.0 + WIDE_IDLE.1 * level.max(0.0);
        let wide_ns = scaled(slack_ns, wide).min(WIDE_MOST_NS).max(narrow_ns);
        let wider = (wide_ns as f64 / narrow_ns as f64).powf((level + 1.0).clamp(0.0, 1.0));
        let idle_ns = scaled(narrow_ns, wider.max(lift.0));
        let fresh = slack_ns as f64 / fresh_ns.max(1) as f64;
        let threshold = self.law.threshold(fresh);
        match self.slack(now_ns) {
            Some((_, 0)) => bounds(0, 0, true),
            None if !is_foreign => bounds(idle_ns, idle_ns, false),
            Some((slack, target_ns)) if slack > threshold => {
                let room_ns = scaled(target_ns, (slack - threshold) * WIDE_BESIDE);
                let room_ns = room_ns.clamp(WIDE_LEAST_NS, WIDE_MOST_NS);
                // The request is still open while its host pauses.
                bounds(idle_ns.max(room_ns), room_ns, false)
            }
            None | Some(_) => {
                let beside = NARROW_BESIDE.max(lift.1);
                let idle_ns = idle_ns.min(scaled(narrow_ns, lift.0.max(1.0)));
                bounds(idle_ns, scaled(narrow_ns, beside), true)
            }
        }
    }

    /// The bound while HP is idle and a kind is being learnt, so that a request still counts as
    /// alone: 0 beside short requests, of which a poll interval is no small part.
    fn learning_ns(&self) -> u64 {
        let learning = self.kinds.iter().filter(|kind| kind.service_ns.is_none());
        let shortest = learning
            .map(|kind| kind.services.least_ns().unwrap_or(0))
            .min();
        (shortest.unwrap_or(0) / ALONE_SHARE).saturating_sub(LOOK_NS)
    }

    fn main_kind(&self) -> Option<&Kind> {
        self.kinds.iter().max_by_key(|kind| kind.judged())
    }

    pub(super) fn request_target(&self, number: u32) -> Option<RequestTarget> {
        let known = self.kinds.iter().find(|kind| kind.number == number);
        let last = || self.kinds.get(KINDS_MAX - 1);
        let target = known.or_else(last)?.target(&self.goal)?;
        Some(RequestTarget {
            ns: target.ns,
            is_mean: self.goal.slo.is_mean(),
        })
    }

    pub(super) fn view(&self) -> SloView {
        let main = self.main_kind();
        let target = main.and_then(|kind| kind.target(&self.goal));
        let goal = match target {
            Some(target) if main.is_some_and(|kind| kind.is_own(&self.goal)) => Goal {
                slo: Slo::LatencyNs(target.ns),
                miss: target.miss,
            },
            _ => self.goal,
        };
        let law = &self.law;
        let (requests, misses, misses_at_floor) = law.counts();
        SloView {
            goal,
            target_ns: target.map(|target| target.ns),
            measured_ns: main.and_then(|kind| kind.took_ns(&goal)),
            level: law.value(),
            slope: law.slope(),
            requests,
            misses,
            misses_at_floor,
            end: match law.value() {
                _ if target.is_none() => SloEnd::Learning,
                value if value > GREATEST - TOP => SloEnd::Top,
                _ if law.is_at_floor(goal.miss) => SloEnd::Floor,
                _ => SloEnd::Held,
            },
        }
    }

    /// The share of each period for best-effort work: 0 where another miss would reach the floor.
    fn duty(&self) -> f64 {
        let targets = self.kinds.iter().filter_map(|kind| kind.target(&self.goal));
        let miss = targets.fold(self.goal.miss, |miss, target| miss.min(target.miss));
        let paused = self.law.paused_at(miss);
        ((self.law.value() - paused) / (DUTY_FROM - paused)).clamp(0.0, 1.0)
    }

    fn is_silent(&self, now_ns: u64) -> bool {
        self.open.is_empty() && now_ns.saturating_sub(self.ended_ns) >= IDLE_NS
    }

    fn duty_now(&self, now_ns: u64) -> Duty {
        let duty = self.duty();
        let is_off = (now_ns % PERIOD_NS) as f64 >= duty * PERIOD_NS as f64;
        match is_off && !self.is_silent(now_ns) {
            true if duty == 0.0 => Duty::Paused,
            true => Duty::Off,
            false => Duty::On,
        }
    }

    /// When the duty next begins or ends.
    pub(super) fn duty_ns(&self, now_ns: u64) -> Option<u64> {
        let duty = self.duty();
        if duty >= 1.0 || self.is_silent(now_ns) {
            return None;
        }
        let began_ns = now_ns - now_ns % PERIOD_NS;
        Some(match self.duty_now(now_ns) != Duty::On {
            true => began_ns.saturating_add(PERIOD_NS),
            false => began_ns.saturating_add(scaled(PERIOD_NS, duty)),
        })
    }
}
