//! The promises, whatever goes wrong: high-priority launches never wait, and no best-effort launch
//! waits for longer than `max_hold`; each goes once, in order. For the daemon's policies, whose
//! gate, leases and libraries run here.

mod common;

use std::collections::BTreeMap;

use common::{any_trace, as_it_is_run, job};
use proptest::prelude::*;
use sim::{
    Arrivals, ClientId, Experiment, HostModel, Job, JobClass, Launch, Observer, PolicySpec,
    ProfileErrors,
};
use softgpu::{Config, Sharing};

const MS: u64 = 1_000_000;

#[derive(Default)]
struct Watcher {
    clients: BTreeMap<ClientId, Seen>,
}

#[derive(Default)]
struct Seen {
    issued: u64,
    completed: u64,
    held_since_ns: Option<u64>,
    held_ns_max: u64,
}

impl Watcher {
    fn of(&mut self, client: ClientId) -> &mut Seen {
        self.clients.entry(client).or_default()
    }
}

impl Observer for Watcher {
    fn hold_started(&mut self, now_ns: u64, launch: &Launch, _rule: &'static str) {
        self.of(launch.client).held_since_ns = Some(now_ns);
    }

    fn hold_ended(&mut self, now_ns: u64, launch: &Launch) {
        let seen = self.of(launch.client);
        let since_ns = seen.held_since_ns.take().expect("a hold that began");
        seen.held_ns_max = seen.held_ns_max.max(now_ns - since_ns);
    }

    fn issued(&mut self, _now_ns: u64, launch: &Launch) {
        let seen = self.of(launch.client);
        seen.issued += 1;
        assert_eq!(launch.seq, seen.issued, "lost, doubled or overtaken");
    }

    fn kernel_completed(&mut self, _started_ns: u64, _now_ns: u64, launch: &Launch) {
        let seen = self.of(launch.client);
        seen.completed += 1;
        assert_eq!(launch.seq, seen.completed, "lost, doubled or overtaken");
    }
}

fn any_arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        1 => Just(Arrivals::Closed),
        2 => (20..2_000_u32).prop_map(|per_s| Arrivals::Poisson { per_s: per_s.into() }),
        1 => (20..500_u32).prop_map(|per_s| Arrivals::Uniform { per_s: per_s.into() }),
    ]
}

fn any_hp() -> impl Strategy<Value = Job> {
    let death = prop::option::weighted(0.2, MS..50 * MS);
    (any_trace(7, 1_000..90_000), any_arrivals(), death).prop_map(|(trace, arrivals, death_ns)| {
        Job {
            death_ns,
            ..job(JobClass::HighPriority, &trace, arrivals)
        }
    })
}

fn any_be() -> impl Strategy<Value = Job> {
    let death = prop::option::weighted(0.2, MS..50 * MS);
    let promised = (1..=100_u32, prop_oneof![Just(0.0), 0.01..1.0]);
    (any_trace(7, 1_000..3 * MS), 0..20 * MS, death, promised).prop_map(
        |(trace, start_ns, death_ns, (weight, min_progress))| Job {
            start_ns,
            death_ns,
            weight,
            min_progress,
            ..job(JobClass::BestEffort, &trace, Arrivals::Closed)
        },
    )
}

fn any_host() -> impl Strategy<Value = HostModel> {
    let max_hold = prop::sample::select(vec![300_000, 2 * MS, 20 * MS]);
    let delay = prop::sample::select(vec![0, 50_000, 200_000]);
    (max_hold, delay, 0..6 * MS, any::<[bool; 2]>()).prop_map(
        |(max_hold_ns, completion_delay_ns, stall_ns, [stalls, jumps])| HostModel {
            max_hold_ns,
            completion_delay_ns,
            stall_ns: if stalls { stall_ns } else { 0 },
            stall_every_ns: 10 * MS,
            clock_jump_ns: if jumps { 9_000 * MS } else { 0 },
            clock_jump_every_ns: 15 * MS,
            ..HostModel::default()
        },
    )
}

fn any_profiles() -> impl Strategy<Value = ProfileErrors> {
    let factor = prop::sample::select(vec![0.1, 1.0, 10.0]);
    (factor, 0.0..1.0, 0.0..1.0, 0.0..1.0).prop_map(|(duration_factor, wrong, flipped, unknown)| {
        ProfileErrors {
            duration_factor,
            wrong_share: wrong,
            flipped_share: flipped,
            unknown_share: unknown,
            classes: sim::Classes::Measured,
            of: None,
        }
    })
}

fn check(experiment: &Experiment) -> Result<(), TestCaseError> {
    let policy = experiment.policy;
    let mut watcher = Watcher::default();
    let outcome = experiment.run(&mut watcher).expect("a possible experiment");
    for (index, (job, got)) in experiment.jobs.iter().zip(&outcome.jobs).enumerate() {
        let none = Seen::default();
        let seen = watcher.clients.get(&ClientId(index)).unwrap_or(&none);
        match job.class {
            JobClass::HighPriority => prop_assert_eq!(got.held, 0, "{}: it waited", policy),
            JobClass::BestEffort => prop_assert!(
                seen.held_ns_max <= experiment.host.max_hold_ns,
                "{}: held for {} ns",
                policy,
                seen.held_ns_max
            ),
        }
        prop_assert!(seen.completed <= seen.issued);
        if job.death_ns.is_none() && got.unfinished == 0 {
            let each = job.trace.launches.len() as u64;
            prop_assert_eq!(seen.completed, got.requests * each, "{}", policy);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn high_priority_never_waits_and_best_effort_work_for_max_hold_at_most(
        hp in prop::collection::vec(any_hp(), 1..3),
        be in prop::collection::vec(any_be(), 1..5),
        host in any_host(),
        profiles in any_profiles(),
        [is_sliced, block_priority] in any::<[bool; 2]>(),
        seed in any::<u64>(),
    ) {
        let jobs: Vec<Job> = hp.into_iter().chain(be).collect();
        for name in policy::Policy::NAMES {
            let spec: PolicySpec = name.parse().expect("a daemon's policy");
            let mut experiment = as_it_is_run(jobs.clone(), spec, 0.06);
            experiment.host = host;
            experiment.profiles = profiles;
            experiment.seed = seed;
            let sharing = if is_sliced { Sharing::TimeSlice } else { Sharing::Mps };
            experiment.gpu = Config {
                block_priority,
                ..Config::new(sharing, &experiment.device)
            };
            check(&experiment)?;
        }
    }
}
