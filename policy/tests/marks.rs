//! Marks, goals and times as a client that lies may send them: whatever they are, the level, the bounds and the target are
//! numbers that can be meant.

use policy::slo::{GREATEST, LEAST};
use policy::{
    Class, ClassSet, Gate, Goal, HpView, JobId, JobView, Mark, PillionParams, Policy, Request,
    Sharing, Slo, Snapshot,
};
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Mark(u64, Mark),
    Goal(u64, Option<Goal>),
    Request(u64, Request),
    Look(u64, bool, bool),
    Detach(u64),
}

/// Times of a millisecond and less apart most often, and anywhere.
fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..50_000_000_u64,
        1 => any::<u64>(),
        1 => prop::sample::select(vec![0, 1, u64::MAX - 1, u64::MAX]),
    ]
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        1.0..3.0_f64,
        0.0..0.5_f64,
        any::<f64>(),
        prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE]),
    ]
}

fn any_goal() -> impl Strategy<Value = Goal> {
    let slo = prop_oneof![
        any_number().prop_map(Slo::Slowdown),
        any_number().prop_map(Slo::Throughput),
        any_time().prop_map(Slo::LatencyNs),
    ];
    (slo, any_number()).prop_map(|(slo, miss)| Goal { slo, miss })
}

fn any_mark() -> impl Strategy<Value = Mark> {
    let begin = (0..6_u64, 0..10_u32, any_time(), any_time());
    let begin = begin.prop_map(|(id, kind, arrived_ns, at_ns)| Mark::Begin {
        id,
        kind,
        arrived_ns,
        at_ns,
    });
    let end = (0..6_u64, any_time(), any::<bool>());
    let end = end.prop_map(|(id, at_ns, is_cancelled)| Mark::End {
        id,
        at_ns,
        is_cancelled,
    });
    let target = (
        0..10_u32,
        any_time(),
        prop_oneof![0..1_001_u32, any::<u32>()],
    );
    let target = target.prop_map(|(kind, ns, per_mille)| Mark::Target {
        kind,
        ns,
        per_mille,
    });
    prop_oneof![4 => begin, 4 => end, 1 => target]
}

fn any_event() -> impl Strategy<Value = Event> {
    let request = (any_time(), any_time(), 0..500_u64).prop_map(|(a, b, launches)| Request {
        began_ns: a.min(b),
        ended_ns: a.max(b),
        launches,
        work_ns: 0,
        unsure_ns: 0,
    });
    prop_oneof![
        20 => (0..3_u64, any_mark()).prop_map(|(id, mark)| Event::Mark(id, mark)),
        2 => (0..3_u64, prop::option::of(any_goal())).prop_map(|(id, goal)| Event::Goal(id, goal)),
        2 => (0..3_u64, request).prop_map(|(id, request)| Event::Request(id, request)),
        10 => (any_time(), any::<bool>(), any::<bool>()).prop_map(|(at, busy, be)| Event::Look(at, busy, be)),
        1 => (0..3_u64).prop_map(Event::Detach),
    ]
}

/// A gate that hears of events, and the last moment it was told of.
struct Heard {
    gate: Gate,
    now_ns: u64,
}

impl Heard {
    fn handle(&mut self, event: &Event) {
        match *event {
            Event::Mark(client, ref mark) => self.gate.handle_mark(client, mark),
            Event::Goal(client, goal) => self.gate.handle_goal(client, goal),
            Event::Request(client, ref request) => self.gate.handle_request(client, request),
            Event::Detach(client) => self.gate.handle_detach(client),
            Event::Look(after_ns, busy, is_in_flight) => {
                self.now_ns = self.now_ns.saturating_add(after_ns);
                self.look(busy, is_in_flight);
            }
        }
    }

    fn look(&mut self, busy: bool, is_in_flight: bool) {
        let executing = ClassSet::from(Class::Compute);
        let be = [JobView {
            id: JobId(1),
            charged_total_ns: u64::from(is_in_flight) * 1_000,
            completed_total_ns: 0,
            drained: !is_in_flight,
            waiting: true,
        }];
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp: HpView {
                busy,
                executing: if busy { executing } else { ClassSet::EMPTY },
                ..HpView::IDLE
            },
            be: &be,
        };
        self.gate.handle_jobs(self.now_ns, &be);
        self.gate.handle_snapshot(&snapshot);
        let _ = self.gate.gate(&snapshot, 0);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let bounds = self.gate.bounds().expect("it is pillion");
        // One more than a bound is what a gate counts up to.
        prop_assert!(bounds.idle_ns < u64::MAX && bounds.beside_ns < u64::MAX);
        for client in 0..3 {
            let Some(view) = self.gate.slo_view(client) else {
                continue;
            };
            prop_assert!((LEAST..=GREATEST).contains(&view.level), "{view:?}");
            prop_assert!(view.goal.validate().is_ok(), "{view:?}");
            prop_assert!(view.misses <= view.requests && view.misses_at_floor <= view.misses);
        }
        Ok(())
    }
}

/// A client whose requests are known: 10 ms alone, every 40 ms.
fn known(gate: &mut Gate) -> u64 {
    let mut now_ns = 0;
    for id in 0..200_u64 {
        now_ns = (id + 1) * 40_000_000;
        let at_ns = now_ns;
        gate.handle_mark(
            0,
            &Mark::Begin {
                id,
                kind: 0,
                arrived_ns: at_ns,
                at_ns,
            },
        );
        gate.handle_mark(
            0,
            &Mark::End {
                id,
                at_ns: at_ns + 10_000_000,
                is_cancelled: false,
            },
        );
        now_ns += 10_000_000;
    }
    now_ns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_that_is_no_number_reaches_the_level_the_bounds_or_the_target(
        configured in any_goal(),
        is_known in any::<bool>(),
        events in prop::collection::vec(any_event(), 1..300),
    ) {
        let params = PillionParams {
            slo: configured.slo,
            miss: configured.miss,
            ..PillionParams::default()
        };
        let policy = Policy::Pillion(params);
        // One that cannot be meant is refused before there is a gate.
        let policy = match policy.validate() {
            Ok(()) => policy,
            Err(_) => Policy::Pillion(PillionParams::default()),
        };
        let mut heard = Heard { gate: Gate::new(policy), now_ns: 0 };
        if is_known {
            heard.now_ns = known(&mut heard.gate);
        }
        for event in &events {
            heard.handle(event);
            heard.check()?;
        }
    }
}

/// Sixteen requests of 10 ms of each client, with nothing beside them.
fn inferred(gate: &mut Gate, clients: &[u64]) {
    for n in 1..=16_u64 {
        for &client in clients {
            let request = Request {
                began_ns: n * 100_000_000,
                ended_ns: n * 100_000_000 + 10_000_000,
                launches: 100,
                work_ns: 0,
                unsure_ns: 0,
            };
            gate.handle_request(client, &request);
        }
    }
}

#[test]
fn a_goal_of_a_clients_own_holds_in_the_place_of_the_configured() {
    let mut gate = Gate::new(Policy::Pillion(PillionParams::default()));
    inferred(&mut gate, &[0]);
    let goal = |times| {
        Some(Goal {
            slo: Slo::Slowdown(times),
            miss: 0.01,
        })
    };
    let slack_us = |gate: &Gate| gate.slack_ns().map(|ns| ns / 1_000);
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(0, goal(1.5));
    assert_eq!(slack_us(&gate), Some(5_000));
    // What cannot be meant, or none: the configured.
    gate.handle_goal(0, goal(f64::NAN));
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(0, goal(1.5));
    gate.handle_goal(0, None);
    assert_eq!(slack_us(&gate), Some(500));
    // Of two clients that which can afford less.
    gate.handle_goal(0, goal(1.5));
    inferred(&mut gate, &[1]);
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(1, goal(2.0));
    assert_eq!(slack_us(&gate), Some(5_000));
    // It has gone: another of that number would have the configured.
    gate.handle_detach(1);
    gate.handle_detach(0);
    inferred(&mut gate, &[0]);
    assert_eq!(slack_us(&gate), Some(500));
}

#[test]
fn a_marked_clients_view_has_its_own_goal_and_a_job_that_trains_has_none() {
    let mut gate = Gate::new(Policy::Pillion(PillionParams::default()));
    let own = Goal {
        slo: Slo::Slowdown(2.0),
        miss: 0.05,
    };
    gate.handle_goal(0, Some(own));
    known(&mut gate);
    let view = gate.slo_view(0).expect("it marks its requests");
    assert_eq!(
        (view.goal, view.target_ns, view.measured_ns),
        (own, Some(20_000_000), Some(10_000_000))
    );
    let rate = Goal {
        slo: Slo::Throughput(0.9),
        ..own
    };
    gate.handle_goal(0, Some(rate));
    known(&mut gate);
    assert_eq!(gate.slo_view(0), None);
}
