//! Graphs.

use std::ffi::{c_uint, c_void};

use abi::types::{CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUstream, CUuserObject};

use super::exports;
use crate::error::Error;

exports! {
    cudaGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize)
        |driver| driver.cuGraphGetNodes(graph, nodes, count);

    cudaGraphDestroy(graph: CUgraph) |driver| driver.cuGraphDestroy(graph);

    cudaGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64)
        |driver| driver.cuGraphInstantiateWithFlags(exec, graph, flags);

    cudaGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64)
        |driver| driver.cuGraphInstantiateWithFlags(exec, graph, flags);

    cudaGraphExecDestroy(exec: CUgraphExec) |driver| driver.cuGraphExecDestroy(exec);
    cudaGraphLaunch(exec: CUgraphExec, stream: CUstream) |driver| driver.cuGraphLaunch(exec, stream);

    cudaGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint)
        |driver| driver.cuGraphRetainUserObject(graph, object, count, flags);

    cudaUserObjectCreate(
        object: *mut CUuserObject, address: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint
    ) |driver| driver.cuUserObjectCreate(object, address, destroy, count, flags);

    cudaUserObjectRelease(object: CUuserObject, count: c_uint)
        |driver| driver.cuUserObjectRelease(object, count);

    cudaGraphConditionalHandleCreate(_handle: *mut u64, _graph: CUgraph, _value: c_uint, _flags: c_uint)
        |_| Err(Error::NOT_SUPPORTED);
}
