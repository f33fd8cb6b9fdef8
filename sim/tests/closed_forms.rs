//! Runs with outcomes computed by hand.

mod common;

use common::{experiment, full, job};
use sim::{Arrivals, Copies, HostModel, JobClass, NoObserver, PolicySpec};

#[test]
fn one_stream_takes_the_sum_of_its_kernels() {
    let jobs = vec![job(
        JobClass::BestEffort,
        &full(10, 100_000),
        Arrivals::Closed,
    )];
    let outcome = experiment(jobs, PolicySpec::Mps, 1.0)
        .run(&mut NoObserver)
        .unwrap();
    let be = &outcome.jobs[0];
    assert_eq!(be.requests, 1_000);
    assert_eq!(be.quantiles_ns(), Some([1_000_000; 3]));
    assert_eq!(be.per_s(), 1_000.0);
    assert_eq!(be.launches, 10_000);
    assert_eq!(outcome.utilisation.sm, 1.0);
}

#[test]
fn two_equal_streams_that_fill_the_device_get_half_of_it_each() {
    let one = || job(JobClass::BestEffort, &full(10, 100_000), Arrivals::Closed);
    let jobs = vec![one(), one()];
    let outcome = experiment(jobs, PolicySpec::Mps, 1.0)
        .run(&mut NoObserver)
        .unwrap();
    for job in &outcome.jobs {
        // They alternate kernel by kernel; the first to begin is one kernel ahead.
        assert_eq!(job.quantiles_ns(), Some([2_000_000; 3]));
        assert!(job.requests.abs_diff(500) <= 1, "{}", job.requests);
    }
    assert_eq!(outcome.utilisation.sm, 1.0);
}

#[test]
fn a_host_slower_than_the_device_sets_the_pace() {
    let jobs = vec![job(
        JobClass::BestEffort,
        &full(10, 1_000),
        Arrivals::Closed,
    )];
    let mut experiment = experiment(jobs, PolicySpec::Mps, 1.0);
    experiment.host = HostModel {
        launch_gap_ns: 5_000,
        launch_latency_ns: 700,
        notice_ns: 300,
        ..HostModel::IDEAL
    };
    let outcome = experiment.run(&mut NoObserver).unwrap();
    // Nine gaps, the last launch's latency, the kernel, the notice. No gap after the last launch.
    let latency_ns = 9 * 5_000 + 700 + 1_000 + 300;
    assert_eq!(outcome.jobs[0].quantiles_ns(), Some([latency_ns; 3]));
}

#[test]
fn copies_are_before_and_behind_the_kernels() {
    let mut job = job(JobClass::BestEffort, &full(10, 100_000), Arrivals::Closed);
    job.copies = Copies {
        to_device_bytes: 1_200_000,
        to_host_bytes: 12_000,
    };
    let outcome = experiment(vec![job], PolicySpec::Mps, 1.0)
        .run(&mut NoObserver)
        .unwrap();
    // 1 us and 12 bytes per ns for a copy.
    let latency_ns = (1_000 + 100_000) + 10 * 100_000 + (1_000 + 1_000);
    assert_eq!(outcome.jobs[0].quantiles_ns(), Some([latency_ns; 3]));
}

#[test]
fn a_job_has_its_own_pace_of_launches_if_it_says_so() {
    let mut slow = job(JobClass::BestEffort, &full(10, 1_000), Arrivals::Closed);
    slow.launch_gap_ns = Some(30_000);
    let outcome = experiment(vec![slow], PolicySpec::Mps, 1.0)
        .run(&mut NoObserver)
        .unwrap();
    assert_eq!(outcome.jobs[0].quantiles_ns(), Some([271_000; 3]));
}

#[test]
fn requests_that_do_not_meet_do_not_wait() {
    let jobs = vec![job(
        JobClass::HighPriority,
        &full(1, 1_000_000),
        Arrivals::Uniform { per_s: 999.0 },
    )];
    let outcome = experiment(jobs, PolicySpec::Mps, 10.0)
        .run(&mut NoObserver)
        .unwrap();
    assert_eq!(outcome.jobs[0].requests, 9_990);
    assert_eq!(outcome.jobs[0].quantiles_ns(), Some([1_000_000; 3]));
}

/// A constant service of 1 ms: the mean wait is ρ ÷ 2(1 − ρ) services (Pollaczek and Khinchine).
#[test]
fn the_mean_wait_is_that_of_an_md1_queue() {
    for load in [0.2, 0.5, 0.7, 0.85] {
        let arrivals = Arrivals::Poisson {
            per_s: load * 1_000.0,
        };
        let jobs = vec![job(JobClass::HighPriority, &full(1, 1_000_000), arrivals)];
        let mut experiment = experiment(jobs, PolicySpec::Mps, 400.0);
        experiment.seed = 5;
        // The queue starts empty, which is not its steady state.
        experiment.warmup_requests = 1_000;
        let outcome = experiment.run(&mut NoObserver).unwrap();
        let waits: Vec<f64> = outcome.jobs[0]
            .latencies_ns
            .iter()
            .map(|&ns| (ns - 1_000_000) as f64 / 1e6)
            .collect();
        let expected = load / (2.0 * (1.0 - load));
        // The total mean's scatter is from means of long stretches, which are nearly independent.
        let batches: Vec<f64> = waits.chunks_exact(waits.len() / 40).map(mean).collect();
        let found = mean(&batches);
        let squares: f64 = batches.iter().map(|b| (b - found).powi(2)).sum();
        let count = batches.len() as f64;
        let error = (squares / (count * (count - 1.0))).sqrt();
        assert!(error < 0.05 * expected, "load {load}: ± {error}");
        assert!(
            (found - expected).abs() < 3.5 * error,
            "load {load}: {found} ± {error}, not {expected}"
        );
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
