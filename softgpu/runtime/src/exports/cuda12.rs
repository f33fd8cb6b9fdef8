//! Functions that only CUDA 12 has, or that differ in CUDA 13, which added edge data of graphs.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdriverProcAddressQueryResult, CUgraph, CUgraphNode, CUstream, CUstreamCaptureStatus,
};

use super::{define, exports};
use crate::door::enter;
use crate::error::Error;
use crate::properties::{DeviceProperties, device_properties};
use crate::raw::Out;
use crate::registry::{Image, load};
use crate::release::VERSION;

exports! {
    // The header gives this name to the function for CUDA 12's structure, the plain one to 11's.
    cudaGetDeviceProperties_v2(properties: Out<DeviceProperties>, ordinal: c_int)
        anywhere |driver| properties.set(device_properties(driver, ordinal)?);

    cudaGetDriverEntryPoint(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, found: *mut CUdriverProcAddressQueryResult
    ) anywhere |driver| driver.entry_point(symbol, function, VERSION, flags, found);

    cudaStreamGetCaptureInfo_v2(
        stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph,
        after: *mut *const CUgraphNode, count: *mut usize
    ) |driver| driver.cuStreamGetCaptureInfo(stream, status, id, graph, after, std::ptr::null_mut(), count);

    cudaStreamUpdateCaptureDependencies(stream: CUstream, after: *mut CUgraphNode, count: usize, flags: c_uint)
        |driver| driver.cuStreamUpdateCaptureDependencies(stream, after, std::ptr::null(), count, flags);

    cudaGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize)
        |driver| driver.cuGraphNodeGetDependencies(node, nodes, std::ptr::null_mut(), count);

    // The runtime's node parameters differ from the driver's.
    cudaGraphAddNode(
        _node: *mut CUgraphNode, _graph: CUgraph, _after: *const CUgraphNode, _count: usize, _params: *mut c_void
    ) |_| Err(Error::NOT_SUPPORTED);

    cudaGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint)
        |driver| driver.cuGraphDebugDotPrint(graph, path, flags);
}

define! {
    // Compilers call it before a managed variable's first use: the image is loaded. 0: it is not.
    __cudaInitModule(image: Image) -> c_char {
        c_char::from(enter(|driver| load(driver, image).map(drop)) == Error::SUCCESS)
    }
}
