//! Runs whose outcome can be worked out by hand.

mod common;

use common::{experiment, full, job};
use sim::{Arrivals, HostModel, JobClass, NoObserver, PolicySpec};

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
    // Nine gaps, the last launch's way, the kernel, the notice. (The gap after the last launch is
    // the next request's affair: none is modelled.)
    let latency_ns = 9 * 5_000 + 700 + 1_000 + 300;
    assert_eq!(outcome.jobs[0].quantiles_ns(), Some([latency_ns; 3]));
}
