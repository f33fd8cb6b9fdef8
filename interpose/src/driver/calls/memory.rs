//! What the driver says of memory, for [`crate::memory::quota`]. As [`super`]: calls of ours, with
//! safe signatures.

use core::ffi::c_void;
use core::ptr;

use abi::types::{
    CUdevice, CUdeviceptr, CUgraphMem_attribute, CUmemPool_attribute, CUmemoryPool, CUresult,
};

use super::checked;
use crate::driver::real;
use crate::platform::sys;

/// What a pool has of its device, and what of that is allocated, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolBytes {
    pub(crate) reserved: u64,
    pub(crate) used: u64,
    /// What it keeps when nothing is allocated.
    pub(crate) threshold: u64,
}

/// What a pool has; `None` where the driver does not say.
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
    // Used first: what is reserved for what came in between is then counted.
    let used = ask(CUmemPool_attribute::USED_MEM_CURRENT)?;
    let reserved = ask(CUmemPool_attribute::RESERVED_MEM_CURRENT)?;
    let threshold = ask(CUmemPool_attribute::RELEASE_THRESHOLD)?;
    Some(PoolBytes {
        reserved,
        used,
        threshold,
    })
}

/// What the graphs of a device have reserved; `None` where the driver does not say.
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

/// What a device has, bytes.
pub(crate) fn total_bytes(device: CUdevice) -> Option<u64> {
    let mut bytes = 0_usize;
    let result = call!(cuDeviceTotalMem_v2(&raw mut bytes => *mut usize, device => CUdevice));
    checked(result, bytes as u64).ok()
}

/// Free and total bytes of the current device.
pub(crate) fn free_and_total() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0_usize, 0_usize);
    let result = call!(cuMemGetInfo_v2(
        &raw mut free => *mut usize,
        &raw mut total => *mut usize
    ));
    checked(result, (free as u64, total as u64)).ok()
}

/// The pool that allocations in a device's streams come from.
pub(crate) fn current_pool(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = CUmemoryPool(ptr::null_mut());
    let result = call!(cuDeviceGetMemPool(
        &raw mut pool => *mut CUmemoryPool,
        device => CUdevice
    ));
    checked(result, pool).ok()
}

/// Makes a pool give back what it does not use; whether it did shows in [`pool_bytes`].
pub(crate) fn trim_pool(pool: u64) {
    let _ = call!(cuMemPoolTrimTo(pool_handle(pool) => CUmemoryPool, 0 => usize));
}

/// The same of a device's graphs.
pub(crate) fn trim_graphs(device: CUdevice) {
    let _ = call!(cuDeviceGraphMemTrim(device => CUdevice));
}

/// Frees memory that the driver has granted and the application is not to have.
pub(crate) fn free(address: CUdeviceptr) {
    let _ = call!(cuMemFree_v2(address => CUdeviceptr));
}

fn pool_handle(pool: u64) -> CUmemoryPool {
    CUmemoryPool(ptr::with_exposed_provenance_mut(pool as usize))
}
