//! `pillion demo`: repeatable byte by byte, and good enough on Orion's own traces, which are not
//! part of the repository (`testing::data`).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Ended, Process, cargo_folder, clean_command, pillion};

pub(crate) fn orion_folder() -> PathBuf {
    testing::data("orion")
}

fn demo(arguments: &[&str]) -> Ended {
    cargo_folder();
    let mut command = clean_command(pillion());
    // A repeatable run must not find a GPU.
    command
        .args(["demo", "--device", "V100-SXM2-16GB"])
        .args(arguments);
    // A phase may take longer than a test's timeout for a silent process; the demo has its own.
    Process::start("pillion demo", command).finish_whenever()
}

fn demo_json(arguments: &[&str]) -> Value {
    let ended = demo(&[arguments, &["--json"]].concat()).expect_success();
    serde_json::from_str(&ended.output).unwrap()
}

fn number(results: &Value, pointer: &str) -> f64 {
    let value = results.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer} in {results:#}"))
}

fn expect_counts_to_agree(results: &Value) {
    for (phase, jobs) in results["counts"].as_object().unwrap() {
        for (job, counts) in jobs.as_object().unwrap() {
            for counted in ["launches", "copied_h2d_bytes", "copied_d2h_bytes"] {
                let program = &counts["program"][counted];
                assert!(program.as_u64() > Some(0), "{phase} {job} {counted}");
                assert_eq!(
                    &counts["device"][counted], program,
                    "{phase} {job} {counted}"
                );
                if phase.ends_with("_pillion") {
                    assert_eq!(
                        &counts["pillion"][counted], program,
                        "{phase} {job} {counted}"
                    );
                }
            }
        }
    }
}

#[test]
fn equal_seeds_give_equal_output_to_the_byte() {
    let arguments = ["--seconds", "2", "--seed", "7", "--json"];
    let first = demo(&arguments).expect_success().output;
    let second = demo(&arguments).expect_success().output;
    assert_eq!(first, second);
    let other = demo(&["--seconds", "2", "--seed", "8", "--json"]);
    assert_ne!(first, other.expect_success().output);
}

#[test]
fn the_results_have_every_key_of_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/folder");
    let results = demo_json(&["--seconds", "1", "--out", out.to_str().unwrap()]);
    assert_eq!(results["schema_version"], 1);
    assert_eq!(results["device"], "V100-SXM2-16GB");
    assert_eq!(results["software_gpu"], true);
    assert_eq!(results["seed"], 1);
    for phase in [
        "hp_solo",
        "timeslice",
        "timeslice_pillion",
        "mps",
        "mps_pillion",
    ] {
        for key in ["p50_ms", "p95_ms", "p99_ms", "requests"] {
            number(&results, &format!("/phases/{phase}/hp/{key}"));
        }
    }
    for phase in [
        "be_solo",
        "timeslice",
        "timeslice_pillion",
        "mps",
        "mps_pillion",
    ] {
        number(&results, &format!("/phases/{phase}/be/per_s"));
    }
    for phase in ["timeslice_pillion", "mps_pillion"] {
        for key in ["be_launches_beside_hp", "be_launches_held"] {
            number(&results, &format!("/phases/{phase}/{key}"));
        }
    }
    assert!(results["phases"]["hp_solo"]["be"].is_null());
    assert!(results["phases"]["be_solo"]["hp"].is_null());
    expect_counts_to_agree(&results);
    let written = std::fs::read_to_string(out.join("results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), results);
}

#[test]
fn every_policy_runs_and_prints_a_table_of_six_phases() {
    for policy in ["none", "temporal"] {
        let ended = demo(&["--seconds", "0.5", "--policy", policy]).expect_success();
        let phases = ["alone", "time-sliced", "MPS"];
        let rows = ended.output.lines();
        let rows = rows.filter(|line| phases.iter().any(|phase| line.contains(phase)));
        assert!(rows.count() >= 6, "{ended:#?}");
        assert!(ended.output.contains("counted by programs"), "{ended:#?}");
    }
}

#[test]
fn on_orions_traces_pillion_protects_the_high_priority_job_and_lets_the_other_work() {
    let orion = orion_folder();
    let trace = |name: &str| orion.join("model_kernels").join(name).display().to_string();
    let (hp, be) = (trace("resnet50_4_fwd"), trace("resnet50_32_fb1"));
    let results = demo_json(&["--hp", &hp, "--be", &be]);
    expect_protection(&results, 1.35);
}

#[test]
fn by_default_pillion_protects_the_high_priority_job_and_lets_the_other_work() {
    let results = demo_json(&[]);
    assert_eq!(results["hp"], "resnet50-inference");
    assert_eq!(results["be"], "resnet50-training");
    expect_protection(&results, 1.2);
    let p99_ms = |phase: &str| number(&results, &format!("/phases/{phase}/hp/p99_ms"));
    assert!(p99_ms("timeslice_pillion") <= 1.25 * p99_ms("hp_solo"));
    for phase in ["timeslice", "mps"] {
        let without_ms = p99_ms(phase);
        let with_ms = p99_ms(&format!("{phase}_pillion"));
        assert!(
            without_ms >= 1.5 * with_ms,
            "{phase}: {without_ms} ms without, {with_ms} ms with"
        );
    }
}

/// Compares real processes, library and daemon on the device server with the same jobs and arrivals
/// in the simulator. When this was written the differences were at most 1.3 % in the median, 4.2 %
/// in the 95th percentile and 2.4 % in the rate; twice that is allowed, in whole numbers. The
/// simulator lacks the replay's check kernel after every 50th launch (2 % more), and its polls fall
/// elsewhere.
#[test]
fn the_simulator_foretells_the_demo() {
    let seconds = "6";
    let results = demo_json(&["--seconds", seconds, "--policy", "orion"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("demo.toml");
    let job = |more: &str| format!("[[jobs]]\ncopy_in = 602112\ncopy_out = 4000\n{more}\n");
    let hp = "class = \"high-priority\"\ntrace = \"resnet50-inference\"\narrivals = \"poisson\"\nrate = 15";
    let head = format!("seconds = {seconds}\nwarmup_requests = 0\n[policy]\nname = \"mps\"\n");
    let orion = "policy = { name = \"orion\", is_profiled = 0 }";
    let sweep = format!(
        "[sweep]\nfile = [{{ policy.name = \"mps\" }}, {{ {orion} }}, \
         {{ policy.name = \"none\", sharing = \"timeslice\" }}, {{ {orion}, sharing = \"timeslice\" }}]\n"
    );
    let scenario = head + &job(hp) + &job("trace = \"resnet50-training\"") + &sweep;
    std::fs::write(&path, scenario).unwrap();
    let mut command = clean_command(pillion());
    command
        .args(["simulate", "--json", "--scenario"])
        .arg(&path);
    let simulated = Process::start("pillion simulate", command).finish_whenever();
    let simulated = simulated.expect_success();
    let phases = ["mps", "mps_pillion", "timeslice", "timeslice_pillion"];
    let lines: Vec<&str> = simulated.output.lines().collect();
    assert_eq!(lines.len(), phases.len(), "{simulated:#?}");
    for (phase, line) in phases.into_iter().zip(lines) {
        let line: Value = serde_json::from_str(line).unwrap();
        let demo = &results["phases"][phase];
        assert_eq!(demo["hp"]["requests"], line["hp"]["requests"], "{phase}");
        for (there, here, within) in [
            ("/hp/p50_ms", "/hp/p50_ms", 0.05),
            ("/hp/p95_ms", "/hp/p95_ms", 0.10),
            ("/be/per_s", "/be/0/per_s", 0.05),
        ] {
            let (demo, simulated) = (number(demo, there), number(&line, here));
            println!("{phase} {there}: {demo:.3}, simulated {simulated:.3}");
            let off = (simulated / demo - 1.0).abs();
            assert!(
                off <= within,
                "{phase} {there}: {demo}, simulated {simulated}"
            );
        }
    }
}

/// There are enough requests, counted alike by all parties; the high-priority job's p99 under MPS
/// and Pillion is at most so many times its p99 alone, and better than without; the other job has
/// 60 % of its rate or more.
fn expect_protection(results: &Value, ratio_max: f64) {
    println!("{:#}", results["phases"]);
    for phase in [
        "hp_solo",
        "timeslice",
        "timeslice_pillion",
        "mps",
        "mps_pillion",
    ] {
        let requests = number(results, &format!("/phases/{phase}/hp/requests"));
        assert!(requests >= 150.0, "{phase}: {requests} requests");
    }
    expect_counts_to_agree(results);
    let p99_ms = |phase: &str| number(results, &format!("/phases/{phase}/hp/p99_ms"));
    let be_per_s = |phase: &str| number(results, &format!("/phases/{phase}/be/per_s"));
    let (solo_ms, shared_ms) = (p99_ms("hp_solo"), p99_ms("mps_pillion"));
    assert!(
        shared_ms <= ratio_max * solo_ms,
        "{shared_ms} ms, solo {solo_ms} ms"
    );
    assert!(shared_ms < p99_ms("mps"));
    assert!(p99_ms("timeslice_pillion") < p99_ms("timeslice"));
    let share = be_per_s("mps_pillion") / be_per_s("be_solo");
    assert!(
        share >= 0.60,
        "best-effort has {share:.2} of its rate alone"
    );
    assert!(number(results, "/phases/mps_pillion/be_launches_beside_hp") > 0.0);
}

fn only_compute(orion: &Path, name: &str, folder: &Path) -> String {
    let text = std::fs::read_to_string(orion.join("model_kernels").join(name)).unwrap();
    let mut lines = text.lines();
    let mut kept = format!("{}\n", lines.next().unwrap());
    for line in lines.filter(|line| line.split(',').nth(1) == Some("1")) {
        writeln!(kept, "{line}").unwrap();
    }
    let path = folder.join(name);
    std::fs::write(&path, kept).unwrap();
    path.display().to_string()
}

#[test]
fn of_one_class_nothing_goes_beside_a_busy_high_priority_job_but_counted_slips() {
    let orion = orion_folder();
    let folder = tempfile::tempdir().unwrap();
    let hp = only_compute(&orion, "resnet50_4_fwd", folder.path());
    let be = only_compute(&orion, "resnet50_32_fb1", folder.path());
    let results = demo_json(&["--hp", &hp, "--be", &be, "--policy", "orion"]);
    println!("{:#}", results["counts"]["mps_pillion"]["be"]);
    expect_counts_to_agree(&results);
    assert_eq!(
        number(&results, "/phases/mps_pillion/be_launches_beside_hp"),
        0.0
    );
    let pillion = |name: &str| number(&results, &format!("/counts/mps_pillion/be/pillion/{name}"));
    let beside = "/counts/mps_pillion/be/device/launches_beside_others";
    let (beside, excused) = (
        number(&results, beside),
        pillion("slips") + pillion("launches_forced"),
    );
    assert!(
        beside <= excused,
        "{beside} launches beside the other, {excused} slips"
    );
}
