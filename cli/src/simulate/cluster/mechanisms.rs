//! The suite `muxflow`: trainings of Philly beside online services, under six ways to share a GPU
//! (`cluster_sim::muxflow`). Its rows differ in no placement policy, so it has its own line and
//! table.

use anyhow::{Context, Result, ensure};
use cluster_sim::MODEL;
use cluster_sim::muxflow::{CLUSTERS, GPUS_PER_TRAINING, Outcome, compare};
use cluster_sim::muxflow_table::{LOADS_PCT, Mechanism, MuxFlowTable};
use cluster_sim::traces::{self, philly};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::{Options, own_suites};
use crate::status::table;

pub(crate) const NAME: &str = "muxflow";

/// Number of seeds, from 1 on.
const SEEDS: u64 = 10;
const QUICK_SEEDS: u64 = 2;

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let jobs = jobs(options).map_err(Failure::usage)?;
    own_suites::make_folder(options)?;
    let sharing = MuxFlowTable::t4().context("cannot read the built-in table")?;
    let seeds = if options.quick { QUICK_SEEDS } else { SEEDS };
    let mut lines = Vec::new();
    for cluster in CLUSTERS {
        let (per_training, loads) = (GPUS_PER_TRAINING, 0..LOADS_PCT.len());
        let all = compare(&jobs, cluster, per_training, loads, 1..seeds + 1, &sharing);
        for (by, outcome) in Mechanism::ALL.into_iter().zip(&all) {
            let line = line(cluster, by, seeds, outcome);
            if options.json {
                out::line(format_args!("{line}"))?;
            }
            lines.push(line);
        }
        if !options.json {
            print(cluster, &all)?;
        }
    }
    if !options.json {
        out::line(format_args!(
            "Means over {seeds} seeds. latency: of the services, over alone, weighted by the time beside a training; behind: share of that \
             time in which a service cannot keep up with its requests (latencies then grow with the run); oversold: sum of \
             recorded lengths over sum of times placed. All numbers are simulated; nothing was measured on hardware."
        ))?;
    }
    own_suites::write(options, &lines)
}

fn jobs(options: &Options) -> Result<Vec<philly::Job>> {
    ensure!(
        options.policy.is_empty() && options.seeds.is_empty(),
        "--policy, --seeds: suite {NAME} compares ways to share, with its own seeds"
    );
    own_suites::refuse_table_options(NAME, options)?;
    let data = own_suites::data(NAME)?;
    let path = data.join("traces/philly_processed/philly_every2nd.csv");
    traces::read(&path, philly::jobs).with_context(|| format!("--suite {NAME}"))
}

fn line(cluster: &str, by: Mechanism, seeds: u64, of: &Outcome) -> Value {
    json!({
        "schema_version": 1,
        "model": MODEL,
        "suite": NAME,
        "trace": cluster,
        "mechanism": by.name(),
        "seeds": seeds,
        "latency_mean_ratio": of.latency_mean,
        "latency_p99_ratio": of.latency_p99,
        "behind": of.behind,
        "completion_s": of.completion_s,
        "waiting_s": of.waiting_s,
        "waited": of.waited,
        "oversold": of.oversold,
    })
}

fn print(cluster: &str, all: &[Outcome]) -> Result<(), Failure> {
    let muxflow = &all[Mechanism::MuxFlow as usize];
    let mut shown = table(&[
        "POLICY",
        "latency",
        "p99",
        "behind",
        "completion",
        "waiting",
        "oversold",
    ]);
    for (by, outcome) in Mechanism::ALL.into_iter().zip(all) {
        let hours = outcome.completion_s / 3_600.0;
        let ratio = outcome.completion_s / muxflow.completion_s;
        let oversold = outcome.oversold / muxflow.oversold;
        shown.add_row([
            by.name().to_owned(),
            format!("{:.2}", outcome.latency_mean),
            format!("{:.2}", outcome.latency_p99),
            format!("{:.0} %", 100.0 * outcome.behind),
            format!("{hours:.1} h ({ratio:.2})"),
            format!("{:.1} h", outcome.waiting_s / 3_600.0),
            format!("{:.3} ({oversold:.2})", outcome.oversold),
        ]);
    }
    out::line(format_args!(
        "{NAME}: training jobs of Philly's virtual cluster {cluster}, in brackets relative to muxflow\n{shown}\n"
    ))
}
