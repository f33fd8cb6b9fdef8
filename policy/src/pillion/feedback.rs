//! The gain: by how much the bounds are wider or narrower than the slack, from what requests took.
//!
//! Each request that met BE work has spent a share of its slack, (took − solo) ÷ slack. Up to 1, the gain
//! rises by [`UP`]; above, it falls by as much for each [`DOWN`] × spent², so that a request that takes
//! twice its slack counts four times as much as one that just exceeds it: a tail is worse than a shift.
//! In balance at least two requests of three are within their target, and of those over it by another
//! slack at most one in nine. From gain 1 to 4 it takes 70 requests, back as few as 2.

/// The gain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gain(f64);

impl Default for Gain {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Gain {
    pub(crate) fn value(self) -> f64 {
        self.0
    }

    /// Whether it cannot fall.
    pub(crate) fn is_least(self) -> bool {
        self.0 <= GAIN_MIN
    }

    /// A request that met BE work has spent so much of its slack: 0 is nothing, 1 all.
    pub(crate) fn handle_request(&mut self, spent: f64) {
        let spent = spent.clamp(0.0, SPENT_MAX);
        let next = match spent <= 1.0 {
            true => self.0 * UP,
            false => self.0 / UP.powf(DOWN * spent * spent),
        };
        self.0 = next.clamp(GAIN_MIN, GAIN_MAX);
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
    fn it_stays_between_its_ends() {
        assert_eq!(after([0.0; 1_000]), GAIN_MAX);
        assert_eq!(after([3.0; 1_000]), GAIN_MIN);
        assert_eq!(after([f64::INFINITY; 1_000]), GAIN_MIN);
    }
}
