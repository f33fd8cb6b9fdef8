//! Graphs as a whole: creation, queries, dependencies.

use std::ffi::c_uint;

use abi::types::{
    CUdevice, CUgraph, CUgraphEdgeData, CUgraphMem_attribute, CUgraphNode, CUgraphNodeType,
    CUresult,
};

use super::exports;
use crate::driver::Driver;
use crate::graphs::Kind;
use crate::raw::{In, Out};

/// Most dependencies of one call; as many as a graph may have nodes.
const COUNT_MAX: usize = 1 << 18;

pub(super) fn graph(handle: CUgraph) -> u64 {
    handle.0.addr() as u64
}

pub(super) fn graph_handle(graph: u64) -> CUgraph {
    CUgraph(std::ptr::without_provenance_mut(graph as usize))
}

pub(super) fn node(handle: CUgraphNode) -> u64 {
    handle.0.addr() as u64
}

pub(super) fn node_handle(node: u64) -> CUgraphNode {
    CUgraphNode(std::ptr::without_provenance_mut(node as usize))
}

pub(super) fn nodes_of(nodes: &In<CUgraphNode>, count: usize) -> Result<Vec<u64>, CUresult> {
    if count > COUNT_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    (0..count).map(|index| Ok(node(nodes.at(index)?))).collect()
}

/// Edge data of each dependency. Only the default is supported.
pub(super) fn edge_data(
    data: &In<CUgraphEdgeData>,
    count: usize,
) -> Result<Vec<CUgraphEdgeData>, CUresult> {
    if count > COUNT_MAX {
        return Err(CUresult::INVALID_VALUE);
    }
    if data.is_null() {
        return Ok(vec![CUgraphEdgeData::default(); count]);
    }
    let data: Vec<_> = (0..count)
        .map(|index| data.at(index))
        .collect::<Result<_, _>>()?;
    if data.iter().all(|data| *data == CUgraphEdgeData::default()) {
        Ok(data)
    } else {
        Err(CUresult::NOT_SUPPORTED)
    }
}

/// Returns a list: its length if no array is given, else as many items as fit, padded with null.
fn list(items: &[u64], to: &Out<CUgraphNode>, count: &Out<usize>) -> Result<(), CUresult> {
    let room = count.get()?;
    if to.is_null() {
        return count.set(items.len());
    }
    for index in 0..room.min(COUNT_MAX) {
        let item = items.get(index).copied().unwrap_or(0);
        to.set_at(index, node_handle(item))?;
    }
    count.set(items.len().min(room))
}

fn list_edges(
    driver: &Driver,
    of: CUgraph,
    from: &Out<CUgraphNode>,
    to: &Out<CUgraphNode>,
    data: Option<&Out<CUgraphEdgeData>>,
    count: &Out<usize>,
) -> Result<(), CUresult> {
    let edges = driver.graph_edges(graph(of))?;
    if from.is_null() != to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let room = count.get()?;
    for (index, &(_, _, edge)) in edges.iter().enumerate().take(room) {
        if let Some(data) = data.filter(|data| !data.is_null()) {
            data.set_at(index, edge)?;
        }
    }
    let [froms, tos]: [Vec<u64>; 2] = [
        edges.iter().map(|edge| edge.0).collect(),
        edges.iter().map(|edge| edge.1).collect(),
    ];
    list(&froms, from, count)?;
    count.set(room)?;
    list(&tos, to, count)
}

fn list_neighbours(
    driver: &Driver,
    of: CUgraphNode,
    before: bool,
    to: &Out<CUgraphNode>,
    data: Option<&Out<CUgraphEdgeData>>,
    count: &Out<usize>,
) -> Result<(), CUresult> {
    let nodes = driver.node_neighbours(node(of), before)?;
    if let Some(data) = data.filter(|data| !data.is_null()) {
        for index in 0..nodes.len().min(count.get()?) {
            data.set_at(index, CUgraphEdgeData::default())?;
        }
    }
    list(&nodes, to, count)
}

fn edges_of(
    from: &In<CUgraphNode>,
    to: &In<CUgraphNode>,
    data: Vec<CUgraphEdgeData>,
) -> Result<Vec<(u64, u64, CUgraphEdgeData)>, CUresult> {
    let each = data.into_iter().enumerate();
    each.map(|(index, data)| Ok((node(from.at(index)?), node(to.at(index)?), data)))
        .collect()
}

fn plain(count: usize) -> Result<Vec<CUgraphEdgeData>, CUresult> {
    edge_data(&In::member(std::ptr::null()), count)
}

exports! {
    cuGraphCreate(to: Out<CUgraph>, flags: c_uint) |driver| {
        if to.is_null() || flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        to.set(graph_handle(driver.create_graph()))
    };

    cuGraphDestroy(handle: CUgraph) |driver| driver.destroy_graph(graph(handle));

    cuGraphClone(to: Out<CUgraph>, original: CUgraph) |driver| {
        if to.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        to.set(graph_handle(driver.clone_graph(graph(original))?))
    };

    cuGraphGetNodes(handle: CUgraph, to: Out<CUgraphNode>, count: Out<usize>)
        |driver| list(&driver.graph_nodes(graph(handle))?, &to, &count);

    cuGraphGetRootNodes(handle: CUgraph, to: Out<CUgraphNode>, count: Out<usize>)
        |driver| list(&driver.graph_roots(graph(handle))?, &to, &count);

    cuGraphGetEdges(handle: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>)
        |driver| list_edges(driver, handle, &from, &to, None, &count);

    cuGraphGetEdges_v2(
        handle: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>,
    ) |driver| list_edges(driver, handle, &from, &to, Some(&data), &count);

    cuGraphAddDependencies(handle: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize)
        |driver| driver.add_edges(graph(handle), &edges_of(&from, &to, plain(count)?)?);

    cuGraphAddDependencies_v2(
        handle: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize,
    ) |driver| driver.add_edges(graph(handle), &edges_of(&from, &to, edge_data(&data, count)?)?);

    cuGraphRemoveDependencies(handle: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize)
        |driver| driver.remove_edges(graph(handle), &edges_of(&from, &to, plain(count)?)?);

    cuGraphRemoveDependencies_v2(
        handle: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<CUgraphEdgeData>, count: usize,
    ) |driver| driver.remove_edges(graph(handle), &edges_of(&from, &to, edge_data(&data, count)?)?);

    cuGraphNodeGetType(handle: CUgraphNode, kind: Out<CUgraphNodeType>)
        |driver| kind.set(driver.node_kind(node(handle))?.number());

    cuGraphNodeGetDependencies(handle: CUgraphNode, to: Out<CUgraphNode>, count: Out<usize>)
        |driver| list_neighbours(driver, handle, true, &to, None, &count);

    cuGraphNodeGetDependencies_v2(
        handle: CUgraphNode, to: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>,
    ) |driver| list_neighbours(driver, handle, true, &to, Some(&data), &count);

    cuGraphNodeGetDependentNodes(handle: CUgraphNode, to: Out<CUgraphNode>, count: Out<usize>)
        |driver| list_neighbours(driver, handle, false, &to, None, &count);

    cuGraphNodeGetDependentNodes_v2(
        handle: CUgraphNode, to: Out<CUgraphNode>, data: Out<CUgraphEdgeData>, count: Out<usize>,
    ) |driver| list_neighbours(driver, handle, false, &to, Some(&data), &count);

    cuGraphNodeFindInClone(to: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph)
        |driver| to.set(node_handle(driver.node_in_clone(node(original), graph(clone))?));

    cuGraphNodeGetContainingGraph(handle: CUgraphNode, to: Out<CUgraph>)
        |driver| to.set(graph_handle(driver.node_graph(node(handle))?));

    cuGraphDestroyNode(handle: CUgraphNode) |driver| driver.destroy_node(node(handle));

    cuGraphChildGraphNodeGetGraph(handle: CUgraphNode, to: Out<CUgraph>)
        |driver| match driver.node_kind(node(handle))? {
            Kind::Child(child) => to.set(graph_handle(child)),
            _ => Err(CUresult::INVALID_VALUE),
        };

    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: Out<u64>) |driver| {
        driver.check_device(device)?;
        value.set(driver.tables.lock().graphs.memory.attribute(attribute)?)
    };

    cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: In<u64>) |driver| {
        driver.check_device(device)?;
        driver.tables.lock().graphs.memory.set_attribute(attribute, value.get()?)
    };

    // Memory that no graph uses any more is freed at once, so there is nothing to trim.
    cuDeviceGraphMemTrim(device: CUdevice) |driver| driver.check_device(device).map(drop);
}
