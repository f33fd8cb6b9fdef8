//! One group as an entry of the profile.

use profiler::family::{Intensity, Launch};
use profiler::limits::{DURATION_NS_MAX, SM_NEEDED_MAX};
use profiler::profile::{Durations, Evidence, Percent, Roofline};
use profiler::quantile::{MEDIAN_PER_MILLE, P95_PER_MILLE, nearest_rank};
use profiler::{ClassRule, Estimate, KernelProfile};

use super::choose::Choice;
use super::group::{Group, shared_bytes};
use super::{OUTLIER_FACTOR, OUTLIER_LAUNCHES_MIN};
use crate::classify::{Ridge, by_name, classify};
use crate::occupancy;
use crate::source::{Counters, Kernel, StatedLimits, Summary};

pub(super) fn profile_of(group: &Group<'_>, choice: &Choice) -> Option<KernelProfile> {
    let (count, durations, outliers) = durations(group)?;
    let kernel = group.kernel;
    if let (Some(known), true) = (group.known, group.counters.is_empty()) {
        return Some(judged(group, known, count, durations, outliers, choice));
    }
    let counters = mean(&group.counters).map(|counters| with_dram_pct(counters, choice));
    let blocks_per_sm = blocks_per_sm(group, choice);
    let verdict = classify(counters.as_ref(), group.work, ridge(choice));
    let sm_needed = sm_needed(kernel, blocks_per_sm);
    let launch = Launch {
        name: &kernel.names.shown,
        sm_needed: kernel.grid.map(|_| sm_needed),
        device_sms: sms(choice),
        duration_ns: Some(durations.median_ns),
        intensity: kernel.operator.as_deref().and_then(Intensity::of),
    };
    let (verdict, estimate) = by_name(verdict, group.work, &launch);
    let percent = |value: Option<f64>| value.and_then(Percent::new);
    let of_counters =
        |field: fn(&Counters) -> Option<f64>| percent(counters.as_ref().and_then(field));
    Some(KernelProfile {
        name: kernel.names.shown.to_string(),
        mangled: mangled(group),
        grid: kernel.grid.unwrap_or([0; 3]),
        block: kernel.block.unwrap_or([0; 3]),
        shared_bytes: shared_bytes(kernel),
        count,
        durations,
        registers: kernel
            .registers
            .or(group.counted.and_then(|k| k.registers))
            .unwrap_or(0),
        sm_needed,
        class: verdict.0,
        class_rule: verdict.1,
        evidence: Evidence {
            static_shared_bytes: kernel.shared.static_bytes,
            blocks_per_sm,
            outliers: Some(outliers).filter(|&outliers| outliers > 0),
            compute_pct: of_counters(|counters| counters.compute_pct),
            memory_pct: of_counters(|counters| counters.memory_pct),
            dram_pct: of_counters(|counters| counters.dram_pct),
            l2_pct: of_counters(|counters| counters.l2_pct),
            l1_pct: of_counters(|counters| counters.l1_pct),
            roofline: counters.as_ref().and_then(roofline),
            class_family: estimate.and_then(|estimate| estimate.family),
            class_confidence_pct: confidence(estimate),
        },
        operator: kernel.operator.as_deref().cloned(),
    })
}

/// The entry of a judged group without counters since. Without evidence, the name decides.
fn judged(
    group: &Group<'_>,
    known: &KernelProfile,
    count: u64,
    durations: Durations,
    outliers: u64,
    choice: &Choice,
) -> KernelProfile {
    let launch = Launch {
        name: &group.kernel.names.shown,
        sm_needed: (known.grid != [0; 3]).then_some(known.sm_needed),
        device_sms: sms(choice),
        duration_ns: Some(durations.median_ns),
        intensity: known.operator.as_ref().and_then(Intensity::of),
    };
    let ((class, class_rule), estimate) = match known.class_rule {
        ClassRule::Unknown => by_name((known.class, ClassRule::Unknown), None, &launch),
        rule => ((known.class, rule), None),
    };
    // For sums, the profile's own outliers are in `known`; launches seen here have theirs.
    let outliers = if group.durations_ns.is_empty() {
        known.evidence.outliers
    } else {
        Some(outliers).filter(|&outliers| outliers > 0)
    };
    KernelProfile {
        name: group.kernel.names.shown.to_string(),
        mangled: mangled(group).or_else(|| known.mangled.clone()),
        count,
        durations,
        class,
        class_rule,
        evidence: Evidence {
            outliers,
            class_family: known
                .evidence
                .class_family
                .or(estimate.and_then(|estimate| estimate.family)),
            class_confidence_pct: known.evidence.class_confidence_pct.or(confidence(estimate)),
            ..known.evidence.clone()
        },
        ..known.clone()
    }
}

fn confidence(estimate: Option<Estimate>) -> Option<Percent> {
    Percent::new(f64::from(estimate?.confidence_pct?))
}

fn sms(choice: &Choice) -> Option<u32> {
    choice.gpu.sms.or(choice.device.map(|device| device.sms))
}

fn mangled(group: &Group<'_>) -> Option<String> {
    let of = |kernel: &Kernel| kernel.names.mangled.clone();
    let mangled = of(group.kernel).or_else(|| group.counted.and_then(of))?;
    (mangled != group.kernel.names.shown).then(|| mangled.to_string())
}

fn durations(group: &Group<'_>) -> Option<(u64, Durations, u64)> {
    if group.durations_ns.is_empty() {
        return of_summaries(&group.summaries);
    }
    let mut samples = group.durations_ns.clone();
    samples.sort_unstable();
    let median_ns = nearest_rank(&samples, MEDIAN_PER_MILLE)?;
    let most = if samples.len() >= OUTLIER_LAUNCHES_MIN {
        median_ns.max(1).saturating_mul(OUTLIER_FACTOR)
    } else {
        u64::MAX
    };
    let usual = samples.partition_point(|&sample| sample <= most);
    let rest = samples.get(..usual).unwrap_or(&samples);
    let sum_ns = samples
        .iter()
        .fold(0, |sum: u64, &sample| sum.saturating_add(sample));
    let durations = possible(Durations {
        sum_ns,
        median_ns: nearest_rank(rest, MEDIAN_PER_MILLE)?,
        p95_ns: nearest_rank(rest, P95_PER_MILLE)?,
    });
    Some((
        samples.len() as u64,
        durations,
        (samples.len() - usual) as u64,
    ))
}

/// Of sums: their median, and the longest as the p95, which reports lack.
fn of_summaries(summaries: &[Summary]) -> Option<(u64, Durations, u64)> {
    let add = |field: fn(&Summary) -> u64| {
        summaries
            .iter()
            .fold(0, |sum: u64, summary| sum.saturating_add(field(summary)))
    };
    let (count, sum_ns) = (add(|summary| summary.count), add(|summary| summary.sum_ns));
    let mean_ns = sum_ns.checked_div(count)?;
    let largest = summaries.iter().max_by_key(|summary| summary.count)?;
    let median_ns = largest.median_ns.unwrap_or(mean_ns);
    let p95_ns = summaries.iter().filter_map(|summary| summary.p95_ns).max();
    let most_ns = summaries.iter().filter_map(|summary| summary.max_ns).max();
    let durations = Durations {
        sum_ns,
        median_ns,
        p95_ns: p95_ns.or(most_ns).unwrap_or(mean_ns).max(median_ns),
    };
    Some((count, possible(durations), 0))
}

/// At least 1 ns each (tools of 2021 state µs, 0 if short), at most the profile's limit.
fn possible(durations: Durations) -> Durations {
    let p95_ns = durations.p95_ns.clamp(1, DURATION_NS_MAX);
    Durations {
        sum_ns: durations.sum_ns.max(p95_ns).min(i64::MAX.cast_unsigned()),
        median_ns: durations.median_ns.clamp(1, p95_ns),
        p95_ns,
    }
}

fn blocks_per_sm(group: &Group<'_>, choice: &Choice) -> Option<u32> {
    let stated = group.counters.iter().map(|counters| counters.limits);
    let stated = stated
        .into_iter()
        .find(|limits| limits.blocks_per_sm().is_some());
    let stated: StatedLimits = stated.unwrap_or_default();
    let of_device = || {
        let capability = choice.device?.compute_capability;
        occupancy::SmLimits::of(capability.major, capability.minor)
    };
    let sm = choice.gpu.sm_limits().or_else(of_device);
    let of = |kernel: &Kernel| occupancy::blocks_per_sm(kernel, sm.as_ref(), &stated);
    of(group.kernel).or_else(|| group.counted.and_then(of))
}

/// SMs that run all its blocks at once. If unknown, the number of its blocks, as for a kernel
/// without a profile; look-up by name turns 1 into the same for a kernel with an unknown grid.
fn sm_needed(kernel: &Kernel, blocks_per_sm: Option<u32>) -> u32 {
    let Some(grid) = kernel.grid else {
        return 1;
    };
    let sms = match blocks_per_sm {
        Some(blocks) => occupancy::sms_needed(grid, blocks),
        None => occupancy::blocks(grid),
    };
    u32::try_from(sms)
        .unwrap_or(u32::MAX)
        .clamp(1, SM_NEEDED_MAX)
}

fn mean(counters: &[&Counters]) -> Option<Counters> {
    let of = |field: fn(&Counters) -> Option<f64>| {
        let values = counters.iter().filter_map(|counters| field(counters));
        let values = values.filter(|value| value.is_finite());
        let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    };
    let first = counters.first()?;
    Some(Counters {
        compute_pct: of(|c| c.compute_pct),
        memory_pct: of(|c| c.memory_pct),
        dram_pct: of(|c| c.dram_pct),
        l2_pct: of(|c| c.l2_pct),
        l1_pct: of(|c| c.l1_pct),
        dram_bytes_per_s: of(|c| c.dram_bytes_per_s),
        dram_peak_bytes_per_s: of(|c| c.dram_peak_bytes_per_s),
        fp32_per_s: of(|c| c.fp32_per_s),
        fp32_peak_per_s: of(|c| c.fp32_peak_per_s),
        fp64_fp16_per_s: of(|c| c.fp64_fp16_per_s),
        tensor_pct: of(|c| c.tensor_pct),
        limits: first.limits,
        waves_per_sm: of(|c| c.waves_per_sm),
        sm_active_pct: of(|c| c.sm_active_pct),
    })
}

/// Adds DRAM's share of its peak, measured or the GPU's, where only its bytes were counted.
fn with_dram_pct(mut counters: Counters, choice: &Choice) -> Counters {
    let of_gpu = choice.gpu.bandwidth_bytes_per_s.map(|bytes| bytes as f64);
    let of_device = choice
        .device
        .map(|device| f64::from(device.bandwidth_gb_s) * 1e9);
    let peak = counters.dram_peak_bytes_per_s.or(of_gpu).or(of_device);
    let share = counters
        .dram_bytes_per_s
        .zip(peak.filter(|&peak| peak > 0.0));
    counters.dram_pct = counters
        .dram_pct
        .or(share.map(|(bytes, peak)| bytes / peak * 100.0));
    counters
}

fn roofline(counters: &Counters) -> Option<Roofline> {
    let flop = counters.fp32_per_s? + counters.fp64_fp16_per_s.unwrap_or(0.0);
    let millions = |value: f64| (value.is_finite() && value >= 0.0).then(|| (value / 1e6) as u64);
    Some(Roofline {
        mflop_per_s: millions(flop)?,
        mbyte_per_s: millions(counters.dram_bytes_per_s?)?,
    })
}

fn ridge(choice: &Choice) -> Option<Ridge> {
    let device = choice.device.or_else(|| choice.gpu.relative())?;
    let bytes = f64::from(device.bandwidth_gb_s) * 1e9;
    let capability = device.compute_capability;
    let tensor = crate::classify::tensor_flop_per_clock(capability.major, capability.minor)
        * f64::from(device.sms)
        * f64::from(device.max_clock_mhz)
        * 1e6;
    Some(Ridge {
        fp32: device.fp32_tflops() * 1e12 / bytes,
        tensor: tensor / bytes,
    })
}
