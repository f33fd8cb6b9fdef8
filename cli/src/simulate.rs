//! `pillion simulate`: runs policies on the device model in virtual time. Experiments come from the
//! options (one pair of jobs), a scenario file, or a suite; all become
//! [`sim::scenario::Scenario`]s, with a run per seed. All input is checked before anything is run
//! or written. Runs are independent and use all cores; results come in the order of the scenarios,
//! and are the same byte by byte for this build on any number of cores.

mod cluster;
mod comparison;
mod outcomes;
mod pages;
mod plan;
mod plots;
mod reproduction;
mod results;
mod runner;
mod scenes;
mod targets;
mod units;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::out;
use crate::simulate::outcomes::Group;
use crate::simulate::plan::Plan;
use crate::simulate::targets::Targets;

/// Runs jobs under policies on a model of a GPU, in virtual time: minutes of device time in
/// seconds.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: pillion simulate --policy mps,orion --seeds 1,2,3\n\
    Example: pillion simulate --device A30 --hp bert-base-inference@4 --hp-rate 8 --be mobilenetv2-training@64\n\
    Example: pillion simulate --scenario examples/scenario.toml --json | jq .hp.p99_ms\n\
    Example: pillion simulate --suite orion --quick --out results\n\
    Example: pillion simulate cluster --trace philly.csv --policy first-fit,pillion --gpus 256\n\n\
    docs/simulate.md describes the numbers, and the keys and sweeps of a scenario file. The same input \
    gives the same output, byte for byte."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Model of the GPU [default: V100-SXM2-16GB].
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["scenario", "suite"])]
    device: Option<String>,
    /// Trace of the high-priority job: an Orion kernel file, a Pillion trace, or a built-in
    /// workload, NAME or NAME@BATCH (`pillion workload` lists them) [default: resnet50-inference].
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["scenario", "suite"])]
    hp: Option<String>,
    /// Requests per second of the high-priority job, for poisson and uniform arrivals
    /// [default: 15].
    #[arg(
        long,
        value_name = "R",
        allow_negative_numbers = true,
        conflicts_with_all = ["scenario", "suite"]
    )]
    hp_rate: Option<f64>,
    /// How high-priority requests arrive: poisson, uniform, closed, or a file of arrivals
    /// [default: poisson].
    #[arg(long, value_name = "KIND|FILE", conflicts_with_all = ["scenario", "suite"])]
    arrivals: Option<String>,
    /// Index of the list in a DISB workload file, from 0.
    #[arg(long, value_name = "N", requires = "arrivals")]
    arrivals_stream: Option<usize>,
    /// Trace of a best-effort job, which runs in a closed loop; repeat the option for more jobs
    /// [default: resnet50-training].
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["scenario", "suite"])]
    be: Vec<String>,
    /// Policies, separated by commas [default: all but oracle].
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        conflicts_with_all = ["scenario", "suite"]
    )]
    policy: Vec<String>,
    /// How the jobs share the GPU: mps or timeslice [default: mps].
    #[arg(long, value_name = "HOW", conflicts_with_all = ["scenario", "suite"])]
    sharing: Option<String>,
    /// Seeds of the arrivals, separated by commas: a run for each [default: 1]. Overrides those of
    /// --scenario or --suite.
    #[arg(long, value_name = "1,2", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Device seconds of each run [default: 60]. Overrides those of --scenario or --suite.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    seconds: Option<f64>,
    /// A scenario file: devices, jobs, policies, sweeps; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    scenario: Option<PathBuf>,
    /// A suite of experiments: orion and muxflow, those of their papers; robustness, busy, ablation
    /// and slo, Pillion's own. PILLION_DATA names the folder of recorded traces; without it,
    /// built-in workloads replace them.
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// Run only these experiments of a suite: their keys in the results, separated by commas.
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "suite")]
    part: Vec<String>,
    /// Shorten a suite to 60 s of device time and one seed; slo to a tenth of its requests.
    #[arg(long, requires = "suite")]
    quick: bool,
    /// Print a line of JSON for each run.
    #[arg(long)]
    json: bool,
    /// Also write results.jsonl, report.html, its pictures as SVG, and timeline.json (for Perfetto)
    /// into this folder; for a suite also tables.md, or reproduction.md, which compares it with its
    /// publication.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Simulates more than one GPU.
#[derive(Debug, Subcommand)]
enum Command {
    Cluster(Box<cluster::Options>),
}

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(Command::Cluster(options)) = &options.command {
        return cluster::run(options);
    }
    let plan = Plan::of(options).map_err(Failure::usage)?;
    if let Some(folder) = &options.out {
        out::folder(folder).map_err(Failure::usage)?;
    }
    for note in &plan.notes {
        out::note(format_args!("pillion: {note}"));
    }
    let mut targets = Targets::of(&plan);
    let mut lines = Vec::new();
    let runs = runner::run_all(&plan, |run| {
        let mut line = results::line(run);
        if let Some(row) = targets.as_mut().and_then(|targets| targets.handle_run(run)) {
            line["target"] = targets::row_json(row);
        }
        if options.json {
            out::line(format_args!("{line}"))?;
        }
        lines.push(line);
        Ok(())
    })?;
    match &targets {
        Some(targets) if options.json => out::note(format_args!("{}", targets.summary())),
        Some(targets) => targets.print()?,
        None if options.json => {}
        None => results::print_tables(&plan, &Group::all(&runs.iter().collect::<Vec<_>>()))?,
    }
    if let Some(folder) = &options.out {
        pages::write(folder, &plan, &runs, &lines)?;
        if let Some(targets) = &targets {
            out::file(folder, "tables.md", &targets.document(&plan))?;
        }
    }
    targets.map_or(Ok(()), |targets| targets.check())
}
