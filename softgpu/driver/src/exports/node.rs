//! Nodes: creation, queries and changes of their parameters.

use abi::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS_v2, CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphEdgeData,
    CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUkernel, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUresult,
};

use super::exports;
use super::graph::{edge_data, graph, node, node_handle, nodes_of};
use crate::driver::Driver;
use crate::graphs::Kind;
use crate::host_calls::HostFunction;
use crate::raw::{In, Out};

/// Arguments for adding a node: the result's place, the graph, the dependencies.
struct Place {
    to: Out<CUgraphNode>,
    graph: u64,
    after: Vec<u64>,
}

impl Place {
    fn new(
        to: Out<CUgraphNode>,
        into: CUgraph,
        nodes: &In<CUgraphNode>,
        count: usize,
    ) -> Result<Self, CUresult> {
        if to.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Self {
            to,
            graph: graph(into),
            after: nodes_of(nodes, count)?,
        })
    }

    fn add(&self, driver: &Driver, kind: Kind) -> Result<(), CUresult> {
        let made = driver.add_node(self.graph, &self.after, kind)?;
        self.to.set(node_handle(made))
    }
}

fn context_or_current(driver: &Driver, context: CUcontext) -> Result<u64, CUresult> {
    match context.0.addr() as u64 {
        0 => Ok(driver.current()?.0),
        given => Ok(given),
    }
}

pub(super) fn kernel(
    driver: &Driver,
    params: &In<CUDA_KERNEL_NODE_PARAMS>,
) -> Result<Kind, CUresult> {
    Ok(Kind::Kernel(Box::new(driver.kernel_node(&params.get()?)?)))
}

pub(super) fn kernel_v1(
    driver: &Driver,
    params: &In<CUDA_KERNEL_NODE_PARAMS_v1>,
) -> Result<Kind, CUresult> {
    let params = CUDA_KERNEL_NODE_PARAMS {
        v1: params.get()?,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    };
    Ok(Kind::Kernel(Box::new(driver.kernel_node(&params)?)))
}

pub(super) fn copy(
    driver: &Driver,
    params: &In<CUDA_MEMCPY3D>,
    context: CUcontext,
) -> Result<Kind, CUresult> {
    let context = context_or_current(driver, context)?;
    Ok(Kind::Copy(Box::new(driver.copy_node(params, context)?)))
}

pub(super) fn fill(
    driver: &Driver,
    params: &In<CUDA_MEMSET_NODE_PARAMS>,
    context: CUcontext,
) -> Result<Kind, CUresult> {
    let context = context_or_current(driver, context)?;
    Ok(Kind::Set(driver.set_node(&params.get()?, context)?))
}

pub(super) fn host(params: &In<CUDA_HOST_NODE_PARAMS>) -> Result<Kind, CUresult> {
    let params = params.get()?;
    let function = HostFunction::new(params.function, params.user_data);
    if function.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(Kind::Host(function))
}

pub(super) fn event(driver: &Driver, event: CUevent) -> Result<u64, CUresult> {
    let handle = event.0.addr() as u64;
    driver.event(handle)?;
    Ok(handle)
}

/// An allocation node; its address is written into the application's parameters.
fn allocation(
    driver: &Driver,
    place: &Place,
    params: &Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
) -> Result<(), CUresult> {
    let mut asked = params.get()?;
    if asked.bytesize == 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let bytes = asked.bytesize as u64;
    let (made, address) = driver.add_allocate_node(place.graph, &place.after, bytes)?;
    asked.dptr = CUdeviceptr(address);
    params.set(asked)?;
    place.to.set(node_handle(made))
}

/// The union of parameters of any kind, as those of one kind.
fn union<T>(params: &Out<CUgraphNodeParams>) -> *mut T {
    params
        .address()
        .cast::<u8>()
        .wrapping_add(std::mem::offset_of!(CUgraphNodeParams, union))
        .cast()
}

/// Decodes parameters of any kind, except kinds that depend on the node's place.
pub(super) fn any_kind(driver: &Driver, params: &Out<CUgraphNodeParams>) -> Result<Kind, CUresult> {
    let read = params.get()?;
    let handle = read.union[0];
    let known_event = || {
        let pointer = std::ptr::without_provenance_mut(handle as usize);
        event(driver, CUevent(pointer))
    };
    match read.kind {
        CUgraphNodeType::KERNEL => kernel(driver, &In::member(union(params))),
        CUgraphNodeType::MEMCPY => {
            let copied: In<CUDA_MEMCPY_NODE_PARAMS> = In::member(union(params));
            let at = union::<u8>(params)
                .wrapping_add(std::mem::offset_of!(CUDA_MEMCPY_NODE_PARAMS, copy_params));
            copy(driver, &In::member(at.cast()), copied.get()?.copy_ctx)
        }
        CUgraphNodeType::MEMSET => {
            let set: In<CUDA_MEMSET_NODE_PARAMS_v2> = In::member(union(params));
            fill(driver, &In::member(union(params)), set.get()?.ctx)
        }
        CUgraphNodeType::HOST => host(&In::member(union(params))),
        CUgraphNodeType::GRAPH => Ok(Kind::Child(handle)),
        CUgraphNodeType::EMPTY => Ok(Kind::Empty),
        CUgraphNodeType::WAIT_EVENT => Ok(Kind::Wait(known_event()?)),
        CUgraphNodeType::EVENT_RECORD => Ok(Kind::Record(known_event()?)),
        CUgraphNodeType::MEM_FREE => driver.free_node(handle),
        _ => {
            driver.link.count_not_supported();
            Err(CUresult::NOT_SUPPORTED)
        }
    }
}

fn add_any(
    driver: &Driver,
    place: &Place,
    params: &Out<CUgraphNodeParams>,
) -> Result<(), CUresult> {
    if params.get()?.kind == CUgraphNodeType::MEM_ALLOC {
        return allocation(driver, place, &Out::at(union(params)));
    }
    place.add(driver, any_kind(driver, params)?)
}

exports! {
    cuGraphAddKernelNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS_v1>,
    ) |driver| {
        let place = Place::new(to, into, &after, count)?;
        place.add(driver, kernel_v1(driver, &params)?)
    };

    cuGraphAddKernelNode_v2(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<CUDA_KERNEL_NODE_PARAMS>,
    ) |driver| {
        let place = Place::new(to, into, &after, count)?;
        place.add(driver, kernel(driver, &params)?)
    };

    cuGraphAddMemcpyNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<CUDA_MEMCPY3D>, context: CUcontext,
    ) |driver| {
        let place = Place::new(to, into, &after, count)?;
        place.add(driver, copy(driver, &params, context)?)
    };

    cuGraphAddMemsetNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize,
        params: In<CUDA_MEMSET_NODE_PARAMS>, context: CUcontext,
    ) |driver| {
        let place = Place::new(to, into, &after, count)?;
        place.add(driver, fill(driver, &params, context)?)
    };

    cuGraphAddHostNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, params: In<CUDA_HOST_NODE_PARAMS>,
    ) |driver| Place::new(to, into, &after, count)?.add(driver, host(&params)?);

    cuGraphAddChildGraphNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, child: CUgraph,
    ) |driver| Place::new(to, into, &after, count)?.add(driver, Kind::Child(graph(child)));

    cuGraphAddEmptyNode(to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize)
        |driver| Place::new(to, into, &after, count)?.add(driver, Kind::Empty);

    cuGraphAddEventRecordNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, recorded: CUevent,
    ) |driver| Place::new(to, into, &after, count)?.add(driver, Kind::Record(event(driver, recorded)?));

    cuGraphAddEventWaitNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, awaited: CUevent,
    ) |driver| Place::new(to, into, &after, count)?.add(driver, Kind::Wait(event(driver, awaited)?));

    cuGraphAddMemAllocNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize,
        params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>,
    ) |driver| allocation(driver, &Place::new(to, into, &after, count)?, &params);

    cuGraphAddMemFreeNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, address: CUdeviceptr,
    ) |driver| Place::new(to, into, &after, count)?.add(driver, driver.free_node(address.0)?);

    cuGraphAddNode(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, count: usize, params: Out<CUgraphNodeParams>,
    ) |driver| add_any(driver, &Place::new(to, into, &after, count)?, &params);

    cuGraphAddNode_v2(
        to: Out<CUgraphNode>, into: CUgraph, after: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize,
        params: Out<CUgraphNodeParams>,
    ) |driver| {
        edge_data(&data, count)?;
        add_any(driver, &Place::new(to, into, &after, count)?, &params)
    };

    cuGraphKernelNodeGetParams(handle: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS_v1>)
        |driver| params.set(kernel_params(driver, handle)?.v1);

    cuGraphKernelNodeGetParams_v2(handle: CUgraphNode, params: Out<CUDA_KERNEL_NODE_PARAMS>)
        |driver| params.set(kernel_params(driver, handle)?);

    cuGraphKernelNodeSetParams(handle: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS_v1>)
        |driver| driver.set_node_kind(node(handle), kernel_v1(driver, &params)?);

    cuGraphKernelNodeSetParams_v2(handle: CUgraphNode, params: In<CUDA_KERNEL_NODE_PARAMS>)
        |driver| driver.set_node_kind(node(handle), kernel(driver, &params)?);

    cuGraphKernelNodeGetAttribute(
        handle: CUgraphNode, attribute: CUlaunchAttributeID, value: Out<CUlaunchAttributeValue>,
    ) |driver| {
        let options = driver.with_node(node(handle), |kind| match kind {
            Kind::Kernel(kernel) => Some(kernel.options),
            _ => None,
        })?;
        value.set(CUlaunchAttributeValue::from_int(match attribute {
            CUlaunchAttributeID::PRIORITY => options.priority.unwrap_or(0),
            CUlaunchAttributeID::COOPERATIVE => options.is_cooperative.into(),
            _ => return Err(CUresult::NOT_SUPPORTED),
        }))
    };

    cuGraphKernelNodeSetAttribute(
        handle: CUgraphNode, attribute: CUlaunchAttributeID, value: In<CUlaunchAttributeValue>,
    ) |driver| {
        let number = value.get()?.as_int();
        driver.change_kernel(node(handle), |kernel| match attribute {
            CUlaunchAttributeID::PRIORITY => kernel.options.priority = Some(number),
            CUlaunchAttributeID::COOPERATIVE => kernel.options.is_cooperative = number != 0,
            // Hints, as in a launch.
            _ => {}
        })
    };

    cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) |driver| {
        let options = driver.with_node(node(from), |kind| match kind {
            Kind::Kernel(kernel) => Some(kernel.options),
            _ => None,
        })?;
        driver.change_kernel(node(to), |kernel| kernel.options = options)
    };

    cuGraphMemcpyNodeGetParams(handle: CUgraphNode, params: Out<CUDA_MEMCPY3D>) |driver| {
        let words = driver.with_node(node(handle), |kind| match kind {
            Kind::Copy(copy) => Some(copy.words),
            _ => None,
        })?;
        Out::at(params.address().cast::<[u64; 25]>()).set(words)
    };

    cuGraphMemcpyNodeSetParams(handle: CUgraphNode, params: In<CUDA_MEMCPY3D>) |driver| {
        let context = driver.with_node(node(handle), |kind| match kind {
            Kind::Copy(copy) => Some(copy.context),
            _ => None,
        })?;
        driver.set_node_kind(node(handle), Kind::Copy(Box::new(driver.copy_node(&params, context)?)))
    };

    cuGraphMemsetNodeGetParams(handle: CUgraphNode, params: Out<CUDA_MEMSET_NODE_PARAMS>)
        |driver| params.set(driver.with_node(node(handle), |kind| match kind {
            Kind::Set(set) => Some(set.params()),
            _ => None,
        })?);

    cuGraphMemsetNodeSetParams(handle: CUgraphNode, params: In<CUDA_MEMSET_NODE_PARAMS>) |driver| {
        let context = driver.with_node(node(handle), |kind| match kind {
            Kind::Set(set) => Some(set.context),
            _ => None,
        })?;
        driver.set_node_kind(node(handle), Kind::Set(driver.set_node(&params.get()?, context)?))
    };

    cuGraphHostNodeGetParams(handle: CUgraphNode, params: Out<CUDA_HOST_NODE_PARAMS>)
        |driver| params.set(driver.with_node(node(handle), |kind| match kind {
            Kind::Host(function) => Some(function.params()),
            _ => None,
        })?);

    cuGraphHostNodeSetParams(handle: CUgraphNode, params: In<CUDA_HOST_NODE_PARAMS>)
        |driver| driver.set_node_kind(node(handle), host(&params)?);

    cuGraphEventRecordNodeGetEvent(handle: CUgraphNode, to: Out<CUevent>)
        |driver| to.set(driver.with_node(node(handle), |kind| match kind {
            Kind::Record(event) => Some(event_handle(*event)),
            _ => None,
        })?);

    cuGraphEventRecordNodeSetEvent(handle: CUgraphNode, other: CUevent)
        |driver| driver.set_node_kind(node(handle), Kind::Record(event(driver, other)?));

    cuGraphEventWaitNodeGetEvent(handle: CUgraphNode, to: Out<CUevent>)
        |driver| to.set(driver.with_node(node(handle), |kind| match kind {
            Kind::Wait(event) => Some(event_handle(*event)),
            _ => None,
        })?);

    cuGraphEventWaitNodeSetEvent(handle: CUgraphNode, other: CUevent)
        |driver| driver.set_node_kind(node(handle), Kind::Wait(event(driver, other)?));

    cuGraphMemAllocNodeGetParams(handle: CUgraphNode, params: Out<CUDA_MEM_ALLOC_NODE_PARAMS>) |driver| {
        let address = driver.with_node(node(handle), |kind| match kind {
            Kind::Allocate(address) => Some(*address),
            _ => None,
        })?;
        let bytes = driver.graph_block_bytes(address).ok_or(CUresult::INVALID_VALUE)?;
        params.set(CUDA_MEM_ALLOC_NODE_PARAMS {
            // CUmemPoolProps: pinned memory of device 0.
            pool_props: [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            access_descs: std::ptr::null(),
            access_desc_count: 0,
            bytesize: bytes as usize,
            dptr: CUdeviceptr(address),
        })
    };

    cuGraphMemFreeNodeGetParams(handle: CUgraphNode, to: Out<CUdeviceptr>)
        |driver| to.set(driver.with_node(node(handle), |kind| match kind {
            Kind::Free(address) => Some(CUdeviceptr(*address)),
            _ => None,
        })?);

    cuGraphNodeSetParams(handle: CUgraphNode, params: Out<CUgraphNodeParams>)
        |driver| match any_kind(driver, &params)? {
            Kind::Child(_) => Err(CUresult::NOT_SUPPORTED),
            kind => driver.set_node_kind(node(handle), kind),
        };
}

fn kernel_params(
    driver: &Driver,
    handle: CUgraphNode,
) -> Result<CUDA_KERNEL_NODE_PARAMS, CUresult> {
    driver.with_node(node(handle), |kind| match kind {
        Kind::Kernel(kernel) => Some(kernel.params()),
        _ => None,
    })
}

fn event_handle(event: u64) -> CUevent {
    CUevent(std::ptr::without_provenance_mut(event as usize))
}
