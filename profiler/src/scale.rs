//! Scales a profile of one GPU to another. A launch is looked up by name and shape, on any GPU; its
//! duration, SM need and bound differ between GPUs. A profile is therefore scaled once before its
//! use on another GPU. The law is the *wave scaling* of Habitat (Yu et al., "A Runtime-Based
//! Computational Performance Predictor for Deep Neural Network Training", USENIX ATC'21):
//! ```text
//! T_d = T_o × (D_o ÷ D_d)^γ × (waves_d ÷ waves_o × C_o ÷ C_d)^(1 − γ)
//! ```
//! with D the bandwidth of device memory, C the clock, waves the rounds in which the grid's blocks
//! run, and γ how much a kernel is bound by memory. Habitat takes γ from counted operations and
//! bytes (1 for bytes only, ½ at the ridge, towards 0 above). Here γ follows from the class, by
//! readings of our own:
//! - `memory`: γ = 1, time goes with bandwidth alone. (Habitat also multiplies by the ratio of the
//!   waves' sizes, so that more SMs with the same bandwidth make a small grid slower; left out.)
//! - `compute`: γ = 0. A busy SM works through its blocks at its own rate however many are
//!   resident, so a wave is a block on each SM, and C is clock × FP32 units of an SM.
//! - `unknown`: the slower of the two, with waves of as many blocks as are resident and the clock
//!   alone: such a kernel waits for latency, which more bandwidth or units do not shorten. Too high
//!   an expectation costs best-effort work a little, too low a one costs HP latency.
//!
//! No launch is expected to end sooner than the peaks allow for its counted work. Every duration is
//! therefore monotone: more SMs, a higher clock or more bandwidth never make it longer; and on a
//! GPU of the same figures nothing changes.
//!
//! The SM need follows from the occupancy of the other architecture, where the calculator
//! reproduces the measurement on the first. Classes are judged anew: by the throughputs, each in
//! percent of the other GPU's peak (L2's is assumed to go with bandwidth), or by its ridge where
//! the roofline decided. Scaled values are less certain; their rule is [`ClassRule::Scaled`].
//! Habitat's published average error, over whole training iterations on six GPUs and with learnt
//! models for what libraries choose by architecture, is 11.8 %; `tests/scaling.rs` has kernels that
//! ran on several GPUs. A library's different implementation on another architecture has another
//! name, and is not found in the profile.

use std::fmt;

use devices::Device;

use crate::ResourceClass;
use crate::limits::{DURATION_NS_MAX, SM_NEEDED_MAX};
use crate::occupancy::{Block, SmLimits, block_limits, blocks, sms_needed, threads};
use crate::profile::{
    ClassRule, Durations, KernelProfile, Measured, Percent, Profile, Requests, Roofline,
};
use crate::resource_class::BOUND_PCT;

/// The properties of a GPU that determine durations. Unknown ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its name: the device table's, or the driver's.
    pub name: String,
    /// SMs visible to the job.
    pub sms: Option<u32>,
    /// Highest clock of the SMs, MHz.
    pub clock_mhz: Option<u32>,
    /// Peak bandwidth of device memory, 10⁹ bytes per second.
    pub bandwidth_gb_s: Option<u32>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
}

/// How a profile fits its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Measured on that model.
    Measured,
    /// Measured on another model and scaled.
    Scaled {
        /// The GPU it was measured on.
        from: String,
        /// The GPU it is used on.
        to: String,
    },
    /// Measured on another model and used unchanged.
    Unscaled {
        /// The GPU it was measured on.
        from: String,
        /// The GPU it is used on.
        to: String,
        /// The one of the two with unknown peaks.
        unknown: String,
    },
}

impl Fit {
    /// One word for programs: `measured`, `scaled` or `unscaled`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Scaled { .. } => "scaled",
            Self::Unscaled { .. } => "unscaled",
        }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => formatter.write_str("measured on this model of GPU"),
            Self::Scaled { from, to } => write!(
                formatter,
                "measured on {from} and scaled to {to}: durations and classes are less certain than measured ones"
            ),
            Self::Unscaled { from, to, unknown } => write!(
                formatter,
                "measured on {from} and used unscaled on {to}, because the peaks of {unknown} are not known"
            ),
        }
    }
}

impl From<&Device> for Gpu {
    fn from(device: &Device) -> Self {
        let capability = device.compute_capability;
        Self {
            name: device.name.clone(),
            sms: Some(device.sms),
            clock_mhz: Some(device.max_clock_mhz),
            bandwidth_gb_s: Some(device.bandwidth_gb_s),
            compute_capability: Some((capability.major, capability.minor)),
        }
    }
}

impl Gpu {
    /// The GPU of `profile`: as its sources described it, the rest from the device table.
    #[must_use]
    pub fn of_profile(profile: &Profile) -> Self {
        let measured = profile.measured.clone().unwrap_or_default();
        let gpu = Self {
            name: profile.gpu.clone(),
            sms: measured.sms,
            clock_mhz: measured.clock_mhz,
            bandwidth_gb_s: measured.bandwidth_gb_s,
            compute_capability: measured.compute_capability,
        };
        gpu.completed()
    }

    /// Fills unknowns from the device table: of the model; else of the chip, without memory.
    #[must_use]
    pub fn completed(mut self) -> Self {
        let model = devices::model_of(&self.name).map(Self::from);
        if let Some(chip) = devices::relative_of(&self.name).map(Self::from) {
            self.sms = self.sms.or(chip.sms);
            self.clock_mhz = self.clock_mhz.or(chip.clock_mhz);
            self.compute_capability = self.compute_capability.or(chip.compute_capability);
        }
        self.bandwidth_gb_s = self
            .bandwidth_gb_s
            .or(model.and_then(|model| model.bandwidth_gb_s));
        self
    }

    /// Whether durations hold on `other`: same model, as many SMs (MPS limits and MIG show fewer).
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let is_same_model = match (
            devices::model_of(&self.name),
            devices::model_of(&other.name),
        ) {
            (Some(one), Some(two)) => one.name == two.name,
            _ => self.name.eq_ignore_ascii_case(&other.name),
        };
        is_same_model && self.sms.zip(other.sms).is_none_or(|(one, two)| one == two)
    }

    /// Whether enough is known of it to scale from or to it.
    #[must_use]
    pub fn can_be_scaled(&self) -> bool {
        self.figures().is_some()
    }

    fn figures(&self) -> Option<Figures> {
        let positive = |value: Option<u32>| value.filter(|&value| value > 0).map(f64::from);
        let capability = self.compute_capability;
        Some(Figures {
            sms: self.sms.filter(|&sms| sms > 0)?,
            clock: positive(self.clock_mhz)?,
            bandwidth: positive(self.bandwidth_gb_s)?,
            lanes: capability.and_then(|(major, minor)| devices::fp32_per_clk_per_sm(major, minor)),
            sm: capability.and_then(|(major, minor)| SmLimits::of(major, minor)),
        })
    }

    fn table_name(&self) -> String {
        let model = devices::model_of(&self.name);
        model.map_or_else(|| self.name.clone(), |model| model.name.clone())
    }
}

struct Figures {
    sms: u32,
    /// MHz.
    clock: f64,
    /// GB/s.
    bandwidth: f64,
    /// FP32 units of an SM, where the architecture is known.
    lanes: Option<u32>,
    sm: Option<SmLimits>,
}

/// How `profile` would fit the GPU `to`.
#[must_use]
pub fn fit(profile: &Profile, to: &Gpu) -> Fit {
    law(profile, &to.clone().completed()).1
}

/// `profile` for the GPU `to`, and how it fits. Changed only from another one with known figures.
#[must_use]
pub fn scale(mut profile: Profile, to: &Gpu) -> (Profile, Fit) {
    let to = to.clone().completed();
    let (law, fit) = law(&profile, &to);
    let Some(law) = law else {
        return (profile, fit);
    };
    let before_ns = order_ns(&profile);
    for kernel in &mut profile.kernels {
        law.scale(kernel);
    }
    let after_ns = order_ns(&profile);
    if let Some(requests) = &mut profile.requests {
        requests.latency = shifted(requests, before_ns, after_ns);
    }
    profile.gpu = to.table_name();
    profile.notices.push(fit.to_string());
    profile.measured = Some(Measured {
        sms: to.sms,
        compute_capability: to.compute_capability,
        clock_mhz: to.clock_mhz,
        bandwidth_gb_s: to.bandwidth_gb_s,
    });
    (profile, fit)
}

fn law(profile: &Profile, to: &Gpu) -> (Option<Law>, Fit) {
    let from = Gpu::of_profile(profile);
    if from.is_like(to) {
        return (None, Fit::Measured);
    }
    let (from_name, to_name) = (profile.gpu.clone(), to.table_name());
    match (from.figures(), to.figures()) {
        (Some(from), Some(to)) => {
            let fit = Fit::Scaled {
                from: from_name,
                to: to_name,
            };
            (Some(Law { from, to }), fit)
        }
        (of_from, _) => {
            let unknown = if of_from.is_none() {
                &from_name
            } else {
                &to_name
            };
            let unknown = unknown.clone();
            (
                None,
                Fit::Unscaled {
                    from: from_name,
                    to: to_name,
                    unknown,
                },
            )
        }
    }
}

fn order_ns(profile: &Profile) -> f64 {
    let median = |index: usize| {
        profile
            .kernels
            .get(index)
            .map_or(0, |kernel| kernel.durations.median_ns)
    };
    let order = profile
        .requests
        .as_ref()
        .map(|Requests { order, .. }| order.as_slice());
    let in_order = order.unwrap_or_default().iter();
    in_order
        .map(|&(kernel, times)| median(kernel as usize) as f64 * f64::from(times))
        .sum()
}

struct Law {
    from: Figures,
    to: Figures,
}

impl Law {
    fn scale(&self, kernel: &mut KernelProfile) {
        let blocks_before = kernel.evidence.blocks_per_sm;
        let blocks_after = self.blocks_per_sm(kernel);
        let factor = self.factor(kernel, blocks_before, blocks_after);
        kernel.durations = stretched(kernel.durations, factor);
        if kernel.grid != [0; 3]
            && let Some(fit) = blocks_after
        {
            let sms = sms_needed(kernel.grid, fit);
            kernel.sm_needed = u32::try_from(sms)
                .unwrap_or(u32::MAX)
                .clamp(1, SM_NEEDED_MAX);
        }
        let ridge_side = self.ridge_side(kernel);
        let evidence = &mut kernel.evidence;
        evidence.blocks_per_sm = blocks_after;
        let of_compute =
            |percent: Percent| Percent::new(percent.value() / (self.compute_ratio() * factor));
        let of_memory =
            |percent: Percent| Percent::new(percent.value() / (self.bandwidth_ratio() * factor));
        evidence.compute_pct = evidence.compute_pct.and_then(of_compute);
        evidence.dram_pct = evidence.dram_pct.and_then(of_memory);
        evidence.l2_pct = evidence.l2_pct.and_then(of_memory);
        // None of the figures gives the peak of the L1 caches, nor of the busiest part.
        evidence.memory_pct = None;
        evidence.l1_pct = None;
        evidence.roofline = evidence.roofline.map(|place| Roofline {
            mflop_per_s: (place.mflop_per_s as f64 / factor) as u64,
            mbyte_per_s: (place.mbyte_per_s as f64 / factor) as u64,
        });
        // A name's evidence holds on any GPU; durations do not rest on it.
        if !matches!(kernel.class_rule, ClassRule::Unknown | ClassRule::Name) {
            kernel.class = judged(kernel, ridge_side);
            kernel.class_rule = ClassRule::Scaled;
        }
    }

    fn factor(&self, kernel: &KernelProfile, before: Option<u32>, after: Option<u32>) -> f64 {
        let clock = self.from.clock / self.to.clock;
        let memory = 1.0 / self.bandwidth_ratio();
        let rounds = |resident: (u32, u32)| {
            if kernel.grid == [0; 3] {
                return f64::from(self.from.sms) / f64::from(self.to.sms);
            }
            let rounds = |figures: &Figures, resident: u32| {
                let wave = u64::from(figures.sms) * u64::from(resident.max(1));
                blocks(kernel.grid).div_ceil(wave).max(1) as f64
            };
            rounds(&self.to, resident.1) / rounds(&self.from, resident.0)
        };
        // An estimate by name must not make a launch shorter than certain knowledge does.
        let class = match kernel.class_rule {
            ClassRule::Name => ResourceClass::Unknown,
            _ => kernel.class,
        };
        let by_class = match class {
            ResourceClass::Memory => memory,
            ResourceClass::Compute => rounds((1, 1)) * clock * self.lanes_ratio().recip(),
            ResourceClass::Unknown => {
                let resident = before.zip(after).unwrap_or((1, 1));
                memory.max(rounds(resident) * clock)
            }
        };
        let evidence = &kernel.evidence;
        // No faster than the peaks allow. A little over 100 % is the counter's error.
        let floor = |percent: Option<Percent>, ratio: f64| {
            percent.map_or(0.0, |percent| percent.value().min(100.0) / 100.0 / ratio)
        };
        by_class
            .max(floor(evidence.compute_pct, self.compute_ratio()))
            .max(floor(evidence.dram_pct, self.bandwidth_ratio()))
    }

    /// Bandwidth of the other GPU ÷ of the first.
    fn bandwidth_ratio(&self) -> f64 {
        self.to.bandwidth / self.from.bandwidth
    }

    /// The same for FP32 units of an SM; 1 where an architecture is unknown.
    fn lanes_ratio(&self) -> f64 {
        let lanes = self.to.lanes.zip(self.from.lanes);
        lanes.map_or(1.0, |(to, from)| f64::from(to) / f64::from(from))
    }

    /// The same for the peak of all SMs.
    fn compute_ratio(&self) -> f64 {
        let sms = f64::from(self.to.sms) / f64::from(self.from.sms);
        sms * self.to.clock / self.from.clock * self.lanes_ratio()
    }

    /// Blocks on an SM of the other GPU: from the calculator, where that reproduces the measurement
    /// on the first; otherwise the measurement, as far as it fits.
    fn blocks_per_sm(&self, kernel: &KernelProfile) -> Option<u32> {
        let measured = kernel.evidence.blocks_per_sm?;
        let fit = |sm: &SmLimits| {
            let block = Block {
                threads: threads(kernel.block),
                registers: kernel.registers,
                shared_bytes: kernel
                    .shared_bytes
                    .saturating_add(kernel.evidence.static_shared_bytes.unwrap_or(0))
                    .saturating_add(sm.shared_reserved_bytes),
            };
            block_limits(sm, &block, None).least()
        };
        let (Some(from), Some(to)) = (&self.from.sm, &self.to.sm) else {
            return Some(measured);
        };
        let (before, after) = (fit(from), fit(to));
        let scaled = if before == measured {
            after
        } else if after < before {
            measured.min(after)
        } else {
            measured
        };
        Some(scaled.max(1))
    }

    /// The kernel's side of the ridge on both GPUs, if operations and bytes were counted.
    fn ridge_side(&self, kernel: &KernelProfile) -> Option<(ResourceClass, ResourceClass)> {
        let place = kernel.evidence.roofline?;
        let intensity = place.mflop_per_s as f64 / place.mbyte_per_s.max(1) as f64;
        let side = |figures: &Figures| {
            let gflop_per_s =
                f64::from(figures.sms) * f64::from(figures.lanes?) * 2.0 * figures.clock / 1e3;
            let is_compute = intensity >= gflop_per_s / figures.bandwidth;
            Some(if is_compute {
                ResourceClass::Compute
            } else {
                ResourceClass::Memory
            })
        };
        side(&self.from).zip(side(&self.to))
    }
}

fn judged(
    kernel: &KernelProfile,
    ridge_side: Option<(ResourceClass, ResourceClass)>,
) -> ResourceClass {
    let evidence = &kernel.evidence;
    let memory_pct = evidence.dram_pct.max(evidence.l2_pct);
    if let Some((compute, memory)) = evidence.compute_pct.zip(memory_pct) {
        if compute.max(memory).value() >= BOUND_PCT {
            let is_compute = compute >= memory;
            return if is_compute {
                ResourceClass::Compute
            } else {
                ResourceClass::Memory
            };
        }
        if kernel.class_rule == ClassRule::Throughput {
            return ResourceClass::Unknown;
        }
    }
    match (kernel.class_rule, ridge_side) {
        (ClassRule::Roofline, Some((before, after))) if before != after => after,
        _ => kernel.class,
    }
}

/// Latencies of requests: the GPU's idle time between kernels is the host's, and stays.
fn shifted(requests: &Requests, before_ns: f64, after_ns: f64) -> Durations {
    let more_ns = after_ns - before_ns;
    let shift =
        |ns: u64, times: f64| (ns as f64 + more_ns * times).max(after_ns * times).ceil() as u64;
    let latency = requests.latency;
    if requests.order.is_empty() || more_ns.abs() < 1.0 {
        return latency;
    }
    let p95_ns = shift(latency.p95_ns, 1.0).clamp(1, DURATION_NS_MAX);
    Durations {
        sum_ns: shift(latency.sum_ns, requests.count as f64)
            .clamp(p95_ns, i64::MAX.cast_unsigned()),
        median_ns: shift(latency.median_ns, 1.0).clamp(1, p95_ns),
        p95_ns,
    }
}

fn stretched(durations: Durations, factor: f64) -> Durations {
    let times = |ns: u64| (ns as f64 * factor).ceil() as u64;
    // A quotient of equal figures is 1, and a sum may have more digits than a double.
    if (factor - 1.0).abs() < 1e-12 || !factor.is_finite() {
        return durations;
    }
    let p95_ns = times(durations.p95_ns).clamp(1, DURATION_NS_MAX);
    Durations {
        sum_ns: times(durations.sum_ns).clamp(p95_ns, i64::MAX.cast_unsigned()),
        median_ns: times(durations.median_ns).clamp(1, p95_ns),
        p95_ns,
    }
}

#[cfg(test)]
mod tests;
