//! Allocations and their ends, counted: device memory as the bytes that the application asked for,
//! pinned host memory apart from it.
//!
//! A free is passed on whatever it frees: memory that we never saw allocated is the driver's to
//! judge.

use core::ffi::{c_uint, c_void};

use abi::types::{CUdeviceptr, CUdeviceptr_v1, CUmemoryPool, CUstream};

use super::{hook, stored};
use crate::counts::{handle_allocated, handle_freed, handle_host_allocated, of_address, of_stream};
use crate::streams::{Flavour, Stream};

/// Defines hooks of entry points that are seen and not counted. Each block says why.
macro_rules! seen {
    ($($name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        $(
            hook! {
                $name($($argument: $type),*);
                after |_, _| ();
            }
        )*
    };
}
pub(super) use seen;

hook! {
    cuMemAlloc(address: *mut CUdeviceptr_v1, bytes: c_uint);
    after |client, result| handle_allocated(client, result, bytes as usize);
}

hook! {
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    after |client, result| handle_allocated(client, result, bytes);
}

hook! {
    cuMemAllocPitch(
        address: *mut CUdeviceptr_v1,
        pitch: *mut c_uint,
        width_bytes: c_uint,
        height: c_uint,
        element_bytes: c_uint,
    );
    after |client, result| {
        // SAFETY: this call's output parameter.
        let pitch = unsafe { stored(pitch, result) }.unwrap_or(width_bytes);
        handle_allocated(client, result, (pitch as usize).saturating_mul(height as usize));
    };
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

/// Defines allocation in a stream's order.
macro_rules! allocate_async {
    ($name:ident, $flavour:expr $(, $pool:ident)?) => {
        hook! {
            $name(
                address: *mut CUdeviceptr,
                bytes: usize,
                $($pool: CUmemoryPool,)?
                stream: CUstream,
            );
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, $flavour));
                handle_allocated(client, result, bytes);
            };
        }
    };
}

allocate_async!(cuMemAllocAsync, Flavour::Plain);
allocate_async!(cuMemAllocAsync_ptsz, Flavour::PerThread);
allocate_async!(cuMemAllocFromPoolAsync, Flavour::Plain, pool);
allocate_async!(cuMemAllocFromPoolAsync_ptsz, Flavour::PerThread, pool);

hook! {
    cuMemFree(address: CUdeviceptr_v1);
    before |client| of_address(client, address.0.into());
    after |_, owner, result| handle_freed(*owner, result, address.0.into());
}

hook! {
    cuMemFree_v2(address: CUdeviceptr);
    before |client| of_address(client, address.0);
    after |_, owner, result| handle_freed(*owner, result, address.0);
}

/// Defines a free in a stream's order.
macro_rules! free_async {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(address: CUdeviceptr, stream: CUstream);
            before |client| of_address(client, address.0);
            after |_, owner, result| {
                let owner = of_stream(*owner, Stream::of(stream, $flavour)).and(*owner);
                handle_freed(owner, result, address.0);
            };
        }
    };
}

free_async!(cuMemFreeAsync, Flavour::Plain);
free_async!(cuMemFreeAsync_ptsz, Flavour::PerThread);

hook! {
    cuMemAllocHost(address: *mut *mut c_void, bytes: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes as usize);
}

hook! {
    cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostRegister(address: *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

hook! {
    cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint);
    after |client, result| handle_host_allocated(client, result, bytes);
}

// The end of host memory. What is counted of host memory is what was asked
// for, ever.
seen! {
    cuMemFreeHost(address: *mut c_void);
    cuMemHostUnregister(address: *mut c_void);
}
