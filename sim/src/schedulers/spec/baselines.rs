//! The numbers of published baselines that control a latency: `gslice`, `gpucolo` and `mudi`.

use policy::Param;

use super::{param, whole};

/// The numbers of `gslice`, as GPUColo's authors ran it (section VI).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GsliceSpec {
    /// The target for the mean latency of high-priority requests, ms; 0: none, and shares stay.
    pub slo_mean_ms: f64,
    /// The high-priority job's initial share of the SMs, per cent; best-effort jobs have the rest.
    pub share_pct: u32,
    /// Between two adjustments, s.
    pub period_s: f64,
    /// The time without launches while a job restarts with another share, s.
    pub restart_s: f64,
}

impl Default for GsliceSpec {
    fn default() -> Self {
        Self {
            slo_mean_ms: 0.0,
            share_pct: 50,
            period_s: 25.0,
            restart_s: RESTART_S,
        }
    }
}

/// The numbers of `gpucolo` (2024, sections IV to VI).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuColoSpec {
    /// The target for the mean latency of HP requests, ms; 0: none, and sleep and share stay.
    pub slo_mean_ms: f64,
    /// Best-effort jobs' initial sleep after each iteration, ms.
    pub sleep_ms: f64,
    /// Their initial share of the SMs, per cent; the high-priority job has all.
    pub share_pct: u32,
    /// −m: by how much the mean falls with each second of sleep, ms.
    pub slope_ms_per_s: f64,
    /// By how much the mean rises with each per cent of the share, ms.
    pub share_slope_ms: f64,
    /// Between two adjustments of the sleep, s.
    pub period_s: f64,
    /// Between two adjustments of the share, in such periods.
    pub outer_periods: u32,
    /// The time without launches while a job restarts with another share, s.
    pub restart_s: f64,
}

impl Default for GpuColoSpec {
    fn default() -> Self {
        Self {
            slo_mean_ms: 0.0,
            sleep_ms: 200.0,
            share_pct: 80,
            slope_ms_per_s: 10.0,
            share_slope_ms: 0.2,
            period_s: 4.0,
            outer_periods: 25,
            restart_s: RESTART_S,
        }
    }
}

/// The numbers of `mudi` (EuroSys'25).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MudiSpec {
    /// The latency target of a high-priority request, from its arrival on, ms.
    pub slo_ms: f64,
    /// How long a batch is tried, and the window for counting the rate, s.
    pub window_s: f64,
    /// The longest sample of the latency model, s.
    pub profile_s: f64,
    /// The time without launches while a best-effort job restarts with another share, s.
    pub restart_s: f64,
}

impl Default for MudiSpec {
    fn default() -> Self {
        Self {
            // Its ResNet-50's (Table 1).
            slo_ms: 150.0,
            window_s: 2.0,
            profile_s: 5.0,
            restart_s: 0.0,
        }
    }
}

/// "MPS has an overhead of 7s in this case" (GPUColo, section IV-B); 5 to 15 s there in general.
const RESTART_S: f64 = 7.0;

const SLO_MEAN_MS: Param = param(
    "slo_mean_ms",
    "target for the mean latency of high-priority requests, in ms; 0: no target, and nothing is adjusted",
    0.0,
    1_000_000.0,
);
const RESTART: Param = param(
    "restart_s",
    "time without launches while a job restarts with another share, in s",
    0.0,
    3_600.0,
);

pub(super) const GSLICE: [Param; 4] = [
    SLO_MEAN_MS,
    whole(
        "share_pct",
        "share of the SMs for the high-priority job at the start, in per cent; best-effort jobs have the rest",
        1.0,
        99.0,
    ),
    param(
        "period_s",
        "time between two adjustments, in s",
        0.1,
        3_600.0,
    ),
    RESTART,
];

pub(super) const GPUCOLO: [Param; 8] = [
    SLO_MEAN_MS,
    param(
        "sleep_ms",
        "how long best-effort jobs sleep after each iteration at the start, in ms",
        0.0,
        1_000.0,
    ),
    whole(
        "share_pct",
        "share of the SMs for best-effort jobs at the start, in per cent",
        1.0,
        100.0,
    ),
    param(
        "slope_ms_per_s",
        "decrease of the mean latency with each second of sleep, in ms",
        0.001,
        1_000_000.0,
    ),
    param(
        "share_slope_ms",
        "increase of the mean latency with each per cent of the share, in ms",
        0.000_1,
        1_000_000.0,
    ),
    param(
        "period_s",
        "time between two adjustments of the sleep, in s",
        0.1,
        3_600.0,
    ),
    whole(
        "outer_periods",
        "time between two adjustments of the share, in periods of period_s",
        1.0,
        10_000.0,
    ),
    RESTART,
];

pub(super) const MUDI: [Param; 4] = [
    param(
        "slo_ms",
        "latency target of high-priority requests, in ms",
        0.001,
        1_000_000.0,
    ),
    param(
        "window_s",
        "how long each batch is tried, and the window in which the rate is counted, in s",
        0.01,
        3_600.0,
    ),
    param(
        "profile_s",
        "longest time for one sample of the latency model, in s",
        0.001,
        3_600.0,
    ),
    RESTART,
];

impl GsliceSpec {
    pub(super) fn set(&mut self, key: &str, value: f64) -> bool {
        match key {
            "slo_mean_ms" => self.slo_mean_ms = value,
            "share_pct" => self.share_pct = value as u32,
            "period_s" => self.period_s = value,
            "restart_s" => self.restart_s = value,
            _ => return false,
        }
        true
    }

    pub(super) fn param(&self, key: &str) -> Option<f64> {
        Some(match key {
            "slo_mean_ms" => self.slo_mean_ms,
            "share_pct" => self.share_pct.into(),
            "period_s" => self.period_s,
            "restart_s" => self.restart_s,
            _ => return None,
        })
    }
}

impl GpuColoSpec {
    pub(super) fn set(&mut self, key: &str, value: f64) -> bool {
        match key {
            "slo_mean_ms" => self.slo_mean_ms = value,
            "sleep_ms" => self.sleep_ms = value,
            "share_pct" => self.share_pct = value as u32,
            "slope_ms_per_s" => self.slope_ms_per_s = value,
            "share_slope_ms" => self.share_slope_ms = value,
            "period_s" => self.period_s = value,
            "outer_periods" => self.outer_periods = value as u32,
            "restart_s" => self.restart_s = value,
            _ => return false,
        }
        true
    }

    pub(super) fn param(&self, key: &str) -> Option<f64> {
        Some(match key {
            "slo_mean_ms" => self.slo_mean_ms,
            "sleep_ms" => self.sleep_ms,
            "share_pct" => self.share_pct.into(),
            "slope_ms_per_s" => self.slope_ms_per_s,
            "share_slope_ms" => self.share_slope_ms,
            "period_s" => self.period_s,
            "outer_periods" => self.outer_periods.into(),
            "restart_s" => self.restart_s,
            _ => return None,
        })
    }
}

impl MudiSpec {
    pub(super) fn set(&mut self, key: &str, value: f64) -> bool {
        match key {
            "slo_ms" => self.slo_ms = value,
            "window_s" => self.window_s = value,
            "profile_s" => self.profile_s = value,
            "restart_s" => self.restart_s = value,
            _ => return false,
        }
        true
    }

    pub(super) fn param(&self, key: &str) -> Option<f64> {
        Some(match key {
            "slo_ms" => self.slo_ms,
            "window_s" => self.window_s,
            "profile_s" => self.profile_s,
            "restart_s" => self.restart_s,
            _ => return None,
        })
    }
}
