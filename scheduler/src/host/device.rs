//! Asks the driver for the machine's GPUs.
//! A process that initialises CUDA is a client of MPS for life, and while it lives clients of other
//! users wait (Multi-Process Service, "MPS Client" and "Architecture"). So a child process asks,
//! with MPS hidden from it, and ends ([`gpus`]); the daemon itself never initialises CUDA nor opens
//! its library.
//!
//! Unsafe: the fork, and in the child ten calls of `libcuda.so.1`, opened at run time so that the
//! daemon starts, and reports what is missing, without a driver. No context is created: it would
//! take several hundred MB of the GPU. The library stays open, because the driver's own threads may
//! still run in it. The signatures are those of the CUDA driver API (cuda.h), unchanged since 4.0;
//! `cuDeviceGetUuid_v2`, which knows MIG instances, since 11.4.

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses, and forks"
)]

use core::error::Error;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::mem::{ManuallyDrop, MaybeUninit};
use core::time::Duration;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use abi::types::CUresult;
use libloading::Library;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use protocol::clock::Clock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::config::gpu::{Gpu, PciAddress};
use crate::host::mps::PIPES_ENV;
use crate::host::nvml;

const LIBRARY: &str = "libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` (cuda.h).
const ATTRIBUTE_SMS: c_int = 16;
/// Only in the software GPU's driver (`softgpu/driver`): whether priorities between blocks work.
const BLOCK_PRIORITY: &str = "softgpu_block_priority";
/// Length of the text buffer; NVML_DEVICE_NAME_V2_BUFFER_SIZE is 96.
const TEXT_BYTES: usize = 256;
/// Devices queried at most; CUDA's own limit is far below.
const DEVICES_MAX: c_int = 256;
/// Longest wait for the child, ns. A driver that loads its module or wakes a GPU takes seconds.
const ANSWER_WITHIN_NS: u64 = 60_000_000_000;
/// Number and interval of polls for a killed child.
const BURIAL_LOOKS: u32 = 100;
const BURIAL_LOOK_NS: u64 = 10_000_000;
/// MPS's folder for the child: nothing can exist below a device.
const NO_MPS: &str = "/dev/null/mps";

/// Why the driver does not list the GPUs.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library is missing or unusable.
    #[error("{LIBRARY}, the NVIDIA driver's library, cannot be opened: {}", loaders_words(.0))]
    NoLibrary(libloading::Error),
    /// It lacks an entry point.
    #[error("{LIBRARY} has no {symbol}: not a CUDA driver, or one before 4.0")]
    NoSymbol {
        /// The entry point.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {}{}", named(*result), hint(*result))]
    Failed {
        /// The call.
        call: &'static str,
        /// Its result, as in cuda.h.
        result: c_uint,
    },
    /// The child reported one of these.
    #[error("{0}")]
    Said(String),
    /// No answer from the child.
    #[error("the driver does not answer ({doing}): {error}")]
    NoAnswer {
        /// The failed step.
        doing: &'static str,
        /// Why.
        error: io::Error,
    },
}

fn named(result: c_uint) -> String {
    let name = CUresult(result).name().and_then(|name| name.to_str().ok());
    format!("{} ({result})", name.unwrap_or("CUresult"))
}

const fn hint(result: c_uint) -> &'static str {
    match CUresult(result) {
        CUresult::NO_DEVICE => ", no GPU is visible to this process",
        CUresult::SYSTEM_DRIVER_MISMATCH | CUresult::COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            ", the driver's library and kernel module differ in version: reboot or reload"
        }
        CUresult::SYSTEM_NOT_READY => {
            ", on machines with NVSwitch often because nvidia-fabricmanager does not run"
        }
        CUresult::UNKNOWN => ", often a kernel module that is not loaded (nvidia-uvm)",
        _ => "",
    }
}

type Init = unsafe extern "C" fn(c_uint) -> c_uint;
type Count = unsafe extern "C" fn(*mut c_int) -> c_uint;
type Get = unsafe extern "C" fn(*mut c_int, c_int) -> c_uint;
type GetText = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_uint;
type GetBytes = unsafe extern "C" fn(*mut usize, c_int) -> c_uint;
type GetUuid = unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_uint;

/// The driver library's file by the loader's path, links unresolved; `None` if unreported.
/// # Errors
/// See [`DeviceError`].
pub fn library_path() -> Result<Option<PathBuf>, DeviceError> {
    const CALL: &str = "cuDriverGetVersion";
    let driver = Driver::open()?;
    let function: Count = driver.symbol(CALL)?;
    let mut told = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr(3) gets an address and room for its answer, of which all zeroes is a valid
    // value. Its strings are the loader's, valid while the library is open, and it is never closed.
    let path = unsafe {
        let found = libc::dladdr(function as *const c_void, told.as_mut_ptr());
        let name = told.assume_init().dli_fname;
        (found != 0 && !name.is_null()).then(|| CStr::from_ptr(name))
    };
    Ok(path.map(|path| OsStr::from_bytes(path.to_bytes()).into()))
}

/// The newest CUDA version of the driver, by `cuDriverGetVersion`: 1000 × major + 10 × minor.
/// # Errors
/// See [`DeviceError`].
pub fn driver_version() -> Result<u32, DeviceError> {
    Driver::open()?.version()
}

/// The machine's GPUs that the driver shows to a process with this environment. Call before
/// starting other threads.
/// # Errors
/// See [`DeviceError`]. Without a GPU `cuInit` fails (100), rather than an empty list; the error
/// includes NVML's reason.
pub fn gpus() -> Result<Vec<Gpu>, DeviceError> {
    let failed = |doing| move |error| DeviceError::NoAnswer { doing, error };
    let pipe = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
    let (reader, writer) = pipe.map_err(failed("pipe"))?;
    // SAFETY: without other threads the child may do what any process may.
    match unsafe { fork() }.map_err(io::Error::from) {
        Ok(ForkResult::Child) => {
            drop(reader);
            tell(writer);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) }
        }
        Ok(ForkResult::Parent { child }) => {
            drop(writer);
            let said = hear(reader).inspect_err(|_| {
                // Reap it, as a process that becomes a job should have no child; briefly, as it may
                // hang.
                let _ = kill(child, Signal::SIGKILL);
                let clock = Clock::monotonic();
                for _ in 0..BURIAL_LOOKS {
                    match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
                        Ok(WaitStatus::StillAlive) => {
                            clock.sleep_until(clock.now_ns() + BURIAL_LOOK_NS);
                        }
                        _ => break,
                    }
                }
            });
            let said = said.map_err(failed("reading"))?;
            bury(child);
            let answer: Result<Vec<Gpu>, String> = serde_json::from_slice(&said)
                .map_err(|error| failed("ended early")(error.into()))?;
            answer.map_err(DeviceError::Said)
        }
        Err(error) => Err(failed("fork")(error)),
    }
}

fn tell(writer: OwnedFd) {
    // SAFETY: the only thread of its process.
    unsafe { std::env::set_var(PIPES_ENV, NO_MPS) };
    let answer = gpus_here().map_err(|error| match &error {
        // The driver reports only that there is no GPU; NVML knows why.
        DeviceError::Failed {
            call: "cuInit",
            result,
        } => {
            let is_none_visible = CUresult(*result) == CUresult::NO_DEVICE;
            format!("{error}; {}", nvml::why_no_gpu(is_none_visible))
        }
        _ => error.to_string(),
    });
    // Without this answer the parent reports the failure.
    if let Ok(answer) = serde_json::to_vec(&answer) {
        let _ = File::from(writer).write_all(&answer);
    }
}

fn hear(reader: OwnedFd) -> io::Result<Vec<u8>> {
    // Real time, as the driver takes it.
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + ANSWER_WITHIN_NS;
    let mut reader = File::from(reader);
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left_ns = end_ns.saturating_sub(clock.now_ns());
        let timeout = Duration::from_nanos(left_ns).try_into().ok();
        let mut ready = [PollFd::new(&reader, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match reader.read(&mut part)? {
            0 => return Ok(said),
            count => said.extend_from_slice(&part[..count]),
        }
    }
}

fn bury(child: Pid) {
    while waitpid(child, None) == Err(nix::errno::Errno::EINTR) {}
}

fn gpus_here() -> Result<Vec<Gpu>, DeviceError> {
    let driver = Driver::open()?;
    let init: Init = driver.symbol("cuInit")?;
    // SAFETY: cuInit takes its flags, which must be 0.
    check("cuInit", unsafe { init(0) })?;
    let count: Count = driver.symbol("cuDeviceGetCount")?;
    let mut devices = 0;
    // SAFETY: writes one int to the pointer, which is valid for the call.
    check("cuDeviceGetCount", unsafe { count(&raw mut devices) })?;
    (0..devices.min(DEVICES_MAX))
        .map(|index| driver.describe(index))
        .collect()
}

struct Driver {
    library: ManuallyDrop<Library>,
}

impl Driver {
    fn open() -> Result<Self, DeviceError> {
        // SAFETY: runs the initialisers of the system's CUDA driver, which is what every CUDA
        // program does.
        let library = unsafe { Library::new(LIBRARY) }.map_err(DeviceError::NoLibrary)?;
        Ok(Self {
            library: ManuallyDrop::new(library),
        })
    }

    /// Looks up an entry point; `F` is one of the signatures above.
    fn symbol<F: Copy>(&self, symbol: &'static str) -> Result<F, DeviceError> {
        // SAFETY: each caller in this file uses cuda.h's signature for the name, and the library is
        // never closed, so the pointer stays valid.
        let found = unsafe { self.library.get::<F>(symbol) };
        found
            .map(|function| *function)
            .map_err(|_| DeviceError::NoSymbol { symbol })
    }

    fn describe(&self, index: c_int) -> Result<Gpu, DeviceError> {
        let get: Get = self.symbol("cuDeviceGet")?;
        let mut device = 0;
        // SAFETY: writes one device, an int, to the pointer.
        check("cuDeviceGet", unsafe { get(&raw mut device, index) })?;
        let attribute: GetAttribute = self.symbol("cuDeviceGetAttribute")?;
        let mut sms = 0;
        // SAFETY: writes one int to the pointer.
        let result = unsafe { attribute(&raw mut sms, ATTRIBUTE_SMS, device) };
        check("cuDeviceGetAttribute", result)?;
        let pci = self.text("cuDeviceGetPCIBusId", device)?;
        Ok(Gpu {
            uuid: self.uuid(device)?,
            name: self.text("cuDeviceGetName", device)?,
            // The software GPU may leave it empty; only selection by bus id needs it.
            pci: pci.parse().unwrap_or(PciAddress::default()),
            sms: u32::try_from(sms).unwrap_or(0),
            memory_bytes: self.memory_bytes(device).unwrap_or_else(|error| {
                tracing::warn!("{error}; quotas in per cent of the memory cannot be enforced");
                0
            }),
            cuda_driver: self.version().unwrap_or(0),
            block_priority: self.block_priority(device),
        })
    }

    fn version(&self) -> Result<u32, DeviceError> {
        const CALL: &str = "cuDriverGetVersion";
        let get: Count = self.symbol(CALL)?;
        let mut version = 0;
        // SAFETY: writes one int to the pointer, which is valid for the call; allowed before
        // cuInit.
        check(CALL, unsafe { get(&raw mut version) })?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    fn block_priority(&self, device: c_int) -> Option<bool> {
        let get: Get = self.symbol(BLOCK_PRIORITY).ok()?;
        let mut value = 0;
        // SAFETY: the software GPU's driver, which alone has this name, writes one int.
        let result = unsafe { get(&raw mut value, device) };
        check(BLOCK_PRIORITY, result).ok()?;
        Some(value != 0)
    }

    fn memory_bytes(&self, device: c_int) -> Result<u64, DeviceError> {
        const CALL: &str = "cuDeviceTotalMem_v2";
        let get: GetBytes = self.symbol(CALL)?;
        let mut bytes = 0;
        // SAFETY: writes one size_t to the pointer.
        check(CALL, unsafe { get(&raw mut bytes, device) })?;
        Ok(bytes as u64)
    }

    fn uuid(&self, device: c_int) -> Result<String, DeviceError> {
        const CALL: &str = "cuDeviceGetUuid";
        let get: GetUuid = self
            .symbol("cuDeviceGetUuid_v2")
            .or_else(|_| self.symbol(CALL))?;
        let mut bytes = [0; 16];
        // SAFETY: writes the 16 bytes of a CUuuid to the pointer.
        check(CALL, unsafe { get(&raw mut bytes, device) })?;
        Ok(protocol::hello::format_uuid(bytes))
    }

    fn text(&self, call: &'static str, device: c_int) -> Result<String, DeviceError> {
        let get: GetText = self.symbol(call)?;
        let mut bytes = [0_u8; TEXT_BYTES];
        // SAFETY: writes at most the given number of bytes, one less than there are: a 0 remains.
        let result = unsafe { get(bytes.as_mut_ptr().cast(), TEXT_BYTES as c_int - 1, device) };
        check(call, result)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

fn check(call: &'static str, result: c_uint) -> Result<(), DeviceError> {
    match result {
        0 => Ok(()),
        result => Err(DeviceError::Failed { call, result }),
    }
}

/// The dynamic loader's message about a library that it did not open.
pub(crate) fn loaders_words(error: &libloading::Error) -> String {
    // Its message is in the source; the error itself says only that `dlopen` failed.
    let words = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    // Callers name the library and say that it cannot be opened (dlerror(3) of glibc).
    match words.split_once(": cannot open shared object file: ") {
        Some((_, why)) => why.to_owned(),
        None => words,
    }
}
