//! The driver behind the shim, which is itself the `libcuda.so.1` that the program finds.
//!
//! The shim depends on the driver like any library on another (`DT_NEEDED`, written by
//! `shim/build.rs`): the driver's file, or a link to it, is called [`DRIVER`] and lies beside the
//! shim. So the dynamic linker loads both together, and what the shim does not define, a program
//! finds in the driver: every name that this driver has, those that we have never heard of too.
//! Without a driver the shim is not loaded either, and the program is told so as it would be
//! without us.
//!
//! The other way round, names of hooks that this driver lacks are withdrawn as soon as both are
//! there, so that a program that asks
//! `dlsym` for one does not find it. What is linked with such a name was bound before that, and
//! finds a hook that answers CUDA_ERROR_NOT_FOUND.

use core::ffi::{CStr, c_int, c_void};

use crate::driver::real::HOOKED;
use crate::platform::{elf, loader};

/// The driver's file, for the dynamic linker: `$ORIGIN` is the folder in which the shim was found.
const DRIVER: &CStr = c"$ORIGIN/driver/libcuda.so.1";

/// Found here by `pillion_shim`'s bearer, so that the preload library knows the shim.
// SAFETY: no other library has a symbol of this name.
#[unsafe(no_mangle)]
static pillion_shim: u8 = 1;

/// Run by the dynamic linker once the shim and the driver are loaded, before anybody can ask for a
/// name.
// SAFETY: a function that may run before all others of this library: it uses nothing that is to be
// made first.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = withdraw_what_is_lacking;

extern "C" fn withdraw_what_is_lacking() {
    // Where what is behind us is no driver, ourselves say, nothing is learnt from that.
    if !super::has(abi::id::cuInit) {
        return;
    }
    let lacking = HOOKED.iter().filter(|&&index| !super::has(index));
    elf::withdraw(lacking.map(|&index| abi::ENTRY_POINTS[index].symbol));
}

/// The handle of the driver's library, which is there since we are.
pub(super) fn open(_mode: c_int) -> *mut c_void {
    // SAFETY: a string that ends in NUL.
    unsafe { loader::dlopen()(DRIVER.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}
