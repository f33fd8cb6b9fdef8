//! Experiments with synthetic traces.

#![allow(dead_code, reason = "not every test binary uses every helper")]

pub(crate) mod recordings;

use std::ops::Range;
use std::sync::Arc;

use profiler::{ResourceClass, Trace, TraceKernel};
use proptest::prelude::*;
use sim::{
    Arrivals, Experiment, HostModel, Job, JobClass, JobKind, NoObserver, Outcome, PolicySpec,
};
use softgpu::{Config, Device, Sharing};

pub(crate) fn v100() -> Device {
    Device::by_name("V100-SXM2-16GB").expect("the table has it")
}

/// A kernel of `blocks` blocks of 1024 threads, two per SM, of `block_ns` each.
pub(crate) fn kernel(name: &str, blocks: u32, block_ns: u64, demands: [f32; 2]) -> TraceKernel {
    TraceKernel {
        name: name.to_owned(),
        source_name: name.to_owned(),
        class: match demands {
            [compute, bandwidth] if compute > bandwidth => ResourceClass::Compute,
            [compute, bandwidth] if compute < bandwidth => ResourceClass::Memory,
            _ => ResourceClass::Unknown,
        },
        grid: [blocks, 1, 1],
        block: [1024, 1, 1],
        shared_bytes: 0,
        registers: 32,
        sm_needed: blocks.div_ceil(2),
        block_ns,
        duration_ns: u64::from(blocks.div_ceil(160)) * block_ns,
        compute_demand: demands[0],
        bandwidth_demand: demands[1],
    }
}

pub(crate) fn trace(kernels: Vec<TraceKernel>) -> Arc<Trace> {
    let launches = (0..kernels.len()).map(|index| u32::try_from(index).expect("few kernels"));
    Arc::new(Trace {
        device: v100().name,
        launches: launches.collect(),
        kernels,
    })
}

/// `count` launches of one kernel that fills the device for `ns` without demands.
pub(crate) fn full(count: usize, ns: u64) -> Arc<Trace> {
    Arc::new(Trace {
        device: v100().name,
        launches: vec![0; count],
        kernels: vec![kernel("full", 160, ns, [0.0, 0.0])],
    })
}

pub(crate) fn job(class: JobClass, trace: &Arc<Trace>, arrivals: Arrivals) -> Job {
    let name = match class {
        JobClass::HighPriority => "hp",
        JobClass::BestEffort => "be",
    };
    Job::new(name, class, JobKind::Inference, Arc::clone(trace), arrivals)
}

/// A V100 under MPS with an ideal host, without gaps between kernels.
pub(crate) fn experiment(jobs: Vec<Job>, policy: PolicySpec, seconds: f64) -> Experiment {
    let device = v100();
    Experiment {
        gpu: Config {
            launch_gap_ns: 0,
            ..Config::new(Sharing::Mps, &device)
        },
        device,
        jobs,
        policy,
        seed: 1,
        duration_ns: (seconds * 1e9) as u64,
        host: HostModel::IDEAL,
        laws: sim::Laws::default(),
        warmup_requests: 0,
        profiles: sim::ProfileErrors::NONE,
    }
}

/// The default device, with gaps between the kernels of a stream.
pub(crate) fn as_it_is_run(jobs: Vec<Job>, policy: PolicySpec, seconds: f64) -> Experiment {
    let device = v100();
    Experiment {
        gpu: Config::new(Sharing::Mps, &device),
        ..experiment(jobs, policy, seconds)
    }
}

pub(crate) fn run(experiment: &Experiment) -> Outcome {
    experiment
        .run(&mut NoObserver)
        .expect("a possible experiment")
}

pub(crate) fn any_trace(
    kernels_max: usize,
    block_ns: Range<u64>,
) -> impl Strategy<Value = Arc<Trace>> {
    let demands = prop::sample::select(vec![[0.8, 0.2], [0.1, 0.7], [0.9, 0.9], [0.0, 0.0]]);
    let one = (1..900_u32, block_ns, demands);
    prop::collection::vec(one, 1..kernels_max + 1).prop_map(|kernels| {
        let kernels = kernels.into_iter();
        trace(
            kernels
                .map(|(blocks, ns, demands)| kernel("k", blocks, ns, demands))
                .collect(),
        )
    })
}
