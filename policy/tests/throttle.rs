//! The throttle through the gate: a device with a falling clock, and the shares of greedy jobs.

mod world;

use policy::throttle::BLIND_NS;
use policy::{
    Class, ClassSet, DeviceReading, Gate, HpView, Kernel, LaunchGateParams, Limit, OrionParams,
    PillionParams, Policy, Sharing, Snapshot, TemporalParams, ThrottleParams, admits,
};
use proptest::prelude::*;

use world::{POLL_NS, World, wanting};

const MS: u64 = 1_000_000;
const READ_NS: u64 = 200 * MS;
const READ_POLLS: u64 = READ_NS / POLL_NS;

/// An attached HP client without work; its requests take 2 s, so that no other law holds much.
const IDLE: HpView = HpView {
    latency_ns: Some(2_000 * MS),
    ..HpView::IDLE
};

fn policies() -> Vec<Policy> {
    vec![
        Policy::Orion(OrionParams::default()),
        Policy::Temporal(TemporalParams::default()),
        Policy::LaunchGate(LaunchGateParams::default()),
    ]
}

fn throttle(utilisation: f64, clock_mhz: Option<u32>) -> Option<ThrottleParams> {
    Some(ThrottleParams {
        utilisation,
        clock_mhz,
    })
}

/// Jobs that want all of the device, beside HP work, and a clock that falls with the use.
struct Device {
    world: World,
    hp: f64,
    /// The clock by the busy share of the time.
    clock_mhz: fn(f64) -> Option<u32>,
    now_ns: u64,
}

impl Device {
    fn new(policy: Policy, params: Option<ThrottleParams>, hp: f64) -> Self {
        let mut world = World::new(policy, &[MS, MS / 4]);
        world.gate.handle_throttle(params);
        Self {
            world,
            hp,
            clock_mhz: |_| None,
            now_ns: 0,
        }
    }

    fn charged_ns(&self) -> u64 {
        self.world.be.iter().map(|job| job.charged_total_ns).sum()
    }

    /// Runs until the next reading; returns the share of the time that best-effort jobs used.
    fn period(&mut self) -> f64 {
        let before_ns = self.charged_ns();
        for _ in 0..READ_POLLS {
            self.world.poll(IDLE);
        }
        self.now_ns += READ_NS;
        let used = (self.charged_ns() - before_ns) as f64 / READ_NS as f64;
        let busy = (self.hp + used).min(1.0);
        let busy = (busy * 100.0).round() / 100.0;
        self.read(DeviceReading {
            busy: Some(busy),
            clock_mhz: (self.clock_mhz)(busy),
            clock_max_mhz: Some(1_530),
            ..DeviceReading::default()
        });
        used
    }

    fn read(&mut self, reading: DeviceReading) {
        self.world.gate.handle_reading(self.now_ns, reading);
    }

    /// The mean share of best-effort jobs in ten seconds, after five.
    fn settled(&mut self) -> f64 {
        (0..25).for_each(|_| _ = self.period());
        let periods = 50;
        (0..periods).map(|_| self.period()).sum::<f64>() / f64::from(periods)
    }
}

#[test]
fn usage_is_held_at_what_was_set_under_every_policy() {
    for policy in policies() {
        for (hp, utilisation) in [(0.3, 0.9), (0.3, 0.5), (0.1, 0.7)] {
            let mut device = Device::new(policy, throttle(utilisation, None), hp);
            let used = device.settled();
            let left = utilisation - hp;
            assert!(
                (used - left).abs() < 0.03,
                "{policy:?} {hp} {utilisation}: {used}"
            );
        }
    }
}

#[test]
fn a_device_that_clocks_down_sheds_best_effort_work_until_it_does_not() {
    // Above seven tenths of the time the clock falls, by a tenth or a fifth at full use. V = b (1 +
    // 8 (b − 0.7) s/1400) is 0.9 there, where the clock falls by s MHz per unit of busy share.
    type Clock = fn(f64) -> Option<u32>;
    let by_a_tenth: Clock = |busy| Some((1_400.0 - 467.0 * (busy - 0.7).max(0.0)) as u32);
    let by_a_fifth: Clock = |busy| Some((1_400.0 - 933.0 * (busy - 0.7).max(0.0)) as u32);
    for (clock_mhz, busy) in [(by_a_tenth, 0.764), (by_a_fifth, 0.742)] {
        let mut device = Device::new(
            Policy::Temporal(TemporalParams::default()),
            throttle(0.9, Some(1_400)),
            0.2,
        );
        device.clock_mhz = clock_mhz;
        let used = device.settled();
        assert!((used + 0.2 - busy).abs() < 0.02, "{used}, {busy}");
        let swing: Vec<f64> = (0..20).map(|_| device.period()).collect();
        assert!(
            swing.iter().all(|used| (used + 0.2 - busy).abs() < 0.05),
            "{swing:?}"
        );
        let view = device.world.gate.throttle_view(device.now_ns);
        let usage = view.and_then(|view| view.usage).expect("it was read");
        // A hundredth of the time, NVML's resolution, is a twentieth of the usage.
        assert!((usage - 0.9).abs() < 0.15, "{usage}");
    }
}

/// A clock that dips at times admits no more than one that does not.
#[test]
fn a_clock_that_comes_and_goes_about_that_of_high_priority_work_opens_nothing() {
    for every in [2, 4] {
        let temporal = Policy::Temporal(TemporalParams::default());
        let mut device = Device::new(temporal, throttle(0.9, Some(1_400)), 0.2);
        let mut used = Vec::new();
        for n in 0..200 {
            let clock: fn(f64) -> Option<u32> = match n % every {
                0 => |_| Some(1_330),
                _ => |_| Some(1_400),
            };
            device.clock_mhz = clock;
            used.push(device.period());
        }
        let mean = used[50..].iter().sum::<f64>() / 150.0;
        assert!(mean < 0.72, "{every}: {mean}");
    }
}

#[test]
fn short_kernels_get_what_is_left_after_high_priority_work_falls_too() {
    let temporal = Policy::Temporal(TemporalParams::default());
    let mut device = Device::new(temporal, throttle(0.9, None), 0.6);
    device.world = World::new(temporal, &[MS / 100]);
    device.world.gate.handle_throttle(throttle(0.9, None));
    device.settled();
    let before = device.settled();
    device.hp = 0.1;
    let after = device.settled();
    assert!(
        (before - 0.3).abs() < 0.03 && (after - 0.8).abs() < 0.03,
        "{before}, {after}"
    );
}

/// A wrongly charged hour is not held against others for longer than ten seconds.
#[test]
fn nobody_pays_for_what_another_job_has_charged_for_long() {
    let temporal = Policy::Temporal(TemporalParams::default());
    let mut device = Device::new(temporal, throttle(0.5, None), 0.3);
    device.settled();
    device.world.be[0].charged_total_ns += 3_600_000 * MS;
    device.world.be[0].completed_total_ns += 3_600_000 * MS;
    device.period();
    (0..50).for_each(|_| _ = device.period());
    let used = device.settled();
    assert!((used - 0.2).abs() < 0.03, "{used}");
}

#[test]
fn a_full_device_at_its_highest_clock_is_as_it_should_be() {
    let mut device = Device::new(
        Policy::Temporal(TemporalParams::default()),
        throttle(0.9, Some(1_400)),
        0.2,
    );
    device.clock_mhz = |_| Some(1_530);
    let used = device.settled();
    assert!(used > 0.95, "{used}");
}

#[test]
fn what_is_no_reading_moves_nothing_and_is_blindness_in_the_end() {
    let mut device = Device::new(
        Policy::Temporal(TemporalParams::default()),
        throttle(0.5, None),
        0.3,
    );
    device.settled();
    let view = |device: &Device| {
        device
            .world
            .gate
            .throttle_view(device.now_ns)
            .expect("it is set")
    };
    let before = view(&device);
    for busy in [
        None,
        Some(f64::NAN),
        Some(-0.1),
        Some(1.1),
        Some(f64::INFINITY),
    ] {
        for _ in 0..20 {
            let used_ns = device.charged_ns();
            (0..READ_POLLS).for_each(|_| device.world.poll(IDLE));
            device.now_ns += READ_NS;
            device.read(DeviceReading {
                busy,
                ..DeviceReading::default()
            });
            let used = (device.charged_ns() - used_ns) as f64 / READ_NS as f64;
            assert!((used - before.rate).abs() < 0.02, "{used} {before:?}");
        }
        assert_eq!(view(&device).rate, before.rate);
    }
    assert_eq!(view(&device).dropped, 100);
    assert!(view(&device).blind && !before.blind);
    assert_eq!(100 * READ_NS, 2 * BLIND_NS);
    device.period();
    assert!(!view(&device).blind);
}

#[test]
fn while_another_law_holds_it_does_not_rise() {
    let mut device = Device::new(
        Policy::Temporal(TemporalParams::default()),
        throttle(0.5, None),
        0.3,
    );
    let held = device.settled();
    // For a minute nothing goes beside an HP job that is always busy, and uses little.
    let busy = HpView {
        busy: true,
        executing: ClassSet::ALL,
        ..IDLE
    };
    for _ in 0..300 {
        (0..READ_POLLS).for_each(|_| device.world.poll(busy));
        device.now_ns += READ_NS;
        device.read(DeviceReading {
            busy: Some(0.3),
            ..DeviceReading::default()
        });
    }
    let after: Vec<f64> = (0..5).map(|_| device.period()).collect();
    assert!(after[0] < held + 0.1, "{held} {after:?}");
}

#[test]
fn without_high_priority_work_nothing_is_throttled_and_out_of_range_is_no_throttle() {
    let mut gate = Gate::new(Policy::None);
    gate.handle_throttle(throttle(0.5, None));
    let be = [wanting(1)];
    let snapshot = |hp| Snapshot {
        now_ns: MS,
        sharing: Sharing::Mps,
        sms: 80,
        epoch: 7,
        hp,
        be: &be,
    };
    for n in 0..100 {
        gate.handle_snapshot(&snapshot(IDLE));
        gate.handle_reading(
            n * READ_NS,
            DeviceReading {
                busy: Some(1.0),
                ..DeviceReading::default()
            },
        );
    }
    assert!(gate.throttle_view(0).expect("it is set").rate < 0.05);
    gate.handle_snapshot(&snapshot(HpView::ABSENT));
    assert_eq!(
        gate.gate_with_limit(&snapshot(HpView::ABSENT), 0).1,
        Limit::Ungated
    );
    for utilisation in [0.0, 0.09, 1.01, f64::NAN, f64::INFINITY, -1.0] {
        gate.handle_throttle(throttle(utilisation, None));
        assert_eq!(gate.throttle_view(0), None, "{utilisation}");
    }
}

/// T is the clock while high-priority work is alone, not the lower one beside others.
#[test]
fn the_clock_of_high_priority_work_alone_is_learnt() {
    let mut gate = Gate::new(Policy::None);
    gate.handle_throttle(throttle(0.9, None));
    let known = |gate: &Gate| gate.throttle_view(0).expect("it is set").clock_mhz;
    let busy = HpView {
        busy: true,
        executing: ClassSet::EMPTY.with(Class::Compute),
        ..IDLE
    };
    let alone = [wanting(1)];
    let mut beside = [wanting(1)];
    (beside[0].charged_total_ns, beside[0].drained) = (MS, false);
    for n in 0..100_u32 {
        let is_alone = n % 5 == 0;
        let (hp, be) = if is_alone {
            (busy, &alone)
        } else {
            (busy, &beside)
        };
        gate.handle_snapshot(&Snapshot {
            now_ns: u64::from(n) * READ_NS,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp,
            be,
        });
        let clock = if is_alone { 1_400 + n } else { 900 };
        let reading = DeviceReading {
            busy: Some(0.5),
            clock_mhz: Some(clock),
            clock_max_mhz: Some(1_530),
            ..DeviceReading::default()
        };
        gate.handle_reading(u64::from(n) * READ_NS, reading);
        assert_eq!(known(&gate).is_some(), n >= 95, "{n}");
    }
    assert_eq!(known(&gate), Some(1_425));
}

proptest! {
    #[test]
    fn what_a_throttled_lease_admits_is_what_the_law_makes_eligible(
        place in 0..3_usize,
        utilisation in 0.1..=1.0_f64,
        readings in prop::collection::vec((prop::option::of(-0.1..1.1_f64), prop::option::of(0..2_000_u32)), 1..20),
        expected_ns in 1..2 * MS,
        spent_ns in 0..10 * MS,
    ) {
        let mut device = Device::new(policies()[place], throttle(utilisation, Some(1_400)), 0.0);
        for (n, (busy, clock_mhz)) in readings.into_iter().enumerate() {
            (0..500).for_each(|_| device.world.poll(IDLE));
            let reading = DeviceReading {
                busy, clock_mhz, clock_max_mhz: Some(1_530), ..DeviceReading::default()
            };
            device.world.gate.handle_reading(n as u64 * READ_NS, reading);
            let be = device.world.be.clone();
            let snapshot = Snapshot {
                now_ns: (n as u64 + 1) * 500 * POLL_NS, sharing: Sharing::Mps, sms: 80, epoch: 7, hp: IDLE, be: &be,
            };
            device.world.gate.handle_snapshot(&snapshot);
            let kernel = Kernel { class: Class::Compute, sm_needed: 500, expected_ns };
            for job in 0..be.len() {
                let lease = device.world.gate.gate(&snapshot, job);
                let is_eligible = device.world.gate.eligible(&snapshot, job, spent_ns, &kernel);
                prop_assert_eq!(admits(&lease, spent_ns, &kernel), is_eligible);
            }
        }
    }

    #[test]
    fn no_reading_takes_the_rate_out_of_its_range(
        readings in prop::collection::vec((any::<f64>(), any::<u32>(), any::<u32>()), 1..100),
    ) {
        let mut device = Device::new(Policy::Pillion(PillionParams::default()), throttle(0.9, None), 0.0);
        for (busy, clock, clock_max) in readings {
            device.world.poll(IDLE);
            let reading = DeviceReading {
                busy: Some(busy), clock_mhz: Some(clock), clock_max_mhz: Some(clock_max), ..DeviceReading::default()
            };
            device.read(reading);
            let view = device.world.gate.throttle_view(0).expect("it is set");
            prop_assert!((0.02..=1.0).contains(&view.rate), "{view:?}");
            prop_assert!(view.usage.is_none_or(f64::is_finite));
        }
    }
}

/// A share in time slices: with or without a throttle, and not without a high-priority client.
#[test]
fn best_effort_jobs_use_no_more_than_their_share_together() {
    for policy in policies() {
        for (share, params, most) in [
            (0.3, None, 0.3),
            (0.3, throttle(0.9, None), 0.3),
            (0.6, throttle(0.5, None), 0.3),
            (1.0, None, 1.0),
            (f64::NAN, None, 1.0),
        ] {
            let mut device = Device::new(policy, params, 0.2);
            device.world.gate.handle_share(share);
            let used = device.settled();
            let is_held = most < 1.0;
            assert!(
                (used - most).abs() < 0.03 || !is_held && used > 0.7,
                "{policy:?} {share} {params:?}: {used}"
            );
            device.world.gate.handle_throttle(None);
            device.world.gate.handle_share(1.0);
            (0..50).for_each(|_| _ = device.period());
            device.world.gate.handle_share(0.4);
            let used = device.settled();
            assert!((used - 0.4).abs() < 0.03, "{policy:?} {share}: {used}");
        }
    }
}

/// Room below the set point while the share holds best-effort jobs loosens nothing.
#[test]
fn while_the_share_binds_the_throttle_does_not_rise() {
    let temporal = Policy::Temporal(TemporalParams::default());
    let mut device = Device::new(temporal, throttle(0.7, None), 0.4);
    device.settled();
    let rate = |device: &Device| device.world.gate.throttle_view(device.now_ns).unwrap().rate;
    let before = rate(&device);
    assert!((before - 0.3).abs() < 0.05, "{before}");
    device.world.gate.handle_share(0.1);
    let used = device.settled();
    assert!((used - 0.1).abs() < 0.03, "{used}");
    assert!(rate(&device) <= before + 0.05, "{}", rate(&device));
}

/// A share that is removed and set again finds no earlier debt.
#[test]
fn what_was_owed_of_a_share_that_is_gone_is_forgotten() {
    let mut gate = Gate::new(Policy::None);
    let mut be = [wanting(1)];
    let mut look = |gate: &mut Gate, at_ms: u64, charged_ms: u64| {
        be[0].charged_total_ns = charged_ms * MS;
        let snapshot = Snapshot {
            now_ns: at_ms * MS,
            sharing: Sharing::TimeSlice,
            sms: 80,
            epoch: 7,
            hp: IDLE,
            be: &be,
        };
        gate.handle_jobs(at_ms * MS, &be);
        gate.handle_snapshot(&snapshot);
        gate.gate_with_limit(&snapshot, 0).1
    };
    gate.handle_share(0.3);
    look(&mut gate, 0, 0);
    // Two seconds of a kernel, which is six of debt.
    assert_eq!(look(&mut gate, 100, 2_000), Limit::Rate);
    gate.handle_share(1.0);
    look(&mut gate, 200, 2_000);
    gate.handle_share(0.3);
    assert_ne!(look(&mut gate, 300, 2_000), Limit::Rate);
}
