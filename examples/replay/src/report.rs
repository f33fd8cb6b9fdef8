//! A replay's report: latencies, rates, and its own count of its driver calls.

use std::io::Write as _;

use anyhow::{Context, Result};
use profiler::quantile::nearest_rank;
use serde::Serialize;

use crate::device::Replayed;

/// The report, as written. Ratios and units are in the names.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    requests: usize,
    /// Completed requests per second from the first arrival to the last completion.
    per_s: f64,
    elapsed_ms: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    mean_ms: Option<f64>,
    latencies_ms: Vec<f64>,
    /// When the replay began, ns of the clock.
    started_ns: u64,
    /// The scheduled beginning of each request, ns of the clock.
    arrived_ns: Vec<u64>,
    /// Requests per power-of-two bin: `[below_ms, count]`.
    histogram: Vec<(f64, usize)>,
    launches: u64,
    copied_h2d_bytes: u64,
    copied_d2h_bytes: u64,
    checks: u64,
    checks_wrong: u64,
    /// Launches that the GPU itself counted; absent where the kernels do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    launches_told: Option<u64>,
}

impl Report {
    pub(crate) fn new(replayed: Replayed) -> Self {
        let latencies_ms: Vec<f64> = replayed.latencies_ns.iter().map(|&ns| ms(ns)).collect();
        let mut sorted = replayed.latencies_ns;
        sorted.sort_unstable();
        let quantile = |per_mille| nearest_rank(&sorted, per_mille).map(ms);
        let requests = sorted.len();
        Self {
            schema_version: 1,
            requests,
            per_s: requests as f64 / (replayed.elapsed_ns.max(1) as f64 / 1e9),
            elapsed_ms: ms(replayed.elapsed_ns),
            p50_ms: quantile(500),
            p95_ms: quantile(950),
            p99_ms: quantile(990),
            max_ms: sorted.last().copied().map(ms),
            mean_ms: (requests > 0).then(|| latencies_ms.iter().sum::<f64>() / requests as f64),
            histogram: histogram(&sorted),
            latencies_ms,
            started_ns: replayed.started_ns,
            arrived_ns: replayed.arrived_ns,
            launches: replayed.launches,
            copied_h2d_bytes: replayed.copied_h2d_bytes,
            copied_d2h_bytes: replayed.copied_d2h_bytes,
            checks: replayed.checks,
            checks_wrong: replayed.checks_wrong,
            launches_told: replayed.launches_told,
        }
    }

    /// Writes the report as JSON to a file or, for `-`, to stdout. A file is complete or absent.
    /// Errors: the file cannot be written.
    pub(crate) fn write(&self, out: &str) -> Result<()> {
        let json = serde_json::to_string(self)?;
        if out == "-" {
            return writeln!(std::io::stdout(), "{json}").context("writing to stdout");
        }
        let partial = format!("{out}.partial");
        std::fs::write(&partial, json).with_context(|| format!("writing {partial}"))?;
        std::fs::rename(&partial, out).with_context(|| format!("writing {out}"))
    }
}

/// Counts per power-of-two bin from 1 us upwards, empty bins at the ends left out.
fn histogram(sorted_ns: &[u64]) -> Vec<(f64, usize)> {
    let mut bins: Vec<(f64, usize)> = Vec::new();
    let mut below_ns = 1_000u64;
    let mut rest = sorted_ns;
    while !rest.is_empty() {
        let count = rest.partition_point(|&ns| ns < below_ns);
        if count > 0 || !bins.is_empty() {
            bins.push((ms(below_ns), count));
        }
        rest = &rest[count..];
        below_ns = below_ns.saturating_mul(2);
    }
    bins
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_histogram_names_the_upper_ends_of_its_bins() {
        assert_eq!(
            histogram(&[1_500, 1_600, 7_000]),
            [(0.002, 2), (0.004, 0), (0.008, 1)]
        );
    }

    proptest! {
        #[test]
        fn a_histogram_loses_nobody(mut ns in prop::collection::vec(0u64..1 << 40, 0..100)) {
            ns.sort_unstable();
            prop_assert_eq!(histogram(&ns).iter().map(|b| b.1).sum::<usize>(), ns.len());
        }
    }
}
