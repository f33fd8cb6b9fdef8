//! The worked policy of docs/add-a-policy.md in the daemon: from its name to published leases.

use super::*;

#[test]
fn the_worked_policy_grants_once_high_priority_work_has_been_over_for_the_configured_time() {
    let (mut rig, be, mut hp) = Rig::new("name = \"idle-only\"\nidle_us = 300").with_two();
    be.waits(1);
    rig.launch(&mut hp, Class::Compute, 500 * US);
    rig.poll();
    assert!(rig.try_launch(&be, &COMPUTE).is_err(), "it is busy");
    hp.complete();
    for passed_us in [50, 200, 50] {
        rig.poll_after(passed_us * US);
        assert!(rig.try_launch(&be, &COMPUTE).is_err(), "idle too shortly");
    }
    rig.poll_after(50 * US);
    // 60 us each, and 100 us may be in flight.
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
    be.completed(120 * US);
    rig.poll_after(50 * US);
    rig.launch(&mut hp, Class::Compute, 500 * US);
    assert!(
        rig.try_launch(&be, &COMPUTE).is_err(),
        "its lease is void at once"
    );
}

#[test]
fn the_status_has_the_numbers_of_the_worked_policy_and_what_it_does() {
    let mut rig = Rig::new("name = \"idle-only\"\nidle_us = 300");
    let _be = rig.be("train");
    let _hp = rig.hp("serve");
    rig.poll();
    let status = rig.status(Viewer::Operator);
    assert_eq!(status["policy"]["name"], "idle-only");
    assert_eq!(status["policy"]["params"]["idle_us"], 300.0);
    let enforcing = status["jobs"][0]["enforcing"].as_str().unwrap();
    assert!(enforcing.contains("idle for idle_us"), "{status}");
}
