//! Best-effort launches at the gate, end to end.

use rustix::process::Signal;

use crate::common::{Daemon, Gpu, Process, Program, builtin_profile, until};

fn hang(gpu: &Gpu, daemon: &Daemon, block_ns: &str, launches: &str) -> Process {
    let hp = gpu.job("hp", "hang").args(&[block_ns, launches]);
    hp.high_priority(daemon).start_until("launched")
}

// census: E5
#[test]
fn a_hung_high_priority_job_costs_a_best_effort_launch_max_hold_and_no_more() {
    const MAX_HOLD_NS: u64 = 20_000_000;
    for sharing in ["mps", "timeslice"] {
        let (gpu, daemon) = Gpu::with_daemon(sharing, "name = \"temporal\"\nmax_hold_ms = 20");
        // The job never synchronises, so only Pillion's own events can show that its work is done.
        let hp = gpu.hang(&daemon);
        let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
        daemon.wait_until_held("be");
        be.wait_for("round", 2);
        gpu.expect_right_end("be", be, &daemon);
        let [forced, held, held_ns] =
            ["launches_forced", "launches_held", "held_ns"].map(|name| daemon.total("be", name));
        assert!(
            forced > 0 && held >= forced,
            "{forced} forced of {held} held"
        );
        assert!(
            held_ns >= forced * MAX_HOLD_NS,
            "{held_ns} ns, {forced} forced"
        );
        assert_eq!(daemon.total("be", "holds_interrupted"), 0);
        hp.finish().expect_success();
    }
}

#[test]
fn a_best_effort_job_is_let_go_when_a_high_priority_job_that_never_synchronises_is_done() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    // A second of work in 100 kernels.
    let hp = hang(&gpu, &daemon, "10000000", "100");
    let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
    be.wait_for("round", 5);
    gpu.expect_right_end("be", be, &daemon);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}

// census: E1
#[test]
fn a_best_effort_job_is_let_go_when_the_high_priority_job_is_killed() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let hp = gpu.hang(&daemon);
    let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
    daemon.wait_until_held("be");
    hp.signal(Signal::KILL);
    be.wait_for("round", 5);
    gpu.expect_right_end("be", be, &daemon);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
}

// census: E15
#[test]
fn a_signal_ends_the_wait_and_its_handler_runs() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let hp = gpu.hang(&daemon);
    let mut be = gpu.job("be", "handler").best_effort(&daemon).start();
    be.wait_for("ready", 1);
    daemon.wait_until_held("be");
    // Repeatedly: a signal between two sleeps of the thread runs its handler unnoticed. Nothing
    // else ends this wait, which may last a minute.
    until("the end of the wait", || {
        let is_running = be.is_running();
        if is_running {
            be.signal(Signal::USR1);
        }
        !is_running
    });
    let ended = be.finish().expect_success();
    assert!(ended.output.contains("handled"), "{}", ended.output);
    gpu.expect_equal_counts("be", &ended, &daemon);
    assert_eq!(ended.asked("launches"), 1);
    assert!(daemon.total("be", "holds_interrupted") >= 1);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}

// census: G2
#[test]
fn a_job_that_waits_at_the_gate_dies_of_sigterm_as_it_would_without_us() {
    use std::os::unix::process::ExitStatusExt;
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", "steady").best_effort(&daemon).start();
    daemon.wait_until_held("be");
    be.signal(Signal::TERM);
    assert_eq!(be.finish().status.signal(), Some(15));
    daemon.wait_for_clients("be", 0);
    hp.finish().expect_success();
}

// census: D20, G6
#[test]
fn killing_one_best_effort_client_leaves_the_others_alone() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let start = |label: &str| {
        let job = gpu.job(label, "steady");
        let job = match label {
            "hp" => job.high_priority(&daemon),
            _ => job.best_effort(&daemon),
        };
        let mut process = job.start();
        process.wait_for("round", 3);
        process
    };
    let (mut hp, mut first, second) = (start("hp"), start("first"), start("second"));
    daemon.wait_for_clients("second", 1);
    second.signal(Signal::KILL);
    daemon.wait_for_clients("second", 0);
    hp.wait_for_new("round", 5);
    first.wait_for_new("round", 5);
    for label in ["hp", "first"] {
        let clients = daemon.job(label)["clients"].clone();
        assert_eq!(clients.as_array().unwrap().len(), 1, "{label}");
    }
    let job = daemon.job("second");
    assert_eq!(job["in_flight_ns"], 0, "{job:#}");
    assert!(job["ended_ns"].is_u64(), "{job:#}");
    // The job's use is kept, for the job and for its user.
    let used_ns = job["gpu_time_ns"].as_u64().unwrap();
    assert!(used_ns > 0 && job["charged_ns"] == used_ns, "{job:#}");
    let users = daemon.status()["users"].clone();
    assert_eq!(users[0]["jobs"], 3, "{users:#}");
    assert!(users[0]["gpu_time_ns"].as_u64().unwrap() > used_ns);
    let table = gpu.tell(&daemon, &["status", "--all"]).expect_success();
    assert!(table.output.contains("GPU TIME"), "{table:#?}");
    for (label, process) in [("hp", hp), ("first", first)] {
        gpu.expect_right_end(label, process, &daemon);
    }
}

/// Errors belong to the call that caused them; a launch that cannot start does not wait.
#[test]
fn a_refused_launch_returns_its_code_while_others_are_held() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let script = "cuInit i0\ncuCtxCreate_v2 oCUcontext i0 i0\ncuModuleLoadData oCUmodule M\n\
                  cuModuleGetFunction oCUfunction hCUmodule:0 ssaxpy\n\
                  cuLaunchKernel hCUfunction:0 i0 i1 i1 i256 i1 i1 i0 n P n\n\
                  cuLaunchKernel hCUfunction:0 i1 i1 i1 i256 i1 i0 i0 n P n\n\
                  cuLaunchKernel n i1 i1 i1 i256 i1 i1 i0 n P n\n\
                  cuLaunchKernelEx n hCUfunction:0 P n\n";
    let path = gpu.path("script");
    std::fs::write(&path, script).unwrap();
    let job = |label| {
        let job = gpu.job(label, Program::Unlinked("script"));
        job.args(&[path.to_str().unwrap()])
    };
    let alone = job("alone").run().expect_success();
    assert!(
        alone.output.contains("cuLaunchKernel -> 400\n"),
        "{alone:#?}"
    );
    let hp = gpu.hang(&daemon);
    let ended = job("be").best_effort(&daemon).run().expect_success();
    assert_eq!(ended.output, alone.output);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}

/// However short its kernels are, each asks for leave.
// census: H7, H8, H10
#[test]
fn tiny_kernels_are_held_like_large_ones() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", "hang 100 5000").best_effort(&daemon);
    let mut be = be.without_profile().start();
    daemon.wait_until_held("be");
    let launched = daemon.job("be")["totals"]["launches"].as_u64();
    assert!(launched <= Some(1), "{launched:?} of 5000 went");
    hp.signal(Signal::KILL);
    be.wait_for("launched", 1);
    let ended = be.finish().expect_success();
    assert_eq!(ended.output, "launched\n");
    let totals = daemon.totals("be");
    assert_eq!(totals["launches"], 5000, "{totals:#} {ended:#?}");
    assert_eq!(gpu.counts("be")["launches"], 5000);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
}

/// Runs `steady` with kernels of this class beside a high-priority job that computes for ever;
/// returns its job's totals after a few rounds.
fn beside_a_computing_job(class: &str, max_hold_ms: u32) -> serde_json::Value {
    let gpu = Gpu::start("mps");
    let policy = format!("name = \"orion\"\nmax_hold_ms = {max_hold_ms}");
    let daemon = gpu.daemon(&policy);
    let profile = std::fs::read_to_string(builtin_profile()).unwrap();
    let path = gpu.path("profile.toml");
    let class = format!("class = \"{class}\"");
    std::fs::write(&path, profile.replace("class = \"memory\"", &class)).unwrap();
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", "steady").best_effort(&daemon);
    let mut be = be.env("PILLION_PROFILE", &path).start();
    be.wait_for("round", 3);
    gpu.expect_right_end("be", be, &daemon);
    hp.finish().expect_success();
    daemon.totals("be")
}

#[test]
fn beside_a_computing_job_go_kernels_of_another_class_and_only_those() {
    for class in ["memory", "unknown"] {
        let totals = beside_a_computing_job(class, 10_000);
        assert!(
            totals["launches_beside_hp"].as_u64() > Some(0),
            "{class}: {totals:#}"
        );
        assert_eq!(totals["launches_forced"], 0, "{class}: {totals:#}");
    }
    let totals = beside_a_computing_job("compute", 20);
    assert_eq!(totals["launches_beside_hp"], 0, "{totals:#}");
    // Every launch went because max_hold ran out.
    assert_eq!(totals["launches_forced"], totals["launches"], "{totals:#}");
}

#[test]
fn without_mps_not_even_another_class_goes_beside_a_busy_high_priority_job() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "name = \"orion\"\nmax_hold_ms = 10");
    let hp = gpu.hang(&daemon);
    let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
    be.wait_for("round", 2);
    be.finish().expect_success();
    let totals = daemon.totals("be");
    assert_eq!(totals["launches_beside_hp"], 0, "{totals:#}");
    assert_eq!(totals["launches_forced"], totals["launches"], "{totals:#}");
    hp.finish().expect_success();
}

#[test]
fn with_the_policy_none_nobody_is_ever_held() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"none\"\nmax_hold_ms = 10000");
    let hp = gpu.hang(&daemon);
    let mut be = gpu.job("be", "steady").best_effort(&daemon).start();
    be.wait_for("round", 10);
    gpu.expect_right_end("be", be, &daemon);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
    hp.finish().expect_success();
}
