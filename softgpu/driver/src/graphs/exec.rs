//! Executable graphs: instantiated from a graph, sent to the server, launched.

use abi::types::{CUgraphInstantiate_flags as Flags, CUresult};
use softgpu::CopyDirection;
use softgpu::wire::{Command, GRAPH_NODES_MAX, GRAPHS, Work};

use super::nodes::CopyNode;
use super::{Ended, Graph, Kind, Node, order};
use crate::cost::SUBMIT_HOST_NS;
use crate::driver::Driver;
use crate::host_calls::HostWork;
use crate::link::{Link, Live, first_stream_of};
use crate::memory::Place;
use crate::tables::{Event, Point, Stream, Tables};
use crate::trace::Traced;

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) slot: u32,
    /// The graph that it was made from, perhaps destroyed since.
    pub(crate) graph: u64,
    pub(crate) flags: u64,
    pub(crate) nodes: Vec<ExecNode>,
    pub(crate) plan: Plan,
    /// Its last launch, which the next one follows.
    last: Option<Point>,
    objects: Vec<(u64, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ExecNode {
    pub(crate) node: u64,
    pub(crate) kind: Kind,
    pub(crate) is_enabled: bool,
    pub(crate) before: Vec<usize>,
    /// For a child graph node, the nodes of its graph.
    pub(crate) child: Vec<Self>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    works: Vec<Work>,
    kernels: Vec<Traced>,
    /// Host calls, in the order of their numbers.
    calls: Vec<HostWork>,
    records: Vec<u64>,
    waits: Vec<u64>,
    /// Memory allocated and freed, in order.
    memory: Vec<MemoryStep>,
    /// Parts of the host arena for copies from and to pageable memory.
    staged: Vec<u64>,
}

/// A memory node's effect on the block at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryStep {
    Allocate(u64),
    Free(u64),
}

/// All valid flags of an instantiation.
const FLAGS: u64 = Flags::AUTO_FREE_ON_LAUNCH.0 as u64
    | Flags::UPLOAD.0 as u64
    | Flags::USE_NODE_PRIORITY.0 as u64;

impl Driver {
    pub(crate) fn instantiate(&self, graph: u64, flags: u64) -> Result<u64, CUresult> {
        if flags & u64::from(Flags::DEVICE_LAUNCH.0) != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        if flags & !FLAGS != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let (nodes, objects) = {
            let mut tables = self.tables.lock();
            let graphs = &mut tables.graphs;
            let is_busy = graphs.execs.values().any(|exec| exec.graph == graph);
            if graphs.has_memory(graph) && is_busy {
                return Err(CUresult::INVALID_VALUE);
            }
            let nodes = exec_nodes(&tables, graph)?;
            let graphs = &mut tables.graphs;
            let objects: Vec<_> = graphs.graph(graph)?.objects.clone().into_iter().collect();
            for &(object, count) in &objects {
                graphs.retain_object(object, count);
            }
            (nodes, objects)
        };
        let plan = self.plan(&nodes)?;
        let device = self.device_of_nodes(&nodes)?;
        let (handle, slot) = {
            let mut tables = self.tables.lock();
            let slot = tables.graphs.take_slot(device)?;
            let handle = tables.new_handle();
            tables.graphs.memory.retain(&plan.memory);
            let exec = Exec {
                slot,
                graph,
                flags,
                nodes,
                plan: plan.clone(),
                last: None,
                objects,
            };
            tables.graphs.execs.insert(handle, exec);
            (handle, slot)
        };
        self.put_plan(slot, &plan)?;
        Ok(handle)
    }

    pub(crate) fn change_exec(
        &self,
        handle: u64,
        change: impl FnOnce(&mut Vec<ExecNode>) -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let mut nodes = self.tables.lock().graphs.exec_mut(handle)?.nodes.clone();
        change(&mut nodes)?;
        let plan = self.plan(&nodes)?;
        let (slot, staged, last) = {
            let mut tables = self.tables.lock();
            let exec = tables.graphs.exec_mut(handle)?;
            let staged = std::mem::take(&mut exec.plan.staged);
            (exec.nodes, exec.plan) = (nodes, plan.clone());
            (exec.slot, staged, exec.last)
        };
        self.give_back_staged(staged, last);
        self.put_plan(slot, &plan)
    }

    pub(crate) fn destroy_exec(&'static self, handle: u64) -> Result<(), CUresult> {
        let mut ended = Ended::default();
        let exec = {
            let mut tables = self.tables.lock();
            let graphs = &mut tables.graphs;
            let exec = graphs.execs.remove(&handle);
            let exec = exec.ok_or(CUresult::INVALID_VALUE)?;
            ended.addresses = exec.plan.allocated();
            ended.objects.clone_from(&exec.objects);
            exec
        };
        self.put(
            first_stream_of(exec.device()),
            &Command::GraphClear { graph: exec.slot },
        )?;
        self.tables.lock().graphs.release_slot(exec.slot);
        self.give_back_staged(exec.plan.staged, exec.last);
        self.handle_ended(ended)
    }

    /// Launches an executable on a stream, or records it there as a child graph.
    pub(crate) fn launch_graph(
        &'static self,
        handle: u64,
        stream: &Stream,
    ) -> Result<(), CUresult> {
        let captured = self.try_capture(stream, |tables| {
            let nodes = tables.graphs.exec_mut(handle)?.nodes.clone();
            let graph = graph_of(tables, &nodes);
            Ok(Kind::Child(graph))
        })?;
        if captured {
            return Ok(());
        }
        let (slot, plan, last, auto_free) = {
            let mut tables = self.tables.lock();
            let exec = tables.graphs.exec_mut(handle)?;
            let auto_free = exec.flags & u64::from(Flags::AUTO_FREE_ON_LAUNCH.0) != 0;
            (exec.slot, exec.plan.clone(), exec.last, auto_free)
        };
        // An executable of one device cannot be launched on another.
        if self.context(stream.context)?.device != slot as usize / GRAPHS {
            return Err(CUresult::INVALID_VALUE);
        }
        for &event in &plan.waits {
            self.wait_event(stream, event, false)?;
        }
        // Launches of an executable do not overlap.
        if let Some(last) = last
            && last.stream != stream.slot
            && !self.link.is_complete(last.stream, last.seq)
        {
            let work = Work::Wait {
                other: last.stream,
                other_seq: last.seq,
            };
            self.submit(stream, work)?;
        }
        self.check_submit(stream)?;
        let mut tables = self.tables.lock();
        tables.graphs.memory.launch(&plan.memory, auto_free)?;
        let record = tables.record_last + 1;
        tables.record_last += plan.records.len() as u64;
        drop(tables);
        let device = slot as usize / GRAPHS;
        let call = self.host_calls.expect(self, device, &plan.calls)?;
        let work = Work::GraphLaunch {
            graph: slot,
            record,
            call,
        };
        let point = self.submit(stream, work)?;
        if self.is_tracing() {
            self.note_put(stream, plan.kernels);
        }
        let mut tables = self.tables.lock();
        for event in &plan.records {
            if let Some(event) = tables.events.get_mut(event) {
                event.last = Some(point);
            }
        }
        if let Ok(exec) = tables.graphs.exec_mut(handle) {
            exec.last = Some(point);
        }
        drop(tables);
        self.link.spend(SUBMIT_HOST_NS);
        Ok(())
    }

    /// The device of the nodes: that of the first node with a context, or the current one.
    fn device_of_nodes(&self, nodes: &[ExecNode]) -> Result<usize, CUresult> {
        let context = nodes.iter().find_map(|node| match &node.kind {
            Kind::Kernel(kernel) => Some(kernel.context),
            Kind::Copy(copy) => Some(copy.context),
            Kind::Set(set) => Some(set.context),
            _ => None,
        });
        match context {
            Some(context) => Ok(self.context(context)?.device),
            None => Ok(self.current().map_or(0, |(_, context)| context.device)),
        }
    }

    fn give_back_staged(&self, staged: Vec<u64>, last: Option<Point>) {
        for offset in staged {
            match last {
                Some(last) => self.staged_until(offset, last),
                None => self.unstage(offset),
            }
        }
    }

    fn put_plan(&self, slot: u32, plan: &Plan) -> Result<(), CUresult> {
        let stream = first_stream_of(slot as usize / GRAPHS);
        self.put(stream, &Command::GraphClear { graph: slot })?;
        for &work in &plan.works {
            let node = Command::GraphNode { graph: slot, work };
            self.put(stream, &node)?;
        }
        Ok(())
    }

    fn plan(&self, nodes: &[ExecNode]) -> Result<Plan, CUresult> {
        let mut plan = Plan::default();
        let planned = match &self.link {
            Link::Live(live) => self.plan_nodes(live, nodes, &mut plan),
            Link::Null => Ok(()),
        };
        if let Err(error) = planned {
            self.give_back_staged(plan.staged, None);
            return Err(error);
        }
        Ok(plan)
    }

    fn plan_nodes(&self, live: &Live, nodes: &[ExecNode], plan: &mut Plan) -> Result<(), CUresult> {
        let before: Vec<_> = nodes.iter().map(|node| node.before.clone()).collect();
        let order = order(&before).ok_or(CUresult::INVALID_VALUE)?;
        for node in order.into_iter().map(|place| &nodes[place]) {
            if node.is_enabled {
                self.plan_node(live, node, plan)?;
            }
            if plan.works.len() > GRAPH_NODES_MAX / 2 {
                return Err(CUresult::OUT_OF_MEMORY);
            }
        }
        Ok(())
    }

    fn plan_node(&self, live: &Live, node: &ExecNode, plan: &mut Plan) -> Result<(), CUresult> {
        match &node.kind {
            Kind::Empty => {}
            Kind::Child(_) => self.plan_nodes(live, &node.child, plan)?,
            Kind::Kernel(kernel) => {
                plan.works.push(Work::Launch {
                    priority: kernel.options.priority,
                    shape: kernel.shape,
                    builtin: kernel.builtin,
                    params: *kernel.values,
                });
                // A kernel of an unloaded module has no name.
                let function = self.launchable(kernel.function, kernel.context);
                let name = function.map(|function| function.name).unwrap_or_default();
                let sizes = (kernel.grid, kernel.block);
                let dynamic_bytes = kernel.dynamic_shared_bytes;
                let traced = Traced::new(&name, sizes, &kernel.shape, dynamic_bytes);
                plan.kernels.push(traced.in_graph());
            }
            Kind::Set(set) => plan.works.extend(set.rows().map(|(to, count)| Work::Set {
                to,
                width_bytes: set.width_bytes,
                value: set.value,
                count,
            })),
            Kind::Copy(copy) => self.plan_copy(live, copy, plan)?,
            Kind::Host(function) => plan.call(HostWork::Function(*function)),
            Kind::Record(event) => {
                let record = plan.records.len() as u64;
                let Event { slot, shared, .. } = self.event(*event)?;
                // The server's graphs have no support for shared events.
                if shared.is_some() {
                    return Err(CUresult::NOT_SUPPORTED);
                }
                plan.records.push(*event);
                plan.works.push(Work::Record {
                    event: slot,
                    record,
                });
            }
            Kind::Wait(event) => plan.waits.push(*event),
            Kind::Allocate(address) => plan.memory.push(MemoryStep::Allocate(*address)),
            Kind::Free(address) => plan.memory.push(MemoryStep::Free(*address)),
        }
        Ok(())
    }

    /// Copies with pageable memory go through the host arena; the driver fills or empties it.
    fn plan_copy(&self, live: &Live, copy: &CopyNode, plan: &mut Plan) -> Result<(), CUresult> {
        for &[to, from, bytes] in &copy.pieces {
            let direction = match (self.place(to, bytes)?, self.place(from, bytes)?) {
                (Place::Pageable, Place::Pageable | Place::Pinned)
                | (Place::Pinned, Place::Pageable) => {
                    plan.call(HostWork::Move { to, from, bytes });
                    continue;
                }
                (Place::Device, Place::Pageable) => {
                    let offset = self.stage(bytes)?;
                    plan.staged.push(offset);
                    plan.call(HostWork::Fill {
                        offset,
                        from,
                        bytes,
                    });
                    plan.copy(
                        CopyDirection::HostToDevice,
                        to,
                        live.host_base() + offset,
                        bytes,
                    );
                    continue;
                }
                (Place::Pageable, Place::Device) => {
                    let offset = self.stage(bytes)?;
                    plan.staged.push(offset);
                    plan.copy(
                        CopyDirection::DeviceToHost,
                        live.host_base() + offset,
                        from,
                        bytes,
                    );
                    plan.call(HostWork::Empty { offset, to, bytes });
                    continue;
                }
                (Place::Pinned, Place::Device) => CopyDirection::DeviceToHost,
                (_, Place::Device) => CopyDirection::DeviceToDevice,
                _ => CopyDirection::HostToDevice,
            };
            plan.copy(direction, to, from, bytes);
        }
        Ok(())
    }
}

impl Exec {
    fn device(&self) -> usize {
        self.slot as usize / GRAPHS
    }
}

impl Plan {
    fn call(&mut self, work: HostWork) {
        let call = self.calls.len() as u64;
        self.calls.push(work);
        self.works.push(Work::Host { call });
    }

    fn copy(&mut self, direction: CopyDirection, to: u64, from: u64, bytes: u64) {
        self.works.push(Work::Copy {
            direction,
            to,
            from,
            bytes,
        });
    }

    fn allocated(&self) -> Vec<u64> {
        let address = |step: &MemoryStep| match *step {
            MemoryStep::Allocate(address) => Some(address),
            MemoryStep::Free(_) => None,
        };
        self.memory.iter().filter_map(address).collect()
    }
}

pub(crate) fn exec_nodes(tables: &Tables, graph: u64) -> Result<Vec<ExecNode>, CUresult> {
    let graph = tables.graphs.graph(graph)?;
    let before = graph.dependencies();
    if order(&before).is_none() {
        return Err(CUresult::INVALID_VALUE);
    }
    let with_kind = graph.nodes.iter().zip(before);
    with_kind
        .map(|(&node, before)| {
            let kind = tables.graphs.node(node)?.kind.clone();
            let child = match kind {
                Kind::Child(child) => exec_nodes(tables, child)?,
                _ => Vec::new(),
            };
            Ok(ExecNode {
                node,
                kind,
                is_enabled: true,
                before,
                child,
            })
        })
        .collect()
}

fn graph_of(tables: &mut Tables, nodes: &[ExecNode]) -> u64 {
    let handle = tables.new_handle();
    let mut graph = Graph::default();
    for node in nodes {
        let kind = match node.kind {
            Kind::Child(_) => {
                let child = graph_of(tables, &node.child);
                if let Ok(child) = tables.graphs.graph_mut(child) {
                    child.is_child = true;
                }
                Kind::Child(child)
            }
            _ if !node.is_enabled => Kind::Empty,
            ref other => other.clone(),
        };
        let own = tables.new_handle();
        tables.graphs.nodes.insert(
            own,
            Node {
                graph: handle,
                kind,
            },
        );
        graph.nodes.push(own);
        graph
            .edges
            .extend(node.before.iter().map(|&place| super::Edge {
                from: place as u64,
                to: own,
                data: abi::types::CUgraphEdgeData::default(),
            }));
    }
    // A node may precede one created earlier, so indices become handles at the end.
    let handles = graph.nodes.clone();
    for edge in &mut graph.edges {
        edge.from = handles[edge.from as usize];
    }
    tables.graphs.graphs.insert(handle, graph);
    handle
}
