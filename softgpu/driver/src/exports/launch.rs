//! Launches.

use std::ffi::{c_uint, c_void};

use abi::types::{CUfunction, CUlaunchConfig, CUresult, CUstream};

use super::flavoured;
use crate::driver::Driver;
use crate::launches::{Launch, Options, options};
use crate::raw::{In, Params};
use crate::streams::Flavour;

fn launch_ex(
    driver: &Driver,
    flavour: Flavour,
    config: &In<CUlaunchConfig>,
    function: CUfunction,
    params: Params,
    extra: *const *const c_void,
) -> Result<(), CUresult> {
    let config = config.get()?;
    let options = options(&In::member(config.attrs), config.num_attrs)?;
    let stream = driver.stream(config.stream, flavour)?;
    let launch = Launch {
        function: function.0.addr() as u64,
        grid: [config.grid_dim_x, config.grid_dim_y, config.grid_dim_z],
        block: [config.block_dim_x, config.block_dim_y, config.block_dim_z],
        dynamic_shared_bytes: config.shared_mem_bytes,
        params,
        has_extra: !extra.is_null(),
        options,
    };
    driver.launch(&stream, &launch)
}

flavoured! {
    cuLaunchKernel cuLaunchKernel_ptsz (
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        dynamic_shared_bytes: c_uint, stream: CUstream, params: Params, extra: *const *const c_void
    ) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        let launch = Launch {
            function: function.0.addr() as u64,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes,
            params,
            has_extra: !extra.is_null(),
            options: Options::default(),
        };
        driver.launch(&stream, &launch)
    };

    cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz (
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        dynamic_shared_bytes: c_uint, stream: CUstream, params: Params
    ) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        let launch = Launch {
            function: function.0.addr() as u64,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared_bytes,
            params,
            has_extra: false,
            options: Options { is_cooperative: true, ..Options::default() },
        };
        driver.launch(&stream, &launch)
    };

    cuLaunchKernelEx cuLaunchKernelEx_ptsz (
        config: In<CUlaunchConfig>, function: CUfunction, params: Params, extra: *const *const c_void
    ) live |driver, flavour| launch_ex(driver, flavour, &config, function, params, extra);
}
