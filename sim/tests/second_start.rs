//! The second start of a best-effort job without a profile: with its first run's learnt durations,
//! it is bounded as with a profiler's profile. The first run is alone for its first half, as a
//! training job mostly is; the daemon keeps the durations learnt by its end
//! (`interpose::progress::learner::note`). Classes are estimated from names in all three runs, so
//! that they differ in durations alone. The recordings are not in the repository (`testing::data`).

#[macro_use]
extern crate testing;
mod common;

use std::process::ExitCode;

use common::recordings::{INFERENCE, TRAINING, folder, read};
use common::{as_it_is_run, job, run};
use policy::Taught;
use sim::{
    Arrivals, Classes, Experiment, HostModel, Job, JobClass, NoObserver, Outcome, ProfileErrors,
    UNKNOWN_NS,
};

fn main() -> ExitCode {
    testing::main()
}

/// The greatest p99 of requests, over that with the right profile.
const P99_MAX: f64 = 1.02;

/// The best-effort job's greatest loss, as a share of its solo throughput.
const THROUGHPUT_MAX: f64 = 0.02;

const SEEDS: [u64; 2] = [1, 2];
const SECONDS: f64 = 40.0;

fn experiment(hp: (&str, f64), be: &str, told_ns: Vec<(usize, u64)>, seed: u64) -> Experiment {
    let folder = folder();
    let arrivals = Arrivals::Poisson { per_s: hp.1 };
    let jobs = vec![
        job(JobClass::HighPriority, &read(&folder, hp.0), arrivals),
        Job {
            told_ns,
            ..job(JobClass::BestEffort, &read(&folder, be), Arrivals::Closed)
        },
    ];
    Experiment {
        host: HostModel {
            launch_gap_ns: 30_000,
            ..HostModel::default()
        },
        profiles: ProfileErrors {
            classes: Classes::Estimated,
            ..ProfileErrors::NONE
        },
        seed,
        ..as_it_is_run(jobs, "pillion".parse().expect("a known policy"), SECONDS)
    }
}

/// Each kernel's duration at the second start: one hardly ever exceeded, or the default.
fn noted(kernels: usize, learnt: &[(usize, Taught)]) -> Vec<(usize, u64)> {
    let of = |kernel| {
        let taught = learnt.iter().find(|(known, _)| *known == kernel);
        let taught = taught.filter(|(_, taught)| taught.is_seen);
        taught.map_or(UNKNOWN_NS, |(_, taught)| {
            let ns = if taught.ns == 0 {
                UNKNOWN_NS
            } else {
                taught.ns
            };
            ns * u64::from(taught.latest_per_mille.unwrap_or(1_000)) / 1_000
        })
    };
    (0..kernels).map(|kernel| (kernel, of(kernel))).collect()
}

fn p99_ns(outcome: &Outcome) -> f64 {
    outcome.jobs[0].quantile_ns(990).expect("requests") as f64
}

fn launches(outcome: &Outcome, index: usize) -> f64 {
    outcome.jobs[index].launches as f64
}

#[test]
fn the_second_start_is_bounded_as_with_the_right_profile() {
    let mut far = Vec::new();
    for (hp, be) in INFERENCE.into_iter().zip(TRAINING) {
        let kernels = read(&folder(), be).kernels.len();
        let (mut p99, mut throughput, mut unknown) = ([0.0; 2], [0.0; 2], 0);
        for seed in SEEDS {
            let nothing = noted(kernels, &[]);
            let mut first = experiment(hp, be, nothing, seed);
            first.jobs[0].start_ns = first.duration_ns / 2;
            let learnt = run(&first).jobs.remove(1).learnt;
            let second = experiment(hp, be, noted(kernels, &learnt), seed);
            let right = experiment(hp, be, Vec::new(), seed);
            let known = learnt.iter().filter(|(_, taught)| taught.is_seen);
            unknown += kernels - known.count();
            let alone = right
                .run_solo(1, &mut NoObserver)
                .expect("a possible experiment");
            for (at, experiment) in [second, right].iter().enumerate() {
                let outcome = run(experiment);
                p99[at] += p99_ns(&outcome);
                throughput[at] += launches(&outcome, 1) / launches(&alone, 0);
            }
        }
        let [second, right] = throughput.map(|sum| sum / SEEDS.len() as f64);
        let row = format!(
            "| {} | {be} | {:.4} | {second:.4} | {right:.4} | {unknown} |",
            hp.0,
            p99[0] / p99[1]
        );
        testing::print(format_args!("{row}"));
        let is_near =
            p99[0] <= p99[1] * P99_MAX && second >= right - THROUGHPUT_MAX && unknown == 0;
        far.extend((!is_near).then_some(row));
    }
    assert!(far.is_empty(), "{far:#?}");
}
