//! Orion's pairs with classes estimated from names and shapes instead of measured ones: requests
//! take as long and best-effort jobs get as far. The device runs every kernel as it was measured;
//! only the policy's knowledge differs. The recordings are not in the repository (`testing::data`).

#[macro_use]
extern crate testing;
mod common;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;

use common::recordings::{INFERENCE, TRAINING, folder, read};
use common::{as_it_is_run, job, run};
use sim::{
    Arrivals, Classes, Experiment, HostModel, JobClass, NoObserver, Outcome, PolicySpec,
    ProfileErrors,
};

fn main() -> ExitCode {
    testing::main()
}

/// The greatest difference of the requests' p99, as a multiple of the solo one.
const P99_MAX: f64 = 0.01;

/// The greatest improvement under `pillion`: the p99 of mobilenetv2_4 beside resnet101_32 is 1.031
/// with measured classes and 1.020 with estimated ones.
const P99_GAIN_MAX_PILLION: f64 = 0.012;

/// The greatest change of a best-effort job's throughput, as a share of its solo throughput.
const THROUGHPUT_MAX: f64 = 0.02;

const SECONDS: f64 = 60.0;

/// The p99 of a minute of requests beside best-effort work varies by 0.011 from seed to seed (one
/// standard deviation of 12 seeds of mobilenetv2_4 beside resnet101_32, under `pillion`, with
/// either classes), a mean of three by 0.006, and the difference of two such means by 0.009. With
/// nine it is 0.005, so nine are used where the first three are not well within.
const SEEDS: [core::ops::RangeInclusive<u64>; 2] = [1..=3, 4..=9];

/// Within this part of the bound no further seed is run: a pair that exceeds the bound by as much
/// again passes with a chance of one in nine.
const WELL_WITHIN: f64 = 0.5;

#[derive(Clone, Copy, Default)]
struct Measures {
    p99: f64,
    throughput: f64,
    seeds: f64,
}

impl Measures {
    fn p99(&self) -> f64 {
        self.p99 / self.seeds
    }

    fn throughput(&self) -> f64 {
        self.throughput / self.seeds
    }
}

fn p99_ns(latencies_ns: &[u64]) -> f64 {
    let mut sorted = latencies_ns.to_vec();
    sorted.sort_unstable();
    profiler::quantile::nearest_rank(&sorted, 990).expect("requests") as f64
}

/// A job's completed work, in launches, so that a started request counts.
fn launches(outcome: &Outcome, index: usize) -> f64 {
    outcome.jobs[index].launches as f64
}

fn experiment(folder: &Path, hp: (&str, f64), be: &str, policy: &str) -> Experiment {
    let arrivals = Arrivals::Poisson { per_s: hp.1 };
    let jobs = vec![
        job(JobClass::HighPriority, &read(folder, hp.0), arrivals),
        job(JobClass::BestEffort, &read(folder, be), Arrivals::Closed),
    ];
    let policy: PolicySpec = policy.parse().expect("a known policy");
    let host = HostModel {
        launch_gap_ns: 30_000,
        ..HostModel::default()
    };
    Experiment {
        host,
        ..as_it_is_run(jobs, policy, SECONDS)
    }
}

#[derive(Default)]
struct Alone(HashMap<(&'static str, u64), f64>);

impl Alone {
    fn of(&mut self, experiment: &Experiment, index: usize, name: &'static str) -> f64 {
        let key = (name, experiment.seed);
        *self.0.entry(key).or_insert_with(|| {
            let alone = experiment.run_solo(index, &mut NoObserver);
            let alone = alone.expect("a possible experiment");
            match index {
                0 => p99_ns(&alone.jobs[0].latencies_ns),
                _ => launches(&alone, 0),
            }
        })
    }
}

fn add(
    measures: &mut Measures,
    experiment: &Experiment,
    (hp, be): (&'static str, &'static str),
    classes: Classes,
    alone: &mut Alone,
) {
    let experiment = Experiment {
        profiles: ProfileErrors {
            classes,
            ..ProfileErrors::NONE
        },
        ..experiment.clone()
    };
    let shared = run(&experiment);
    measures.p99 += p99_ns(&shared.jobs[0].latencies_ns) / alone.of(&experiment, 0, hp);
    measures.throughput += launches(&shared, 1) / alone.of(&experiment, 1, be);
    measures.seeds += 1.0;
}

fn is_near(part: f64, measured: &Measures, estimated: &Measures, gain_max: f64) -> bool {
    let loss = estimated.p99() - measured.p99();
    loss <= P99_MAX * part
        && -loss <= gain_max * part
        && (measured.throughput() - estimated.throughput()).abs() <= THROUGHPUT_MAX * part
}

fn compare(policy: &str, gain_max: f64) {
    let folder = folder();
    let (mut far, mut alone) = (Vec::new(), Alone::default());
    for hp in INFERENCE {
        for be in TRAINING {
            let experiment = experiment(&folder, hp, be, policy);
            let [mut measured, mut estimated] = [Measures::default(); 2];
            for seeds in SEEDS {
                for seed in seeds {
                    let experiment = Experiment {
                        seed,
                        ..experiment.clone()
                    };
                    let both = [
                        (&mut measured, Classes::Measured),
                        (&mut estimated, Classes::Estimated),
                    ];
                    for (measures, classes) in both {
                        add(measures, &experiment, (hp.0, be), classes, &mut alone);
                    }
                }
                if is_near(WELL_WITHIN, &measured, &estimated, gain_max) {
                    break;
                }
            }
            let row = format!(
                "| {policy} | {} | {be} | {:.4} | {:.4} | {:.4} | {:.4} | {} |",
                hp.0,
                measured.p99(),
                estimated.p99(),
                measured.throughput(),
                estimated.throughput(),
                measured.seeds,
            );
            testing::print(format_args!("{row}"));
            let is_near = is_near(1.0, &measured, &estimated, gain_max);
            far.extend((!is_near).then_some(row));
        }
    }
    assert!(far.is_empty(), "{far:#?}");
}

#[test]
fn orion_does_as_well_with_estimated_classes() {
    compare("orion", P99_MAX);
}

#[test]
fn pillion_does_as_well_with_estimated_classes() {
    compare("pillion", P99_GAIN_MAX_PILLION);
}
