//! The oracle keeps its promise on Orion's traces (`testing::data`), and gives best-effort jobs
//! more than a non-clairvoyant policy with a promise.

#[macro_use]
extern crate testing;
mod common;

use std::process::ExitCode;

use common::recordings::{INFERENCE, TRAINING, folder, read};
use common::{as_it_is_run, job, run};
use sim::{Arrivals, Experiment, HostModel, Job, JobClass, NoObserver, Outcome, PolicySpec};

fn main() -> ExitCode {
    testing::main()
}

fn under(policy: &str, jobs: &[Job], seconds: f64) -> Experiment {
    let policy: PolicySpec = policy.parse().expect("a known policy");
    Experiment {
        host: HostModel::default(),
        ..as_it_is_run(jobs.to_vec(), policy, seconds)
    }
}

fn worst_slowdown(experiment: &Experiment) -> (f64, Outcome) {
    let alone = experiment
        .run_solo(0, &mut NoObserver)
        .expect("a possible experiment");
    let shared = run(experiment);
    let pairs = alone.jobs[0]
        .latencies_ns
        .iter()
        .zip(&shared.jobs[0].latencies_ns);
    let slowdowns = pairs.map(|(&alone_ns, &shared_ns)| shared_ns as f64 / alone_ns as f64);
    (slowdowns.fold(0.0, f64::max), shared)
}

#[test]
fn no_request_of_orions_pairs_takes_a_percent_longer_than_alone() {
    let folder = folder();
    for (hp, per_s) in INFERENCE {
        let arrivals = Arrivals::Poisson { per_s };
        let hp_job = job(JobClass::HighPriority, &read(&folder, hp), arrivals);
        for be in TRAINING {
            let be_job = job(JobClass::BestEffort, &read(&folder, be), Arrivals::Closed);
            let jobs = [hp_job.clone(), be_job];
            let (worst, oracle) = worst_slowdown(&under("oracle", &jobs, 2.0));
            assert!(worst <= 1.01, "{hp} beside {be}: {worst}");
            let gate = run(&under("launch-gate", &jobs, 2.0));
            let (oracle, gate) = (oracle.jobs[1].launches, gate.jobs[1].launches);
            assert!(oracle > gate, "{hp} beside {be}: {oracle} {gate}");
        }
    }
}

#[test]
fn the_promise_holds_beside_a_training_job_and_beside_four_best_effort_jobs() {
    let folder = folder();
    let hp = read(&folder, "resnet50_32_fb1");
    let be = read(&folder, "mobilenetv2_64_fb1");
    let training = [
        job(JobClass::HighPriority, &hp, Arrivals::Closed),
        job(JobClass::BestEffort, &be, Arrivals::Closed),
    ];
    let (worst, _) = worst_slowdown(&under("oracle", &training, 2.0));
    assert!(worst <= 1.01, "{worst}");
    let jobs = INFERENCE.map(|(name, per_s)| {
        let arrivals = Arrivals::Poisson { per_s };
        job(JobClass::BestEffort, &read(&folder, name), arrivals)
    });
    let hp = read(&folder, "resnet50_4_fwd");
    let per_s = Arrivals::Poisson { per_s: 50.0 };
    let mut five = vec![job(JobClass::HighPriority, &hp, per_s)];
    five.extend(jobs);
    let (worst, outcome) = worst_slowdown(&under("oracle", &five, 2.0));
    assert!(worst <= 1.01, "{worst}");
    for job in &outcome.jobs[1..] {
        assert!(job.requests > 0, "nobody starves");
    }
}

#[test]
fn pauses_make_up_nothing_where_the_host_waits_for_the_device() {
    let folder = folder();
    // 4777 launches of 30 µs: the driver's queue fills, then the device waits for the host.
    let hp = read(&folder, "bert_8_fb1");
    let be = read(&folder, "resnet50_32_fb1");
    let jobs = [
        job(JobClass::HighPriority, &hp, Arrivals::Closed),
        job(JobClass::BestEffort, &be, Arrivals::Closed),
    ];
    let mut experiment = under("oracle", &jobs, 1.5);
    experiment.host.launch_gap_ns = 30_000;
    let (worst, outcome) = worst_slowdown(&experiment);
    assert!(worst <= 1.01, "{worst}");
    assert!(outcome.jobs[1].launches > 0);
}

#[test]
fn who_keeps_the_promise_without_knowing_the_future_gives_no_more() {
    let folder = folder();
    let mut kept = 0;
    for (hp, per_s) in INFERENCE {
        let arrivals = Arrivals::Poisson { per_s };
        let hp_job = job(JobClass::HighPriority, &read(&folder, hp), arrivals);
        for be in TRAINING {
            let be_job = job(JobClass::BestEffort, &read(&folder, be), Arrivals::Closed);
            let of = |policy| {
                let mut experiment = under(policy, &[hp_job.clone(), be_job.clone()], 3.0);
                experiment.host.launch_gap_ns = 30_000;
                worst_slowdown(&experiment)
            };
            let (worst, temporal) = of("temporal");
            if worst > 1.01 {
                continue;
            }
            kept += 1;
            let (_, oracle) = of("oracle");
            let [oracle, temporal] = [oracle, temporal].map(|outcome| outcome.jobs[1].launches);
            assert!(oracle >= temporal, "{hp} beside {be}: {oracle} {temporal}");
        }
    }
    assert!(kept >= 4, "{kept} pairs");
}
