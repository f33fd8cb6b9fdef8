//! What is held for a fault, and what clients say that they cannot go on.

use super::*;
use crate::state::JobKey;

fn key(job: &str, class: JobClass) -> JobKey {
    JobKey {
        id: job.to_owned(),
        uid: 1000,
        class,
    }
}

#[test]
fn what_is_held_for_a_fault_is_held_whatever_the_policy_until_it_is_released() {
    for policy in ["name = \"none\"", "name = \"pillion\""] {
        let mut rig = Rig::new(policy);
        let [one, two] = [rig.be("one"), rig.be("two")];
        rig.poll();
        let is_held = |be: &Player| be.lease.as_ref().unwrap().is_held();
        let held = key("one", JobClass::BestEffort);
        assert!(rig.state.hold(Some(&held), "Xid 13"));
        assert!(!rig.state.hold(Some(&held), "again"));
        rig.poll();
        assert!(is_held(&one) && !is_held(&two), "{policy}");
        assert_eq!(rig.try_launch(&one, &COMPUTE), Err(Refusal::Stale));
        assert!(rig.try_launch(&two, &COMPUTE).is_ok());
        assert!(rig.state.hold(None, "Xid 79"));
        let new = rig.be("new");
        rig.poll();
        assert!(is_held(&one) && is_held(&two) && is_held(&new));
        assert_eq!(rig.state.holds.why(), Some("Xid 79"));
        // What is held with all others stays so.
        assert_eq!(rig.state.release(Some("one")), 1);
        assert_eq!(rig.state.release(Some("two")), 0);
        rig.poll();
        assert!(is_held(&one));
        assert_eq!(rig.state.release(None), 1);
        rig.poll();
        for be in [&one, &two, &new] {
            assert!(!is_held(be) && rig.try_launch(be, &COMPUTE).is_ok());
        }
        assert_eq!((rig.state.release(None), rig.state.holds.why()), (0, None));
    }
}

#[test]
fn a_drained_gpu_takes_processes_of_its_jobs_and_best_effort_jobs_and_no_other() {
    let mut rig = Rig::new("");
    let _hp = rig.hp("serve");
    assert!(rig.state.drain_gpu("Xid 79"));
    assert!(!rig.state.drain_gpu("again"));
    let _more = rig.hp("serve");
    let be = rig.be("train");
    let refused = rig
        .try_attach(JobClass::HighPriority, "second")
        .err()
        .unwrap();
    assert_eq!(refused, Refused::Draining("Xid 79".to_owned()));
    rig.poll();
    assert!(be.lease.as_ref().unwrap().is_held());
    rig.state.release(None);
    rig.hp("second");
}

#[test]
fn a_lost_context_is_told_once_also_by_a_client_that_is_gone_and_other_words_are_not_believed() {
    let mut rig = Rig::new("");
    let [one, two, liar] = [rig.be("one"), rig.hp("two"), rig.be("liar")];
    assert_eq!(rig.state.take_stickies(), []);
    one.page.sticky.store(700, Ordering::Relaxed);
    two.page.sticky.store(719, Ordering::Relaxed);
    liar.page.sticky.store(2, Ordering::Relaxed);
    rig.state.handle_detach(rig.now_ns, two.client);
    let told = rig.state.take_stickies();
    let told: Vec<_> = told
        .iter()
        .map(|sticky| (sticky.key.id.as_str(), sticky.code))
        .collect();
    assert_eq!(told, [("two", 719), ("one", 700)]);
    one.page.sticky.store(719, Ordering::Relaxed);
    liar.page.sticky.store(700, Ordering::Relaxed);
    rig.state.handle_detach(rig.now_ns, one.client);
    assert_eq!(rig.state.take_stickies(), []);
}

#[test]
fn clients_that_come_and_go_with_errors_do_not_grow_what_is_remembered() {
    let mut rig = Rig::new("");
    for _ in 0..2 * CLIENTS_MAX {
        let be = rig.be("storm");
        be.page.sticky.store(700, Ordering::Relaxed);
        rig.state.handle_detach(rig.now_ns, be.client);
    }
    assert_eq!(rig.state.take_stickies().len(), CLIENTS_MAX);
}

#[test]
fn more_jobs_than_are_held_by_name_hold_all() {
    let mut rig = Rig::new("");
    let be = rig.be("another");
    for number in 0..=64 {
        assert!(
            rig.state
                .hold(Some(&key(&number.to_string(), JobClass::BestEffort)), "why")
        );
    }
    rig.poll();
    assert!(be.lease.as_ref().unwrap().is_held());
}
