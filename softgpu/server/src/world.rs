//! The device with its clients: takes commands in, lets the model run, does what completes.

mod commands;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use protocol::hello::format_uuid;
use protocol::pages::BellPage;
use protocol::segment::Mapping;
use serde::Serialize;
use softgpu::{Completion, Gpu, OpKind, Sharing, StreamId};

use crate::client::{Client, Effect};
use crate::label::{Counters, Labels};
use crate::time_source::TimeSource;

/// Processes connected at a time.
pub(crate) const CLIENTS_MAX: usize = 64;
/// CUDA_ERROR_ILLEGAL_ADDRESS.
const ILLEGAL_ADDRESS: u32 = 700;

/// Number of a connection, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(u64);

/// Everything that the two threads share.
#[derive(Debug)]
pub(crate) struct World {
    gpu: Gpu,
    uuid: [u8; 16],
    time: TimeSource,
    clients: BTreeMap<ClientId, Client>,
    client_next: u64,
    /// Whose the model's streams are, and in which slot.
    streams: HashMap<StreamId, (ClientId, u32)>,
    labels: Labels,
    used_bytes: u64,
    /// Rung by drivers in real time after they put a command.
    doorbell: Mapping<BellPage>,
    doorbell_fd: OwnedFd,
}

/// The document that `Stats` answers; the keys are the contract.
#[derive(Serialize)]
struct Stats<'a> {
    device: &'a str,
    uuid: String,
    sharing: &'static str,
    block_priority: bool,
    clock: &'static str,
    now_ns: u64,
    memory: MemoryStats,
    utilisation: UtilisationStats,
    labels: BTreeMap<String, Counters>,
}

#[derive(Serialize)]
struct MemoryStats {
    total_bytes: u64,
    used_bytes: u64,
}

/// Integrals over time; see [`softgpu::Utilisation`].
#[derive(Serialize)]
struct UtilisationStats {
    busy_ns: u64,
    busy_sm_ns: u64,
    compute_ns: u64,
    bandwidth_ns: u64,
    copy_to_device_ns: u64,
    copy_to_host_ns: u64,
}

impl World {
    /// A device without clients.
    pub(crate) fn new(gpu: Gpu, uuid: [u8; 16], time: TimeSource) -> std::io::Result<Self> {
        let (doorbell_fd, doorbell) = Mapping::<BellPage>::create("softgpu-doorbell")?;
        Ok(Self {
            gpu,
            uuid,
            time,
            clients: BTreeMap::new(),
            client_next: 1,
            streams: HashMap::new(),
            labels: Labels::default(),
            used_bytes: 0,
            doorbell,
            doorbell_fd,
        })
    }

    /// A second mapping of the doorbell, to sleep on without the lock.
    pub(crate) fn doorbell(&self) -> std::io::Result<Mapping<BellPage>> {
        Mapping::open(&self.doorbell_fd, protocol::segment::Access::ReadWrite)
    }

    /// Takes in what clients asked, then does all that is complete by now.
    pub(crate) fn step(&mut self) {
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.take_commands(id);
        }
        self.let_complete();
    }

    /// When the device has something to do next, if nobody asks for anything.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        self.gpu.next_event_ns()
    }

    /// A process is gone: what it had on the device goes, what it did stays counted.
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let now_ns = self.time.now_ns();
        for context in client.contexts.iter().flatten() {
            let destroyed = self.gpu.destroy_context(now_ns, context.id);
            debug_assert!(destroyed.is_ok(), "contexts of a client exist in the model");
        }
        self.streams.retain(|_, (owner, _)| *owner != id);
        self.used_bytes -= client.space.device.held_bytes();
        let counters = self.labels.of(&client.label);
        counters.connected -= 1;
        counters.not_supported = counters
            .not_supported
            .saturating_add(client.not_supported());
        self.ring_doorbell();
    }

    /// Statistics as JSON.
    pub(crate) fn stats(&mut self) -> String {
        self.step();
        let mut labels = self.labels.all().clone();
        for client in self.clients.values() {
            if let Some(counters) = labels.get_mut(&client.label) {
                counters.not_supported = counters
                    .not_supported
                    .saturating_add(client.not_supported());
            }
        }
        let (device, config, used) = (self.gpu.device(), self.gpu.config(), self.gpu.utilisation());
        let stats = Stats {
            device: &device.name,
            uuid: format_uuid(self.uuid),
            sharing: match config.sharing {
                Sharing::Mps => "mps",
                Sharing::TimeSlice => "timeslice",
            },
            block_priority: config.block_priority,
            clock: if self.time.is_virtual() {
                "virtual"
            } else {
                "real"
            },
            now_ns: self.gpu.now_ns(),
            memory: MemoryStats {
                total_bytes: device.memory_bytes,
                used_bytes: self.used_bytes,
            },
            utilisation: UtilisationStats {
                busy_ns: used.busy_ns,
                busy_sm_ns: used.busy_sm_ns,
                compute_ns: used.compute_ns,
                bandwidth_ns: used.bandwidth_ns,
                copy_to_device_ns: used.copy_to_device_ns,
                copy_to_host_ns: used.copy_to_host_ns,
            },
            labels,
        };
        serde_json::to_string_pretty(&stats).expect("maps with text keys are JSON")
    }

    /// Wakes the main loop, which may sleep until something that is no longer next.
    fn ring_doorbell(&self) {
        match &self.time {
            TimeSource::Virtual(coordinator) => coordinator.nudge(),
            TimeSource::Real(_) => self.time.ring(&self.doorbell.bell),
        }
    }

    fn let_complete(&mut self) {
        let now_ns = self.time.now_ns();
        for completion in self.gpu.advance(now_ns) {
            self.handle_completion(completion);
        }
    }

    fn handle_completion(&mut self, completion: Completion) {
        let Some(&(id, slot)) = self.streams.get(&completion.stream) else {
            return;
        };
        let client = self
            .clients
            .get_mut(&id)
            .expect("a stream's client is connected");
        let stream = client.streams[slot as usize]
            .as_mut()
            .expect("the stream has a slot");
        let pending = stream
            .pending
            .pop_front()
            .expect("only what was given completes");
        debug_assert_eq!(pending.gpu_seq, completion.seq, "streams complete in order");
        stream.commands -= u64::from(pending.seq.is_some());
        let context = stream.context;
        let done = match pending.effect {
            Effect::None => Ok(()),
            Effect::Copy { to, from, bytes } => client.space.copy(to, from, bytes),
            Effect::Set {
                to,
                width_bytes,
                value,
                count,
            } => client.space.set(to, width_bytes, value, count),
            Effect::Kernel { builtin: None, .. } => Ok(()),
            Effect::Kernel {
                builtin: Some(builtin),
                params,
            } => builtin.run(&params, &mut client.space),
            Effect::Event { event, record } => {
                client.page.publish_event(event, record, completion.at_ns);
                Ok(())
            }
        };
        let counters = self.labels.of(&client.label);
        if done.is_err() {
            counters.faults += 1;
            client.fail_context(context, ILLEGAL_ADDRESS);
        }
        counters.launches_completed += u64::from(completion.kind == OpKind::Kernel);
        if let Some(seq) = pending.seq
            && client.page.publish(slot, seq)
        {
            self.time.ring(&client.bell.bell);
        }
    }
}
