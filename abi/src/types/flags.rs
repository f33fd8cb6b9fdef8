//! Flags, modes and limits of contexts, streams and events. Flags are plain `unsigned int`s.

use core::ffi::c_uint;

use super::named_values;

named_values! {
    /// How processes may use a device.
    CUcomputemode(u32), "CU_COMPUTEMODE_" {
        /// By any number of contexts.
        DEFAULT = 0,
        /// By no context.
        PROHIBITED = 2,
        /// By one process at a time.
        EXCLUSIVE_PROCESS = 3,
    }
}

named_values! {
    /// Flags of a context.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUctx_flags(u32), "CU_CTX_" {
        /// Spin or yield, by the number of contexts and processors.
        SCHED_AUTO = 0x00,
        /// Spin while waiting.
        SCHED_SPIN = 0x01,
        /// Yield while waiting.
        SCHED_YIELD = 0x02,
        /// Block while waiting.
        SCHED_BLOCKING_SYNC = 0x04,
        /// Mapped host memory.
        MAP_HOST = 0x08,
        /// Keep local memory at its greatest size.
        LMEM_RESIZE_TO_MAX = 0x10,
        /// Dump core on a device fault.
        COREDUMP_ENABLE = 0x20,
        /// Let the application request a core dump.
        USER_COREDUMP_ENABLE = 0x40,
        /// Synchronous copies wait for their completion.
        SYNC_MEMOPS = 0x80,
    }
}

named_values! {
    /// Flags of `cuGetProcAddress`.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUdriverProcAddress_flags(u32), "CU_GET_PROC_ADDRESS_" {
        /// The flavour of the caller's own resolver.
        DEFAULT = 0,
        /// Stream 0 is the legacy stream.
        LEGACY_STREAM = 1,
        /// Stream 0 is the calling thread's stream.
        PER_THREAD_DEFAULT_STREAM = 2,
    }
}

named_values! {
    /// Result of a lookup by `cuGetProcAddress_v2`.
    CUdriverProcAddressQueryResult(u32), "CU_GET_PROC_ADDRESS_" {
        /// Found.
        SUCCESS = 0,
        /// No such api.
        SYMBOL_NOT_FOUND = 1,
        /// The api exists, but only in newer versions than requested.
        VERSION_NOT_SUFFICIENT = 2,
    }
}

named_values! {
    /// Flags of an event.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUevent_flags(u32), "CU_EVENT_" {
        /// Timed; waits follow the context's mode.
        DEFAULT = 0,
        /// Waits block.
        BLOCKING_SYNC = 1,
        /// Records no time stamp.
        DISABLE_TIMING = 2,
        /// Usable by other processes; needs `DISABLE_TIMING`.
        INTERPROCESS = 4,
    }
}

named_values! {
    /// Flags of `cuEventRecordWithFlags`.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUevent_record_flags(u32), "CU_EVENT_RECORD_" {
        /// In a capture, a dependency.
        DEFAULT = 0,
        /// In a capture, a node that records.
        EXTERNAL = 1,
    }
}

named_values! {
    /// Flags of `cuStreamWaitEvent`.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUevent_wait_flags(u32), "CU_EVENT_WAIT_" {
        /// In a capture, a dependency.
        DEFAULT = 0,
        /// In a capture, a node that waits.
        EXTERNAL = 1,
    }
}

named_values! {
    /// Resource that an execution affinity restricts.
    CUexecAffinityType(u32), "CU_EXEC_AFFINITY_TYPE_" {
        /// The number of SMs, which only MPS honours.
        SM_COUNT = 0,
    }
}

/// A restriction of the context, for `cuCtxCreate_v3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUexecAffinityParam {
    /// The restricted resource.
    pub kind: CUexecAffinityType,
    /// Number of SMs, for [`CUexecAffinityType::SM_COUNT`]. A union in the header.
    pub sm_count: c_uint,
}

named_values! {
    /// Limits for `cuCtxSetLimit`.
    CUlimit(u32), "CU_LIMIT_" {
        /// Bytes of stack per thread.
        STACK_SIZE = 0,
        /// Bytes of the buffer of `printf`.
        PRINTF_FIFO_SIZE = 1,
        /// Bytes of the heap of `malloc` on the device.
        MALLOC_HEAP_SIZE = 2,
        /// Depth of synchronisation on the device.
        DEV_RUNTIME_SYNC_DEPTH = 3,
        /// Launches from the device that may be pending.
        DEV_RUNTIME_PENDING_LAUNCH_COUNT = 4,
        /// Bytes fetched into L2 at once; a hint.
        MAX_L2_FETCH_GRANULARITY = 5,
        /// Bytes of L2 set aside for persisting accesses.
        PERSISTING_L2_CACHE_SIZE = 6,
        /// Bytes of shared memory, with graphics.
        SHMEM_SIZE = 7,
        /// Compute in graphics.
        CIG_ENABLED = 8,
        /// Compute in graphics without its shared memory.
        CIG_SHMEM_FALLBACK_ENABLED = 9,
    }
}

named_values! {
    /// Flags of a stream.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUstream_flags(u32), "CU_STREAM_" {
        /// Keeps order with the legacy stream.
        DEFAULT = 0,
        /// Keeps no order with the legacy stream.
        NON_BLOCKING = 1,
    }
}

named_values! {
    /// Which calls a capture forbids, and to which threads.
    CUstreamCaptureMode(u32), "CU_STREAM_CAPTURE_MODE_" {
        /// Unsafe calls, to every thread.
        GLOBAL = 0,
        /// Unsafe calls, to the capturing thread.
        THREAD_LOCAL = 1,
        /// No calls.
        RELAXED = 2,
    }
}

named_values! {
    /// Whether a stream is capturing.
    CUstreamCaptureStatus(u32), "CU_STREAM_CAPTURE_STATUS_" {
        /// Not capturing: work executes.
        NONE = 0,
        /// Capturing.
        ACTIVE = 1,
        /// The capture failed but has not been ended yet.
        INVALIDATED = 2,
    }
}

const _: () = assert!(size_of::<CUexecAffinityParam>() == 8);
