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

use super::{Bounds, scaled};
use crate::slo::{LEAST, Level};
use crate::{Sharing, Snapshot, terms};

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
    /// What requests of a kind may take at most, as the job itself says. It only tightens: the configured target holds too, and
    /// a quantile below the configured one counts as that. What is less than the kind takes alone is no target.
    Target {
        /// Which kind.
        kind: u32,
        /// From its arrival to its end, ns.
        ns: u64,
        /// So many of 1000 requests are to keep it, below 1000.
        per_mille: u32,
    },
}

/// Requests of a kind that meet no best-effort work, to begin with.
const FIRST: usize = 50;

/// Services alone remembered of a kind.
const SERVICES_KEPT: usize = 64;

/// Latencies alone remembered of a kind: at 15 requests a second those of two minutes.
const ARRIVALS_KEPT: usize = 2_048;

/// Latencies that must be known before their 99th percentile is a target.
const ARRIVALS_MIN: usize = 100;

/// That is computed anew after so many more.
const ARRIVALS_STEP: usize = 50;

/// Open requests of a client; the oldest is forgotten for one more.
const OPEN_MAX: usize = 256;

/// Kinds of a client; further ones are one kind with the last.
const KINDS_MAX: usize = 8;

/// Requests that a client may work on at once and be told apart in the replay.
const SERVERS_MAX: usize = 16;

/// Clients with marks; the oldest is forgotten for one more.
const CLIENTS_MAX: usize = 256;

/// The share of requests that may be over their target.
const ALPHA: f64 = 0.01;

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

/// What requests may take, of each client that marks them.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    id: u64,
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

#[derive(Debug)]
struct Kind {
    number: u32,
    services_ns: Vec<u64>,
    /// Services that were seen alone.
    seen: usize,
    service_ns: Option<u64>,
    /// Latencies alone, by the replay.
    latencies_ns: Vec<u64>,
    replayed: usize,
    p99_ns: Option<u64>,
    /// What the job itself asks for: a time in ns, and the share that may take longer.
    own: Option<(u64, f64)>,
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

    /// `target_ns` is of a request that takes so long alone; `wanted_ns`: when best-effort work last wanted to go.
    pub(crate) fn handle_mark(
        &mut self,
        client: u64,
        mark: &Mark,
        target_ns: impl Fn(u64) -> u64,
        wanted_ns: Option<u64>,
    ) {
        if !self.is_of(client) {
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(0);
            }
            self.clients.push(Client::new(client));
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
            } => {
                let kind = client.kind(kind);
                let alpha = f64::from(1000_u32.saturating_sub(per_mille).max(1)) / 1000.0;
                client.kinds[kind].own = Some((ns, alpha));
            }
            Mark::End {
                id,
                at_ns,
                is_cancelled,
            } => {
                let wanted = |ns: u64| at_ns.saturating_sub(ns) < IDLE_NS;
                client.end(
                    id,
                    at_ns,
                    is_cancelled,
                    target_ns,
                    wanted_ns.is_some_and(wanted),
                );
            }
        }
    }

    /// Time has come to `now_ns`; since it was told last, best-effort work was in flight or not.
    pub(crate) fn handle_time(&mut self, now_ns: u64, is_exposed: bool) {
        for client in &mut self.clients {
            client.handle_time(now_ns, is_exposed);
        }
    }

    /// The bounds: those that suit every client; `target_ns` as in [`Marked::handle_mark`].
    pub(crate) fn bounds(
        &self,
        snapshot: &Snapshot<'_>,
        target_ns: impl Fn(u64) -> u64,
        unknown_ns: u64,
        block_priority: bool,
        is_behind: bool,
    ) -> Option<Bounds> {
        let clients = self.clients.iter();
        let bounds = clients.map(|client| {
            let bounds = client.bounds(snapshot.now_ns, &target_ns, unknown_ns, is_behind);
            Bounds {
                beside_ns: match snapshot.sharing {
                    Sharing::Mps => bounds.beside_ns,
                    Sharing::TimeSlice => 0,
                },
                whole: bounds.whole || (!block_priority && client.level.value() < 0.0),
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
    fn new(id: u64) -> Self {
        Self {
            id,
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
        if kind.service_ns.is_none() {
            return;
        }
        // By the golden ratio: each of them in turn, and none with a period of the arrivals'.
        let pick = (kind.replayed as u64).wrapping_mul(super::GOLDEN) >> 32;
        let service_ns = kind.services_ns[pick as usize % kind.services_ns.len()];
        if let Some(free_ns) = self.servers.iter_mut().min() {
            *free_ns = arrived_ns.max(*free_ns).saturating_add(service_ns);
            kind.push_latency(*free_ns - arrived_ns);
        }
    }

    fn end(
        &mut self,
        id: u64,
        at_ns: u64,
        is_cancelled: bool,
        target_ns: impl Fn(u64) -> u64,
        may_rise: bool,
    ) {
        let Some(place) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let open = self.open.remove(place);
        self.ended_ns = at_ns;
        let kind = &mut self.kinds[open.kind];
        let took_ns = at_ns.saturating_sub(open.arrived_ns);
        let served_ns = at_ns.saturating_sub(open.began_ns);
        if let Some(p99_ns) = kind.p99_ns {
            let (target_ns, alpha) = kind.target(p99_ns, target_ns);
            let is_miss = took_ns > target_ns;
            if is_miss || !is_cancelled {
                self.level.handle_request(is_miss, alpha, may_rise);
            }
        }
        if is_cancelled {
            return;
        }
        if open.exposed_ns <= served_ns / 50 || kind.seen < FIRST {
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
    fn slack(&self, now_ns: u64, target_ns: impl Fn(u64) -> u64) -> Option<(f64, u64)> {
        let slacks = self.open.iter().map(|open| {
            let kind = &self.kinds[open.kind];
            let (Some(service_ns), Some(p99_ns), false) =
                (kind.service_ns, kind.p99_ns, open.is_bare)
            else {
                return (0.0, 0);
            };
            let (target_ns, _) = kind.target(p99_ns, &target_ns);
            let done_ns = open.alone_ns as f64 + self.rate * open.exposed_ns as f64;
            // Never over before it has ended.
            let left_ns = (service_ns as f64 - done_ns).max(service_ns as f64 / 20.0);
            let waited_ns = now_ns.saturating_sub(open.arrived_ns) as f64;
            let slack = 1.0 - (waited_ns + left_ns) / target_ns.max(1) as f64;
            (slack, target_ns)
        });
        slacks.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Service and target of the kind with the least slack when it is fresh; `None` while one that requests are made of
    /// is not known.
    fn fresh(&self, target_ns: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let known = self.kinds.iter().filter_map(|kind| {
            let (target_ns, _) = kind.target(kind.p99_ns?, &target_ns);
            Some((kind.service_ns?, target_ns))
        });
        known.min_by_key(|(service_ns, target_ns)| target_ns.saturating_sub(*service_ns))
    }

    fn bounds(
        &self,
        now_ns: u64,
        target_ns: impl Fn(u64) -> u64,
        unknown_ns: u64,
        is_behind: bool,
    ) -> Bounds {
        let bounds = |idle_ns, beside_ns, pairs| Bounds {
            idle_ns,
            beside_ns,
            // A bound of nothing lets no kernel pass its end.
            whole: idle_ns == 0,
            pairs,
            floor: false,
        };
        let Some((service_ns, fresh_ns)) = self.fresh(&target_ns) else {
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
        match self.slack(now_ns, &target_ns) {
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

impl Kind {
    fn new(number: u32) -> Self {
        Self {
            number,
            services_ns: Vec::new(),
            seen: 0,
            service_ns: None,
            latencies_ns: Vec::new(),
            replayed: 0,
            p99_ns: None,
            own: None,
        }
    }

    /// What a request may take that takes `p99_ns` alone, and the share that may take longer.
    fn target(&self, p99_ns: u64, target_ns: impl Fn(u64) -> u64) -> (u64, f64) {
        let asked_ns = target_ns(p99_ns);
        match self.own {
            Some((ns, alpha)) if ns >= p99_ns => (asked_ns.min(ns), ALPHA.min(alpha)),
            _ => (asked_ns, ALPHA),
        }
    }

    fn push_service(&mut self, ns: u64) {
        push(&mut self.services_ns, &mut self.seen, SERVICES_KEPT, ns);
        if self.seen >= FIRST {
            self.service_ns = quantile(&self.services_ns, 0.5);
        }
    }

    fn push_latency(&mut self, ns: u64) {
        let (values, count) = (&mut self.latencies_ns, &mut self.replayed);
        push(values, count, ARRIVALS_KEPT, ns);
        if self.replayed >= ARRIVALS_MIN && self.replayed.is_multiple_of(ARRIVALS_STEP) {
            self.p99_ns = quantile(&self.latencies_ns, 1.0 - ALPHA);
        }
    }
}

/// One more of `count` so far, of which the last `kept` are remembered.
fn push(values: &mut Vec<u64>, count: &mut usize, kept: usize, value: u64) {
    match values.len() < kept {
        true => values.push(value),
        false => values[*count % kept] = value,
    }
    *count += 1;
}

fn quantile(values: &[u64], at: f64) -> Option<u64> {
    let mut sorted = values.to_vec();
    let last = sorted.len().checked_sub(1)?;
    let place = (sorted.len() as f64 * at) as usize;
    Some(*sorted.select_nth_unstable(place.min(last)).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A client whose requests take 10 ms alone and arrive every 40 ms, none of which met anything.
    fn known() -> Client {
        let mut client = Client::new(1);
        for n in 0..200 {
            one(&mut client, n, n * 40 * MS, 10 * MS);
        }
        client
    }

    /// A request that arrives and begins then, and takes so long; beside nothing.
    fn one(client: &mut Client, id: u64, at_ns: u64, took_ns: u64) {
        client.handle_time(at_ns, false);
        client.begin(id, 0, at_ns, at_ns);
        client.handle_time(at_ns + took_ns, false);
        client.end(id, at_ns + took_ns, false, double, true);
    }

    fn double(alone_ns: u64) -> u64 {
        2 * alone_ns
    }

    fn bounds(client: &Client, now_ns: u64) -> Bounds {
        client.bounds(now_ns, double, 100_000, false)
    }

    /// A request that is not one of those that nothing goes beside.
    fn begin(client: &mut Client, id: u64, arrived_ns: u64, at_ns: u64) {
        client.begin(id, 0, arrived_ns, at_ns);
        client.open.last_mut().unwrap().is_bare = false;
    }

    #[test]
    fn until_requests_are_known_nothing_goes_beside_them() {
        let mut client = Client::new(1);
        for n in 0..140 {
            let is_known = n >= FIRST as u64;
            let narrow_ns = if is_known { MS / 2 } else { 0 };
            assert_eq!(bounds(&client, n * 40 * MS).idle_ns, narrow_ns);
            assert_eq!(bounds(&client, n * 40 * MS).beside_ns, 0);
            one(&mut client, n, n * 40 * MS, 10 * MS);
        }
        assert_eq!(client.level.requests, 0);
        // Of nobody anything is known, and there is no request for a second.
        assert_eq!(bounds(&Client::new(1), 7_000 * MS).idle_ns, 100_000);
    }

    #[test]
    fn latencies_alone_are_those_of_a_queue_with_the_same_arrivals() {
        // Two arrivals at once every 40 ms: the second waits for the first.
        let mut client = known();
        let mut now_ns = 1_000_000 * MS;
        for n in 0..600 {
            let (first, second) = (1_000 + 2 * n, 1_001 + 2 * n);
            for (id, began_ns) in [(first, now_ns), (second, now_ns + 10 * MS)] {
                client.handle_time(began_ns, false);
                client.begin(id, 0, now_ns, began_ns);
                client.handle_time(began_ns + 10 * MS, false);
                client.end(id, began_ns + 10 * MS, false, double, true);
            }
            now_ns += 40 * MS;
        }
        assert_eq!(client.servers.len(), 1);
        assert_eq!(client.kinds[0].service_ns, Some(10 * MS));
        assert_eq!(client.kinds[0].p99_ns, Some(20 * MS));
    }

    #[test]
    fn requests_that_are_worked_on_at_once_are_replayed_at_once() {
        let mut client = known();
        for n in 0..600 {
            let at_ns = (1_000_000 + n * 40) * MS;
            client.handle_time(at_ns, false);
            client.begin(2 * n + 1_000, 0, at_ns, at_ns);
            client.begin(2 * n + 1_001, 0, at_ns, at_ns);
            client.handle_time(at_ns + 10 * MS, false);
            client.end(2 * n + 1_000, at_ns + 10 * MS, false, double, true);
            client.end(2 * n + 1_001, at_ns + 10 * MS, false, double, true);
        }
        assert_eq!(client.servers.len(), 2);
        assert_eq!(client.kinds[0].p99_ns, Some(10 * MS));
    }

    #[test]
    fn the_guard_closes_before_the_target_passes_and_stays_closed() {
        let mut client = known();
        client.level = Level::default();
        let at_ns = 1_000_000 * MS;
        client.handle_time(at_ns, false);
        begin(&mut client, 5_000, at_ns, at_ns);
        // Fresh: half of its 20 ms is slack, and the threshold at level 0 is half.
        assert!(bounds(&client, at_ns).pairs);
        client.level.handle_request(false, ALPHA, true);
        assert!(!bounds(&client, at_ns).pairs, "{:?}", client.level);
        // 5 ms with best-effort work in flight: less than that was done.
        client.handle_time(at_ns + 5 * MS, true);
        let closed = bounds(&client, at_ns + 5 * MS);
        assert!(closed.pairs && closed.beside_ns < 100_000, "{closed:?}");
        client.handle_time(at_ns + 30 * MS, false);
        assert!(bounds(&client, at_ns + 30 * MS).pairs);
    }

    #[test]
    fn the_wait_before_it_began_is_part_of_what_a_request_takes() {
        let mut client = known();
        let at_ns = 1_000_000 * MS;
        let before = client.level;
        client.handle_time(at_ns, false);
        begin(&mut client, 5_000, at_ns - 15 * MS, at_ns);
        client.end(5_000, at_ns + 10 * MS, false, double, true);
        assert_eq!(client.level.misses, before.misses + 1);
    }

    #[test]
    fn what_is_cancelled_counts_once_its_target_has_passed() {
        let mut client = known();
        let before = client.level;
        for (id, took_ns, misses) in [(5_000, 19 * MS, 0), (5_001, 21 * MS, 1)] {
            let at_ns = id * 1_000 * MS;
            client.begin(id, 0, at_ns, at_ns);
            client.end(id, at_ns + took_ns, true, double, true);
            assert_eq!(client.level.misses, before.misses + misses);
        }
        assert_eq!(client.level.requests, before.requests + 1);
    }

    #[test]
    fn nothing_goes_beside_one_request_in_sixty_four() {
        let mut client = known();
        let mut bare = 0;
        for n in 0..6_400 {
            let at_ns = (1_000_000 + n * 40) * MS;
            client.begin(10_000 + n, 0, at_ns, at_ns);
            let bounds = bounds(&client, at_ns);
            bare += u32::from(bounds.idle_ns == 0 && bounds.beside_ns == 0 && bounds.whole);
            client.end(10_000 + n, at_ns + 10 * MS, false, double, true);
        }
        assert!((95..=105).contains(&bare), "{bare}");
    }

    #[test]
    fn the_duty_falls_to_nothing_at_the_floor() {
        let mut client = known();
        let open_ms = |client: &mut Client| {
            client.ended_ns = 40_000 * MS;
            let client = &*client;
            let open = |ms: &u64| bounds(client, 40_000 * MS + ms * MS).idle_ns > 0;
            (0..20).filter(open).count()
        };
        assert_eq!(open_ms(&mut client), 20);
        let mut before = 20;
        while client.level.misses_at_floor == 0 {
            client.level.handle_request(true, ALPHA, true);
            let now = open_ms(&mut client);
            assert!(now <= before);
            assert!(client.level.value() < DUTY_FROM || now == 20);
            before = now;
        }
        assert_eq!(before, 0);
        assert_eq!(client.duty_ns(40_001 * MS), Some(40_020 * MS));
        // A second later nobody says any more that requests are late.
        assert!(bounds(&client, 41_000 * MS).idle_ns > 0);
    }

    #[test]
    fn what_ends_without_having_begun_changes_nothing_and_open_requests_are_bounded() {
        let mut client = known();
        let before = client.level;
        client.end(77_777, 1_000_000 * MS, false, double, true);
        assert_eq!(client.level, before);
        for n in 0..1_000 {
            client.begin(100_000 + n, n as u32, 1_000_000 * MS, 1_000_000 * MS);
        }
        assert_eq!(client.open.len(), OPEN_MAX);
        assert_eq!(client.kinds.len(), KINDS_MAX);
        assert_eq!(client.servers.len(), SERVERS_MAX);
        let mut marked = Marked::default();
        for id in 0..1_000 {
            let mark = Mark::End {
                id,
                at_ns: 0,
                is_cancelled: false,
            };
            marked.handle_mark(id, &mark, double, None);
        }
        assert_eq!(marked.clients.len(), CLIENTS_MAX);
    }

    #[test]
    fn a_job_may_ask_for_less_and_not_for_more_nor_for_less_than_it_takes_alone() {
        let mut kind = Kind::new(0);
        assert_eq!(kind.target(10 * MS, double), (20 * MS, ALPHA));
        for (ns, alpha, target) in [
            (15 * MS, 0.5, (15 * MS, ALPHA)),
            (15 * MS, 0.001, (15 * MS, 0.001)),
            (30 * MS, 0.5, (20 * MS, ALPHA)),
            (9 * MS, 0.001, (20 * MS, ALPHA)),
        ] {
            kind.own = Some((ns, alpha));
            assert_eq!(kind.target(10 * MS, double), target);
        }
    }
}
