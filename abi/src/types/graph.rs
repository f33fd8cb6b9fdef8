//! Types of graphs. Layouts are the header's; contents of no use here are arrays of words.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;

use super::{
    CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUfunction, CUgraphNode, CUkernel, CUstream,
    named_values,
};

named_values! {
    /// Kind of a graph node.
    CUgraphNodeType(u32), "CU_GRAPH_NODE_TYPE_" {
        /// Runs a kernel.
        KERNEL = 0,
        /// Copies memory.
        MEMCPY = 1,
        /// Fills memory.
        MEMSET = 2,
        /// Calls a host function.
        HOST = 3,
        /// Runs a child graph.
        GRAPH = 4,
        /// Does nothing.
        EMPTY = 5,
        /// Waits for an event.
        WAIT_EVENT = 6,
        /// Records an event.
        EVENT_RECORD = 7,
        /// Signals semaphores.
        EXT_SEMAS_SIGNAL = 8,
        /// Waits for semaphores.
        EXT_SEMAS_WAIT = 9,
        /// Allocates memory.
        MEM_ALLOC = 10,
        /// Frees memory.
        MEM_FREE = 11,
        /// Writes and waits for words in memory.
        BATCH_MEM_OP = 12,
        /// Runs a graph if, or while, a condition holds.
        CONDITIONAL = 13,
    }
}

named_values! {
    /// Why an executable graph could not be updated.
    CUgraphExecUpdateResult(u32), "CU_GRAPH_EXEC_UPDATE_" {
        /// Updated.
        SUCCESS = 0,
        /// Failed; the function's result has the reason.
        ERROR = 1,
        /// The graphs differ in nodes or dependencies.
        ERROR_TOPOLOGY_CHANGED = 2,
        /// A node's kind changed.
        ERROR_NODE_TYPE_CHANGED = 3,
        /// A kernel node's function changed (old drivers).
        ERROR_FUNCTION_CHANGED = 4,
        /// A node's parameters changed in an unsupported way.
        ERROR_PARAMETERS_CHANGED = 5,
        /// A node is of a kind that cannot be updated.
        ERROR_NOT_SUPPORTED = 6,
        /// A kernel node's function changed in an unsupported way.
        ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
        /// A node's attributes changed in an unsupported way.
        ERROR_ATTRIBUTES_CHANGED = 8,
    }
}

named_values! {
    /// Result of an instantiation.
    CUgraphInstantiateResult(u32), "CUDA_GRAPH_INSTANTIATE_" {
        /// Instantiated.
        SUCCESS = 0,
        /// Failed; the function's result has the reason.
        ERROR = 1,
        /// The graph's structure is invalid.
        INVALID_STRUCTURE = 2,
        /// The flags forbid a node's operation.
        NODE_OPERATION_NOT_SUPPORTED = 3,
        /// Nodes belong to several contexts.
        MULTIPLE_CTXS_NOT_SUPPORTED = 4,
    }
}

named_values! {
    /// Flags of an instantiation.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUgraphInstantiate_flags(u32), "CUDA_GRAPH_INSTANTIATE_FLAG_" {
        /// A launch frees what the previous launch left allocated.
        AUTO_FREE_ON_LAUNCH = 1,
        /// Also uploads the graph.
        UPLOAD = 2,
        /// Can be launched by the device.
        DEVICE_LAUNCH = 4,
        /// Nodes run with their own priority instead of the stream's.
        USE_NODE_PRIORITY = 8,
    }
}

named_values! {
    /// Attributes of graphs' memory.
    #[expect(non_camel_case_types, reason = "named as in the header")]
    CUgraphMem_attribute(u32), "CU_GRAPH_MEM_ATTR_" {
        /// Bytes that graphs use (`cuuint64_t`).
        USED_MEM_CURRENT = 0,
        /// Peak of the used bytes; can be set to 0.
        USED_MEM_HIGH = 1,
        /// Bytes reserved for graphs.
        RESERVED_MEM_CURRENT = 2,
        /// Peak of the reserved bytes; can be set to 0.
        RESERVED_MEM_HIGH = 3,
    }
}

/// A kernel node, in the form of entry points before CUDA 12.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    /// The function that runs.
    pub func: CUfunction,
    /// Blocks in x, y, z.
    pub grid_dim: [c_uint; 3],
    /// Threads per block in x, y, z.
    pub block_dim: [c_uint; 3],
    /// The kernel.
    pub shared_mem_bytes: c_uint,
    /// Addresses of the parameters.
    pub kernel_params: *mut *mut c_void,
    /// Packed parameters instead of `kernel_params`.
    pub extra: *mut *mut c_void,
}

/// A kernel node.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    /// The form before CUDA 12.
    pub v1: CUDA_KERNEL_NODE_PARAMS_v1,
    /// The kernel, if `func` is null.
    pub kern: CUkernel,
    /// The context in which the kernel runs; null is the current one.
    pub ctx: CUcontext,
}

/// A fill.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    /// First address.
    pub dst: CUdeviceptr,
    /// Bytes from row to row, if there are several.
    pub pitch: usize,
    /// The value to fill with.
    pub value: c_uint,
    /// Bytes of the value: 1, 2 or 4.
    pub element_size: c_uint,
    /// Values per row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// A host function to call, and its argument.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_HOST_NODE_PARAMS {
    /// The function.
    pub function: CUhostFn,
    /// Its argument.
    pub user_data: *mut c_void,
}

/// A function that the driver calls (`CUhostFn`).
pub type CUhostFn = Option<extern "C" fn(*mut c_void)>;

/// A function that the driver calls with a stream and its error (`CUstreamCallback`).
pub type CUstreamCallback = Option<extern "C" fn(CUstream, super::CUresult, *mut c_void)>;

/// An allocation by a graph.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    /// The pool's properties (`CUmemPoolProps`).
    pub pool_props: [u64; 11],
    /// Access rights (`CUmemAccessDesc`).
    pub access_descs: *const c_void,
    /// Number of access rights.
    pub access_desc_count: usize,
    /// Size.
    pub bytesize: usize,
    /// Its address, written by the driver.
    pub dptr: CUdeviceptr,
}

/// A node of any kind.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUgraphNodeParams {
    /// The kind, which selects the member of the union.
    pub kind: CUgraphNodeType,
    /// Zero.
    pub reserved0: [c_int; 3],
    /// The words of the header's union of structures.
    pub union: [u64; 29],
    /// Zero.
    pub reserved2: u64,
}

/// A copy in [`CUgraphNodeParams`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    /// Zero.
    pub flags: c_int,
    /// Zero.
    pub reserved: c_int,
    /// The context in which the copy runs.
    pub copy_ctx: CUcontext,
    /// The copy.
    pub copy_params: CUDA_MEMCPY3D,
}

/// A fill in [`CUgraphNodeParams`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    /// The fill.
    pub v1: CUDA_MEMSET_NODE_PARAMS,
    /// The context in which the fill runs.
    pub ctx: CUcontext,
}

/// How to instantiate a graph, and the result.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    /// [`CUgraphInstantiate_flags`].
    pub flags: u64,
    /// The stream to upload on.
    pub upload_stream: CUstream,
    /// The node at fault.
    pub error_node: CUgraphNode,
    /// The result.
    pub result: CUgraphInstantiateResult,
}

/// Result of an update.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUgraphExecUpdateResultInfo {
    /// The reason of a failure.
    pub result: CUgraphExecUpdateResult,
    /// The node at fault in the new graph.
    pub error_node: CUgraphNode,
    /// Start of the wrong dependency.
    pub error_from_node: CUgraphNode,
}

/// Ports and kind of a dependency.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUgraphEdgeData {
    /// Output port of the first node; 0 is its end.
    pub from_port: u8,
    /// Input port of the second; 0 is its beginning.
    pub to_port: u8,
    /// Kind of dependency; 0 is the usual one.
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
const _: () = assert!(offset_of!(CUDA_KERNEL_NODE_PARAMS_v1, kernel_params) == 40);
const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);
const _: () = assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
const _: () = assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);
const _: () = assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);
const _: () = assert!(size_of::<CUgraphNodeParams>() == 256);
const _: () = assert!(offset_of!(CUgraphNodeParams, union) == 16);
const _: () = assert!(size_of::<CUDA_MEMCPY_NODE_PARAMS>() == 216);
const _: () = assert!(size_of::<CUDA_MEMSET_NODE_PARAMS_v2>() == 48);
const _: () = assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
const _: () = assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
const _: () = assert!(size_of::<CUgraphEdgeData>() == 8);
