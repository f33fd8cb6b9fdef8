//! Launches of kernels, identified by addresses of host functions, and queries about them.

use std::ffi::{c_int, c_void};

use abi::types::{CUfunction_attribute, CUkernel, CUstream};

use super::exports;
use crate::device::{current, device};
use crate::launches::{Configuration, Dim3, LaunchConfig, function};
use crate::properties::{FunctionAttributes, function_attributes};
use crate::raw::{In, Out};
use crate::registry::kernel;

exports! {
    cudaLaunchKernel(
        host: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, dynamic_shared_bytes: usize,
        stream: CUstream
    ) |driver| {
        let kernel = kernel(driver, host)?;
        Configuration { grid, block, dynamic_shared_bytes, stream }.launch(driver, kernel, params)
    };

    cudaLaunchCooperativeKernel(
        host: *const c_void, grid: Dim3, block: Dim3, params: *mut *mut c_void, dynamic_shared_bytes: usize,
        stream: CUstream
    ) |driver| {
        let kernel = kernel(driver, host)?;
        Configuration { grid, block, dynamic_shared_bytes, stream }.launch_cooperative(driver, kernel, params)
    };

    cudaLaunchKernelExC(config: In<LaunchConfig>, host: *const c_void, params: *mut *mut c_void)
        |driver| config.get()?.launch(driver, kernel(driver, host)?, params);

    cudaFuncGetAttributes(attributes: Out<FunctionAttributes>, host: *const c_void) |driver| {
        let device = device(driver, current(driver))?;
        attributes.set(function_attributes(driver, kernel(driver, host)?, device)?)
    };

    cudaFuncSetAttribute(host: *const c_void, attribute: CUfunction_attribute, value: c_int) |driver| {
        let device = device(driver, current(driver))?;
        driver.cuKernelSetAttribute(attribute, value, kernel(driver, host)?, device)
    };

    cudaKernelSetAttributeForDevice(
        kernel: CUkernel, attribute: CUfunction_attribute, value: c_int, ordinal: c_int
    ) |driver| driver.cuKernelSetAttribute(attribute, value, kernel, device(driver, ordinal)?);

    cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, host: *const c_void, threads: c_int, dynamic_bytes: usize
    ) |driver| {
        let function = function(kernel(driver, host)?);
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_bytes, 0)
    };

    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, host: *const c_void, threads: c_int, dynamic_bytes: usize, flags: u32
    ) |driver| {
        let function = function(kernel(driver, host)?);
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_bytes, flags)
    };
}
