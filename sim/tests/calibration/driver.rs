//! Jobs on the device model with the simplest host: one thread for each job, which launches at the
//! simulator's pace ([`HostModel`]), waits for the request's end, then does the host's work. Only
//! here a job has time of its own between requests, so this is not the simulator's world.

use std::sync::Arc;

use profiler::Trace;
use sim::HostModel;
use softgpu::{Config, Device, Gpu, KernelShape, LAUNCH_GAP_NS, Op, StreamId};

#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) launches: Arc<[KernelShape]>,
    pub(crate) between_ns: u64,
    pub(crate) period_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) requests_per_s: f64,
    pub(crate) latency_ns_mean: f64,
}

struct Thread {
    job: Job,
    stream: StreamId,
    launched: usize,
    next_ns: Option<u64>,
    last_seq: u64,
    arrived_ns: u64,
    requests: Vec<(u64, u64)>,
    launch_ns: u64,
}

pub(crate) fn run(device: &Device, config: Config, jobs: &[Job], duration_ns: u64) -> Vec<Outcome> {
    let mut gpu = Gpu::new(device.clone(), config);
    let mut threads: Vec<Thread> = jobs
        .iter()
        .map(|job| Thread::start(&mut gpu, job))
        .collect();
    loop {
        let host_ns = threads.iter().filter_map(|thread| thread.next_ns).min();
        let Some(now_ns) = host_ns.into_iter().chain(gpu.next_event_ns()).min() else {
            break;
        };
        if now_ns > duration_ns {
            break;
        }
        for completion in gpu.advance(now_ns) {
            let thread = threads
                .iter_mut()
                .find(|thread| thread.stream == completion.stream);
            if let Some(thread) = thread {
                thread.handle_complete(completion.seq, now_ns);
            }
        }
        for thread in &mut threads {
            thread.go_on(&mut gpu, now_ns);
        }
    }
    threads
        .iter()
        .map(|thread| thread.outcome(duration_ns))
        .collect()
}

impl Thread {
    fn start(gpu: &mut Gpu, job: &Job) -> Self {
        let context = gpu.create_context();
        Self {
            job: job.clone(),
            stream: gpu.create_stream(context, 0).expect("the context is new"),
            launched: 0,
            next_ns: Some(0),
            last_seq: 0,
            arrived_ns: 0,
            requests: Vec::new(),
            launch_ns: HostModel::default().launch_gap_ns,
        }
    }

    fn go_on(&mut self, gpu: &mut Gpu, now_ns: u64) {
        while self.next_ns.is_some_and(|next_ns| next_ns <= now_ns) {
            let shape = self.job.launches[self.launched];
            let op = Op::Kernel {
                shape,
                priority: None,
            };
            self.last_seq = gpu
                .submit(now_ns, self.stream, op)
                .expect("a trace of this device");
            self.launched += 1;
            self.next_ns =
                (self.launched < self.job.launches.len()).then_some(now_ns + self.launch_ns);
        }
    }

    fn handle_complete(&mut self, seq: u64, now_ns: u64) {
        if self.launched < self.job.launches.len() || seq < self.last_seq {
            return;
        }
        self.requests.push((self.arrived_ns, now_ns));
        self.launched = 0;
        let next_ns = match self.job.period_ns {
            None => now_ns + self.job.between_ns,
            // A request that arrived meanwhile has waited.
            Some(period_ns) => {
                self.arrived_ns += period_ns;
                self.arrived_ns.max(now_ns + self.job.between_ns)
            }
        };
        if self.job.period_ns.is_none() {
            self.arrived_ns = next_ns;
        }
        self.next_ns = Some(next_ns);
    }

    fn outcome(&self, duration_ns: u64) -> Outcome {
        let from_ns = duration_ns / 10;
        let ended: Vec<_> = self
            .requests
            .iter()
            .filter(|request| request.1 > from_ns)
            .collect();
        let (first, last) = (ended.first(), ended.last());
        let span_ns = first.zip(last).map_or(0, |(first, last)| last.1 - first.1);
        let latency_ns: u64 = ended.iter().map(|request| request.1 - request.0).sum();
        Outcome {
            requests_per_s: (ended.len() as f64 - 1.0) * 1e9 / span_ns as f64,
            latency_ns_mean: latency_ns as f64 / ended.len() as f64,
        }
    }
}

pub(crate) fn launches(trace: &Trace) -> Arc<[KernelShape]> {
    trace.launched().map(shape_of).collect()
}

fn shape_of(kernel: &profiler::TraceKernel) -> KernelShape {
    let product = |sizes: [u32; 3]| sizes.into_iter().map(u64::from).product::<u64>();
    KernelShape {
        grid_blocks: product(kernel.grid),
        threads_per_block: u32::try_from(product(kernel.block)).unwrap_or(u32::MAX),
        registers_per_thread: kernel.registers,
        shared_bytes_per_block: kernel.shared_bytes,
        block_ns: kernel.block_ns,
        compute_demand: kernel.compute_demand.into(),
        bandwidth_demand: kernel.bandwidth_demand.into(),
    }
}

/// A request's solo time on the device, ns, the gaps between its kernels included.
pub(crate) fn alone_ns(launches: &[KernelShape], device: &Device) -> f64 {
    let solo = |shape: &KernelShape| shape.solo_ns(device).expect("a trace of this device");
    launches.iter().map(solo).sum::<u64>() as f64 + distances_ns(launches)
}

pub(crate) fn scaled(
    launches: &[KernelShape],
    device: &Device,
    target_ns: f64,
) -> Arc<[KernelShape]> {
    let distances_ns = distances_ns(launches);
    let factor = (target_ns - distances_ns) / (alone_ns(launches, device) - distances_ns);
    let scale = |shape: &KernelShape| KernelShape {
        block_ns: ((shape.block_ns as f64 * factor).round() as u64).max(1),
        ..*shape
    };
    launches.iter().map(scale).collect()
}

fn distances_ns(launches: &[KernelShape]) -> f64 {
    (launches.len() as u64 * LAUNCH_GAP_NS) as f64
}
