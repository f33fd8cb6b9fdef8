//! Descriptions of modules and their kernels.

use super::named_values;

named_values! {
    /// Attributes for `cuFuncGetAttribute`.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUfunction_attribute(i32), "CU_FUNC_ATTRIBUTE_" {
        /// Threads a block may have, given the kernel's registers.
        MAX_THREADS_PER_BLOCK = 0,
        /// Bytes of static shared memory per block.
        SHARED_SIZE_BYTES = 1,
        /// Bytes of constant memory.
        CONST_SIZE_BYTES = 2,
        /// Bytes of local memory per thread.
        LOCAL_SIZE_BYTES = 3,
        /// Registers per thread.
        NUM_REGS = 4,
        /// PTX version, major * 10 + minor.
        PTX_VERSION = 5,
        /// Architecture of the code, major * 10 + minor.
        BINARY_VERSION = 6,
        /// Whether global loads are cached in L1.
        CACHE_MODE_CA = 7,
        /// Bytes of dynamic shared memory a block may have (settable).
        MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        /// Preferred share of shared memory, percent of the maximum (settable).
        PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        /// Whether a launch must state the size of its clusters.
        CLUSTER_SIZE_MUST_BE_SET = 10,
        /// Required blocks of a cluster in x.
        REQUIRED_CLUSTER_WIDTH = 11,
        /// Required blocks of a cluster in y.
        REQUIRED_CLUSTER_HEIGHT = 12,
        /// Required blocks of a cluster in z.
        REQUIRED_CLUSTER_DEPTH = 13,
        /// Whether clusters may exceed the size that every device supports.
        NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        /// How clusters are distributed.
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15,
    }
}

named_values! {
    /// When kernels are loaded.
    CUmoduleLoadingMode(u32), "CU_MODULE_" {
        /// With their module.
        EAGER_LOADING = 1,
        /// When first used.
        LAZY_LOADING = 2,
    }
}

named_values! {
    /// Options of `cuModuleLoadDataEx`: those that report, which every driver must answer.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUjit_option(u32), "CU_JIT_" {
        /// Out: milliseconds spent (`float`).
        WALL_TIME = 2,
        /// A buffer for messages (`char *`).
        INFO_LOG_BUFFER = 3,
        /// In: the buffer's size; out: bytes written.
        INFO_LOG_BUFFER_SIZE_BYTES = 4,
        /// A buffer for errors (`char *`).
        ERROR_LOG_BUFFER = 5,
        /// In: the buffer's size; out: bytes written.
        ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    }
}
