//! Attributes of pairs of devices, and stream memory operations.

use super::named_values;

named_values! {
    /// Attributes of a pair of devices.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUdevice_P2PAttribute(u32), "CU_DEVICE_P2P_ATTRIBUTE_" {
        /// Speed of the link relative to others; 0 is the fastest.
        PERFORMANCE_RANK = 1,
        /// Whether one can access the other's memory.
        ACCESS_SUPPORTED = 2,
        /// Whether atomic operations over the link are supported.
        NATIVE_ATOMIC_SUPPORTED = 3,
        /// Whether arrays can be accessed over the link.
        CUDA_ARRAY_ACCESS_SUPPORTED = 4,
    }
}

named_values! {
    /// Condition that ends a wait for a value in memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUstreamWaitValue_flags(u32), "CU_STREAM_WAIT_VALUE_" {
        /// Memory minus value is not negative.
        GEQ = 0,
        /// Memory and value are equal.
        EQ = 1,
        /// Memory and value have a bit in common.
        AND = 2,
        /// There is a bit that neither has.
        NOR = 3,
        /// Also wait for writes of other devices; may be combined.
        FLUSH = 0x4000_0000,
    }
}

named_values! {
    /// How a value is written to memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUstreamWriteValue_flags(u32), "CU_STREAM_WRITE_VALUE_" {
        /// After everything before it is visible.
        DEFAULT = 0,
        /// In any order with other writes.
        NO_MEMORY_BARRIER = 1,
    }
}

named_values! {
    /// The operation of an entry of a batch.
    CUstreamBatchMemOpType(u32), "CU_STREAM_MEM_OP_" {
        /// Waits for 32 bits.
        WAIT_VALUE_32 = 1,
        /// Writes 32 bits.
        WRITE_VALUE_32 = 2,
        /// Flushes the writes of other devices.
        FLUSH_REMOTE_WRITES = 3,
        /// Waits for 64 bits.
        WAIT_VALUE_64 = 4,
        /// Writes 64 bits.
        WRITE_VALUE_64 = 5,
        /// Orders memory.
        BARRIER = 6,
    }
}

/// One operation of a batch: in the header a union of 48 bytes; waits and writes share a layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUstreamBatchMemOpParams {
    /// The operation.
    pub operation: CUstreamBatchMemOpType,
    /// A barrier's flags, else unused.
    pub flags_of_barrier: u32,
    /// The address.
    pub address: u64,
    /// The value; one of 32 bits in the first half.
    pub value: u64,
    /// Flags of the wait or write.
    pub flags: u32,
    /// Unused.
    pub pad: u32,
    /// For the driver's use.
    pub alias: u64,
    /// The rest of the union.
    pub rest: u64,
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<CUstreamBatchMemOpParams>() == 48);
    assert!(offset_of!(CUstreamBatchMemOpParams, address) == 8);
    assert!(offset_of!(CUstreamBatchMemOpParams, value) == 16);
    assert!(offset_of!(CUstreamBatchMemOpParams, flags) == 24);
};
