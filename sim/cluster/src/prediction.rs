//! How fast jobs are, predicted online: [`learn::predictor`] on measurements of Gavel's authors
//! ([`crate::traces::gavel`]), as OLTunes predicts latency and throughput.
//!
//! # Samples
//! | target | samples | which |
//! |---|---|---|
//! | [`Target::LogThroughput`] | 1 958 | log of steps per second, alone (77) or beside (1 881) |
//! | [`Target::Speed`] | 1 881 | steps per second beside another job ÷ alone |
//! | [`Target::LogAlone`] | 410 | the same, alone, on 1 to 8 GPUs of one machine or more |
//!
//! All measured pairs are of jobs with one GPU, so the first two targets have only those, of GPUs
//! without the suffix `_unconsolidated`, which for one GPU says nothing. Jobs that did not run (a
//! rate of 0) are left out.
//!
//! # Features
//! Of the job and of the one beside it: the name of its network, its batch, as a category and as a
//! logarithm. Of the GPU: its name, and its peaks, as logarithms. The number of GPUs, and whether
//! they are in several machines. No field names a sample, nor a job type: a network and a batch are
//! two fields, so both may be known of a job that was never seen.
//!
//! # What is judged
//! Samples arrive in a seeded random order. [`play`] predicts each before it is learnt; at some
//! counts the predictor, as it stands, predicts all samples that have not arrived yet. [`unseen`]
//! keeps all samples of one network, or of one GPU, from the predictor. Forests are fitted on a
//! thread, as a daemon would, and used from [`REFIT_SAMPLES`] more samples on, however long the
//! thread takes: results are the same to the bit.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::thread::{self, JoinHandle};

use learn::features::{Field, Schema, Value};
use learn::forest::FitError;
use learn::predictor::{
    Learner, Predictions, Predictor, PredictorError, Refitted, Score, Settings,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::sources::device_of;
use crate::traces::gavel::{ScaledType, Throughput};

/// The predicted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Logarithm of the steps per second of a job with one GPU, alone or beside another.
    LogThroughput,
    /// Steps per second of a job with one GPU beside another, divided by those alone.
    Speed,
    /// Logarithm of the steps per second of a job alone, with any number of GPUs.
    LogAlone,
}

/// A workload, as a job type names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The network: `ResNet-18`.
    pub network: String,
    /// Its batch, where the type has one.
    pub batch: Option<u32>,
}

impl Workload {
    /// The workload of `ResNet-18 (batch size 16)`; without that form all of it is the network.
    #[must_use]
    pub fn of(job_type: &str) -> Self {
        let parts = job_type.strip_suffix(')');
        let parts = parts.and_then(|text| text.split_once(" (batch size "));
        let parts = parts.and_then(|(network, batch)| Some((network, batch.parse().ok()?)));
        let (network, batch) = parts.map_or((job_type, None), |(name, batch)| (name, Some(batch)));
        let network = network.to_owned();
        Self { network, batch }
    }
}

/// A measured job.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its workload.
    pub job: Workload,
    /// The job beside it.
    pub beside: Option<Workload>,
    /// The model of GPU: `k80`, `p100` or `v100`.
    pub gpu: String,
    /// How many GPUs the job has.
    pub gpus: u32,
    /// Whether they are in several machines.
    pub is_spread: bool,
    /// The number to predict.
    pub target: f64,
}

/// The samples of that target, in the order of the rows.
#[must_use]
pub fn samples(rows: &[Throughput], target: Target) -> Vec<Sample> {
    let solo: BTreeMap<(&str, &ScaledType), f64> = rows
        .iter()
        .filter(|row| row.other.is_none())
        .map(|row| ((row.gpu.as_str(), &row.job), row.this_per_s))
        .collect();
    let sample = |row: &Throughput| {
        let gpu = row.gpu.strip_suffix(SPREAD);
        let (gpu, is_spread) = (gpu.unwrap_or(&row.gpu), gpu.is_some());
        let gpus = row.job.scale_factor;
        let alone = solo.get(&(row.gpu.as_str(), &row.job)).copied();
        let target = match target {
            Target::LogThroughput if gpus == 1 && !is_spread => row.this_per_s.ln(),
            Target::Speed if gpus == 1 && !is_spread && row.other.is_some() => {
                row.this_per_s / alone.filter(|&alone| alone > 0.0)?
            }
            Target::LogAlone if row.other.is_none() && (gpus > 1 || !is_spread) => {
                row.this_per_s.ln()
            }
            _ => return None,
        };
        (row.this_per_s > 0.0).then(|| Sample {
            job: Workload::of(&row.job.job_type),
            beside: row
                .other
                .as_ref()
                .map(|other| Workload::of(&other.job_type)),
            gpu: gpu.to_owned(),
            gpus,
            is_spread,
            target,
        })
    };
    rows.iter().filter_map(sample).collect()
}

struct Peaks {
    fp32_tflops: f64,
    bandwidth_gb_s: f64,
    memory_gib: f64,
}

/// One of the two GPUs of a K80, which the device table does not have: half of the board of
/// NVIDIA's board specification BD-07317-001 (4992 cores at 875 MHz, 480 GB/s, 24 GB).
const K80: Peaks = Peaks {
    fp32_tflops: 4.37,
    bandwidth_gb_s: 240.0,
    memory_gib: 12.0,
};

fn peaks(gpu: &str) -> Option<Peaks> {
    if gpu == "k80" {
        return Some(K80);
    }
    let (device, _) = device_of(&gpu.to_uppercase())?;
    Some(Peaks {
        fp32_tflops: device.fp32_tflops(),
        bandwidth_gb_s: f64::from(device.bandwidth_gb_s),
        memory_gib: device.memory_bytes as f64 / f64::from(1 << 30),
    })
}

/// The fields of a sample, in the order of [`with_values`].
#[must_use]
pub fn schema() -> Schema {
    // Ranges of logarithms of base 2: batches to 8192; from a K80 to twice a B200.
    let workload = |prefix: &str| {
        let name = |field: &str| format!("{prefix}{field}");
        [
            Field::category(&name("network"), 64),
            Field::category(&name("batch"), 64),
            Field::number(&name("log batch"), 0.0, 13.0),
        ]
    };
    let gpu = [
        Field::category("gpu", 64),
        Field::number("log TFLOP/s", 2.0, 8.0),
        Field::number("log GB/s", 7.0, 14.0),
        Field::number("log GiB", 3.0, 9.0),
        Field::number("log GPUs", 0.0, 10.0),
        Field::number("spread", 0.0, 1.0),
    ];
    let fields = workload("").into_iter().chain(workload("other "));
    let fields = fields.chain(gpu).collect();
    Schema::new(fields).expect("twelve names, each once, and ranges of numbers in order")
}

/// Calls `take` with the values of a sample.
pub fn with_values<T>(sample: &Sample, take: impl FnOnce(&[Value<'_>]) -> T) -> T {
    let batches = [Some(&sample.job), sample.beside.as_ref()]
        .map(|workload| workload.and_then(|workload| workload.batch));
    let names = batches.map(|batch| batch.map(|batch| batch.to_string()));
    let number = |number: Option<f64>| number.map_or(Value::Missing, Value::Number);
    let names =
        [&names[0], &names[1]].map(|name| name.as_deref().map_or(Value::Missing, Value::Name));
    let log = |batch: Option<u32>| number(batch.map(|batch| f64::from(batch).log2()));
    let beside = sample.beside.as_ref();
    let peaks = peaks(&sample.gpu);
    let peak = |of: fn(&Peaks) -> f64| number(peaks.as_ref().map(|peaks| of(peaks).log2()));
    take(&[
        Value::Name(&sample.job.network),
        names[0],
        log(batches[0]),
        beside.map_or(Value::Name(NOBODY), |beside| Value::Name(&beside.network)),
        names[1],
        log(batches[1]),
        Value::Name(&sample.gpu),
        peak(|peaks| peaks.fp32_tflops),
        peak(|peaks| peaks.bandwidth_gb_s),
        peak(|peaks| peaks.memory_gib),
        Value::Number(f64::from(sample.gpus).log2()),
        Value::Number(f64::from(u8::from(sample.is_spread))),
    ])
}

/// Why an experiment ends early: all are bugs.
#[derive(Debug, thiserror::Error)]
pub enum PredictionError {
    /// A sample is refused.
    #[error(transparent)]
    Predictor(#[from] PredictorError),
    /// A forest cannot be fitted.
    #[error(transparent)]
    Fit(#[from] FitError),
}

/// A predictor whose forests are fitted on a thread, at times that samples determine.
pub struct Online {
    /// The predictor.
    pub predictor: Predictor,
    /// The running fit, and the count of samples at which it is swapped in.
    refit: Option<(u64, JoinHandle<Result<Refitted, FitError>>)>,
    /// How many forests were taken in.
    pub refits: usize,
}

impl Online {
    /// A predictor of samples that has learnt nothing.
    ///
    /// # Errors
    /// See [`PredictionError`].
    pub fn new(settings: Settings) -> Result<Self, PredictionError> {
        Ok(Self::of(Predictor::new(schema(), settings)?))
    }

    /// This predictor.
    #[must_use]
    pub fn of(predictor: Predictor) -> Self {
        Self {
            predictor,
            refit: None,
            refits: 0,
        }
    }

    /// Learns a sample; returns the prediction before.
    ///
    /// # Errors
    /// See [`PredictionError`].
    pub fn learn(
        &mut self,
        values: &[Value<'_>],
        target: f64,
    ) -> Result<Predictions, PredictionError> {
        self.take_due()?;
        let predictions = self.predictor.learn(values, target)?;
        if let Some(refit) = self.predictor.poll_refit() {
            let at = self.predictor.seen() + REFIT_SAMPLES;
            self.refit = Some((at, thread::spawn(move || refit.run())));
        }
        Ok(predictions)
    }

    /// Swaps in a due forest before a prediction, so the judged one is that of [`Self::learn`].
    fn take_due(&mut self) -> Result<(), PredictionError> {
        let seen = self.predictor.seen();
        if self.refit.as_ref().is_some_and(|&(at, _)| at <= seen) {
            self.take()?;
        }
        Ok(())
    }

    /// Waits for the running fit, if any.
    ///
    /// # Errors
    /// [`PredictionError::Fit`].
    pub fn finish(&mut self) -> Result<(), PredictionError> {
        if self.refit.is_some() {
            self.take()?;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<(), PredictionError> {
        let Some((_, fit)) = self.refit.take() else {
            return Ok(());
        };
        let fitted = fit
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        match fitted {
            Ok(fitted) => self.predictor.handle_refitted(fitted),
            Err(error) => {
                self.predictor.handle_refit_failed();
                return Err(error.into());
            }
        }
        self.refits += 1;
        Ok(())
    }
}

/// How well each learner predicts samples that it has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// Samples that were learnt; None for several predictors together.
    pub learnt: Option<usize>,
    /// Samples that were predicted.
    pub unseen: usize,
    /// How many of these predictions each learner served.
    pub served_by: ServedBy,
    /// R² of the served predictions: 1 - squared error ÷ that of a constant.
    pub served: f64,
    /// The same with the mean of the predicted samples themselves, of each network or GPU its own,
    /// as the constant: 0 for a predictor that knows only the level of a group.
    pub served_own_mean: f64,
    /// R² of the factorization machine.
    pub machine: f64,
    /// R² of the forest; that of the mean, 0, before there is one.
    pub forest: f64,
    /// R² of the linear machine.
    pub linear: f64,
}

/// Predictions that each learner served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedBy {
    /// The factorization machine.
    pub machine: usize,
    /// The forest.
    pub forest: usize,
}

/// The result of a [`play`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Number of samples.
    pub samples: usize,
    /// At the requested counts: R² with the mean of the samples that had not arrived.
    pub accuracy: Vec<Accuracy>,
    /// Which learner was served, from which sample on.
    pub served: Vec<(u64, Learner)>,
    /// Prequential quality at the end, older errors forgotten.
    pub quality: [Score; 3],
    /// That of the served predictions, to be compared with `quality`.
    pub served_quality: Score,
    /// Prequential R² of the served predictions over all samples, none forgotten, with the mean of
    /// the targets before each; 0 without an error.
    pub prequential: f64,
    /// Forests that were fitted.
    pub refits: usize,
}

/// Learns these samples in the random order of a seed, and judges at these counts.
///
/// # Errors
/// See [`PredictionError`].
pub fn play(
    samples: &[Sample],
    settings: Settings,
    seed: u64,
    counts: &[usize],
) -> Result<Report, PredictionError> {
    let samples = shuffled(samples, seed);
    let mut online = Online::new(settings)?;
    let (mut accuracy, mut served) = (Vec::new(), Vec::new());
    let (mut error, mut mean_error, mut sum) = (0.0, 0.0, 0.0);
    for (count, sample) in samples.iter().enumerate() {
        online.take_due()?;
        if counts.contains(&count) {
            let rest: Vec<&Sample> = samples[count..].iter().collect();
            let errors = Errors::of(&online.predictor, &rest, mean(&rest))?;
            accuracy.push(errors.accuracy(Some(count)));
        }
        let serves = online.predictor.served();
        if served.last().is_none_or(|&(_, last)| last != serves) {
            served.push((count as u64, serves));
        }
        let predicted = with_values(sample, |values| online.predictor.predict(values))?;
        with_values(sample, |values| online.learn(values, sample.target))?;
        if let Some(predicted) = predicted {
            error += (sample.target - predicted.value).powi(2);
            mean_error += (sample.target - sum / count as f64).powi(2);
        }
        sum += sample.target;
    }
    online.finish()?;
    Ok(Report {
        samples: samples.len(),
        accuracy,
        served,
        quality: online.predictor.quality(),
        served_quality: online.predictor.served_quality(),
        prequential: if mean_error > 0.0 {
            1.0 - error / mean_error
        } else {
            0.0
        },
        refits: online.refits,
    })
}

/// The samples that are kept from the predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// All samples with one network, as the job or beside it.
    Network,
    /// All samples on one model of GPU.
    Gpu,
}

/// How well the samples that were kept from the predictor are predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unseen {
    /// The network or the GPU; `all` for the samples of all together.
    pub name: String,
    /// R² with the mean of the learnt samples, the best constant without others, but easily beaten
    /// for a group far from them: [`Accuracy::served_own_mean`] is harder.
    pub accuracy: Accuracy,
}

/// For each network, or GPU: a predictor that has seen `shots` of its samples predicts the rest.
/// The last, `all`, is over all samples, where well predicted groups hide others.
///
/// # Errors
/// See [`PredictionError`].
pub fn unseen(
    samples: &[Sample],
    left: Left,
    shots: usize,
    settings: Settings,
    seed: u64,
) -> Result<Vec<Unseen>, PredictionError> {
    let samples = shuffled(samples, seed);
    let key = |sample: &Sample| match left {
        Left::Network => sample.job.network.clone(),
        Left::Gpu => sample.gpu.clone(),
    };
    let names: BTreeSet<String> = samples.iter().map(key).collect();
    let mut all = Vec::new();
    let mut errors = Errors::default();
    for name in names {
        let is_beside = |sample: &Sample| {
            let beside = sample.beside.as_ref();
            left == Left::Network && beside.is_some_and(|beside| beside.network == name)
        };
        let (own, others): (Vec<_>, Vec<_>) = samples.iter().partition(|one| key(one) == name);
        let (first, rest) = own.split_at(shots.min(own.len()));
        let others = others.into_iter().filter(|one| !is_beside(one));
        let learnt: Vec<&Sample> = others.chain(first.iter().copied()).collect();
        let mut online = Online::new(settings)?;
        for sample in &learnt {
            with_values(sample, |values| online.learn(values, sample.target))?;
        }
        online.finish()?;
        let own = Errors::of(&online.predictor, rest, mean(&learnt))?;
        errors.add(&own);
        let accuracy = own.accuracy(Some(learnt.len()));
        all.push(Unseen { name, accuracy });
    }
    all.push(Unseen {
        name: "all".to_owned(),
        accuracy: errors.accuracy(None),
    });
    Ok(all)
}

#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    samples: usize,
    served_by: ServedBy,
    served: f64,
    learners: [f64; 3],
    constant: f64,
    own_mean: f64,
}

impl Errors {
    fn of(
        predictor: &Predictor,
        samples: &[&Sample],
        constant: f64,
    ) -> Result<Self, PredictorError> {
        let mut errors = Self::default();
        let own_mean = mean(samples);
        for sample in samples {
            let predictions = with_values(sample, |values| predictor.predictions(values))?;
            let error =
                |predicted: Option<f64>| (sample.target - predicted.unwrap_or(constant)).powi(2);
            errors.samples += 1;
            let served = with_values(sample, |values| predictor.predict(values))?;
            match served.map(|served| served.served) {
                Some(Learner::Forest) => errors.served_by.forest += 1,
                Some(_) => errors.served_by.machine += 1,
                None => {}
            }
            errors.served += error(served.map(|served| served.value));
            for (sum, predicted) in errors.learners.iter_mut().zip(predictions) {
                *sum += error(predicted);
            }
            errors.constant += error(None);
            errors.own_mean += error(Some(own_mean));
        }
        Ok(errors)
    }

    fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.served += other.served;
        self.served_by.machine += other.served_by.machine;
        self.served_by.forest += other.served_by.forest;
        self.constant += other.constant;
        self.own_mean += other.own_mean;
        for (sum, other) in self.learners.iter_mut().zip(other.learners) {
            *sum += other;
        }
    }

    fn accuracy(&self, learnt: Option<usize>) -> Accuracy {
        let r2 = |error: f64| 1.0 - error / self.constant;
        let [machine, forest, linear] = self.learners.map(r2);
        Accuracy {
            learnt,
            unseen: self.samples,
            served_by: self.served_by,
            served: r2(self.served),
            served_own_mean: 1.0 - self.served / self.own_mean,
            machine,
            forest,
            linear,
        }
    }
}

fn mean<S: Borrow<Sample>>(samples: &[S]) -> f64 {
    let sum: f64 = samples.iter().map(|sample| sample.borrow().target).sum();
    sum / samples.len().max(1) as f64
}

/// The samples in the random order of a seed.
#[must_use]
pub fn shuffled(samples: &[Sample], seed: u64) -> Vec<Sample> {
    let mut samples = samples.to_vec();
    samples.shuffle(&mut Pcg64::seed_from_u64(seed));
    samples
}

/// The samples with each other's targets, at random: nothing is left to learn.
#[must_use]
pub fn with_permuted_targets(samples: &[Sample], seed: u64) -> Vec<Sample> {
    let mut targets: Vec<f64> = samples.iter().map(|sample| sample.target).collect();
    targets.shuffle(&mut Pcg64::seed_from_u64(seed));
    let with = |(sample, target): (&Sample, f64)| Sample {
        target,
        ..sample.clone()
    };
    samples.iter().zip(targets).map(with).collect()
}

/// Samples that arrive while a forest is fitted.
pub const REFIT_SAMPLES: u64 = 8;

/// Marks jobs whose GPUs are in several machines.
const SPREAD: &str = "_unconsolidated";

const NOBODY: &str = "nobody";
