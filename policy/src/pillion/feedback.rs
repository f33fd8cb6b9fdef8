//! The gain: by how much the bounds are wider or narrower than the slack, from what requests took.
//!
//! Each request that met BE work has spent a share of its slack, (took − solo) ÷ slack. Up to 1, the gain
//! rises by [`UP`]; above, it falls by as much for each [`DOWN`] × spent², so that a request that takes
//! twice its slack counts four times as much as one that just exceeds it: a tail is worse than a shift.
//! In balance at least two requests of three are within their target, and of those over it by another
//! slack at most one in nine. From gain 1 to 4 it takes 70 requests, back as few as 2.

//!
//! Where requests are over their target under the least gain too, they are *hurt* by single kernels, until
//! the gain is back at 1.

/// The gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gain {
    value: f64,
    is_hurt: bool,
}

impl Default for Gain {
    fn default() -> Self {
        Self {
            value: 1.0,
            is_hurt: false,
        }
    }
}

impl Gain {
    pub(crate) fn value(self) -> f64 {
        self.value
    }

    /// Whether it cannot fall.
    pub(crate) fn is_least(self) -> bool {
        self.value <= GAIN_MIN
    }

    /// Whether requests were over their target though it could not fall, and it is not back at 1.
    pub(crate) fn is_hurt(self) -> bool {
        self.is_hurt
    }

    /// A request that met BE work has spent so much of its slack: 0 is nothing, 1 all.
    pub(crate) fn handle_request(&mut self, spent: f64) {
        let spent = spent.clamp(0.0, SPENT_MAX);
        if spent > 1.0 {
            self.is_hurt |= self.is_least();
        }
        let next = match spent <= 1.0 {
            true => self.value * UP,
            false => self.value / UP.powf(DOWN * spent * spent),
        };
        self.value = next.clamp(GAIN_MIN, GAIN_MAX);
        self.is_hurt &= self.value < 1.0;
    }
}

/// Per request within the target: its clients' latencies are known to a few per cent, and a hundred
/// requests are seconds.
const UP: f64 = 1.02;

/// Per request over it, in steps of `UP`.
const DOWN: f64 = 2.0;

/// A request that another one delayed, or a page fault, says no more about BE work than this.
const SPENT_MAX: f64 = 5.0;

/// The least gain: of the default target 0.3 % of a request, an eighth of Orion's threshold. As good as one
/// kernel at a time.
const GAIN_MIN: f64 = 0.0625;

/// The greatest gain: of the default target 80 % of a request.
pub(crate) const GAIN_MAX: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(requests: impl IntoIterator<Item = f64>) -> f64 {
        let mut gain = Gain::default();
        for spent in requests {
            gain.handle_request(spent);
        }
        gain.value()
    }

    #[test]
    fn within_the_target_it_rises_slowly_and_over_it_it_falls_at_once() {
        assert_eq!(after([]), 1.0);
        assert!((after([0.0; 70]) - 4.0).abs() < 0.01); // 1.02^70 = 4.0
        assert!((after([1.0]) - 1.02).abs() < 1e-9);
        // 1.02^(2 × 2²) = 1.17; 1.02^(2 × 5²) = 2.69, and no more for ten slacks.
        assert!((after([2.0]) - 1.0 / 1.1717).abs() < 1e-4);
        assert!((after([10.0]) - 1.0 / 2.6916).abs() < 1e-4);
    }

    #[test]
    fn it_stays_where_one_request_in_nine_spends_its_slack_twice() {
        let nine = [0.5, 0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 0.5];
        let gain = after(std::iter::repeat_n(nine, 100).flatten());
        assert!((gain - 1.0).abs() < 0.01, "{gain}");
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
