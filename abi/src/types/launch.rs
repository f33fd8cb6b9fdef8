//! The arguments of `cuLaunchKernelEx`: a shape, and attributes such as the priority.

use core::ffi::{c_char, c_int, c_uint};
use core::mem::offset_of;

use super::{CUstream, named_values};

/// The shape and the attributes of a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUlaunchConfig {
    /// Blocks in x.
    pub grid_dim_x: c_uint,
    /// Blocks in y.
    pub grid_dim_y: c_uint,
    /// Blocks in z.
    pub grid_dim_z: c_uint,
    /// Threads per block in x.
    pub block_dim_x: c_uint,
    /// Threads per block in y.
    pub block_dim_y: c_uint,
    /// Threads per block in z.
    pub block_dim_z: c_uint,
    /// Dynamic shared memory per block, in bytes.
    pub shared_mem_bytes: c_uint,
    /// The stream to launch on.
    pub stream: CUstream,
    /// The first of `num_attrs` attributes; may be null if there are none.
    pub attrs: *mut CUlaunchAttribute,
    /// Number of attributes.
    pub num_attrs: c_uint,
}

/// One attribute of a launch.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUlaunchAttribute {
    /// The attribute, which selects the member of the value.
    pub id: CUlaunchAttributeID,
    /// Unused.
    pub pad: [c_char; 4],
    /// Its value.
    pub value: CUlaunchAttributeValue,
}

impl CUlaunchAttribute {
    /// The attribute that sets a launch's priority.
    #[must_use]
    pub const fn priority(priority: c_int) -> Self {
        Self {
            id: CUlaunchAttributeID::PRIORITY,
            pad: [0; 4],
            value: CUlaunchAttributeValue::from_int(priority),
        }
    }
}

/// An attribute's value: a union of 64 bytes, here bytes: only the id determines the member.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUlaunchAttributeValue {
    /// The bytes of the union.
    pub bytes: [u8; 64],
}

impl CUlaunchAttributeValue {
    /// A value whose member is one `int`, such as a priority or a switch.
    #[must_use]
    pub const fn from_int(value: c_int) -> Self {
        let [a, b, c, d] = value.to_ne_bytes();
        let mut bytes = [0; 64];
        bytes[0] = a;
        bytes[1] = b;
        bytes[2] = c;
        bytes[3] = d;
        Self { bytes }
    }

    /// The value as one `int`: valid for [`CUlaunchAttributeID::PRIORITY`],
    /// [`CUlaunchAttributeID::COOPERATIVE`] and
    /// [`CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION`].
    #[must_use]
    pub const fn as_int(&self) -> c_int {
        let [a, b, c, d, ..] = self.bytes;
        c_int::from_ne_bytes([a, b, c, d])
    }

    /// For [`CUlaunchAttributeID::CLUSTER_DIMENSION`]: three `unsigned int`, blocks in x, y, z.
    #[must_use]
    pub const fn as_dimension(&self) -> [c_uint; 3] {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.bytes;
        [
            c_uint::from_ne_bytes([a, b, c, d]),
            c_uint::from_ne_bytes([e, f, g, h]),
            c_uint::from_ne_bytes([i, j, k, l]),
        ]
    }
}

named_values! {
    /// Attributes of a launch.
    CUlaunchAttributeID(u32), "CU_LAUNCH_ATTRIBUTE_" {
        /// The entry is skipped.
        IGNORE = 0,
        /// L2 cache policy for an address range.
        ACCESS_POLICY_WINDOW = 1,
        /// All blocks run at once (`int`).
        COOPERATIVE = 2,
        /// How the host waits.
        SYNCHRONIZATION_POLICY = 3,
        /// The size of a cluster of blocks.
        CLUSTER_DIMENSION = 4,
        /// How clusters are distributed.
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
        /// May start before the previous kernel ends (`int`).
        PROGRAMMATIC_STREAM_SERIALIZATION = 6,
        /// An event that the kernel itself triggers.
        PROGRAMMATIC_EVENT = 7,
        /// The priority of the launch (`int`, lower is more urgent).
        PRIORITY = 8,
        /// Maps memory synchronisation domains.
        MEM_SYNC_DOMAIN_MAP = 9,
        /// The memory synchronisation domain.
        MEM_SYNC_DOMAIN = 10,
        /// The preferred size of a cluster.
        PREFERRED_CLUSTER_DIMENSION = 11,
        /// An event recorded when all blocks have begun.
        LAUNCH_COMPLETION_EVENT = 12,
        /// A graph node that the device may change.
        DEVICE_UPDATABLE_KERNEL_NODE = 13,
        /// The share of the L1 cache used as shared memory.
        PREFERRED_SHARED_MEMORY_CARVEOUT = 14,
    }
}

// CUlaunchConfig has padding after shared_mem_bytes and num_attrs, as NVIDIA's layout requires.
const _: () = assert!(size_of::<CUlaunchConfig>() == 56 && align_of::<CUlaunchConfig>() == 8);
const _: () = assert!(offset_of!(CUlaunchConfig, shared_mem_bytes) == 24);
const _: () = assert!(offset_of!(CUlaunchConfig, stream) == 32);
const _: () = assert!(offset_of!(CUlaunchConfig, attrs) == 40);
const _: () = assert!(offset_of!(CUlaunchConfig, num_attrs) == 48);
const _: () = assert!(size_of::<CUlaunchAttribute>() == 72);
const _: () = assert!(offset_of!(CUlaunchAttribute, value) == 8);
const _: () = assert!(size_of::<CUlaunchAttributeValue>() == 64);
