//! Input of `pillion simulate --scenario`: sources of a scenario, and the format of its numbers.

#[cfg(test)]
mod simulating;

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::simulating::{
    PAIR, expect_refused, expect_said, expect_success, lines, simulate, text, workspace, written,
};

#[test]
fn numbers_of_a_policy_are_written_as_in_a_daemons_configuration_too() {
    let pillion = PAIR.replace("\"mps\"", "\"pillion\"\nslo_p99 = 1.2\nkernel_pairs = 0");
    let (_folder, here) = written(&pillion);
    let as_there = pillion
        .replace("1.2", "\"1.2x\"")
        .replace("= 0\n", "= false\n");
    assert_ne!(as_there, pillion);
    let (_folder, there) = written(&as_there);
    assert_eq!(
        lines(&format!("--scenario {here}")),
        lines(&format!("--scenario {there}"))
    );
    let (_folder, path) = written(&format!(
        "{as_there}[sweep]\npolicy.slo_p99 = [\"20ms\", 1.2]\n"
    ));
    let swept = lines(&format!("--scenario {path}"));
    assert_eq!(swept[0]["swept"]["policy.slo_p99"], "20ms");
    // For a request of 6.8 ms, 20 ms exceed 1.2 times.
    let rate = |line: &Value| line["be"][0]["per_s"].as_f64().unwrap();
    assert!(rate(&swept[0]) > rate(&swept[1]), "{swept:#?}");
    for (line, said) in [
        (
            "slo_p99 = \"20 ms\"",
            "slo_p99 is \"20 ms\"; must be times alone, \"1x\" to \"100x\" or 1 to 100, or ms, such as \"20ms\"; nearest is \"1.05x\"",
        ),
        (
            "kernel_pairs = \"on\"",
            "kernel_pairs is \"on\"; must be true or false, or 1 or 0",
        ),
        (
            "kernel_pairs = 2",
            "kernel_pairs is 2; must be true or false, or 1 or 0; nearest is 1",
        ),
        (
            "slo_throughput = true",
            "slo_throughput is true; must be a number from 0 to 1",
        ),
        ("nam = \"orion\"", "policy pillion has no nam;"),
        ("nam = \"orion\"", "nearest is `name`"),
        ("kernel_pair = 1", "nearest is `kernel_pairs`"),
    ] {
        let scenario = PAIR.replace("\"mps\"", &format!("\"pillion\"\n{line}"));
        let (_folder, path) = written(&scenario);
        expect_refused(&format!("--scenario {path}"), said);
    }
}

#[test]
fn a_scenario_is_read_from_stdin_where_its_file_is_a_dash() {
    let run = |scenario: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
        command.args(["simulate", "--scenario", "-", "--json"]);
        command.env_remove("PILLION_DATA").current_dir(workspace());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(scenario.as_bytes()).expect("it reads");
        drop(stdin);
        child.wait_with_output().expect("it ends")
    };
    let (_folder, path) = written(PAIR);
    let piped = run(PAIR);
    expect_success(&piped);
    let file = simulate(&format!("--scenario {path} --json"));
    assert_eq!(text(&piped.stdout), text(&file.stdout));
    let wrong = run(&PAIR.replace("rate", "rat"));
    assert_eq!(wrong.status.code(), Some(2));
    expect_said(&wrong, "stdin:9:1: unknown key `rat`");
}
