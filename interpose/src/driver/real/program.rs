//! The driver as the program finds it: `libcuda.so.1`, as the loader resolves it.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::platform::loader;
use crate::platform::phase::{self, Phase};

const DRIVER: &CStr = c"libcuda.so.1";

/// An export of our shim and of no driver.
const SHIM_MARK: &CStr = c"pillion_shim";

/// The driver's library, or null. A library that the program has loaded comes first; with
/// `RTLD_NOLOAD` in `mode` no other is tried.
pub(super) fn open(mode: c_int) -> *mut c_void {
    let dlopen = loader::dlopen();
    // SAFETY: the name ends in NUL.
    let mut opened = unsafe { dlopen(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if opened.is_null() && mode & libc::RTLD_NOLOAD == 0 {
        // SAFETY: as above.
        opened = unsafe { dlopen(DRIVER.as_ptr(), mode) };
    }
    // SAFETY: an open library and a string that ends in NUL.
    if !opened.is_null() && !unsafe { loader::dlsym()(opened, SHIM_MARK.as_ptr()) }.is_null() {
        super::DRIVER.is_shim.store(true, Ordering::Relaxed);
        // The shim attaches; this copy forwards.
        phase::enter(Phase::Inert);
    }
    opened
}
