//! Copies of two and three dimensions and in batches, counted by their descriptors. A descriptor is
//! read once the driver has read it. For unified memory the driver finds out the direction: "other"
//! here.

use core::ffi::{c_ulonglong, c_void};
use core::slice;

use abi::types::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D,
    CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1, CUarray, CUdeviceptr,
    CUmemcpy3DOperand, CUmemcpy3DOperandType, CUmemcpyAttributes, CUmemorytype, CUresult, CUstream,
};
use protocol::pages::Counter;

use super::copy::handle_waited;
use super::{hook, stored};
use crate::driver;
use crate::memory::counts::{direction_of, handle_copied, of_stream};
use crate::process::Client;
use crate::progress::completion::mark_of_stream;
use crate::progress::stream::{Flavour, Stream};

struct Extent {
    from: CUmemorytype,
    to: CUmemorytype,
    bytes: usize,
}

impl Extent {
    /// Whether the host has the bytes when a waiting call returns (see `copy`).
    fn is_received(&self) -> bool {
        direction_of(self.from, self.to) == Some(Counter::CopiedDtoHBytes)
    }
}

macro_rules! extent {
    ($descriptor:ty $(, $depth:ident)?) => {
        impl From<$descriptor> for Extent {
            fn from(copy: $descriptor) -> Self {
                let bytes = (copy.width_in_bytes as usize)
                    .saturating_mul(copy.height as usize)
                    $(.saturating_mul(copy.$depth as usize))?;
                Self {
                    from: copy.src_memory_type,
                    to: copy.dst_memory_type,
                    bytes,
                }
            }
        }
    };
}

extent!(CUDA_MEMCPY2D_v1);
extent!(CUDA_MEMCPY2D);
extent!(CUDA_MEMCPY3D_v1, depth);
extent!(CUDA_MEMCPY3D, depth);
extent!(CUDA_MEMCPY3D_PEER, depth);

/// Defines a copy with a descriptor: one that returns when the host's side is done (`waits for`),
/// or one in stream order (`in`).
macro_rules! described {
    ($name:ident($descriptor:ty), waits for $stream:ident) => {
        hook! {
            $name(copy: *const $descriptor);
            before |_| mark_of_stream(Stream::$stream);
            after |client, mark, result| {
                // SAFETY: the driver has read the descriptor, as it succeeded with it.
                let Some(copy) = (unsafe { stored(copy, result) }) else {
                    return;
                };
                let extent = Extent::from(copy);
                handle_described(client, result, &extent);
                if extent.is_received() && extent.bytes != 0 {
                    handle_waited(*mark, result);
                }
            };
        }
    };
    ($name:ident($descriptor:ty), in $flavour:ident) => {
        hook! {
            $name(copy: *const $descriptor, stream: CUstream);
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, Flavour::$flavour));
                // SAFETY: as above.
                if let Some(copy) = unsafe { stored(copy, result) } {
                    handle_described(client, result, &Extent::from(copy));
                }
            };
        }
    };
}

described!(cuMemcpy2D(CUDA_MEMCPY2D_v1), waits for Legacy);
described!(cuMemcpy2D_v2(CUDA_MEMCPY2D), waits for Legacy);
described!(cuMemcpy2D_v2_ptds(CUDA_MEMCPY2D), waits for PerThread);
described!(cuMemcpy2DUnaligned(CUDA_MEMCPY2D_v1), waits for Legacy);
described!(cuMemcpy2DUnaligned_v2(CUDA_MEMCPY2D), waits for Legacy);
described!(cuMemcpy2DUnaligned_v2_ptds(CUDA_MEMCPY2D), waits for PerThread);
described!(cuMemcpy2DAsync(CUDA_MEMCPY2D_v1), in Plain);
described!(cuMemcpy2DAsync_v2(CUDA_MEMCPY2D), in Plain);
described!(cuMemcpy2DAsync_v2_ptsz(CUDA_MEMCPY2D), in PerThread);
described!(cuMemcpy3D(CUDA_MEMCPY3D_v1), waits for Legacy);
described!(cuMemcpy3D_v2(CUDA_MEMCPY3D), waits for Legacy);
described!(cuMemcpy3D_v2_ptds(CUDA_MEMCPY3D), waits for PerThread);
described!(cuMemcpy3DAsync(CUDA_MEMCPY3D_v1), in Plain);
described!(cuMemcpy3DAsync_v2(CUDA_MEMCPY3D), in Plain);
described!(cuMemcpy3DAsync_v2_ptsz(CUDA_MEMCPY3D), in PerThread);
described!(cuMemcpy3DPeer(CUDA_MEMCPY3D_PEER), waits for Legacy);
described!(cuMemcpy3DPeer_ptds(CUDA_MEMCPY3D_PEER), waits for PerThread);
described!(cuMemcpy3DPeerAsync(CUDA_MEMCPY3D_PEER), in Plain);
described!(cuMemcpy3DPeerAsync_ptsz(CUDA_MEMCPY3D_PEER), in PerThread);

fn handle_described(client: Option<&Client>, result: CUresult, extent: &Extent) {
    if let Some(direction) = direction_of(extent.from, extent.to) {
        handle_copied(client, result, direction, extent.bytes);
    }
}

/// Defines a batch of copies; the forms before CUDA 13 also report which copy failed.
macro_rules! batch {
    ($name:ident, $flavour:ident $(, $failed:ident)?) => {
        hook! {
            $name(
                to: *mut CUdeviceptr,
                from: *mut CUdeviceptr,
                sizes: *mut usize,
                count: usize,
                attributes: *mut CUmemcpyAttributes,
                attribute_indices: *mut usize,
                attribute_count: usize,
                $($failed: *mut usize,)?
                stream: CUstream,
            );
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, Flavour::$flavour));
                // SAFETY: the driver has read `count` sizes, as it succeeded with them.
                for &bytes in unsafe { read(sizes, count, result) } {
                    handle_copied(client, result, Counter::CopiedOtherBytes, bytes);
                }
            };
        }
    };
}

batch!(cuMemcpyBatchAsync, Plain, failed);
batch!(cuMemcpyBatchAsync_ptsz, PerThread, failed);
batch!(cuMemcpyBatchAsync_v2, Plain);
batch!(cuMemcpyBatchAsync_v2_ptsz, PerThread);

macro_rules! box_batch {
    ($name:ident, $flavour:ident $(, $failed:ident)?) => {
        hook! {
            $name(
                count: usize,
                copies: *mut CUDA_MEMCPY3D_BATCH_OP,
                $($failed: *mut usize,)?
                flags: c_ulonglong,
                stream: CUstream,
            );
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, Flavour::$flavour));
                // SAFETY: the driver has read `count` descriptors, as it succeeded with them.
                for copy in unsafe { read(copies, count, result) } {
                    handle_box(client, result, copy);
                }
            };
        }
    };
}

box_batch!(cuMemcpy3DBatchAsync, Plain, failed);
box_batch!(cuMemcpy3DBatchAsync_ptsz, PerThread, failed);
box_batch!(cuMemcpy3DBatchAsync_v2, Plain);
box_batch!(cuMemcpy3DBatchAsync_v2_ptsz, PerThread);

macro_rules! single_box {
    ($name:ident, $flavour:ident) => {
        hook! {
            $name(copy: *mut CUDA_MEMCPY3D_BATCH_OP, flags: c_ulonglong, stream: CUstream);
            after |client, result| {
                let client = of_stream(client, Stream::of(stream, Flavour::$flavour));
                // SAFETY: as above.
                if let Some(copy) = unsafe { stored(copy.cast_const(), result) } {
                    handle_box(client, result, &copy);
                }
            };
        }
    };
}

single_box!(cuMemcpy3DWithAttributesAsync, Plain);
single_box!(cuMemcpy3DWithAttributesAsync_ptsz, PerThread);

/// Extents are in elements: those of the array if one is involved, else bytes.
fn handle_box(client: Option<&Client>, result: CUresult, copy: &CUDA_MEMCPY3D_BATCH_OP) {
    if client.is_none() {
        return;
    }
    let extent = copy.extent;
    let bytes = [extent.height, extent.depth, element_bytes(copy)]
        .into_iter()
        .fold(extent.width, usize::saturating_mul);
    handle_copied(client, result, Counter::CopiedOtherBytes, bytes);
}

fn element_bytes(copy: &CUDA_MEMCPY3D_BATCH_OP) -> usize {
    let array_of = |operand: &CUmemcpy3DOperand| {
        (operand.kind == CUmemcpy3DOperandType::ARRAY).then(|| {
            let handle = operand.words[0] as usize;
            CUarray(core::ptr::with_exposed_provenance_mut::<c_void>(handle))
        })
    };
    array_of(&copy.dst)
        .or_else(|| array_of(&copy.src))
        .and_then(|array| driver::array_descriptor(array).ok())
        .as_ref()
        .and_then(CUDA_ARRAY3D_DESCRIPTOR::element_bytes)
        .unwrap_or(1)
}

/// The application's array, if the driver succeeded with it. Safety: `first` is null or the first
/// of `count` values that a driver call which ended with `result` has read; they do not change
/// while the slice is used.
unsafe fn read<'a, T>(first: *const T, count: usize, result: CUresult) -> &'a [T] {
    if result != CUresult::SUCCESS || first.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(first, count) }
}
