//! The high-priority job's solo requests, and how late each may end.

use softgpu::{Completion, Gpu, Op};

use crate::arrivals::Arrivals;
use crate::experiment::Experiment;
use crate::host::HostModel;
use crate::program::{Program, Step};
use crate::schedulers::thread::Thread;

#[derive(Debug)]
pub(in crate::schedulers) struct Plan {
    ops: Vec<Op>,
    /// Steps before the first launch: 1 if there is an input to copy, else 0.
    first_launch: usize,
    /// When each step is complete, from the start of the request.
    complete_ns: Vec<u64>,
    /// Sum of the pauses after each step: times in which the device waits for the host's next
    /// launch, and the request catches up with its plan.
    pauses_ns: Vec<u64>,
    /// When the thread notices that all are complete.
    end_ns: u64,
    requests: Requests,
}

#[derive(Debug, Default)]
struct Alone {
    there_ns: Vec<u64>,
    started_ns: Vec<u64>,
    complete_ns: Vec<u64>,
    end_ns: u64,
}

#[derive(Debug)]
enum Requests {
    Open(Vec<Request>),
    /// Each arrives when the last one ends, as long as that is before `until_ns`.
    Closed {
        late_ns_max: u64,
        until_ns: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Request {
    arrival_ns: u64,
    start_ns: u64,
    end_ns: u64,
    late_ns_max: u64,
}

/// Rates are rounded to 2^-32, and times up to whole ns, so that a request at another time may
/// differ by some ns: subtracted from the promise.
const ROUNDING_NS: u64 = 200;

impl Plan {
    /// The plan of the job at index `job`, with `program`, if it may lose `loss_pct` per request.
    pub(in crate::schedulers) fn new(
        experiment: &Experiment,
        job: usize,
        program: &Program,
        loss_pct: f64,
    ) -> Self {
        let ops: Vec<Op> = (0..program.steps.len()).map(|i| program.op(i)).collect();
        let host = experiment.host_of(job);
        let alone = alone(experiment, &host, &ops);
        let end_ns = alone.end_ns;
        let late_ns_of = |latency_ns: u64| {
            ((latency_ns as f64 * loss_pct / 100.0) as u64).saturating_sub(ROUNDING_NS)
        };
        let requests = match experiment.jobs[job].arrivals {
            Arrivals::Closed => Requests::Closed {
                late_ns_max: late_ns_of(end_ns),
                until_ns: experiment.duration_ns,
            },
            _ => Requests::Open(open(experiment, job, end_ns, late_ns_of)),
        };
        let late_ns_most = match &requests {
            Requests::Open(requests) => requests.iter().map(|r| r.late_ns_max).max(),
            Requests::Closed { late_ns_max, .. } => Some(*late_ns_max),
        };
        let late_ns_most = late_ns_most.unwrap_or(0);
        Self {
            first_launch: usize::from(matches!(program.steps.first(), Some(Step::Copy { .. }))),
            ops,
            pauses_ns: pauses(&alone, &host, experiment.gpu.launch_gap_ns, late_ns_most),
            complete_ns: alone.complete_ns,
            end_ns,
            requests,
        }
    }

    pub(in crate::schedulers) fn request_ns(&self) -> u64 {
        self.end_ns
    }

    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(super) fn step_of(&self, place: u32) -> usize {
        self.first_launch + place as usize
    }

    /// The arrival of a request that has not begun, if any; in a closed loop it has arrived.
    pub(super) fn arrival_ns(&self, request: usize) -> Option<u64> {
        match &self.requests {
            Requests::Open(requests) => Some(requests.get(request)?.arrival_ns),
            Requests::Closed { .. } => Some(0),
        }
    }

    pub(super) fn start_ns(&self, request: usize, free_ns: u64) -> Option<u64> {
        match &self.requests {
            Requests::Open(requests) => Some(requests.get(request)?.arrival_ns.max(free_ns)),
            Requests::Closed { until_ns, .. } => (free_ns < *until_ns).then_some(free_ns),
        }
    }

    pub(super) fn late_ns_max(&self, request: usize) -> u64 {
        match &self.requests {
            Requests::Open(requests) => requests.get(request).map_or(0, |r| r.late_ns_max),
            Requests::Closed { late_ns_max, .. } => *late_ns_max,
        }
    }

    /// The lag of a request that began at `began_ns` and has completed `step` at `now_ns`: its late
    /// start, and the device's delay since then beyond the remaining pauses.
    pub(super) fn lag_ns(&self, request: usize, began_ns: u64, step: usize, now_ns: u64) -> u64 {
        let late_ns = began_ns.saturating_sub(self.planned_start_ns(request, began_ns));
        let behind_ns = now_ns.saturating_sub(began_ns.saturating_add(self.complete_ns[step]));
        late_ns.saturating_add(behind_ns.saturating_sub(self.pauses_ns[step]))
    }

    pub(super) fn start_lag_ns(&self, request: usize, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.planned_start_ns(request, now_ns))
    }

    pub(super) fn left_ns(&self, done: usize) -> u64 {
        let done_ns = done.checked_sub(1).map_or(0, |step| self.complete_ns[step]);
        self.end_ns.saturating_sub(done_ns)
    }

    fn planned_start_ns(&self, request: usize, began_ns: u64) -> u64 {
        match &self.requests {
            Requests::Open(requests) => requests.get(request).map_or(began_ns, |r| r.start_ns),
            Requests::Closed { .. } => began_ns,
        }
    }
}

fn open(
    experiment: &Experiment,
    job: usize,
    request_ns: u64,
    late_ns_of: impl Fn(u64) -> u64,
) -> Vec<Request> {
    let seed = experiment.seed_of(job);
    let mut schedule = experiment.jobs[job].schedule(experiment.duration_ns, seed);
    let mut requests: Vec<Request> = Vec::new();
    let mut free_ns = 0;
    while let Some(arrival_ns) = schedule.next_ns(free_ns) {
        let start_ns = arrival_ns.max(free_ns);
        free_ns = start_ns.saturating_add(request_ns);
        requests.push(Request {
            arrival_ns,
            start_ns,
            end_ns: free_ns,
            late_ns_max: late_ns_of(free_ns - arrival_ns),
        });
    }
    let mut next: Option<Request> = None;
    for request in requests.iter_mut().rev() {
        if let Some(next) = next {
            let pause_ns = next.arrival_ns.saturating_sub(request.end_ns);
            let handed_on_ns = next.late_ns_max.saturating_add(pause_ns);
            request.late_ns_max = request.late_ns_max.min(handed_on_ns);
        }
        next = Some(*request);
    }
    requests
}

/// The pauses after each step: between the earliest possible start of the next step, had it been
/// launched, and its actual start. Only up to the first launch that waits for that step, or a later
/// one, to leave the driver's queue, or has to when that step is `late_ns` late: from there on the
/// host is as late as the device, and makes up nothing.
fn pauses(alone: &Alone, host: &HostModel, device_gap_ns: u64, late_ns: u64) -> Vec<u64> {
    let steps = alone.complete_ns.len();
    let mut until_ns = vec![0; steps];
    for step in 1..steps {
        let ready_ns = alone.complete_ns[step - 1].saturating_add(device_gap_ns);
        let pause_ns = alone.started_ns[step].saturating_sub(ready_ns);
        until_ns[step] = until_ns[step - 1] + pause_ns;
    }
    let queue = host.driver_queue as usize;
    let call_ns = host.launch_gap_ns.saturating_add(host.launch_latency_ns);
    let waits = |launch: usize| {
        let left_ns = alone.complete_ns[launch - queue].saturating_add(call_ns);
        alone.there_ns[launch] <= left_ns.saturating_add(late_ns)
    };
    // The first launch that waits, for a step or for a later one; from the last step backwards.
    let mut late_from = steps;
    let mut pauses_ns = vec![0; steps];
    for step in (0..steps).rev() {
        let launch = step + queue;
        if launch < steps && waits(launch) {
            late_from = launch;
        }
        pauses_ns[step] = until_ns[late_from - 1].saturating_sub(until_ns[step]);
    }
    pauses_ns
}

fn alone(experiment: &Experiment, host: &HostModel, ops: &[Op]) -> Alone {
    let mut gpu = Gpu::new(experiment.device.clone(), experiment.gpu);
    let context = gpu.create_context();
    let stream = gpu
        .create_stream(context, 0)
        .expect("the context was created above");
    let mut thread = Thread::default();
    let mut alone = Alone::default();
    let mut completions: Vec<Completion> = Vec::new();
    let mut now_ns = 0;
    thread.begin(0);
    loop {
        gpu.advance_into(now_ns, &mut completions);
        for completion in completions.drain(..) {
            alone.started_ns.push(completion.started_ns);
            alone.complete_ns.push(completion.at_ns);
            let done = alone.complete_ns.len();
            thread.handle_done(now_ns, done, ops.len(), host);
        }
        thread.act(now_ns, ops.len(), host);
        while let Some((_, step)) = thread.under_way.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            alone.there_ns.push(now_ns);
            gpu.submit(now_ns, stream, ops[step].clone())
                .expect("the stream is open and the kernel was checked against the device");
        }
        let next_ns = [
            gpu.next_event_ns(),
            thread.acts_ns,
            thread.under_way.front().map(|step| step.0),
        ];
        match next_ns.into_iter().flatten().min() {
            Some(next_ns) => now_ns = next_ns,
            None => {
                alone.end_ns = thread.notices_ns.unwrap_or(now_ns);
                return alone;
            }
        }
    }
}
