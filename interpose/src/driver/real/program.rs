//! The driver as the program finds it: `libcuda.so.1`, wherever the loader has or will.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering;

use crate::platform::loader;
use crate::platform::phase::{self, Phase};

/// The driver's library.
const DRIVER: &CStr = c"libcuda.so.1";

/// What our shim exports and no driver does.
const SHIM_MARK: &CStr = c"pillion_shim";

/// The handle of the driver's library, or null. What the program has loaded comes first; with
/// `RTLD_NOLOAD` in `mode` nothing else does.
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
        // That one attaches, and this copy forwards.
        phase::enter(Phase::Inert);
    }
    opened
}
