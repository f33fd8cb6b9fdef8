//! How well the latency of services is predicted beside trainings that no model has met: Mudi's
//! accuracy of interference modelling (EuroSys'25, section 7.3, Figures 11 and 12), on the table of
//! pairs ([`ServiceTable`]). Mudi profiles each service beside the first five trainings of its
//! Table 3 ([`SEEN`]; sections 4.1.1 and 7.1), learns four numbers of each curve from the
//! training's layers ([`learn::interference`]), and is judged on the last four ([`UNSEEN`]). So is
//! this; other divisions of the nine show how much the choice of these five matters.
//!
//! # What is judged
//! - *Fit*: the two lines fitted at six or seven shares, against the table at all nine, and at
//!   those that the lines were not fitted to: means of relative errors. No model is involved.
//! - *Numbers*: |predicted − fitted| ⁄ fitted of both slopes, and of share and p99 at the knee,
//!   where "fitted" is to the six shares of the unseen training itself, as in the paper.
//! - *Latency*: the predicted curve against the table at all nine shares.
//! - *R²* of a number, against the mean of the seen with that service and batch: 1 − Σ (predicted −
//!   fitted)² ⁄ Σ (mean − fitted)², of logarithms. If trainings matter little, the errors above are
//!   small even for a model that knows nothing of the training; its R² is 0.
//!
//! The paper counts latencies as samples, not curves (a curve takes six), as does
//! [`Question::latencies`]. Of each service the same curves are drawn: one seed is one draw, not
//! six. BERT and RoBERTa are the same network here, with equal cells, so means over services count
//! it twice.

use learn::interference::{Choice, Model, Neighbours, Number, Prediction, Sample, Settings, fit};
use policy::latency_model::{self, PieceWise, SAMPLE_SHARES};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::service_table::{BATCHES, SERVICES, SHARES_PCT, ServiceTable, TRAININGS};

/// The trainings that Mudi learns from: the first five of its Table 3.
pub const SEEN: [usize; 5] = [0, 1, 2, 3, 4];

/// Those that it is judged on: the last four.
pub const UNSEEN: [usize; 4] = [5, 6, 7, 8];

/// Seven shares: the six, and one in the widest gap below the middle, where latencies bend.
pub const SEVEN_SHARES: [f64; 7] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9];

/// What is known of a training that never ran beside anything: its layers, and if `has_time` the
/// time of an iteration alone, from the run of one mini-batch.
#[must_use]
pub fn neighbours(table: &ServiceTable, training: usize, has_time: bool) -> Option<Neighbours> {
    let layers = TRAININGS.get(training)?.layer_counts()?.to_array();
    let alone_per_s = table.alone_per_s(training)?;
    Some(Neighbours {
        layers,
        iteration_ms: has_time.then_some(1000.0 / alone_per_s),
    })
}

/// The two lines fitted to the table at these shares.
#[must_use]
pub fn curve(
    table: &ServiceTable,
    (service, training, batch): (usize, usize, u32),
    shares: &[f64],
) -> Option<PieceWise> {
    let p99 = |&share: &f64| Some((share, table.batch_p99_ms(service, training, batch, share)?));
    let samples: Option<Vec<(f64, f64)>> = shares.iter().map(p99).collect();
    latency_model::fit(&samples?).ok()
}

/// A daemon's measurement of a pair: the curve and the training's speeds at [`SAMPLE_SHARES`].
#[must_use]
pub fn sample(
    table: &ServiceTable,
    (service, training, batch): (usize, usize, u32),
    has_time: bool,
) -> Option<Sample> {
    let alone_per_s = table.alone_per_s(training)?;
    let mut speeds = [0.0; SAMPLE_SHARES.len()];
    for (speed, share) in speeds.iter_mut().zip(SAMPLE_SHARES) {
        *speed = table.iterations_per_s(service, training, batch, share)? / alone_per_s;
    }
    Some(Sample {
        service: service as u16,
        batch,
        neighbours: neighbours(table, training, has_time)?,
        alone_p99: table.batch_p99_alone_ms(service, batch)?,
        curve: curve(table, (service, training, batch), &SAMPLE_SHARES)?.into(),
        speeds: Some(speeds),
    })
}

/// Mean relative errors of fitted curves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitErrors {
    /// At all nine shares of the table.
    pub all: f64,
    /// At those of the nine that the curves were not fitted to; 0 if there are none.
    pub held_out: f64,
}

/// The errors of curves fitted at these shares, over all curves of the table.
#[must_use]
pub fn fit_errors(table: &ServiceTable, shares: &[f64]) -> FitErrors {
    let [mut all, mut held_out] = [Mean::default(), Mean::default()];
    let is_fitted = |pct: u32| {
        let near = |share: &f64| (share - f64::from(pct) / 100.0).abs() < 1e-9;
        shares.iter().any(near)
    };
    for service in 0..SERVICES.len() {
        for training in 0..TRAININGS.len() {
            for batch in BATCHES {
                let place = (service, training, batch);
                if let Some(curve) = curve(table, place, shares) {
                    all.add_latencies(table, place, &curve, |_| true);
                    held_out.add_latencies(table, place, &curve, |pct| !is_fitted(pct));
                }
            }
        }
    }
    FitErrors {
        all: all.mean(),
        held_out: held_out.mean(),
    }
}

/// The learnt samples, and the question.
#[derive(Clone, Debug)]
pub struct Question {
    /// Trainings that are learnt from.
    pub seen: Vec<usize>,
    /// Trainings that are asked for.
    pub unseen: Vec<usize>,
    /// Whether the time of an iteration alone is known.
    pub has_time: bool,
    /// Learnt latencies of each service at most, six for each drawn curve. `None`: all.
    pub latencies: Option<usize>,
    /// Draws curves and permutations.
    pub seed: u64,
    /// Whether each training's curves are learnt under the layers of another.
    pub is_permuted: bool,
}

impl Question {
    /// Mudi's: five are learnt, four asked, from layers alone.
    #[must_use]
    pub fn mudi() -> Self {
        Self {
            seen: SEEN.to_vec(),
            unseen: UNSEEN.to_vec(),
            has_time: false,
            latencies: None,
            seed: 1,
            is_permuted: false,
        }
    }

    fn samples(&self, table: &ServiceTable, service: usize) -> Vec<Sample> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut names = self.seen.clone();
        if self.is_permuted {
            // A cycle leaves no training under its own layers.
            names.shuffle(&mut random);
            let cycle = names.clone();
            for (name, training) in names.iter_mut().zip(&self.seen) {
                let at = cycle.iter().position(|of| of == training).unwrap_or(0);
                *name = cycle[(at + 1) % cycle.len()];
            }
        }
        let pairs = self.seen.iter().zip(&names);
        let pairs = pairs.flat_map(|pair| BATCHES.map(|batch| (pair, batch)));
        let samples = pairs.filter_map(|((&training, &name), batch)| {
            let sample = sample(table, (service, training, batch), self.has_time)?;
            let neighbours = neighbours(table, name, self.has_time)?;
            Some(Sample {
                neighbours,
                ..sample
            })
        });
        let mut samples: Vec<Sample> = samples.collect();
        if let Some(latencies) = self.latencies {
            samples.shuffle(&mut random);
            samples.truncate((latencies / SAMPLE_SHARES.len()).max(1));
        }
        samples
    }
}

/// How good the answers are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judged {
    /// Mean relative errors of numbers, in the order of [`Number::ALL`].
    pub numbers: [f64; 4],
    /// The same of the mean of the seen.
    pub numbers_of_mean: [f64; 4],
    /// R² of numbers against the mean of the seen.
    pub r2: [f64; 4],
    /// Mean relative error of latencies.
    pub latency: f64,
    /// The same of the mean of the seen.
    pub latency_of_mean: f64,
    /// Mean relative error of the training's speeds at the sampled shares.
    pub speed: f64,
    /// The same of the mean of the seen.
    pub speed_of_mean: f64,
    /// R² of these against the mean of the seen.
    pub speed_r2: f64,
    /// How each number is predicted, by service.
    pub choices: Vec<(usize, [Choice; 4])>,
    /// How the speed at each sampled share is.
    pub speed_choices: Vec<(usize, Vec<Choice>)>,
}

/// The answers to a question, of these services.
///
/// # Panics
/// If a training or a service is at no place of the list, or nothing is seen.
#[must_use]
pub fn judge(table: &ServiceTable, question: &Question, services: &[usize]) -> Judged {
    let mut sums = Sums::default();
    let mut judged = Judged::default();
    for &service in services {
        let samples = question.samples(table, service);
        let model = fit(&samples, &Settings::default()).expect("something is seen");
        let mean = fit_of_mean(&samples);
        for &training in &question.unseen {
            for batch in BATCHES {
                let place = (service, training, batch);
                sums.add(table, place, question.has_time, &model, &mean);
            }
        }
        let choice = |number| model.choice(number, question.has_time);
        judged.choices.push((service, Number::ALL.map(choice)));
        let speeds = (0..SAMPLE_SHARES.len())
            .filter_map(|place| model.choice_of_speed(place, question.has_time));
        judged.speed_choices.push((service, speeds.collect()));
    }
    sums.finish(judged)
}

/// The model that knows batches and no training: all samples have the same layers.
fn fit_of_mean(samples: &[Sample]) -> Model {
    let alike = samples.iter().map(|sample| Sample {
        neighbours: Neighbours {
            layers: Default::default(),
            iteration_ms: None,
        },
        ..*sample
    });
    let alike: Vec<Sample> = alike.collect();
    fit(&alike, &Settings::default()).expect("something is seen")
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }

    fn add_latencies(
        &mut self,
        table: &ServiceTable,
        (service, training, batch): (usize, usize, u32),
        curve: &PieceWise,
        is_judged: impl Fn(u32) -> bool,
    ) {
        for pct in SHARES_PCT.into_iter().filter(|&pct| is_judged(pct)) {
            if let Some(cell) = table.cell(service, training, batch, pct) {
                let found = curve.at(f64::from(pct) / 100.0);
                self.add((found / cell.batch_p99_ms - 1.0).abs());
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Squares {
    model: f64,
    mean: f64,
}

impl Squares {
    fn add(&mut self, truth: f64, model: f64, mean: f64) {
        let square = |found: f64| (found / truth).ln().powi(2);
        self.model += square(model);
        self.mean += square(mean);
    }

    fn r2(&self) -> f64 {
        1.0 - self.model / self.mean.max(1e-300)
    }
}

#[derive(Debug, Default)]
struct Sums {
    numbers: [Mean; 4],
    numbers_of_mean: [Mean; 4],
    squares: [Squares; 4],
    latency: Mean,
    latency_of_mean: Mean,
    speed: Mean,
    speed_of_mean: Mean,
    speed_squares: Squares,
}

/// In the order of [`Number::ALL`], all above 0.
fn numbers(curve: &PieceWise, alone_ms: f64) -> [f64; 4] {
    let slope = |slope: f64| (-slope).max(learn::interference::SLOPE_MIN * alone_ms);
    [
        slope(curve.slope_below),
        slope(curve.slope_above),
        curve.knee_share,
        curve.knee_p99,
    ]
}

impl Sums {
    fn add(
        &mut self,
        table: &ServiceTable,
        place: (usize, usize, u32),
        has_time: bool,
        model: &Model,
        mean: &Model,
    ) {
        let truth = sample(table, place, has_time).expect("the table has all pairs");
        let fitted = curve(table, place, &SAMPLE_SHARES).expect("the table has all pairs");
        let answer = |model: &Model| {
            let answer = model.predict(place.2, truth.alone_p99, &truth.neighbours);
            answer.expect("the table's numbers are within bounds")
        };
        let (found, mean) = (answer(model), answer(mean));
        let latency = |sum: &mut Mean, of: &Prediction| {
            sum.add_latencies(table, place, &of.curve, |_| true);
        };
        latency(&mut self.latency, &found);
        latency(&mut self.latency_of_mean, &mean);
        let of = |curve| numbers(curve, truth.alone_p99);
        let (truths, founds, means) = (of(&fitted), of(&found.curve), of(&mean.curve));
        for number in 0..truths.len() {
            let (truth, found, mean) = (truths[number], founds[number], means[number]);
            self.numbers[number].add((found / truth - 1.0).abs());
            self.numbers_of_mean[number].add((mean / truth - 1.0).abs());
            self.squares[number].add(truth, found, mean);
        }
        let speeds = truth.speeds.zip(found.speeds).zip(mean.speeds);
        if let Some(((truths, founds), means)) = speeds {
            for ((truth, found), mean) in truths.into_iter().zip(founds).zip(means) {
                self.speed.add((found / truth - 1.0).abs());
                self.speed_of_mean.add((mean / truth - 1.0).abs());
                self.speed_squares.add(truth, found, mean);
            }
        }
    }

    fn finish(&self, judged: Judged) -> Judged {
        Judged {
            numbers: self.numbers.map(|errors| errors.mean()),
            numbers_of_mean: self.numbers_of_mean.map(|errors| errors.mean()),
            r2: self.squares.map(|squares| squares.r2()),
            latency: self.latency.mean(),
            latency_of_mean: self.latency_of_mean.mean(),
            speed: self.speed.mean(),
            speed_of_mean: self.speed_of_mean.mean(),
            speed_r2: self.speed_squares.r2(),
            ..judged
        }
    }
}
