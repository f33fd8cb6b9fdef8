//! A job of an experiment: what it launches, when, and what it is to the policy.

use std::sync::Arc;

use profiler::Trace;
use serde::Deserialize;

use crate::arrivals::{Arrivals, Phase, Schedule};

/// The two classes of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobClass {
    /// It drives: its latency is what is protected.
    HighPriority,
    /// It rides along.
    BestEffort,
}

/// What a request of the job is. Decides nothing in the engine; policies that treat a training
/// high-priority job otherwise (Orion's search for `SM_THRESHOLD`) and tables look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A request is one inference batch.
    Inference,
    /// A request is one training iteration.
    Training,
}

/// Bytes that cross the bus with each request: the input before its first launch, the output after
/// its last one. Traces do not say; none is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Copied to the device, bytes.
    pub to_device_bytes: u64,
    /// Copied back, bytes.
    pub to_host_bytes: u64,
}

/// Most threads of a job.
pub const THREADS_MAX: u32 = 16;

/// From when on a job's requests are others.
#[derive(Clone, Debug)]
pub struct TracePhase {
    /// Its beginning, counted as arrivals are, ns. A request that has begun before stays what it
    /// is.
    pub start_ns: u64,
    /// The launches of a request from then on.
    pub trace: Arc<Trace>,
}

/// So many requests that are answered together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// How many; 1 at least.
    pub requests: u32,
    /// The launches of all of them.
    pub trace: Arc<Trace>,
}

/// One job: a process whose threads launch on one stream.
#[derive(Clone, Debug)]
pub struct Job {
    /// What tables call it. Need not be unique.
    pub name: String,
    /// Its class.
    pub class: JobClass,
    /// What a request of it is.
    pub kind: JobKind,
    /// The launches of one request.
    pub trace: Arc<Trace>,
    /// From when on they are others, in order.
    pub trace_phases: Vec<TracePhase>,
    /// Batches that its requests are answered in, in place of one by one by [`Job::trace`]; then
    /// that is the first one's. The policy says which
    /// ([`Scheduler::batch`](crate::Scheduler::batch)), and one that does not care takes the first.
    /// A batch begins when all of its requests are there.
    pub batches: Vec<Batch>,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// From when on they come at other rates, in order.
    pub phases: Vec<Phase>,
    /// Device memory that it holds from beginning to end; `None` where that is not known and so
    /// takes nothing.
    pub memory_bytes: Option<u64>,
    /// What crosses the bus.
    pub copies: Copies,
    /// Its own [`HostModel::launch_gap_ns`](crate::HostModel::launch_gap_ns): what passes between two
    /// launches is as much its framework's doing as the host's. `None` is the host's.
    pub launch_gap_ns: Option<u64>,
    /// Threads that launch, 1 to [`THREADS_MAX`], in turn and each at its own pace, so that as many launches may wait at a
    /// gate at once. Two on the legacy stream are PyTorch's: one calls forward, the other is autograd's.
    pub threads: u32,
    /// Its first request does not come before this, ns after the start of the run; it is attached from
    /// the start. Arrivals count from here.
    pub start_ns: u64,
    /// When its process is killed, ns after the start, whatever it was at. What the device has is
    /// completed, because kernels cannot be recalled; nothing else of it is.
    pub death_ns: Option<u64>,
    /// Of a high-priority job: its process says when a request arrived, begins and ends; else requests are inferred from its
    /// launches.
    pub marks: bool,
    /// What policies are told that kernels take, ns, by their place in the trace and then in those
    /// of its phases, in the place of what is so: what a run before has learnt
    /// ([`JobOutcome::learnt`](crate::JobOutcome)).
    pub told_ns: Vec<(usize, u64)>,
    /// Of a best-effort job: its weight against others, 1 to [`policy::terms::WEIGHT_MAX`].
    pub weight: u32,
    /// Of a best-effort job: the least share that it was promised ([`policy::progress`]), 0 to 1.
    pub min_progress: f64,
    /// Of a best-effort job: the most that it may use of the device's time ([`policy::usage`]), 0.01 to 1; 1 is no cap.
    pub max_share: f64,
}

impl Job {
    /// A job without copies whose memory is not known and whose launches come at the host's pace.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        class: JobClass,
        kind: JobKind,
        trace: Arc<Trace>,
        arrivals: Arrivals,
    ) -> Self {
        Self {
            name: name.into(),
            class,
            kind,
            trace,
            trace_phases: Vec::new(),
            batches: Vec::new(),
            arrivals,
            phases: Vec::new(),
            memory_bytes: None,
            copies: Copies::default(),
            launch_gap_ns: None,
            threads: 1,
            start_ns: 0,
            death_ns: None,
            marks: false,
            told_ns: Vec::new(),
            weight: 1,
            min_progress: 0.0,
            max_share: 1.0,
        }
    }

    /// When its requests arrive in a run of `duration_ns` with this seed.
    pub(crate) fn schedule(&self, duration_ns: u64, seed: u64) -> Schedule {
        self.arrivals
            .schedule_from(self.start_ns, duration_ns, seed)
            .in_phases(&self.phases)
    }
}
