//! The driver behind the shim, which is itself the `libcuda.so.1` that the program finds.
//!
//! The driver is opened by its path, under which the loader knows it as another file. The path is
//! looked for in this order:
//!
//! 1. `PILLION_DRIVER`, which `pillion run --shim` sets to what the loader finds without the shim;
//! 2. `libcuda.so.1` in the folders of `LD_LIBRARY_PATH`;
//! 3. in the folders where drivers are installed.
//!
//! A file that is a shim again is passed over. In a program that runs with more rights than its user
//! (`AT_SECURE`), only the last counts: whoever sets the environment must not choose its code.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::loader;
use crate::log::{self, Level};

/// The driver's file.
const DRIVER: &str = "libcuda.so.1";

/// The variable with the driver's path.
const VARIABLE: &str = "PILLION_DRIVER";

/// Where drivers are installed: by distributions, in NVIDIA's containers, under WSL.
const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
];

/// What our shim exports and no driver does.
const SHIM_MARK: &CStr = c"pillion_shim";

/// Found here by `pillion_shim`'s bearer, so that the preload library knows the shim.
// SAFETY: no other library has a symbol of this name.
#[unsafe(no_mangle)]
static pillion_shim: u8 = 1;

/// The handle of the driver's library, or null. The program has loaded us as its driver, so the mode
/// in which it may be loaded does not matter.
pub(super) fn open(_mode: c_int) -> *mut c_void {
    /// Set when all places were looked at in vain.
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    if HAS_FAILED.load(Ordering::Relaxed) {
        return ptr::null_mut();
    }
    // SAFETY: the call has no precondition.
    let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    let variable = |name| std::env::var_os(name).filter(|value| !is_secure && !value.is_empty());
    if let Some(path) = variable(VARIABLE) {
        if let Some(found) = open_driver(Path::new(&path)) {
            return found;
        }
        let path = path.display();
        log::say(
            Level::Error,
            format_args!("{VARIABLE}={path}: no driver; looking elsewhere"),
        );
    }
    let folders = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let found = folders
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b';'))
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        .chain(FOLDERS.iter().map(Path::new))
        .find_map(|folder| open_driver(&folder.join(DRIVER)));
    found.unwrap_or_else(|| {
        HAS_FAILED.store(true, Ordering::Relaxed);
        log::say(
            Level::Error,
            format_args!("no {DRIVER} behind the shim; {VARIABLE} can name one"),
        );
        ptr::null_mut()
    })
}

/// Opens a file that is a library and no shim.
fn open_driver(path: &Path) -> Option<*mut c_void> {
    // A failed `dlopen` leaves an error for the program to find, and allocates.
    if !path.is_file() {
        return None;
    }
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a string that ends in NUL.
    let opened = unsafe { loader::dlopen()(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if opened.is_null() {
        return None;
    }
    // SAFETY: an open library and a string that ends in NUL.
    let mark = unsafe { loader::dlsym()(opened, SHIM_MARK.as_ptr()) };
    if mark.is_null() {
        return Some(opened);
    }
    // SAFETY: opened above, and nobody uses it.
    unsafe { libc::dlclose(opened) };
    None
}
