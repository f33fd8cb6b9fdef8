//! Requests whose process says when they begin and end: what they take alone, their targets, and the bounds that follow
//! from the level ([`crate::slo`]).
//!
//! # What they take alone
//!
//! *Service* is what a request takes from its beginning to its end. The first [`FIRST`] of a kind and later one in 64 meet no
//! best-effort work; their median is the kind's service alone.
//!
//! *Latency* counts from the arrival, and holds the wait behind other requests. So what it would be alone is computed:
//! each arrival is replayed through as many servers as the client was seen to have, each with its service alone (Kiefer and
//! Wolfowitz's recursion; with one server Lindley's). The 99th percentile of the last [`ARRIVALS_KEPT`] is what a target such as
//! "1.2x" multiplies. Requests that happened to meet no best-effort work would be a biased sample of it.
//!
//! # The guard
//!
//! The level moves by thousandths; a request that is late needs help at once. So best-effort work goes beside a request
//! only while its *predicted slack* is more than a share of its target:
//!
//! ```text
//! slack      = 1 − (time since arrival + service alone that is left) ÷ target
//! threshold  = ½ (1 − level)
//! ```
//!
//! What of the service is left follows from the time without and the time with best-effort work in flight; how much slower it is with is
//! learnt from requests that have ended.
//!
//! # From the level to bounds
//!
//! | level | |
//! |---|---|
//! | 1 to 0 | while the guard is open: beside HP half of the slack above the threshold; while HP is idle 0.5 down to 0.05 of what a fresh request has as slack |
//! | 0 to −1 | the threshold passes the slack of a fresh request, so that nothing wide goes beside; the bound of idle time falls to the *narrow* one, 5 % of the service |
//! | −1 to −2 | narrow bounds: 5 % of the service while idle, an eighth of that beside, which must suit what executes |
//! | −2 to −6 | the same for a *duty* of each 20 ms that falls from 1 to 0 |
//!
//! The level moves by requests alone. So that a client that falls silent while it is low does not stop best-effort work for
//! good, the duty counts only while a request is open or was in the last second.
//!
//! Narrow bounds are those that a target of 1.05 times the service has at gain 1.

use super::{Bounds, Goal, PillionParams, Slo, SloEnd, SloView, scaled};
use crate::slo::{GREATEST, LEAST, Level};
use crate::{Sharing, Snapshot, terms};

mod kind;

use kind::{FIRST, Kind, Target};

/// Something that an HP process says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Work on it begins.
    Begin {
        /// Its number, of which no other open request of the client is.
        id: u64,
        /// Which kind of request it is, as the client counts kinds.
        kind: u32,
        /// When it arrived, ns of the shared clock, not after `at_ns`.
        arrived_ns: u64,
        /// When work on it began.
        at_ns: u64,
    },
    /// It is answered, or given up.
    End {
        /// Its number.
        id: u64,
        /// When.
        at_ns: u64,
        /// It was given up: it counts if its target had passed by then.
        is_cancelled: bool,
    },
    /// What requests of a kind may take at most, as the job itself says. It only tightens: it is in force, in the place of the
    /// configured goal, where its time is no longer and the share that may be over it no larger; and where the kind alone keeps it.
    /// Requests beyond the eighth kind are one kind, and the tightest of their targets is its.
    Target {
        /// Which kind.
        kind: u32,
        /// From its arrival to its end, ns.
        ns: u64,
        /// So many of 1000 requests are to keep it, below 1000.
        per_mille: u32,
    },
}

/// Open requests of a client; the oldest is forgotten for one more.
const OPEN_MAX: usize = 256;

/// Kinds of a client; further ones are one kind with the last.
const KINDS_MAX: usize = 8;

/// Requests that a client may work on at once and be told apart in the replay.
const SERVERS_MAX: usize = 16;

/// Clients with marks; the oldest is forgotten for one more.
pub(super) const CLIENTS_MAX: usize = 256;

/// The level does not rise while best-effort work wanted nothing for so long, and no duty binds while no request was.
const IDLE_NS: u64 = 1_000_000_000;

/// Of the duty.
const PERIOD_NS: u64 = 20_000_000;

/// Level at which the duty begins to fall.
const DUTY_FROM: f64 = -2.0;

/// The narrow bound of idle time, as a share of the service.
const NARROW: f64 = 0.05;

/// The narrow bound beside HP, as a share of that.
const NARROW_BESIDE: f64 = 0.125;

/// The bound of idle time at level 0 and what level 1 adds, as shares of a fresh request's slack.
const WIDE_IDLE: (f64, f64) = (0.05, 0.45);

/// Of the slack above the threshold so much may be in flight beside a request.
const WIDE_BESIDE: f64 = 0.5;

/// Less is no wide bound: a kernel of a training job is that long.
const WIDE_LEAST_NS: u64 = 100_000;

/// More is not in flight anywhere, whatever the slack: what was launched cannot be called back.
const WIDE_MOST_NS: u64 = 20_000_000;

/// So far below its top the level counts as there: a miss in hundreds does not take it away.
const TOP: f64 = 0.1;

/// What requests may take, of each client that marks them.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    id: u64,
    goal: Goal,
    level: Level,
    open: Vec<Open>,
    kinds: Vec<Kind>,
    /// When each server of the replay is free.
    servers: Vec<u64>,
    /// What is done of a request in a ns beside best-effort work, in ns alone.
    rate: f64,
    /// Requests that have begun.
    begun: u64,
    /// When time was last counted.
    seen_ns: u64,
    /// When a request last ended.
    ended_ns: u64,
}

/// A request that has begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    kind: usize,
    arrived_ns: u64,
    began_ns: u64,
    /// Time without best-effort work in flight, and with.
    alone_ns: u64,
    exposed_ns: u64,
    /// No best-effort work goes beside it.
    is_bare: bool,
}

impl Marked {
    /// Whether a client marks its requests.
    pub(crate) fn is_of(&self, client: u64) -> bool {
        self.clients.iter().any(|known| known.id == client)
    }

    /// Whether any does.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(crate) fn handle_detach(&mut self, client: u64) {
        self.clients.retain(|known| known.id != client);
    }

    /// `goal` is the client's; `wanted_ns`: when best-effort work last wanted to go.
    pub(crate) fn handle_mark(
        &mut self,
        client: u64,
        mark: &Mark,
        goal: &Goal,
        wanted_ns: Option<u64>,
    ) {
        if !self.is_of(client) {
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(0);
            }
            self.clients.push(Client::new(client, *goal));
        }
        let Some(client) = self.clients.iter_mut().find(|known| known.id == client) else {
            return;
        };
        match *mark {
            Mark::Begin {
                id,
                kind,
                arrived_ns,
                at_ns,
            } => client.begin(id, kind, arrived_ns.min(at_ns), at_ns),
            Mark::Target {
                kind,
                ns,
                per_mille,
            } => client.handle_target(kind, ns, per_mille),
            Mark::End {
                id,
                at_ns,
                is_cancelled,
            } => {
                let wanted = |ns: u64| at_ns.saturating_sub(ns) < IDLE_NS;
                client.end(id, at_ns, is_cancelled, wanted_ns.is_some_and(wanted));
            }
        }
    }

    /// A client has this goal from now on.
    pub(crate) fn handle_goal(&mut self, client: u64, goal: &Goal) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.goal = *goal;
            client
                .kinds
                .iter_mut()
                .for_each(|kind| kind.handle_goal(goal));
        }
    }

    /// See [`crate::Gate::slo_view`].
    pub(crate) fn slo_view(&self, client: u64) -> Option<SloView> {
        let client = self.clients.iter().find(|known| known.id == client)?;
        Some(client.view())
    }

    /// Time has come to `now_ns`; since it was told last, best-effort work was in flight or not.
    pub(crate) fn handle_time(&mut self, now_ns: u64, is_exposed: bool) {
        for client in &mut self.clients {
            client.handle_time(now_ns, is_exposed);
        }
    }

    /// The bounds: those that suit every client.
    pub(crate) fn bounds(
        &self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) -> Option<Bounds> {
        let clients = self.clients.iter();
        let bounds = clients.map(|client| {
            let bounds = client.bounds(snapshot.now_ns, params.residual_ns_unknown, is_behind);
            Bounds {
                beside_ns: match snapshot.sharing {
                    Sharing::Mps => bounds.beside_ns,
                    Sharing::TimeSlice => 0,
                },
                whole: bounds.whole || (!params.block_priority && client.level.value() < 0.0),
                ..bounds
            }
        });
        bounds.reduce(Bounds::meet)
    }

    /// When the bounds change by themselves, if they do before `until_ns`.
    pub(crate) fn changes_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        let on_duty = |client: &Client| client.duty_ns(now_ns);
        let changes = self.clients.iter().filter_map(on_duty);
        changes.fold(until_ns, u64::min)
    }
}

impl Bounds {
    /// What suits both.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self {
            idle_ns: self.idle_ns.min(other.idle_ns),
            beside_ns: self.beside_ns.min(other.beside_ns),
            whole: self.whole || other.whole,
            pairs: self.pairs || other.pairs,
            floor: self.floor && other.floor,
        }
    }
}

impl Client {
    fn new(id: u64, goal: Goal) -> Self {
        Self {
            id,
            goal,
            level: Level::default(),
            open: Vec::new(),
            kinds: Vec::new(),
            servers: vec![0],
            rate: 0.6,
            begun: 0,
            seen_ns: 0,
            ended_ns: 0,
        }
    }

    fn kind(&mut self, number: u32) -> usize {
        let known = self.kinds.iter().position(|kind| kind.number == number);
        known.unwrap_or_else(|| {
            if self.kinds.len() < KINDS_MAX {
                self.kinds.push(Kind::new(number));
            }
            self.kinds.len() - 1
        })
    }

    fn begin(&mut self, id: u64, kind: u32, arrived_ns: u64, began_ns: u64) {
        let kind = self.kind(kind);
        self.open.retain(|open| open.id != id);
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.begun += 1;
        self.open.push(Open {
            id,
            kind,
            arrived_ns,
            began_ns,
            alone_ns: 0,
            exposed_ns: 0,
            is_bare: self.begun.wrapping_mul(super::GOLDEN) >> 58 == 0,
        });
        let at_once = self.open.len().min(SERVERS_MAX);
        if self.servers.len() < at_once {
            self.servers.resize(at_once, 0);
        }
        self.replay(kind, arrived_ns);
    }

    /// What the latency of a request that arrived then would be alone.
    fn replay(&mut self, kind: usize, arrived_ns: u64) {
        let kind = &mut self.kinds[kind];
        let Some(service_ns) = kind.next_service_ns() else {
            return;
        };
        if let Some(free_ns) = self.servers.iter_mut().min() {
            *free_ns = arrived_ns.max(*free_ns).saturating_add(service_ns);
            kind.push_latency(*free_ns - arrived_ns, &self.goal);
        }
    }

    fn handle_target(&mut self, number: u32, ns: u64, per_mille: u32) {
        // A share of nothing, or less, cannot be kept.
        if per_mille < 1_000 {
            let miss = f64::from(1_000 - per_mille) / 1_000.0;
            let kind = self.kind(number);
            self.kinds[kind].handle_own(number, ns, miss);
        }
    }

    fn end(&mut self, id: u64, at_ns: u64, is_cancelled: bool, may_rise: bool) {
        let Some(place) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let open = self.open.remove(place);
        self.ended_ns = at_ns;
        let kind = &mut self.kinds[open.kind];
        let took_ns = at_ns.saturating_sub(open.arrived_ns);
        let served_ns = at_ns.saturating_sub(open.began_ns);
        if let Some(target) = kind.target(&self.goal) {
            let is_miss = took_ns > target.ns;
            if is_miss || !is_cancelled {
                self.level.handle_request(is_miss, target.miss, may_rise);
                kind.push_took(took_ns);
            }
        }
        if is_cancelled {
            return;
        }
        if open.exposed_ns <= served_ns / 50 || kind.services.count < FIRST {
            kind.push_service(served_ns);
        } else if let Some(service_ns) = kind.service_ns
            && open.exposed_ns > service_ns / 10
        {
            let exposed_ns = open.exposed_ns.min(served_ns) as f64;
            let done_ns = service_ns as f64 - (served_ns as f64 - exposed_ns);
            let rate = (done_ns / exposed_ns).clamp(0.1, 1.0);
            self.rate += 0.05 * (rate - self.rate);
        }
    }

    fn handle_time(&mut self, now_ns: u64, is_exposed: bool) {
        let since_ns = std::mem::replace(&mut self.seen_ns, now_ns);
        for open in &mut self.open {
            let ns = now_ns.saturating_sub(since_ns.max(open.began_ns));
            match is_exposed {
                true => open.exposed_ns += ns,
                false => open.alone_ns += ns,
            }
        }
    }

    /// The least predicted slack of an open request, and its target, ns; `None` if none is open.
    fn slack(&self, now_ns: u64) -> Option<(f64, u64)> {
        let slacks = self.open.iter().map(|open| {
            let kind = &self.kinds[open.kind];
            let known = kind.service_ns.zip(kind.target(&self.goal));
            let Some((service_ns, target)) = known.filter(|_| !open.is_bare) else {
                return (0.0, 0);
            };
            let done_ns = open.alone_ns as f64 + self.rate * open.exposed_ns as f64;
            // Never over before it has ended.
            let left_ns = (service_ns as f64 - done_ns).max(service_ns as f64 / 20.0);
            let waited_ns = now_ns.saturating_sub(open.arrived_ns) as f64;
            let slack = 1.0 - (waited_ns + left_ns) / target.ns.max(1) as f64;
            (slack, target.ns)
        });
        slacks.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Service and target of the kind with the least slack when it is fresh; `None` while one that requests are made of
    /// is not known.
    fn fresh(&self) -> Option<(u64, u64)> {
        let known = self.kinds.iter().filter_map(|kind| {
            let Target { ns, .. } = kind.target(&self.goal)?;
            Some((kind.service_ns?, ns))
        });
        known.min_by_key(|(service_ns, target_ns)| target_ns.saturating_sub(*service_ns))
    }

    fn bounds(&self, now_ns: u64, unknown_ns: u64, is_behind: bool) -> Bounds {
        let bounds = |idle_ns, beside_ns, pairs| Bounds {
            idle_ns,
            beside_ns,
            // A bound of nothing lets no kernel pass its end.
            whole: idle_ns == 0,
            pairs,
            floor: false,
        };
        let Some((service_ns, fresh_ns)) = self.fresh() else {
            // Services that are learnt now are what all later requests are held against: nothing goes
            // beside them. Latencies are computed, and need no such care.
            let services = self.kinds.iter().map(|kind| kind.service_ns);
            let idle_ns = match services.min().flatten() {
                Some(service_ns) => scaled(service_ns, NARROW),
                None if self.is_silent(now_ns) => unknown_ns,
                None => 0,
            };
            return bounds(idle_ns, 0, true);
        };
        if self.is_off_duty(now_ns) {
            return bounds(0, 0, true);
        }
        let level = self.level.value();
        let lift = if is_behind && level >= 0.0 {
            (terms::BEHIND_IDLE, terms::BEHIND_BESIDE)
        } else {
            (0.0, 0.0)
        };
        let narrow_ns = scaled(service_ns, NARROW);
        let slack_ns = fresh_ns.saturating_sub(service_ns);
        let wide = WIDE_IDLE.0 + WIDE_IDLE.1 * level.max(0.0);
        let wide_ns = scaled(slack_ns, wide).min(WIDE_MOST_NS).max(narrow_ns);
        let wider = (wide_ns as f64 / narrow_ns.max(1) as f64).powf((level + 1.0).clamp(0.0, 1.0));
        let idle_ns = scaled(narrow_ns, wider.max(lift.0));
        let threshold = 0.5 * (1.0 - level);
        match self.slack(now_ns) {
            None => bounds(idle_ns, idle_ns, false),
            Some((slack, target_ns)) if slack > threshold => {
                let room_ns = scaled(target_ns, (slack - threshold) * WIDE_BESIDE);
                bounds(idle_ns, room_ns.clamp(WIDE_LEAST_NS, WIDE_MOST_NS), false)
            }
            Some((_, 0)) => bounds(0, 0, true),
            Some(_) => {
                let beside = NARROW_BESIDE.max(lift.1);
                let idle_ns = idle_ns.min(scaled(narrow_ns, lift.0.max(1.0)));
                bounds(idle_ns, scaled(narrow_ns, beside), true)
            }
        }
    }

    /// The kind that most requests are of.
    fn main_kind(&self) -> Option<&Kind> {
        self.kinds.iter().max_by_key(|kind| kind.judged())
    }

    fn view(&self) -> SloView {
        let main = self.main_kind();
        let target = main.and_then(|kind| kind.target(&self.goal));
        let goal = match target {
            Some(target) if main.is_some_and(|kind| kind.is_own(&self.goal)) => Goal {
                slo: Slo::LatencyNs(target.ns),
                miss: target.miss,
            },
            _ => self.goal,
        };
        let level = &self.level;
        SloView {
            goal,
            target_ns: target.map(|target| target.ns),
            measured_ns: main.and_then(|kind| kind.took_ns(goal.miss)),
            level: level.value(),
            requests: level.requests,
            misses: level.misses,
            misses_at_floor: level.misses_at_floor,
            end: match level.value() {
                _ if target.is_none() => SloEnd::Learning,
                value if value > GREATEST - TOP => SloEnd::Top,
                _ if level.is_at_floor(goal.miss) => SloEnd::Floor,
                _ => SloEnd::Held,
            },
        }
    }

    /// The share of each period in which best-effort work may go.
    fn duty(&self) -> f64 {
        1.0 - (DUTY_FROM - self.level.value()).max(0.0) / (DUTY_FROM - LEAST)
    }

    /// No request is open, nor was in the last second.
    fn is_silent(&self, now_ns: u64) -> bool {
        self.open.is_empty() && now_ns.saturating_sub(self.ended_ns) >= IDLE_NS
    }

    fn is_off_duty(&self, now_ns: u64) -> bool {
        !self.is_silent(now_ns) && (now_ns % PERIOD_NS) as f64 >= self.duty() * PERIOD_NS as f64
    }

    /// When the duty begins or ends next.
    fn duty_ns(&self, now_ns: u64) -> Option<u64> {
        let duty = self.duty();
        if duty >= 1.0 {
            return None;
        }
        let began_ns = now_ns - now_ns % PERIOD_NS;
        Some(match self.is_off_duty(now_ns) {
            true => began_ns.saturating_add(PERIOD_NS),
            false => began_ns.saturating_add(scaled(PERIOD_NS, duty)),
        })
    }
}

#[cfg(test)]
mod tests;
