//! Asks NVML, the driver's management library, whether it works and which driver it belongs to.
//!
//! Opened at run time, as the driver itself ([`crate::device`]): where it is missing, that is said.
//! Signatures are those of nvml.h, the same since the first version with the suffix `_v2` of `nvmlInit`.

use core::ffi::{c_char, c_uint};
use std::fs;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::device::loaders_words;

/// What is opened.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE (nvml.h).
const VERSION_BYTES: usize = 80;
/// NVML_SUCCESS.
const SUCCESS: c_uint = 0;

/// Why NVML does not answer.
#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    /// The library is not there, or not one.
    #[error("{LIBRARY}, the NVIDIA management library, cannot be opened: {}", loaders_words(.0))]
    NoLibrary(#[source] libloading::Error),
    /// It lacks an entry point.
    #[error("{LIBRARY} has no {0}")]
    NoSymbol(&'static str),
    /// A call failed.
    #[error("{call} failed with nvmlReturn {result}{}", hint(*result))]
    Failed {
        /// Which call.
        call: &'static str,
        /// What it returned, as in nvml.h.
        result: c_uint,
    },
}

/// What an operator can do about a result.
fn hint(result: c_uint) -> &'static str {
    match result {
        4 => " (no permission)",
        9 => " (the driver is not loaded)",
        18 => " (library and kernel module differ in version: reboot or reload)",
        _ => "",
    }
}

/// NVML as this process finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvml {
    /// The library's file, if the kernel says which it is.
    pub library: Option<PathBuf>,
    /// Version of the driver, such as `550.54.15`.
    pub driver_version: String,
}

type Call = unsafe extern "C" fn() -> c_uint;
type GetText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;

/// Opens NVML, asks it once, and shuts it down.
///
/// # Errors
///
/// See [`NvmlError`].
pub fn ask() -> Result<Nvml, NvmlError> {
    // SAFETY: runs the initialisers of the system's own management library.
    let library = unsafe { Library::new(LIBRARY) }.map_err(NvmlError::NoLibrary)?;
    // The software GPU's is a file that cargo names.
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
    // It was asked; what it says to this changes nothing.
    let _ = call("nvmlShutdown");
    Ok(Nvml {
        library: path,
        driver_version: version?,
    })
}

fn driver_version(library: &Library) -> Result<String, NvmlError> {
    const CALL: &str = "nvmlSystemGetDriverVersion";
    // SAFETY: the signature that nvml.h gives the name.
    let function = unsafe { library.get::<GetText>(CALL) };
    let function = function.map_err(|_| NvmlError::NoSymbol(CALL))?;
    let mut bytes = [0_u8; VERSION_BYTES + 1];
    // SAFETY: writes at most as many bytes as it is told, one less than there are.
    let result = unsafe { function(bytes.as_mut_ptr().cast(), VERSION_BYTES as c_uint) };
    check(CALL, result)?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

fn check(call: &'static str, result: c_uint) -> Result<(), NvmlError> {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(NvmlError::Failed { call, result })
    }
}

/// The file of a library that is mapped into this process, by the beginning of its name, as the
/// kernel tells it: with links resolved.
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
