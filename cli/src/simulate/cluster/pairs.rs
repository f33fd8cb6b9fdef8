//! The suite `mudi`: which service a training runs beside. Its policies are orders of services
//! (`cluster_sim::services`), not those of the registry, so it has its own plan, line and table.

use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use cluster_sim::MODEL;
use cluster_sim::service_table::ServiceTable;
use cluster_sim::services::{Bound, Experiment, Known, Outcome, POLICIES, tasks};
use cluster_sim::traces::{self, philly};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::out;
use crate::simulate::cluster::facts::mean;
use crate::simulate::cluster::{Options, own_suites};
use crate::simulate::plan::meant;
use crate::simulate::runner::Progress;
use crate::status::table;

pub(crate) const NAME: &str = "mudi";

/// As in Mudi's simulated cluster.
const GPUS: u32 = 1000;
const TASKS: usize = 5000;

/// Divisors of the recorded times: the published one, and none.
const LOADS: [f64; 2] = [80.0, 1.0];

const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const QUICK_SEEDS: usize = 2;

/// Philly has hardly any trainings before that day.
const FROM_S: f64 = cluster_sim::days::PHILLY_FROM_DAY * 86_400.0;

/// A run's part of the progress bar.
const RUN_NS: u64 = 1_000_000_000;

struct Plan {
    policies: Vec<&'static str>,
    seeds: Vec<u64>,
    submits_s: Vec<f64>,
    table: ServiceTable,
    known: Known,
}

/// Exits 2 for unusable input, before it runs or writes anything.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let plan = Plan::of(options).map_err(Failure::usage)?;
    own_suites::make_folder(options)?;
    let outcomes = plan.outcomes();
    let mut outcomes = outcomes.into_iter();
    let mut lines = Vec::new();
    for load in LOADS {
        let mut rows = Vec::new();
        for &policy in &plan.policies {
            let own: Vec<Outcome> = outcomes.by_ref().take(plan.seeds.len()).collect();
            for (&seed, outcome) in plan.seeds.iter().zip(&own) {
                let line = line(load, policy, seed, outcome);
                if options.json {
                    out::line(format_args!("{line}"))?;
                }
                lines.push(line);
            }
            rows.push((policy, own));
        }
        if !options.json {
            print(load, &rows)?;
        }
    }
    own_suites::write(options, &lines)
}

impl Plan {
    fn of(options: &Options) -> Result<Self> {
        own_suites::refuse_table_options(NAME, options)?;
        let known = |name: &String| {
            let found = POLICIES.iter().find(|known| *known == name);
            found.copied().ok_or_else(|| {
                let names = POLICIES.join(", ");
                let meant = meant(name, &POLICIES);
                anyhow!("--policy {name}: policies of suite {NAME} are {names}{meant}")
            })
        };
        let policies: Vec<&str> = options.policy.iter().map(known).collect::<Result<_>>()?;
        super::plan::each_once("--policy", &policies)?;
        let seeds = own_suites::seeds(options, &SEEDS, QUICK_SEEDS)?;
        let data = own_suites::data(NAME)?;
        let table = ServiceTable::a100()?;
        Ok(Self {
            known: Known::sampled(&table),
            table,
            policies: if policies.is_empty() {
                POLICIES.to_vec()
            } else {
                policies
            },
            seeds,
            submits_s: submits(&data).with_context(|| format!("--suite {NAME}"))?,
        })
    }

    fn experiment(&self, load: f64, seed: u64) -> Experiment {
        Experiment {
            known: self.known.clone(),
            table: self.table.clone(),
            bound: Bound::Queueing,
            gpus: GPUS,
            tasks: tasks(&self.submits_s, TASKS, load, seed),
            seed,
        }
    }

    /// In the order of loads, policies and seeds; runs on all cores.
    fn outcomes(&self) -> Vec<Outcome> {
        let policies = || self.policies.iter();
        let of_load = |load| policies().map(move |&policy| (load, policy));
        let runs = LOADS.into_iter().flat_map(of_load);
        let seeds = |(load, policy)| self.seeds.iter().map(move |&seed| (load, policy, seed));
        let runs: Vec<(f64, &str, u64)> = runs.flat_map(seeds).collect();
        let progress = Progress::new(runs.len() as u64 * RUN_NS, runs.len());
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let outcomes: Vec<OnceLock<Outcome>> = runs.iter().map(|_| OnceLock::new()).collect();
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads.min(runs.len()) {
                scope.spawn(|| {
                    while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed))
                        && let Some(&(load, policy, seed)) = runs.get(number)
                    {
                        outcomes[number].get_or_init(|| self.experiment(load, seed).run(policy));
                        progress.add(RUN_NS / 1_000_000);
                        progress.runs_done(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                });
            }
        });
        let outcomes = outcomes.into_iter().map(OnceLock::into_inner);
        outcomes.map(Option::unwrap_or_default).collect()
    }
}

/// Ascending, s.
fn submits(data: &Path) -> Result<Vec<f64>> {
    let path = data.join("traces/philly_processed/philly_every2nd.csv");
    let jobs = traces::read(&path, philly::jobs)?;
    let submits = jobs.iter().map(|job| job.submit_s);
    let submits: Vec<f64> = submits.filter(|&at| at >= FROM_S).collect();
    ensure!(
        submits.len() >= TASKS,
        "{}: {} jobs from day {} on, at least {TASKS} are needed",
        path.display(),
        submits.len(),
        cluster_sim::days::PHILLY_FROM_DAY
    );
    Ok(submits)
}

fn line(load: f64, policy: &str, seed: u64, of: &Outcome) -> Value {
    json!({
        "schema_version": 1,
        "model": MODEL,
        "suite": NAME,
        "policy": policy,
        "seed": seed,
        "gpus": GPUS,
        "jobs": TASKS,
        "faster": load,
        "violations": of.violations,
        "completion_s": of.completion_s,
        "waiting_s": of.waiting_s,
        "makespan_s": of.makespan_s,
        "speed": of.speed,
        "choices": of.choices,
        "best_choices": of.best_choices,
    })
}

/// Means over seeds; completion, waiting and makespan also relative to `exhaustive` if that was
/// run.
fn print(load: f64, rows: &[(&str, Vec<Outcome>)]) -> Result<(), Failure> {
    let of = |outcomes: &[Outcome], value: fn(&Outcome) -> f64| {
        mean(outcomes.iter().map(value)).unwrap_or_default()
    };
    let best = rows.iter().find(|(policy, _)| *policy == "exhaustive");
    let mut shown = table(&[
        "POLICY",
        "seeds",
        "late",
        "completion",
        "waiting",
        "makespan",
        "speed",
        "best choices",
    ]);
    for (policy, outcomes) in rows {
        let hours = |value: fn(&Outcome) -> f64| {
            let mean = of(outcomes, value);
            let ratio = best.map(|(_, best)| mean / of(best, value).max(1e-9));
            let ratio = ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.3})"));
            format!("{:.1} h{ratio}", mean / 3_600.0)
        };
        let choices: u64 = outcomes.iter().map(|outcome| outcome.choices).sum();
        let own: u64 = outcomes.iter().map(|outcome| outcome.best_choices).sum();
        shown.add_row([
            (*policy).to_owned(),
            outcomes.len().to_string(),
            format!("{:.2} %", 100.0 * of(outcomes, |o| o.violations)),
            hours(|o| o.completion_s),
            hours(|o| o.waiting_s),
            hours(|o| o.makespan_s),
            format!("{:.3}", of(outcomes, |o| o.speed)),
            format!("{:.1} %", 100.0 * own as f64 / choices.max(1) as f64),
        ]);
    }
    out::line(format_args!(
        "{NAME}: {TASKS} training jobs beside {GPUS} services, recorded times divided by {load}\n{shown}\n\
         In brackets: relative to exhaustive. late: share of late requests while a training runs beside the service; \
         best choices: placements beside a service as good as the best for that arrival, if GPUs of two services or more \
         are free. All numbers are \
         simulated; nothing was measured on hardware.\n"
    ))
}
