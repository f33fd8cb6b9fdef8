//! Caps on the GPU's time hold (`run --compute`, `set --compute`, `max_share`), by the device
//! server's own count.

use std::collections::BTreeMap;

use protocol::hello::JobClass;
use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Ended, Gpu, Process, cargo_folder, library};
use crate::order::Clocked;

const SECOND_NS: u64 = 1_000_000_000;
/// Virtual time; the first two seconds are not judged.
const SECONDS: u64 = 10;

struct Wanting {
    name: &'static str,
    /// Of the GPU's time, per cent.
    cap: u64,
    kernel_us: u64,
    processes: u64,
}

const fn wanting(name: &'static str, cap: u64, kernel_us: u64, processes: u64) -> Wanting {
    Wanting {
        name,
        cap,
        kernel_us,
        processes,
    }
}

fn start(clocked: &Clocked, job: &Wanting, first_rank: u64, hami: bool) -> Vec<Process> {
    let name = job.name;
    let trace = clocked.path(&format!("{name}.csv"));
    let kernel = format!("Conv,1,0,98,{}\n", job.kernel_us * 1000);
    let head = "Name,Profile,Memory_footprint,SM_usage,Duration\n";
    std::fs::write(&trace, head.to_owned() + &kernel.repeat(100)).unwrap();
    let start = |nth: u64| {
        let replay = cargo_folder().join("pillion-replay");
        let mut command = clocked.command(&replay, &(first_rank + nth).to_string());
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
        command
            .env("SOFTGPU_LABEL", name)
            .env("LD_PRELOAD", library())
            .env("PILLION_CLASS", JobClass::BestEffort.name())
            .env("PILLION_JOB", name)
            .env("PILLION_PROFILE", &trace)
            .env("PILLION_SOCKET", clocked.path("pillion.sock"));
        match hami {
            true => command.env("CUDA_DEVICE_SM_LIMIT", job.cap.to_string()),
            false => command.env("PILLION_COMPUTE", format!("{}%", job.cap)),
        };
        Process::start("pillion-replay", command)
    };
    (0..job.processes).map(start).collect()
}

/// Each job's use of the device's time: in total, and the least and most of a second, per cent.
fn used(sharing: &str, jobs: &[Wanting], hami: bool) -> BTreeMap<String, [f64; 3]> {
    let processes: u64 = jobs.iter().map(|job| job.processes).sum();
    let clocked = Clocked::start(sharing, &(processes + 1).to_string());
    let daemon = clocked.daemon(sharing);
    let mut running = Vec::new();
    for job in jobs {
        let rank = running.len() as u64 + 1;
        running.extend(start(&clocked, job, rank, hami));
    }
    for process in running {
        process.finish().expect_success();
    }
    drop(daemon);
    uses_of_record(&clocked.finish_record())
}

/// The sums of each label's processes, from the lines `use` of a record.
fn uses_of_record(record: &str) -> BTreeMap<String, [f64; 3]> {
    let mut labels: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for line in record.lines().filter(|line| line.starts_with("use\t")) {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        let at = labels.entry(fields[1].to_owned()).or_default();
        *at.entry(number(3)).or_default() += number(4);
    }
    let judged = |sums: BTreeMap<u64, u64>| {
        let worked = sums.iter().find(|(_, busy_ns)| **busy_ns > 0);
        let first_ns = *worked.expect("it computed").0;
        let from_ns = first_ns + 2 * SECOND_NS;
        let to_ns = first_ns + (SECONDS - 1) * SECOND_NS;
        let sums: Vec<(u64, u64)> = sums.range(from_ns..to_ns).map(|(a, b)| (*a, *b)).collect();
        let share = |from: &(u64, u64), to: &(u64, u64)| {
            100.0 * (to.1 - from.1) as f64 / (to.0 - from.0) as f64
        };
        // There are six per second.
        let seconds = sums.windows(7).map(|sums| share(&sums[0], &sums[6]));
        let seconds: Vec<f64> = seconds.collect();
        assert!(seconds.len() > 30, "{seconds:?}");
        let all = share(&sums[0], sums.last().unwrap());
        let least = seconds.iter().copied().fold(f64::MAX, f64::min);
        let most = seconds.iter().copied().fold(0.0, f64::max);
        [all, least, most]
    };
    let labels = labels.into_iter();
    labels.map(|(label, sums)| (label, judged(sums))).collect()
}

/// Each job gets its share within a point, in each second within three. Where both want all of a
/// time-sliced GPU, switching costs `switching` points.
fn expect_shares(sharing: &str, jobs: &[Wanting], hami: bool, switching: f64) {
    let used = used(sharing, jobs, hami);
    for job in jobs {
        let [all, least, most] = used[job.name];
        let cap = job.cap as f64;
        let said = format!(
            "{sharing}: {} of {} us, {} processes: {cap} %, got {all:.2}, in a second {least:.2} to {most:.2}",
            job.name, job.kernel_us, job.processes
        );
        assert!(all <= cap + 1.0 && all >= cap - 1.0 - switching, "{said}");
        assert!(
            most <= cap + 3.0 && least >= cap - 3.0 - switching,
            "{said}"
        );
    }
}

#[test]
fn jobs_alone_get_their_share_whatever_the_length_of_their_kernels() {
    for (sharing, kernel_us, cap) in [
        ("mps", 100, 50),
        ("timeslice", 1000, 10),
        ("mps", 5000, 30),
        ("timeslice", 1000, 80),
    ] {
        let is_hamis = sharing == "mps";
        expect_shares(sharing, &[wanting("a", cap, kernel_us, 1)], is_hamis, 0.0);
    }
}

#[test]
fn jobs_of_several_processes_get_their_share_together() {
    expect_shares("mps", &[wanting("a", 10, 5000, 4)], false, 0.0);
    expect_shares("timeslice", &[wanting("a", 30, 1000, 4)], false, 0.0);
}

#[test]
fn jobs_that_share_all_of_the_gpus_time_each_get_what_is_theirs() {
    let jobs = [wanting("a", 30, 1000, 1), wanting("b", 70, 1000, 1)];
    expect_shares("mps", &jobs, false, 0.0);
    let jobs = [wanting("a", 10, 5000, 1), wanting("b", 90, 1000, 1)];
    expect_shares("timeslice", &jobs, false, 3.0);
}

/// The job's `control.usage` once its cap has this value and source.
fn told(daemon: &Daemon, cap: f64, source: &str) -> Value {
    let is_so = |job: &Value| {
        let usage = &job["control"]["usage"];
        usage["cap"] == cap && usage["source"] == source
    };
    daemon.job_when("training", &format!("{cap} ({source})"), is_so)["control"]["usage"].clone()
}

#[test]
fn a_share_is_asked_for_changed_told_and_the_next_daemon_has_the_change() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("training", "steady").best_effort(&daemon);
    let mut training = job.env("PILLION_COMPUTE", "40%").start();
    training.wait_for("round", 1);
    told(&daemon, 0.4, "run");
    let set = |daemon: &Daemon, words: &[&str]| gpu.tell(daemon, &[&["set"], words].concat());
    let said = set(&daemon, &["training", "--compute", "20%"]);
    let said = said.expect_success().output;
    let expected = "at most 20 % of the GPU's time (set)";
    assert!(said.contains(expected), "{said}");
    assert!(
        daemon.explained().contains(expected),
        "{}",
        daemon.explained()
    );
    let is_held = |job: &Value| job["held_by"] == "rate";
    let seen = daemon.job_when("training", "it has used its share", is_held);
    let enforced = seen["enforcing"].as_str().unwrap();
    assert!(
        enforced.contains("it has used its share of the GPU's time, 20%"),
        "{enforced}"
    );

    let refused = |ended: Ended, code: i32, part: &str| {
        assert_eq!(ended.code(), code, "{ended:#?}");
        ended.expect_errors(&[part]);
    };
    refused(
        set(&daemon, &["nobody", "--compute", "20%"]),
        1,
        "no job \"nobody\"",
    );
    refused(
        set(&daemon, &["training", "--compute", "20"]),
        2,
        "from 1% to 100%",
    );
    let run = |words: &[&str]| gpu.tell(&daemon, &[&["run"], words, &["--", "true"]].concat());
    let part = "a cap applies only to best-effort jobs, and this job is high-priority";
    refused(
        run(&["--class", "high-priority", "--compute", "30%"]),
        2,
        part,
    );
    refused(run(&["--compute", "0%"]), 2, "from 1% to 100%");

    daemon.signal(Signal::KILL);
    drop(daemon.finish());
    let daemon = gpu.daemon("");
    told(&daemon, 0.2, "set");
    set(&daemon, &["training", "--compute", "default"]).expect_success();
    told(&daemon, 1.0, "configuration");
    training.wait_for_new("round", 1);
    gpu.expect_right_end("training", training, &daemon);
}

#[test]
fn the_operators_share_is_the_most_that_a_job_may_have_and_is_read_anew() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("[jobs.training]\nmax_share = 0.25");
    let job = gpu.job("training", "steady").best_effort(&daemon);
    let mut training = job.env("PILLION_COMPUTE", "40%").start();
    training.wait_for("round", 1);
    told(&daemon, 0.25, "configuration");
    let set = |pct: &str| gpu.tell(&daemon, &["set", "training", "--compute", pct]);
    let said = set("60%").expect_success().output;
    assert!(
        said.contains("at most 25 % of the GPU's time (configuration)"),
        "{said}"
    );
    set("10%").expect_success();
    told(&daemon, 0.1, "set");
    gpu.config(daemon.socket(), "[jobs.training]\nmax_share = 0.05");
    daemon.signal(Signal::HUP);
    told(&daemon, 0.05, "configuration");
    training.wait_for_new("round", 1);
    gpu.expect_right_end("training", training, &daemon);
}
