//! The oracle keeps its promise on the traces that Orion was measured with, and gives best-effort jobs
//! more than whoever keeps a promise without knowing the future.
//!
//! The files are not part of the repository. They are looked for in `PILLION_DATA`, by default
//! `../shared/data` next to the repository; where the folder is absent the tests say so and pass,
//! unless `PILLION_REQUIRE_DATA=1`.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{as_it_is_run, job};
use profiler::Trace;
use sim::{Arrivals, Experiment, HostModel, Job, JobClass, NoObserver, Outcome, PolicySpec};

/// Orion's inference jobs with their requests per second beside training (Table 3).
const INFERENCE: [(&str, f64); 4] = [
    ("resnet50_4_fwd", 15.0),
    ("mobilenetv2_4_fwd", 40.0),
    ("resnet101_4_fwd", 9.0),
    ("bert_2_fwd", 4.0),
];

const TRAINING: [&str; 4] = [
    "resnet50_32_fb1",
    "mobilenetv2_64_fb1",
    "resnet101_32_fb1",
    "bert_8_fb1",
];

/// The folder of Orion's traces, or `None`, said aloud, where it is absent.
fn folder() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("PILLION_DATA")
        .map_or_else(default, PathBuf::from)
        .join("orion/model_kernels");
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("PILLION_REQUIRE_DATA").is_some_and(|value| value == "1");
    assert!(
        !required,
        "PILLION_REQUIRE_DATA=1 and no folder {}",
        folder.display()
    );
    eprintln!("skipped: no folder {}", folder.display());
    None
}

fn read(folder: &Path, name: &str) -> Arc<Trace> {
    Arc::new(Trace::read(&folder.join(name)).expect("a file of Orion's"))
}

fn under(policy: &str, jobs: &[Job], seconds: f64) -> Experiment {
    let policy: PolicySpec = policy.parse().expect("a known policy");
    Experiment {
        host: HostModel::default(),
        ..as_it_is_run(jobs.to_vec(), policy, seconds)
    }
}

fn run(experiment: &Experiment) -> Outcome {
    experiment
        .run(&mut NoObserver)
        .expect("a possible experiment")
}

/// By which factor the worst request takes longer than alone.
fn worst_slowdown(jobs: &[Job], seconds: f64) -> (f64, Outcome) {
    worst_slowdown_of(&under("oracle", jobs, seconds))
}

fn worst_slowdown_of(experiment: &Experiment) -> (f64, Outcome) {
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
    let Some(folder) = folder() else { return };
    for (hp, per_s) in INFERENCE {
        let arrivals = Arrivals::Poisson { per_s };
        let hp_job = job(JobClass::HighPriority, &read(&folder, hp), arrivals);
        for be in TRAINING {
            let be_job = job(JobClass::BestEffort, &read(&folder, be), Arrivals::Closed);
            let jobs = [hp_job.clone(), be_job];
            let (worst, oracle) = worst_slowdown(&jobs, 2.0);
            assert!(worst <= 1.01, "{hp} beside {be}: {worst}");
            // Who does not know when a request comes protects less and gets less done.
            let gate = run(&under("launch-gate", &jobs, 2.0));
            let (oracle, gate) = (oracle.jobs[1].launches, gate.jobs[1].launches);
            assert!(oracle > gate, "{hp} beside {be}: {oracle} {gate}");
        }
    }
}

#[test]
fn the_promise_holds_beside_a_training_job_and_beside_four_best_effort_jobs() {
    let Some(folder) = folder() else { return };
    let hp = read(&folder, "resnet50_32_fb1");
    let be = read(&folder, "mobilenetv2_64_fb1");
    let training = [
        job(JobClass::HighPriority, &hp, Arrivals::Closed),
        job(JobClass::BestEffort, &be, Arrivals::Closed),
    ];
    let (worst, _) = worst_slowdown(&training, 2.0);
    assert!(worst <= 1.01, "{worst}");
    let jobs = INFERENCE.map(|(name, per_s)| {
        let arrivals = Arrivals::Poisson { per_s };
        job(JobClass::BestEffort, &read(&folder, name), arrivals)
    });
    let hp = read(&folder, "resnet50_4_fwd");
    let per_s = Arrivals::Poisson { per_s: 50.0 };
    let mut five = vec![job(JobClass::HighPriority, &hp, per_s)];
    five.extend(jobs);
    let (worst, outcome) = worst_slowdown(&five, 2.0);
    assert!(worst <= 1.01, "{worst}");
    for job in &outcome.jobs[1..] {
        assert!(job.requests > 0, "nobody starves");
    }
}

#[test]
fn pauses_make_up_nothing_where_the_host_waits_for_the_device() {
    let Some(folder) = folder() else { return };
    // 4777 launches of 30 µs: first the driver's queue fills, in the end the device waits for the host.
    let hp = read(&folder, "bert_8_fb1");
    let be = read(&folder, "resnet50_32_fb1");
    let jobs = [
        job(JobClass::HighPriority, &hp, Arrivals::Closed),
        job(JobClass::BestEffort, &be, Arrivals::Closed),
    ];
    let mut experiment = under("oracle", &jobs, 1.5);
    experiment.host.launch_gap_ns = 30_000;
    let (worst, outcome) = worst_slowdown_of(&experiment);
    assert!(worst <= 1.01, "{worst}");
    assert!(outcome.jobs[1].launches > 0);
}
