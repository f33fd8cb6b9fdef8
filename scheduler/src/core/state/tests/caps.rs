//! Caps on the GPU's time: their sources, and the resulting leases.

use protocol::compute::CapChange;

use super::*;

fn asking(share: &str, keys: &str) -> (Rig, Player) {
    let mut rig = Rig::new(keys);
    rig.compute = share.to_owned();
    let be = rig.be("train");
    (rig, be)
}

fn set(rig: &mut Rig, change: &str) {
    for key in rig.state.cap_jobs("train", Some(1000)).unwrap() {
        rig.state
            .handle_cap(&key, CapChange::parse(change).unwrap());
    }
}

fn told(rig: &Rig) -> (f64, String) {
    let usage = rig.status(Viewer::Operator)["jobs"][0]["control"]["usage"].clone();
    let source = usage["source"].as_str().unwrap().to_owned();
    (usage["cap"].as_f64().unwrap(), source)
}

fn pair(cap: f64, source: &str) -> (f64, String) {
    (cap, source.to_owned())
}

#[test]
fn what_a_job_asks_is_changed_by_who_may_and_never_more_than_the_operator_allows() {
    let (mut rig, _be) = asking("", "name = \"none\"");
    assert_eq!(told(&rig), pair(1.0, "configuration"));
    set(&mut rig, "30%");
    assert_eq!(told(&rig), pair(0.3, "set"));
    let rule = "name = \"none\"\n[jobs.train]\nmax_share = 0.25";
    for (asked, cap) in [
        ("", pair(0.25, "configuration")),
        ("10%", pair(0.1, "run")),
        ("25%", pair(0.25, "run")),
        ("40%", pair(0.25, "configuration")),
        ("fast", pair(0.25, "configuration")),
    ] {
        let (mut rig, _be) = asking(asked, rule);
        assert_eq!(told(&rig), cap, "{asked}");
        set(&mut rig, "60%");
        assert_eq!(told(&rig), pair(0.25, "configuration"), "{asked}");
        set(&mut rig, "default");
        assert_eq!(told(&rig), pair(0.25, "configuration"), "{asked}");
    }
    let refused = |rig: &Rig, id: &str, uid| rig.state.cap_jobs(id, uid).unwrap_err().to_string();
    let _hp = rig.hp("serve");
    assert!(refused(&rig, "serve", None).contains("is high-priority"));
    assert!(refused(&rig, "train", Some(1001)).contains("of your user"));
    assert!(refused(&rig, "nobody", None).contains("no job \"nobody\""));
}

#[test]
fn a_share_holds_with_nobody_to_protect_and_the_daemon_looks_when_there_is_some_of_it_again() {
    for keys in ["name = \"none\"", "name = \"pillion\"", "name = \"orion\""] {
        let (mut rig, be) = asking("25%", keys);
        rig.poll();
        let terms = rig.terms(&be);
        assert!(terms.standing() && !terms.ungated(), "{keys}");
        assert_eq!(
            rig.live_epoch(),
            0,
            "{keys}: nobody pays for a lease like that"
        );
        assert!(rig.try_launch(&be, &kernel(Class::Compute, 4 * MS)).is_ok());
        assert!(rig.try_launch(&be, &kernel(Class::Compute, 4 * MS)).is_ok());
        let next = rig.try_launch(&be, &kernel(Class::Compute, MS));
        assert_eq!(next, Err(Refusal::NotAdmitted), "{keys}");
        be.waits(1);
        // 3 ms of debt, and 2.5 ms to go on: 22 ms.
        let look = rig.poll_after(0);
        assert_eq!(look, Look::At(rig.now_ns + 22 * MS + 1), "{keys}");
        let page = rig.state.be_jobs().next().unwrap().page();
        assert!(
            page.is_held() && page.is_rated() && page.is_standing(),
            "{keys}"
        );
        assert_eq!(
            rig.state.be_jobs().next().unwrap().limit(),
            policy::Limit::Rate
        );
        assert_eq!(rig.state.bells_to_ring(), 0, "{keys}");
        rig.poll_after(22 * MS + 1);
        assert_eq!(rig.state.bells_to_ring(), 1, "{keys}: who waits may go");
        assert!(
            rig.try_launch(&be, &kernel(Class::Compute, MS)).is_ok(),
            "{keys}"
        );
        be.waits(0);
        assert_eq!(
            rig.poll_after(0),
            Look::At(rig.now_ns + ALONE_POLL_NS),
            "{keys}"
        );
    }
}

#[test]
fn a_lease_by_share_ends_when_somebody_comes_to_be_protected() {
    let (mut rig, be) = asking("25%", "name = \"pillion\"");
    rig.poll();
    assert!(rig.try_launch(&be, &COMPUTE).is_ok());
    let _hp = rig.hp("serve");
    assert!(rig.try_launch(&be, &COMPUTE).is_err());
    rig.poll_after(50 * US);
    assert!(!rig.terms(&be).standing());
    let (mut rig, be) = asking("25%", "name = \"none\"");
    let mut hp = rig.hp("serve");
    rig.poll();
    rig.launch(&mut hp, Class::Compute, 60 * US);
    assert!(rig.terms(&be).standing() && rig.try_launch(&be, &COMPUTE).is_ok());
}

#[test]
fn what_processes_are_measured_to_use_makes_launches_dearer_and_another_share_keeps_that() {
    let (mut rig, be) = asking("50%", "name = \"none\"");
    assert!(rig.state.has_caps());
    let pid = rig.state.jobs[0].clients[0].peer.pid;
    let factor = |rig: &Rig| {
        let id = rig.state.be_jobs().next().unwrap().id();
        rig.state.gate.cost_factor(rig.now_ns, id).unwrap()
    };
    rig.poll();
    assert_eq!(factor(&rig), (1.0, false));
    for _ in 0..5 {
        let launched = rig.try_launch(&be, &kernel(Class::Compute, 40 * MS));
        launched.unwrap();
        be.completed(40 * MS);
        rig.poll_after(200 * MS);
        let uses = [(pid, 0.4), (pid + 1, 0.9)];
        rig.state.handle_uses(rig.now_ns, uses.into_iter());
    }
    let (known, is_blind) = factor(&rig);
    assert!((known - 2.0).abs() < 0.01 && !is_blind, "{known}");
    let usage = rig.status(Viewer::Operator)["jobs"][0]["control"]["usage"].clone();
    let used = usage["used"].as_f64().unwrap();
    assert!((0.3..0.5).contains(&used), "{usage}");
    assert_eq!(usage["blind"], false);
    let other = config("name = \"none\"\n[jobs.train]\nmax_share = 0.2");
    rig.state.reconfigure(&other);
    rig.poll_after(50 * US);
    assert_eq!(factor(&rig).0, known);
    assert_eq!(told(&rig), pair(0.2, "configuration"));
}
