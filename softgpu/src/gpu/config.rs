//! Settings of a GPU's sharing, and its reports: completions and integrals.

use crate::contention::Contention;
use crate::governor::Governor;
use crate::op::{ContextId, OpKind, StreamId};
use devices::Device;

/// How the GPU is shared and scheduled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Whether contexts compute together.
    pub sharing: Sharing,
    /// Length of a turn in time-slice mode.
    pub slice_ns: u64,
    /// Time between turns of different contexts, in which nothing computes.
    pub context_switch_ns: u64,
    /// Shortest time between two kernels of a stream, in which its SMs are free for others.
    pub launch_gap_ns: u64,
    /// Whether waiting blocks of a kernel with higher priority start first; running blocks are
    /// never preempted. (CUDA's stream priority; between MPS processes it depends on the machine.)
    pub block_priority: bool,
    /// Whether waiting kernels may overtake.
    pub dispatch: Dispatch,
    /// How much kernels slow each other down.
    pub contention: Contention,
    /// Model of clock, power and temperature; `None`: the clock is always the highest.
    pub governor: Option<Governor>,
}

/// Whether contexts compute together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Kernels of all contexts run side by side (NVIDIA's Multi-Process Service).
    Mps,
    /// One context computes at a time.
    TimeSlice,
}

/// Whether a kernel's blocks may start while an earlier kernel still has waiting blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// No: only the first kernel in order places blocks, until all of its blocks have started; a
    /// lower priority waits while a higher one has waiting blocks. (If its context has a limit,
    /// later kernels may use the SMs that it may not.) Amert et al., "GPU Scheduling on the NVIDIA
    /// TX2: Hidden Details Revealed" (RTSS 2017), found this for the streams of one process;
    /// between processes under MPS it is an assumption.
    HeadOfLine,
    /// Yes, into room that the earlier kernel's blocks do not fit into.
    FillIn,
}

impl Config {
    /// The assumptions about hardware: slices of 2 ms, a switch that saves and restores the SMs'
    /// whole state, [`LAUNCH_GAP_NS`], priorities in force, no overtaking,
    /// [`Contention::CALIBRATED`].
    pub fn new(sharing: Sharing, device: &Device) -> Self {
        Self {
            sharing,
            slice_ns: 2_000_000,
            context_switch_ns: context_switch_ns(device),
            launch_gap_ns: LAUNCH_GAP_NS,
            block_priority: true,
            dispatch: Dispatch::HeadOfLine,
            contention: Contention::CALIBRATED,
            governor: None,
        }
    }
}

/// SMs of an MPS process that requests `percent` of a device's: they come in pairs, at least one.
/// (On an H200, of 132 SMs, 25 % were 32.)
#[must_use]
pub fn sms_of_percent(sms: u32, percent: f64) -> u32 {
    let pairs = f64::from(sms) * percent / 200.0;
    (pairs as u32 * 2).clamp(2.min(sms), sms)
}

/// A completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// The context of the stream.
    pub context: ContextId,
    /// The stream.
    pub stream: StreamId,
    /// Number of the operation in the stream, as [`crate::Gpu::submit`] returned it.
    pub seq: u64,
    /// When it started to execute: its first block, its transfer. `at_ns` if it takes no time.
    pub started_ns: u64,
    /// When it completed.
    pub at_ns: u64,
    /// The kind of operation.
    pub kind: OpKind,
}

/// Use of the GPU since its creation. Integrals over time, of which a caller takes differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utilisation {
    /// Time in which any kernel, fill or copy inside device memory ran.
    pub busy_ns: u64,
    /// SMs with at least one block × time. Divided by SMs × time it is the share of busy SMs.
    pub busy_sm_ns: u64,
    /// Time at full compute throughput that would have done the same work.
    pub compute_ns: u64,
    /// Time at full memory bandwidth that would have moved as much.
    pub bandwidth_ns: u64,
    /// Time in which a copy to the device ran.
    pub copy_to_device_ns: u64,
    /// Time in which a copy from the device ran.
    pub copy_to_host_ns: u64,
}

/// Use by one context since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextUtilisation {
    /// Time in which any of its compute work ran. Under MPS such times of several contexts overlap.
    pub busy_ns: u64,
    /// SMs with at least one block of the context × time.
    pub busy_sm_ns: u64,
    /// Time at full memory bandwidth that would have moved as much as its operations did.
    pub bandwidth_ns: u64,
}

/// Distance of a kernel's start from the end of the previous one in its stream: the mean of the
/// 7249 gaps below 10 µs in a V100's timeline of ResNet-50's training (PyTorch profiler, 2021; the
/// 1522 longer ones are the host's). On an H100 (2025) 1.1 µs and, one in three, 1.9 µs.
pub const LAUNCH_GAP_NS: u64 = 1_400;

/// Time to write out a full device's registers and shared memory and to read back another's, at the
/// bandwidth of device memory: 64 µs on a V100. An upper bound; smaller contexts switch faster.
fn context_switch_ns(device: &Device) -> u64 {
    let bytes_per_sm =
        u64::from(device.registers_per_sm) * 4 + u64::from(device.shared_bytes_per_sm);
    2 * bytes_per_sm * u64::from(device.sms) / u64::from(device.bandwidth_gb_s.max(1))
}
