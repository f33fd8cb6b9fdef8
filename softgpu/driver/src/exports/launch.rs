//! Launches.

use std::ffi::c_uint;

use abi::types::{CUDA_LAUNCH_PARAMS, CUfunction, CUlaunchConfig, CUresult, CUstream};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::launches::{Arguments, Launch, Options, options};
use crate::raw::{Extra, In, Params};
use crate::streams::Flavour;

/// A launch's shape and stream, in the form of most entry points.
struct Request {
    function: CUfunction,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    dynamic_shared_bytes: c_uint,
    stream: CUstream,
    params: Params,
    extra: Extra,
    options: Options,
}

impl Request {
    fn launch(&self, driver: &Driver, flavour: Flavour) -> Result<(), CUresult> {
        let stream = driver.stream(self.stream, flavour)?;
        let packed;
        let arguments = if self.extra.is_null() {
            Arguments::Each(self.params)
        } else if self.params.is_null() {
            packed = self.extra.packed()?;
            Arguments::Packed(&packed)
        } else {
            return Err(CUresult::INVALID_VALUE);
        };
        let launch = Launch {
            function: self.function.0.addr() as u64,
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            arguments,
            options: self.options,
        };
        driver.launch(&stream, &launch)
    }
}

fn launch_ex(
    driver: &Driver,
    flavour: Flavour,
    config: &In<CUlaunchConfig>,
    function: CUfunction,
    params: Params,
    extra: Extra,
) -> Result<(), CUresult> {
    let config = config.get()?;
    let request = Request {
        function,
        grid: [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z],
        block: [config.block_dim_x, config.block_dim_y, config.block_dim_z],
        dynamic_shared_bytes: config.shared_mem_bytes,
        stream: config.stream,
        params,
        extra,
        options: options(&In::member(config.attrs), config.num_attrs)?,
    };
    request.launch(driver, flavour)
}

flavoured! {
    cuLaunchKernel cuLaunchKernel_ptsz (
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        dynamic_shared_bytes: c_uint, stream: CUstream, params: Params, extra: Extra
    ) live |driver, flavour| {
        let request = Request {
            function,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes,
            stream,
            params,
            extra,
            options: Options::default(),
        };
        request.launch(driver, flavour)
    };

    cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz (
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        dynamic_shared_bytes: c_uint, stream: CUstream, params: Params
    ) live |driver, flavour| {
        let request = Request {
            function,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes,
            stream,
            params,
            extra: Extra::NONE,
            options: Options { is_cooperative: true, ..Options::default() },
        };
        request.launch(driver, flavour)
    };

    cuLaunchKernelEx cuLaunchKernelEx_ptsz (
        config: In<CUlaunchConfig>, function: CUfunction, params: Params, extra: Extra
    ) live |driver, flavour| launch_ex(driver, flavour, &config, function, params, extra);
}

exports! {
    cuLaunchCooperativeKernelMultiDevice(
        launches: In<CUDA_LAUNCH_PARAMS>, count: c_uint, flags: c_uint,
    ) live |driver| driver.launch_on_several(&launches, count, flags);
}
