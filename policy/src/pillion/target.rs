//! The target: what a high-priority request may take.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// What an HP request may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slo {
    /// So many times as long as alone; more than 1.
    Slowdown(f64),
    /// So long, in ns.
    LatencyNs(u64),
    /// On the mean so long that this share of its rate alone is left, more than 0 and at most 1: for a job that trains.
    Throughput(f64),
}

impl Slo {
    /// What a request may take that takes `solo_ns` alone.
    #[must_use]
    pub fn target_ns(self, solo_ns: u64) -> u64 {
        match self {
            // Exact up to 2^53 ns, and the conversion back saturates.
            Self::Slowdown(slowdown) => (solo_ns as f64 * slowdown) as u64,
            Self::LatencyNs(latency_ns) => latency_ns,
            Self::Throughput(share) => (solo_ns as f64 / share) as u64,
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
            Self::Slowdown(slowdown) => write!(f, "{slowdown}x"),
            Self::LatencyNs(latency_ns) => write!(f, "{}ms", *latency_ns as f64 / 1e6),
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

/// An hour.
const LATENCY_MS_MAX: f64 = 3.6e6;
