//! Hooks that only keep a thread from being stopped inside the call. A thread that SIGTERM or
//! SIGINT hits outside every hook stops there for good ([`crate::signals::handler`]). In these
//! calls the driver reads code, compiles it or maps memory, for up to seconds and with locks that
//! draining would need. Inside a hook the call ends first, and the thread stops at the guard. Short
//! queries are not hooked: a signal hardly hits one, and a hook costs time.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType,
    CUkernel, CUlibrary, CUlibraryOption, CUlinkState, CUmemAccessDesc, CUmodule,
};

use super::hook;

/// Defines hooks that do nothing but let the call end.
macro_rules! lasting {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {$(
        hook! {
            $name($($argument: $type),*);
            after |_, _| ();
        }
    )*};
}

lasting! {
    cuModuleLoad(module: *mut CUmodule, name: *const c_char);
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void);
    cuLibraryLoadData(
        library: *mut CUlibrary,
        code: *const c_void,
        jit_options: *mut CUjit_option,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut CUlibraryOption,
        values: *mut *mut c_void,
        count: c_uint,
    );
    cuLibraryLoadFromFile(
        library: *mut CUlibrary,
        name: *const c_char,
        jit_options: *mut CUjit_option,
        jit_values: *mut *mut c_void,
        jit_count: c_uint,
        options: *mut CUlibraryOption,
        values: *mut *mut c_void,
        count: c_uint,
    );
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    cuFuncLoad(function: CUfunction);
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuKernelGetAttribute(
        value: *mut c_int,
        attribute: CUfunction_attribute,
        kernel: CUkernel,
        device: CUdevice,
    );
    cuKernelSetAttribute(
        attribute: CUfunction_attribute,
        value: c_int,
        kernel: CUkernel,
        device: CUdevice,
    );
    cuLinkAddData(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuLinkAddData_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        name: *const c_char,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuLinkAddFile(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuLinkAddFile_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        path: *const c_char,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    );
    cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, bytes: *mut usize);
    cuMemAddressReserve(
        address: *mut CUdeviceptr,
        bytes: usize,
        alignment: usize,
        wanted: CUdeviceptr,
        flags: c_ulonglong,
    );
    cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    cuMemSetAccess(
        address: CUdeviceptr,
        bytes: usize,
        access: *const CUmemAccessDesc,
        count: usize,
    );
}
