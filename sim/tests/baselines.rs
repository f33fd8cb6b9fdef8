//! The baselines rank as in Orion's paper: unscheduled sharing costs the high-priority job most,
//! priorities help, REEF-N helps more, Orion most; and best-effort work pays in that order. Ours
//! helps as much and takes less. On the paper's recordings (`testing::data`), a launch every 30 µs,
//! 12 s for each pair.

#[macro_use]
extern crate testing;
mod common;

use std::path::Path;
use std::process::ExitCode;

use common::recordings::{INFERENCE, TRAINING, folder, read};
use common::{as_it_is_run, job};
use sim::{Arrivals, Experiment, HostModel, JobClass, JobOutcome, NoObserver, PolicySpec};

fn main() -> ExitCode {
    testing::main()
}

fn pairs(folder: &Path) -> Vec<Experiment> {
    let both = INFERENCE.into_iter().zip(TRAINING);
    both.map(|((hp, per_s), be)| {
        let arrivals = Arrivals::Poisson { per_s };
        let jobs = vec![
            job(JobClass::HighPriority, &read(folder, hp), arrivals),
            job(JobClass::BestEffort, &read(folder, be), Arrivals::Closed),
        ];
        Experiment {
            host: HostModel {
                launch_gap_ns: 30_000,
                ..HostModel::default()
            },
            ..as_it_is_run(jobs, PolicySpec::Mps, 12.0)
        }
    })
    .collect()
}

/// A pair's measures: the high-priority job's 99th percentile, ns, and the best-effort job's rate.
fn measured([hp, be]: [&JobOutcome; 2]) -> [f64; 2] {
    let p99_ns = hp.quantile_ns(990).expect("requests");
    [p99_ns as f64, be.per_s()]
}

#[test]
fn baselines_stand_in_the_papers_order() {
    let folder = folder();
    let pairs = pairs(&folder);
    let alone = pairs.iter().map(|pair| {
        let alone = [0, 1].map(|job| pair.run_solo(job, &mut NoObserver).expect("it can be run"));
        measured([&alone[0].jobs[0], &alone[1].jobs[0]])
    });
    let alone: Vec<[f64; 2]> = alone.collect();
    let means = |policy: &str| {
        let mut sums = [0.0; 2];
        for (pair, alone) in pairs.iter().zip(&alone) {
            let policy = policy.parse().expect("a known policy");
            let pair = Experiment {
                policy,
                ..pair.clone()
            };
            let outcome = pair.run(&mut NoObserver).expect("it can be run");
            let shared = measured([&outcome.jobs[0], &outcome.jobs[1]]);
            for place in 0..2 {
                sums[place] += shared[place] / alone[place] / pairs.len() as f64;
            }
        }
        sums
    };
    let names = ["mps", "mps-priority", "reef-n", "orion", "pillion"];
    let [mps, priority, reef, orion, pillion] = names.map(means);
    let said = format!("{names:?}: {mps:.3?} {priority:.3?} {reef:.3?} {orion:.3?} {pillion:.3?}");
    println!("{said}");
    assert!(mps[0] > 1.5 * priority[0], "{said}");
    assert!(priority[0] > 1.1 * reef[0], "{said}");
    assert!(reef[0] > orion[0], "{said}");
    assert!(orion[0] < 1.05, "{said}");
    // Ours protects as well and admits more.
    assert!(pillion[0] < 1.05, "{said}");
    assert!(pillion[1] > 1.05 * orion[1], "{said}");
    // Priorities cost best-effort work next to nothing, gates do.
    assert!(mps[1] > 0.99 * priority[1], "{said}");
    assert!(priority[1] > reef[1] && reef[1] > orion[1], "{said}");
}
