//! The p99 latency of a high-priority job by its share of the GPU: two lines that meet in a knee.
//! Below some share of the GPU a request takes longer in proportion, and above it hardly shorter
//! (Mudi, EuroSys'25, section 4.1, Figure 5). With Δ, the share of the high-priority job,
//! ```text
//! p99(Δ) = l0 + k1 (Δ − Δ0)   where Δ ≤ Δ0
//!          l0 + k2 (Δ − Δ0)   elsewhere           k1 ≤ 0, k2 ≤ 0
//! ```
//! for one job, batch and set of best-effort jobs. Best-effort jobs have 1 − Δ.
//! # The fit
//! The fit is exact: no other two lines with a common point and slopes that do not rise have a
//! smaller sum of squares of *relative* errors ([`PieceWise::residual`]). The spread of a p99 grows
//! with the p99; with absolute errors the longest latencies alone would decide. The paper takes as
//! the knee the middle one of three samples "that yields the lowest curvature", which is where the
//! curve is straightest, and fits each slope on its own. This fit solves each split of the sorted
//! samples into left and right:
//! - Both lines are fitted, each on its side. If they meet between the two samples beside the
//!   split, this is its optimum.
//! - Otherwise its knee is at one of these two samples: the lines that meet between them are two
//!   convex cones (bent up, bent down), and the optimum over a convex cone is the free one or on a
//!   face. With a fixed knee the problem is linear in l0, k1 and k2.
//! - Slopes that would rise are 0: each set of active constraints is solved, and the best feasible
//!   solution is the optimum, because the problem is convex.
//! - One line alone, if two are no better.
//!
//! With n samples these are at most 5 n solutions in closed form of O(n) each. Latencies have any
//! unit of time, the same for samples and answers.

use std::fmt;
use std::ops::RangeInclusive;

/// Shares at which six samples serve a fit well: tenths, as the paper's, and closer where latencies
/// bend. Chosen from nine sets on two families of the simulator's curves (36 and 9,
/// `sim/tests/latency_curves.rs`), at the other shares from 0.1 to 0.9 by 0.05: mean errors of 1.6
/// and 8.0 %, the others 1.5 to 1.8 and 8.6 to 10.6 %.
pub const SAMPLE_SHARES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 0.9];

/// Fewest samples of a fit: one more than the model has parameters.
pub const SAMPLES_MIN: usize = 5;

/// Most samples of a fit.
pub const SAMPLES_MAX: usize = 64;

/// Valid latencies: from a picosecond in seconds to a week in ns, so that squares stay finite.
pub const LATENCIES: RangeInclusive<f64> = 1e-12..=1e15;

/// Shares that differ by less are equal.
pub const SHARE_STEP: f64 = 1e-6;

/// The part added to the least share, "to accommodate prediction errors" (Mudi §5.3.2).
pub const SHARE_MARGIN: f64 = 0.1;

/// Two lines are no better than one if they lower the sum of squares by less than this share of it,
/// or if the relative error of one is about the rounding error.
const ROUNDING: f64 = 1e-9;

/// Two lines that meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PieceWise {
    /// Δ0, the share at the knee. Of one line alone it is the greatest sampled share.
    pub knee_share: f64,
    /// l0, the p99 at the knee.
    pub knee_p99: f64,
    /// k1: p99 per share, below the knee. Not above 0.
    pub slope_below: f64,
    /// k2: p99 per share, above the knee. Not above 0.
    pub slope_above: f64,
    /// The sum of squares of the samples' relative errors.
    pub residual: f64,
    /// The least and the greatest sampled share.
    pub sampled: [f64; 2],
}

/// Why samples have no fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FitError {
    /// Fewer than [`SAMPLES_MIN`].
    TooFew {
        /// Number of samples.
        count: usize,
    },
    /// More than [`SAMPLES_MAX`].
    TooMany {
        /// Number of samples.
        count: usize,
    },
    /// A share is not above 0 and at most 1.
    Share {
        /// The share.
        share: f64,
    },
    /// A latency is not within [`LATENCIES`].
    Latency {
        /// The share of the sample.
        share: f64,
        /// The latency.
        p99: f64,
    },
    /// Two samples have the same share.
    EqualShares {
        /// The share.
        share: f64,
    },
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { count } => {
                write!(f, "{count} samples: a fit needs at least {SAMPLES_MIN}")
            }
            Self::TooMany { count } => {
                write!(f, "{count} samples: a fit takes at most {SAMPLES_MAX}")
            }
            Self::Share { share } => {
                write!(f, "share {share}: expected more than 0 and at most 1")
            }
            Self::Latency { share, p99 } => {
                let (least, most) = (LATENCIES.start(), LATENCIES.end());
                write!(
                    f,
                    "latency {p99} at share {share}: expected {least:e} to {most:e}"
                )
            }
            Self::EqualShares { share } => {
                write!(f, "two samples at share {share}: shares must differ")
            }
        }
    }
}

impl std::error::Error for FitError {}

/// The two lines of least squares of these samples (share, p99), in any order.
/// # Errors
/// See [`FitError`].
pub fn fit(samples: &[(f64, f64)]) -> Result<PieceWise, FitError> {
    let samples = checked(samples)?;
    let one = one_line(&samples);
    let splits = 1..samples.len();
    let two = splits
        .filter_map(|split| free_knee(&samples, split))
        .chain((1..samples.len() - 1).flat_map(|at| knees_at(&samples, at)))
        .map(|lines| lines.with_residual(&samples));
    let best = two.fold(one, |best, lines| {
        let is_better = lines.residual < best.residual;
        if is_better { lines } else { best }
    });
    let rounding = (one.residual * ROUNDING).max(samples.len() as f64 * ROUNDING * ROUNDING);
    let is_one = one.residual - best.residual <= rounding;
    Ok(if is_one { one } else { best })
}

impl PieceWise {
    /// The p99 at this share. Below the sampled shares it is too low: latencies bend upwards there.
    #[must_use]
    pub fn at(&self, share: f64) -> f64 {
        let beyond = share - self.knee_share;
        let slope = match beyond <= 0.0 {
            true => self.slope_below,
            false => self.slope_above,
        };
        self.knee_p99 + slope * beyond
    }

    /// The least sampled share at which the p99 is at most `limit`, never less than the least
    /// sampled one; `None` if the greatest exceeds it, or `limit` is not a number.
    #[must_use]
    pub fn least_share(&self, limit: f64) -> Option<f64> {
        let [least, greatest] = self.sampled;
        if limit.is_nan() || self.at(greatest) > limit {
            return None;
        }
        if self.at(least) <= limit {
            return Some(least);
        }
        // The p99 is above the limit at `least` and not at `greatest`, so the line that crosses the
        // limit falls.
        let slope = match self.knee_p99 <= limit {
            true => self.slope_below,
            false => self.slope_above,
        };
        let share = self.knee_share + (limit - self.knee_p99) / slope;
        Some(share.clamp(least, greatest))
    }

    /// [`PieceWise::least_share`] plus [`SHARE_MARGIN`] of it, at most 1 (nothing for BE jobs).
    #[must_use]
    pub fn share_with_margin(&self, limit: f64) -> Option<f64> {
        let least = self.least_share(limit)?;
        Some((least * (1.0 + SHARE_MARGIN)).min(1.0))
    }

    fn with_residual(self, samples: &[Sample]) -> Self {
        let errors = samples.iter().map(|sample| {
            let error = (self.at(sample.share) - sample.p99) / sample.p99;
            error * error
        });
        Self {
            residual: errors.sum(),
            ..self
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    share: f64,
    p99: f64,
}

impl Sample {
    fn weight(&self) -> f64 {
        1.0 / (self.p99 * self.p99)
    }
}

fn checked(samples: &[(f64, f64)]) -> Result<Vec<Sample>, FitError> {
    let count = samples.len();
    if count < SAMPLES_MIN {
        return Err(FitError::TooFew { count });
    }
    if count > SAMPLES_MAX {
        return Err(FitError::TooMany { count });
    }
    for &(share, p99) in samples {
        if !(share > 0.0 && share <= 1.0) {
            return Err(FitError::Share { share });
        }
        if !LATENCIES.contains(&p99) {
            return Err(FitError::Latency { share, p99 });
        }
    }
    let samples = samples.iter().map(|&(share, p99)| Sample { share, p99 });
    let mut samples: Vec<Sample> = samples.collect();
    samples.sort_unstable_by(|one, other| one.share.total_cmp(&other.share));
    let mut pairs = samples.iter().zip(samples.iter().skip(1));
    match pairs.find(|(one, next)| next.share - one.share < SHARE_STEP) {
        Some((one, _)) => Err(FitError::EqualShares { share: one.share }),
        None => Ok(samples),
    }
}

#[derive(Clone, Copy, Debug)]
struct Line {
    share: f64,
    p99: f64,
    slope: f64,
}

impl Line {
    fn of(samples: &[Sample]) -> Self {
        let sum = |value: fn(&Sample) -> f64| -> f64 {
            let samples = samples.iter();
            samples.map(|sample| value(sample) * sample.weight()).sum()
        };
        let weight = sum(|_| 1.0);
        let share = sum(|sample| sample.share) / weight;
        let p99 = sum(|sample| sample.p99) / weight;
        let (mut squares, mut products) = (0.0, 0.0);
        for sample in samples {
            let off = sample.share - share;
            squares += sample.weight() * off * off;
            products += sample.weight() * off * (sample.p99 - p99);
        }
        Self {
            share,
            p99,
            slope: (products / squares).min(0.0),
        }
    }

    fn at(&self, share: f64) -> f64 {
        self.p99 + self.slope * (share - self.share)
    }
}

fn sampled(samples: &[Sample]) -> [f64; 2] {
    let shares = samples.iter().map(|sample| sample.share);
    [
        shares.clone().fold(1.0, f64::min),
        shares.fold(0.0, f64::max),
    ]
}

fn one_line(samples: &[Sample]) -> PieceWise {
    let line = Line::of(samples);
    let sampled = sampled(samples);
    PieceWise {
        knee_share: sampled[1],
        knee_p99: line.at(sampled[1]),
        slope_below: line.slope,
        slope_above: line.slope,
        residual: 0.0,
        sampled,
    }
    .with_residual(samples)
}

/// The lines of the first `split` samples and of the others, if they meet between both. A side with
/// one sample has no line; its optimum has its knee at a sample ([`knees_at`]).
fn free_knee(samples: &[Sample], split: usize) -> Option<PieceWise> {
    let (left, right) = samples.split_at_checked(split)?;
    if left.len() < 2 || right.len() < 2 {
        return None;
    }
    let between = left.last()?.share..=right.first()?.share;
    let (below, above) = (Line::of(left), Line::of(right));
    // The intersection, computed from the centre of one line, so that subtraction loses little.
    let off = (above.at(below.share) - below.p99) / (below.slope - above.slope);
    let knee_share = below.share + off;
    // Parallel lines meet nowhere: not a number, or infinite.
    between.contains(&knee_share).then(|| PieceWise {
        knee_share,
        knee_p99: below.at(knee_share),
        slope_below: below.slope,
        slope_above: above.slope,
        residual: 0.0,
        sampled: sampled(samples),
    })
}

/// The feasible lines with their knee at the sample `at`, neither the first nor the last: the
/// optimum for each set of free slopes, the others being 0.
fn knees_at(samples: &[Sample], at: usize) -> impl Iterator<Item = PieceWise> {
    let sums = samples.get(at).map(|knee| Sums::new(samples, knee.share));
    let free = [[true, true], [true, false], [false, true], [false, false]];
    let sampled = sampled(samples);
    let lines = free
        .into_iter()
        .filter_map(move |free| sums.as_ref().map(|sums| sums.solve(free, sampled)));
    lines.filter(|lines| lines.slope_below <= 0.0 && lines.slope_above <= 0.0)
}

#[derive(Debug, Default)]
struct Sums {
    knee_share: f64,
    weight: f64,
    p99: f64,
    sides: [Side; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    offset: f64,
    square: f64,
    product: f64,
}

impl Sums {
    fn new(samples: &[Sample], knee_share: f64) -> Self {
        let mut sums = Self {
            knee_share,
            ..Self::default()
        };
        for sample in samples {
            let weight = sample.weight();
            let offset = sample.share - knee_share;
            sums.weight += weight;
            sums.p99 += weight * sample.p99;
            let [below, above] = &mut sums.sides;
            let side = if offset <= 0.0 { below } else { above };
            side.offset += weight * offset;
            side.square += weight * offset * offset;
            side.product += weight * offset * sample.p99;
        }
        sums
    }

    /// The optimum with these slopes free and the others 0. No product of both sides occurs, so
    /// each slope follows from l0. The divisor is at least the weight of the sample at the knee
    /// (Cauchy and Schwarz).
    fn solve(&self, free: [bool; 2], sampled: [f64; 2]) -> PieceWise {
        let (mut weight, mut p99) = (self.weight, self.p99);
        let sides = || self.sides.iter().zip(free);
        for (side, _) in sides().filter(|(_, is_free)| *is_free) {
            weight -= side.offset * side.offset / side.square;
            p99 -= side.offset * side.product / side.square;
        }
        let knee_p99 = p99 / weight;
        let slope = |(side, is_free): (&Side, bool)| match is_free {
            true => (side.product - side.offset * knee_p99) / side.square,
            false => 0.0,
        };
        let [below, above] = &self.sides;
        PieceWise {
            knee_share: self.knee_share,
            knee_p99,
            slope_below: slope((below, free[0])),
            slope_above: slope((above, free[1])),
            residual: 0.0,
            sampled,
        }
    }
}
