//! Current use, from the server's report: percents over the past sample period, between one and two
//! [`SAMPLE_NS`] long; right after the server's start it is the server's whole run time.

use softgpu::wire::{Monitor, SAMPLE_NS, Sample};

use crate::code::{Code, Outcome};
use crate::types::{
    NOT_AVAILABLE, nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlUtilization_t,
};

/// The sampled quantities of `nvmlSamplingType_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    Gpu,
    Memory,
}

impl Sampled {
    /// From `nvmlSamplingType_t`, which ends at 9.
    pub(crate) fn from_number(number: u32) -> Outcome<Self> {
        match number {
            1 => Ok(Self::Gpu),
            2 => Ok(Self::Memory),
            0 | 3..=9 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    }

    fn of(self, use_: nvmlUtilization_t) -> u32 {
        match self {
            Self::Gpu => use_.gpu,
            Self::Memory => use_.memory,
        }
    }
}

pub(crate) fn memory(monitor: &Monitor, total: u64) -> nvmlMemory_t {
    let used = monitor.used_bytes.min(total);
    nvmlMemory_t {
        total,
        free: total - used,
        used,
    }
}

/// Over the past sample period: the time of any computation, and the share of the peak bandwidth.
pub(crate) fn utilisation(monitor: &Monitor) -> nvmlUtilization_t {
    let [.., now] = &*monitor.samples else {
        return between(&Sample::default(), &Sample::default());
    };
    let is_before = |sample: &&Sample| sample.at_ns.saturating_add(SAMPLE_NS) <= now.at_ns;
    let before = monitor.samples.iter().rev().find(is_before);
    between(&before.copied().unwrap_or_default(), now)
}

/// Why the SM clock is not higher: nvmlClocksEventReasonGpuIdle, …SwPowerCap, …SwThermalSlowdown.
pub(crate) fn event_reasons(monitor: &Monitor) -> Outcome<u64> {
    const GPU_IDLE: u64 = 0x1;
    const SW_POWER_CAP: u64 = 0x4;
    const SW_THERMAL_SLOWDOWN: u64 = 0x20;
    let governed = monitor.governed.ok_or(Code::NOT_SUPPORTED)?;
    let is_idle = utilisation(monitor).gpu == 0;
    let bits = [
        (governed.is_power_capped, SW_POWER_CAP),
        (governed.is_hot, SW_THERMAL_SLOWDOWN),
        (is_idle, GPU_IDLE),
    ];
    let set = bits.into_iter().filter(|(is_set, _)| *is_set);
    Ok(set.fold(0, |all, (_, bit)| all | bit))
}

pub(crate) fn processes(monitor: &Monitor) -> Vec<nvmlProcessInfo_t> {
    let processes = monitor.processes.iter();
    processes
        .map(|process| nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.held_bytes,
            gpuInstanceId: NOT_AVAILABLE,
            computeInstanceId: NOT_AVAILABLE,
        })
        .collect()
}

/// Use by each process that computed in the past sample period. Stamped with the present,
/// `unix_us`, so that no sample is newer than a later stamp.
pub(crate) fn process_samples(
    monitor: &Monitor,
    unix_us: u64,
    last_seen_us: u64,
) -> Outcome<Vec<nvmlProcessUtilizationSample_t>> {
    let active = monitor.processes.iter().filter(|process| {
        unix_us > last_seen_us && (process.busy_ns > 0 || process.bandwidth_ns > 0)
    });
    let samples: Vec<_> = active
        .map(|process| nvmlProcessUtilizationSample_t {
            pid: process.pid,
            timeStamp: unix_us,
            smUtil: percent(process.busy_ns, process.window_ns),
            memUtil: percent(process.bandwidth_ns, process.window_ns),
            encUtil: 0,
            decUtil: 0,
        })
        .collect();
    if samples.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    Ok(samples)
}

/// Use between the server's past instants after a stamp: percents, each behind its stamp.
pub(crate) fn samples(
    monitor: &Monitor,
    sampled: Sampled,
    unix_us: u64,
    last_seen_us: u64,
) -> Outcome<Vec<(u64, u32)>> {
    let now_ns = monitor.samples.last().map_or(0, |sample| sample.at_ns);
    let pairs = monitor.samples.windows(2).map(|pair| {
        let ago_ns = now_ns.saturating_sub(pair[1].at_ns);
        let stamp = stamp_us(unix_us, ago_ns, monitor.scale);
        (stamp, sampled.of(between(&pair[0], &pair[1])))
    });
    let samples: Vec<_> = pairs.filter(|&(stamp, _)| stamp > last_seen_us).collect();
    if samples.is_empty() {
        return Err(Code::NOT_FOUND);
    }
    Ok(samples)
}

/// Stamp of an instant that is `ago_ns` in the past, in device time.
fn stamp_us(unix_us: u64, ago_ns: u64, scale: f64) -> u64 {
    unix_us.saturating_sub((ago_ns as f64 * scale / 1000.0) as u64)
}

fn between(before: &Sample, now: &Sample) -> nvmlUtilization_t {
    let time_ns = now.at_ns.saturating_sub(before.at_ns);
    nvmlUtilization_t {
        gpu: percent(now.busy_ns.saturating_sub(before.busy_ns), time_ns),
        memory: percent(
            now.bandwidth_ns.saturating_sub(before.bandwidth_ns),
            time_ns,
        ),
    }
}

/// Rounded to whole percents; 0 of no time. Contexts of one process can overlap.
fn percent(part_ns: u64, whole_ns: u64) -> u32 {
    if whole_ns == 0 {
        return 0;
    }
    let (part, whole) = (u128::from(part_ns), u128::from(whole_ns));
    u32::try_from((100 * part + whole / 2) / whole).map_or(100, |percent| percent.min(100))
}

#[cfg(test)]
mod tests {
    use softgpu::wire::{GovernedState, Health, ProcessUse};

    use super::*;

    fn sample(periods: u64, busy_ns: u64) -> Sample {
        Sample {
            at_ns: periods * SAMPLE_NS,
            busy_ns,
            busy_sm_ns: 0,
            bandwidth_ns: busy_ns / 5,
        }
    }

    fn monitor(samples: &[Sample]) -> Monitor {
        let process = |pid, busy_ns| ProcessUse {
            pid,
            held_bytes: 512,
            window_ns: 1000,
            busy_ns,
            bandwidth_ns: busy_ns / 10,
        };
        Monitor {
            device: String::new(),
            uuid: [0; 16],
            is_mps: false,
            scale: 2.0,
            used_bytes: 1024,
            health: Health::default(),
            governed: None,
            samples: samples.to_vec(),
            processes: vec![process(3, 500), process(7, 0), process(9, 1500)],
        }
    }

    #[test]
    fn utilisation_is_of_the_past_period() {
        let told = |samples: &[Sample]| {
            let told = utilisation(&monitor(samples));
            (told.gpu, told.memory)
        };
        let busy = [sample(4, 10), sample(5, 10 + SAMPLE_NS / 2)];
        assert_eq!(told(&busy), (50, 10));
        // The first period has not passed: the window begins at the start.
        let young = Sample {
            at_ns: 1000,
            busy_ns: 999,
            ..Sample::default()
        };
        assert_eq!(told(&[young]), (100, 0));
        assert_eq!(told(&[1, 2, 3].map(|period| sample(period, 77))), (0, 0));
        assert_eq!(told(&[]), (0, 0));
    }

    #[test]
    fn only_processes_that_computed_have_samples_and_none_is_told_twice() {
        let monitor = monitor(&[sample(4, 10)]);
        let told = process_samples(&monitor, 1_000_000, 0).unwrap();
        let seen: Vec<_> = told.iter().map(|s| (s.pid, s.smUtil, s.memUtil)).collect();
        assert_eq!(seen, [(3, 50, 5), (9, 100, 15)]);
        assert!(told.iter().all(|sample| sample.timeStamp == 1_000_000));
        let again = process_samples(&monitor, 1_000_000, 1_000_000);
        assert_eq!(again.err(), Some(Code::NOT_FOUND));
        assert_eq!(processes(&monitor).len(), 3);
    }

    #[test]
    fn samples_are_stamped_in_the_time_of_the_caller() {
        let monitor = monitor(&[sample(1, 0), sample(2, SAMPLE_NS), sample(3, SAMPLE_NS)]);
        let period_us = 2 * SAMPLE_NS / 1000;
        let now_us = 10_000_000;
        let told = samples(&monitor, Sampled::Gpu, now_us, 0).unwrap();
        assert_eq!(told, [(now_us - period_us, 100), (now_us, 0)]);
        let later = samples(&monitor, Sampled::Memory, now_us, now_us - 1).unwrap();
        assert_eq!(later.len(), 1);
        assert_eq!(
            samples(&monitor, Sampled::Gpu, now_us, now_us),
            Err(Code::NOT_FOUND)
        );
    }

    #[test]
    fn reasons_are_told_of_a_governed_device() {
        let mut monitor = monitor(&[sample(4, 10), sample(5, 10 + SAMPLE_NS / 2)]);
        assert_eq!(event_reasons(&monitor), Err(Code::NOT_SUPPORTED));
        let mut told = |is_power_capped, is_hot| {
            monitor.governed = Some(GovernedState {
                is_power_capped,
                is_hot,
                ..GovernedState::default()
            });
            event_reasons(&monitor)
        };
        assert_eq!(told(false, false), Ok(0));
        assert_eq!(told(true, false), Ok(0x4));
        assert_eq!(told(false, true), Ok(0x20));
        monitor.samples = [1, 2, 3].map(|period| sample(period, 77)).to_vec();
        assert_eq!(event_reasons(&monitor), Ok(0x21));
    }

    #[test]
    fn memory_adds_up() {
        let monitor = monitor(&[]);
        let told = memory(&monitor, 4096);
        assert_eq!((told.total, told.free, told.used), (4096, 3072, 1024));
    }
}
