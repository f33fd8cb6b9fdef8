//! Shared by the model's tests: a V100, the kernels of Orion's Table 2, and short ways to submit.

#![allow(dead_code, reason = "every test binary uses its own part")]

use softgpu::{
    Completion, Config, ContextId, CopyDirection, Device, Dispatch, Gpu, KernelShape, Op, Sharing,
    StreamId, TraceClass, shape_of_trace_entry,
};

pub(crate) const CONV_NS: u64 = 1_350_000;
pub(crate) const NORM_NS: u64 = 930_000;

pub(crate) fn v100() -> Device {
    Device::by_name("V100-SXM2-16GB").expect("the table has a V100")
}

/// Without a launch gap, so that sums are round.
pub(crate) fn mps() -> Config {
    Config {
        launch_gap_ns: 0,
        ..Config::new(Sharing::Mps, &v100())
    }
}

/// Also without the cost of switches.
pub(crate) fn time_slice() -> Config {
    Config {
        context_switch_ns: 0,
        launch_gap_ns: 0,
        ..Config::new(Sharing::TimeSlice, &v100())
    }
}

pub(crate) fn fill_in() -> Config {
    Config {
        dispatch: Dispatch::FillIn,
        ..mps()
    }
}

/// Conv2d of Table 2: all SMs, one block on each.
pub(crate) fn conv() -> KernelShape {
    shape_of_trace_entry(TraceClass::Compute, 80, CONV_NS)
}

/// BN2d of Table 2: 40 % of the SMs.
pub(crate) fn norm() -> KernelShape {
    shape_of_trace_entry(TraceClass::Memory, 32, NORM_NS)
}

/// Fills the V100 `waves` times with one block per SM; nothing slows it down or fits beside it.
pub(crate) fn whole_gpu(waves: u64, block_ns: u64) -> KernelShape {
    KernelShape {
        grid_blocks: 80 * waves,
        threads_per_block: 1024,
        registers_per_thread: 64,
        shared_bytes_per_block: 0,
        block_ns,
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
    }
}

pub(crate) fn one_block(block_ns: u64) -> KernelShape {
    KernelShape {
        grid_blocks: 1,
        threads_per_block: 32,
        registers_per_thread: 16,
        ..whole_gpu(1, block_ns)
    }
}

pub(crate) fn kernel(shape: KernelShape) -> Op {
    Op::Kernel {
        shape,
        priority: None,
    }
}

pub(crate) fn copy_in(bytes: u64) -> Op {
    Op::Copy {
        direction: CopyDirection::HostToDevice,
        bytes,
    }
}

pub(crate) fn copy_out(bytes: u64) -> Op {
    Op::Copy {
        direction: CopyDirection::DeviceToHost,
        bytes,
    }
}

pub(crate) fn client(gpu: &mut Gpu, priority: i32) -> (ContextId, StreamId) {
    let context = gpu.create_context();
    (
        context,
        gpu.create_stream(context, priority)
            .expect("the context is new"),
    )
}

/// Submits an operation that the test knows to be valid.
pub(crate) fn put(gpu: &mut Gpu, now_ns: u64, stream: StreamId, op: Op) -> u64 {
    gpu.submit(now_ns, stream, op)
        .expect("the stream exists and the operation fits")
}

/// Advances from event to event until nothing happens any more, checking the invariants at each.
pub(crate) fn drain(gpu: &mut Gpu) -> Vec<Completion> {
    let mut all = Vec::new();
    while let Some(event_ns) = gpu.next_event_ns() {
        all.extend(gpu.advance(event_ns));
        assert!(gpu.is_valid(), "at {event_ns} ns");
    }
    all
}

/// Operation `seq` of the stream, which has completed.
fn operation(completions: &[Completion], stream: StreamId, seq: u64) -> &Completion {
    let mut completions = completions.iter();
    let found = completions.find(|c| c.stream == stream && c.seq == seq);
    found.unwrap_or_else(|| panic!("{stream} operation {seq} did not complete"))
}

/// When operation `seq` of the stream completed.
pub(crate) fn end_ns(completions: &[Completion], stream: StreamId, seq: u64) -> u64 {
    operation(completions, stream, seq).at_ns
}

/// When operation `seq` of the stream started.
pub(crate) fn start_ns(completions: &[Completion], stream: StreamId, seq: u64) -> u64 {
    operation(completions, stream, seq).started_ns
}
