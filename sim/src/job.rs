//! A job of an experiment: its launches, their times, and its terms with the policy.

use std::sync::Arc;

use profiler::Trace;
use serde::Deserialize;

use crate::arrivals::{Arrivals, Phase, Schedule};

/// The two classes of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobClass {
    /// The protected class: its latency matters.
    HighPriority,
    /// Uses the rest that high-priority jobs leave.
    BestEffort,
}

/// The kind of a job's requests. The engine ignores it; policies that treat a training
/// high-priority job differently (Orion's search for `SM_THRESHOLD`) and tables use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A request is one inference batch.
    Inference,
    /// A request is one training iteration.
    Training,
}

/// Bytes that cross the bus with each request: the input before its first launch, the output after
/// its last one. Traces do not state them; 0 is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Copied to the device, bytes.
    pub to_device_bytes: u64,
    /// Copied back, bytes.
    pub to_host_bytes: u64,
}

/// Most threads of a job.
pub const THREADS_MAX: u32 = 16;

/// A change of a job's trace.
#[derive(Clone, Debug)]
pub struct TracePhase {
    /// Its beginning, counted as arrivals are, ns. A request that has begun before keeps its trace.
    pub start_ns: u64,
    /// The launches of a request from then on.
    pub trace: Arc<Trace>,
}

/// A batch of requests that are answered together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// At least 1.
    pub requests: u32,
    /// The launches of the whole batch.
    pub trace: Arc<Trace>,
}

/// One job: a process whose threads launch on one stream.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name in tables; need not be unique.
    pub name: String,
    /// Its class.
    pub class: JobClass,
    /// The kind of its requests.
    pub kind: JobKind,
    /// The launches of one request.
    pub trace: Arc<Trace>,
    /// Later traces, in order.
    pub trace_phases: Vec<TracePhase>,
    /// Batches in which its requests are answered, instead of one by one with [`Job::trace`], which
    /// is then the first batch's. The policy selects one
    /// ([`Scheduler::batch`](crate::Scheduler::batch)), by default the first. A batch starts when
    /// all of its requests have arrived.
    pub batches: Vec<Batch>,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// Later rates, in order.
    pub phases: Vec<Phase>,
    /// Device memory that it holds for the whole run; `None`: unknown, and counts as 0.
    pub memory_bytes: Option<u64>,
    /// Its copies across the bus.
    pub copies: Copies,
    /// Its own [`HostModel::launch_gap_ns`](crate::HostModel::launch_gap_ns), as the gap depends on
    /// the framework, too. `None` is the host's.
    pub launch_gap_ns: Option<u64>,
    /// Launching threads, 1 to [`THREADS_MAX`], in turn and each at its own pace, so that as many
    /// launches may wait at a gate at once. PyTorch has two on the legacy stream: one calls
    /// forward, the other is autograd's.
    pub threads: u32,
    /// Its first request arrives at this time after the start of the run or later, ns, where
    /// arrivals count from; it is attached from the start.
    pub start_ns: u64,
    /// When its process is killed, ns after the start, in any state. Work on the device completes,
    /// because kernels cannot be recalled; all other work is lost.
    pub death_ns: Option<u64>,
    /// Its process reports arrival, start and end of requests (if high-priority); else launches do.
    pub marks: bool,
    /// Kernel durations reported to policies instead of the true ones, ns, by place in the trace,
    /// then in those of its phases: learnt by an earlier run
    /// ([`JobOutcome::learnt`](crate::JobOutcome)).
    pub told_ns: Vec<(usize, u64)>,
    /// For a best-effort job: its weight against others, 1 to [`policy::terms::WEIGHT_MAX`].
    pub weight: u32,
    /// For a best-effort job: its promised least share ([`policy::progress`]), 0 to 1.
    pub min_progress: f64,
    /// For a best-effort job: its cap ([`policy::usage`]), 0.01 to 1; 1 is no cap.
    pub max_share: f64,
}

impl Job {
    /// A job without copies or known memory that launches at the host's pace.
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

    pub(crate) fn schedule(&self, duration_ns: u64, seed: u64) -> Schedule {
        self.arrivals
            .schedule_from(self.start_ns, duration_ns, seed)
            .in_phases(&self.phases)
    }
}
