//! What a policy knows of latencies: a predictor that learns them as they are measured
//! ([`learn::predictor`]), a factorization machine and a forest of which the better is served. "At
//! least a small amount of historical execution data must exist" (section 3.3.2): the predictor
//! starts with [`HISTORY`] settings alone, drawn by the seed. Later samples are runs of the
//! comparison, slowed by their neighbours.
//!
//! # What is chosen here
//! - **Thinning**: of each setting the first [`LEARN_ALL`] runs are learnt, then every
//!   [`LEARN_EVERY`]th.
//! - **Refresh**: a prediction is used for the next [`FRESH`] samples, also across a refit of the
//!   forest: thousands of equal requests arrive in between.
//! - The target is the logarithm of the latency of a run, so that errors are relative.

use std::collections::BTreeMap;

use learn::features::{Field, Schema, Value};
use learn::predictor::{Learner, Predictor, Settings};
use learn::{fm_ftrl, forest};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::oltunes::facts::Facts;
use crate::oltunes::gpu::Setting;
use crate::oltunes_table::{BATCHES, SHARES_PCT};

/// Settings that are known from before.
pub const HISTORY: usize = 100;

const LEARN_ALL: u64 = 8;

const LEARN_EVERY: u64 = 32;

const FRESH: u64 = 64;

/// Of a predictor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// The learner whose predictions are used.
    pub served: &'static str,
    /// Runs that were learnt.
    pub samples: u64,
    /// By learner: how much of the next runs' deviation each predicted, of late.
    pub r2: BTreeMap<&'static str, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    pub(crate) gpu: usize,
    pub(crate) model: usize,
    pub(crate) setting: Setting,
}

impl Cell {
    fn place(self, facts: &Facts) -> usize {
        let batch = (self.gpu * facts.models.len() + self.model) * BATCHES.len();
        (batch + self.setting.batch) * SHARES_PCT.len() + self.setting.share
    }
}

#[derive(Debug)]
pub(crate) struct Foresight {
    predictor: Predictor,
    /// By cell: a prediction, and how many samples had been learnt then.
    known: Vec<Option<(f64, u64)>>,
    measured: Vec<u64>,
}

impl Foresight {
    pub(crate) fn new(facts: &Facts, seed: u64) -> Self {
        let cells = facts.gpus.len() * facts.models.len() * BATCHES.len() * SHARES_PCT.len();
        let mut foresight = Self {
            predictor: predictor(seed),
            known: vec![None; cells],
            measured: vec![0; cells],
        };
        let mut random = Pcg64::seed_from_u64(seed ^ 0x0017_0ae5);
        for _ in 0..HISTORY {
            let cell = Cell {
                gpu: random.random_range(0..facts.gpus.len()),
                model: random.random_range(0..facts.models.len()),
                setting: Setting {
                    batch: random.random_range(0..BATCHES.len()),
                    share: random.random_range(0..SHARES_PCT.len()),
                },
            };
            let kind = (cell.model, cell.setting.batch);
            let alone = facts.alone(cell.gpu, kind, cell.setting.share);
            foresight.learn(facts, cell, alone.latency_ms);
        }
        foresight
    }

    pub(crate) fn predict_ms(&mut self, facts: &Facts, cell: Cell) -> f64 {
        let (place, seen) = (cell.place(facts), self.predictor.seen());
        if let Some((ms, at)) = self.known[place]
            && seen < at + FRESH
        {
            return ms;
        }
        let predicted = self.predictor.predict(&values(facts, cell));
        let predicted = predicted.expect("values are those of the schema");
        let ms = predicted.map_or(1.0, |predicted| predicted.value.exp());
        let ms = ms.clamp(LATENCY_MS.0, LATENCY_MS.1);
        self.known[place] = Some((ms, seen));
        ms
    }

    pub(crate) fn handle_measured(&mut self, facts: &Facts, cell: Cell, ms: f64) {
        let measured = &mut self.measured[cell.place(facts)];
        *measured += 1;
        if *measured <= LEARN_ALL || measured.is_multiple_of(LEARN_EVERY) {
            self.learn(facts, cell, ms);
        }
    }

    fn learn(&mut self, facts: &Facts, cell: Cell, ms: f64) {
        let target = ms.clamp(LATENCY_MS.0, LATENCY_MS.1).ln();
        let learnt = self.predictor.learn(&values(facts, cell), target);
        learnt.expect("values are those of the schema, and the target is in range");
        if let Some(refit) = self.predictor.poll_refit() {
            match refit.run() {
                Ok(refitted) => {
                    self.predictor.handle_refitted(refitted);
                    self.known.fill(None);
                }
                Err(_) => self.predictor.handle_refit_failed(),
            }
        }
    }

    pub(crate) fn quality(&self) -> Quality {
        let scores = self.predictor.quality().into_iter();
        let r2 = scores.filter_map(|score| Some((name(score.learner), score.r2?)));
        Quality {
            served: name(self.predictor.served()),
            samples: self.predictor.seen(),
            r2: r2.collect(),
        }
    }
}

/// Beyond any run of the table.
const LATENCY_MS: (f64, f64) = (0.1, 1e6);

const fn name(learner: Learner) -> &'static str {
    match learner {
        Learner::Machine => "machine",
        Learner::Forest => "forest",
        Learner::Linear => "linear",
    }
}

/// Fewer trees and refits than by default: the comparison has hundreds of predictors, one per run.
fn predictor(seed: u64) -> Predictor {
    let settings = Settings::default();
    let settings = Settings {
        machine: fm_ftrl::Settings {
            seed,
            ..settings.machine
        },
        forest: forest::Settings {
            trees: 30,
            split_features: 10,
            seed,
            ..settings.forest
        },
        samples_max: 1024,
        refit_growth: 0.5,
        ..settings
    };
    Predictor::new(schema(), settings).expect("the settings are in range")
}

fn schema() -> Schema {
    let fields = vec![
        Field::category("model", 16),
        Field::category("gpu", 8),
        Field::category("batch_inputs", 8),
        Field::category("share_pct", 8),
        Field::number("batch_log2", 0.0, 8.0),
        Field::number("share", 0.0, 1.0),
        Field::number("parameters_log10", 6.0, 10.0),
        Field::number("memory_part", 0.0, 1.0),
        Field::number("sms", 0.0, 160.0),
        Field::number("peak_tflops", 0.0, 100.0),
        Field::number("bandwidth_gb_s", 0.0, 2500.0),
    ];
    Schema::new(fields).expect("names differ, and ranges have width")
}

/// Batches and shares as names: each has a weight of its own, as in the paper's Table 3.
fn values(facts: &Facts, cell: Cell) -> [Value<'static>; 11] {
    let (model, gpu) = (&facts.models[cell.model], &facts.gpus[cell.gpu]);
    let Setting { batch, share } = cell.setting;
    let memory_bytes = facts.memory_bytes((cell.model, batch));
    [
        Value::Name(model.name),
        Value::Name(gpu.name),
        Value::Name(BATCH_NAMES[batch]),
        Value::Name(SHARE_NAMES[share]),
        Value::Number(f64::from(BATCHES[batch]).log2()),
        Value::Number(f64::from(SHARES_PCT[share]) / 100.0),
        Value::Number(model.parameters.max(1.0).log10()),
        Value::Number(memory_bytes as f64 / gpu.memory_bytes as f64),
        Value::Number(gpu.sms),
        Value::Number(gpu.peak_tflops),
        Value::Number(gpu.bandwidth_gb_s),
    ]
}

const BATCH_NAMES: [&str; BATCHES.len()] = ["1", "4", "8", "16", "32", "64"];
const SHARE_NAMES: [&str; SHARES_PCT.len()] = ["20", "40", "60", "80", "100"];
