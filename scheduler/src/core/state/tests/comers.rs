//! Best-effort jobs that arrive while the GPU is in trouble.

use super::*;
use crate::core::state::Whose;

const WHY: &str = "the GPU is unhealthy (memory 93 %, bound 92 %)";

fn is_held(be: &Player) -> bool {
    be.lease.as_ref().unwrap().is_held()
}

fn trouble(rig: &mut Rig) -> bool {
    rig.state.hold_comers(Some(WHY.to_owned()), false)
}

#[test]
fn who_comes_while_the_gpu_is_in_trouble_waits_and_who_is_there_does_not() {
    for policy in ["name = \"none\"", "name = \"pillion\""] {
        let mut rig = Rig::new(policy);
        let old = rig.be("old");
        rig.poll();
        assert!(!trouble(&mut rig));
        let (new, _hp) = (rig.be("new"), rig.hp("serve"));
        for _ in 0..3 {
            // Repeated each second, and for longer than any wait at the gate.
            trouble(&mut rig);
            rig.poll_after(200 * MS);
            assert!(is_held(&new) && !is_held(&old));
            assert_eq!(rig.try_launch(&new, &COMPUTE), Err(Refusal::Stale));
        }
        assert_eq!(rig.state.holds.waiting(), 1);
        let status = rig.status(Viewer::Operator);
        let expected = format!("waits until the GPU is healthy, or `pillion resume`: {WHY}");
        assert_eq!(status["jobs"][1]["enforcing"], expected);
        assert!(status["held"].as_array().unwrap().is_empty(), "{status}");
        let another = rig.be("old");
        assert!(!is_held(&another));
        assert!(rig.state.hold_comers(None, false), "somebody goes on");
        rig.poll();
        assert!(!is_held(&new) && rig.state.holds.waiting() == 0);
    }
}

#[test]
fn who_waits_goes_on_where_an_operator_says_so() {
    let mut rig = Rig::new("name = \"none\"");
    trouble(&mut rig);
    let [one, two, three] = ["one", "two", "three"].map(|job| rig.be(job));
    let released = rig.state.release(Some("one"));
    assert_eq!((released.jobs.len(), released.others), (1, 0));
    trouble(&mut rig);
    rig.poll();
    assert!(!is_held(&one) && is_held(&two) && is_held(&three));
    assert_eq!(rig.state.release(None).jobs.len(), 2);
    rig.poll();
    assert!(!is_held(&two) && !is_held(&three));
    assert!(is_held(&rig.be("four")));
    // A job with a fault of its own stays held when the GPU is healthy again.
    let five = rig.be("five");
    let key = rig.state.best_effort_jobs().pop().unwrap();
    assert!(rig.state.hold(Whose::Job(&key), "Xid 13").is_some());
    rig.state.hold_comers(None, false);
    rig.poll();
    assert!(is_held(&five));
}

#[test]
fn a_job_that_ran_under_the_daemon_before_is_not_new_and_one_that_comes_again_is() {
    let mut rig = Rig::new("name = \"none\"");
    trouble(&mut rig);
    let (page_fd, page) = client_page(&Clock::monotonic()).unwrap();
    page.count(Counter::Launches, 1);
    let ran = rig
        .try_attach_with(JobClass::BestEffort, "ran", page_fd)
        .unwrap();
    assert!(!is_held(&ran));
    rig.state.handle_detach(rig.now_ns, ran.client);
    rig.state.hold_comers(Some(WHY.to_owned()), true);
    let (page_fd, page) = client_page(&Clock::monotonic()).unwrap();
    page.count(Counter::Launches, 1);
    let ran = rig
        .try_attach_with(JobClass::BestEffort, "ran", page_fd)
        .unwrap();
    assert!(is_held(&ran));
    rig.state.handle_detach(rig.now_ns, ran.client);
    trouble(&mut rig);
    assert!(is_held(&rig.be("ran")));
    for job in 0..1_000 {
        let be = rig.be(&job.to_string());
        rig.state.handle_detach(rig.now_ns, be.client);
    }
    assert!(rig.state.holds.waiting() <= 2);
}

#[test]
fn a_job_that_cannot_be_ended_waits_as_one_that_has_come() {
    let mut rig = Rig::new("name = \"none\"");
    let old = rig.be("old");
    let key = rig.state.best_effort_jobs().pop().unwrap();
    rig.state.hold_as_comer(&key);
    rig.poll();
    assert!(!is_held(&old), "nothing is wrong");
    trouble(&mut rig);
    rig.state.hold_as_comer(&key);
    rig.state.hold_as_comer(&key);
    rig.poll();
    assert!(is_held(&old) && rig.state.holds.waiting() == 1);
}
