//! Graphs and host calls. A graph is a list of work that the driver has put beforehand. A launch
//! puts all of it on the launch's stream, one after the other: an order that every graph allows,
//! without other commands of the stream in between. Branches that a GPU might run side by side do
//! not overlap here. A host call stops its stream: a marker reports when it is due, and a hold in
//! the model lasts until the driver reports the call as made.

use softgpu::wire::{GRAPH_NODES_MAX, Work};
use softgpu::{Builtin, KernelShape, Op};

use super::commands::{Violation, bytes_of, refusal_code};
use super::{ClientId, World};
use crate::client::{Client, Effect};

impl World {
    pub(super) fn clear_graph(&mut self, id: ClientId, graph: u32) -> Result<(), Violation> {
        let client = self.client_mut(id)?;
        if let Some(nodes) = client.graphs.remove(&graph) {
            client.graph_nodes -= nodes.len();
        }
        Ok(())
    }

    pub(super) fn add_node(
        &mut self,
        id: ClientId,
        graph: u32,
        work: Work,
    ) -> Result<(), Violation> {
        let client = self.client_mut(id)?;
        if client.graph_nodes >= GRAPH_NODES_MAX {
            return Err(Violation);
        }
        client.graph_nodes += 1;
        client.graphs.entry(graph).or_default().push(work);
        Ok(())
    }

    /// `first` has the bases of the numbers of the graph's records and host calls.
    pub(super) fn launch_graph(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        graph: u32,
        first: [u64; 2],
    ) -> Result<(), Violation> {
        let is_beside_others = self.is_beside_others(id);
        let nodes = self.client_mut(id)?.graphs.remove(&graph);
        let nodes = nodes.unwrap_or_default();
        self.keep_legacy_order(id, slot)?;
        for node in &nodes {
            self.run_node(id, slot, *node, first)?;
        }
        self.client_mut(id)?.graphs.insert(graph, nodes);
        let counters = self.counters(id);
        counters.graph_launches += 1;
        counters.graph_launches_beside_others += u64::from(is_beside_others);
        // The graph is complete when its last node is, even if it has none.
        self.submit_alone(id, slot, Some(seq), Op::Marker, Effect::None)?;
        Ok(())
    }

    fn run_node(
        &mut self,
        id: ClientId,
        slot: u32,
        work: Work,
        [record_first, call_first]: [u64; 2],
    ) -> Result<(), Violation> {
        let (op, effect) = match work {
            Work::Launch {
                priority,
                shape,
                builtin,
                params,
            } => {
                let effect = Effect::kernel(&shape, Builtin::from_number(builtin), params, true);
                return self.run_kernel(id, slot, shape, priority, effect);
            }
            Work::Copy { direction, .. } => {
                let bytes = bytes_of(&work)?;
                let counters = self.counters(id);
                counters.graph_copies += 1;
                counters.graph_copied_bytes += bytes;
                (Op::Copy { direction, bytes }, Effect::Memory(work))
            }
            Work::Set { .. } => {
                let bytes = bytes_of(&work)?;
                self.counters(id).graph_set_bytes += bytes;
                (Op::Memset { bytes }, Effect::Memory(work))
            }
            Work::Record { event, record } => {
                let record = record.wrapping_add(record_first);
                (Op::Marker, Effect::Event { event, record })
            }
            Work::Host { call } => {
                return self.hold_for_host(id, slot, None, call.wrapping_add(call_first));
            }
            _ => return Err(Violation),
        };
        self.submit_alone(id, slot, None, op, effect).map(drop)
    }

    fn run_kernel(
        &mut self,
        id: ClientId,
        slot: u32,
        shape: KernelShape,
        priority: Option<i32>,
        effect: Effect,
    ) -> Result<(), Violation> {
        if let Err(error) = shape.check(self.gpu.device()) {
            let context = self.stream_mut(id, slot)?.context;
            self.counters(id).faults += 1;
            self.client_mut(id)?
                .fail_context(context, refusal_code(&error));
            return Ok(());
        }
        self.counters(id).graph_kernels += 1;
        self.submit_alone(id, slot, None, Op::Kernel { shape, priority }, effect)
            .map(drop)
    }

    pub(super) fn call_host(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        call: u64,
    ) -> Result<(), Violation> {
        self.keep_legacy_order(id, slot)?;
        self.hold_for_host(id, slot, Some(seq), call)
    }

    fn hold_for_host(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: Option<u64>,
        call: u64,
    ) -> Result<(), Violation> {
        let counters = self.counters(id);
        match seq {
            Some(_) => counters.host_calls += 1,
            None => counters.graph_host_calls += 1,
        }
        self.submit_alone(id, slot, None, Op::Marker, Effect::HostCall { call })?;
        let hold = self.submit_alone(id, slot, seq, Op::Hold, Effect::None)?;
        match self.client_mut(id)?.host_calls.insert(call, hold) {
            None => Ok(()),
            Some(_) => Err(Violation),
        }
    }

    pub(super) fn handle_host_done(&mut self, id: ClientId, call: u64) -> Result<(), Violation> {
        let hold = self.client_mut(id)?.host_calls.remove(&call);
        let (stream, seq) = hold.ok_or(Violation)?;
        self.gpu.release(self.time.now_ns(), stream, seq);
        Ok(())
    }

    fn client_mut(&mut self, id: ClientId) -> Result<&mut Client, Violation> {
        self.clients.get_mut(&id).ok_or(Violation)
    }
}
