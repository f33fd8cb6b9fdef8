//! Access to NVML, the driver's management library: whether it works, its driver version, and the
//! device's processes.
//! Opened at run time, as the driver itself ([`crate::host::device`]); a missing library is
//! reported. Signatures are those of nvml.h, unchanged since the first version with `nvmlInit_v2`.

#![expect(unsafe_code, reason = "calls NVML's functions by their addresses")]

use core::ffi::{c_char, c_uint, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::core::unaccounted_memory::Process;
use crate::host::device::loaders_words;

mod bounded_call;
pub(crate) mod gpm;
mod reports;
pub(crate) mod uses;

pub(crate) use bounded_call::{Asked, PATIENCE, PATIENCE_S, Silence};
pub(crate) use reports::{Ecc, Gauges, Report, Reports};

const LIBRARY: &str = "libnvidia-ml.so.1";
/// NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE (nvml.h).
const VERSION_BYTES: usize = 80;
const SUCCESS: c_uint = 0;
const DRIVER_NOT_LOADED: c_uint = 9;

/// Why NVML does not answer.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    /// The library is missing or unusable.
    #[error("{LIBRARY}, the NVIDIA management library, cannot be opened: {}", loaders_words(.0))]
    NoLibrary(libloading::Error),
    /// It lacks an entry point.
    #[error("{LIBRARY} has no {0}")]
    NoSymbol(&'static str),
    /// A call failed.
    #[error("{call} failed: {}{}", named(*result), hint(*result))]
    Failed {
        /// The call.
        call: &'static str,
        /// Its result, as in nvml.h.
        result: c_uint,
    },
    /// A call has not returned in time.
    #[error("NVML has not answered for {PATIENCE_S} s")]
    Silent,
}

fn named(result: c_uint) -> String {
    let name = match result {
        1 => "NVML_ERROR_UNINITIALIZED",
        2 => "NVML_ERROR_INVALID_ARGUMENT",
        3 => "NVML_ERROR_NOT_SUPPORTED",
        4 => "NVML_ERROR_NO_PERMISSION",
        6 => "NVML_ERROR_NOT_FOUND",
        DRIVER_NOT_LOADED => "NVML_ERROR_DRIVER_NOT_LOADED",
        10 => "NVML_ERROR_TIMEOUT",
        12 => "NVML_ERROR_LIBRARY_NOT_FOUND",
        13 => "NVML_ERROR_FUNCTION_NOT_FOUND",
        15 => "NVML_ERROR_GPU_IS_LOST",
        16 => "NVML_ERROR_RESET_REQUIRED",
        17 => "NVML_ERROR_OPERATING_SYSTEM",
        18 => "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        19 => "NVML_ERROR_IN_USE",
        20 => "NVML_ERROR_MEMORY",
        999 => "NVML_ERROR_UNKNOWN",
        _ => "nvmlReturn",
    };
    format!("{name} ({result})")
}

const fn hint(result: c_uint) -> &'static str {
    match result {
        4 => ", this user may not open the device's files (/dev/nvidia*)",
        DRIVER_NOT_LOADED => {
            ", the kernel module is not loaded: `modprobe nvidia`, or install the driver for this \
             kernel; `dmesg` shows why it does not load"
        }
        16 => {
            ", the GPU must be reset: `pillion drain --gpu G --release`, then `nvidia-smi \
             --gpu-reset -i G` (docs/faults.md)"
        }
        18 => ", library and kernel module differ in version: reboot or reload",
        _ => "",
    }
}

/// NVML as this process finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvml {
    /// The library's file, if the kernel reports it.
    pub library: Option<PathBuf>,
    /// Version of the driver, such as `550.54.15`.
    pub driver_version: String,
}

type Call = unsafe extern "C" fn() -> c_uint;
type GetText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;

/// Opens NVML, queries it once, and shuts it down.
/// # Errors
/// See [`NvmlError`].
pub fn ask() -> Result<Nvml, NvmlError> {
    // SAFETY: runs the initialisers of the system's own management library.
    let library = unsafe { Library::new(LIBRARY) }.map_err(NvmlError::NoLibrary)?;
    // The software GPU's library is a file named by cargo.
    let path = mapped("libnvidia-ml.so").or_else(|| mapped("libnvidia_ml.so"));
    let call = |symbol: &'static str| {
        // SAFETY: nvml.h declares both calls without parameters and with nvmlReturn_t, an enum.
        let function = unsafe { library.get::<Call>(symbol) };
        let function = function.map_err(|_| NvmlError::NoSymbol(symbol))?;
        // SAFETY: as above; the library is open.
        check(symbol, unsafe { function() })
    };
    call("nvmlInit_v2")?;
    let version = driver_version(&library);
    // The query is over; a failure here changes nothing.
    let _ = call("nvmlShutdown");
    Ok(Nvml {
        library: path,
        driver_version: version?,
    })
}

/// Why CUDA may not work, as far as NVML knows: no kernel module, no GPU, or, where CUDA sees
/// none, GPUs hidden from this process. Calls NVML.
pub(crate) fn why_no_gpu(is_none_visible: bool) -> String {
    match count() {
        Err(error) => format!("NVML does not work either: {error}"),
        Ok(0) => {
            "NVML works and sees no GPU: this machine has none, or this container was given none"
                .to_owned()
        }
        Ok(count) if is_none_visible => {
            let hidden = match count {
                1 => "1 GPU, so it is".to_owned(),
                _ => format!("{count} GPUs, so they are"),
            };
            format!("NVML sees {hidden} hidden from CUDA: {}", hidden_by())
        }
        Ok(1) => "NVML works and sees 1 GPU".to_owned(),
        Ok(count) => format!("NVML works and sees {count} GPUs"),
    }
}

fn hidden_by() -> String {
    let files = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
    let open = |file| fs::File::options().read(true).write(true).open(file);
    let closed = files
        .iter()
        .find_map(|file| Some((file, open(file).err()?)));
    if let Some((file, error)) = closed {
        return format!("{file}: {error}");
    }
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(value) => format!("perhaps by CUDA_VISIBLE_DEVICES={value}"),
        Err(_) => {
            "perhaps because the files /dev/nvidiaN are not permitted, or because the GPUs are in \
             MIG mode and have no instances (`nvidia-smi -L`)"
                .to_owned()
        }
    }
}

/// Number of GPUs that NVML sees. Leaves NVML initialised: for a process that ends.
fn count() -> Result<c_uint, NvmlError> {
    const CALLS: [&str; 2] = ["nvmlInit_v2", "nvmlDeviceGetCount_v2"];
    // SAFETY: runs the initialisers of the system's own management library.
    let library = unsafe { Library::new(LIBRARY) }.map_err(NvmlError::NoLibrary)?;
    // SAFETY: nvml.h declares it without parameters and with nvmlReturn_t, an enum.
    let init = unsafe { library.get::<Call>(CALLS[0]) };
    let init = init.map_err(|_| NvmlError::NoSymbol(CALLS[0]))?;
    // SAFETY: as above; the library is open.
    check(CALLS[0], unsafe { init() })?;
    // SAFETY: nvml.h declares it with a pointer to an unsigned int and with nvmlReturn_t.
    let get = unsafe { library.get::<unsafe extern "C" fn(*mut c_uint) -> c_uint>(CALLS[1]) };
    let get = get.map_err(|_| NvmlError::NoSymbol(CALLS[1]))?;
    let mut count = 0;
    // SAFETY: room for one number.
    check(CALLS[1], unsafe { get(&raw mut count) })?;
    Ok(count)
}

/// A device's processes, as NVML lists them. Keeps NVML open.
pub struct Processes {
    library: Open,
    device: Device,
}

pub(crate) struct Open(Library);

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: nvml.h declares it without parameters and with nvmlReturn_t, an enum. NVML counts
        // its initialisations.
        if let Ok(shut_down) = unsafe { self.0.get::<Call>("nvmlShutdown") } {
            // SAFETY: as above; the library is open, and initialised by this value's creator.
            let _ = unsafe { shut_down() };
        }
    }
}

impl core::ops::Deref for Open {
    type Target = Library;

    fn deref(&self) -> &Library {
        &self.0
    }
}

pub(crate) fn open_device(uuid: &str) -> Result<(Open, Device), NvmlError> {
    const CALL: &str = "nvmlDeviceGetHandleByUUID";
    // SAFETY: runs the initialisers of the system's own management library.
    let library = unsafe { Library::new(LIBRARY) }.map_err(NvmlError::NoLibrary)?;
    // SAFETY: nvml.h declares it without parameters and with nvmlReturn_t, an enum.
    let init = unsafe { library.get::<Call>("nvmlInit_v2") };
    let init = init.map_err(|_| NvmlError::NoSymbol("nvmlInit_v2"))?;
    // SAFETY: as above; the library is open.
    check("nvmlInit_v2", unsafe { init() })?;
    let library = Open(library);
    // SAFETY: the signature that nvml.h gives the name.
    let get = unsafe { library.get::<GetDevice>(CALL) };
    let get = get.map_err(|_| NvmlError::NoSymbol(CALL))?;
    let mut device = core::ptr::null_mut();
    let text = std::ffi::CString::new(uuid).unwrap_or_default();
    // SAFETY: a text that ends in NUL, and room for one handle.
    check(CALL, unsafe { get(text.as_ptr(), &raw mut device) })?;
    Ok((library, Device(device)))
}

/// `nvmlDevice_t`. NVML's handles are valid in every thread while the library is initialised.
#[derive(Clone, Copy)]
pub(crate) struct Device(pub(crate) *mut c_void);

// SAFETY: NVML is thread-safe (its reference: all functions), and only gets the handle back.
unsafe impl Send for Device {}

/// `nvmlProcessInfo_t` as of the second version.
#[derive(Clone, Copy)]
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    used_bytes: u64,
    gpu_instance_id: c_uint,
    compute_instance_id: c_uint,
}

type GetDevice = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_uint;
type GetProcesses = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_uint;

/// NVML's lists: of processes by themselves, and of MPS clients. A process may be in both.
const LISTS: [[&str; 2]; 2] = [
    [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
    ],
    [
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    ],
];
/// The list of graphics processes, including those that also compute.
const GRAPHICS: [&str; 2] = [
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
];
/// Processes of a device at most.
const PROCESSES_MAX: usize = 4096;
const NOT_SUPPORTED: c_uint = 3;
/// NVML_ERROR_INSUFFICIENT_SIZE: the list has grown between two calls.
const INSUFFICIENT_SIZE: c_uint = 7;

impl Processes {
    /// For the device with this UUID.
    /// # Errors
    /// See [`NvmlError`].
    pub fn open(uuid: &str) -> Result<Self, NvmlError> {
        let (library, device) = open_device(uuid)?;
        Ok(Self { library, device })
    }

    /// Processes with memory of the device, each once.
    /// # Errors
    /// See [`NvmlError`].
    pub fn list(&self) -> Result<Vec<Process>, NvmlError> {
        let mut all: Vec<Process> = Vec::new();
        for names in LISTS {
            add_each_once(&mut all, self.list_by(names)?);
        }
        Ok(all)
    }

    /// Graphics processes.
    pub(crate) fn graphics(&self) -> Result<Vec<u32>, NvmlError> {
        let drawing = self.list_by(GRAPHICS)?;
        Ok(drawing.iter().map(|process| process.pid).collect())
    }

    /// Lists by the newest of these functions that NVML has; empty without any.
    fn list_by(&self, names: [&'static str; 2]) -> Result<Vec<Process>, NvmlError> {
        let found = names.into_iter().find_map(|name| {
            // SAFETY: the signature that nvml.h gives all names of the lists.
            let function = unsafe { self.library.get::<GetProcesses>(name) }.ok()?;
            Some((name, *function))
        });
        match found {
            Some((name, function)) => self.list_of(name, function),
            None => Ok(Vec::new()),
        }
    }

    fn list_of(
        &self,
        name: &'static str,
        function: GetProcesses,
    ) -> Result<Vec<Process>, NvmlError> {
        let nobody = ProcessInfo {
            pid: 0,
            used_bytes: 0,
            gpu_instance_id: 0,
            compute_instance_id: 0,
        };
        let mut room = 64;
        loop {
            let mut infos = vec![nobody; room];
            let mut count = room as c_uint;
            // SAFETY: room for `count` entries.
            match unsafe { function(self.device.0, &raw mut count, infos.as_mut_ptr()) } {
                INSUFFICIENT_SIZE if room < PROCESSES_MAX => room *= 4,
                NOT_SUPPORTED => return Ok(Vec::new()),
                result => {
                    check(name, result)?;
                    infos.truncate(count as usize);
                    return Ok(infos.iter().map(process).collect());
                }
            }
        }
    }
}

/// A process in two lists has its memory once: each list reports all of it.
fn add_each_once(all: &mut Vec<Process>, more: Vec<Process>) {
    for process in more {
        match all.iter_mut().find(|known| known.pid == process.pid) {
            Some(known) => known.used_bytes = known.used_bytes.max(process.used_bytes),
            None => all.push(process),
        }
    }
}

fn process(info: &ProcessInfo) -> Process {
    Process {
        pid: info.pid,
        // NVML_VALUE_NOT_AVAILABLE.
        used_bytes: Some(info.used_bytes).filter(|&bytes| bytes != u64::MAX),
    }
}

fn driver_version(library: &Library) -> Result<String, NvmlError> {
    const CALL: &str = "nvmlSystemGetDriverVersion";
    // SAFETY: the signature that nvml.h gives the name.
    let function = unsafe { library.get::<GetText>(CALL) };
    let function = function.map_err(|_| NvmlError::NoSymbol(CALL))?;
    let mut bytes = [0_u8; VERSION_BYTES + 1];
    // SAFETY: writes at most the given number of bytes, one less than there are.
    let result = unsafe { function(bytes.as_mut_ptr().cast(), VERSION_BYTES as c_uint) };
    check(CALL, result)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

pub(crate) fn check(call: &'static str, result: c_uint) -> Result<(), NvmlError> {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(NvmlError::Failed { call, result })
    }
}

/// File of a mapped library, by its name's prefix, as the kernel reports it: links resolved.
pub(crate) fn mapped(prefix: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.find('/').map(|start| Path::new(&line[start..])))
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    // census: D15
    #[test]
    fn a_process_in_two_lists_counts_once() {
        let process = |pid, used_bytes| Process { pid, used_bytes };
        let mut all = vec![process(1, Some(5)), process(2, None)];
        let more = vec![process(2, Some(7)), process(1, Some(5)), process(3, None)];
        add_each_once(&mut all, more);
        let expected = [process(1, Some(5)), process(2, Some(7)), process(3, None)];
        assert_eq!(all, expected);
    }
}
