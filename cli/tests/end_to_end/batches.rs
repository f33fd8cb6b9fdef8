//! Services whose batch the daemon chooses (`[tuner]`), in C and Python, by polling or callback,
//! beside a training job.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Gpu, Process, tools};
use crate::events::{event_when, events, text};
use crate::examples::{example, marking_service};

const POLICY: &str = "name = \"pillion\"\n[tuner]\nsettle = 20";

/// More batches than any test needs, and the time between two requests, us.
const FOR_EVER: [&str; 2] = ["1000000", "10000"];

fn expect_followed(program: &[PathBuf], training: &'static str) {
    let (gpu, daemon) = Gpu::with_daemon("mps", POLICY);
    let training = gpu.job("training", training).best_effort(&daemon);
    let mut training = training.start_until("round");
    let program = program.iter();
    let program = program.map(|word| word.to_str().expect("paths of these tests are text"));
    let program: Vec<&str> = program.chain(FOR_EVER).collect();
    let words = ["--class", "high-priority", "--slo", "400ms", "--"];
    let words = [&words[..], &program].concat();
    let service = gpu.pillion_run("serve", daemon.socket(), &words);
    let service = service.env("PILLION_JOB", "serve").start();

    let job = daemon.job_when("serve", "a batch is kept", |job| {
        job["control"]["tuner"][0]["state"] == "kept"
    });
    let tuner = &job["control"]["tuner"][0];
    let batch = tuner["batch"].as_u64().unwrap();
    assert!([2, 4, 6, 8].contains(&batch), "{tuner:#}");
    // The program's own batch and another one, each measured by twenty requests.
    assert!(tuner["evaluations"].as_u64() >= Some(2), "{tuner:#}");
    assert_eq!(tuner["target_ns"], 400_000_000);
    assert!(job["totals"]["requests_marked"].as_u64() >= Some(40));
    // The event follows a moment later.
    event_when(&gpu, &daemon, "batch-kept", |_| true);
    let all = events(&gpu, &daemon, &[]);
    let of = |kind: &str| {
        let its = all.iter().filter(|event| event["kind"] == kind);
        its.map(text).collect::<Vec<_>>()
    };
    let wanted = of("batch-wanted");
    let others = wanted
        .iter()
        .filter(|text| !text.starts_with("batch size 4 "));
    assert!(others.count() > 0, "{wanted:?}");
    let kept = of("batch-kept");
    let said = format!("batch size {batch} is kept for requests of kind 0 of job serve, after ");
    assert!(
        kept.last().is_some_and(|text| text.starts_with(&said)),
        "{kept:?}"
    );
    assert!(of("batch-ignored").is_empty());
    let table = daemon.explained();
    assert!(
        table.contains(&format!(
            "batch size for requests of kind 0: {batch}, after "
        )),
        "{table}"
    );
    // The bound on late requests holds whatever the machine does.
    let slo = &job["control"]["slo"];
    let count = |name: &str| slo[name].as_u64().unwrap();
    let spent = count("misses") - count("misses_at_floor");
    let most = 0.01 * (count("requests") as f64 + 7_000.0);
    assert!(spent as f64 <= most, "{slo:#}");
    training.wait_for_new("round", 1);
    end(service);
    training.finish().expect_success();
}

fn end(service: Process) {
    service.signal(Signal::TERM);
    service.finish_untold();
}

#[test]
fn a_c_service_takes_the_batches_that_are_wanted_and_keeps_its_target_beside_a_training() {
    let folder = tempfile::tempdir().unwrap();
    // This training marks its iterations.
    expect_followed(&[marking_service(folder.path())], "load 16");
}

#[test]
fn a_python_service_does_the_same() {
    let program = [tools::python(&[]), example("7-marks/pillion_marks.py")];
    // This one marks none.
    expect_followed(&program, "steady");
}

#[test]
fn a_service_that_asks_to_be_told_is_told_by_the_librarys_thread() {
    let (gpu, daemon) = Gpu::with_daemon("mps", POLICY);
    let training = gpu.job("training", "load 16").best_effort(&daemon);
    let training = training.start_until("round");
    let service = gpu.job("serve", "told").high_priority(&daemon);
    let service = service.env("PILLION_SLO", "400ms").start_until("ready");
    let job = daemon.job_when("serve", "a batch is kept", |job| {
        job["control"]["tuner"][0]["state"] == "kept"
    });
    // The library's thread has run since.
    let marked = |job: &Value| job["totals"]["requests_marked"].as_u64();
    let before = marked(&job);
    let is_later = |job: &Value| marked(job) > before.map(|count| count + 2);
    daemon.job_when("serve", "it goes on", is_later);
    let ended = gpu.expect_right_end("serve", service, &daemon);
    assert!(ended.asked("told") >= 1, "{ended:#?}");
    let tuner = &job["control"]["tuner"][0];
    assert_eq!(tuner["batch"], ended.asked("last"), "{tuner:#}");
    training.finish().expect_success();
}

#[test]
fn without_the_section_a_service_takes_the_batch_that_it_likes() {
    let folder = tempfile::tempdir().unwrap();
    let service = marking_service(folder.path());
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"pillion\"");
    let words = ["--class", "high-priority", "--", service.to_str().unwrap()];
    let words = [&words[..], &FOR_EVER].concat();
    let service = gpu.pillion_run("serve", daemon.socket(), &words);
    let service = service.env("PILLION_JOB", "serve").start();
    let is_used = |job: &Value| job["requests_source"] == "marks";
    let job = daemon.job_when("serve", "its marks count", is_used);
    assert_eq!(job["control"]["tuner"], Value::Array(Vec::new()));
    end(service);
}
