//! Pools. Allocations from them are counted where they are made (`memory`); these calls change how
//! much a pool holds of the device, which is what is charged ([`crate::memory::quota::pools`]).

use core::ffi::{c_ulonglong, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
};

use super::memory::seen;
use super::{hook, stored};
use crate::memory::quota::HELD;

seen! {
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
    cuMemGetDefaultMemPool(
        pool: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        kind: CUmemAllocationType,
    );
    cuMemGetMemPool(
        pool: *mut CUmemoryPool,
        location: *mut CUmemLocation,
        kind: CUmemAllocationType,
    );
    cuMemSetMemPool(
        location: *mut CUmemLocation,
        kind: CUmemAllocationType,
        pool: CUmemoryPool,
    );
    cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
    cuMemPoolImportFromShareableHandle(
        pool: *mut CUmemoryPool,
        handle: *mut c_void,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong,
    );
}

hook! {
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    after |_, result| {
        // SAFETY: this call's output parameter, and properties that the driver has just read.
        let made = unsafe { stored(pool, result).zip(stored(properties, result)) };
        if let Some((pool, properties)) = made {
            HELD.pools.handle_created(pool, properties.location);
        }
    };
}

hook! {
    cuMemPoolDestroy(pool: CUmemoryPool);
    // The pool cannot be queried afterwards.
    before |_| HELD.pools.before_destroy(pool);
    after |_, had, result| HELD.pools.handle_destroyed(pool, *had, result);
}

hook! {
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    // The threshold may now be lower than what is kept.
    after |_, _| HELD.pools.handle_changed();
}

hook! {
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes_kept: usize);
    after |_, _| HELD.pools.handle_changed();
}

hook! {
    cuDeviceGraphMemTrim(device: CUdevice);
    after |_, _| HELD.pools.handle_graphs();
}

// Memory of another process: nothing new is allocated.
seen! {
    cuMemPoolImportPointer(
        address: *mut CUdeviceptr,
        pool: CUmemoryPool,
        data: *mut CUmemPoolPtrExportData,
    );
}
