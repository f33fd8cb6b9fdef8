//! Streams, and their capture.

use std::ffi::{c_int, c_uint, c_void};

use abi::types::{
    CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUhostFn, CUstream, CUstreamCallback,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

use super::exports;

exports! {
    cudaStreamCreate(stream: *mut CUstream) |driver| driver.cuStreamCreate(stream, 0);

    cudaStreamCreateWithFlags(stream: *mut CUstream, flags: c_uint)
        |driver| driver.cuStreamCreate(stream, flags);

    cudaStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int)
        |driver| driver.cuStreamCreateWithPriority(stream, flags, priority);

    cudaStreamDestroy(stream: CUstream) |driver| driver.cuStreamDestroy(stream);
    cudaStreamQuery(stream: CUstream) |driver| driver.cuStreamQuery(stream);
    cudaStreamSynchronize(stream: CUstream) |driver| driver.cuStreamSynchronize(stream);

    cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint)
        |driver| driver.cuStreamWaitEvent(stream, event, flags);

    cudaStreamGetPriority(stream: CUstream, priority: *mut c_int)
        |driver| driver.cuStreamGetPriority(stream, priority);

    // The driver calls back with its own code, which is also the runtime's.
    cudaStreamAddCallback(stream: CUstream, call: CUstreamCallback, data: *mut c_void, flags: c_uint)
        |driver| driver.cuStreamAddCallback(stream, call, data, flags);

    cudaLaunchHostFunc(stream: CUstream, call: CUhostFn, data: *mut c_void)
        |driver| driver.cuLaunchHostFunc(stream, call, data);

    cudaStreamBeginCapture(stream: CUstream, mode: CUstreamCaptureMode)
        |driver| driver.cuStreamBeginCapture(stream, mode);

    cudaStreamBeginCaptureToGraph(
        stream: CUstream, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        mode: CUstreamCaptureMode
    ) |driver| driver.cuStreamBeginCaptureToGraph(stream, graph, after, edges, count, mode);

    cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph)
        |driver| driver.cuStreamEndCapture(stream, graph);

    cudaStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus)
        |driver| driver.cuStreamIsCapturing(stream, status);

    cudaThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode)
        |driver| driver.cuThreadExchangeStreamCaptureMode(mode);
}
