//! Modules, libraries and the functions in them: where kernels get their names.

use core::ffi::{CStr, c_char};

use abi::types::{CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};

use super::{hook, stored};
use crate::kernels::KERNELS;

hook! {
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    after |_, result| {
        // SAFETY: this call's output parameter, and the name that the driver found it by.
        let found = unsafe { (stored(function, result), text(name)) };
        if let (Some(function), Some(name)) = found {
            KERNELS.handle_function(function, name);
        }
    };
}

hook! {
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    after |_, result| {
        // SAFETY: as above.
        let found = unsafe { (stored(kernel, result), text(name)) };
        if let (Some(kernel), Some(name)) = found {
            KERNELS.handle_kernel(kernel, name);
        }
    };
}

hook! {
    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    after |_, result| {
        // SAFETY: this call's output parameter.
        if let Some(function) = unsafe { stored(function, result) } {
            KERNELS.handle_kernel_function(kernel, function);
        }
    };
}

hook! {
    cuModuleUnload(module: CUmodule);
    after |_, result| handle_unloaded(result);
}

hook! {
    cuLibraryUnload(library: CUlibrary);
    after |_, result| handle_unloaded(result);
}

fn handle_unloaded(result: CUresult) {
    if result == CUresult::SUCCESS {
        KERNELS.handle_unloaded();
    }
}

/// The text of a name, if there is one and it is UTF-8.
///
/// # Safety
/// `name` is null or ends in NUL.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}
