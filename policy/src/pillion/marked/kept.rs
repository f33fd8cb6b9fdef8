//! What was learnt of the requests that a client marks, for the daemon that comes next.
//!
//! It comes back from a file, so nothing of it is believed beyond what it can mean: a level in its range, times of a request
//! and no more of them than are remembered. What cannot be meant is left out, which is as if it had not been learnt.

use super::client::{Client, KINDS_MAX};
use super::kind::Kind;
use super::law::Law;

/// A request takes so long at most, ns.
const TIME_MAX_NS: u64 = 3_600_000_000_000;

/// Latencies of a kind that are kept: so many of those in order, at equal distances. The 99th percentile is one of the last three.
const LATENCIES_KEPT: usize = 256;

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The level, from [`crate::slo::LEAST`] to [`crate::slo::GREATEST`].
    pub level: f64,
    /// A request was over its target, so the level rises slowly.
    pub has_missed: bool,
    /// Of each kind of request.
    pub kinds: Vec<KeptKind>,
}

/// What a kind of request takes alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptKind {
    /// As the client counts kinds.
    pub number: u32,
    /// What each of the last took from its beginning to its end, ns.
    pub services_ns: Vec<u64>,
    /// What each would have taken from its arrival on, ns.
    pub latencies_ns: Vec<u64>,
}

impl Kept {
    /// Keeps fewer latencies, of which the quantiles are the same to one in 256. It sorts them.
    pub fn shorten(&mut self) {
        for kind in &mut self.kinds {
            kind.latencies_ns.sort_unstable();
            let count = kind.latencies_ns.len();
            if count > LATENCIES_KEPT {
                let of = |place: usize| {
                    kind.latencies_ns[(2 * place + 1) * count / (2 * LATENCIES_KEPT)]
                };
                kind.latencies_ns = (0..LATENCIES_KEPT).map(of).collect();
            }
        }
    }
}

impl Client {
    /// What has been learnt; `None` while there is nothing.
    pub(super) fn kept(&self) -> Option<Kept> {
        let known = self.kinds.iter().filter(|kind| kind.service_ns.is_some());
        let kinds: Vec<_> = known.map(Kind::kept).collect();
        (!kinds.is_empty()).then(|| Kept {
            level: self.law.kept(),
            has_missed: self.law.has_missed(),
            kinds,
        })
    }

    /// Begins with that.
    pub(super) fn restore(&mut self, kept: &Kept) {
        self.law = Law::new(&self.goal, kept.level, kept.has_missed);
        for kind in kept.kinds.iter().take(KINDS_MAX) {
            let can_be = |ns: &u64| (1..=TIME_MAX_NS).contains(ns);
            let place = self.kind(kind.number);
            let services_ns = kind.services_ns.iter().copied().filter(can_be);
            let latencies_ns = kind.latencies_ns.iter().copied().filter(can_be);
            let goal = self.goal;
            self.kinds[place].restore(services_ns, latencies_ns, &goal);
        }
    }
}
