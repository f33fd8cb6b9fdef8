//! A released device: pilliond does not have NVML open until somebody resumes it.

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Process, until};
use crate::events::event_when;

fn has_nvml(daemon: &Daemon) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
    // The software GPU's is a file that cargo names.
    maps.contains("libnvidia-ml.so") || maps.contains("libnvidia_ml.so")
}

/// Whether the daemon has NVML closed, by its report and its threads. The library may stay mapped:
/// the dynamic linker unloads none with pending thread-local destructors, as the stand-in may have.
fn is_closed(daemon: &Daemon) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let names = tasks.flatten().map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.unwrap_or_default().trim_end().to_owned()
    });
    // A thread's name is cut to 15 characters; the thread that drives this one has a shorter name.
    let asks = ["pillion-memory-", "pillion-nvml", "pillion-gauges"];
    let has_thread = names.into_iter().any(|name| asks.contains(&&*name));
    !has_thread && released(daemon)["open"] == 0
}

fn daemon(gpu: &Gpu) -> Daemon {
    let daemon = gpu.daemon("");
    wait_for_reports(&daemon, 1);
    assert!(has_nvml(&daemon));
    daemon
}

fn wait_for_reports(daemon: &Daemon, times: usize) {
    until("NVML's reports", || {
        daemon.log().matches("NVML reports").count() == times
    });
}

fn released(daemon: &Daemon) -> Value {
    daemon.status()["gpu"]["released"].clone()
}

fn start(gpu: &Gpu, daemon: &Daemon, label: &str) -> Process {
    let mut process = gpu.job(label, "faulty").best_effort(daemon).start();
    process.wait_for("ready", 1);
    process
}

const WELL: &str = "launch 0 wait 0";

#[test]
fn a_released_device_is_closed_by_the_daemon_until_it_is_resumed_and_best_effort_work_waits() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu);
    let mut before = start(&gpu, &daemon, "before");
    before.write("\n");
    assert_eq!(before.next_line(), WELL);
    assert!(released(&daemon).is_null());
    let said = gpu.tell(&daemon, &["drain", "--release"]).expect_success();
    for part in [
        "drained: no new high-priority job should be started here",
        "(`pillion drain`)",
        "released: NVML closed, since 20",
        "of job before has the device open: end it with `pillion stop before`",
        &format!("pid {} ", before.pid()),
    ] {
        assert!(said.output.contains(part), "no {part} in {}", said.output);
    }
    until("NVML closed", || is_closed(&daemon));
    event_when(&gpu, &daemon, "device-released", |_| true);
    let status = daemon.explained();
    assert!(status.contains("released: NVML closed"), "{status}");

    // New or active processes do not change that.
    before.write("\n");
    daemon.wait_until_held("before");
    let mut after = start(&gpu, &daemon, "after");
    after.write("\n");
    daemon.wait_until_held("after");
    let words = ["--class", "high-priority", "--require-daemon", "--", "true"];
    assert_eq!(
        gpu.pillion_run("hp", daemon.socket(), &words).run().code(),
        69
    );
    // Longer than the interval of any thread that queries NVML while there are clients.
    let begun_ns = daemon.status()["daemon"]["now_ns"].as_u64().unwrap();
    until("three seconds", || {
        let now_ns = daemon.status()["daemon"]["now_ns"].as_u64().unwrap();
        now_ns - begun_ns > 3_000_000_000
    });
    assert!(is_closed(&daemon));
    let since = released(&daemon)["since_ns"].clone();
    for words in [["drain", "--release"].as_slice(), &["drain"]] {
        gpu.tell(&daemon, words).expect_success();
        assert_eq!(released(&daemon)["since_ns"], since);
    }
    assert_eq!(daemon.job("before")["waiting"], true);

    gpu.tell(&daemon, &["resume"]).expect_success();
    assert!(released(&daemon).is_null());
    assert_eq!(before.next_line(), WELL);
    assert_eq!(after.next_line(), WELL);
    wait_for_reports(&daemon, 2);
    assert!(has_nvml(&daemon));
    event_when(&gpu, &daemon, "device-opened", |_| true);
    gpu.inject("xid 31 before");
    event_when(&gpu, &daemon, "xid", |event| event["code"] == 31);
    let again = gpu.tell(&daemon, &["resume"]);
    assert_eq!(again.code(), 1);
    again.expect_errors(&["nothing is held"]);
    after.finish().expect_success();
}

#[test]
fn a_drained_gpu_that_is_not_released_keeps_its_device() {
    let gpu = Gpu::start("timeslice");
    let daemon = daemon(&gpu);
    let uuid = daemon.status()["gpu"]["uuid"].as_str().unwrap().to_owned();
    for name in ["0", &uuid[..10], "GPU-nobody"] {
        let told = gpu.tell(&daemon, &["drain", "--gpu", name]);
        assert_eq!(
            told.code(),
            if name == "GPU-nobody" { 2 } else { 0 },
            "{told:?}"
        );
    }
    let mut process = start(&gpu, &daemon, "be");
    process.write("\n");
    daemon.wait_until_held("be");
    assert!(has_nvml(&daemon) && released(&daemon).is_null());
    let other = gpu.tell(&daemon, &["resume", "--gpu", "GPU-nobody"]);
    assert_eq!(other.code(), 2, "{other:?}");
    assert!(daemon.status()["draining"].is_string());
    gpu.tell(&daemon, &["resume", "--gpu", &uuid[..10]])
        .expect_success();
    assert_eq!(process.next_line(), WELL);
    process.finish().expect_success();
}

#[test]
fn the_next_daemon_leaves_a_released_device_closed_and_one_that_is_lost_stays_so() {
    let gpu = Gpu::start("timeslice");
    let before = daemon(&gpu);
    gpu.inject("xid 79");
    event_when(&gpu, &before, "draining", |_| true);
    let said = gpu.tell(&before, &["drain", "--release"]).expect_success();
    assert!(
        said.output.contains("Xid 79"),
        "the fault is the reason: {said:?}"
    );
    before.signal(Signal::TERM);
    before.finish().expect_success();
    let after = gpu.daemon("");
    assert_eq!(released(&after)["open"], 0);
    let told = event_when(&gpu, &after, "draining", |_| true);
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("NVML stays closed"), "{told}");
    assert!(!has_nvml(&after));
    let lost = gpu.tell(&after, &["resume"]);
    assert_eq!(lost.code(), 1, "{lost:?}");
    lost.expect_errors(&[
        "stays released",
        "NVML_ERROR_GPU_IS_LOST",
        "run `pillion resume` again",
    ]);
    assert!(!has_nvml(&after));
    assert_eq!(released(&after)["open"], 0);
}
