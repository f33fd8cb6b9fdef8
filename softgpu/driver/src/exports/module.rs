//! Modules and functions.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
};

use super::exports;
use crate::modules::LoadError;
use crate::raw::{Bytes, In, Out, Text, write_text};

/// Options of one load; CUDA has fewer than 40 kinds.
const OPTIONS_MAX: c_uint = 64;

fn number(function: CUfunction) -> u64 {
    function.0.addr() as u64
}

fn module(handle: u64) -> CUmodule {
    CUmodule(std::ptr::without_provenance_mut(handle as usize))
}

exports! {
    cuModuleLoadData(loaded: Out<CUmodule>, image: Bytes) |driver| match driver.load_module(image) {
        Ok(handle) => loaded.set(module(handle)),
        Err(LoadError::Code(code)) => Err(code),
        Err(LoadError::Image(_)) => Err(CUresult::INVALID_IMAGE),
    };

    cuModuleLoadDataEx(
        loaded: Out<CUmodule>, image: Bytes, count: c_uint, options: In<CUjit_option>, values: In<*mut c_void>,
    ) |driver| match driver.load_module(image) {
        Ok(handle) => loaded.set(module(handle)),
        Err(LoadError::Code(code)) => Err(code),
        Err(LoadError::Image(error)) => {
            write_error_log(count, &options, &values, &error.to_string())?;
            Err(CUresult::INVALID_IMAGE)
        }
    };

    cuModuleUnload(handle: CUmodule) |driver| driver.unload_module(handle.0.addr() as u64);

    cuModuleGetFunction(function: Out<CUfunction>, handle: CUmodule, name: Text) |driver| {
        let found = driver.module_function(handle.0.addr() as u64, &name.to_string()?)?;
        function.set(CUfunction(std::ptr::without_provenance_mut(found as usize)))
    };

    cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode>) |_| mode.set(CUmoduleLoadingMode::EAGER_LOADING);

    cuFuncGetAttribute(value: Out<c_int>, attribute: CUfunction_attribute, function: CUfunction)
        |driver| value.set(driver.function_attribute(number(function), attribute)?);

    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int)
        |driver| driver.set_function_attribute(number(function), attribute, value);

    // The text lives as long as the module.
    cuFuncGetName(name: Out<*const c_char>, function: CUfunction)
        |driver| name.set(driver.function(number(function))?.name.as_ptr());

    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, dynamic_bytes: usize,
    ) |driver| {
        let threads = u32::try_from(threads).map_err(|_| CUresult::INVALID_VALUE)?;
        let fit = driver.occupancy(number(function), threads, dynamic_bytes as u64)?;
        blocks.set(fit as c_int)
    };
}

/// Says what is wrong with an image where the caller left room for it. A value is a buffer's
/// address, or a number in place of one.
fn write_error_log(
    count: c_uint,
    options: &In<CUjit_option>,
    values: &In<*mut c_void>,
    text: &str,
) -> Result<(), CUresult> {
    let mut buffer = None;
    let mut room = 0;
    for index in 0..count.min(OPTIONS_MAX) as usize {
        match options.at(index)? {
            CUjit_option::ERROR_LOG_BUFFER => buffer = Some(values.at(index)?),
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES => room = values.at(index)?.addr(),
            _ => {}
        }
    }
    match buffer {
        Some(buffer) if room > 0 => write_text(
            &Out::at(buffer.cast()),
            c_int::try_from(room).unwrap_or(c_int::MAX),
            text,
        ),
        _ => Ok(()),
    }
}
