//! A target is held and spent: of a job that marks its requests, a hundredth takes longer than asked, and best-effort work gets
//! what that leaves.
//!
//! On built-in workloads, so that it runs everywhere; the suite `slo` has the recorded ones.

use std::path::Path;

use sim::library::Library;
use sim::scenario::Scenario;
use sim::{NoObserver, Outcome};

/// Poisson arrivals beside a training that starts then; `policy` is the section of that name.
fn run(rate: u32, seconds: u32, start_s: f64, policy: &str) -> Outcome {
    let text = format!(
        r#"
device = "V100-SXM2-16GB"
sharing = "mps"
seconds = {seconds}
seeds = [1]

[policy]
{policy}

[[jobs]]
name = "hp"
class = "high-priority"
arrivals = "poisson"
rate = {rate}
trace = "resnet50-inference"
marks = true

[[jobs]]
name = "be"
class = "best-effort"
trace = "resnet50-training"
start_s = {start_s}
"#
    );
    let scenarios = Scenario::parse(
        Path::new("slo.toml"),
        &text,
        Path::new("."),
        &mut Library::default(),
    );
    let scenario = &scenarios.expect("it is right")[0];
    let outcome = scenario.with_seed(1).run(&mut NoObserver);
    outcome.expect("it was checked")
}

fn p99_ms(outcome: &Outcome) -> f64 {
    outcome.jobs[0].quantile_ns(990).expect("requests") as f64 / 1e6
}

/// The 99th percentile alone: the best-effort job comes when all is over.
fn solo_p99_ms(rate: u32, seconds: u32) -> f64 {
    p99_ms(&run(rate, seconds, f64::from(seconds), "name = \"none\""))
}

fn asked(times: f64) -> String {
    format!("name = \"pillion\"\nis_profiled = 0\nslo_p99 = {times}")
}

#[test]
fn a_target_is_neither_passed_nor_left_unspent() {
    // A fifth and half of the time busy, 5 000 requests. What is asked is a multiple of the p99 alone as it is computed from the
    // arrivals so far, a few per cent less at first than over all of them.
    for (rate, seconds) in [(30, 170), (75, 67)] {
        let solo_ms = solo_p99_ms(rate, seconds);
        let mut best_effort = Vec::new();
        for times in [1.05, 1.2, 1.5] {
            let outcome = run(rate, seconds, 0.000_001, &asked(times));
            let got = p99_ms(&outcome) / solo_ms / times;
            assert!((0.94..=1.02).contains(&got), "{rate}/s, {times}x: {got}");
            best_effort.push(outcome.jobs[1].launches as f64);
        }
        // Three tenths more time for one request in a hundred is worth a tenth of all best-effort work at least.
        assert!(best_effort.is_sorted(), "{best_effort:?}");
        assert!(best_effort[2] > 1.1 * best_effort[0], "{best_effort:?}");
    }
}
