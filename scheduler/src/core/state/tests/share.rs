//! The best-effort share: its input, and its effect.

use super::marks::{job, late_request};
use super::*;

const SECOND: u64 = 1_000 * MS;

fn share(rig: &Rig) -> Value {
    rig.status(Viewer::Operator)["policy"]["share"].clone()
}

/// Busy for three tenths of each second, with kernels that need half of the SMs for twice as long.
fn works(rig: &mut Rig, hp: &mut Player, seconds: u64) {
    for _ in 0..seconds * 10 {
        hp.seq += 1;
        hp.push(&Record::Launch(Launch {
            stream: 0,
            seq: hp.seq,
            kernel: 1,
            expected_ns: 60 * MS,
            sm_needed: 40,
            class: Class::Compute.bits() as u8,
            at_ns: 0,
        }));
        hp.complete();
        rig.poll_after(SECOND / 10);
    }
}

#[test]
fn what_high_priority_work_was_to_use_is_taken_off_the_share() {
    let (mut rig, _be, mut hp) = Rig::new("name = \"none\"\n[share]").with_two();
    claim_rings(&hp.page, 1);
    rig.poll();
    assert_eq!(share(&rig)["percent"], Value::Null);
    works(&mut rig, &mut hp, 15);
    assert_eq!(share(&rig)["percent"], 70, "{}", share(&rig));
    assert_eq!(share(&rig)["of"], "sms");
    // Under MPS nothing is held: the share is for jobs that start.
    assert!(rig.state.together(rig.now_ns).is_none());
    for _ in 0..20 {
        rig.launch(&mut hp, Class::Compute, 0);
    }
    hp.complete();
    assert_eq!(share(&rig)["percent"], 70);
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.poll_after(10_000 * SECOND);
    assert_eq!(share(&rig)["percent"], 70);
    let mut hp = rig.hp("serve");
    claim_rings(&hp.page, 1);
    works(&mut rig, &mut hp, 3);
    assert_eq!(share(&rig)["percent"], 70);
}

#[test]
fn in_time_slices_best_effort_jobs_share_the_time_while_a_high_priority_job_is_there() {
    let keys = "name = \"none\"\n[share]\nmode = \"static\"\npercent = 25";
    let mut rig = Rig::sharing("timeslice", keys);
    let be = rig.be("train");
    rig.poll();
    assert!(rig.terms(&be).ungated());
    let _hp = rig.hp("serve");
    rig.poll();
    assert!(!rig.terms(&be).ungated());
    assert!(rig.try_launch(&be, &kernel(Class::Compute, 8 * MS)).is_ok());
    be.waits(1);
    rig.poll_after(0);
    let status = rig.status(Viewer::Operator);
    let said = "held: best-effort jobs together have used their 25 % of the GPU's time, limited by their share beside high-priority work";
    assert_eq!(status["jobs"][0]["enforcing"], said, "{status:#}");
    assert_eq!(share(&rig)["of"], "time");
    rig.poll_after(22 * MS + 1);
    assert!(rig.try_launch(&be, &kernel(Class::Compute, MS)).is_ok());
    rig.state.reconfigure(&config("name = \"none\""));
    rig.poll_after(0);
    assert!(rig.terms(&be).ungated());
}

#[test]
fn a_job_that_may_be_started_anew_is_ended_once_for_another_share() {
    let keys = "name = \"none\"\n[share]\nmode = \"static\"\npercent = 60\nrestart_s = 60";
    let mut rig = Rig::new(keys);
    let hp = rig.hp("serve");
    let stale = |rig: &mut Rig| {
        let stale = rig.state.take_stale(rig.now_ns);
        stale.map(|(key, shares)| (key.id, shares))
    };
    for restartable in ["", "70", "65", "all"] {
        rig.restartable = restartable.to_owned();
        let _be = rig.be(&format!("train {restartable}"));
    }
    rig.poll_after(60 * SECOND - 1);
    assert_eq!(stale(&mut rig), None);
    rig.poll_after(1);
    assert_eq!(stale(&mut rig), Some(("train 70".to_owned(), [70, 60])));
    rig.poll_after(3_600 * SECOND);
    assert_eq!(stale(&mut rig), None, "told once");
    let come_again = |rig: &mut Rig, with: &str| {
        rig.restartable = with.to_owned();
        let mut jobs = rig.state.jobs.iter();
        let job = jobs.find(|job| job.key.id == "train 70").unwrap();
        let client = job.clients[0].id;
        rig.state.handle_detach(rig.now_ns, client);
        let _be = rig.be("train 70");
        assert_eq!(stale(rig), None, "it has just begun");
        rig.poll_after(60 * SECOND);
        stale(rig)
    };
    // The restart gave it no other share, and a second one would not.
    assert_eq!(come_again(&mut rig, "70"), None);
    let stale_again = Some(("train 70".to_owned(), [75, 60]));
    assert_eq!(come_again(&mut rig, "75"), stale_again);
    let key = rig.state.jobs.iter().find(|job| job.key.id == "train 70");
    let key = key.unwrap().key.clone();
    rig.state.handle_not_ended(&key);
    assert_eq!(stale(&mut rig), stale_again);
    rig.state.handle_not_ended(&key);
    rig.state.handle_detach(rig.now_ns, hp.client);
    rig.poll_after(SECOND);
    assert_eq!(stale(&mut rig), None);
    // In time slices every job has all SMs.
    let mut rig = Rig::sharing("timeslice", keys);
    rig.restartable = "70".to_owned();
    let _hp = rig.hp("serve");
    let _be = rig.be("train");
    rig.poll_after(60 * SECOND);
    assert_eq!(stale(&mut rig), None);
}

#[test]
fn a_share_by_the_target_falls_where_nothing_wide_goes_beside_requests_for_a_hundred_seconds() {
    let keys = "name = \"pillion\"\nslo_mean = \"15ms\"\n[share]\nmode = \"target\"";
    let mut rig = Rig::new(keys);
    let mut hp = rig.hp("serve");
    claim_rings(&hp.page, 1);
    rig.restartable = "100".to_owned();
    let be = rig.be("train");
    be.waits(1);
    assert_eq!(share(&rig)["percent"], 100);
    let mut id = 0;
    let mut asks = |rig: &mut Rig, waited_ns: u64| {
        id += 1;
        late_request(rig, &mut hp, id, waited_ns);
    };
    // Their duration alone, 10 ms, is learnt; then they take twice their target.
    for _ in 0..200 {
        asks(&mut rig, 0);
    }
    let level = |rig: &Rig| job(rig)["control"]["slo"]["level"].as_f64().unwrap();
    while level(&rig) > -2.5 {
        asks(&mut rig, 20 * MS);
    }
    let begun_ns = rig.now_ns;
    while rig.now_ns < begun_ns + 60 * SECOND {
        asks(&mut rig, 5 * MS);
    }
    assert!((-5.5..-1.0).contains(&level(&rig)), "{}", level(&rig));
    assert_eq!(share(&rig)["percent"], 100);
    while rig.now_ns < begun_ns + 101 * SECOND {
        asks(&mut rig, 5 * MS);
    }
    assert_eq!(
        (&share(&rig)["percent"], &share(&rig)["mode"]),
        (&90.into(), &"target".into())
    );
    // The running job still has 100 %: 90 is untried.
    for _ in 0..6_000 {
        asks(&mut rig, 5 * MS);
    }
    assert_eq!(share(&rig)["percent"], 90);
}
