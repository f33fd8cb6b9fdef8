//! Compares `MuxFlow` with related work on Philly (`cluster_sim::muxflow`), as a table for
//! documents.
//! ```text
//! EXAMPLE="cargo run --release -p pillion-cluster-sim --example muxflow"
//! $EXAMPLE -- philly.csv [GPUS_PER_TRAINING [LOADS]]
//! $EXAMPLE -- pairs
//! ```
//! `LOADS` is how many of the services' loads there are, from the lowest: 1 to 3. `pairs` prints
//! the table's numbers for each mechanism and load.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use cluster_sim::muxflow::{CLUSTERS, GPUS_PER_TRAINING, Outcome, compare};
use cluster_sim::muxflow_table::{LOADS_PCT, Mechanism, MuxFlowTable, Ratios, SERVICES, TRAININGS};
use cluster_sim::traces::{philly, read};

const SEEDS: std::ops::Range<u64> = 1..11;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("muxflow: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<(), String> {
    let table = MuxFlowTable::t4().map_err(|error| error.to_string())?;
    let expected = "expected FILE [GPUS_PER_TRAINING [LOADS]], or pairs";
    let path = words.first().ok_or(expected)?;
    if path == "pairs" {
        print_pairs(&table);
        return Ok(());
    }
    let per_training = words.get(1).map_or(Ok(GPUS_PER_TRAINING), |word| {
        let number = word.parse().ok().filter(|&number: &f64| number > 0.0);
        number.ok_or_else(|| format!("{word:?}: expected a number above 0"))
    })?;
    let loads = words.get(2).map_or(Ok(LOADS_PCT.len()), |word| {
        let number = word.parse().ok();
        let number = number.filter(|number| (1..=LOADS_PCT.len()).contains(number));
        number.ok_or_else(|| format!("{word:?}: expected 1 to {}", LOADS_PCT.len()))
    })?;
    let jobs = read(Path::new(path), philly::jobs).map_err(|error| error.to_string())?;
    println!(
        "| trace | mechanism | latency, mean | p99 | cannot keep up | mean, else | most | JCT, h | \
         ÷ MuxFlow | waiting, h | waited | oversold GPU | ÷ MuxFlow |\n|{}",
        "---|".repeat(13)
    );
    for cluster in CLUSTERS {
        let all = compare(&jobs, cluster, per_training, 0..loads, SEEDS, &table);
        let muxflow = all[Mechanism::MuxFlow as usize];
        for (by, outcome) in Mechanism::ALL.into_iter().zip(all) {
            print_row(cluster, by, &outcome, &muxflow);
        }
    }
    Ok(())
}

fn print_row(cluster: &str, by: Mechanism, outcome: &Outcome, muxflow: &Outcome) {
    let latencies = format!(
        "{:.2} | {:.2} | {:.0} % | {:.2} | {:.1}",
        outcome.latency_mean,
        outcome.latency_p99,
        100.0 * outcome.behind,
        outcome.latency_mean_in_time,
        outcome.latency_mean_most,
    );
    let completion = format!(
        "{:.2} | {:.2} | {:.2} | {:.0} %",
        outcome.completion_s / 3600.0,
        outcome.completion_s / muxflow.completion_s,
        outcome.waiting_s / 3600.0,
        100.0 * outcome.waited,
    );
    let (oversold, more) = (outcome.oversold, outcome.oversold / muxflow.oversold);
    let by = by.name();
    println!("| {cluster} | {by} | {latencies} | {completion} | {oversold:.3} | {more:.2} |");
}

/// For each mechanism and load the least and greatest of all pairs, with the mean between.
fn print_pairs(table: &MuxFlowTable) {
    println!(
        "| mechanism | load | latency, mean | p99 | cannot keep up | speed |\n|{}",
        "---|".repeat(6)
    );
    for by in Mechanism::ALL {
        for (load, pct) in LOADS_PCT.into_iter().enumerate() {
            let pairs = (0..SERVICES.len()).flat_map(|s| (0..TRAININGS.len()).map(move |t| (s, t)));
            let pairs =
                pairs.filter_map(|(service, training)| table.ratios(service, load, training, by));
            let pairs: Vec<Ratios> = pairs.collect();
            let behind = pairs.iter().filter(|pair| !pair.keeps_up).count();
            println!(
                "| {} | {pct} % | {} | {} | {behind} of {} | {} |",
                by.name(),
                spread(&pairs, |pair| pair.latency_mean),
                spread(&pairs, |pair| pair.latency_p99),
                pairs.len(),
                spread(&pairs, |pair| pair.speed),
            );
        }
    }
}

fn spread(pairs: &[Ratios], of: impl Fn(&Ratios) -> f64) -> String {
    let all = || pairs.iter().map(&of);
    let least = all().fold(f64::INFINITY, f64::min);
    let most = all().fold(0.0, f64::max);
    let mean = all().sum::<f64>() / pairs.len() as f64;
    format!("{least:.2}, {mean:.2}, {most:.2}")
}
