//! The driver behind the shim, which is itself the program's `libcuda.so.1`. The shim depends on
//! the driver like any library on another (`DT_NEEDED`, written by `shim/build.rs`): the driver's
//! file, or a link to it, is called [`DRIVER`] and lies beside the shim. So the dynamic linker
//! loads both together, and a program finds in the driver every name that the shim does not define,
//! even names that we have never heard of. Without a driver the shim does not load either, and the
//! program gets the same error as without us. Conversely, names of hooks that this driver lacks are
//! withdrawn as soon as both are loaded, so that `dlsym` does not find them. A program linked with
//! such a name was bound before that, and calls a hook that returns CUDA_ERROR_NOT_FOUND.

use core::ffi::{CStr, c_int, c_void};

use crate::driver::real::HOOKED;
use crate::platform::{elf, loader};

/// The driver's file; the dynamic linker replaces `$ORIGIN` by the shim's folder.
const DRIVER: &CStr = c"$ORIGIN/driver/libcuda.so.1";

/// Identifies the shim to the preload library.
// SAFETY: no other library has a symbol of this name.
#[unsafe(no_mangle)]
static pillion_shim: u8 = 1;

/// Run by the dynamic linker once the shim and the driver are loaded, before any look-up of a name.
// SAFETY: may run before everything else in this library: it needs no earlier initialisation.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = withdraw_what_is_lacking;

extern "C" fn withdraw_what_is_lacking() {
    // If the library behind us is no driver, for example ourselves, it shows nothing.
    if !super::has(abi::id::cuInit) {
        return;
    }
    let lacking = HOOKED.iter().filter(|&&index| !super::has(index));
    elf::withdraw(lacking.map(|&index| abi::ENTRY_POINTS[index].symbol));
}

/// The driver's library, loaded together with us.
pub(super) fn open(_mode: c_int) -> *mut c_void {
    // SAFETY: a string that ends in NUL.
    unsafe { loader::dlopen()(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}
