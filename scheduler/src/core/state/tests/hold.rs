//! The status of a job that makes no progress.

use serde_json::Value;

use super::*;

/// A best-effort job launches and completes a kernel of half a ms in every ms, if admitted.
fn play(rig: &mut Rig, be: &Player, ms: u64) {
    let kernel = kernel(Class::Compute, 500 * US);
    for _ in 0..ms {
        let is_launched = rig.try_launch(be, &kernel).is_ok();
        be.waits((!is_launched).into());
        rig.poll();
        rig.poll_after(500 * US);
        if is_launched {
            be.completed(500 * US);
        }
        rig.poll_after(500 * US);
    }
}

#[test]
fn a_job_is_shown_with_its_share_of_its_rate_alone_and_what_held_it() {
    let mut rig = Rig::sharing("timeslice", "name = \"pillion\"");
    let be = rig.be("train");
    rig.poll();
    play(&mut rig, &be, 5_000);
    let progress = rig.status(Viewer::Operator)["jobs"][0]["progress"].clone();
    assert_eq!(
        (&progress["share"], &progress["share_of"]),
        (&1.0.into(), &"alone".into())
    );
    assert_eq!(progress["held_ns"], serde_json::json!({}));
    let mut hp = rig.hp("serve");
    for _ in 0..12 {
        rig.launch(&mut hp, Class::Compute, 250 * MS);
        rig.poll();
        play(&mut rig, &be, 250);
        hp.complete();
        rig.poll();
        play(&mut rig, &be, 750);
    }
    let document = rig.status(Viewer::Operator);
    let progress = &document["jobs"][0]["progress"];
    let share = progress["share"].as_f64().unwrap();
    assert!((0.72..=0.78).contains(&share), "{progress:#}");
    let held_ns = progress["held_recently_ns"]["hp-busy"].as_u64().unwrap();
    assert!((2_300 * MS..=2_500 * MS).contains(&held_ns), "{progress:#}");
    assert_eq!(document["jobs"][1]["progress"], Value::Null);
}

/// A high-priority client makes requests of a ms, enough to learn their duration.
fn serve(rig: &mut Rig, hp: &mut Player) {
    for _ in 0..60 {
        rig.launch(hp, Class::Compute, MS);
        rig.poll();
        for _ in 0..10 {
            rig.poll_after(100 * US);
        }
        hp.complete();
        rig.poll();
        rig.poll_after(100 * US);
    }
}

#[test]
fn kernels_that_make_a_request_late_by_themselves_are_named_and_others_are_not() {
    let keys = "name = \"pillion\"\nslo_p99 = \"1.1x\"";
    let mut rig = Rig::new(keys);
    let be = rig.be("train");
    let longest = &be.page.told.longest;
    longest.note(90 * US, 80, "short");
    longest.note(3 * MS, 240, "three waves");
    longest.note(250 * US, 240, "three short waves");
    longest.note(MS, u32::MAX, "graph");
    rig.poll();
    let too_long = |rig: &Rig| rig.status(Viewer::Operator)["jobs"][0]["too_long"].clone();
    assert_eq!(too_long(&rig), serde_json::json!([]), "nobody is there");
    let mut hp = rig.hp("serve");
    rig.poll();
    assert_eq!(
        too_long(&rig),
        serde_json::json!([]),
        "nobody knows what it can afford"
    );
    serve(&mut rig, &mut hp);
    let affordable_ns = rig.status(Viewer::Operator)["policy"]["affordable_ns"]
        .as_u64()
        .unwrap();
    assert!(
        (90 * US..=120 * US).contains(&affordable_ns),
        "{affordable_ns}"
    );
    let named = |name: &str, expected_ns, blocks_for_ns| serde_json::json!({"name": name, "expected_ns": expected_ns, "blocks_for_ns": blocks_for_ns});
    let expected = [named("three waves", 3 * MS, MS), named("graph", MS, MS)];
    assert_eq!(too_long(&rig), Value::from(expected.to_vec()));
    rig.state
        .reconfigure(&config(&format!("{keys}\nblock_priority = false")));
    serve(&mut rig, &mut hp);
    let names = too_long(&rig);
    assert_eq!(names[0]["blocks_for_ns"], 3 * MS);
    assert_eq!(names[2]["name"], "three short waves");
}
