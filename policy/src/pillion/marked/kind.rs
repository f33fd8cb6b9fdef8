//! A kind of requests: its solo services and latencies, and its target.

use super::kept::KeptKind;
use super::steady::{self, Steady};
use crate::pillion::target::Goal;

/// Initial requests of a kind that meet no best-effort work.
pub(super) const FIRST: usize = 50;

/// Solo services remembered of a kind, to draw from.
const SERVICES_KEPT: usize = 256;

/// With fewer, the greatest counts as the second greatest: one slow request is no p99.
const SERVICES_FEW: usize = 200;

/// The current quantile is over this many of the last judged requests.
const TOOK_KEPT: usize = 2_048;

/// A mean is over this many of them.
const TOOK_OF_MEAN: usize = 64;

/// Solo latencies that must be known before a quantile of them is a target.
const ARRIVALS_MIN: usize = 100;

/// The same for their mean, which is more certain.
const ARRIVALS_MIN_OF_MEAN: usize = 20;

/// The target is recomputed after this many more.
const ARRIVALS_STEP: usize = 50;

#[derive(Debug, Default)]
pub(super) struct Last {
    values_ns: Vec<u64>,
    /// How many there ever were.
    pub(super) count: usize,
}

impl Last {
    fn push(&mut self, kept: usize, ns: u64) {
        match self.values_ns.len() < kept {
            true => self.values_ns.push(ns),
            false => self.values_ns[self.count % kept] = ns,
        }
        self.count += 1;
    }

    pub(super) fn least_ns(&self) -> Option<u64> {
        self.values_ns.iter().copied().min()
    }

    /// The last `count` of them, or all if they are fewer, the oldest first.
    fn last(&self, count: usize) -> Vec<u64> {
        let kept = self.values_ns.len();
        let oldest = self.count.checked_rem(kept).unwrap_or(0);
        let (newer, older) = self.values_ns.split_at(oldest);
        let skipped = kept.saturating_sub(count);
        let older_skipped = skipped.min(older.len());
        let parts = [&older[older_skipped..], &newer[skipped - older_skipped..]];
        parts.concat()
    }

    fn mean(&self, count: usize) -> Option<u64> {
        let last = self.last(count);
        let sum = last.iter().map(|&ns| u128::from(ns)).sum::<u128>();
        let mean = sum.checked_div(last.len() as u128)?;
        u64::try_from(mean).ok()
    }

    fn quantile(&self, count: usize, at: f64) -> Option<u64> {
        let mut sorted = self.last(count);
        let last = sorted.len().checked_sub(1)?;
        let place = (sorted.len() as f64 * at) as usize;
        Some(*sorted.select_nth_unstable(place.min(last)).1)
    }
}

#[derive(Clone, Copy, Debug)]
struct Own {
    /// The kind's number; several kinds may share the last.
    number: u32,
    ns: u64,
    miss: f64,
    /// The kind's solo latency at that quantile.
    alone_ns: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Kind {
    pub(super) number: u32,
    pub(super) services: Last,
    pub(super) service_ns: Option<u64>,
    /// The cap on drawn services.
    service_max_ns: u64,
    pub(super) ended: usize,
    /// From the replay.
    latencies: Last,
    /// How many of them count.
    steady: Steady,
    /// Their quantile for the client's goal, or their mean.
    pub(super) alone_ns: Option<u64>,
    took: Last,
    own: Option<Own>,
}

/// The target of a request, and the share that may take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) ns: u64,
    pub(super) miss: f64,
}

impl Kind {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            services: Last::default(),
            service_ns: None,
            service_max_ns: u64::MAX,
            ended: 0,
            latencies: Last::default(),
            steady: Steady::default(),
            alone_ns: None,
            took: Last::default(),
            own: None,
        }
    }

    /// The target of a request; `None` while the solo latency is unknown. The job's own is in force
    /// if both values are tighter than the configured ones, and the kind keeps it alone.
    pub(super) fn target(&self, goal: &Goal) -> Option<Target> {
        Some(match self.own(goal)? {
            Ok(Own { ns, miss, .. }) => Target { ns, miss },
            Err(ns) => Target {
                ns,
                miss: goal.miss,
            },
        })
    }

    pub(super) fn is_own(&self, goal: &Goal) -> bool {
        matches!(self.own(goal), Some(Ok(_)))
    }

    /// The job's own target if it is in force, else the configured time.
    fn own(&self, goal: &Goal) -> Option<Result<Own, u64>> {
        let ns = goal.slo.target_ns(self.alone_ns?);
        let own = self.own.filter(|own| {
            // A quantile is neither tighter nor looser than a mean.
            let is_tighter = own.ns <= ns && own.miss <= goal.miss && !goal.slo.is_mean();
            is_tighter && own.alone_ns.is_some_and(|alone_ns| own.ns >= alone_ns)
        });
        Some(own.ok_or(ns))
    }

    /// Sets the job's own target for a kind. Where kinds share a slot, the tighter one holds.
    pub(super) fn handle_own(&mut self, number: u32, ns: u64, miss: f64) {
        let is_held = |own: &Own| own.number != number && !(ns <= own.ns && miss <= own.miss);
        if self.own.as_ref().is_some_and(is_held) {
            return;
        }
        self.own = Some(Own {
            number,
            ns,
            miss,
            alone_ns: self.quantile_alone(miss),
        });
    }

    pub(super) fn push_service(&mut self, ns: u64) {
        self.services.push(SERVICES_KEPT, ns);
        if self.services.count >= FIRST {
            self.service_ns = self.services.quantile(SERVICES_KEPT, 0.5);
            let mut sorted = self.services.values_ns.clone();
            let least = sorted.len().saturating_sub(2);
            self.service_max_ns = match sorted.len() < SERVICES_FEW {
                true => *sorted.select_nth_unstable(least).1,
                false => u64::MAX,
            };
        }
    }

    pub(super) fn kept(&self) -> KeptKind {
        KeptKind {
            number: self.number,
            services_ns: self.services.values_ns.clone(),
            latencies_ns: self.latencies.last(self.steady.count()),
        }
    }

    pub(super) fn restore(
        &mut self,
        services_ns: impl Iterator<Item = u64>,
        latencies_ns: impl Iterator<Item = u64>,
        goal: &Goal,
    ) {
        for ns in services_ns.take(SERVICES_KEPT) {
            self.push_service(ns);
            self.ended += 1;
        }
        for ns in latencies_ns.take(steady::MOST) {
            self.latencies.push(steady::MOST, ns);
        }
        self.handle_goal(goal);
    }

    pub(super) fn next_service_ns(&self) -> Option<u64> {
        self.service_ns?;
        // By the golden ratio: each of them in turn, without a common period with the arrivals.
        let pick = (self.latencies.count as u64).wrapping_mul(crate::pillion::GOLDEN) >> 32;
        let values_ns = &self.services.values_ns;
        let drawn_ns = values_ns[pick as usize % values_ns.len()];
        Some(drawn_ns.min(self.service_max_ns))
    }

    pub(super) fn push_latency(&mut self, arrived_ns: u64, ns: u64, goal: &Goal) {
        self.latencies.push(steady::MOST, ns);
        self.steady
            .handle_request(arrived_ns, self.service_ns.unwrap_or(ns));
        let is_first = self.latencies.count == ARRIVALS_MIN_OF_MEAN;
        if is_first || self.latencies.count.is_multiple_of(ARRIVALS_STEP) {
            self.handle_goal(goal);
        }
    }

    pub(super) fn handle_goal(&mut self, goal: &Goal) {
        self.alone_ns = match goal.slo.is_mean() {
            true => self.mean_alone(),
            false => self.quantile_alone(goal.miss),
        };
        let miss = self.own.map(|own| own.miss);
        let alone_ns = miss.and_then(|miss| self.quantile_alone(miss));
        if let Some(own) = &mut self.own {
            own.alone_ns = alone_ns;
        }
    }

    fn quantile_alone(&self, miss: f64) -> Option<u64> {
        let is_known = self.latencies.count >= ARRIVALS_MIN;
        is_known
            .then(|| self.latencies.quantile(self.steady.count(), 1.0 - miss))
            .flatten()
    }

    fn mean_alone(&self) -> Option<u64> {
        let is_known = self.latencies.count >= ARRIVALS_MIN_OF_MEAN;
        is_known
            .then(|| self.latencies.mean(self.steady.count()))
            .flatten()
    }

    pub(super) fn push_took(&mut self, ns: u64) {
        self.took.push(TOOK_KEPT, ns);
    }

    pub(super) fn judged(&self) -> usize {
        self.took.count
    }

    /// The latency that all but the goal's share of the last judged requests kept, or their mean.
    pub(super) fn took_ns(&self, goal: &Goal) -> Option<u64> {
        match goal.slo.is_mean() {
            true => self.took.mean(TOOK_OF_MEAN),
            false => self.took.quantile(TOOK_KEPT, 1.0 - goal.miss),
        }
    }
}
