//! `cargo bench -p pillion-benches --bench sim`: the simulator's speed, in ns of one processor per
//! simulated launch.
//!
//! It measures the processor time of the thread, not wall-clock time: a busy machine changes it
//! little. Each row is the median of several runs of the same experiment, after one that is
//! discarded; their outcomes are checked for equality.
//!
//! | rows | measured |
//! |---|---|
//! | one client | a built-in network alone, closed loop: launches, host, device, no contention |
//! | two clients | two of them, both closed loops, so that both are always busy |
//! | … under `orion` | the same behind leases: the daemon's polls, helpers |
//!
//! Targets: a million launches per second with one client, half a million with two.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Measured, Report, Row, Unit};
use benches::summary::Quantiles;
use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use sim::{
    Arrivals, Experiment, HostModel, Job, JobClass, JobKind, NoObserver, Outcome, PolicySpec,
};
use softgpu::{Config, Device, Sharing};
use workloads::{Precision, Workload};

/// Measures the speed of the simulator. Uses no GPU.
#[derive(Parser)]
#[command(name = "sim", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Measure only rows whose name contains this.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

const AFTER_HELP: &str = "\
Example:
  cargo bench -p pillion-benches --bench sim -- --quick

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

/// The cases: name, policy, jobs (the first one high-priority if there are two), target.
const CASES: &[(&str, &str, &[&str], Option<f64>)] = &[
    (
        "one client, resnet50-inference",
        "mps",
        &["resnet50-inference"],
        ONE,
    ),
    (
        "one client, resnet50-training",
        "mps",
        &["resnet50-training"],
        ONE,
    ),
    (
        "one client, bert-base-training",
        "mps",
        &["bert-base-training"],
        ONE,
    ),
    (
        "two clients, resnet50-inference and resnet50-training",
        "mps",
        &["resnet50-inference", "resnet50-training"],
        TWO,
    ),
    (
        "two clients, mobilenetv2-inference and bert-base-training",
        "mps-priority",
        &["mobilenetv2-inference", "bert-base-training"],
        TWO,
    ),
    (
        "two clients under orion, resnet50-inference and resnet50-training",
        "orion",
        &["resnet50-inference", "resnet50-training"],
        TWO,
    ),
];

/// Nanoseconds per launch: a million per second.
const ONE: Option<f64> = Some(1_000.0);
/// Half a million per second.
const TWO: Option<f64> = Some(2_000.0);

const DURATION_NS: u64 = 20_000_000_000;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.options.run("sim", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let runs = if arguments.options.quick { 1 } else { 5 };
    let mut rows = Vec::new();
    for &(name, policy, jobs, target) in CASES {
        let is_wanted = |word: &String| name.contains(word.as_str());
        if arguments.only.as_ref().is_none_or(is_wanted) {
            rows.push(measure(name, &experiment(policy, jobs)?, runs, target)?);
        }
    }
    let report = Report::new(machine, arguments.options.quick, rows);
    let notes = bench::evidence(&report);
    arguments.options.publish(report, &notes)
}

fn experiment(policy: &str, jobs: &[&str]) -> anyhow::Result<Experiment> {
    let device = Device::by_name("V100-SXM2-16GB")?;
    let jobs = jobs.iter().enumerate().map(|(index, name)| {
        let trace = Workload::by_name(name)?.trace(None, &device, Precision::Fp32)?;
        let class = match (index, jobs.len()) {
            (0, 2..) => JobClass::HighPriority,
            _ => JobClass::BestEffort,
        };
        let kind = match name.ends_with("training") {
            true => JobKind::Training,
            false => JobKind::Inference,
        };
        Ok(Job::new(
            *name,
            class,
            kind,
            Arc::new(trace),
            Arrivals::Closed,
        ))
    });
    Ok(Experiment {
        jobs: jobs.collect::<anyhow::Result<_>>()?,
        gpu: Config::new(Sharing::Mps, &device),
        device,
        policy: policy.parse::<PolicySpec>()?,
        seed: 1,
        duration_ns: DURATION_NS,
        host: HostModel::default(),
        laws: sim::Laws::default(),
        warmup_requests: 0,
        profiles: sim::ProfileErrors::NONE,
    })
}

fn measure(
    name: &str,
    experiment: &Experiment,
    runs: usize,
    target: Option<f64>,
) -> anyhow::Result<Row> {
    let (_, first) = timed(experiment)?;
    let mut ns_per_launch = Vec::new();
    for _ in 0..runs {
        let (took_ns, outcome) = timed(experiment)?;
        ensure!(outcome == first, "{name}: two equal runs differ");
        ns_per_launch.push(took_ns as f64 / outcome.launches as f64);
    }
    let quantiles = Quantiles::of(&ns_per_launch);
    let mut row = Row::new(name, Unit::Ns, Measured::Median(quantiles), target);
    let share = &first.utilisation;
    row.evidence.push(format!(
        "{} launches in {:.1} s of device time, {:.0} % of SM time busy, {} runs",
        first.launches,
        first.elapsed_ns as f64 / 1e9,
        share.sm * 100.0,
        runs,
    ));
    row.evidence.push(format!(
        "{:.2} million launches per second",
        1e3 / quantiles.median
    ));
    Ok(row)
}

fn timed(experiment: &Experiment) -> anyhow::Result<(u64, Outcome)> {
    let before_ns = thread_ns();
    let outcome = experiment.run(&mut NoObserver)?;
    Ok((thread_ns() - before_ns, outcome))
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
