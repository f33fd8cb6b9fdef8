//! A client's requests one by one: their solo latencies, their judgement, and the resulting bounds.

use super::client::{DUTY_FROM, KINDS_MAX, Now, OPEN_MAX, SERVERS_MAX};
use super::kind::{FIRST, Kind, Target};
use super::law::Law;
use super::*;
use crate::pillion::{MISS as ALPHA, Slo, SloEnd};
use crate::slo::Level;

const MS: u64 = 1_000_000;

impl Client {
    fn level(&self) -> Level {
        match self.law {
            Law::Quantile(level) => level,
            Law::Mean(_) => panic!("it is held at a quantile"),
        }
    }

    fn level_mut(&mut self) -> &mut Level {
        match &mut self.law {
            Law::Quantile(level) => level,
            Law::Mean(_) => panic!("it is held at a quantile"),
        }
    }
}

/// A client with requests of 10 ms solo that arrive every 40 ms and met no best-effort work.
fn known() -> Client {
    let mut client = Client::new(1, DOUBLE);
    for n in 0..200 {
        one(&mut client, n, n * 40 * MS, 10 * MS);
    }
    client
}

fn one(client: &mut Client, id: u64, at_ns: u64, took_ns: u64) {
    client.handle_time(at_ns, false);
    client.handle_begin(id, 0, at_ns, at_ns);
    client.handle_time(at_ns + took_ns, false);
    client.handle_end(id, at_ns + took_ns, false, &ALONE);
}

/// Best-effort work wants to go and is not in flight.
const ALONE: Since = Since {
    now_ns: None,
    wanted_ns: Some(u64::MAX),
    is_exposed: false,
    feedback: true,
};

const DOUBLE: Goal = Goal {
    slo: Slo::Slowdown(2.0),
    miss: ALPHA,
};

fn now(ns: u64) -> Now {
    Now {
        ns,
        unknown_ns: 100_000,
        is_behind: false,
        is_foreign: false,
        gap_prediction: false,
    }
}

fn bounds(client: &Client, now_ns: u64) -> Ceiling {
    client.bounds(&now(now_ns))
}

/// A request that best-effort work may go beside.
fn begin(client: &mut Client, id: u64, arrived_ns: u64, at_ns: u64) {
    client.handle_begin(id, 0, arrived_ns, at_ns);
    client.open.last_mut().unwrap().is_bare = false;
}

#[test]
fn until_requests_are_known_nothing_goes_beside_them() {
    let mut client = Client::new(1, DOUBLE);
    for n in 0..140 {
        let is_known = n >= FIRST as u64;
        let narrow_ns = if is_known { MS / 2 } else { 0 };
        assert_eq!(bounds(&client, n * 40 * MS).idle_ns, narrow_ns);
        assert_eq!(bounds(&client, n * 40 * MS).beside_ns, 0);
        one(&mut client, n, n * 40 * MS, 10 * MS);
    }
    assert_eq!(client.level().requests, 0);
    // Nothing is known of the client, and there is no request for a second.
    assert_eq!(bounds(&Client::new(1, DOUBLE), 7_000 * MS).idle_ns, 100_000);
}

#[test]
fn latencies_alone_are_those_of_a_queue_with_the_same_arrivals() {
    // Two arrivals at once every 40 ms: the second waits for the first.
    let mut client = known();
    let mut now_ns = 1_000_000 * MS;
    for n in 0..600 {
        let (first, second) = (1_000 + 2 * n, 1_001 + 2 * n);
        for (id, began_ns) in [(first, now_ns), (second, now_ns + 10 * MS)] {
            client.handle_time(began_ns, false);
            client.handle_begin(id, 0, now_ns, began_ns);
            client.handle_time(began_ns + 10 * MS, false);
            client.handle_end(id, began_ns + 10 * MS, false, &ALONE);
        }
        now_ns += 40 * MS;
    }
    assert_eq!(client.servers.len(), 1);
    assert_eq!(client.kinds[0].service_ns, Some(10 * MS));
    assert_eq!(client.kinds[0].alone_ns, Some(20 * MS));
}

#[test]
fn requests_that_are_worked_on_at_once_are_replayed_at_once() {
    let mut client = known();
    for n in 0..600 {
        let at_ns = (1_000_000 + n * 40) * MS;
        client.handle_time(at_ns, false);
        client.handle_begin(2 * n + 1_000, 0, at_ns, at_ns);
        client.handle_begin(2 * n + 1_001, 0, at_ns, at_ns);
        client.handle_time(at_ns + 10 * MS, false);
        client.handle_end(2 * n + 1_000, at_ns + 10 * MS, false, &ALONE);
        client.handle_end(2 * n + 1_001, at_ns + 10 * MS, false, &ALONE);
    }
    assert_eq!(client.servers.len(), 2);
    assert_eq!(client.kinds[0].alone_ns, Some(10 * MS));
}

#[test]
fn the_guard_closes_before_the_target_passes_and_stays_closed() {
    let mut client = known();
    client.law = Law::Quantile(Level::default());
    let at_ns = 1_000_000 * MS;
    client.handle_time(at_ns, false);
    begin(&mut client, 5_000, at_ns, at_ns);
    // Fresh: half of its 20 ms is slack, and the threshold at level 0 is half.
    assert!(bounds(&client, at_ns).pairs);
    client.level_mut().handle_request(false, ALPHA, true);
    assert!(!bounds(&client, at_ns).pairs, "{:?}", client.level());
    // 5 ms with best-effort work in flight: the progress was less.
    client.handle_time(at_ns + 5 * MS, true);
    let closed = bounds(&client, at_ns + 5 * MS);
    assert!(closed.pairs && closed.beside_ns < 100_000, "{closed:?}");
    client.handle_time(at_ns + 30 * MS, false);
    assert!(bounds(&client, at_ns + 30 * MS).pairs);
}

#[test]
fn the_wait_before_it_began_is_part_of_what_a_request_takes() {
    let mut client = known();
    let at_ns = 1_000_000 * MS;
    let before = client.level();
    client.handle_time(at_ns, false);
    begin(&mut client, 5_000, at_ns - 15 * MS, at_ns);
    client.handle_end(5_000, at_ns + 10 * MS, false, &ALONE);
    assert_eq!(client.level().misses, before.misses + 1);
}

#[test]
fn what_is_cancelled_counts_once_its_target_has_passed() {
    let mut client = known();
    let before = client.level();
    for (id, took_ns, misses) in [(5_000, 19 * MS, 0), (5_001, 21 * MS, 1)] {
        let at_ns = id * 1_000 * MS;
        client.handle_begin(id, 0, at_ns, at_ns);
        client.handle_end(id, at_ns + took_ns, true, &ALONE);
        assert_eq!(client.level().misses, before.misses + misses);
    }
    assert_eq!(client.level().requests, before.requests + 1);
}

#[test]
fn nothing_goes_beside_one_request_in_128_nor_before_it() {
    let mut client = known();
    let (mut bare, mut before) = (0, 0);
    let is_closed = |bounds: Ceiling| bounds.idle_ns == 0 && bounds.beside_ns == 0 && bounds.whole;
    for n in 0..12_800 {
        let at_ns = (1_000_000 + n * 40) * MS;
        client.ended_ns = at_ns - 30 * MS;
        before += u32::from(is_closed(bounds(&client, at_ns)));
        client.handle_begin(10_000 + n, 0, at_ns, at_ns);
        bare += u32::from(is_closed(bounds(&client, at_ns)));
        client.handle_end(10_000 + n, at_ns + 10 * MS, false, &ALONE);
    }
    assert!((95..=105).contains(&bare), "{bare}");
    assert_eq!(before, bare);
}

#[test]
fn the_duty_falls_to_nothing_at_the_floor() {
    let mut client = known();
    let open_ms = |client: &mut Client| {
        client.ended_ns = 40_000 * MS;
        let client = &*client;
        let open = |ms: &u64| bounds(client, 40_000 * MS + ms * MS).idle_ns > 0;
        (0..20).filter(open).count()
    };
    assert_eq!(open_ms(&mut client), 20);
    let mut before = 20;
    while client.level().misses_at_floor == 0 {
        client.level_mut().handle_request(true, ALPHA, true);
        let now = open_ms(&mut client);
        assert!(now <= before);
        assert!(client.level().value() < DUTY_FROM || now == 20);
        before = now;
    }
    assert_eq!(before, 0);
    assert_eq!(client.duty_ns(40_001 * MS), Some(40_020 * MS));
    assert!(bounds(&client, 41_000 * MS).idle_ns > 0);
}

#[test]
fn what_ends_without_having_begun_changes_nothing_and_open_requests_are_bounded() {
    let mut client = known();
    let before = client.level();
    client.handle_end(77_777, 1_000_000 * MS, false, &ALONE);
    assert_eq!(client.level(), before);
    for n in 0..1_000 {
        client.handle_begin(100_000 + n, n as u32, 1_000_000 * MS, 1_000_000 * MS);
    }
    assert_eq!(client.open.len(), OPEN_MAX);
    assert_eq!(client.kinds.len(), KINDS_MAX);
    assert_eq!(client.servers.len(), SERVERS_MAX);
    let mut marked = Marked::default();
    for id in 0..1_000 {
        let mark = Mark::End {
            id,
            at_ns: 0,
            is_cancelled: false,
        };
        marked.handle_mark(id, &mark, &DOUBLE, &ALONE);
    }
    assert_eq!(marked.clients.len(), CLIENTS_MAX);
}

#[test]
fn a_job_may_ask_for_less_and_not_for_more_nor_for_less_than_it_takes_alone() {
    // Solo 10 ms, one request in fifty 14 ms: the median is 10 ms, the p99 and above 14.
    let mut kind = Kind::new(0);
    for n in 0..1_000_u64 {
        let ns = if n % 50 == 0 { 14 * MS } else { 10 * MS };
        kind.push_latency(n * 40 * MS, ns, &DOUBLE);
    }
    let configured = Target {
        ns: 28 * MS,
        miss: ALPHA,
    };
    assert_eq!(kind.target(&DOUBLE), Some(configured));
    for (ms, miss, is_taken) in [
        (15, ALPHA, true),
        (14, 0.001, true),
        (28, 0.001, true),
        // Looser in either, or in both.
        (15, 0.5, false),
        (30, 0.001, false),
        (30, 0.5, false),
        // Less than the solo latency at that quantile.
        (13, ALPHA, false),
        (13, 0.001, false),
    ] {
        kind.handle_own(0, ms * MS, miss);
        let own = Target { ns: ms * MS, miss };
        let target = if is_taken { own } else { configured };
        assert_eq!(kind.target(&DOUBLE), Some(target), "{ms} {miss}");
        assert_eq!(kind.is_own(&DOUBLE), is_taken);
    }
    // The solo latency is that of the mark's own quantile: the median is 10 ms.
    let median = Goal {
        miss: 0.5,
        ..DOUBLE
    };
    kind.handle_goal(&median);
    kind.handle_own(0, 11 * MS, 0.4);
    assert_eq!(
        kind.target(&median),
        Some(Target {
            ns: 11 * MS,
            miss: 0.4
        })
    );
}

#[test]
fn of_kinds_that_are_one_the_tightest_target_is_held() {
    let mut client = known();
    for number in 1..20 {
        client.handle_target(number, u64::from(35 - number) * MS, 990);
    }
    assert_eq!(client.kinds.len(), KINDS_MAX);
    let shared = client.kind(99);
    for n in 0..200 {
        client.kinds[shared].push_latency(n * 40 * MS, 10 * MS, &DOUBLE);
    }
    let target = client.kinds[shared].target(&DOUBLE);
    assert_eq!(target.map(|target| target.ns), Some(16 * MS));
    client.handle_target(30, 15 * MS, 990);
    client.handle_target(31, 16 * MS, 990);
    client.handle_target(32, 12 * MS, 1_000);
    client.handle_target(33, 12 * MS, u32::MAX);
    let target = client.kinds[shared].target(&DOUBLE);
    assert_eq!(target.map(|target| target.ns), Some(15 * MS));
}

#[test]
fn the_share_that_may_be_late_is_the_goals() {
    let half = Goal {
        miss: 0.5,
        ..DOUBLE
    };
    let mut marked = Marked {
        clients: vec![known()],
        ..Marked::default()
    };
    marked.handle_goal(1, &half);
    let before = 0.5;
    marked.clients[0].law = Law::Quantile(Level::begin(before, true));
    let at_ns = 1_000_000 * MS;
    marked.clients[0].handle_begin(9_000, 0, at_ns, at_ns);
    marked.clients[0].handle_end(9_000, at_ns + 50 * MS, false, &ALONE);
    let fall = before - marked.clients[0].level().value();
    assert!((fall - 0.001).abs() < 1e-9, "{fall}");
}

#[test]
fn the_view_tells_the_goal_in_force_and_the_end_it_has_come_to() {
    let mut marked = Marked {
        clients: vec![Client::new(1, DOUBLE)],
        ..Marked::default()
    };
    assert_eq!(marked.slo_view(2), None);
    let view = |marked: &Marked| marked.slo_view(1).unwrap();
    assert_eq!(view(&marked).end, SloEnd::Learning);
    assert_eq!(
        (view(&marked).target_ns, view(&marked).measured_ns),
        (None, None)
    );
    marked.clients[0] = known();
    let held = view(&marked);
    assert_eq!((held.end, held.goal), (SloEnd::Held, DOUBLE));
    assert_eq!(
        (held.target_ns, held.measured_ns),
        (Some(20 * MS), Some(10 * MS))
    );
    assert_eq!((held.misses, held.misses_at_floor), (0, 0));
    marked.clients[0].handle_target(0, 12 * MS, 995);
    let own = Goal {
        slo: Slo::LatencyNs(12 * MS),
        miss: 0.005,
    };
    assert_eq!(view(&marked).goal, own);
    for _ in 0..1_000 {
        marked.clients[0]
            .level_mut()
            .handle_request(true, ALPHA, true);
    }
    assert_eq!(view(&marked).end, SloEnd::Floor);
    for _ in 0..8_000 {
        marked.clients[0]
            .level_mut()
            .handle_request(false, ALPHA, true);
    }
    assert_eq!(view(&marked).end, SloEnd::Top);
}

#[test]
fn one_slow_request_is_no_quantile_and_a_backlog_has_an_end() {
    let mut kind = Kind::new(0);
    for n in 0..FIRST {
        kind.push_service(if n == 7 { 1_000 * MS } else { 10 * MS });
    }
    for n in 0..1_000 {
        assert_eq!(kind.next_service_ns(), Some(10 * MS));
        kind.push_latency(n * 40 * MS, 10 * MS, &DOUBLE);
    }
    let mut client = known();
    for n in 0..2_000 {
        one(&mut client, 1_000 + n, (1_000_000 + n) * MS, MS / 2);
        client.kinds[0].service_ns = Some(10 * MS);
    }
    assert!(client.kinds[0].alone_ns.unwrap() <= 101 * 10 * MS);
}

#[test]
fn a_request_that_does_not_end_is_a_miss_once_and_is_forgotten() {
    let mut client = known();
    let misses = client.level().misses;
    let at_ns = 1_000_000 * MS;
    begin(&mut client, 5_000, at_ns, at_ns);
    client.handle_time(at_ns + 9_999 * MS, true);
    assert_eq!((client.open.len(), client.level().misses), (1, misses));
    client.handle_time(at_ns + 10_000 * MS, true);
    assert_eq!((client.open.len(), client.level().misses), (0, misses + 1));
    client.handle_end(5_000, at_ns + 11_000 * MS, false, &ALONE);
    assert_eq!(client.level().misses, misses + 1);
}

#[test]
fn the_replay_works_on_no_more_at_once_than_the_client_does() {
    let mut client = known();
    for id in 0..5 {
        client.handle_begin(5_000 + id, 0, 1_000_000 * MS, 1_000_000 * MS);
    }
    for id in 0..5 {
        client.handle_end(5_000 + id, 1_000_010 * MS, false, &ALONE);
    }
    assert_eq!(client.servers.len(), 5);
    for n in 0..600 {
        one(&mut client, 6_000 + n, (1_000_100 + n * 40) * MS, 10 * MS);
    }
    assert_eq!(client.servers.len(), 1);
}

#[test]
fn only_what_was_seen_alone_says_what_a_kind_takes_alone() {
    let exposed = Since {
        is_exposed: true,
        ..ALONE
    };
    let mut client = Client::new(1, DOUBLE);
    // Each begins and ends within one poll, in which best-effort work was in flight.
    let one = |client: &mut Client, n: u64| {
        client.handle_time(n * 40 * MS, false);
        client.handle_begin(n, 0, n * 40 * MS, n * 40 * MS);
        client.handle_end(n, n * 40 * MS + 10 * MS, false, &exposed);
    };
    (1..100).for_each(|n| one(&mut client, n));
    assert_eq!(client.kinds[0].services.count, 0);
    // None ever is alone: the estimate is the progress beside best-effort work in that time.
    (100..200).for_each(|n| one(&mut client, n));
    assert_eq!(client.kinds[0].service_ns, Some(6 * MS));
    // No poll for half of the time.
    let mut client = known();
    let count = client.kinds[0].services.count;
    let at_ns = 1_000_000 * MS;
    client.handle_time(at_ns, false);
    begin(&mut client, 5_000, at_ns, at_ns);
    client.open[0].alone_ns = 0;
    client.handle_time(at_ns + 5 * MS, false);
    client.open[0].alone_ns = 0;
    client.handle_end(5_000, at_ns + 10 * MS, false, &ALONE);
    assert_eq!(client.kinds[0].services.count, count);
}

#[test]
fn a_request_of_which_nothing_is_known_closes_however_late_another_is() {
    let mut client = known();
    let at_ns = 1_000_000 * MS;
    begin(&mut client, 5_000, at_ns - 500 * MS, at_ns);
    assert!(bounds(&client, at_ns).idle_ns > 0);
    client.handle_begin(5_001, 3, at_ns, at_ns);
    client.open[1].is_bare = false;
    let closed = bounds(&client, at_ns);
    assert_eq!((closed.idle_ns, closed.beside_ns), (0, 0));
}

#[test]
fn misses_count_as_at_the_floor_where_best_effort_work_is_paused_and_only_there() {
    for miss in [0.001, 0.01, 0.2] {
        let mut client = known();
        client.handle_goal(&Goal { miss, ..DOUBLE });
        // Down to the floor, and up again.
        for n in 0..20_000 {
            client.level_mut().handle_request(n < 10_000, miss, true);
            client.ended_ns = 40_000 * MS;
            let is_paused = (0..20).all(|ms| bounds(&client, (40_000 + ms) * MS).idle_ns == 0);
            assert_eq!(
                is_paused,
                client.level().is_at_floor(miss),
                "{:?}",
                client.level()
            );
        }
    }
}

#[test]
fn what_is_replaced_before_it_ended_is_judged() {
    let mut client = known();
    let before = client.level();
    let at_ns = 1_000_000 * MS;
    for n in 0..3 {
        begin(&mut client, 5_000, at_ns + n * 15 * MS, at_ns + n * 15 * MS);
    }
    // Within their target: nothing is known of them.
    assert_eq!(client.level(), before);
    begin(&mut client, 5_000, at_ns + 60 * MS, at_ns + 60 * MS);
    assert_eq!(client.level().misses, before.misses + 1);
}

#[test]
fn beside_work_that_no_request_is_open_for_the_bounds_are_narrow() {
    let mut client = known();
    client.ended_ns = 1_000_000 * MS;
    let now_ns = client.ended_ns + MS;
    let open = client.bounds(&now(now_ns));
    let foreign = client.bounds(&Now {
        is_foreign: true,
        ..now(now_ns)
    });
    assert!(!open.pairs && open.beside_ns > 100_000, "{open:?}");
    assert!(foreign.pairs && foreign.beside_ns < 100_000, "{foreign:?}");
}

#[test]
fn times_that_cannot_be_are_as_if_they_were_now() {
    let mut marked = Marked {
        clients: vec![known()],
        ..Marked::default()
    };
    let before = marked.clients[0].level();
    let at_ns = 1_000_000 * MS;
    let since = Since {
        now_ns: Some(at_ns),
        ..ALONE
    };
    for (id, arrived_ns, begins_ns, ends_ns) in [
        (5_000, at_ns - 5 * MS, at_ns - 5 * MS, u64::MAX),
        (5_001, at_ns - 5 * MS, at_ns - 5 * MS, 0),
        (5_002, u64::MAX, u64::MAX, u64::MAX),
    ] {
        let begin = Mark::Begin {
            id,
            kind: 0,
            arrived_ns,
            at_ns: begins_ns,
        };
        marked.handle_mark(1, &begin, &DOUBLE, &since);
        let end = Mark::End {
            id,
            at_ns: ends_ns,
            is_cancelled: false,
        };
        marked.handle_mark(1, &end, &DOUBLE, &since);
    }
    let client = &marked.clients[0];
    assert_eq!(client.level().requests, before.requests + 3);
    assert_eq!(client.level().misses, before.misses);
    assert_eq!(client.ended_ns, at_ns);
}

#[test]
fn what_is_cancelled_is_not_replayed_and_a_silent_client_has_no_duty_to_wait_for() {
    let mut client = known();
    let servers = client.servers.clone();
    client.handle_begin(5_000, 0, 1_000_000 * MS, 1_000_000 * MS);
    client.handle_end(5_000, 1_000_001 * MS, true, &ALONE);
    assert_eq!(client.servers, servers);
    for _ in 0..100 {
        client.level_mut().handle_request(true, ALPHA, true);
    }
    assert!(client.duty_ns(1_000_002 * MS).is_some());
    assert_eq!(client.duty_ns(1_002_000 * MS), None);
}

#[test]
fn what_comes_at_equal_intervals_leaves_its_pauses_to_best_effort_work_whatever_the_level() {
    // The last of 200 arrived at 7960 ms; the next comes at 8000.
    let at = |client: &Client, ms: u64| {
        client.bounds(&Now {
            gap_prediction: true,
            ..now(ms * MS)
        })
    };
    let mut client = known();
    for level in [0, -1] {
        while client.level().value() > f64::from(level) {
            client.level_mut().handle_request(true, ALPHA, true);
        }
        // 36 ms, less what has passed, of a bound of 20.
        assert_eq!(at(&client, 7_971).idle_ns, 20 * MS);
        assert_eq!(at(&client, 7_990).idle_ns, 6 * MS);
        assert_eq!(at(&client, 7_990).whole, client.level().value() < 0.0);
        assert_eq!(at(&client, 7_996), bounds(&client, 7_996 * MS));
    }
    while !client.level().is_at_floor(ALPHA) {
        client.level_mut().handle_request(true, ALPHA, true);
    }
    assert_eq!(at(&client, 7_971).idle_ns, 0);
    // One that came after a millisecond: nothing is quiet.
    let mut client = known();
    one(&mut client, 900, 8_000 * MS, MS);
    one(&mut client, 901, 8_001 * MS, MS);
    assert_eq!(at(&client, 8_003), bounds(&client, 8_003 * MS));
}

#[test]
fn while_long_requests_are_learnt_little_goes_before_them() {
    let mut client = Client::new(1, DOUBLE);
    assert_eq!(bounds(&client, 0).idle_ns, 0);
    one(&mut client, 1, 0, 50 * MS);
    assert_eq!(bounds(&client, 51 * MS).idle_ns, 100_000);
    client.handle_begin(2, 0, 60 * MS, 60 * MS);
    assert_eq!(bounds(&client, 61 * MS).beside_ns, 0);
    client.handle_end(2, 61 * MS, false, &ALONE);
    one(&mut client, 3, 70 * MS, 10 * MS);
    assert_eq!(bounds(&client, 81 * MS).idle_ns, 0);
}
