//! The target of a high-priority request.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::PolicyError;
use crate::slo_mean::SlopeView;

/// The target of an HP request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slo {
    /// A multiple of the solo latency, 1 to 100.
    Slowdown(f64),
    /// A time, in ns.
    LatencyNs(u64),
    /// A multiple of the mean solo latency that the mean is to keep, 1 to 100.
    MeanSlowdown(f64),
    /// A time that the mean is to keep, ns.
    MeanNs(u64),
    /// For a training job, the mean with this share of the solo rate, [`THROUGHPUT_MIN`] to 1.
    Throughput(f64),
}

impl Slo {
    /// The target of a request with this solo latency.
    #[must_use]
    pub fn target_ns(self, solo_ns: u64) -> u64 {
        match self {
            // Exact up to 2^53 ns, and the conversion back saturates.
            Self::Slowdown(slowdown) | Self::MeanSlowdown(slowdown) => {
                (solo_ns as f64 * slowdown) as u64
            }
            Self::LatencyNs(latency_ns) | Self::MeanNs(latency_ns) => latency_ns,
            Self::Throughput(share) => (solo_ns as f64 / share) as u64,
        }
    }

    /// Whether it applies to the mean of requests, not to a quantile.
    #[must_use]
    pub const fn is_mean(self) -> bool {
        match self {
            Self::MeanSlowdown(_) | Self::MeanNs(_) | Self::Throughput(_) => true,
            Self::Slowdown(_) | Self::LatencyNs(_) => false,
        }
    }

    /// What it applies to, in records: `quantile`, `mean` or `rate`.
    #[must_use]
    pub const fn of(self) -> &'static str {
        match self {
            Self::Throughput(_) => "rate",
            Self::MeanSlowdown(_) | Self::MeanNs(_) => "mean",
            Self::Slowdown(_) | Self::LatencyNs(_) => "quantile",
        }
    }

    /// The same multiple or time, of the mean.
    #[must_use]
    pub const fn of_mean(self) -> Self {
        match self {
            Self::Slowdown(times) => Self::MeanSlowdown(times),
            Self::LatencyNs(ns) => Self::MeanNs(ns),
            mean => mean,
        }
    }

    /// How much longer than solo a request may take.
    #[must_use]
    pub fn slack_ns(self, solo_ns: u64) -> u64 {
        self.target_ns(solo_ns).saturating_sub(solo_ns)
    }
}

/// The target of a job's requests, and the share of them that may take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The target.
    pub slo: Slo,
    /// The share of requests that may take longer, more than 0 and at most [`MISS_MAX`]: 0.01 for
    /// the 99th percentile. Unused for a mean and for a job that does not mark its requests.
    pub miss: f64,
}

impl Goal {
    /// Checks the ranges.
    /// # Errors
    /// [`PolicyError::Slowdown`], [`PolicyError::Throughput`] or [`PolicyError::Miss`].
    pub fn validate(&self) -> Result<(), PolicyError> {
        // Each comparison also refuses a NaN.
        match self.slo {
            Slo::Slowdown(slowdown) | Slo::MeanSlowdown(slowdown)
                if !(1.0..=SLOWDOWN_MAX).contains(&slowdown) =>
            {
                return Err(PolicyError::Slowdown { slowdown });
            }
            Slo::Throughput(share) if !(THROUGHPUT_MIN..=1.0).contains(&share) => {
                return Err(PolicyError::Throughput { share });
            }
            Slo::Slowdown(_)
            | Slo::MeanSlowdown(_)
            | Slo::Throughput(_)
            | Slo::LatencyNs(_)
            | Slo::MeanNs(_) => {}
        }
        match self.miss > 0.0 && self.miss <= MISS_MAX {
            true => Ok(()),
            false => Err(PolicyError::Miss { miss: self.miss }),
        }
    }
}

/// The target of a request of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    /// From its arrival to its end, ns.
    pub ns: u64,
    /// The mean of the requests is to keep that time, and single ones may take longer.
    pub is_mean: bool,
}

/// How well a client with marks keeps its goal, as in `status`: for its most frequent kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SloView {
    /// The goal in force: the job's own ([`crate::Mark::Target`]), else of
    /// [`crate::Gate::handle_goal`], else the configured one.
    pub goal: Goal,
    /// The bound on a request's latency, ns; `None` while the solo latency is being learnt.
    pub target_ns: Option<u64>,
    /// The quantile 1 − `goal.miss` of the last 2048 latencies, or the mean of the last 64, ns.
    pub measured_ns: Option<u64>,
    /// From [`crate::slo::LEAST`] to [`crate::slo::GREATEST`]; for all kinds, as below.
    pub level: f64,
    /// How the mean grows with the level, for a goal of the mean and where known.
    pub slope: Option<SlopeView>,
    /// Requests that were judged.
    pub requests: u64,
    /// The judged requests that missed their target; 0 for a goal of the mean.
    pub misses: u64,
    /// The misses not due to best-effort work, which was paused.
    pub misses_at_floor: u64,
    /// Which end the level has reached.
    pub end: SloEnd,
}

/// Whether a goal is kept, and why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SloEnd {
    /// Solo latencies are not known yet, so nothing is judged.
    Learning,
    /// The level is between its ends.
    Held,
    /// Best-effort work is paused, and requests miss their target all the same.
    Floor,
    /// Best-effort work has all that it can get, and requests stay within their target.
    Top,
}

impl SloEnd {
    /// The word in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Held => "held",
            Self::Floor => "paused-and-still-missed",
            Self::Top => "spent",
        }
    }
}

impl FromStr for Slo {
    type Err = SloError;

    /// `1.2x`, a number from 1 to 100, or `20ms`, above 0 and at most an hour; without a space.
    fn from_str(text: &str) -> Result<Self, SloError> {
        let number = |digits: &str| digits.parse::<f64>().ok();
        let slowdown = text.strip_suffix('x').and_then(number);
        let latency_ms = text.strip_suffix("ms").and_then(number);
        match (slowdown, latency_ms) {
            (Some(times), _) if (1.0..=SLOWDOWN_MAX).contains(&times) => Ok(Self::Slowdown(times)),
            (_, Some(ms)) if ms * 1e6 >= 1.0 && ms <= LATENCY_MS_MAX => {
                Ok(Self::LatencyNs((ms * 1e6) as u64))
            }
            _ => Err(SloError),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slowdown(slowdown) | Self::MeanSlowdown(slowdown) => write!(f, "{slowdown}x"),
            Self::LatencyNs(latency_ns) | Self::MeanNs(latency_ns) => {
                write!(f, "{}ms", *latency_ns as f64 / 1e6)
            }
            Self::Throughput(share) => write!(f, "{share} of the rate alone"),
        }
    }
}

/// A text that is not a target: an operator's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SloError;

impl fmt::Display for SloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "must be a multiple of the solo time from \"1x\" to \"{SLOWDOWN_MAX}x\", or milliseconds, \
             such as \"20ms\""
        )
    }
}

impl Error for SloError {}

/// The least share of its solo rate for a training job: an operator with less needs no gate.
pub const THROUGHPUT_MIN: f64 = 0.5;

/// A job that may take a hundred times as long is not high-priority.
pub(crate) const SLOWDOWN_MAX: f64 = 100.0;

/// The greatest share of requests over their target: half, which is a goal of the median.
pub const MISS_MAX: f64 = 0.5;

/// The default share that may take longer: a goal of the 99th percentile.
pub const MISS: f64 = 0.01;

/// An hour.
const LATENCY_MS_MAX: f64 = 3.6e6;
