//! Types of modules, libraries and linking other than handles, and the oldest ways to launch.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use super::{CUfunction, CUstream, named_values};

/// A linker invocation in progress.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CUlinkState(
    /// The handle as the driver passes it.
    pub *mut c_void,
);

/// Returns the dynamic shared memory, in bytes, for a block of that many threads; null means none.
pub type CUoccupancyB2DSize = Option<extern "C" fn(c_int) -> usize>;

/// One launch of `cuLaunchCooperativeKernelMultiDevice`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_LAUNCH_PARAMS {
    /// The kernel.
    pub function: CUfunction,
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
    /// The stream.
    pub stream: CUstream,
    /// Addresses of the parameters.
    pub kernel_params: *mut *mut c_void,
}

named_values! {
    /// Kind of a linker input.
    CUjitInputType(u32), "CU_JIT_INPUT_" {
        /// A cubin.
        CUBIN = 0,
        /// A PTX text.
        PTX = 1,
        /// A fat binary.
        FATBINARY = 2,
        /// A host object that contains device code.
        OBJECT = 3,
        /// An archive of such objects.
        LIBRARY = 4,
        /// Intermediate code.
        NVVM = 5,
    }
}

named_values! {
    /// Options of `cuLibraryLoadData`.
    CUlibraryOption(u32), "CU_LIBRARY_" {
        /// A table of the host's functions and data.
        HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0,
        /// The image stays in place while the library is loaded.
        BINARY_IS_PRESERVED = 1,
    }
}

named_values! {
    /// Whether a function's code is on the device.
    CUfunctionLoadingState(u32), "CU_FUNCTION_LOADING_STATE_" {
        /// Not loaded yet.
        UNLOADED = 0,
        /// Loaded.
        LOADED = 1,
    }
}

named_values! {
    /// A kernel's preference between L1 and shared memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUfunc_cache(u32), "CU_FUNC_CACHE_" {
        /// No preference.
        PREFER_NONE = 0,
        /// Shared memory.
        PREFER_SHARED = 1,
        /// L1.
        PREFER_L1 = 2,
        /// Equal parts.
        PREFER_EQUAL = 3,
    }
}

named_values! {
    /// Width of the banks of shared memory.
    CUsharedconfig(u32), "CU_SHARED_MEM_CONFIG_" {
        /// The context's default.
        DEFAULT_BANK_SIZE = 0,
        /// Four bytes.
        FOUR_BYTE_BANK_SIZE = 1,
        /// Eight bytes.
        EIGHT_BYTE_BANK_SIZE = 2,
    }
}

const _: () = assert!(size_of::<CUDA_LAUNCH_PARAMS>() == 56);
const _: () = assert!(offset_of!(CUDA_LAUNCH_PARAMS, shared_mem_bytes) == 32);
const _: () = assert!(offset_of!(CUDA_LAUNCH_PARAMS, stream) == 40);
const _: () = assert!(offset_of!(CUDA_LAUNCH_PARAMS, kernel_params) == 48);
