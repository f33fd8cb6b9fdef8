//! How many of a device's SMs were busy, by GPM: counters that NVML reads of devices from Hopper
//! on.
//! A metric covers the time between two samples. nvml.h: `nvmlGpmMetric_t` has 40 bytes;
//! `nvmlGpmMetricsGet_t` ends with an array of them, whose length grew with the releases (98, 210,
//! 333, 477) while its version stayed 1.

use core::ffi::{c_char, c_uint, c_void};

use super::reports::symbol;
use super::{Device, NOT_SUPPORTED, NvmlError, Open, SUCCESS, check, open_device};

/// NVML_GPM_SUPPORT_VERSION and NVML_GPM_METRICS_GET_VERSION.
const VERSION: c_uint = 1;
/// NVML_GPM_METRIC_SM_UTIL: "percentage of SMs that were busy", 0 to 100.
const SM_UTIL: c_uint = 2;
/// More metrics than any driver knows, of which it writes the requested: none past the end.
const METRICS: usize = 512;

/// `nvmlGpmSupport_t`.
#[repr(C)]
struct Support {
    version: c_uint,
    is_supported: c_uint,
}

/// `nvmlGpmMetric_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Metric {
    id: c_uint,
    result: c_uint,
    value: f64,
    info: [*const c_char; 3],
}

/// `nvmlGpmMetricsGet_t`.
#[repr(C)]
struct MetricsGet {
    version: c_uint,
    count: c_uint,
    samples: [*mut c_void; 2],
    metrics: [Metric; METRICS],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Metric>() == 40 && offset_of!(Metric, value) == 8);
    assert!(offset_of!(MetricsGet, samples) == 8 && offset_of!(MetricsGet, metrics) == 24);
};

type Query = unsafe extern "C" fn(*mut c_void, *mut Support) -> c_uint;
type Allocate = unsafe extern "C" fn(*mut *mut c_void) -> c_uint;
type Free = unsafe extern "C" fn(*mut c_void) -> c_uint;
type Take = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_uint;
type Get = unsafe extern "C" fn(*mut MetricsGet) -> c_uint;

pub(crate) struct Gpm {
    device: Device,
    samples: [Sample; 2],
    is_taken: bool,
    take: Take,
    get: Get,
    asked: Box<MetricsGet>,
    /// Keeps NVML open for these calls. Declared after the samples, which it frees.
    _library: Open,
}

// SAFETY: NVML is thread-safe, as `Device` says; samples are only passed back to it, and nothing
// reads the texts' addresses.
unsafe impl Send for Gpm {}

/// `nvmlGpmSample_t`.
struct Sample {
    handle: *mut c_void,
    free: Free,
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: the sample is the library's, which a `Gpm` keeps open, and is not used any more.
        let _ = unsafe { (self.free)(self.handle) };
    }
}

impl Gpm {
    /// For the device with this UUID; none if it, or an older driver, does not support GPM.
    pub(crate) fn open(uuid: &str) -> Result<Option<Self>, NvmlError> {
        let (library, device) = open_device(uuid)?;
        let Ok(query) = symbol::<Query>(&library, "nvmlGpmQueryDeviceSupport") else {
            return Ok(None);
        };
        let mut support = Support {
            version: VERSION,
            is_supported: 0,
        };
        // SAFETY: the device is this library's, and there is room for the answer.
        match unsafe { query(device.0, &raw mut support) } {
            NOT_SUPPORTED => return Ok(None),
            result => check("nvmlGpmQueryDeviceSupport", result)?,
        }
        if support.is_supported == 0 {
            return Ok(None);
        }
        let allocate: Allocate = symbol(&library, "nvmlGpmSampleAlloc")?;
        let free: Free = symbol(&library, "nvmlGpmSampleFree")?;
        let sample = || {
            let mut handle = core::ptr::null_mut();
            // SAFETY: room for one handle.
            check("nvmlGpmSampleAlloc", unsafe { allocate(&raw mut handle) })?;
            Ok(Sample { handle, free })
        };
        Ok(Some(Self {
            device,
            samples: [sample()?, sample()?],
            is_taken: false,
            take: symbol(&library, "nvmlGpmSampleGet")?,
            get: symbol(&library, "nvmlGpmMetricsGet")?,
            asked: Box::new(MetricsGet::default()),
            _library: library,
        }))
    }

    /// Mean share of busy SMs since the last call, 0 to 1; `None` the first time, or if unknown.
    pub(crate) fn sm_activity(&mut self) -> Option<f64> {
        self.samples.swap(0, 1);
        let had_one = std::mem::take(&mut self.is_taken);
        // SAFETY: device and sample are this library's.
        let result = unsafe { (self.take)(self.device.0, self.samples[1].handle) };
        self.is_taken = result == SUCCESS;
        if !had_one || !self.is_taken {
            return None;
        }
        let asked = &mut *self.asked;
        (asked.version, asked.count) = (VERSION, 1);
        asked.samples = [self.samples[0].handle, self.samples[1].handle];
        asked.metrics[0] = Metric {
            id: SM_UTIL,
            ..Metric::NONE
        };
        // SAFETY: the samples are this library's and have been taken, and there is room for more
        // metrics than any driver knows.
        let result = unsafe { (self.get)(&raw mut *asked) };
        let metric = asked.metrics[0];
        (result == SUCCESS && metric.result == SUCCESS).then_some(metric.value / 100.0)
    }
}

impl Metric {
    const NONE: Self = Self {
        id: 0,
        result: 0,
        value: f64::NAN,
        info: [core::ptr::null(); 3],
    };
}

impl Default for MetricsGet {
    fn default() -> Self {
        Self {
            version: VERSION,
            count: 0,
            samples: [core::ptr::null_mut(); 2],
            metrics: [Metric::NONE; METRICS],
        }
    }
}
