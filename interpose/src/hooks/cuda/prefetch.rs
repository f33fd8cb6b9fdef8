//! Prefetches and discards of managed memory. Seen and not counted: only the driver knows how much
//! moves, and nothing is allocated or copied that the application could count.

use core::ffi::{c_uint, c_ulonglong};

use abi::types::{CUdevice, CUdeviceptr, CUmemLocation, CUstream};

use super::hook;
use super::memory::seen;

seen! {
    cuMemPrefetchAsync(address: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_ptsz(address: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_v2(
        address: CUdeviceptr,
        bytes: usize,
        to: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    );
    cuMemPrefetchAsync_v2_ptsz(
        address: CUdeviceptr,
        bytes: usize,
        to: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    );
    cuMemDiscardBatchAsync(
        addresses: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: c_ulonglong,
        stream: CUstream,
    );
    cuMemDiscardBatchAsync_ptsz(
        addresses: *mut CUdeviceptr,
        sizes: *mut usize,
        count: usize,
        flags: c_ulonglong,
        stream: CUstream,
    );
}

macro_rules! prefetch_batch {
    ($($name:ident)*) => {
        seen! {
            $(
                $name(
                    addresses: *mut CUdeviceptr,
                    sizes: *mut usize,
                    count: usize,
                    locations: *mut CUmemLocation,
                    location_indices: *mut usize,
                    location_count: usize,
                    flags: c_ulonglong,
                    stream: CUstream,
                );
            )*
        }
    };
}

prefetch_batch! {
    cuMemPrefetchBatchAsync
    cuMemPrefetchBatchAsync_ptsz
    cuMemDiscardAndPrefetchBatchAsync
    cuMemDiscardAndPrefetchBatchAsync_ptsz
}
