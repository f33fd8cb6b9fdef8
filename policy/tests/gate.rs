//! The gate through its public interface: tables with worked arithmetic, the property that ties
//! lease and law together, and a small world in which jobs use their leases.

mod world;

use policy::{
    Class, ClassSet, Gate, HpView, JobId, JobView, Kernel, LaunchGateParams, Lease, Limit,
    OrionParams, PillionParams, Policy, Sharing, SmSearchParams, SmThreshold, Snapshot,
    TURN_PATIENCE_NS, TemporalParams, admits,
};

use world::{POLL_NS, World};

const MS: u64 = 1_000_000;

const COMPUTE: ClassSet = ClassSet::EMPTY.with(Class::Compute);
const MEMORY: ClassSet = ClassSet::EMPTY.with(Class::Memory);
const UNKNOWN: ClassSet = ClassSet::EMPTY.with(Class::Unknown);

/// 6 ms requests: `DUR_THRESHOLD` = 2.5 % of 6 ms = 150 µs.
const IDLE: HpView = HpView {
    latency_ns: Some(6_000_000),
    ..HpView::IDLE
};
const DUR_THRESHOLD_NS: u64 = 150_000;

fn busy(executing: ClassSet) -> HpView {
    HpView {
        busy: true,
        executing,
        ..IDLE
    }
}

fn orion() -> Policy {
    Policy::Orion(OrionParams::default())
}

fn temporal() -> Policy {
    Policy::Temporal(TemporalParams::default())
}

fn launch_gate() -> Policy {
    Policy::LaunchGate(LaunchGateParams::default())
}

fn pillion() -> Policy {
    Policy::Pillion(PillionParams::default())
}

fn snapshot(hp: HpView, be: &[JobView]) -> Snapshot<'_> {
    Snapshot {
        now_ns: 1_000_000,
        sharing: Sharing::Mps,
        sms: 80,
        epoch: 7,
        hp,
        be,
    }
}

fn job(id: u64, charged_total_ns: u64, completed_total_ns: u64) -> JobView {
    JobView {
        id: JobId(id),
        charged_total_ns,
        completed_total_ns,
        drained: charged_total_ns == completed_total_ns,
        waiting: true,
    }
}

fn kernel(class: Class, sm_needed: u32) -> Kernel {
    Kernel {
        class,
        sm_needed,
        expected_ns: 100_000,
    }
}

fn first_lease(policy: Policy, snapshot: &Snapshot<'_>) -> Lease {
    let mut gate = Gate::new(policy);
    gate.handle_snapshot(snapshot);
    gate.gate(snapshot, 0)
}

#[test]
fn none_never_holds() {
    let be = [job(1, u64::MAX, 0)];
    let lease = first_lease(Policy::None, &snapshot(busy(COMPUTE), &be));
    assert_eq!(lease, Lease::ungated(7));
}

#[test]
fn nobody_is_held_while_no_hp_client_is_attached() {
    let be = [job(1, 5, 0), job(2, 5, 0)];
    let snapshot = snapshot(HpView::ABSENT, &be);
    for policy in [Policy::None, orion(), temporal(), launch_gate(), pillion()] {
        let mut gate = Gate::new(policy);
        gate.handle_snapshot(&snapshot);
        for index in 0..2 {
            assert_eq!(gate.gate(&snapshot, index), Lease::ungated(7));
        }
    }
}

#[test]
fn orion_lets_every_kernel_go_while_hp_is_idle() {
    let be = [job(1, 0, 0)];
    let lease = first_lease(orion(), &snapshot(IDLE, &be));
    let expected = Lease {
        epoch: 7,
        expiry_ns: 6_000_000, // now 1 ms + 5 ms
        classes: ClassSet::ALL,
        sms_max: u32::MAX,
        budget_ns: DUR_THRESHOLD_NS + 1,
        beside_hp: false,
        whole: false,
        standing: false,
        ungated: false,
    };
    assert_eq!(lease, expected);
}

#[test]
fn orion_beside_hp_grants_the_classes_opposite_to_all_that_execute() {
    let be = [job(1, 0, 0)];
    for (executing, granted) in [
        (COMPUTE, MEMORY.union(UNKNOWN)),
        (MEMORY, COMPUTE.union(UNKNOWN)),
        (UNKNOWN, ClassSet::ALL),
        (COMPUTE.union(UNKNOWN), MEMORY.union(UNKNOWN)),
        (COMPUTE.union(MEMORY), UNKNOWN),
        (HpView::NOTHING_KNOWN, UNKNOWN),
    ] {
        let lease = first_lease(orion(), &snapshot(busy(executing), &be));
        assert_eq!(lease.classes, granted, "beside {executing:?}");
        assert_eq!(lease.sms_max, 79, "sm_needed < 80");
        assert_eq!(lease.budget_ns, DUR_THRESHOLD_NS + 1);
        assert!(lease.beside_hp);
    }
}

#[test]
fn orion_takes_the_configured_sm_threshold_and_zero_admits_nothing_beside_hp() {
    let be = [job(1, 0, 0)];
    let params = |sm_threshold| OrionParams {
        sm_threshold,
        ..OrionParams::default()
    };
    let snapshot = snapshot(busy(COMPUTE), &be);
    let lease = first_lease(Policy::Orion(params(SmThreshold::Sms(200))), &snapshot);
    assert!(admits(&lease, 0, &kernel(Class::Memory, 199)));
    assert!(!admits(&lease, 0, &kernel(Class::Memory, 200)));
    let lease = first_lease(Policy::Orion(params(SmThreshold::Sms(0))), &snapshot);
    assert!(!admits(&lease, 0, &kernel(Class::Unknown, 0)));
}

#[test]
fn a_pause_lets_nothing_go_beside_a_high_priority_client_under_any_policy() {
    let be = [JobView {
        id: JobId(1),
        charged_total_ns: 0,
        completed_total_ns: 0,
        drained: true,
        waiting: true,
    }];
    let kernel = Kernel {
        class: Class::Memory,
        sm_needed: 1,
        expected_ns: 1,
    };
    for policy in [Policy::None, orion(), temporal(), launch_gate(), pillion()] {
        let mut gate = Gate::new(policy);
        let mut decide = |is_paused, hp| {
            let snapshot = snapshot(hp, &be);
            gate.handle_pause(is_paused);
            gate.handle_jobs(snapshot.now_ns, &be);
            gate.handle_snapshot(&snapshot);
            let (lease, limit) = gate.gate_with_limit(&snapshot, 0);
            let is_allowed = admits(&lease, 0, &kernel);
            assert_eq!(
                is_allowed,
                gate.eligible(&snapshot, 0, 0, &kernel),
                "{policy:?}"
            );
            (is_allowed, limit)
        };
        assert!(decide(false, IDLE).0, "{policy:?}");
        assert_eq!(decide(true, IDLE), (false, Limit::Paused), "{policy:?}");
        assert_eq!(
            decide(true, busy(COMPUTE)),
            (false, Limit::Paused),
            "{policy:?}"
        );
        assert_eq!(
            decide(true, HpView::ABSENT),
            (true, Limit::Ungated),
            "{policy:?}"
        );
        assert!(decide(false, IDLE).0, "{policy:?}");
    }
}

#[test]
fn orion_throttles_until_everything_launched_is_complete_even_while_hp_is_idle() {
    let mut gate = Gate::new(orion());
    // (charged, completed) in µs → be_duration, and the budget that is left.
    for (charged_us, completed_us, budget_ns) in [
        (0, 0, 150_001),
        (100, 0, 50_001),    // d = 100 ≤ 150: one more may go
        (200, 0, 0),         // d = 200 > 150: not now
        (200, 100, 0),       // one of two complete: still not
        (200, 200, 150_001), // drained: d = 0
        (290, 290, 60_001),  // d = 90, complete, but never was over: stays
        (390, 290, 0),       // d = 190
        (390, 390, 150_001),
    ] {
        let be = [job(1, charged_us * 1_000, completed_us * 1_000)];
        let snapshot = snapshot(IDLE, &be);
        gate.handle_snapshot(&snapshot);
        let lease = gate.gate(&snapshot, 0);
        assert_eq!(lease.budget_ns, budget_ns, "{charged_us} {completed_us}");
    }
}

#[test]
fn a_launch_at_exactly_the_threshold_still_goes() {
    // d = 150 000 = DUR_THRESHOLD: Listing 1 has `>`, so the next one goes.
    let be = [job(1, 150_000, 0)];
    let lease = first_lease(orion(), &snapshot(IDLE, &be));
    assert_eq!(lease.budget_ns, 1);
    assert!(admits(&lease, 0, &kernel(Class::Compute, 200)));
    assert!(!admits(&lease, 1, &kernel(Class::Compute, 200)));
}

#[test]
fn orions_duration_is_the_sum_over_all_jobs() {
    let mut gate = Gate::new(orion());
    let be = [job(1, 90_000, 0), job(2, 70_000, 0)];
    gate.handle_snapshot(&snapshot(IDLE, &be)); // d = 160 > 150
    for index in 0..2 {
        assert_eq!(gate.gate(&snapshot(IDLE, &be), index).budget_ns, 0);
    }
    // Job 1 is complete, job 2 is not: not drained.
    let be = [job(1, 90_000, 90_000), job(2, 70_000, 0)];
    gate.handle_snapshot(&snapshot(IDLE, &be));
    assert_eq!(gate.gate(&snapshot(IDLE, &be), 0).budget_ns, 0);
    let be = [job(1, 90_000, 90_000), job(2, 70_000, 70_000)];
    gate.handle_snapshot(&snapshot(IDLE, &be));
    let budgets = [0, 1].map(|index| gate.gate(&snapshot(IDLE, &be), index).budget_ns);
    assert_eq!(
        budgets.iter().sum::<u64>(),
        DUR_THRESHOLD_NS + 1,
        "one has the turn"
    );
}

#[test]
fn work_launched_before_hp_came_counts_when_it_comes() {
    let mut gate = Gate::new(orion());
    let be = [job(1, 0, 0)];
    gate.handle_snapshot(&snapshot(HpView::ABSENT, &be));
    // A second of launches, all but 400 µs complete: d = 400 > 150.
    let be = [job(1, 1_000_000_000, 999_600_000)];
    gate.handle_snapshot(&snapshot(HpView::ABSENT, &be));
    gate.handle_snapshot(&snapshot(IDLE, &be));
    assert_eq!(gate.gate(&snapshot(IDLE, &be), 0).budget_ns, 0);
    let be = [job(1, 1_000_000_000, 1_000_000_000)];
    gate.handle_snapshot(&snapshot(IDLE, &be));
    assert_eq!(gate.gate(&snapshot(IDLE, &be), 0).budget_ns, 150_001);
}

#[test]
fn work_complete_before_hp_came_does_not_count() {
    let mut gate = Gate::new(orion());
    let be = [job(1, 0, 0)];
    gate.handle_snapshot(&snapshot(HpView::ABSENT, &be));
    // A second of launches, all but 50 µs complete: d = 50, not 1 000 000.
    let be = [job(1, 1_000_000_000, 999_950_000)];
    gate.handle_snapshot(&snapshot(HpView::ABSENT, &be));
    gate.handle_snapshot(&snapshot(IDLE, &be));
    assert_eq!(gate.gate(&snapshot(IDLE, &be), 0).budget_ns, 100_001);
}

#[test]
fn temporal_bounds_what_is_in_flight_and_only_while_hp_is_idle() {
    let mut gate = Gate::new(temporal());
    for (charged_us, completed_us, budget_ns) in [
        (0, 0, 150_001),
        (100, 0, 50_001),
        (200, 0, 0),
        (200, 100, 50_001), // 100 in flight: it rolls, no drain needed
        (390, 390, 150_001),
    ] {
        let be = [job(1, charged_us * 1_000, completed_us * 1_000)];
        gate.handle_snapshot(&snapshot(IDLE, &be));
        let lease = gate.gate(&snapshot(IDLE, &be), 0);
        assert_eq!(lease.budget_ns, budget_ns, "{charged_us} {completed_us}");
        assert_eq!(lease.classes, ClassSet::ALL);
        let beside = gate.gate(&snapshot(busy(UNKNOWN), &be), 0);
        assert_eq!(beside, Lease::closed(7, 6_000_000));
    }
}

#[test]
fn orion_on_time_slices_is_temporal() {
    let be = [job(1, 200_000, 100_000), job(2, 0, 0)];
    for hp in [
        IDLE,
        busy(COMPUTE),
        busy(UNKNOWN),
        HpView::IDLE,
        HpView::ABSENT,
    ] {
        let snapshot = Snapshot {
            sharing: Sharing::TimeSlice,
            ..snapshot(hp, &be)
        };
        let lease = first_lease(orion(), &snapshot);
        assert_eq!(lease, first_lease(temporal(), &snapshot), "{hp:?}");
    }
}

#[test]
fn until_the_latency_is_known_the_threshold_is_100_microseconds() {
    let be = [job(1, 0, 0)];
    for policy in [orion(), temporal()] {
        let lease = first_lease(policy, &snapshot(HpView::IDLE, &be));
        assert_eq!(lease.budget_ns, 100_001);
    }
}

#[test]
fn launch_gate_lets_one_kernel_go_whatever_it_is_and_the_next_when_it_is_complete() {
    let mut gate = Gate::new(launch_gate());
    let huge = Kernel {
        class: Class::Compute,
        sm_needed: u32::MAX,
        expected_ns: u64::MAX / 4,
    };
    // (charged, completed, drained) → whether one may go.
    for (charged_ns, completed_ns, drained, goes) in [
        (0, 0, true, true),
        (500, 0, false, false),
        (500, 499, false, false), // 1 ns in flight is a kernel
        (500, 500, false, false), // of a client whose sums do not add up
        (500, 500, true, true),
    ] {
        let be = [JobView {
            drained,
            ..job(1, charged_ns, completed_ns)
        }];
        for sharing in [Sharing::Mps, Sharing::TimeSlice] {
            let snapshot = Snapshot {
                sharing,
                ..snapshot(IDLE, &be)
            };
            gate.handle_snapshot(&snapshot);
            let lease = gate.gate(&snapshot, 0);
            assert_eq!(
                admits(&lease, 0, &huge),
                goes,
                "{charged_ns} {completed_ns}"
            );
            assert!(!admits(&lease, 1, &huge));
            let busy = Snapshot {
                hp: busy(UNKNOWN),
                ..snapshot
            };
            assert_eq!(gate.gate(&busy, 0), Lease::closed(7, 6_000_000));
        }
    }
}

#[test]
fn under_launch_gate_jobs_take_turns_kernel_by_kernel() {
    let mut world = World::new(launch_gate(), &[20_000, 130_000, 700_000]);
    let mut in_flight_max = 0;
    for at in 0..40_000 {
        poll(&mut world, hp_at(at));
        in_flight_max = in_flight_max.max(world.queue.len());
    }
    assert_eq!(in_flight_max, 1);
    let launches: Vec<u64> = [20_000, 130_000, 700_000]
        .iter()
        .zip(&world.be)
        .map(|(kernel_ns, job)| job.charged_total_ns / kernel_ns)
        .collect();
    assert!(launches[0] > 1_000, "{launches:?}");
    assert!(
        launches
            .iter()
            .all(|count| count.abs_diff(launches[0]) <= 1),
        "{launches:?}"
    );
}

#[test]
fn a_training_hp_widens_orions_sm_threshold_as_far_as_it_can_stand() {
    let search = SmSearchParams {
        sm_needed_max: 400,
        solo_ns: 84_000_000,
        loss_pct_max: 16.0,
    };
    let mut gate = Gate::new(Policy::Orion(OrionParams {
        sm_threshold: SmThreshold::Searched(search),
        ..OrionParams::default()
    }));
    let be = [job(1, 0, 0)];
    let snapshot = snapshot(busy(COMPUTE), &be);
    // 400 ÷ 2; HP takes 90 ms < 84 ÷ 0.84 = 100 ms: (200 + 400) ÷ 2; then 110 ms: (200 + 300) ÷ 2.
    for (threshold, request_ns) in [(200, 90_000_000), (300, 110_000_000), (250, 0)] {
        gate.handle_snapshot(&snapshot);
        let lease = gate.gate(&snapshot, 0);
        assert_eq!(lease.sms_max, threshold - 1, "sm_needed < SM_THRESHOLD");
        assert_eq!(gate.sm_threshold(80), Some(threshold));
        (0..10).for_each(|_| gate.handle_hp_request(request_ns));
    }
}

#[test]
fn the_same_snapshot_gives_the_same_lease() {
    let be = [job(1, 10, 0), job(2, 0, 0)];
    let snapshot = snapshot(busy(COMPUTE), &be);
    let mut gate = Gate::new(orion());
    gate.handle_snapshot(&snapshot);
    let first = [gate.gate(&snapshot, 0), gate.gate(&snapshot, 1)];
    gate.handle_snapshot(&snapshot);
    assert_eq!(first, [gate.gate(&snapshot, 0), gate.gate(&snapshot, 1)]);
}

#[test]
fn a_job_held_by_its_kernels_class_lets_another_try_after_the_patience() {
    let mut gate = Gate::new(orion());
    let be = [job(1, 0, 0), job(2, 0, 0)];
    let at = |now_ns| Snapshot {
        now_ns,
        ..snapshot(busy(COMPUTE), &be)
    };
    gate.handle_snapshot(&at(0));
    assert!(gate.gate(&at(0), 0).budget_ns > 0);
    gate.handle_snapshot(&at(TURN_PATIENCE_NS));
    assert_eq!(gate.gate(&at(TURN_PATIENCE_NS), 0).budget_ns, 0);
    assert!(gate.gate(&at(TURN_PATIENCE_NS), 1).budget_ns > 0);
}

/// One poll, after which at most the bound and the kernel that may pass its end are in flight.
fn poll(world: &mut World, hp: HpView) {
    world.poll(hp);
    let in_flight_ns = world.in_flight_ns();
    assert!(
        in_flight_ns <= DUR_THRESHOLD_NS + world.longest_ns(),
        "{in_flight_ns} in flight"
    );
}

/// HP is idle most of the time, and otherwise busy with the jobs' own class.
fn hp_at(poll: u64) -> HpView {
    if poll % 10 < 3 { busy(COMPUTE) } else { IDLE }
}

// census: E14
#[test]
fn jobs_that_always_want_differ_by_one_kernel_per_turn_and_none_starves() {
    for policy in [orion(), temporal()] {
        // A quantum is 150 001 ns; a turn charges 8 × 20 = 160, 2 × 130 = 260, 1 × 700 µs.
        let mut world = World::new(policy, &[20_000, 130_000, 700_000]);
        for at in 0..40_000 {
            poll(&mut world, hp_at(at));
        }
        let turns = [160_000, 260_000, 700_000];
        let turns: Vec<u64> = world
            .be
            .iter()
            .zip(turns)
            .map(|(job, turn_ns)| job.charged_total_ns / turn_ns)
            .collect();
        assert!(turns[0] > 500, "{turns:?}");
        assert!(
            turns.iter().all(|turn| turn.abs_diff(turns[0]) <= 1),
            "{turns:?}"
        );
    }
}

#[test]
fn equal_jobs_get_equal_shares_to_within_a_turn() {
    for policy in [orion(), temporal()] {
        let mut world = World::new(policy, &[30_000; 4]);
        for at in 0..20_000 {
            poll(&mut world, hp_at(at));
        }
        // A turn is 6 × 30 = 180 µs: 5 × 30 = 150 is not over 150 yet.
        let charged = || world.be.iter().map(|job| job.charged_total_ns);
        let (least, most) = (charged().min().unwrap(), charged().max().unwrap());
        assert!(most - least <= 180_000, "{least} {most}");
        // The GPU is open to BE 70 % of one second: 175 ms each, less the bubbles.
        assert!(least > 500 * 180_000, "{least}");
    }
}

#[test]
fn a_rolling_bound_gets_more_done_than_draining() {
    let done = |policy| {
        let mut world = World::new(policy, &[60_000]);
        (0..10_000).for_each(|_| poll(&mut world, IDLE));
        world.be[0].completed_total_ns
    };
    assert!(done(temporal()) > done(orion()));
}

/// The rule behind the lease of the job at index 0, and whether the lease is open.
fn limit_of(policy: Policy, snapshot: &Snapshot<'_>) -> (Limit, bool) {
    let mut gate = Gate::new(policy);
    gate.handle_snapshot(snapshot);
    let (lease, limit) = gate.gate_with_limit(snapshot, 0);
    assert_eq!(lease, gate.gate(snapshot, 0));
    (limit, lease.budget_ns > 0 && !lease.classes.is_empty())
}

#[test]
fn the_rule_behind_a_lease_is_named() {
    let quiet = [job(1, 0, 0)];
    let full = [job(1, 200_000, 0)];
    let second = [job(2, 0, 0), job(1, 0, 0)];
    let here = HpView {
        present: true,
        ..IDLE
    };
    let busy = HpView {
        present: true,
        ..busy(COMPUTE)
    };
    for (policy, hp, be, expected) in [
        (orion(), HpView::ABSENT, &quiet[..], (Limit::Ungated, true)),
        (Policy::None, busy, &quiet, (Limit::Ungated, true)),
        (orion(), here, &quiet, (Limit::Budget, true)),
        (orion(), here, &full, (Limit::Throttle, false)),
        (orion(), busy, &quiet, (Limit::Interference, true)),
        (orion(), busy, &full, (Limit::Throttle, false)),
        (orion(), here, &second, (Limit::Turn, false)),
        (temporal(), here, &quiet, (Limit::Budget, true)),
        (temporal(), here, &full, (Limit::Throttle, false)),
        (temporal(), busy, &quiet, (Limit::HpBusy, false)),
        (temporal(), here, &second, (Limit::Turn, false)),
        (launch_gate(), here, &quiet, (Limit::Budget, true)),
        (launch_gate(), here, &full, (Limit::Throttle, false)),
        (launch_gate(), busy, &quiet, (Limit::HpBusy, false)),
        (launch_gate(), here, &second, (Limit::Turn, false)),
    ] {
        let snapshot = snapshot(hp, be);
        assert_eq!(limit_of(policy, &snapshot), expected, "{policy:?} {hp:?}");
    }
}

/// Each job's use of the GPU's time in ten seconds after one, with or without a high-priority side.
fn used(policy: Policy, hp: HpView, jobs: &[(f64, u64)]) -> Vec<f64> {
    let kernels: Vec<u64> = jobs.iter().map(|job| job.1).collect();
    let mut world = World::new(policy, &kernels);
    for (id, (share, _)) in (1..).zip(jobs) {
        world.gate.handle_cap(JobId(id), *share);
    }
    let polls = |ns: u64| ns / POLL_NS;
    (0..polls(1_000 * MS)).for_each(|_| world.poll(hp));
    let before: Vec<u64> = world.be.iter().map(|job| job.completed_total_ns).collect();
    (0..polls(10_000 * MS)).for_each(|_| world.poll(hp));
    let completed = world.be.iter().map(|job| job.completed_total_ns);
    let used = completed.zip(before).map(|(now, before)| now - before);
    used.map(|ns| ns as f64 / (10_000 * MS) as f64).collect()
}

#[test]
fn each_job_gets_its_share_alone_and_in_pairs_that_fill_the_gpu() {
    for kernel_ns in [MS / 10, MS, 5 * MS] {
        for pct in [1, 10, 30, 50, 80] {
            let share = f64::from(pct) / 100.0;
            let other = 1.0 - share;
            for jobs in [
                &[(share, kernel_ns)][..],
                &[(share, kernel_ns), (other, MS)],
            ] {
                let used = used(Policy::None, HpView::ABSENT, jobs);
                for (used, (share, _)) in used.iter().zip(jobs) {
                    let error = (used - share).abs();
                    assert!(error < 0.002, "{used} for {share} of {jobs:?}");
                }
            }
        }
    }
}

#[test]
fn a_cap_holds_under_every_policy_beside_a_high_priority_job() {
    let pillion = Policy::Pillion(PillionParams {
        solo_ns: Some(6 * MS),
        ..PillionParams::default()
    });
    let busy = HpView {
        busy: true,
        executing: ClassSet::from(Class::Memory),
        latency_ns: Some(6 * MS),
        ..HpView::IDLE
    };
    for policy in [Policy::None, pillion] {
        for hp in [HpView::IDLE, busy] {
            let used = used(policy, hp, &[(0.3, MS / 50)]);
            assert!(used[0] <= 0.301, "{policy:?} {used:?}");
            if *policy.name() == *"none" || !hp.busy {
                assert!(used[0] >= 0.299, "{policy:?} {used:?}");
            }
        }
    }
}

#[test]
fn a_job_that_is_closed_by_its_cap_leaves_the_turn_to_others() {
    let orion = Policy::Orion(OrionParams::default());
    let idle = HpView {
        latency_ns: Some(6 * MS),
        ..HpView::IDLE
    };
    let used = used(orion, idle, &[(0.1, MS), (1.0, MS / 100)]);
    assert!((used[0] - 0.1).abs() < 0.002, "{used:?}");
    assert!(used[1] > 0.6, "{used:?}");
}
