//! Graphs: nodes with dependencies, made one by one or recorded by a capture. A graph consists of
//! handles in tables, like everything in the driver. A launch runs an *executable* made from it
//! ([`exec`]): a copy, with a sequential order of its nodes. **Memory nodes.** An allocation node's
//! memory is allocated when the node is made, and belongs to the graph until graph and executable
//! are destroyed; a launch only marks its use. CUDA reserves addresses then, memory at the launch.

pub(crate) mod build;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod objects;
pub(crate) mod query;
pub(crate) mod update;

use std::collections::HashMap;

use abi::types::{CUgraphEdgeData, CUgraphNodeType, CUresult};
use softgpu::wire::GRAPHS;

use self::exec::Exec;
use self::memory::GraphMemory;
use self::nodes::{CopyNode, KernelNode, SetNode};
use self::objects::UserObject;
use crate::host_calls::HostFunction;

/// Most nodes of one graph, child graphs not counted.
const NODES_MAX: usize = 1 << 18;

#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: HashMap<u64, Graph>,
    pub(crate) nodes: HashMap<u64, Node>,
    pub(crate) execs: HashMap<u64, Exec>,
    pub(crate) memory: GraphMemory,
    pub(crate) objects: HashMap<u64, UserObject>,
    slots: HashMap<usize, ExecSlots>,
}

#[derive(Debug, Default)]
struct ExecSlots {
    used: u32,
    free: Vec<u32>,
}

/// Nodes and edges, in order of creation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<u64>,
    pub(crate) edges: Vec<Edge>,
    /// In a clone: its node for each node of the original.
    pub(crate) clone_of: HashMap<u64, u64>,
    pub(crate) is_child: bool,
    pub(crate) objects: HashMap<u64, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) data: CUgraphEdgeData,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) graph: u64,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Kernel(Box<KernelNode>),
    Copy(Box<CopyNode>),
    Set(SetNode),
    Host(HostFunction),
    /// Runs the graph of this handle, which the node owns.
    Child(u64),
    Empty,
    Wait(u64),
    Record(u64),
    Allocate(u64),
    Free(u64),
}

impl Kind {
    pub(crate) fn number(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CUgraphNodeType::KERNEL,
            Self::Copy(_) => CUgraphNodeType::MEMCPY,
            Self::Set(_) => CUgraphNodeType::MEMSET,
            Self::Host(_) => CUgraphNodeType::HOST,
            Self::Child(_) => CUgraphNodeType::GRAPH,
            Self::Empty => CUgraphNodeType::EMPTY,
            Self::Wait(_) => CUgraphNodeType::WAIT_EVENT,
            Self::Record(_) => CUgraphNodeType::EVENT_RECORD,
            Self::Allocate(_) => CUgraphNodeType::MEM_ALLOC,
            Self::Free(_) => CUgraphNodeType::MEM_FREE,
        }
    }
}

impl Graphs {
    pub(crate) fn graph(&self, graph: u64) -> Result<&Graph, CUresult> {
        self.graphs.get(&graph).ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn graph_mut(&mut self, graph: u64) -> Result<&mut Graph, CUresult> {
        self.graphs.get_mut(&graph).ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn node(&self, node: u64) -> Result<&Node, CUresult> {
        self.nodes.get(&node).ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn node_mut(&mut self, node: u64) -> Result<&mut Node, CUresult> {
        self.nodes.get_mut(&node).ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn exec_mut(&mut self, exec: u64) -> Result<&mut Exec, CUresult> {
        self.execs.get_mut(&exec).ok_or(CUresult::INVALID_VALUE)
    }

    /// Adds a node under an unused handle.
    pub(crate) fn add(
        &mut self,
        handle: u64,
        graph: u64,
        dependencies: &[u64],
        kind: Kind,
    ) -> Result<(), CUresult> {
        let target = self.graph(graph)?;
        if target.nodes.len() >= NODES_MAX {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        for (index, dependency) in dependencies.iter().enumerate() {
            let is_of_graph = self
                .nodes
                .get(dependency)
                .is_some_and(|node| node.graph == graph);
            if !is_of_graph || dependencies[..index].contains(dependency) {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        self.nodes.insert(handle, Node { graph, kind });
        let target = self.graph_mut(graph)?;
        target.nodes.push(handle);
        target.edges.extend(dependencies.iter().map(|&from| Edge {
            from,
            to: handle,
            data: CUgraphEdgeData::default(),
        }));
        Ok(())
    }

    /// Removes a graph and its contents. Returns the addresses of its memory nodes, of which it may
    /// have been the last owner, and its user objects.
    pub(crate) fn remove(&mut self, graph: u64, ended: &mut Ended) {
        let Some(removed) = self.graphs.remove(&graph) else {
            return;
        };
        for node in removed.nodes {
            match self.nodes.remove(&node).map(|node| node.kind) {
                Some(Kind::Child(child)) => self.remove(child, ended),
                Some(Kind::Allocate(address)) => ended.addresses.push(address),
                _ => {}
            }
        }
        ended.objects.extend(removed.objects);
    }

    /// Whether a graph, child graphs included, allocates or frees.
    pub(crate) fn has_memory(&self, graph: u64) -> bool {
        let Ok(graph) = self.graph(graph) else {
            return false;
        };
        graph
            .nodes
            .iter()
            .any(|node| match self.nodes.get(node).map(|node| &node.kind) {
                Some(Kind::Allocate(_) | Kind::Free(_)) => true,
                Some(Kind::Child(child)) => self.has_memory(*child),
                _ => false,
            })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) addresses: Vec<u64>,
    pub(crate) objects: Vec<(u64, u32)>,
}

impl Graphs {
    /// Takes a slot of a device; slots are counted over all devices.
    fn take_slot(&mut self, device: usize) -> Result<u32, CUresult> {
        let slots = self.slots.entry(device).or_default();
        if let Some(slot) = slots.free.pop() {
            return Ok(slot);
        }
        if slots.used as usize >= GRAPHS {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        slots.used += 1;
        Ok((device * GRAPHS) as u32 + slots.used - 1)
    }

    fn release_slot(&mut self, slot: u32) {
        let slots = self.slots.entry(slot as usize / GRAPHS).or_default();
        slots.free.push(slot);
    }
}

impl Graph {
    pub(crate) fn dependencies(&self) -> Vec<Vec<usize>> {
        let places: HashMap<u64, usize> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(place, &node)| (node, place))
            .collect();
        let mut before = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            if let (Some(&from), Some(&to)) = (places.get(&edge.from), places.get(&edge.to)) {
                before[to].push(from);
            }
        }
        before
    }
}

/// The order in which nodes run: each after its dependencies, the earliest created first. `None`
/// for a cycle.
pub(crate) fn order(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after = vec![Vec::new(); before.len()];
    for (node, dependencies) in before.iter().enumerate() {
        for &dependency in dependencies {
            after[dependency].push(node);
        }
    }
    let mut ready: std::collections::BTreeSet<usize> = (0..before.len())
        .filter(|&node| missing[node] == 0)
        .collect();
    let mut order = Vec::with_capacity(before.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for &next in &after[node] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.insert(next);
            }
        }
    }
    (order.len() == before.len()).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_run_after_what_they_depend_on_and_a_circle_has_no_order() {
        assert_eq!(order(&[vec![2], vec![0], vec![]]), Some(vec![2, 0, 1]));
        assert_eq!(order(&[vec![], vec![], vec![0, 1]]), Some(vec![0, 1, 2]));
        assert_eq!(order(&[vec![1], vec![0]]), None);
        assert_eq!(order(&[]), Some(vec![]));
    }
}
