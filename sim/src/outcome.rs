//! The outcome of a run. Latencies are kept one by one, because quantiles are of values that
//! occurred (nearest rank). Rates are completed requests ÷ time until the last completion. Both are
//! as in the demo.

use policy::{SloView, Taught};
use profiler::quantile::nearest_rank;
use softgpu::Utilisation;

use crate::job::{JobClass, JobKind};

/// The outcome of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// By place in the experiment's list of jobs; only one in a solo run.
    pub jobs: Vec<JobOutcome>,
    /// From the start until the last request was complete, or the run was given up.
    pub elapsed_ns: u64,
    /// The use of the device.
    pub utilisation: Share,
    /// Launches of all jobs that completed.
    pub launches: u64,
}

/// Shares of the device over a whole run, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// SMs with at least one block.
    pub sm: f64,
    /// Compute throughput.
    pub compute: f64,
    /// Memory bandwidth.
    pub bandwidth: f64,
}

/// The result of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobOutcome {
    /// Its place in the experiment's list of jobs.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: JobClass,
    /// The kind of its requests.
    pub kind: JobKind,
    /// From arrival to noticed completion, ns, of each request in order, without the warm-up.
    pub latencies_ns: Vec<u64>,
    /// Requests that completed, warm-up included.
    pub requests: u64,
    /// Requests that had arrived or begun when the run was given up.
    pub unfinished: u64,
    /// When the last completed request completed, ns after the start.
    pub last_completion_ns: u64,
    /// Its launches that completed.
    pub launches: u64,
    /// Launches that were held.
    pub held: u64,
    /// How long launches were held, by the scheduler's word for the reason.
    pub held_ns: Vec<(&'static str, u64)>,
    /// Its library's learnt durations of kernels for the next start, by place in the trace.
    pub learnt: Vec<(usize, Taught)>,
    /// The policy's view of its target at the end; `None` where it marked no request.
    pub slo: Option<SloView>,
}

impl JobOutcome {
    /// The nearest-rank quantile at `per_mille`, ns; `None` without a request after the warm-up.
    #[must_use]
    pub fn quantile_ns(&self, per_mille: u32) -> Option<u64> {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        nearest_rank(&sorted, per_mille)
    }

    /// Median, 95th and 99th percentile of the latencies, ns.
    #[must_use]
    pub fn quantiles_ns(&self) -> Option<[u64; 3]> {
        let mut sorted = self.latencies_ns.clone();
        sorted.sort_unstable();
        let of = |per_mille| nearest_rank(&sorted, per_mille);
        Some([of(500)?, of(950)?, of(990)?])
    }

    /// Completed requests per second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.requests as f64 / (self.last_completion_ns.max(1) as f64 / 1e9)
    }
}

impl Share {
    pub(crate) fn new(used: &Utilisation, sms: u32, elapsed_ns: u64) -> Self {
        let elapsed_ns = elapsed_ns.max(1) as f64;
        Self {
            sm: used.busy_sm_ns as f64 / (elapsed_ns * f64::from(sms.max(1))),
            compute: used.compute_ns as f64 / elapsed_ns,
            bandwidth: used.bandwidth_ns as f64 / elapsed_ns,
        }
    }
}
