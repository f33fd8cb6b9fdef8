//! The suite `oltunes`: requests of inference models on eight GPUs under policies that know
//! latencies from an online predictor (`cluster_sim::oltunes`). Its rows are tasks of ms, so it has
//! its own line and table.

use anyhow::{Context, Result, ensure};
use cluster_sim::MODEL;
use cluster_sim::oltunes::facts::Facts;
use cluster_sim::oltunes::{
    ABLATIONS, ClassOutcome, Experiment, FIRST_SEED, LOADS, Load, Outcome, POLICIES, Pattern,
    Recorded,
};
use cluster_sim::oltunes_table::InferenceTable;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::{Options, own_suites};
use crate::simulate::runner::Progress;
use crate::status::table;

pub(crate) const NAME: &str = "oltunes";

/// Number of seeds, from [`FIRST_SEED`] on.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 1;

/// Uniform, at random, recorded.
const PATTERNS: usize = 3;

/// A run's part of the progress bar.
const RUN_MS: u64 = 1_000;

/// Time in which requests of a quick suite arrive, s.
const QUICK_SPAN_S: f64 = 10.0;

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let recorded = recorded(options).map_err(Failure::usage)?;
    own_suites::make_folder(options)?;
    let known = InferenceTable::simulated().context("cannot read the built-in table")?;
    let facts = Facts::new(&known).context("cannot read the built-in table")?;
    let seeds = if options.quick { QUICK_SEEDS } else { SEEDS };
    let runs: usize = loads(options)
        .iter()
        .map(|&(_, load)| PATTERNS * policies(load).count())
        .sum();
    let progress = Progress::new(runs as u64 * RUN_MS * 1_000_000, runs);
    let mut lines = Vec::new();
    for &(name, load) in loads(options) {
        let patterns: [Pattern; PATTERNS] = [
            Pattern::Uniform,
            Pattern::Poisson,
            Pattern::Real(recorded.clone()),
        ];
        for pattern in patterns {
            let experiment = experiment(options, pattern, load);
            let mut rows = Vec::new();
            for policy in policies(load) {
                let outcome = experiment.mean(&facts, policy, FIRST_SEED..FIRST_SEED + seeds);
                let line = line(name, &experiment, policy, seeds, &outcome);
                if options.json {
                    out::line(format_args!("{line}"))?;
                }
                lines.push(line);
                rows.push((policy, outcome));
                progress.add(RUN_MS);
                progress.runs_done(lines.len());
            }
            if !options.json {
                print(name, experiment.pattern.name(), &rows)?;
            }
        }
    }
    if !options.json {
        out::line(format_args!(
            "Means over {seeds} seeds. late: share of late requests of a class, latency-critical (LC) \
             or throughput-oriented (TO); latencies count from arrival; spread: greatest minus \
             least mean SM utilisation of the eight GPUs; EPC: OLTunes' power score, not an \
             energy. All numbers are simulated; nothing was measured on hardware."
        ))?;
    }
    own_suites::write(options, &lines)
}

fn loads(options: &Options) -> &'static [(&'static str, Load)] {
    if options.quick { &LOADS[..1] } else { &LOADS }
}

/// Ablations run only at the paper's load.
fn policies(load: Load) -> impl Iterator<Item = &'static str> {
    let ablations = if load == Load::TABLE_7 {
        &ABLATIONS[..]
    } else {
        &[]
    };
    POLICIES.iter().chain(ablations).copied()
}

fn experiment(options: &Options, pattern: Pattern, load: Load) -> Experiment {
    let experiment = Experiment::new(pattern, load);
    if options.quick {
        Experiment {
            span_s: QUICK_SPAN_S,
            ..experiment
        }
    } else {
        experiment
    }
}

fn recorded(options: &Options) -> Result<Recorded> {
    ensure!(
        options.policy.is_empty() && options.seeds.is_empty(),
        "--policy, --seeds: suite {NAME} has its own policies and seeds"
    );
    own_suites::refuse_table_options(NAME, options)?;
    let data = own_suites::data(NAME)?;
    let path = data.join("disb/workloads/REAL.json");
    Recorded::read(&path).with_context(|| format!("--suite {NAME}"))
}

fn line(load: &str, of: &Experiment, policy: &str, seeds: u64, outcome: &Outcome) -> Value {
    let predictor = outcome.foresight.as_ref().map(|quality| {
        json!({
            "served": quality.served,
            "samples": quality.samples,
            "r2": quality.r2,
        })
    });
    json!({
        "schema_version": 1,
        "model": MODEL,
        "suite": NAME,
        "load": load,
        "pattern": of.pattern.name(),
        "policy": policy,
        "seeds": seeds,
        "span_s": of.span_s,
        "critical": class(&outcome.critical),
        "throughput_oriented": class(&outcome.others),
        "inputs_per_s": outcome.inputs_per_s,
        "utilisation": outcome.utilisation,
        "utilisation_spread": outcome.spread,
        "joules": outcome.joules,
        "epc": outcome.epc,
        "batch_affinity": outcome.batch_affinity,
        "kept_speed": outcome.kept_speed,
        "predictor": predictor,
    })
}

fn class(of: &ClassOutcome) -> Value {
    json!({
        "requests": of.requests,
        "violations": of.violations,
        "p50_ms": of.p50_ms,
        "p99_ms": of.p99_ms,
        "queueing_ms": of.queueing_ms,
        "running_ms": of.running_ms,
    })
}

fn print(load: &str, pattern: &str, rows: &[(&str, Outcome)]) -> Result<(), Failure> {
    let mut shown = table(&[
        "POLICY", "LC late", "p50", "p99", "TO late", "p50", "inputs/s", "spread", "energy", "EPC",
        "R2",
    ]);
    for (policy, of) in rows {
        let learner = of.foresight.as_ref().map(|quality| {
            let r2 = quality.r2.get(quality.served);
            let r2 = r2.map_or_else(String::new, |r2| format!(" {r2:.2}"));
            format!("{}{r2}", quality.served)
        });
        shown.add_row([
            (*policy).to_owned(),
            format!("{:.2} %", 100.0 * of.critical.violations),
            format!("{:.1} ms", of.critical.p50_ms),
            format!("{:.0} ms", of.critical.p99_ms),
            format!("{:.2} %", 100.0 * of.others.violations),
            format!("{:.2} s", of.others.p50_ms / 1e3),
            format!("{:.0}", of.inputs_per_s),
            format!("{:.1} %", 100.0 * of.spread),
            format!("{:.1} kJ", of.joules / 1e3),
            format!("{:.0}", of.epc / 1e3),
            learner.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    out::line(format_args!(
        "{NAME}: requests at load {load}, pattern {pattern}\n{shown}\n"
    ))
}
