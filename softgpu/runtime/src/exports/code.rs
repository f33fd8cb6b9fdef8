//! Libraries that a program loads explicitly.

use std::ffi::{c_char, c_uint, c_void};

use abi::types::{CUdeviceptr, CUkernel, CUlibrary};

use super::exports;
use crate::raw::Out;
use crate::registry::note_kernel;

exports! {
    cudaLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint
    ) |driver| driver.cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count);

    cudaLibraryLoadFromFile(
        library: *mut CUlibrary, path: *const c_char, jit_options: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint
    ) |driver| driver.cuLibraryLoadFromFile(library, path, jit_options, jit_values, jit_count, options, values, count);

    cudaLibraryUnload(library: CUlibrary) |driver| driver.cuLibraryUnload(library);

    cudaLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: *const c_char) |driver| {
        let mut found = CUkernel::NULL;
        driver.cuLibraryGetKernel(&raw mut found, library, name)?;
        kernel.set(found)?;
        note_kernel(found);
        Ok(())
    };

    cudaLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary)
        |driver| driver.cuLibraryGetKernelCount(count, library);

    cudaLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char)
        |driver| driver.cuLibraryGetGlobal(address, bytes, library, name);

    cudaLibraryGetManaged(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char)
        |driver| driver.cuLibraryGetManaged(address, bytes, library, name);

    cudaLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char)
        |driver| driver.cuLibraryGetUnifiedFunction(function, library, name);
}
