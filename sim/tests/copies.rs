//! Best-effort jobs that copy without pause, beside a high-priority job whose requests begin with their input.
//!
//! What gating them is worth is in suite `ablation`, parts `copies` and `copies-three`.

mod common;

use common::{as_it_is_run, full, job, kernel, trace};
use policy::copies::BYTES_PER_NS;
use sim::{
    Arrivals, Copies, Experiment, HostModel, Job, JobClass, Launch, NoObserver, Observer, Outcome,
};
use softgpu::OpKind;

/// A best-effort job that copies so many bytes, launches a kernel of 1 us, and so on.
fn copier(bytes: u64) -> Job {
    let mut be = job(JobClass::BestEffort, &full(1, 1_000), Arrivals::Closed);
    be.copies.to_device_bytes = bytes;
    be
}

/// Requests with inputs of 2.4 MB beside these jobs, their copies gated or not.
fn beside(mut hp: Job, be: &[Job], (seconds, seed): (f64, u64), is_gated: bool) -> Outcome {
    hp.copies = Copies {
        to_device_bytes: 2_400_000,
        to_host_bytes: 0,
    };
    let mut jobs = vec![hp];
    jobs.extend_from_slice(be);
    let policy = "pillion".parse().expect("a known policy");
    let mut experiment = Experiment {
        host: HostModel::default(),
        seed,
        ..as_it_is_run(jobs, policy, seconds)
    };
    assert!(experiment.policy.set("is_profiled", 0.0));
    assert!(
        experiment
            .policy
            .set("gated_copies", f64::from(u8::from(is_gated)))
    );
    experiment
        .run(&mut NoObserver)
        .expect("a possible experiment")
}

/// Requests of 6.8 ms.
fn made_up() -> Job {
    let arrivals = Arrivals::Poisson { per_s: 30.0 };
    job(JobClass::HighPriority, &full(68, 100_000), arrivals)
}

/// Median and 99th percentile of the high-priority job, us, and what all others do in a second.
fn brief(outcome: &Outcome) -> (u64, u64, f64) {
    let quantile = |permille| outcome.jobs[0].quantile_ns(permille).expect("requests") / 1_000;
    let others = outcome.jobs[1..].iter();
    let rates = others.map(|job| job.requests as f64 * 1e9 / job.last_completion_ns.max(1) as f64);
    (quantile(500), quantile(990), rates.sum())
}

/// As the library cuts copies only where one thread calls CUDA.
#[test]
fn copies_of_a_job_with_two_threads_go_as_they_are() {
    let (one, mut two) = (copier(64_000_000), copier(64_000_000));
    two.threads = 2;
    let at = (2.0, 1);
    let [of_one, of_two] = [one, two].map(|be| {
        let be = [be];
        [false, true].map(|is_gated| brief(&beside(made_up(), &be, at, is_gated)))
    });
    assert_ne!(of_one[0], of_one[1]);
    assert_eq!(of_two[0], of_two[1]);
}

/// One copy of 64 MB takes 5.3 ms.
#[test]
fn a_request_waits_for_no_long_copy_where_these_are_cut_and_gated() {
    let at = (10.0, 1);
    let alone = brief(&beside(made_up(), &[], at, false));
    for (copiers, ungated_us_min) in [(1, 1_500), (3, 10_000)] {
        let be = vec![copier(64_000_000); copiers];
        let [ungated, gated] =
            [false, true].map(|is_gated| brief(&beside(made_up(), &be, at, is_gated)));
        let all = [alone, ungated, gated];
        assert!(ungated.0 > alone.0 + ungated_us_min, "{copiers}: {all:?}");
        assert!(gated.0 * 100 <= alone.0 * 105, "{copiers}: {all:?}");
        assert!(gated.1 * 100 <= alone.1 * 105, "{copiers}: {all:?}");
        assert!(gated.2 >= ungated.2 * 0.95, "{copiers}: {all:?}");
    }
}

#[test]
fn short_copies_and_those_of_the_high_priority_job_are_as_without() {
    let be = [copier(1_500_000)];
    let at = (3.0, 1);
    let [ungated, gated] = [false, true].map(|is_gated| beside(made_up(), &be, at, is_gated));
    assert_eq!(ungated, gated);
}

#[derive(Default)]
struct Pieces {
    count: u64,
    /// What each was expected to take, ns, and what it took.
    times: Vec<(u64, u64)>,
}

impl Observer for Pieces {
    fn piece_completed(&mut self, started_ns: u64, now_ns: u64, launch: &Launch, _: OpKind) {
        self.count += 1;
        self.times
            .push((launch.kernel.expected_ns, now_ns - started_ns));
    }
}

/// Alone nobody is to be protected; and the model's bus carries what a piece is expected to.
#[test]
fn a_copy_is_one_piece_where_nobody_is_to_be_protected_and_takes_what_is_expected() {
    let experiment = |jobs| {
        let mut experiment = as_it_is_run(jobs, "pillion".parse().expect("a known policy"), 1.0);
        assert!(experiment.policy.set("gated_copies", 1.0));
        let mut pieces = Pieces::default();
        let outcome = experiment.run(&mut pieces).expect("a possible experiment");
        (outcome, pieces)
    };
    let (alone, pieces) = experiment(vec![copier(64_000_000)]);
    assert_eq!(pieces.count, alone.jobs[0].requests);
    for (expected_ns, took_ns) in &pieces.times {
        assert_eq!(*expected_ns, 64_000_000_u64.div_ceil(BYTES_PER_NS));
        // The rest is the time in which a copy begins.
        assert!((0..50_000).contains(&(took_ns - expected_ns)), "{took_ns}");
    }
    let (beside, pieces) = experiment(vec![made_up(), copier(64_000_000)]);
    assert!(pieces.count > 30 * beside.jobs[1].requests, "{beside:?}");
}

/// Beside a request that lasts for ever, on a few SMs, nothing goes but by `max_hold`, 100 ms.
#[test]
fn a_copy_is_held_once_and_not_once_for_each_piece() {
    let endless = trace(vec![kernel("endless", 8, 60_000_000_000, [0.0, 0.0])]);
    let hp = job(JobClass::HighPriority, &endless, Arrivals::Closed);
    let be = [copier(64_000_000)];
    let outcome = beside(hp, &be, (10.0, 1), true);
    let be = &outcome.jobs[1];
    // Copy and kernel, 200 ms; the copy has 61 pieces.
    assert!(be.requests >= 40, "{}", be.requests);
}
