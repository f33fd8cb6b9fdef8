//! The engine on the frozen model: runs without a scheduler that must end exactly as recorded. The
//! model has such a test (`softgpu/tests/golden.rs`), policies change when they are tuned; this
//! test holds the parts between them: threads, arrivals, queues, host times.

mod common;

use common::{experiment, job, kernel, trace};
use sim::{Arrivals, Copies, Experiment, HostModel, JobClass, NoObserver, Outcome, PolicySpec};
use softgpu::{Config, Sharing};

/// Requests of both jobs; HP's p50 and p99 and the end, ns; a hash of all latencies.
const GOLDEN: [(&str, [u64; 2], [u64; 3], u64); 4] = [
    (
        "streams",
        [380, 1097],
        [1_767_353, 5_947_081, 1_000_112_265],
        5_738_215_438_088_673_381,
    ),
    (
        "mps",
        [380, 1097],
        [1_767_353, 5_947_081, 1_000_112_265],
        5_738_215_438_088_673_381,
    ),
    (
        "mps-priority",
        [380, 1122],
        [424_036, 910_345, 1_000_095_495],
        4_423_667_383_289_467_385,
    ),
    (
        "none, time slices",
        [380, 1057],
        [990_702, 3_201_139, 1_000_435_432],
        14_125_387_855_608_463_920,
    ),
];

#[test]
fn runs_end_as_they_did() {
    let of = |name: &str| run(&pair(name.parse().expect("a known policy"), Sharing::Mps));
    let sliced = run(&pair(PolicySpec::None, Sharing::TimeSlice));
    let runs = [of("streams"), of("mps"), of("mps-priority"), sliced];
    let found = GOLDEN.iter().zip(runs).map(|(golden, run)| {
        let (requests, times_ns, hash) = run;
        (golden.0, requests, times_ns, hash)
    });
    assert_eq!(
        found.collect::<Vec<_>>(),
        GOLDEN,
        "the engine's results have changed: if only speed was meant, the change is wrong; if the \
         host's times or order were, say so in the commit and put these numbers here"
    );
}

fn pair(policy: PolicySpec, sharing: Sharing) -> Experiment {
    let conv = kernel("conv", 120, 45_000, [0.89, 0.2]);
    let norm = kernel("norm", 64, 21_000, [0.14, 0.8]);
    let small = kernel("small", 3, 4_000, [0.1, 0.1]);
    let large = kernel("large", 1_700, 70_000, [0.7, 0.4]);
    let hp = trace(vec![
        conv.clone(),
        norm.clone(),
        small.clone(),
        conv.clone(),
        norm.clone(),
    ]);
    let be = trace(vec![large, norm, small, conv]);
    let mut hp = job(
        JobClass::HighPriority,
        &hp,
        Arrivals::Poisson { per_s: 400.0 },
    );
    hp.copies = Copies {
        to_device_bytes: 602_112,
        to_host_bytes: 4_000,
    };
    let be = job(JobClass::BestEffort, &be, Arrivals::Closed);
    let mut experiment = experiment(vec![hp, be], policy, 1.0);
    experiment.gpu = Config::new(sharing, &experiment.device);
    experiment.host = HostModel::default();
    experiment.seed = 11;
    experiment
}

fn run(experiment: &Experiment) -> ([u64; 2], [u64; 3], u64) {
    let outcome: Outcome = experiment
        .run(&mut NoObserver)
        .expect("a possible experiment");
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for ns in outcome.jobs.iter().flat_map(|job| &job.latencies_ns) {
        hash = (hash ^ ns).wrapping_mul(0x0100_0000_01b3);
    }
    let [p50_ns, _, p99_ns] = outcome.jobs[0].quantiles_ns().expect("there were requests");
    let requests = [outcome.jobs[0].requests, outcome.jobs[1].requests];
    (requests, [p50_ns, p99_ns, outcome.elapsed_ns], hash)
}
