//! Promises to best-effort jobs: their sources, and their effect on the policy.

use protocol::compute::CapChange;
use protocol::promise::{LeastChange, Promise, WeightChange};

use super::*;

const PILLION: &str = "name = \"pillion\"";

fn promise(weight: &str, least: &str) -> Promise {
    let (weight, least) = (WeightChange::parse(weight), LeastChange::parse(least));
    Promise { weight, least }
}

fn set(rig: &mut Rig, job: &str, change: Promise) -> Promise {
    let jobs = rig.state.promise_jobs(job, change, None).unwrap();
    assert_eq!(jobs.len(), 1);
    let (key, promise) = &jobs[0];
    rig.state.handle_promise(key, *promise);
    *promise
}

fn told(rig: &Rig, job: &str) -> Value {
    let status = rig.status(Viewer::Operator);
    let mut jobs = status["jobs"].as_array().unwrap().iter();
    let job = jobs.find(|known| known["job"] == job).unwrap();
    job["control"]["promise"].clone()
}

fn expect_told(rig: &Rig, weight: (u32, &str), least: (Option<f64>, &str)) {
    let expected = serde_json::json!({
        "weight": weight.0, "weight_source": weight.1,
        "min_progress": least.0, "min_progress_source": least.1,
    });
    assert_eq!(told(rig, "train"), expected);
}

fn terms(rig: &mut Rig) -> policy::JobTerms {
    rig.poll_after(MS);
    let id = rig.state.be_jobs().next().unwrap().id();
    rig.state.gate.terms(id)
}

#[test]
fn what_is_set_goes_before_the_rule_and_default_gives_the_rule_back() {
    let mut rig = Rig::new("name = \"pillion\"\n[jobs.train]\nweight = 2\nmin_progress = 0.25");
    let _be = rig.be("train");
    expect_told(&rig, (2, "configuration"), (Some(0.25), "configuration"));
    set(&mut rig, "train", promise("5", ""));
    expect_told(&rig, (5, "set"), (Some(0.25), "configuration"));
    assert_eq!(terms(&mut rig).weight, 5);
    let both = set(&mut rig, "train", promise("", "0.5"));
    assert_eq!(both, promise("5", "50%"));
    expect_told(&rig, (5, "set"), (Some(0.5), "set"));
    rig.state
        .reconfigure(&config("name = \"pillion\"\n[jobs.train]\nweight = 7"));
    expect_told(&rig, (5, "set"), (Some(0.5), "set"));
    assert_eq!(terms(&mut rig).weight, 5);
    set(&mut rig, "train", promise("default", "default"));
    expect_told(&rig, (7, "configuration"), (None, "configuration"));
    assert_eq!(terms(&mut rig).weight, 7);
    rig.state.reconfigure(&config(PILLION));
    assert_eq!(terms(&mut rig).weight, 1);
}

#[test]
fn a_job_without_a_rule_has_a_weight_as_long_as_it_is_there_and_gives_it_back() {
    let mut rig = Rig::new(PILLION);
    let be = rig.be("train");
    expect_told(&rig, (1, "configuration"), (None, "configuration"));
    set(&mut rig, "train", promise("3", ""));
    assert_eq!(terms(&mut rig).weight, 3);
    set(&mut rig, "train", promise("default", ""));
    assert_eq!(terms(&mut rig).weight, 1);
    set(&mut rig, "train", promise("3", "0.3"));
    rig.state.handle_detach(rig.now_ns, be.client);
    rig.poll_after(MS);
    let _be = rig.be("train");
    expect_told(&rig, (1, "configuration"), (None, "configuration"));
    assert_eq!(terms(&mut rig), policy::JobTerms::default());
}

#[test]
fn turns_last_as_long_as_the_weight_that_was_set_says() {
    let mut rig = Rig::new(PILLION);
    let _hp = rig.hp("serve");
    let jobs = [rig.be("light"), rig.be("heavy")];
    set(&mut rig, "heavy", promise("3", ""));
    let mut launches = [0_u32; 2];
    jobs.iter().for_each(|job| job.waits(1));
    // Short compared with a turn: the last of each overruns it.
    let short = kernel(Class::Compute, 5 * US);
    for _ in 0..40_000 {
        rig.poll_after(5 * US);
        for (job, launches) in jobs.iter().zip(&mut launches) {
            if rig.try_launch(job, &short).is_ok() {
                *launches += 1;
                job.completed(5 * US);
            }
        }
    }
    let [light, heavy] = launches.map(f64::from);
    assert!(
        light > 100.0 && (heavy / light - 3.0).abs() < 0.2,
        "{launches:?}"
    );
}

#[test]
fn a_job_that_gets_less_than_its_least_share_is_behind_until_that_is_taken_back() {
    let mut rig = Rig::new(PILLION);
    let _hp = rig.hp("serve");
    let be = rig.be("train");
    be.waits(1);
    let wait = |rig: &mut Rig| {
        for _ in 0..2_000 {
            rig.poll_after(10 * MS);
        }
    };
    wait(&mut rig);
    assert!(!terms(&mut rig).is_behind);
    set(&mut rig, "train", promise("", "90%"));
    wait(&mut rig);
    assert!(
        terms(&mut rig).is_behind,
        "it wants all the time and has launched nothing"
    );
    set(&mut rig, "train", promise("", "default"));
    assert!(!terms(&mut rig).is_behind);
}

#[test]
fn promises_are_refused_where_nobody_looks_at_them() {
    let mut rig = Rig::new(PILLION);
    let _both = (rig.hp("serve"), rig.be("train"));
    let refused = |rig: &Rig, id: &str| {
        let found = rig.state.promise_jobs(id, promise("3", ""), None);
        found.unwrap_err().to_string()
    };
    assert!(refused(&rig, "serve").contains("\"serve\" is high-priority and takes no turns"));
    assert!(refused(&rig, "nobody").contains("no job \"nobody\""));
    assert!(told(&rig, "serve").is_null());
    let mut rig = Rig::new("name = \"orion\"");
    let _be = rig.be("train");
    assert!(refused(&rig, "train").contains("policy orion ignores weights"));
    assert!(told(&rig, "train").is_null());
}

#[test]
fn what_was_set_is_taken_back_under_another_policy_too() {
    let mut rig = Rig::new(PILLION);
    let _be = rig.be("train");
    set(&mut rig, "train", promise("3", "30%"));
    rig.state.reconfigure(&config("name = \"orion\""));
    set(&mut rig, "train", promise("default", "default"));
    rig.state.reconfigure(&config(PILLION));
    expect_told(&rig, (1, "configuration"), (None, "configuration"));
}

#[test]
fn a_least_share_above_the_jobs_cap_is_refused() {
    let mut rig = Rig::new("name = \"pillion\"\n[jobs.train]\nmax_share = 0.5");
    let _be = rig.be("train");
    let asked = |rig: &Rig, least: &str, cap: Option<&str>| {
        let cap = cap.map(|cap| {
            let keys = rig.state.cap_jobs("train", None).unwrap();
            (keys, CapChange::parse(cap).unwrap())
        });
        rig.state
            .promise_jobs("train", promise("", least), cap.as_ref())
    };
    let refused = asked(&rig, "60%", None).unwrap_err().to_string();
    let expected = "least share 60% exceeds the cap of job \"train\"; nearest is 50%";
    assert_eq!(refused, expected);
    assert!(asked(&rig, "50%", None).is_ok() && asked(&rig, "50%", Some("20%")).is_err());
    let (key, _) = asked(&rig, "50%", None).unwrap().remove(0);
    rig.state.handle_cap(&key, CapChange::parse("20%").unwrap());
    assert!(asked(&rig, "30%", None).is_err() && asked(&rig, "30%", Some("default")).is_ok());
    assert!(asked(&rig, "default", None).is_ok());
}
