//! `cargo bench -p pillion-benches --bench predict`: the cost of predicting how fast a job will be,
//! and of learning from a job, in processor time of one thread.
//!
//! | rows | what |
//! |---|---|
//! | machine | `FmFtrl::predict` and `FmFtrl::learn`, of rows that are encoded |
//! | forest | `Forest::predict`, of dense rows |
//! | service | `Predictor::predict` and `learn`: names to columns, all learners, repeats |
//! | refit | `Refit::run`, on another thread in a daemon, hence without a target |
//!
//! The samples are Gavel's (`cluster_sim::prediction`), from the folder that `PILLION_DATA` names.
//! Targets are of the 99th percentile: 20 us for a prediction, 50 us for learning.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, hint};

use anyhow::Context;
use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Measured, Report, Row, Unit};
use clap::Parser;
use cluster_sim::prediction::{Sample, Target, samples, schema, shuffled, with_values};
use cluster_sim::traces::{gavel, read};
use learn::fm_ftrl::FmFtrl;
use learn::forest::Forest;
use learn::predictor::{Learner, Predictor, Settings};
use rustix::time::{ClockId, clock_gettime};

/// Measures the cost of a prediction. Uses no GPU.
#[derive(Parser)]
#[command(name = "predict", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

const AFTER_HELP: &str = "\
Example:
  PILLION_DATA=data cargo bench -p pillion-benches --bench predict

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

/// Samples that are learnt before anything is timed: OLTunes' number.
const LEARNT: usize = 1400;

const PREDICT_NS: f64 = 20_000.0;
const LEARN_NS: f64 = 50_000.0;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.options.run("predict", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let data = env::var_os("PILLION_DATA").map(PathBuf::from);
    let data = data.context("PILLION_DATA is not set: it names the folder with the traces")?;
    let path = data.join("traces/gavel_throughputs/physical_cluster_throughputs.json");
    let throughputs = read(&path, gavel::throughputs)?;
    let passes = if arguments.options.quick { 2 } else { 20 };
    let mut rows = Vec::new();
    for (name, target) in [
        ("log throughput", Target::LogThroughput),
        ("speed", Target::Speed),
    ] {
        let samples = shuffled(&samples(&throughputs, target), 1);
        rows.extend(service(name, &samples, passes)?);
        if target == Target::Speed {
            rows.extend(learners(&samples, passes)?);
        }
    }
    let report = Report::new(machine, arguments.options.quick, rows);
    let notes = bench::evidence(&report);
    arguments.options.publish(report, &notes)
}

fn service(name: &str, samples: &[Sample], passes: usize) -> anyhow::Result<Vec<Row>> {
    let (mut learn, mut refit) = (Times::default(), Times::default());
    let mut predictor = Predictor::new(schema(), Settings::default())?;
    for sample in &samples[..LEARNT] {
        let learnt = with_values(sample, |values| {
            learn.time(|| predictor.learn(values, sample.target))
        });
        learnt?;
        if let Some(job) = predictor.poll_refit() {
            refit.samples = job.samples();
            predictor.handle_refitted(refit.time(|| job.run())?);
        }
    }
    let mut predict = Times::default();
    for sample in samples.iter().cycle().take(passes * samples.len()) {
        with_values(sample, |values| predict.time(|| predictor.predict(values)))?;
    }
    let served = match predictor.served() {
        Learner::Forest => "forest",
        _ => "machine",
    };
    let last = *refit.all_ns.last().context("no refit")?;
    let mut row = Row::new(
        &format!("{name}: refit of {} samples", refit.samples),
        Unit::Ms,
        Measured::Value(last as f64 / 1e6),
        None,
    );
    row.evidence.push(format!(
        "{} refits within {LEARNT} samples, {:.0} ms in all",
        refit.all_ns.len(),
        refit.all_ns.iter().sum::<u64>() as f64 / 1e6,
    ));
    Ok(vec![
        predict.row(
            &format!("{name}: predict, served by the {served}, p99"),
            PREDICT_NS,
        ),
        learn.row(&format!("{name}: learn, p99"), LEARN_NS),
        row,
    ])
}

fn learners(samples: &[Sample], passes: usize) -> anyhow::Result<Vec<Row>> {
    let settings = Settings::default();
    let mut predictor = Predictor::new(schema(), settings)?;
    let mut machine = FmFtrl::new(settings.machine).context("settings are out of range")?;
    let mut update = Times::default();
    let (mut sparse, mut targets) = (Vec::new(), Vec::new());
    for sample in samples {
        with_values(sample, |values| predictor.learn(values, sample.target))?;
        let row = with_values(sample, |values| predictor.encoder().encode(values))?;
        sparse.push(row);
        targets.push(sample.target);
    }
    for (row, target) in sparse
        .iter()
        .zip(&targets)
        .cycle()
        .take(passes * samples.len())
    {
        update.time(|| machine.learn(row, *target))?;
    }
    let mut predict = Times::default();
    for row in sparse.iter().cycle().take(passes * samples.len()) {
        predict.time(|| machine.predict(row))?;
    }
    let encoder = predictor.encoder();
    let dense = sparse
        .iter()
        .map(|row| encoder.dense(row, encoder.columns()));
    let dense: Vec<Vec<f64>> = dense.collect();
    let forest = Forest::fit(&dense[..LEARNT], &targets[..LEARNT], &settings.forest)?;
    let mut of_forest = Times::default();
    for row in dense.iter().cycle().take(passes * samples.len()) {
        of_forest.time(|| forest.predict(row));
    }
    let trees = settings.forest.trees;
    Ok(vec![
        predict.row("machine alone: predict, p99", PREDICT_NS),
        update.row("machine alone: update, p99", LEARN_NS),
        of_forest.row(
            &format!("forest of {trees} trees alone: predict, p99"),
            PREDICT_NS,
        ),
    ])
}

/// The times of calls, with two readings of the clock.
#[derive(Default)]
struct Times {
    all_ns: Vec<u64>,
    samples: usize,
}

impl Times {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let before_ns = thread_ns();
        let result = hint::black_box(call());
        self.all_ns.push(thread_ns() - before_ns);
        result
    }

    fn row(mut self, title: &str, target_ns: f64) -> Row {
        self.all_ns.sort_unstable();
        let all = &self.all_ns;
        let quantile = |part: usize| all[(all.len() - 1) * part / 1000] as f64;
        let p99 = Measured::Value(quantile(990));
        let mut row = Row::new(title, Unit::Ns, p99, Some(target_ns));
        row.evidence.push(format!(
            "{} calls: median {} ns, p99.9 {} ns",
            all.len(),
            quantile(500),
            quantile(999),
        ));
        row
    }
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
