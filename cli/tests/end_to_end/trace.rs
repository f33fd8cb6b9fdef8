//! `pillion trace` of real processes: every launch once, the other items, and a trace's end.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Process, Program, until};

/// A trace of so many seconds, which has begun.
fn taking(gpu: &Gpu, daemon: &Daemon, seconds: &str, file: &Path) -> Process {
    let file = file.to_str().expect("paths of these tests are text");
    let words = ["trace", "--seconds", seconds, "--json", "-o", file];
    let process = Process::start("trace", gpu.pillion(daemon, &words));
    until("the begin of the trace", || {
        process.errors().contains("taking a trace")
    });
    process
}

fn ended(process: Process, file: &Path) -> (Value, Value) {
    process.signal(Signal::INT);
    finished(process, file)
}

fn finished(process: Process, file: &Path) -> (Value, Value) {
    let ended = process.finish().expect_success();
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.len() <= 50_000_000, "{} bytes", text.len());
    let summary: Value = serde_json::from_str(&ended.output).unwrap();
    assert_eq!(summary["records_dropped"], 0, "{summary:#}");
    assert_eq!(summary["is_full"], false, "{summary:#}");
    (summary, serde_json::from_str(&text).unwrap())
}

fn events_of<'d>(document: &'d Value, job: &str, cats: &[&str]) -> Vec<&'d Value> {
    let events = document["traceEvents"].as_array().unwrap();
    let names = events
        .iter()
        .filter(|event| event["name"] == "process_name");
    let mut of_job = names.filter(|event| {
        let name = event["args"]["name"].as_str().unwrap_or_default();
        name.starts_with(&format!("{job} ("))
    });
    let pid = &of_job.next().unwrap_or_else(|| panic!("no {job}"))["pid"];
    let is_its =
        |event: &&Value| event["pid"] == *pid && cats.iter().any(|cat| event["cat"] == *cat);
    events.iter().filter(is_its).collect()
}

const KERNELS: [&str; 3] = ["compute", "memory", "unknown"];

#[test]
fn a_trace_of_three_jobs_has_every_launch_once_with_its_name() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let file = gpu.path("t.json");
    let trace = taking(&gpu, &daemon, "60", &file);
    let graphs = gpu.job("graphs", "graph_steady").best_effort(&daemon);
    let train = gpu.job("train", "steady").best_effort(&daemon);
    let [mut graphs, mut train] = [graphs, train].map(|job| job.start());
    let ranges = Program::Linked("ranges").path();
    let serve = gpu.job_of("serve", &ranges).args(&["api", "60"]);
    let serve = serve.high_priority(&daemon).start();
    train.wait_for("round", 30);
    graphs.wait_for("round", 3);
    for (label, process) in [("serve", serve), ("train", train), ("graphs", graphs)] {
        gpu.expect_right_end(label, process, &daemon);
    }
    let (summary, document) = ended(trace, &file);
    for label in ["serve", "train", "graphs"] {
        let totals = daemon.totals(label);
        let number = |counter: &str| totals[counter].as_u64().unwrap();
        let drawn = events_of(&document, label, &KERNELS);
        let made = number("launches") + number("graph_launches");
        assert_eq!(drawn.len() as u64, made, "{label}: {totals:#}");
        let is_named = |event: &&Value| {
            let name = event["name"].as_str().unwrap_or_default();
            !["name unknown", "not identified"]
                .iter()
                .any(|missing| name.starts_with(missing))
        };
        assert_eq!(
            drawn.iter().filter(|event| is_named(event)).count(),
            drawn.len()
        );
        let mut jobs = summary["jobs"].as_array().unwrap().iter();
        let told = jobs.find(|job| job["job"] == label).unwrap();
        assert_eq!(told["launches"].as_u64(), Some(made), "{told:#}");
    }
    let requests = events_of(&document, "serve", &["request"]);
    assert_eq!(requests.len(), 2 * 60, "{summary:#}");
    // The service was protected: the leases show the holds.
    let leases = events_of(&document, "train", &["lease"]);
    assert!(leases.iter().any(|lease| lease["name"] == "open"));
    assert!(!events_of(&document, "train", &["wait"]).is_empty());
    let graphs = events_of(&document, "graphs", &KERNELS);
    let name = graphs[0]["name"].as_str().unwrap();
    assert!(name.starts_with("CUDA graph of "), "{name}");
}

#[test]
fn launches_of_one_stream_follow_each_other_and_copies_are_among_them() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let file = gpu.path("t.json");
    let train = gpu.job("train", "steady").best_effort(&daemon);
    let mut train = train.start_until("round");
    let trace = taking(&gpu, &daemon, "1", &file);
    train.wait_for_new("round", 3);
    // A second one has to wait for its turn.
    let second = gpu.tell(&daemon, &["trace", "-o", "/dev/null"]);
    assert_eq!(second.code(), 1, "{second:#?}");
    second.expect_errors(&["another trace is being taken"]);
    let (summary, document) = finished(trace, &file);
    let seconds = summary["seconds"].as_f64().unwrap();
    assert!((seconds - 1.0).abs() < 1e-6, "{summary:#}");
    let drawn = events_of(&document, "train", &[&KERNELS[..], &["copy"]].concat());
    assert!(drawn.len() > 10, "{summary:#}");
    // Overestimated lengths do not accumulate: each wait for a copy shows how far the stream is.
    let is_late = |event: &&&Value| event["ts"].as_f64().unwrap() >= 999_999.0;
    assert!(drawn.iter().filter(is_late).count() <= 30, "{summary:#}");
    let mut ends: std::collections::BTreeMap<u64, f64> = std::collections::BTreeMap::new();
    for event in drawn {
        let number = |key: &str| event[key].as_f64().unwrap();
        let end = ends.entry(event["tid"].as_u64().unwrap()).or_default();
        // Three decimals of a microsecond are exact, their sum in a double is nearly.
        assert!(number("ts") >= *end - 1e-3, "{event:#}");
        *end = number("ts") + number("dur");
        assert!(*end <= 1e6 + 1e-3, "{event:#}");
    }
    // Then the daemon is as before, and takes another trace.
    let trace = taking(&gpu, &daemon, "0.2", &file);
    finished(trace, &file);
    gpu.expect_right_end("train", train, &daemon);
}

#[test]
fn clients_of_a_daemon_that_is_killed_tell_no_more_and_serve_the_next_trace() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let file = gpu.path("t.json");
    let mut train = gpu.job("train", "steady").best_effort(&daemon).start();
    train.wait_for("round", 3);
    let trace = taking(&gpu, &daemon, "60", &file);
    daemon.signal(Signal::KILL);
    drop(daemon.finish());
    let ended = trace.finish();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    ended.expect_errors(&["the daemon ended before the trace did"]);
    // More than its ring would hold.
    train.wait_for_new("round", 150);
    let daemon = gpu.daemon("");
    daemon.wait_for_clients("train", 1);
    let trace = taking(&gpu, &daemon, "0.5", &file);
    let (_, document) = finished(trace, &file);
    let drawn = events_of(&document, "train", &KERNELS);
    assert!(!drawn.is_empty());
    gpu.expect_right_end("train", train, &daemon);
    assert_eq!(daemon.total("train", "records_dropped"), 0);
}

#[test]
fn where_it_cannot_be_taken_or_written_that_is_said() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let file = gpu.path("t.json");
    let words = file.to_str().unwrap();
    for (arguments, code, part) in [
        (vec!["trace", "--seconds", "0", "-o", words], 2, "0.1 to 60"),
        (vec!["trace"], 2, "--output"),
        (
            vec!["trace", "-o", "/no/such/folder/t.json"],
            2,
            "/no/such/folder/t.json",
        ),
        (vec!["trace", "-o", "-", "--json"], 2, "name a file"),
        (
            vec!["trace", "--gpu", "GPU-ffff", "-o", words],
            2,
            "GPU-ffff",
        ),
    ] {
        let ended = gpu.tell(&daemon, &arguments);
        assert_eq!(ended.code(), code, "{arguments:?}: {ended:#?}");
        ended.expect_errors(&[part]);
    }
    let trace = taking(&gpu, &daemon, "60", &file);
    daemon.end();
    let ended = trace.finish();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    ended.expect_errors(&["the daemon ended before the trace did"]);
    assert!(!file.exists());
}
