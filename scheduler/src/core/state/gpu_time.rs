//! How well a job's kernels are known: the shares of its GPU time of which the duration, and the
//! resource class, is known.
//!
//! GPU time is the sum of what launches were expected to take, since the job came: what a profile
//! tells, what was learnt, or what is assumed of a kernel that nobody knows. Of a high-priority
//! client it is summed up here from its records. A best-effort client pushes none and sums up by
//! itself (`interpose::progress::learner`), over a sample; one that is older than protocol 3.2 does
//! not, nor does one that learns no durations. What a job has used in all says
//! [`Totals::gpu_time_ns`].

use protocol::pages::Counter;

use super::Totals;

/// See the module's text. All in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuTime {
    pub(crate) all_ns: u64,
    /// Of kernels whose duration is known.
    pub(crate) known_ns: u64,
    /// Of kernels that have a resource class.
    pub(crate) classed_ns: u64,
}

impl GpuTime {
    /// A launch counts as so long; whether a profile tells that, and whether its kernel has a class.
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

    /// As counted.
    pub(crate) fn of(totals: &Totals) -> Self {
        Self {
            all_ns: totals.of(Counter::GpuTime),
            known_ns: totals.of(Counter::GpuTimeKnown),
            classed_ns: totals.of(Counter::GpuTimeClassed),
        }
    }

    /// Counts it in place of what the client's page says.
    pub(crate) fn count(self, totals: &mut Totals) {
        totals.set(Counter::GpuTime, self.all_ns);
        totals.set(Counter::GpuTimeKnown, self.known_ns);
        totals.set(Counter::GpuTimeClassed, self.classed_ns);
    }

    /// How much of it is known, per cent; `None` before there is any.
    pub(crate) fn known_pct(self) -> Option<f64> {
        self.pct(self.known_ns)
    }

    /// How much of it has a class, per cent; `None` before there is any.
    pub(crate) fn classed_pct(self) -> Option<f64> {
        self.pct(self.classed_ns)
    }

    /// The sums may be a lying client's: 100 at most.
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
