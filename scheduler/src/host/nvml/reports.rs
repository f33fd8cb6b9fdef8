//! NVML's events of a device, and the gauges of its health.
//! Signatures, numbers and structures are those of nvml.h. A gauge that the driver or the device
//! lacks stays unknown.

use core::ffi::{c_uint, c_ulonglong, c_void};

use libloading::Library;
use policy::DeviceReading;

use super::{Device, NvmlError, Open, check, open_device};

/// nvmlEventTypeSingleBitEccError, nvmlEventTypeDoubleBitEccError.
const MEMORY_ERRORS: c_ulonglong = 0x1 | 0x2;
/// nvmlEventTypeXidCriticalError.
const XID: c_ulonglong = 0x8;
const TIMEOUT: c_uint = 10;
/// NVML_MEMORY_ERROR_TYPE_CORRECTED and _UNCORRECTED.
const ERROR_TYPES: [c_uint; 2] = [0, 1];
/// NVML_VOLATILE_ECC: since the driver was loaded.
const VOLATILE: c_uint = 0;

/// `nvmlEventData_t`.
#[repr(C)]
struct EventData {
    device: *mut c_void,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
    gpu_instance_id: c_uint,
    compute_instance_id: c_uint,
}

/// `nvmlUtilization_t`.
#[repr(C)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

type CreateSet = unsafe extern "C" fn(*mut *mut c_void) -> c_uint;
type Free = unsafe extern "C" fn(*mut c_void) -> c_uint;
type GetTypes = unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_uint;
type Register = unsafe extern "C" fn(*mut c_void, c_ulonglong, *mut c_void) -> c_uint;
type Wait = unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_uint;
type GetEcc = unsafe extern "C" fn(*mut c_void, c_uint, c_uint, *mut c_ulonglong) -> c_uint;
type GetRows =
    unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_uint;
type GetState = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_uint;
type GetUse = unsafe extern "C" fn(*mut c_void, *mut Utilization) -> c_uint;
type GetNumber = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_uint;
type GetBits = unsafe extern "C" fn(*mut c_void, *mut c_ulonglong) -> c_uint;
type GetMemory = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_uint;
type GetClock = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_uint;

/// `nvmlMemory_t`.
#[derive(Default)]
#[repr(C)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

const GPU_IS_LOST: c_uint = 15;
/// NVML_TEMPERATURE_THRESHOLD_SLOWDOWN.
const THRESHOLD_SLOWDOWN: c_uint = 1;
/// NVML_CLOCK_SM.
const CLOCK_SM: c_uint = 1;
/// NVML_TEMPERATURE_GPU.
const TEMPERATURE_GPU: c_uint = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Xid(u64),
    /// The counters of memory errors have changed.
    MemoryError,
}

pub(crate) struct Reports {
    set: *mut c_void,
    wait: Wait,
    /// Keeps NVML open for `wait`.
    library: Open,
}

impl Drop for Reports {
    fn drop(&mut self) {
        if let Ok(free) = symbol::<Free>(&self.library, "nvmlEventSetFree") {
            // SAFETY: the set belongs to this library, and is not used any more.
            let _ = unsafe { free(self.set) };
        }
    }
}

impl Reports {
    pub(crate) fn open(uuid: &str) -> Result<Self, NvmlError> {
        let (library, Device(device)) = open_device(uuid)?;
        let create: CreateSet = symbol(&library, "nvmlEventSetCreate")?;
        let supported: GetTypes = symbol(&library, "nvmlDeviceGetSupportedEventTypes")?;
        let register: Register = symbol(&library, "nvmlDeviceRegisterEvents")?;
        // The first version leaves the MIG instances unwritten, which are not used.
        let wait: Wait = symbol(&library, "nvmlEventSetWait_v2")
            .or_else(|_| symbol(&library, "nvmlEventSetWait"))?;
        let mut types = 0;
        // SAFETY: the device is one of this library's, and there is room for the types.
        check("nvmlDeviceGetSupportedEventTypes", unsafe {
            supported(device, &raw mut types)
        })?;
        let mut set = core::ptr::null_mut();
        // SAFETY: room for one handle.
        check("nvmlEventSetCreate", unsafe { create(&raw mut set) })?;
        let reports = Self { set, wait, library };
        // SAFETY: device and set are this library's.
        check("nvmlDeviceRegisterEvents", unsafe {
            register(device, types & (MEMORY_ERRORS | XID), set)
        })?;
        Ok(reports)
    }

    pub(crate) fn wait(&self, timeout_ms: u32) -> Result<Option<Report>, NvmlError> {
        let mut data = EventData {
            device: core::ptr::null_mut(),
            event_type: 0,
            event_data: 0,
            gpu_instance_id: 0,
            compute_instance_id: 0,
        };
        // SAFETY: the set is this library's, and there is room for one event.
        match unsafe { (self.wait)(self.set, &raw mut data, timeout_ms) } {
            TIMEOUT => return Ok(None),
            result => check("nvmlEventSetWait", result)?,
        }
        Ok(match data.event_type {
            XID => Some(Report::Xid(data.event_data)),
            other if other & MEMORY_ERRORS != 0 => Some(Report::MemoryError),
            _ => None,
        })
    }
}

/// Memory errors since the driver was loaded; none if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ecc {
    pub(crate) corrected: Option<u64>,
    pub(crate) uncorrected: Option<u64>,
    /// Rows (from A100 on) or pages (before) wait for a reset to be remapped.
    pub(crate) is_pending: Option<bool>,
}

struct Lost;

pub(crate) struct Gauges {
    device: Device,
    errors: Option<GetEcc>,
    rows: Option<GetRows>,
    pages: Option<GetState>,
    use_: Option<GetUse>,
    clock: Option<GetClock>,
    clock_max: Option<GetClock>,
    power: Option<GetNumber>,
    power_limit: Option<GetNumber>,
    memory: Option<GetMemory>,
    /// By threshold.
    threshold: Option<GetClock>,
    /// By sensor.
    temperature: Option<GetClock>,
    reasons: Option<GetBits>,
    /// Keeps NVML open for these calls.
    _library: Open,
}

impl Gauges {
    pub(crate) fn open(uuid: &str) -> Result<Self, NvmlError> {
        let (library, device) = open_device(uuid)?;
        Ok(Self {
            device,
            errors: symbol(&library, "nvmlDeviceGetTotalEccErrors").ok(),
            rows: symbol(&library, "nvmlDeviceGetRemappedRows").ok(),
            pages: symbol(&library, "nvmlDeviceGetRetiredPagesPendingStatus").ok(),
            use_: symbol(&library, "nvmlDeviceGetUtilizationRates").ok(),
            clock: symbol(&library, "nvmlDeviceGetClockInfo").ok(),
            clock_max: symbol(&library, "nvmlDeviceGetMaxClockInfo").ok(),
            power: symbol(&library, "nvmlDeviceGetPowerUsage").ok(),
            power_limit: symbol(&library, "nvmlDeviceGetEnforcedPowerLimit").ok(),
            memory: symbol(&library, "nvmlDeviceGetMemoryInfo").ok(),
            threshold: symbol(&library, "nvmlDeviceGetTemperatureThreshold").ok(),
            temperature: symbol(&library, "nvmlDeviceGetTemperature").ok(),
            // Drivers before r535 have only the old name.
            reasons: symbol(&library, "nvmlDeviceGetCurrentClocksEventReasons")
                .or_else(|_| symbol(&library, "nvmlDeviceGetCurrentClocksThrottleReasons"))
                .ok(),
            _library: library,
        })
    }

    pub(crate) fn ecc(&self) -> Ecc {
        let [corrected, uncorrected] = ERROR_TYPES.map(|kind| {
            let mut count = 0;
            // SAFETY: the device is this library's, and there is room for the count.
            let result = unsafe { self.errors?(self.device.0, kind, VOLATILE, &raw mut count) };
            (result == 0).then_some(count)
        });
        Ecc {
            corrected,
            uncorrected,
            is_pending: self.rows_pending().or_else(|| self.pages_pending()),
        }
    }

    fn rows_pending(&self) -> Option<bool> {
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        // SAFETY: the device is this library's, and there is room for the four numbers.
        let result = unsafe {
            self.rows?(
                self.device.0,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed,
            )
        };
        (result == 0).then_some(pending != 0)
    }

    fn pages_pending(&self) -> Option<bool> {
        let mut pending = 0;
        // SAFETY: the device is this library's, and there is room for an nvmlEnableState_t.
        let result = unsafe { self.pages?(self.device.0, &raw mut pending) };
        (result == 0).then_some(pending != 0)
    }

    /// Utilisation of the last sample period, percent.
    pub(crate) fn busy_pct(&self) -> Option<u32> {
        let mut is = Utilization { gpu: 0, memory: 0 };
        // SAFETY: the device is this library's, and there is room for both numbers.
        let result = unsafe { self.use_?(self.device.0, &raw mut is) };
        (result == 0).then_some(is.gpu)
    }

    fn of_kind(&self, get: Option<GetClock>, kind: c_uint) -> Option<c_uint> {
        let mut number = 0;
        // SAFETY: the device is this library's, and there is room for the number.
        let result = unsafe { get?(self.device.0, kind, &raw mut number) };
        (result == 0).then_some(number)
    }

    /// W of a gauge in mW.
    fn watts(&self, get: Option<GetNumber>) -> Option<f64> {
        let mut mw = 0;
        // SAFETY: the device is this library's, and there is room for the number.
        let result = unsafe { get?(self.device.0, &raw mut mw) };
        (result == 0).then_some(f64::from(mw) / 1e3)
    }

    fn memory_used(&self) -> Result<Option<f64>, Lost> {
        let Some(get) = self.memory else {
            return Ok(None);
        };
        let mut memory = Memory::default();
        // SAFETY: the device is this library's, and there is room for the three numbers.
        let result = unsafe { get(self.device.0, &raw mut memory) };
        if result == GPU_IS_LOST {
            return Err(Lost);
        }
        let is_known = result == 0 && memory.total > 0;
        Ok(is_known.then(|| memory.used as f64 / memory.total as f64))
    }

    fn event_reasons(&self) -> Option<u64> {
        let mut bits = 0;
        // SAFETY: the device is this library's, and there is room for the bits.
        let result = unsafe { self.reasons?(self.device.0, &raw mut bits) };
        (result == 0).then_some(bits)
    }

    /// The reading for laws and people, without the SMs' activity, which is GPM's.
    pub(crate) fn reading(&self) -> DeviceReading {
        let memory_used = self.memory_used();
        let mhz = |get| self.of_kind(get, CLOCK_SM).filter(|&mhz| mhz > 0);
        DeviceReading {
            busy: self.busy_pct().map(|pct| f64::from(pct) / 100.0),
            sm_activity: None,
            clock_mhz: mhz(self.clock),
            clock_max_mhz: mhz(self.clock_max),
            power_w: self.watts(self.power),
            power_limit_w: self.watts(self.power_limit),
            slowdown_c: self
                .of_kind(self.threshold, THRESHOLD_SLOWDOWN)
                .filter(|&celsius| celsius > 0)
                .map(f64::from),
            memory_used: memory_used.as_ref().ok().copied().flatten(),
            is_lost: memory_used.is_err(),
            temperature_c: self
                .of_kind(self.temperature, TEMPERATURE_GPU)
                .map(f64::from),
            event_reasons: self.event_reasons(),
        }
    }
}

/// Looks up an entry point; `F` is nvml.h's signature.
pub(super) fn symbol<F: Copy>(library: &Library, name: &'static str) -> Result<F, NvmlError> {
    // SAFETY: each caller, in this folder, uses nvml.h's signature for the name, and keeps the
    // library open while it calls it.
    let found = unsafe { library.get::<F>(name) };
    found
        .map(|function| *function)
        .map_err(|_| NvmlError::NoSymbol(name))
}
