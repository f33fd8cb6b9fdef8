//! The level: how much best-effort work HP requests can bear, from the number of misses. A target
//! allows a share α of the requests to take longer (p99: α = 0.01). The level is one number, the
//! only integrator of its law. A request within its target raises it by η, one over it lowers it by
//! η(1 − α)/α: it is stationary where a share α misses. [`crate::pillion`] has the level's effects.
//! # The bound
//! For any sequence of requests,
//! ```text
//! misses − misses at the floor ≤ α (requests + range/η)
//! ```
//! because all steps sum to minus the range at least. A step cut off by the top or a freeze only
//! lowers the level, as a larger fall does, and a larger step before the first miss cannot pass the
//! top. At the floor best-effort work is paused, so it does not cause the misses there. The price
//! of the range: the share of 7/0.001 = 7000 more requests, 70 misses, may come at once.
//!
//! *At the floor* is where one more miss would reach it or pass it ([`Level::is_at_floor`]); from
//! there on best-effort work is paused. Where fewer than two in a thousand may miss, η is smaller,
//! so that a miss costs half a unit and not all of the range.
//! # Spread misses
//! The level begins at 0 and may belong at −5, and a step of load may require that later: by falls
//! of 0.099 that would cost fifty misses. A queue's misses come in bursts; those of a level that is
//! too high are spread, in six of the last eight blocks of 25 requests. Each then costs six times
//! as much ([`Level::fall`]). Steps that are larger in both directions and decay (Angelopoulos,
//! Barber and Bates 2024) come down as fast, but after a burst they leave the level low while they
//! shrink: in simulations with ten times as large initial steps and three kinds of decay, requests
//! at half load were 7 to 15 % within their targets after 5000 of them. Source: a quantile law with
//! saturation in the place of GPUColo's mean law (§IV–V).

/// The floor: best-effort work is paused.
pub const LEAST: f64 = -6.0;

/// The top: best-effort work may go whenever a request can bear it.
pub const GREATEST: f64 = 1.0;

/// η, for a request within its target. A miss at α = 0.01 costs 0.099, so 70 in a row cross the
/// range: Poisson arrivals bring bursts of misses, each of which would cross a smaller range.
pub const STEP: f64 = 0.001;

/// Steps per request until the first miss.
const FIRST_STEPS: f64 = 10.0;

/// The factor on a fall for a spread miss.
const SPREAD_STEPS: f64 = 6.0;

/// The greatest such fall.
const SPREAD_FALL_MAX: f64 = 1.0;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    value: f64,
    spread: Spread,
    has_missed: bool,
    /// Requests that were judged.
    pub requests: u64,
    /// The judged requests that were over their target.
    pub misses: u64,
    /// The misses that found the level at its floor ([`Level::is_at_floor`]).
    pub misses_at_floor: u64,
}

impl Level {
    /// A level that starts at `value`, between [`LEAST`] and [`GREATEST`]; NaN: at 0, as
    /// [`Self::default`]. `has_missed`: a request was over its target before; ignored for NaN.
    #[must_use]
    pub fn begin(value: f64, has_missed: bool) -> Self {
        match value.is_nan() {
            true => Self::default(),
            false => Self {
                value: value.clamp(LEAST, GREATEST),
                has_missed,
                ..Self::default()
            },
        }
    }

    /// Whether a request was over its target.
    #[must_use]
    pub fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Between [`LEAST`] and [`GREATEST`]. Before the first request, the value given to
    /// [`Self::begin`], else 0.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }

    /// Whether another miss, for a goal with the share `alpha`, finds it at the floor.
    #[must_use]
    pub fn is_at_floor(&self, alpha: f64) -> bool {
        self.value - self.fall(alpha) <= LEAST
    }

    /// The fall at the next miss, for a goal with the share `alpha` of misses.
    #[must_use]
    pub fn fall(&self, alpha: f64) -> f64 {
        let fall = fall(alpha);
        match self.spread.is_spread() && alpha <= SPREAD_ALPHA_MAX {
            true => (fall * SPREAD_STEPS).min(SPREAD_FALL_MAX).max(fall),
            false => fall,
        }
    }

    /// A request was over its target, which a share `alpha` may be (more than 0, less than 1), or
    /// within it. `may_rise`: best-effort work wanted to go, and this law's ceiling was in force.
    pub fn handle_request(&mut self, is_miss: bool, alpha: f64, may_rise: bool) {
        self.requests += 1;
        if is_miss {
            self.misses += 1;
            self.has_missed = true;
            self.misses_at_floor += u64::from(self.is_at_floor(alpha));
            self.value = (self.value - self.fall(alpha)).max(LEAST);
        } else if may_rise {
            let steps = if self.has_missed { 1.0 } else { FIRST_STEPS };
            self.value = (self.value + step(alpha) * steps).min(GREATEST);
        }
        // Last, because the best-effort work until now followed from the earlier knowledge.
        if alpha <= SPREAD_ALPHA_MAX {
            self.spread.handle_request(is_miss, alpha);
        }
    }
}

/// Whether misses are spread over the last requests, or came in bursts. Blocks allow a quarter of a
/// miss: of 25 requests where one in a hundred may miss. With independent misses of a share α, six
/// of eight blocks have one two in a thousand times; in a burst of a queue few blocks have one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spread {
    may_be: f64,
    /// One bit per block, the newest lowest: the block has a miss.
    blocks: u8,
}

/// Allowed misses of a block.
const BLOCK: f64 = 0.25;

const SPREAD_BLOCKS: u32 = 6;

/// Above this share there are many misses anyway, and each costs little.
const SPREAD_ALPHA_MAX: f64 = 0.05;

impl Spread {
    fn handle_request(&mut self, is_miss: bool, alpha: f64) {
        self.may_be += alpha;
        if self.may_be > BLOCK {
            self.may_be = alpha;
            self.blocks <<= 1;
        }
        self.blocks |= u8::from(is_miss);
    }

    fn is_spread(self) -> bool {
        self.blocks.count_ones() >= SPREAD_BLOCKS
    }
}

/// The greatest fall at a miss: otherwise one miss, where fewer than two in a thousand may miss,
/// would cross the range and pause best-effort work for thousands of requests.
const FALL_MAX: f64 = 0.5;

/// The fall at a miss, for a goal with the share `alpha` of misses.
#[must_use]
pub fn fall(alpha: f64) -> f64 {
    (STEP * (1.0 - alpha) / alpha).min(FALL_MAX)
}

/// η: the rise for a request within its target.
#[must_use]
pub fn step(alpha: f64) -> f64 {
    STEP.min(FALL_MAX * alpha / (1.0 - alpha))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALPHA: f64 = 0.01;

    fn has_kept_the_bound(level: &Level, alpha: f64) -> bool {
        let spent = level.misses - level.misses_at_floor;
        let most = alpha * (level.requests as f64 + (GREATEST - LEAST) / step(alpha));
        // One of rounding: thousands of sums of steps that are no binary fractions.
        spent as f64 <= most + 1e-6 * most + 1.0
    }

    proptest! {
        #[test]
        fn no_sequence_of_requests_passes_the_bound(
            runs in prop::collection::vec((any::<bool>(), any::<bool>(), 1_u32..2_000), 1..60),
            alpha in prop::sample::select(vec![1e-6, 0.001, 0.005, 0.01, 0.05, 0.5]),
        ) {
            let mut level = Level::default();
            for (is_miss, may_rise, count) in runs {
                for _ in 0..count {
                    level.handle_request(is_miss, alpha, may_rise);
                    prop_assert!((LEAST..=GREATEST).contains(&level.value()));
                    prop_assert!(has_kept_the_bound(&level, alpha), "{level:?}");
                }
            }
        }

        #[test]
        fn a_plant_that_misses_above_a_level_settles_at_its_share(at in -5.0..0.9_f64, skip in 0_u32..40) {
            let mut level = Level::default();
            for n in 0..40_000_u32 {
                let is_miss = level.value() > at && n % 40 >= skip;
                level.handle_request(is_miss, ALPHA, true);
            }
            prop_assert!(has_kept_the_bound(&level, ALPHA));
            prop_assert!((level.value() - at).abs() < 0.15, "{level:?}");
        }
    }

    /// The bound's adversary: all misses possible above the floor.
    #[test]
    fn an_adversary_gets_what_the_bound_leaves_it_and_no_more() {
        let mut level = Level::default();
        for _ in 0..10_000 {
            level.handle_request(!level.is_at_floor(ALPHA), ALPHA, true);
        }
        assert_eq!(level.misses_at_floor, 0);
        assert!(has_kept_the_bound(&level, ALPHA));
        // It begins at 0, so it can spend a range of 6, not 7: α × (10 000 + 6 000).
        assert!((155..=160).contains(&level.misses), "{level:?}");
    }

    #[test]
    fn spread_misses_lower_it_six_times_as_fast_and_a_burst_does_not() {
        let mut level = Level::begin(0.0, true);
        for _ in 0..60 {
            level.handle_request(true, ALPHA, true);
        }
        assert!((level.value() + 60.0 * 0.099).abs() < 1e-9, "{level:?}");
        // One in fifteen misses: the level settles with fewer misses than half of those.
        let mut level = Level::begin(0.0, true);
        let mut requests = 0_u32;
        while level.value() > -5.0 {
            requests += 1;
            level.handle_request(requests.is_multiple_of(15), ALPHA, true);
        }
        assert!((15..25).contains(&level.misses), "{level:?}");
        assert!((level.fall(ALPHA) - 0.594).abs() < 1e-9);
        // After 200 requests without a miss the steps are small again.
        for _ in 0..200 {
            level.handle_request(false, ALPHA, true);
        }
        assert!((level.fall(ALPHA) - 0.099).abs() < 1e-9);
    }

    /// Best-effort work ran beside them until misses are known to be spread.
    #[test]
    fn the_miss_that_shows_that_they_are_spread_is_of_best_effort_work_still() {
        let mut level = Level::begin(-5.3, true);
        for n in 0..151_u32 {
            level.handle_request(n % 25 == 0 && n > 0, ALPHA, false);
        }
        assert_eq!((level.misses, level.misses_at_floor), (6, 0), "{level:?}");
        assert!(level.is_at_floor(ALPHA), "{level:?}");
        // Blocks for a goal that half may miss differ from those for one in a hundred.
        let mut level = Level::begin(0.0, true);
        for n in 0..10_000_u32 {
            level.handle_request(n % 2 == 0, 0.5, true);
        }
        assert!((level.fall(ALPHA) - 0.099).abs() < 1e-9);
    }

    #[test]
    fn of_a_goal_that_few_or_many_may_miss_no_spread_miss_costs_much_more() {
        let alphas = [
            (1e-6, 1.0),
            (0.000_1, 1.0),
            (0.002, 1.0),
            (0.05, 0.12),
            (0.1, 0.01),
            (0.5, 0.001),
        ];
        for (alpha, most) in alphas {
            let every = (0.2_f64 / alpha).max(1.0) as u32;
            let mut level = Level::default();
            for n in 0..200_000_u32 {
                level.handle_request(n.is_multiple_of(every), alpha, true);
                assert!(level.fall(alpha) <= most * 1.001, "{alpha}");
            }
        }
    }

    #[test]
    fn at_its_share_misses_are_hardly_ever_spread() {
        let mut level = Level::begin(0.0, true);
        let (mut spread, mut drawn) = (0, 1_u64);
        for _ in 0..100_000 {
            // Xorshift (Marsaglia 2003).
            drawn ^= drawn << 13;
            drawn ^= drawn >> 7;
            drawn ^= drawn << 17;
            level.handle_request(drawn.is_multiple_of(100), ALPHA, true);
            spread += u32::from(level.fall(ALPHA) > 0.1);
        }
        assert!(spread < 1_000, "{spread} of 100 000");
        assert!((900..1_100).contains(&level.misses), "{level:?}");
    }

    #[test]
    fn it_rises_fast_until_the_first_miss_and_not_while_nothing_wants_to_go() {
        let mut level = Level::default();
        for _ in 0..50 {
            level.handle_request(false, ALPHA, true);
        }
        assert!((level.value() - 0.5).abs() < 1e-9);
        level.handle_request(true, ALPHA, true);
        assert!((level.value() - 0.401).abs() < 1e-9);
        level.handle_request(false, ALPHA, false);
        assert!((level.value() - 0.401).abs() < 1e-9);
        level.handle_request(false, ALPHA, true);
        assert!((level.value() - 0.402).abs() < 1e-9);
    }
}
