//! The search for `SM_THRESHOLD` beside a training HP job. An HP job with a latency goal is best
//! served by a threshold of the device's SMs. A training one tolerates more: "`SM_THRESHOLD` can be
//! increased for more aggressive collocation. Tuning is done by monitoring the throughput of the
//! high-priority job and adjusting the `SM_THRESHOLD` with binary search, using the maximum number
//! of SMs needed by any kernel of the best-effort job as the max value and zero as the min value in
//! the search" (Orion §5.1.1). So: `low` = 0, `high` = that maximum, `threshold` = (low + high)
//! ÷ 2. Each *window* of [`WINDOW_REQUESTS`] requests of HP is a measurement of the threshold in
//! force:
//! ```text
//! mean duration ≤ bound   HP can stand it      low  = threshold
//! mean duration > bound   it cannot            high = threshold
//! then                    threshold = (low + high) ÷ 2
//! ```
//! until both are one apart. From then on the threshold is `low`, the highest known to be tolerated
//! (or 0), and does not move again: the paper searches once. (The published code goes on; its
//! integer halving then sticks at `low` too.)
//! ```text
//! BE needs up to 100 SMs, HP stands 37      low  high  threshold
//!                                             0   100         50   too much
//!                                             0    50         25   good
//!                                            25    50         37   good
//!                                            37    50         43   too much
//!                                            37    43         40   too much
//!                                            37    40         38   too much
//!                                            37    38         37   found
//! ```
//! *The bound* is HP's own loss of throughput: with a request of `solo_ns` and a loss of L %, mean
//! ≤ `solo_ns` ÷ (1 − L/100). The paper does not state Orion's bound; HP training keeps its
//! throughput "within 16 % of ideal" (§6.2.2), the default. The published code takes absolute
//! bounds by hand, 1.2 to 1.5 times the solo iteration.

/// Requests of one measurement; the number of the published code.
pub const WINDOW_REQUESTS: u32 = 10;

/// Orion §6.2.2: throughput of a training HP "within 16 % of ideal".
pub const LOSS_PCT_MAX: f64 = 16.0;

/// The inputs of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmSearchParams {
    /// The most SMs that any kernel of the BE jobs needs; not capped at the device's.
    pub sm_needed_max: u32,
    /// The solo duration of an HP request (a training iteration), in ns.
    pub solo_ns: u64,
    /// HP's acceptable loss of throughput, in per cent: 0 or more and less than 100.
    pub loss_pct_max: f64,
}

/// A search in progress, or at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmSearch {
    params: SmSearchParams,
    low: u32,
    high: u32,
    window_sum_ns: u64,
    window_count: u32,
}

impl SmSearch {
    /// A search without measurements.
    #[must_use]
    pub const fn new(params: SmSearchParams) -> Self {
        Self {
            low: 0,
            high: params.sm_needed_max,
            window_sum_ns: 0,
            window_count: 0,
            params,
        }
    }

    /// `SM_THRESHOLD` now.
    #[must_use]
    pub const fn threshold(&self) -> u32 {
        // Without overflow, and `low` when both are one apart.
        self.low + (self.high - self.low) / 2
    }

    /// Whether the threshold moves no more.
    #[must_use]
    pub const fn is_found(&self) -> bool {
        self.high - self.low <= 1
    }

    /// An HP request took `duration_ns`, from its start to its end.
    pub fn handle_request(&mut self, duration_ns: u64) {
        if self.is_found() {
            return;
        }
        self.window_sum_ns = self.window_sum_ns.saturating_add(duration_ns);
        self.window_count += 1;
        if self.window_count < WINDOW_REQUESTS {
            return;
        }
        let mean_ns = self.window_sum_ns as f64 / f64::from(self.window_count);
        let kept = 1.0 - self.params.loss_pct_max / 100.0;
        if mean_ns * kept <= self.params.solo_ns as f64 {
            self.low = self.threshold();
        } else {
            self.high = self.threshold();
        }
        self.window_sum_ns = 0;
        self.window_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: SmSearchParams = SmSearchParams {
        sm_needed_max: 100,
        solo_ns: 84_000,
        loss_pct_max: 16.0,
    };

    /// The measured thresholds, and the result, with an HP that doubles its time above `stands`.
    fn measured(params: SmSearchParams, stands: u32) -> (Vec<u32>, u32) {
        let mut search = SmSearch::new(params);
        let mut thresholds = Vec::new();
        while !search.is_found() {
            let threshold = search.threshold();
            thresholds.push(threshold);
            let is_stood = threshold <= stands;
            let duration_ns = params.solo_ns * if is_stood { 1 } else { 2 };
            (0..WINDOW_REQUESTS).for_each(|_| search.handle_request(duration_ns));
        }
        (thresholds, search.threshold())
    }

    #[test]
    fn the_modules_example_is_what_happens() {
        assert_eq!(measured(PARAMS, 37), (vec![50, 25, 37, 43, 40, 38], 37));
    }

    #[test]
    fn it_ends_at_the_highest_threshold_that_hp_stands_whatever_it_is() {
        for sm_needed_max in [0, 1, 2, 80, 6_272] {
            let params = SmSearchParams {
                sm_needed_max,
                ..PARAMS
            };
            for stands in [0, 1, 37, 79, 80, 3_000, 10_000] {
                let (_, found) = measured(params, stands);
                let highest = sm_needed_max.saturating_sub(1);
                assert_eq!(found, stands.min(highest), "{sm_needed_max} {stands}");
            }
        }
    }

    #[test]
    fn a_bisection_of_6272_sms_takes_at_most_thirteen_windows() {
        let params = SmSearchParams {
            sm_needed_max: 6_272,
            ..PARAMS
        };
        // 2^12 < 6272 ≤ 2^13; halving rounds down.
        assert_eq!(measured(params, 0).0.len(), 12);
        assert_eq!(measured(params, 10_000).0.len(), 13);
    }

    #[test]
    fn the_bound_is_the_loss_of_throughput_and_met_exactly_it_is_stood() {
        // 84 µs solo, 16 % less throughput: 84 ÷ 0.84 = 100 µs.
        for (duration_ns, threshold) in [(99_999, 75), (100_000, 75), (100_001, 25)] {
            let mut search = SmSearch::new(PARAMS);
            (0..WINDOW_REQUESTS).for_each(|_| search.handle_request(duration_ns));
            assert_eq!(search.threshold(), threshold, "{duration_ns}");
        }
    }

    #[test]
    fn a_window_is_ten_requests_and_their_mean_counts() {
        let mut search = SmSearch::new(PARAMS);
        // Nine of 90 µs and one of 190: the mean is 100.
        for _ in 0..9 {
            search.handle_request(90_000);
            assert_eq!(search.threshold(), 50);
        }
        search.handle_request(190_000);
        assert_eq!(search.threshold(), 75);
    }

    #[test]
    fn what_was_found_stays() {
        let mut search = SmSearch::new(SmSearchParams {
            sm_needed_max: 1,
            ..PARAMS
        });
        assert!(search.is_found());
        (0..100).for_each(|_| search.handle_request(u64::MAX));
        assert_eq!(search.threshold(), 0);
    }
}
