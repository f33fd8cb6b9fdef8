//! Prints how much predictions of four trainings matter to the place of five thousand
//! (`cluster_sim::services`): policies that know all nine, that learn four, and controls.
//! ```text
//! EXAMPLE="cargo run --release -p pillion-cluster-sim --example learnt_places"
//! $EXAMPLE -- traces/philly_processed/philly_every2nd.csv FASTER [SEEDS]
//! ```
//! `FASTER` divides the recorded times: 80 as Mudi, or 1. `SEEDS`: so many from 1 on; ten.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use cluster_sim::days::PHILLY_FROM_DAY;
use cluster_sim::service_table::ServiceTable;
use cluster_sim::services::{Bound, Experiment, Known, Learning, Outcome, tasks};
use cluster_sim::traces::{philly, read};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("learnt_places: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let expected = "expected FILE FASTER [SEEDS]";
    let (path, faster) = words.first().zip(words.get(1)).ok_or(expected)?;
    let faster: f64 = faster.parse().map_err(|_| expected)?;
    let seeds = words.get(2).map_or(Ok(10), |seeds| seeds.parse());
    let seeds: u64 = seeds.map_err(|_| expected)?;
    let jobs = read(Path::new(path), philly::jobs).map_err(|error| error.to_string())?;
    let submits = jobs.iter().map(|job| job.submit_s);
    let submits: Vec<f64> = submits
        .filter(|&at| at >= PHILLY_FROM_DAY * 86_400.0)
        .collect();
    let table = ServiceTable::a100().map_err(|error| error.to_string())?;
    let experiments: Vec<Experiment> = (1..=seeds)
        .map(|seed| Experiment {
            known: Known::sampled(&table),
            table: table.clone(),
            bound: Bound::Queueing,
            gpus: 1000,
            tasks: tasks(&submits, 5000, faster, seed),
            seed,
        })
        .collect();
    let all = |run: &dyn Fn(&Experiment) -> Outcome| experiments.iter().map(run).collect();
    let best: Vec<Outcome> = all(&|of| of.run("exhaustive"));
    show("exhaustive", &best, &best);
    for name in ["mudi-slope", "pillion"] {
        show(name, &all(&|of| of.run(name)), &best);
        let name = format!("{name}-learnt");
        for learning in Learning::ALL {
            let own = all(&|of| of.run_learnt(&name, learning));
            show(&format!("{name} {learning:?}"), &own, &best);
        }
    }
    Ok(())
}

fn show(title: &str, own: &[Outcome], best: &[Outcome]) {
    let sum =
        |of: &[Outcome], number: &dyn Fn(&Outcome) -> f64| -> f64 { of.iter().map(number).sum() };
    let part = |number: &dyn Fn(&Outcome) -> f64| sum(own, number) / sum(best, number);
    println!(
        "{title:<28} late {:.3} % | completion {:.4} | makespan {:.4} | best {:.2} % | predicted {} of {}",
        100.0 * sum(own, &|o| o.violations) / own.len() as f64,
        part(&|o| o.completion_s),
        part(&|o| o.makespan_s),
        100.0 * sum(own, &|o| o.best_choices as f64) / sum(own, &|o| o.choices as f64),
        own.iter().map(|o| o.predicted).sum::<u64>(),
        own.iter().map(|o| o.placed).sum::<u64>(),
    );
}
