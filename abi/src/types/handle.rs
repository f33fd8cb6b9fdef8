//! Handles: the driver's names for its objects.

use core::ffi::c_void;
use core::ptr;

macro_rules! pointer_handles {
    ($($(#[$meta:meta])* $name:ident;)+) => {
        $(
            $(#[$meta])*
            ///
            /// An opaque address: compared and passed on, never dereferenced.
            #[repr(transparent)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $name(
                /// The handle as the driver passes it.
                pub *mut c_void,
            );

            impl $name {
                /// The null handle.
                pub const NULL: Self = Self(ptr::null_mut());

                /// Whether this is the null handle.
                #[must_use]
                pub const fn is_null(self) -> bool {
                    self.0.is_null()
                }
            }
        )+
    };
}

pointer_handles! {
    /// A context: one process's address space and work on one device.
    CUcontext;
    /// A green context: a part of a device's SMs.
    CUgreenCtx;
    /// A description of a green context's resources.
    CUdevResourceDesc;
    /// A module: a loaded image of kernels.
    CUmodule;
    /// A kernel in one context.
    CUfunction;
    /// A stream. Null, [`CUstream::LEGACY`] and [`CUstream::PER_THREAD`] always exist.
    CUstream;
    /// An event: a point in a stream.
    CUevent;
    /// A library: an image of kernels loaded for all contexts (CUDA 12).
    CUlibrary;
    /// A kernel of a library, for all contexts (CUDA 12).
    CUkernel;
    /// A memory pool for stream-ordered allocation.
    CUmemoryPool;
    /// A memory layout of the device's own, for textures.
    CUarray;
    /// An array with its mipmap levels.
    CUmipmappedArray;
    /// Memory of another API, imported.
    CUexternalMemory;
    /// A graph.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// A graph that can be launched.
    CUgraphExec;
    /// An object of the application that graphs keep alive.
    CUuserObject;
}

impl CUstream {
    /// The legacy stream (`CU_STREAM_LEGACY`); it and every blocking stream wait for each other.
    pub const LEGACY: Self = Self(ptr::without_provenance_mut(1));
    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: Self = Self(ptr::without_provenance_mut(2));
}

/// A device, by its ordinal.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUdevice(
    /// The ordinal as the driver passes it.
    pub i32,
);

impl CUdevice {
    /// The host (`CU_DEVICE_CPU`).
    pub const CPU: Self = Self(-1);
    /// No device (`CU_DEVICE_INVALID`).
    pub const INVALID: Self = Self(-2);
}

/// An address in a device's address space.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUdeviceptr(
    /// The address.
    pub u64,
);

/// Physical memory from `cuMemCreate`, not mapped yet.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUmemGenericAllocationHandle(
    /// The handle as the driver passes it.
    pub u64,
);

/// The UUID of a device, or of an export table.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUuuid {
    /// The bytes in the order of the UUID's text form.
    pub bytes: [u8; 16],
}

const _: () = assert!(size_of::<CUstream>() == 8 && align_of::<CUstream>() == 8);
const _: () = assert!(size_of::<CUdevice>() == 4);
const _: () = assert!(size_of::<CUdeviceptr>() == 8);
const _: () = assert!(size_of::<CUmemGenericAllocationHandle>() == 8);
const _: () = assert!(size_of::<CUuuid>() == 16 && align_of::<CUuuid>() == 1);
