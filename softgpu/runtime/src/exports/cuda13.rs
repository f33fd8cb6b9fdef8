//! Functions in the form of CUDA 13.

use std::ffi::{c_int, c_uint, c_void};

use abi::types::{CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureStatus};

use super::exports;
use crate::error::Error;
use crate::properties::{DeviceProperties, device_properties};
use crate::raw::Out;

exports! {
    cudaGetDeviceProperties(properties: Out<DeviceProperties>, ordinal: c_int)
        anywhere |driver| properties.set(device_properties(driver, ordinal)?);

    cudaStreamGetCaptureInfo(
        stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph,
        after: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize
    ) |driver| driver.cuStreamGetCaptureInfo(stream, status, id, graph, after, edges, count);

    cudaStreamUpdateCaptureDependencies(
        stream: CUstream, after: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: c_uint
    ) |driver| driver.cuStreamUpdateCaptureDependencies(stream, after, edges, count, flags);

    cudaGraphNodeGetDependencies(
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize
    ) |driver| driver.cuGraphNodeGetDependencies(node, nodes, edges, count);

    // The runtime's node parameters differ from the driver's.
    cudaGraphAddNode(
        _node: *mut CUgraphNode, _graph: CUgraph, _after: *const CUgraphNode, _edges: *const CUgraphEdgeData,
        _count: usize, _params: *mut c_void
    ) |_| Err(Error::NOT_SUPPORTED);
}
