//! The one interface between the simulated world and a policy.
//!
//! A client's thread makes launches one after the other. Each first stands in the client's *software
//! queue*, in order; the scheduler says when the one at the head goes to the device ([`Issue`]). The
//! queue holds [`Scheduler::queue_depth`] launches; a thread that makes the last of them waits in its
//! call until one has gone. So with depth 1, the default, a launch call returns when its launch has
//! gone, as in Pillion's library and in Orion's.
//!
//! Copies go as soon as they are at the head, unless the scheduler has them wait
//! ([`Scheduler::admits_copy`]).
//!
//! The world calls, at each instant at which anything happened: `handle_` for what happened (device
//! before host), then [`Scheduler::poll`] once. It calls `poll` also at [`Scheduler::next_wake_ns`].
//! What a scheduler learns late in reality (completions, other processes' launches) it has to delay
//! itself; the world tells it at once.

use policy::{Kernel, SloView, Taught};
use softgpu::{Gpu, StreamId};

use crate::job::{JobClass, JobKind};

/// A job's place in [`Experiment::jobs`](crate::Experiment::jobs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub usize);

/// One launch of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Whose.
    pub client: ClientId,
    /// Its number among the client's launches, from 1 upwards.
    pub seq: u64,
    /// The request that it is part of, from 0 upwards.
    pub request: u64,
    /// Its place in the trace, from 0.
    pub place: u32,
    /// Which of the trace's kernels it is, from 0.
    pub kernel_index: u32,
    /// It is the last launch of its request.
    pub is_last: bool,
    /// What a profile would say of it.
    pub kernel: Kernel,
}

/// How the clients are put on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// All clients are threads of one process: one context, a stream each. Otherwise each client is a
    /// process with a context of its own, and whether these compute together is
    /// [`softgpu::Config::sharing`].
    pub one_context: bool,
    /// High-priority clients' streams have a greater priority than best-effort ones'. It moves
    /// blocks only where [`softgpu::Config::block_priority`] is on.
    pub priorities: bool,
}

/// What the world lets a scheduler see of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Its class.
    pub class: JobClass,
    /// What its requests are.
    pub kind: JobKind,
    /// Its stream on [`State::gpu`].
    pub stream: StreamId,
    /// The launch at the head of its software queue.
    pub head: Option<Launch>,
    /// Launches in its software queue.
    pub queued: u32,
    /// Launches that went and are not complete.
    pub in_flight: u32,
    /// The sum of their expected durations, ns.
    pub in_flight_ns: u64,
    /// A request has begun and its end was not noticed by its thread.
    pub in_request: bool,
}

/// What the world lets a scheduler see.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// SMs of the device.
    pub sms: u32,
    /// The device itself, which nothing real can look into: for a clairvoyant bound.
    pub gpu: &'a Gpu,
    /// By [`ClientId`].
    pub clients: &'a [ClientState],
}

/// A client's process is started anew, because its share of the SMs is another: what a process has
/// under MPS it has from its start. It ends the request that it is at, and begins the next one
/// `outage_ns` later at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Whose.
    pub client: ClientId,
    /// What it has of the SMs from then on.
    pub share: SmShare,
    /// For so long it launches nothing, ns.
    pub outage_ns: u64,
}

/// What a process has of the SMs under MPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmShare {
    /// Of a hundred.
    pub percent: u32,
    /// They are the first ones of the device; else the last. Processes with different ends share
    /// none, where both together have a hundred at most.
    pub first: bool,
}

/// The launch at the head of a client's queue goes to the device now. To let n launches of one
/// client go, say it n times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Whose.
    pub client: ClientId,
}

/// A policy as the world drives it; see the module's text.
pub trait Scheduler {
    /// How the clients are put on the device. Asked once, before anything happens.
    fn placement(&self) -> Placement;

    /// Launches that the client's software queue holds; it has room for one of each thread. Asked once.
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

    /// A client's thread makes a launch; it stands at the end of the client's queue.
    fn handle_submit(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// The device has completed a launch.
    fn handle_complete(&mut self, now_ns: u64, launch: &Launch) {
        let _ = (now_ns, launch);
    }

    /// A client's process was killed: nothing is in its queue any more, and it makes no launch. What it
    /// has on the device is completed and told of as ever. Asked only of policies for which
    /// [`PolicySpec::outlives_jobs`](crate::PolicySpec::outlives_jobs).
    fn handle_death(&mut self, now_ns: u64, client: ClientId) {
        let _ = (now_ns, client);
    }

    /// The device has completed a copy of so many bytes.
    fn handle_copied(&mut self, now_ns: u64, client: ClientId, bytes: u64) {
        let _ = (now_ns, client, bytes);
    }

    /// Whether a copy of so many bytes at the head of a client's queue may begin. One that may not is
    /// asked for again after each poll.
    fn admits_copy(&mut self, now_ns: u64, client: ClientId, bytes: u64) -> bool {
        let _ = (now_ns, client, bytes);
        true
    }

    /// Appends what goes now to `issues`, which is empty. A client without a launch in its queue
    /// must not be named more often than it has launches.
    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>);

    /// Which of a client's batches its next requests are answered in, by place in
    /// [`Job::batches`](crate::Job). Asked of clients that have some, whenever they are at none.
    fn batch(&mut self, now_ns: u64, client: ClientId) -> usize {
        let _ = (now_ns, client);
        0
    }

    /// What a client's process has of the SMs from its start; `None` is all. Asked once.
    fn share(&self, client: ClientId) -> Option<SmShare> {
        let _ = client;
        None
    }

    /// Appends the clients whose processes are started anew, to `restarts`, which is empty. Asked
    /// after each poll, with processes of their own only ([`Placement::one_context`]).
    fn take_restarts(&mut self, restarts: &mut Vec<Restart>) {
        let _ = restarts;
    }

    /// When to call [`Scheduler::poll`] even if nothing happens; asked after each poll. Not before
    /// the time of that poll.
    fn next_wake_ns(&self) -> Option<u64> {
        None
    }

    /// Whether launches of high-priority clients go with the default priority, whatever
    /// [`Placement::priorities`] says. Asked at each launch.
    fn gives_priority(&self) -> bool {
        false
    }

    /// What the client's own library has learnt of its kernels, by their place in the trace. Asked once the
    /// run is over.
    fn learnt(&self, _client: ClientId) -> Vec<(usize, Taught)> {
        Vec::new()
    }

    /// How the target of a high-priority client that marks its requests is kept. Asked once the run is over.
    fn slo_view(&self, _client: ClientId) -> Option<SloView> {
        None
    }

    /// The rule that keeps the launch at the head of the client's queue. Asked after a poll that did
    /// not issue it; a word of the policy, for people.
    fn rule(&self, client: ClientId) -> &'static str {
        let _ = client;
        "held"
    }
}
