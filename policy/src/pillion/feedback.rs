//! The gain: the factor of the bounds over the slack, learnt from the requests' latencies.
//!
//! Each request that met BE work has spent a share of its slack, (took − solo) ÷ slack. Up to 1,
//! the gain rises by [`UP`], and by [`UP_FIRST`] until the first request over its target. Above 1,
//! it falls by [`UP`] for each [`DOWN`] × spent²: a request that takes twice its slack counts four
//! times as much as one that just exceeds it, because a tail is worse than a shift. A request that
//! takes [`SPENT_MAX`] slacks or more costs what 128 others bring: the gain holds only while fewer
//! than one in a hundred are late without limit. In balance at least two requests of three are
//! within their target, and of those over it by another slack at most one in nine. From gain 1 to 4
//! it takes 18 requests at first and 70 later, and one that takes six slacks is enough to fall
//! back. Requests over their target under the least gain are *hurt* by single kernels, until gain
//! 1.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gain {
    value: f64,
    is_hurt: bool,
    has_missed: bool,
}

impl Default for Gain {
    fn default() -> Self {
        Self {
            value: 1.0,
            is_hurt: false,
            has_missed: false,
        }
    }
}

impl Gain {
    pub(crate) fn value(self) -> f64 {
        self.value
    }

    pub(crate) fn is_least(self) -> bool {
        self.value <= GAIN_MIN
    }

    /// Whether requests missed their target at the least gain, and the gain is not back at 1.
    pub(crate) fn is_hurt(self) -> bool {
        self.is_hurt
    }

    /// A request that met BE work has spent this share of its slack: 0 is nothing, 1 all.
    pub(crate) fn handle_request(&mut self, spent: f64) {
        let spent = spent.clamp(0.0, SPENT_MAX);
        if spent > 1.0 {
            self.is_hurt |= self.is_least();
            self.has_missed = true;
        }
        let next = match spent <= 1.0 {
            true if self.has_missed => self.value * UP,
            true => self.value * UP_FIRST,
            false => self.value / UP.powf(DOWN * spent * spent),
        };
        self.value = next.clamp(GAIN_MIN, GAIN_MAX);
        self.is_hurt &= self.value < 1.0;
    }

    /// The same for a target of the mean: the gain moves by the unspent or exceeded slack, so that
    /// in balance the mean request spends all of it.
    pub(crate) fn handle_mean(&mut self, spent: f64) {
        let left = 1.0 - spent.clamp(0.0, SPENT_MAX);
        if left < 0.0 {
            self.is_hurt |= self.is_least();
            self.has_missed = true;
        }
        let step = if self.has_missed { UP } else { UP_FIRST };
        self.value = (self.value * step.powf(left)).clamp(GAIN_MIN, GAIN_MAX);
        self.is_hurt &= self.value < 1.0;
    }
}

/// Per request within the target: latencies are known to a few per cent; 100 requests take seconds.
const UP: f64 = 1.02;

/// The same until the first request over it.
const UP_FIRST: f64 = 1.08;

/// Per request over it, in steps of `UP`.
const DOWN: f64 = 2.0;

/// A request delayed by another one, or by a page fault, shows no more about BE work than this many
/// slacks. With 5 instead of 8, one in fifty could be late without limit; BE work gets the same
/// with both (suites robustness and busy).
const SPENT_MAX: f64 = 8.0;

/// An eighth of Orion's threshold, 0.3 % of a request at the default target. Nearly one kernel at a
/// time, where the bound of idle time has no floor ([`super`]).
pub(crate) const GAIN_MIN: f64 = 0.0625;

/// The greatest gain: of the default target 80 % of a request.
pub(crate) const GAIN_MAX: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(requests: impl IntoIterator<Item = f64>) -> f64 {
        after_from(Gain::default(), requests)
    }

    fn later(requests: impl IntoIterator<Item = f64>) -> f64 {
        let missed = Gain {
            has_missed: true,
            ..Gain::default()
        };
        after_from(missed, requests)
    }

    fn after_from(mut gain: Gain, requests: impl IntoIterator<Item = f64>) -> f64 {
        for spent in requests {
            gain.handle_request(spent);
        }
        gain.value()
    }

    #[test]
    fn within_the_target_it_rises_slowly_and_over_it_it_falls_at_once() {
        assert_eq!(after([]), 1.0);
        assert!((later([0.0; 70]) - 4.0).abs() < 0.01); // 1.02^70 = 4.0
        assert!((later([1.0]) - 1.02).abs() < 1e-9);
        // 1.02^(2 × 2²) = 1.17; 1.02^(2 × 8²) = 12.6, and no more for ten slacks.
        assert!((after([2.0]) - 1.0 / 1.1717).abs() < 1e-4);
        assert!((after([10.0]) - 1.0 / 12.612).abs() < 1e-4);
    }

    #[test]
    fn until_one_request_is_over_its_target_it_rises_by_eight_per_cent_each() {
        assert!((after([0.0; 18]) - 4.0).abs() < 0.01); // 1.08^18 = 4.0
        let then = after([0.0; 18].into_iter().chain([1.5, 0.0]));
        // 1.02^(2 × 1.5²) = 1.093, then 2 % each.
        assert!((then - 4.0 / 1.0932 * 1.02).abs() < 0.01, "{then}");
    }

    #[test]
    fn it_stays_where_one_request_in_nine_spends_its_slack_twice() {
        let nine = [0.5, 0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 0.5];
        let gain = later(std::iter::repeat_n(nine, 100).flatten());
        assert!((gain - 1.0).abs() < 0.01, "{gain}");
    }

    #[test]
    fn a_mean_that_spends_the_slack_keeps_it_whatever_single_requests_take() {
        let mut gain = Gain {
            has_missed: true,
            ..Gain::default()
        };
        for spent in [0.0, 0.5, 2.5].into_iter().cycle().take(300) {
            gain.handle_mean(spent);
        }
        assert!((gain.value() - 1.0).abs() < 0.05, "{}", gain.value());
        for _ in 0..100 {
            gain.handle_mean(1.5);
        }
        assert!((gain.value() - 0.37).abs() < 0.02, "{}", gain.value()); // 1.02^-50
    }

    #[test]
    fn requests_are_hurt_from_the_least_gain_until_it_is_back_at_one() {
        let mut gain = Gain::default();
        while !gain.is_least() {
            gain.handle_request(2.0);
            assert!(!gain.is_hurt());
        }
        gain.handle_request(2.0);
        assert!(gain.is_hurt());
        while gain.value() < 1.0 {
            assert!(gain.is_hurt());
            gain.handle_request(0.0);
        }
        assert!(!gain.is_hurt());
    }

    #[test]
    fn it_stays_between_its_ends() {
        assert_eq!(after([0.0; 1_000]), GAIN_MAX);
        assert_eq!(after([3.0; 1_000]), GAIN_MIN);
        assert_eq!(after([f64::INFINITY; 1_000]), GAIN_MIN);
    }
}
