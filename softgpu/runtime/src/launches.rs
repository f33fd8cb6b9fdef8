//! Launches: the state of `<<<…>>>` between two calls, and the launch through the driver.

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};

use abi::types::{CUfunction, CUkernel, CUlaunchAttribute, CUlaunchConfig, CUstream};

use crate::driver::Driver;
use crate::error::Error;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) dynamic_shared_bytes: usize,
    pub(crate) stream: CUstream,
    pub(crate) attributes: *mut CUlaunchAttribute,
    pub(crate) attribute_count: c_uint,
}

const _: () = assert!(size_of::<LaunchConfig>() == 56);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Configuration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) dynamic_shared_bytes: usize,
    pub(crate) stream: CUstream,
}

/// Most threads of a block, on all devices.
const BLOCK_THREADS_MAX: u64 = 1024;

thread_local! {
    /// Configurations pushed and not popped yet: an argument of a launch may itself launch.
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the configuration until the launch takes it.
pub(crate) fn push(configuration: Configuration) {
    // At the very end of a thread this storage no longer exists, and the pop reports that.
    let _ = PUSHED.try_with(|pushed| pushed.borrow_mut().push(configuration));
}

pub(crate) fn pop() -> Result<Configuration, Error> {
    let popped = PUSHED.try_with(|pushed| pushed.borrow_mut().pop());
    popped.ok().flatten().ok_or(Error::MISSING_CONFIGURATION)
}

/// A kernel as a driver's function, which the driver's reference allows from CUDA 12.0 on.
pub(crate) fn function(kernel: CUkernel) -> CUfunction {
    CUfunction(kernel.0)
}

impl Configuration {
    pub(crate) fn launch(
        &self,
        driver: &Driver,
        kernel: CUkernel,
        params: *mut *mut c_void,
    ) -> Result<(), Error> {
        let (grid, block, function) = (self.grid, self.block, function(kernel));
        let none = std::ptr::null_mut();
        let launched = driver.cuLaunchKernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            self.shared_bytes()?,
            self.stream,
            params,
            none,
        );
        launched.map_err(|error| self.refusal(error))
    }

    /// Launches a kernel whose blocks all run at once.
    pub(crate) fn launch_cooperative(
        &self,
        driver: &Driver,
        kernel: CUkernel,
        params: *mut *mut c_void,
    ) -> Result<(), Error> {
        let (grid, block, function) = (self.grid, self.block, function(kernel));
        let launched = driver.cuLaunchCooperativeKernel(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            self.shared_bytes()?,
            self.stream,
            params,
        );
        launched.map_err(|error| self.refusal(error))
    }

    fn shared_bytes(&self) -> Result<c_uint, Error> {
        c_uint::try_from(self.dynamic_shared_bytes).map_err(|_| Error::INVALID_VALUE)
    }

    /// The runtime distinguishes an invalid shape from other invalid arguments.
    fn refusal(&self, error: Error) -> Error {
        let sizes = |size: Dim3| [size.x, size.y, size.z];
        let threads = sizes(self.block)
            .iter()
            .map(|&size| u64::from(size))
            .fold(1, u64::saturating_mul);
        let is_empty = sizes(self.grid).contains(&0) || threads == 0;
        if error == Error::INVALID_VALUE && (is_empty || threads > BLOCK_THREADS_MAX) {
            return Error::INVALID_CONFIGURATION;
        }
        error
    }
}

impl LaunchConfig {
    /// Launches a kernel with attributes, whose numbers are the same in driver and runtime.
    pub(crate) fn launch(
        &self,
        driver: &Driver,
        kernel: CUkernel,
        params: *mut *mut c_void,
    ) -> Result<(), Error> {
        let shape = Configuration {
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            stream: self.stream,
        };
        let config = CUlaunchConfig {
            grid_dim_x: self.grid.x,
            grid_dim_y: self.grid.y,
            grid_dim_z: self.grid.z,
            block_dim_x: self.block.x,
            block_dim_y: self.block.y,
            block_dim_z: self.block.z,
            shared_mem_bytes: shape.shared_bytes()?,
            stream: self.stream,
            attrs: self.attributes,
            num_attrs: self.attribute_count,
        };
        let none = std::ptr::null_mut();
        let launched = driver.cuLaunchKernelEx(&raw const config, function(kernel), params, none);
        launched.map_err(|error| shape.refusal(error))
    }
}
