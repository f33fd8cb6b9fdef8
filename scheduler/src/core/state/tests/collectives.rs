//! Best-effort jobs that launch collective kernels.

use protocol::pages::Counter;

use super::*;

/// A client launches a collective kernel, without a lease.
fn launch_collective(be: &Player, cost_ns: u64) {
    let lease = be.lease.as_ref().unwrap();
    lease.charge(&be.page.charged_ns, cost_ns);
    be.page.count(Counter::Collectives, 1);
}

fn told(rig: &mut Rig) -> Vec<&'static str> {
    let drafts = rig.state.take_collectives();
    drafts.iter().map(|draft| draft.kind().name()).collect()
}

fn job<'s>(status: &'s Value, name: &str) -> &'s Value {
    let jobs = status["jobs"].as_array().unwrap();
    jobs.iter().find(|job| job["job"] == name).unwrap()
}

#[test]
fn a_job_that_launches_collectives_is_granted_nothing_while_a_high_priority_client_is_attached() {
    let mut rig = Rig::new("residual_us = 1000");
    let [ring, plain] = ["ring", "plain"].map(|job| rig.be(job));
    let hp = rig.hp("serve");
    rig.poll();
    assert!(rig.try_launch(&ring, &COMPUTE).is_ok());
    assert_eq!(told(&mut rig), [""; 0]);
    launch_collective(&ring, 100 * US);
    ring.waits(1);
    rig.poll();
    assert_eq!(rig.try_launch(&ring, &COMPUTE), Err(Refusal::Stale));
    assert_eq!(
        (told(&mut rig), told(&mut rig)),
        (vec!["collectives"], vec![])
    );
    // Its work in flight, which may wait for other GPUs, delays no other job.
    for _ in 0..20 {
        rig.poll_after(200 * MS);
        assert!(rig.try_launch(&plain, &COMPUTE).is_ok());
        plain.completed(COMPUTE.expected_ns);
        assert!(rig.try_launch(&ring, &COMPUTE).is_err());
    }
    let status = rig.status(Viewer::Operator);
    let ring_status = job(&status, "ring");
    assert_eq!(ring_status["held_by"], "collectives");
    assert_eq!(ring_status["stalled"], false);
    assert!(ring_status["enforcing"].to_string().contains("collective"));
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.poll();
    assert!(rig.terms(&ring).ungated());
    let _hp = rig.hp("serve");
    rig.poll();
    assert!(rig.try_launch(&ring, &COMPUTE).is_err());
    assert_eq!(told(&mut rig), [""; 0]);
}

#[test]
fn what_a_refused_job_waits_for_is_shown_as_time_that_it_stood_still() {
    let mut rig = Rig::new("name = \"pillion\"");
    let be = rig.be("ring");
    let _hp = rig.hp("serve");
    launch_collective(&be, US);
    be.completed(US);
    be.waits(1);
    for _ in 0..3_000 {
        rig.poll_after(MS);
    }
    let status = rig.status(Viewer::Operator);
    let held = &job(&status, "ring")["progress"]["held_recently_ns"];
    let held_ns = held["collectives"].as_u64().unwrap();
    assert!(held_ns >= 1_900 * MS, "{held}");
}

#[test]
fn configured_to_gate_or_without_a_policy_a_job_that_launches_collectives_is_as_any_other() {
    for keys in [
        "collectives = \"gate\"\nresidual_us = 1000",
        "name = \"none\"",
    ] {
        let mut rig = Rig::new(keys);
        let be = rig.be("ring");
        let _hp = rig.hp("serve");
        launch_collective(&be, 100 * US);
        rig.poll();
        assert!(rig.try_launch(&be, &COMPUTE).is_ok(), "{keys}");
        assert_eq!(told(&mut rig), [""; 0], "{keys}");
    }
}

#[test]
fn another_configuration_decides_about_jobs_that_were_seen_launching_before() {
    let mut rig = Rig::new("collectives = \"gate\"");
    let be = rig.be("ring");
    let _hp = rig.hp("serve");
    launch_collective(&be, US);
    be.completed(US);
    rig.poll();
    for (word, goes) in [("refuse", false), ("gate", true)] {
        let text = format!(
            "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nname = \"orion\"\ncollectives = \"{word}\"\n"
        );
        let config = Config::check(Path::new("gpu0.toml"), &text).unwrap();
        rig.state.reconfigure(&config);
        rig.poll_after(MS);
        assert_eq!(rig.try_launch(&be, &MEMORY).is_ok(), goes, "{word}");
        assert_eq!(told(&mut rig).len(), usize::from(!goes), "{word}");
    }
}
