//! Best-effort work makes way if the GPU is used beyond `[throttle]`, by the device server's count.

use std::collections::BTreeMap;
use std::process::Command;

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Gpu, Process, cargo_folder, library};
use crate::order::Clocked;

const SECOND_NS: u64 = 1_000_000_000;
/// Virtual time; the first four seconds, in which the rate comes down, are not judged.
const SECONDS: u64 = 12;
const JUDGED_FROM: u64 = 4;

/// A replay of that class, of so many kernels of a millisecond, which fill the device: in a closed
/// loop, or so many times a second.
pub(super) fn replay(
    clocked: &Clocked,
    class: JobClass,
    rank: &str,
    kernels: usize,
    rate: &str,
) -> Command {
    let row = "Conv,1,0,98,1000000\n";
    replay_of(clocked, class, rank, &row.repeat(kernels), rate)
}

pub(super) fn replay_of(
    clocked: &Clocked,
    class: JobClass,
    rank: &str,
    rows: &str,
    rate: &str,
) -> Command {
    let name = class.name();
    let trace = clocked.path(&format!("{name}.csv"));
    let head = "Name,Profile,Memory_footprint,SM_usage,Duration\n";
    std::fs::write(&trace, head.to_owned() + rows).unwrap();
    let replay = cargo_folder().join("pillion-replay");
    let mut command = clocked.command(&replay, rank);
    command.arg("--trace").arg(&trace).args([
        "--seconds",
        &SECONDS.to_string(),
        "--input-bytes",
        "0",
        "--output-bytes",
        "0",
        "--check-every",
        "0",
    ]);
    if !rate.is_empty() {
        command.args(["--arrivals", "uniform", "--rate", rate]);
    }
    command
        .env("SOFTGPU_LABEL", name)
        .env("LD_PRELOAD", library())
        .env("PILLION_CLASS", name)
        .env("PILLION_JOB", name)
        .env("PILLION_PROFILE", &trace)
        .env("PILLION_SOCKET", clocked.path("pillion.sock"));
    command
}

/// Each class's use of the device's time, by the lines `use` of a record.
pub(super) fn used(record: &str) -> BTreeMap<String, f64> {
    let mut labels: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for line in record.lines().filter(|line| line.starts_with("use\t")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let at = labels.entry(fields[1].to_owned()).or_default();
        *at.entry(number(3)).or_default() += number(4);
    }
    let share = |sums: BTreeMap<u64, u64>| {
        let worked = sums.iter().find(|(_, busy_ns)| **busy_ns > 0);
        let first_ns = *worked.expect("it computed").0;
        let judged = first_ns + JUDGED_FROM * SECOND_NS..first_ns + (SECONDS - 1) * SECOND_NS;
        let mut judged = sums.range(judged);
        let (from, to) = (judged.next().unwrap(), judged.next_back().unwrap());
        (to.1 - from.1) as f64 / (to.0 - from.0) as f64
    };
    let labels = labels.into_iter();
    labels.map(|(label, sums)| (label, share(sums))).collect()
}

/// A high-priority job with a fifth of the time, and one that wants all of it.
pub(super) fn pair(policy: &str, sharing: &str) -> BTreeMap<String, f64> {
    let clocked = Clocked::start(sharing, "3");
    let daemon = clocked.daemon_with(sharing, policy);
    let start = |class, rank, kernels, rate| {
        let replay = replay(&clocked, class, rank, kernels, rate);
        Process::start("pillion-replay", replay)
    };
    let hp = start(JobClass::HighPriority, "1", 20, "10");
    let be = start(JobClass::BestEffort, "2", 100, "");
    hp.finish().expect_success();
    be.finish().expect_success();
    drop(daemon);
    used(&clocked.finish_record())
}

#[test]
fn the_device_is_used_as_much_as_was_set_beside_a_high_priority_job() {
    // The cost of polls on the virtual clock is most of this test's time.
    let policy = "name = \"pillion\"\npoll_us = 1000\n[throttle]\nutilisation = 0.5";
    // While kernels of both compute at once, the combined use is less than the sum.
    let used = pair(policy, "timeslice");
    let (hp, be) = (used["high-priority"], used["best-effort"]);
    assert!((hp - 0.2).abs() < 0.02, "{used:?}");
    assert!((hp + be - 0.5).abs() < 0.04, "{used:?}");
}

#[test]
fn a_throttle_is_told_and_goes_with_its_section() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("name = \"none\"\n[throttle]\nutilisation = 0.3\nclock_mhz = 1380");
    let throttle = |is_so: fn(&Value) -> bool, what: &str| {
        daemon.status_when(what, |status| is_so(&status["policy"]["throttle"]))
    };
    throttle(
        |throttle| throttle["rate"] == 1.0 && throttle["usage"].is_null(),
        "none is there",
    );
    let hp = gpu.job("serve", "steady 20").high_priority(&daemon);
    let hp = hp.start_until("round");
    // This job always has kernels of 2 ms.
    let be = gpu.job("training", "load 16").best_effort(&daemon);
    let mut be = be.start_until("round");
    let told = throttle(
        |throttle| throttle["rate"].as_f64() < Some(0.9) && throttle["usage"].is_number(),
        "best-effort work makes way",
    );
    let said = &told["policy"]["throttle"];
    assert_eq!(said["utilisation"], 0.3);
    assert_eq!(said["clock_alone_mhz"], 1380);
    // The software V100 has one clock, its highest, at which a full device is normal.
    assert_eq!(said["clock_mhz"], 1530);
    assert_eq!(said["blind"], false);
    assert!(
        daemon.explained().contains("throttle at 30 % use"),
        "{}",
        daemon.explained()
    );
    daemon.job_when("training", "it is throttled", |job| {
        job["held_by"] == "rate"
    });
    gpu.config(daemon.socket(), "name = \"none\"");
    daemon.signal(Signal::HUP);
    throttle(Value::is_null, "the section is gone");
    be.wait_for_new("round", 5);
    gpu.expect_right_end("serve", hp, &daemon);
    be.finish().expect_success();
}
