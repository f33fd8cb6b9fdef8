//! Latency targets with real processes: set by `run` and by `set`, and reported by `status`.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Job, Process, Program, until};
use crate::events::{event_when, events};

/// A high-priority service of so many requests of 3 ms, marked or not (`how`), with these flags.
fn service(gpu: &Gpu, daemon: &Daemon, (how, count): (&str, &str), flags: &[&str]) -> Job {
    let program = Program::Linked("ranges").path();
    let program = program.to_str().expect("paths of these tests are text");
    let words = [
        &["--class", "high-priority"],
        flags,
        &["--", program, how, count],
    ];
    let job = gpu.pillion_run("serve", daemon.socket(), &words.concat());
    job.env("PILLION_JOB", "serve")
}

fn told(daemon: &Daemon, goal: &str, source: &str) -> Value {
    let is_so = |job: &Value| {
        let slo = &job["control"]["slo"];
        slo["goal"] == goal && slo["source"] == source
    };
    daemon.job_when("serve", &format!("{goal} ({source})"), is_so)["control"]["slo"].clone()
}

#[test]
fn a_target_is_asked_for_held_changed_and_told_and_the_next_daemon_has_the_change() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "slo_p99 = \"3x\"");
    let mut training = gpu.job("training", "steady").best_effort(&daemon).start();
    training.wait_for("round", 1);
    let job = service(&gpu, &daemon, ("api", "400"), &["--slo", "15ms"]);
    let job = job.start_until("served");
    let is_judged = |job: &Value| job["control"]["slo"]["requests"].as_u64() > Some(100);
    let seen = daemon.job_when("serve", "requests are judged", is_judged);
    let slo = &seen["control"]["slo"];
    assert_eq!(
        (&slo["goal"], &slo["source"], &slo["target_ns"]),
        (&"15ms".into(), &"run".into(), &15_000_000.into())
    );
    let measured_ns = slo["measured_ns"].as_u64().unwrap();
    assert!((2_900_000..60_000_000).contains(&measured_ns), "{slo:#}");
    assert!(
        slo["misses"].as_u64() <= slo["requests"].as_u64(),
        "{slo:#}"
    );
    let table = daemon.explained();
    assert!(
        table.contains("target p99 15ms (run), measured "),
        "{table}"
    );

    let set = |words: &[&str]| gpu.tell(&daemon, &[&["set"], words].concat());
    let said = set(&["serve", "--slo", "1.5x"]).expect_success().output;
    let expected = "job serve, high-priority: memory unlimited; target p99 1.5x alone (set)";
    assert!(said.contains(expected), "{said}");
    told(&daemon, "1.5x", "set");
    let refused = |words: &[&str], code: i32, part: &str| {
        let ended = set(words);
        assert_eq!(ended.code(), code, "{ended:#?}");
        ended.expect_errors(&[part]);
    };
    let expected = "only high-priority jobs have a latency target";
    refused(&["training", "--slo", "2x"], 1, expected);
    refused(&["nobody", "--slo", "2x"], 1, "no job \"nobody\"");
    refused(
        &["serve", "--slo", "0.5x"],
        2,
        "times alone from 1x to 100x",
    );
    refused(&["serve"], 2, "--memory");
    // If one of two changes is refused, neither is made.
    refused(
        &["training", "--memory", "1GiB", "--slo", "2x"],
        1,
        expected,
    );
    assert_ne!(daemon.job("training")["memory"]["quota_bytes"], 1 << 30);
    told(&daemon, "1.5x", "set");

    daemon.signal(Signal::KILL);
    drop(daemon.finish());
    let daemon = gpu.daemon("slo_p99 = \"3x\"");
    told(&daemon, "1.5x", "set");
    let said = gpu.tell(&daemon, &["set", "serve", "--slo", "default"]);
    let said = said.expect_success().output;
    assert!(said.contains("3x alone (configuration)"), "{said}");
    told(&daemon, "3x", "configuration");
    gpu.expect_right_end("serve", job, &daemon);
    training.wait_for_new("round", 1);
    gpu.expect_right_end("training", training, &daemon);
}

#[test]
fn a_target_that_cannot_be_held_is_refused_or_warned_of_once() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let refused = |ended: Ended, part: &str| {
        assert_eq!(ended.code(), 2, "{ended:#?}");
        ended.expect_errors(&[part]);
    };
    let run = |words: &[&str]| gpu.tell(&daemon, &[&["run"], words, &["--", "true"]].concat());
    let part = "a target applies only to high-priority jobs, and this job is best-effort";
    refused(run(&["--class", "best-effort", "--slo", "1.2x"]), part);
    refused(run(&["--slo", "15ms"]), part);
    let part = "expected times alone from 1x to 100x";
    refused(run(&["--class", "high-priority", "--slo", "fast"]), part);

    let job = service(&gpu, &daemon, ("none", "100"), &["--slo", "15ms"]);
    let job = job.start_until("served");
    told(&daemon, "15ms", "run");
    let warned = event_when(&gpu, &daemon, "slo-unmarked", |_| true);
    assert_eq!(warned["job"], "serve", "{warned:#}");
    let table = daemon.explained();
    let part = "target 15ms (run), not enforced at p99, because the program marks no requests";
    assert!(table.contains(part), "{table}");
    gpu.expect_right_end("serve", job, &daemon);
    let all = events(&gpu, &daemon, &[]);
    let warned = all.iter().filter(|event| event["kind"] == "slo-unmarked");
    assert_eq!(warned.count(), 1);
}

/// Target of requests of 15 ms, which three training jobs in turns lengthen to 60 ms.
const TARGET_NS: u64 = 35_000_000;

/// A C service of so many marked requests of three kernels of 5 ms.
fn marking(gpu: &Gpu, daemon: &Daemon, label: &str, count: u64) -> Job {
    let words = [count, 5_000_000, TARGET_NS].map(|word| word.to_string());
    let words = words.each_ref().map(String::as_str);
    let job = gpu.job(label, "service").args(&words);
    job.high_priority(daemon)
}

/// Three training jobs that launch 40 ms of work at a time.
fn trainings(gpu: &Gpu, daemon: &Daemon) -> [Process; 3] {
    let mut trainings = ["first", "second", "third"]
        .map(|label| gpu.job(label, "load 16").best_effort(daemon).start());
    for training in &mut trainings {
        training.wait_for("round", 1);
    }
    trainings
}

fn late_share(service: Process, count: u64) -> f64 {
    let ended = service.finish().expect_success();
    ended.asked("late") as f64 / count as f64
}

/// A target below the requests' time alone pauses best-effort work; a copy under way goes on.
#[test]
fn while_best_effort_work_is_paused_large_copies_wait_and_small_ones_go() {
    let policy = "name = \"pillion\"\nslo_p99 = \"5ms\"\nmax_hold_ms = 1000";
    let (gpu, daemon) = Gpu::with_daemon("mps", policy);
    let copier = |label: &str, bytes: &str| {
        let job = gpu.job(label, "copies").arg(bytes).best_effort(&daemon);
        job.start_until("ready")
    };
    let (large, small) = (copier("large", "4194304"), copier("small", "4096"));
    let copied = |label: &str| {
        let job = daemon.job(label);
        job["totals"]["copied_h2d_bytes"].as_u64().unwrap()
    };
    let service = marking(&gpu, &daemon, "serve", 500).start_until("ready");
    daemon.job_when("large", "it waits", |job| job["held_by"] == "paused");
    let before = ["large", "small"].map(copied);
    until("small copies", || copied("small") > before[1] + 100 * 4096);
    // One large copy may have begun before.
    assert!(copied("large") <= before[0] + 4_194_304);
    // Once there are no more requests.
    service.finish().expect_success();
    until("large copies", || {
        copied("large") > before[0] + 10 * 4_194_304
    });
    for job in [large, small] {
        job.finish().expect_success();
    }
}

/// The level and the requests' time alone are the process's, which survives its daemon's restart.
#[test]
fn the_next_daemon_begins_with_what_the_one_before_has_learnt_of_a_services_requests() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    let service = marking(&gpu, &daemon, "serve", 600).start_until("ready");
    let is_judged = |job: &Value| job["control"]["slo"]["requests"].as_u64() > Some(20);
    daemon.job_when("serve", "requests are judged", is_judged);
    let folder = daemon.socket().parent().unwrap().to_owned();
    daemon.end();
    let files = std::fs::read_dir(folder).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let file = paths.find(|path| path.extension().is_some_and(|end| end == "learnt"));
    let mode = std::fs::metadata(file.unwrap())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let next = gpu.daemon("name = \"pillion\"");
    // New learning is judged after a hundred and more requests, which take two seconds.
    let is_judged = |job: &Value| job["control"]["slo"]["requests"].as_u64() >= Some(1);
    let job = next.job_when("serve", "a request is judged", is_judged);
    let log = next.log();
    assert!(
        log.contains("continues with earlier measurements of its requests"),
        "{log}"
    );
    let slo = &job["control"]["slo"];
    assert_eq!(slo["learning"], false, "{slo:#}");
    // Since it came back: all of them, except those of a poll between two of these numbers.
    let ended = job["totals"]["requests_marked"].as_u64().unwrap();
    let judged = slo["requests"].as_u64().unwrap();
    assert!(ended < judged + 20, "{ended} ended: {slo:#}");
    service.finish().expect_success();
}

#[test]
fn a_c_service_that_marks_its_requests_has_its_target_beside_trainings_that_break_it_ungated() {
    const UNGATED: u64 = 40;
    const GATED: u64 = 400;
    let (gpu, nobody) = Gpu::with_daemon("timeslice", "name = \"none\"");
    let beside = trainings(&gpu, &nobody);
    let service = marking(&gpu, &nobody, "serve", UNGATED).start_until("served");
    let ungated = late_share(service, UNGATED);
    beside
        .into_iter()
        .for_each(|training| drop(training.finish()));
    nobody.end();
    assert!(ungated > 0.5, "{ungated}: nobody is to be protected");

    let daemon = gpu.daemon("name = \"pillion\"\nmax_hold_ms = 10000");
    let beside = trainings(&gpu, &daemon);
    let launched = || {
        let of = |label| daemon.job(label)["totals"]["launches"].as_u64().unwrap();
        ["first", "second", "third"].map(of)
    };
    let service = marking(&gpu, &daemon, "serve", GATED).env("PILLION_SLO", "35ms");
    let service = service.start_until("ready");
    let before = launched();
    let is_read = |job: &Value| job["totals"]["requests_marked"].as_u64() >= Some(GATED);
    let job = daemon.job_when("serve", "all requests are read", is_read);
    let after = launched();
    assert_eq!(job["totals"]["requests_marked"], GATED, "{job:#}");
    assert_eq!(job["totals"]["marks_refused"], 0, "{job:#}");
    let slo = &job["control"]["slo"];
    let count = |name: &str| slo[name].as_u64().unwrap();
    // From some 165 on: the first ones teach their time alone.
    assert!((100..=GATED).contains(&count("requests")), "{slo:#}");
    assert_eq!(
        (&slo["source"], &slo["miss"]),
        (&"run".into(), &0.01.into())
    );
    // The bound holds whatever the machine does.
    let spent = count("misses") - count("misses_at_floor");
    let most = 0.01 * (count("requests") as f64 + 7_000.0);
    assert!(spent as f64 <= most, "{slo:#}");
    let gated = late_share(service, GATED);
    // Requests take 15 to 23 ms of their 35: a machine with other work makes few of them late.
    assert!(gated < ungated / 2.0, "{gated}, ungated {ungated}: {slo:#}");
    let more: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
    assert!(more > 0, "best-effort work stands still: {slo:#}");
    beside
        .into_iter()
        .for_each(|training| drop(training.finish()));
    for label in ["first", "second", "third"] {
        assert_eq!(daemon.total(label, "launches_forced"), 0);
    }
}
