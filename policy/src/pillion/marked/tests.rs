use super::*;
use crate::pillion::MISS as ALPHA;

const MS: u64 = 1_000_000;

/// A client whose requests take 10 ms alone and arrive every 40 ms, none of which met anything.
fn known() -> Client {
    let mut client = Client::new(1, DOUBLE);
    for n in 0..200 {
        one(&mut client, n, n * 40 * MS, 10 * MS);
    }
    client
}

/// A request that arrives and begins then, and takes so long; beside nothing.
fn one(client: &mut Client, id: u64, at_ns: u64, took_ns: u64) {
    client.handle_time(at_ns, false);
    client.begin(id, 0, at_ns, at_ns);
    client.handle_time(at_ns + took_ns, false);
    client.end(id, at_ns + took_ns, false, true);
}

/// Twice what they take alone.
const DOUBLE: Goal = Goal {
    slo: Slo::Slowdown(2.0),
    miss: ALPHA,
};

fn bounds(client: &Client, now_ns: u64) -> Bounds {
    client.bounds(now_ns, 100_000, false)
}

/// A request that is not one of those that nothing goes beside.
fn begin(client: &mut Client, id: u64, arrived_ns: u64, at_ns: u64) {
    client.begin(id, 0, arrived_ns, at_ns);
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
    assert_eq!(client.level.requests, 0);
    // Of nobody anything is known, and there is no request for a second.
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
            client.begin(id, 0, now_ns, began_ns);
            client.handle_time(began_ns + 10 * MS, false);
            client.end(id, began_ns + 10 * MS, false, true);
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
        client.begin(2 * n + 1_000, 0, at_ns, at_ns);
        client.begin(2 * n + 1_001, 0, at_ns, at_ns);
        client.handle_time(at_ns + 10 * MS, false);
        client.end(2 * n + 1_000, at_ns + 10 * MS, false, true);
        client.end(2 * n + 1_001, at_ns + 10 * MS, false, true);
    }
    assert_eq!(client.servers.len(), 2);
    assert_eq!(client.kinds[0].alone_ns, Some(10 * MS));
}

#[test]
fn the_guard_closes_before_the_target_passes_and_stays_closed() {
    let mut client = known();
    client.level = Level::default();
    let at_ns = 1_000_000 * MS;
    client.handle_time(at_ns, false);
    begin(&mut client, 5_000, at_ns, at_ns);
    // Fresh: half of its 20 ms is slack, and the threshold at level 0 is half.
    assert!(bounds(&client, at_ns).pairs);
    client.level.handle_request(false, ALPHA, true);
    assert!(!bounds(&client, at_ns).pairs, "{:?}", client.level);
    // 5 ms with best-effort work in flight: less than that was done.
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
    let before = client.level;
    client.handle_time(at_ns, false);
    begin(&mut client, 5_000, at_ns - 15 * MS, at_ns);
    client.end(5_000, at_ns + 10 * MS, false, true);
    assert_eq!(client.level.misses, before.misses + 1);
}

#[test]
fn what_is_cancelled_counts_once_its_target_has_passed() {
    let mut client = known();
    let before = client.level;
    for (id, took_ns, misses) in [(5_000, 19 * MS, 0), (5_001, 21 * MS, 1)] {
        let at_ns = id * 1_000 * MS;
        client.begin(id, 0, at_ns, at_ns);
        client.end(id, at_ns + took_ns, true, true);
        assert_eq!(client.level.misses, before.misses + misses);
    }
    assert_eq!(client.level.requests, before.requests + 1);
}

#[test]
fn nothing_goes_beside_one_request_in_sixty_four() {
    let mut client = known();
    let mut bare = 0;
    for n in 0..6_400 {
        let at_ns = (1_000_000 + n * 40) * MS;
        client.begin(10_000 + n, 0, at_ns, at_ns);
        let bounds = bounds(&client, at_ns);
        bare += u32::from(bounds.idle_ns == 0 && bounds.beside_ns == 0 && bounds.whole);
        client.end(10_000 + n, at_ns + 10 * MS, false, true);
    }
    assert!((95..=105).contains(&bare), "{bare}");
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
    while client.level.misses_at_floor == 0 {
        client.level.handle_request(true, ALPHA, true);
        let now = open_ms(&mut client);
        assert!(now <= before);
        assert!(client.level.value() < DUTY_FROM || now == 20);
        before = now;
    }
    assert_eq!(before, 0);
    assert_eq!(client.duty_ns(40_001 * MS), Some(40_020 * MS));
    // A second later nobody says any more that requests are late.
    assert!(bounds(&client, 41_000 * MS).idle_ns > 0);
}

#[test]
fn what_ends_without_having_begun_changes_nothing_and_open_requests_are_bounded() {
    let mut client = known();
    let before = client.level;
    client.end(77_777, 1_000_000 * MS, false, true);
    assert_eq!(client.level, before);
    for n in 0..1_000 {
        client.begin(100_000 + n, n as u32, 1_000_000 * MS, 1_000_000 * MS);
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
        marked.handle_mark(id, &mark, &DOUBLE, None);
    }
    assert_eq!(marked.clients.len(), CLIENTS_MAX);
}

#[test]
fn a_job_may_ask_for_less_and_not_for_more_nor_for_less_than_it_takes_alone() {
    // Alone 10 ms, and one request in fifty 14 ms: the median is 10 ms, the 99th percentile and above 14.
    let mut kind = Kind::new(0);
    for n in 0..1_000_u64 {
        kind.push_latency(if n % 50 == 0 { 14 * MS } else { 10 * MS }, &DOUBLE);
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
        // Less than it takes alone at that quantile.
        (13, ALPHA, false),
        (13, 0.001, false),
    ] {
        kind.handle_own(0, ms * MS, miss);
        let own = Target { ns: ms * MS, miss };
        let target = if is_taken { own } else { configured };
        assert_eq!(kind.target(&DOUBLE), Some(target), "{ms} {miss}");
        assert_eq!(kind.is_own(&DOUBLE), is_taken);
    }
    // What it takes alone is that of the mark's own quantile: the median is 10 ms.
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
    for _ in 0..200 {
        client.kinds[shared].push_latency(10 * MS, &DOUBLE);
    }
    let target = client.kinds[shared].target(&DOUBLE);
    assert_eq!(target.map(|target| target.ns), Some(16 * MS));
    client.handle_target(30, 15 * MS, 990);
    client.handle_target(31, 16 * MS, 990);
    // Out of range.
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
    };
    marked.handle_goal(1, &half);
    let before = marked.clients[0].level.value();
    let at_ns = 1_000_000 * MS;
    marked.clients[0].begin(9_000, 0, at_ns, at_ns);
    marked.clients[0].end(9_000, at_ns + 50 * MS, false, true);
    let fall = before - marked.clients[0].level.value();
    assert!((fall - 0.001).abs() < 1e-9, "{fall}");
}

#[test]
fn the_view_tells_the_goal_in_force_and_the_end_it_has_come_to() {
    let mut marked = Marked {
        clients: vec![Client::new(1, DOUBLE)],
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
        marked.clients[0].level.handle_request(true, ALPHA, true);
    }
    assert_eq!(view(&marked).end, SloEnd::Floor);
    for _ in 0..8_000 {
        marked.clients[0].level.handle_request(false, ALPHA, true);
    }
    assert_eq!(view(&marked).end, SloEnd::Top);
}
