//! Status of the probe ([`policy::probe`]).

use std::collections::BTreeMap;

use policy::ProbeView;
use serde::Serialize;

use crate::core::probe_watch::ProbeWatch;

/// State of the probe, and its holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeStatus {
    /// `init`, `healthy`, `unhealthy`, `overlimit` or `disabled`.
    pub state: &'static str,
    /// The metric behind the state; none if none.
    pub metric: Option<&'static str>,
    /// Times over the limits in the last two hours.
    pub entries: usize,
    /// Earliest improvement of the state, on the daemon's clock; none if healthy or lost.
    pub until_ns: Option<u64>,
    /// Watched metrics, by name.
    pub metrics: BTreeMap<&'static str, MetricStatus>,
    /// A known metric has been unknown for ten seconds, or none was ever known.
    pub blind: bool,
    /// Arrived best-effort jobs that wait for it.
    pub waiting: usize,
}

/// One metric. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricStatus {
    /// Its last value; none if unknown.
    pub value: Option<f64>,
    /// Unhealthy from this value on; none if unknown.
    pub unhealthy: Option<f64>,
    /// Over its limits from this value on; none if unlimited.
    pub overlimit: Option<f64>,
}

impl ProbeStatus {
    /// None if off. `waiting`: the number of waiting jobs.
    pub(crate) fn of(watch: &ProbeWatch, now_ns: u64, waiting: usize) -> Option<Self> {
        let ProbeView {
            state,
            metric,
            entries,
            until_ns,
            metrics,
            blind,
        } = watch.view(now_ns)?;
        let metrics = metrics.into_iter().map(|of| {
            let status = MetricStatus {
                value: of.value,
                unhealthy: of.unhealthy,
                overlimit: of.overlimit,
            };
            (of.metric.name(), status)
        });
        Some(Self {
            state: state.name(),
            metric: metric.map(|metric| metric.name()),
            entries,
            until_ns,
            metrics: metrics.collect(),
            blind,
            waiting,
        })
    }
}
