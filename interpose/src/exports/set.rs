//! Fills, counted.

use core::ffi::{c_uchar, c_uint, c_ushort};

use abi::types::{CUdeviceptr, CUstream};

use super::hook;
use crate::counts::handle_set;

/// Defines a fill with values of `$type`, with or without a stream.
macro_rules! set {
    ($name:ident, $type:ty $(, $stream:ident)?) => {
        hook! {
            $name(to: CUdeviceptr, value: $type, count: usize $(, $stream: CUstream)?);
            after |client, result| handle_set(client, result, count, size_of::<$type>() as u64);
        }
    };
}

set!(cuMemsetD8_v2, c_uchar);
set!(cuMemsetD8_v2_ptds, c_uchar);
set!(cuMemsetD8Async, c_uchar, stream);
set!(cuMemsetD8Async_ptsz, c_uchar, stream);
set!(cuMemsetD16_v2, c_ushort);
set!(cuMemsetD16_v2_ptds, c_ushort);
set!(cuMemsetD16Async, c_ushort, stream);
set!(cuMemsetD16Async_ptsz, c_ushort, stream);
set!(cuMemsetD32_v2, c_uint);
set!(cuMemsetD32_v2_ptds, c_uint);
set!(cuMemsetD32Async, c_uint, stream);
set!(cuMemsetD32Async_ptsz, c_uint, stream);
