//! Descriptions of memory: its location, how it was allocated, its owner.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use super::named_values;

named_values! {
    /// Kind of the memory that a pointer addresses.
    CUmemorytype(u32), "CU_MEMORYTYPE_" {
        /// Host memory.
        HOST = 1,
        /// Device memory.
        DEVICE = 2,
        /// An array.
        ARRAY = 3,
        /// Unified: device, host or managed memory.
        UNIFIED = 4,
    }
}

named_values! {
    /// Attributes for `cuPointerGetAttribute`; the type of the value in parentheses.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUpointer_attribute(i32), "CU_POINTER_ATTRIBUTE_" {
        /// The context it was allocated in ([`CUcontext`](super::CUcontext)).
        CONTEXT = 1,
        /// The kind of memory ([`CUmemorytype`]).
        MEMORY_TYPE = 2,
        /// The address on the device ([`CUdeviceptr`](super::CUdeviceptr)).
        DEVICE_POINTER = 3,
        /// The address on the host (`void *`).
        HOST_POINTER = 4,
        /// Tokens for direct access by other devices.
        P2P_TOKENS = 5,
        /// Whether copies of it are always synchronous (`bool`; settable).
        SYNC_MEMOPS = 6,
        /// Number of the allocation, unique in this process (`u64`).
        BUFFER_ID = 7,
        /// Whether it is managed (`bool`).
        IS_MANAGED = 8,
        /// The device's ordinal (`int`).
        DEVICE_ORDINAL = 9,
        /// Whether `cuIpcGetMemHandle` can export it (`bool`).
        IS_LEGACY_CUDA_IPC_CAPABLE = 10,
        /// Start of the allocation ([`CUdeviceptr`](super::CUdeviceptr)).
        RANGE_START_ADDR = 11,
        /// Size of the allocation, in bytes (`size_t`).
        RANGE_SIZE = 12,
        /// Whether it is mapped (`bool`).
        MAPPED = 13,
        /// The ways to export it, as bits (`u64`).
        ALLOWED_HANDLE_TYPES = 14,
        /// Whether other devices on the bus can access it (`bool`).
        IS_GPU_DIRECT_RDMA_CAPABLE = 15,
        /// How the current device may access it.
        ACCESS_FLAGS = 16,
        /// The pool of the allocation ([`CUmemoryPool`](super::CUmemoryPool)).
        MEMPOOL_HANDLE = 17,
        /// Size of the mapping, in bytes (`size_t`).
        MAPPING_SIZE = 18,
        /// Start of the mapping.
        MAPPING_BASE_ADDR = 19,
        /// Number of the physical memory, unique (`u64`).
        MEMORY_BLOCK_ID = 20,
        /// Whether the decompression engine can use it (`bool`).
        IS_HW_DECOMPRESS_CAPABLE = 21,
    }
}

named_values! {
    /// Which streams may use managed memory at first: flags of `cuMemAllocManaged`.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemAttach_flags(u32), "CU_MEM_ATTACH_" {
        /// Any stream on any device.
        GLOBAL = 1,
        /// The host only.
        HOST = 2,
        /// One stream.
        SINGLE = 4,
    }
}

named_values! {
    /// Flags of `cuMemHostAlloc`. Macros in the header, not an enum.
    #[expect(non_camel_case_types, reason = "named like the other flags")]
    CUmemHostAlloc_flags(u32), "CU_MEMHOSTALLOC_" {
        /// Pinned for every context.
        PORTABLE = 1,
        /// Mapped into the device's address space.
        DEVICEMAP = 2,
        /// Write-combined.
        WRITECOMBINED = 4,
    }
}

named_values! {
    /// Kind of a memory location.
    CUmemLocationType(u32), "CU_MEM_LOCATION_TYPE_" {
        /// No location.
        INVALID = 0,
        /// On the device `id`.
        DEVICE = 1,
        /// On the host.
        HOST = 2,
        /// On the host's NUMA node `id`.
        HOST_NUMA = 3,
        /// On the NUMA node of the calling thread.
        HOST_NUMA_CURRENT = 4,
    }
}

named_values! {
    /// Kind of physical memory.
    CUmemAllocationType(u32), "CU_MEM_ALLOCATION_TYPE_" {
        /// None.
        INVALID = 0,
        /// Pinned in place.
        PINNED = 1,
    }
}

/// A memory location.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemLocation {
    /// Its kind.
    pub kind: CUmemLocationType,
    /// Its number.
    pub id: c_int,
}

/// Properties of a `cuMemCreate` allocation.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAllocationProp {
    /// Kind of memory.
    pub kind: CUmemAllocationType,
    /// The ways to export it, as bits.
    pub requested_handle_types: u32,
    /// Its location.
    pub location: CUmemLocation,
    /// For Windows.
    pub win32_handle_meta_data: *mut c_void,
    /// Further properties.
    pub alloc_flags: CUmemAllocFlags,
}

/// Further properties of [`CUmemAllocationProp`]; nameless in the header.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAllocFlags {
    /// Compressible memory.
    pub compression_type: u8,
    /// Accessible to other devices on the bus.
    pub gpu_direct_rdma_capable: u8,
    /// Its purpose, as bits.
    pub usage: u16,
    /// Zero.
    pub reserved: [u8; 4],
}

const _: () = assert!(size_of::<CUmemLocation>() == 8);
const _: () = assert!(size_of::<CUmemAllocFlags>() == 8);
const _: () = assert!(size_of::<CUmemAllocationProp>() == 32);
const _: () = assert!(offset_of!(CUmemAllocationProp, location) == 8);
const _: () = assert!(offset_of!(CUmemAllocationProp, win32_handle_meta_data) == 16);
const _: () = assert!(offset_of!(CUmemAllocationProp, alloc_flags) == 24);
