//! Pools, access rights, sharing between processes, and advice about managed memory.

use core::ffi::{c_char, c_uchar, c_void};

use super::{CUmemAllocationType, CUmemLocation, named_values};

named_values! {
    /// Attributes of a pool; the type of the value in parentheses.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemPool_attribute(u32), "CU_MEMPOOL_ATTR_" {
        /// Reuse memory freed in another stream if an event orders the two (`int`).
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        /// Reuse memory whose free has happened to complete (`int`).
        REUSE_ALLOW_OPPORTUNISTIC = 2,
        /// Reuse memory by adding dependencies between streams (`int`).
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        /// Bytes kept although unused (`u64`).
        RELEASE_THRESHOLD = 4,
        /// Bytes of the device that the pool has reserved (`u64`).
        RESERVED_MEM_CURRENT = 5,
        /// Peak of the reserved bytes since this was set to 0 (`u64`).
        RESERVED_MEM_HIGH = 6,
        /// Bytes of its allocations (`u64`).
        USED_MEM_CURRENT = 7,
        /// Peak of their bytes since this was set to 0 (`u64`).
        USED_MEM_HIGH = 8,
    }
}

named_values! {
    /// Access rights to memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemAccess_flags(u32), "CU_MEM_ACCESS_FLAGS_PROT_" {
        /// No access.
        NONE = 0,
        /// For reading.
        READ = 1,
        /// For reading and writing.
        READWRITE = 3,
    }
}

named_values! {
    /// A way to export memory to another process; a bit each.
    CUmemAllocationHandleType(u32), "CU_MEM_HANDLE_TYPE_" {
        /// None.
        NONE = 0,
        /// A file descriptor.
        POSIX_FILE_DESCRIPTOR = 1,
        /// For Windows.
        WIN32 = 2,
        /// For Windows.
        WIN32_KMT = 4,
        /// For other nodes (fabric).
        FABRIC = 8,
    }
}

named_values! {
    /// The granularity of physical memory to query.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemAllocationGranularity_flags(u32), "CU_MEM_ALLOC_GRANULARITY_" {
        /// The minimum.
        MINIMUM = 0,
        /// The recommended one.
        RECOMMENDED = 1,
    }
}

named_values! {
    /// Advice about managed memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmem_advise(u32), "CU_MEM_ADVISE_" {
        /// The range is mostly read.
        SET_READ_MOSTLY = 1,
        /// Undoes `SET_READ_MOSTLY`.
        UNSET_READ_MOSTLY = 2,
        /// The location is preferred.
        SET_PREFERRED_LOCATION = 3,
        /// Undoes `SET_PREFERRED_LOCATION`.
        UNSET_PREFERRED_LOCATION = 4,
        /// The location accesses the range.
        SET_ACCESSED_BY = 5,
        /// Undoes `SET_ACCESSED_BY`.
        UNSET_ACCESSED_BY = 6,
    }
}

named_values! {
    /// Attributes of a range of managed memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmem_range_attribute(u32), "CU_MEM_RANGE_ATTRIBUTE_" {
        /// Whether all of it is mostly read (`int`).
        READ_MOSTLY = 1,
        /// The preferred device of all of it (`int`).
        PREFERRED_LOCATION = 2,
        /// The devices that access all of it (`int` each).
        ACCESSED_BY = 3,
        /// The last prefetch target of all of it (`int`).
        LAST_PREFETCH_LOCATION = 4,
        /// Kind of the preferred location.
        PREFERRED_LOCATION_TYPE = 5,
        /// Number of the preferred location.
        PREFERRED_LOCATION_ID = 6,
        /// Kind of the last prefetch target.
        LAST_PREFETCH_LOCATION_TYPE = 7,
        /// Number of the last prefetch target.
        LAST_PREFETCH_LOCATION_ID = 8,
    }
}

named_values! {
    /// Flags of `cuMemHostRegister`. Macros in the header, not an enum.
    #[expect(non_camel_case_types, reason = "named like the other flags")]
    CUmemHostRegister_flags(u32), "CU_MEMHOSTREGISTER_" {
        /// For every context.
        PORTABLE = 1,
        /// Mapped into the device's address space.
        DEVICEMAP = 2,
        /// Memory of a device on the bus.
        IOMEMORY = 4,
        /// The device only reads it.
        READ_ONLY = 8,
    }
}

/// Properties of a pool.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemPoolProps {
    /// Kind of its memory.
    pub alloc_type: CUmemAllocationType,
    /// The ways to export it to another process.
    pub handle_types: CUmemAllocationHandleType,
    /// Location of its memory.
    pub location: CUmemLocation,
    /// For Windows.
    pub win32_security_attributes: *mut c_void,
    /// Most bytes of the pool; 0 is the device's limit (CUDA 12.2).
    pub max_size: usize,
    /// Its purpose (CUDA 12.8).
    pub usage: u16,
    /// Zero.
    pub reserved: [c_uchar; 54],
}

/// Access rights of one location.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    /// The location.
    pub location: CUmemLocation,
    /// Its rights.
    pub flags: CUmemAccess_flags,
}

/// An exported allocation, for another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcMemHandle {
    /// Opaque.
    pub reserved: [c_char; 64],
}

/// An exported event, for another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcEventHandle {
    /// Opaque.
    pub reserved: [c_char; 64],
}

/// An exported allocation of a shared pool, for another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemPoolPtrExportData {
    /// Opaque.
    pub reserved: [c_uchar; 64],
}

const _: () = assert!(size_of::<CUmemPoolProps>() == 88);
const _: () = assert!(size_of::<CUmemAccessDesc>() == 12);
const _: () = assert!(size_of::<CUipcMemHandle>() == 64 && align_of::<CUipcMemHandle>() == 1);
