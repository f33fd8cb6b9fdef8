//! Pools. What they hold of the device is the driver's; the application's allocations from them are
//! counted where they are made (`memory`), so everything here is seen and not counted.

use core::ffi::{c_ulonglong, c_void};

use abi::types::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
};

use super::hook;
use super::memory::seen;

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
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
    cuMemPoolSetAttribute(
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        value: *mut c_void,
    );
    cuMemPoolTrimTo(pool: CUmemoryPool, bytes_kept: usize);
    cuMemPoolImportFromShareableHandle(
        pool: *mut CUmemoryPool,
        handle: *mut c_void,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong,
    );
}

// Memory of another process: nothing new is allocated.
seen! {
    cuMemPoolImportPointer(
        address: *mut CUdeviceptr,
        pool: CUmemoryPool,
        data: *mut CUmemPoolPtrExportData,
    );
}
