//! The shipped policies behind daemon and library.

mod common;

use common::{experiment, full, job, kernel, run, trace};
use policy::TemporalParams;
use sim::{Arrivals, Experiment, HostModel, JobClass, NoObserver, PolicySpec};

fn shipped(name: &str) -> PolicySpec {
    name.parse().expect("a known policy")
}

/// A high-priority request of 2 ms every 10 ms beside best-effort kernels of 130 us.
fn pair(policy: PolicySpec, host: HostModel) -> Experiment {
    let every_10_ms = Arrivals::Uniform { per_s: 100.0 };
    let jobs = vec![
        job(JobClass::HighPriority, &full(20, 100_000), every_10_ms),
        job(JobClass::BestEffort, &full(10, 130_000), Arrivals::Closed),
    ];
    Experiment {
        host,
        ..experiment(jobs, policy, 2.0)
    }
}

#[test]
fn under_temporal_a_request_waits_for_at_most_the_bound_and_one_kernel() {
    let outcome = run(&pair(shipped("temporal"), HostModel::default()));
    let [p50, _, p99] = outcome.jobs[0].quantiles_ns().unwrap();
    // 2 ms solo. The bound is 50 us (2.5 %), or 100 us while the latency is unknown: one kernel is
    // in flight when a request arrives.
    assert!(p50 > 2_000_000, "{p50}");
    // Including its own two ways to and from the device.
    assert!(p99 <= 2_140_000, "{p99}");
    // The device is free for 8 of 10 ms, and each kernel is seen complete up to 20 us late.
    let be = outcome.jobs[1].per_s();
    assert!((450.0..610.0).contains(&be), "{be}");
    assert!(outcome.jobs[1].held > 0);
}

#[test]
fn under_none_best_effort_work_is_never_held() {
    let outcome = run(&pair(shipped("none"), HostModel::default()));
    assert_eq!(outcome.jobs[1].held_ns, []);
    let [_, _, p99] = outcome.jobs[0].quantiles_ns().unwrap();
    assert!(p99 > 2_100_000, "{p99}");
}

/// A copy of 5 ms cannot be stopped and delays a request's input: it waits like a launch of 5 ms.
#[test]
fn large_copies_wait_for_requests_and_small_ones_and_those_of_other_policies_do_not() {
    let served = |policy: &str, bytes: u64, seconds: f64| {
        let arrivals = Arrivals::Poisson { per_s: 40.0 };
        let mut serve = job(JobClass::HighPriority, &full(20, 250_000), arrivals);
        serve.copies.to_device_bytes = 2_400_000;
        let mut copying = job(JobClass::BestEffort, &full(1, 1_000), Arrivals::Closed);
        copying.copies.to_device_bytes = bytes;
        let jobs = vec![serve, copying.clone(), copying.clone(), copying];
        let outcome = run(&experiment(jobs, shipped(policy), seconds));
        let [p50, ..] = outcome.jobs[0].quantiles_ns().unwrap();
        let copies: u64 = outcome.jobs[1..].iter().map(|job| job.requests).sum();
        (p50 as f64 / 1e6, copies)
    };
    let (none, all) = served("none", 64_000_000, 20.0);
    let (pillion, some) = served("pillion", 64_000_000, 20.0);
    // Three copies of 5.3 ms are in front of each request.
    assert!(none > 12.0, "{none}");
    assert!(pillion < 10.0, "{pillion}");
    // The device takes 187 a second, and requests need it a fifth of the time.
    assert!(some * 4 > all && some < all, "{some} of {all}");
    let (_, all) = served("none", 1_000_000, 1.0);
    let (_, some) = served("pillion", 1_000_000, 1.0);
    assert!(some * 100 >= all * 95, "{some} of {all}");
}

#[test]
fn without_a_high_priority_job_nobody_is_held() {
    let jobs = vec![job(
        JobClass::BestEffort,
        &full(10, 100_000),
        Arrivals::Closed,
    )];
    for name in ["none", "temporal", "orion"] {
        let outcome = run(&experiment(jobs.clone(), shipped(name), 1.0));
        assert_eq!(outcome.jobs[0].requests, 1_000, "{name}");
    }
}

#[test]
fn orion_lets_only_the_opposite_class_go_beside_a_busy_high_priority_job() {
    // The high-priority job never rests: everything goes beside it.
    let conv = kernel("conv", 80, 100_000, [0.8, 0.1]);
    let compute = trace(vec![conv; 100]);
    let memory = trace(vec![kernel("norm", 80, 20_000, [0.1, 0.8])]);
    let be_of = |trace| {
        let jobs = vec![
            job(JobClass::HighPriority, &compute, Arrivals::Closed),
            job(JobClass::BestEffort, trace, Arrivals::Closed),
        ];
        let mut experiment = experiment(jobs, shipped("orion"), 1.0);
        experiment.host.launch_gap_ns = 1_000;
        run(&experiment).jobs[1].launches
    };
    let (same, opposite) = (be_of(&compute), be_of(&memory));
    assert!(opposite > 1_000, "{opposite}");
    // Launches between two requests.
    assert!(same < opposite / 20, "{same} beside {opposite}");
}

#[test]
fn a_launch_that_no_lease_ever_admits_goes_after_max_hold() {
    // Always busy: under `temporal` nothing is granted.
    let jobs = vec![
        job(
            JobClass::HighPriority,
            &full(1_000_000, 100_000),
            Arrivals::Closed,
        ),
        job(JobClass::BestEffort, &full(1, 1_000), Arrivals::Closed),
    ];
    let mut experiment = experiment(jobs, shipped("temporal"), 5.0);
    // Otherwise the high-priority kernels, always one waiting, would keep it from starting.
    experiment.gpu.block_priority = false;
    let outcome = run(&experiment);
    // One in 100 ms, for 5 s.
    let be = &outcome.jobs[1];
    assert!((48..=50).contains(&be.requests), "{}", be.requests);
    assert_eq!(be.held, be.requests);
    assert_eq!(be.held_ns, [("hp-busy", be.requests * 100_000_000)]);
}

#[test]
fn numbers_that_cannot_be_meant_are_refused() {
    let params = TemporalParams {
        dur_threshold_pct: -1.0,
        ..TemporalParams::default()
    };
    let policy = PolicySpec::Temporal {
        params,
        is_profiled: false,
    };
    let refused = pair(policy, HostModel::default()).run(&mut NoObserver);
    assert!(matches!(refused, Err(sim::Error::Policy(_))), "{refused:?}");
}

#[test]
fn jobs_of_several_threads_launch_all_of_theirs_in_order_and_once() {
    // Without host times, everything falls on one instant.
    for host in [HostModel::default(), HostModel::IDEAL] {
        for policy in [
            "none",
            "temporal",
            "orion",
            "pillion",
            "reef-n",
            "orion-code",
        ] {
            let mut experiment = pair(shipped(policy), host);
            experiment.jobs.push(job(
                JobClass::BestEffort,
                &full(7, 90_000),
                Arrivals::Closed,
            ));
            for (job, threads) in experiment.jobs.iter_mut().zip([2, 2, 3]) {
                job.threads = threads;
            }
            let outcome = run(&experiment);
            let launches = [20, 10, 7];
            for (job, launches) in outcome.jobs.iter().zip(launches) {
                assert!(job.requests > 20, "{policy}: {}", job.requests);
                let unfinished = job.launches - launches * job.requests;
                assert!(unfinished < launches, "{policy}: {unfinished}");
            }
        }
    }
}
