//! The one interface between the simulated world and a policy. A client's thread makes launches one
//! after the other. Each first stands in the client's *software queue*, in order; the scheduler
//! decides when the one at the head goes to the device ([`Issue`]). The queue holds
//! [`Scheduler::queue_depth`] launches; a thread that fills it waits in its call until one has
//! gone. With depth 1, the default, a launch call therefore returns when its launch has gone, as in
//! Pillion's library and in Orion's. At the head copies go at once, unless the scheduler holds them
//! ([`Scheduler::admits_copy`]).
//!
//! At each instant with an event the world calls `handle_` for the events (device before host),
//! then [`Scheduler::poll`] once; it also polls at [`Scheduler::next_wake_ns`]. The world reports
//! everything at once: the scheduler itself delays what it learns late in reality (completions,
//! other processes' launches).

use policy::{Kernel, SloView, Taught};
use softgpu::{Gpu, StreamId};

use crate::job::{JobClass, JobKind};

/// A job's place in [`Experiment::jobs`](crate::Experiment::jobs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub usize);

/// One launch of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The client.
    pub client: ClientId,
    /// Its number among the client's launches, from 1 upwards.
    pub seq: u64,
    /// Its request, from 0 upwards.
    pub request: u64,
    /// Its place in the trace, from 0.
    pub place: u32,
    /// Its kernel's index in the trace, from 0.
    pub kernel_index: u32,
    /// The last launch of its request.
    pub is_last: bool,
    /// A profile's data about it.
    pub kernel: Kernel,
}

/// The clients' placement on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// All clients are threads of one process: one context, a stream each. Otherwise each client is
    /// a process with its own context, and [`softgpu::Config::sharing`] decides how they compute.
    pub one_context: bool,
    /// High-priority clients' streams have a greater priority than best-effort ones'. It affects
    /// blocks only where [`softgpu::Config::block_priority`] is on.
    pub priorities: bool,
}

/// A scheduler's view of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Its class.
    pub class: JobClass,
    /// The kind of its requests.
    pub kind: JobKind,
    /// Its stream on [`State::gpu`].
    pub stream: StreamId,
    /// The launch at the head of its software queue.
    pub head: Option<Launch>,
    /// Launches in its software queue.
    pub queued: u32,
    /// Launches in flight.
    pub in_flight: u32,
    /// The sum of their expected durations, ns.
    pub in_flight_ns: u64,
    /// A request has begun, and its thread has not noticed its end.
    pub in_request: bool,
}

/// A scheduler's view of the world.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// SMs of the device.
    pub sms: u32,
    /// The device itself, invisible in reality: for a clairvoyant bound.
    pub gpu: &'a Gpu,
    /// By [`ClientId`].
    pub clients: &'a [ClientState],
}

/// A restart of a client's process with another share of the SMs: under MPS a process has its share
/// from its start. It ends its current request, and begins the next one after `outage_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// The client.
    pub client: ClientId,
    /// Its share of the SMs from then on.
    pub share: SmShare,
    /// The time without launches, ns.
    pub outage_ns: u64,
}

/// A process's share of the SMs under MPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmShare {
    /// In per cent.
    pub percent: u32,
    /// True: the first SMs of the device; false: the last ones. Processes at different ends share
    /// no SM if their percentages add up to 100 at most.
    pub first: bool,
}

/// Sends the launch at the head of a client's queue to the device now. Repeated for n launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The client.
    pub client: ClientId,
}

/// A policy as the world drives it; see the module's text.
pub trait Scheduler {
    /// The clients' placement on the device. Called once, before any event.
    fn placement(&self) -> Placement;

    /// Capacity of the client's software queue, at least one launch per thread. Called once.
    fn queue_depth(&self, client: ClientId) -> u32 {
        let _ = client;
        1
    }

    /// A client's thread begins a request at `now_ns` that arrived at `arrival_ns`.
    fn handle_request_start(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        let _ = (now_ns, client, arrival_ns);
    }

    /// A client's thread has noticed that its request is complete (its synchronisation returned).
    fn handle_request_end(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        let _ = (now_ns, client, arrival_ns);
    }

    /// A client's thread makes a launch, at the end of the client's queue.
    fn handle_submit(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// The device has completed a launch.
    fn handle_complete(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// A client's process was killed: its queue is empty, and it makes no more launches. Its work
    /// on the device is completed and reported as usual. Called only for policies with
    /// [`PolicySpec::outlives_jobs`](crate::PolicySpec::outlives_jobs).
    fn handle_death(&mut self, now_ns: u64, client: ClientId) {
        let _ = (now_ns, client);
    }

    /// The device has completed a copy of `bytes`.
    fn handle_copied(&mut self, now_ns: u64, client: ClientId, bytes: u64) {
        let _ = (now_ns, client, bytes);
    }

    /// Whether the copy at the head of a client's queue may begin. Repeated after each poll.
    fn admits_copy(&mut self, now_ns: u64, client: ClientId, bytes: u64) -> bool {
        let _ = (now_ns, client, bytes);
        true
    }

    /// Appends the launches that go now to the empty `issues`: at most those in clients' queues.
    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>);

    /// The batch in which a client's next requests are answered, by place in
    /// [`Job::batches`](crate::Job). Called for clients with batches between requests.
    fn batch(&mut self, now_ns: u64, client: ClientId) -> usize {
        let _ = (now_ns, client);
        0
    }

    /// A client's share of the SMs from its start; `None` is all. Called once.
    fn share(&self, client: ClientId) -> Option<SmShare> {
        let _ = client;
        None
    }

    /// Appends the clients whose processes restart to `restarts`, which is empty. Called after each
    /// poll, only for separate processes ([`Placement::one_context`]).
    fn take_restarts(&mut self, restarts: &mut Vec<Restart>) {
        let _ = restarts;
    }

    /// When to call [`Scheduler::poll`] without an event, not in the past; called after each poll.
    fn next_wake_ns(&self) -> Option<u64> {
        None
    }

    /// Whether launches of high-priority clients go with the default priority, despite
    /// [`Placement::priorities`]. Called at each launch.
    fn gives_priority(&self) -> bool {
        false
    }

    /// The client's library's learnt durations of kernels, by place in the trace. After the run.
    fn learnt(&self, _client: ClientId) -> Vec<(usize, Taught)> {
        Vec::new()
    }

    /// The target's view for a high-priority client that marks its requests. After the run.
    fn slo_view(&self, _client: ClientId) -> Option<SloView> {
        None
    }

    /// The rule that holds a client's first launch, for display; called if a poll did not issue it.
    fn rule(&self, client: ClientId) -> &'static str {
        let _ = client;
        "held"
    }
}
