//! Functions for compiler-generated code: at a program's start and end, and around `<<<…>>>`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{CUkernel, CUstream};

use super::{define, exports};
use crate::launches::{self, Configuration, Dim3};
use crate::raw::Out;
use crate::registry::{self, Image};

define! { __cudaRegisterFatBinary(wrapper: *mut c_void) -> Image { registry::register_image(wrapper) } }

// Nothing to do: images are loaded at their first use.
define! { __cudaRegisterFatBinaryEnd(_image: Image) -> () { () } }

define! { __cudaUnregisterFatBinary(image: Image) -> () { registry::forget_image(image) } }

define! {
    __cudaRegisterFunction(
        image: Image, host: *const c_void, _device: *mut c_char, name: *const c_char, _thread_limit: c_int,
        _thread: *mut c_void, _block: *mut c_void, _block_shape: *mut Dim3, _grid_shape: *mut Dim3,
        _warp_size: *mut c_int
    ) -> () { registry::register_kernel(image, host, name) }
}

define! {
    __cudaRegisterVar(
        image: Image, host: *const c_void, _device: *mut c_char, name: *const c_char, _is_external: c_int,
        bytes: usize, _is_constant: c_int, _is_global: c_int
    ) -> () { registry::register_variable(image, host, name, bytes) }
}

define! {
    __cudaPushCallConfiguration(
        grid: Dim3, block: Dim3, dynamic_shared_bytes: usize, stream: CUstream
    ) -> c_uint {{
        launches::push(Configuration { grid, block, dynamic_shared_bytes, stream });
        // Any other number makes the program skip the launch.
        0
    }}
}

exports! {
    __cudaPopCallConfiguration(
        grid: Out<Dim3>, block: Out<Dim3>, dynamic_shared_bytes: Out<usize>, stream: Out<CUstream>
    ) early || {
        let configuration = launches::pop()?;
        grid.set(configuration.grid)?;
        block.set(configuration.block)?;
        dynamic_shared_bytes.set(configuration.dynamic_shared_bytes)?;
        stream.set(configuration.stream)
    };

    __cudaGetKernel(kernel: Out<CUkernel>, host: *const c_void)
        anywhere |driver| kernel.set(registry::kernel(driver, host)?);

    __cudaLaunchKernel(
        kernel: CUkernel, grid: Dim3, block: Dim3, params: *mut *mut c_void, dynamic_shared_bytes: usize,
        stream: CUstream
    ) |driver| {
        if kernel.is_null() {
            // The program looked it up before, without success.
            return Err(crate::error::Error::INVALID_DEVICE_FUNCTION);
        }
        Configuration { grid, block, dynamic_shared_bytes, stream }.launch(driver, kernel, params)
    };
}
