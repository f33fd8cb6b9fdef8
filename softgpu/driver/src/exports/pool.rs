//! Pools and stream-ordered allocation.

use std::ffi::{c_int, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::raw::{In, Out, handle};
use crate::streams::Flavour;

fn allocate(
    driver: &Driver,
    flavour: Flavour,
    address: &Out<CUdeviceptr>,
    bytes: usize,
    pool: Option<CUmemoryPool>,
    stream: CUstream,
) -> Result<(), CUresult> {
    if address.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let stream = driver.stream(stream, flavour)?;
    if let Some(captured) = driver.try_capture_allocation(&stream, bytes as u64)? {
        return address.set(CUdeviceptr(captured));
    }
    let pool = pool.map(|pool| pool.0.addr() as u64);
    let allocated = driver.allocate_async(bytes as u64, pool, &stream)?;
    address.set(CUdeviceptr(allocated))
}

/// Whether an attribute is an `int`; the others are 64 bits.
fn is_int(attribute: CUmemPool_attribute) -> bool {
    attribute.0 <= CUmemPool_attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES.0
}

/// The device of a location, for the supported kind of pool allocation.
fn located(
    driver: &Driver,
    location: &In<CUmemLocation>,
    kind: CUmemAllocationType,
) -> Result<usize, CUresult> {
    let location = location.get()?;
    if kind != CUmemAllocationType::PINNED {
        // Pools of managed memory, a feature of CUDA 13.
        return Err(CUresult::NOT_SUPPORTED);
    }
    driver.located(location)
}

exports! {
    cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        pool.set(CUmemoryPool(handle(driver.default_pool(device))))
    };

    cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice) |driver| {
        let device = driver.check_device(device)?;
        pool.set(CUmemoryPool(handle(driver.current_pool(device))))
    };

    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) |driver| {
        let device = driver.check_device(device)?;
        driver.set_current_pool(device, pool.0.addr() as u64)
    };

    cuMemGetDefaultMemPool(
        pool: Out<CUmemoryPool>,
        location: In<CUmemLocation>,
        kind: CUmemAllocationType,
    ) |driver| {
        let device = located(driver, &location, kind)?;
        pool.set(CUmemoryPool(handle(driver.default_pool(device))))
    };

    cuMemGetMemPool(
        pool: Out<CUmemoryPool>,
        location: In<CUmemLocation>,
        kind: CUmemAllocationType,
    ) |driver| {
        let device = located(driver, &location, kind)?;
        pool.set(CUmemoryPool(handle(driver.current_pool(device))))
    };

    cuMemSetMemPool(location: In<CUmemLocation>, kind: CUmemAllocationType, pool: CUmemoryPool)
        |driver| {
            let device = located(driver, &location, kind)?;
            driver.set_current_pool(device, pool.0.addr() as u64)
        };

    cuMemPoolCreate(pool: Out<CUmemoryPool>, properties: In<CUmemPoolProps>) |driver| {
        let properties = properties.get()?;
        if pool.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        pool.set(CUmemoryPool(handle(driver.create_pool(&properties)?)))
    };

    cuMemPoolDestroy(pool: CUmemoryPool) |driver| driver.destroy_pool(pool.0.addr() as u64);

    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Out<c_void>)
        |driver| {
            if value.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            let found = driver.pool_attribute(pool.0.addr() as u64, attribute)?;
            if is_int(attribute) {
                return value.cast::<c_int>().set(found as c_int);
            }
            value.cast::<u64>().set(found)
        };

    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: Out<c_void>)
        |driver| {
            let wanted = if is_int(attribute) {
                value.cast::<c_int>().get()? as u64
            } else {
                value.cast::<u64>().get()?
            };
            driver.set_pool_attribute(pool.0.addr() as u64, attribute, wanted)
        };

    cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize)
        |driver| driver.trim_pool(pool.0.addr() as u64, keep_bytes as u64);

    cuMemPoolSetAccess(pool: CUmemoryPool, access: In<CUmemAccessDesc>, count: usize) |driver| {
        (0..count).try_for_each(|index| {
            driver.set_pool_access(pool.0.addr() as u64, access.at(index)?)
        })
    };

    cuMemPoolGetAccess(
        flags: Out<CUmemAccess_flags>,
        pool: CUmemoryPool,
        location: In<CUmemLocation>,
    ) |driver| flags.set(driver.pool_access(pool.0.addr() as u64, location.get()?)?);
}

flavoured! {
    cuMemAllocAsync cuMemAllocAsync_ptsz (address: Out<CUdeviceptr>, bytes: usize, stream: CUstream)
        |driver, flavour| allocate(driver, flavour, &address, bytes, None, stream);

    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz (
        address: Out<CUdeviceptr>,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream
    ) |driver, flavour| allocate(driver, flavour, &address, bytes, Some(pool), stream);

    cuMemFreeAsync cuMemFreeAsync_ptsz (address: CUdeviceptr, stream: CUstream) |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        if driver.try_capture_free(&stream, address.0)? || driver.try_free_graph_block(address.0)? {
            return Ok(());
        }
        driver.free_async(address.0, &stream)
    };
}
