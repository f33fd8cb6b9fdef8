//! Latencies of a high-priority job's requests: the daemon's and the job's, in virtual time.

use std::path::Path;
use std::process::Command;

use protocol::hello::{JobClass, ask_status};
use serde_json::Value;

use crate::common::{Process, cargo_folder, library, until};
use crate::order::Clocked;

fn replay(clocked: &Clocked, class: JobClass, kernel: &str, arrivals: &[&str]) -> Command {
    let name = class.name();
    let trace = clocked.path(&format!("{name}.csv"));
    let head = "Name,Profile,Memory_footprint,SM_usage,Duration\n";
    std::fs::write(&trace, head.to_owned() + &kernel.repeat(20)).unwrap();
    let rank = match class {
        JobClass::HighPriority => "1",
        JobClass::BestEffort => "2",
    };
    let mut command = clocked.command(&cargo_folder().join("pillion-replay"), rank);
    command.arg("--trace").arg(&trace).args(["--seconds", "60"]);
    command.args(["--check-every", "0"]).args(arrivals);
    command
        .env("LD_PRELOAD", library())
        .env("PILLION_CLASS", name)
        .env("PILLION_JOB", name)
        .env("PILLION_PROFILE", &trace)
        .env("PILLION_SOCKET", clocked.path("pillion.sock"));
    command
}

fn told(socket: &Path) -> Value {
    let ended = || {
        let status: Value = serde_json::from_str(&ask_status(socket).ok()?).ok()?;
        let mut jobs = status["jobs"].as_array()?.iter();
        let is_it = |job: &&Value| job["class"] == "high-priority" && job["ended_ns"].is_u64();
        let job = jobs.find(is_it)?;
        Some(job["requests"].clone())
    };
    until("the end of the high-priority job", ended)
}

/// Requests at random times beside a best-effort job: the replay's report, and the daemon's.
fn run(arguments: &[&str]) -> (Value, Value) {
    let clocked = Clocked::start("mps", "3");
    let daemon = clocked.daemon_with("mps", "name = \"pillion\"\nslo_p99 = \"1.5x\"");
    let arrivals = [&["--arrivals", "poisson", "--rate", "15"], arguments].concat();
    // 6 ms; alone half of the SMs are free.
    let hp = replay(
        &clocked,
        JobClass::HighPriority,
        "Conv,1,0,40,300000\n",
        &arrivals,
    );
    let be = replay(&clocked, JobClass::BestEffort, "Norm,0,0,60,800000\n", &[]);
    let hp = Process::start("pillion-replay", hp);
    let be = Process::start("pillion-replay", be);
    let hp = hp.finish().expect_success();
    be.finish().expect_success();
    let told = told(&clocked.path("pillion.sock"));
    drop(daemon);
    (serde_json::from_str(&hp.output).unwrap(), told)
}

#[test]
fn requests_of_a_minute_are_counted_exactly_and_their_p99_is_what_the_job_measured() {
    let (measured, told) = run(&["--marks"]);
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap();
    let latencies = measured["latencies_ms"].as_array().unwrap().iter();
    let took_ns = latencies.map(|ms| (ms.as_f64().unwrap() * 1e6).round() as u64);
    let took_ns: Vec<u64> = took_ns.collect();
    let said = format!(
        "daemon {told}, replay p50 {} p99 {}",
        measured["p50_ms"], measured["p99_ms"]
    );
    assert!(took_ns.len() > 700, "{said}");
    assert_eq!(told["count"], took_ns.len(), "{said}");
    assert_eq!(told["sum_ns"], took_ns.iter().sum::<u64>(), "{said}");
    for bucket in told["buckets"].as_array().unwrap() {
        let le_ns = bucket["le_ns"].as_u64().unwrap();
        let below = took_ns.iter().filter(|ns| **ns <= le_ns).count();
        assert_eq!(bucket["count"], below, "{le_ns} ns: {said}");
    }
    for (quantile, name) in [("p50_ns", "p50_ms"), ("p99_ns", "p99_ms")] {
        let [told, measured] = [
            number(&told["recent"], quantile) / 1e6,
            number(&measured, name),
        ];
        assert!((told / measured - 1.0).abs() < 0.05, "{name}: {said}");
    }
    // The last minute is all of it.
    assert_eq!(told["recent"]["count"], told["count"], "{said}");
    assert_eq!(told["kinds"][0]["count"], told["count"], "{said}");
    let late = number(&told, "over_target") / number(&told, "judged");
    assert!(told["target_ns"].is_u64() && late < 0.1, "{said}");
}

#[test]
fn requests_that_are_not_marked_are_inferred_and_their_median_is_what_the_job_measured() {
    let (measured, told) = run(&[]);
    let said = format!("daemon {told}, replay {}", measured["p50_ms"]);
    let median_ms = told["recent"]["p50_ns"].as_f64().unwrap() / 1e6;
    let measured_ms = measured["p50_ms"].as_f64().unwrap();
    assert!((median_ms / measured_ms - 1.0).abs() < 0.1, "{said}");
    assert_eq!(told["target_ns"], Value::Null, "{said}");
    assert_eq!(told["kinds"], Value::Array(Vec::new()), "{said}");
}
