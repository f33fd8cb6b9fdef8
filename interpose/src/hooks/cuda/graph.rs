//! Graphs: launches, and creation, change and end of executables, so that a launch's cost is known.

use core::ffi::{c_char, c_uint, c_void};
use core::ptr;

use abi::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUcontext, CUdevice, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUhostFn,
    CUkernel, CUmemLocationType, CUresult, CUstream, CUstreamCallback,
};
use protocol::pages::Counter;

use super::{hook, stored};
use crate::kernels::graphs::{GRAPHS, known, parts_of};
use crate::launch::{begin_graph, end_graph};
use crate::memory::counts::{handle_allocated, of_stream};
use crate::memory::quota::HELD;
use crate::memory::quota::pools::{Draw, Source};
use crate::process::{self, Client, account};
use crate::progress::stream::{Flavour, Stream};

macro_rules! graph_launch {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(exec: CUgraphExec, stream: CUstream);
            before |client| begin_graph(client, exec, Stream::of(stream, $flavour));
            after |_, begun, result| {
                end_graph(begun, result);
                // The launch may have taken memory for its nodes, or given some back.
                HELD.pools.note_graphs_stale();
            };
        }
    };
}

graph_launch!(cuGraphLaunch, Flavour::Plain);
graph_launch!(cuGraphLaunch_ptsz, Flavour::PerThread);

/// Defines a call that makes the host do something in stream order: it is never held.
macro_rules! host_call {
    ($name:ident, $flavour:expr, $function:ty $(, $more:ident)?) => {
        hook! {
            $name(stream: CUstream, function: $function, data: *mut c_void $(, $more: c_uint)?);
            // Before the call: afterwards the stream may have advanced.
            before |client| of_stream(client, Stream::of(stream, $flavour));
            after |_, client, result| count_host_call(*client, result);
        }
    };
}

host_call!(cuLaunchHostFunc, Flavour::Plain, CUhostFn);
host_call!(cuLaunchHostFunc_ptsz, Flavour::PerThread, CUhostFn);
host_call!(cuLaunchHostFunc_v2, Flavour::Plain, CUhostFn, sync_mode);
host_call!(
    cuLaunchHostFunc_v2_ptsz,
    Flavour::PerThread,
    CUhostFn,
    sync_mode
);
host_call!(cuStreamAddCallback, Flavour::Plain, CUstreamCallback, flags);
host_call!(
    cuStreamAddCallback_ptsz,
    Flavour::PerThread,
    CUstreamCallback,
    flags
);

macro_rules! instantiate {
    ($name:ident $(, $argument:ident: $type:ty)*) => {
        hook! {
            $name(exec: *mut CUgraphExec, graph: CUgraph $(, $argument: $type)*);
            // SAFETY: this call's output parameter.
            after |client, result| unsafe { handle_made(client, exec, graph, result) };
        }
    };
}

instantiate!(cuGraphInstantiate, error: *mut CUgraphNode, log: *mut c_char, room: usize);
instantiate!(cuGraphInstantiate_v2, error: *mut CUgraphNode, log: *mut c_char, room: usize);
instantiate!(cuGraphInstantiateWithFlags, flags: u64);
instantiate!(cuGraphInstantiateWithParams, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
instantiate!(cuGraphInstantiateWithParams_ptsz, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);

hook! {
    cuGraphExecDestroy(exec: CUgraphExec);
    before |_| GRAPHS.handle_ending(exec);
    after |_, (), _| HELD.pools.handle_graphs();
}

hook! {
    cuGraphDestroy(graph: CUgraph);
    // The memory of its nodes is freed with the last graph that has them.
    after |_, _| HELD.pools.handle_graphs();
}

hook! {
    cuGraphExecUpdate(
        exec: CUgraphExec, graph: CUgraph, error: *mut CUgraphNode, why: *mut CUgraphExecUpdateResult,
    );
    after |client, result| handle_updated(client, exec, graph, result);
}

hook! {
    cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
    after |client, result| handle_updated(client, exec, graph, result);
}

hook! {
    cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1,
    );
    after |client, result| {
        // SAFETY: the application's parameters, which the driver has just read.
        let params = unsafe { stored(params, result) }.map(|v1| CUDA_KERNEL_NODE_PARAMS {
            v1,
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        });
        handle_kernel(client, exec, node, params);
    };
}

hook! {
    cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS,
    );
    // SAFETY: as above.
    after |client, result| handle_kernel(client, exec, node, unsafe { stored(params, result) });
}

hook! {
    cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams);
    after |client, result| {
        // SAFETY: the application's parameters, which the driver has just read.
        match unsafe { stored(params, result) } {
            Some(any) if any.kind == CUgraphNodeType::KERNEL => {
                handle_kernel(client, exec, node, Some(kernel_of(&any)));
            }
            Some(any) if any.kind == CUgraphNodeType::GRAPH => {
                handle_child(client, exec, node, graph_of(&any), result);
            }
            _ => {}
        }
    };
}

hook! {
    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
    after |client, result| handle_child(client, exec, node, child, result);
}

hook! {
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, is_enabled: c_uint);
    after |_, result| if result == CUresult::SUCCESS {
        GRAPHS.handle_enabled(exec, node, is_enabled != 0);
    };
}

hook! {
    cuGraphAddMemAllocNode(
        to: *mut CUgraphNode, graph: CUgraph, after_these: *const CUgraphNode, count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    );
    before |_| {
        // SAFETY: the application's own argument, which the driver is about to read.
        let params = (!params.is_null()).then(|| unsafe { *params });
        params.and_then(|params| begin_node(&params))
    };
    call |draw, real| unless_drawn(draw, || {
        // SAFETY: the application's own arguments, passed on.
        unsafe { real(to, graph, after_these, count, params) }
    });
    after |client, draw, result| {
        draw.iter().for_each(|draw| HELD.pools.end(draw, result == CUresult::SUCCESS));
        // SAFETY: the parameters of this call, which the driver has just read and written.
        if let Some(params) = unsafe { stored(params, result) } {
            handle_allocated(client, result, params.bytesize);
        }
    };
}

fn begin_node(params: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Option<Draw> {
    // The second word of `CUmemPoolProps` is its `CUmemLocation`: kind and number, 32 bits each.
    let location = params.pool_props[1];
    let (kind, id) = (location as u32, (location >> 32) as i32);
    if kind != CUmemLocationType::DEVICE.0 {
        return None;
    }
    let account = account::of_device(CUdevice(id))?;
    let source = Source::Graphs(id);
    Some(HELD.pools.begin(account, source, params.bytesize as u64))
}

fn unless_drawn(draw: Option<&Option<Draw>>, call: impl FnOnce() -> CUresult) -> CUresult {
    match draw {
        Some(Some(draw)) if draw.is_refused() => CUresult::OUT_OF_MEMORY,
        _ => call(),
    }
}

macro_rules! add_node {
    ($name:ident $(, $data:ident)?) => {
        hook! {
            $name(
                to: *mut CUgraphNode, graph: CUgraph, after_these: *const CUgraphNode,
                $($data: *const c_void,)? count: usize, params: *mut CUgraphNodeParams,
            );
            before |_| {
                // SAFETY: the application's own argument, which the driver is about to read.
                let any = (!params.is_null()).then(|| unsafe { *params });
                let any = any.filter(|any| any.kind == CUgraphNodeType::MEM_ALLOC);
                any.and_then(|any| begin_node(&allocation_of(&any)))
            };
            call |draw, real| unless_drawn(draw, || {
                // SAFETY: the application's own arguments, passed on.
                unsafe { real(to, graph, after_these, $($data,)? count, params) }
            });
            after |client, draw, result| {
                draw.iter().for_each(|draw| HELD.pools.end(draw, result == CUresult::SUCCESS));
                // SAFETY: the parameters of this call, which the driver has just read and written.
                if let Some(any) = unsafe { stored(params, result) }
                    && any.kind == CUgraphNodeType::MEM_ALLOC
                {
                    handle_allocated(client, result, allocation_of(&any).bytesize);
                }
            };
        }
    };
}

add_node!(cuGraphAddNode);
add_node!(cuGraphAddNode_v2, data);
add_node!(cuGraphAddNode_v3, data);

/// Safety: as [`stored`].
unsafe fn handle_made(
    client: Option<&'static Client>,
    exec: *const CUgraphExec,
    graph: CUgraph,
    result: CUresult,
) {
    // SAFETY: as the caller promises.
    let made = unsafe { stored(exec, result) };
    if let Some((client, exec)) = who_knows(client).zip(made) {
        GRAPHS.handle_made(exec, parts_of(client, graph));
    }
}

fn handle_updated(
    client: Option<&'static Client>,
    exec: CUgraphExec,
    graph: CUgraph,
    result: CUresult,
) {
    if let Some(client) = who_knows(client).filter(|_| result == CUresult::SUCCESS) {
        GRAPHS.handle_updated(exec, parts_of(client, graph));
    }
}

fn handle_kernel(
    client: Option<&'static Client>,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: Option<CUDA_KERNEL_NODE_PARAMS>,
) {
    if let Some((client, params)) = who_knows(client).zip(params) {
        GRAPHS.handle_kernel(exec, node, known(client, &params));
    }
}

fn handle_child(
    client: Option<&'static Client>,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
    result: CUresult,
) {
    if let Some(client) = who_knows(client).filter(|_| result == CUresult::SUCCESS) {
        GRAPHS.handle_child(exec, node, parts_of(client, child));
    }
}

/// The client that knows the cost of a graph's kernels. The profile is the process's. If the
/// current device is unmanaged, another device's client gives the SM need, because nothing shows on
/// which streams the executable will be launched.
fn who_knows(client: Option<&'static Client>) -> Option<&'static Client> {
    client.or_else(|| process::clients().next())
}

fn count_host_call(client: Option<&Client>, result: CUresult) {
    if let Some(client) = client.filter(|_| result == CUresult::SUCCESS) {
        client.page.count(Counter::HostCalls, 1);
    }
}

fn kernel_of(any: &CUgraphNodeParams) -> CUDA_KERNEL_NODE_PARAMS {
    // SAFETY: the union is longer, and any bits are valid in the structure.
    unsafe {
        ptr::from_ref(&any.union)
            .cast::<CUDA_KERNEL_NODE_PARAMS>()
            .read()
    }
}

fn allocation_of(any: &CUgraphNodeParams) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: as above.
    unsafe {
        ptr::from_ref(&any.union)
            .cast::<CUDA_MEM_ALLOC_NODE_PARAMS>()
            .read()
    }
}

fn graph_of(any: &CUgraphNodeParams) -> CUgraph {
    // SAFETY: as above.
    unsafe { ptr::from_ref(&any.union).cast::<CUgraph>().read() }
}
