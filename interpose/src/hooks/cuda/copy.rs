//! Copies of one dimension, counted in the direction of their names. Of the forms that return when
//! the copy is done, only those to the host also show completion: the host has the bytes, so
//! earlier work on the stream is complete. A copy to the device may return once its source has been
//! read, and copies within the device return at once (CUDA driver API, "API synchronization
//! behavior"). Large copies of best-effort clients wait like launches ([`launch::begin_copy`]).

use core::ffi::{c_uint, c_void};

use abi::types::{CUarray, CUcontext, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use protocol::pages::Counter;
use protocol::record::Direction;

use super::hook;
use crate::launch::{self, BegunCopy};
use crate::memory::counts::{handle_copied, of_stream};
use crate::process::Client;
use crate::progress::completion::{handle_reached, mark_of_stream};
use crate::progress::slot::Mark;
use crate::progress::stream::{Flavour, Stream};
use crate::progress::traced::Copying;

/// Defines a copy: one whose return shows nothing about its stream (`on`), one in stream order
/// (`in`), or one whose return shows that it is done (`waits for`). `$bytes` is its size.
macro_rules! copy {
    (
        $name:ident($($argument:ident: $type:ty),* $(,)?), $bytes:ident, $direction:ident,
        on $stream:ident
    ) => {
        hook! {
            $name($($argument: $type),*);
            before |client| begin_waiting(client, Stream::$stream, $bytes as usize, Counter::$direction);
            after |client, begun, result| {
                launch::end_copy(begun, result);
                handle_copied(client, result, Counter::$direction, $bytes as usize);
            };
        }
    };
    (
        $name:ident($($argument:ident: $type:ty),* $(,)?), $bytes:ident, $direction:ident,
        in $stream:ident of $flavour:ident
    ) => {
        hook! {
            $name($($argument: $type),*);
            before |client| {
                let stream = Stream::of($stream, Flavour::$flavour);
                begin(client, stream, $bytes as usize, Counter::$direction)
            };
            after |client, begun, result| {
                launch::end_copy(begun, result);
                let client = of_stream(client, Stream::of($stream, Flavour::$flavour));
                handle_copied(client, result, Counter::$direction, $bytes as usize);
            };
        }
    };
    ($name:ident($($argument:ident: $type:ty),* $(,)?), $bytes:ident, waits for $stream:ident) => {
        hook! {
            $name($($argument: $type),*);
            before |client| {
                let direction = Counter::CopiedDtoHBytes;
                let begun = begin_waiting(client, Stream::$stream, $bytes as usize, direction);
                (begun, mark_of_stream(Stream::$stream))
            };
            after |client, (begun, mark), result| {
                launch::end_copy(begun, result);
                handle_received(client, *mark, result, $bytes as usize);
            };
        }
    };
}

copy!(cuMemcpyHtoD(to: CUdeviceptr_v1, from: *const c_void, bytes: c_uint), bytes, CopiedHtoDBytes, on Legacy);
copy!(cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes, on Legacy);
copy!(cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes, on PerThread);
copy!(cuMemcpyHtoDAsync(to: CUdeviceptr_v1, from: *const c_void, bytes: c_uint, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of PerThread);

copy!(cuMemcpyDtoH(to: *mut c_void, from: CUdeviceptr_v1, bytes: c_uint), bytes, waits for Legacy);
copy!(cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize), bytes, waits for Legacy);
copy!(cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, bytes: usize), bytes, waits for PerThread);
copy!(cuMemcpyDtoHAsync(to: *mut c_void, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of PerThread);

copy!(cuMemcpyDtoD(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on PerThread);
copy!(cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on PerThread);
copy!(cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpyHtoA(to: CUarray, to_offset: c_uint, from: *const c_void, bytes: c_uint), bytes, CopiedHtoDBytes, on Legacy);
copy!(cuMemcpyHtoA_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes, on Legacy);
copy!(cuMemcpyHtoA_v2_ptds(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes, on PerThread);
copy!(cuMemcpyHtoAAsync(to: CUarray, to_offset: c_uint, from: *const c_void, bytes: c_uint, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoAAsync_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of PerThread);

copy!(cuMemcpyAtoH(to: *mut c_void, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, waits for Legacy);
copy!(cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize), bytes, waits for Legacy);
copy!(cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize), bytes, waits for PerThread);
copy!(cuMemcpyAtoHAsync(to: *mut c_void, from: CUarray, from_offset: c_uint, bytes: c_uint, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of PerThread);

copy!(cuMemcpyDtoA(to: CUarray, to_offset: c_uint, from: CUdeviceptr_v1, bytes: c_uint), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyDtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes, on PerThread);

copy!(cuMemcpyAtoD(to: CUdeviceptr_v1, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes, on PerThread);

copy!(cuMemcpyAtoA(to: CUarray, to_offset: c_uint, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyAtoA_v2(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes, on PerThread);

copy!(cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize), bytes, CopiedOtherBytes, on Legacy);
copy!(cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize), bytes, CopiedOtherBytes, on PerThread);
copy!(cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpyWithAttributesAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: *mut c_void, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyWithAttributesAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: *mut c_void, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

#[inline]
fn begin(
    client: Option<&'static Client>,
    stream: Stream,
    bytes: usize,
    direction: Counter,
) -> BegunCopy {
    let copying = Copying {
        stream,
        bytes,
        direction: direction_of(direction),
        is_waited_for: false,
    };
    launch::begin_copy(client, &copying)
}

/// Before a copy whose call returns when it is done; not so within the device, see above.
#[inline]
fn begin_waiting(
    client: Option<&'static Client>,
    stream: Stream,
    bytes: usize,
    direction: Counter,
) -> BegunCopy {
    let direction = direction_of(direction);
    let copying = Copying {
        stream,
        bytes,
        direction,
        is_waited_for: direction != Direction::Other,
    };
    launch::begin_copy(client, &copying)
}

#[inline]
fn direction_of(counter: Counter) -> Direction {
    match counter {
        Counter::CopiedHtoDBytes => Direction::ToDevice,
        Counter::CopiedDtoHBytes => Direction::ToHost,
        _ => Direction::Other,
    }
}

/// A copy to the host is done, and so is all earlier work on its stream.
fn handle_received(client: Option<&Client>, mark: Option<Mark>, result: CUresult, bytes: usize) {
    handle_copied(client, result, Counter::CopiedDtoHBytes, bytes);
    // A copy of 0 bytes waits for nothing.
    handle_waited(mark.filter(|_| bytes != 0), result);
}

/// Earlier work on a stream is complete, if a call that waited for it succeeded.
pub(super) fn handle_waited(mark: Option<Mark>, result: CUresult) {
    if let (Some(mark), CUresult::SUCCESS) = (mark, result) {
        handle_reached(mark);
    }
}
