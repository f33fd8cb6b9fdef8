//! A factorization machine (Rendle, 2010), learnt online by FTRL-Proximal (McMahan et al., 2013):
//! the predictor of OLTunes (equation 2). With features `x`, weights `w` and a vector `v` of `K`
//! factors for each feature, the machine predicts
//! ```text
//! w0 + sum of w[j] x[j] + sum over pairs j < k of <v[j], v[k]> x[j] x[k]
//! ```
//! The sum over pairs is half of (the square of the sum of `v[j] x[j]`, less the sum of its
//! squares), for each factor: `K` operations for each non-zero feature. Without factors the machine
//! is linear.
//!
//! Each coordinate (a weight, or one factor of one feature) learns alone. The loss of a sample is
//! half its squared error; `g` is the derivative of the loss by the coordinate:
//! ```text
//! sigma = (sqrt(n + g g) - sqrt(n)) / alpha
//! z += g - sigma u;  n += g g
//! u = 0 if |z| <= l1, else -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)
//! ```
//! OLTunes' listing lacks `sigma u`. Without it the rule is dual averaging: `z` is the sum of all
//! gradients, and each step is taken from 0 rather than from the coordinate's value.
//!
//! A weight is `u`. Factors need more: where all are 0 all their gradients are 0 for ever, and a
//! random start is lost at the first update, as `u` is a function of `z` and `n` alone. So a factor
//! is an *offset* plus `u`. Offsets are drawn once, and regularisation pulls towards them.
//! (Starting from `z = -v (beta / alpha + l2)` would keep a start `v` too, but pull towards 0,
//! where factors die.) Targets are standardised by mean and deviation of all samples so far, so
//! rates do not depend on the unit. Features should be about 1, as [`crate::features`] gives them.
//! Our additions to the paper's machine, which states no rates: `sigma u`, offsets, standardised
//! targets, clipped errors ([`DEVIATIONS_MAX`]), separate rates for factors, an `l1` of 0 by
//! default and repeats ([`crate::predictor::Settings::repeats`]).

use serde::{Deserialize, Serialize};

use crate::predictor::COUNT_MAX;

/// The rates of a group of coordinates, named as by McMahan et al.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Length of steps; more than 0.
    pub alpha: f64,
    /// Keeps first steps short; at least 0, and more than 0 if `l2` is 0.
    pub beta: f64,
    /// Coordinates with less evidence stay 0; at least 0.
    pub l1: f64,
    /// Pulls towards 0; at least 0.
    pub l2: f64,
}

impl Rates {
    fn is_valid(&self) -> bool {
        let range = |value: f64, least: f64| (least..=RATE_MAX).contains(&value);
        let rest = [self.beta, self.l1, self.l2];
        range(self.alpha, RATE_MIN)
            && rest.iter().all(|&value| range(value, 0.0))
            && self.beta + self.l2 >= RATE_MIN
    }
}

/// How a machine learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Number of factors, at most [`FACTORS_MAX`]; 0 is the linear machine.
    pub factors: u8,
    /// Rates of the weights.
    pub weights: Rates,
    /// Rates of the factors.
    pub pairs: Rates,
    /// Standard deviation of the offsets of factors, from 0 to 10.
    pub offset_deviation: f64,
    /// Draws the offsets.
    pub seed: u64,
}

impl Settings {
    /// Whether all numbers are in the ranges that their fields name.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        usize::from(self.factors) <= FACTORS_MAX
            && self.weights.is_valid()
            && self.pairs.is_valid()
            && (0.0..=10.0).contains(&self.offset_deviation)
    }
}

/// Why a sample is refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RowError {
    /// A feature is not a number from -[`FEATURE_MAX`] to [`FEATURE_MAX`].
    #[error("feature {index} is {value}: expected a number from -{max} to {max}", max = FEATURE_MAX)]
    Feature {
        /// Its index.
        index: u32,
        /// Its value.
        value: f64,
    },
    /// An index is too high.
    #[error("feature {index}: expected an index below {max}", max = FEATURES_MAX)]
    Index {
        /// The index.
        index: u32,
    },
    /// An index is not above the one before it.
    #[error("feature {index} comes after one with the same or a higher index")]
    Order {
        /// The index.
        index: u32,
    },
    /// The target is not a number from -[`TARGET_MAX`] to [`TARGET_MAX`].
    #[error("the target is {value}: expected a number from -{max} to {max}", max = TARGET_MAX)]
    Target {
        /// The target.
        value: f64,
    },
}

/// A factorization machine, or with no factors a linear one.
#[derive(Clone, Debug, PartialEq)]
pub struct FmFtrl {
    settings: Settings,
    state: State,
    /// Of each factor of each feature; drawn, not learnt.
    offsets: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    targets: Moments,
    bias: Coordinate,
    weights: Vec<Coordinate>,
    /// Those of feature `j` start at `j` times their number.
    factors: Vec<Coordinate>,
}

/// Mean and deviation of all values so far (Welford, 1962).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Moments {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    squares: f64,
}

impl Moments {
    /// Adds a value. After [`CLIPPED_FROM`] values one further than [`DEVIATIONS_MAX`] deviations
    /// from the mean counts as one there: a grossly wrong target would leave a deviation in which
    /// all others are equal. If large values keep arriving, the deviation grows with each.
    pub(crate) fn add(&mut self, value: f64) {
        let limit = DEVIATIONS_MAX * self.scale();
        let value = if self.count >= CLIPPED_FROM && limit > 0.0 {
            value.clamp(self.mean - limit, self.mean + limit)
        } else {
            value
        };
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// 1 while all values were equal.
    pub(crate) fn deviation(&self) -> f64 {
        let variance = self.squares / self.count.max(1) as f64;
        if variance > 0.0 { variance.sqrt() } else { 1.0 }
    }

    /// The deviation; while all values were equal, their size, the only known unit.
    fn scale(&self) -> f64 {
        let variance = self.squares / self.count.max(1) as f64;
        if variance > 0.0 {
            variance.sqrt()
        } else {
            self.mean.abs()
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        // No value is further from the mean than from one end of the range to the other.
        let squares_max = self.count as f64 * (2.0 * TARGET_MAX).powi(2);
        self.count <= COUNT_MAX
            && self.mean.abs() <= TARGET_MAX
            && (0.0..=squares_max).contains(&self.squares)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Coordinate {
    z: f64,
    n: f64,
}

impl Coordinate {
    fn learnt(&self, rates: &Rates) -> f64 {
        if self.z.abs() <= rates.l1 {
            return 0.0;
        }
        let pull = self.z - self.z.signum() * rates.l1;
        -pull / ((rates.beta + self.n.sqrt()) / rates.alpha + rates.l2)
    }

    fn learn(&mut self, rates: &Rates, gradient: f64) {
        let learnt = self.learnt(rates);
        let squares = self.n + gradient * gradient;
        let sigma = (squares.sqrt() - self.n.sqrt()) / rates.alpha;
        // Bounds that learning does not come near, so that a written state can be read.
        self.z = (self.z + gradient - sigma * learnt).clamp(-SUM_MAX, SUM_MAX);
        self.n = squares.min(SUM_MAX);
    }
}

impl FmFtrl {
    /// A machine that has learnt nothing; None if the settings are not valid.
    #[must_use]
    pub fn new(settings: Settings) -> Option<Self> {
        Self::restore(settings, State::default())
    }

    /// The machine with this state; None if it is not one that these settings can lead to.
    pub(crate) fn restore(settings: Settings, state: State) -> Option<Self> {
        let features = state.weights.len();
        let sums = |one: &Coordinate| one.z.abs() <= SUM_MAX && (0.0..=SUM_MAX).contains(&one.n);
        let is_valid = settings.is_valid()
            && state.targets.is_valid()
            && features <= FEATURES_MAX as usize
            && state.factors.len() == features * usize::from(settings.factors)
            && sums(&state.bias)
            && state.weights.iter().chain(&state.factors).all(sums);
        is_valid.then(|| {
            let mut machine = Self {
                settings,
                state,
                offsets: Vec::new(),
            };
            machine.grow(features);
            machine
        })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The prediction for a row, in the unit of the targets, within [`DEVIATIONS_MAX`] deviations
    /// of their mean; 0 before the first sample. Leaves out a feature that no sample had.
    ///
    /// # Errors
    /// [`RowError`] for a row that [`Self::learn`] would refuse.
    pub fn predict(&self, row: &[(u32, f64)]) -> Result<f64, RowError> {
        check(row)?;
        let predicted = self.standardised(row, &mut [0.0; FACTORS_MAX]);
        let targets = &self.state.targets;
        let predicted = predicted.clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX);
        Ok(targets.mean + predicted * targets.deviation())
    }

    /// Learns from a sample: pairs of an index and a feature, by index; others are 0.
    ///
    /// # Errors
    /// [`RowError`]; the machine is then as before.
    pub fn learn(&mut self, row: &[(u32, f64)], target: f64) -> Result<(), RowError> {
        check(row)?;
        check_target(target)?;
        let features = row.last().map_or(0, |&(index, _)| index as usize + 1);
        self.grow(features);
        self.state.targets.add(target);
        self.descend(row, target);
        Ok(())
    }

    /// Learns again from a sample that [`Self::learn`] has had. An error changes nothing.
    pub(crate) fn repeat(&mut self, row: &[(u32, f64)], target: f64) -> Result<(), RowError> {
        check(row)?;
        check_target(target)?;
        self.descend(row, target);
        Ok(())
    }

    fn descend(&mut self, row: &[(u32, f64)], target: f64) {
        let factors = usize::from(self.settings.factors);
        let mut sums = [0.0; FACTORS_MAX];
        let predicted = self.standardised(row, &mut sums);
        let targets = &self.state.targets;
        let right = (target - targets.mean) / targets.deviation();
        let error = (predicted - right).clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX);
        let Settings { weights, pairs, .. } = self.settings;
        self.state.bias.learn(&weights, error);
        for &(index, x) in row {
            let Some(weight) = self.state.weights.get_mut(index as usize) else {
                continue;
            };
            weight.learn(&weights, error * x);
            let at = index as usize * factors;
            let own = self.state.factors[at..at + factors].iter_mut();
            let offsets = &self.offsets[at..at + factors];
            for ((factor, offset), sum) in own.zip(offsets).zip(&sums) {
                let value = offset + factor.learnt(&pairs);
                factor.learn(&pairs, error * x * (sum - value * x));
            }
        }
    }

    /// The prediction in deviations from the mean, and the sum of `v[j] x[j]` for each factor.
    fn standardised(&self, row: &[(u32, f64)], sums: &mut [f64; FACTORS_MAX]) -> f64 {
        let Settings { weights, pairs, .. } = &self.settings;
        let factors = usize::from(self.settings.factors);
        let mut predicted = self.state.bias.learnt(weights);
        let mut squares = 0.0;
        for &(index, x) in row {
            let Some(weight) = self.state.weights.get(index as usize) else {
                continue;
            };
            predicted += weight.learnt(weights) * x;
            let at = index as usize * factors;
            let own = self.state.factors[at..at + factors].iter();
            let offsets = &self.offsets[at..at + factors];
            for ((factor, offset), sum) in own.zip(offsets).zip(&mut *sums) {
                let part = (offset + factor.learnt(pairs)) * x;
                *sum += part;
                squares += part * part;
            }
        }
        let all: f64 = sums[..factors].iter().map(|sum| sum * sum).sum();
        predicted + 0.5 * (all - squares)
    }

    fn grow(&mut self, features: usize) {
        let factors = usize::from(self.settings.factors);
        let features = features.max(self.state.weights.len());
        self.state.weights.resize(features, Coordinate::default());
        let coordinates = features * factors;
        self.state
            .factors
            .resize(coordinates, Coordinate::default());
        let Settings {
            seed,
            offset_deviation,
            ..
        } = self.settings;
        let drawn = self.offsets.len()..coordinates;
        self.offsets.extend(drawn.map(|place| {
            // Of place alone, so that the order of features does not matter.
            let bits = mix(seed ^ mix(place as u64));
            let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
            // An even distribution from -a to a has a deviation of a / sqrt(3).
            offset_deviation * 3.0_f64.sqrt() * (2.0 * unit - 1.0)
        }));
    }
}

fn check(row: &[(u32, f64)]) -> Result<(), RowError> {
    let mut least = 0;
    for &(index, value) in row {
        if index >= FEATURES_MAX {
            return Err(RowError::Index { index });
        }
        if index < least {
            return Err(RowError::Order { index });
        }
        // False for NaN.
        let in_range = value.abs() <= FEATURE_MAX;
        if !in_range {
            return Err(RowError::Feature { index, value });
        }
        least = index + 1;
    }
    Ok(())
}

pub(crate) fn check_target(value: f64) -> Result<(), RowError> {
    let in_range = value.abs() <= TARGET_MAX;
    in_range.then_some(()).ok_or(RowError::Target { value })
}

/// One step of SplitMix64 (Steele et al., 2014).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Most factors: the size of a prediction's sums.
pub const FACTORS_MAX: usize = 32;

/// Indices of features are below this; with it, memory is bounded.
pub const FEATURES_MAX: u32 = 1 << 16;

/// Features are at most this, so that no sum of a machine overflows.
pub const FEATURE_MAX: f64 = 1e3;

/// Targets are at most this: their squares, summed, are numbers.
pub const TARGET_MAX: f64 = 1e100;

/// Predictions, and the errors that gradients see, are at most so many deviations: a sample that is
/// wrong by far more moves no weight further.
pub const DEVIATIONS_MAX: f64 = 8.0;

/// Targets before deviations identify a grossly wrong one. Among these first ones it does harm.
const CLIPPED_FROM: u64 = 16;

const RATE_MIN: f64 = 1e-9;
const RATE_MAX: f64 = 1e9;

/// Sums of gradients stay far below.
const SUM_MAX: f64 = 1e100;

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        alpha: 0.2,
        beta: 1.0,
        l1: 0.0,
        l2: 0.0,
    };

    fn settings(factors: u8, offset_deviation: f64) -> Settings {
        Settings {
            factors,
            weights: RATES,
            pairs: RATES,
            offset_deviation,
            seed: 7,
        }
    }

    fn machine(factors: u8, offset_deviation: f64) -> FmFtrl {
        FmFtrl::new(settings(factors, offset_deviation)).unwrap()
    }

    /// On a target that depends on two features together and on neither alone.
    fn error_on_pairs(mut machine: FmFtrl) -> f64 {
        let row = |i: u32| [(i % 2, 1.0), (2 + i / 2 % 2, 1.0)];
        let target = |i: u32| f64::from(u8::from(i % 2 == i / 2 % 2));
        for i in 0..4000 {
            machine.learn(&row(i), target(i)).unwrap();
        }
        let error = |i| machine.predict(&row(i)).unwrap() - target(i);
        (0..4).map(|i| error(i).powi(2)).sum::<f64>() / 4.0
    }

    #[test]
    fn factors_learn_what_depends_on_two_features_together() {
        assert!(error_on_pairs(machine(4, 0.1)) < 1e-3);
    }

    #[test]
    fn a_linear_machine_does_not_and_nor_do_factors_without_offsets() {
        let linear = error_on_pairs(machine(0, 0.1));
        assert!((linear - 0.25).abs() < 0.02, "{linear}");
        let dead = error_on_pairs(machine(4, 0.0));
        assert_eq!(dead.to_bits(), linear.to_bits());
    }

    #[test]
    fn a_prediction_is_equation_2() {
        let mut machine = machine(3, 0.5);
        let row = [(0, 1.0), (2, 0.5), (5, -0.25)];
        machine.learn(&row, 1.0).unwrap();
        machine.learn(&row, 3.0).unwrap();
        let Settings { weights, pairs, .. } = machine.settings;
        let state = &machine.state;
        let factor = |feature: u32, number: usize| {
            let place = feature as usize * 3 + number;
            machine.offsets[place] + state.factors[place].learnt(&pairs)
        };
        let mut expected = state.bias.learnt(&weights);
        for (place, &(j, x)) in row.iter().enumerate() {
            expected += state.weights[j as usize].learnt(&weights) * x;
            for &(k, y) in &row[place + 1..] {
                let product: f64 = (0..3).map(|one| factor(j, one) * factor(k, one)).sum();
                expected += product * x * y;
            }
        }
        let predicted = machine.predict(&row).unwrap();
        let (mean, deviation) = (2.0, 1.0);
        assert!((predicted - (mean + expected * deviation)).abs() < 1e-12);
    }

    /// McMahan's rule by hand: two updates with gradient 1. Without `sigma u` z would be 2.
    #[test]
    fn a_coordinate_follows_the_rule_with_its_sigma() {
        let rates = Rates {
            alpha: 0.5,
            l1: 0.1,
            l2: 2.0,
            ..RATES
        };
        let mut one = Coordinate::default();
        one.learn(&rates, 1.0);
        assert_eq!((one.z, one.n), (1.0, 1.0));
        let learnt = -0.9 / (2.0 / 0.5 + 2.0);
        assert!((one.learnt(&rates) - learnt).abs() < 1e-15);
        one.learn(&rates, 1.0);
        let sigma = (2.0_f64.sqrt() - 1.0) / 0.5;
        assert!((one.z - (2.0 - sigma * learnt)).abs() < 1e-15);
    }

    #[test]
    fn the_unit_of_targets_does_not_matter() {
        let run = |unit: f64| {
            let mut machine = machine(2, 0.1);
            for i in 0..200_u32 {
                let target = f64::from(i % 3) * unit;
                machine.learn(&[(i % 3, 1.0), (3, 0.5)], target).unwrap();
            }
            machine.predict(&[(1, 1.0), (3, 0.5)]).unwrap() / unit
        };
        assert!((run(1.0) - run(1e6)).abs() < 1e-6);
    }

    #[test]
    fn a_feature_that_was_never_learnt_changes_no_prediction() {
        let mut machine = machine(4, 0.5);
        for i in 0..50_u32 {
            machine.learn(&[(i % 2, 1.0)], f64::from(i % 2)).unwrap();
        }
        let known = machine.predict(&[(0, 1.0)]);
        assert_eq!(machine.predict(&[(0, 1.0), (9, 1.0)]), known);
    }

    #[test]
    fn rows_that_are_no_rows_are_refused_and_change_nothing() {
        let mut machine = machine(2, 0.1);
        machine.learn(&[(0, 1.0)], 1.0).unwrap();
        let before = machine.clone();
        let mut refused = |row: &[(u32, f64)], target| {
            let error = machine.learn(row, target).unwrap_err();
            assert_eq!(machine, before);
            error.to_string()
        };
        let expected = "feature 3 is NaN: expected a number from -1000 to 1000";
        assert_eq!(refused(&[(3, f64::NAN)], 0.0), expected);
        assert!(refused(&[(3, 1e4)], 0.0).starts_with("feature 3 is 10000: "));
        assert!(refused(&[(1, 1.0), (1, 1.0)], 0.0).starts_with("feature 1 comes after"));
        assert!(refused(&[(1 << 16, 1.0)], 0.0).starts_with("feature 65536: "));
        assert!(refused(&[(1, 1.0)], f64::INFINITY).starts_with("the target is inf: "));
    }

    #[test]
    fn the_worst_targets_leave_a_machine_with_numbers() {
        let mut machine = machine(8, 0.1);
        for i in 0..2000_u32 {
            let sign = if mix(u64::from(i)).is_multiple_of(2) {
                1.0
            } else {
                -1.0
            };
            let size = if i % 7 == 0 { TARGET_MAX } else { 1e-100 };
            let row = [(i % 5, FEATURE_MAX), (5 + i % 3, -FEATURE_MAX)];
            machine.learn(&row, sign * size).unwrap();
            assert!(machine.predict(&row).unwrap().is_finite());
        }
        let again = FmFtrl::restore(machine.settings, machine.state.clone());
        assert_eq!(again, Some(machine));
    }

    #[test]
    fn one_target_that_is_wrong_by_far_does_not_spoil_the_others() {
        let error = |wrong: Option<f64>| {
            let mut machine = machine(2, 0.1);
            for i in 0..1000_u32 {
                let target = wrong.filter(|_| i == 100).unwrap_or(f64::from(i % 3));
                machine.learn(&[(i % 3, 1.0)], target).unwrap();
            }
            let error = |i: u32| (machine.predict(&[(i, 1.0)]).unwrap() - f64::from(i)).abs();
            error(0).max(error(1)).max(error(2))
        };
        assert!(error(None) < 0.01);
        for wrong in [1e100, -1e100, 1e6] {
            let error = error(Some(wrong));
            assert!(error < 0.1, "after {wrong}: {error}");
        }
    }

    #[test]
    fn the_scale_follows_targets_that_stay_large() {
        let mut targets = Moments::default();
        for i in 0..2000_u32 {
            let size = if i < 200 { 1.0 } else { 1e6 };
            targets.add(f64::from(i % 2) * size);
        }
        assert!((0.3e6..1e6).contains(&targets.deviation()), "{targets:?}");
    }

    #[test]
    fn settings_out_of_range_make_no_machine() {
        let mut wrong = settings(4, 0.1);
        wrong.factors = 33;
        assert_eq!(FmFtrl::new(wrong), None);
        let mut wrong = settings(4, 0.1);
        wrong.pairs.alpha = 0.0;
        assert_eq!(FmFtrl::new(wrong), None);
        assert_eq!(FmFtrl::new(settings(4, f64::NAN)), None);
    }
}
