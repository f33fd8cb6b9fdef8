//! The probe: the causes of its states, its patience, and its persistence.

use policy::{Bound, DeviceReading, KeptProbe, Metric, Probe, ProbeParams, ProbeState};
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn well() -> DeviceReading {
    DeviceReading {
        busy: Some(0.6),
        sm_activity: Some(0.5),
        clock_mhz: Some(1_500),
        clock_max_mhz: Some(1_590),
        power_w: Some(50.0),
        power_limit_w: Some(70.0),
        temperature_c: Some(60.0),
        slowdown_c: Some(90.0),
        memory_used: Some(0.5),
        ..DeviceReading::default()
    }
}

fn all_six() -> ProbeParams {
    let mut params = ProbeParams {
        clock_mhz: Some(1_500),
        ..ProbeParams::default()
    };
    params.bounds[Metric::Utilisation as usize] = Bound::At(0.9, Some(0.98));
    params.bounds[Metric::SmActivity as usize] = Bound::At(0.8, Some(0.95));
    // Lower than the clock with which power counts.
    params.bounds[Metric::Clock as usize] = Bound::At(0.8, Some(0.7));
    params
}

/// A reading this bad in a metric: 0 is well, 1 at the first bound, 2 at the second.
fn bad(metric: Metric, badness: f64) -> DeviceReading {
    let between = |points: [f64; 3]| match badness {
        ..=1.0 => points[0] + (points[1] - points[0]) * badness,
        _ => points[1] + (points[2] - points[1]) * (badness - 1.0),
    };
    let mut reading = well();
    match metric {
        Metric::Utilisation => reading.busy = Some(between([0.6, 0.9, 0.98]).min(1.0)),
        Metric::SmActivity => reading.sm_activity = Some(between([0.5, 0.8, 0.95]).min(1.0)),
        Metric::Clock => reading.clock_mhz = Some(between([1_500.0, 1_200.0, 1_050.0]) as u32),
        Metric::Memory => reading.memory_used = Some(between([0.5, 0.92, 0.97]).min(1.0)),
        Metric::Temperature => reading.temperature_c = Some(between([60.0, 82.0, 87.0])),
        Metric::Power => {
            // Only with a low clock, and there is no second bound.
            reading.clock_mhz = Some(1_340);
            reading.power_w = Some(between([50.0, 70.0, 75.0]));
        }
    }
    reading
}

struct Rig {
    probe: Probe,
    now_ns: u64,
    changes: Vec<(u64, ProbeState, ProbeState)>,
    evictions: usize,
}

impl Rig {
    fn new(params: ProbeParams) -> Self {
        Self {
            probe: Probe::new(SECOND_NS, params),
            now_ns: SECOND_NS,
            changes: Vec::new(),
            evictions: 0,
        }
    }

    fn say(&mut self, reading: DeviceReading) {
        self.now_ns += SECOND_NS;
        let outcome = self.probe.handle_reading(self.now_ns, reading, None);
        self.evictions += usize::from(outcome.evicts);
        if let Some((from, _)) = outcome.changed {
            let to = self.probe.state();
            self.changes.push((self.now_ns / SECOND_NS, from, to));
        }
    }

    fn say_for(&mut self, seconds: u64, reading: DeviceReading) {
        (0..seconds).for_each(|_| self.say(reading));
    }

    fn seconds_until(&mut self, state: ProbeState, reading: DeviceReading) -> u64 {
        let begun_ns = self.now_ns;
        while self.probe.state() != state {
            self.say(reading);
            assert!(
                self.now_ns < begun_ns + 20_000 * SECOND_NS,
                "never {state:?}"
            );
        }
        (self.now_ns - begun_ns) / SECOND_NS
    }
}

#[test]
fn each_metric_by_itself_makes_it_unhealthy_and_all_but_power_overlimit() {
    for metric in Metric::ALL {
        let mut rig = Rig::new(all_six());
        rig.say_for(5, well());
        assert_eq!(rig.probe.state(), ProbeState::Healthy);
        rig.say_for(60, bad(metric, 0.9));
        assert_eq!(rig.probe.state(), ProbeState::Healthy, "{metric:?}");
        let patience = if metric == Metric::Memory { 1 } else { 3 };
        let took = rig.seconds_until(ProbeState::Unhealthy, bad(metric, 1.1));
        assert_eq!(took, patience, "{metric:?}");
        assert_eq!(rig.probe.view(rig.now_ns).metric, Some(metric));
        assert_eq!(rig.evictions, 0);
        rig.say_for(60, bad(metric, 2.01));
        let (expected, evictions) = match metric {
            Metric::Power => (ProbeState::Unhealthy, 0),
            _ => (ProbeState::Overlimit, 1),
        };
        assert_eq!(rig.probe.state(), expected, "{metric:?}");
        assert_eq!(rig.evictions, evictions, "{metric:?}");
    }
}

#[test]
fn what_is_no_trouble_is_none() {
    let mut rig = Rig::new(all_six());
    rig.say_for(5, well());
    // An idle device clocks down, and one at its power limit has its full clock.
    let idle = DeviceReading {
        busy: Some(0.0),
        clock_mhz: Some(300),
        ..well()
    };
    rig.say_for(100, idle);
    let at_limit = DeviceReading {
        power_w: Some(71.0),
        ..well()
    };
    rig.say_for(100, at_limit);
    let mut default = Rig::new(ProbeParams::default());
    let full = DeviceReading {
        busy: Some(1.0),
        sm_activity: Some(1.0),
        ..well()
    };
    default.say_for(100, full);
    for rig in [rig, default] {
        assert_eq!(rig.probe.state(), ProbeState::Healthy);
        assert_eq!(rig.changes.len(), 1, "{:?}", rig.changes);
    }
}

#[test]
fn the_way_back_takes_longer_each_time_and_leads_over_unhealthy() {
    let mut rig = Rig::new(all_six());
    let hot = bad(Metric::Temperature, 2.5);
    for hold_s in [30, 60, 120, 240, 480, 960, 1_920] {
        rig.seconds_until(ProbeState::Overlimit, hot);
        let until_ns = rig.probe.view(rig.now_ns).until_ns.unwrap();
        assert_eq!(until_ns - rig.now_ns, hold_s * SECOND_NS);
        // One sample above restarts it.
        rig.say_for(hold_s - 1, well());
        rig.say(hot);
        assert_eq!(rig.seconds_until(ProbeState::Unhealthy, well()), hold_s);
    }
    assert_eq!(rig.evictions, 7, "once each time");
    assert_eq!(rig.seconds_until(ProbeState::Healthy, well()), 60);
    // Two hours later it is forgotten.
    rig.say_for(7_200, well());
    rig.seconds_until(ProbeState::Overlimit, hot);
    assert_eq!(rig.probe.view(rig.now_ns).entries, 1);
    assert_eq!(rig.seconds_until(ProbeState::Unhealthy, well()), 30);
}

#[test]
fn no_back_off_is_longer_than_two_hours() {
    let entered_ns = (0..40).map(|n| n * SECOND_NS).collect();
    let kept = KeptProbe {
        state: ProbeState::Overlimit,
        metric: None,
        entered_ns,
        clock_mhz: None,
    };
    let probe = Probe::restore(5 * SECOND_NS, all_six(), &kept);
    let view = probe.view(5 * SECOND_NS);
    assert_eq!(view.until_ns, Some((5 + 7_200) * SECOND_NS));
    assert_eq!(view.entries, 40);
}

#[test]
fn memory_that_fills_anew_evicts_anew_and_heat_does_not() {
    for (metric, evictions) in [(Metric::Memory, 3), (Metric::Temperature, 1)] {
        let mut rig = Rig::new(all_six());
        rig.seconds_until(ProbeState::Overlimit, bad(metric, 2.1));
        // Once a minute at most, however often it passes the bound.
        for _ in 0..59 {
            rig.say(well());
            rig.say(bad(metric, 2.1));
        }
        rig.say_for(25, bad(metric, 1.5));
        rig.say_for(5, bad(metric, 2.1));
        assert_eq!(rig.evictions, evictions, "{metric:?}");
        assert_eq!(rig.probe.view(rig.now_ns).entries, 1);
    }
}

#[test]
fn a_daemon_that_is_killed_in_overlimit_leaves_the_back_off_to_the_next() {
    let mut rig = Rig::new(all_six());
    let full = bad(Metric::Memory, 2.1);
    rig.seconds_until(ProbeState::Overlimit, full);
    rig.seconds_until(ProbeState::Unhealthy, well());
    rig.seconds_until(ProbeState::Overlimit, full);
    rig.say_for(50, well());
    let kept = rig.probe.kept(rig.now_ns);
    // The next one's clock is younger than the first entry.
    let mut next = Rig::new(all_six());
    next.probe = Probe::restore(next.now_ns, all_six(), &kept);
    assert_eq!(next.probe.kept(next.now_ns), kept);
    let view = next.probe.view(next.now_ns);
    assert_eq!((view.state, view.entries), (ProbeState::Overlimit, 2));
    // Without its memory the cause is unknown.
    let blind = DeviceReading {
        memory_used: None,
        ..well()
    };
    // Jobs that could not be ended any more are, once they are clients again.
    next.say_for(4, blind);
    assert_eq!(next.evictions, 0);
    next.say_for(500, blind);
    assert_eq!(next.evictions, 1);
    assert_eq!(next.probe.state(), ProbeState::Overlimit);
    // The 50 s before do not count: they are unobserved, and so is the first sample's time.
    assert_eq!(next.seconds_until(ProbeState::Unhealthy, well()), 61);
    assert_eq!(next.seconds_until(ProbeState::Healthy, well()), 60);
}

#[test]
fn a_lost_device_is_disabled_and_comes_back_as_unhealthy() {
    let mut rig = Rig::new(all_six());
    rig.say_for(5, well());
    let lost = DeviceReading {
        is_lost: true,
        ..DeviceReading::default()
    };
    rig.say_for(2, lost);
    assert_eq!(rig.probe.state(), ProbeState::Disabled);
    rig.say_for(100, DeviceReading::default());
    assert_eq!(rig.probe.state(), ProbeState::Disabled);
    rig.say(well());
    assert_eq!(rig.probe.state(), ProbeState::Unhealthy);
    assert_eq!(rig.seconds_until(ProbeState::Healthy, well()), 60);
    assert_eq!(rig.evictions, 0);
    // A probe that was Overlimit is so again, without a new entry.
    rig.seconds_until(ProbeState::Overlimit, bad(Metric::Memory, 2.1));
    rig.say_for(20, well());
    rig.say(lost);
    assert_eq!(rig.probe.kept(rig.now_ns).state, ProbeState::Overlimit);
    rig.say(well());
    let view = rig.probe.view(rig.now_ns);
    assert_eq!((view.state, view.entries), (ProbeState::Overlimit, 1));
    assert_eq!(rig.seconds_until(ProbeState::Unhealthy, well()), 30);
}

#[test]
fn a_probe_says_when_it_is_blind() {
    let mut rig = Rig::new(all_six());
    rig.say_for(9, DeviceReading::default());
    assert!(!rig.probe.view(rig.now_ns).blind);
    rig.say_for(1, DeviceReading::default());
    assert!(rig.probe.view(rig.now_ns).blind);
    assert_eq!(rig.probe.state(), ProbeState::Init);
    let some = DeviceReading {
        sm_activity: None,
        slowdown_c: None,
        ..well()
    };
    rig.say_for(1, some);
    let view = rig.probe.view(rig.now_ns);
    assert!(!view.blind && view.state == ProbeState::Healthy);
    assert_eq!(view.metrics.len(), 6);
    let unknown = view.metrics.iter().filter(|metric| metric.value.is_none());
    let unknown: Vec<Metric> = unknown.map(|metric| metric.metric).collect();
    assert_eq!(unknown, [Metric::SmActivity, Metric::Temperature]);
}

#[test]
fn other_bounds_count_from_then_on() {
    let mut rig = Rig::new(all_six());
    let warm = bad(Metric::Temperature, 1.5);
    rig.seconds_until(ProbeState::Unhealthy, warm);
    let mut params = all_six();
    params.bounds[Metric::Temperature as usize] = Bound::At(100.0, None);
    rig.probe.set_params(params);
    let silent = DeviceReading {
        temperature_c: None,
        ..well()
    };
    rig.say_for(100, silent);
    assert_eq!(rig.probe.state(), ProbeState::Unhealthy);
    // The gap counts as unknown time.
    assert_eq!(rig.seconds_until(ProbeState::Healthy, warm), 61);
    params.bounds[Metric::Temperature as usize] = Bound::Off;
    rig.probe.set_params(params);
    rig.say_for(100, bad(Metric::Temperature, 3.0));
    assert_eq!(rig.probe.state(), ProbeState::Healthy);
}

#[test]
fn a_clock_that_was_learnt_outlives_its_throttle_and_its_daemon() {
    let mut params = all_six();
    params.clock_mhz = None;
    let mut probe = Probe::new(0, params);
    let now_ns = std::cell::Cell::new(0);
    let say = |probe: &mut Probe, reading, alone_mhz| {
        now_ns.set(now_ns.get() + SECOND_NS);
        probe.handle_reading(now_ns.get(), reading, alone_mhz);
        probe.state()
    };
    let slow = bad(Metric::Clock, 1.5);
    assert_eq!(
        say(&mut probe, slow, None),
        ProbeState::Healthy,
        "of nothing"
    );
    (0..3).for_each(|_| _ = say(&mut probe, slow, Some(1_500)));
    assert_eq!(say(&mut probe, slow, None), ProbeState::Unhealthy);
    let kept = probe.kept(now_ns.get());
    assert_eq!(kept.clock_mhz, Some(1_500));
    let mut next = Probe::restore(now_ns.get(), params, &kept);
    (0..100).for_each(|_| _ = say(&mut next, slow, None));
    assert_eq!(next.state(), ProbeState::Unhealthy);
    (0..62).for_each(|_| _ = say(&mut next, well(), None));
    assert_eq!(next.state(), ProbeState::Healthy);
}

fn metric() -> impl Strategy<Value = Metric> {
    (0..Metric::ALL.len()).prop_map(|place| Metric::ALL[place])
}

fn said() -> impl Strategy<Value = DeviceReading> {
    let of = (metric(), 0.0..2.5_f64).prop_map(|(metric, badness)| bad(metric, badness));
    prop_oneof![
        6 => of,
        2 => Just(well()),
        1 => Just(DeviceReading::default()),
        1 => Just(DeviceReading { memory_used: None, temperature_c: None, ..well() }),
        1 => Just(DeviceReading { is_lost: true, ..DeviceReading::default() }),
    ]
}

fn runs() -> impl Strategy<Value = Vec<(DeviceReading, u64)>> {
    prop::collection::vec((said(), prop_oneof![Just(1), 1..150_u64]), 1..60)
}

proptest! {
    /// Noise, however wide, at a metric's first bound.
    #[test]
    fn noise_at_a_bound_changes_the_state_once_a_minute_at_most(
        metric in metric(),
        samples in prop::collection::vec(-1.0..1.0_f64, 1_000),
        width in prop_oneof![Just(0.01), Just(0.1), Just(0.9)],
    ) {
        let mut rig = Rig::new(all_six());
        rig.say_for(2, well());
        rig.changes.clear();
        for noise in samples {
            rig.say(bad(metric, 1.0 + noise * width));
        }
        let gaps = rig.changes.windows(2).map(|pair| pair[1].0 - pair[0].0);
        prop_assert!(gaps.min().is_none_or(|least| least >= 60), "{:?}", rig.changes);
        prop_assert!(!rig.changes.is_empty());
    }

    #[test]
    fn noise_at_the_second_bound_makes_it_overlimit_once(
        metric in metric(),
        samples in prop::collection::vec(-1.0..1.0_f64, 1_000),
        width in prop_oneof![Just(0.01), Just(0.1)],
    ) {
        let metric = match metric { Metric::Power => Metric::Clock, other => other };
        let mut rig = Rig::new(all_six());
        for noise in samples {
            rig.say(bad(metric, 2.0 + noise * width));
        }
        let entries = rig.changes.iter().filter(|(.., to)| *to == ProbeState::Overlimit);
        prop_assert_eq!(entries.count(), 1);
        prop_assert_eq!(rig.probe.state(), ProbeState::Overlimit);
    }

    #[test]
    fn no_path_from_overlimit_to_healthy_skips_unhealthy(
        runs in runs(),
        restarts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let mut rig = Rig::new(all_six());
        for ((reading, seconds), is_restart) in runs.into_iter().zip(restarts) {
            rig.say_for(seconds, reading);
            if is_restart {
                let kept = rig.probe.kept(rig.now_ns);
                rig.probe = Probe::restore(rig.now_ns, all_six(), &kept);
            }
        }
        let mut is_owed = false;
        for (_, from, to) in &rig.changes {
            prop_assert_ne!(from, to);
            match to {
                ProbeState::Overlimit => is_owed = true,
                ProbeState::Unhealthy => is_owed = false,
                ProbeState::Healthy => prop_assert!(!is_owed, "{:?}", rig.changes),
                ProbeState::Init => prop_assert!(false, "{:?}", rig.changes),
                ProbeState::Disabled => {}
            }
        }
    }

    /// Whatever happened, a metric that is no longer known improves nothing.
    #[test]
    fn a_signal_that_goes_blind_never_loosens(runs in runs(), blind in 1..3_000_u64) {
        let mut rig = Rig::new(all_six());
        rig.say(well());
        runs.into_iter().for_each(|(reading, seconds)| rig.say_for(seconds, reading));
        for reading in [
            DeviceReading::default(),
            DeviceReading { memory_used: None, ..well() },
            DeviceReading { temperature_c: Some(f64::NAN), ..well() },
        ] {
            let before = rig.probe.state();
            rig.say_for(blind, reading);
            let after = rig.probe.state();
            let may_be = match before {
                ProbeState::Overlimit => after == ProbeState::Overlimit,
                ProbeState::Unhealthy | ProbeState::Disabled => {
                    !matches!(after, ProbeState::Init | ProbeState::Healthy)
                }
                ProbeState::Init | ProbeState::Healthy => true,
            };
            prop_assert!(may_be, "{before:?} to {after:?}");
        }
    }

    /// Each entry waits its full time, whatever happens in it.
    #[test]
    fn no_way_out_of_overlimit_is_shorter_than_the_back_off(runs in runs()) {
        let mut rig = Rig::new(all_six());
        let mut entered: Vec<u64> = Vec::new();
        let mut is_owed = false;
        for (reading, seconds) in runs {
            for _ in 0..seconds {
                let known = rig.changes.len();
                rig.say(reading);
                let Some(&(at, from, to)) = rig.changes.get(known) else { continue };
                if (from, to) == (ProbeState::Overlimit, ProbeState::Unhealthy) {
                    let last = *entered.last().unwrap();
                    let recent = entered.iter().filter(|&&entry| last - entry < 7_200);
                    let hold = 30_u64 << (recent.count() - 1);
                    prop_assert!(at - last >= hold.min(7_200), "{:?}", rig.changes);
                    is_owed = false;
                }
                if to == ProbeState::Overlimit && !std::mem::replace(&mut is_owed, true) {
                    entered.push(at);
                }
            }
        }
    }
}
