//! The batch size of high-priority requests with which best-effort jobs are fastest, found by
//! trying (Mudi, EuroSys'25, section 5.3.1). A high-priority job that answers W requests a second
//! in batches of b has a batch every b/W seconds, which takes P(b). Larger batches use less of the
//! GPU for a request and hold it longer. The b with the shortest best-effort iterations is not
//! known beforehand, so batches that keep the latency target are tried, one at a time.
//! # The safe set
//! A batch is safe if, by an upper bound of P,
//! ```text
//! (b − 1)/W + P(b) ≤ SLO       the first request waits for the last, and all for the batch
//! W P(b)/b < 0.95              the job keeps up with its requests
//! ```
//! (The paper prints W P(b)/b ≤ SLO, which compares a utilisation with a time.) The bound is that
//! of a Gaussian process of ln b: observed P over the latency model's prediction
//! ([`crate::latency_model`]), plus [`SAFE_DEVIATIONS`] standard deviations. Before the first
//! observation the batch with the widest margin comes first. If no batch is safe by it, this one
//! may be tried by a lower bound ([`PROBE_DEVIATIONS`]), so that a safe set of a few batches is
//! found. Otherwise the result is [`Choice::Infeasible`].
//! # The choice
//! A second process of ln b describes the logarithm of the iteration time. The next batch is the
//! safe one with the least μ − √β σ, β = 2 ln(|R| n² π²/6δ) for the n-th evaluation of |R| batches
//! (Srinivas et al. 2010, theorem 1). (Mudi prints β = 2 log(|R|/n²), negative for n above √|R|.)
//! # The end
//! The search ends when no safe batch may be faster than the best one by more than [`TOLERANCE`],
//! with [`END_DEVIATIONS`] standard deviations *of the difference* of both: neighbours of the best
//! one are as uncertain as it is, but in the same direction, so that bounds of each alone would
//! never part. The best one is the tried one with the least μ, and is kept. The search ends after
//! [`EVALUATIONS_MAX`] evaluations at the latest.
//!
//! Before the end comes the border of the safe set: a batch that may be faster, and is safe by
//! expectation but not by its bound, is *hopeful*. While its latency's uncertainty exceeds the
//! noise ([`HOPE`]), the safe batch next to it is tried, which may make it safe (SafeOpt's
//! expanders, Sui et al. 2015). The search restarts where best-effort jobs come or go
//! ([`Tuner::handle_best_effort`]), or W changes by half ([`RATE_CHANGE`]). It is deterministic.

mod process;

use std::cmp::{Ordering, Reverse};
use std::fmt;

use process::{Known, Prior, Process};

/// Most candidates.
pub const BATCHES_MAX: usize = 256;

/// Most evaluations of one search: "within 25 iterations" (Mudi §5.3.1).
pub const EVALUATIONS_MAX: usize = 25;

/// The share of the time that a high-priority job's batches may take.
pub const UTILISATION_MAX: f64 = 0.95;

/// The relative change of the request rate at which a search restarts (Mudi §5.3.2).
pub const RATE_CHANGE: f64 = 0.5;

/// δ: with a probability of 1 − δ the bounds of all evaluations hold.
pub const DELTA: f64 = 0.1;

/// Standard deviations between the expected P and its upper bound: one in a hundred is above it.
pub const SAFE_DEVIATIONS: f64 = 2.33;

/// The same where no batch is safe, for the one with the widest margin: three in ten are above it.
pub const PROBE_DEVIATIONS: f64 = 0.5;

/// A batch is better if its iterations are shorter by more than this share.
pub const TOLERANCE: f64 = 0.01;

/// Standard deviations of a difference within which a batch may be better.
pub const END_DEVIATIONS: f64 = 1.5;

/// A batch is hopeful while the standard deviation of the logarithm of its latency is above this:
/// half of an observation's noise, as after four of them.
pub const HOPE: f64 = 0.02;

/// The logarithm of observed over predicted latency: a common error of 10 % and individual ones of
/// 7 %; the paper's are 5 to 16 % (§7.3).
const LATENCY: Prior = Prior {
    constant: 0.10,
    amplitude: 0.07,
    length: 1.0,
    noise: NOISE,
};

/// Relative error of an observation.
const NOISE: f64 = 0.04;

/// A batch's distance from the process: latencies are not smooth in ln b, as blocks come in waves.
const MISFIT: f64 = 0.02;

/// The logarithm of the iteration time, less its mean.
const ITERATION: Prior = Prior {
    constant: 1.0,
    amplitude: 0.2,
    length: 1.5,
    noise: NOISE,
};

const SECOND_NS: f64 = 1e9;

/// The parameters of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerParams {
    /// R: the candidate batches, in any order; 1 to [`BATCHES_MAX`] of them, none 0.
    pub batches: Vec<u32>,
    /// W: requests per second.
    pub rate_per_s: f64,
    /// The latency target of a request, from its arrival on, ns.
    pub slo_ns: u64,
}

/// The prediction for a batch before it was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The batch.
    pub batch: u32,
    /// P: the p99 of a batch's duration beside the best-effort jobs, ns.
    pub p99_ns: u64,
}

/// An observation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The batch.
    pub batch: u32,
    /// P: the p99 of a batch's duration, ns.
    pub p99_ns: u64,
    /// The quantity to minimise: the mean iteration time of best-effort jobs, ns.
    pub iteration_ns: u64,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Put this batch in force, and report its observation ([`Tuner::handle_observation`]).
    Try(u32),
    /// The search has ended: keep this batch.
    Keep(u32),
    /// No batch is safe: pause best-effort jobs until the search restarts or the rate changes.
    Infeasible,
}

/// Why there is no search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunerError {
    /// No candidate, or more than [`BATCHES_MAX`].
    Batches {
        /// Number of candidates.
        count: usize,
    },
    /// A batch is 0.
    EmptyBatch,
    /// The rate is not a finite number above 0.
    Rate {
        /// Requests per second.
        per_s: f64,
    },
    /// The target is 0.
    Slo,
    /// No prediction, so that no batch is known to be safe.
    NoPrediction,
    /// A predicted latency is 0.
    Prediction {
        /// Its batch.
        batch: u32,
    },
}

impl fmt::Display for TunerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batches { count } => {
                write!(f, "{count} candidate batches: expected 1 to {BATCHES_MAX}")
            }
            Self::EmptyBatch => write!(f, "batch 0: expected at least 1"),
            Self::Rate { per_s } => write!(f, "{per_s} requests/s: expected a number above 0"),
            Self::Slo => write!(f, "latency target 0: expected at least 1 ns"),
            Self::NoPrediction => {
                write!(f, "no predicted latency: a search needs at least one")
            }
            Self::Prediction { batch } => {
                write!(
                    f,
                    "predicted latency of batch {batch} is 0: expected at least 1 ns"
                )
            }
        }
    }
}

impl std::error::Error for TunerError {}

/// A search for a batch; the module's text has the method.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuner {
    /// Ascending, each once.
    batches: Vec<u32>,
    slo_ns: f64,
    rate_per_s: f64,
    rate_begun_per_s: f64,
    /// (ln b, ln P), ascending in b.
    predicted: Vec<(f64, f64)>,
    /// Of this search; at most [`EVALUATIONS_MAX`].
    observed: Vec<Observation>,
}

impl Tuner {
    /// A new search.
    /// # Errors
    /// See [`TunerError`].
    pub fn new(params: TunerParams, predicted: &[Prediction]) -> Result<Self, TunerError> {
        let mut batches = params.batches;
        let count = batches.len();
        if !(1..=BATCHES_MAX).contains(&count) {
            return Err(TunerError::Batches { count });
        }
        batches.sort_unstable();
        batches.dedup();
        if batches.first() == Some(&0) {
            return Err(TunerError::EmptyBatch);
        }
        if params.slo_ns == 0 {
            return Err(TunerError::Slo);
        }
        Ok(Self {
            batches,
            slo_ns: params.slo_ns as f64,
            rate_per_s: checked_rate(params.rate_per_s)?,
            rate_begun_per_s: params.rate_per_s,
            predicted: checked_predictions(predicted)?,
            observed: Vec::new(),
        })
    }

    /// The next step. The same until something is handled.
    #[must_use]
    pub fn next(&self) -> Choice {
        let outlook = self.outlook();
        if self.observed.is_empty() {
            let widest = outlook.widest_safe();
            return widest.map_or(Choice::Infeasible, |widest| Choice::Try(widest.batch));
        }
        let Some(best) = outlook.best() else {
            return Choice::Infeasible;
        };
        if self.observed.len() >= EVALUATIONS_MAX {
            return Choice::Keep(best.batch);
        }
        if !best.is_tried {
            return Choice::Try(best.batch);
        }
        let deviations = beta(self.batches.len(), self.observed.len() + 1).sqrt();
        let next = outlook.next(best, deviations);
        next.map_or(Choice::Keep(best.batch), Choice::Try)
    }

    /// The observation of a batch in force. False if ignored: a 0, or after [`EVALUATIONS_MAX`].
    pub fn handle_observation(&mut self, observation: Observation) -> bool {
        let Observation {
            batch,
            p99_ns,
            iteration_ns,
        } = observation;
        let counts =
            batch > 0 && p99_ns > 0 && iteration_ns > 0 && self.observed.len() < EVALUATIONS_MAX;
        if counts {
            self.observed.push(observation);
        }
        counts
    }

    /// Sets the request rate. Returns whether the search restarts, because the rate differs from
    /// the initial one by [`RATE_CHANGE`]; otherwise only the safe set changes.
    /// # Errors
    /// [`TunerError::Rate`]; nothing changes.
    pub fn handle_rate(&mut self, per_s: f64) -> Result<bool, TunerError> {
        self.rate_per_s = checked_rate(per_s)?;
        let change = (per_s - self.rate_begun_per_s).abs() / self.rate_begun_per_s;
        let is_anew = change >= RATE_CHANGE;
        if is_anew {
            self.begin();
        }
        Ok(is_anew)
    }

    /// Restarts the search: best-effort jobs came or went; `predicted` is beside the present ones.
    /// # Errors
    /// See [`TunerError`]; nothing changes.
    pub fn handle_best_effort(&mut self, predicted: &[Prediction]) -> Result<(), TunerError> {
        self.predicted = checked_predictions(predicted)?;
        self.begin();
        Ok(())
    }

    /// Evaluations of this search so far.
    #[must_use]
    pub fn evaluations(&self) -> usize {
        self.observed.len()
    }

    /// The batches that are safe by present knowledge, ascending.
    #[must_use]
    pub fn safe_batches(&self) -> Vec<u32> {
        self.outlook().safe().map(|safe| safe.batch).collect()
    }

    fn begin(&mut self) {
        self.observed.clear();
        self.rate_begun_per_s = self.rate_per_s;
    }

    fn outlook(&self) -> Outlook {
        let (latency, iteration) = (self.latency(), self.iteration());
        let candidates = self.batches.iter().map(|&batch| {
            let point = ln(batch);
            let known = latency.known(point);
            let deviation = (known.deviation * known.deviation + MISFIT * MISFIT).sqrt();
            let expected = self.predicted_at(point) + known.mean;
            let margin = |deviations: f64| {
                let bound = expected + deviations * deviation;
                self.margin(batch, libm::exp(bound))
            };
            let margins = Margins {
                safe: margin(SAFE_DEVIATIONS),
                probe: margin(PROBE_DEVIATIONS),
                expected: margin(0.0),
            };
            Candidate {
                batch,
                is_tried: self.observed.iter().any(|seen| seen.batch == batch),
                standing: Standing::new(&margins, known.deviation),
                margins,
                iteration: iteration.known(point),
            }
        });
        let mut candidates: Vec<Candidate> = candidates.collect();
        if !candidates.iter().any(Candidate::is_safe) {
            let widest = candidates.iter_mut().max_by(Candidate::by_margin);
            if let Some(widest) = widest.filter(|widest| widest.margins.probe >= 1.0) {
                widest.standing = Standing::Safe;
            }
        }
        Outlook {
            iteration,
            candidates,
        }
    }

    /// The logarithm of observed over predicted latency, by ln b.
    fn latency(&self) -> Process {
        let values = self.observed.iter().map(|seen| {
            let point = ln(seen.batch);
            let value = libm::log(seen.p99_ns as f64) - self.predicted_at(point);
            (point, value)
        });
        Process::new(LATENCY, &values.collect::<Vec<_>>())
    }

    /// The logarithm of the iteration time less the observed mean, by ln b.
    fn iteration(&self) -> Process {
        let logarithm = |seen: &Observation| libm::log(seen.iteration_ns as f64);
        let sum: f64 = self.observed.iter().map(logarithm).sum();
        let mean = sum / self.observed.len().max(1) as f64;
        let values = self.observed.iter();
        let values = values.map(|seen| (ln(seen.batch), logarithm(seen) - mean));
        Process::new(ITERATION, &values.collect::<Vec<_>>())
    }

    /// The factor on `p99_ns` at which a batch leaves the safe set; 1 or less for an unsafe one.
    fn margin(&self, batch: u32, p99_ns: f64) -> f64 {
        let batch = f64::from(batch);
        let wait_ns = (batch - 1.0) / self.rate_per_s * SECOND_NS;
        let of_target = (self.slo_ns - wait_ns) / p99_ns;
        let every_ns = batch / self.rate_per_s * SECOND_NS;
        of_target.min(UTILISATION_MAX * every_ns / p99_ns)
    }

    /// The predicted ln P at ln b. Between predictions on a line; a batch below all takes the
    /// smallest's time, one above all proportionally longer than the largest: upper bounds.
    fn predicted_at(&self, point: f64) -> f64 {
        let after = self.predicted.partition_point(|&(at, _)| at < point);
        let before = after
            .checked_sub(1)
            .and_then(|before| self.predicted.get(before));
        match (before, self.predicted.get(after)) {
            (Some(&(from, low)), Some(&(to, high))) => {
                low + (high - low) * (point - from) / (to - from)
            }
            (None, Some(&(_, least))) => least,
            (Some(&(from, most)), None) => most + point - from,
            // Checked at the beginning of the search: there is a prediction.
            (None, None) => f64::INFINITY,
        }
    }
}

#[derive(Debug)]
struct Outlook {
    iteration: Process,
    candidates: Vec<Candidate>,
}

impl Outlook {
    fn safe(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.iter().filter(|of| of.is_safe())
    }

    fn widest_safe(&self) -> Option<&Candidate> {
        self.safe().max_by(Candidate::by_margin)
    }

    /// The best safe candidate that was tried, or, if none is left, of all.
    fn best(&self) -> Option<&Candidate> {
        let tried = self.safe().filter(|of| of.is_tried);
        most_promising(tried, 0.0).or_else(|| most_promising(self.safe(), 0.0))
    }

    /// The batch to try; `None` where none may be better than the best one.
    fn next(&self, best: &Candidate, deviations: f64) -> Option<u32> {
        let may_be_better = |other: &&Candidate| {
            let gain = best.iteration.mean - other.iteration.mean;
            let known = (&best.iteration, &other.iteration);
            let deviation = self.iteration.deviation_between(known.0, known.1);
            gain + END_DEVIATIONS * deviation > TOLERANCE
        };
        if self.safe().any(|safe| may_be_better(&safe)) {
            return most_promising(self.safe(), deviations).map(|safe| safe.batch);
        }
        let hopeful = self.candidates.iter();
        let hopeful = hopeful.filter(|of| of.standing == Standing::Hopeful);
        let hopeful = most_promising(hopeful.filter(may_be_better), deviations)?;
        let nearest = self
            .safe()
            .min_by_key(|safe| safe.batch.abs_diff(hopeful.batch));
        nearest.map(|nearest| nearest.batch)
    }
}

#[derive(Clone, Debug)]
struct Candidate {
    batch: u32,
    is_tried: bool,
    standing: Standing,
    margins: Margins,
    iteration: Known,
}

impl Candidate {
    fn is_safe(&self) -> bool {
        self.standing == Standing::Safe
    }

    fn by_margin<T: std::borrow::Borrow<Self>>(one: &T, other: &T) -> Ordering {
        let (one, other) = (one.borrow(), other.borrow());
        one.margins.safe.total_cmp(&other.margins.safe)
    }
}

#[derive(Clone, Copy, Debug)]
struct Margins {
    /// [`SAFE_DEVIATIONS`] above the expected latency.
    safe: f64,
    /// [`PROBE_DEVIATIONS`] above it.
    probe: f64,
    expected: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Safe,
    Hopeful,
    Unsafe,
}

impl Standing {
    /// From a candidate's margins, and the standard deviation of the logarithm of its latency.
    fn new(margins: &Margins, deviation: f64) -> Self {
        let is_hopeful = margins.expected >= 1.0 && deviation > HOPE;
        match (margins.safe >= 1.0, is_hopeful) {
            (true, _) => Self::Safe,
            (false, true) => Self::Hopeful,
            (false, false) => Self::Unsafe,
        }
    }
}

fn most_promising<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
    deviations: f64,
) -> Option<&'a Candidate> {
    let bound = |of: &Candidate| of.iteration.mean - deviations * of.iteration.deviation;
    candidates.min_by(|one, other| bound(one).total_cmp(&bound(other)))
}

/// β of the n-th evaluation with this many candidates, above 0 for every n.
#[must_use]
pub fn beta(candidates: usize, evaluation: usize) -> f64 {
    let n = evaluation.max(1) as f64;
    let pi = std::f64::consts::PI;
    2.0 * libm::log(candidates.max(1) as f64 * n * n * pi * pi / (6.0 * DELTA))
}

fn ln(batch: u32) -> f64 {
    libm::log(f64::from(batch))
}

fn checked_rate(per_s: f64) -> Result<f64, TunerError> {
    match per_s.is_finite() && per_s > 0.0 {
        true => Ok(per_s),
        false => Err(TunerError::Rate { per_s }),
    }
}

/// As (ln b, ln P), ascending in b; the longest of several for one batch.
fn checked_predictions(predicted: &[Prediction]) -> Result<Vec<(f64, f64)>, TunerError> {
    if predicted.is_empty() {
        return Err(TunerError::NoPrediction);
    }
    let mut sorted = predicted.to_vec();
    sorted.sort_unstable_by_key(|of| (of.batch, Reverse(of.p99_ns)));
    sorted.dedup_by_key(|of| of.batch);
    let points = sorted.iter().map(|of| match (of.batch, of.p99_ns) {
        (0, _) => Err(TunerError::EmptyBatch),
        (batch, 0) => Err(TunerError::Prediction { batch }),
        (batch, p99_ns) => Ok((ln(batch), libm::log(p99_ns as f64))),
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For all observations, also of one batch only and of the longest times.
    #[test]
    fn all_that_is_known_is_finite_in_25_rounds() {
        for p99_ns in [1, 10_000_000, u64::MAX] {
            let params = TunerParams {
                batches: (1..=64).collect(),
                rate_per_s: 1000.0,
                slo_ns: 50_000_000,
            };
            let predicted = Prediction {
                batch: 8,
                p99_ns: 10_000_000,
            };
            let mut tuner = Tuner::new(params, &[predicted]).expect("it is right");
            for round in 0..=EVALUATIONS_MAX as u64 {
                for of in tuner.outlook().candidates {
                    let Margins {
                        safe,
                        probe,
                        expected,
                    } = of.margins;
                    let (mean, deviation) = (of.iteration.mean, of.iteration.deviation);
                    let numbers = [mean, deviation, safe, probe, expected];
                    assert!(numbers.into_iter().all(f64::is_finite), "{round} {of:?}");
                    assert!(of.iteration.deviation >= 0.0);
                }
                let iteration_ns = if round % 2 == 0 { 1 } else { u64::MAX };
                let batch = if p99_ns == 1 {
                    7
                } else {
                    1 + (round * 5 % 64) as u32
                };
                tuner.handle_observation(Observation {
                    batch,
                    p99_ns,
                    iteration_ns,
                });
            }
            assert_eq!(tuner.evaluations(), EVALUATIONS_MAX);
        }
    }
}
