//! Marks, goals and times from a lying client: level, bounds and target always stay valid.

use policy::slo::{GREATEST, LEAST};
use policy::{
    Class, ClassSet, Gate, Goal, HpView, JobId, JobView, Kept, KeptKind, Kernel, Limit, Mark,
    PillionParams, Policy, Request, Sharing, Slo, Snapshot, admits,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Mark(u64, Mark),
    Goal(u64, Option<Goal>),
    Request(u64, Request),
    Look(u64, bool, bool),
    Detach(u64),
}

/// Times mostly a millisecond or less apart, and arbitrary ones.
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

    fn know(&mut self, client: u64) {
        for id in 0..200_u64 {
            self.now_ns += 30_000_000;
            let at_ns = self.now_ns;
            let begin = Mark::Begin {
                id,
                kind: 0,
                arrived_ns: at_ns,
                at_ns,
            };
            self.gate.handle_jobs(at_ns, &[]);
            self.gate.handle_mark(client, &begin);
            self.look(true, false);
            self.now_ns += 10_000_000;
            let end = Mark::End {
                id,
                at_ns: self.now_ns,
                is_cancelled: false,
            };
            self.gate.handle_jobs(self.now_ns, &[]);
            self.gate.handle_mark(client, &end);
            self.look(false, false);
        }
    }

    /// A request ends, 40 ms after the last of any, after `took_ns` beside best-effort work.
    fn request(&mut self, client: u64, id: u64, took_ns: u64) {
        self.now_ns += 40_000_000;
        let at_ns = self.now_ns;
        let began_ns = at_ns - took_ns;
        let begin = Mark::Begin {
            id,
            kind: 0,
            arrived_ns: began_ns,
            at_ns: began_ns,
        };
        self.gate.handle_mark(client, &begin);
        self.look(true, true);
        let end = Mark::End {
            id,
            at_ns,
            is_cancelled: false,
        };
        self.gate.handle_mark(client, &end);
    }

    fn level(&self, client: u64) -> f64 {
        self.gate
            .slo_view(client)
            .map_or(f64::NAN, |view| view.level)
    }

    fn limit(&mut self) -> Limit {
        self.look(false, false);
        let be = [JobView {
            waiting: true,
            drained: true,
            id: JobId(1),
            charged_total_ns: 0,
            completed_total_ns: 0,
        }];
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            sharing: Sharing::Mps,
            sms: 80,
            epoch: 7,
            hp: HpView::IDLE,
            be: &be,
        };
        self.gate.gate_with_limit(&snapshot, 0).1
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
        self.check_lease(&snapshot);
    }

    /// Lease and law agree, and a busy HP widens nothing.
    fn check_lease(&self, snapshot: &Snapshot<'_>) {
        let lease = self.gate.gate(snapshot, 0);
        let edges = [-1, 0, 1].map(|d| lease.budget_ns.saturating_add_signed(d));
        for spent_ns in edges {
            for (class, expected_ns) in [(Class::Compute, 0), (Class::Memory, 100_000)] {
                let kernel = Kernel {
                    class,
                    sm_needed: 40,
                    expected_ns,
                };
                assert_eq!(
                    admits(&lease, spent_ns, &kernel),
                    self.gate.eligible(snapshot, 0, spent_ns, &kernel),
                    "{lease:?} {spent_ns} {kernel:?}"
                );
            }
        }
        let busy = HpView {
            busy: true,
            executing: ClassSet::from(Class::Compute),
            ..HpView::IDLE
        };
        let of = |hp| self.gate.gate(&Snapshot { hp, ..*snapshot }, 0).budget_ns;
        assert!(of(busy) <= of(HpView::IDLE));
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let bounds = self.gate.ceiling().expect("it is pillion");
        // A gate counts up to one more than a bound.
        prop_assert!(bounds.idle_ns < u64::MAX && bounds.beside_ns <= bounds.idle_ns);
        let Policy::Pillion(params) = self.gate.policy() else {
            return Ok(());
        };
        prop_assert!(params.beside || bounds.beside_ns == 0);
        prop_assert!(params.kernel_pairs || !bounds.pairs);
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

/// A client with known requests: 10 ms solo, every 40 ms, in polls that saw no best-effort work.
fn known(gate: &mut Gate) -> u64 {
    let mut heard = Heard {
        gate: std::mem::replace(gate, Gate::new(Policy::None)),
        now_ns: 0,
    };
    heard.know(0);
    *gate = heard.gate;
    heard.now_ns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_that_is_no_number_reaches_the_level_the_bounds_or_the_target(
        configured in any_goal(),
        switches in any::<[bool; 4]>(),
        is_known in any::<bool>(),
        events in prop::collection::vec(any_event(), 1..300),
    ) {
        let [block_priority, beside, kernel_pairs, feedback] = switches;
        let params = PillionParams {
            slo: Some(configured.slo),
            miss: configured.miss,
            block_priority,
            beside,
            kernel_pairs,
            feedback,
            ..PillionParams::default()
        };
        let policy = Policy::Pillion(params);
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
    gate.handle_goal(0, goal(f64::NAN));
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(0, goal(1.5));
    gate.handle_goal(0, None);
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(0, goal(1.5));
    inferred(&mut gate, &[1]);
    assert_eq!(slack_us(&gate), Some(500));
    gate.handle_goal(1, goal(2.0));
    assert_eq!(slack_us(&gate), Some(5_000));
    // It has detached: another client of that number would have the configured goal.
    gate.handle_detach(1);
    gate.handle_detach(0);
    inferred(&mut gate, &[0]);
    assert_eq!(slack_us(&gate), Some(500));
}

#[test]
fn a_marked_clients_view_has_its_own_goal_and_of_a_job_that_trains_its_mean() {
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
    let view = gate.slo_view(0).expect("it marks its iterations");
    // 10 ms solo; nine tenths of the rate are 11.1 ms.
    assert_eq!((view.goal, view.target_ns), (rate, Some(11_111_111)));
    assert_eq!(view.measured_ns, Some(10_000_000));
}

#[test]
fn what_was_inferred_of_a_client_no_longer_counts_once_it_marks() {
    let mut gate = Gate::new(Policy::Pillion(PillionParams::default()));
    inferred(&mut gate, &[0]);
    assert_eq!(gate.solo_ns(), Some(10_000_000));
    known(&mut gate);
    assert_eq!(gate.solo_ns(), None);
    inferred(&mut gate, &[0]);
    assert_eq!(gate.solo_ns(), None);
}

#[test]
fn without_feedback_marks_move_no_level_and_a_silent_client_wants_no_kernel_whole() {
    let mut gate = Gate::new(Policy::Pillion(PillionParams {
        feedback: false,
        ..PillionParams::default()
    }));
    known(&mut gate);
    let view = gate.slo_view(0).expect("it marks its requests");
    assert_eq!((view.level, view.requests), (0.0, 0));
    let mut hurt = Gate::new(Policy::Pillion(PillionParams {
        block_priority: false,
        ..PillionParams::default()
    }));
    let mut heard = Heard {
        now_ns: known(&mut hurt),
        gate: hurt,
    };
    for id in 0..40 {
        heard.request(0, 1_000 + id, 25_000_000);
    }
    assert!(heard.level(0) < 0.0);
    heard.now_ns += 500_000_000;
    heard.look(false, false);
    assert!(heard.gate.ceiling().is_some_and(|bounds| bounds.whole));
    heard.now_ns += 1_000_000_000;
    heard.look(false, false);
    assert!(heard.gate.ceiling().is_some_and(|bounds| !bounds.whole));
}

fn double() -> Gate {
    Gate::new(Policy::Pillion(PillionParams {
        slo: Some(Slo::Slowdown(2.0)),
        ..PillionParams::default()
    }))
}

#[test]
fn below_minus_two_it_is_the_duty_that_limits_and_at_the_floor_the_pause_until_the_client_is_silent()
 {
    let mut gate = double();
    let now_ns = known(&mut gate);
    let mut heard = Heard { gate, now_ns };
    heard.now_ns += 25_000_000;
    let mut id = 1_000;
    let mut limits = |heard: &mut Heard, level: f64| {
        while heard.level(0) > level {
            heard.request(0, id, 25_000_000);
            id += 1;
        }
        // In each part of a period.
        let mut met = Vec::new();
        for _ in 0..10 {
            heard.now_ns += 2_000_000;
            let limit = heard.limit();
            if !met.contains(&limit) {
                met.push(limit);
            }
        }
        met
    };
    assert_eq!(limits(&mut heard, -1.5), [Limit::Budget]);
    let mut some = limits(&mut heard, -4.0);
    some.sort_by_key(|limit| limit.name());
    assert_eq!(some, [Limit::Budget, Limit::Duty]);
    assert_eq!(limits(&mut heard, -5.95), [Limit::Paused]);
    heard.now_ns += 1_000_000_000;
    assert_eq!(heard.limit(), Limit::Budget);
}

#[test]
fn a_law_stands_where_it_stood_after_a_minute_in_which_another_was_in_force() {
    // Requests of client 1 are in time for a minute, beside client 0 with late ones, or none.
    let after_a_minute = |is_another: bool| {
        let mut gate = double();
        let mut heard = Heard {
            now_ns: known(&mut gate),
            gate,
        };
        heard.gate.handle_detach(0);
        heard.know(1);
        while heard.level(1) > -1.0 {
            heard.request(1, 1, 25_000_000);
        }
        if is_another {
            heard.know(0);
            while heard.level(0) > -5.95 {
                heard.request(0, 1, 25_000_000);
            }
        }
        let before = heard.level(1);
        for id in 0..1_200 {
            if is_another {
                heard.request(0, id, 25_000_000);
            }
            heard.request(1, id, 10_000_000);
            heard.look(false, false);
        }
        heard.gate.handle_detach(0);
        heard.now_ns += 50_000_000;
        heard.look(false, false);
        (before, heard.level(1))
    };
    let (before, after) = after_a_minute(false);
    assert!(after > before + 1.0, "{before} {after}");
    let (before, after) = after_a_minute(true);
    // While the other's is over a second old: one period of the law.
    assert!(after < before + 0.1, "{before} {after}");
}

#[test]
fn by_default_marked_requests_have_two_per_cent_of_their_p99_and_inferred_ones_five_of_what_they_take()
 {
    let mut gate = Gate::new(Policy::Pillion(PillionParams::default()));
    inferred(&mut gate, &[0]);
    assert_eq!(gate.slack_ns(), Some(500_000));
    known(&mut gate);
    let view = gate.slo_view(0).expect("it marks its requests");
    assert_eq!(view.target_ns, Some(10_200_000));
    // The configured goal holds for both.
    let mut gate = double();
    inferred(&mut gate, &[0]);
    assert_eq!(gate.slack_ns(), Some(10_000_000));
    known(&mut gate);
    let view = gate.slo_view(0).expect("it marks its requests");
    assert_eq!(view.target_ns, Some(20_000_000));
}

fn any_kept() -> impl Strategy<Value = Kept> {
    let times = || prop::collection::vec(any_time(), 0..300);
    let kind = (any::<u32>(), times(), times());
    let kind = kind.prop_map(|(number, services_ns, latencies_ns)| KeptKind {
        number,
        services_ns,
        latencies_ns,
    });
    let level = prop_oneof![-7.0..2.0_f64, any_number()];
    (level, any::<bool>(), prop::collection::vec(kind, 0..12)).prop_map(
        |(level, has_missed, kinds)| Kept {
            level,
            has_missed,
            kinds,
        },
    )
}

proptest! {
    #[test]
    fn what_a_damaged_file_says_was_learnt_is_no_more_than_can_be(
        kept in any_kept(),
        events in prop::collection::vec(any_event(), 0..100),
    ) {
        let mut heard = Heard { gate: double(), now_ns: 0 };
        heard.gate.restore(0, &kept);
        heard.check()?;
        for event in &events {
            heard.handle(event);
            heard.check()?;
        }
        let known = heard.gate.kept(0);
        prop_assert!(known.is_none_or(|known| known.kinds.len() <= 8));
    }
}

#[test]
fn what_was_learnt_of_a_client_holds_under_the_next_gate_from_its_first_request_on() {
    let mut before = Heard {
        now_ns: 0,
        gate: double(),
    };
    before.know(0);
    while before.level(0) > -3.0 {
        before.request(0, 1, 25_000_000);
    }
    let mut kept = before.gate.kept(0).expect("it is known");
    kept.shorten();
    let mut after = Heard {
        now_ns: before.now_ns,
        gate: double(),
    };
    assert_eq!(after.gate.kept(0), None);
    after.gate.restore(0, &kept);
    let view = |heard: &Heard| heard.gate.slo_view(0).expect("it marks its requests");
    assert_eq!(view(&after).level, view(&before).level);
    assert_eq!(view(&after).target_ns, view(&before).target_ns);
    assert_eq!((view(&after).requests, view(&after).misses), (0, 0));
    // One was late before, so the level rises by one step and not by ten.
    after.request(0, 1, 10_000_000);
    let rise = view(&after).level - view(&before).level;
    assert!((rise - 0.001).abs() < 1e-9, "{rise}");
    // Short lists are kept whole, and long ones keep their quantiles.
    let mut long = Kept {
        kinds: vec![KeptKind {
            latencies_ns: (1..=2_048).rev().collect(),
            ..KeptKind::default()
        }],
        ..Kept::default()
    };
    long.shorten();
    let latencies_ns = &long.kinds[0].latencies_ns;
    assert_eq!(latencies_ns.len(), 256);
    assert!(latencies_ns[253].abs_diff(2_028) <= 8, "{latencies_ns:?}");
}
