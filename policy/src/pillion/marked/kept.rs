//! What was learnt of a client's marked requests, for the next daemon. Invalid values of the file
//! (the level's range, times of a request, too many times) are dropped, as if not learnt.

use super::client::{Client, KINDS_MAX};
use super::kind::Kind;
use super::law::Law;

const TIME_MAX_NS: u64 = 3_600_000_000_000;

/// Kept latencies of a kind, sorted, at equal distances. The p99 is one of the last three.
const LATENCIES_KEPT: usize = 256;

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The level, from [`crate::slo::LEAST`] to [`crate::slo::GREATEST`].
    pub level: f64,
    /// A request was over its target, so the level rises slowly.
    pub has_missed: bool,
    /// Each kind of request.
    pub kinds: Vec<KeptKind>,
}

/// Solo services and latencies of a kind of request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptKind {
    /// As the client counts kinds.
    pub number: u32,
    /// The last services, from beginning to end, ns.
    pub services_ns: Vec<u64>,
    /// The latencies that they would have had from arrival on, ns.
    pub latencies_ns: Vec<u64>,
}

impl Kept {
    /// Sorts the latencies and keeps fewer, with the same quantiles to one in 256.
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
