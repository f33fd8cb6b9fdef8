//! `pillion` through a gate: its bounds, with worked arithmetic, and its invariants.

use policy::pillion::look_ns_max;
use policy::{
    Class, ClassSet, Gate, HpView, JobId, JobTerms, JobView, Kernel, Lease, Outlook, PillionParams,
    Policy, Request, Sharing, Slo, Snapshot, admits,
};

mod excluded;
mod floor;

const COMPUTE: ClassSet = ClassSet::EMPTY.with(Class::Compute);
const IDLE: HpView = HpView::IDLE;
const BUSY: HpView = HpView {
    busy: true,
    executing: COMPUTE,
    ..HpView::IDLE
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A solo request; its slack at 1.05 times is 340 µs.
const SOLO_NS: u64 = 6_800 * US;
const SLACK_NS: u64 = 340 * US;

fn params() -> PillionParams {
    PillionParams {
        solo_ns: Some(SOLO_NS),
        // Requests here are periodic.
        gap_prediction: false,
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

fn lease(gate: &mut Gate, snapshot: &Snapshot<'_>) -> Lease {
    gate.handle_snapshot(snapshot);
    gate.gate(snapshot, 0)
}

/// A request from `began_ns` on, while the job is seen as `be` in its middle.
fn request(gate: &mut Gate, began_ns: u64, took_ns: u64, be: JobView) -> u64 {
    seen_request(gate, (3, began_ns, took_ns), be, 50 * US)
}

/// The same, with `launches`, while the job is seen as `be` almost to the end.
fn request_of(gate: &mut Gate, launches: u64, began_ns: u64, took_ns: u64, be: JobView) -> u64 {
    seen_request(gate, (launches, began_ns, took_ns), be, US)
}

/// A request with its last poll this long before the end.
fn seen_request(
    gate: &mut Gate,
    (launches, began_ns, took_ns): (u64, u64, u64),
    be: JobView,
    before_ns: u64,
) -> u64 {
    let ended_ns = began_ns + took_ns;
    gate.handle_snapshot(&at(began_ns.saturating_sub(50 * US), IDLE, &[be]));
    gate.handle_snapshot(&at(began_ns, BUSY, &[be]));
    gate.handle_snapshot(&at(ended_ns - before_ns, BUSY, &[be]));
    let request = Request {
        began_ns,
        ended_ns,
        launches,
        work_ns: 0,
        unsure_ns: 0,
    };
    gate.handle_request(1, &request);
    gate.handle_snapshot(&at(ended_ns, IDLE, &[be]));
    ended_ns
}

/// A gate that has to learn the solo latency.
fn unlearnt() -> Gate {
    gate(PillionParams {
        solo_ns: None,
        ..params()
    })
}

fn quiet() -> JobView {
    JobView {
        waiting: false,
        ..job(1, 9, 9)
    }
}

/// An HP side with a client of which `requests_least` requests were seen.
fn new_client(hp: HpView, requests_least: u64) -> HpView {
    HpView {
        learning: true,
        requests_least,
        ..hp
    }
}

/// `count` requests in sequence without best-effort work; returns the last one's end.
fn alone(gate: &mut Gate, count: u64, took_ns: impl Fn(u64) -> u64) -> u64 {
    (0..count).fold(MS, |now_ns, index| {
        request(gate, now_ns + MS, took_ns(index), quiet())
    })
}

/// Requests of equal duration beside work in flight.
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
    // 1 ms passes the 340 µs: it goes, and a request waits only for a wave of it.
    assert!(admits(&idle, 0, &kernel(Class::Compute, 500, MS)));
    let beside = lease(&mut gate, &at(2 * MS, BUSY, &be));
    assert_eq!(beside.budget_ns, SLACK_NS / 8);
    assert!(beside.whole && beside.beside_hp);
    // 42.5 µs: any kernel of 42 goes, and one of 43 does not.
    assert!(admits(&beside, 0, &kernel(Class::Compute, 500, 42 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 1, 43 * US)));
}

#[test]
fn until_sixteen_requests_were_seen_the_bounds_are_100_microseconds() {
    let mut gate = unlearnt();
    for index in 1..=16 {
        assert_eq!(gate.solo_ns(), None);
        let unknown = new_client(IDLE, index - 1);
        let idle = lease(&mut gate, &at(index * 100 * MS - MS, unknown, &[quiet()]));
        assert_eq!(idle.budget_ns, 100 * US + 1);
        request(&mut gate, index * 100 * MS, SOLO_NS + index, quiet());
    }
    // The fifth smallest of 16.
    assert_eq!(gate.solo_ns(), Some(SOLO_NS + 5));
    let idle = lease(&mut gate, &at(6_000 * MS, new_client(IDLE, 16), &[quiet()]));
    assert_eq!(idle.budget_ns, SLACK_NS + 1);
}

#[test]
fn beside_a_client_that_is_not_known_yet_the_bounds_are_what_suits_both() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0)];
    let mut nobody = unlearnt();
    let beside = lease(&mut nobody, &at(MS, new_client(BUSY, 0), &be));
    // An eighth of 100 µs, and it must suit.
    assert_eq!(beside.budget_ns, 100 * US / 8);
    assert!(!admits(&beside, 0, &kernel(Class::Compute, 1, US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 80, US)));
    assert!(admits(&beside, 0, &kernel(Class::Memory, 79, US)));
    // One client is known, and its requests are hurt; another attaches.
    let mut both = unlearnt();
    let mut now_ns = alone(&mut both, 50, |_| SOLO_NS);
    for _ in 0..40 {
        now_ns = request(&mut both, now_ns + MS, 2 * SOLO_NS, job(1, 9_000_000, 0));
    }
    let idle = lease(&mut both, &at(now_ns + MS, new_client(IDLE, 0), &be));
    assert_eq!(idle.budget_ns, SLACK_NS / 16 + 1);
    both.handle_detach(1);
    both.handle_snapshot(&at(now_ns + 2 * MS, HpView::ABSENT, &be));
    assert_eq!((both.gain(), both.solo_ns()), (Some(1.0), None));
    assert_eq!(
        lease(&mut gate, &at(MS, new_client(IDLE, 0), &be)).budget_ns,
        SLACK_NS + 1
    );
}

#[test]
fn requests_that_differ_alone_may_differ_as_much_beside_best_effort_work() {
    let mut gate = unlearnt();
    // Solo 6.8 to 8.26 ms, 30 µs apart: the quartile is 7.16, nine of ten are below 8.15.
    let mut now_ns = alone(&mut gate, 50, |index| SOLO_NS + index * 30 * US);
    for index in 0..200 {
        let took_ns = SOLO_NS + index % 40 * 30 * US;
        now_ns = request(&mut gate, now_ns + MS, took_ns, job(1, 9_000_000, 0));
    }
    assert!(gate.gain() > Some(8.0), "{:?}", gate.gain());
}

#[test]
fn pieces_of_requests_are_a_kind_of_their_own_and_do_not_shrink_the_slack() {
    let mut gate = unlearnt();
    let mut now_ns = MS;
    for _ in 0..20 {
        now_ns = request_of(&mut gate, 400, now_ns + MS, SOLO_NS, quiet());
    }
    let busy = job(1, 9_000_000, 0);
    for _ in 0..200 {
        // The device was idle in the middle of one: it is seen as 3 launches and the rest.
        now_ns = request_of(&mut gate, 3, now_ns + MS, 50 * US, busy);
        now_ns = request_of(&mut gate, 397, now_ns + MS, SOLO_NS - 50 * US, busy);
    }
    assert_eq!(gate.solo_ns(), Some(SOLO_NS));
    assert_eq!(gate.gain(), Some(16.0));
}

#[test]
fn requests_of_two_lengths_are_each_held_against_their_own() {
    let mut gate = unlearnt();
    let mut now_ns = MS;
    let kinds = [(100, 2 * MS), (400, SOLO_NS)];
    for _ in 0..20 {
        for (launches, took_ns) in kinds {
            now_ns = request_of(&mut gate, launches, now_ns + MS, took_ns, quiet());
        }
    }
    // A fifth of the launches belong to the short ones: the slack is that of the long ones.
    assert_eq!(gate.solo_ns(), Some(SOLO_NS));
    for _ in 0..50 {
        now_ns = request_of(&mut gate, 100, now_ns + MS, 3 * MS, job(1, 9_000_000, 0));
    }
    assert_eq!(
        gate.gain(),
        Some(0.0625),
        "short ones that take longer count"
    );
}

#[test]
fn a_short_request_is_learnt_beside_less() {
    let mut gate = unlearnt();
    let now_ns = alone(&mut gate, 1, |_| 500 * US);
    let idle = lease(&mut gate, &at(now_ns + MS, new_client(IDLE, 1), &[quiet()]));
    // A fiftieth, not 100 µs.
    assert_eq!(idle.budget_ns, 10 * US + 1);
}

#[test]
fn a_client_whose_requests_are_all_of_different_kinds_is_learnt_by_the_commonest() {
    let mut gate = unlearnt();
    let mut now_ns = MS;
    for _ in 0..20 {
        for launches in [64, 80, 96, 112, 128] {
            let took_ns = launches * 10 * US;
            now_ns = request_of(&mut gate, launches, now_ns + MS, took_ns, quiet());
        }
    }
    // No kind has a quarter of the launches; the largest requests have most.
    assert_eq!(gate.solo_ns(), Some(1_280 * US));
}

#[test]
fn a_kind_that_becomes_main_forgets_what_it_learnt_of_requests_that_were_hurt() {
    let mut gate = unlearnt();
    let mut now_ns = MS;
    for _ in 0..20 {
        now_ns = request_of(&mut gate, 400, now_ns + MS, SOLO_NS, quiet());
    }
    // Another model: 2 ms solo, 3 ms beside what the first could afford.
    for _ in 0..60 {
        now_ns = request_of(&mut gate, 80, now_ns + MS, 3 * MS, job(1, 9_000_000, 0));
        assert_ne!(gate.solo_ns(), Some(3 * MS));
    }
    for _ in 0..40 {
        now_ns = request_of(&mut gate, 80, now_ns + MS, 2 * MS, quiet());
    }
    assert_eq!(gate.solo_ns(), Some(2 * MS));
}

#[test]
fn requests_of_one_kind_that_differ_by_themselves_are_not_all_within_their_target() {
    let mut gate = unlearnt();
    // Equal launches, 2 to 6.8 ms: batches of several sizes.
    let took_ns = |index: u64| 2 * MS + index % 25 * 200 * US;
    let mut now_ns = alone(&mut gate, 50, took_ns);
    // The quartile is 3.2 ms and its slack 160 µs: nine of ten are within 3 ms of it, and the
    // excess over four slacks counts.
    for _ in 0..50 {
        now_ns = request(&mut gate, now_ns + MS, 6 * MS, job(1, 9_000_000, 0));
    }
    assert_eq!(gate.gain(), Some(0.0625));
}

#[test]
fn what_runs_at_the_least_gain_is_not_alone_if_more_than_the_least_is_in_flight() {
    let mut gate = unlearnt();
    let mut now_ns = alone(&mut gate, 50, |_| SOLO_NS);
    for _ in 0..200 {
        // Drained between two requests, and 10 ms in flight in each.
        now_ns = request(&mut gate, now_ns + MS, 2 * SOLO_NS, job(1, 10_000_000, 0));
        gate.handle_snapshot(&at(now_ns + 1, IDLE, &[quiet()]));
    }
    assert_eq!((gate.gain(), gate.solo_ns()), (Some(0.0625), Some(SOLO_NS)));
}

#[test]
fn requests_within_their_target_widen_the_bounds_and_beside_hp_last() {
    let mut gate = gate(params());
    // Until the first miss the gain rises by 8 % each: 1.08^18 = 4.0.
    requests(&mut gate, 18, SOLO_NS + SLACK_NS);
    let four = gate.ceiling().expect("it is pillion");
    // 4 slacks; beside HP still an eighth.
    assert!(
        four.idle_ns.abs_diff(4 * SLACK_NS) < SLACK_NS / 100,
        "{four:?}"
    );
    assert_eq!(four.beside_ns, SLACK_NS / 8);
    requests(&mut gate, 200, SOLO_NS);
    let most = gate.ceiling().expect("it is pillion");
    assert_eq!(most.idle_ns, 16 * SLACK_NS);
    assert_eq!(most.beside_ns, 3 * SLACK_NS);
}

#[test]
fn requests_over_their_target_narrow_them_and_then_a_kernel_must_suit_and_fit() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0)];
    requests(&mut gate, 3, SOLO_NS + 2 * SLACK_NS);
    // 1.02^-24 = 0.62.
    let bounds = gate.ceiling().expect("it is pillion");
    assert!(bounds.pairs && !bounds.whole && bounds.idle_ns < SLACK_NS * 63 / 100);
    let beside = lease(&mut gate, &at(MS, BUSY, &be));
    assert!(admits(&beside, 0, &kernel(Class::Memory, 79, 20 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Memory, 80, 20 * US)));
    assert!(!admits(&beside, 0, &kernel(Class::Compute, 79, 20 * US)));
    requests(&mut gate, 30, SOLO_NS + 2 * SLACK_NS);
    let idle = lease(&mut gate, &at(MS, IDLE, &be));
    // A fortieth of a request: the floor.
    assert_eq!(idle.budget_ns, SLACK_NS / 2 + 1);
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
    for index in 1..=100 {
        request(&mut gate, index * 100 * MS, 10 * SOLO_NS, quiet());
    }
    assert_eq!(gate.gain(), Some(1.0));
}

#[test]
fn a_request_of_which_is_not_known_when_it_began_says_nothing() {
    for pause_ns in [50 * US, 500 * US] {
        let mut gate = gate(PillionParams {
            look_ns_max: look_ns_max(pause_ns),
            ..params()
        });
        let be = [job(1, 1_000, 0)];
        for (at_us, hp) in [(0, IDLE), (1_000, BUSY), (1_900, BUSY)] {
            gate.handle_snapshot(&at(at_us * US, hp, &be));
        }
        let request = |unsure_ns| Request {
            began_ns: 1_000 * US,
            ended_ns: 2_900 * US,
            launches: 1,
            work_ns: 0,
            unsure_ns,
        };
        gate.handle_request(1, &request(2 * pause_ns + 100 * US + 1));
        assert_eq!(gate.gain(), Some(1.0), "{pause_ns}");
        gate.handle_request(1, &request(2 * pause_ns + 100 * US));
        assert_eq!(gate.gain(), Some(1.08), "{pause_ns}");
    }
}

#[test]
fn best_effort_work_that_began_and_completed_between_two_looks_was_met() {
    let mut gate = gate(PillionParams::default());
    let mut now_ns = alone(&mut gate, 50, |_| SOLO_NS);
    // A longer request beside such work does not raise the solo latency.
    for round in 0..5 {
        let before = job(1, round * 1_000, round * 1_000);
        let after = job(1, (round + 1) * 1_000, (round + 1) * 1_000);
        now_ns += MS;
        gate.handle_snapshot(&at(now_ns, IDLE, &[before]));
        let ended = Request {
            began_ns: now_ns + US,
            ended_ns: now_ns + US + 2 * SOLO_NS,
            launches: 3,
            work_ns: 0,
            unsure_ns: 0,
        };
        now_ns = ended.ended_ns;
        gate.handle_snapshot(&at(now_ns - US, BUSY, &[after]));
        gate.handle_request(1, &ended);
        gate.handle_snapshot(&at(now_ns, IDLE, &[after]));
    }
    assert_eq!(gate.solo_ns(), Some(SOLO_NS));
    assert!(gate.gain() < Some(1.0), "{:?}", gate.gain());
}

#[test]
fn what_best_effort_work_does_to_requests_never_raises_their_latency_alone() {
    let mut gate = gate(PillionParams::default());
    let mut now_ns = alone(&mut gate, 50, |_| SOLO_NS);
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
    let some = [job(1, 2 * SLACK_NS, SLACK_NS)];
    assert_eq!(lease(&mut gate, &at(2 * MS, IDLE, &some)).budget_ns, 1);
    let beside = lease(&mut gate, &at(2 * MS + 50 * US, BUSY, &some));
    assert_eq!(beside.budget_ns, 0, "beside HP nothing is predicted");
}

#[test]
fn a_target_in_milliseconds_leaves_what_is_above_the_latency_alone() {
    let params = PillionParams {
        slo: Some(Slo::LatencyNs(8 * MS)),
        ..params()
    };
    let mut gate = gate(params);
    let idle = lease(&mut gate, &at(MS, IDLE, &[job(1, 0, 0)]));
    assert_eq!(idle.budget_ns, 1_200 * US + 1); // 8 − 6.8 ms
}

#[test]
fn jobs_that_always_want_more_charge_in_the_ratio_of_their_weights() {
    let mut gate = gate(params());
    let terms = JobTerms {
        weight: 3,
        ..JobTerms::default()
    };
    gate.handle_terms(JobId(2), terms);
    let mut be = [job(1, 0, 0), job(2, 0, 0)];
    for look in 1..4_000 {
        let before = be;
        let snapshot = at(look * 50 * US, IDLE, &before);
        gate.handle_snapshot(&snapshot);
        for (index, job) in be.iter_mut().enumerate() {
            let lease = gate.gate(&snapshot, index);
            let kernel = kernel(Class::Unknown, 1, 30 * US);
            let mut spent_ns = 0;
            while admits(&lease, spent_ns, &kernel) {
                spent_ns += kernel.expected_ns;
            }
            job.charged_total_ns += spent_ns;
            job.completed_total_ns = job.charged_total_ns;
        }
    }
    let ratio = be[1].charged_total_ns as f64 / be[0].charged_total_ns as f64;
    assert!((2.6..3.4).contains(&ratio), "{ratio}");
}

#[test]
fn a_job_that_is_behind_comes_first_and_lifts_the_bounds_until_hp_is_at_risk() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0), job(2, 0, 0), job(3, 0, 0)];
    let behind = JobTerms {
        is_behind: true,
        ..JobTerms::default()
    };
    gate.handle_terms(JobId(3), behind);
    gate.handle_snapshot(&at(MS, BUSY, &be));
    let bounds = gate.ceiling().expect("it is pillion");
    assert_eq!((bounds.idle_ns, bounds.beside_ns), (4 * SLACK_NS, SLACK_NS));
    assert!(gate.gate(&at(MS, BUSY, &be), 2).budget_ns > 0);
    assert_eq!(gate.gate(&at(MS, BUSY, &be), 0).budget_ns, 0);
    requests(&mut gate, 5, SOLO_NS + 2 * SLACK_NS);
    gate.handle_terms(JobId(3), behind);
    gate.handle_snapshot(&at(1_000 * MS, IDLE, &be));
    let bounds = gate.ceiling().expect("it is pillion");
    assert!(bounds.idle_ns < SLACK_NS, "{bounds:?}");
    // It has its promised share, or does not want it.
    let mut content = self::gate(params());
    content.handle_terms(JobId(3), behind);
    let resting = JobView {
        waiting: false,
        ..be[2]
    };
    content.handle_snapshot(&at(MS, IDLE, &[be[0], resting]));
    assert_eq!(
        content.ceiling().map(|bounds| bounds.idle_ns),
        Some(SLACK_NS)
    );
}

#[test]
fn a_job_that_trains_may_lose_its_share_on_the_mean() {
    let share = PillionParams {
        slo: Some(Slo::Throughput(0.8)),
        ..params()
    };
    let mut gate = gate(share);
    let be = [job(1, 0, 0)];
    // 6.8 ÷ 0.8 = 8.5 ms.
    assert_eq!(
        lease(&mut gate, &at(MS, IDLE, &be)).budget_ns,
        1_700 * US + 1
    );
    // One iteration in three takes twice its slack: a tail would fall, the mean does not.
    for index in 1..=300 {
        let spent = if index % 3 == 0 { 2 } else { 0 };
        request(
            &mut gate,
            index * 100 * MS,
            SOLO_NS + spent * 1_700 * US,
            job(1, 1_000, 0),
        );
    }
    assert!(gate.gain() > Some(4.0), "{:?}", gate.gain());
}

#[test]
fn a_turn_is_not_cut_short_in_the_middle_of_a_lease() {
    let mut gate = gate(params());
    let be = [job(1, 0, 0), job(2, 0, 0)];
    assert_eq!(lease(&mut gate, &at(MS, IDLE, &be)).budget_ns, SLACK_NS + 1);
    // 300 of 340 µs of the turn are used and complete: the whole bound again.
    let be = [job(1, 300 * US, 300 * US), job(2, 0, 0)];
    assert_eq!(
        lease(&mut gate, &at(2 * MS, IDLE, &be)).budget_ns,
        SLACK_NS + 1
    );
    let be = [job(1, 640 * US, 640 * US), job(2, 0, 0)];
    assert_eq!(lease(&mut gate, &at(3 * MS, IDLE, &be)).budget_ns, 0);
    assert!(gate.gate(&at(3 * MS, IDLE, &be), 1).budget_ns > 0);
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
        "1e-7ms",
    ] {
        assert!(text.parse::<Slo>().is_err(), "{text}");
    }
}

/// When the daemon polls after this snapshot, in µs from it, with pauses of 50 µs.
fn pause_us(gate: &mut Gate, snapshot: &Snapshot<'_>, outlook: Outlook) -> u64 {
    gate.handle_snapshot(snapshot);
    (gate.next_look_ns(snapshot, &outlook, 50 * US) - snapshot.now_ns) / US
}

#[test]
fn the_next_poll_is_when_room_is_predicted_or_high_priority_work_is_over() {
    let now_ns = 100 * MS;
    let idle = Outlook::idle(now_ns);
    let over_in = |us: u64| Outlook {
        ends_ns: now_ns + us * US,
        changes_ns: u64::MAX,
    };
    let after =
        |hp, be: &[JobView], outlook| pause_us(&mut gate(params()), &at(now_ns, hp, be), outlook);
    let charged = |us: u64| job(1, SLACK_NS + us * US, 0);
    // 120 µs of work above the bound are predicted to be complete in 120 µs.
    assert_eq!(after(IDLE, &[charged(120)], idle), 120);
    assert_eq!(after(IDLE, &[charged(10)], idle), 50);
    // More than a bound ahead nothing is predicted, and completions ring.
    assert_eq!(after(IDLE, &[charged(1_000)], idle), 400);
    assert_eq!(after(IDLE, &[job(1, 0, 0)], idle), 400);
    assert_eq!(after(BUSY, &[charged(0)], over_in(130)), 130);
    assert_eq!(after(BUSY, &[charged(0)], over_in(5_000)), 200);
    assert_eq!(after(BUSY, &[charged(0)], over_in(0)), 50);
    // Busy since 0.1 ms, or 5 ms; its requests take 6.8 ms.
    let since = |us: u64| HpView {
        since_ns: now_ns - us * US,
        latency_ns: Some(SOLO_NS),
        ..BUSY
    };
    assert_eq!(after(since(100), &[charged(0)], over_in(5_000)), 1_000);
    assert_eq!(after(since(100), &[charged(0)], over_in(700)), 700);
    assert_eq!(after(since(4_800), &[charged(0)], over_in(5_000)), 300);
    assert_eq!(after(since(5_200), &[charged(0)], over_in(5_000)), 200);
    let two = [charged(120), job(2, 1_000, 0)];
    assert_eq!(after(IDLE, &two, idle), 50);
    let quiet = JobView {
        waiting: false,
        ..charged(120)
    };
    assert_eq!(after(IDLE, &[quiet], idle), 400);
}

#[test]
fn a_lease_is_renewed_before_it_expires_however_long_pauses_are() {
    let mut gate = gate(PillionParams {
        lease_ns: MS,
        ..params()
    });
    let quiet = JobView {
        waiting: false,
        ..job(1, 10 * MS, 0)
    };
    let now_ns = 100 * MS;
    let be = [quiet];
    let snapshot = at(now_ns, IDLE, &be);
    assert_eq!(pause_us(&mut gate, &snapshot, Outlook::idle(now_ns)), 250);
}
