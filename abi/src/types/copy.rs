//! Descriptors of 2D and 3D copies and batches. `_v1`: CUDA 2 and 3.0, 32-bit sizes and addresses.

use core::ffi::{c_uint, c_void};
use core::mem::offset_of;

use super::{CUarray, CUcontext, CUdeviceptr, CUmemLocation, CUmemorytype, named_values};

/// An address in a device's address space, in CUDA 2.
#[repr(transparent)]
#[expect(non_camel_case_types, reason = "named as in the header")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUdeviceptr_v1(
    /// The address.
    pub c_uint,
);

/// A copy of a rectangle.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMCPY2D {
    /// First byte of a row at the source.
    pub src_x_in_bytes: usize,
    /// First row at the source.
    pub src_y: usize,
    /// Selects one of the next three.
    pub src_memory_type: CUmemorytype,
    /// Host source.
    pub src_host: *const c_void,
    /// Device source, or unified.
    pub src_device: CUdeviceptr,
    /// Array source.
    pub src_array: CUarray,
    /// Bytes from row to row at the source; not for arrays.
    pub src_pitch: usize,
    /// First byte of a row at the destination.
    pub dst_x_in_bytes: usize,
    /// First row at the destination.
    pub dst_y: usize,
    /// Selects one of the next three.
    pub dst_memory_type: CUmemorytype,
    /// Host destination.
    pub dst_host: *mut c_void,
    /// Device destination, or unified.
    pub dst_device: CUdeviceptr,
    /// Array destination.
    pub dst_array: CUarray,
    /// Bytes from row to row at the destination; not for arrays.
    pub dst_pitch: usize,
    /// Bytes of a row.
    pub width_in_bytes: usize,
    /// Rows.
    pub height: usize,
}

/// [`CUDA_MEMCPY2D`] of CUDA 2.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMCPY2D_v1 {
    /// First byte of a row at the source.
    pub src_x_in_bytes: c_uint,
    /// First row at the source.
    pub src_y: c_uint,
    /// Selects one of the next three.
    pub src_memory_type: CUmemorytype,
    /// Host source.
    pub src_host: *const c_void,
    /// Device source, or unified.
    pub src_device: CUdeviceptr_v1,
    /// Array source.
    pub src_array: CUarray,
    /// Bytes from row to row at the source; not for arrays.
    pub src_pitch: c_uint,
    /// First byte of a row at the destination.
    pub dst_x_in_bytes: c_uint,
    /// First row at the destination.
    pub dst_y: c_uint,
    /// Selects one of the next three.
    pub dst_memory_type: CUmemorytype,
    /// Host destination.
    pub dst_host: *mut c_void,
    /// Device destination, or unified.
    pub dst_device: CUdeviceptr_v1,
    /// Array destination.
    pub dst_array: CUarray,
    /// Bytes from row to row at the destination; not for arrays.
    pub dst_pitch: c_uint,
    /// Bytes of a row.
    pub width_in_bytes: c_uint,
    /// Rows.
    pub height: c_uint,
}

macro_rules! three_dimensions {
    ($(#[$meta:meta])* $name:ident, $size:ty, $address:ty, $extra:ty) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            /// First byte of a row at the source.
            pub src_x_in_bytes: $size,
            /// First row at the source.
            pub src_y: $size,
            /// First slice at the source.
            pub src_z: $size,
            /// Level of detail of the source; 0.
            pub src_lod: $size,
            /// Selects one of the next three.
            pub src_memory_type: CUmemorytype,
            /// Host source.
            pub src_host: *const c_void,
            /// Device source, or unified.
            pub src_device: $address,
            /// Array source.
            pub src_array: CUarray,
            /// The source's context in copies between contexts, else zero.
            pub src_context: $extra,
            /// Bytes from row to row at the source; not for arrays.
            pub src_pitch: $size,
            /// Rows from slice to slice at the source; not for arrays.
            pub src_height: $size,
            /// First byte of a row at the destination.
            pub dst_x_in_bytes: $size,
            /// First row at the destination.
            pub dst_y: $size,
            /// First slice at the destination.
            pub dst_z: $size,
            /// Level of detail of the destination; 0.
            pub dst_lod: $size,
            /// Selects one of the next three.
            pub dst_memory_type: CUmemorytype,
            /// Host destination.
            pub dst_host: *mut c_void,
            /// Device destination, or unified.
            pub dst_device: $address,
            /// Array destination.
            pub dst_array: CUarray,
            /// The destination's context in copies between contexts, else zero.
            pub dst_context: $extra,
            /// Bytes from row to row at the destination; not for arrays.
            pub dst_pitch: $size,
            /// Rows from slice to slice at the destination; not for arrays.
            pub dst_height: $size,
            /// Bytes of a row.
            pub width_in_bytes: $size,
            /// Rows.
            pub height: $size,
            /// Slices.
            pub depth: $size,
        }
    };
}

three_dimensions! {
    /// A copy of a box.
    CUDA_MEMCPY3D, usize, CUdeviceptr, *mut c_void
}

three_dimensions! {
    /// [`CUDA_MEMCPY3D`] of CUDA 2.
    CUDA_MEMCPY3D_v1, c_uint, CUdeviceptr_v1, *mut c_void
}

three_dimensions! {
    /// A copy of a box between contexts.
    CUDA_MEMCPY3D_PEER, usize, CUdeviceptr, CUcontext
}

named_values! {
    /// When the source of a copy is read.
    CUmemcpySrcAccessOrder(u32), "CU_MEMCPY_SRC_ACCESS_ORDER_" {
        /// Not specified.
        INVALID = 0,
        /// In stream order.
        STREAM = 1,
        /// Before the call returns.
        DURING_API_CALL = 2,
        /// At any time.
        ANY = 3,
    }
}

named_values! {
    /// Kind of an operand of a copy in a batch.
    CUmemcpy3DOperandType(u32), "CU_MEMCPY_OPERAND_TYPE_" {
        /// An address.
        POINTER = 1,
        /// An array.
        ARRAY = 2,
    }
}

/// Attributes of some copies of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemcpyAttributes {
    /// When the source is read.
    pub src_access_order: CUmemcpySrcAccessOrder,
    /// Location of the source, for managed memory.
    pub src_loc_hint: CUmemLocation,
    /// Location of the destination, for managed memory.
    pub dst_loc_hint: CUmemLocation,
    /// Whether to prefer overlap with computation.
    pub flags: c_uint,
}

/// One side of a copy in a batch of boxes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemcpy3DOperand {
    /// Meaning of the words.
    pub kind: CUmemcpy3DOperandType,
    /// A union: pointer, row's elements, slice's rows, location hint; or array handle, x, y, z.
    pub words: [u64; 4],
}

/// Elements, rows and slices.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUextent3D {
    /// Elements of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// One copy of a batch of boxes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMCPY3D_BATCH_OP {
    /// Source.
    pub src: CUmemcpy3DOperand,
    /// Destination.
    pub dst: CUmemcpy3DOperand,
    /// Size.
    pub extent: CUextent3D,
    /// When the source is read.
    pub src_access_order: CUmemcpySrcAccessOrder,
    /// As in [`CUmemcpyAttributes`].
    pub flags: c_uint,
}

const _: () = assert!(size_of::<CUDA_MEMCPY2D>() == 128);
const _: () = assert!(offset_of!(CUDA_MEMCPY2D, dst_memory_type) == 72);
const _: () = assert!(size_of::<CUDA_MEMCPY2D_v1>() == 96);
const _: () = assert!(offset_of!(CUDA_MEMCPY2D_v1, src_device) == 24);
const _: () = assert!(offset_of!(CUDA_MEMCPY2D_v1, dst_x_in_bytes) == 44);
const _: () = assert!(size_of::<CUDA_MEMCPY3D>() == 200);
const _: () = assert!(offset_of!(CUDA_MEMCPY3D, width_in_bytes) == 176);
const _: () = assert!(size_of::<CUDA_MEMCPY3D_PEER>() == 200);
const _: () = assert!(size_of::<CUDA_MEMCPY3D_v1>() == 144);
const _: () = assert!(offset_of!(CUDA_MEMCPY3D_v1, src_pitch) == 56);
const _: () = assert!(size_of::<CUmemcpyAttributes>() == 24);
const _: () = assert!(size_of::<CUDA_MEMCPY3D_BATCH_OP>() == 112);
