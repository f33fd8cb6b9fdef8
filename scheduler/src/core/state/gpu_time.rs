//! How well a job's kernels are known: the shares of its GPU time with known duration and known
//! resource class.
//!
//! GPU time is the sum of the launches' expected durations since the job came: from a profile,
//! learnt, or assumed for unknown kernels. For a high-priority client it is summed here from its
//! records. A best-effort client pushes none and sums a sample itself
//! (`interpose::progress::learner`), unless it is older than protocol 3.2 or learns no durations.
//! [`Totals::gpu_time_ns`] gives a job's whole use.

use protocol::pages::Counter;

use super::Totals;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuTime {
    pub(crate) all_ns: u64,
    pub(crate) known_ns: u64,
    pub(crate) classed_ns: u64,
}

impl GpuTime {
    /// Adds a launch's duration; whether a profile gives it, and whether its kernel has a class.
    pub(crate) fn handle_launch(&mut self, expected_ns: u64, is_known: bool, is_classed: bool) {
        let add = |sum: &mut u64, is_of: bool| {
            if is_of {
                *sum = sum.saturating_add(expected_ns);
            }
        };
        add(&mut self.all_ns, true);
        add(&mut self.known_ns, is_known);
        add(&mut self.classed_ns, is_classed);
    }

    pub(crate) fn of(totals: &Totals) -> Self {
        Self {
            all_ns: totals.of(Counter::GpuTime),
            known_ns: totals.of(Counter::GpuTimeKnown),
            classed_ns: totals.of(Counter::GpuTimeClassed),
        }
    }

    pub(crate) fn count(self, totals: &mut Totals) {
        totals.set(Counter::GpuTime, self.all_ns);
        totals.set(Counter::GpuTimeKnown, self.known_ns);
        totals.set(Counter::GpuTimeClassed, self.classed_ns);
    }

    /// Known part, per cent; `None` while the sum is zero.
    pub(crate) fn known_pct(self) -> Option<f64> {
        self.pct(self.known_ns)
    }

    pub(crate) fn classed_pct(self) -> Option<f64> {
        self.pct(self.classed_ns)
    }

    /// The sums may come from a lying client: 100 at most.
    fn pct(self, part_ns: u64) -> Option<f64> {
        let share = || part_ns.min(self.all_ns) as f64 / self.all_ns as f64;
        (self.all_ns > 0).then(|| share() * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_of_time_and_not_of_launches() {
        let mut time = GpuTime::default();
        assert_eq!((time.known_pct(), time.classed_pct()), (None, None));
        time.handle_launch(700, true, false);
        time.handle_launch(100, false, false);
        time.handle_launch(200, true, true);
        assert_eq!(
            (time.known_pct(), time.classed_pct()),
            (Some(90.0), Some(20.0))
        );
        let mut totals = Totals::default();
        time.count(&mut totals);
        assert_eq!(GpuTime::of(&totals), time);
    }

    #[test]
    fn a_client_that_lies_knows_no_more_than_all() {
        let lie = GpuTime {
            all_ns: 1,
            known_ns: u64::MAX,
            classed_ns: 0,
        };
        assert_eq!(
            (lie.known_pct(), lie.classed_pct()),
            (Some(100.0), Some(0.0))
        );
    }
}
