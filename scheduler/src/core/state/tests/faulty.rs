//! Holds for faults, and clients' reports of lost contexts.

use super::*;
use crate::core::job_key::JobKey;
use crate::core::state::{HELD_JOBS_PER_USER, NewlyHeld, Whose};

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
        assert_eq!(
            rig.state.hold(Whose::Job(&held), "Xid 13"),
            Some(NewlyHeld::Job)
        );
        assert_eq!(rig.state.hold(Whose::Job(&held), "again"), None);
        // At once, however late the next poll: once the hold is reported, no work runs.
        for polls in [0, 1] {
            for _ in 0..polls {
                rig.poll();
            }
            assert!(is_held(&one) && !is_held(&two), "{policy}");
            assert_eq!(rig.try_launch(&one, &COMPUTE), Err(Refusal::Stale));
            assert!(rig.try_launch(&two, &COMPUTE).is_ok());
        }
        assert_eq!(
            rig.state.hold(Whose::Everybody, "Xid 79"),
            Some(NewlyHeld::All)
        );
        let new = rig.be("new");
        for polls in [0, 1] {
            for _ in 0..polls {
                rig.poll();
            }
            assert!(is_held(&one) && is_held(&two) && is_held(&new));
        }
        let why = |job| rig.state.holds.why(&key(job, JobClass::BestEffort));
        assert_eq!((why("one"), why("two")), (Some("Xid 13"), Some("Xid 79")));
        assert_eq!(rig.state.release(Some("one")).jobs, [held]);
        assert!(rig.state.release(Some("two")).is_nothing());
        rig.poll();
        assert!(is_held(&one));
        assert_eq!(rig.state.release(None).others, 1);
        rig.poll();
        for be in [&one, &two, &new] {
            assert!(!is_held(be) && rig.try_launch(be, &COMPUTE).is_ok());
        }
        assert!(rig.state.release(None).is_nothing());
    }
}

#[test]
fn a_drained_gpu_takes_every_job_holds_the_best_effort_ones_and_tells_of_new_high_priority_ones() {
    let mut rig = Rig::new("");
    let _hp = rig.hp("serve");
    assert!(rig.state.drain_gpu("Xid 79"));
    assert!(!rig.state.drain_gpu("again"));
    let mut draining = |class, job| rig.try_attach(class, job).expect("it is taken").draining;
    assert_eq!(
        draining(JobClass::HighPriority, "serve"),
        None,
        "one more process"
    );
    assert_eq!(draining(JobClass::BestEffort, "train"), None);
    let told = draining(JobClass::HighPriority, "second");
    assert_eq!(told.as_deref(), Some("again"));
    let be = rig.be("other");
    rig.poll();
    assert!(be.lease.as_ref().unwrap().is_held());
    rig.state.release(None);
    let told = rig.try_attach(JobClass::HighPriority, "third");
    assert_eq!(told.expect("it is taken").draining, None);
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
fn a_user_with_more_jobs_than_are_held_by_name_has_all_its_jobs_held_and_nobody_else_has() {
    let mut rig = Rig::new("");
    let own = rig.be("another");
    rig.uid = 1001;
    let others = rig.be("another");
    for number in 0..1_000 {
        let held = key(&number.to_string(), JobClass::BestEffort);
        let newly = rig.state.hold(Whose::Job(&held), "why");
        assert_eq!(
            newly,
            match number {
                0..HELD_JOBS_PER_USER => Some(NewlyHeld::Job),
                HELD_JOBS_PER_USER => Some(NewlyHeld::User(1000)),
                _ => None,
            }
        );
    }
    rig.poll();
    assert!(own.lease.as_ref().unwrap().is_held());
    assert!(!others.lease.as_ref().unwrap().is_held());
    let released = rig.state.release(None);
    assert_eq!(
        (released.jobs.len(), released.others),
        (HELD_JOBS_PER_USER, 1)
    );
    rig.poll();
    assert!(!own.lease.as_ref().unwrap().is_held());
}

#[test]
fn the_jobs_of_one_user_are_held_together_and_another_users_go_on() {
    let mut rig = Rig::new("");
    let [one, two] = [rig.be("one"), rig.be("two")];
    rig.uid = 1001;
    let others = rig.be("one");
    let user = Whose::User(1000);
    assert_eq!(rig.state.hold(user, "why"), Some(NewlyHeld::User(1000)));
    assert_eq!(rig.state.hold(user, "again"), None);
    let held = key("one", JobClass::BestEffort);
    assert_eq!(rig.state.hold(Whose::Job(&held), "own"), None);
    rig.uid = 1000;
    let new = rig.be("new");
    rig.poll();
    for be in [&one, &two, &new] {
        assert!(be.lease.as_ref().unwrap().is_held());
    }
    assert!(rig.try_launch(&others, &COMPUTE).is_ok());
    assert!(rig.state.release(Some("one")).is_nothing());
    assert_eq!(rig.state.release(None).others, 1);
    rig.poll();
    assert!(rig.try_launch(&one, &COMPUTE).is_ok());
}

#[test]
fn more_users_than_are_held_hold_nobody_else_and_no_more_is_remembered() {
    let mut rig = Rig::new("");
    let be = rig.be("another");
    for uid in 2_000..2_100 {
        for number in 0..=HELD_JOBS_PER_USER {
            let id = number.to_string();
            let class = JobClass::BestEffort;
            rig.state
                .hold(Whose::Job(&JobKey { id, uid, class }), "why");
        }
    }
    for user in [2_100, 2_101] {
        let mut hold = || rig.state.hold(Whose::User(user), "why");
        let told = [hold(), hold(), hold()];
        assert_eq!(told, [Some(NewlyHeld::Nobody(user)), None, None]);
    }
    rig.poll();
    assert!(!be.lease.as_ref().unwrap().is_held());
    let released = rig.state.release(None);
    assert_eq!(
        (released.jobs.len(), released.others),
        (100 * HELD_JOBS_PER_USER, 64)
    );
    for uid in 3_000..3_064 {
        let newly = rig.state.hold(Whose::User(uid), "why");
        assert_eq!(newly, Some(NewlyHeld::User(uid)));
    }
    for uid in 2_100..2_300 {
        let newly = rig.state.hold(Whose::User(uid), "why");
        assert_eq!(newly, Some(NewlyHeld::Nobody(uid)));
    }
    assert_eq!(rig.state.holds.refused.len(), HELD_USERS_MAX);
}

/// A thread of a held job waits for an operator, and costs others nothing meanwhile.
#[test]
fn a_job_that_is_held_takes_no_turn_owes_nobody_and_wakes_nobody() {
    let mut rig = Rig::new("name = \"temporal\"");
    let mut hp = rig.hp("serve");
    let [held, other] = [rig.be("held"), rig.be("other")];
    let held_key = key("held", JobClass::BestEffort);
    rig.state.hold(Whose::Job(&held_key), "why");
    for be in [&held, &other] {
        be.waits(1);
    }
    for _ in 0..3_000 {
        rig.poll_after(MS);
        assert!(held.lease.as_ref().unwrap().is_held());
        assert!(rig.terms(&other).limit_total_ns > 0, "{}", rig.now_ns);
    }
    let job = rig
        .state
        .jobs
        .iter()
        .find(|job| job.key == held_key)
        .unwrap();
    let share = job.be_job.as_ref().unwrap().progress().share();
    assert_eq!(share, None, "it wants nothing");
    other.waits(0);
    rig.launch(&mut hp, Class::Compute, 60 * MS);
    rig.poll();
    assert_eq!(rig.poll_after(10 * MS), Look::At(rig.now_ns + MS), "seldom");
    assert_eq!(hp.page.probe.load(Ordering::Relaxed), 0);
}

/// The thread sleeps for long meanwhile, and its time may be over.
#[test]
fn whoever_waits_is_woken_when_it_is_let_go_although_the_policy_holds_it_still() {
    let mut rig = Rig::new("");
    let mut hp = rig.hp("serve");
    let be = rig.be("train");
    rig.launch(&mut hp, Class::Compute, 60 * MS);
    be.waits(1);
    rig.state.hold(Whose::Everybody, "why");
    let wakes_a_lease = |rig: &mut Rig| {
        rig.poll_after(MS);
        let of_lease = |wake: &Wake| matches!(wake, Wake::Lease { .. });
        rig.state.wakes.iter().any(of_lease)
    };
    assert!(!wakes_a_lease(&mut rig) && !wakes_a_lease(&mut rig));
    rig.state.release(None);
    assert!(wakes_a_lease(&mut rig) && !wakes_a_lease(&mut rig));
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
}
