//! Poll times, and wake-ups when protection begins.

use super::*;
use crate::core::state::hp_client::AGAIN_NS;

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn with_nobody_to_protect_it_looks_once_a_second_whatever_best_effort_jobs_do() {
    let mut rig = Rig::new("name = \"pillion\"");
    let be = rig.be("a");
    let next = Look::At(rig.now_ns + SECOND_NS);
    assert_eq!(rig.poll(), next);
    rig.try_launch(&be, &COMPUTE).unwrap();
    be.page.waiting.store(1, Ordering::Relaxed);
    assert_eq!(rig.poll(), next);
}

#[test]
fn helpers_of_best_effort_jobs_are_woken_once_when_a_high_priority_client_comes() {
    let mut rig = Rig::new("");
    let _be = [rig.be("a"), rig.be("b")];
    rig.poll();
    assert_eq!(
        rig.state.bells_to_ring(),
        2,
        "of the leases that they wait for"
    );
    rig.poll_after(SECOND_NS);
    assert_eq!(rig.state.bells_to_ring(), 0);
    let _hp = rig.hp("hp");
    rig.poll_after(MS);
    let helpers = rig.state.wakes.iter();
    let helpers = helpers.filter(|wake| matches!(wake, Wake::Helper { .. }));
    assert_eq!(helpers.count(), 2);
    rig.poll_after(MS);
    let mut wakes = rig.state.wakes.iter();
    assert!(!wakes.any(|wake| matches!(wake, Wake::Helper { .. })));
}

#[test]
fn where_only_completions_help_it_sleeps_for_eight_pauses() {
    let mut rig = Rig::new("name = \"pillion\"");
    let be = rig.be("a");
    let _hp = rig.hp("hp");
    assert_eq!(rig.poll(), Look::At(rig.now_ns + MS));
    // More than the bound is in flight, with a waiter: only completions help, and they ring.
    be.page.waiting.store(1, Ordering::Relaxed);
    be.lease
        .as_ref()
        .unwrap()
        .charge(&be.page.charged_ns, 5 * MS);
    assert_eq!(rig.poll(), Look::At(rig.now_ns + 400 * US));
}

#[test]
fn a_request_begins_when_its_launch_says_it_did() {
    let mut rig = Rig::new("");
    let mut hp = rig.hp("hp");
    rig.poll();
    let began_ns = rig.now_ns + 10 * US;
    hp.seq += 1;
    hp.push(&Record::Launch(Launch {
        stream: 0,
        seq: hp.seq,
        kernel: 1,
        expected_ns: MS,
        sm_needed: 80,
        class: Class::Compute.bits() as u8,
        at_ns: began_ns,
    }));
    rig.poll_after(MS);
    assert!(rig.state.hp.busy);
    assert_eq!(rig.state.hp.since_ns, began_ns);
    // An impossible time is clamped to the nearest possible one.
    let (seq, looked_ns) = (hp.seq, rig.now_ns);
    hp.push(&Record::Complete {
        stream: 0,
        seq,
        at_ns: 1,
    });
    rig.poll_after(MS);
    assert_eq!(
        (rig.state.hp.busy, rig.state.hp.since_ns),
        (false, looked_ns)
    );
}

#[test]
fn a_quiet_busy_client_is_asked_while_somebody_waits_and_not_otherwise() {
    let (mut rig, be, mut hp) = Rig::new("").with_two();
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll();
    let probe = |hp: &Player| hp.page.probe.load(Ordering::Relaxed);
    let rung = |rig: &Rig| {
        let wakes = rig.state.wakes.iter();
        wakes
            .filter(|wake| matches!(wake, Wake::Helper { .. }))
            .count()
    };
    rig.poll_after(200 * US);
    assert_eq!(probe(&hp), 0, "nobody waits");
    be.waits(1);
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll_after(50 * US);
    rig.poll_after(99 * US);
    assert_eq!(probe(&hp), 0, "it was heard of 99 us ago");
    rig.poll_after(US);
    assert_eq!((probe(&hp), rung(&rig)), (1, 1));
    // Its helper polls by itself; it is rung again after silence.
    rig.poll_after(AGAIN_NS - 1);
    assert_eq!(rung(&rig), 0);
    rig.poll_after(1);
    assert_eq!((probe(&hp), rung(&rig)), (1, 1));
    hp.complete();
    rig.poll_after(AGAIN_NS - 1);
    assert_eq!(probe(&hp), 1);
    rig.poll_after(1);
    assert_eq!(probe(&hp), 0);
}
