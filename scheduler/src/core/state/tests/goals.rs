//! Request targets of single jobs: their sources, the one in force, and the status.

use protocol::slo::SloChange;

use super::marks::{job, late_request, request};
use super::*;
use crate::core::event::Kind;

const PILLION: &str = "name = \"pillion\"\nslo_p99 = \"3x\"";

fn asking(slo: &str) -> (Rig, Player, Player) {
    let mut rig = Rig::new(PILLION);
    rig.slo = slo.to_owned();
    rig.with_two()
}

fn told(rig: &Rig) -> (String, String) {
    let slo = &job(rig)["control"]["slo"];
    let text = |name: &str| slo[name].as_str().unwrap_or("none").to_owned();
    (text("goal"), text("source"))
}

fn pair(goal: &str, source: &str) -> (String, String) {
    (goal.to_owned(), source.to_owned())
}

fn set(rig: &mut Rig, change: &str) {
    let change = SloChange::parse(change).unwrap();
    for key in rig.state.slo_jobs("serve", Some(1000)).unwrap() {
        rig.state.handle_slo(&key, change);
    }
}

#[test]
fn a_jobs_own_goal_is_in_the_place_of_the_configured_and_a_change_in_that_of_both() {
    let (mut rig, _be, _hp) = asking("");
    assert_eq!(told(&rig), pair("3x", "configuration"));
    set(&mut rig, "15ms");
    assert_eq!(told(&rig), pair("15ms", "set"));
    let (mut rig, _be, _hp) = asking("1.2x");
    assert_eq!(told(&rig), pair("1.2x", "run"));
    set(&mut rig, "1.5x");
    assert_eq!(told(&rig), pair("1.5x", "set"));
    set(&mut rig, "default");
    assert_eq!(told(&rig), pair("3x", "configuration"));
    let be = rig.status(Viewer::Operator)["jobs"][0].clone();
    assert_eq!(be["control"]["slo"], Value::Null);
}

#[test]
fn the_first_process_that_asks_speaks_for_the_job_while_there_is_one() {
    let mut rig = Rig::new(PILLION);
    let first = rig.hp("serve");
    rig.slo = "1.2x".to_owned();
    let second = rig.hp("serve");
    assert_eq!(told(&rig), pair("1.2x", "run"));
    rig.slo = "2x".to_owned();
    let third = rig.hp("serve");
    assert_eq!(told(&rig), pair("1.2x", "run"));
    set(&mut rig, "1.5x");
    for player in [first, second, third] {
        rig.state.handle_detach(rig.now_ns, player.client);
    }
    let _again = rig.hp("serve");
    assert_eq!(told(&rig), pair("2x", "run"));
    rig.slo = "fast".to_owned();
    let (key, _other) = (rig.state.jobs[0].key.clone(), rig.hp("other"));
    assert_eq!(key.id, "serve");
    let jobs = rig.status(Viewer::Operator)["jobs"].clone();
    assert_eq!(jobs[1]["control"]["slo"]["source"], "configuration");
}

#[test]
fn the_policy_holds_a_jobs_goal_and_the_status_tells_how_after_each_change() {
    let (mut rig, _be, mut hp) = asking("1.1x");
    let slo = |rig: &Rig| job(rig)["control"]["slo"].clone();
    // Inferred requests still count: nothing is judged.
    assert_eq!(slo(&rig)["level"], Value::Null);
    let mut id = 0;
    let mut run = |rig: &mut Rig, hp: &mut Player, requests: u64| {
        for _ in 0..requests {
            id += 1;
            request(rig, hp, id, true);
        }
    };
    run(&mut rig, &mut hp, 20);
    assert_eq!(slo(&rig)["learning"], true);
    run(&mut rig, &mut hp, 400);
    let first = slo(&rig);
    assert_eq!(first["target_ns"], 11 * MS, "{first}");
    assert_eq!(first["measured_ns"], 10 * MS, "{first}");
    assert!(first["requests"].as_u64().unwrap() > 100, "{first}");
    assert_eq!(
        (&first["misses"], &first["miss_share"]),
        (&0.into(), &0.0.into())
    );
    assert_eq!(
        (&first["miss"], &first["source"]),
        (&0.01.into(), &"run".into())
    );
    set(&mut rig, "12.5ms");
    rig.poll_after(MS);
    assert_eq!(slo(&rig)["target_ns"], 12_500 * US);
    assert_eq!(told(&rig), pair("12.5ms", "set"));
    // Another configuration: it sets the share that may be late, the job its target.
    let other = config("name = \"pillion\"\nslo_p99 = \"2x\"\nslo_miss = 0.05");
    rig.state.reconfigure(&other);
    run(&mut rig, &mut hp, 400);
    let second = slo(&rig);
    assert_eq!(
        (&second["target_ns"], &second["miss"]),
        (&(12_500 * US).into(), &0.05.into())
    );
    set(&mut rig, "default");
    rig.poll_after(MS);
    assert_eq!(slo(&rig)["target_ns"], 20 * MS);
    assert_eq!(told(&rig), pair("2x", "configuration"));
}

#[test]
fn of_several_processes_the_goal_is_held_by_the_lowest_level_and_counts_are_sums() {
    let (mut rig, _be, mut learning) = asking("1.1x");
    let [mut fair, mut late] = ["serve"; 2].map(|job| rig.hp(job));
    for id in 1..=200 {
        request(&mut rig, &mut fair, id, true);
        request(&mut rig, &mut late, id, true);
    }
    for id in 1..=20 {
        request(&mut rig, &mut learning, id, true);
    }
    for id in 201..=210 {
        late_request(&mut rig, &mut late, id, 20 * MS);
    }
    let clients = [&learning, &fair, &late].map(|player| player.client);
    let views = clients.map(|client| rig.state.gate.slo_view(client).unwrap());
    let [learning, fair, late] = views;
    assert!(late.level < fair.level && late.misses > 0);
    let slo = job(&rig)["control"]["slo"].clone();
    assert!((slo["level"].as_f64().unwrap() - late.level).abs() < 1e-9);
    assert_eq!(slo["requests"], fair.requests + late.requests);
    assert_eq!(slo["misses"], fair.misses + late.misses);
    // A client that still learns does not determine the level.
    assert!(learning.target_ns.is_none() && learning.level <= fair.level);
    rig.state.handle_detach(rig.now_ns, clients[2]);
    let slo = job(&rig)["control"]["slo"].clone();
    assert_eq!(
        (&slo["learning"], &slo["requests"]),
        (&false.into(), &fair.requests.into())
    );
}

#[test]
fn a_goal_survives_that_marks_count_and_that_they_are_silent() {
    let (mut rig, _be, mut hp) = asking("1.1x");
    let is_told = |rig: &Rig, hp: &Player| {
        let client = rig.state.jobs[1].clients.iter().find(|c| c.id == hp.client);
        let told = client.unwrap().goal_told.map(|goal| goal.slo);
        told == Some(policy::Slo::Slowdown(1.1))
    };
    for id in 1..=300 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(job(&rig)["control"]["slo"]["target_ns"], 11 * MS);
    for id in 301..=700 {
        request(&mut rig, &mut hp, id, false);
    }
    assert_eq!(job(&rig)["requests_source"], "inferred");
    assert!(is_told(&rig, &hp));
    for id in 701..=1_000 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(job(&rig)["control"]["slo"]["target_ns"], 11 * MS);
}

#[test]
fn what_a_program_asks_for_its_requests_is_told_as_its_own() {
    let (mut rig, _be, mut hp) = asking("2x");
    hp.push(&Record::Target {
        kind: 0,
        ns: 12 * MS,
        per_mille: 990,
    });
    for id in 1..=200 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(told(&rig), pair("12ms", "marks"));
    assert_eq!(job(&rig)["control"]["slo"]["target_ns"], 12 * MS);
}

#[test]
fn who_may_change_what_is_told_in_words_and_a_best_effort_job_has_no_goal() {
    let (rig, _be, _hp) = asking("");
    let refused = |rig: &Rig, id: &str, uid| rig.state.slo_jobs(id, uid).unwrap_err().to_string();
    assert!(
        refused(&rig, "train", None).contains("job \"train\" is best-effort: only high-priority")
    );
    assert!(refused(&rig, "none-such", None).starts_with("no job \"none-such\" is"));
    let other = |id: &str| refused(&rig, id, Some(1001)).replace(id, "JOB");
    assert_eq!(other("serve"), other("none-such"));
    assert_eq!(rig.state.slo_jobs("serve", None).unwrap().len(), 1);
    let (rig, _be, _hp) = Rig::new("").with_two();
    let why = refused(&rig, "serve", None);
    assert!(
        why.starts_with("policy orion ignores latency targets"),
        "{why}"
    );
    assert_eq!(job(&rig)["control"], Value::Null);
}

#[test]
fn a_time_as_target_of_a_program_that_marks_nothing_is_warned_of_once() {
    let news = |rig: &mut Rig| -> Vec<String> {
        let news = rig.state.take_unmarked().into_iter();
        news.map(|draft| {
            assert_eq!(draft.kind(), Kind::SloUnmarked);
            draft.text
        })
        .collect()
    };
    let (mut rig, _be, mut hp) = asking("15ms");
    for id in 1..=63 {
        request(&mut rig, &mut hp, id, false);
        assert!(news(&mut rig).is_empty());
    }
    request(&mut rig, &mut hp, 64, false);
    let told = news(&mut rig);
    assert!(
        told.concat().contains("job \"serve\" has a target of 15ms"),
        "{told:?}"
    );
    request(&mut rig, &mut hp, 65, false);
    assert!(news(&mut rig).is_empty());
    set(&mut rig, "1.2x");
    assert!(news(&mut rig).is_empty());
    set(&mut rig, "20ms");
    assert_eq!(news(&mut rig).len(), 1);
    let (mut rig, _be, mut hp) = asking("15ms");
    for id in 1..=100 {
        request(&mut rig, &mut hp, id, true);
        assert!(news(&mut rig).is_empty());
    }
}

#[test]
fn marks_of_a_job_that_is_held_to_its_rate_count_by_their_mean() {
    let keys = "name = \"pillion\"\nslo_throughput = 0.9";
    let (mut rig, _be, mut hp) = Rig::new(keys).with_two();
    for id in 1..=300 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(job(&rig)["requests_source"], "marks");
    let slo = &job(&rig)["control"]["slo"];
    assert_eq!(
        (&slo["miss"], &slo["miss_share"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        (&slo["of"], &slo["target_ns"]),
        (&"rate".into(), &11_111_111.into())
    );
    assert_eq!(told(&rig), pair("0.9", "configuration"));
    set(&mut rig, "1.2x");
    for id in 301..=400 {
        request(&mut rig, &mut hp, id, true);
    }
    let slo = &job(&rig)["control"]["slo"];
    assert_eq!(
        (&slo["of"], &slo["target_ns"]),
        (&"quantile".into(), &(12 * MS).into())
    );
}

#[test]
fn what_a_job_asks_for_is_a_mean_where_a_mean_is_configured() {
    let keys = "name = \"pillion\"\nslo_mean = \"1.5x\"";
    let (mut rig, _be, mut hp) = Rig::new(keys).with_two();
    for id in 1..=300 {
        request(&mut rig, &mut hp, id, true);
    }
    assert_eq!(told(&rig), pair("1.5x", "configuration"));
    set(&mut rig, "1.2x");
    request(&mut rig, &mut hp, 301, true);
    let slo = &job(&rig)["control"]["slo"];
    assert_eq!(
        (&slo["of"], &slo["target_ns"]),
        (&"mean".into(), &(12 * MS).into())
    );
    assert_eq!(told(&rig), pair("1.2x", "set"));
    assert_eq!(slo["measured_ns"], 10 * MS);
}
