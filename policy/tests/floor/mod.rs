//! The floor of the bound of idle time: its size however much requests are hurt, where it applies,
//! and that work under it never counts as alone.

use policy::{Gate, JobView, PillionParams, Sharing, Slo, Snapshot};

use crate::{
    BUSY, IDLE, MS, SLACK_NS, SOLO_NS, US, alone, at, gate, job, params, request, requests,
    unlearnt,
};

fn in_flight(ns: u64) -> JobView {
    job(1, ns, 0)
}

/// Requests of eight times the solo latency, which take the gain to its least; returns when.
fn hurt(gate: &mut Gate, be: JobView) -> u64 {
    let mut now_ns = MS;
    for _ in 0..20 {
        now_ns = request(gate, now_ns + MS, 8 * SOLO_NS, be);
    }
    assert_eq!(gate.gain(), Some(0.0625));
    now_ns
}

/// The bounds of idle time of `count` hurt requests, each as of the end of the previous request.
fn hurt_idle_ns(params: PillionParams, sharing: Sharing, count: usize) -> Vec<u64> {
    let mut gate = gate(params);
    let be = in_flight(1_000);
    let mut now_ns = hurt(&mut gate, be);
    let mut found = Vec::new();
    for _ in 0..count {
        now_ns = request(&mut gate, now_ns + MS, 8 * SOLO_NS, be);
        let snapshot = Snapshot {
            sharing,
            ..at(now_ns + US, IDLE, &[])
        };
        gate.handle_snapshot(&snapshot);
        found.push(gate.ceiling().expect("it is pillion").idle_ns);
    }
    found
}

#[test]
fn while_hp_is_idle_no_less_is_in_flight_than_orion_lets_but_for_one_request_in_four() {
    let of_slo = |slo| {
        let slo = Some(slo);
        hurt_idle_ns(PillionParams { slo, ..params() }, Sharing::Mps, 400)
    };
    // A fortieth of a request, half a slack at most: and a sixteenth of the slack without it.
    for (slo, floor_us, slack_us) in [
        (Slo::Slowdown(1.05), 170, 340),
        (Slo::Slowdown(1.02), 68, 136),
        (Slo::Slowdown(1.2), 170, 1_360),
        (Slo::LatencyNs(8 * MS), 170, 1_200),
    ] {
        let found = of_slo(slo);
        let count = |us: u64| {
            let near = found.iter().filter(|ns| ns.abs_diff(us * US) < US);
            near.count()
        };
        assert_eq!(count(floor_us), 300, "{slo:?} {found:?}");
        assert_eq!(count(slack_us / 16), 100, "{slo:?} {found:?}");
        // Of requests of two, three or eight alternating kinds each kind has its share.
        for turns in [2, 3, 8] {
            for first in 0..turns {
                let of_kind = found.iter().skip(first).step_by(turns);
                let bare = of_kind.filter(|&&ns| ns < floor_us * US / 2 + US);
                let expected = 100 / turns;
                assert!(bare.count().abs_diff(expected) <= 3, "{turns} {first}");
            }
        }
    }
    let far = of_slo(Slo::Slowdown(3.0));
    assert!(far.iter().all(|ns| ns.abs_diff(850 * US) < US), "{far:?}");
}

#[test]
fn without_priorities_between_blocks_in_time_slices_and_for_a_job_that_trains_the_bound_falls_with_the_gain()
 {
    let all_are = |params: PillionParams, sharing, ns: u64| {
        let found = hurt_idle_ns(params, sharing, 8);
        assert!(found.iter().all(|it| it.abs_diff(ns) < US), "{found:?}");
    };
    let block_priority = false;
    let without = PillionParams {
        block_priority,
        ..params()
    };
    all_are(without, Sharing::Mps, SLACK_NS / 16);
    all_are(params(), Sharing::TimeSlice, SLACK_NS / 16);
    let slo = Some(Slo::Throughput(0.9523));
    let trains = PillionParams { slo, ..params() };
    let mut gate = gate(trains);
    requests(&mut gate, 200, SOLO_NS * 2);
    let bounds = gate.ceiling().expect("it is pillion");
    assert!(
        bounds.idle_ns.abs_diff(SLACK_NS / 16) < US && !bounds.floor,
        "{bounds:?}"
    );
}

#[test]
fn only_the_bound_of_idle_time_has_a_floor_and_quiet_time_and_what_goes_beside_have_none() {
    let mut gate = gate(PillionParams {
        gap_prediction: true,
        ..params()
    });
    let be = in_flight(1_000);
    hurt(&mut gate, be);
    // 128 pauses of 50 ms: quiet for 45 ms, but one slack under the least gain.
    let mut began_ns = 10_000 * MS;
    for _ in 0..=128 {
        began_ns += 60 * MS;
        gate.handle_snapshot(&at(began_ns, BUSY, &[be]));
        gate.handle_snapshot(&at(began_ns + 10 * MS, IDLE, &[be]));
    }
    let bounds = |gate: &mut Gate, after_ms| {
        let now_ns = began_ns + 10 * MS + after_ms * MS;
        gate.handle_snapshot(&at(now_ns, IDLE, &[be]));
        gate.ceiling().expect("it is pillion")
    };
    let quiet = bounds(&mut gate, 1);
    assert_eq!(quiet.idle_ns, SLACK_NS);
    assert!(!quiet.floor && quiet.pairs);
    let then = bounds(&mut gate, 46);
    assert_eq!(then.idle_ns, SLACK_NS / 2);
    assert!(then.floor && then.pairs);
    assert_eq!(then.beside_ns, SLACK_NS / 8 / 16);
}

#[test]
fn what_runs_under_the_floor_is_not_alone() {
    let mut gate = unlearnt();
    let mut now_ns = alone(&mut gate, 50, |_| SOLO_NS);
    for _ in 0..500 {
        now_ns = request(&mut gate, now_ns + MS, 2 * SOLO_NS, in_flight(150 * US));
    }
    assert_eq!((gate.gain(), gate.solo_ns()), (Some(0.0625), Some(SOLO_NS)));
}

#[test]
fn requests_that_take_longer_by_themselves_are_learnt_beside_a_job_that_always_wants() {
    let mut gate = unlearnt();
    let mut now_ns = alone(&mut gate, 50, |_| SOLO_NS);
    // From now on they take half as long again in any case, and the bound is always used up.
    let mut requests = 0;
    while gate.solo_ns() == Some(SOLO_NS) && requests < 1_000 {
        let bounds = gate.ceiling().expect("it is pillion");
        let be = in_flight(bounds.idle_ns + 1);
        now_ns = request(&mut gate, now_ns + MS, SOLO_NS * 3 / 2, be);
        requests += 1;
    }
    assert_eq!(gate.solo_ns(), Some(SOLO_NS * 3 / 2));
    // Of the last 64 alone more than three quarters, and one request in four is.
    assert!((180..250).contains(&requests), "{requests}");
}
