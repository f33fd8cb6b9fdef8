//! Marked requests, whose process reports when they begin and end: their solo latencies, their
//! targets, and the bounds that follow from the level ([`crate::slo`]).
//! # Solo service and latency
//! *Service* is a request's time from its beginning to its end. The first 50 of a kind and later
//! one in 128 meet no best-effort work, which is held from the end of the previous request.
//! Requests count that met none for 98 % of the time; if a hundred of a kind have ended and too few
//! count, progress beside best-effort work is estimated. Their median is the kind's solo service.
//!
//! *Latency* counts from the arrival, with the wait behind others. Solo latency is therefore
//! computed: each arrival is replayed through as many servers as the client was observed to have,
//! each with its solo service (Kiefer and Wolfowitz's recursion; with one server Lindley's),
//! without cancelled requests. A target such as "1.2x" multiplies the goal's quantile of the last
//! 2048 of these latencies, and of as many of the last 8192 as came as often and were served as
//! fast ([`steady`]). Requests without best-effort work would be biased.
//! # The guard
//! The level moves by thousandths; a late request needs help at once. Best-effort work therefore
//! goes beside a request only while its *predicted slack* is more than a share of its target:
//! ```text
//! slack      = 1 − (time since arrival + solo service that is left) ÷ target
//! threshold  = ½ (1 − level)
//! ```
//! The remaining service follows from the time with and without best-effort work in flight; the
//! slowdown with it is learnt from ended requests.
//! # From the level to bounds
//! - *1 to 0*: while the guard is open: beside HP half of the slack above the threshold; while HP
//!   is idle 0.5 down to 0.05 of a fresh request's slack.
//! - *0 to −1*: the threshold passes the slack of a fresh request, so that nothing wide goes
//!   beside; the bound of idle time falls to the *narrow* one, 5 % of the service.
//! - *−1 to −2*: narrow bounds: 5 % of the service while idle, an eighth of that beside, which must
//!   suit the executing kernels.
//! - *−2 to −6*: the same for a *duty* of each 20 ms that falls from 1 to 0. It is 0 where one more
//!   miss would reach the floor.
//!
//! While HP is busy without an open request, its work is unmarked: the bounds beside it are narrow,
//! those that a target of 1.05 times the service has at gain 1.
//!
//! *Quiet* is the time until the shortest of the last 128 times between arrivals is over, less a
//! tenth ([`super::quiet`]). While no request is open, kernels may go at any level until the quiet
//! time is used up, less from −2 on, and none at the level's floor. While the target is missed,
//! only kernels go that fit into it; otherwise the last one may end after it. Periodic requests
//! thus meet little or nothing, and best-effort work has the pauses. The level moves by requests
//! alone. A client that falls silent at a low level would stop best-effort work for good, so the
//! duty counts only within a second of an open request.

use super::{Goal, PillionParams, RequestTarget, SloView};
use crate::{Ceiling, Sharing, Snapshot};

mod client;
mod kept;
mod kind;
mod law;
mod steady;

use client::{Client, Now};
pub use kept::{Kept, KeptKind};

/// A report of an HP process about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Work on the request begins.
    Begin {
        /// Its number, unique among the client's open requests.
        id: u64,
        /// Which kind of request it is, as the client counts kinds.
        kind: u32,
        /// When it arrived, ns of the shared clock, not after `at_ns`.
        arrived_ns: u64,
        /// When work on it began.
        at_ns: u64,
    },
    /// The request is answered, or given up.
    End {
        /// Its number.
        id: u64,
        /// When.
        at_ns: u64,
        /// It was given up: it counts if its target had passed by then.
        is_cancelled: bool,
    },
    /// The job's own bound on requests of a kind. It only tightens: it replaces the configured goal
    /// where neither its time nor its share of misses is greater, and where the kind keeps it
    /// alone. Requests beyond the eighth kind are one kind, with the tightest target.
    Target {
        /// Which kind.
        kind: u32,
        /// From its arrival to its end, ns.
        ns: u64,
        /// How many of 1000 requests are to keep it, below 1000.
        per_mille: u32,
    },
}

/// Clients with marks; one more displaces the oldest.
pub(super) const CLIENTS_MAX: usize = 256;

/// The state of each client that marks its requests.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    clients: Vec<Client>,
    /// The share of the last [`BUSY_OVER_NS`] in which HP work executed, and up to when.
    busy_share: f64,
    busy_to_ns: u64,
}

/// HP leaves no time where its work executed for more than this share of that many ns.
const SATURATED: f64 = 0.95;
const BUSY_OVER_NS: u64 = 2_000_000_000;

/// The daemon's view at a mark: what has happened since the last poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Since {
    pub(crate) now_ns: Option<u64>,
    /// When best-effort work last wanted to go.
    pub(crate) wanted_ns: Option<u64>,
    /// Best-effort work was in flight, or this is unknown.
    pub(crate) is_exposed: bool,
    /// Latencies move the level.
    pub(crate) feedback: bool,
}

impl Marked {
    pub(crate) fn is_of(&self, client: u64) -> bool {
        self.clients.iter().any(|known| known.id == client)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub(crate) fn handle_detach(&mut self, client: u64) {
        self.clients.retain(|known| known.id != client);
    }

    pub(crate) fn handle_mark(&mut self, client: u64, mark: &Mark, goal: &Goal, since: &Since) {
        let client = self.known(client, goal);
        // A mark later than now counts as now, and an end before the beginning as the beginning. An
        // arrival may be after that: `now_ns` is the time of the last poll, and the daemon has
        // bounded the times by that of the record.
        let latest_ns = since.now_ns.unwrap_or(u64::MAX);
        match *mark {
            Mark::Begin {
                id,
                kind,
                arrived_ns,
                at_ns,
            } => client.handle_begin(id, kind, arrived_ns.min(at_ns), at_ns.min(latest_ns)),
            Mark::Target {
                kind,
                ns,
                per_mille,
            } => client.handle_target(kind, ns, per_mille),
            Mark::End {
                id,
                at_ns,
                is_cancelled,
            } => client.handle_end(id, at_ns.min(latest_ns), is_cancelled, since),
        }
    }

    pub(crate) fn kept(&self, client: u64) -> Option<Kept> {
        let client = self.clients.iter().find(|known| known.id == client)?;
        client.kept()
    }

    /// See [`crate::Gate::restore`]. `goal` is the client's.
    pub(crate) fn restore(&mut self, client: u64, kept: &Kept, goal: &Goal) {
        self.handle_detach(client);
        self.known(client, goal).restore(kept);
    }

    fn known(&mut self, client: u64, goal: &Goal) -> &mut Client {
        let place = self.clients.iter().position(|known| known.id == client);
        let place = place.unwrap_or_else(|| {
            if self.clients.len() >= CLIENTS_MAX {
                self.clients.remove(0);
            }
            self.clients.push(Client::new(client, *goal));
            self.clients.len() - 1
        });
        &mut self.clients[place]
    }

    pub(crate) fn handle_goal(&mut self, client: u64, goal: &Goal) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.id == client) {
            client.handle_goal(goal);
        }
    }

    pub(crate) fn slo_view(&self, client: u64) -> Option<SloView> {
        let client = self.clients.iter().find(|known| known.id == client)?;
        Some(client.view())
    }

    pub(crate) fn request_target(&self, client: u64, kind: u32) -> Option<RequestTarget> {
        let client = self.clients.iter().find(|known| known.id == client)?;
        client.request_target(kind)
    }

    /// Whether launches need no greater priority: every client has time to spare, and HP work
    /// leaves best-effort work none. Where HP is idle at times, BE gets more with it at equal p99.
    pub(crate) fn gives_priority(&self) -> bool {
        !self.is_empty()
            && self.busy_share > SATURATED
            && self.clients.iter().all(Client::has_time_to_spare)
    }

    pub(crate) fn handle_time(&mut self, now_ns: u64, is_exposed: bool, is_busy: bool) {
        if !self.is_empty() {
            let since_ns = now_ns.saturating_sub(self.busy_to_ns).min(BUSY_OVER_NS);
            let weight = since_ns as f64 / BUSY_OVER_NS as f64;
            self.busy_share += weight * (f64::from(u8::from(is_busy)) - self.busy_share);
            self.busy_to_ns = now_ns;
        }
        for client in &mut self.clients {
            client.handle_time(now_ns, is_exposed);
        }
    }

    pub(crate) fn ceilings(
        &mut self,
        params: &PillionParams,
        snapshot: &Snapshot<'_>,
        is_behind: bool,
    ) -> impl Iterator<Item = Ceiling> {
        // HP's work is then no marked request, so how much it can bear is unknown.
        let is_foreign = snapshot.hp.busy && self.clients.iter().all(Client::is_idle);
        let now = Now {
            ns: snapshot.now_ns,
            unknown_ns: params.residual_ns_unknown,
            is_behind,
            is_foreign,
            gap_prediction: params.gap_prediction,
        };
        let goes_beside = params.beside && snapshot.sharing == Sharing::Mps;
        self.clients.iter_mut().map(move |client| {
            let bounds = client.bounds(&now);
            let beside_ns = bounds.beside_ns.min(bounds.idle_ns);
            client.ceiling = Ceiling {
                beside_ns: if goes_beside { beside_ns } else { 0 },
                whole: bounds.whole || (!params.block_priority && client.is_hurt(now.ns)),
                pairs: bounds.pairs && params.kernel_pairs,
                ..bounds
            };
            client.ceiling
        })
    }

    /// Best-effort work has wanted to go for `ns` while `all` was in force, the meet of all laws.
    pub(crate) fn handle_binding(&mut self, ns: u64, all: &Ceiling, hp_busy: bool) {
        for client in &mut self.clients {
            let binds = client.ceiling.binds(all, hp_busy);
            client.binding.handle_time(ns, binds);
        }
    }

    /// When the bounds change by themselves, if before `until_ns`.
    pub(crate) fn changes_ns(&self, now_ns: u64, until_ns: u64) -> u64 {
        let on_duty = |client: &Client| client.duty_ns(now_ns);
        let changes = self.clients.iter().filter_map(on_duty);
        changes.fold(until_ns, u64::min)
    }
}

#[cfg(test)]
mod tests;
