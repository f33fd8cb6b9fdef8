//! Host functions that the driver calls, and user objects that it destroys.

use std::ffi::{c_uint, c_void};

use abi::types::{CUgraph, CUhostFn, CUresult, CUstream, CUstreamCallback, CUuserObject};

use super::graph::graph;
use super::{exports, flavoured};
use crate::host_calls::HostFunction;
use crate::raw::Out;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which all objects must have.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: c_uint = 1;
/// How the thread that waits for a host function is notified, in CUDA 13.1. Ignored here.
const SYNC_MODE_MAX: c_uint = 1;

fn object(handle: CUuserObject) -> u64 {
    handle.0.addr() as u64
}

flavoured! {
    cuLaunchHostFunc cuLaunchHostFunc_ptsz (stream: CUstream, function: CUhostFn, data: *mut c_void) live
        |driver, flavour| {
            let stream = driver.stream(stream, flavour)?;
            driver.launch_host_function(&stream, HostFunction::new(function, data))
        };

    cuLaunchHostFunc_v2 cuLaunchHostFunc_v2_ptsz (
        stream: CUstream, function: CUhostFn, data: *mut c_void, sync_mode: c_uint
    ) live |driver, flavour| {
        if sync_mode > SYNC_MODE_MAX {
            return Err(CUresult::INVALID_VALUE);
        }
        let stream = driver.stream(stream, flavour)?;
        driver.launch_host_function(&stream, HostFunction::new(function, data))
    };

    cuStreamAddCallback cuStreamAddCallback_ptsz (
        stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: c_uint
    ) live |driver, flavour| {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let known = driver.stream(stream, flavour)?;
        driver.add_callback(&known, stream, callback, data)
    };
}

exports! {
    cuUserObjectCreate(
        to: Out<CUuserObject>, data: *mut c_void, end: CUhostFn, count: c_uint, flags: c_uint,
    ) |driver| {
        if to.is_null() || flags != NO_DESTRUCTOR_SYNC {
            return Err(CUresult::INVALID_VALUE);
        }
        let made = driver.create_object(HostFunction::new(end, data), count)?;
        to.set(CUuserObject(std::ptr::without_provenance_mut(made as usize)))
    };

    cuUserObjectRetain(handle: CUuserObject, count: c_uint) |driver| driver.retain_object(object(handle), count);

    cuUserObjectRelease(handle: CUuserObject, count: c_uint) |driver| driver.release_object(object(handle), count);

    cuGraphRetainUserObject(to: CUgraph, handle: CUuserObject, count: c_uint, flags: c_uint) |driver| {
        if flags & !MOVE != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        driver.graph_retain_object(graph(to), object(handle), count, flags == MOVE)
    };

    cuGraphReleaseUserObject(from: CUgraph, handle: CUuserObject, count: c_uint)
        |driver| driver.graph_release_object(graph(from), object(handle), count);
}
