//! A process that holds memory of the device until it is killed. Signatures are those of cuda.h.

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses"
)]

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr;

use anyhow::ensure;

const LIBRARY: &CStr = c"libcuda.so.1";

type Init = unsafe extern "C" fn(c_uint) -> c_uint;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_uint;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_uint;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_uint;

/// A function of the driver's. `F` is the type of `symbol` above.
fn function<F: Copy>(symbol: &CStr) -> anyhow::Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends in NUL; the library's initialisers are its own.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
    ensure!(!library.is_null(), "cannot open {LIBRARY:?}");
    // SAFETY: an open library and a name that ends in NUL.
    let address = unsafe { libc::dlsym(library, symbol.as_ptr()) };
    ensure!(!address.is_null(), "cannot resolve {symbol:?}");
    // SAFETY: `hold` names cuda.h's signature; a function pointer has the size of an address.
    Ok(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}

pub(crate) fn hold(parts: usize, part_bytes: usize) -> anyhow::Result<()> {
    let mut context = ptr::null_mut();
    // SAFETY: pointers to locals that outlive the calls; the context is the last call's.
    let results = unsafe {
        [
            function::<Init>(c"cuInit")?(0),
            function::<Retain>(c"cuDevicePrimaryCtxRetain")?(&raw mut context, 0),
            function::<SetCurrent>(c"cuCtxSetCurrent")?(context),
        ]
    };
    ensure!(results == [0; 3], "no context: CUresult {results:?}");
    let alloc = function::<Alloc>(c"cuMemAlloc_v2")?;
    for _ in 0..parts {
        let mut address = 0;
        // SAFETY: the pointer is to a local.
        let result = unsafe { alloc(&raw mut address, part_bytes) };
        ensure!(result == 0, "cuMemAlloc failed with CUresult {result}");
    }
    Ok(())
}
