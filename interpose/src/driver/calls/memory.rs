//! Driver queries about memory, for [`crate::memory::quota`]. Safe signatures, as in [`super`].

use core::ffi::c_void;
use core::ptr;

use abi::types::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemPool_attribute, CUmemoryPool, CUresult,
};

use super::checked;
use crate::driver::real;
use crate::platform::sys;

/// Bytes that a pool has reserved on its device, and how many of them are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolBytes {
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    /// Bytes that it keeps reserved when nothing is allocated.
    pub(crate) threshold: u64,
}

/// A pool's bytes; `None` where the driver does not report it.
pub(crate) fn pool_bytes(pool: u64) -> Option<PoolBytes> {
    let ask = |attribute| {
        let mut value = 0_u64;
        let result = call!(cuMemPoolGetAttribute(
            pool_handle(pool) => CUmemoryPool,
            attribute => CUmemPool_attribute,
            (&raw mut value).cast() => *mut c_void
        ));
        checked(result, value).ok()
    };
    // `used` first: a reservation in between is then counted.
    let used = ask(CUmemPool_attribute::USED_MEM_CURRENT)?;
    let reserved = ask(CUmemPool_attribute::RESERVED_MEM_CURRENT)?;
    let threshold = ask(CUmemPool_attribute::RELEASE_THRESHOLD)?;
    Some(PoolBytes {
        reserved,
        used,
        threshold,
    })
}

pub(crate) fn graph_bytes(device: CUdevice) -> Option<PoolBytes> {
    let ask = |attribute| {
        let mut value = 0_u64;
        let result = call!(cuDeviceGetGraphMemAttribute(
            device => CUdevice,
            attribute => CUgraphMem_attribute,
            (&raw mut value).cast() => *mut c_void
        ));
        checked(result, value).ok()
    };
    let used = ask(CUgraphMem_attribute::USED_MEM_CURRENT)?;
    let reserved = ask(CUgraphMem_attribute::RESERVED_MEM_CURRENT)?;
    Some(PoolBytes {
        reserved,
        used,
        threshold: 0,
    })
}

pub(crate) fn total_bytes(device: CUdevice) -> Option<u64> {
    let mut bytes = 0_usize;
    let result = call!(cuDeviceTotalMem_v2(&raw mut bytes => *mut usize, device => CUdevice));
    checked(result, bytes as u64).ok()
}

pub(crate) fn free_and_total() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0_usize, 0_usize);
    let result = call!(cuMemGetInfo_v2(
        &raw mut free => *mut usize,
        &raw mut total => *mut usize
    ));
    checked(result, (free as u64, total as u64)).ok()
}

pub(crate) fn current_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = CUmemoryPool(ptr::null_mut());
    let result = call!(cuDeviceGetMemPool(
        &raw mut pool => *mut CUmemoryPool,
        device => CUdevice
    ));
    checked(result, pool).ok()
}

/// Makes a pool release unused memory; [`pool_bytes`] shows the effect.
pub(crate) fn trim_pool(pool: u64) {
    let _ = call!(cuMemPoolTrimTo(pool_handle(pool) => CUmemoryPool, 0 => usize));
}

pub(crate) fn trim_graphs(device: CUdevice) {
    let _ = call!(cuDeviceGraphMemTrim(device => CUdevice));
}

/// Frees memory that the driver granted but the application must not get.
pub(crate) fn free(address: CUdeviceptr) {
    let _ = call!(cuMemFree_v2(address => CUdeviceptr));
}

fn pool_handle(pool: u64) -> CUmemoryPool {
    CUmemoryPool(ptr::with_exposed_provenance_mut(pool as usize))
}
