//! A daemon reloads its configuration while jobs run: only a valid one has an effect.

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Process, until};

/// A target of so many times alone, with everything else off that would move the bounds.
fn target(times: &str) -> String {
    format!("name = \"pillion\"\nslo_p99 = \"{times}x\"\nfeedback = false\ngap_prediction = false")
}

fn reload(gpu: &Gpu, daemon: &Daemon, policy: &str) {
    gpu.config(daemon.socket(), policy);
    daemon.signal(Signal::HUP);
}

/// Waits until the bound beside an idle high-priority job follows from a target of so many times
/// alone and the latency in the same answer.
fn wait_for_bounds(daemon: &Daemon, times: f64) {
    until(&format!("the bounds of {times}x"), || {
        let policy = daemon.status()["policy"].clone();
        let solo_ns = policy["hp_latency_ns"].as_u64()?;
        let slack_ns = (solo_ns as f64 * times) as u64 - solo_ns;
        (policy["bounds"]["idle_ns"] == slack_ns).then_some(())
    });
}

fn config_error(daemon: &Daemon, part: &str) -> Value {
    until(part, || {
        let policy = daemon.status()["policy"].clone();
        let said = policy["config_error"].as_str()?.contains(part);
        said.then_some(policy)
    })
}

fn go_on(jobs: &mut [(&str, Process)], daemon: &Daemon, numbers: &[Value]) {
    for ((label, job), number) in jobs.iter_mut().zip(numbers) {
        job.wait_for_new("round", 3);
        assert_eq!(&daemon.job(label)["clients"][0]["client"], number);
    }
}

#[test]
fn a_change_of_the_policy_is_in_force_without_a_restart_and_a_faulty_file_changes_nothing() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&target("1.5"));
    let [hp, be] = ["hp", "be"].map(|label| gpu.job(label, "steady"));
    let mut jobs = [
        ("hp", hp.high_priority(&daemon).start()),
        ("be", be.best_effort(&daemon).start()),
    ];
    for (_, job) in &mut jobs {
        job.wait_for("round", 1);
    }
    let numbers =
        ["hp", "be"].map(|label| daemon.wait_for_clients(label, 1)["clients"][0]["client"].clone());
    wait_for_bounds(&daemon, 1.5);

    reload(&gpu, &daemon, &target("3"));
    wait_for_bounds(&daemon, 3.0);
    go_on(&mut jobs, &daemon, &numbers);

    reload(&gpu, &daemon, "name = \"pilion\"");
    let policy = config_error(&daemon, "gpu0.toml:6:8: name is \"pilion\"");
    assert_eq!(policy["name"], "pillion");
    wait_for_bounds(&daemon, 3.0);
    let table = daemon.explained();
    for word in ["the configuration on disk is not in force", "pilion"] {
        assert!(table.contains(word), "no {word} in {table}");
    }
    go_on(&mut jobs, &daemon, &numbers);

    reload(&gpu, &daemon, "name = \"orion\"");
    until("orion", || {
        let policy = daemon.status()["policy"].clone();
        let is_so = policy["name"] == "orion" && policy["config_error"].is_null();
        is_so.then(|| assert_eq!(policy["bounds"], Value::Null))
    });
    go_on(&mut jobs, &daemon, &numbers);

    for (label, job) in jobs {
        gpu.expect_right_end(label, job, &daemon);
    }
    daemon.signal(Signal::TERM);
    let log = daemon.finish().expect_success().errors;
    let refused = "the configuration is unchanged: ";
    assert_eq!(log.matches(refused).count(), 1, "{log}");
    assert_eq!(log.matches("in force").count(), 2, "{log}");
}
