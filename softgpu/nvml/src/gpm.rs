//! GPM, the performance counters of a device between two samples. A sample is the use of the device
//! up to an instant; a metric is the difference of two, divided by the time between them. The
//! supported metrics are those of the model: SMs in use (nvml.h: "percentage of SMs that were
//! busy"), the time of any computation, and the share of bandwidth. NVIDIA's devices have GPM from
//! Hopper on (nvml.h, "for Hopper or newer").

use std::collections::BTreeMap;

use parking_lot::Mutex;
use softgpu::Device;
use softgpu::wire::Sample;

use crate::code::{Code, Outcome};
use crate::library::Gpu;
use crate::raw::Out;
use crate::types::{GpmMetricsGetHead, nvmlGpmMetric_t, nvmlGpmSupport_t};

/// NVML_GPM_SUPPORT_VERSION and NVML_GPM_METRICS_GET_VERSION: numbers, not sizes.
const VERSION: u32 = 1;
/// NVML_GPM_METRIC_GRAPHICS_UTIL, per cent of the time.
const GRAPHICS_UTIL: u32 = 1;
/// NVML_GPM_METRIC_SM_UTIL, per cent of the SMs.
const SM_UTIL: u32 = 2;
/// NVML_GPM_METRIC_DRAM_BW_UTIL, per cent of the bandwidth.
const DRAM_BW_UTIL: u32 = 10;
/// Most metrics of one call. NVML_GPM_METRIC_MAX was 98, 210, 333 (CUDA 13) and 477 so far.
const METRICS_MAX: u32 = 512;

/// `nvmlGpmSample_t` of the first sample; others follow. Neither null nor likely by accident.
const FIRST: usize = 0x6770_6d73;
const SAMPLES_MAX: usize = 1024;

static SAMPLES: Mutex<BTreeMap<usize, Option<Taken>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Taken {
    place: u32,
    sample: Sample,
}

fn has(device: &Device) -> bool {
    device.compute_capability.major >= 9
}

pub(crate) fn query(gpu: &Gpu, support: &Out<nvmlGpmSupport_t>) -> Outcome {
    if Out::version_of(support)? != VERSION {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    support.set(nvmlGpmSupport_t {
        version: VERSION,
        isSupportedDevice: has(&gpu.device).into(),
    })
}

pub(crate) fn allocate() -> Outcome<usize> {
    let mut samples = SAMPLES.lock();
    if samples.len() >= SAMPLES_MAX {
        return Err(Code::UNKNOWN);
    }
    let last = samples.last_key_value();
    let number = last.map_or(FIRST, |(last, _)| last + 1);
    samples.insert(number, None);
    Ok(number)
}

pub(crate) fn free(number: usize) -> Outcome {
    let mut samples = SAMPLES.lock();
    samples
        .remove(&number)
        .map(drop)
        .ok_or(Code::INVALID_ARGUMENT)
}

pub(crate) fn take(gpu: &Gpu, number: usize) -> Outcome {
    if !has(&gpu.device) {
        return Err(Code::NOT_SUPPORTED);
    }
    let monitor = gpu.ask()?;
    let mut samples = SAMPLES.lock();
    let place = samples.get_mut(&number).ok_or(Code::INVALID_ARGUMENT)?;
    *place = Some(Taken {
        place: gpu.place,
        sample: monitor.samples.last().copied().unwrap_or_default(),
    });
    Ok(())
}

/// `nvmlGpmMetricsGet`. Accesses only the requested metrics of the caller's array, whose length
/// depends on the caller's header.
pub(crate) fn metrics(gpus: &[Gpu], asked: &Out<GpmMetricsGetHead>) -> Outcome {
    if Out::version_of(asked)? != VERSION {
        return Err(Code::ARGUMENT_VERSION_MISMATCH);
    }
    let head = asked.get()?;
    if !(1..=METRICS_MAX).contains(&head.num_metrics) {
        return Err(Code::INVALID_ARGUMENT);
    }
    let taken = |number| -> Outcome<Taken> {
        let sample = SAMPLES.lock().get(&number).copied();
        sample.flatten().ok_or(Code::INVALID_ARGUMENT)
    };
    let (before, now) = (taken(head.sample1)?, taken(head.sample2)?);
    let gpu = gpus.iter().find(|gpu| gpu.place == before.place);
    let gpu = gpu.filter(|_| before.place == now.place);
    let sms = gpu.ok_or(Code::INVALID_ARGUMENT)?.device.sms;
    let places: Out<nvmlGpmMetric_t> = asked.after();
    (0..head.num_metrics as usize).try_for_each(|index| {
        let mut metric = places.at(index)?;
        let value = value(metric.metricId, &before.sample, &now.sample, sms);
        // Each metric has a result of its own.
        metric.nvmlReturn = value.err().unwrap_or(Code::SUCCESS).0;
        metric.value = value.unwrap_or(0.0);
        places.set_at(index, metric)
    })
}

/// A metric of the time between two samples, per cent.
fn value(metric: u32, before: &Sample, now: &Sample, sms: u32) -> Outcome<f64> {
    let (of, whole): (fn(&Sample) -> u64, u32) = match metric {
        GRAPHICS_UTIL => (|sample| sample.busy_ns, 1),
        SM_UTIL => (|sample| sample.busy_sm_ns, sms),
        DRAM_BW_UTIL => (|sample| sample.bandwidth_ns, 1),
        _ => return Err(Code::NOT_SUPPORTED),
    };
    let time_ns = now.at_ns.saturating_sub(before.at_ns);
    if time_ns == 0 {
        return Err(Code::NO_DATA);
    }
    let used_ns = of(now).saturating_sub(of(before)) as f64;
    Ok((100.0 * used_ns / (f64::from(whole) * time_ns as f64)).min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_the_difference_of_two_samples_by_time() {
        let before = Sample {
            at_ns: 1_000,
            busy_ns: 300,
            busy_sm_ns: 3_000,
            bandwidth_ns: 30,
        };
        let now = Sample {
            at_ns: 2_000,
            busy_ns: 800,
            busy_sm_ns: 23_000,
            bandwidth_ns: 130,
        };
        let of = |metric| value(metric, &before, &now, 80);
        assert_eq!(of(GRAPHICS_UTIL), Ok(50.0));
        assert_eq!(of(SM_UTIL), Ok(25.0));
        assert_eq!(of(DRAM_BW_UTIL), Ok(10.0));
        assert_eq!(of(5), Err(Code::NOT_SUPPORTED));
        // In the wrong order, or at one instant, there is no data.
        assert_eq!(value(SM_UTIL, &now, &before, 80), Err(Code::NO_DATA));
        assert_eq!(value(SM_UTIL, &now, &now, 80), Err(Code::NO_DATA));
    }

    #[test]
    fn devices_have_it_from_hopper_on() {
        let has = |name| has(&Device::by_name(name).unwrap());
        assert!(has("H100-SXM5-80GB") && !has("A100-SXM4-40GB") && !has("T4"));
    }

    #[test]
    fn a_sample_is_freed_once() {
        let number = allocate().unwrap();
        assert_eq!(free(number), Ok(()));
        assert_eq!(free(number), Err(Code::INVALID_ARGUMENT));
    }
}
