//! Copies, counted in the direction that their names say.
//!
//! Of the forms that return when the copy is done only device to host is also a sign of completion:
//! the host has the bytes, so what the stream held before is over. A copy to the device may return
//! once its source has been read, and copies within the device return at once (CUDA driver API,
//! "API synchronization behavior").

use core::ffi::c_void;

use abi::types::{CUdeviceptr, CUresult, CUstream};
use protocol::pages::Counter;

use super::hook;
use crate::client::Client;
use crate::completion::{Mark, handle_reached, mark_of_stream};
use crate::counts::handle_copied;
use crate::streams::Stream;

/// Defines a copy whose return says nothing about the stream.
macro_rules! copy {
    ($name:ident($($argument:ident: $type:ty),*), $bytes:ident, $direction:ident) => {
        hook! {
            $name($($argument: $type),*);
            after |client, result| handle_copied(client, result, Counter::$direction, $bytes);
        }
    };
}

copy!(
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize),
    bytes,
    CopiedHtoDBytes
);

copy!(
    cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, bytes: usize),
    bytes,
    CopiedHtoDBytes
);

copy!(
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream),
    bytes,
    CopiedHtoDBytes
);

copy!(
    cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream),
    bytes,
    CopiedHtoDBytes
);

copy!(
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedDtoHBytes
);

copy!(
    cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedDtoHBytes
);

copy!(
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedOtherBytes
);

copy!(
    cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream),
    bytes,
    CopiedOtherBytes
);

hook! {
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    before |client| client.and_then(|client| mark_of_stream(client, Stream::Legacy));
    after |client, mark, result| handle_received(client, *mark, result, bytes);
}

hook! {
    cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, bytes: usize);
    before |client| client.and_then(|client| mark_of_stream(client, Stream::PerThread));
    after |client, mark, result| handle_received(client, *mark, result, bytes);
}

/// A copy to the host is done, and so is everything before it in its stream.
fn handle_received(client: Option<&Client>, mark: Option<Mark>, result: CUresult, bytes: usize) {
    handle_copied(client, result, Counter::CopiedDtoHBytes, bytes);
    if let (Some(client), Some(mark), CUresult::SUCCESS) = (client, mark, result) {
        handle_reached(client, mark);
    }
}
