//! A GPU in trouble: jobs that wait, and jobs that are ended; a killed daemon forgets nothing.

use protocol::hello::{JobClass, ask_status};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Daemon, Gpu, Process, until};
use crate::order::Clocked;
use crate::throttle::replay;

const SECOND_NS: u64 = 1_000_000_000;

/// An unmanaged program with so much of the GPU's 16384 MiB.
fn stranger(gpu: &Gpu, mib: u64) -> Process {
    let job = gpu.job("stranger", "load");
    let job = job.args(&[&mib.to_string(), "rest"]);
    job.env("PILLION_DISABLE", "1").start_until("ready")
}

fn probe_when(daemon: &Daemon, state: &str) -> Value {
    let is_so = |status: &Value| status["gpu"]["probe"]["state"] == state;
    let status = daemon.status_when(state, is_so);
    status["gpu"]["probe"].clone()
}

/// Best-effort, with a context and some memory, until it is asked to continue.
fn resident(gpu: &Gpu, daemon: &Daemon) -> Process {
    let job = gpu.job("resident", "quota load 0 300 0");
    let job = job.best_effort(daemon).env("PILLION_MEMORY", "1GiB");
    let mut process = job.start_until("ready");
    process.write("\n");
    assert_eq!(process.next_line(), "granted");
    process
}

fn waits(job: &Value) -> bool {
    let enforcing = job["enforcing"].as_str().unwrap_or("");
    enforcing.starts_with("waits until the GPU is healthy")
}

fn events(gpu: &Gpu, daemon: &Daemon) -> String {
    let told = gpu.tell(daemon, &["events", "--json"]);
    told.expect_success().output.clone()
}

#[test]
fn best_effort_jobs_that_come_to_a_gpu_in_trouble_wait_until_somebody_lets_them_go() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "[probe]");
    probe_when(&daemon, "healthy");
    let resident = resident(&gpu, &daemon);
    let stranger = stranger(&gpu, 15_300);
    let probe = probe_when(&daemon, "unhealthy");
    assert_eq!(
        (&probe["metric"], &probe["entries"]),
        (&json!("memory"), &json!(0))
    );
    assert!(probe["metrics"]["memory"]["value"].as_f64().unwrap() > 0.92);
    // The GPU takes longer to recover than this test.
    let late = gpu.job("late", "work linked 5 0").best_effort(&daemon);
    let mut late = late.start();
    daemon.job_when("late", "that it waits", waits);
    let hp = gpu.job("hp", "work linked 5 0").high_priority(&daemon);
    hp.run().expect_success();
    assert!(!waits(&daemon.job("resident")) && late.is_running());
    let table = daemon.explained();
    let said = "probe: the GPU is unhealthy (memory 9";
    assert!(table.contains(said), "{table}");
    assert!(table.contains("; 1 new best-effort job waits"), "{table}");
    assert_eq!(daemon.status()["gpu"]["probe"]["waiting"], 1);
    gpu.tell(&daemon, &["resume", "late"]).expect_success();
    late.finish().expect_success();
    stranger.finish().expect_success();
    resident.finish().expect_success();
    let events = events(&gpu, &daemon);
    let kind = "\"kind\":\"probe-unhealthy\"";
    assert_eq!(events.matches(kind).count(), 1, "{events}");
}

#[test]
fn a_gpu_over_its_limits_ends_best_effort_jobs_and_a_daemon_that_is_killed_forgets_nothing() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "[probe]");
    let mut resident = resident(&gpu, &daemon);
    let hp = gpu.job("hp", "load 64 rest").high_priority(&daemon);
    let hp = hp.start_until("ready");
    let stranger = stranger(&gpu, 15_700);
    let probe = probe_when(&daemon, "overlimit");
    assert_eq!(probe["entries"], 1);
    until("the end of the best-effort job", || !resident.is_running());
    let told = events(&gpu, &daemon);
    let over = "the GPU is over its limits (memory 98 %, bound 97 %)";
    assert!(
        told.contains(&format!("{over}: best-effort jobs are terminated")),
        "{told}"
    );
    assert!(
        told.contains(&format!("{over}: the process of job")),
        "{told}"
    );
    daemon.signal(Signal::KILL);
    let _ = daemon.finish();
    // The excess memory has gone meanwhile.
    stranger.finish().expect_success();
    let next = gpu.daemon("[probe]");
    let probe = next.status()["gpu"]["probe"].clone();
    assert_eq!(probe["state"], "overlimit", "{probe:#}");
    assert_eq!(
        (&probe["metric"], &probe["entries"]),
        (&json!("memory"), &json!(1))
    );
    let late = gpu.job("late", "work linked 5 0").best_effort(&next);
    let late = late.start();
    next.job_when("late", "that it waits", waits);
    let left_ns = |status: &Value| {
        let until_ns = status["gpu"]["probe"]["until_ns"].as_u64().unwrap();
        until_ns.saturating_sub(status["daemon"]["now_ns"].as_u64().unwrap())
    };
    let left_ns = left_ns(&next.status());
    assert!(left_ns <= 31 * SECOND_NS, "{left_ns}");
    // Without the section nothing is probed, and nobody waits.
    let config = gpu.path("gpu0.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("[probe]", "")).unwrap();
    next.signal(Signal::HUP);
    late.finish().expect_success();
    next.status_when("no probe", |status| status["gpu"]["probe"].is_null());
    hp.finish().expect_success();
}

#[test]
fn a_best_effort_job_goes_on_when_the_gpu_has_been_well_for_a_minute() {
    let clocked = Clocked::start("mps", "3");
    let policy = "name = \"none\"\n[probe]";
    let before = clocked.daemon_with("mps", policy);
    let status = ask_status(&clocked.path("pillion.sock")).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let uuid = status["gpu"]["uuid"].as_str().unwrap();
    before.signal(Signal::TERM);
    before.finish().expect_success();
    // The file of a daemon that ends while the GPU is in trouble.
    let text = r#"{"schema_version":1,"state":"unhealthy","metric":"memory","entered_unix_ms":[]}"#;
    std::fs::write(clocked.path(&format!("{uuid}.probe")), text).unwrap();
    let daemon = clocked.daemon_with("mps", policy);
    let start = |class, rank, rate| {
        let replay = replay(&clocked, class, rank, 1, rate);
        Process::start("pillion-replay", replay)
    };
    let hp = start(JobClass::HighPriority, "1", "10");
    let be = start(JobClass::BestEffort, "2", "10");
    hp.finish().expect_success();
    be.finish().expect_success();
    drop(daemon);
    let record = clocked.finish_record();
    let first = |label: &str| {
        let kernels = record.lines().filter(|line| line.starts_with("kernel\t"));
        let mut fields = kernels.map(|line| line.split('\t').collect::<Vec<_>>());
        let first = fields.find(|fields| fields[1] == label);
        first.expect("it computed")[3].parse::<u64>().unwrap()
    };
    let waited_ns = first("best-effort") - first("high-priority");
    assert!(
        waited_ns > 58 * SECOND_NS && waited_ns < 64 * SECOND_NS,
        "{waited_ns}"
    );
}
