//! The target: what a high-priority request may take.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::PolicyError;
use crate::slo_mean::SlopeView;

/// What an HP request may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slo {
    /// So many times as long as alone; more than 1.
    Slowdown(f64),
    /// So long, in ns.
    LatencyNs(u64),
    /// In the mean so many times as long as in the mean alone; more than 1.
    MeanSlowdown(f64),
    /// In the mean so long, ns.
    MeanNs(u64),
    /// On the mean so long that this share of its rate alone is left, more than 0 and at most 1: for a job that trains.
    Throughput(f64),
}

impl Slo {
    /// What a request may take that takes `solo_ns` alone.
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

    /// Whether the mean of requests is held to it, and not a quantile.
    #[must_use]
    pub const fn is_mean(self) -> bool {
        match self {
            Self::MeanSlowdown(_) | Self::MeanNs(_) | Self::Throughput(_) => true,
            Self::Slowdown(_) | Self::LatencyNs(_) => false,
        }
    }

    /// What it is of, the word in records: `quantile`, `mean` or `rate`.
    #[must_use]
    pub const fn of(self) -> &'static str {
        match self {
            Self::Throughput(_) => "rate",
            Self::MeanSlowdown(_) | Self::MeanNs(_) => "mean",
            Self::Slowdown(_) | Self::LatencyNs(_) => "quantile",
        }
    }

    /// The same times or time, of the mean.
    #[must_use]
    pub const fn of_mean(self) -> Self {
        match self {
            Self::Slowdown(times) => Self::MeanSlowdown(times),
            Self::LatencyNs(ns) => Self::MeanNs(ns),
            mean => mean,
        }
    }

    /// By how much longer than alone it may take.
    #[must_use]
    pub fn slack_ns(self, solo_ns: u64) -> u64 {
        self.target_ns(solo_ns).saturating_sub(solo_ns)
    }
}

/// What requests of a job may take, and the share of them that may take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// What a request may take.
    pub slo: Slo,
    /// The share of requests that may take longer, more than 0 and at most [`MISS_MAX`]: 0.01 for the 99th percentile. A job that
    /// does not mark its requests has none, nor has a mean.
    pub miss: f64,
}

impl Goal {
    /// Checks that it can be meant.
    ///
    /// # Errors
    ///
    /// [`PolicyError::Slowdown`], [`PolicyError::Throughput`] or [`PolicyError::Miss`].
    pub fn validate(&self) -> Result<(), PolicyError> {
        // Each written so that a NaN is refused too.
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

/// What a request of one kind may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    /// From its arrival to its end, ns.
    pub ns: u64,
    /// The mean of the requests is held to that time, and single ones may take longer.
    pub is_mean: bool,
}

/// How a goal is kept, as `status` tells it: of a client that marks its requests, the kind that most of them are of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SloView {
    /// What is in force: the job's own as its marks say ([`crate::Mark::Target`]), else what was given with
    /// [`crate::Gate::handle_goal`], else the configured.
    pub goal: Goal,
    /// A request may take so long from its arrival on, ns; `None` while what it takes alone is learnt.
    pub target_ns: Option<u64>,
    /// What all but the share `goal.miss` of the last 2048 requests took at most, ns; of a mean,
    /// that of the last 64.
    pub measured_ns: Option<u64>,
    /// From [`crate::slo::LEAST`] to [`crate::slo::GREATEST`]; of all kinds of the client together, as what follows.
    pub level: f64,
    /// How the mean grows with the level, where a mean is held and that is known.
    pub slope: Option<SlopeView>,
    /// Requests that were judged.
    pub requests: u64,
    /// Those of them that took longer than their target; nothing of a mean.
    pub misses: u64,
    /// Those of the misses that are not best-effort work's: it was paused.
    pub misses_at_floor: u64,
    /// Which end it has come to.
    pub end: SloEnd,
}

/// Whether a goal is held, and why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SloEnd {
    /// What requests take alone is not known yet, so nothing is judged.
    Learning,
    /// The level is between its ends.
    Held,
    /// Best-effort work is paused, and requests take longer than their target all the same.
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

    /// `1.2x`, a number from 1 to 100, or `20ms`, a number above 0; nothing between number and unit.
    fn from_str(text: &str) -> Result<Self, SloError> {
        let number = |digits: &str| digits.parse::<f64>().ok();
        let slowdown = text.strip_suffix('x').and_then(number);
        let latency_ms = text.strip_suffix("ms").and_then(number);
        match (slowdown, latency_ms) {
            (Some(times), _) if (1.0..=SLOWDOWN_MAX).contains(&times) => Ok(Self::Slowdown(times)),
            (_, Some(ms)) if ms > 0.0 && ms <= LATENCY_MS_MAX => {
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

/// A text is no target. An operator's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SloError;

impl fmt::Display for SloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "must be times alone from \"1x\" to \"{SLOWDOWN_MAX}x\", or ms, such as \"20ms\""
        )
    }
}

impl Error for SloError {}

/// Of its rate alone a training job may be asked to keep so much at least: who lets it lose more needs no gate.
pub const THROUGHPUT_MIN: f64 = 0.5;

/// A high-priority job that may take a hundred times as long is none.
pub(crate) const SLOWDOWN_MAX: f64 = 100.0;

/// Of a job's requests so many may be over their target at most: half, which is a goal of the median.
pub const MISS_MAX: f64 = 0.5;

/// By default one request in a hundred may take longer: a goal of the 99th percentile.
pub const MISS: f64 = 0.01;

/// An hour.
const LATENCY_MS_MAX: f64 = 3.6e6;
