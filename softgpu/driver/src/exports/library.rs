//! Libraries and their kernels.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary,
    CUmodule, CUresult,
};

use super::exports;
use super::function::param_info;
use super::module::{Options, check_out, told};
use crate::libraries::on_device;
use crate::raw::{Bytes, In, Out, Text};

fn number(kernel: CUkernel) -> u64 {
    kernel.0.addr() as u64
}

fn library_number(library: CUlibrary) -> u64 {
    library.0.addr() as u64
}

fn library(handle: u64) -> CUlibrary {
    CUlibrary(std::ptr::without_provenance_mut(handle as usize))
}

fn kernel(handle: u64) -> CUkernel {
    CUkernel(std::ptr::without_provenance_mut(handle as usize))
}

exports! {
    cuLibraryLoadData(
        loaded: Out<CUlibrary>, image: Bytes, options: In<CUjit_option>, values: In<*mut c_void>,
        count: c_uint, _library_options: *const c_uint, _library_values: *const *mut c_void,
        _library_count: c_uint,
    ) |driver| {
        check_out(&loaded)?;
        let handle = told(driver.load_library(image), &Options { count, options, values })?;
        loaded.set(library(handle))
    };

    cuLibraryLoadFromFile(
        loaded: Out<CUlibrary>, path: Text, options: In<CUjit_option>, values: In<*mut c_void>,
        count: c_uint, _library_options: *const c_uint, _library_values: *const *mut c_void,
        _library_count: c_uint,
    ) |driver| {
        check_out(&loaded)?;
        let handle = driver.load_library_file(&path.to_string()?);
        loaded.set(library(told(handle, &Options { count, options, values })?))
    };

    cuLibraryUnload(handle: CUlibrary) |driver| driver.unload_library(library_number(handle));

    cuLibraryGetKernel(found: Out<CUkernel>, handle: CUlibrary, name: Text) |driver| {
        check_out(&found)?;
        found.set(kernel(driver.library_kernel(library_number(handle), &name.to_string()?)?))
    };

    cuLibraryGetKernelCount(count: Out<c_uint>, handle: CUlibrary) |driver| {
        check_out(&count)?;
        count.set(driver.library_kernel_count(library_number(handle))? as c_uint)
    };

    cuLibraryEnumerateKernels(kernels: Out<CUkernel>, room: c_uint, handle: CUlibrary) |driver| {
        check_out(&kernels)?;
        let found = driver.library_kernels(library_number(handle), room as usize)?;
        found.into_iter().enumerate().try_for_each(|(index, found)| kernels.set_at(index, kernel(found)))
    };

    cuLibraryGetModule(module: Out<CUmodule>, handle: CUlibrary) |driver| {
        check_out(&module)?;
        let found = driver.library_module(library_number(handle))?;
        module.set(CUmodule(std::ptr::without_provenance_mut(found as usize)))
    };

    cuLibraryGetGlobal(address: Out<CUdeviceptr>, bytes: Out<usize>, handle: CUlibrary, name: Text) |driver| {
        let (start, size) = driver.library_global(library_number(handle), &name.to_string()?)?;
        address.set_if_wanted(CUdeviceptr(start));
        bytes.set_if_wanted(size as usize);
        Ok(())
    };

    // Images are not searched for managed variables, so there are none.
    cuLibraryGetManaged(_address: Out<CUdeviceptr>, _bytes: Out<usize>, handle: CUlibrary, name: Text) |driver| {
        name.to_string()?;
        driver.check_library(library_number(handle))?;
        Err(CUresult::NOT_FOUND)
    };

    // Nor are there unified functions of host and device.
    cuLibraryGetUnifiedFunction(found: Out<*mut c_void>, handle: CUlibrary, name: Text) |driver| {
        check_out(&found)?;
        name.to_string()?;
        driver.check_library(library_number(handle))?;
        Err(CUresult::NOT_FOUND)
    };

    cuKernelGetFunction(function: Out<CUfunction>, handle: CUkernel) |driver| {
        check_out(&function)?;
        let (context, _) = driver.current()?;
        let found = driver.kernel_function(number(handle), context)?;
        function.set(CUfunction(std::ptr::without_provenance_mut(found as usize)))
    };

    cuKernelGetLibrary(found: Out<CUlibrary>, handle: CUkernel) |driver| {
        check_out(&found)?;
        found.set(library(driver.kernel(number(handle))?.library))
    };

    // The text lives as long as the library.
    cuKernelGetName(name: Out<*const c_char>, handle: CUkernel) |driver| {
        check_out(&name)?;
        name.set(driver.kernel(number(handle))?.entry.name.as_ptr())
    };

    cuKernelGetAttribute(value: Out<c_int>, attribute: CUfunction_attribute, handle: CUkernel, device: CUdevice)
        |driver| {
            check_out(&value)?;
            driver.check_device(device)?;
            value.set(driver.kernel_attribute(number(handle), attribute)?)
        };

    cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, handle: CUkernel, device: CUdevice)
        |driver| {
            driver.check_device(device)?;
            driver.set_kernel_attribute(number(handle), attribute, value)
        };

    cuKernelGetParamCount(handle: CUkernel, count: Out<usize>) |driver| {
        check_out(&count)?;
        count.set(driver.kernel(number(handle))?.entry.traits.params.len())
    };

    cuKernelGetParamInfo(handle: CUkernel, index: usize, offset: Out<usize>, size: Out<usize>) |driver| {
        check_out(&offset)?;
        param_info(&on_device(&driver.kernel(number(handle))?), index, &offset, &size)
    };
}
