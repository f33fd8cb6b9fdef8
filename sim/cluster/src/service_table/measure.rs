//! Cells of the service table, computed by the simulator of one GPU. *How the GPU is shared.* Under
//! MPS, the service has the first SMs and the training the others, a hundred per cent together, as
//! Mudi has it (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` of both). That is `gslice` without a target, by
//! which the policy `mudi` samples its latency model too. Memory bandwidth belongs to both.
//!
//! *How they compute.* On matrix units, in 16 bits. Mudi's PyTorch 1.9 multiplies on an A100's
//! matrix units by default (TF32). On the ordinary units four of the six services cannot keep up
//! with 200 requests a second on a GPU of their own: in batches of 32, GPT-2 needs 1.86 GPUs, BERT
//! and RoBERTa 1.00, YOLOS 2.63. On matrix units they need 0.28, 0.16 and 0.65.
//!
//! *What is run.* For each cell first the service in a closed loop, one batch after the other. This
//! gives the 99th percentile of batches, and whether they are short enough to keep up with the
//! requests. If so, a run with requests at random follows. Otherwise an open run would say nothing
//! more: batches follow each other just as in the closed loop, whatever waits behind them.
//!
//! Every run has the same seed, so every cell has the same arrivals. The last batch of an open run
//! does not wait for requests beyond its end, so a batch of 64 has up to 6 % of its run's requests
//! answered sooner than in a longer run.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use profiler::Trace;
use profiler::quantile::nearest_rank;
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{Arrivals, Batch, Experiment, NoObserver, Outcome};
use workloads::{Precision, Workload};

use super::{BATCHES, Cell, DEVICE, REQUESTS_PER_S, SERVICES, SHARES_PCT, Service, TRAININGS};
use crate::table::four_digits;

/// Device time of a run with requests at random: a thousand requests.
pub const OPEN_NS: u64 = 5_000_000_000;

/// Device time of a closed loop: so many batches, if they took as long as alone divided by the
/// service's share of the SMs, but within [`CLOSED_NS`].
pub const CLOSED_BATCHES: f64 = 100.0;

/// Least and most device time of a closed loop; more if [`CLOSED_BATCHES_MIN`] batches do not fit.
pub const CLOSED_NS: [f64; 2] = [0.5e9, 2e9];

/// See [`CLOSED_NS`].
pub const CLOSED_BATCHES_MIN: f64 = 25.0;

const ALONE_NS: u64 = 5_000_000_000;

const SEED: u64 = 1;

const SERVICE: usize = 0;
const TRAINING: usize = 1;

/// Why a cell cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A workload is not there, or not on this device.
    #[error(transparent)]
    Workload(#[from] workloads::Error),
    /// The run cannot be made.
    #[error(transparent)]
    Run(#[from] sim::Error),
    /// There is no service or training at this place.
    #[error("no {kind} {place}: expected 0 to {last}")]
    Place {
        /// Which of both.
        kind: &'static str,
        /// The requested place.
        place: usize,
        /// The last there is.
        last: usize,
    },
    /// No batch was answered.
    #[error(
        "{service} in batches of {batch}: no batch was answered, expected {CLOSED_BATCHES_MIN}"
    )]
    NoBatch {
        /// The service.
        service: &'static str,
        /// Requests of a batch.
        batch: u32,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The device with two jobs, whose traces and arrivals each run has of its own.
#[derive(Debug)]
pub struct Bench {
    experiment: Experiment,
    traces: HashMap<(&'static str, u32), Arc<Trace>>,
    batch_ns: HashMap<(usize, u32), f64>,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// A device with nothing measured yet.
    #[must_use]
    #[expect(
        clippy::missing_panics_doc,
        reason = "the text is a constant that tests parse"
    )]
    pub fn new() -> Self {
        let text = format!(
            r#"
device = "{DEVICE}"
warmup_requests = 0
[policy]
name = "gslice"
[[jobs]]
name = "service"
class = "high-priority"
kind = "inference"
trace = {{ kernel_us = 1 }}
[[jobs]]
name = "training"
trace = {{ kernel_us = 1 }}
"#
        );
        let name = Path::new("pair.toml");
        let read = Scenario::parse(name, &text, Path::new("."), &mut Library::default());
        let experiment = read.expect("the text is right")[0].with_seed(SEED);
        Self {
            experiment,
            traces: HashMap::new(),
            batch_ns: HashMap::new(),
        }
    }

    /// The cell of a service and a training, by their places in the lists, with batches of so many
    /// requests and this share for the service, 1 to 99 per cent.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn cell(
        &mut self,
        service: usize,
        training: usize,
        batch: u32,
        share_pct: u32,
    ) -> Result<Cell, MeasureError> {
        self.put_training(training)?;
        let served = self.put_service(service, batch)?;
        let shared = self.experiment.policy.set("share_pct", share_pct.into());
        debug_assert!(shared, "gslice has a share");
        let closed = self.closed(service, batch, share_pct)?;
        let (batch_ns, batch_p99_ms) = times_of(&closed, served, batch)?;
        if batch_ns * REQUESTS_PER_S >= f64::from(batch) * 1e9 {
            return Ok(Cell {
                late: 1.0,
                request_p99_ms: None,
                batch_p99_ms,
                iterations_per_s: closed.jobs[TRAINING].per_s(),
            });
        }
        let open = self.open(batch)?;
        let all = self.requests();
        Ok(Cell {
            late: late(&open, all, served.slo_ms),
            request_p99_ms: request_p99_ms(&open, all),
            batch_p99_ms,
            iterations_per_s: open.jobs[TRAINING].per_s(),
        })
    }

    /// The 99th percentile of a service's batches without a training, ms.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn batch_p99_alone_ms(&mut self, service: usize, batch: u32) -> Result<f64, MeasureError> {
        let served = self.put_service(service, batch)?;
        self.experiment.duration_ns = ALONE_NS;
        let outcome = self.experiment.run_solo(SERVICE, &mut NoObserver)?;
        Ok(times_of(&outcome, served, batch)?.1)
    }

    /// Iterations per second of a training without a service.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn training_alone_per_s(&mut self, training: usize) -> Result<f64, MeasureError> {
        self.put_training(training)?;
        self.experiment.duration_ns = ALONE_NS;
        let outcome = self.experiment.run_solo(TRAINING, &mut NoObserver)?;
        Ok(outcome.jobs[0].per_s())
    }

    fn closed(
        &mut self,
        service: usize,
        batch: u32,
        share_pct: u32,
    ) -> Result<Outcome, MeasureError> {
        let alone_ns = self.batch_alone_ns(service, batch)?;
        let expected_ns = alone_ns * 100.0 / f64::from(share_pct);
        let [least_ns, most_ns] = CLOSED_NS;
        let wanted_ns = (CLOSED_BATCHES * expected_ns).clamp(least_ns, most_ns);
        self.experiment.duration_ns = wanted_ns.max(CLOSED_BATCHES_MIN * expected_ns) as u64;
        Ok(self.experiment.run(&mut NoObserver)?)
    }

    fn open(&mut self, requests: u32) -> Result<Outcome, MeasureError> {
        let job = &mut self.experiment.jobs[SERVICE];
        job.arrivals = Arrivals::Poisson {
            per_s: REQUESTS_PER_S,
        };
        let trace = Arc::clone(&job.trace);
        job.batches = vec![Batch { requests, trace }];
        self.experiment.duration_ns = OPEN_NS;
        Ok(self.experiment.run(&mut NoObserver)?)
    }

    fn requests(&self) -> usize {
        let arrivals = &self.experiment.jobs[SERVICE].arrivals;
        let mut schedule = arrivals.schedule(OPEN_NS, self.experiment.seed_of(SERVICE));
        std::iter::from_fn(|| schedule.next_ns(0)).count()
    }

    fn batch_alone_ns(&mut self, service: usize, batch: u32) -> Result<f64, MeasureError> {
        if let Some(&ns) = self.batch_ns.get(&(service, batch)) {
            return Ok(ns);
        }
        let served = self.put_service(service, batch)?;
        self.experiment.duration_ns = ALONE_NS;
        let outcome = self.experiment.run_solo(SERVICE, &mut NoObserver)?;
        let (ns, _) = times_of(&outcome, served, batch)?;
        self.batch_ns.insert((service, batch), ns);
        Ok(ns)
    }

    fn put_service(
        &mut self,
        service: usize,
        batch: u32,
    ) -> Result<&'static Service, MeasureError> {
        let served = SERVICES.get(service).ok_or(MeasureError::Place {
            kind: "service",
            place: service,
            last: SERVICES.len() - 1,
        })?;
        let trace = self.trace(served.workload, batch)?;
        let job = &mut self.experiment.jobs[SERVICE];
        job.trace = trace;
        job.batches.clear();
        job.arrivals = Arrivals::Closed;
        Ok(served)
    }

    fn put_training(&mut self, training: usize) -> Result<(), MeasureError> {
        let trained = TRAININGS.get(training).ok_or(MeasureError::Place {
            kind: "training",
            place: training,
            last: TRAININGS.len() - 1,
        })?;
        self.experiment.jobs[TRAINING].trace = self.trace(trained.workload, trained.batch)?;
        Ok(())
    }

    fn trace(&mut self, workload: &'static str, batch: u32) -> Result<Arc<Trace>, MeasureError> {
        if let Some(trace) = self.traces.get(&(workload, batch)) {
            return Ok(Arc::clone(trace));
        }
        let device = &self.experiment.device;
        let trace = Workload::by_name(workload)?.trace(Some(batch), device, Precision::Fp16)?;
        let trace = Arc::new(trace);
        self.traces.insert((workload, batch), Arc::clone(&trace));
        Ok(trace)
    }
}

fn times_of(
    outcome: &Outcome,
    served: &'static Service,
    batch: u32,
) -> Result<(f64, f64), MeasureError> {
    let job = &outcome.jobs[SERVICE];
    let p99_ns = job.quantile_ns(990).ok_or(MeasureError::NoBatch {
        service: served.name,
        batch,
    })?;
    Ok((1e9 / job.per_s(), p99_ns as f64 / 1e6))
}

fn late(open: &Outcome, all: usize, slo_ms: f64) -> f64 {
    let slo_ns = (slo_ms * 1e6) as u64;
    let latencies = &open.jobs[SERVICE].latencies_ns;
    let in_time = latencies.iter().filter(|&&ns| ns <= slo_ns).count();
    (all - in_time) as f64 / all.max(1) as f64
}

/// Of all requests; `None` where it is one that was not answered.
fn request_p99_ms(open: &Outcome, all: usize) -> Option<f64> {
    let mut latencies = open.jobs[SERVICE].latencies_ns.clone();
    latencies.resize(all.max(latencies.len()), u64::MAX);
    latencies.sort_unstable();
    let p99_ns = nearest_rank(&latencies, 990).filter(|&ns| ns < u64::MAX)?;
    Some(p99_ns as f64 / 1e6)
}

/// Writes the rows of these services, and those of trainings alone before the first one's.
/// `progress` is called with each pair that is done.
///
/// # Errors
/// See [`MeasureError`].
pub fn write_rows(
    out: &mut impl Write,
    services: &[usize],
    mut progress: impl FnMut(&str),
) -> Result<(), MeasureError> {
    let mut bench = Bench::new();
    if services.contains(&0) {
        for (place, training) in TRAININGS.iter().enumerate() {
            let per_s = four_digits(bench.training_alone_per_s(place)?);
            writeln!(out, ",{},,,,,,{per_s}", training.name)?;
        }
    }
    for &service in services {
        for batch in BATCHES {
            let p99_ms = four_digits(bench.batch_p99_alone_ms(service, batch)?);
            writeln!(out, "{},,{batch},,,,{p99_ms},", SERVICES[service].name)?;
        }
        for (place, training) in TRAININGS.iter().enumerate() {
            write_pair(out, &mut bench, service, place)?;
            progress(&format!(
                "{} beside {}",
                SERVICES[service].name, training.name
            ));
        }
    }
    Ok(())
}

fn write_pair(
    out: &mut impl Write,
    bench: &mut Bench,
    service: usize,
    training: usize,
) -> Result<(), MeasureError> {
    let (served, trained) = (SERVICES[service].name, TRAININGS[training].name);
    for batch in BATCHES {
        for share_pct in SHARES_PCT {
            let cell = bench.cell(service, training, batch, share_pct)?;
            let [late, batch_p99_ms, per_s] =
                [cell.late, cell.batch_p99_ms, cell.iterations_per_s].map(four_digits);
            let p99_ms = cell.request_p99_ms.map(four_digits);
            let p99_ms = p99_ms.map_or_else(String::new, |ms| ms.to_string());
            writeln!(
                out,
                "{served},{trained},{batch},{share_pct},{late},{p99_ms},{batch_p99_ms},{per_s}"
            )?;
        }
    }
    Ok(())
}
