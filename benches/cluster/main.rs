//! `cargo bench -p pillion-benches --bench cluster`: the cost of a placement, and of fifty-seven
//! days of a cluster, in processor time of one thread.
//!
//! | rows | measured |
//! |---|---|
//! | decision, 6742 GPUs | 99th percentile of `Placement::place` in `cluster_sim::days` |
//! | decision, 1000 GPUs | the same for Mudi's experiment, which has services |
//! | interference | a fit of a service's model from 35 curves; 99th percentile of predictions |
//! | days | the whole run: events, speeds, decisions, sums |
//!
//! The traces are read from the folder in `PILLION_DATA`. Targets: 1 ms with 1000 GPUs, 10 ms with
//! 6742 (Mudi's scheduler takes 19 ms in the mean with 1000), 60 s for the run, 2 GiB.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, ensure};
use benches::bench::{self, Options};
use benches::machine::Machine;
use benches::report::{Measured, Report, Row, Unit};
use clap::Parser;
use cluster::placement::registry::chosen;
use cluster::placement::{Candidate, Decision, Measured as Speeds, Placement};
use cluster::{JobSpec, View};
use cluster_sim::days::{Neighbours, PHILLY_FROM_DAY, load};
use cluster_sim::interference::{SEEN, UNSEEN, neighbours, sample};
use cluster_sim::mixed::Mixed;
use cluster_sim::play::Play;
use cluster_sim::service_table::{BATCHES, ServiceTable};
use cluster_sim::services::{Bound, Experiment, Known, tasks};
use cluster_sim::traces::{self, philly};
use cluster_sim::world::Nobody;
use learn::interference::{Settings, fit};
use rustix::time::{ClockId, clock_gettime};

/// Measures the cost of a placement. Uses no GPU.
#[derive(Parser)]
#[command(name = "cluster", after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Policies, separated by commas.
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "gpucolo,fgd,pillion"
    )]
    policy: Vec<String>,
}

const AFTER_HELP: &str = "\
Example:
  PILLION_DATA=data cargo bench -p pillion-benches --bench cluster -- --policy pillion

Exit codes: 0 success; 1 a measurement failed or, with --check, a target was missed.";

/// Simulated days with `--quick`.
const QUICK_DAYS: u32 = 5;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    arguments.options.run("cluster", || run(&arguments))
}

fn run(arguments: &Arguments) -> anyhow::Result<Report> {
    let machine = Machine::here();
    let data = env::var_os("PILLION_DATA").map(PathBuf::from);
    let data = data.context("PILLION_DATA is not set: it names the folder with the traces")?;
    let mut mixed = Mixed::fifty_seven_days(1);
    if arguments.options.quick {
        mixed.inference_jobs = mixed.inference_jobs * u64::from(QUICK_DAYS) / u64::from(mixed.days);
        mixed.days = QUICK_DAYS;
        mixed.burst_days = 0..0;
    }
    let play = load(&data, &mixed, Neighbours::Measured)?;
    let mut rows = vec![services(&data)?];
    rows.extend(interference()?);
    for name in &arguments.policy {
        rows.extend(measure(&play, name, mixed.days)?);
    }
    let report = Report::new(machine, arguments.options.quick, rows);
    let notes = bench::evidence(&report);
    arguments.options.publish(report, &notes)
}

struct Timed {
    policy: Box<dyn Placement>,
    decisions_ns: Vec<u32>,
}

impl Placement for Timed {
    fn place(
        &mut self,
        view: &View,
        job: &JobSpec,
        now_ns: u64,
        candidates: Option<&mut Vec<Candidate>>,
    ) -> Decision {
        let before_ns = thread_ns();
        let decision = self.policy.place(view, job, now_ns, candidates);
        let took_ns = thread_ns() - before_ns;
        self.decisions_ns
            .push(u32::try_from(took_ns).unwrap_or(u32::MAX));
        decision
    }

    fn handle_measured(&mut self, measured: Speeds<'_>) {
        self.policy.handle_measured(measured);
    }
}

/// Mudi's experiment: a thousand GPUs, five thousand training jobs.
fn services(data: &Path) -> anyhow::Result<Row> {
    let path = data.join("traces/philly_processed/philly_every2nd.csv");
    let jobs = traces::read(&path, philly::jobs)?;
    let submits = jobs.iter().map(|job| job.submit_s);
    let submits: Vec<f64> = submits
        .filter(|&at| at >= PHILLY_FROM_DAY * 86_400.0)
        .collect();
    let table = ServiceTable::a100()?;
    let experiment = Experiment {
        known: Known::sampled(&table),
        table,
        bound: Bound::Queueing,
        gpus: 1000,
        tasks: tasks(&submits, 5000, 80.0, 1),
        seed: 1,
    };
    let view = experiment.view();
    let mut timed = Timed {
        policy: experiment.policy("pillion", &view),
        decisions_ns: Vec::new(),
    };
    experiment.play(view, &mut timed, false);
    Ok(timed.row("mudi, pillion: decision, 1000 GPUs, p99", 1.0))
}

const FITS: usize = 20;
const PREDICTIONS: u32 = 10_000;

/// The model of ResNet-50 beside Mudi's five trainings, asked for the other four. A prediction is
/// to take 20 µs at most, as one of throughput is (OLTunes); a fit is off the path of decisions.
fn interference() -> anyhow::Result<[Row; 2]> {
    let table = ServiceTable::a100()?;
    let places = SEEN
        .into_iter()
        .flat_map(|training| BATCHES.map(|batch| (0, training, batch)));
    let samples: Option<Vec<_>> = places.map(|place| sample(&table, place, true)).collect();
    let samples = samples.context("the table has no such pair")?;
    let before_ns = thread_ns();
    for _ in 1..FITS {
        fit(&samples, &Settings::default())?;
    }
    let model = fit(&samples, &Settings::default())?;
    let took_ms = (thread_ns() - before_ns) as f64 / 1e6 / FITS as f64;
    let mut timed = Vec::new();
    for number in 0..PREDICTIONS {
        let training = UNSEEN[number as usize % UNSEEN.len()];
        let beside = neighbours(&table, training, true).context("no such training")?;
        let before_ns = thread_ns();
        let found = model.predict(1 + number % 64, 2.0, &beside)?;
        timed.push((thread_ns() - before_ns) as f64 / 1e6);
        ensure!(found.curve.knee_p99 > 0.0, "no latency");
    }
    timed.sort_by(f64::total_cmp);
    let p99 = Measured::Value(timed[timed.len() * 99 / 100]);
    Ok([
        Row::new(
            "interference: fit of a service, 35 curves",
            Unit::Ms,
            Measured::Value(took_ms),
            None,
        ),
        Row::new("interference: prediction, p99", Unit::Ms, p99, Some(0.02)),
    ])
}

impl Timed {
    fn row(mut self, title: &str, target_ms: f64) -> Row {
        self.decisions_ns.sort_unstable();
        let all = &self.decisions_ns;
        let quantile = |part: usize| f64::from(all[(all.len() - 1) * part / 1000]) / 1e6;
        let p99 = Measured::Value(quantile(990));
        let mut row = Row::new(title, Unit::Ms, p99, Some(target_ms));
        row.evidence.push(format!(
            "{} decisions: median {:.4} ms, p99.9 {:.4} ms, max {:.4} ms",
            all.len(),
            quantile(500),
            quantile(999),
            quantile(1000),
        ));
        row
    }
}

fn measure(play: &Play, name: &str, days: u32) -> anyhow::Result<Vec<Row>> {
    let chosen = chosen(name)?;
    let before_ns = thread_ns();
    let outcome = play.run(&mut *play.policy(&chosen, 1), &mut Nobody);
    let took_ns = thread_ns() - before_ns;
    let mut timed = Timed {
        policy: play.policy(&chosen, 1),
        decisions_ns: Vec::new(),
    };
    let again = play.run(&mut timed, &mut Nobody);
    ensure!(outcome.jobs == again.jobs, "{name}: two equal runs differ");
    let gpus = play.inventory.gpus();
    let decision = timed.row(&format!("{name}: decision, {gpus} GPUs, p99"), 10.0);
    let target_ms = 60_000.0 * f64::from(days) / 57.0;
    let run = Measured::Value(took_ns as f64 / 1e6);
    let mut run = Row::new(
        &format!("{name}: {days} days"),
        Unit::Ms,
        run,
        Some(target_ms),
    );
    run.evidence.push(format!(
        "{} jobs, {} events, at most {} MiB so far",
        outcome.jobs.len(),
        outcome.events,
        resident_most_mib()?,
    ));
    Ok(vec![decision, run])
}

fn resident_most_mib() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib
        .context("/proc/self/status has no VmHWM")?
        .trim()
        .parse::<u64>()?
        / 1024)
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
