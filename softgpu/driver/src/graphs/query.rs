//! Queries about graphs.

use abi::types::{CUgraphEdgeData, CUresult};

use super::Kind;
use super::nodes::KernelNode;
use crate::driver::Driver;

impl Driver {
    pub(crate) fn graph_nodes(&self, graph: u64) -> Result<Vec<u64>, CUresult> {
        Ok(self.tables.lock().graphs.graph(graph)?.nodes.clone())
    }

    pub(crate) fn graph_roots(&self, graph: u64) -> Result<Vec<u64>, CUresult> {
        let tables = self.tables.lock();
        let graph = tables.graphs.graph(graph)?;
        let is_root = |node: &&u64| !graph.edges.iter().any(|edge| edge.to == **node);
        Ok(graph.nodes.iter().filter(is_root).copied().collect())
    }

    pub(crate) fn graph_edges(
        &self,
        graph: u64,
    ) -> Result<Vec<(u64, u64, CUgraphEdgeData)>, CUresult> {
        let tables = self.tables.lock();
        let edges = &tables.graphs.graph(graph)?.edges;
        Ok(edges
            .iter()
            .map(|edge| (edge.from, edge.to, edge.data))
            .collect())
    }

    pub(crate) fn node_neighbours(&self, node: u64, before: bool) -> Result<Vec<u64>, CUresult> {
        let tables = self.tables.lock();
        let graph = tables.graphs.graph(tables.graphs.node(node)?.graph)?;
        let neighbour = |edge: &super::Edge| match before {
            true if edge.to == node => Some(edge.from),
            false if edge.from == node => Some(edge.to),
            _ => None,
        };
        Ok(graph.edges.iter().filter_map(neighbour).collect())
    }

    pub(crate) fn node_kind(&self, node: u64) -> Result<Kind, CUresult> {
        Ok(self.tables.lock().graphs.node(node)?.kind.clone())
    }

    /// Runs `look` on a node's own parameters, whose addresses it may keep.
    pub(crate) fn with_node<T>(
        &self,
        node: u64,
        look: impl FnOnce(&Kind) -> Option<T>,
    ) -> Result<T, CUresult> {
        let tables = self.tables.lock();
        look(&tables.graphs.node(node)?.kind).ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn change_kernel(
        &self,
        node: u64,
        change: impl FnOnce(&mut KernelNode),
    ) -> Result<(), CUresult> {
        match &mut self.tables.lock().graphs.node_mut(node)?.kind {
            Kind::Kernel(kernel) => {
                change(kernel);
                Ok(())
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn node_graph(&self, node: u64) -> Result<u64, CUresult> {
        Ok(self.tables.lock().graphs.node(node)?.graph)
    }

    pub(crate) fn node_in_clone(&self, original: u64, clone: u64) -> Result<u64, CUresult> {
        let tables = self.tables.lock();
        let found = tables.graphs.graph(clone)?.clone_of.get(&original).copied();
        found
            .filter(|&node| tables.graphs.node(node).is_ok())
            .ok_or(CUresult::INVALID_VALUE)
    }
}
