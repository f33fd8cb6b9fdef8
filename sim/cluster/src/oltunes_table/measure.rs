//! Numbers of the table, computed by the simulator of one GPU. A framework takes 10 us from launch
//! to launch, as in [`crate::muxflow_table`]; clocks are fixed, and nothing is random. *Alone.* One
//! batch after the other under MPS with the share as its percentage.
//!
//! *In pairs.* Both tasks run one batch after the other under the mechanism ([`Mechanism`]). After
//! [`WARM_UP_NS`], in which policies learn, the work that each does in a window of time is counted:
//! the times alone of its kernels that end there, summed. The speed is this ÷ the work in such a
//! time alone. So a batch counts as far as it is done, and a window need not have whole batches. It
//! has [`WINDOW_BATCHES`] of the task that takes longer, if these took as long as alone, but is
//! within [`WINDOW_NS`].

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use policy::ShareMode;
use profiler::{Trace, TraceKernel};
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{Arrivals, Experiment, Launch, NoObserver, Observer};
use workloads::{Precision, Workload};

use super::{
    Alone, BATCHES, GPUS, MODELS, Mechanism, PAIR_BATCHES, RATIO_BATCHES, RATIO_GPU, Ratio,
    SHARES_PCT,
};
use crate::table::four_digits;

/// Batches of a run alone, about, of which the first does not count.
pub const ALONE_BATCHES: u64 = 6;

/// Device time before the window of a pair. Of sixty pairs, windows of a quarter of the length
/// after 0.5 s differ by 0.002 on the mean under `mps` and `orion`, by 0.008 under `pillion`, which
/// learns on.
pub const WARM_UP_NS: u64 = 2_000_000_000;

/// Batches of the window.
pub const WINDOW_BATCHES: f64 = 8.0;

/// Least and most of the window.
pub const WINDOW_NS: [f64; 2] = [0.5e9, 8e9];

/// Use from which a kernel counts in Eq. 1, of the GPU's peak.
pub const RATIO_SHARE: f32 = 0.5;

const OF: usize = 0;
const BESIDE: usize = 1;

/// Why a number cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A workload is not there, or not on this device.
    #[error(transparent)]
    Workload(#[from] workloads::Error),
    /// The run cannot be made.
    #[error(transparent)]
    Run(#[from] sim::Error),
    /// There is no GPU or model at this place.
    #[error("no {kind} {place}: expected 0 to {last}")]
    Place {
        /// Which of both.
        kind: &'static str,
        /// The requested place.
        place: usize,
        /// The last there is.
        last: usize,
    },
    /// No batch was done.
    #[error("{model} in batches of {batch}: no batch completed, expected at least one")]
    NoBatch {
        /// The model.
        model: &'static str,
        /// Inputs of a batch.
        batch: u32,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Task = (usize, usize, u32);

/// The GPUs with their experiments, and times of tasks alone.
#[derive(Debug)]
pub struct Bench {
    experiments: Vec<Experiment>,
    traces: HashMap<Task, Arc<Trace>>,
    batch_ns: HashMap<Task, f64>,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// GPUs with nothing measured yet.
    #[must_use]
    pub fn new() -> Self {
        let pairs = |gpu| Mechanism::ALL.map(|by| experiment(gpu, by.name()));
        Self {
            experiments: GPUS.into_iter().flat_map(pairs).collect(),
            traces: HashMap::new(),
            batch_ns: HashMap::new(),
        }
    }

    /// A model with a batch on a GPU of its own, with a share of 10 to 100 per cent.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn alone(
        &mut self,
        gpu: usize,
        model: usize,
        batch: u32,
        share_pct: u32,
    ) -> Result<Alone, MeasureError> {
        let trace = self.trace((gpu, model, batch))?;
        let mut experiment = experiment(GPUS[gpu], "none");
        experiment.laws.share = Some(ShareMode::Static(share_pct));
        let mut job = experiment.jobs.swap_remove(BESIDE);
        let kernels_ns: u64 = durations_ns(&trace).sum();
        let gaps_ns = experiment.host.launch_gap_ns * trace.launches.len() as u64;
        job.trace = trace;
        experiment.jobs = vec![job];
        // About the time of a batch, whether device or host is the slower one.
        let batch_ns = (kernels_ns * 100 / u64::from(share_pct.max(1))).max(gaps_ns);
        experiment.duration_ns = batch_ns * ALONE_BATCHES;
        let outcome = experiment.run(&mut NoObserver)?;
        let latencies = outcome.jobs[0].latencies_ns.get(1..).unwrap_or_default();
        if latencies.is_empty() {
            let model = MODELS[model].name;
            return Err(MeasureError::NoBatch { model, batch });
        }
        let sum_ns: f64 = latencies.iter().map(|&ns| ns as f64).sum();
        Ok(Alone {
            latency_ms: sum_ns / latencies.len() as f64 / 1e6,
            sm_activity: outcome.utilisation.sm,
        })
    }

    /// The speeds that two tasks on a GPU keep, models and batches; the first is high-priority.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn speeds(
        &mut self,
        by: Mechanism,
        gpu: usize,
        of: (usize, u32),
        beside: (usize, u32),
    ) -> Result<[f64; 2], MeasureError> {
        let tasks = [of, beside].map(|(model, batch)| (gpu, model, batch));
        let alone_ns = [
            self.batch_alone_ns(tasks[OF])?,
            self.batch_alone_ns(tasks[BESIDE])?,
        ];
        let traces = [self.trace(tasks[OF])?, self.trace(tasks[BESIDE])?];
        let [least_ns, most_ns] = WINDOW_NS;
        let longer_ns = alone_ns[OF].max(alone_ns[BESIDE]);
        let window_ns = (WINDOW_BATCHES * longer_ns).clamp(least_ns, most_ns);
        let experiment = &mut self.experiments[gpu * Mechanism::ALL.len() + by as usize];
        for (job, trace) in experiment.jobs.iter_mut().zip(&traces) {
            job.trace = Arc::clone(trace);
        }
        experiment.duration_ns = WARM_UP_NS + window_ns as u64;
        let mut work = Work::new(&traces, experiment.duration_ns);
        experiment.run(&mut work)?;
        let speed = |place: usize| {
            let of_batch_ns: u64 = durations_ns(&traces[place]).sum();
            let alone = window_ns / alone_ns[place] * of_batch_ns as f64;
            work.done_ns[place] as f64 / alone
        };
        Ok([speed(OF), speed(BESIDE)])
    }

    /// Kernels of a batch by the resource that they use on [`RATIO_GPU`].
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn ratio(&mut self, model: usize, batch: u32) -> Result<Ratio, MeasureError> {
        let trace = self.trace((RATIO_GPU, model, batch))?;
        let count = |of: fn(&TraceKernel) -> f32| {
            let launched = trace.launches.iter();
            let kernels = launched.filter_map(|&index| trace.kernels.get(index as usize));
            kernels.filter(|kernel| of(kernel) >= RATIO_SHARE).count() as u32
        };
        Ok(Ratio {
            compute_kernels: count(|kernel| kernel.compute_demand),
            memory_kernels: count(|kernel| kernel.bandwidth_demand),
        })
    }

    fn batch_alone_ns(&mut self, task: Task) -> Result<f64, MeasureError> {
        if let Some(&ns) = self.batch_ns.get(&task) {
            return Ok(ns);
        }
        let (gpu, model, batch) = task;
        let ns = self.alone(gpu, model, batch, 100)?.latency_ms * 1e6;
        self.batch_ns.insert(task, ns);
        Ok(ns)
    }

    fn trace(&mut self, task: Task) -> Result<Arc<Trace>, MeasureError> {
        if let Some(trace) = self.traces.get(&task) {
            return Ok(Arc::clone(trace));
        }
        let (gpu, model, batch) = task;
        at("GPU", &GPUS, gpu)?;
        let workload = Workload::by_name(at("model", &MODELS, model)?.workload)?;
        let device = &self.experiments[gpu * Mechanism::ALL.len()].device;
        let trace = Arc::new(workload.trace(Some(batch), device, Precision::Fp32)?);
        self.traces.insert(task, Arc::clone(&trace));
        Ok(trace)
    }
}

struct Work {
    /// For each job times of its kernels alone, by their places in its trace.
    kernels_ns: [Vec<u64>; 2],
    /// The window's end; it begins at [`WARM_UP_NS`].
    end_ns: u64,
    done_ns: [u64; 2],
}

impl Work {
    fn new(traces: &[Arc<Trace>; 2], end_ns: u64) -> Self {
        let of = |trace: &Trace| trace.kernels.iter().map(|k| k.duration_ns).collect();
        Self {
            kernels_ns: [of(&traces[OF]), of(&traces[BESIDE])],
            end_ns,
            done_ns: [0; 2],
        }
    }
}

impl Observer for Work {
    fn kernel_completed(&mut self, _: u64, now_ns: u64, launch: &Launch) {
        if (WARM_UP_NS..self.end_ns).contains(&now_ns) {
            let job = launch.client.0;
            self.done_ns[job] += self.kernels_ns[job][launch.kernel_index as usize];
        }
    }
}

fn durations_ns(trace: &Trace) -> impl Iterator<Item = u64> {
    let launched = trace.launches.iter();
    let kernels = launched.filter_map(|&index| trace.kernels.get(index as usize));
    kernels.map(|kernel| kernel.duration_ns)
}

fn at<'a, T>(kind: &'static str, list: &'a [T], place: usize) -> Result<&'a T, MeasureError> {
    list.get(place).ok_or(MeasureError::Place {
        kind,
        place,
        last: list.len() - 1,
    })
}

/// Two jobs on a GPU, whose traces each run has of its own.
fn experiment(gpu: &str, policy: &str) -> Experiment {
    let text = format!(
        r#"
device = "{gpu}"
sharing = "mps"
warmup_requests = 0
[host]
launch_gap_ns = 10000
[policy]
name = "{policy}"
[[jobs]]
name = "of"
class = "high-priority"
kind = "inference"
trace = {{ kernel_us = 1 }}
[[jobs]]
name = "beside"
kind = "inference"
trace = {{ kernel_us = 1 }}
"#
    );
    let name = Path::new("pair.toml");
    let read = Scenario::parse(name, &text, Path::new("."), &mut Library::default());
    let mut experiment = read.expect("the text is a constant that tests parse")[0].with_seed(SEED);
    for job in &mut experiment.jobs {
        job.arrivals = Arrivals::Closed;
    }
    experiment
}

const SEED: u64 = 1;

/// Writes the rows. `progress` is called with each part that is done.
///
/// # Errors
/// See [`MeasureError`].
pub fn write_rows(
    out: &mut impl Write,
    mut progress: impl FnMut(&str),
) -> Result<(), MeasureError> {
    let mut bench = Bench::new();
    for (model, of) in MODELS.iter().enumerate() {
        for batch in RATIO_BATCHES {
            let Ratio {
                compute_kernels,
                memory_kernels,
            } = bench.ratio(model, batch)?;
            let (gpu, name) = (GPUS[RATIO_GPU], of.name);
            writeln!(
                out,
                "{gpu},{name},{batch},,,,,,,,,{compute_kernels},{memory_kernels}"
            )?;
        }
    }
    for (gpu, name) in GPUS.into_iter().enumerate() {
        write_alone(out, &mut bench, gpu)?;
        progress(&format!("{name}: alone"));
        for by in Mechanism::ALL {
            write_pairs(out, &mut bench, by, gpu)?;
            progress(&format!("{name}: pairs under {}", by.name()));
        }
    }
    Ok(())
}

fn write_alone(out: &mut impl Write, bench: &mut Bench, gpu: usize) -> Result<(), MeasureError> {
    for (model, of) in MODELS.iter().enumerate() {
        for batch in BATCHES {
            for pct in SHARES_PCT {
                let alone = bench.alone(gpu, model, batch, pct)?;
                let [latency_ms, sm] = [alone.latency_ms, alone.sm_activity].map(four_digits);
                let (gpu, name) = (GPUS[gpu], of.name);
                writeln!(out, "{gpu},{name},{batch},{pct},{latency_ms},{sm},,,,,,,")?;
            }
        }
    }
    Ok(())
}

fn write_pairs(
    out: &mut impl Write,
    bench: &mut Bench,
    by: Mechanism,
    gpu: usize,
) -> Result<(), MeasureError> {
    let models = 0..MODELS.len();
    let tasks: Vec<(usize, u32)> = models
        .flat_map(|model| PAIR_BATCHES.map(|batch| (model, batch)))
        .collect();
    for (place, &of) in tasks.iter().enumerate() {
        let first = if by.is_symmetric() { place } else { 0 };
        for &beside in &tasks[first..] {
            let [speed, other] = bench.speeds(by, gpu, of, beside)?.map(four_digits);
            let names =
                [of, beside].map(|(model, batch)| format!("{},{batch}", MODELS[model].name));
            let [of, beside] = names;
            let (gpu, by) = (GPUS[gpu], by.name());
            writeln!(out, "{gpu},{of},,,,{beside},{by},{speed},{other},,")?;
        }
    }
    Ok(())
}
