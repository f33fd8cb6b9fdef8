//! A job whose requests change at a time, one that restarts for another share of the SMs, and the
//! controllers of a mean latency that cause this: `gslice` and `gpucolo`.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{experiment, full, job, kernel, run, trace};
use profiler::Trace;
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{
    Arrivals, ClientId, Experiment, Job, JobClass, Launch, Observer, PolicySpec, TracePhase,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

#[derive(Default)]
struct Times {
    began: [Vec<u64>; 2],
    ended: [Vec<u64>; 2],
    went: [Vec<u64>; 2],
}

impl Observer for Times {
    fn request_started(&mut self, now_ns: u64, client: ClientId, _request: u64, _arrival_ns: u64) {
        self.began[client.0].push(now_ns);
    }

    fn request_ended(&mut self, now_ns: u64, client: ClientId, _request: u64, _arrival_ns: u64) {
        self.ended[client.0].push(now_ns);
    }

    fn issued(&mut self, now_ns: u64, launch: &Launch) {
        if launch.place == 0 {
            self.went[launch.client.0].push(now_ns);
        }
    }
}

impl Times {
    fn of(experiment: &Experiment) -> Self {
        let mut times = Self::default();
        experiment.run(&mut times).expect("it can be run");
        times
    }

    fn took(&self, client: usize) -> Vec<u64> {
        let pairs = self.ended[client].iter().zip(&self.began[client]);
        pairs.map(|(end, begin)| end - begin).collect()
    }

    fn gaps(&self, client: usize) -> Vec<u64> {
        let pairs = self.went[client].iter().skip(1).zip(&self.ended[client]);
        pairs.map(|(next, end)| next - end).collect()
    }
}

fn waves() -> Arc<Trace> {
    trace(vec![kernel("waves", 20 * 160, MS, [0.0, 0.0])])
}

fn hp(trace: &Arc<Trace>) -> Job {
    job(JobClass::HighPriority, trace, Arrivals::Closed)
}

fn be(trace: &Arc<Trace>) -> Job {
    job(JobClass::BestEffort, trace, Arrivals::Closed)
}

fn policy(name: &str, numbers: &[(&str, f64)]) -> PolicySpec {
    let mut policy: PolicySpec = name.parse().expect("there is one");
    for (key, value) in numbers {
        assert!(policy.set(key, *value), "{key}");
    }
    policy
}

#[test]
fn requests_that_begin_in_a_phase_are_of_its_trace_and_all_others_as_without_it() {
    let plain = hp(&full(10, MS));
    let phase = |start_ns, launches| TracePhase {
        start_ns,
        trace: full(launches, MS),
    };
    let phased = Job {
        trace_phases: vec![phase(25 * MS, 20), phase(100 * MS, 10)],
        ..plain.clone()
    };
    let took = |job: Job| Times::of(&experiment(vec![job], PolicySpec::Mps, 0.2)).took(0);
    // The third begins at 20 ms; the phase's first, at 30 ms, is the fourth, its last is at 90 ms.
    let ms: Vec<u64> = took(phased.clone()).iter().map(|ns| ns / MS).collect();
    assert_eq!(ms, [vec![10; 3], vec![20; 4], vec![10; 9]].concat());
    assert_eq!(took(plain), [10 * MS; 20]);

    let late = Job {
        start_ns: 50 * MS,
        ..phased
    };
    let ms: Vec<u64> = took(late).iter().map(|ns| ns / MS).collect();
    assert_eq!(ms, [vec![10; 3], vec![20; 4], vec![10; 4]].concat());
}

#[test]
fn kernels_of_a_phase_are_kernels_of_their_own_to_what_a_policy_learns() {
    let job = Job {
        trace_phases: vec![TracePhase {
            start_ns: SECOND,
            trace: full(10, 4 * MS),
        }],
        ..be(&full(10, MS))
    };
    let outcome = run(&experiment(vec![job], policy("pillion", &[]), 3.0));
    let learnt = &outcome.jobs[0].learnt;
    let kernels: Vec<usize> = learnt.iter().map(|(kernel, _)| *kernel).collect();
    assert_eq!(kernels, [0, 1]);
}

#[test]
fn a_job_that_is_started_anew_launches_nothing_for_so_long_and_has_its_new_share_then() {
    // 40 ms on half of the device are twice the target: it gets 99 %, 78 of 80 SMs, for 21 ms.
    let numbers = [("slo_mean_ms", 20.0), ("restart_s", 0.7), ("period_s", 1.0)];
    let restarted = experiment(vec![hp(&waves())], policy("gslice", &numbers), 1.9);
    let times = Times::of(&restarted);
    let took: Vec<u64> = times.took(0).iter().map(|ns| ns / MS).collect();
    let gaps = times.gaps(0);
    let outage = gaps.iter().position(|&ns| ns > 0).expect("an outage");
    assert_eq!(outage, 24);
    assert_eq!(gaps[outage], 700 * MS);
    assert_eq!(gaps.iter().sum::<u64>(), 700 * MS);
    assert!(took[..25].iter().all(|&ms| ms == 40), "{took:?}");
    assert!(
        took.len() > 25 && took[25..].iter().all(|&ms| ms == 21),
        "{took:?}"
    );

    for target_ms in [0.0, 40.0] {
        let numbers = [
            ("slo_mean_ms", target_ms),
            ("restart_s", 0.7),
            ("period_s", 1.0),
        ];
        let kept = experiment(vec![hp(&waves())], policy("gslice", &numbers), 3.0);
        assert!(
            Times::of(&kept).gaps(0).iter().all(|&ns| ns == 0),
            "{target_ms}"
        );
    }
}

#[test]
fn requests_that_come_in_an_outage_wait_for_its_end() {
    let numbers = [("slo_mean_ms", 20.0), ("restart_s", 0.7), ("period_s", 1.0)];
    let job = job(
        JobClass::HighPriority,
        &waves(),
        Arrivals::Uniform { per_s: 5.0 },
    );
    let times = Times::of(&experiment(vec![job], policy("gslice", &numbers), 1.9));
    // The period ends at 1 s, when a request begins; the outage starts 40 ms later; two arrive in
    // it.
    let began: Vec<u64> = times.began[0].iter().map(|ns| ns / MS).collect();
    assert_eq!(
        began,
        [0, 200, 400, 600, 800, 1_000, 1_740, 1_761, 1_782, 1_803]
    );
}

#[test]
fn both_shares_of_gslice_are_of_different_sms_and_both_jobs_are_started_anew() {
    let jobs = || vec![hp(&waves()), be(&waves())];
    let fixed = Times::of(&experiment(
        jobs(),
        policy("gslice", &[("share_pct", 75.0)]),
        1.0,
    ));
    let ms = |times: &Times, client: usize| times.took(client)[0] / MS;
    // 60 of 80 SMs: 27 waves; 20 SMs: 80 waves.
    assert_eq!([ms(&fixed, 0), ms(&fixed, 1)], [27, 80]);

    // 40 ms at half of the device, where 50 are allowed: HP gives up a fifth of its share.
    let numbers = [("slo_mean_ms", 50.0), ("restart_s", 0.7), ("period_s", 1.0)];
    let times = Times::of(&experiment(jobs(), policy("gslice", &numbers), 1.95));
    for client in [0, 1] {
        let outages = times
            .gaps(client)
            .iter()
            .filter(|&&ns| ns == 700 * MS)
            .count();
        assert_eq!(outages, 1, "{client}");
    }
    let last = |client: usize| times.took(client).last().map(|ns| ns / MS);
    // 32 and 48 of 80 SMs: 50 and 34 waves.
    assert_eq!([last(0), last(1)], [Some(50), Some(34)]);
}

#[test]
fn best_effort_jobs_of_gpucolo_sleep_after_each_iteration_and_nobody_else() {
    let jobs = vec![hp(&full(3, MS)), be(&full(7, MS))];
    let times = Times::of(&experiment(
        jobs,
        policy("gpucolo", &[("sleep_ms", 150.0)]),
        2.0,
    ));
    let gaps = times.gaps(1);
    assert!(
        gaps.len() > 5 && gaps.iter().all(|&ns| ns == 150 * MS),
        "{gaps:?}"
    );
    assert!(times.gaps(0).iter().all(|&ns| ns == 0));
}

#[test]
fn the_sleep_of_gpucolo_follows_the_printed_law_and_saturates_at_a_second_and_at_none() {
    let sleeps = |target_ms: f64| {
        let numbers = [
            ("slo_mean_ms", target_ms),
            ("sleep_ms", 100.0),
            ("slope_ms_per_s", 10.0),
            ("outer_periods", 1_000.0),
            ("period_s", 1.0),
        ];
        let jobs = vec![hp(&full(10, MS)), be(&full(5, MS))];
        Times::of(&experiment(jobs, policy("gpucolo", &numbers), 30.0))
    };
    // Requests take 10 to 15 ms: targets below and above that.
    let gaps = sleeps(1.0).gaps(1);
    assert_eq!(gaps.last(), Some(&SECOND));
    let gaps = sleeps(30.0).gaps(1);
    assert_eq!((gaps[0], gaps.last()), (100 * MS, Some(&0)));

    // One step: s becomes s + (l − L)/slope.
    let times = sleeps(11.0);
    let within = times.took(0).into_iter().zip(&times.ended[0]);
    let within: Vec<u64> = within
        .filter(|(_, end)| **end <= SECOND)
        .map(|(ns, _)| ns)
        .collect();
    let mean_ms = within.iter().sum::<u64>() as f64 / within.len() as f64 / 1e6;
    let wanted_ms = (100.0 + (mean_ms - 11.0) / 10.0 * 1_000.0).clamp(0.0, 1_000.0);
    let at = times.ended[1]
        .iter()
        .position(|&end| end > SECOND)
        .expect("one");
    let slept_ms = times.gaps(1)[at] as f64 / 1e6;
    assert!(
        (slept_ms - wanted_ms).abs() < 0.01,
        "{slept_ms} and not {wanted_ms}"
    );
    assert!((1.0..999.0).contains(&wanted_ms));
}

#[test]
fn gpucolo_holds_a_mean_that_lies_within_what_sleeping_can_reach() {
    // 10 ms solo, 15 ms with a 5 ms iteration in each; with a second of sleep hardly above 10.
    let numbers = [
        ("slo_mean_ms", 11.0),
        ("slope_ms_per_s", 30.0),
        ("outer_periods", 1_000.0),
        ("period_s", 4.0),
    ];
    let jobs = vec![hp(&full(10, MS)), be(&full(20, MS))];
    let times = Times::of(&experiment(jobs, policy("gpucolo", &numbers), 120.0));
    let settled = times.took(0).into_iter().zip(&times.ended[0]);
    let settled: Vec<u64> = settled
        .filter(|(_, end)| **end > 60 * SECOND)
        .map(|(ns, _)| ns)
        .collect();
    let mean_ms = settled.iter().sum::<u64>() as f64 / settled.len() as f64 / 1e6;
    assert!((mean_ms / 11.0 - 1.0).abs() < 0.01, "{mean_ms}");
}

#[test]
fn the_outer_loop_of_gpucolo_starts_best_effort_jobs_anew_in_its_periods_and_only_where_the_mean_is_off()
 {
    let outages = |target_ms: f64| {
        let numbers = [
            ("slo_mean_ms", target_ms),
            // No sleep has an effect: only the share is left.
            ("slope_ms_per_s", 1_000_000.0),
            ("sleep_ms", 0.0),
            ("share_slope_ms", 0.5),
            ("outer_periods", 5.0),
            ("period_s", 1.0),
            ("restart_s", 0.7),
        ];
        let jobs = vec![hp(&waves()), be(&waves())];
        let times = Times::of(&experiment(jobs, policy("gpucolo", &numbers), 9.5));
        assert!(
            times.gaps(0).iter().all(|&ns| ns == 0),
            "it has all SMs and is left alone"
        );
        let ends = times.ended[1].iter().zip(times.gaps(1));
        let outages: Vec<u64> = ends
            .filter(|(_, gap)| *gap >= 700 * MS)
            .map(|(end, _)| *end)
            .collect();
        let took = times.took(1);
        (outages, [took[1] / MS, took[took.len() - 2] / MS])
    };
    // Far below the high-priority job's latency: the share goes to its least, two SMs.
    let (far, took) = outages(5.0);
    let [at] = far[..] else { panic!("{far:?}") };
    assert!((5 * SECOND..6 * SECOND).contains(&at), "{at}");
    assert!(took[1] > 2 * took[0], "{took:?}");

    // At its latency, to 2 %.
    let jobs = vec![hp(&waves()), be(&waves())];
    let open = policy("gpucolo", &[("sleep_ms", 0.0)]);
    let took = Times::of(&experiment(jobs, open, 9.5)).took(0);
    let mean_ms = took.iter().sum::<u64>() as f64 / took.len() as f64 / 1e6;
    assert!(outages(mean_ms * 1.01).0.is_empty());
}

#[test]
fn numbers_that_cannot_be_meant_are_refused_with_their_place() {
    let wrong = |policy: &str, sharing: &str| {
        let text = format!(
            "sharing = \"{sharing}\"\n[policy]\n{policy}\n[[jobs]]\nclass = \"high-priority\"\n\
             trace = \"resnet50-inference\"\n[[jobs]]\ntrace = \"resnet50-training\"\n"
        );
        let read = Scenario::parse(
            Path::new("s.toml"),
            &text,
            Path::new("."),
            &mut Library::default(),
        );
        read.expect_err(policy).to_string()
    };
    for (text, said) in [
        (
            "name = \"gslice\"\nshare_pct = 100",
            "s.toml:4:13: share_pct is 100",
        ),
        ("name = \"gslice\"\nshare_pct = 0", "1 to 99; nearest is 1"),
        ("name = \"gslice\"\nperiod_s = 0", "period_s is 0"),
        ("name = \"gslice\"\nslo_mean_ms = -1", "slo_mean_ms is -1"),
        ("name = \"gslice\"\nsleep_ms = 1", "gslice has no sleep_ms"),
        (
            "name = \"gpucolo\"\nsleep_ms = 1001",
            "0 to 1000; nearest is 1000",
        ),
        (
            "name = \"gpucolo\"\nslope_ms_per_s = 0",
            "slope_ms_per_s is 0",
        ),
        (
            "name = \"gpucolo\"\nouter_periods = 2.5",
            "outer_periods is 2.5",
        ),
        (
            "name = \"gpucolo\"\nslo_mean = 1",
            "nearest is `slo_mean_ms`",
        ),
    ] {
        let found = wrong(text, "mps");
        assert!(found.contains(said), "{found}");
    }
    for name in ["gslice", "gpucolo"] {
        let found = wrong(&format!("name = \"{name}\""), "timeslice");
        assert!(found.contains("time slices"), "{found}");
        let two = experiment(vec![hp(&waves()), hp(&waves())], policy(name, &[]), 1.0);
        let found = two.run(&mut sim::NoObserver).expect_err(name).to_string();
        assert!(found.contains("supports one high-priority job"), "{found}");
    }
    let phased = Job {
        trace_phases: vec![TracePhase {
            start_ns: MS,
            trace: waves(),
        }],
        ..hp(&waves())
    };
    let foretold = experiment(vec![phased], policy("oracle", &[]), 1.0);
    let found = foretold
        .run(&mut sim::NoObserver)
        .expect_err("phases")
        .to_string();
    assert!(found.contains("one trace for each job"), "{found}");
}
