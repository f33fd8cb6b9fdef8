//! The policy of docs/add-a-policy.md as its reader runs it: `config check` and the simulator.
//! `scheduler/src/core/state/tests/worked.rs` has the daemon's polls; the fault simulation draws
//! every policy of the registry; `policy/tests/worked_policy.rs` compares document and file.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/add-a-policy.md");
    fs::read_to_string(path).expect("the document")
}

fn blocks(document: &str) -> Vec<&str> {
    let blocks = document.split("```toml\n").skip(1);
    let ends = blocks.map(|block| block.split("```").next());
    ends.map(Option::unwrap_or_default).collect()
}

fn pillion(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
    command.args(arguments).env_remove("PILLION_DATA");
    command.output().expect("it runs")
}

fn of_file(text: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("room");
    let path = folder.path().join("file.toml");
    fs::write(&path, text).expect("room");
    let path = path.to_str().expect("text");
    pillion(&[arguments, &[path]].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Best-effort rate, and high-priority p99 in ms, of each run.
fn results(output: &Output) -> Vec<(f64, f64)> {
    assert!(output.status.success(), "{}", stderr(output));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let number = |value: &Value| value.as_f64().expect("a number");
        let (be, hp) = (&line["be"][0]["per_s"], &line["hp"]["p99_ms"]);
        (number(be), number(hp))
    });
    lines.collect()
}

#[test]
fn config_check_accepts_the_configuration_of_the_document() {
    let document = document();
    let config = blocks(&document)[0];
    let output = of_file(config, &["config", "check"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn config_check_refuses_what_the_policy_does_not_take() {
    let document = document();
    let config = blocks(&document)[0];
    for (line, fault) in [
        (
            "idle_us = -5",
            "idle_us is -5; must be a number from 0 to 1000000; nearest is 0",
        ),
        (
            "idle_us = \"long\"",
            "idle_us is \"long\"; must be a number from 0 to 1000000; nearest is 200",
        ),
        ("idle_ms = 5", "unknown key `idle_ms` in [policy]"),
        (
            "lease_ms = 5",
            "lease_ms is set, but policy idle-only ignores it",
        ),
    ] {
        let output = of_file(&config.replace("idle_us = 500", line), &["config", "check"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(fault), "{}", stderr(&output));
    }
}

#[test]
fn the_simulator_runs_it_and_high_priority_requests_take_less_than_under_none() {
    let output = pillion(&[
        "simulate",
        "--policy",
        "none,idle-only",
        "--seconds",
        "5",
        "--json",
    ]);
    let [(_, none_p99), (rate, p99)] = results(&output)[..] else {
        panic!("two runs: {}", stderr(&output));
    };
    assert!(p99 < none_p99 && rate > 0.0, "{p99} {none_p99} {rate}");
}

#[test]
fn the_scenario_of_the_document_shows_what_its_number_does() {
    let document = document();
    let scenario = blocks(&document)[1];
    let output = of_file(scenario, &["simulate", "--json", "--scenario"]);
    let rates: Vec<f64> = results(&output).iter().map(|(rate, _)| *rate).collect();
    assert_eq!(rates.len(), 3);
    assert!(rates.is_sorted_by(|a, b| a > b), "{rates:?}");
}
