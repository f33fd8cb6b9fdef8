//! Modules and linking.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdeviceptr, CUfunction, CUjit_option, CUjitInputType, CUlinkState, CUmodule,
    CUmoduleLoadingMode, CUresult,
};

use super::exports;
use crate::driver::Driver;
use crate::images::LoadError;
use crate::raw::{Bytes, In, Out, Text, write_text};

/// Most options of one load; CUDA has fewer than 40 kinds.
const OPTIONS_MAX: c_uint = 64;

fn number(module: CUmodule) -> u64 {
    module.0.addr() as u64
}

fn module(handle: u64) -> CUmodule {
    CUmodule(std::ptr::without_provenance_mut(handle as usize))
}

fn function(handle: u64) -> CUfunction {
    CUfunction(std::ptr::without_provenance_mut(handle as usize))
}

exports! {
    cuModuleLoad(loaded: Out<CUmodule>, path: Text) |driver| {
        check_out(&loaded)?;
        loaded.set(module(driver.load_module_file(&path.to_string()?).map_err(|error| error.code)?))
    };

    cuModuleLoadData(loaded: Out<CUmodule>, image: Bytes) |driver| load(driver, &loaded, image);

    cuModuleLoadFatBinary(loaded: Out<CUmodule>, image: Bytes) |driver| load(driver, &loaded, image);

    cuModuleLoadDataEx(
        loaded: Out<CUmodule>, image: Bytes, count: c_uint, options: In<CUjit_option>, values: In<*mut c_void>,
    ) |driver| {
        check_out(&loaded)?;
        let handle = told(driver.load_module(image), &Options { count, options, values })?;
        loaded.set(module(handle))
    };

    cuModuleUnload(handle: CUmodule) |driver| driver.unload_module(number(handle));

    cuModuleGetFunction(found: Out<CUfunction>, handle: CUmodule, name: Text) |driver| {
        check_out(&found)?;
        found.set(function(driver.module_function(number(handle), &name.to_string()?)?))
    };

    cuModuleGetFunctionCount(count: Out<c_uint>, handle: CUmodule) |driver| {
        check_out(&count)?;
        count.set(driver.module_function_count(number(handle))? as c_uint)
    };

    cuModuleEnumerateFunctions(functions: Out<CUfunction>, room: c_uint, handle: CUmodule) |driver| {
        check_out(&functions)?;
        let found = driver.module_functions(number(handle), room as usize)?;
        found.into_iter().enumerate().try_for_each(|(index, found)| functions.set_at(index, function(found)))
    };

    // The 32-bit form: addresses and sizes that do not fit are refused.
    cuModuleGetGlobal(address: Out<c_uint>, bytes: Out<c_uint>, handle: CUmodule, name: Text) |driver| {
        let (start, size) = driver.module_global(number(handle), &name.to_string()?)?;
        let start = c_uint::try_from(start).map_err(|_| CUresult::NOT_SUPPORTED)?;
        address.set_if_wanted(start);
        bytes.set_if_wanted(size as c_uint);
        Ok(())
    };

    cuModuleGetGlobal_v2(address: Out<CUdeviceptr>, bytes: Out<usize>, handle: CUmodule, name: Text) |driver| {
        let (start, size) = driver.module_global(number(handle), &name.to_string()?)?;
        address.set_if_wanted(CUdeviceptr(start));
        bytes.set_if_wanted(size as usize);
        Ok(())
    };

    // No supported image has texture or surface references: CUDA 12 removed them.
    cuModuleGetTexRef(found: Out<*mut c_void>, handle: CUmodule, name: Text)
        |driver| no_reference(driver, &found, handle, &name);

    cuModuleGetSurfRef(found: Out<*mut c_void>, handle: CUmodule, name: Text)
        |driver| no_reference(driver, &found, handle, &name);

    cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode>) |_| mode.set(CUmoduleLoadingMode::EAGER_LOADING);
}

/// Defines both versions of the linking functions, which have the same parameters.
macro_rules! linking {
    ($create:ident $add_data:ident $add_file:ident) => {
        exports! {
            $create(_count: c_uint, _options: In<CUjit_option>, _values: In<*mut c_void>, state: Out<CUlinkState>)
                |driver| {
                    check_out(&state)?;
                    let handle = driver.create_linking()?;
                    state.set(CUlinkState(std::ptr::without_provenance_mut(handle as usize)))
                };

            $add_data(
                state: CUlinkState, kind: CUjitInputType, data: Bytes, size: usize, _name: *const c_char,
                count: c_uint, options: In<CUjit_option>, values: In<*mut c_void>,
            ) |driver| {
                if data.is_null() || size == 0 {
                    return Err(CUresult::INVALID_VALUE);
                }
                let added = data.with(size, |bytes| driver.link_data(linking_of(state), kind, bytes))?;
                told(added, &Options { count, options, values })
            };

            $add_file(
                state: CUlinkState, kind: CUjitInputType, path: Text,
                count: c_uint, options: In<CUjit_option>, values: In<*mut c_void>,
            ) |driver| {
                let added = driver.link_file(linking_of(state), kind, &path.to_string()?);
                told(added, &Options { count, options, values })
            };
        }
    };
}

linking!(cuLinkCreate cuLinkAddData cuLinkAddFile);
linking!(cuLinkCreate_v2 cuLinkAddData_v2 cuLinkAddFile_v2);

exports! {
    cuLinkComplete(state: CUlinkState, image: Out<*mut c_void>, bytes: Out<usize>) |driver| {
        check_out(&image)?;
        let (address, size) = driver.complete_linking(linking_of(state))?;
        image.set(std::ptr::with_exposed_provenance_mut(address))?;
        bytes.set_if_wanted(size);
        Ok(())
    };

    cuLinkDestroy(state: CUlinkState) |driver| driver.destroy_linking(linking_of(state));
}

fn linking_of(state: CUlinkState) -> u64 {
    state.0.addr() as u64
}

/// A result must have a place before anything is created.
pub(super) fn check_out<T>(out: &Out<T>) -> Result<(), CUresult> {
    match out.is_null() {
        true => Err(CUresult::INVALID_VALUE),
        false => Ok(()),
    }
}

fn load(driver: &Driver, loaded: &Out<CUmodule>, image: Bytes) -> Result<(), CUresult> {
    check_out(loaded)?;
    let handle = driver.load_module(image).map_err(|error| error.code)?;
    loaded.set(module(handle))
}

fn no_reference(
    driver: &Driver,
    found: &Out<*mut c_void>,
    handle: CUmodule,
    name: &Text,
) -> Result<(), CUresult> {
    check_out(found)?;
    name.to_string()?;
    driver.module_function_count(number(handle))?;
    Err(CUresult::NOT_FOUND)
}

/// Compiler options; only those that request messages have an effect.
pub(super) struct Options {
    pub(super) count: c_uint,
    pub(super) options: In<CUjit_option>,
    pub(super) values: In<*mut c_void>,
}

/// Writes an image's fault to the caller's log buffer, if any: the option's value is its address.
pub(super) fn told<T>(result: Result<T, LoadError>, options: &Options) -> Result<T, CUresult> {
    let error = match result {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let mut buffer = None;
    let mut room = 0;
    for index in 0..options.count.min(OPTIONS_MAX) as usize {
        match options.options.at(index)? {
            CUjit_option::ERROR_LOG_BUFFER => buffer = Some(options.values.at(index)?),
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES => room = options.values.at(index)?.addr(),
            _ => {}
        }
    }
    if let Some(buffer) = buffer
        && room > 0
        && !error.text.is_empty()
    {
        write_text(
            &Out::at(buffer.cast()),
            c_int::try_from(room).unwrap_or(c_int::MAX),
            &error.text,
        )?;
    }
    Err(error.code)
}
