//! Takes commands from the clients' rings and submits them to the model.

use std::collections::VecDeque;

use rustix::net::{Shutdown, shutdown};
use softgpu::wire::{Command, DEVICE_SPAN_BYTES, STREAM_DEPTH_MAX, StreamKind, Work};
use softgpu::{Builtin, CopyDirection, Error, KernelShape, Op};

use super::{ClientId, World};
use crate::client::{Effect, Pending, Stream};
use crate::label::Counters;

/// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES.
const LAUNCH_OUT_OF_RESOURCES: u32 = 701;
/// CUDA_ERROR_LAUNCH_FAILED.
const LAUNCH_FAILED: u32 = 719;

/// An act that no correct driver commits; the client is no longer served.
#[derive(Debug)]
pub(super) struct Violation;

impl World {
    pub(super) fn take_commands(&mut self, id: ClientId) {
        while let Some(command) = self.clients.get(&id).and_then(|client| client.page.take()) {
            let handled = command
                .map_err(|_| Violation)
                .and_then(|c| self.handle_command(id, c));
            if handled.is_err() {
                if let Some(client) = self.clients.get(&id) {
                    // The socket's end is its only notification; if that fails, the client has
                    // ended.
                    let _ = shutdown(&client.socket, Shutdown::Both);
                }
                return self.forget_client(id);
            }
        }
    }

    fn handle_command(&mut self, id: ClientId, command: Command) -> Result<(), Violation> {
        match command {
            Command::CreateStream {
                stream,
                context,
                priority,
                kind,
            } => self.create_stream(id, stream, context, priority, kind),
            Command::DestroyStream { stream } => {
                let stream = self.stream_mut(id, stream)?.id;
                self.gpu.destroy_stream(stream).map_err(|_| Violation)
            }
            Command::Submit { stream, seq, work } => self.handle_work(id, stream, seq, work),
            Command::HostDone { call } => self.handle_host_done(id, call),
            Command::GraphClear { graph } => self.clear_graph(id, graph),
            Command::GraphNode { graph, work } => self.add_node(id, graph, work),
        }
    }

    fn handle_work(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        work: Work,
    ) -> Result<(), Violation> {
        let (op, effect) = match work {
            Work::Launch {
                priority,
                shape,
                builtin,
                params,
            } => {
                let effect = Effect::kernel(&shape, Builtin::from_number(builtin), params, false);
                return self.launch(id, slot, seq, shape, priority, effect);
            }
            Work::Copy { direction, .. } | Work::CopyBox { direction, .. } => {
                return self.copy(id, slot, seq, direction, work);
            }
            Work::Set { .. } | Work::SetBox { .. } => return self.set(id, slot, seq, work),
            Work::WaitValue {
                at,
                width_bytes,
                value,
                until,
            } => return self.wait_for_value(id, slot, seq, (at, width_bytes, value, until)),
            Work::Host { call } => return self.call_host(id, slot, seq, call),
            Work::GraphLaunch {
                graph,
                record,
                call,
            } => return self.launch_graph(id, slot, seq, graph, [record, call]),
            Work::Free { address } => {
                self.count_free(id);
                (Op::Marker, Effect::Free { address })
            }
            Work::Record { event, record } => {
                let effect = Effect::Event { event, record };
                self.submit(id, slot, Some(seq), Op::Marker, effect)?;
                self.counters(id).events_recorded += 1;
                return Ok(());
            }
            Work::Wait { other, other_seq } => (self.wait_op(id, other, other_seq), Effect::None),
            Work::WriteValue { .. } => (Op::Marker, Effect::Memory(work)),
        };
        self.submit(id, slot, Some(seq), op, effect).map(drop)
    }

    fn create_stream(
        &mut self,
        id: ClientId,
        slot: u32,
        context: u32,
        priority: i32,
        kind: StreamKind,
    ) -> Result<(), Violation> {
        let client = self.clients.get_mut(&id).ok_or(Violation)?;
        // The slot's previous stream may have been another context's.
        for other in client.contexts.iter_mut().flatten() {
            other.blocking.retain(|&blocking| blocking != slot);
        }
        let owner = client.contexts[context as usize]
            .as_mut()
            .ok_or(Violation)?;
        let gpu_stream = self
            .gpu
            .create_stream(owner.id, priority)
            .map_err(|_| Violation)?;
        if kind == StreamKind::Legacy {
            owner.legacy = Some(slot);
        }
        if kind == StreamKind::Blocking {
            owner.blocking.push(slot);
        }
        let stream = Stream {
            id: gpu_stream,
            context,
            kind,
            pending: VecDeque::new(),
            commands: 0,
            legacy_awaited: 0,
            awaited_by_legacy: 0,
        };
        if let Some(earlier) = client.streams[slot as usize].replace(stream) {
            self.streams.remove(&earlier.id);
        }
        self.streams.insert(gpu_stream, (id, slot));
        self.counters(id).streams_created += 1;
        Ok(())
    }

    fn launch(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        shape: KernelShape,
        priority: Option<i32>,
        effect: Effect,
    ) -> Result<(), Violation> {
        let is_beside_others = self.is_beside_others(id);
        match shape.check(self.gpu.device()) {
            Ok(()) => {
                self.submit(id, slot, Some(seq), Op::Kernel { shape, priority }, effect)?;
                let counters = self.counters(id);
                counters.launches += 1;
                if let Some(priority) = priority {
                    // Decoding has clamped it, so there are few values.
                    *counters.launches_by_priority.entry(priority).or_default() += 1;
                }
                counters.launches_beside_others += u64::from(is_beside_others);
                Ok(())
            }
            Err(error) => {
                // Only an incorrect driver gets here. The stream continues without the kernel.
                let context = self.stream_mut(id, slot)?.context;
                self.counters(id).faults += 1;
                self.clients[&id].fail_context(context, refusal_code(&error));
                self.submit(id, slot, Some(seq), Op::Marker, Effect::None)?;
                Ok(())
            }
        }
    }

    pub(super) fn is_beside_others(&self, id: ClientId) -> bool {
        self.clients
            .iter()
            .filter(|(other, _)| **other != id)
            .flat_map(|(_, client)| client.contexts.iter().flatten())
            .any(|context| self.gpu.in_flight_kernels(context.id) > 0)
    }

    fn copy(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: u64,
        direction: CopyDirection,
        work: Work,
    ) -> Result<(), Violation> {
        let bytes = bytes_of(&work)?;
        let op = Op::Copy { direction, bytes };
        self.submit(id, slot, Some(seq), op, Effect::Memory(work))?;
        let counters = self.counters(id);
        counters.copies += 1;
        *bytes_counter(counters, direction) += bytes;
        Ok(())
    }

    fn set(&mut self, id: ClientId, slot: u32, seq: u64, work: Work) -> Result<(), Violation> {
        let bytes = bytes_of(&work)?;
        let op = Op::Memset { bytes };
        self.submit(id, slot, Some(seq), op, Effect::Memory(work))?;
        self.counters(id).set_bytes += bytes;
        Ok(())
    }

    /// The model's operation for "wait for command `other_seq`".
    fn wait_op(&self, id: ClientId, other: u32, other_seq: u64) -> Op {
        let stream = self
            .clients
            .get(&id)
            .and_then(|c| c.streams[other as usize].as_ref());
        let awaited = stream.and_then(|stream| {
            let is_it = |pending: &&Pending| pending.seq == Some(other_seq);
            Some((stream.id, stream.pending.iter().find(is_it)?.gpu_seq))
        });
        match awaited {
            Some((stream, seq)) => Op::Wait { stream, seq },
            // Not pending: it is complete.
            None => Op::Marker,
        }
    }

    /// Submits an operation to the model, after those that CUDA orders first; returns its number.
    pub(super) fn submit(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: Option<u64>,
        op: Op,
        effect: Effect,
    ) -> Result<(softgpu::StreamId, u64), Violation> {
        self.keep_legacy_order(id, slot)?;
        self.submit_alone(id, slot, seq, op, effect)
    }

    /// As above, ordered only within its stream.
    pub(super) fn submit_alone(
        &mut self,
        id: ClientId,
        slot: u32,
        seq: Option<u64>,
        op: Op,
        effect: Effect,
    ) -> Result<(softgpu::StreamId, u64), Violation> {
        let now_ns = self.time.now_ns();
        let client = self.clients.get_mut(&id).ok_or(Violation)?;
        let stream = client.streams[slot as usize].as_mut().ok_or(Violation)?;
        if stream.commands >= 2 * STREAM_DEPTH_MAX {
            return Err(Violation);
        }
        let gpu_seq = self
            .gpu
            .submit(now_ns, stream.id, op)
            .map_err(|_| Violation)?;
        stream.commands += u64::from(seq.is_some());
        stream.pending.push_back(Pending {
            gpu_seq,
            seq,
            effect,
        });
        Ok((stream.id, gpu_seq))
    }

    /// Submits waits before an operation, to order it after what CUDA's legacy stream requires.
    pub(super) fn keep_legacy_order(&mut self, id: ClientId, slot: u32) -> Result<(), Violation> {
        let stream = self.stream_mut(id, slot)?;
        let (context, kind) = (stream.context, stream.kind);
        match kind {
            StreamKind::NonBlocking => Ok(()),
            StreamKind::Blocking => {
                let client = &self.clients[&id];
                let Some(legacy) = client.contexts[context as usize]
                    .as_ref()
                    .and_then(|c| c.legacy)
                else {
                    return Ok(());
                };
                let last = last_pending(client.streams[legacy as usize].as_ref());
                let stream = self.stream_mut(id, slot)?;
                match last {
                    Some((other, seq)) if seq > stream.legacy_awaited => {
                        stream.legacy_awaited = seq;
                        self.submit_alone(
                            id,
                            slot,
                            None,
                            Op::Wait { stream: other, seq },
                            Effect::None,
                        )
                        .map(drop)
                    }
                    _ => Ok(()),
                }
            }
            StreamKind::Legacy => {
                let owner = self.clients[&id].contexts[context as usize].as_ref();
                for other in owner.map_or_else(Vec::new, |owner| owner.blocking.clone()) {
                    let stream = self.stream_mut(id, other)?;
                    let Some((gpu_stream, seq)) = last_pending(Some(stream)) else {
                        continue;
                    };
                    if seq > stream.awaited_by_legacy {
                        stream.awaited_by_legacy = seq;
                        let op = Op::Wait {
                            stream: gpu_stream,
                            seq,
                        };
                        self.submit_alone(id, slot, None, op, Effect::None)?;
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn stream_mut(&mut self, id: ClientId, slot: u32) -> Result<&mut Stream, Violation> {
        let client = self.clients.get_mut(&id).ok_or(Violation)?;
        client.streams[slot as usize].as_mut().ok_or(Violation)
    }

    pub(super) fn counters(&mut self, id: ClientId) -> &mut Counters {
        self.labels.of(&self.clients[&id].label)
    }
}

fn last_pending(stream: Option<&Stream>) -> Option<(softgpu::StreamId, u64)> {
    let stream = stream?;
    Some((stream.id, stream.pending.back()?.gpu_seq))
}

/// Bytes that work copies or fills, limited by the device's address space.
pub(super) fn bytes_of(work: &Work) -> Result<u64, Violation> {
    let bytes = work.bytes().filter(|&bytes| bytes <= DEVICE_SPAN_BYTES);
    bytes.ok_or(Violation)
}

fn bytes_counter(counters: &mut Counters, direction: CopyDirection) -> &mut u64 {
    match direction {
        CopyDirection::HostToDevice => &mut counters.copied_h2d_bytes,
        CopyDirection::DeviceToHost => &mut counters.copied_d2h_bytes,
        CopyDirection::DeviceToDevice => &mut counters.copied_d2d_bytes,
    }
}

pub(super) fn refusal_code(error: &Error) -> u32 {
    match error {
        Error::LaunchTooLarge { .. } => LAUNCH_OUT_OF_RESOURCES,
        _ => LAUNCH_FAILED,
    }
}
