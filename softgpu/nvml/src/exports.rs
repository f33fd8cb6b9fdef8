//! The stand-in's C functions of nvml.h. Others are missing, as in an older library. Each calls
//! into `crate::library` with a short closure; `crate::device`, `crate::usage` and `crate::gpm`
//! compute the results. Parameter types are those of `crate::raw`, so that no function here touches
//! the application's memory.

#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_char, c_uint, c_ulonglong};

use crate::code::{Code, Outcome};
use crate::device::{
    Clock, DRIVER_VERSION, NVML_VERSION, architecture, by_pci, by_uuid, can_be_divided,
};
use crate::gpm;
use crate::library::{Gpu, Handle, enter, enter_device, enter_early, initialise, shut_down};
use crate::link::unix_us;
use crate::raw::{Out, Text};
use crate::reports;
use crate::types::{
    GpmMetricsGetHead, NOT_AVAILABLE, PciInfoV1, PciInfoV2, nvmlEventData_t, nvmlFieldValue_t,
    nvmlGpmSupport_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessUtilizationSample_t, nvmlSample_t, nvmlUtilization_t,
    nvmlValue_t, struct_version,
};
use crate::usage::{self, Sampled};

/// Defines exported functions. `early ||` runs always, `|gpus|` once the library is initialised,
/// `device |gpu|` with the device of the first argument, `device`.
macro_rules! exports {
    () => {};
    ($name:ident($($arg:ident: $type:ty),* $(,)?) early || $body:expr; $($rest:tt)*) => {
        define! { $name($($arg: $type),*) enter_early(move || $body) }
        exports! { $($rest)* }
    };
    ($name:ident($device:ident: Handle $(, $arg:ident: $type:ty)* $(,)?) device |$gpu:pat_param| $body:expr;
        $($rest:tt)*) => {
        define! { $name($device: Handle $(, $arg: $type)*) enter_device($device, move |$gpu| $body) }
        exports! { $($rest)* }
    };
    ($name:ident($($arg:ident: $type:ty),* $(,)?) |$gpus:pat_param| $body:expr; $($rest:tt)*) => {
        define! { $name($($arg: $type),*) enter(move |$gpus| $body) }
        exports! { $($rest)* }
    };
}

macro_rules! define {
    ($name:ident($($arg:ident: $type:ty),*) $body:expr) => {
        // SAFETY: the name is NVML's own: nothing else in the process has it.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $type),*) -> Code {
            $body
        }
    };
}

macro_rules! versions {
    (@each [$($name:ident)*] $rest:tt) => { $(versions! { @one $name $rest })* };
    (@one $name:ident [$($rest:tt)*]) => { exports! { $name $($rest)*; } };
    ($($name:ident)* ($($args:tt)*) $($body:tt)*) => {
        versions! { @each [$($name)*] [($($args)*) $($body)*] }
    };
}

/// Calls about a device that return NVML_ERROR_NOT_SUPPORTED whatever their further arguments.
macro_rules! not_supported {
    ($($name:ident)*) => {
        $(exports! { $name(device: Handle) device |_| Err(Code::NOT_SUPPORTED); })*
    };
}

versions! { nvmlInit nvmlInit_v2() early || initialise() }
exports! {
    // The flags permit that no devices exist, or that none is attached; neither applies here.
    nvmlInitWithFlags(_flags: c_uint) early || initialise();
    nvmlShutdown() early || shut_down();
}

/// `nvmlErrorString`; needs no initialised library.
// SAFETY: as of the others.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(result: Code) -> *const c_char {
    result.text().as_ptr()
}

// The system. Versions are available before nvmlInit, as the reference specifies.
exports! {
    nvmlSystemGetDriverVersion(version: Out<c_char>, length: c_uint) |_|
        version.set_text(length, DRIVER_VERSION);
    nvmlSystemGetNVMLVersion(version: Out<c_char>, length: c_uint) early ||
        version.set_text(length, NVML_VERSION);
    nvmlSystemGetProcessName(pid: c_uint, name: Out<c_char>, length: c_uint) |_|
        process_name(pid, &name, length);
    nvmlUnitGetCount(count: Out<c_uint>) |_| count.set(0);
}
versions! {
    nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) early ||
        version.set(softgpu::CUDA_VERSION)
}

versions! {
    nvmlDeviceGetCount nvmlDeviceGetCount_v2(count: Out<c_uint>) |gpus|
        count.set(gpus.len() as c_uint)
}
versions! {
    nvmlDeviceGetHandleByIndex nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Handle>)
        |gpus| device.set(gpus.get(index as usize).ok_or(Code::INVALID_ARGUMENT)?.handle())
}
versions! {
    nvmlDeviceGetHandleByPciBusId nvmlDeviceGetHandleByPciBusId_v2(
        address: Text, device: Out<Handle>
    ) |gpus| device.set(by_pci(gpus, &address.to_string()?)?.handle())
}
exports! {
    nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<Handle>) |gpus|
        device.set(by_uuid(gpus, &uuid.to_string()?)?.handle());
    nvmlDeviceGetIndex(device: Handle, index: Out<c_uint>) device |gpu| index.set(gpu.place);
    nvmlDeviceGetMinorNumber(device: Handle, minor: Out<c_uint>) device |gpu| minor.set(gpu.place);
    nvmlDeviceGetName(device: Handle, name: Out<c_char>, length: c_uint) device |gpu|
        name.set_text(length, &gpu.device.name);
    nvmlDeviceGetUUID(device: Handle, uuid: Out<c_char>, length: c_uint) device |gpu|
        uuid.set_text(length, &gpu.uuid());
    // NVML_BRAND_UNKNOWN: none of NVIDIA's brands.
    nvmlDeviceGetBrand(device: Handle, brand: Out<c_uint>) device |_| brand.set(0);
    nvmlDeviceGetBoardId(device: Handle, board: Out<c_uint>) device |gpu| board.set(gpu.bus() << 8);
    nvmlDeviceGetMultiGpuBoard(device: Handle, is_multi: Out<c_uint>) device |_| is_multi.set(0);
    nvmlDeviceOnSameBoard(device: Handle, other: Handle, is_same: Out<i32>) |gpus| {
        let is_known = |handle| gpus.iter().any(|gpu| gpu.handle() == handle);
        if !is_known(device) || !is_known(other) {
            return Err(Code::INVALID_ARGUMENT);
        }
        is_same.set(i32::from(device == other))
    };
    nvmlDeviceGetArchitecture(device: Handle, number: Out<c_uint>) device |gpu|
        number.set(architecture(&gpu.device));
    nvmlDeviceGetCudaComputeCapability(device: Handle, major: Out<i32>, minor: Out<i32>)
        device |gpu| {
            let capability = gpu.device.compute_capability;
            if minor.is_null() {
                return Err(Code::INVALID_ARGUMENT);
            }
            major.set(capability.major as i32)?;
            minor.set(capability.minor as i32)
        };
    nvmlDeviceGetNumGpuCores(device: Handle, cores: Out<c_uint>) device |gpu|
        cores.set(gpu.device.sms * gpu.device.fp32_per_clk_per_sm);
    nvmlDeviceGetPciInfo(device: Handle, pci: Out<PciInfoV1>) device |gpu| pci.set(gpu.pci_v1());
    nvmlDeviceGetPciInfo_v2(device: Handle, pci: Out<PciInfoV2>) device |gpu| pci.set(gpu.pci_v2());
    nvmlDeviceGetPciInfo_v3(device: Handle, pci: Out<nvmlPciInfo_t>) device |gpu| pci.set(gpu.pci());
}

exports! {
    nvmlDeviceGetMemoryInfo(device: Handle, memory: Out<nvmlMemory_t>) device |gpu| {
        memory.set(usage::memory(&gpu.ask()?, gpu.device.memory_bytes))
    };
    nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: Out<nvmlMemory_v2_t>) device |gpu| {
        let version = Out::version_of(&memory)?;
        if version != struct_version::<nvmlMemory_v2_t>(2) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let nvmlMemory_t { total, free, used } = usage::memory(&gpu.ask()?, gpu.device.memory_bytes);
        // The software GPU reserves nothing for itself.
        memory.set(nvmlMemory_v2_t { version, total, reserved: 0, free, used })
    };
    nvmlDeviceGetUtilizationRates(device: Handle, rates: Out<nvmlUtilization_t>) device |gpu|
        rates.set(usage::utilisation(&gpu.ask()?));
    nvmlDeviceGetSamples(
        device: Handle, kind: c_uint, last_seen_us: c_ulonglong, value_type: Out<c_uint>,
        count: Out<c_uint>, samples: Out<nvmlSample_t>
    ) device |gpu| {
        let sampled = Sampled::from_number(kind)?;
        let room = count.get()?;
        let told = usage::samples(&gpu.ask()?, sampled, unix_us(), last_seen_us)?;
        // NVML_VALUE_TYPE_UNSIGNED_INT.
        value_type.set(1)?;
        // Without a destination the call returns their number.
        if samples.is_null() {
            return count.set(told.len() as c_uint);
        }
        // More may exist by now; the newest are left for the next call.
        let told = &told[..told.len().min(room as usize)];
        let samples_of = |&(stamp, percent): &(u64, u32)| nvmlSample_t {
            timeStamp: stamp,
            sampleValue: nvmlValue_t { ullVal: percent.into() },
        };
        samples.set_all(&told.iter().map(samples_of).collect::<Vec<_>>())?;
        count.set(told.len() as c_uint)
    };
}

versions! {
    nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>
    ) device |gpu| list(&usage::processes(&gpu.ask()?), &count, &infos)
}
versions! {
    nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>
    ) device |gpu| list(&mps_processes(gpu)?, &count, &infos)
}
versions! {
    nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>
    ) device |_| list(&[], &count, &infos)
}
exports! {
    nvmlDeviceGetComputeRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v1_t>
    ) device |gpu| list(&old(&usage::processes(&gpu.ask()?)), &count, &infos);
    nvmlDeviceGetMPSComputeRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v1_t>
    ) device |gpu| list(&old(&mps_processes(gpu)?), &count, &infos);
    nvmlDeviceGetGraphicsRunningProcesses(
        device: Handle, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v1_t>
    ) device |_| list(&[], &count, &infos);
    nvmlDeviceGetProcessUtilization(
        device: Handle, samples: Out<nvmlProcessUtilizationSample_t>, count: Out<c_uint>,
        last_seen_us: c_ulonglong
    ) device |gpu| {
        count.get()?;
        let told = usage::process_samples(&gpu.ask()?, unix_us(), last_seen_us)?;
        list(&told, &count, &samples)
    };
}

exports! {
    nvmlDeviceGetClockInfo(device: Handle, kind: c_uint, mhz: Out<c_uint>) device |gpu|
        mhz.set(Clock::from_number(kind)?.mhz(gpu)?);
    nvmlDeviceGetMaxClockInfo(device: Handle, kind: c_uint, mhz: Out<c_uint>) device |gpu|
        mhz.set(Clock::from_number(kind)?.max_mhz(&gpu.device)?);
    nvmlDeviceGetClock(device: Handle, kind: c_uint, id: c_uint, mhz: Out<c_uint>) device |gpu| {
        let clock = Clock::from_number(kind)?;
        match id {
            0 => mhz.set(clock.mhz(gpu)?),
            3 => mhz.set(clock.max_mhz(&gpu.device)?),
            1 | 2 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    };
    nvmlDeviceGetPowerUsage(device: Handle, mw: Out<c_uint>) device |gpu|
        mw.set(gpu.governed()?.power_mw);
    // NVML_TEMPERATURE_GPU is the only sensor of nvml.h.
    nvmlDeviceGetTemperature(device: Handle, sensor: c_uint, celsius: Out<c_uint>) device |gpu| {
        if sensor != 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        celsius.set(gpu.governed()?.temperature_c)
    };
    // A governor has only NVML_TEMPERATURE_THRESHOLD_SLOWDOWN.
    nvmlDeviceGetTemperatureThreshold(device: Handle, kind: c_uint, celsius: Out<c_uint>)
        device |gpu| {
            gpu.governed()?;
            match kind {
                1 => celsius.set(softgpu::HOT_C as c_uint),
                _ => Err(Code::NOT_SUPPORTED),
            }
        };
    // NVML_PSTATE_0: a governor lowers the clock within it.
    nvmlDeviceGetPerformanceState(device: Handle, state: Out<c_uint>) device |_| state.set(0);
    nvmlDeviceGetPowerState(device: Handle, state: Out<c_uint>) device |_| state.set(0);
    // The server keeps the device initialised while unused, which is what the mode means.
    nvmlDeviceGetPersistenceMode(device: Handle, mode: Out<c_uint>) device |_| mode.set(1);
    // NVML_COMPUTEMODE_DEFAULT: any number of contexts.
    nvmlDeviceGetComputeMode(device: Handle, mode: Out<c_uint>) device |_| mode.set(0);
    nvmlDeviceGetDisplayMode(device: Handle, is_on: Out<c_uint>) device |_| is_on.set(0);
    nvmlDeviceGetDisplayActive(device: Handle, is_on: Out<c_uint>) device |_| is_on.set(0);
    nvmlDeviceGetVirtualizationMode(device: Handle, mode: Out<c_uint>) device |_| mode.set(0);
    nvmlDeviceGetAccountingMode(device: Handle, is_on: Out<c_uint>) device |_| is_on.set(0);
}
versions! {
    nvmlDeviceGetPowerManagementLimit nvmlDeviceGetPowerManagementDefaultLimit
    nvmlDeviceGetEnforcedPowerLimit(device: Handle, mw: Out<c_uint>) device |gpu|
        mw.set(gpu.device.tdp_w * 1000)
}

versions! {
    nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons(
        device: Handle, reasons: Out<c_ulonglong>
    ) device |gpu| reasons.set(usage::event_reasons(&gpu.ask()?)?)
}

exports! {
    nvmlGpmQueryDeviceSupport(device: Handle, support: Out<nvmlGpmSupport_t>) device |gpu|
        gpm::query(gpu, &support);
    nvmlGpmSampleAlloc(sample: Out<usize>) |_| {
        if sample.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        sample.set(gpm::allocate()?)
    };
    nvmlGpmSampleFree(sample: usize) |_| gpm::free(sample);
    nvmlGpmSampleGet(device: Handle, sample: usize) device |gpu| gpm::take(gpu, sample);
    nvmlGpmMetricsGet(metrics: Out<GpmMetricsGetHead>) |gpus| gpm::metrics(gpus, &metrics);
}

// MIG: never enabled.
exports! {
    nvmlDeviceGetMigMode(device: Handle, current: Out<c_uint>, pending: Out<c_uint>) device |gpu| {
        if !can_be_divided(&gpu.device) {
            return Err(Code::NOT_SUPPORTED);
        }
        if pending.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        current.set(0)?;
        pending.set(0)
    };
    nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<c_uint>) device |_| count.set(0);
    nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<c_uint>) device |_| is_mig.set(0);
    nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, _index: c_uint, mig: Out<Handle>)
        device |_| Err(if mig.is_null() { Code::INVALID_ARGUMENT } else { Code::NOT_FOUND });
}

exports! {
    nvmlEventSetCreate(set: Out<usize>) |_| {
        if set.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        set.set(reports::create()?)
    };
    nvmlEventSetFree(set: usize) |_| reports::free(set);
    nvmlDeviceGetSupportedEventTypes(device: Handle, types: Out<c_ulonglong>) device |_|
        types.set(reports::SUPPORTED);
    nvmlDeviceRegisterEvents(device: Handle, types: c_ulonglong, set: usize) device |gpu|
        reports::register(gpu, types, set);
    // As on a GPU whose ECC cannot be disabled.
    nvmlDeviceGetEccMode(device: Handle, current: Out<c_uint>, pending: Out<c_uint>) device |_| {
        if pending.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        current.set(1)?;
        pending.set(1)
    };
    // Corrected or not; volatile and aggregate counts are equal here.
    nvmlDeviceGetTotalEccErrors(
        device: Handle, kind: c_uint, counter: c_uint, count: Out<c_ulonglong>
    ) device |gpu| {
        let health = gpu.ask()?.health;
        match (kind, counter) {
            (0, 0 | 1) => count.set(health.corrected),
            (1, 0 | 1) => count.set(health.uncorrected),
            _ => Err(Code::INVALID_ARGUMENT),
        }
    };
    nvmlDeviceGetRemappedRows(
        device: Handle, corrected: Out<c_uint>, uncorrected: Out<c_uint>, is_pending: Out<c_uint>,
        has_failed: Out<c_uint>
    ) device |gpu| {
        let health = gpu.ask()?.health;
        corrected.set(0)?;
        uncorrected.set(u32::from(health.is_pending))?;
        is_pending.set(u32::from(health.is_pending))?;
        has_failed.set(0)
    };
}
versions! {
    nvmlEventSetWait nvmlEventSetWait_v2(set: usize, data: Out<nvmlEventData_t>, timeout_ms: c_uint)
        |gpus| wait(gpus, set, &data, timeout_ms)
}

exports! {
    nvmlDeviceGetFieldValues(device: Handle, count: i32, values: Out<nvmlFieldValue_t>) device |_| {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        if count == 0 || values.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // Each value has a result of its own.
        (0..count).try_for_each(|index| {
            let mut value = values.at(index)?;
            value.nvmlReturn = Code::NOT_SUPPORTED.0;
            values.set_at(index, value)
        })
    };
}

not_supported! {
    nvmlDeviceGetApplicationsClock nvmlDeviceGetAttributes nvmlDeviceGetAttributes_v2
    nvmlDeviceGetAutoBoostedClocksEnabled nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardPartNumber
    nvmlDeviceGetComputeInstanceId nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDefaultEccMode
    nvmlDeviceGetDetailedEccErrors nvmlDeviceGetDeviceHandleFromMigDeviceHandle
    nvmlDeviceGetDriverModel nvmlDeviceGetDriverModel_v2
    nvmlDeviceGetEncoderCapacity nvmlDeviceGetEncoderStats nvmlDeviceGetEncoderUtilization
    nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetGpuInstanceId
    nvmlDeviceGetGpuOperationMode nvmlDeviceGetInforomConfigurationChecksum
    nvmlDeviceGetInforomImageVersion nvmlDeviceGetInforomVersion nvmlDeviceGetJpgUtilization
    nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMemoryBusWidth
    nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetMinMaxFanSpeed nvmlDeviceGetNumFans
    nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetNvLinkRemoteDeviceType
    nvmlDeviceGetNvLinkRemotePciInfo_v2 nvmlDeviceGetNvLinkState nvmlDeviceGetP2PStatus
    nvmlDeviceGetOfaUtilization nvmlDeviceGetPcieReplayCounter
    nvmlDeviceGetPcieSpeed nvmlDeviceGetPcieThroughput nvmlDeviceGetPowerManagementLimitConstraints
    nvmlDeviceGetPowerManagementMode nvmlDeviceGetPowerSource
    nvmlDeviceGetRetiredPages nvmlDeviceGetSerial
    nvmlDeviceGetSupportedClocksThrottleReasons nvmlDeviceGetSupportedGraphicsClocks
    nvmlDeviceGetSupportedMemoryClocks
    nvmlDeviceGetTemperatureV nvmlDeviceGetThermalSettings
    nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetVbiosVersion nvmlDeviceGetViolationStatus
    nvmlDeviceSetAccountingMode nvmlDeviceSetApplicationsClocks nvmlDeviceSetComputeMode
    nvmlDeviceSetEccMode nvmlDeviceSetGpuLockedClocks nvmlDeviceSetMemoryLockedClocks
    nvmlDeviceSetMigMode nvmlDeviceSetPersistenceMode nvmlDeviceSetPowerManagementLimit
    nvmlDeviceResetGpuLockedClocks nvmlDeviceResetMemoryLockedClocks
}

fn wait(gpus: &[Gpu], set: usize, data: &Out<nvmlEventData_t>, timeout_ms: c_uint) -> Outcome {
    if data.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let (place, report) = reports::wait(gpus, set, timeout_ms)?;
    let gpu = gpus.iter().find(|gpu| gpu.place == place);
    data.set(nvmlEventData_t {
        device: gpu.ok_or(Code::INVALID_ARGUMENT)?.handle().pointer().cast(),
        eventType: report.kind,
        eventData: report.data,
        gpuInstanceId: NOT_AVAILABLE,
        computeInstanceId: NOT_AVAILABLE,
    })
}

/// Returns the number of items, and the items themselves if there is room for all.
fn list<T: Copy>(all: &[T], count: &Out<c_uint>, places: &Out<T>) -> Outcome {
    let room = count.get()?;
    count.set(all.len() as c_uint)?;
    if (room as usize) < all.len() {
        return Err(Code::INSUFFICIENT_SIZE);
    }
    places.set_all(all)
}

/// The processes that compute side by side with others.
fn mps_processes(gpu: &Gpu) -> Outcome<Vec<nvmlProcessInfo_t>> {
    let monitor = gpu.ask()?;
    Ok(if monitor.is_mps {
        usage::processes(&monitor)
    } else {
        Vec::new()
    })
}

fn old(processes: &[nvmlProcessInfo_t]) -> Vec<nvmlProcessInfo_v1_t> {
    let processes = processes.iter();
    processes
        .map(|process| nvmlProcessInfo_v1_t {
            pid: process.pid,
            usedGpuMemory: process.usedGpuMemory,
        })
        .collect()
}

/// The first word of a process's command line, truncated to the available room.
fn process_name(pid: c_uint, name: &Out<c_char>, length: c_uint) -> Outcome {
    if length == 0 || name.is_null() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NOT_FOUND)?;
    let first = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(first);
    name.set_text(
        length,
        &text[..text.floor_char_boundary(length as usize - 1)],
    )
}
