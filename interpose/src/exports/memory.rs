//! Allocations, counted. Page-locked host memory is hooked but not counted: it is not the device's.

use core::ffi::{c_uint, c_ulonglong, c_void};

use abi::types::{
    CUdeviceptr, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemoryPool, CUstream,
};

use super::{hook, stored};
use crate::counts::{handle_allocated, handle_freed};

hook! {
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocPitch_v2(
        address: *mut CUdeviceptr,
        pitch: *mut usize,
        width_bytes: usize,
        height: usize,
        element_bytes: c_uint,
    );
    after |client, result| {
        // SAFETY: this call's output parameter.
        let pitch = unsafe { stored(pitch, result) }.unwrap_or(width_bytes);
        handle_allocated(client, result, pitch.saturating_mul(height));
    };
}

hook! {
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocFromPoolAsync(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    );
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocFromPoolAsync_ptsz(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    );
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: c_ulonglong,
    );
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemFree_v2(address: CUdeviceptr);
    after |client, result| handle_freed(client, result, address.0);
}

hook! {
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream);
    after |client, result| handle_freed(client, result, address.0);
}

hook! {
    cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream);
    after |client, result| handle_freed(client, result, address.0);
}

hook! {
    cuMemRelease(handle: CUmemGenericAllocationHandle);
    // A handle of 0 would be as good as any other.
    after |client, result| handle_freed(client, result, u64::MAX);
}

hook! {
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    after |_, _| ();
}

hook! {
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    after |_, _| ();
}

hook! {
    cuMemFreeHost(address: *mut c_void);
    after |_, _| ();
}
