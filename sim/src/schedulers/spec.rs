//! A policy and its numbers, as named by scenario files, options and tables.

mod baselines;

use baselines::{GPUCOLO, GSLICE, MUDI};
pub use baselines::{GpuColoSpec, GsliceSpec, MudiSpec};

use std::fmt;
use std::str::FromStr;

use policy::registry::{Numbers, POLICIES};
use policy::share::PERCENT_MIN;
use policy::sm_search::LOSS_PCT_MAX;
use policy::throttle::{UTILISATION, UTILISATION_DEFAULT};
use policy::{
    LaunchGateParams, OrionParams, Param, PillionParams, Policy, ReefNParams, ShareMode, Slo,
    TemporalParams, ThrottleParams,
};
use softgpu::Sharing;

use super::OracleParams;
use crate::error::Error;
use crate::laws::Laws;

/// A policy and its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicySpec {
    /// A daemon that holds nobody ([`policy::none`]).
    None,
    /// Best-effort work only while HP is idle ([`policy::temporal`]).
    Temporal {
        /// As a daemon's.
        params: TemporalParams,
        /// HP's solo latency is known from the start; otherwise it is learnt as in the daemon.
        is_profiled: bool,
    },
    /// One process, a stream each.
    Streams,
    /// The same, with a high-priority stream for HP.
    StreamPriority,
    /// A process each under MPS.
    Mps,
    /// The same, with priorities of clients.
    MpsPriority,
    /// REEF on NVIDIA's GPUs ([`policy::reef_n`]).
    ReefN {
        /// Best-effort kernels of a client in flight while HP is idle.
        queue_depth: u32,
    },
    /// Orion as published ([`policy::orion`]).
    Orion(OrionSpec),
    /// Orion as its program does it ([`policy::orion_code`]).
    OrionCode(OrionCodeSpec),
    /// At most one best-effort kernel in flight ([`policy::launch_gate`]).
    LaunchGate(LaunchGateParams),
    /// Pillion's own ([`policy::pillion`]).
    Pillion(PillionSpec),
    /// MuxFlow's laws for a GPU only: `none`, a throttle and a share.
    MuxFlow(MuxFlowSpec),
    /// Shares of the SMs by the mean latency.
    Gslice(GsliceSpec),
    /// Sleeps of best-effort jobs by the mean latency, and seldom their share.
    GpuColo(GpuColoSpec),
    /// Batches of requests and shares of the SMs by a model of the latency.
    Mudi(MudiSpec),
    /// The clairvoyant bound.
    Oracle(OracleParams),
    /// Any other policy of the daemon's registry.
    Listed(Numbers),
}

/// The numbers of `pillion`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PillionSpec {
    /// As a daemon's.
    pub params: PillionParams,
    /// HP's solo latency is known from the start; otherwise it is learnt, as in the daemon.
    pub is_profiled: bool,
}

/// The numbers of `muxflow`, which are those of [`Laws`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuxFlowSpec {
    /// The throttle's set point, for the share of SMs in use; 1 is the whole GPU.
    pub utilisation: f64,
    /// Its threshold of the SM clock, MHz; 0 is the highest clock of the device, a high-priority
    /// job's solo clock where it leaves much of the device idle.
    pub clock_mhz: u32,
    /// Best-effort jobs' share of the SMs, per cent; 0 is the rest that high-priority ones leave.
    pub share_pct: u32,
}

impl Default for MuxFlowSpec {
    fn default() -> Self {
        Self {
            utilisation: UTILISATION_DEFAULT,
            clock_mhz: 0,
            share_pct: 0,
        }
    }
}

/// The numbers of `orion`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrionSpec {
    /// `DUR_THRESHOLD` in per cent of HP's latency.
    pub dur_threshold_pct: f64,
    /// `SM_THRESHOLD`; `None` is by rule: the device's SMs, or searched for where HP trains.
    pub sm_threshold: Option<u32>,
    /// A training HP's acceptable loss of throughput, in per cent, in that search.
    pub hp_loss_pct: f64,
    /// HP's solo latency is known from the start, as in the paper; otherwise it is learnt.
    pub is_profiled: bool,
    /// `DUR_THRESHOLD` until HP's latency is learnt, in ns.
    pub residual_ns_unknown: u64,
    /// How long a lease lasts, in ns.
    pub lease_ns: u64,
}

impl Default for OrionSpec {
    fn default() -> Self {
        let params = OrionParams::default();
        Self {
            dur_threshold_pct: params.dur_threshold_pct,
            sm_threshold: None,
            hp_loss_pct: LOSS_PCT_MAX,
            is_profiled: true,
            residual_ns_unknown: params.residual_ns_unknown,
            lease_ns: params.lease_ns,
        }
    }
}

/// The numbers of `orion-code`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrionCodeSpec {
    /// `--orion_max_be_duration` in per cent of HP's solo latency. ResNet50: 160 µs, 2.46 %.
    pub dur_threshold_pct: f64,
    /// `max_sms`: 80 whatever the device.
    pub sms: u32,
    /// Requests of a best-effort job in which everything goes.
    pub warmup_requests: u32,
    /// `--orion_hp_limit` as a loss of throughput, in per cent.
    pub hp_loss_pct: f64,
}

impl Default for OrionCodeSpec {
    fn default() -> Self {
        Self {
            dur_threshold_pct: OrionParams::default().dur_threshold_pct,
            sms: 80,
            warmup_requests: 0,
            hp_loss_pct: LOSS_PCT_MAX,
        }
    }
}

const fn param(key: &'static str, about: &'static str, least: f64, most: f64) -> Param {
    Param::new(key, about, (least, most), least)
}

const fn whole(key: &'static str, about: &'static str, least: f64, most: f64) -> Param {
    Param {
        is_whole: true,
        ..param(key, about, least, most)
    }
}

const fn switch(key: &'static str, about: &'static str) -> Param {
    Param {
        is_switch: true,
        ..whole(key, about, 0.0, 1.0)
    }
}

const DUR_THRESHOLD_PCT: Param = param(
    "dur_threshold_pct",
    "limit of best-effort work in flight, in per cent of a high-priority request",
    // Above 0; a daemon refuses less as well.
    0.001,
    100.0,
);
const RESIDUAL_US: Param = param(
    "residual_us",
    "limit of best-effort work in flight while the latency is unknown, in us",
    0.0,
    10_000_000.0,
);
const LEASE_MS: Param = param("lease_ms", "length of a lease, in ms", 1.0, 1_000.0);
const IS_PROFILED: Param = switch(
    "is_profiled",
    "1: the high-priority latency is known from the start; 0: it is learnt",
);
const SM_THRESHOLD: Param = whole(
    "sm_threshold",
    "best-effort kernels run beside high-priority ones only if they need fewer SMs",
    0.0,
    // Needs are not capped at a device's SMs: kernels of Orion's need up to 112 896.
    u32::MAX as f64,
);
const HP_LOSS_PCT: Param = param(
    "hp_loss_pct",
    "throughput that a training high-priority job may lose, in per cent",
    0.0,
    99.0,
);
const TEMPORAL: [Param; 4] = [DUR_THRESHOLD_PCT, IS_PROFILED, RESIDUAL_US, LEASE_MS];
const ORION: [Param; 6] = [
    DUR_THRESHOLD_PCT,
    SM_THRESHOLD,
    HP_LOSS_PCT,
    IS_PROFILED,
    RESIDUAL_US,
    LEASE_MS,
];
const PILLION: [Param; 14] = [
    param(
        "slo_p99",
        "latency that a high-priority request may have, as a multiple of its latency alone",
        1.0,
        100.0,
    ),
    param(
        "slo_throughput",
        "share of its rate alone that a high-priority job that trains keeps; 0: slo_p99 applies",
        0.0,
        1.0,
    ),
    param(
        "slo_ms",
        "latency that a high-priority request may have, in ms; 0: slo_p99 applies",
        0.0,
        1_000_000.0,
    ),
    param(
        "slo_mean",
        "mean latency that marked requests may have, as a multiple of that alone; 0: slo_p99 applies",
        0.0,
        100.0,
    ),
    param(
        "slo_mean_ms",
        "mean latency that marked requests may have, in ms; 0: slo_p99 applies",
        0.0,
        1_000_000.0,
    ),
    switch(
        "block_priority",
        "1: the policy assumes that the device honours priorities between blocks",
    ),
    switch(
        "feedback",
        "1: the bounds follow the measured latencies of requests; 0: the bounds are those of gain 1",
    ),
    switch(
        "beside",
        "1: best-effort work may run beside high-priority work",
    ),
    switch(
        "kernel_pairs",
        "1: below gain 1, best-effort work must suit the high-priority kernels that execute",
    ),
    switch(
        "gap_prediction",
        "1: times without high-priority work are predicted",
    ),
    switch(
        "learnt_durations",
        "1: durations of best-effort kernels are learnt from their completions",
    ),
    IS_PROFILED,
    RESIDUAL_US,
    LEASE_MS,
];
const MUXFLOW: [Param; 3] = [
    param(
        "utilisation",
        "usage of the GPU's SMs that the throttle aims at",
        UTILISATION[0],
        UTILISATION[1],
    ),
    whole(
        "clock_mhz",
        "the throttle's threshold of the SM clock, in MHz; 0: the device's highest clock",
        0.0,
        10_000.0,
    ),
    whole(
        "share_pct",
        "share of the SMs for best-effort jobs, in per cent, at least 10; 0: the SMs that high-priority jobs leave",
        0.0,
        100.0,
    ),
];
const ORION_CODE: [Param; 4] = [
    DUR_THRESHOLD_PCT,
    HP_LOSS_PCT,
    whole(
        "sms",
        "number of SMs that the program assumes",
        0.0,
        65_536.0,
    ),
    whole(
        "warmup_requests",
        "first requests of a best-effort job, whose launches are never held",
        0.0,
        1e6,
    ),
];
const REEF_N: [Param; 1] = [whole(
    "queue_depth",
    "best-effort kernels of a job in flight while HP is idle",
    1.0,
    1_024.0,
)];
const ORACLE: [Param; 1] = [param(
    "loss_pct",
    "how much longer than alone a high-priority request may take, in per cent",
    0.0,
    1_000.0,
)];

/// The least SM clock for a throttle, MHz: no GPU's is below.
const CLOCK_MHZ_MIN: u32 = 100;

const OWN_NAMES: [&str; 16] = [
    "none",
    "temporal",
    "streams",
    "stream-priority",
    "mps",
    "mps-priority",
    "reef-n",
    "orion",
    "orion-code",
    "launch-gate",
    "pillion",
    "muxflow",
    "gslice",
    "gpucolo",
    "mudi",
    "oracle",
];

impl PolicySpec {
    /// The names for lists and messages, in display order. [`PolicySpec::from_str`] also takes
    /// those of `policy::registry::EXAMPLES`.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        let listed = POLICIES.iter().map(|entry| entry.name);
        let others = listed.filter(|name| !OWN_NAMES.contains(name));
        OWN_NAMES.into_iter().chain(others).collect()
    }

    /// The name in options and tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Temporal { .. } => "temporal",
            Self::Streams => "streams",
            Self::StreamPriority => "stream-priority",
            Self::Mps => "mps",
            Self::MpsPriority => "mps-priority",
            Self::ReefN { .. } => "reef-n",
            Self::Orion(_) => "orion",
            Self::OrionCode(_) => "orion-code",
            Self::LaunchGate(_) => "launch-gate",
            Self::Pillion(_) => "pillion",
            Self::MuxFlow(_) => "muxflow",
            Self::Gslice(_) => "gslice",
            Self::GpuColo(_) => "gpucolo",
            Self::Mudi(_) => "mudi",
            Self::Oracle(_) => "oracle",
            Self::Listed(numbers) => numbers.entry().name,
        }
    }

    /// Whether it is meaningful only where kernels of several jobs compute side by side.
    #[must_use]
    pub const fn needs_mps(&self) -> bool {
        match self {
            Self::None
            | Self::Temporal { .. }
            | Self::Orion(_)
            | Self::LaunchGate(_)
            | Self::Pillion(_)
            | Self::Listed(_) => false,
            Self::Streams
            | Self::StreamPriority
            | Self::Mps
            | Self::MpsPriority
            | Self::ReefN { .. }
            | Self::OrionCode(_)
            | Self::MuxFlow(_)
            | Self::Gslice(_)
            | Self::GpuColo(_)
            | Self::Mudi(_)
            | Self::Oracle(_) => true,
        }
    }

    /// The policy that makes the very same run with this sharing, the first of its kind: on the
    /// device model the streams of one process compute side by side as those of several do under
    /// MPS, and a daemon that holds nobody leaves the effect of priorities.
    #[must_use]
    pub const fn alike(&self, sharing: Sharing) -> Self {
        match (self, sharing) {
            (Self::Streams, Sharing::Mps) => Self::Mps,
            (Self::StreamPriority | Self::None, Sharing::Mps) => Self::MpsPriority,
            _ => *self,
        }
    }

    /// Whether it is one of a daemon's, or made of a daemon's parts.
    #[must_use]
    pub const fn is_leased(&self) -> bool {
        matches!(
            self,
            Self::None
                | Self::Temporal { .. }
                | Self::Orion(_)
                | Self::LaunchGate(_)
                | Self::Pillion(_)
                | Self::MuxFlow(_)
                | Self::Listed(_)
        )
    }

    /// The laws in force with the experiment's `told`: some are a policy's own.
    #[must_use]
    pub fn laws(&self, told: &Laws) -> Laws {
        match self {
            Self::MuxFlow(spec) => spec.laws(),
            _ => *told,
        }
    }

    /// [`Error::Policy`]: the policy ignores such laws, or its own are invalid.
    pub(crate) fn check_laws(&self, told: &Laws) -> Result<(), Error> {
        let name = self.name();
        if let Self::MuxFlow(spec) = self {
            let MuxFlowSpec {
                share_pct,
                clock_mhz,
                ..
            } = spec;
            let what = match (told.is_empty(), *share_pct, *clock_mhz) {
                (false, ..) => {
                    "the policy has its own throttle and share; nearest are its numbers \
                     utilisation, clock_mhz and share_pct"
                        .to_owned()
                }
                (_, 1..PERCENT_MIN, _) => {
                    format!(
                        "share_pct is {share_pct}, expected 0 or {PERCENT_MIN} to 100; nearest is \
                         {PERCENT_MIN}"
                    )
                }
                (.., 1..CLOCK_MHZ_MIN) => {
                    format!(
                        "clock_mhz is {clock_mhz}, expected 0 or {CLOCK_MHZ_MIN} to 10000; nearest \
                         is {CLOCK_MHZ_MIN}"
                    )
                }
                _ => return Ok(()),
            };
            return Err(Error::Policy(format!("{name}: {what}")));
        }
        if !told.is_empty() && !self.is_leased() {
            return Err(Error::Policy(format!(
                "{name} is not a policy of the daemon, so [throttle] and [share] do not apply"
            )));
        }
        Ok(())
    }

    /// Whether it knows the future, and so asks no profile.
    #[must_use]
    pub const fn is_clairvoyant(&self) -> bool {
        matches!(self, Self::Oracle(_))
    }

    /// Whether it supports a dying job. The publications of the others do not cover it.
    #[must_use]
    pub const fn outlives_jobs(&self) -> bool {
        !matches!(
            self,
            Self::ReefN { .. } | Self::OrionCode(_) | Self::Oracle(_)
        )
    }

    /// The numbers of this policy.
    #[must_use]
    pub fn params(&self) -> &'static [Param] {
        match self {
            Self::Temporal { .. } => &TEMPORAL,
            Self::Orion(_) => &ORION,
            Self::OrionCode(_) => &ORION_CODE,
            Self::LaunchGate(_) => &[LEASE_MS],
            Self::Pillion(_) => &PILLION,
            Self::MuxFlow(_) => &MUXFLOW,
            Self::Gslice(_) => &GSLICE,
            Self::GpuColo(_) => &GPUCOLO,
            Self::Mudi(_) => &MUDI,
            Self::ReefN { .. } => &REEF_N,
            Self::Oracle(_) => &ORACLE,
            Self::Listed(numbers) => numbers.entry().params(),
            Self::None | Self::Streams | Self::StreamPriority | Self::Mps | Self::MpsPriority => {
                &[]
            }
        }
    }

    /// Sets the number `key`; its [`Param`] must accept `value`. False if there is no such number.
    pub fn set(&mut self, key: &str, value: f64) -> bool {
        let (ns_of_us, ns_of_ms) = ((value * 1e3) as u64, (value * 1e6) as u64);
        match (self, key) {
            (Self::Pillion(spec), key) => return spec.set(key, value),
            (Self::Gslice(spec), key) => return spec.set(key, value),
            (Self::GpuColo(spec), key) => return spec.set(key, value),
            (Self::Mudi(spec), key) => return spec.set(key, value),
            (Self::Listed(numbers), key) => return numbers.set(key, value),
            (Self::Temporal { params, .. }, "dur_threshold_pct") => {
                params.dur_threshold_pct = value;
            }
            (Self::Temporal { params, .. }, "residual_us") => params.residual_ns_unknown = ns_of_us,
            (Self::Temporal { params, .. }, "lease_ms") => params.lease_ns = ns_of_ms,
            (Self::Temporal { is_profiled, .. }, "is_profiled") => *is_profiled = value != 0.0,
            (Self::Orion(spec), "dur_threshold_pct") => spec.dur_threshold_pct = value,
            (Self::Orion(spec), "sm_threshold") => spec.sm_threshold = Some(value as u32),
            (Self::Orion(spec), "hp_loss_pct") => spec.hp_loss_pct = value,
            (Self::Orion(spec), "is_profiled") => spec.is_profiled = value != 0.0,
            (Self::Orion(spec), "residual_us") => spec.residual_ns_unknown = ns_of_us,
            (Self::Orion(spec), "lease_ms") => spec.lease_ns = ns_of_ms,
            (Self::OrionCode(spec), "dur_threshold_pct") => spec.dur_threshold_pct = value,
            (Self::OrionCode(spec), "hp_loss_pct") => spec.hp_loss_pct = value,
            (Self::OrionCode(spec), "sms") => spec.sms = value as u32,
            (Self::OrionCode(spec), "warmup_requests") => spec.warmup_requests = value as u32,
            (Self::LaunchGate(params), "lease_ms") => params.lease_ns = ns_of_ms,
            (Self::ReefN { queue_depth }, "queue_depth") => *queue_depth = value as u32,
            (Self::MuxFlow(spec), "utilisation") => spec.utilisation = value,
            (Self::MuxFlow(spec), "clock_mhz") => spec.clock_mhz = value as u32,
            (Self::MuxFlow(spec), "share_pct") => spec.share_pct = value as u32,
            (Self::Oracle(params), "loss_pct") => params.loss_pct = value,
            _ => return false,
        }
        true
    }

    /// Sets the target of HP requests, `slo_p99` in a daemon's form; false if this policy has none.
    pub fn set_slo(&mut self, slo: Slo) -> bool {
        match self {
            Self::Pillion(spec) => {
                spec.params.slo = Some(slo);
                true
            }
            _ => false,
        }
    }

    /// The number `key` in force; `None` if there is none, or it follows from the experiment.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<f64> {
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        let (us, ms) = (|ns: u64| ns as f64 / 1e3, |ns: u64| ns as f64 / 1e6);
        Some(match (self, key) {
            (Self::Pillion(spec), key) => spec.param(key)?,
            (Self::Gslice(spec), key) => spec.param(key)?,
            (Self::GpuColo(spec), key) => spec.param(key)?,
            (Self::Mudi(spec), key) => spec.param(key)?,
            (Self::Listed(numbers), key) => numbers.get(key)?,
            (Self::Temporal { params, .. }, "dur_threshold_pct") => params.dur_threshold_pct,
            (Self::Temporal { params, .. }, "residual_us") => us(params.residual_ns_unknown),
            (Self::Temporal { params, .. }, "lease_ms") => ms(params.lease_ns),
            (Self::Temporal { is_profiled, .. }, "is_profiled") => flag(*is_profiled),
            (Self::Orion(spec), "dur_threshold_pct") => spec.dur_threshold_pct,
            (Self::Orion(spec), "sm_threshold") => spec.sm_threshold?.into(),
            (Self::Orion(spec), "hp_loss_pct") => spec.hp_loss_pct,
            (Self::Orion(spec), "is_profiled") => flag(spec.is_profiled),
            (Self::Orion(spec), "residual_us") => us(spec.residual_ns_unknown),
            (Self::Orion(spec), "lease_ms") => ms(spec.lease_ns),
            (Self::OrionCode(spec), "dur_threshold_pct") => spec.dur_threshold_pct,
            (Self::OrionCode(spec), "hp_loss_pct") => spec.hp_loss_pct,
            (Self::OrionCode(spec), "sms") => spec.sms.into(),
            (Self::OrionCode(spec), "warmup_requests") => spec.warmup_requests.into(),
            (Self::LaunchGate(params), "lease_ms") => ms(params.lease_ns),
            (Self::ReefN { queue_depth }, "queue_depth") => (*queue_depth).into(),
            (Self::MuxFlow(spec), "utilisation") => spec.utilisation,
            (Self::MuxFlow(spec), "clock_mhz") => spec.clock_mhz.into(),
            (Self::MuxFlow(spec), "share_pct") => spec.share_pct.into(),
            (Self::Oracle(params), "loss_pct") => params.loss_pct,
            _ => return None,
        })
    }
}

impl MuxFlowSpec {
    fn laws(self) -> Laws {
        let throttle = ThrottleParams {
            utilisation: self.utilisation,
            clock_mhz: (self.clock_mhz > 0).then_some(self.clock_mhz),
        };
        let share = match self.share_pct {
            0 => ShareMode::Dynamic,
            percent => ShareMode::Static(percent),
        };
        Laws {
            throttle: Some(throttle),
            share: Some(share),
            by_sm_activity: true,
        }
    }
}

impl PillionSpec {
    fn set(&mut self, key: &str, value: f64) -> bool {
        let params = &mut self.params;
        let is_on = value != 0.0;
        match key {
            "slo_p99" => params.slo = Some(Slo::Slowdown(value)),
            "slo_throughput" if value > 0.0 => params.slo = Some(Slo::Throughput(value)),
            "slo_throughput" => {}
            "slo_ms" if value > 0.0 => params.slo = Some(Slo::LatencyNs((value * 1e6) as u64)),
            "slo_ms" => {}
            "slo_mean" if value > 0.0 => params.slo = Some(Slo::MeanSlowdown(value)),
            "slo_mean_ms" if value > 0.0 => params.slo = Some(Slo::MeanNs((value * 1e6) as u64)),
            "slo_mean" | "slo_mean_ms" => {}
            "block_priority" => params.block_priority = is_on,
            "feedback" => params.feedback = is_on,
            "beside" => params.beside = is_on,
            "kernel_pairs" => params.kernel_pairs = is_on,
            "gap_prediction" => params.gap_prediction = is_on,
            "learnt_durations" => params.learnt_durations = is_on,
            "is_profiled" => self.is_profiled = is_on,
            "residual_us" => params.residual_ns_unknown = (value * 1e3) as u64,
            "lease_ms" => params.lease_ns = (value * 1e6) as u64,
            _ => return false,
        }
        true
    }

    fn param(&self, key: &str) -> Option<f64> {
        let params = &self.params;
        let flag = |is_set: bool| f64::from(u8::from(is_set));
        Some(match (key, params.goal(false).slo) {
            ("slo_p99", Slo::Slowdown(slowdown)) => slowdown,
            ("slo_ms", Slo::LatencyNs(latency_ns)) => latency_ns as f64 / 1e6,
            ("slo_mean", Slo::MeanSlowdown(slowdown)) => slowdown,
            ("slo_mean_ms", Slo::MeanNs(ns)) => ns as f64 / 1e6,
            ("slo_ms" | "slo_mean" | "slo_mean_ms", _) => 0.0,
            ("slo_throughput", Slo::Throughput(share)) => share,
            ("slo_throughput", _) => 0.0,
            ("block_priority", _) => flag(params.block_priority),
            ("feedback", _) => flag(params.feedback),
            ("beside", _) => flag(params.beside),
            ("kernel_pairs", _) => flag(params.kernel_pairs),
            ("gap_prediction", _) => flag(params.gap_prediction),
            ("learnt_durations", _) => flag(params.learnt_durations),
            ("is_profiled", _) => flag(self.is_profiled),
            ("residual_us", _) => params.residual_ns_unknown as f64 / 1e3,
            ("lease_ms", _) => params.lease_ns as f64 / 1e6,
            _ => return None,
        })
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicySpec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "none" => Self::None,
            "temporal" => Self::Temporal {
                params: TemporalParams::default(),
                is_profiled: true,
            },
            "streams" => Self::Streams,
            "stream-priority" => Self::StreamPriority,
            "mps" => Self::Mps,
            "mps-priority" => Self::MpsPriority,
            "reef-n" => Self::ReefN {
                queue_depth: ReefNParams::new(0).depth,
            },
            "orion" => Self::Orion(OrionSpec::default()),
            "orion-code" => Self::OrionCode(OrionCodeSpec::default()),
            "launch-gate" => Self::LaunchGate(LaunchGateParams::default()),
            "pillion" => Self::Pillion(PillionSpec::default()),
            "muxflow" => Self::MuxFlow(MuxFlowSpec::default()),
            "gslice" => Self::Gslice(GsliceSpec::default()),
            "gpucolo" => Self::GpuColo(GpuColoSpec::default()),
            "mudi" => Self::Mudi(MudiSpec::default()),
            "oracle" => Self::Oracle(OracleParams::default()),
            _ => match name.parse() {
                Ok(Policy::Listed(numbers)) => Self::Listed(numbers),
                _ => {
                    let names = Self::names().join(", ");
                    return Err(Error::Policy(format!(
                        "unknown policy `{name}`: policies are {names}"
                    )));
                }
            },
        })
    }
}
