//! Cells of the table, computed by the simulator of one GPU. A mechanism is run by a policy of
//! `pillion simulate` ([`Mechanism::scenario`]):
//! - time-sharing: time slices, `none`. Each job has its turns, whatever it is.
//! - pb-time-sharing: time slices, `temporal`. The training launches only while the service is
//!   idle, and has at most 2.5 % of a request in flight, or one kernel.
//! - pb-multi-stream: one process, `stream-priority`.
//! - muxflow: MPS, `muxflow`. The throttle holds 0.9 of the SMs, and the training has 100 % less
//!   the SM activity of the service alone.
//! - muxflow-s: MPS, `muxflow` with `share_pct = 40`.
//!
//! Clock, power and heat follow the load, as in the suite `muxflow`. A framework takes 10 us from
//! launch to launch. All compute in 32 bits. Every run has the same seed, so a service has the same
//! arrivals alone and in every cell.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use profiler::Trace;
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{Arrivals, Experiment, JobOutcome, NoObserver};
use workloads::{Precision, Workload};

use super::{Cell, DEVICE, LOADS_PCT, Latency, Mechanism, SERVICES, TRAININGS};
use crate::table::four_digits;

/// Device time of a run: 880 requests at the lowest rate.
pub const RUN_NS: u64 = 40_000_000_000;

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
    /// There is no service, rate or training at this place.
    #[error("no {kind} {place}: expected 0 to {last}")]
    Place {
        /// Which of them.
        kind: &'static str,
        /// The requested place.
        place: usize,
        /// The last there is.
        last: usize,
    },
    /// No request was answered.
    #[error("{service}: no request was answered, expected at least one")]
    NoRequest {
        /// The service.
        service: &'static str,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The device with two jobs, whose traces and arrivals each run has of its own.
#[derive(Debug)]
pub struct Bench {
    experiments: Vec<Experiment>,
    traces: HashMap<(&'static str, u32), Arc<Trace>>,
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

impl Bench {
    /// A device with nothing measured yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            experiments: Mechanism::ALL.map(experiment).to_vec(),
            traces: HashMap::new(),
        }
    }

    /// The cell of a service at a rate and a training, named by their places in the lists.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn cell(
        &mut self,
        service: usize,
        load: usize,
        training: usize,
        by: Mechanism,
    ) -> Result<Cell, MeasureError> {
        self.put_service(service, load, by)?;
        self.put_training(training, by)?;
        let outcome = self.experiments[by as usize].run(&mut NoObserver)?;
        let job = &outcome.jobs[SERVICE];
        Ok(Cell {
            latency: latency_of(job, SERVICES[service].name)?,
            behind_s: job.last_completion_ns.saturating_sub(RUN_NS) as f64 / 1e9,
            iterations_per_s: outcome.jobs[TRAINING].per_s(),
        })
    }

    /// Latency of a service without a training.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn latency_alone(&mut self, service: usize, load: usize) -> Result<Latency, MeasureError> {
        self.put_service(service, load, ALONE)?;
        let outcome = self.experiments[ALONE as usize].run_solo(SERVICE, &mut NoObserver)?;
        latency_of(&outcome.jobs[0], SERVICES[service].name)
    }

    /// Iterations per second of a training without a service.
    ///
    /// # Errors
    /// See [`MeasureError`].
    pub fn training_alone_per_s(&mut self, training: usize) -> Result<f64, MeasureError> {
        self.put_training(training, ALONE)?;
        let outcome = self.experiments[ALONE as usize].run_solo(TRAINING, &mut NoObserver)?;
        Ok(outcome.jobs[0].per_s())
    }

    fn put_service(
        &mut self,
        service: usize,
        load: usize,
        by: Mechanism,
    ) -> Result<(), MeasureError> {
        let served = at("service", &SERVICES, service)?;
        let &per_s = at("rate", &served.rates_per_s, load)?;
        let trace = self.trace(served.workload, 1)?;
        let job = &mut self.experiments[by as usize].jobs[SERVICE];
        job.trace = trace;
        job.arrivals = Arrivals::Poisson { per_s };
        Ok(())
    }

    fn put_training(&mut self, training: usize, by: Mechanism) -> Result<(), MeasureError> {
        let trained = at("training", &TRAININGS, training)?;
        let trace = self.trace(trained.workload, trained.batch)?;
        self.experiments[by as usize].jobs[TRAINING].trace = trace;
        Ok(())
    }

    fn trace(&mut self, workload: &'static str, batch: u32) -> Result<Arc<Trace>, MeasureError> {
        if let Some(trace) = self.traces.get(&(workload, batch)) {
            return Ok(Arc::clone(trace));
        }
        let device = &self.experiments[0].device;
        let trace = Workload::by_name(workload)?.trace(Some(batch), device, Precision::Fp32)?;
        let trace = Arc::new(trace);
        self.traces.insert((workload, batch), Arc::clone(&trace));
        Ok(trace)
    }
}

const ALONE: Mechanism = Mechanism::MuxFlow;

fn at<'a, T>(kind: &'static str, list: &'a [T], place: usize) -> Result<&'a T, MeasureError> {
    list.get(place).ok_or(MeasureError::Place {
        kind,
        place,
        last: list.len() - 1,
    })
}

fn experiment(by: Mechanism) -> Experiment {
    let (sharing, policy) = by.scenario();
    let text = format!(
        r#"
device = "{DEVICE}"
sharing = "{sharing}"
warmup_requests = 0
[gpu]
governor = true
[host]
launch_gap_ns = 10000
[policy]
{policy}
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
    let mut experiment = read.expect("the text is a constant that tests parse")[0].with_seed(SEED);
    experiment.duration_ns = RUN_NS;
    experiment
}

fn latency_of(job: &JobOutcome, service: &'static str) -> Result<Latency, MeasureError> {
    let p99_ns = job.quantile_ns(990);
    let p99_ns = p99_ns.ok_or(MeasureError::NoRequest { service })?;
    let sum_ns: f64 = job.latencies_ns.iter().map(|&ns| ns as f64).sum();
    Ok(Latency {
        mean_ms: sum_ns / job.latencies_ns.len() as f64 / 1e6,
        p99_ms: p99_ns as f64 / 1e6,
    })
}

/// Writes the rows. `progress` is called with each service at a rate that is done.
///
/// # Errors
/// See [`MeasureError`].
pub fn write_rows(
    out: &mut impl Write,
    mut progress: impl FnMut(&str),
) -> Result<(), MeasureError> {
    let mut bench = Bench::new();
    for (place, training) in TRAININGS.iter().enumerate() {
        let per_s = four_digits(bench.training_alone_per_s(place)?);
        writeln!(out, ",,{},,,,,{per_s}", training.name)?;
    }
    for (place, service) in SERVICES.iter().enumerate() {
        for (load, pct) in LOADS_PCT.into_iter().enumerate() {
            let Latency { mean_ms, p99_ms } = bench.latency_alone(place, load)?;
            let [mean_ms, p99_ms] = [mean_ms, p99_ms].map(four_digits);
            writeln!(out, "{},{pct},,,{mean_ms},{p99_ms},,", service.name)?;
            write_pairs(out, &mut bench, place, load)?;
            progress(&format!("{} at {pct} %", service.name));
        }
    }
    Ok(())
}

fn write_pairs(
    out: &mut impl Write,
    bench: &mut Bench,
    service: usize,
    load: usize,
) -> Result<(), MeasureError> {
    for (place, training) in TRAININGS.iter().enumerate() {
        for by in Mechanism::ALL {
            let cell = bench.cell(service, load, place, by)?;
            let Latency { mean_ms, p99_ms } = cell.latency;
            let [mean_ms, p99_ms, behind_s, per_s] =
                [mean_ms, p99_ms, cell.behind_s, cell.iterations_per_s].map(four_digits);
            let (name, pct) = (SERVICES[service].name, LOADS_PCT[load]);
            let (beside, by) = (training.name, by.name());
            writeln!(
                out,
                "{name},{pct},{beside},{by},{mean_ms},{p99_ms},{behind_s},{per_s}"
            )?;
        }
    }
    Ok(())
}
