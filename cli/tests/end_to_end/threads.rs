//! Many threads, and threads that end while others, or they themselves, wait at the gate.

use crate::common::{Daemon, Gpu, Process};

fn hung(policy: &str) -> (Gpu, Daemon, Process) {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon(&format!("name = \"temporal\"\n{policy}"));
    let hp = gpu.hang(&daemon);
    (gpu, daemon, hp)
}

/// `threads`, best-effort.
fn started_threads(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Process {
    let job = gpu.job("be", "threads").args(arguments).best_effort(daemon);
    job.start_until("started")
}

fn held_threads(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Process {
    let process = started_threads(gpu, daemon, arguments);
    daemon.wait_until_held("be");
    process
}

/// `threads` once it was at the gate, perhaps for a moment.
fn once_held_threads(gpu: &Gpu, daemon: &Daemon, arguments: &[&str]) -> Process {
    let process = started_threads(gpu, daemon, arguments);
    daemon.job_when("be", "a held launch", |job| {
        job["totals"]["launches_held"].as_u64() > Some(0)
    });
    process
}

#[test]
fn more_threads_than_rings_launch_at_once_and_nothing_is_lost() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for label in ["hp", "be"] {
        let job = gpu.job(label, "threads join 100 30");
        let job = match label {
            "hp" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        };
        let ended = job.run().expect_success();
        assert_eq!(ended.asked("launches"), 3000);
        assert_eq!(ended.errors, "");
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}

// census: E14
#[test]
fn many_threads_at_the_gate_are_all_freed_by_max_hold() {
    let (gpu, daemon, hp) = hung("max_hold_ms = 5");
    let process = once_held_threads(&gpu, &daemon, &["join", "100", "3"]);
    gpu.expect_right_end("be", process, &daemon);
    assert!(daemon.total("be", "launches_forced") > 0);
    hp.finish().expect_success();
}

#[test]
fn a_process_exits_while_its_threads_wait_at_the_gate() {
    for (how, code) in [("exit", 5), ("return", 6)] {
        let (gpu, daemon, hp) = hung("max_hold_ms = 10000");
        let process = held_threads(&gpu, &daemon, &[how, "8", "1000"]);
        assert_eq!(process.finish().code(), code);
        daemon.wait_for_clients("be", 0);
        assert_eq!(daemon.job("hp")["clients"].as_array().unwrap().len(), 1);
        hp.finish().expect_success();
    }
}

#[test]
fn a_process_whose_main_thread_has_left_is_ended_by_its_last_thread() {
    let (gpu, daemon, hp) = hung("max_hold_ms = 2");
    let process = once_held_threads(&gpu, &daemon, &["leave", "8", "25"]);
    assert_eq!(process.finish().code(), 8);
    assert_eq!(daemon.total("be", "launches"), 200);
    assert_eq!(gpu.counts("be")["launches"], 200);
    hp.finish().expect_success();
}

#[test]
fn threads_that_are_cancelled_while_they_wait_end_at_their_own_cancellation_point() {
    let (gpu, daemon, hp) = hung("max_hold_ms = 200");
    let process = held_threads(&gpu, &daemon, &["cancel", "8", "100000"]);
    let ended = process.finish().expect_success();
    assert!(ended.output.contains("cancelled 8 of 8\n"), "{ended:#?}");
    gpu.expect_equal_counts("be", &ended, &daemon);
    hp.finish().expect_success();
}
