//! Invariants of every run, under any scheduler: nothing is lost, doubled or overtaken, time does
//! not go back, nobody gets more of the device than there is, and observers change nothing.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use common::{any_trace, experiment, job};
use proptest::prelude::*;
use sim::{
    Arrivals, ClientId, Copies, Experiment, HostModel, Job, JobClass, Launch, NoObserver, Observer,
    Outcome, PolicySpec,
};
use softgpu::{Config, OpKind, Sharing};

#[derive(Default)]
struct Watcher {
    log: String,
    now_ns: u64,
    clients: BTreeMap<ClientId, Seen>,
}

#[derive(Default)]
struct Seen {
    issued: u64,
    completed: u64,
    busy_until_ns: u64,
    requests: u64,
    request: Option<(u64, u64)>,
    latencies_ns: Vec<u64>,
    hold: Option<u64>,
    held: u64,
    copies: u64,
}

impl Watcher {
    fn at(&mut self, now_ns: u64, client: ClientId, what: std::fmt::Arguments<'_>) -> &mut Seen {
        assert!(now_ns >= self.now_ns, "{what} goes back in time");
        self.now_ns = now_ns;
        writeln!(self.log, "{now_ns} {client:?} {what}").expect("strings take everything");
        self.clients.entry(client).or_default()
    }
}

impl Observer for Watcher {
    fn request_started(&mut self, now_ns: u64, client: ClientId, request: u64, arrival_ns: u64) {
        let seen = self.at(
            now_ns,
            client,
            format_args!("request {request} {arrival_ns}"),
        );
        assert!(arrival_ns <= now_ns, "before it arrived");
        assert_eq!(seen.request, None, "two at once");
        assert_eq!(request, seen.requests, "out of order");
        seen.request = Some((request, arrival_ns));
    }

    fn request_ended(&mut self, now_ns: u64, client: ClientId, request: u64, arrival_ns: u64) {
        let seen = self.at(now_ns, client, format_args!("end {request}"));
        assert_eq!(seen.request.take(), Some((request, arrival_ns)));
        assert_eq!(seen.issued, seen.completed, "something is left");
        seen.requests += 1;
        seen.latencies_ns.push(now_ns - arrival_ns);
    }

    fn hold_started(&mut self, now_ns: u64, launch: &Launch, rule: &'static str) {
        let seen = self.at(
            now_ns,
            launch.client,
            format_args!("hold {} {rule}", launch.seq),
        );
        assert_eq!(seen.hold, None, "held twice");
        assert_eq!(launch.seq, seen.issued + 1, "only the next can be held");
        seen.hold = Some(launch.seq);
        seen.held += 1;
    }

    fn hold_ended(&mut self, now_ns: u64, launch: &Launch) {
        let seen = self.at(now_ns, launch.client, format_args!("go {}", launch.seq));
        assert_eq!(seen.hold.take(), Some(launch.seq));
    }

    fn issued(&mut self, now_ns: u64, launch: &Launch) {
        let seen = self.at(now_ns, launch.client, format_args!("issue {launch:?}"));
        assert_eq!(seen.hold, None, "still held");
        assert_eq!(launch.seq, seen.issued + 1, "lost, doubled or overtaken");
        assert_eq!(
            seen.request.map(|(request, _)| request),
            Some(launch.request)
        );
        seen.issued += 1;
    }

    fn kernel_completed(&mut self, started_ns: u64, now_ns: u64, launch: &Launch) {
        let seen = self.at(
            now_ns,
            launch.client,
            format_args!("done {} {started_ns}", launch.seq),
        );
        assert_eq!(launch.seq, seen.completed + 1, "lost, doubled or overtaken");
        assert!(launch.seq <= seen.issued, "never went");
        assert!(seen.busy_until_ns <= started_ns && started_ns < now_ns);
        seen.completed += 1;
        seen.busy_until_ns = now_ns;
    }

    fn copy_completed(&mut self, started_ns: u64, now_ns: u64, client: ClientId, kind: OpKind) {
        let seen = self.at(now_ns, client, format_args!("copied {kind:?}"));
        assert!(seen.busy_until_ns <= started_ns && started_ns < now_ns);
        seen.busy_until_ns = now_ns;
        seen.copies += 1;
    }
}

fn any_arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        Just(Arrivals::Closed),
        (20..2_000_u32).prop_map(|per_s| Arrivals::Poisson {
            per_s: per_s.into()
        }),
        (20..2_000_u32).prop_map(|per_s| Arrivals::Uniform {
            per_s: per_s.into()
        }),
        prop::collection::vec(1..9_000_000_u64, 1..5).prop_map(|gaps| Arrivals::Gaps(gaps.into())),
    ]
}

fn any_job(class: JobClass) -> impl Strategy<Value = Job> {
    let copies = prop_oneof![
        Just([0, 0]),
        Just([600_000, 0]),
        Just([600_000, 4_000]),
        Just([4_000_000, 0]),
        Just([4_000_000, 1_600_000]),
    ];
    let gap = prop::option::of(0..40_000_u64);
    (any_trace(9, 1..90_000), any_arrivals(), copies, gap).prop_map(
        move |(trace, arrivals, [to_device_bytes, to_host_bytes], launch_gap_ns)| Job {
            copies: Copies {
                to_device_bytes,
                to_host_bytes,
            },
            launch_gap_ns,
            ..job(class, &trace, arrivals)
        },
    )
}

fn any_host() -> impl Strategy<Value = HostModel> {
    let short_queue = HostModel {
        driver_queue: 2,
        ..HostModel::default()
    };
    let impatient = HostModel {
        max_hold_ns: 1_000_000,
        ..HostModel::default()
    };
    let hosts = [
        HostModel::IDEAL,
        HostModel::default(),
        short_queue,
        impatient,
    ];
    prop::sample::select(hosts.to_vec())
}

fn watched(experiment: &Experiment) -> (Outcome, Watcher) {
    let mut watcher = Watcher::default();
    let outcome = experiment.run(&mut watcher).expect("a possible experiment");
    (outcome, watcher)
}

fn check(experiment: &Experiment) {
    let spec = experiment.policy;
    let (outcome, watcher) = watched(experiment);
    for (index, (job, got)) in experiment.jobs.iter().zip(&outcome.jobs).enumerate() {
        let none = Seen::default();
        let seen = watcher.clients.get(&ClientId(index)).unwrap_or(&none);
        assert_eq!(
            (got.requests, got.launches),
            (seen.requests, seen.completed),
            "{spec}"
        );
        assert_eq!(
            (&got.latencies_ns, got.held),
            (&seen.latencies_ns, seen.held),
            "{spec}"
        );
        assert_eq!(got.held > 0, !got.held_ns.is_empty(), "{spec}");
        if got.unfinished == 0 {
            let each = job.trace.launches.len() as u64;
            let copies =
                u64::from(job.copies.to_device_bytes > 0) + u64::from(job.copies.to_host_bytes > 0);
            assert_eq!(seen.issued, got.requests * each, "{spec}");
            assert_eq!(seen.copies, got.requests * copies, "{spec}");
            assert_eq!(seen.request, None, "{spec}");
        }
    }
    let share = &outcome.utilisation;
    // The integrals are whole nanoseconds.
    for (share, of) in [
        (share.sm, "SMs"),
        (share.compute, "compute"),
        (share.bandwidth, "memory"),
    ] {
        assert!(
            (0.0..=1.0 + 1e-9).contains(&share),
            "{spec}: {share} of all {of}"
        );
    }
    let (again, watcher_again) = watched(experiment);
    assert_eq!(watcher.log, watcher_again.log, "{spec}: equal runs differ");
    let unwatched = experiment
        .run(&mut NoObserver)
        .expect("a possible experiment");
    assert_eq!(format!("{outcome:?}"), format!("{again:?}"));
    assert_eq!(outcome, unwatched, "{spec}: being watched changes the run");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_launched_goes_and_completes_once_in_order_under_every_policy(
        hp in any_job(JobClass::HighPriority),
        be in prop::collection::vec(any_job(JobClass::BestEffort), 0..4),
        host in any_host(),
        is_sliced in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let jobs: Vec<Job> = std::iter::once(hp).chain(be).collect();
        for name in PolicySpec::names() {
            let spec: PolicySpec = name.parse().expect("a known policy");
            let mut experiment = experiment(jobs.clone(), spec, 0.03);
            experiment.host = host;
            experiment.seed = seed;
            let sharing = match is_sliced && !spec.needs_mps() {
                true => Sharing::TimeSlice,
                false => Sharing::Mps,
            };
            experiment.gpu = Config::new(sharing, &experiment.device);
            check(&experiment);
        }
    }

    #[test]
    fn policies_that_are_called_alike_make_the_very_same_run(
        hp in any_job(JobClass::HighPriority),
        be in prop::collection::vec(any_job(JobClass::BestEffort), 0..4),
        host in any_host(),
        block_priority in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let jobs: Vec<Job> = std::iter::once(hp).chain(be).collect();
        for name in PolicySpec::names() {
            let spec: PolicySpec = name.parse().expect("a known policy");
            let twin = spec.alike(Sharing::Mps);
            if twin == spec {
                continue;
            }
            let outcome = |policy| {
                let mut experiment = experiment(jobs.clone(), policy, 0.03);
                experiment.host = host;
                experiment.seed = seed;
                experiment.gpu = Config {
                    block_priority,
                    ..Config::new(Sharing::Mps, &experiment.device)
                };
                experiment.run(&mut NoObserver).expect("a possible experiment")
            };
            prop_assert_eq!(outcome(spec), outcome(twin), "{} and {}", spec, twin);
        }
    }
}
