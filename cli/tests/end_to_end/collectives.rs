//! Best-effort jobs with collective kernels, which wait for their peers on other GPUs.

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Daemon, Gpu, Process};
use crate::events::{event_when, events};

/// NCCL's and NVSHMEM's names, as the driver reports them.
const NAMES: [&str; 3] = [
    "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
    "ncclKernel_AllReduce_RING_LL_Sum_float",
    "barrier_on_stream_kernel",
];
/// A kernel that outlasts every test, ns.
const FOR_EVER_NS: &str = "3600000000000";
/// No launch that waits times out during a test.
const PATIENT: &str = "max_hold_ms = 10000";

/// A high-priority job whose only kernel never ends, or, idle, one that has ended.
fn high_priority(gpu: &Gpu, daemon: &Daemon, is_busy: bool) -> Process {
    let mut hp = match is_busy {
        true => gpu.job("hp", "hang").args(&[FOR_EVER_NS, "1"]),
        false => gpu.job("hp", "idle"),
    }
    .high_priority(daemon)
    .start();
    if is_busy {
        hp.wait_for("launched", 1);
    }
    daemon.wait_for_clients("hp", 1);
    hp
}

fn ring(gpu: &Gpu, daemon: &Daemon, name: &str, steps: &str) -> Process {
    let job = gpu.job("ring", "collective");
    job.args(&[name, steps]).best_effort(daemon).start()
}

/// Ends the job; Pillion's counts match what it asked for.
fn finish(gpu: &Gpu, daemon: &Daemon, ring: Process) -> Value {
    let ended = gpu.expect_right_end("ring", ring, daemon);
    let totals = daemon.totals("ring");
    for counted in ["launches_collective", "graph_launches", "launches_captured"] {
        assert_eq!(totals[counted], ended.asked(counted), "{totals:#}");
    }
    totals
}

#[test]
fn collective_kernels_never_wait_for_a_lease() {
    for name in NAMES {
        for collectives in ["refuse", "gate"] {
            let gpu = Gpu::start("mps");
            let policy = format!("name = \"temporal\"\ncollectives = \"{collectives}\"\n{PATIENT}");
            let daemon = gpu.daemon(&policy);
            let hp = high_priority(&gpu, &daemon, true);
            let mut ring = ring(&gpu, &daemon, name, "ccc");
            ring.wait_for("round", 3);
            hp.finish().expect_success();
            let totals = finish(&gpu, &daemon, ring);
            let passed = totals["collectives_passed"].as_u64().unwrap();
            assert!(passed >= 9, "{totals:#}");
            assert_eq!(totals["launches_held"], 0, "{totals:#}");
        }
    }
}

#[test]
fn a_job_that_launches_them_is_held_while_a_high_priority_job_is_attached_and_goes_on_after_it() {
    for sharing in ["mps", "timeslice"] {
        let (gpu, daemon) = Gpu::with_daemon(sharing, PATIENT);
        let mut ring = ring(&gpu, &daemon, NAMES[0], "cp");
        ring.wait_for("round", 1);
        let hp = high_priority(&gpu, &daemon, false);
        daemon.job_when("ring", "a hold for its collectives", |job| {
            job["waiting"] == true && job["held_by"] == "collectives"
        });
        let event = event_when(&gpu, &daemon, "collectives", |_| true);
        assert_eq!(
            (&event["severity"], &event["job"]),
            (&"warning".into(), &"ring".into())
        );
        let shown = daemon.explained();
        assert!(shown.contains("it launches collective kernels"), "{shown}");
        // Other jobs are unaffected: the high-priority one is idle.
        let mut other = gpu.job("other", "steady").best_effort(&daemon).start();
        other.wait_for("round", 2);
        other.finish().expect_success();
        hp.finish().expect_success();
        ring.wait_for_new("round", 2);
        let totals = finish(&gpu, &daemon, ring);
        assert_eq!(totals["launches_forced"], 0, "{totals:#}");
        let all = events(&gpu, &daemon, &[]);
        let told = all.iter().filter(|event| event["kind"] == "collectives");
        assert_eq!(told.count(), 1, "reported once");
    }
}

#[test]
fn configured_to_gate_it_is_gated_as_any_other() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&format!("collectives = \"gate\"\n{PATIENT}"));
    let mut ring = ring(&gpu, &daemon, NAMES[0], "cp");
    ring.wait_for("round", 1);
    let hp = high_priority(&gpu, &daemon, false);
    ring.wait_for_new("round", 3);
    hp.finish().expect_success();
    finish(&gpu, &daemon, ring);
    let all = events(&gpu, &daemon, &[]);
    assert!(all.iter().all(|event| event["kind"] != "collectives"));
}

#[test]
fn a_graph_with_collective_kernels_counts_them_and_waits_as_a_whole() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "max_hold_ms = 20");
    let mut ring = ring(&gpu, &daemon, NAMES[0], "g");
    ring.wait_for("round", 1);
    let hp = high_priority(&gpu, &daemon, false);
    daemon.job_when("ring", "a hold for its collectives", |job| {
        job["held_by"] == "collectives"
    });
    ring.wait_for_new("round", 3);
    hp.finish().expect_success();
    let totals = finish(&gpu, &daemon, ring);
    assert_eq!(totals["collectives_passed"], 0, "{totals:#}");
    assert!(totals["launches_forced"].as_u64() >= Some(3), "{totals:#}");
}

#[test]
fn the_next_daemon_refuses_it_too() {
    let (gpu, daemon) = Gpu::with_daemon("mps", PATIENT);
    let mut ring = ring(&gpu, &daemon, NAMES[0], "cp");
    ring.wait_for("round", 1);
    daemon.signal(Signal::KILL);
    drop(daemon);
    let daemon = gpu.daemon(PATIENT);
    let hp = high_priority(&gpu, &daemon, false);
    daemon.job_when("ring", "a hold for its collectives", |job| {
        job["held_by"] == "collectives"
    });
    hp.finish().expect_success();
    ring.wait_for_new("round", 2);
    ring.finish().expect_success();
}

#[test]
fn a_job_that_is_held_for_a_fault_launches_none_until_it_may_go_on() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "max_hold_ms = 20");
    let mut ring = ring(&gpu, &daemon, NAMES[0], "c");
    ring.wait_for("round", 1);
    let order = |words: &[&str]| gpu.tell(&daemon, words).expect_success();
    order(&["drain"]);
    daemon.wait_until_held("ring");
    order(&["resume"]);
    ring.wait_for_new("round", 2);
    finish(&gpu, &daemon, ring);
}
