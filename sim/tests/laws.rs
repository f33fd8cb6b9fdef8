//! The laws beside a policy: a throttle, shares of the GPU, and the policies that accept them.

mod common;

use std::sync::Arc;

use common::{as_it_is_run, full, job, kernel, run, trace, v100};
use policy::{ShareMode, ThrottleParams};
use sim::{Arrivals, Experiment, HostModel, Job, JobClass, Laws, PolicySpec};
use softgpu::{Device, Governor, Sharing};

fn named(name: &str) -> PolicySpec {
    name.parse().expect("there is such a policy")
}

/// Requests of 10 ms on all SMs, `per_s` a second, beside a greedy job with launches of 1 ms.
fn pair(per_s: f64, policy: PolicySpec, laws: Laws) -> Experiment {
    let hp = Arrivals::Uniform { per_s };
    let jobs = vec![
        job(JobClass::HighPriority, &full(10, 1_000_000), hp),
        job(JobClass::BestEffort, &full(10, 1_000_000), Arrivals::Closed),
    ];
    Experiment {
        laws,
        host: HostModel::default(),
        ..as_it_is_run(jobs, policy, 20.0)
    }
}

fn share(mode: ShareMode) -> Laws {
    Laws {
        share: Some(mode),
        ..Laws::default()
    }
}

fn throttle(utilisation: f64) -> Laws {
    Laws {
        throttle: Some(ThrottleParams {
            utilisation,
            clock_mhz: None,
        }),
        ..Laws::default()
    }
}

fn sms_used(laws: Laws, per_s: f64) -> f64 {
    run(&pair(per_s, named("none"), laws)).utilisation.sm
}

#[test]
fn a_share_of_the_sms_limits_a_best_effort_job_and_no_other() {
    // Of 80 SMs 40 % are 32, and for a hundredth of the time the other has all.
    let limited = sms_used(share(ShareMode::Static(40)), 1.0);
    assert!((0.38..0.42).contains(&limited), "{limited}");
    let all = sms_used(Laws::default(), 1.0);
    assert!(all > 0.95, "{all}");
}

#[test]
fn a_dynamic_share_is_what_the_traces_of_high_priority_jobs_leave() {
    // 30 requests of 10 ms on all SMs: 70 % of these in seven tenths of the time, else all.
    let limited = sms_used(share(ShareMode::Dynamic), 30.0);
    assert!((0.74..0.8).contains(&limited), "{limited}");
    // Half as many SMs are half of it: 15 % of the device, and 85 % are left.
    let half: Arc<_> = trace(vec![kernel("half", 80, 10_000_000, [0.0, 0.0])]);
    let hp = Arrivals::Uniform { per_s: 30.0 };
    let jobs: Vec<Job> = vec![
        job(JobClass::HighPriority, &half, hp),
        job(JobClass::BestEffort, &full(10, 1_000_000), Arrivals::Closed),
    ];
    let experiment = Experiment {
        laws: share(ShareMode::Dynamic),
        ..as_it_is_run(jobs, named("none"), 5.0)
    };
    // 68 SMs hold what 80 hold in 1 ms in two waves: 160 blocks, 136 at once.
    let per_s = run(&experiment).jobs[1].requests as f64 / 5.0;
    assert!((40.0..60.0).contains(&per_s), "{per_s}");
}

#[test]
fn in_time_slices_a_share_is_one_of_the_time() {
    let mut experiment = pair(1.0, named("pillion"), share(ShareMode::Static(30)));
    experiment.gpu = softgpu::Config::new(Sharing::TimeSlice, &v100());
    let outcome = run(&experiment);
    let be_share = outcome.jobs[1].requests as f64 * 0.01 / 20.0;
    assert!((0.27..0.33).contains(&be_share), "{be_share}");
}

#[test]
fn a_throttle_holds_the_usage_that_it_is_told() {
    for utilisation in [0.4, 0.7] {
        let outcome = run(&pair(10.0, named("none"), throttle(utilisation)));
        let busy = outcome.utilisation.sm;
        assert!((busy - utilisation).abs() < 0.05, "{utilisation}: {busy}");
    }
}

#[test]
fn a_throttle_gives_way_to_a_clock_that_falls() {
    let t4 = Device::by_name("T4").expect("the table has it");
    // A kernel that computes and moves memory, so that the device is held at its power limit.
    let mut heavy = (*trace(vec![kernel("heavy", 80, 1_000_000, [1.0, 0.9])])).clone();
    heavy.device.clone_from(&t4.name);
    let heavy = Arc::new(heavy);
    let used = |clock_mhz: Option<u32>| {
        let jobs = vec![
            job(
                JobClass::HighPriority,
                &heavy,
                Arrivals::Uniform { per_s: 100.0 },
            ),
            job(JobClass::BestEffort, &heavy, Arrivals::Closed),
        ];
        let laws = throttle(1.0);
        let throttle = laws.throttle.map(|params| ThrottleParams {
            clock_mhz,
            ..params
        });
        let experiment = Experiment {
            gpu: softgpu::Config {
                governor: Some(Governor::of(&t4)),
                ..softgpu::Config::new(Sharing::Mps, &t4)
            },
            device: t4.clone(),
            laws: Laws { throttle, ..laws },
            host: HostModel::default(),
            ..as_it_is_run(jobs, named("none"), 20.0)
        };
        run(&experiment).jobs[1].requests
    };
    // With a low T the falling clock throttles nothing.
    let (low, high) = (used(Some(300)), used(Some(1_590)));
    assert!(high * 10 < low * 9, "{high} {low}");
    assert!(high * 2 > low, "{high} {low}");
}

#[test]
fn who_is_no_daemon_has_no_laws() {
    for name in ["mps", "streams", "reef-n", "oracle"] {
        let experiment = pair(1.0, named(name), share(ShareMode::Static(40)));
        let error = experiment.run(&mut sim::NoObserver).expect_err(name);
        let text = error.to_string();
        assert!(text.contains("not a policy of the daemon"), "{text}");
    }
    let told = pair(1.0, named("muxflow"), share(ShareMode::Static(40)));
    let error = told.run(&mut sim::NoObserver).expect_err("its own");
    assert!(
        error.to_string().contains("nearest are its numbers"),
        "{error}"
    );
    for (key, value, what) in [
        ("share_pct", 5.0, "nearest is 10"),
        ("clock_mhz", 50.0, "nearest is 100"),
    ] {
        let mut policy = named("muxflow");
        assert!(policy.set(key, value));
        let error = pair(1.0, policy, Laws::default()).run(&mut sim::NoObserver);
        let error = error.expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn muxflow_goes_by_the_sms_in_use_and_a_daemon_by_the_time_in_which_any_is() {
    // A quarter of the SMs, all of the time.
    let mut muxflow = named("muxflow");
    assert!(muxflow.set("share_pct", 25.0));
    let free = run(&pair(1.0, muxflow, Laws::default())).jobs[1].requests;
    let laws = Laws {
        share: Some(ShareMode::Static(25)),
        ..throttle(0.5)
    };
    let held = run(&pair(1.0, named("none"), laws)).jobs[1].requests;
    assert!(held * 3 < free * 2, "{held} {free}");
}
