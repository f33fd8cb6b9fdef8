//! Profiles from a profiler's file to the daemon's decisions, on the GPU of the file and another.

use std::path::{Path, PathBuf};

use crate::common::{Daemon, Ended, Gpu, Program, builtin_profile, collect, pillion, until};

/// Half a minute: the kernel runs during all of the test.
const LONG_NS: &str = "30000000000";

fn text(path: &Path) -> &str {
    path.to_str().expect("our paths are text")
}

/// Nsight Compute's output for the kernel `hang` with these throughputs.
fn ncu(compute_pct: &str, dram_pct: &str) -> String {
    let header = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\
                  \"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\
                  \"Metric Value\"\n";
    let row = |metric: &str, unit: &str, value: &str| {
        format!(
            "\"0\",\"7\",\"job\",\"h\",\"hang\",\"1\",\"7\",\"(256, 1, 1)\",\"(1, 1, 1)\",\"0\",\"7.0\",\"s\",\
             \"{metric}\",\"{unit}\",\"{value}\"\n"
        )
    };
    [
        header.to_owned(),
        row("Duration", "second", "30.00"),
        row("Compute (SM) Throughput", "%", compute_pct),
        row("DRAM Throughput", "%", dram_pct),
        row("Registers Per Thread", "register/thread", "32"),
    ]
    .concat()
}

fn import(gpu: &Gpu, name: &str, csv: &str) -> PathBuf {
    let (from, to) = (gpu.path(&format!("{name}.csv")), gpu.path(name));
    std::fs::write(&from, csv).unwrap();
    let mut command = gpu.command(pillion());
    command.args(["profile", "import", "--device", "V100-SXM2-16GB", "-o"]);
    command.arg(&to).arg(&from);
    collect(command).expect_success();
    to
}

/// Runs `hang` as the high-priority job with that profile until the status shows what executes.
fn executing(gpu: &Gpu, daemon: &Daemon, profile: &Path) -> serde_json::Value {
    let hang = Program::Linked("hang").path();
    let arguments = [
        "--class",
        "high-priority",
        "--profile",
        text(profile),
        "--",
        text(&hang),
        LONG_NS,
        "1",
    ];
    let mut job = gpu.pillion_run("job", daemon.socket(), &arguments).start();
    job.wait_for("launched", 1);
    let executing = until("a kernel that executes", || {
        let status = daemon.status();
        let classes = status["hp"]["executing"].clone();
        Some(classes).filter(|classes| {
            classes
                .as_array()
                .is_some_and(|classes| !classes.is_empty())
        })
    });
    let jobs = daemon.status()["jobs"].clone();
    let ours = jobs
        .as_array()
        .unwrap()
        .iter()
        .find(|job| job["clients"] != serde_json::json!([]));
    assert_eq!(ours.unwrap()["totals"]["launches_unknown"], 0, "{jobs:#}");
    job.tell_to_end();
    assert_eq!(
        job.finish().errors,
        "",
        "measured on this model, so there is nothing to say"
    );
    // The daemon's next poll of the high-priority side: the next status is not about this job.
    until("the end of the kernel", || {
        daemon.status()["hp"]["executing"] == serde_json::json!([])
    });
    executing
}

#[test]
fn what_a_profiler_measured_is_what_the_status_says_of_the_running_kernel() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (name, compute_pct, dram_pct, class) in [
        ("memory", "21.00", "88.50", "memory"),
        ("compute", "91.00", "12.25", "compute"),
        ("neither", "11.00", "9.75", "unknown"),
    ] {
        let profile = import(&gpu, name, &ncu(compute_pct, dram_pct));
        assert_eq!(
            executing(&gpu, &daemon, &profile),
            serde_json::json!([class]),
            "{name}"
        );
    }
}

/// Runs `steady` under the test programs' profile, measured on a V100; returns the status's remark.
fn run_with_foreign_profile(gpu: &Gpu, daemon: &Daemon) -> (String, Ended) {
    let profile = builtin_profile();
    let steady = Program::Linked("steady").path();
    let arguments = ["--profile", text(&profile), "--", text(&steady)];
    let job = gpu.pillion_run("job", daemon.socket(), &arguments);
    let mut job = job.env("PILLION_LOG", "debug").start_until("round");
    let status = daemon.explained();
    let json = daemon.status();
    let clients = json["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|job| job["clients"].as_array().unwrap());
    for client in clients {
        assert!(
            status.contains(client["profile_fit"].as_str().unwrap()),
            "{status} {client:#}"
        );
    }
    job.tell_to_end();
    (status, job.finish().expect_success())
}

#[test]
fn a_profile_of_another_gpu_is_scaled_and_that_is_said_by_run_and_status() {
    let gpu = Gpu::start_device("A100-SXM4-40GB", "mps");
    let daemon = gpu.daemon("");
    let (status, ended) = run_with_foreign_profile(&gpu, &daemon);
    let fit = "measured on V100-SXM2-16GB and scaled to A100-SXM4-40GB";
    assert!(status.contains(fit), "{status}");
    // By the command, and, at this log level, by the process.
    assert_eq!(ended.errors.matches(fit).count(), 2, "{}", ended.errors);
    // Memory-bound: 1100 ns at 898 GB/s are 636 at 1555.
    let judged = ended
        .errors
        .lines()
        .find(|line| line.contains("kernel saxpy:"));
    assert!(
        judged.is_some_and(|line| line.ends_with("Exact, 2 SMs, 636 ns")),
        "{}",
        ended.errors
    );
}

#[test]
fn of_a_profile_of_the_same_gpu_nothing_is_said() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let (status, ended) = run_with_foreign_profile(&gpu, &daemon);
    assert!(!status.contains("measured on"), "{status}");
    assert!(!ended.errors.contains("measured on"), "{}", ended.errors);
    let judged = ended
        .errors
        .lines()
        .find(|line| line.contains("kernel saxpy:"));
    assert!(
        judged.is_some_and(|line| line.ends_with("Exact, 2 SMs, 1100 ns")),
        "{}",
        ended.errors
    );
}

#[test]
fn a_job_starts_although_the_daemon_that_could_name_the_gpu_is_stopped() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    daemon.signal(rustix::process::Signal::STOP);
    let profile = builtin_profile();
    let arguments = ["--profile", text(&profile), "--", "/bin/echo", "here"];
    let ended = gpu.pillion_run("job", daemon.socket(), &arguments).run();
    assert_eq!(ended.expect_success().output, "here\n");
    daemon.signal(rustix::process::Signal::CONT);
}
