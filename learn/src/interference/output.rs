//! One predicted number, such as the slope below the knee: the level of its batch, and what the
//! neighbours add to it by the method that does best on networks left out.
//!
//! # The level
//! How a latency depends on the batch is the service's own property, known wherever that batch was
//! measured beside anything. So the level is the mean over all samples of a batch, between two
//! batches the straight line over the logarithm of the batch, beyond the outer ones the nearest.
//! Methods see the rest.
//!
//! # The choice
//! Rows of one network differ by their batch alone, so random rows left out would be near copies of
//! learnt ones, and the method that memorises best would win. Whole *networks* are left out
//! instead, one after the other. A method that does not lower the mean's squared error by a tenth
//! ([`GAIN_MIN`]) is not chosen: several are tried on few networks, and the best of several is
//! better than the mean by chance alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::forest::FitError;
use crate::interference::methods::{Fitted, Method};
use crate::interference::{Batch, Settings};

/// Fewest networks among which methods are compared. With two, one is learnt and one judged.
pub const NETWORKS_MIN: usize = 3;

/// Most groups of networks, each of which is left out once.
const FOLDS_MAX: usize = 10;

/// A method is chosen that lowers the squared error of the mean by this part at least.
pub const GAIN_MIN: f64 = 0.1;

/// The known properties of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// Their layers by kind, as Mudi has it.
    Layers,
    /// How long a layer takes them: the time of an iteration alone over the number of layers.
    LayerTime,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) batch: Batch,
    pub(crate) network: usize,
    pub(crate) layers: Vec<f64>,
    pub(crate) layer_time: Option<Vec<f64>>,
}

impl Row {
    fn of(&self, features: Features) -> Option<&Vec<f64>> {
        match features {
            Features::Layers => Some(&self.layers),
            Features::LayerTime => self.layer_time.as_ref(),
        }
    }
}

/// How an output is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// By this method.
    pub method: Method,
    /// From these features.
    pub features: Features,
    /// Its squared error on networks that were left out, as a part of the mean's.
    pub error: f64,
}

const MEAN: Choice = Choice {
    method: Method::Mean,
    features: Features::Layers,
    error: 1.0,
};

#[derive(Debug)]
pub(crate) struct Output {
    level: Level,
    layers: Chosen,
    /// From layers and times; `None`: the same.
    all: Option<Chosen>,
}

#[derive(Debug)]
struct Chosen {
    choice: Choice,
    deviation: f64,
    /// The least and the greatest learnt offset from the level, in deviations.
    learnt: [f64; 2],
    fitted: Fitted,
}

impl Output {
    pub(crate) fn fit(
        rows: &[&Row],
        targets: &[f64],
        settings: &Settings,
    ) -> Result<Self, FitError> {
        let judged = |features| judge(rows, targets, features, settings);
        let plain = judged(Features::Layers);
        let choice = best(plain.iter().copied());
        let timed = best(plain.iter().copied().chain(judged(Features::LayerTime)));
        let level = Level::of(rows, targets);
        let chosen = |choice| Chosen::fit(choice, &level, rows, targets, settings);
        Ok(Self {
            layers: chosen(choice)?,
            all: match timed.features {
                Features::Layers => None,
                Features::LayerTime => Some(chosen(timed)?),
            },
            level,
        })
    }

    pub(crate) fn predict(&self, row: &Row) -> f64 {
        let timed = self.all.as_ref().zip(row.layer_time.as_ref());
        let (chosen, features) = timed.unwrap_or((&self.layers, &row.layers));
        self.level.at(row.batch) + chosen.offset(features)
    }

    pub(crate) fn choice(&self, has_time: bool) -> Choice {
        let timed = self.all.as_ref().filter(|_| has_time);
        timed.unwrap_or(&self.layers).choice
    }
}

impl Chosen {
    fn fit(
        choice: Choice,
        level: &Level,
        rows: &[&Row],
        targets: &[f64],
        settings: &Settings,
    ) -> Result<Self, FitError> {
        let (deviation, left) = left_of(level, rows, targets);
        let rows = rows.iter().filter_map(|row| row.of(choice.features));
        let rows: Vec<Vec<f64>> = rows.cloned().collect();
        let learnt = |pick: fn(f64, f64) -> f64| left.iter().copied().fold(0.0, pick);
        Ok(Self {
            choice,
            deviation,
            learnt: [learnt(f64::min), learnt(f64::max)],
            fitted: Fitted::fit(choice.method, &rows, &left, settings)?,
        })
    }

    /// The neighbours' offset from the level, within the learnt ones: a line goes on for ever.
    fn offset(&self, features: &[f64]) -> f64 {
        let [least, most] = self.learnt;
        self.deviation * self.fitted.predict(features).clamp(least, most)
    }
}

fn left_of(level: &Level, rows: &[&Row], targets: &[f64]) -> (f64, Vec<f64>) {
    let left = rows.iter().zip(targets);
    let left: Vec<f64> = left
        .map(|(row, target)| target - level.at(row.batch))
        .collect();
    let squares: f64 = left.iter().map(|left| left * left).sum();
    let deviation = (squares / left.len().max(1) as f64).sqrt();
    let deviation = if deviation > 1e-12 { deviation } else { 1.0 };
    let left = left.iter().map(|left| left / deviation).collect();
    (deviation, left)
}

fn best(choices: impl Iterator<Item = Choice>) -> Choice {
    let good = choices.filter(|choice| choice.error <= 1.0 - GAIN_MIN);
    good.min_by(|one, other| one.error.total_cmp(&other.error))
        .unwrap_or(MEAN)
}

/// The methods but the mean, with their errors on networks left out. Without a method that refuses
/// the samples, and empty where the features are not known of all samples.
fn judge(rows: &[&Row], targets: &[f64], features: Features, settings: &Settings) -> Vec<Choice> {
    let networks: BTreeSet<usize> = rows.iter().map(|row| row.network).collect();
    let networks: Vec<usize> = networks.into_iter().collect();
    let is_known = rows.iter().all(|row| row.of(features).is_some());
    if networks.len() < NETWORKS_MIN || !is_known {
        return Vec::new();
    }
    let folds = networks.len().min(FOLDS_MAX);
    let fold_of = |row: &Row| networks.partition_point(|&network| network < row.network) % folds;
    let methods = Method::ALL[1..].iter();
    let judged = methods.filter_map(|&method| {
        let (mut error, mut mean_error) = (0.0, 0.0);
        for fold in 0..folds {
            let is_learnt = |row: &Row| fold_of(row) != fold;
            let (mut learnt, mut learnt_targets) = (Vec::new(), Vec::new());
            for (&row, &target) in rows.iter().zip(targets) {
                if is_learnt(row) {
                    learnt.push(row);
                    learnt_targets.push(target);
                }
            }
            let level = Level::of(&learnt, &learnt_targets);
            let choice = Choice {
                method,
                features,
                error: 0.0,
            };
            let chosen = Chosen::fit(choice, &level, &learnt, &learnt_targets, settings).ok()?;
            for (row, target) in rows.iter().zip(targets).filter(|(row, _)| !is_learnt(row)) {
                let off = target - level.at(row.batch);
                let predicted = chosen.offset(row.of(features)?);
                mean_error += off * off;
                error += (off - predicted) * (off - predicted);
            }
        }
        let error = error / mean_error;
        error.is_finite().then_some(Choice {
            method,
            features,
            error,
        })
    });
    judged.collect()
}

#[derive(Debug)]
struct Level {
    /// The logarithm of the batch, rising, and the mean.
    means: Vec<(f64, f64)>,
}

impl Level {
    fn of(rows: &[&Row], targets: &[f64]) -> Self {
        let mut sums: BTreeMap<Batch, (f64, f64)> = BTreeMap::new();
        for (row, target) in rows.iter().zip(targets) {
            let (sum, count) = sums.entry(row.batch).or_default();
            *sum += target;
            *count += 1.0;
        }
        let means = sums.iter();
        Self {
            means: means
                .map(|(&batch, (sum, count))| (f64::from(batch).ln(), sum / count))
                .collect(),
        }
    }

    fn at(&self, batch: Batch) -> f64 {
        let at = f64::from(batch).ln();
        let above = self.means.iter().position(|&(of, _)| of >= at);
        match above {
            None => self.means.last().map_or(0.0, |&(_, mean)| mean),
            Some(0) => self.means[0].1,
            Some(above) => {
                let ((low, mean_low), (high, mean_high)) =
                    (self.means[above - 1], self.means[above]);
                let part = (at - low) / (high - low);
                mean_low + part * (mean_high - mean_low)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        trees: 20,
        leaf_samples_min: 1,
        seed: 1,
    };

    fn rows(target: impl Fn(f64) -> f64) -> (Vec<Row>, Vec<f64>) {
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for network in 0..9 {
            let number = network as f64;
            for batch in [1, 2, 4, 8] {
                rows.push(Row {
                    batch,
                    network,
                    layers: vec![number, (number * 2.3).cos(), f64::from(batch).ln()],
                    layer_time: None,
                });
                targets.push(f64::from(batch) + target(number));
            }
        }
        (rows, targets)
    }

    fn fitted(target: impl Fn(f64) -> f64) -> Output {
        let (rows, targets) = rows(target);
        let rows: Vec<&Row> = rows.iter().collect();
        Output::fit(&rows, &targets, &SETTINGS).unwrap()
    }

    #[test]
    fn a_line_over_networks_is_learnt_by_a_line() {
        let output = fitted(|number| 0.5 * number);
        let choice = output.choice(false);
        assert_eq!(choice.method, Method::Ridge);
        assert!(choice.error < 0.1, "{choice:?}");
    }

    /// A forest could recognise each network, and would be right on rows left out.
    #[test]
    fn what_networks_have_by_chance_is_not_learnt() {
        let by_chance = [3.0, -1.0, 2.0, -4.0, 1.0, 4.0, -3.0, 0.0, -2.0];
        let output = fitted(|number| by_chance[number as usize]);
        assert_eq!(output.choice(false).method, Method::Mean);
    }

    /// Numbers of networks are places among all, and some outputs have samples of a few.
    #[test]
    fn two_networks_are_too_few_whatever_their_numbers() {
        let (mut rows, mut targets) = (Vec::new(), Vec::new());
        for (network, batch, time) in [0, 8].into_iter().flat_map(|network| {
            (0..16).map(move |number| (network, 1 << (number % 4), f64::from(number / 4)))
        }) {
            rows.push(Row {
                batch,
                network,
                layers: vec![network as f64],
                layer_time: Some(vec![time]),
            });
            targets.push(time);
        }
        let fit = |rows: &[Row]| {
            let rows: Vec<&Row> = rows.iter().collect();
            Output::fit(&rows, &targets, &SETTINGS)
                .unwrap()
                .choice(true)
        };
        assert_eq!(fit(&rows), MEAN);
        for row in &mut rows[..8] {
            row.network = 5;
        }
        assert_ne!(fit(&rows).method, Method::Mean, "a third network is enough");
    }

    #[test]
    fn between_two_batches_the_level_is_between_theirs() {
        let output = fitted(|_| 0.0);
        let at = |batch| output.level.at(batch);
        assert_eq!((at(1), at(8), at(64)), (1.0, 8.0, 8.0));
        assert!(at(4) < at(5) && at(5) < at(8));
    }
}
