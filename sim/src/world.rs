//! The event loop of a run: the device, the jobs' threads and the scheduler. At each instant: the
//! device's completions, in its order; what reaches the device after the launch latency; the
//! threads' actions, by place of their jobs; then the scheduler is polled and its issues go.
//! Nothing happens between instants. A thread's request is: the copy of its input, every launch of
//! its trace in order, the copy of its output, a synchronisation. Calls are asynchronous; a call
//! returns when its launch is in the software queue, that queue has room for another, and the
//! driver's queue has room. An open loop's next request begins when it arrives, or when the
//! previous one is complete if that is later; its latency always counts from its arrival. A batch's
//! requests begin together, with the last.
//!
//! The run ends when no job has a request left; requests that arrived before the end of the
//! experiment's duration are completed. A run that has not ended after twice the duration is given
//! up: an overloaded open loop would not end soon.

use std::collections::VecDeque;
use std::sync::Arc;

use softgpu::{Completion, ContextId, Gpu, KernelId, Op, StreamId};

use crate::arrivals::Schedule;
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::job::JobClass;
use crate::observer::Observer;
use crate::outcome::{JobOutcome, Outcome, Share};
use crate::program::{Program, Step};
use crate::scheduler::{ClientId, ClientState, Issue, Launch, Restart, Scheduler, SmShare, State};

pub(crate) struct World<'a, O: ?Sized> {
    gpu: Gpu,
    sms: u32,
    host: HostModel,
    clients: Vec<Client>,
    states: Vec<ClientState>,
    scheduler: Box<dyn Scheduler>,
    observer: &'a mut O,
    now_ns: u64,
    give_up_ns: u64,
    by_stream: Vec<usize>,
    issues: Vec<Issue>,
    restarts: Vec<Restart>,
}

/// A job's thread and queues. Positions index a request's steps, with `done <= head <= made`.
struct Client {
    program: Arc<Program>,
    kernels: Arc<[KernelId]>,
    later: VecDeque<Prepared>,
    batches: Vec<(u32, Prepared)>,
    batch: u32,
    more_arrivals_ns: Vec<u64>,
    restart: Option<Restart>,
    schedule: Schedule,
    stream: StreamId,
    /// Its process's context; `None` if all are threads of one.
    own_context: Option<ContextId>,
    depth: u32,
    launch_gap_ns: u64,
    thread: Thread,
    acts_ns: u64,
    arrival_ns: u64,
    made: usize,
    head: usize,
    done: usize,
    issued: u64,
    under_way: VecDeque<(u64, usize)>,
    hold: Option<Hold>,
    is_copy_waiting: bool,
    warmup_left: u32,
    /// When its process is killed; `u64::MAX` if never, or already dead.
    death_ns: u64,
    outcome: JobOutcome,
}

type Prepared = (Arc<Program>, Arc<[KernelId]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Resting,
    Launching,
    InCall,
    Synchronising,
    Noticing,
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    rule: &'static str,
    since_ns: u64,
}

impl<'a, O: Observer + ?Sized> World<'a, O> {
    pub(crate) fn new(
        experiment: &Experiment,
        jobs: &[usize],
        programs: Vec<Vec<Program>>,
        scheduler: Box<dyn Scheduler>,
        observer: &'a mut O,
    ) -> Self {
        let mut gpu = Gpu::new(experiment.device.clone(), experiment.gpu);
        let placement = scheduler.placement();
        let common = gpu.create_context();
        let mut clients = Vec::with_capacity(jobs.len());
        let mut states = Vec::with_capacity(jobs.len());
        let mut by_stream = Vec::new();
        for ((place, &index), programs) in jobs.iter().enumerate().zip(programs) {
            let job = &experiment.jobs[index];
            let context = match placement.one_context {
                true => common,
                false => gpu.create_context(),
            };
            let priority = match job.class {
                JobClass::HighPriority if placement.priorities => HIGH_PRIORITY,
                _ => 0,
            };
            let stream = gpu
                .create_stream(context, priority)
                .expect("the context was created above");
            by_stream.resize(stream.0 as usize + 1, usize::MAX);
            by_stream[stream.0 as usize] = place;
            // Each thread may be in a call.
            let depth = scheduler.queue_depth(ClientId(place)).max(job.threads);
            if let Some(share) = scheduler.share(ClientId(place)) {
                limit(&mut gpu, experiment.device.sms, context, share);
            }
            let prepared = programs.into_iter().map(|program| {
                let kernels = program.kernels.iter().map(|kernel| {
                    gpu.prepare(&kernel.shape)
                        .expect("the kernel was checked against the device")
                });
                let kernels: Arc<[KernelId]> = kernels.collect();
                (Arc::new(program), kernels)
            });
            let prepared = prepared.collect();
            clients.push(Client {
                own_context: (!placement.one_context).then_some(context),
                ..Client::new(experiment, index, prepared, stream, depth)
            });
            states.push(ClientState {
                class: job.class,
                kind: job.kind,
                stream,
                head: None,
                queued: 0,
                in_flight: 0,
                in_flight_ns: 0,
                in_request: false,
            });
        }
        Self {
            gpu,
            sms: experiment.device.sms,
            host: experiment.host,
            clients,
            states,
            scheduler,
            observer,
            now_ns: 0,
            give_up_ns: experiment.duration_ns.saturating_mul(2),
            by_stream,
            issues: Vec::new(),
            restarts: Vec::new(),
        }
    }

    /// Only for separate processes under MPS.
    pub(crate) fn with_be_percent(mut self, percent: Option<u32>) -> Self {
        let Some(percent) = percent else { return self };
        let share = SmShare {
            percent,
            first: false,
        };
        for (client, state) in self.clients.iter().zip(&self.states) {
            if let (JobClass::BestEffort, Some(context)) = (state.class, client.own_context) {
                limit(&mut self.gpu, self.sms, context, share);
            }
        }
        self
    }

    pub(crate) fn run(mut self) -> Outcome {
        for place in 0..self.clients.len() {
            self.rest(place, 0);
        }
        let mut completions = Vec::new();
        while let Some(next_ns) = self.next_ns() {
            let limit_ns = next_ns.min(self.give_up_ns);
            self.now_ns = self.gpu.advance_to_completion(limit_ns, &mut completions);
            if next_ns > self.give_up_ns && completions.is_empty() {
                break;
            }
            self.step(&mut completions);
        }
        self.finish()
    }

    fn finish(self) -> Outcome {
        let elapsed_ns = self.now_ns;
        let utilisation = Share::new(&self.gpu.utilisation(), self.sms, elapsed_ns);
        let jobs: Vec<JobOutcome> = self
            .clients
            .into_iter()
            .enumerate()
            .map(|(place, client)| JobOutcome {
                learnt: self.scheduler.learnt(ClientId(place)),
                slo: self.scheduler.slo_view(ClientId(place)),
                ..client.finish(elapsed_ns)
            })
            .collect();
        Outcome {
            launches: jobs.iter().map(|job| job.launches).sum(),
            jobs,
            elapsed_ns,
            utilisation,
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let mut next_ns = u64::MAX;
        let mut is_over = true;
        for client in &self.clients {
            is_over &= client.thread == Thread::Ended;
            next_ns = next_ns.min(client.acts_ns);
            if client.thread != Thread::Ended {
                next_ns = next_ns.min(client.death_ns);
            }
            if let Some(&(at_ns, _)) = client.under_way.front() {
                next_ns = next_ns.min(at_ns);
            }
        }
        if is_over {
            return None;
        }
        if let Some(at_ns) = self.scheduler.next_wake_ns() {
            next_ns = next_ns.min(at_ns.max(self.now_ns));
        }
        Some(next_ns)
    }

    fn step(&mut self, completions: &mut Vec<Completion>) {
        for completion in completions.drain(..) {
            self.handle_completion(&completion);
        }
        for place in 0..self.clients.len() {
            self.hand_over(place);
            if self.clients[place].death_ns <= self.now_ns {
                self.kill(place);
            }
            if self.clients[place].acts_ns <= self.now_ns {
                self.act(place);
            }
        }
        self.poll();
        self.note_holds();
    }

    fn handle_completion(&mut self, completion: &Completion) {
        let place = self.by_stream[completion.stream.0 as usize];
        let client = &mut self.clients[place];
        let index = client.done;
        client.done += 1;
        match client.program.steps[index] {
            Step::Copy { bytes, .. } => {
                let id = ClientId(place);
                let (started_ns, at_ns) = (completion.started_ns, completion.at_ns);
                self.scheduler.handle_copied(self.now_ns, id, bytes);
                self.observer
                    .copy_completed(started_ns, at_ns, id, completion.kind);
            }
            Step::Launch { .. } => {
                client.outcome.launches += 1;
                let seq = client.outcome.launches;
                let launch = client.launch(place, index, seq);
                let state = &mut self.states[place];
                state.in_flight -= 1;
                state.in_flight_ns -= launch.kernel.expected_ns;
                self.scheduler.handle_complete(self.now_ns, &launch);
                self.observer
                    .kernel_completed(completion.started_ns, completion.at_ns, &launch);
            }
        }
        self.try_return(place);
        let client = &mut self.clients[place];
        if client.thread == Thread::Synchronising && client.done == client.program.steps.len() {
            client.thread = Thread::Noticing;
            client.acts_ns = self.now_ns.saturating_add(self.host.notice_ns);
        }
    }

    fn hand_over(&mut self, place: usize) {
        while let Some(&(at_ns, index)) = self.clients[place].under_way.front() {
            if at_ns > self.now_ns {
                return;
            }
            self.clients[place].under_way.pop_front();
            self.submit(place, index);
        }
    }

    /// Kills the process, in any state. The driver keeps launches that have left its queue.
    fn kill(&mut self, place: usize) {
        let client = &mut self.clients[place];
        client.death_ns = u64::MAX;
        if client.thread == Thread::Ended {
            return;
        }
        client.thread = Thread::Ended;
        client.is_copy_waiting = false;
        client.acts_ns = u64::MAX;
        let state = &mut self.states[place];
        let head = state.head.take();
        if let Some(hold) = client.hold.take() {
            client.add_held(hold, self.now_ns);
            if let Some(launch) = &head {
                self.observer.hold_ended(self.now_ns, launch);
            }
        }
        state.queued = 0;
        state.in_request = false;
        self.scheduler.handle_death(self.now_ns, ClientId(place));
    }

    fn act(&mut self, place: usize) {
        let client = &mut self.clients[place];
        client.acts_ns = u64::MAX;
        match client.thread {
            Thread::Resting => {
                client.begin(self.now_ns);
                let (arrival_ns, request) = (client.arrival_ns, client.outcome.requests);
                self.states[place].in_request = true;
                let id = ClientId(place);
                self.scheduler
                    .handle_request_start(self.now_ns, id, arrival_ns);
                self.observer
                    .request_started(self.now_ns, id, request, arrival_ns);
                self.make_step(place);
            }
            Thread::Launching => self.make_step(place),
            Thread::Noticing => {
                let (arrival_ns, request) = (client.arrival_ns, client.outcome.requests);
                client.end(self.now_ns);
                self.states[place].in_request = false;
                let id = ClientId(place);
                self.scheduler
                    .handle_request_end(self.now_ns, id, arrival_ns);
                self.observer
                    .request_ended(self.now_ns, id, request, arrival_ns);
                let free_ns = self.restart(place).max(self.now_ns);
                self.rest(place, free_ns);
            }
            Thread::InCall | Thread::Synchronising | Thread::Ended => {}
        }
    }

    fn make_step(&mut self, place: usize) {
        let client = &mut self.clients[place];
        let index = client.made;
        client.made += 1;
        client.thread = Thread::InCall;
        if let Step::Launch { .. } = client.program.steps[index] {
            let state = &mut self.states[place];
            let seq = client.issued + u64::from(state.queued) + 1;
            let launch = client.launch(place, index, seq);
            state.queued += 1;
            if client.head == index {
                state.head = Some(launch);
            }
            self.scheduler.handle_submit(self.now_ns, &launch);
        }
        self.issue_copies(place);
        self.try_return(place);
    }

    fn issue_copies(&mut self, place: usize) {
        while let client = &mut self.clients[place]
            && client.head < client.made
            && let Step::Copy { bytes, .. } = client.program.steps[client.head]
        {
            let id = ClientId(place);
            client.is_copy_waiting = !self.scheduler.admits_copy(self.now_ns, id, bytes);
            if client.is_copy_waiting {
                return;
            }
            let index = client.head;
            client.head += 1;
            self.send(place, index);
        }
    }

    fn try_return(&mut self, place: usize) {
        let client = &mut self.clients[place];
        let on_device = client.head - client.done;
        if client.thread != Thread::InCall
            || client.is_copy_waiting
            || self.states[place].queued >= client.depth
            || on_device >= self.host.driver_queue as usize
        {
            return;
        }
        let steps = client.program.steps.len();
        if client.made < steps {
            client.thread = Thread::Launching;
            client.acts_ns = self.now_ns.saturating_add(client.launch_gap_ns);
        } else if client.done < steps {
            client.thread = Thread::Synchronising;
        } else {
            client.thread = Thread::Noticing;
            client.acts_ns = self.now_ns.saturating_add(self.host.notice_ns);
        }
    }

    fn poll(&mut self) {
        let state = State {
            sms: self.sms,
            gpu: &self.gpu,
            clients: &self.states,
        };
        let mut issues = std::mem::take(&mut self.issues);
        self.scheduler.poll(self.now_ns, &state, &mut issues);
        for issue in issues.drain(..) {
            self.issue(issue.client.0);
        }
        self.issues = issues;
        self.take_restarts();
        for place in 0..self.clients.len() {
            if self.clients[place].is_copy_waiting {
                self.issue_copies(place);
                self.try_return(place);
            }
        }
    }

    /// Begins no request before `free_ns`.
    fn rest(&mut self, place: usize, free_ns: u64) {
        let client = &mut self.clients[place];
        if !client.batches.is_empty() {
            let batch = self.scheduler.batch(self.now_ns, ClientId(place));
            client.choose(batch);
        }
        client.rest(free_ns);
    }

    fn take_restarts(&mut self) {
        let mut restarts = std::mem::take(&mut self.restarts);
        self.scheduler.take_restarts(&mut restarts);
        for restart in restarts.drain(..) {
            let place = restart.client.0;
            self.clients[place].restart = Some(restart);
            if self.clients[place].thread == Thread::Resting {
                let free_ns = self.restart(place);
                self.clients[place].wait_until(free_ns);
            }
        }
        self.restarts = restarts;
    }

    /// Restarts the client's process if that is pending; returns when it can begin a request.
    fn restart(&mut self, place: usize) -> u64 {
        let client = &mut self.clients[place];
        let Some(restart) = client.restart.take() else {
            return 0;
        };
        if let Some(context) = client.own_context {
            limit(&mut self.gpu, self.sms, context, restart.share);
        }
        self.now_ns.saturating_add(restart.outage_ns)
    }

    fn issue(&mut self, place: usize) {
        let state = &mut self.states[place];
        let launch = state.head.expect("a scheduler issues what is queued");
        let client = &mut self.clients[place];
        let index = client.head;
        client.head += 1;
        client.issued += 1;
        state.queued -= 1;
        state.in_flight += 1;
        state.in_flight_ns += launch.kernel.expected_ns;
        state.head = None;
        if let Some(hold) = client.hold.take() {
            client.add_held(hold, self.now_ns);
            self.observer.hold_ended(self.now_ns, &launch);
        }
        self.observer.issued(self.now_ns, &launch);
        self.send(place, index);
        self.issue_copies(place);
        let client = &self.clients[place];
        if self.states[place].queued > 0 {
            self.states[place].head = Some(client.launch(place, client.head, client.issued + 1));
        }
        self.try_return(place);
    }

    fn send(&mut self, place: usize, index: usize) {
        match self.host.launch_latency_ns {
            0 => self.submit(place, index),
            latency_ns => {
                let at_ns = self.now_ns.saturating_add(latency_ns);
                self.clients[place].under_way.push_back((at_ns, index));
            }
        }
    }

    fn submit(&mut self, place: usize, index: usize) {
        let client = &self.clients[place];
        let op = match client.program.steps[index] {
            Step::Launch { kernel, .. } => Op::Prepared {
                kernel: client.kernels[kernel as usize],
                priority: self.scheduler.gives_priority().then_some(DEFAULT_PRIORITY),
            },
            Step::Copy { direction, bytes } => Op::Copy { direction, bytes },
        };
        self.gpu
            .submit(self.now_ns, client.stream, op)
            .expect("the stream is open and the kernel was prepared");
    }

    fn note_holds(&mut self) {
        for (place, client) in self.clients.iter_mut().enumerate() {
            let Some(launch) = &self.states[place].head else {
                continue;
            };
            let rule = self.scheduler.rule(ClientId(place));
            match client.hold {
                Some(hold) if hold.rule == rule => continue,
                Some(hold) => client.add_held(hold, self.now_ns),
                None => {
                    client.outcome.held += 1;
                    self.observer.hold_started(self.now_ns, launch, rule);
                }
            }
            client.hold = Some(Hold {
                rule,
                since_ns: self.now_ns,
            });
        }
    }
}

impl Client {
    fn new(
        experiment: &Experiment,
        index: usize,
        mut programs: VecDeque<Prepared>,
        stream: StreamId,
        depth: u32,
    ) -> Self {
        let job = &experiment.jobs[index];
        let of_batches = programs.iter().cloned();
        let requests = job.batches.iter().map(|batch| batch.requests);
        let batches = requests.zip(of_batches).collect();
        let (program, kernels) = programs.pop_front().expect("a job has a trace");
        if !job.batches.is_empty() {
            programs.clear();
        }
        let seed = experiment.seed_of(index);
        Self {
            program,
            kernels,
            later: programs,
            batches,
            batch: 1,
            more_arrivals_ns: Vec::new(),
            restart: None,
            schedule: job.schedule(experiment.duration_ns, seed),
            stream,
            depth,
            launch_gap_ns: experiment.host_of(index).launch_gap_ns,
            own_context: None,
            thread: Thread::Ended,
            acts_ns: u64::MAX,
            arrival_ns: 0,
            made: 0,
            head: 0,
            done: 0,
            issued: 0,
            under_way: VecDeque::new(),
            hold: None,
            is_copy_waiting: false,
            warmup_left: experiment.warmup_requests,
            death_ns: job.death_ns.unwrap_or(u64::MAX),
            outcome: JobOutcome {
                index,
                name: job.name.clone(),
                class: job.class,
                kind: job.kind,
                latencies_ns: Vec::new(),
                requests: 0,
                unfinished: 0,
                last_completion_ns: 0,
                launches: 0,
                held: 0,
                held_ns: Vec::new(),
                learnt: Vec::new(),
                slo: None,
            },
        }
    }

    /// The last batch if there is no such one.
    fn choose(&mut self, batch: usize) {
        let found = self.batches.get(batch).or(self.batches.last());
        if let Some((requests, (program, kernels))) = found {
            self.batch = *requests;
            (self.program, self.kernels) = (Arc::clone(program), Arc::clone(kernels));
        }
    }

    /// Begins no request before `free_ns`.
    fn rest(&mut self, free_ns: u64) {
        self.more_arrivals_ns.clear();
        match self.schedule.next_ns(free_ns) {
            Some(arrival_ns) => {
                self.thread = Thread::Resting;
                self.arrival_ns = arrival_ns;
                let more = (1..self.batch).map_while(|_| self.schedule.next_ns(free_ns));
                self.more_arrivals_ns.extend(more);
                self.wait_until(free_ns);
            }
            None => self.thread = Thread::Ended,
        }
    }

    /// Rests, and begins no request before then. A closed loop's next request arrives only then.
    fn wait_until(&mut self, free_ns: u64) {
        if matches!(self.schedule.arrivals(), crate::Arrivals::Closed) {
            self.arrival_ns = self.arrival_ns.max(free_ns);
        }
        let last_ns = self.more_arrivals_ns.last().unwrap_or(&self.arrival_ns);
        self.acts_ns = free_ns.max(*last_ns);
    }

    fn begin(&mut self, now_ns: u64) {
        while let Some((next, _)) = self.later.front()
            && next.start_ns <= now_ns
            && let Some((program, kernels)) = self.later.pop_front()
        {
            (self.program, self.kernels) = (program, kernels);
        }
        (self.made, self.head, self.done) = (0, 0, 0);
    }

    fn end(&mut self, now_ns: u64) {
        self.outcome.last_completion_ns = now_ns;
        for &arrival_ns in [self.arrival_ns].iter().chain(&self.more_arrivals_ns) {
            self.outcome.requests += 1;
            match self.warmup_left {
                0 => self.outcome.latencies_ns.push(now_ns - arrival_ns),
                left => self.warmup_left = left - 1,
            }
        }
    }

    fn launch(&self, place: usize, index: usize, seq: u64) -> Launch {
        let Step::Launch {
            kernel,
            place: in_trace,
        } = self.program.steps[index]
        else {
            unreachable!("copies are not launches");
        };
        Launch {
            client: ClientId(place),
            seq,
            request: self.outcome.requests,
            place: in_trace,
            kernel_index: self.program.kernels_before + kernel,
            is_last: u64::from(in_trace) + 1 == self.program.launches,
            kernel: self.program.kernels[kernel as usize].kernel,
        }
    }

    fn add_held(&mut self, hold: Hold, now_ns: u64) {
        let held_ns = now_ns - hold.since_ns;
        let sums = &mut self.outcome.held_ns;
        match sums.iter_mut().find(|(rule, _)| *rule == hold.rule) {
            Some((_, sum_ns)) => *sum_ns += held_ns,
            None => sums.push((hold.rule, held_ns)),
        }
    }

    fn finish(mut self, elapsed_ns: u64) -> JobOutcome {
        if let Some(hold) = self.hold.take() {
            self.add_held(hold, elapsed_ns);
        }
        if self.thread != Thread::Ended {
            // The one in progress or late, and all that arrived behind it.
            self.outcome.unfinished = 1 + self.more_arrivals_ns.len() as u64;
            if !matches!(self.schedule.arrivals(), crate::Arrivals::Closed) {
                while self.schedule.next_ns(elapsed_ns).is_some() {
                    self.outcome.unfinished += 1;
                }
            }
        }
        self.outcome
    }
}

/// Only if it is a context under MPS.
fn limit(gpu: &mut Gpu, device_sms: u32, context: ContextId, share: SmShare) {
    let sms = softgpu::sms_of_percent(device_sms, share.percent.into());
    let limited = match share.first {
        true => gpu.limit_sms_first(context, sms),
        false => gpu.limit_sms(context, sms),
    };
    limited.expect("the context exists as long as the run");
}

/// Priority of high-priority streams, as CUDA numbers them: lower goes first, 0 is the default.
const HIGH_PRIORITY: i32 = -1;
const DEFAULT_PRIORITY: i32 = 0;
