//! The GPU: contexts, streams, and the order of events.
//! # How to drive it
//! 1. [`Gpu::submit`] puts an operation on a stream and returns its number there: 1, 2, 3, …
//! 2. [`Gpu::next_event_ns`] returns when to poll again.
//! 3. [`Gpu::advance`] advances to an instant and returns what completed on the way, in order of
//!    time; at one instant in an order that depends only on earlier calls.
//!
//! Times are nanoseconds since the GPU's creation. A call with an earlier time than the last one
//! panics. An operation submitted at an instant comes after all that happens at that instant
//! anyway. Extra calls of `advance` between events change nothing.
//! # Order at one instant
//! Ends precede beginnings: copies end (to the device, then from it), blocks end, streams continue
//! with their next operation, repeatedly until nothing moves. Then copies start, the turn passes on
//! (time-slice mode), and blocks start. A freed place thus goes to the best of all that wait at
//! that instant, not to the first that was visited.

mod config;
mod validity;

pub use config::{
    Completion, Config, ContextUtilisation, Dispatch, LAUNCH_GAP_NS, Sharing, Utilisation,
    sms_of_percent,
};

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::compute::{ALL_SMS, Prepared, Run, RunId, SmRange};
use crate::connection::Connections;
use crate::contention::Demand;
use crate::copy_engine::{BUS_GB_S, CopyEngine, CopyJob};
use crate::engine::Engine;
use crate::error::Error;
use crate::flat::{FlatMap, FlatSet};
use crate::governor::{Clock, Governed};
use crate::kernel::KernelShape;
use crate::op::{ContextId, CopyDirection, KernelId, Op, OpKind, StreamId};
use crate::stream::{Head, Stream};
use devices::Device;

/// A GPU with its contexts and all incomplete operations.
#[derive(Clone, Debug)]
pub struct Gpu {
    device: Device,
    config: Config,
    clock: Option<Clock>,
    now_ns: u64,
    contexts: FlatMap<ContextId, Context>,
    streams: FlatMap<StreamId, Stream>,
    engine: Engine,
    to_device: CopyEngine,
    to_host: CopyEngine,
    bus_demand: Demand,
    /// By [`KernelId`]. Copies of the GPU share it.
    kernels: Arc<Vec<Prepared>>,
    /// Streams to visit before time advances.
    stirred: VecDeque<StreamId>,
    /// Streams whose next kernel keeps its distance to the previous one, by its earliest start.
    delayed: FlatSet<(u64, StreamId)>,
    completions: Vec<Completion>,
    ended_runs: Vec<Run>,
    ended: Vec<(StreamId, u64)>,
    context_next: u32,
    stream_next: u64,
    run_next: RunId,
}

#[derive(Clone, Debug)]
struct Context {
    streams: BTreeSet<StreamId>,
    connections: Connections,
    kernels_in_flight: u64,
    ops_in_flight: u64,
    sms: SmRange,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            streams: BTreeSet::new(),
            connections: Connections::default(),
            kernels_in_flight: 0,
            ops_in_flight: 0,
            sms: ALL_SMS,
        }
    }
}

impl Gpu {
    /// An idle GPU at time 0.
    pub fn new(device: Device, config: Config) -> Self {
        Self {
            engine: Engine::new(&device, &config),
            bus_demand: bus_demand(&device),
            device,
            config,
            clock: config.governor.map(Clock::new),
            now_ns: 0,
            contexts: FlatMap::new(),
            streams: FlatMap::new(),
            to_device: CopyEngine::default(),
            to_host: CopyEngine::default(),
            kernels: Arc::default(),
            stirred: VecDeque::new(),
            delayed: FlatSet::new(),
            completions: Vec::new(),
            ended_runs: Vec::new(),
            ended: Vec::new(),
            context_next: 1,
            stream_next: 1,
            run_next: 0,
        }
    }

    /// The modelled device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The sharing and scheduling settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time of the last call that had one.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Incomplete operations of the context; 0 for an unknown context.
    pub fn in_flight_ops(&self, context: ContextId) -> u64 {
        self.contexts
            .get(&context)
            .map_or(0, |context| context.ops_in_flight)
    }

    /// Incomplete kernels of the context; 0 for an unknown context.
    pub fn in_flight_kernels(&self, context: ContextId) -> u64 {
        self.contexts
            .get(&context)
            .map_or(0, |context| context.kernels_in_flight)
    }

    /// Number of the stream's last submitted operation, from 1; 0: none. `None`: no such stream.
    pub fn last_submitted(&self, stream: StreamId) -> Option<u64> {
        self.streams.get(&stream).map(Stream::submitted)
    }

    /// Number of the stream's last completed operation, from 1; 0: none. `None`: no such stream.
    pub fn last_completed(&self, stream: StreamId) -> Option<u64> {
        self.streams.get(&stream).map(|stream| stream.completed)
    }

    /// Use up to now.
    pub fn utilisation(&self) -> Utilisation {
        let usage = self.engine.usage(self.now_ns);
        let whole = |q32: u128| u64::try_from(q32 >> 32).unwrap_or(u64::MAX);
        let copying_ns = self.to_device.busy_ns(self.now_ns) + self.to_host.busy_ns(self.now_ns);
        let copied_q32_ns = u128::from(self.bus_demand.bandwidth_q32) * u128::from(copying_ns);
        Utilisation {
            busy_ns: usage.busy_ns,
            busy_sm_ns: usage.busy_sm_ns,
            compute_ns: whole(usage.compute_q32_ns),
            bandwidth_ns: whole(usage.bandwidth_q32_ns + copied_q32_ns),
            copy_to_device_ns: self.to_device.busy_ns(self.now_ns),
            copy_to_host_ns: self.to_host.busy_ns(self.now_ns),
        }
    }

    /// State of clock, power and temperature; `None` if [`Config::governor`] is.
    pub fn governed(&self) -> Option<Governed> {
        self.clock.map(|clock| clock.view(self.now_ns))
    }

    /// A context's use up to now; zero for an unknown context.
    pub fn utilisation_of(&self, context: ContextId) -> ContextUtilisation {
        let usage = self.engine.usage_of(self.now_ns, context);
        ContextUtilisation {
            busy_ns: usage.busy_ns,
            busy_sm_ns: usage.busy_sm_ns,
            bandwidth_ns: u64::try_from(usage.bandwidth_q32_ns >> 32).unwrap_or(u64::MAX),
        }
    }

    /// Creates a context, for a process that attached. Each of its streams has its own connection.
    pub fn create_context(&mut self) -> ContextId {
        self.create_context_with(0)
    }

    /// Creates a context with so many connections (`crate::connection`); 0: no limit.
    pub fn create_context_with(&mut self, connections: usize) -> ContextId {
        let id = ContextId(self.context_next);
        self.context_next += 1;
        let context = Context {
            connections: Connections::new(connections),
            ..Context::default()
        };
        self.contexts.insert(id, context);
        id
    }

    /// Limits later launches of the context to that many SMs, clamped to 1 and the device's number:
    /// the last SMs of the device, shared with all contexts. Has an effect under [`Sharing::Mps`];
    /// in time slices a context has all SMs.
    /// # Errors
    /// [`Error::UnknownContext`].
    pub fn limit_sms(&mut self, context: ContextId, sms: u32) -> Result<(), Error> {
        let first = self.device.sms.saturating_sub(sms.max(1));
        self.bind_sms(context, SmRange(first, u32::MAX))
    }

    /// As [`Gpu::limit_sms`], but on the first SMs of the device: disjoint from contexts limited
    /// there, if both limits together do not exceed the device.
    /// # Errors
    /// [`Error::UnknownContext`].
    pub fn limit_sms_first(&mut self, context: ContextId, sms: u32) -> Result<(), Error> {
        self.bind_sms(context, SmRange(0, sms.max(1)))
    }

    fn bind_sms(&mut self, context: ContextId, sms: SmRange) -> Result<(), Error> {
        let limited = self.contexts.get_mut(&context);
        let limited = limited.ok_or(Error::UnknownContext(context))?;
        if self.config.sharing == Sharing::Mps {
            limited.sms = sms;
        }
        Ok(())
    }

    /// Removes the context of a process that has ended. Its queued and running work vanishes
    /// without completions, and streams that wait for one of its streams continue.
    /// # Errors
    /// [`Error::UnknownContext`].
    pub fn destroy_context(&mut self, now_ns: u64, context: ContextId) -> Result<(), Error> {
        self.run_until(now_ns);
        let dead = self
            .contexts
            .remove(&context)
            .ok_or(Error::UnknownContext(context))?;
        self.engine.drop_context(now_ns, context);
        self.to_device.drop_context(now_ns, context);
        self.to_host.drop_context(now_ns, context);
        for stream in dead.streams {
            if let Some(stream) = self.streams.remove(&stream) {
                self.stirred.extend(stream.into_waiters());
            }
        }
        self.completions
            .retain(|completion| completion.context != context);
        let streams = &self.streams;
        self.delayed.retain(|(_, id)| streams.contains_key(id));
        self.settle();
        Ok(())
    }

    /// Creates a stream. As in CUDA, a lower number is a higher priority.
    /// # Errors
    /// [`Error::UnknownContext`].
    pub fn create_stream(&mut self, context: ContextId, priority: i32) -> Result<StreamId, Error> {
        let owner = self
            .contexts
            .get_mut(&context)
            .ok_or(Error::UnknownContext(context))?;
        let id = StreamId(self.stream_next);
        self.stream_next += 1;
        owner.streams.insert(id);
        let connection = owner.connections.assign();
        let stream = Stream::new(context, priority, connection);
        self.streams.insert(id, stream);
        Ok(id)
    }

    /// Closes the stream to further operations. As in CUDA, submitted ones still complete.
    /// # Errors
    /// [`Error::UnknownStream`], also for a stream that is being destroyed.
    pub fn destroy_stream(&mut self, stream: StreamId) -> Result<(), Error> {
        self.open_stream(stream)?.closing = true;
        self.remove_if_drained(stream);
        Ok(())
    }

    /// Computes once what the launches of a kernel take, for [`Op::Prepared`].
    /// # Errors
    /// As [`KernelShape::check`].
    pub fn prepare(&mut self, shape: &KernelShape) -> Result<KernelId, Error> {
        shape.check(&self.device)?;
        let id = u32::try_from(self.kernels.len())
            .map_err(|_| Error::InvalidShape("2^32 kernels have been prepared"))?;
        let kernel = Prepared::new(shape, &self.device);
        Arc::make_mut(&mut self.kernels).push(kernel);
        Ok(KernelId(id))
    }

    /// Puts an operation on a stream at `now_ns` and returns its number in the stream.
    /// # Errors
    /// [`Error::UnknownStream`]; for a kernel as [`KernelShape::check`]; for a wait
    /// [`Error::UnknownStream`] and [`Error::UnknownOperation`].
    pub fn submit(&mut self, now_ns: u64, stream: StreamId, op: Op) -> Result<u64, Error> {
        self.run_until(now_ns);
        self.check(&op)?;
        let state = self.open_stream(stream)?;
        let is_kernel = op.kind() == OpKind::Kernel;
        let is_idle = state.head == Head::Idle;
        state.queue.push_back(op);
        let (seq, context, connection) = (state.submitted(), state.context, state.connection);
        let context = self
            .contexts
            .get_mut(&context)
            .expect("a stream's context exists");
        context.ops_in_flight += 1;
        context.kernels_in_flight += u64::from(is_kernel);
        if let Some(connection) = connection {
            context.connections.push(connection, stream);
        }
        if is_idle {
            self.stirred.push_back(stream);
            self.settle();
        }
        Ok(seq)
    }

    /// Lets the holds of a stream up to operation `seq` complete, now or at their turn.
    pub fn release(&mut self, now_ns: u64, stream: StreamId, seq: u64) {
        self.run_until(now_ns);
        if let Some(state) = self.streams.get_mut(&stream) {
            state.released = state.released.max(seq);
            self.stirred.push_back(stream);
            self.settle();
        }
    }

    /// Whether operation `seq` of the stream is a hold that currently stops the stream.
    pub fn is_held(&self, stream: StreamId, seq: u64) -> bool {
        self.streams.get(&stream).is_some_and(|stream| {
            let is_hold = stream.queue.front() == Some(&Op::Hold);
            is_hold && stream.head == Head::Waiting && stream.completed + 1 == seq
        })
    }

    /// Advances to `now_ns` and returns what completed since the last call.
    pub fn advance(&mut self, now_ns: u64) -> Vec<Completion> {
        self.run_until(now_ns);
        std::mem::take(&mut self.completions)
    }

    /// As [`Gpu::advance`], appending to the caller's buffer.
    pub fn advance_into(&mut self, now_ns: u64, completions: &mut Vec<Completion>) {
        self.run_until(now_ns);
        completions.append(&mut self.completions);
    }

    /// Advances to the next instant with completions, at most to `limit_ns`, appends them and
    /// returns the instant. Faster than an [`Gpu::advance`] for each [`Gpu::next_event_ns`].
    pub fn advance_to_completion(
        &mut self,
        limit_ns: u64,
        completions: &mut Vec<Completion>,
    ) -> u64 {
        while self.completions.is_empty() {
            match self.next_change_ns() {
                Some(event_ns) if event_ns <= limit_ns => {
                    self.now_ns = event_ns;
                    self.settle();
                }
                _ => {
                    self.now_ns = self.now_ns.max(limit_ns);
                    break;
                }
            }
        }
        completions.append(&mut self.completions);
        self.now_ns
    }

    /// Time of the next completion or internal change if nothing is submitted; the current time if
    /// completions are pending, `None` if nothing will ever happen.
    pub fn next_event_ns(&self) -> Option<u64> {
        if !self.completions.is_empty() {
            return Some(self.now_ns);
        }
        self.next_change_ns()
    }

    fn check(&self, op: &Op) -> Result<(), Error> {
        match op {
            Op::Kernel { shape, .. } => shape.check(&self.device),
            Op::Prepared { kernel, .. } if kernel.0 as usize >= self.kernels.len() => {
                Err(Error::InvalidShape("the kernel was not prepared"))
            }
            Op::Prepared { .. } => Ok(()),
            Op::Wait { stream, seq } => {
                if stream.0 == 0 || stream.0 >= self.stream_next {
                    return Err(Error::UnknownStream(*stream));
                }
                let (stream, seq) = (*stream, *seq);
                match self.last_submitted(stream) {
                    Some(submitted) if seq > submitted => Err(Error::UnknownOperation {
                        stream,
                        seq,
                        submitted,
                    }),
                    _ => Ok(()),
                }
            }
            Op::Copy { .. } | Op::Memset { .. } | Op::Marker | Op::Hold => Ok(()),
        }
    }

    fn open_stream(&mut self, id: StreamId) -> Result<&mut Stream, Error> {
        let stream = self.streams.get_mut(&id).filter(|stream| !stream.closing);
        stream.ok_or(Error::UnknownStream(id))
    }

    fn next_change_ns(&self) -> Option<u64> {
        let copies = self
            .to_device
            .next_event_ns()
            .into_iter()
            .chain(self.to_host.next_event_ns());
        let delayed = self.delayed.first().map(|&(ready_ns, _)| ready_ns);
        let work_ns = copies
            .chain(self.engine.next_event_ns())
            .chain(delayed)
            .min();
        match &self.clock {
            None => work_ns,
            Some(clock) => {
                let tick_ns = clock.next_ns(self.now_ns, work_ns.is_some());
                work_ns.into_iter().chain(tick_ns).min()
            }
        }
    }

    fn run_until(&mut self, now_ns: u64) {
        assert!(
            now_ns >= self.now_ns,
            "time goes back from {} to {now_ns} ns",
            self.now_ns
        );
        while let Some(event_ns) = self.next_change_ns().filter(|&event_ns| event_ns <= now_ns) {
            debug_assert!(
                event_ns > self.now_ns,
                "an instant is settled before time goes on"
            );
            self.now_ns = event_ns;
            self.settle();
        }
        self.now_ns = now_ns;
    }

    /// Processes all that happens at the current instant; see the module's text for the order.
    fn settle(&mut self) {
        self.step_clock();
        let mut runs = std::mem::take(&mut self.ended_runs);
        let mut ended = std::mem::take(&mut self.ended);
        loop {
            if let Some(stream) = self.stirred.pop_front() {
                self.go_on(stream);
                continue;
            }
            self.end_delays();
            ended.extend(self.to_device.try_finish(self.now_ns));
            ended.extend(self.to_host.try_finish(self.now_ns));
            self.engine.retire(self.now_ns, &mut runs);
            ended.extend(runs.drain(..).map(|run| {
                (
                    run.stream,
                    run.started_ns.expect("a kernel that ended has started"),
                )
            }));
            if ended.is_empty() && self.stirred.is_empty() {
                break;
            }
            for (stream, started_ns) in ended.drain(..) {
                self.complete_head(stream, started_ns);
                self.stirred.push_back(stream);
            }
        }
        self.ended_runs = runs;
        self.ended = ended;
        self.to_device.start_next(self.now_ns);
        self.to_host.start_next(self.now_ns);
        self.engine.set_copies(self.now_ns, self.copies_demand());
        self.engine.dispatch(self.now_ns);
    }

    fn step_clock(&mut self) {
        let Some(mut clock) = self.clock.filter(|clock| clock.is_due(self.now_ns)) else {
            return;
        };
        let used = self.utilisation();
        clock.step(self.now_ns, [used.compute_ns, used.bandwidth_ns]);
        self.engine.set_clock(self.now_ns, clock.relative());
        self.clock = Some(clock);
    }

    fn copies_demand(&self) -> Demand {
        let one = self.bus_demand;
        let of = |engine: &CopyEngine| {
            if engine.is_running() {
                one
            } else {
                Demand::default()
            }
        };
        of(&self.to_device).plus(of(&self.to_host))
    }

    fn end_delays(&mut self) {
        while let Some(&(ready_ns, id)) = self.delayed.first() {
            if ready_ns > self.now_ns {
                return;
            }
            self.delayed.remove(&(ready_ns, id));
            let stream = self.stream_mut(id);
            stream.head = Head::Idle;
            let context = stream.context;
            self.engine.expect_fewer(context);
            self.stirred.push_back(id);
        }
    }

    /// Executes the stream's operations up to one that takes time or must wait.
    fn go_on(&mut self, id: StreamId) {
        while let Some(stream) = self.streams.get(&id) {
            if matches!(stream.head, Head::Running | Head::Delayed) {
                return;
            }
            let Some(op) = stream.queue.front() else {
                return self.remove_if_drained(id);
            };
            if !self.may_start(id, stream) {
                self.stream_mut(id).head = Head::Queued;
                return;
            }
            let head = match *op {
                Op::Marker => Head::Idle,
                Op::Wait { stream, seq } => self.wait(id, stream, seq),
                Op::Hold if stream.released > stream.completed => Head::Idle,
                Op::Hold => Head::Waiting,
                Op::Copy { bytes: 0, .. } | Op::Memset { bytes: 0 } => Head::Idle,
                Op::Copy { direction, bytes } => self.copy(id, direction, bytes),
                Op::Memset { bytes } => self.move_memory(id, bytes),
                Op::Kernel { .. } | Op::Prepared { .. } if self.now_ns < stream.ready_ns => {
                    self.delay(id)
                }
                Op::Kernel { shape, priority } => {
                    let kernel = Prepared::new(&shape, &self.device);
                    self.launch(id, &kernel, priority)
                }
                Op::Prepared { kernel, priority } => {
                    let kernel = self.kernels[kernel.0 as usize];
                    self.launch(id, &kernel, priority)
                }
            };
            if matches!(head, Head::Idle | Head::Running) {
                self.leave_connection(id);
            }
            if head != Head::Idle {
                self.stream_mut(id).head = head;
                return;
            }
            self.complete_head(id, self.now_ns);
        }
    }

    /// Whether no earlier operation on its connection has yet to start.
    fn may_start(&self, id: StreamId, stream: &Stream) -> bool {
        let Some(place) = stream.connection else {
            return true;
        };
        let context = self.contexts.get(&stream.context);
        context.is_some_and(|context| context.connections.is_next(place, id))
    }

    fn leave_connection(&mut self, id: StreamId) {
        let stream = self.stream_mut(id);
        let (context, Some(place)) = (stream.context, stream.connection) else {
            return;
        };
        let context = self.contexts.get_mut(&context);
        let next = context.and_then(|context| context.connections.start_next(place));
        self.stirred.extend(next.filter(|&next| next != id));
    }

    /// Enters a wait. A satisfied wait takes no time. A stream never waits for itself.
    fn wait(&mut self, waiter: StreamId, awaited: StreamId, seq: u64) -> Head {
        match self.streams.get_mut(&awaited) {
            Some(stream) if stream.completed < seq => {
                stream.add_waiter(waiter, seq);
                Head::Waiting
            }
            _ => Head::Idle,
        }
    }

    fn copy(&mut self, stream: StreamId, direction: CopyDirection, bytes: u64) -> Head {
        let job = CopyJob {
            context: self.stream_mut(stream).context,
            stream,
            bytes,
        };
        match direction {
            CopyDirection::HostToDevice => self.to_device.push(job),
            CopyDirection::DeviceToHost => self.to_host.push(job),
            // Each byte is read and written.
            CopyDirection::DeviceToDevice => {
                return self.move_memory(stream, bytes.saturating_mul(2));
            }
        }
        Head::Running
    }

    fn move_memory(&mut self, stream: StreamId, moved_bytes: u64) -> Head {
        let context = self.stream_mut(stream).context;
        self.start(Run::memory(context, stream, moved_bytes, &self.device))
    }

    fn launch(&mut self, id: StreamId, kernel: &Prepared, priority: Option<i32>) -> Head {
        let stream = self.stream_mut(id);
        let (context, priority) = (stream.context, priority.unwrap_or(stream.priority));
        let rank = if self.config.block_priority {
            priority
        } else {
            0
        };
        let sms = self.contexts.get(&context).map_or(ALL_SMS, |of| of.sms);
        self.start(Run::kernel(context, id, kernel, (rank, sms)))
    }

    fn delay(&mut self, id: StreamId) -> Head {
        let stream = self.stream_mut(id);
        let (ready_ns, context) = (stream.ready_ns, stream.context);
        self.delayed.insert((ready_ns, id));
        self.engine.expect_more(context);
        Head::Delayed
    }

    fn start(&mut self, run: Run) -> Head {
        let id = self.run_next;
        self.run_next += 1;
        self.engine.push(self.now_ns, id, run, &self.device);
        if let Some(clock) = &mut self.clock {
            clock.use_device();
        }
        Head::Running
    }

    fn complete_head(&mut self, id: StreamId, started_ns: u64) {
        let stream = self
            .streams
            .get_mut(&id)
            .expect("an engine holds streams that exist");
        let kind = stream.pop_head().kind();
        if kind == OpKind::Kernel {
            stream.ready_ns = self.now_ns.saturating_add(self.config.launch_gap_ns);
        }
        stream.wake(&mut self.stirred);
        self.completions.push(Completion {
            context: stream.context,
            stream: id,
            seq: stream.completed,
            started_ns,
            at_ns: self.now_ns,
            kind,
        });
        let context = self
            .contexts
            .get_mut(&stream.context)
            .expect("a stream's context exists");
        context.ops_in_flight -= 1;
        context.kernels_in_flight -= u64::from(kind == OpKind::Kernel);
    }

    fn remove_if_drained(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if !stream.closing || !stream.queue.is_empty() {
            return;
        }
        if let Some(context) = self.contexts.get_mut(&stream.context) {
            context.streams.remove(&id);
            if let Some(connection) = stream.connection {
                context.connections.give_back(connection);
            }
        }
        if let Some(stream) = self.streams.remove(&id) {
            self.stirred.extend(stream.into_waiters());
        }
    }

    fn stream_mut(&mut self, id: StreamId) -> &mut Stream {
        self.streams
            .get_mut(&id)
            .expect("the stream's head is being executed")
    }
}

fn bus_demand(device: &Device) -> Demand {
    let bandwidth_gb_s = f64::from(device.bandwidth_gb_s.max(1));
    Demand::new(0.0, (BUS_GB_S as f64 / bandwidth_gb_s).min(1.0))
}
