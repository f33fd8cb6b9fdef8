//! How well two lines describe the p99 at unsampled shares (`policy::latency_model`), for built-in
//! workloads on the software V100 under MPS: six samples are fitted, five shares between them are
//! held out. Two families of curves:
//! - *beside*: HP may use all SMs, and the training beside it a share of 1 − Δ, as with `[share]`.
//! - *limited*: the high-priority job has Δ of the SMs to itself, as with
//!   `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` in Mudi; alone, because a limited context shares its SMs
//!   with other limited ones in the model.

use std::path::Path;

use policy::latency_model::{SAMPLE_SHARES, fit};
use sim::library::Library;
use sim::scenario::Scenario;
use sim::{Experiment, NoObserver, Outcome};

const HELD_OUT: [f64; 5] = [0.15, 0.25, 0.4, 0.6, 0.8];

/// One after the other, so that a latency is that of a batch.
const CLOSED: &str = "arrivals = \"closed\"";

fn experiment(hp: &str, arrivals: &str, be: &str, percent: u32, seconds: u32) -> Experiment {
    let text = format!(
        r#"
device = "V100-SXM2-16GB"
sharing = "mps"
seconds = {seconds}
warmup_requests = 5
seeds = [1]
share = {{ percent = {percent} }}

[policy]
name = "none"

[[jobs]]
name = "hp"
class = "high-priority"
{arrivals}
trace = "{hp}"

[[jobs]]
name = "be"
class = "best-effort"
trace = "{be}"
"#
    );
    let scenarios = Scenario::parse(
        Path::new("curve.toml"),
        &text,
        Path::new("."),
        &mut Library::default(),
    );
    scenarios.expect("it is right")[0].with_seed(1)
}

fn p99_ms(outcome: &Outcome) -> f64 {
    outcome.jobs[0].quantile_ns(990).expect("requests") as f64 / 1e6
}

fn beside(hp: &str, arrivals: &str, be: &str, share: f64, seconds: u32) -> f64 {
    let percent = (100.0 - 100.0 * share).round() as u32;
    let experiment = experiment(hp, arrivals, be, percent, seconds);
    p99_ms(&experiment.run(&mut NoObserver).expect("it was checked"))
}

fn limited(hp: &str, share: f64) -> f64 {
    let mut experiment = experiment(hp, CLOSED, "resnet50-training", 50, 5);
    experiment.device.sms = (f64::from(experiment.device.sms) * share).round() as u32;
    let outcome = experiment.run_solo(0, &mut NoObserver);
    p99_ms(&outcome.expect("it was checked"))
}

fn held_out_error(name: &str, curve: impl Fn(f64) -> f64) -> f64 {
    let samples = SAMPLE_SHARES.map(|share| (share, curve(share)));
    let model = fit(&samples).expect("six samples");
    let errors = HELD_OUT.map(|share| {
        let p99 = curve(share);
        (model.at(share) - p99).abs() / p99
    });
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!(
        "{name}: {:.2} %, from {:.2} to {:.2} ms, knee at {:.2}",
        100.0 * mean,
        samples[0].1,
        samples[samples.len() - 1].1,
        model.knee_share
    );
    mean
}

fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len() as f64
}

#[test]
fn beside_a_training_six_samples_tell_the_rest_within_four_and_a_half_per_cent() {
    let mut errors = Vec::new();
    for hp in ["resnet50-inference@4", "densenet201-inference@16"] {
        for be in ["resnet50-training@32", "vgg16-training@16"] {
            let curve = |share| beside(hp, CLOSED, be, share, 3);
            errors.push(held_out_error(&format!("{hp} beside {be}"), curve));
        }
    }
    let mean = mean(&errors);
    println!("mean {:.2} %", 100.0 * mean);
    assert!(mean <= 0.025, "{errors:?}");
}

/// 500 random requests, which alone keep the device busy a third of the time. The p99 is of
/// requests that wait for others, so it rises faster than that of a batch, and with so few requests
/// five of them decide it. It misses 4.5 %.
#[test]
fn of_requests_at_random_two_lines_are_off_by_more() {
    let mut errors = Vec::new();
    for be in ["resnet50-training@32", "vgg16-training@16"] {
        let arrivals = "arrivals = \"poisson\"\nrate = 50";
        let curve = |share| beside("resnet50-inference@4", arrivals, be, share, 10);
        errors.push(held_out_error(&format!("at random beside {be}"), curve));
    }
    let mean = mean(&errors);
    println!("mean {:.2} %", 100.0 * mean);
    assert!(mean <= 0.075, "{errors:?}");
}

/// Latencies are nearly proportional to 1/Δ there, over a factor of seven, unlike any two lines:
/// fitted to all 17 shares from 0.1 to 0.9, these are off by 7 %. It misses 4.5 %.
#[test]
fn where_the_job_itself_is_limited_two_lines_are_off_by_more() {
    let mut errors = Vec::new();
    for hp in [
        "resnet50-inference@4",
        "resnet50-inference@32",
        "resnet101-inference@16",
        "vgg16-inference@8",
        "densenet201-inference@16",
        "inceptionv3-inference@16",
        "mobilenetv2-inference@32",
        "bert-base-inference@8",
        "gpt-1.3b-decode@8",
    ] {
        errors.push(held_out_error(hp, |share| limited(hp, share)));
    }
    let mean = mean(&errors);
    println!("mean {:.2} %", 100.0 * mean);
    assert!(mean <= 0.09, "{errors:?}");
}

/// Mudi's Table 2 has 6.4, 4.3 and 3.9 % with six, seven and eight samples. Here more are useless.
#[test]
fn six_seven_and_eight_samples_tell_the_rest_within_two_and_a_half_per_cent() {
    let held_out = [0.15, 0.25, 0.35, 0.45, 0.55, 0.8];
    let further = [0.4, 0.6];
    let mut errors = [0.0; 3];
    let pairs = [
        ("resnet50-inference@4", "vgg16-training@16"),
        ("densenet201-inference@16", "resnet50-training@32"),
    ];
    for (hp, be) in pairs {
        let at = |share: &f64| (*share, beside(hp, CLOSED, be, *share, 3));
        let all: Vec<(f64, f64)> = SAMPLE_SHARES.iter().chain(&further).map(at).collect();
        let true_ms: Vec<(f64, f64)> = held_out.iter().map(at).collect();
        for (count, error) in (6..).zip(&mut errors) {
            let model = fit(&all[..count]).expect("six samples at least");
            let off = true_ms
                .iter()
                .map(|(share, p99)| (model.at(*share) - p99).abs() / p99);
            *error += off.sum::<f64>() / (held_out.len() * pairs.len()) as f64;
        }
    }
    println!("{errors:?}");
    assert!(errors.iter().all(|error| *error <= 0.025), "{errors:?}");
}
