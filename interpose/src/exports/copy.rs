//! Copies of one dimension, counted in the direction that their names say.
//!
//! Of the forms that return when the copy is done only those to the host are also a sign of
//! completion: the host has the bytes, so what the stream held before is over. A copy to the device
//! may return once its source has been read, and copies within the device return at once (CUDA
//! driver API, "API synchronization behavior").
//!
//! Those between host and device may be made in pieces ([`crate::cutting`]); those that touch an array, that a descriptor
//! describes ([`super::copy_shape`]) or whose direction the driver finds out are made whole.

use core::ffi::{c_uint, c_void};

use abi::types::{CUarray, CUcontext, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use protocol::pages::Counter;

use super::hook;
use crate::client::Client;
use crate::completion::{Mark, handle_reached, mark_of_stream};
use crate::counts::{handle_copied, of_stream};
use crate::cutting::{self, Span};
use crate::streams::{Flavour, Stream};

/// Defines a copy: one whose return says nothing about its stream, one in a stream's order (`in`),
/// or one whose return says that it is done (`waits for`). `$bytes` says how much.
macro_rules! copy {
    ($name:ident($($argument:ident: $type:ty),* $(,)?), $bytes:ident, $direction:ident) => {
        hook! {
            $name($($argument: $type),*);
            after |client, result| {
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
            after |client, result| {
                let client = of_stream(client, Stream::of($stream, Flavour::$flavour));
                handle_copied(client, result, Counter::$direction, $bytes as usize);
            };
        }
    };
    ($name:ident($($argument:ident: $type:ty),* $(,)?), $bytes:ident, waits for $stream:ident) => {
        hook! {
            $name($($argument: $type),*);
            before |_| mark_of_stream(Stream::$stream);
            after |client, mark, result| {
                handle_received(client, *mark, result, $bytes as usize);
            };
        }
    };
}

/// An address that a copy begins at.
trait Address: Copy {
    /// Whether it is one of the device.
    const IS_DEVICE: bool;
    fn address(self) -> u64;
    /// So many bytes on.
    fn at(self, offset: u64) -> Self;
}

impl Address for CUdeviceptr {
    const IS_DEVICE: bool = true;

    fn address(self) -> u64 {
        self.0
    }

    fn at(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }
}

impl Address for CUdeviceptr_v1 {
    const IS_DEVICE: bool = true;

    fn address(self) -> u64 {
        self.0.into()
    }

    fn at(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset as c_uint))
    }
}

impl Address for *const c_void {
    const IS_DEVICE: bool = false;

    fn address(self) -> u64 {
        self.addr() as u64
    }

    fn at(self, offset: u64) -> Self {
        self.wrapping_byte_add(offset as usize)
    }
}

impl Address for *mut c_void {
    const IS_DEVICE: bool = false;

    fn address(self) -> u64 {
        self.addr() as u64
    }

    fn at(self, offset: u64) -> Self {
        self.wrapping_byte_add(offset as usize)
    }
}

/// Defines a copy between host and device as above, which may be made in pieces: one on a default stream whose return says
/// nothing about it (`on`), one whose return says that it is done (`waits for`), or one in a stream's order (`in`).
macro_rules! cuttable {
    ($name:ident($to:ty, $from:ty, $bytes:ty), $direction:ident, on $stream:ident) => {
        cuttable! {
            @make $name($to, $from, $bytes,), $direction, |to, from, bytes| Stream::$stream, false;
            after |client, _mark, result| handle_copied(client, result, Counter::$direction, bytes as usize);
        }
    };
    ($name:ident($to:ty, $from:ty, $bytes:ty), $direction:ident, waits for $stream:ident) => {
        cuttable! {
            @make $name($to, $from, $bytes,), $direction, |to, from, bytes| Stream::$stream, true;
            after |client, mark, result| handle_received(client, mark, result, bytes as usize);
        }
    };
    ($name:ident($to:ty, $from:ty, $bytes:ty), $direction:ident, in $flavour:ident) => {
        cuttable! {
            @make $name($to, $from, $bytes, stream: CUstream), $direction,
            |to, from, bytes| Stream::of(stream, Flavour::$flavour), false;
            after |client, _mark, result| {
                let client = of_stream(client, Stream::of(stream, Flavour::$flavour));
                handle_copied(client, result, Counter::$direction, bytes as usize);
            };
        }
    };
    (
        @make $name:ident($to_type:ty, $from_type:ty, $bytes_type:ty, $($argument:ident: $type:ty)?), $direction:ident,
        |$to:ident, $from:ident, $bytes:ident| $stream:expr, $waits:expr;
        after |$client:ident, $mark:ident, $result:ident| $after:expr;
    ) => {
        hook! {
            $name($to: $to_type, $from: $from_type, $bytes: $bytes_type, $($argument: $type)?);
            before |client| {
                let (to, from) = ($to.address(), $from.address());
                let is_to_device = <$to_type as Address>::IS_DEVICE;
                let span = Span { to, from, is_to_device, bytes: $bytes as u64 };
                let stream = $stream;
                let mark = if $waits { mark_of_stream(stream) } else { None };
                (cutting::begin(client, stream, span), mark)
            };
            call |begun, real| {
                let long = begun.and_then(|(long, _)| long.as_ref());
                cutting::made(abi::id::$name, long, ($bytes as u64, $waits), |offset, length| {
                    // SAFETY: the application's own arguments, or a part of the range that they name.
                    unsafe { real($to.at(offset), $from.at(offset), length as $bytes_type, $($argument)?) }
                })
            };
            after |$client, (_long, found), $result| {
                let $mark = *found;
                $after
            };
        }
    };
}

cuttable!(cuMemcpyHtoD(CUdeviceptr_v1, *const c_void, c_uint), CopiedHtoDBytes, on Legacy);
cuttable!(cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize), CopiedHtoDBytes, on Legacy);
cuttable!(cuMemcpyHtoD_v2_ptds(CUdeviceptr, *const c_void, usize), CopiedHtoDBytes, on PerThread);
cuttable!(cuMemcpyHtoDAsync(CUdeviceptr_v1, *const c_void, c_uint), CopiedHtoDBytes, in Plain);
cuttable!(cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize), CopiedHtoDBytes, in Plain);
cuttable!(cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr, *const c_void, usize), CopiedHtoDBytes, in PerThread);

cuttable!(cuMemcpyDtoH(*mut c_void, CUdeviceptr_v1, c_uint), CopiedDtoHBytes, waits for Legacy);
cuttable!(cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize), CopiedDtoHBytes, waits for Legacy);
cuttable!(cuMemcpyDtoH_v2_ptds(*mut c_void, CUdeviceptr, usize), CopiedDtoHBytes, waits for PerThread);
cuttable!(cuMemcpyDtoHAsync(*mut c_void, CUdeviceptr_v1, c_uint), CopiedDtoHBytes, in Plain);
cuttable!(cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize), CopiedDtoHBytes, in Plain);
cuttable!(cuMemcpyDtoHAsync_v2_ptsz(*mut c_void, CUdeviceptr, usize), CopiedDtoHBytes, in PerThread);

copy!(cuMemcpyDtoD(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint), bytes, CopiedOtherBytes);
copy!(cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpyHtoA(to: CUarray, to_offset: c_uint, from: *const c_void, bytes: c_uint), bytes, CopiedHtoDBytes);
copy!(cuMemcpyHtoA_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes);
copy!(cuMemcpyHtoA_v2_ptds(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize), bytes, CopiedHtoDBytes);
copy!(cuMemcpyHtoAAsync(to: CUarray, to_offset: c_uint, from: *const c_void, bytes: c_uint, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoAAsync_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of Plain);
copy!(cuMemcpyHtoAAsync_v2_ptsz(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream), bytes, CopiedHtoDBytes, in stream of PerThread);

copy!(cuMemcpyAtoH(to: *mut c_void, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, waits for Legacy);
copy!(cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize), bytes, waits for Legacy);
copy!(cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize), bytes, waits for PerThread);
copy!(cuMemcpyAtoHAsync(to: *mut c_void, from: CUarray, from_offset: c_uint, bytes: c_uint, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of Plain);
copy!(cuMemcpyAtoHAsync_v2_ptsz(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream), bytes, CopiedDtoHBytes, in stream of PerThread);

copy!(cuMemcpyDtoA(to: CUarray, to_offset: c_uint, from: CUdeviceptr_v1, bytes: c_uint), bytes, CopiedOtherBytes);
copy!(cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyDtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize), bytes, CopiedOtherBytes);

copy!(cuMemcpyAtoD(to: CUdeviceptr_v1, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, CopiedOtherBytes);
copy!(cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes);

copy!(cuMemcpyAtoA(to: CUarray, to_offset: c_uint, from: CUarray, from_offset: c_uint, bytes: c_uint), bytes, CopiedOtherBytes);
copy!(cuMemcpyAtoA_v2(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyAtoA_v2_ptds(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize), bytes, CopiedOtherBytes);

copy!(cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize), bytes, CopiedOtherBytes);
copy!(cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

copy!(cuMemcpyWithAttributesAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: *mut c_void, stream: CUstream), bytes, CopiedOtherBytes, in stream of Plain);
copy!(cuMemcpyWithAttributesAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: *mut c_void, stream: CUstream), bytes, CopiedOtherBytes, in stream of PerThread);

/// A copy to the host is done, and so is everything before it in its stream.
fn handle_received(client: Option<&Client>, mark: Option<Mark>, result: CUresult, bytes: usize) {
    handle_copied(client, result, Counter::CopiedDtoHBytes, bytes);
    // A copy of nothing waits for nothing.
    handle_waited(mark.filter(|_| bytes != 0), result);
}

/// What a stream held before a call that waited is over, if the call succeeded.
pub(super) fn handle_waited(mark: Option<Mark>, result: CUresult) {
    if let (Some(mark), CUresult::SUCCESS) = (mark, result) {
        handle_reached(mark);
    }
}
