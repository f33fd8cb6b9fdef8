//! Fills, counted.

use core::ffi::{c_uchar, c_uint, c_ushort};

use abi::types::{CUdeviceptr, CUdeviceptr_v1, CUstream};

use super::hook;
use crate::memory::counts::{handle_set, of_stream};
use crate::progress::stream::{Flavour, Stream};

macro_rules! set {
    ($name:ident, $address:ty, $size:ty, $type:ty) => {
        hook! {
            $name(to: $address, value: $type, count: $size);
            after |client, result| {
                handle_set(client, result, count as usize, size_of::<$type>() as u64);
            };
        }
    };
    ($name:ident, $type:ty, $flavour:expr) => {
        hook! {
            $name(to: CUdeviceptr, value: $type, count: usize, stream: CUstream);
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, $flavour));
                handle_set(client, result, count, size_of::<$type>() as u64);
            };
        }
    };
}

macro_rules! set_2d {
    ($name:ident, $address:ty, $size:ty, $type:ty) => {
        hook! {
            $name(to: $address, pitch: $size, value: $type, width: $size, height: $size);
            after |client, result| {
                let count = (width as usize).saturating_mul(height as usize);
                handle_set(client, result, count, size_of::<$type>() as u64);
            };
        }
    };
    ($name:ident, $type:ty, $flavour:expr) => {
        hook! {
            $name(
                to: CUdeviceptr,
                pitch: usize,
                value: $type,
                width: usize,
                height: usize,
                stream: CUstream,
            );
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, $flavour));
                let count = width.saturating_mul(height);
                handle_set(client, result, count, size_of::<$type>() as u64);
            };
        }
    };
}

set!(cuMemsetD8, CUdeviceptr_v1, c_uint, c_uchar);
set!(cuMemsetD8_v2, CUdeviceptr, usize, c_uchar);
set!(cuMemsetD8_v2_ptds, CUdeviceptr, usize, c_uchar);
set!(cuMemsetD8Async, c_uchar, Flavour::Plain);
set!(cuMemsetD8Async_ptsz, c_uchar, Flavour::PerThread);
set!(cuMemsetD16, CUdeviceptr_v1, c_uint, c_ushort);
set!(cuMemsetD16_v2, CUdeviceptr, usize, c_ushort);
set!(cuMemsetD16_v2_ptds, CUdeviceptr, usize, c_ushort);
set!(cuMemsetD16Async, c_ushort, Flavour::Plain);
set!(cuMemsetD16Async_ptsz, c_ushort, Flavour::PerThread);
set!(cuMemsetD32, CUdeviceptr_v1, c_uint, c_uint);
set!(cuMemsetD32_v2, CUdeviceptr, usize, c_uint);
set!(cuMemsetD32_v2_ptds, CUdeviceptr, usize, c_uint);
set!(cuMemsetD32Async, c_uint, Flavour::Plain);
set!(cuMemsetD32Async_ptsz, c_uint, Flavour::PerThread);

set_2d!(cuMemsetD2D8, CUdeviceptr_v1, c_uint, c_uchar);
set_2d!(cuMemsetD2D8_v2, CUdeviceptr, usize, c_uchar);
set_2d!(cuMemsetD2D8_v2_ptds, CUdeviceptr, usize, c_uchar);
set_2d!(cuMemsetD2D8Async, c_uchar, Flavour::Plain);
set_2d!(cuMemsetD2D8Async_ptsz, c_uchar, Flavour::PerThread);
set_2d!(cuMemsetD2D16, CUdeviceptr_v1, c_uint, c_ushort);
set_2d!(cuMemsetD2D16_v2, CUdeviceptr, usize, c_ushort);
set_2d!(cuMemsetD2D16_v2_ptds, CUdeviceptr, usize, c_ushort);
set_2d!(cuMemsetD2D16Async, c_ushort, Flavour::Plain);
set_2d!(cuMemsetD2D16Async_ptsz, c_ushort, Flavour::PerThread);
set_2d!(cuMemsetD2D32, CUdeviceptr_v1, c_uint, c_uint);
set_2d!(cuMemsetD2D32_v2, CUdeviceptr, usize, c_uint);
set_2d!(cuMemsetD2D32_v2_ptds, CUdeviceptr, usize, c_uint);
set_2d!(cuMemsetD2D32Async, c_uint, Flavour::Plain);
set_2d!(cuMemsetD2D32Async_ptsz, c_uint, Flavour::PerThread);
