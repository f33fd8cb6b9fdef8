//! Resources of devices, from which green contexts are made.

use core::ffi::{c_uchar, c_uint};

use super::named_values;

named_values! {
    /// A kind of resource.
    CUdevResourceType(u32), "CU_DEV_RESOURCE_TYPE_" {
        /// None.
        INVALID = 0,
        /// SMs.
        SM = 1,
    }
}

/// A part of a device. Newer headers add fields about SMs, in bytes that are zero in older ones.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUdevResource {
    /// Its kind.
    pub kind: CUdevResourceType,
    /// Internal to the driver.
    pub internal: [c_uchar; 92],
    /// Number of SMs.
    pub sm_count: c_uint,
    /// Smallest partition, in SMs (CUDA 13.0).
    pub min_sm_partition_size: c_uint,
    /// The size of a partition is a multiple of this (CUDA 13.0).
    pub sm_coscheduled_alignment: c_uint,
    /// Room for other kinds.
    pub rest: [c_uchar; 28],
    /// Another resource (CUDA 13.1); before, part of the above.
    pub next: u64,
}

const _: () = assert!(size_of::<CUdevResource>() == 144);
const _: () = assert!(core::mem::offset_of!(CUdevResource, sm_count) == 96);
const _: () = assert!(core::mem::offset_of!(CUdevResource, next) == 136);
