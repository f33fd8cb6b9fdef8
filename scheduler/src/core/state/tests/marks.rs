//! Requests that a program marks, on their way to the policy and into the status.

use protocol::record::{ARRIVED_NS_MAX, Begin, End};

use super::*;
use crate::core::event::Kind;

pub(super) fn begin(id: u64, at_ns: u64) -> Record {
    Record::Begin(Begin {
        id,
        kind: 0,
        batch: 1,
        arrived_ns: at_ns,
        at_ns,
        is_nvtx: false,
    })
}

pub(super) fn end(id: u64, at_ns: u64) -> Record {
    Record::End(End {
        id,
        at_ns,
        is_cancelled: false,
        with_launches: false,
    })
}

/// One request of 10 ms every 40 ms, with a launch; marked or not.
pub(super) fn request(rig: &mut Rig, hp: &mut Player, id: u64, is_marked: bool) {
    let begin = is_marked.then(|| begin(id, rig.now_ns));
    run_request(rig, hp, id, begin);
}

/// As above, marked, after a wait in a queue.
pub(super) fn late_request(rig: &mut Rig, hp: &mut Player, id: u64, waited_ns: u64) {
    let mut begin = begin(id, rig.now_ns);
    if let Record::Begin(begin) = &mut begin {
        begin.arrived_ns -= waited_ns;
    }
    run_request(rig, hp, id, Some(begin));
}

fn run_request(rig: &mut Rig, hp: &mut Player, id: u64, begin: Option<Record>) {
    if let Some(begin) = &begin {
        hp.push(begin);
    }
    rig.launch(hp, Class::Compute, 10 * MS);
    rig.poll();
    rig.now_ns += 10 * MS;
    hp.complete();
    if begin.is_some() {
        hp.push(&end(id, rig.now_ns));
    }
    rig.poll();
    rig.poll_after(30 * MS);
}

pub(super) fn job(rig: &Rig) -> Value {
    let jobs = rig.status(Viewer::Operator)["jobs"].clone();
    let jobs = jobs.as_array().unwrap();
    let serve = jobs.iter().find(|job| job["job"] == "serve");
    serve.unwrap().clone()
}

fn told(rig: &Rig) -> (String, u64) {
    let job = job(rig);
    let source = job["requests_source"].as_str().unwrap_or("none");
    let marked = job["totals"]["requests_marked"].as_u64().unwrap();
    (source.to_owned(), marked)
}

#[test]
fn marked_requests_count_once_sixteen_have_ended_and_each_is_counted() {
    let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    for id in 1..=15 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(told(&rig), ("inferred".to_owned(), 15));
    request(&mut rig, &mut hp, 16, true);
    assert_eq!(told(&rig), ("marks".to_owned(), 16));
    for id in 17..=100 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(told(&rig), ("marks".to_owned(), 100));
    // Each is a busy period of its own, so inference finds as many.
    assert_eq!(job(&rig)["totals"]["requests_inferred"], 100);
    let be = rig.status(Viewer::Operator)["jobs"][0].clone();
    assert_eq!(be["requests_source"], Value::Null);
    assert_eq!(job(&rig)["faults"]["bad_records"], 0);
    let again = hp.page_fd.try_clone().unwrap();
    let class = JobClass::HighPriority;
    let mut hp = rig.try_attach_with(class, "serve", again).unwrap();
    request(&mut rig, &mut hp, 101, true);
    assert_eq!(told(&rig), ("inferred".to_owned(), 101));
    rig.state.handle_detach(rig.now_ns, hp.client);
    assert_eq!(told(&rig), ("none".to_owned(), 101));
}

#[test]
fn the_policy_learns_what_requests_take_from_marks_alone() {
    // Inference learns something else: the launches of a request take 10 ms.
    let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    for id in 1..=16 {
        request(&mut rig, &mut hp, id, true);
    }
    let before = rig.state.gate.ceiling().unwrap();
    for id in 17..=200 {
        request(&mut rig, &mut hp, id, true);
    }
    let bounds = rig.state.gate.ceiling().unwrap();
    // Narrow: 5 % of 10 ms, which only marked requests yield.
    assert_ne!(bounds, before);
    assert!(bounds.idle_ns >= 500 * US, "{bounds:?}");
}

#[test]
fn a_range_that_is_left_before_its_work_is_complete_ends_with_that() {
    let run = |leaves_early: bool| {
        let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
        for id in 1..=200 {
            let at_ns = rig.now_ns;
            hp.push(&Record::Begin(Begin {
                id,
                kind: 0,
                batch: 0,
                arrived_ns: at_ns,
                at_ns,
                is_nvtx: true,
            }));
            rig.launch(&mut hp, Class::Compute, 10 * MS);
            let left = |at_ns| {
                Record::End(End {
                    id,
                    at_ns,
                    is_cancelled: false,
                    with_launches: true,
                })
            };
            if leaves_early {
                hp.push(&left(at_ns));
            }
            rig.poll();
            rig.now_ns += 10 * MS;
            hp.complete_at(rig.now_ns);
            if !leaves_early {
                hp.push(&left(rig.now_ns));
            }
            rig.poll();
            rig.poll_after(30 * MS);
        }
        assert_eq!(told(&rig), ("nvtx".to_owned(), 200));
        rig.state.gate.ceiling().unwrap()
    };
    let (early, late) = (run(true), run(false));
    assert_eq!(early, late);
    // As for requests of 10 ms.
    assert!(early.idle_ns >= 500 * US, "{early:?}");
}

#[test]
fn who_marks_no_more_is_inferred_again_after_ten_seconds_of_requests_and_not_of_rest() {
    let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    for id in 1..=20 {
        request(&mut rig, &mut hp, id, true);
    }
    rig.poll_after(3_600_000 * MS);
    request(&mut rig, &mut hp, 21, true);
    assert_eq!(told(&rig), ("marks".to_owned(), 21), "it has rested");
    assert!(rig.state.take_marks_news().is_empty());
    let since_ns = rig.now_ns;
    while told(&rig).0 == "marks" {
        request(&mut rig, &mut hp, 0, false);
        assert!(rig.now_ns < since_ns + 20_000 * MS);
    }
    assert!(rig.now_ns >= since_ns + 9_900 * MS);
    let news = rig.state.take_marks_news();
    assert_eq!(news.len(), 1);
    assert_eq!(news[0].kind(), Kind::MarksSilent);
    for id in 30..46 {
        assert_eq!(told(&rig).0, "inferred");
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(told(&rig), ("marks".to_owned(), 37));
}

#[test]
fn what_threads_say_is_handed_over_in_the_order_of_its_times() {
    let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    claim_rings(&hp.page, 2);
    for id in 1..=16 {
        request(&mut rig, &mut hp, id, true);
    }
    // The thread whose ring is read first ends what the other began, which begins again at once.
    for id in 100..600 {
        let at_ns = rig.now_ns;
        hp.page.rings[1].push(&begin(id, at_ns).encode()).unwrap();
        hp.push(&end(id, at_ns + 10 * MS));
        rig.poll_after(10 * MS);
        rig.poll_after(30 * MS);
    }
    // None stays open: one that is late by minutes would stop all best-effort work.
    assert!(rig.state.gate.ceiling().unwrap().idle_ns > 0);
    assert_eq!(told(&rig), ("marks".to_owned(), 516));
}

#[test]
fn marks_that_cannot_be_true_are_counted_as_faults_and_end_nothing() {
    let (mut rig, _be, mut hp) = Rig::new("name = \"pillion\"").with_two();
    for id in 1..=20 {
        request(&mut rig, &mut hp, id, true);
    }
    rig.now_ns += 2 * ARRIVED_NS_MAX;
    rig.poll();
    let now_ns = rig.now_ns;
    let arrived = |arrived_ns, at_ns| {
        Record::Begin(Begin {
            id: 77,
            kind: 0,
            batch: 0,
            arrived_ns,
            at_ns,
            is_nvtx: false,
        })
    };
    // In the future, by its own clock and by the daemon's, and too long ago.
    for lie in [
        arrived(now_ns + 1, now_ns),
        arrived(now_ns + 60_000 * MS, now_ns + 60_000 * MS),
        arrived(now_ns - ARRIVED_NS_MAX - 1, now_ns),
        begin(0, now_ns),
        end(0, now_ns),
        Record::Target {
            kind: 0,
            ns: 0,
            per_mille: 990,
        },
    ] {
        hp.push(&lie);
    }
    rig.poll_after(MS);
    assert_eq!(job(&rig)["faults"]["bad_records"], 6);
    // Ends without a begin, and one far in the future, hold up nobody.
    for id in 1_000..1_100 {
        hp.push(&end(id, u64::MAX));
    }
    rig.poll_after(10 * MS);
    request(&mut rig, &mut hp, 2_000, true);
    assert_eq!(told(&rig), ("marks".to_owned(), 121));
    assert_eq!(job(&rig)["faults"]["bad_records"], 6);
}

#[test]
fn what_a_job_asks_for_its_requests_holds_once_marks_count_and_after_another_configuration() {
    let keys = "name = \"pillion\"\nslo_p99 = \"3x\"";
    let bounds_after = |target: Option<u64>, is_reconfigured: bool| {
        let (mut rig, _be, mut hp) = Rig::new(keys).with_two();
        if let Some(ns) = target {
            let (kind, per_mille) = (0, 990);
            hp.push(&Record::Target {
                kind,
                ns,
                per_mille,
            });
        }
        for id in 1..=200 {
            request(&mut rig, &mut hp, id, true);
        }
        if is_reconfigured {
            rig.state
                .reconfigure(&config("name = \"pillion\"\nslo_p99 = \"2.9x\""));
            for id in 201..=400 {
                request(&mut rig, &mut hp, id, true);
            }
        }
        rig.state.gate.ceiling().unwrap()
    };
    for is_reconfigured in [false, true] {
        let free = bounds_after(None, is_reconfigured);
        let asked = bounds_after(Some(12 * MS), is_reconfigured);
        assert!(asked.idle_ns < free.idle_ns, "{asked:?} {free:?}");
        // Less than its duration alone is no target.
        assert_eq!(bounds_after(Some(MS), is_reconfigured), free);
    }
}

/// Back-to-back requests leave best-effort work no time. If their target is loose, their launches
/// give up their priority, and regain it once the device is idle at times.
#[test]
fn launches_have_no_priority_while_the_device_is_never_idle_and_requests_have_time_to_spare() {
    let is_plain = |pause_ns: u64| {
        let keys = "name = \"pillion\"\nslo_p99 = \"3x\"\nblock_priority = true";
        let (mut rig, be, mut hp) = Rig::new(keys).with_two();
        for id in 1..=1_000 {
            be.waits(1);
            hp.push(&begin(id, rig.now_ns));
            rig.launch(&mut hp, Class::Compute, 10 * MS);
            for _ in 0..10 {
                rig.poll_after(MS);
            }
            hp.push(&end(id, rig.now_ns));
            if pause_ns > 0 {
                hp.complete();
                rig.poll();
                rig.poll_after(pause_ns);
            }
        }
        let is_plain = rig.pages.daemon.plain_priority.load(Ordering::Relaxed) != 0;
        rig.state.close();
        assert_eq!(rig.pages.daemon.plain_priority.load(Ordering::Relaxed), 0);
        is_plain
    };
    assert!(is_plain(0));
    assert!(!is_plain(30 * MS));
}

#[test]
fn while_it_is_paused_no_time_at_the_gate_lets_best_effort_work_go_and_a_silence_does() {
    let (mut rig, be, mut hp) = Rig::new("name = \"pillion\"\nslo_p99 = \"5ms\"").with_two();
    let is_held = || be.lease.as_ref().unwrap().is_held();
    for id in 1..=100 {
        request(&mut rig, &mut hp, id, true);
    }
    assert!(!is_held());
    for id in 101..=260 {
        request(&mut rig, &mut hp, id, true);
    }
    assert!(is_held());
    rig.poll_after(1_000 * MS);
    assert!(!is_held());
}
