//! Modules, libraries and their functions: where kernels get their names.

use core::ffi::{CStr, c_char, c_uint};

use abi::types::{
    CUdeviceptr, CUdeviceptr_v1, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult,
};

use super::{hook, stored};
use crate::driver;
use crate::kernels::KERNELS;
use crate::memory::quota::{self, HELD};

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
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: c_uint, library: CUlibrary);
    after |_, result| {
        // SAFETY: this call's output parameter, which the driver has filled in with as many kernels
        // as the library has, and at most `room`.
        unsafe { handle_enumerated(kernels, room, library, result) };
    };
}

/// Defines a call that invalidates handles. A new generation begins before it, so that another
/// thread that gets a reused handle finds nothing old, and after it, for what came meanwhile.
macro_rules! unload {
    ($name:ident($argument:ident: $type:ty)) => {
        hook! {
            always $name($argument: $type);
            before |_| {
                KERNELS.handle_unloaded();
                HELD.blocks.take_module($argument.0.expose_provenance() as u64)
            };
            after |_, taken, result| {
                KERNELS.handle_unloaded();
                for (key, block) in taken {
                    HELD.blocks.handle_freed(&Some((*key, *block)), result);
                }
            };
        }
    };
}

unload!(cuModuleUnload(module: CUmodule));
unload!(cuLibraryUnload(library: CUlibrary));

macro_rules! variable {
    ($name:ident($address:ty, $size:ty, $module:ident: $type:ty)) => {
        hook! {
            $name(address: *mut $address, bytes: *mut $size, $module: $type, name: *const c_char);
            after |_, result| {
                // SAFETY: this call's output parameters.
                let found = unsafe { stored(address, result).zip(stored(bytes, result)) };
                if let Some(((address, bytes), account)) = found.zip(quota::current()) {
                    let module = $module.0.expose_provenance() as u64;
                    HELD.blocks.handle_variable(address.0.into(), account, bytes as u64, module);
                }
            };
        }
    };
}

variable!(cuModuleGetGlobal(CUdeviceptr_v1, c_uint, module: CUmodule));
variable!(cuModuleGetGlobal_v2(CUdeviceptr, usize, module: CUmodule));
variable!(cuLibraryGetGlobal(CUdeviceptr, usize, library: CUlibrary));

/// Safety: as [`stored`], for up to `room` kernels.
unsafe fn handle_enumerated(
    kernels: *const CUkernel,
    room: c_uint,
    library: CUlibrary,
    result: CUresult,
) {
    if result != CUresult::SUCCESS || kernels.is_null() {
        return;
    }
    // The driver fills in no more than there are.
    let count = driver::library_kernel_count(library).unwrap_or(0).min(room);
    for index in 0..count as usize {
        // SAFETY: as the caller promises.
        let kernel = unsafe { *kernels.add(index) };
        KERNELS.handle_enumerated(kernel);
    }
}

/// The text of a name, if it is UTF-8. Safety: `name` is null or ends in NUL.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}
