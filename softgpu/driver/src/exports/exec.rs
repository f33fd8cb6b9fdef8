//! Executable graphs.

use std::ffi::{c_char, c_uint};

use abi::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent,
    CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo,
    CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};

use super::graph::{graph, node, node_handle};
use super::node::{any_kind, copy, event, fill, host, kernel, kernel_v1};
use super::{exports, flavoured};
use crate::driver::Driver;
use crate::graphs::Kind;
use crate::raw::{In, Out, write_text};

fn exec(handle: CUgraphExec) -> u64 {
    handle.0.addr() as u64
}

fn instantiate(
    driver: &Driver,
    to: &Out<CUgraphExec>,
    from: CUgraph,
    flags: u64,
) -> Result<(), CUresult> {
    if to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let made = driver.instantiate(graph(from), flags)?;
    to.set(CUgraphExec(std::ptr::without_provenance_mut(made as usize)))
}

/// The form with a log, which stays empty.
fn instantiate_with_log(
    driver: &Driver,
    to: &Out<CUgraphExec>,
    from: CUgraph,
    error: &Out<CUgraphNode>,
    log: &Out<c_char>,
    room: usize,
) -> Result<(), CUresult> {
    error.set_if_wanted(CUgraphNode::NULL);
    if !log.is_null() && room > 0 {
        write_text(log, 1, "")?;
    }
    instantiate(driver, to, from, 0)
}

fn instantiate_with_params(
    driver: &Driver,
    to: &Out<CUgraphExec>,
    from: CUgraph,
    params: &Out<CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Result<(), CUresult> {
    let mut asked = params.get()?;
    let result = instantiate(driver, to, from, asked.flags);
    asked.error_node = CUgraphNode::NULL;
    asked.result = match result {
        Ok(()) => CUgraphInstantiateResult::SUCCESS,
        Err(_) => CUgraphInstantiateResult::ERROR,
    };
    params.set(asked)?;
    result
}

fn update(
    driver: &Driver,
    handle: CUgraphExec,
    from: CUgraph,
) -> Result<(CUgraphExecUpdateResultInfo, Result<(), CUresult>), CUresult> {
    let mut info = CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult::SUCCESS,
        error_node: CUgraphNode::NULL,
        error_from_node: CUgraphNode::NULL,
    };
    let result = match driver.update_exec(exec(handle), graph(from))? {
        Ok(()) => Ok(()),
        Err(refused) => {
            info.result = refused.why;
            info.error_node = refused.node.map_or(CUgraphNode::NULL, node_handle);
            Err(CUresult::GRAPH_EXEC_UPDATE_FAILURE)
        }
    };
    Ok((info, result))
}

exports! {
    cuGraphInstantiate(
        to: Out<CUgraphExec>, from: CUgraph, error: Out<CUgraphNode>, log: Out<c_char>, room: usize,
    ) |driver| instantiate_with_log(driver, &to, from, &error, &log, room);

    cuGraphInstantiate_v2(
        to: Out<CUgraphExec>, from: CUgraph, error: Out<CUgraphNode>, log: Out<c_char>, room: usize,
    ) |driver| instantiate_with_log(driver, &to, from, &error, &log, room);

    cuGraphInstantiateWithFlags(to: Out<CUgraphExec>, from: CUgraph, flags: u64)
        |driver| instantiate(driver, &to, from, flags);

    cuGraphExecGetFlags(handle: CUgraphExec, flags: Out<u64>)
        |driver| flags.set(driver.tables.lock().graphs.exec_mut(exec(handle))?.flags);

    cuGraphExecDestroy(handle: CUgraphExec) |driver| driver.destroy_exec(exec(handle));

    cuGraphExecUpdate(
        handle: CUgraphExec, from: CUgraph, error: Out<CUgraphNode>, why: Out<CUgraphExecUpdateResult>,
    ) |driver| {
        let (info, result) = update(driver, handle, from)?;
        error.set_if_wanted(info.error_node);
        why.set_if_wanted(info.result);
        result
    };

    cuGraphExecUpdate_v2(handle: CUgraphExec, from: CUgraph, to: Out<CUgraphExecUpdateResultInfo>) |driver| {
        if to.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (info, result) = update(driver, handle, from)?;
        to.set(info)?;
        result
    };

    cuGraphExecKernelNodeSetParams(handle: CUgraphExec, of: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>)
        |driver| driver.set_exec_node(exec(handle), node(of), kernel_v1(driver, &params)?);

    cuGraphExecKernelNodeSetParams_v2(handle: CUgraphExec, of: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>)
        |driver| driver.set_exec_node(exec(handle), node(of), kernel(driver, &params)?);

    cuGraphExecMemcpyNodeSetParams(
        handle: CUgraphExec, of: CUgraphNode, params: In<CUDA_MEMCPY3D>, context: CUcontext,
    ) |driver| driver.set_exec_node(exec(handle), node(of), copy(driver, &params, context)?);

    cuGraphExecMemsetNodeSetParams(
        handle: CUgraphExec, of: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>, context: CUcontext,
    ) |driver| driver.set_exec_node(exec(handle), node(of), fill(driver, &params, context)?);

    cuGraphExecHostNodeSetParams(handle: CUgraphExec, of: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>)
        |driver| driver.set_exec_node(exec(handle), node(of), host(&params)?);

    cuGraphExecChildGraphNodeSetParams(handle: CUgraphExec, of: CUgraphNode, child: CUgraph)
        |driver| driver.set_exec_child(exec(handle), node(of), graph(child));

    cuGraphExecEventRecordNodeSetEvent(handle: CUgraphExec, of: CUgraphNode, other: CUevent)
        |driver| driver.set_exec_node(exec(handle), node(of), Kind::Record(event(driver, other)?));

    cuGraphExecEventWaitNodeSetEvent(handle: CUgraphExec, of: CUgraphNode, other: CUevent)
        |driver| driver.set_exec_node(exec(handle), node(of), Kind::Wait(event(driver, other)?));

    cuGraphExecNodeSetParams(handle: CUgraphExec, of: CUgraphNode, params: Out<CUgraphNodeParams>)
        |driver| match any_kind(driver, &params)? {
            Kind::Child(child) => driver.set_exec_child(exec(handle), node(of), child),
            kind => driver.set_exec_node(exec(handle), node(of), kind),
        };

    cuGraphNodeSetEnabled(handle: CUgraphExec, of: CUgraphNode, enabled: c_uint)
        |driver| driver.set_enabled(exec(handle), node(of), enabled != 0);

    cuGraphNodeGetEnabled(handle: CUgraphExec, of: CUgraphNode, enabled: Out<c_uint>)
        |driver| enabled.set(driver.is_enabled(exec(handle), node(of))?.into());
}

flavoured! {
    cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz (
        to: Out<CUgraphExec>, from: CUgraph, params: Out<CUDA_GRAPH_INSTANTIATE_PARAMS>
    ) |driver, _| instantiate_with_params(driver, &to, from, &params);

    // The instantiated graph is at the server already.
    cuGraphUpload cuGraphUpload_ptsz (handle: CUgraphExec, stream: CUstream) |driver, flavour| {
        driver.stream(stream, flavour)?;
        driver.tables.lock().graphs.exec_mut(exec(handle)).map(drop)
    };

    cuGraphLaunch cuGraphLaunch_ptsz (handle: CUgraphExec, stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.launch_graph(exec(handle), &stream)
    };
}
