//! The policies that the daemon ships, behind models of daemon and library. [`policy::Gate`] and
//! [`policy::admits`], the very code of `pilliond` and of the launch path, decide. This file is the
//! rest, as times and orders of events:
//! - **High-priority launches** go at once. Each is a record, and voids earlier leases (the epoch).
//! - **Best-effort launches** go if the job's lease admits them; they are charged. A held launch
//!   rings the daemon, waits, and tries again when it is woken; after `max_hold_ns` it goes anyway.
//!   The same holds for a large copy under `pillion`, whose completion is observed exactly.
//! - **The daemon** polls when the gate says ([`Gate::next_look_ns`], with `poll_ns` as the least
//!   pause) while best-effort work waits or is in flight, every `idle_poll_ns` otherwise, and
//!   `wake_ns` after it is rung. It reads the records and the sums, asks the gate, publishes
//!   changes, and wakes waiting threads.
//! - **Completions** are observed late. A returning synchronisation reports all work of its client.
//!   A best-effort client's helper thread records an event behind the work in flight and polls it
//!   when [`policy::looks`] says, with `helper_poll_ns` as the least pause, then records the next
//!   one. A high-priority client's helper queries every 500 us whether the stream is idle, but only
//!   at the daemon's request: best-effort work waits, and the client is busy and silent for
//!   [`QUIET_NS`].
//! - **Disturbances** ([`HostModel`]): the daemon stalls and does not poll; its clock, which is the
//!   clients' too, jumps ahead; all completions reach it late. At the daemon's next poll a killed
//!   client is removed and its work in flight given back, as when its pidfd has ended.
//!
//! One thing differs from the daemon by default: with `is_profiled` the gate knows the
//! high-priority latency from the start, as Orion's does from its profiles. The daemon learns it
//! ([`policy::HpTimeline`]), as does this model with `is_profiled = 0`.
//!
//! Not modelled, because nothing in a simulated run causes it: jobs that lie or stall, dying
//! daemons, lost records, racing threads, work on several streams of a client, work launched while
//! its helper did not watch. A launch and its check are one instant, so nothing slips. The threads
//! of a client wait at the gate in the order of their launches, each for `max_hold_ns` from when it
//! is the first. Unlike the library, this model learns nothing from long synchronisations. Helpers'
//! polls in vain change nothing, so only successful ones are events: the first on their raster at
//! which the event is complete.

mod be_job;

use std::collections::VecDeque;

use policy::{
    Durations, Gate, HpTimeline, HpView, JobView, Mark, Outlook, Policy, Sharing, SloView,
    Snapshot, Taught, ThrottleParams,
};
use softgpu::Gpu;

use self::be_job::{BeJob, Wait};
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::job::JobClass;
use crate::laws::{self, Laws, Telemetry};
use crate::scheduler::{ClientId, Issue, Launch, Placement, Scheduler, State};
use crate::schedulers::PolicySpec;
use crate::schedulers::helper::Asker;

#[derive(Debug)]
pub(crate) struct Leased {
    gate: Gate,
    host: HostModel,
    sharing: Sharing,
    sms: u32,
    known_latency_ns: Option<u64>,
    clients: Vec<Client>,
    /// Counts how often high-priority launches voided leases; never 0.
    epoch: u64,
    /// The epoch of live leases; 0: none.
    live_epoch: u64,
    gates_copies: bool,
    look_ns: u64,
    /// Completion reports on their way to the daemon, with their arrival times, in order.
    news: VecDeque<(u64, News)>,
    telemetry: Option<Telemetry>,
    gives_priorities: bool,
    views: Vec<JobView>,
}

#[derive(Debug)]
enum Client {
    HighPriority(Box<Feed>),
    BestEffort(Box<BeJob>),
    Dead,
}

#[derive(Clone, Copy, Debug)]
enum News {
    Done(ClientId, u64),
    Copied(ClientId),
    Synchronised(ClientId, u64),
}

#[derive(Debug)]
struct Feed {
    timeline: HpTimeline,
    records: Vec<Record>,
    marks: Vec<Mark>,
    is_marking: bool,
    heard_ns: u64,
    drained_ns: u64,
    is_asked: bool,
    wanted_ns: u64,
    helper: Asker,
    began_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Record {
    /// A launch, and its time by the clock; 0 if it voided no lease.
    Launch(policy::Launch, u64),
    /// Everything up to that number is complete, known at that time by the clock.
    Complete(u64, u64),
}

impl Leased {
    /// `known_latency_ns` is the high-priority latency if it was profiled beforehand, as by Orion.
    pub(crate) fn new(
        policy: Policy,
        known_latency_ns: Option<u64>,
        experiment: &Experiment,
    ) -> Self {
        let learns_durations =
            matches!(&policy, Policy::Pillion(params) if params.learnt_durations);
        let gates_copies = matches!(policy, Policy::Pillion(_));
        let clients = experiment.jobs.iter().enumerate();
        let clients = clients.map(|(index, job)| match job.class {
            JobClass::HighPriority => Client::HighPriority(Box::new(Feed::new(job.marks))),
            JobClass::BestEffort => {
                let mut be_job = BeJob::new(index, learns_durations);
                (be_job.weight, be_job.min_progress) = (job.weight, job.min_progress);
                be_job.max_share = job.max_share;
                Client::BestEffort(Box::new(be_job))
            }
        });
        let is_muxflow = matches!(experiment.policy, PolicySpec::MuxFlow(_));
        let laws = experiment.policy.laws(&experiment.laws);
        let telemetry = laws.throttle.is_some();
        let telemetry = telemetry.then(|| Telemetry::new(&experiment.device, laws.by_sm_activity));
        Self {
            gate: gate(policy, &laws, experiment),
            telemetry,
            gives_priorities: !is_muxflow,
            host: experiment.host,
            sharing: match experiment.gpu.sharing {
                softgpu::Sharing::Mps => Sharing::Mps,
                softgpu::Sharing::TimeSlice => Sharing::TimeSlice,
            },
            sms: experiment.device.sms,
            known_latency_ns,
            clients: clients.collect(),
            epoch: 1,
            live_epoch: 0,
            gates_copies,
            look_ns: 0,
            news: VecDeque::new(),
            views: Vec::new(),
        }
    }

    fn hand_over_requests(&mut self) {
        for (id, client) in (0..).zip(&mut self.clients) {
            if let Client::HighPriority(feed) = client {
                for mark in feed.marks.drain(..) {
                    self.gate.handle_mark(id, &mark);
                }
                while let Some(request) = feed.timeline.take_request() {
                    self.gate.handle_request(id, &request);
                }
            }
        }
    }

    fn ring(&mut self, now_ns: u64) {
        self.look_ns = self.look_ns.min(now_ns + self.host.wake_ns);
    }

    fn look(&mut self, now_ns: u64) {
        let clock_ns = self.host.clock_ns(now_ns);
        let mut hp = HpView::ABSENT;
        let far_ns = clock_ns.saturating_add(SECOND_NS);
        let mut outlook = Outlook::idle(clock_ns);
        for client in &mut self.clients {
            match client {
                Client::HighPriority(feed) => {
                    feed.drain(clock_ns);
                    hp = HpView::merge([hp, feed.timeline.poll_view(clock_ns)]);
                    outlook = outlook.merge(feed.timeline.outlook(clock_ns, far_ns));
                }
                Client::BestEffort(be_job) => be_job.read(),
                Client::Dead => {}
            }
        }
        if hp.present && self.known_latency_ns.is_some() {
            hp.latency_ns = self.known_latency_ns;
            hp.learning = false;
        }
        self.views.clear();
        for be_job in self.clients.iter().filter_map(Client::be_job) {
            self.gate.handle_terms(be_job.view.id, be_job.terms());
            self.gate.handle_cap(be_job.view.id, be_job.max_share);
        }
        let be_jobs = self.clients.iter().filter_map(Client::be_job);
        self.views.extend(be_jobs.map(|be_job| be_job.view));
        self.gate.handle_jobs(clock_ns, &self.views);
        self.hand_over_requests();
        let snapshot = Snapshot {
            now_ns: clock_ns,
            sharing: self.sharing,
            sms: self.sms,
            epoch: self.epoch,
            hp,
            be: &self.views,
        };
        self.gate.handle_snapshot(&snapshot);
        let (mut is_active, mut someone_waits) = (false, false);
        let be_jobs = self.clients.iter_mut().filter_map(Client::lessee_mut);
        for (place, be_job) in be_jobs.enumerate() {
            let (lease, limit) = self.gate.gate_with_limit(&snapshot, place);
            be_job.grant(lease, limit);
            if be_job.min_progress > 0.0 {
                let progress = &mut be_job.progress;
                progress.handle_decision(clock_ns, &be_job.view, limit, snapshot.hp.present);
            }
            if be_job.publish(now_ns, &self.host) {
                self.live_epoch = self.epoch;
            }
            is_active |= be_job.view.waiting || !be_job.view.drained;
            someone_waits |= be_job.view.waiting;
        }
        for client in &mut self.clients {
            if let Client::HighPriority(feed) = client {
                feed.ask(now_ns, someone_waits, &self.host);
            }
        }
        let next_ns = self
            .gate
            .next_look_ns(&snapshot, &outlook, self.host.poll_ns);
        let pause_ns = match is_active {
            true => next_ns.saturating_sub(clock_ns),
            false => self.host.idle_poll_ns,
        };
        self.look_ns = now_ns + pause_ns;
    }

    /// Reads the device if it is time. The throttle takes a reading only after a poll.
    fn read_device(&mut self, now_ns: u64, gpu: &Gpu) {
        let Some(telemetry) = &mut self.telemetry else {
            return;
        };
        if self.host.awake_ns(telemetry.next_ns) > now_ns {
            return;
        }
        let reading = telemetry.read(now_ns, gpu);
        self.look(now_ns);
        let clock_ns = self.host.clock_ns(now_ns);
        self.gate.handle_reading(clock_ns, reading);
    }

    fn tell(&mut self, now_ns: u64, news: News) {
        match self.host.completion_delay_ns {
            0 => self.handle_news(now_ns, news),
            delay_ns => self.news.push_back((now_ns + delay_ns, news)),
        }
    }

    fn handle_news(&mut self, now_ns: u64, news: News) {
        let pause_ns = self.host.helper_poll_ns;
        let (id, seq) = match news {
            News::Done(id, seq) | News::Synchronised(id, seq) => (id, seq),
            News::Copied(id) => {
                let be_job = self.clients[id.0].lessee_mut();
                if be_job.is_some_and(BeJob::complete_copy) {
                    self.ring(now_ns);
                }
                return;
            }
        };
        match (&mut self.clients[id.0], news) {
            (Client::HighPriority(feed), News::Done(..)) => {
                feed.helper.handle_done(now_ns, seq);
            }
            (Client::BestEffort(be_job), News::Done(..)) => {
                be_job.helper.handle_done(now_ns, seq, pause_ns);
            }
            (Client::HighPriority(feed), News::Synchronised(..)) => {
                feed.helper.seen = feed.helper.seen.max(seq);
                feed.complete(seq, self.host.clock_ns(now_ns));
            }
            (Client::BestEffort(be_job), News::Synchronised(..)) => {
                be_job.helper.seen = be_job.helper.seen.max(seq);
                // It does not reveal when the work was complete.
                if be_job.complete(seq, (0, now_ns), self.epoch) {
                    self.ring(now_ns);
                }
            }
            (Client::Dead, _) | (_, News::Copied(_)) => {}
        }
    }

    fn poll_helpers(&mut self, now_ns: u64) {
        let pause_ns = self.host.helper_poll_ns;
        let clock_ns = self.host.clock_ns(now_ns);
        let mut is_rung = false;
        for client in &mut self.clients {
            match client {
                Client::HighPriority(feed) if feed.helper.look_ns <= now_ns => {
                    if let Some(seq) = feed.helper.look() {
                        feed.complete(seq, clock_ns);
                    }
                }
                Client::BestEffort(be_job) if be_job.helper.look_ns <= now_ns => {
                    if let Some((seq, not_yet_ns)) = be_job.helper.look(now_ns, pause_ns) {
                        let looks_ns = (not_yet_ns, now_ns);
                        is_rung |= be_job.complete(seq, looks_ns, self.epoch);
                    }
                    let in_flight_ns = be_job.charged_ns - be_job.completed_ns;
                    be_job.helper.record(now_ns, in_flight_ns, pause_ns);
                }
                _ => {}
            }
        }
        if is_rung {
            self.ring(now_ns);
        }
    }

    fn try_waiting(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        let clock_ns = self.host.clock_ns(now_ns);
        let mut is_rung = false;
        for (index, client) in self.clients.iter_mut().enumerate() {
            let Client::BestEffort(be_job) = client else {
                continue;
            };
            let is_going = |issue: &Issue| issue.client == ClientId(index);
            if issues.iter().any(is_going) {
                continue;
            }
            let Some(launch) = state.clients[index]
                .head
                .filter(|_| be_job.tries_ns() <= now_ns)
            else {
                continue;
            };
            let now = (now_ns, clock_ns);
            if be_job.try_go(now, self.epoch, &launch) {
                // Threads behind it were woken with it, and try when they are the first.
                be_job.is_fresh = state.clients[index].queued > 1;
                be_job.helper.wake(now_ns, self.host.wake_ns);
                let client = ClientId(index);
                issues.push(Issue { client });
            } else if be_job.wait.is_none() {
                be_job.wait = Some(Wait {
                    end_ns: now_ns + self.host.max_hold_ns,
                    retry_ns: u64::MAX,
                });
                is_rung = true;
            }
        }
        if is_rung {
            self.ring(now_ns);
        }
    }
}

impl Scheduler for Leased {
    fn placement(&self) -> Placement {
        Placement {
            one_context: false,
            priorities: self.gives_priorities,
        }
    }

    fn handle_request_start(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        let host = &self.host;
        if let Client::HighPriority(feed) = &mut self.clients[client.0] {
            feed.began_ns = now_ns;
            if feed.is_marking {
                feed.marks.push(Mark::Begin {
                    id: arrival_ns,
                    kind: 0,
                    arrived_ns: host.clock_ns(arrival_ns),
                    at_ns: host.clock_ns(now_ns),
                });
            }
        }
    }

    fn handle_request_end(&mut self, now_ns: u64, client: ClientId, arrival_ns: u64) {
        let at_ns = self.host.clock_ns(now_ns);
        let seq = match &mut self.clients[client.0] {
            Client::HighPriority(feed) => {
                let began_ns = self.host.clock_ns(feed.began_ns);
                let latency_ns = at_ns - began_ns;
                if feed.is_marking {
                    feed.marks.push(Mark::End {
                        id: arrival_ns,
                        at_ns,
                        is_cancelled: false,
                    });
                }
                self.gate.handle_hp_request(latency_ns);
                feed.helper.issued
            }
            Client::BestEffort(be_job) => be_job.helper.issued,
            Client::Dead => return,
        };
        self.tell(now_ns, News::Synchronised(client, seq));
    }

    fn handle_death(&mut self, now_ns: u64, client: ClientId) {
        self.clients[client.0] = Client::Dead;
        self.gate.handle_detach(client.0 as u64);
        // The end of its socket wakes the daemon.
        self.ring(now_ns);
    }

    fn handle_submit(&mut self, now_ns: u64, launch: &Launch) {
        match &mut self.clients[launch.client.0] {
            Client::HighPriority(feed) => {
                feed.helper.issued = launch.seq;
                let mut at_ns = 0;
                if self.live_epoch == self.epoch {
                    self.epoch += 1;
                    at_ns = self.host.clock_ns(now_ns);
                }
                let made = policy::Launch {
                    stream: 0,
                    seq: launch.seq,
                    kernel: launch.kernel,
                };
                feed.records.push(Record::Launch(made, at_ns));
            }
            Client::BestEffort(be_job) => {
                be_job.is_fresh = true;
            }
            Client::Dead => {}
        }
    }

    fn handle_complete(&mut self, now_ns: u64, launch: &Launch) {
        self.tell(now_ns, News::Done(launch.client, launch.seq));
    }

    fn admits_copy(&mut self, now_ns: u64, client: ClientId, bytes: u64) -> bool {
        let clock_ns = self.host.clock_ns(now_ns);
        let is_gated = bytes >= LARGE_COPY_BYTES && self.gates_copies;
        let be_job = match &mut self.clients[client.0] {
            Client::BestEffort(be_job) if is_gated => be_job,
            _ => return true,
        };
        let goes = be_job.try_copy((now_ns, clock_ns), self.epoch, bytes);
        if !goes && be_job.wait.is_none() {
            be_job.wait = Some(Wait {
                end_ns: now_ns + self.host.max_hold_ns,
                retry_ns: u64::MAX,
            });
            self.ring(now_ns);
        }
        goes
    }

    fn handle_copied(&mut self, now_ns: u64, client: ClientId, bytes: u64) {
        if bytes >= LARGE_COPY_BYTES {
            self.tell(now_ns, News::Copied(client));
        }
    }

    fn poll(&mut self, now_ns: u64, state: &State<'_>, issues: &mut Vec<Issue>) {
        for (index, client) in self.clients.iter().enumerate() {
            if matches!(client, Client::HighPriority(_)) {
                let client = ClientId(index);
                let queued = state.clients[index].queued;
                issues.extend((0..queued).map(|_| Issue { client }));
            }
        }
        while let Some(&(at_ns, news)) = self.news.front()
            && at_ns <= now_ns
        {
            self.news.pop_front();
            self.handle_news(now_ns, news);
        }
        self.poll_helpers(now_ns);
        self.read_device(now_ns, state.gpu);
        loop {
            if self.host.awake_ns(self.look_ns) <= now_ns {
                self.look(now_ns);
            }
            self.try_waiting(now_ns, state, issues);
            // Only a thread that begins to wait rings, so this ends.
            if self.host.awake_ns(self.look_ns) > now_ns {
                return;
            }
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        let mut next_ns = self.host.awake_ns(self.look_ns);
        if let Some(&(at_ns, _)) = self.news.front() {
            next_ns = next_ns.min(at_ns);
        }
        if let Some(telemetry) = &self.telemetry {
            next_ns = next_ns.min(self.host.awake_ns(telemetry.next_ns));
        }
        for client in &self.clients {
            next_ns = next_ns.min(match client {
                Client::HighPriority(feed) => feed.helper.look_ns,
                Client::BestEffort(be_job) => be_job.helper.look_ns.min(be_job.tries_ns()),
                Client::Dead => u64::MAX,
            });
        }
        Some(next_ns)
    }

    fn gives_priority(&self) -> bool {
        self.gate.gives_priority()
    }

    fn learnt(&self, client: ClientId) -> Vec<(usize, Taught)> {
        let be_job = self.clients[client.0].be_job();
        let durations = be_job.and_then(|be_job| Some(&be_job.learner.as_ref()?.durations));
        let taught = durations.into_iter().flat_map(Durations::all);
        taught
            .map(|(kernel, taught)| (kernel as usize, taught))
            .collect()
    }

    fn slo_view(&self, client: ClientId) -> Option<SloView> {
        self.gate.slo_view(client.0 as u64)
    }

    fn rule(&self, client: ClientId) -> &'static str {
        match &self.clients[client.0] {
            Client::HighPriority(_) | Client::Dead => "queue",
            Client::BestEffort(be_job) => be_job.limit.name(),
        }
    }
}

fn gate(policy: Policy, laws: &Laws, experiment: &Experiment) -> Gate {
    let mut gate = Gate::new(policy);
    let throttle = laws.throttle.map(|params| match experiment.policy {
        // Its solo clock of high-priority work is configured.
        PolicySpec::MuxFlow(_) => ThrottleParams {
            clock_mhz: params.clock_mhz.or(Some(experiment.device.max_clock_mhz)),
            ..params
        },
        _ => params,
    });
    gate.handle_throttle(throttle);
    // Under MPS the share is one of the SMs, and belongs to the world.
    if experiment.gpu.sharing == softgpu::Sharing::TimeSlice
        && let Ok(Some(percent)) = laws::be_percent(experiment)
    {
        gate.handle_share(f64::from(percent) / 100.0);
    }
    gate
}

impl Client {
    fn be_job(&self) -> Option<&BeJob> {
        match self {
            Self::HighPriority(_) | Self::Dead => None,
            Self::BestEffort(be_job) => Some(be_job),
        }
    }

    fn lessee_mut(&mut self) -> Option<&mut BeJob> {
        match self {
            Self::HighPriority(_) | Self::Dead => None,
            Self::BestEffort(be_job) => Some(be_job),
        }
    }
}

impl Feed {
    fn new(is_marking: bool) -> Self {
        Self {
            timeline: HpTimeline::new(),
            records: Vec::new(),
            marks: Vec::new(),
            is_marking,
            heard_ns: 0,
            drained_ns: 0,
            is_asked: false,
            wanted_ns: 0,
            helper: Asker::new(),
            began_ns: 0,
        }
    }

    fn complete(&mut self, seq: u64, clock_ns: u64) {
        self.records.push(Record::Complete(seq, clock_ns));
    }

    /// The daemon reads the pushed records. `now_ns` is its clock's, as all times that it keeps.
    fn drain(&mut self, now_ns: u64) {
        if !self.records.is_empty() {
            self.heard_ns = now_ns;
        }
        for record in self.records.drain(..) {
            match record {
                Record::Launch(launch, 0) => {
                    let since_ns = self.drained_ns;
                    self.timeline.handle_launch_since(&launch, since_ns, now_ns);
                }
                Record::Launch(launch, at_ns) => self.timeline.handle_launch(&launch, at_ns),
                Record::Complete(seq, at_ns) => self.timeline.handle_complete(0, seq, at_ns),
            }
        }
        self.drained_ns = now_ns;
    }

    fn ask(&mut self, now_ns: u64, someone_waits: bool, host: &HostModel) {
        let clock_ns = host.clock_ns(now_ns);
        if !someone_waits || !self.timeline.is_busy() {
            if self.is_asked && clock_ns.saturating_sub(self.wanted_ns) >= AGAIN_NS {
                self.is_asked = false;
                self.helper.ask(None);
            }
            return;
        }
        self.wanted_ns = clock_ns;
        if !self.is_asked && clock_ns.saturating_sub(self.heard_ns) >= QUIET_NS {
            self.is_asked = true;
            self.helper.ask(Some(now_ns + host.wake_ns));
        }
    }
}

/// Copies of this many bytes count as launches (`protocol::pages`).
const LARGE_COPY_BYTES: u64 = 1 << 20;

const SECOND_NS: u64 = 1_000_000_000;

/// A busy client without a report for this long is asked (the daemon's constant).
const QUIET_NS: u64 = 100_000;

/// A request stands for this long after its answer was last wanted (the daemon's constant).
const AGAIN_NS: u64 = 5_000_000;
