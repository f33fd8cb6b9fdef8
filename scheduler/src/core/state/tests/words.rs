//! Clients' reports of how they share the GPU.

use super::*;

fn told(rig: &mut Rig) -> Option<&'static str> {
    let news = rig.state.take_sharing_news();
    news.map(|draft| draft.kind().name())
}

fn sharing(rig: &Rig) -> (Value, Value) {
    let status = rig.status(Viewer::Operator);
    let gpu = &status["gpu"];
    (gpu["sharing"].clone(), gpu["sharing_known_by"].clone())
}

fn expect_sharing(rig: &Rig, sharing_is: &str, known_by: &str) {
    assert_eq!(sharing(rig), (sharing_is.into(), known_by.into()));
}

/// Whether a kernel goes beside busy high-priority work: only under MPS and Orion's law.
fn goes_beside(rig: &mut Rig, hp: &mut Player, be: &Player) -> bool {
    rig.launch(hp, Class::Compute, 10 * MS);
    rig.poll();
    let memory = Kernel {
        class: Class::Memory,
        expected_ns: US,
        sm_needed: 1,
    };
    let went = rig.try_launch(be, &memory).is_ok();
    if went {
        be.completed(US);
    }
    went
}

#[test]
fn leases_are_made_by_what_clients_say_and_not_by_what_was_configured() {
    for (configured, is_on_mps) in [("mps", false), ("timeslice", true), ("auto", true)] {
        let mut rig = Rig::sharing(configured, "");
        rig.is_on_mps = Some(is_on_mps);
        let be = rig.be("train");
        let kind = match configured {
            "auto" => "sharing-known",
            _ => "sharing-wrong",
        };
        assert_eq!(told(&mut rig), Some(kind));
        let mut hp = rig.hp("serve");
        assert_eq!(told(&mut rig), None, "said once");
        let way = if is_on_mps { "mps" } else { "timeslice" };
        expect_sharing(&rig, way, "clients");
        assert_eq!(
            goes_beside(&mut rig, &mut hp, &be),
            is_on_mps,
            "{configured}"
        );
        rig.state.handle_detach(rig.now_ns, be.client);
        rig.state.handle_detach(rig.now_ns, hp.client);
        expect_sharing(&rig, way, "clients");
        assert_eq!(told(&mut rig), None);
    }
}

#[test]
fn where_nobody_says_anything_the_configuration_counts_and_without_one_what_is_cautious() {
    for (configured, way, known_by) in [
        ("mps", "mps", "configuration"),
        ("timeslice", "timeslice", "configuration"),
        ("auto", "timeslice", "assumption"),
    ] {
        let mut rig = Rig::sharing(configured, "");
        let (mut hp, be) = (rig.hp("serve"), rig.be("train"));
        expect_sharing(&rig, way, known_by);
        assert_eq!(
            goes_beside(&mut rig, &mut hp, &be),
            way == "mps",
            "{configured}"
        );
        assert_eq!(told(&mut rig), None);
        let is_asked = rig.state.take_control_daemon_wanted();
        assert_eq!(is_asked, configured == "auto");
        assert!(!rig.state.take_control_daemon_wanted(), "once");
        rig.state.handle_control_daemon(true);
        let has_changed = configured == "auto";
        assert_eq!(told(&mut rig).is_some(), has_changed);
        rig.poll_after(MS);
        if has_changed {
            expect_sharing(&rig, "mps", "control-daemon");
        }
        rig.be("another");
        assert_eq!(rig.state.take_control_daemon_wanted(), has_changed);
        rig.is_on_mps = Some(false);
        rig.be("that knows");
        expect_sharing(&rig, "timeslice", "clients");
        assert!(!rig.state.take_control_daemon_wanted());
    }
}

#[test]
fn where_clients_differ_nothing_goes_beside_and_each_is_killed_by_its_own_word() {
    let mut rig = Rig::sharing("mps", "");
    rig.is_on_mps = Some(true);
    let (mut hp, be) = (rig.hp("serve"), rig.be("train"));
    assert!(goes_beside(&mut rig, &mut hp, &be));
    assert_eq!(told(&mut rig), None);
    rig.is_on_mps = Some(false);
    let hidden = rig.be("hidden");
    assert_eq!(told(&mut rig), Some("sharing-mixed"));
    rig.is_on_mps = None;
    let silent = rig.be("silent");
    assert_eq!(told(&mut rig), None);
    let status = rig.status(Viewer::Operator);
    assert_eq!(status["gpu"]["sharing_mixed"], true);
    assert!(!goes_beside(&mut rig, &mut hp, &be));
    for (player, job, is_on_mps) in [
        (&be, "train", true),
        (&hidden, "hidden", false),
        (&silent, "silent", true),
    ] {
        let jobs = status["jobs"].as_array().unwrap();
        let found = jobs.iter().find(|found| found["job"] == job).unwrap();
        let way = if is_on_mps { "mps" } else { "timeslice" };
        assert_eq!(found["clients"][0]["sharing"], way, "{job}");
        let key = job_key(job, JobClass::BestEffort, Peer { pid: 7, uid: 1000 });
        rig.state
            .see_to_processes(&key, &[7], rig.now_ns, 10_000 * MS);
        let until_s = player.page.seen_to_until_s.load(Ordering::SeqCst);
        assert_eq!(until_s > 0, is_on_mps, "{job}");
        player.page.charged_ns.store(60 * US, Ordering::Release);
        player.page.completed_ns.store(0, Ordering::Release);
        rig.state
            .handle_death(rig.now_ns, rig.now_ns, player.client);
        assert_eq!(rig.state.take_deaths()[0].is_on_mps, is_on_mps, "{job}");
    }
    rig.state.handle_detach(rig.now_ns, hidden.client);
    assert_eq!(told(&mut rig), Some("sharing-known"));
    expect_sharing(&rig, "mps", "clients");
}
