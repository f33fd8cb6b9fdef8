//! The predictor: a factorization machine and a random forest that learn the same samples side by
//! side. The one that has predicted better of late is served. OLTunes has the machine alone, and
//! reports that it beats a forest; on recorded speeds of jobs beside others the forest wins, on
//! throughputs neither (docs/cluster.md). So both run, and *prequential* loss decides: each sample
//! is predicted before it is learnt, so a learner is judged only by unseen samples. Squared errors
//! are forgotten exponentially ([`KEEP`]). Where a name is newer than the forest, the machine is
//! served whatever its loss. (This rule was chosen after its results on Gavel's measurements were
//! seen.) A linear machine runs along as a yardstick and is never served: the machine becomes that
//! if its factors learn nothing.
//!
//! The machine learns each sample at once, and then a few stored ones again ([`Settings::repeats`];
//! OLTunes has none). A forest cannot learn one more sample, so it is fitted anew in the
//! background:
//! ```text
//! if let Some(refit) = predictor.poll_refit() {   // a copy of the samples; at most one is out
//!     ... on any thread: refit.run() ...
//!     predictor.handle_refitted(refitted);        // or handle_refit_failed()
//! }
//! ```
//! A refit is due when samples have grown by a part ([`Settings::refit_growth`]), or when the error
//! of a sample is far above recent ones ([`Settings::refit_error`], OLTunes' θ). It fits the latest
//! [`Settings::samples_max`] samples; those of the current forest are kept besides, so that a model
//! file can repeat the fit: at most twice as many in all.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::features::{Encoder, Row, Schema, Value, ValueError, dense};
use crate::fm_ftrl::{self, FmFtrl, Moments, Rates, RowError, check_target, mix};
use crate::forest::{self, FitError, Forest};

/// How a predictor learns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Of the factorization machine; the linear machine has the same, without factors.
    pub machine: fm_ftrl::Settings,
    /// Stored samples that the machines learn again after each new one, drawn evenly; at most 64.
    pub repeats: u8,
    /// Of the forest; at most 1000 trees.
    pub forest: forest::Settings,
    /// Latest samples for a forest, 1 to [`SAMPLES_MAX`]; times its trees at most [`LEAVES_MAX`].
    pub samples_max: usize,
    /// Growth of the samples, as a part of those of the last refit, that makes one due: 0.01 to 10.
    pub refit_growth: f64,
    /// A refit is due at once when the error of the served prediction exceeds so many times the
    /// recent root mean squared error: OLTunes' θ, published without unit and value. In a unit of
    /// the target, unpredictable samples would be fitted without end. From 1 to 1000.
    pub refit_error: f64,
}

impl Default for Settings {
    /// Chosen on Gavel's throughputs, with other orders of samples than those that tests judge, but
    /// of the same rows: no holdout. [`Self::refit_error`] was first tried when results of the
    /// first of these orders had been seen. Twenty trees predict as well as a hundred there (R²
    /// within 0.005). 99 of 100 predictions of such a forest take below 6 us at a load of 2, and 23
    /// us at 4 (benches/README.md; the target is 20). Of the 55 columns there a split looks at 36:
    /// fewer than 24 are worse by up to .02 in R², all of them differ by less than .01.
    fn default() -> Self {
        let rates = |alpha, l2| Rates {
            alpha,
            beta: 1.0,
            l1: 0.0,
            l2,
        };
        Self {
            machine: fm_ftrl::Settings {
                factors: 8,
                weights: rates(0.2, 0.0),
                pairs: rates(0.1, 1.0),
                offset_deviation: 0.05,
                seed: 1,
            },
            repeats: 4,
            forest: forest::Settings {
                trees: 20,
                leaf_samples_min: 1,
                split_features: 36,
                seed: 1,
            },
            samples_max: 4096,
            refit_growth: 0.2,
            refit_error: 3.0,
        }
    }
}

impl Settings {
    /// Whether all numbers are in the ranges that their fields name.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.machine.is_valid()
            && u64::from(self.repeats) <= REPEATS_MAX
            && (1..=1000).contains(&self.forest.trees)
            && (1..=SAMPLES_MAX).contains(&self.samples_max)
            && self.samples_max * usize::from(self.forest.trees) <= LEAVES_MAX
            && (0.01..=10.0).contains(&self.refit_growth)
            && (1.0..=1000.0).contains(&self.refit_error)
    }
}

/// The learners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learner {
    /// The factorization machine.
    Machine,
    /// The random forest.
    Forest,
    /// The machine without factors; never served.
    Linear,
}

/// All learners, in the order of [`Predictor::quality`].
pub const LEARNERS: [Learner; 3] = [Learner::Machine, Learner::Forest, Learner::Linear];

/// A prediction that is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// In the unit of the targets.
    pub value: f64,
    /// Where the prediction comes from.
    pub served: Learner,
}

/// Predictions of all learners, in the order of [`LEARNERS`]; None of one that has learnt nothing.
pub type Predictions = [Option<f64>; 3];

/// How good a learner has been at unseen samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Which one.
    pub learner: Learner,
    /// Samples that it predicted before learning them.
    pub samples: u64,
    /// 1 - its squared error ÷ that of the targets' mean before each sample, both forgetting.
    pub r2: Option<f64>,
    /// Root of its mean squared error, forgetting, in the unit of the targets.
    pub rmse: Option<f64>,
}

/// Why a predictor refuses.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictorError {
    /// [`Settings::is_valid`] says no.
    #[error("the settings of the predictor are out of range: {0:?}")]
    Settings(Box<Settings>),
    /// The values are not those of the schema.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The target is not a number in range.
    #[error(transparent)]
    Row(#[from] RowError),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) row: Row,
    pub(crate) target: f64,
}

/// Squared errors of a learner, and of the mean of targets at the same samples, forgetting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Loss {
    samples: u64,
    weight: f64,
    error: f64,
    mean_error: f64,
}

impl Loss {
    fn add(&mut self, error: f64, mean_error: f64) {
        self.samples += 1;
        self.weight = self.weight * KEEP + 1.0;
        self.error = self.error * KEEP + error * error;
        self.mean_error = self.mean_error * KEEP + mean_error * mean_error;
    }

    fn rmse(&self) -> Option<f64> {
        (self.samples > 0).then(|| (self.error / self.weight).sqrt())
    }

    fn score(&self, learner: Learner) -> Score {
        Score {
            learner,
            samples: self.samples,
            r2: (self.mean_error > 0.0).then(|| 1.0 - self.error / self.mean_error),
            rmse: self.rmse(),
        }
    }

    fn is_valid(&self) -> bool {
        let sums = [self.weight, self.error, self.mean_error];
        // The limit of the weight, and room for rounding.
        let weight_max = 1.0 / (1.0 - KEEP) + 1.0;
        sums.iter().all(|sum| (0.0..=LOSS_MAX).contains(sum))
            && self.weight <= weight_max
            && self.samples <= COUNT_MAX
            && (self.samples > 0) == (self.weight > 0.0)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    pub(crate) seen: u64,
    pub(crate) taken: u64,
    /// An error has exceeded the threshold since `taken`.
    pub(crate) is_due: bool,
    pub(crate) targets: Moments,
    pub(crate) losses: [Loss; 3],
    /// Of machine and forest, at samples that both predicted and whose names the forest knew.
    pub(crate) compared: [Loss; 2],
    pub(crate) served: Loss,
}

impl Counts {
    pub(crate) fn is_valid(&self) -> bool {
        self.taken <= self.seen
            && self.seen <= COUNT_MAX
            && self.targets.is_valid()
            && self.served.is_valid()
            && self.losses.iter().chain(&self.compared).all(Loss::is_valid)
    }
}

#[derive(Debug)]
struct Fitted {
    forest: Forest,
    width: u32,
    /// Number of its first sample since the start, and their count.
    first: u64,
    count: usize,
}

/// Both learners and their samples.
#[derive(Debug)]
pub struct Predictor {
    pub(crate) settings: Settings,
    pub(crate) encoder: Encoder,
    pub(crate) machine: FmFtrl,
    pub(crate) linear: FmFtrl,
    forest: Option<Fitted>,
    /// The latest; the last one has the number `seen - 1`.
    pub(crate) samples: VecDeque<Sample>,
    pub(crate) counts: Counts,
    is_refitting: bool,
}

/// A forest to be fitted: a copy of samples.
#[derive(Debug)]
pub struct Refit {
    settings: forest::Settings,
    samples: Vec<Sample>,
    numbers: u32,
    width: u32,
    first: u64,
}

/// A forest that was fitted.
#[derive(Debug)]
pub struct Refitted(Fitted);

impl Refit {
    /// How many samples the forest is fitted to.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Fits the forest: takes from milliseconds to seconds.
    ///
    /// # Errors
    /// [`FitError`], if the method refuses.
    pub fn run(self) -> Result<Refitted, FitError> {
        let (count, features) = (self.samples.len(), self.width as usize);
        if count == 0 || features == 0 {
            return Err(FitError::Empty);
        }
        let mut columns = vec![0.0; count * features];
        let mut targets = Vec::with_capacity(count);
        for (place, sample) in self.samples.into_iter().enumerate() {
            let row = dense(&sample.row, self.numbers, self.width);
            for (column, value) in row.into_iter().enumerate() {
                columns[column * count + place] = value;
            }
            targets.push(sample.target);
        }
        Ok(Refitted(Fitted {
            forest: Forest::fit_columns(columns, targets, features, &self.settings)?,
            width: self.width,
            first: self.first,
            count,
        }))
    }
}

impl Predictor {
    /// A predictor that has learnt nothing.
    ///
    /// # Errors
    /// [`PredictorError::Settings`].
    pub fn new(schema: Schema, settings: Settings) -> Result<Self, PredictorError> {
        let machines = machines(&settings).filter(|_| settings.is_valid());
        let (machine, linear) =
            machines.ok_or_else(|| PredictorError::Settings(Box::new(settings)))?;
        Ok(Self {
            settings,
            encoder: Encoder::new(schema),
            machine,
            linear,
            forest: None,
            samples: VecDeque::new(),
            counts: Counts::default(),
            is_refitting: false,
        })
    }

    /// How the predictor learns.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The columns of its fields.
    #[must_use]
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Samples learnt since the start.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.counts.seen
    }

    /// The prediction for these values, one for each field; None before the first sample.
    ///
    /// # Errors
    /// [`PredictorError::Value`].
    pub fn predict(&self, values: &[Value<'_>]) -> Result<Option<Prediction>, PredictorError> {
        let row = self.encoder.encode(values)?;
        let served = self.served_for(values, &row);
        let predicted = match served {
            Learner::Forest => self.forest_predicts(&row),
            _ => self.machine_predicts(&self.machine, &row)?,
        };
        Ok(predicted.map(|value| Prediction { value, served }))
    }

    /// The prediction of each learner.
    ///
    /// # Errors
    /// [`PredictorError::Value`].
    pub fn predictions(&self, values: &[Value<'_>]) -> Result<Predictions, PredictorError> {
        self.of_row(&self.encoder.encode(values)?)
    }

    /// Predicts a sample, counts the errors, and learns it. Returns the predictions.
    ///
    /// # Errors
    /// [`PredictorError`]; the predictor is then as before.
    pub fn learn(
        &mut self,
        values: &[Value<'_>],
        target: f64,
    ) -> Result<Predictions, PredictorError> {
        check_target(target)?;
        let row = self.encoder.encode(values)?;
        let predictions = self.of_row(&row)?;
        let is_known = self.forest_knows(values, &row);
        self.judge(&predictions, is_known, target);
        let row = self.encoder.learn(values)?;
        for machine in [&mut self.machine, &mut self.linear] {
            machine.learn(&row, target)?;
        }
        if self.samples.len() >= 2 * self.settings.samples_max {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { row, target });
        self.counts.seen += 1;
        self.counts.targets.add(target);
        self.repeat()?;
        Ok(predictions)
    }

    /// The served learner, for rows of names that the forest knows: the forest, once compared with
    /// the machine at [`COMPARED_MIN`] samples, and while its loss is lower.
    #[must_use]
    pub fn served(&self) -> Learner {
        let [machine, forest] = &self.counts.compared;
        let is_compared = self.forest.is_some() && forest.samples >= COMPARED_MIN;
        if is_compared && forest.error < machine.error {
            Learner::Forest
        } else {
            Learner::Machine
        }
    }

    /// The learner for one row: the machine, where a name is newer than the forest. Trees would end
    /// in an unrelated leaf; the machine leaves the name out, or has begun to learn it.
    fn served_for(&self, values: &[Value<'_>], row: &[(u32, f64)]) -> Learner {
        if self.forest_knows(values, row) {
            self.served()
        } else {
            Learner::Machine
        }
    }

    fn forest_knows(&self, values: &[Value<'_>], row: &[(u32, f64)]) -> bool {
        let Some(fitted) = &self.forest else {
            return false;
        };
        let names = values
            .iter()
            .filter(|value| matches!(value, Value::Name(_)));
        let columns = self.encoder.numbers()..fitted.width;
        let known = row.iter().filter(|(column, _)| columns.contains(column));
        known.count() == names.count()
    }

    /// How good each learner has been, in the order of [`LEARNERS`].
    #[must_use]
    pub fn quality(&self) -> [Score; 3] {
        let loss = |place: usize| self.counts.losses[place].score(LEARNERS[place]);
        [loss(0), loss(1), loss(2)]
    }

    /// The same of the served predictions; names the learner that is served now.
    #[must_use]
    pub fn served_quality(&self) -> Score {
        self.counts.served.score(self.served())
    }

    /// A refit, if one is due and none is out.
    pub fn poll_refit(&mut self) -> Option<Refit> {
        let Settings {
            samples_max,
            refit_growth,
            forest,
            ..
        } = self.settings;
        let Counts { seen, taken, .. } = self.counts;
        let new = seen - taken;
        let last = taken.min(samples_max as u64) as f64;
        let grown = (refit_growth * last).max(REFIT_SAMPLES_MIN as f64);
        let is_due = new as f64 >= grown || (self.counts.is_due && new > 0);
        let width = self.encoder.columns();
        if self.is_refitting || !is_due || width == 0 {
            return None;
        }
        self.is_refitting = true;
        self.counts.taken = seen;
        self.counts.is_due = false;
        let old = self.samples.len().saturating_sub(self.fitted_max(width));
        Some(Refit {
            settings: forest,
            samples: self.samples.range(old..).cloned().collect(),
            numbers: self.encoder.numbers(),
            width,
            first: self.first() + old as u64,
        })
    }

    pub(crate) fn fitted_max(&self, width: u32) -> usize {
        let samples_max = CELLS_MAX / width.max(1) as usize;
        samples_max.min(self.settings.samples_max)
    }

    /// Takes a forest in, and forgets the samples that it was not fitted to and that are older.
    pub fn handle_refitted(&mut self, refitted: Refitted) {
        self.is_refitting = false;
        let fitted = refitted.0;
        let old = fitted.first.saturating_sub(self.first());
        let old = (old as usize).min(self.samples.len());
        self.samples.drain(..old);
        self.forest = Some(fitted);
    }

    /// Keeps the present forest; the next refit is due with the next growth.
    pub fn handle_refit_failed(&mut self) {
        self.is_refitting = false;
    }

    pub(crate) fn first(&self) -> u64 {
        self.counts.seen - self.samples.len() as u64
    }

    /// The forest's stored samples (fewer if more arrived during a refit): first, count, columns.
    pub(crate) fn fitted(&self) -> Option<(u64, usize, u32)> {
        let fitted = self.forest.as_ref()?;
        let first = fitted.first.max(self.first());
        let end = fitted.first + fitted.count as u64;
        let count = end.saturating_sub(first) as usize;
        (count > 0).then_some((first, count, fitted.width))
    }

    pub(crate) fn is_refitting(&self) -> bool {
        self.is_refitting
    }

    /// A predictor of parts that belong together, with a forest fitted to the samples that
    /// [`Self::fitted`] gave: takes as long as [`Refit::run`].
    pub(crate) fn restore(
        mut parts: Self,
        fitted: Option<(u64, usize, u32)>,
    ) -> Result<Self, FitError> {
        if let Some((first, count, width)) = fitted {
            let from = first.saturating_sub(parts.first()) as usize;
            let samples = parts.samples.iter().skip(from).take(count);
            let refit = Refit {
                settings: parts.settings.forest,
                samples: samples.cloned().collect(),
                numbers: parts.encoder.numbers(),
                width,
                first,
            };
            parts.forest = Some(refit.run()?.0);
        }
        Ok(parts)
    }

    fn of_row(&self, row: &[(u32, f64)]) -> Result<Predictions, PredictorError> {
        Ok([
            self.machine_predicts(&self.machine, row)?,
            self.forest_predicts(row),
            self.machine_predicts(&self.linear, row)?,
        ])
    }

    fn machine_predicts(
        &self,
        machine: &FmFtrl,
        row: &[(u32, f64)],
    ) -> Result<Option<f64>, RowError> {
        let predicted = machine.predict(row)?;
        Ok((self.counts.seen > 0).then_some(predicted))
    }

    fn forest_predicts(&self, row: &[(u32, f64)]) -> Option<f64> {
        let fitted = self.forest.as_ref()?;
        Some(
            fitted
                .forest
                .predict(&self.encoder.dense(row, fitted.width)),
        )
    }

    /// Counts errors. Both learners are compared only where the forest could be served.
    fn judge(&mut self, predictions: &Predictions, is_known: bool, target: f64) {
        let value = match self.served() {
            Learner::Forest if is_known => predictions[1],
            _ => predictions[0],
        };
        let Counts {
            targets,
            losses,
            compared,
            served,
            is_due,
            ..
        } = &mut self.counts;
        let mean_error = target - targets.mean;
        for (loss, predicted) in losses.iter_mut().zip(predictions) {
            if let Some(predicted) = predicted {
                loss.add(target - predicted, mean_error);
            }
        }
        if let [Some(machine), Some(forest), _] = predictions
            && is_known
        {
            compared[0].add(target - machine, mean_error);
            compared[1].add(target - forest, mean_error);
        }
        if let Some(value) = value {
            let error = target - value;
            let rmse = served.rmse().filter(|_| served.samples >= COMPARED_MIN);
            let rmse = rmse.map(|rmse| rmse.max(ERROR_MIN * targets.deviation()));
            *is_due |= rmse.is_some_and(|rmse| error.abs() > self.settings.refit_error * rmse);
            served.add(error, mean_error);
        }
    }

    fn repeat(&mut self) -> Result<(), RowError> {
        let Settings {
            repeats,
            machine,
            samples_max,
            ..
        } = self.settings;
        let latest = self.samples.len().min(samples_max);
        let old = self.samples.len() - latest;
        let draws = self.counts.seen.wrapping_mul(REPEATS_MAX);
        for number in 0..u64::from(repeats) {
            let drawn = mix(machine.seed ^ mix(draws.wrapping_add(number)));
            let sample = &self.samples[old + (drawn % latest as u64) as usize];
            self.machine.repeat(&sample.row, sample.target)?;
            self.linear.repeat(&sample.row, sample.target)?;
        }
        Ok(())
    }
}

pub(crate) fn machines(settings: &Settings) -> Option<(FmFtrl, FmFtrl)> {
    Some((
        FmFtrl::new(settings.machine)?,
        FmFtrl::new(linear(settings))?,
    ))
}

pub(crate) fn linear(settings: &Settings) -> fm_ftrl::Settings {
    fm_ftrl::Settings {
        factors: 0,
        ..settings.machine
    }
}

/// Most samples that a forest is fitted to.
pub const SAMPLES_MAX: usize = 1 << 16;

/// Most samples times columns of a forest, 128 MiB: fewer than [`SAMPLES_MAX`] above 256 columns.
pub const CELLS_MAX: usize = 1 << 24;

/// Most samples times trees, and so most leaves of a forest: of 20 trees, [`SAMPLES_MAX`] samples.
pub const LEAVES_MAX: usize = 1 << 21;

/// Part of older samples' weight in a loss that each new one leaves: half after 128 samples.
pub const KEEP: f64 = 0.9946;

/// Samples at which machine and forest are compared before the forest is served.
pub const COMPARED_MIN: u64 = 16;

const REFIT_SAMPLES_MIN: usize = 16;

const REPEATS_MAX: u64 = 64;

/// In deviations of the targets: with such good predictions errors of rounding make no refit due.
const ERROR_MIN: f64 = 1e-3;

/// More than any predictor has seen, far below an overflow.
pub(crate) const COUNT_MAX: u64 = 1 << 53;

/// Far above the sum of the squares of targets, far below what overflows.
const LOSS_MAX: f64 = 1e250;
