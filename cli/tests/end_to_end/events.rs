//! A daemon's events, in `pillion events` and in its status.

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Process, collect, pillion, until};

const NO_DAEMON: i32 = 69;

/// The events of the one daemon from `pillion events --json`.
pub(crate) fn events(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Vec<Value> {
    told(&ask(gpu, daemon, arguments).expect_success())
}

fn ask(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Ended {
    gpu.tell(daemon, &[&["events", "--json"], arguments].concat())
}

pub(crate) fn text(event: &Value) -> &str {
    event["text"].as_str().expect("every event has one")
}

fn told(ended: &Ended) -> Vec<Value> {
    let told: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(told["schema_version"], 1);
    let [daemon] = told["daemons"].as_array().unwrap().as_slice() else {
        panic!("one daemon: {told:#}")
    };
    assert_eq!(daemon["schema_version"], 1);
    daemon["events"].as_array().unwrap().clone()
}

pub(crate) fn event_when(
    gpu: &Gpu,
    daemon: &Daemon,
    kind: &str,
    is_it: impl Fn(&Value) -> bool,
) -> Value {
    until(&format!("an event {kind}"), || {
        let ended = ask(gpu, daemon, &[]);
        // A daemon that has not answered within two seconds may yet.
        if ended.code() == NO_DAEMON {
            return None;
        }
        let found = told(&ended.expect_success()).into_iter();
        let mut found = found.filter(|event| event["kind"] == kind);
        found.find(&is_it)
    })
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect()
}

#[test]
fn jobs_that_come_and_go_and_a_bad_configuration_are_events_with_numbers_and_counts() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = gpu.job("job", "load 64 rest").best_effort(&daemon).start();
    job.wait_for("ready", 1);
    let pid = job.pid();
    job.finish().expect_success();
    event_when(&gpu, &daemon, "detached", |_| true);
    std::fs::write(gpu.path("gpu0.toml"), "[gpu]\nindx = 0\n").unwrap();
    daemon.signal(Signal::HUP);
    let refused = event_when(&gpu, &daemon, "config-refused", |_| true);
    assert!(text(&refused).contains("`indx`"), "{refused}");
    assert_eq!(
        (&refused["severity"], &refused["job"]),
        (&"error".into(), &Value::Null)
    );

    let all = events(&gpu, &daemon, &[]);
    let expected = ["daemon-started", "attached", "detached", "config-refused"];
    assert_eq!(kinds(&all), expected, "{all:#?}");
    let numbers: Vec<_> = all
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    for event in &all[1..3] {
        assert_eq!(
            (&event["job"], &event["pid"]),
            (&"job".into(), &pid.into()),
            "{event}"
        );
    }
    let times: Vec<_> = all
        .iter()
        .map(|event| event["at_ns"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
    // A day of 2020 or later.
    assert!(
        all[0]["at_unix_ms"].as_u64().unwrap() > 1_577_836_800_000,
        "{all:#?}"
    );
    assert_eq!(
        kinds(&events(&gpu, &daemon, &["--since", "3"])),
        ["config-refused"]
    );
    let filtered = |words: &[&str]| kinds(&events(&gpu, &daemon, words)).join(" ");
    assert_eq!(filtered(&["--job", "job"]), "attached detached");
    let two = ["--kind", "attached,config-refused"];
    assert_eq!(filtered(&two), "attached config-refused");
    assert_eq!(filtered(&["--job", "job", "--kind", "xid"]), "");
    assert_eq!(filtered(&["--since", "2h"]), expected.join(" "));

    let counted = &daemon.status()["events"];
    assert_eq!(counted["last_seq"], 4);
    assert_eq!(counted["counts"]["attached"], 1);
    assert_eq!(counted["counts"]["turned-away"], 0);
    daemon.signal(Signal::TERM);
    let log = daemon.finish();
    for event in &all {
        let text = event["text"].as_str().unwrap();
        assert!(log.errors.contains(text), "{text} is not in {log:#?}");
    }
}

#[test]
fn who_follows_sees_what_happens_also_at_the_next_daemon() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let command = gpu.pillion(&daemon, &["events", "--follow", "--json"]);
    let mut following = Process::start("pillion events", command);
    let mut next = |kind: &str| {
        let event: Value = serde_json::from_str(&following.next_line()).unwrap();
        assert_eq!(event["kind"], kind, "{event}");
        assert_eq!(event["schema_version"], 1);
        event
    };
    let first = next("daemon-started");
    let run = |daemon: &Daemon| {
        let job = gpu.job("job", "load").best_effort(daemon);
        job.args(&["64", "rest"]).run().expect_success();
    };
    run(&daemon);
    assert_eq!(next("attached")["gpu"], first["gpu"]);
    next("detached");
    daemon.kill();
    let second = gpu.daemon("");
    let again = next("daemon-started");
    assert_eq!(again["seq"], 1);
    run(&second);
    next("attached");
}

#[test]
fn events_for_people_have_a_line_each_and_no_daemon_is_said() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let told = gpu.tell(&daemon, &["events"]).expect_success().output;
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains("info     daemon-started   pilliond "),
        "{told}"
    );
    // A number of the previous daemon.
    let told = gpu.tell(&daemon, &["events", "--since", "500"]);
    let told = told.expect_success();
    assert_eq!(told.output, "");
    told.expect_errors(&["the last event of this daemon is number 1"]);
    let mut command = gpu.command(pillion());
    command
        .arg("events")
        .env("PILLION_SOCKET", gpu.path("nobody.sock"));
    let ended = collect(command);
    assert_eq!(ended.code(), NO_DAEMON, "{ended:#?}");
}
