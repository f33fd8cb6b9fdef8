//! A mean is held, for a job that marks its requests, by the level with an identified slope.

use std::path::Path;

use policy::SloEnd;
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{NoObserver, Outcome};

/// GPUColo's pair: ResNet-50 of 105 images, a closed loop, beside a training, RTX 3090, MPS.
fn run(trace: &str, seconds: u32, arrivals: &str, policy: &str) -> Outcome {
    let text = format!(
        r#"
device = "RTX-3090"
sharing = "mps"
seconds = {seconds}
seeds = [1]

[policy]
{policy}

[[jobs]]
name = "hp"
class = "high-priority"
{arrivals}
trace = "{trace}"
marks = true

[[jobs]]
name = "be"
class = "best-effort"
trace = "resnet50-training"
"#
    );
    let scenarios = Scenario::parse(
        Path::new("mean.toml"),
        &text,
        Path::new("."),
        &mut Library::default(),
    );
    scenarios.expect("it is right")[0]
        .with_seed(1)
        .run(&mut NoObserver)
        .expect("it was checked")
}

fn took_ms(outcome: &Outcome) -> Vec<f64> {
    let latencies = outcome.jobs[0].latencies_ns.iter();
    latencies.map(|&ns| ns as f64 / 1e6).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn asked(what: &str) -> String {
    format!("name = \"pillion\"\nis_profiled = 0\n{what}")
}

/// Solo a request takes 65 ms, and 87 beside an unheld training.
#[test]
fn three_means_of_a_closed_loop_are_held_and_spent() {
    let mut best_effort = Vec::new();
    for target_ms in [68.0, 74.0, 82.0] {
        let policy = asked(&format!("slo_mean_ms = {target_ms:.1}"));
        let outcome = run(
            "resnet50-inference@105",
            24,
            "arrivals = \"closed\"",
            &policy,
        );
        let took_ms = took_ms(&outcome);
        // Solo latencies are known after some hundred requests, and ten periods of four then over.
        let late = &took_ms[180..];
        let off = mean(late) / target_ms - 1.0;
        assert!(off.abs() <= 0.01, "{target_ms} ms: {off}");
        for period in late.chunks_exact(12) {
            let off = mean(period) / target_ms - 1.0;
            assert!(off.abs() <= 0.03, "{target_ms} ms: {off}");
        }
        let view = outcome.jobs[0].slo.expect("it marks its requests");
        assert_eq!(
            (view.end, view.misses),
            (SloEnd::Held, 0),
            "{target_ms} ms: {view:?}"
        );
        best_effort.push(outcome.jobs[1].launches);
    }
    assert!(best_effort.is_sorted(), "{best_effort:?}");
    assert!(best_effort[2] > 3 * best_effort[0], "{best_effort:?}");
}

#[test]
fn a_mean_that_cannot_be_reached_ends_at_the_top_or_at_the_floor() {
    let end = |target_ms: f64| {
        let policy = asked(&format!("slo_mean_ms = {target_ms:.1}"));
        let outcome = run(
            "resnet50-inference@105",
            16,
            "arrivals = \"closed\"",
            &policy,
        );
        outcome.jobs[0].slo.expect("it marks its requests").end
    };
    assert_eq!((end(60.0), end(120.0)), (SloEnd::Floor, SloEnd::Top));
}

#[test]
fn the_mean_of_requests_at_random_is_held() {
    let arrivals = "arrivals = \"poisson\"\nrate = 60";
    let outcome = run("resnet50-inference", 80, arrivals, &asked("slo_mean = 1.2"));
    let view = outcome.jobs[0].slo.expect("it marks its requests");
    let target_ms = view.target_ns.expect("it is known") as f64 / 1e6;
    let off = mean(&took_ms(&outcome)[1_200..]) / target_ms - 1.0;
    assert!(off.abs() <= 0.03, "{off}");
    assert_eq!(view.end, SloEnd::Held, "{view:?}");
}

#[test]
fn a_training_that_marks_its_iterations_keeps_its_share_of_the_rate() {
    let policy = asked("slo_throughput = 0.8");
    let outcome = run("resnet50-training", 24, "arrivals = \"closed\"", &policy);
    let took_ms = took_ms(&outcome);
    let alone_ms = mean(&took_ms[..50]);
    let rate = alone_ms / mean(&took_ms[180..]);
    assert!((rate - 0.8).abs() <= 0.01, "{rate}");
}
