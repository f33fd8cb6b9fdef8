//! Pools, access rights, sharing between processes, and advice about managed memory.

use core::ffi::{c_char, c_uchar, c_void};

use super::{CUmemAllocationType, CUmemLocation, named_values};

named_values! {
    /// What can be asked and set of a pool; the type of the value in parentheses.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemPool_attribute(u32), "CU_MEMPOOL_ATTR_" {
        /// Reuse what was freed in another stream that an event orders (`int`).
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
        /// Reuse what was freed and happens to be done (`int`).
        REUSE_ALLOW_OPPORTUNISTIC = 2,
        /// Reuse by ordering streams among each other (`int`).
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
        /// Bytes that are kept when nothing uses them (`u64`).
        RELEASE_THRESHOLD = 4,
        /// Bytes that the pool holds of the device (`u64`).
        RESERVED_MEM_CURRENT = 5,
        /// The most it held since this was set to 0 (`u64`).
        RESERVED_MEM_HIGH = 6,
        /// Bytes of its allocations (`u64`).
        USED_MEM_CURRENT = 7,
        /// The most since this was set to 0 (`u64`).
        USED_MEM_HIGH = 8,
    }
}

named_values! {
    /// How memory may be accessed.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemAccess_flags(u32), "CU_MEM_ACCESS_FLAGS_PROT_" {
        /// Not at all.
        NONE = 0,
        /// For reading.
        READ = 1,
        /// For reading and writing.
        READWRITE = 3,
    }
}

named_values! {
    /// A way to hand memory to another process; a bit each.
    CUmemAllocationHandleType(u32), "CU_MEM_HANDLE_TYPE_" {
        /// None.
        NONE = 0,
        /// A file descriptor.
        POSIX_FILE_DESCRIPTOR = 1,
        /// For Windows.
        WIN32 = 2,
        /// For Windows.
        WIN32_KMT = 4,
        /// For other nodes.
        FABRIC = 8,
    }
}

named_values! {
    /// Which granularity of physical memory is asked for.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmemAllocationGranularity_flags(u32), "CU_MEM_ALLOC_GRANULARITY_" {
        /// The least that works.
        MINIMUM = 0,
        /// The one that works best.
        RECOMMENDED = 1,
    }
}

named_values! {
    /// Advice about managed memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmem_advise(u32), "CU_MEM_ADVISE_" {
        /// It is read much and written little.
        SET_READ_MOSTLY = 1,
        /// No longer.
        UNSET_READ_MOSTLY = 2,
        /// It had best lie there.
        SET_PREFERRED_LOCATION = 3,
        /// No longer.
        UNSET_PREFERRED_LOCATION = 4,
        /// It is accessed from there.
        SET_ACCESSED_BY = 5,
        /// No longer.
        UNSET_ACCESSED_BY = 6,
    }
}

named_values! {
    /// What can be asked about a range of managed memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUmem_range_attribute(u32), "CU_MEM_RANGE_ATTRIBUTE_" {
        /// Whether all of it is read mostly (`int`).
        READ_MOSTLY = 1,
        /// The device it all prefers (`int`).
        PREFERRED_LOCATION = 2,
        /// The devices that access all of it (`int` each).
        ACCESSED_BY = 3,
        /// Where all of it was prefetched to last (`int`).
        LAST_PREFETCH_LOCATION = 4,
        /// The kind of the location it prefers.
        PREFERRED_LOCATION_TYPE = 5,
        /// Its number.
        PREFERRED_LOCATION_ID = 6,
        /// The kind of the location of the last prefetch.
        LAST_PREFETCH_LOCATION_TYPE = 7,
        /// Its number.
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

/// What a pool is asked to be.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemPoolProps {
    /// How its memory is kept.
    pub alloc_type: CUmemAllocationType,
    /// The ways to hand it to another process.
    pub handle_types: CUmemAllocationHandleType,
    /// Where its memory lies.
    pub location: CUmemLocation,
    /// For Windows.
    pub win32_security_attributes: *mut c_void,
    /// Most bytes it may hold; 0 is the device's bound (CUDA 12.2).
    pub max_size: usize,
    /// What it is for (CUDA 12.8).
    pub usage: u16,
    /// Zero.
    pub reserved: [c_uchar; 54],
}

/// Who may access memory how.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    /// Who.
    pub location: CUmemLocation,
    /// How.
    pub flags: CUmemAccess_flags,
}

/// An allocation on its way to another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcMemHandle {
    /// What it is, in the driver's own way.
    pub reserved: [c_char; 64],
}

/// An event on its way to another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcEventHandle {
    /// What it is, in the driver's own way.
    pub reserved: [c_char; 64],
}

/// An allocation of a shared pool on its way to another process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemPoolPtrExportData {
    /// What it is, in the driver's own way.
    pub reserved: [c_uchar; 64],
}

const _: () = assert!(size_of::<CUmemPoolProps>() == 88);
const _: () = assert!(size_of::<CUmemAccessDesc>() == 12);
const _: () = assert!(size_of::<CUipcMemHandle>() == 64 && align_of::<CUipcMemHandle>() == 1);
