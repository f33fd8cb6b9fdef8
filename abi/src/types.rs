//! The types that cross the driver's entry points. Names are those of NVIDIA's public headers, so
//! that a prototype can be read beside the header. Everything is a transparent newtype or
//! `repr(C)`; a value without a name here is like any other. Values and layouts are those of CUDA
//! 12.8, and hold for the drivers of CUDA 11 to 13; items that only newer headers have are marked.
//! Handles are the driver's addresses or tokens: compared, passed on, never dereferenced.

mod array;
mod code;
mod copy;
mod device_attribute;
mod flags;
mod graph;
mod handle;
mod launch;
mod memory;
mod module;
mod pool;
mod resource;
mod result;
mod stream;

pub use array::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY_MEMORY_REQUIREMENTS,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray_format, CUarray3D_flags,
    CUarrayMapInfo,
};
pub use code::{
    CUDA_LAUNCH_PARAMS, CUfunc_cache, CUfunctionLoadingState, CUjitInputType, CUlibraryOption,
    CUlinkState, CUoccupancyB2DSize, CUsharedconfig,
};
pub use copy::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER,
    CUDA_MEMCPY3D_v1, CUdeviceptr_v1, CUextent3D, CUmemcpy3DOperand, CUmemcpy3DOperandType,
    CUmemcpyAttributes, CUmemcpySrcAccessOrder,
};
pub use device_attribute::CUdevice_attribute;
pub use flags::{
    CUcomputemode, CUctx_flags, CUdriverProcAddress_flags, CUdriverProcAddressQueryResult,
    CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUexecAffinityParam,
    CUexecAffinityType, CUlimit, CUstream_flags, CUstreamCaptureMode, CUstreamCaptureStatus,
};
pub use graph::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUgraphEdgeData, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags, CUgraphInstantiateResult,
    CUgraphMem_attribute, CUgraphNodeParams, CUgraphNodeType, CUhostFn, CUstreamCallback,
};
pub use handle::{
    CUarray, CUcontext, CUdevResourceDesc, CUdevice, CUdeviceptr, CUevent, CUexternalMemory,
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUgreenCtx, CUkernel, CUlibrary,
    CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream, CUuserObject,
    CUuuid,
};
pub use launch::{CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig};
pub use memory::{
    CUmemAllocFlags, CUmemAllocationProp, CUmemAllocationType, CUmemAttach_flags,
    CUmemHostAlloc_flags, CUmemLocation, CUmemLocationType, CUmemorytype, CUpointer_attribute,
};
pub use module::{CUfunction_attribute, CUjit_option, CUmoduleLoadingMode};
pub use pool::{
    CUipcEventHandle, CUipcMemHandle, CUmem_advise, CUmem_range_attribute, CUmemAccess_flags,
    CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemHostRegister_flags, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData,
};
pub use resource::{CUdevResource, CUdevResourceType};
pub use result::CUresult;
pub use stream::{
    CUdevice_P2PAttribute, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
    CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};

/// Defines a transparent newtype for a C enum, with its named values and the lookup of their names.
macro_rules! named_values {
    (
        $(#[$meta:meta])*
        $name:ident($repr:ty), $prefix:literal {
            $($(#[$value_meta:meta])* $constant:ident = $value:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(
            /// The value as the driver passes it.
            pub $repr,
        );

        impl $name {
            $($(#[$value_meta])* pub const $constant: Self = Self($value);)+

            /// The value's name in the header, or `None` if it has none here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(concat!($prefix, stringify!($constant))),)+
                    _ => None,
                }
            }
        }
    };
}

use named_values;
