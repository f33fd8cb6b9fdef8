//! `pillion simulate cluster`: placement policies on recorded traces, in virtual time. Runs come
//! from a trace and a cluster, or from a suite, in two experiments ([`plan::What`]): weeks of jobs
//! that arrive and end, and FGD's inflation, in which jobs arrive until the cluster is full. All
//! input is checked before anything is run or written. Runs are independent and use all cores;
//! results come in the order of policies, then seeds, and are the same to the byte on any number of
//! cores.

mod facts;
mod mechanisms;
mod oltunes;
mod own_suites;
mod pages;
mod pairs;
mod plan;
mod plots;
mod predictions;
mod results;
mod runner;
mod suites;

use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::facts::Run;
use crate::simulate::cluster::plan::Plan;

/// Runs recorded jobs on a cluster under placement policies, in virtual time: weeks in seconds.
// `--inflate=1.3`, because lintian takes that word and a number after a space for zlib's name.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: PILLION_DATA=data pillion simulate cluster --suite gpucolo --quick --policy exclusive,muxflow,pillion\n\
    Example: pillion simulate cluster --trace philly.csv --policy first-fit,pillion --gpus 512 --days 30\n\
    Example: pillion simulate cluster --trace pods.csv --slo 1.05 --nodes nodes.csv --json | jq .violations\n\
    Example: pillion simulate cluster --trace pods.csv --nodes nodes.csv --inflate=1.3 --policy best-fit,fgd\n\
    Example: PILLION_DATA=data pillion simulate cluster --suite fgd --quick --out results\n\n\
    docs/simulate.md (\"Clusters\") describes forms of traces, policies, suites and the numbers. The same \
    input gives the same output, byte for byte."
)]
// clap lets an option pass that `requires` an option which conflicts with another given one, so
// such options name that other option, too.
pub(crate) struct Options {
    /// Jobs: openb's pods, Philly's, Muri's, Tiresias's or Gavel's jobs, or PAI's tasks.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "suite",
        conflicts_with = "suite"
    )]
    trace: Option<PathBuf>,
    /// Policies, separated by commas [default: all; with --inflate those of FGD's publication; of a
    /// suite its own].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    policy: Vec<String>,
    /// Number of GPUs of the cluster.
    #[arg(
        long,
        value_name = "N",
        required_unless_present_any = ["suite", "nodes"],
        conflicts_with_all = ["suite", "nodes"]
    )]
    gpus: Option<u32>,
    /// The machines of the cluster, instead of --gpus: openb's nodes or PAI's machines. Jobs then
    /// also request host CPUs, host memory and models of GPU.
    #[arg(long, value_name = "FILE", conflicts_with = "suite")]
    nodes: Option<PathBuf>,
    /// GPUs of a node [default: 8].
    #[arg(long, value_name = "N", conflicts_with_all = ["suite", "nodes"])]
    node_gpus: Option<u32>,
    /// Model of the GPUs [default: V100-SXM2-16GB].
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["suite", "nodes"])]
    device: Option<String>,
    /// Seeds of the random draws, separated by commas: a run for each [default: 1; with --inflate
    /// or a suite those of its publication].
    #[arg(long, value_name = "1,2", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Gavel's throughputs: how fast jobs run beside each other. Without them, other jobs affect a
    /// job only by its share.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["suite", "inflate"])]
    pairs: Option<PathBuf>,
    /// The GPU on which the throughputs were measured [default: v100].
    #[arg(
        long,
        value_name = "GPU",
        requires = "pairs",
        conflicts_with_all = ["suite", "inflate"]
    )]
    pairs_gpu: Option<String>,
    /// High-priority jobs must end within R times their length alone.
    #[arg(
        long,
        value_name = "R",
        allow_negative_numbers = true,
        conflicts_with_all = ["suite", "inflate"]
    )]
    slo: Option<f64>,
    /// Leave out jobs that arrive more than N days after the first.
    #[arg(long, value_name = "N", conflicts_with_all = ["suite", "inflate"])]
    days: Option<u32>,
    /// Jobs of openb's pods arrive in random order until they request R times the GPUs, and none
    /// leaves.
    #[arg(
        long,
        value_name = "R",
        allow_negative_numbers = true,
        conflicts_with = "suite"
    )]
    inflate: Option<f64>,
    /// A suite of experiments: fgd, the published allocations of FGD; gpucolo, 57 days as in
    /// GPUColo's evaluation; mudi, training jobs beside Mudi's services; muxflow, ways to share a
    /// GPU on Philly's training jobs; oltunes, requests of inference models on eight GPUs; predict,
    /// the online predictor on Gavel's throughputs. PILLION_DATA names the folder of its traces.
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// Shorten a suite: fgd, mudi and muxflow to two seeds, gpucolo to five days of one seed,
    /// oltunes to ten seconds of one seed, predict to one order of samples.
    #[arg(long, requires = "suite", conflicts_with = "trace")]
    quick: bool,
    /// How jobs of gpucolo run beside each other: measured, permuted or unnoticed [default:
    /// measured].
    #[arg(long, value_name = "HOW", requires = "suite", conflicts_with = "trace")]
    neighbours: Option<String>,
    /// Most that jobs of gpucolo run faster than alone with more of a GPU than they request: 1 to 2
    /// [default: 1.1].
    #[arg(
        long,
        value_name = "S",
        allow_negative_numbers = true,
        requires = "suite",
        conflicts_with = "trace"
    )]
    speed_max: Option<f64>,
    /// Print a line of JSON for each run.
    #[arg(long)]
    json: bool,
    /// Also write results.jsonl, report.html and its pictures as SVG into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.suite.as_deref() == Some(pairs::NAME) {
        return pairs::run(options);
    }
    if options.suite.as_deref() == Some(mechanisms::NAME) {
        return mechanisms::run(options);
    }
    if options.suite.as_deref() == Some(oltunes::NAME) {
        return oltunes::run(options);
    }
    if options.suite.as_deref() == Some(predictions::NAME) {
        return predictions::run(options);
    }
    let plan = Plan::of(options).map_err(Failure::usage)?;
    if let Some(folder) = &options.out {
        out::folder(folder).map_err(Failure::usage)?;
    }
    for note in &plan.notes {
        out::note(format_args!("pillion: {note}"));
    }
    let mut lines = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    runner::run_all(&plan, |run| {
        let line = results::line(&plan, &run);
        if options.json {
            out::line(format_args!("{line}"))?;
        }
        lines.push(line);
        runs.push(run);
        Ok(())
    })?;
    if !options.json {
        results::print_tables(&plan, &runs)?;
    }
    if let Some(folder) = &options.out {
        pages::write(folder, &plan, &runs, &lines)?;
    }
    Ok(())
}
