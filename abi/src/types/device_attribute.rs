//! The attributes for `cuDeviceGetAttribute`.

use super::named_values;

named_values! {
    /// A device attribute. Its value is an `int`; 0 or 1 for "whether". The list is CUDA 12.8's,
    /// without the limits of textures and surfaces and without deprecated attributes.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUdevice_attribute(i32), "CU_DEVICE_ATTRIBUTE_" {
        /// Threads per block.
        MAX_THREADS_PER_BLOCK = 1,
        /// Threads per block in x.
        MAX_BLOCK_DIM_X = 2,
        /// Threads per block in y.
        MAX_BLOCK_DIM_Y = 3,
        /// Threads per block in z.
        MAX_BLOCK_DIM_Z = 4,
        /// Blocks per grid in x.
        MAX_GRID_DIM_X = 5,
        /// Blocks per grid in y.
        MAX_GRID_DIM_Y = 6,
        /// Blocks per grid in z.
        MAX_GRID_DIM_Z = 7,
        /// Bytes of shared memory per block, without opting in to more.
        MAX_SHARED_MEMORY_PER_BLOCK = 8,
        /// Bytes of constant memory.
        TOTAL_CONSTANT_MEMORY = 9,
        /// Threads per warp.
        WARP_SIZE = 10,
        /// Greatest pitch of a copy, in bytes.
        MAX_PITCH = 11,
        /// Registers (32 bits) per block.
        MAX_REGISTERS_PER_BLOCK = 12,
        /// Clock of the SMs, in kHz.
        CLOCK_RATE = 13,
        /// Alignment of textures, in bytes.
        TEXTURE_ALIGNMENT = 14,
        /// Whether copies overlap kernels; older than `ASYNC_ENGINE_COUNT`.
        GPU_OVERLAP = 15,
        /// SMs.
        MULTIPROCESSOR_COUNT = 16,
        /// Whether a watchdog ends long kernels.
        KERNEL_EXEC_TIMEOUT = 17,
        /// Whether the device shares the host's memory.
        INTEGRATED = 18,
        /// Whether host memory can be mapped.
        CAN_MAP_HOST_MEMORY = 19,
        /// How processes may use the device: a [`CUcomputemode`](super::CUcomputemode).
        COMPUTE_MODE = 20,
        /// Alignment of surfaces, in bytes.
        SURFACE_ALIGNMENT = 30,
        /// Whether kernels of one context run at the same time.
        CONCURRENT_KERNELS = 31,
        /// Whether ECC is enabled.
        ECC_ENABLED = 32,
        /// Bus number on PCI.
        PCI_BUS_ID = 33,
        /// Device number on PCI.
        PCI_DEVICE_ID = 34,
        /// Whether the driver is Windows' compute-only driver.
        TCC_DRIVER = 35,
        /// Clock of the memory, in kHz.
        MEMORY_CLOCK_RATE = 36,
        /// Width of the memory bus, in bits.
        GLOBAL_MEMORY_BUS_WIDTH = 37,
        /// Bytes of L2 cache.
        L2_CACHE_SIZE = 38,
        /// Threads per SM.
        MAX_THREADS_PER_MULTIPROCESSOR = 39,
        /// Copy engines.
        ASYNC_ENGINE_COUNT = 40,
        /// Whether device and host share one address space.
        UNIFIED_ADDRESSING = 41,
        /// Domain number on PCI.
        PCI_DOMAIN_ID = 50,
        /// Alignment of the pitch of textures, in bytes.
        TEXTURE_PITCH_ALIGNMENT = 51,
        /// Major number of the architecture.
        COMPUTE_CAPABILITY_MAJOR = 75,
        /// Minor number of the architecture.
        COMPUTE_CAPABILITY_MINOR = 76,
        /// Whether streams have priorities.
        STREAM_PRIORITIES_SUPPORTED = 78,
        /// Whether L1 caches global memory.
        GLOBAL_L1_CACHE_SUPPORTED = 79,
        /// Whether L1 caches local memory.
        LOCAL_L1_CACHE_SUPPORTED = 80,
        /// Bytes of shared memory per SM.
        MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
        /// Registers (32 bits) per SM.
        MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
        /// Whether managed memory is supported.
        MANAGED_MEMORY = 83,
        /// Whether the device shares its board with other devices.
        MULTI_GPU_BOARD = 84,
        /// Number that the devices of a board share.
        MULTI_GPU_BOARD_GROUP_ID = 85,
        /// Whether the link to the host has atomics.
        HOST_NATIVE_ATOMIC_SUPPORTED = 86,
        /// Single-precision over double-precision throughput.
        SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO = 87,
        /// Whether the device can access pageable host memory.
        PAGEABLE_MEMORY_ACCESS = 88,
        /// Whether host and device may use managed memory at the same time.
        CONCURRENT_MANAGED_ACCESS = 89,
        /// Whether kernels can be preempted.
        COMPUTE_PREEMPTION_SUPPORTED = 90,
        /// Whether registered memory has one address on host and device.
        CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
        /// Whether cooperative launches work.
        COOPERATIVE_LAUNCH = 95,
        /// Whether cooperative launches work over several devices.
        COOPERATIVE_MULTI_DEVICE_LAUNCH = 96,
        /// Bytes of shared memory per block, opting in.
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
        /// Whether writes over the bus can be flushed.
        CAN_FLUSH_REMOTE_WRITES = 98,
        /// Whether host memory can be registered.
        HOST_REGISTER_SUPPORTED = 99,
        /// Whether pageable host memory is accessed through the host's page tables.
        PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
        /// Whether the host accesses managed memory on the device in place.
        DIRECT_MANAGED_MEM_ACCESS_FROM_HOST = 101,
        /// Whether `cuMemCreate` and related functions work.
        VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
        /// Whether memory can be exported as a file descriptor.
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
        /// Whether memory can be exported as a Windows handle.
        HANDLE_TYPE_WIN32_HANDLE_SUPPORTED = 104,
        /// Whether memory can be exported as a Windows kernel handle.
        HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED = 105,
        /// Blocks per SM.
        MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
        /// Whether memory can be compressible.
        GENERIC_COMPRESSION_SUPPORTED = 107,
        /// Bytes of L2 that can be set aside for persisting accesses.
        MAX_PERSISTING_L2_CACHE_SIZE = 108,
        /// Bytes of the greatest access policy window.
        MAX_ACCESS_POLICY_WINDOW_SIZE = 109,
        /// Whether memory of `cuMemCreate` can be accessible over the bus.
        GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
        /// Bytes of shared memory per block that the driver reserves.
        RESERVED_SHARED_MEMORY_PER_BLOCK = 111,
        /// Whether sparse arrays are supported.
        SPARSE_CUDA_ARRAY_SUPPORTED = 112,
        /// Whether host memory can be registered read-only.
        READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
        /// Whether timeline semaphores can be imported.
        TIMELINE_SEMAPHORE_INTEROP_SUPPORTED = 114,
        /// Whether stream-ordered allocation works.
        MEMORY_POOLS_SUPPORTED = 115,
        /// Whether other devices on the bus can access its memory.
        GPU_DIRECT_RDMA_SUPPORTED = 116,
        /// How writes over the bus are flushed, as bits.
        GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
        /// The order that writes over the bus keep.
        GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
        /// The ways to export pool memory, as bits.
        MEMPOOL_SUPPORTED_HANDLE_TYPES = 119,
        /// Whether clusters of blocks are supported.
        CLUSTER_LAUNCH = 120,
        /// Whether arrays can be mapped later.
        DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED = 121,
        /// Whether stream memory operations support 64 bits.
        CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
        /// Whether streams can wait for NOR of a value.
        CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
        /// Whether memory can be exported as a DMA buffer.
        DMA_BUF_SUPPORTED = 124,
        /// Whether events can be shared between processes.
        IPC_EVENT_SUPPORTED = 125,
        /// Memory synchronisation domains.
        MEM_SYNC_DOMAIN_COUNT = 126,
        /// Whether tensor maps are supported.
        TENSOR_MAP_ACCESS_SUPPORTED = 127,
        /// Whether memory can be exported over the fabric.
        HANDLE_TYPE_FABRIC_SUPPORTED = 128,
        /// Whether function pointers are valid on all devices.
        UNIFIED_FUNCTION_POINTERS = 129,
        /// Whether its memory is a NUMA node.
        NUMA_CONFIG = 130,
        /// The NUMA node of its memory.
        NUMA_ID = 131,
        /// Whether multicast objects work.
        MULTICAST_SUPPORTED = 132,
        /// Whether contexts on the device run under MPS.
        MPS_ENABLED = 133,
        /// The host's NUMA node nearest to the device.
        HOST_NUMA_ID = 134,
        /// Whether compute can run inside Direct3D 12.
        D3D12_CIG_SUPPORTED = 135,
        /// Capabilities of the decompression engine, as bits.
        MEM_DECOMPRESS_ALGORITHM_MASK = 136,
        /// Bytes of the longest decompression.
        MEM_DECOMPRESS_MAXIMUM_LENGTH = 137,
        /// Vendor and device on PCI.
        GPU_PCI_DEVICE_ID = 139,
        /// Subsystem on PCI.
        GPU_PCI_SUBSYSTEM_ID = 140,
        /// Whether host memory can be shared between nodes.
        HOST_NUMA_MULTINODE_IPC_SUPPORTED = 143,
    }
}
