//! How long a service's requests take beside trainings that it has never met: Mudi's model of
//! interference (EuroSys'25, sections 4.1.2 and 4.2). For each batch and each set of trainings
//! beside it, the p99 latency of a service over its share of the GPU is two lines that meet
//! ([`policy::latency_model`]), given by four numbers: both slopes, and the share and the p99 at
//! the knee. A *sample* has them as measured for one service, one batch and one set of neighbours;
//! a [`Model`] of a service predicts them for other batches and neighbours, and likewise the speed
//! of a training beside the service, where samples have that. Latencies have any unit of time, the
//! same everywhere; times of iterations are ms.
//!
//! # Features
//! - The neighbours' layers by kind ([`Neighbours::layers`]), as ln(1 + n): the step from none to
//!   one is greater than that from 50 to 51. Of several trainings layers are summed (section 5.5).
//! - The batch of the service, as its logarithm.
//! - Where known of all samples and of the neighbours asked for, the time per layer: of an
//!   iteration alone on an idle GPU, over the number of layers, as its logarithm. The paper does
//!   without. But layers do not say how large a network's images or batches are, and so whether its
//!   kernels fill a GPU; the run of one mini-batch by which Mudi counts layers gives the time as
//!   well.
//!
//! There are no names: for two trainings with equal features a model predicts the same.
//!
//! # Targets
//! Latencies are divided by the service's own alone with that batch, which is known of each
//! service, and then have logarithms: slopes come out below 0 by construction, and an error is
//! relative. The knee's share is learnt as it is. A slope nearer to 0 than [`SLOPE_MIN`] counts as
//! that. A speed (a part of the speed alone) is learnt as ln(s ⁄ (1 − s)), so predictions are
//! between 0 and 1.
//!
//! The method is chosen for each service and each number ([`Choice`]), as in the paper, by networks
//! left out. Neighbours with the same layers are one network, however long an iteration takes: no
//! two measured times are equal, so each measurement would count as a network of its own. Samples
//! are measured and may be wrong, so each number is bounded ([`InterferenceError`]): one wrong
//! sample cannot stop the model of its service. No prediction is farther from the level of its
//! batch than what was learnt.
//!
//! # In the background
//! [`Learner`] keeps samples and models of all services. [`Learner::refit`] gives a snapshot for
//! any thread to [`Refit::run`], and [`Learner::swap`] takes the result. The kept samples give the
//! same model in any order; their order of arrival decides which are kept ([`Learner::push`]).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use policy::latency_model::{LATENCIES, PieceWise, SAMPLE_SHARES};
use serde::{Deserialize, Serialize};

use crate::forest::FitError;

mod methods;
mod output;

pub use methods::Method;
pub use output::{Choice, Features, GAIN_MIN, NETWORKS_MIN};
use output::{Output, Row};

/// Kinds of layers (`workloads::LayerCounts`).
pub const KINDS: usize = 11;

/// Most samples of a service: 28 sets of neighbours with seven batches each. Beyond, the oldest of
/// the network with the most samples is forgotten. Support vectors have matrices of this size
/// squared: a fit of so many takes 2.8 s of one core, of 35 samples 0.03 to 0.05 s.
pub const SAMPLES_MAX: usize = 200;

/// Most services.
pub const SERVICES_MAX: usize = 256;

/// Most trees of a forest.
pub const TREES_MAX: u16 = 1_000;

/// p99 at the knee, as a part of that alone: a thousand times as fast or slow is an error of units.
pub const KNEE_PARTS: RangeInclusive<f64> = 1e-3..=1e3;

/// Steepest slope, in latencies alone for the whole GPU: a tenth of the GPU more takes a hundred
/// latencies off. Latencies in proportion to 1 ⁄ Δ have a mean slope of 50 from Δ 0.1 to 0.2.
pub const SLOPE_MAX: f64 = 1e3;

/// Times of an iteration, ms: from a ns to eleven days.
pub const ITERATIONS_MS: RangeInclusive<f64> = 1e-6..=1e9;

/// Relative difference below which two times of an iteration are of one training, measured twice.
const TIME_STEP: f64 = 0.1;

/// The least learnt slope, latencies alone per share: a thousandth of the latency over the GPU.
pub const SLOPE_MIN: f64 = 1e-3;

/// Speeds are learnt within this part of the speed alone, and one less it.
const SPEED_MIN: f64 = 1e-3;

/// The least prediction at the greatest share, as a part of the p99 at the knee.
const P99_PART_MIN: f64 = 0.01;

/// A number of a service.
pub type ServiceId = u16;

/// Requests of a batch.
pub type Batch = u32;

/// How models are fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Trees of a forest, 1 to [`TREES_MAX`].
    pub trees: u16,
    /// Fewest samples of a leaf, 1 to [`SAMPLES_MAX`].
    pub leaf_samples_min: usize,
    /// Of forests.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trees: 40,
            leaf_samples_min: 2,
            seed: 1,
        }
    }
}

impl Settings {
    /// Whether models can be fitted so.
    ///
    /// # Errors
    /// [`InterferenceError::Settings`].
    pub fn check(&self) -> Result<(), InterferenceError> {
        let (trees, leaf_samples_min) = (self.trees, self.leaf_samples_min);
        match (1..=TREES_MAX).contains(&trees) && (1..=SAMPLES_MAX).contains(&leaf_samples_min) {
            true => Ok(()),
            false => Err(InterferenceError::Settings {
                trees,
                leaf_samples_min,
            }),
        }
    }
}

/// The trainings beside a service.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Layers by kind, as `workloads::LayerCounts::to_array` has them.
    pub layers: [u32; KINDS],
    /// Time of an iteration alone on the GPU; `None` if unknown.
    pub iteration_ms: Option<f64>,
}

impl Neighbours {
    /// Both together: the sum of layers and of times, so the time of a layer is the mean over all.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut layers = self.layers;
        for (count, more) in layers.iter_mut().zip(other.layers) {
            *count = count.saturating_add(more);
        }
        let times = self.iteration_ms.zip(other.iteration_ms);
        Self {
            layers,
            iteration_ms: times.map(|(one, more)| one + more),
        }
    }

    fn layer_ms(&self) -> Option<f64> {
        let layers: f64 = self.layers.iter().copied().map(f64::from).sum();
        Some(self.iteration_ms? / layers.max(1.0))
    }

    fn check(&self) -> Result<(), InterferenceError> {
        match self.iteration_ms {
            Some(iteration_ms) if !ITERATIONS_MS.contains(&iteration_ms) => {
                Err(InterferenceError::Iteration { iteration_ms })
            }
            _ => Ok(()),
        }
    }

    /// Whether these are the older ones, measured again; with a time they replace those without
    /// one.
    fn replaces(&self, older: &Self) -> bool {
        let is_same_time = match (self.iteration_ms, older.iteration_ms) {
            (Some(one), Some(other)) => (one / other).ln().abs() < TIME_STEP,
            (None, Some(_)) => false,
            (_, None) => true,
        };
        self.layers == older.layers && is_same_time
    }
}

/// The numbers of two lines that meet, as [`PieceWise`] has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Δ0.
    pub knee_share: f64,
    /// l0.
    pub knee_p99: f64,
    /// k1, at most 0.
    pub slope_below: f64,
    /// k2, at most 0.
    pub slope_above: f64,
    /// The least and the greatest sampled share.
    pub sampled: [f64; 2],
}

impl From<PieceWise> for Curve {
    fn from(fitted: PieceWise) -> Self {
        Self {
            knee_share: fitted.knee_share,
            knee_p99: fitted.knee_p99,
            slope_below: fitted.slope_below,
            slope_above: fitted.slope_above,
            sampled: fitted.sampled,
        }
    }
}

/// A measurement of a service beside neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The service.
    pub service: ServiceId,
    /// Requests of a batch.
    pub batch: Batch,
    /// The trainings beside it.
    pub neighbours: Neighbours,
    /// The p99 of the service alone with that batch.
    pub alone_p99: f64,
    /// The fitted curve.
    pub curve: Curve,
    /// Speeds of the one training beside it, as parts of that alone, at [`SAMPLE_SHARES`], if
    /// measured.
    pub speeds: Option<[f64; SAMPLE_SHARES.len()]>,
}

/// Why a sample, settings or a question are refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InterferenceError {
    /// The batch is 0.
    #[error("a batch of 0: expected at least 1 request")]
    Batch,
    /// A latency is not within [`LATENCIES`].
    #[error("latency {p99}: expected {least:e} to {most:e}", least = LATENCIES.start(), most = LATENCIES.end())]
    Latency {
        /// The latency.
        p99: f64,
    },
    /// The p99 at the knee is not within [`KNEE_PARTS`] of that alone.
    #[error(
        "latency {knee_p99} at the knee, {alone_p99} alone: expected {least:e} to {most:e} times the latency alone",
        least = KNEE_PARTS.start(), most = KNEE_PARTS.end()
    )]
    Knee {
        /// At the knee.
        knee_p99: f64,
        /// Alone.
        alone_p99: f64,
    },
    /// A slope is above 0, or steeper than [`SLOPE_MAX`].
    #[error("slope {slope}, {alone_p99} alone: expected {least} to 0", least = -SLOPE_MAX * alone_p99)]
    Slope {
        /// The slope.
        slope: f64,
        /// The p99 alone.
        alone_p99: f64,
    },
    /// The curve falls to 0 within the sampled shares.
    #[error("latency {p99} at share {share} of the curve: expected more than 0")]
    Falls {
        /// The share.
        share: f64,
        /// The latency.
        p99: f64,
    },
    /// The shares are not 0 < least ≤ knee ≤ greatest ≤ 1.
    #[error(
        "knee at share {knee} of those from {least} to {greatest}: expected 0 < least ≤ knee ≤ greatest ≤ 1"
    )]
    Shares {
        /// The knee.
        knee: f64,
        /// The least sampled.
        least: f64,
        /// The greatest sampled.
        greatest: f64,
    },
    /// A speed is not within 0 to 1 by more than 5 % of noise.
    #[error("speed {speed}: expected 0 to 1.05 times the speed alone")]
    Speed {
        /// The speed.
        speed: f64,
    },
    /// The time of an iteration is not within [`ITERATIONS_MS`].
    #[error("an iteration of {iteration_ms} ms: expected {least:e} to {most:e}", least = ITERATIONS_MS.start(), most = ITERATIONS_MS.end())]
    Iteration {
        /// The time.
        iteration_ms: f64,
    },
    /// A model is of one service, and samples are of two.
    #[error("a sample of service {service} among those of {expected}: expected one service")]
    Service {
        /// The service.
        service: ServiceId,
        /// That of the first sample.
        expected: ServiceId,
    },
    /// There are [`SERVICES_MAX`] services with samples already.
    #[error("service {service}: cannot learn more than {SERVICES_MAX} services")]
    TooManyServices {
        /// The service.
        service: ServiceId,
    },
    /// The settings are out of bounds.
    #[error(
        "{trees} trees, leaves of {leaf_samples_min} samples: expected 1 to {TREES_MAX} trees, leaves of 1 to {SAMPLES_MAX}"
    )]
    Settings {
        /// Trees of a forest.
        trees: u16,
        /// Fewest samples of a leaf.
        leaf_samples_min: usize,
    },
    /// No model fits the samples.
    #[error(transparent)]
    Fit(#[from] FitError),
}

impl Sample {
    /// Whether it can be learnt from.
    ///
    /// # Errors
    /// See [`InterferenceError`].
    pub fn check(&self) -> Result<(), InterferenceError> {
        check_question(self.batch, self.alone_p99, &self.neighbours)?;
        self.check_curve()?;
        let mut speeds = self.speeds.iter().flatten();
        match speeds.find(|speed| !(0.0..=1.05).contains(*speed)) {
            Some(&speed) => Err(InterferenceError::Speed { speed }),
            None => Ok(()),
        }
    }

    fn check_curve(&self) -> Result<(), InterferenceError> {
        let (curve, alone_p99) = (&self.curve, self.alone_p99);
        let knee_p99 = curve.knee_p99;
        if !LATENCIES.contains(&knee_p99) {
            return Err(InterferenceError::Latency { p99: knee_p99 });
        }
        if !KNEE_PARTS.contains(&(knee_p99 / alone_p99)) {
            return Err(InterferenceError::Knee {
                knee_p99,
                alone_p99,
            });
        }
        for slope in [curve.slope_below, curve.slope_above] {
            if !(-SLOPE_MAX * alone_p99..=0.0).contains(&slope) {
                return Err(InterferenceError::Slope { slope, alone_p99 });
            }
        }
        let (knee, [least, share]) = (curve.knee_share, curve.sampled);
        if !(0.0 < least && least <= knee && knee <= share && share <= 1.0) {
            return Err(InterferenceError::Shares {
                knee,
                least,
                greatest: share,
            });
        }
        // No slope is above 0, so the least latency is that at the greatest share.
        let p99 = knee_p99 + curve.slope_above * (share - knee);
        match p99 > 0.0 {
            true => Ok(()),
            false => Err(InterferenceError::Falls { share, p99 }),
        }
    }

    fn replaces(&self, older: &Self) -> bool {
        self.batch == older.batch && self.neighbours.replaces(&older.neighbours)
    }

    /// Orders the samples of a model, so that sums have one order.
    fn key(&self) -> impl Ord + use<> {
        let bits = |numbers: [f64; SAMPLE_SHARES.len()]| numbers.map(f64::to_bits);
        (
            self.batch,
            self.neighbours.layers,
            self.neighbours.iteration_ms.map(f64::to_bits),
            self.targets().map(f64::to_bits),
            self.speeds.map(bits),
        )
    }

    fn targets(&self) -> [f64; 4] {
        let alone = self.alone_p99;
        let slope = |slope: f64| (-slope / alone).max(SLOPE_MIN).ln();
        [
            slope(self.curve.slope_below),
            slope(self.curve.slope_above),
            self.curve.knee_share,
            (self.curve.knee_p99 / alone).ln(),
        ]
    }
}

fn check_question(
    batch: Batch,
    alone_p99: f64,
    neighbours: &Neighbours,
) -> Result<(), InterferenceError> {
    if batch == 0 {
        return Err(InterferenceError::Batch);
    }
    if !LATENCIES.contains(&alone_p99) {
        return Err(InterferenceError::Latency { p99: alone_p99 });
    }
    neighbours.check()
}

/// The numbers of a curve that are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// k1.
    SlopeBelow,
    /// k2.
    SlopeAbove,
    /// Δ0.
    KneeShare,
    /// l0.
    KneeP99,
}

impl Number {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::SlopeBelow,
        Self::SlopeAbove,
        Self::KneeShare,
        Self::KneeP99,
    ];
}

/// A prediction for a service beside neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The p99 over the share. Its residual is 0, because it has no samples of its own.
    pub curve: PieceWise,
    /// Speeds of the training beside it as parts of that alone, at [`SAMPLE_SHARES`], if learnt.
    pub speeds: Option<[f64; SAMPLE_SHARES.len()]>,
}

/// The fitted model of a service.
#[derive(Debug)]
pub struct Model {
    numbers: [Output; 4],
    speeds: Option<[Output; SAMPLE_SHARES.len()]>,
    sampled: [f64; 2],
}

/// Fits the model of a service to these samples. Methods that refuse the samples are not chosen.
///
/// # Errors
/// If there is no sample, one is invalid ([`Sample::check`]) or of another service, or settings
/// are.
pub fn fit(samples: &[Sample], settings: &Settings) -> Result<Model, InterferenceError> {
    settings.check()?;
    for sample in samples {
        sample.check()?;
        let (service, expected) = (sample.service, samples[0].service);
        if service != expected {
            return Err(InterferenceError::Service { service, expected });
        }
    }
    let mut samples: Vec<&Sample> = samples.iter().collect();
    samples.sort_by_cached_key(|sample| sample.key());
    Ok(fit_sorted(&samples, settings)?)
}

fn fit_sorted(samples: &[&Sample], settings: &Settings) -> Result<Model, FitError> {
    let mut networks: Vec<_> = samples.iter().map(|s| s.neighbours.layers).collect();
    networks.sort_unstable();
    networks.dedup();
    let network = |neighbours: &Neighbours| networks.binary_search(&neighbours.layers);
    let row = |sample: &&Sample| {
        let neighbours = &sample.neighbours;
        let network = network(neighbours).unwrap_or(0);
        row(sample.batch, neighbours, network)
    };
    let rows: Vec<Row> = samples.iter().map(row).collect();
    let all: Vec<&Row> = rows.iter().collect();
    let number = |number: usize| {
        let targets: Vec<f64> = samples.iter().map(|s| s.targets()[number]).collect();
        Output::fit(&all, &targets, settings)
    };
    let with_speeds = rows.iter().zip(samples);
    let with_speeds = with_speeds.filter_map(|(row, sample)| Some((row, sample.speeds?)));
    let (rows, speeds): (Vec<&Row>, Vec<[f64; SAMPLE_SHARES.len()]>) = with_speeds.unzip();
    let speed = |place: usize| {
        let targets: Vec<f64> = speeds.iter().map(|speeds| logit(speeds[place])).collect();
        Output::fit(&rows, &targets, settings)
    };
    let sampled = samples.iter().map(|sample| sample.curve.sampled);
    Ok(Model {
        numbers: [number(0)?, number(1)?, number(2)?, number(3)?],
        speeds: match rows.is_empty() {
            true => None,
            false => Some([
                speed(0)?,
                speed(1)?,
                speed(2)?,
                speed(3)?,
                speed(4)?,
                speed(5)?,
            ]),
        },
        sampled: sampled.fold([1.0, 0.0], |all, [least, greatest]| {
            [all[0].min(least), all[1].max(greatest)]
        }),
    })
}

impl Model {
    /// Predicts this batch, of which the p99 alone is known, beside these neighbours.
    ///
    /// # Errors
    /// If a number of the question is out of the bounds that samples have as well.
    pub fn predict(
        &self,
        batch: Batch,
        alone_p99: f64,
        neighbours: &Neighbours,
    ) -> Result<Prediction, InterferenceError> {
        check_question(batch, alone_p99, neighbours)?;
        let row = row(batch, neighbours, 0);
        let [below, above, knee_share, knee_p99] =
            self.numbers.each_ref().map(|output| output.predict(&row));
        let [least, greatest] = self.sampled;
        let knee_share = knee_share.clamp(least, greatest);
        let knee_p99 = alone_p99 * knee_p99.exp();
        // Latencies are above 0, so the line above the knee does not fall below.
        let fall_max = (1.0 - P99_PART_MIN) * knee_p99 / (greatest - knee_share).max(1e-6);
        let speeds = self.speeds.as_ref();
        Ok(Prediction {
            curve: PieceWise {
                knee_share,
                knee_p99,
                slope_below: -alone_p99 * below.exp(),
                slope_above: -(alone_p99 * above.exp()).min(fall_max),
                residual: 0.0,
                sampled: self.sampled,
            },
            speeds: speeds.map(|speeds| {
                let speeds = speeds.each_ref();
                speeds.map(|output| 1.0 / (1.0 + (-output.predict(&row)).exp()))
            }),
        })
    }

    /// How that number is predicted, with neighbours whose time of an iteration is known or not.
    #[must_use]
    pub fn choice(&self, number: Number, has_time: bool) -> Choice {
        self.numbers[number as usize].choice(has_time)
    }

    /// The same of the speed at that place in [`SAMPLE_SHARES`], if there are speeds.
    #[must_use]
    pub fn choice_of_speed(&self, place: usize, has_time: bool) -> Option<Choice> {
        let output = self.speeds.as_ref()?.get(place)?;
        Some(output.choice(has_time))
    }
}

fn row(batch: Batch, neighbours: &Neighbours, network: usize) -> Row {
    let ln_batch = f64::from(batch).ln();
    let layers = neighbours.layers.iter();
    let layers = layers.map(|&count| f64::from(count).ln_1p());
    Row {
        batch,
        network,
        layers: layers.chain([ln_batch]).collect(),
        layer_time: neighbours.layer_ms().map(|ms| vec![ms.ln(), ln_batch]),
    }
}

fn logit(speed: f64) -> f64 {
    let speed = speed.clamp(SPEED_MIN, 1.0 - SPEED_MIN);
    (speed / (1.0 - speed)).ln()
}

/// The stored state of a [`Learner`]: the models are fitted again from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// How models are fitted.
    pub settings: Settings,
    /// Of all services, the oldest of each service first.
    pub samples: Vec<Sample>,
}

/// Samples and models of all services.
#[derive(Debug, Default)]
pub struct Learner {
    settings: Settings,
    services: BTreeMap<ServiceId, Service>,
}

#[derive(Debug, Default)]
struct Service {
    samples: Vec<Sample>,
    generation: u64,
    /// The model, and the generation that it knows.
    served: Option<(u64, Model)>,
}

impl Service {
    fn push(&mut self, sample: Sample) {
        self.samples.retain(|older| !sample.replaces(older));
        if self.samples.len() >= SAMPLES_MAX {
            self.forget();
        }
        self.samples.push(sample);
        self.generation += 1;
    }

    /// Forgets the oldest sample of the network with the most, so that others stay.
    fn forget(&mut self) {
        let mut counts: BTreeMap<[u32; KINDS], usize> = BTreeMap::new();
        for sample in &self.samples {
            *counts.entry(sample.neighbours.layers).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let of = |sample: &Sample| counts.get(&sample.neighbours.layers).copied();
        if let Some(oldest) = self.samples.iter().position(|sample| of(sample) == most) {
            self.samples.remove(oldest);
        }
    }
}

impl Learner {
    /// One that knows nothing.
    ///
    /// # Errors
    /// If settings are out of bounds.
    pub fn new(settings: Settings) -> Result<Self, InterferenceError> {
        settings.check()?;
        Ok(Self {
            settings,
            services: BTreeMap::new(),
        })
    }

    /// One with these samples, and no model until [`Learner::refit`].
    ///
    /// # Errors
    /// See [`InterferenceError`].
    pub fn from_kept(kept: Kept) -> Result<Self, InterferenceError> {
        let mut learner = Self::new(kept.settings)?;
        for sample in kept.samples {
            learner.push(sample)?;
        }
        Ok(learner)
    }

    /// The state to store.
    #[must_use]
    pub fn kept(&self) -> Kept {
        let services = self.services.values();
        Kept {
            settings: self.settings,
            samples: services.flat_map(|of| of.samples.clone()).collect(),
        }
    }

    /// Takes a sample, in place of an older one of the same batch and neighbours, if times of
    /// iterations are within a tenth. At [`SAMPLES_MAX`] forgets the oldest of the network with the
    /// most samples. Models know of it after a refit.
    ///
    /// # Errors
    /// See [`InterferenceError`].
    pub fn push(&mut self, sample: Sample) -> Result<(), InterferenceError> {
        sample.check()?;
        let service = sample.service;
        if self.services.len() >= SERVICES_MAX && !self.services.contains_key(&service) {
            return Err(InterferenceError::TooManyServices { service });
        }
        self.services.entry(service).or_default().push(sample);
        Ok(())
    }

    /// The input for a new fit of a service's model; `None` if it has no sample.
    #[must_use]
    pub fn refit(&self, service: ServiceId) -> Option<Refit> {
        let of = self.services.get(&service)?;
        Some(Refit {
            service,
            samples: of.samples.clone(),
            generation: of.generation,
            settings: self.settings,
        })
    }

    /// Serves this model, unless it was begun before the served one; returns whether it does.
    pub fn swap(&mut self, fitted: Fitted) -> bool {
        let Some(service) = self.services.get_mut(&fitted.service) else {
            return false;
        };
        let served = service.served.as_ref();
        let is_newer = served.is_none_or(|&(generation, _)| generation <= fitted.generation);
        if is_newer {
            service.served = Some((fitted.generation, fitted.model));
        }
        is_newer
    }

    /// The model of a service; `None` if none was fitted.
    #[must_use]
    pub fn model(&self, service: ServiceId) -> Option<&Model> {
        let (_, model) = self.services.get(&service)?.served.as_ref()?;
        Some(model)
    }
}

/// A fit that any thread can make.
#[derive(Clone, Debug)]
pub struct Refit {
    service: ServiceId,
    samples: Vec<Sample>,
    generation: u64,
    settings: Settings,
}

impl Refit {
    /// Makes it.
    ///
    /// # Errors
    /// As [`fit`].
    pub fn run(self) -> Result<Fitted, InterferenceError> {
        let model = fit(&self.samples, &self.settings)?;
        Ok(Fitted {
            service: self.service,
            generation: self.generation,
            model,
        })
    }
}

/// A model to be served.
#[derive(Debug)]
pub struct Fitted {
    service: ServiceId,
    generation: u64,
    model: Model,
}
