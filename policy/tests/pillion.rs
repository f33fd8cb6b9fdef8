//! `pillion` through the door of a gate: its bounds and what moves them, with the arithmetic worked out,
//! and what holds whatever happens.

use proptest::prelude::*;

use policy::{
    Bounds, Class, ClassSet, Gate, HpView, JobId, JobView, Kernel, Lease, PillionParams, Policy,
    Request, Sharing, Slo, Snapshot, admits,
};

const COMPUTE: ClassSet = ClassSet::EMPTY.with(Class::Compute);
const IDLE: HpView = HpView::IDLE;
const BUSY: HpView = HpView {
    busy: true,
    executing: COMPUTE,
    ..HpView::IDLE
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A request alone; its slack at 1.05 times is 340 µs.
const SOLO_NS: u64 = 6_800 * US;
const SLACK_NS: u64 = 340 * US;

fn params() -> PillionParams {
    PillionParams {
        solo_ns: Some(SOLO_NS),
        // Requests here come as if by a clock.
        gap_prediction: false,
        // Nor does best-effort work complete.
        learnt_pace: false,
        ..PillionParams::default()
    }
}

fn gate(params: PillionParams) -> Gate {
    Gate::new(Policy::Pillion(params))
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

fn at(now_ns: u64, hp: HpView, be: &[JobView]) -> Snapshot<'_> {
    Snapshot {
        now_ns,
        sharing: Sharing::Mps,
        sms: 80,
        epoch: 7,
        hp,
        be,
    }
}

/// The lease of the first job after this snapshot.
fn lease(gate: &mut Gate, snapshot: &Snapshot<'_>) -> Lease {
    gate.handle_snapshot(snapshot);
    gate.gate(snapshot, 0)
}

/// A request from `began_ns` on, while the job is seen as `be` in its middle.
fn request(gate: &mut Gate, began_ns: u64, took_ns: u64, be: JobView) -> u64 {
    let ended_ns = began_ns + took_ns;
    gate.handle_snapshot(&at(began_ns.saturating_sub(50 * US), IDLE, &[be]));
    gate.handle_snapshot(&at(began_ns, BUSY, &[be]));
    gate.handle_snapshot(&at(ended_ns - 50 * US, BUSY, &[be]));
    let request = Request {
        began_ns,
        ended_ns,
        launches: 3,
    };
    gate.handle_request(1, &request);
    gate.handle_snapshot(&at(ended_ns, IDLE, &[be]));
    ended_ns
}

/// Requests that all took so long beside work in flight.
fn requests(gate: &mut Gate, count: u64, took_ns: u64) {
    for index in 1..=count {
        request(gate, index * 100 * MS, took_ns, job(1, 1_000, 0));
    }
}

fn kernel(class: Class, sm_needed: u32, expected_ns: u64) -> Kernel {
    Kernel {
        class,
        sm_needed,
        expected_ns,
    }
}

#[test]
fn the_bounds_are_one_slack_while_hp_is_idle_and_an_eighth_beside_it() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0)];
    let idle = lease(&mut gate, &at(MS, IDLE, &be));
    assert_eq!(idle.budget_ns, SLACK_NS + 1);
    assert!(!idle.whole && !idle.beside_hp && idle.classes == ClassSet::ALL);
    // 1 ms passes the 340 µs: it goes, a request waits for a wave of it only.
    assert!(admits(&idle, 0, &kernel(Class::Compute, 500, MS)));
    let beside = lease(&mut gate, &at(2 * MS, BUSY, &be));
    assert_eq!(beside.budget_ns, SLACK_NS / 8);
    assert!(beside.whole && beside.beside_hp);
    // 42.5 µs: a kernel of 42 goes, whatever it is, and one of 43 does not.
    assert!(admits(&beside, 0, &kernel(Class::Compute, 500, 42 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 1, 43 * US)));
}

#[test]
fn until_fifty_requests_were_seen_the_bounds_are_100_microseconds() {
    let mut gate = gate(PillionParams::default());
    let quiet = JobView {
        waiting: false,
        ..job(1, 0, 0)
    };
    for index in 1..=50 {
        assert_eq!(gate.solo_ns(), None);
        let unknown = HpView {
            learning: true,
            ..IDLE
        };
        let idle = lease(&mut gate, &at(index * 100 * MS - MS, unknown, &[quiet]));
        assert_eq!(idle.budget_ns, 100 * US + 1);
        request(&mut gate, index * 100 * MS, SOLO_NS + index, quiet);
    }
    // The 13th smallest of 50.
    assert_eq!(gate.solo_ns(), Some(SOLO_NS + 13));
    let idle = lease(&mut gate, &at(6_000 * MS, IDLE, &[quiet]));
    assert_eq!(idle.budget_ns, SLACK_NS + 1);
}

#[test]
fn beside_a_client_that_is_not_known_yet_the_bounds_are_what_suits_both() {
    let mut gate = gate(params());
    let unknown = |hp| HpView {
        learning: true,
        ..hp
    };
    let be = [job(1, 0, 0)];
    let learning = PillionParams {
        solo_ns: None,
        ..params()
    };
    let mut nobody = self::gate(learning);
    let beside = lease(&mut nobody, &at(MS, unknown(BUSY), &be));
    // An eighth of 100 µs, and it must suit.
    assert_eq!(beside.budget_ns, 100 * US / 8);
    assert!(!admits(&beside, 0, &kernel(Class::Compute, 1, US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 80, US)));
    assert!(admits(&beside, 0, &kernel(Class::Memory, 79, US)));
    // One client is known, its requests are hurt; another comes.
    let quiet = JobView {
        waiting: false,
        ..job(1, 9, 9)
    };
    let mut both = self::gate(learning);
    let mut now_ns = MS;
    for _ in 0..50 {
        now_ns = request(&mut both, now_ns + MS, SOLO_NS, quiet);
    }
    for _ in 0..40 {
        now_ns = request(&mut both, now_ns + MS, 2 * SOLO_NS, job(1, 9_000_000, 0));
    }
    let idle = lease(&mut both, &at(now_ns + MS, unknown(IDLE), &be));
    assert_eq!(idle.budget_ns, SLACK_NS / 16 + 1);
    // Nobody is left: nothing is remembered.
    both.handle_detach(1);
    both.handle_snapshot(&at(now_ns + 2 * MS, HpView::ABSENT, &be));
    assert_eq!((both.gain(), both.solo_ns()), (Some(1.0), None));
    // With a latency that was told there is nothing to learn.
    assert_eq!(
        lease(&mut gate, &at(MS, unknown(IDLE), &be)).budget_ns,
        SLACK_NS + 1
    );
}

#[test]
fn requests_that_differ_alone_may_differ_as_much_beside_best_effort_work() {
    let mut gate = gate(PillionParams {
        solo_ns: None,
        ..params()
    });
    let quiet = JobView {
        waiting: false,
        ..job(1, 9, 9)
    };
    // Alone 6.8 to 8.26 ms, 30 µs apart: the quartile is 7.16, nine of ten are below 8.15.
    let mut now_ns = MS;
    for index in 0..50 {
        now_ns = request(
            &mut gate,
            now_ns + MS,
            SOLO_NS + index % 50 * 30 * US,
            quiet,
        );
    }
    for index in 0..200 {
        let took_ns = SOLO_NS + index % 40 * 30 * US;
        now_ns = request(&mut gate, now_ns + MS, took_ns, job(1, 9_000_000, 0));
    }
    assert!(gate.gain() > Some(8.0), "{:?}", gate.gain());
}

#[test]
fn what_runs_at_the_least_gain_is_not_alone_if_more_than_the_least_is_in_flight() {
    let mut gate = gate(PillionParams {
        solo_ns: None,
        ..params()
    });
    let quiet = JobView {
        waiting: false,
        ..job(1, 9, 9)
    };
    let mut now_ns = MS;
    for _ in 0..50 {
        now_ns = request(&mut gate, now_ns + MS, SOLO_NS, quiet);
    }
    for _ in 0..200 {
        // Drained between two requests, and 10 ms in flight in each.
        now_ns = request(&mut gate, now_ns + MS, 2 * SOLO_NS, job(1, 10_000_000, 0));
        gate.handle_snapshot(&at(now_ns + 1, IDLE, &[quiet]));
    }
    assert_eq!((gate.gain(), gate.solo_ns()), (Some(0.0625), Some(SOLO_NS)));
}

#[test]
fn without_sliding_bounds_a_drain_begins_anew() {
    let mut gate = gate(PillionParams {
        sliding: false,
        ..params()
    });
    let budget_ns = |gate: &mut Gate, charged_us: u64, completed_us: u64| {
        let be = [job(1, charged_us * US, completed_us * US)];
        lease(gate, &at(MS, IDLE, &be)).budget_ns
    };
    assert_eq!(budget_ns(&mut gate, 0, 0), SLACK_NS + 1);
    assert_eq!(budget_ns(&mut gate, 300, 200), 40 * US + 1);
    assert_eq!(budget_ns(&mut gate, 300, 300), SLACK_NS + 1);
}

#[test]
fn requests_within_their_target_widen_the_bounds_and_beside_hp_last() {
    let mut gate = gate(params());
    requests(&mut gate, 70, SOLO_NS + SLACK_NS);
    let four = gate.bounds().expect("it is pillion");
    // 1.02^70 = 4.0: 4 slacks; beside HP still an eighth.
    assert!(
        four.idle_ns.abs_diff(4 * SLACK_NS) < SLACK_NS / 100,
        "{four:?}"
    );
    assert_eq!(four.beside_ns, SLACK_NS / 8);
    requests(&mut gate, 200, SOLO_NS);
    let most = gate.bounds().expect("it is pillion");
    assert_eq!(most.idle_ns, 16 * SLACK_NS);
    assert_eq!(most.beside_ns, 3 * SLACK_NS);
}

#[test]
fn requests_over_their_target_narrow_them_and_then_a_kernel_must_suit_and_fit() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0)];
    requests(&mut gate, 3, SOLO_NS + 2 * SLACK_NS);
    // 1.02^-24 = 0.62.
    let bounds = gate.bounds().expect("it is pillion");
    assert!(bounds.pairs && !bounds.whole && bounds.idle_ns < SLACK_NS * 63 / 100);
    let beside = lease(&mut gate, &at(MS, BUSY, &be));
    assert!(admits(&beside, 0, &kernel(Class::Memory, 79, 20 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 80, 20 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Compute, 79, 20 * US)));
    requests(&mut gate, 30, SOLO_NS + 2 * SLACK_NS);
    let idle = lease(&mut gate, &at(MS, IDLE, &be));
    assert_eq!(idle.budget_ns, SLACK_NS / 16 + 1);
    assert!(!idle.whole);
}

#[test]
fn work_that_is_held_for_hps_sake_gets_its_bounds_back_when_hp_is_well() {
    let mut gate = gate(params());
    requests(&mut gate, 50, SOLO_NS + 5 * SLACK_NS);
    assert_eq!(gate.gain(), Some(0.0625));
    // Nothing is in flight any more, because each kernel is longer than the bound; a thread waits.
    let mut now_ns = 10_000 * MS;
    for _ in 0..200 {
        now_ns = request(&mut gate, now_ns + MS, SOLO_NS, job(1, 9, 9));
    }
    // 1.02^200 ÷ 16 = 3.3.
    assert!(gate.gain() > Some(2.0), "{:?}", gate.gain());
}

#[test]
fn without_best_effort_work_nothing_is_concluded_from_a_request() {
    let mut gate = gate(params());
    let quiet = JobView {
        waiting: false,
        ..job(1, 9, 9)
    };
    for index in 1..=100 {
        request(&mut gate, index * 100 * MS, 10 * SOLO_NS, quiet);
    }
    assert_eq!(gate.gain(), Some(1.0));
}

#[test]
fn a_request_whose_ends_were_found_late_says_nothing() {
    let mut gate = gate(params());
    let be = [job(1, 1_000, 0)];
    let ended = |began_ns| Request {
        began_ns,
        ended_ns: began_ns + 3 * SOLO_NS,
        launches: 1,
    };
    // Its first launch was read a millisecond after the look before.
    gate.handle_snapshot(&at(MS, IDLE, &be));
    gate.handle_snapshot(&at(2 * MS, BUSY, &be));
    gate.handle_snapshot(&at(2 * MS + 3 * SOLO_NS - US, BUSY, &be));
    gate.handle_request(1, &ended(2 * MS));
    assert_eq!(gate.gain(), Some(1.0));
    // So was its last completion.
    gate.handle_snapshot(&at(100 * MS, IDLE, &be));
    gate.handle_snapshot(&at(100 * MS + US, BUSY, &be));
    gate.handle_request(1, &ended(100 * MS + US));
    assert_eq!(gate.gain(), Some(1.0));
    gate.handle_snapshot(&at(100 * MS + US + 3 * SOLO_NS - US, BUSY, &be));
    gate.handle_request(1, &ended(100 * MS + US));
    assert!(gate.gain() < Some(1.0));
}

#[test]
fn what_best_effort_work_does_to_requests_never_raises_their_latency_alone() {
    let mut gate = gate(PillionParams::default());
    let quiet = JobView {
        waiting: false,
        ..job(1, 9, 9)
    };
    let mut now_ns = 0;
    for _ in 0..50 {
        now_ns = request(&mut gate, now_ns + MS, SOLO_NS, quiet);
    }
    for _ in 0..5 {
        now_ns = request(
            &mut gate,
            now_ns + MS,
            2 * SOLO_NS,
            job(1, 1_000_000_000, 0),
        );
    }
    assert_eq!(gate.solo_ns(), Some(SOLO_NS));
    // Shorter ones are proof: a batch of half the size. Sixteen of the last 64 are a quartile.
    for _ in 0..17 {
        now_ns = request(
            &mut gate,
            now_ns + MS,
            SOLO_NS / 2,
            job(1, 1_000_000_000, 0),
        );
    }
    assert_eq!(gate.solo_ns(), Some(SOLO_NS / 2));
    gate.handle_detach(1);
    assert_eq!(gate.solo_ns(), None);
}

#[test]
fn without_block_priorities_a_kernel_must_fit_once_single_ones_hurt_and_without_mps_none_goes_beside()
 {
    let without = PillionParams {
        block_priority: false,
        ..params()
    };
    let be = [job(1, 0, 0)];
    let mut hurt = gate(without);
    assert!(!lease(&mut hurt, &at(MS, IDLE, &be)).whole);
    requests(&mut hurt, 20, SOLO_NS + 2 * SLACK_NS);
    let idle = lease(&mut hurt, &at(1_000 * MS, IDLE, &be));
    assert!(idle.whole && !admits(&idle, 0, &kernel(Class::Unknown, 1, MS)));
    assert!(admits(&idle, 0, &kernel(Class::Unknown, 1, SLACK_NS / 16)));
    let mut sliced = gate(params());
    let slices = Snapshot {
        sharing: Sharing::TimeSlice,
        ..at(1_000 * MS, IDLE, &be)
    };
    assert!(lease(&mut sliced, &slices).budget_ns > 0);
    let busy = Snapshot { hp: BUSY, ..slices };
    assert_eq!(lease(&mut sliced, &busy), Lease::closed(7, 1_005 * MS));
}

#[test]
fn periodic_pauses_let_more_go_in_their_beginning() {
    let mut gate = gate(PillionParams {
        gap_prediction: true,
        ..params()
    });
    let be = [job(1, 0, 0)];
    // 64 pauses of 50 ms: quiet for 45 ms, but 16 slacks, 5.44 ms, at most.
    for index in 0..=64 {
        gate.handle_snapshot(&at(index * 60 * MS, BUSY, &be));
        gate.handle_snapshot(&at(index * 60 * MS + 10 * MS, IDLE, &be));
    }
    let began_ns = 64 * 60 * MS + 10 * MS;
    for (after_ns, budget_ns) in [
        (0, 16 * SLACK_NS + 1),
        (40 * MS, 5 * MS + 1),
        (44 * MS, MS + 1),
        (45 * MS, SLACK_NS + 1),
    ] {
        let idle = lease(&mut gate, &at(began_ns + after_ns, IDLE, &be));
        assert_eq!(idle.budget_ns, budget_ns, "after {after_ns}");
    }
}

#[test]
fn work_counts_as_complete_when_it_is_expected_to_be_but_for_one_bound_at_most() {
    let mut gate = gate(params());
    let full = [job(1, SLACK_NS + 1, 0)];
    for (now_us, budget_ns) in [
        (1_000, 0),
        (1_100, 100 * US),
        (1_300, 300 * US),
        (1_900, SLACK_NS), // 340 µs of the 900 that have passed
    ] {
        let idle = lease(&mut gate, &at(now_us * US, IDLE, &full));
        assert_eq!(idle.budget_ns, budget_ns, "at {now_us} µs");
    }
    // News: what is left is counted from there.
    let some = [job(1, 2 * SLACK_NS, SLACK_NS)];
    assert_eq!(lease(&mut gate, &at(2 * MS, IDLE, &some)).budget_ns, 1);
    let beside = lease(&mut gate, &at(2 * MS + 50 * US, BUSY, &some));
    assert_eq!(beside.budget_ns, 0, "beside HP nothing is predicted");
}

#[test]
fn kernels_that_take_longer_than_expected_narrow_the_bounds() {
    let mut gate = gate(PillionParams {
        learnt_pace: true,
        ..params()
    });
    // 10 expected µs complete in each 50 µs: a pace of 0.2, and a quarter more is allowed for.
    for look in 1..=100 {
        let be = [job(1, MS + look * 10 * US, look * 10 * US)];
        gate.handle_snapshot(&at(look * 50 * US, IDLE, &be));
    }
    let bounds = gate.bounds().expect("it is pillion");
    assert!(
        bounds.idle_ns.abs_diff(SLACK_NS / 4) < SLACK_NS / 100,
        "{bounds:?}"
    );
}

#[test]
fn a_target_in_milliseconds_leaves_what_is_above_the_latency_alone() {
    let params = PillionParams {
        slo: Slo::LatencyNs(8 * MS),
        ..params()
    };
    let mut gate = gate(params);
    let idle = lease(&mut gate, &at(MS, IDLE, &[job(1, 0, 0)]));
    assert_eq!(idle.budget_ns, 1_200 * US + 1); // 8 − 6.8 ms
}

#[test]
fn a_turn_is_not_cut_short_in_the_middle_of_a_lease() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0), job(2, 0, 0)];
    assert_eq!(lease(&mut gate, &at(MS, IDLE, &be)).budget_ns, SLACK_NS + 1);
    // 300 of 340 µs of the turn are used and complete: all of the bound again.
    let be = [job(1, 300 * US, 300 * US), job(2, 0, 0)];
    assert_eq!(
        lease(&mut gate, &at(2 * MS, IDLE, &be)).budget_ns,
        SLACK_NS + 1
    );
    let be = [job(1, 640 * US, 640 * US), job(2, 0, 0)];
    assert_eq!(lease(&mut gate, &at(3 * MS, IDLE, &be)).budget_ns, 0);
    assert!(gate.gate(&at(3 * MS, IDLE, &be), 1).budget_ns > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Jobs that always want to launch, of kernels of any length; HP's requests and the news of
    /// completions come as they like.
    #[test]
    fn in_flight_is_never_more_than_twice_the_bound_and_what_passes_its_end(
        sharing in prop::sample::select(vec![Sharing::Mps, Sharing::TimeSlice]),
        switches in any::<[bool; 4]>(),
        lengths_ns in prop::collection::vec(1..2_000_000_u64, 1..4),
        steps in prop::collection::vec((0..300_000_u64, 0..4_u32, any::<bool>(), 0..20_000_000_u64), 1..200),
    ) {
        let [block_priority, feedback, beside, gap_prediction] = switches;
        let params = PillionParams { block_priority, feedback, beside, gap_prediction, ..params() };
        let mut gate = gate(params);
        let mut be: Vec<JobView> = (1..).zip(&lengths_ns).map(|(id, _)| job(id, 0, 0)).collect();
        let mut now_ns = 0;
        for (step_ns, completions, busy, took_ns) in steps {
            now_ns += step_ns;
            for (job, length_ns) in be.iter_mut().zip(&lengths_ns) {
                let done_ns = u64::from(completions) * length_ns;
                job.completed_total_ns = (job.completed_total_ns + done_ns).min(job.charged_total_ns);
                job.drained = job.in_flight_ns() == 0;
            }
            gate.handle_request(1, &Request { began_ns: now_ns.saturating_sub(took_ns), ended_ns: now_ns, launches: 1 });
            let before = be.clone();
            let hp = if busy { BUSY } else { IDLE };
            let snapshot = Snapshot { sharing, ..at(now_ns, hp, &before) };
            gate.handle_snapshot(&snapshot);
            let Bounds { idle_ns, beside_ns, whole, .. } = gate.bounds().expect("it is pillion");
            prop_assert!(beside_ns <= idle_ns);
            for index in 0..be.len() {
                let lease = gate.gate(&snapshot, index);
                let kernel = kernel(Class::Unknown, 1, lengths_ns[index]);
                let mut spent_ns = 0;
                while admits(&lease, spent_ns, &kernel) {
                    spent_ns += kernel.expected_ns;
                    let others = be.iter().map(JobView::in_flight_ns);
                    let in_flight_ns = others.sum::<u64>() + kernel.expected_ns;
                    let most_ns = match (busy, whole) {
                        (true, _) => beside_ns,
                        (false, true) => 2 * idle_ns,
                        (false, false) => 2 * idle_ns + kernel.expected_ns,
                    };
                    prop_assert!(in_flight_ns <= most_ns, "{} of {}", in_flight_ns, most_ns);
                    be[index].charged_total_ns += kernel.expected_ns;
                }
            }
        }
    }
}

#[test]
fn a_target_is_times_alone_or_milliseconds_and_reads_back() {
    for (text, slo) in [
        ("1.2x", Slo::Slowdown(1.2)),
        ("1x", Slo::Slowdown(1.0)),
        ("20ms", Slo::LatencyNs(20_000_000)),
        ("0.5ms", Slo::LatencyNs(500_000)),
    ] {
        assert_eq!(text.parse(), Ok(slo));
        assert_eq!(slo.to_string(), text);
    }
    for text in [
        "", "x", "1.2", "0.9x", "101x", "NaNx", "20", "0ms", "-1ms", "20 ms", "infms", "20s",
    ] {
        assert!(text.parse::<Slo>().is_err(), "{text}");
    }
}
