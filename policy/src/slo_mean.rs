//! The level for a mean: on the scale of [`crate::slo`], by the mean latency of a period.
//! # Law
//! GPUColo's inner loop (2024, §IV): with L the target, l the mean of a period and m the slope
//! dl/dv with which it grows with the level v,
//! ```text
//! v ← v + g (L − l) / m
//! ```
//! The integral leaves no steady error. The paper takes g = 1 and a previously identified slope; a
//! device's slope differs by a factor of several along the level, and with g = 1 the level then
//! oscillates between two values. So there are three cases:
//! - *Near* the target ([`NEAR`], or three standard errors of the period's mean), g is [`GAIN`].
//! - *Far* from it, with one level known to be too low and one too high: the next one is where a
//!   straight line through both meets the target (regula falsi; an end that stays counts half as
//!   much each time, the Illinois rule, Dowell and Jarratt 1971). This cannot oscillate forever on
//!   a curve of any shape.
//! - *Far* from it on one side so far: g is 1, and steps in the same direction double.
//! # The slope
//! Means are in units of the slack: 0 is the solo latency, 1 the target. The slope is identified by
//! least squares with forgetting over the steps of consecutive periods, Δl = m Δv; a slowly
//! changing load leaves no trace in a difference. To have steps at the target too, the applied
//! level is moved up and down in turn ([`MeanLevel::value`]). The estimate counts where it is
//! positive and [`ERRORS_MIN`] of its standard errors from 0. The slope in force is the steepest of
//! it and the straight line between the two known levels; where there is neither, 1: the whole
//! slack for a unit of the level.
//!
//! A *frozen* period, in which another law held best-effort work, or it wanted nothing, reveals
//! neither the slope nor which levels are too high; the level may fall by the gain, not rise.

use crate::slo::GREATEST;

/// The least value: best-effort work is paused. The level of [`crate::slo`] goes to −6; nothing
/// changes between its −2 and −1, which an integral cannot use, so that part is left out.
pub const MEAN_LEAST: f64 = -5.0;

/// The start of the part that is left out, in values of a mean, and its length.
const LEFT_OUT: (f64, f64) = (-1.0, 1.0);

/// g near the target. With 0.2 the mean errs by 2.5 % on a nonlinear plant, with 1 by 9 %.
pub const GAIN: f64 = 0.3;

/// The greatest factor on g where the mean stays on one side of the target.
const GAIN_TIMES: f64 = 3.0;

/// The distance that counts as near, in slacks.
pub const NEAR: f64 = 0.1;

/// The same, in standard errors of a period's mean.
const NEAR_ERRORS: f64 = 3.0;

/// Longest step near the target, and far from it on one side.
const STEP_MAX: (f64, f64) = (0.3, 1.5);

/// The shortest step far from the target, for an error of a slack or more.
const STEP_LEAST: f64 = 0.3;

/// The same downwards: best-effort work is taken away faster than it is given.
const STEP_DOWN_MAX: f64 = 2.5;

/// The greatest number of doublings.
const DOUBLINGS: i32 = 3;

/// A known level is forgotten after this many periods.
const KNOWN_PERIODS: u32 = 8;

/// The least distance of two known levels, more than the applied level is moved by: with closer
/// ones, a mean far from the target in between belonged to another load.
const APART: f64 = 0.05;

/// The move of the applied level: this much, or as much as moves the mean by this many slacks.
const DITHER: (f64, f64) = (0.02, 0.015);

/// The weight of the slope's history after a further period.
const FORGETTING: f64 = 0.9;

/// Longer steps do not measure a local slope.
const SLOPE_STEP_MAX: f64 = 0.5;

/// Slacks for a unit of the level, before identification.
pub const SLOPE_UNKNOWN: f64 = 1.0;

const SLOPE_LEAST: f64 = 0.5;

/// The least significance of an estimate, in standard errors.
const ERRORS_MIN: f64 = 3.0;

/// The requests' latencies in a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// Their mean: 0 is the solo latency, 1 the target.
    pub mean: f64,
    /// Its standard error, in the same unit.
    pub error: f64,
    /// In at least half of the requests best-effort work wanted to go, and no other law held it.
    pub may_rise: bool,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct MeanLevel {
    at: f64,
    /// The value in force in this period: `at`, moved.
    applied: f64,
    is_up: bool,
    slope: Slope,
    /// The value applied in the previous period, and its mean.
    before: Option<(f64, f64)>,
    low: Option<Known>,
    high: Option<Known>,
    /// Whether the last one was too high, and how many before it were on the same side.
    side: Option<bool>,
    run: i32,
    periods: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    value: f64,
    mean: f64,
    periods: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slope {
    vv: f64,
    vl: f64,
    ll: f64,
    weight: f64,
}

/// The identified slope, for `status`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlopeView {
    /// m: slacks for a unit of the level.
    pub m: f64,
    /// The share of the mean's changes between periods that m explains, 0 to 1 (R²).
    pub r2: f64,
}

impl Slope {
    fn handle(&mut self, dv: f64, dl: f64) {
        let sums = [
            (&mut self.vv, dv * dv),
            (&mut self.vl, dv * dl),
            (&mut self.ll, dl * dl),
            (&mut self.weight, 1.0),
        ];
        for (sum, new) in sums {
            *sum = *sum * FORGETTING + new;
        }
    }

    fn estimate(&self) -> Option<SlopeView> {
        (self.vv > 1e-8).then_some(())?;
        let m = self.vl / self.vv;
        let rest = (self.ll - m * self.vl).max(0.0);
        let freedom = (self.weight - 1.0).max(0.5);
        let error = (rest / freedom / self.vv).sqrt();
        let r2 = if self.ll > 0.0 {
            1.0 - rest / self.ll
        } else {
            0.0
        };
        (m > 0.0 && m > ERRORS_MIN * error).then_some(SlopeView { m, r2 })
    }
}

impl Default for MeanLevel {
    fn default() -> Self {
        Self::begin(0.0)
    }
}

impl MeanLevel {
    /// A level that starts at `value`, within [`MEAN_LEAST`] and [`GREATEST`], or 0 for NaN.
    #[must_use]
    pub fn begin(value: f64) -> Self {
        let value = if value.is_nan() { 0.0 } else { value };
        let mut level = Self {
            at: value.clamp(MEAN_LEAST, GREATEST),
            applied: 0.0,
            is_up: false,
            slope: Slope::default(),
            before: None,
            low: None,
            high: None,
            side: None,
            run: 0,
            periods: 0,
        };
        level.apply();
        level
    }

    /// The value in force in this period, from [`MEAN_LEAST`] to [`GREATEST`].
    #[must_use]
    pub fn value(&self) -> f64 {
        self.applied
    }

    /// The same on the scale of [`crate::slo::Level`].
    #[must_use]
    pub fn level(&self) -> f64 {
        let (from, long) = LEFT_OUT;
        match self.applied < from {
            true => self.applied - long,
            false => self.applied,
        }
    }

    /// The value at that level of [`crate::slo::Level`].
    #[must_use]
    pub fn value_of(level: f64) -> f64 {
        let (from, long) = LEFT_OUT;
        match level < from {
            true => (level + long).min(from),
            false => level,
        }
    }

    /// Judged periods.
    #[must_use]
    pub fn periods(&self) -> u64 {
        self.periods
    }

    /// The identified slope; `None` where none is significant.
    #[must_use]
    pub fn slope(&self) -> Option<SlopeView> {
        self.slope.estimate()
    }

    fn slope_in_force(&self) -> f64 {
        let line = self.low.zip(self.high).map(|(low, high)| {
            let rise = high.mean - low.mean;
            rise / (high.value - low.value).max(1e-3)
        });
        let known = self.slope().map(|known| known.m).into_iter().chain(line);
        known.reduce(f64::max).unwrap_or(SLOPE_UNKNOWN)
    }

    fn apply(&mut self) {
        let (most, slacks) = DITHER;
        let by = most.min(slacks / self.slope_in_force());
        let by = if self.is_up { by } else { -by };
        self.applied = (self.at + by).clamp(MEAN_LEAST, GREATEST);
    }

    /// A period has ended. A value that is not a number counts for nothing.
    pub fn handle_period(&mut self, period: &Period) {
        let Period {
            mean,
            error,
            may_rise,
        } = *period;
        if !mean.is_finite() || !error.is_finite() {
            return;
        }
        self.periods += 1;
        self.is_up = !self.is_up;
        if !may_rise {
            self.handle_frozen(mean);
            return;
        }
        let before = self.before.replace((self.applied, mean));
        if let Some((value, before)) = before
            && (self.applied - value).abs() <= SLOPE_STEP_MAX
        {
            self.slope.handle(self.applied - value, mean - before);
        }
        self.handle_known(mean);
        let is_high = mean > 1.0;
        self.run = match self.side.replace(is_high) == Some(is_high) {
            true => self.run.saturating_add(1),
            false => 0,
        };
        let next = self.next(mean, error.max(0.0));
        self.at = next.clamp(MEAN_LEAST, GREATEST);
        self.apply();
    }

    fn handle_frozen(&mut self, mean: f64) {
        self.before = None;
        let step = GAIN * (mean - 1.0).max(0.0) / self.slope_in_force().max(SLOPE_LEAST);
        self.at = (self.at - step.min(STEP_MAX.0)).max(MEAN_LEAST);
        self.apply();
    }

    fn handle_known(&mut self, mean: f64) {
        for known in [&mut self.low, &mut self.high] {
            if let Some(of) = known {
                of.periods += 1;
            }
            *known = known.filter(|of| of.periods <= KNOWN_PERIODS);
        }
        let here = Known {
            value: self.applied,
            mean,
            periods: 0,
        };
        // A contradicting known level was of another load.
        match mean > 1.0 {
            true => {
                self.high = Some(here);
                self.low = self.low.filter(|low| low.value + APART < here.value);
            }
            false => {
                self.low = Some(here);
                self.high = self.high.filter(|high| high.value > here.value + APART);
            }
        }
    }

    fn next(&self, mean: f64, error: f64) -> f64 {
        let left = 1.0 - mean;
        if left.abs() <= NEAR.max(NEAR_ERRORS * error) {
            // On one side for many periods: the slope has decreased.
            let gain = GAIN * (1.0 + f64::from(self.run) / 2.0).min(GAIN_TIMES);
            let step = gain * left / self.slope_in_force().max(SLOPE_LEAST);
            return self.at + step.clamp(-STEP_MAX.0, STEP_MAX.0);
        }
        let Some((low, high)) = self.low.zip(self.high) else {
            let steps = f64::from(2_i32.pow(self.run.clamp(0, DOUBLINGS) as u32));
            let least = STEP_LEAST * steps * left.abs().min(1.0);
            let step = (left / self.slope_in_force()).abs().max(least);
            return match left > 0.0 {
                true => self.at + step.min(STEP_MAX.1),
                false => self.at - step.min(STEP_DOWN_MAX),
            };
        };
        // The end that stays counts half as much for each time that it has stayed.
        let half = 0.5_f64.powi(self.run.min(16));
        let (low_left, high_over) = match left > 0.0 {
            true => (1.0 - low.mean, (high.mean - 1.0) * half),
            false => ((1.0 - low.mean) * half, high.mean - 1.0),
        };
        let at = low_left / (low_left + high_over).max(1e-9);
        low.value + (high.value - low.value) * at.clamp(0.1, 0.9)
    }
}
