//! Creating and changing graphs.

use std::collections::HashMap;

use abi::types::{CUgraphEdgeData, CUresult};

use super::{Edge, Ended, Graph, Graphs, Kind};
use crate::driver::Driver;
use crate::tables::Tables;

impl Driver {
    pub(crate) fn create_graph(&self) -> u64 {
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.graphs.graphs.insert(handle, Graph::default());
        handle
    }

    pub(crate) fn destroy_graph(&'static self, graph: u64) -> Result<(), CUresult> {
        let mut ended = Ended::default();
        {
            let mut tables = self.tables.lock();
            if tables.graphs.graph(graph)?.is_child || tables.captures.owns(graph) {
                return Err(CUresult::INVALID_VALUE);
            }
            tables.graphs.remove(graph, &mut ended);
        }
        self.handle_ended(ended)
    }

    /// Adds a node; returns its handle. Child graphs are copied.
    pub(crate) fn add_node(
        &self,
        graph: u64,
        dependencies: &[u64],
        kind: Kind,
    ) -> Result<u64, CUresult> {
        self.tables.lock().add_node(graph, dependencies, kind)
    }

    pub(crate) fn clone_graph(&self, original: u64) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        if tables.graphs.has_memory(original) {
            return Err(CUresult::NOT_SUPPORTED);
        }
        tables.clone_graph(original)
    }

    pub(crate) fn destroy_node(&'static self, node: u64) -> Result<(), CUresult> {
        let mut ended = Ended::default();
        {
            let graphs = &mut self.tables.lock().graphs;
            let graph = graphs.node(node)?.graph;
            match graphs.node(node)?.kind {
                Kind::Allocate(_) | Kind::Free(_) => return Err(CUresult::NOT_SUPPORTED),
                Kind::Child(child) => graphs.remove(child, &mut ended),
                _ => {}
            }
            graphs.nodes.remove(&node);
            let graph = graphs.graph_mut(graph)?;
            graph.nodes.retain(|&other| other != node);
            graph
                .edges
                .retain(|edge| edge.from != node && edge.to != node);
        }
        self.handle_ended(ended)
    }

    pub(crate) fn add_edges(
        &self,
        graph: u64,
        edges: &[(u64, u64, CUgraphEdgeData)],
    ) -> Result<(), CUresult> {
        let graphs = &mut self.tables.lock().graphs;
        check_ends(graphs, graph, edges)?;
        let known = &mut graphs.graph_mut(graph)?.edges;
        for (index, &(from, to, data)) in edges.iter().enumerate() {
            let is_same = |edge: &Edge| (edge.from, edge.to) == (from, to);
            let is_twice = edges[..index]
                .iter()
                .any(|edge| (edge.0, edge.1) == (from, to));
            if from == to || is_twice || known.iter().any(is_same) {
                return Err(CUresult::INVALID_VALUE);
            }
            if data != CUgraphEdgeData::default() {
                return Err(CUresult::NOT_SUPPORTED);
            }
        }
        known.extend(
            edges
                .iter()
                .map(|&(from, to, data)| Edge { from, to, data }),
        );
        Ok(())
    }

    pub(crate) fn remove_edges(
        &self,
        graph: u64,
        edges: &[(u64, u64, CUgraphEdgeData)],
    ) -> Result<(), CUresult> {
        let graphs = &mut self.tables.lock().graphs;
        check_ends(graphs, graph, edges)?;
        let known = &mut graphs.graph_mut(graph)?.edges;
        let is_there = |&(from, to, _): &(u64, u64, CUgraphEdgeData)| {
            known.iter().any(|edge| (edge.from, edge.to) == (from, to))
        };
        if !edges.iter().all(is_there) {
            return Err(CUresult::INVALID_VALUE);
        }
        known.retain(|edge| {
            !edges
                .iter()
                .any(|&(from, to, _)| (edge.from, edge.to) == (from, to))
        });
        Ok(())
    }

    pub(crate) fn set_node_kind(&self, node: u64, kind: Kind) -> Result<(), CUresult> {
        let graphs = &mut self.tables.lock().graphs;
        let node = graphs.node_mut(node)?;
        match (&mut node.kind, kind) {
            (Kind::Kernel(before), Kind::Kernel(mut after)) => {
                after.options = before.options;
                *before = after;
            }
            (before, after) if before.number() == after.number() => *before = after,
            _ => return Err(CUresult::INVALID_VALUE),
        }
        Ok(())
    }
}

fn check_ends(
    graphs: &Graphs,
    graph: u64,
    edges: &[(u64, u64, CUgraphEdgeData)],
) -> Result<(), CUresult> {
    graphs.graph(graph)?;
    let is_of_graph = |node: u64| graphs.node(node).is_ok_and(|node| node.graph == graph);
    if edges
        .iter()
        .all(|&(from, to, _)| is_of_graph(from) && is_of_graph(to))
    {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

impl Tables {
    pub(crate) fn add_node(
        &mut self,
        graph: u64,
        dependencies: &[u64],
        kind: Kind,
    ) -> Result<u64, CUresult> {
        let kind = match kind {
            Kind::Child(original) => {
                if original == graph {
                    return Err(CUresult::INVALID_VALUE);
                }
                if self.graphs.has_memory(original) {
                    return Err(CUresult::NOT_SUPPORTED);
                }
                let child = self.clone_graph(original)?;
                self.graphs.graph_mut(child)?.is_child = true;
                Kind::Child(child)
            }
            other => other,
        };
        let handle = self.new_handle();
        self.graphs.add(handle, graph, dependencies, kind)?;
        Ok(handle)
    }

    pub(crate) fn clone_graph(&mut self, original: u64) -> Result<u64, CUresult> {
        let from = self.graphs.graph(original)?.clone();
        let handle = self.new_handle();
        let mut clone_of = HashMap::new();
        let mut nodes = Vec::with_capacity(from.nodes.len());
        for node in from.nodes {
            let kind = match self.graphs.node(node)?.kind.clone() {
                Kind::Child(child) => {
                    let child = self.clone_graph(child)?;
                    self.graphs.graph_mut(child)?.is_child = true;
                    Kind::Child(child)
                }
                other => other,
            };
            let own = self.new_handle();
            let graph = handle;
            self.graphs.nodes.insert(own, super::Node { graph, kind });
            nodes.push(own);
            clone_of.insert(node, own);
        }
        let edges = from.edges.iter().map(|edge| Edge {
            from: clone_of[&edge.from],
            to: clone_of[&edge.to],
            data: edge.data,
        });
        let graph = Graph {
            nodes,
            edges: edges.collect(),
            clone_of,
            is_child: false,
            objects: from.objects.clone(),
        };
        for (&object, &count) in &from.objects {
            self.graphs.retain_object(object, count);
        }
        self.graphs.graphs.insert(handle, graph);
        Ok(handle)
    }
}
