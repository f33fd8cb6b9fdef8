//! Functions and occupancy.

use std::ffi::{c_char, c_int, c_uint};

use abi::types::{
    CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUkernel,
    CUlaunchAttributeID, CUlaunchConfig, CUmodule, CUoccupancyB2DSize, CUresult, CUsharedconfig,
};

use super::exports;
use super::module::check_out;
use crate::driver::Driver;
use crate::functions::param_of;
use crate::raw::{In, Out};
use crate::tables::Function;

/// `CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE`, the only flag.
const OCCUPANCY_FLAGS: c_uint = 1;
const THREADS_MAX: u32 = 1024;

fn number(function: CUfunction) -> u64 {
    function.0.addr() as u64
}

exports! {
    cuFuncGetAttribute(value: Out<c_int>, attribute: CUfunction_attribute, function: CUfunction) |driver| {
        check_out(&value)?;
        value.set(driver.function_attribute(number(function), attribute)?)
    };

    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int)
        |driver| driver.set_function_attribute(number(function), attribute, value);

    cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) |driver| {
        driver.function(number(function))?;
        known(config.name())
    };

    cuFuncSetSharedMemConfig(function: CUfunction, config: CUsharedconfig) |driver| {
        driver.function(number(function))?;
        known(config.name())
    };

    // The text lives as long as the module.
    cuFuncGetName(name: Out<*const c_char>, function: CUfunction) |driver| {
        check_out(&name)?;
        name.set(driver.function(number(function))?.name.as_ptr())
    };

    cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) |driver| {
        check_out(&module)?;
        let handle = driver.function(number(function))?.module;
        module.set(CUmodule(std::ptr::without_provenance_mut(handle as usize)))
    };

    cuFuncGetParamCount(function: CUfunction, count: Out<usize>) |driver| {
        check_out(&count)?;
        count.set(driver.function(number(function))?.traits.params.len())
    };

    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: Out<usize>, size: Out<usize>) |driver| {
        check_out(&offset)?;
        param_info(&driver.function(number(function))?, index, &offset, &size)
    };

    // All code is loaded with its module.
    cuFuncIsLoaded(state: Out<CUfunctionLoadingState>, function: CUfunction) |driver| {
        check_out(&state)?;
        driver.function(number(function))?;
        state.set(CUfunctionLoadingState::LOADED)
    };

    cuFuncLoad(function: CUfunction) |driver| driver.function(number(function)).map(|_| ());

    cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) |driver| {
        driver.check_device(device)?;
        driver.kernel(kernel.0.addr() as u64)?;
        known(config.name())
    };

    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, dynamic_bytes: usize,
    ) |driver| occupancy(driver, &blocks, function, threads, dynamic_bytes, 0);

    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, dynamic_bytes: usize, flags: c_uint,
    ) |driver| occupancy(driver, &blocks, function, threads, dynamic_bytes, flags);

    cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, needs: CUoccupancyB2DSize,
        dynamic_bytes: usize, limit: c_int,
    ) |driver| best_block(driver, &grid, &block, function, needs, dynamic_bytes, limit);

    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, needs: CUoccupancyB2DSize,
        dynamic_bytes: usize, limit: c_int, flags: c_uint,
    ) |driver| {
        check_flags(flags)?;
        best_block(driver, &grid, &block, function, needs, dynamic_bytes, limit)
    };

    cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: CUfunction, blocks: c_int, threads: c_int,
    ) |driver| {
        check_out(&bytes)?;
        let blocks = u32::try_from(blocks).map_err(|_| CUresult::INVALID_VALUE)?;
        let available = driver.dynamic_bytes_available(number(function), blocks, threads_of(threads)?)?;
        bytes.set(available as usize)
    };

    // The model has no clusters: a cluster is one block.
    cuOccupancyMaxPotentialClusterSize(size: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>)
        |driver| {
            check_out(&size)?;
            active_clusters(driver, function, &config.get()?)?;
            size.set(1)
        };

    cuOccupancyMaxActiveClusters(clusters: Out<c_int>, function: CUfunction, config: In<CUlaunchConfig>)
        |driver| {
            check_out(&clusters)?;
            clusters.set(active_clusters(driver, function, &config.get()?)?)
        };
}

pub(super) fn param_info(
    function: &Function,
    index: usize,
    offset: &Out<usize>,
    size: &Out<usize>,
) -> Result<(), CUresult> {
    let param = param_of(function, index)?;
    offset.set(param.offset as usize)?;
    size.set_if_wanted(param.size_bytes as usize);
    Ok(())
}

/// Checks that the header names the value.
pub(super) fn known(name: Option<&str>) -> Result<(), CUresult> {
    name.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
}

fn check_flags(flags: c_uint) -> Result<(), CUresult> {
    match flags & !OCCUPANCY_FLAGS {
        0 => Ok(()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

fn threads_of(threads: c_int) -> Result<u32, CUresult> {
    let threads = u32::try_from(threads).ok();
    let threads = threads.filter(|threads| (1..=THREADS_MAX).contains(threads));
    threads.ok_or(CUresult::INVALID_VALUE)
}

fn occupancy(
    driver: &Driver,
    blocks: &Out<c_int>,
    function: CUfunction,
    threads: c_int,
    dynamic_bytes: usize,
    flags: c_uint,
) -> Result<(), CUresult> {
    check_out(blocks)?;
    check_flags(flags)?;
    let fit = driver.occupancy(number(function), threads_of(threads)?, dynamic_bytes as u64)?;
    blocks.set(fit as c_int)
}

fn best_block(
    driver: &Driver,
    grid: &Out<c_int>,
    block: &Out<c_int>,
    function: CUfunction,
    needs: CUoccupancyB2DSize,
    dynamic_bytes: usize,
    limit: c_int,
) -> Result<(), CUresult> {
    check_out(grid)?;
    check_out(block)?;
    let limit = u32::try_from(limit).map_err(|_| CUresult::INVALID_VALUE)?;
    let (threads, blocks) = driver.best_block(number(function), limit, |threads| {
        needs.map_or(dynamic_bytes, |needs| needs(threads as c_int)) as u64
    })?;
    grid.set(blocks as c_int)?;
    block.set(threads as c_int)
}

/// Blocks that the device holds at once, each a cluster.
fn active_clusters(
    driver: &Driver,
    function: CUfunction,
    config: &CUlaunchConfig,
) -> Result<c_int, CUresult> {
    let attributes = In::member(config.attrs.cast_const());
    for index in 0..config.num_attrs as usize {
        let attribute = attributes.at(index)?;
        if attribute.id == CUlaunchAttributeID::CLUSTER_DIMENSION
            && attribute.value.as_dimension() != [1, 1, 1]
        {
            driver.link.count_not_supported();
            return Err(CUresult::NOT_SUPPORTED);
        }
    }
    let threads = [config.block_dim_x, config.block_dim_y, config.block_dim_z]
        .iter()
        .try_fold(1u32, |product, &size| product.checked_mul(size))
        .and_then(|threads| c_int::try_from(threads).ok())
        .ok_or(CUresult::INVALID_VALUE)?;
    let fit = driver.occupancy(
        number(function),
        threads_of(threads)?,
        config.shared_mem_bytes.into(),
    )?;
    let context = driver.function(number(function))?.context;
    Ok((fit * driver.device_of(context).sms) as c_int)
}
