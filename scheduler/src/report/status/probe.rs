//! What a status says of the probe ([`policy::probe`]).

use std::collections::BTreeMap;

use policy::ProbeView;
use serde::Serialize;

use crate::core::probe_watch::ProbeWatch;

/// Whether the GPU is in trouble, and what that holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeStatus {
    /// `init`, `healthy`, `unhealthy`, `overlimit` or `disabled`.
    pub state: &'static str,
    /// The metric that made it so, or keeps it so; none where none does.
    pub metric: Option<&'static str>,
    /// How often it was over its limits in the last two hours.
    pub entries: usize,
    /// When the state may become better at the earliest, on the daemon's clock; none where it is
    /// well or lost.
    pub until_ns: Option<u64>,
    /// Those that are looked at, by name.
    pub metrics: BTreeMap<&'static str, MetricStatus>,
    /// Something that was known is not known for ten seconds, or nothing ever was.
    pub blind: bool,
    /// Best-effort jobs that came and wait for it.
    pub waiting: usize,
}

/// One metric. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricStatus {
    /// Its last value; none where it is not known.
    pub value: Option<f64>,
    /// Unhealthy from there on; none where that is not known.
    pub unhealthy: Option<f64>,
    /// Over its limits from there on; none where nothing is.
    pub overlimit: Option<f64>,
}

impl ProbeStatus {
    /// None where nothing is looked at. `waiting`: how many jobs wait.
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
