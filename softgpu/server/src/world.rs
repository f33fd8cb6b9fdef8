//! The device with its clients: takes commands, runs the model, and applies completions.

mod commands;
mod faults;
mod graphs;
mod memory;
mod monitor;
mod mps;
mod requests;
mod value_waits;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

use protocol::hello::format_uuid;
use protocol::pages::BellPage;
use protocol::segment::Mapping;
use serde::Serialize;
use softgpu::{Completion, Fault, Gpu, OpKind, Sharing, StreamId};

use self::faults::Broken;
pub(crate) use self::faults::MpsKill;
use self::memory::Export;
pub(crate) use self::memory::Holdings;
use self::monitor::History;
use self::mps::ManagedMps;
use crate::client::{Client, Effect};
use crate::label::{Counters, Labels};
use crate::recorder::Recorder;
use crate::store::Account;
use crate::time_source::TimeSource;
use crate::world::value_waits::ValueWait;

/// Most processes connected at a time.
pub(crate) const CLIENTS_MAX: usize = 64;
/// CUDA_ERROR_ILLEGAL_ADDRESS.
const ILLEGAL_ADDRESS: u32 = 700;

/// Number of a connection, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(u64);

#[derive(Debug)]
pub(crate) struct World {
    gpu: Gpu,
    uuid: [u8; 16],
    time: TimeSource,
    clients: BTreeMap<ClientId, Client>,
    client_next: u64,
    /// The client and the slot of each stream of the model.
    streams: HashMap<StreamId, (ClientId, u32)>,
    value_waits: Vec<ValueWait>,
    labels: Labels,
    history: History,
    memory: Account,
    /// Memory that clients may share, by token.
    exports: HashMap<u128, Export>,
    export_last: u64,
    /// Rung by drivers in real time after they put a command.
    doorbell: Mapping<BellPage>,
    doorbell_fd: OwnedFd,
    recorder: Option<Recorder>,
    broken: Broken,
    /// Set if contexts need an MPS server.
    mps: Option<ManagedMps>,
}

/// The document of a `Stats` reply; the keys are the contract.
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
    peak_bytes: u64,
}

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
    pub(crate) fn new(gpu: Gpu, uuid: [u8; 16], time: TimeSource) -> std::io::Result<Self> {
        let (doorbell_fd, doorbell) = Mapping::<BellPage>::create("softgpu-doorbell")?;
        Ok(Self {
            gpu,
            uuid,
            time,
            clients: BTreeMap::new(),
            client_next: 1,
            streams: HashMap::new(),
            value_waits: Vec::new(),
            labels: Labels::default(),
            history: History::default(),
            memory: Account::default(),
            exports: HashMap::new(),
            export_last: 0,
            doorbell,
            doorbell_fd,
            recorder: None,
            broken: Broken::default(),
            mps: None,
        })
    }

    pub(crate) fn record_to(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    pub(crate) fn finish_record(&mut self) -> std::io::Result<()> {
        self.recorder
            .take()
            .map_or(Ok(()), |mut recorder| recorder.finish())
    }

    /// A second mapping of the doorbell, to sleep on without the lock.
    pub(crate) fn doorbell(&self) -> std::io::Result<Mapping<BellPage>> {
        Mapping::open(&self.doorbell_fd, protocol::segment::Access::ReadWrite)
    }

    /// Takes the clients' commands, then applies all that is complete by now.
    pub(crate) fn step(&mut self) {
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for id in ids {
            self.take_commands(id);
        }
        self.let_complete();
        while self.end_value_waits() {
            self.let_complete();
        }
    }

    /// The time of the device's next event, without further commands.
    pub(crate) fn next_event_ns(&self) -> Option<u64> {
        let events = self.gpu.next_event_ns().into_iter();
        events.chain(self.next_look_ns()).min()
    }

    /// Removes a process that has ended, with its objects on the device. All that its driver has
    /// put stays counted, including commands since the last poll.
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        self.take_commands(id);
        self.let_complete();
        let client = self.clients.get(&id);
        let is_in_flight = client.is_some_and(Client::has_work_in_flight);
        self.forget_client(id);
        if is_in_flight {
            self.handle_death_in_flight();
        }
    }

    /// Drops all further input of this client.
    fn forget_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        let now_ns = self.time.now_ns();
        for context in client.contexts.iter().flatten() {
            let destroyed = self.gpu.destroy_context(now_ns, context.id);
            debug_assert!(destroyed.is_ok(), "contexts of a client exist in the model");
        }
        self.streams.retain(|_, (owner, _)| *owner != id);
        let counters = self.labels.of(&client.label);
        counters.connected -= 1;
        client.add_counts_to(counters);
        self.ring_doorbell();
    }

    pub(crate) fn stats(&mut self) -> String {
        self.step();
        let mut labels = self.labels.all().clone();
        for client in self.clients.values() {
            if let Some(counters) = labels.get_mut(&client.label) {
                client.add_counts_to(counters);
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
                used_bytes: self.memory.used_bytes(),
                peak_bytes: self.memory.peak_bytes(),
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

    /// Wakes the main loop, which may sleep until an event that is no longer the next.
    fn ring_doorbell(&self) {
        match &self.time {
            TimeSource::Virtual(coordinator) => coordinator.nudge(),
            TimeSource::Real(_) => self.time.ring(&self.doorbell.bell),
        }
    }

    fn let_complete(&mut self) {
        let now_ns = self.time.now_ns();
        // Stops on the way change nothing: the same operations complete at the same time.
        while let Some(due_ns) = self.history.due_ns(now_ns) {
            self.advance(due_ns.max(self.gpu.now_ns()));
            self.remember();
        }
        self.advance(now_ns);
    }

    fn advance(&mut self, now_ns: u64) {
        for completion in self.gpu.advance(now_ns) {
            if let Some(completion) = self.broken.withhold(completion) {
                self.handle_completion(completion);
            }
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.sample(self.gpu.now_ns(), self.gpu.utilisation().busy_sm_ns);
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
        let is_node = matches!(pending.effect, Effect::Kernel { is_node: true, .. });
        if let Some(recorder) = &mut self.recorder {
            recorder.handle_completion(&client.label, &completion, &pending.effect);
        }
        let done = match pending.effect {
            Effect::None => Ok(()),
            Effect::Memory(work) => client.space.apply(&work),
            Effect::Free { address } => client.free(address).ok_or(Fault),
            Effect::Kernel {
                builtin, params, ..
            } => {
                client
                    .page
                    .publish_kernel(slot, completion.started_ns, completion.at_ns);
                builtin.map_or(Ok(()), |b| b.run(&params, &mut client.space))
            }
            Effect::Event { event, record } => {
                client.page.publish_event(event, record, completion.at_ns);
                Ok(())
            }
            Effect::HostCall { call } => {
                client.page.publish_host_call(call);
                self.time.ring(&client.bell.bell);
                Ok(())
            }
        };
        let counters = self.labels.of(&client.label);
        if done.is_err() {
            counters.faults += 1;
            client.fail_context(context, ILLEGAL_ADDRESS);
        }
        counters.handle_completed(completion.kind == OpKind::Kernel, is_node);
        if let Some(seq) = pending.seq
            && client.page.publish(slot, seq)
        {
            self.time.ring(&client.bell.bell);
        }
    }
}

#[cfg(test)]
mod tests;
