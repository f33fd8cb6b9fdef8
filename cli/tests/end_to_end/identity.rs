//! The kernel of a launch, whatever its handle was before; and launches in obsolete ways.

use std::path::PathBuf;

use protocol::hello::JobClass;

use crate::common::{Daemon, Ended, Gpu, Program};

/// Lists the kernel "known" in the shape in which `identity` launches it.
const PROFILE: &str = r#"format = "pillion-profile"
version = 1
gpu = "V100-SXM2-16GB"
sources = []

[[kernel]]
name = "known"
grid = [4, 1, 1]
block = [256, 1, 1]
shared_bytes = 0
count = 1
duration_ns = { sum = 1000, median = 1000, p95 = 1000 }
registers = 32
sm_needed = 1
class = "compute"
class_rule = "given"
"#;

fn profile(gpu: &Gpu) -> PathBuf {
    let path = gpu.path("known.profile.toml");
    std::fs::write(&path, PROFILE).unwrap();
    path
}

/// Runs `identity` in both classes with reused handles: only launches of "other" are unknown.
fn expect_known(what: &str, count: &str) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, Program::Unlinked("identity"));
        let job = job.args(&[what, count]).under(daemon.socket(), class);
        let job = job.env("PILLION_PROFILE", profile(&gpu));
        let ended = job.env("SOFTGPU_REUSE_HANDLES", "1").run().expect_success();
        gpu.expect_equal_counts(label, &ended, &daemon);
        assert!(
            ended.asked("handles") <= 8,
            "handles were not given out again: {}",
            ended.output
        );
        expect_unknown(&daemon, label, &ended);
    }
}

fn expect_unknown(daemon: &Daemon, label: &str, ended: &Ended) {
    let totals = daemon.totals(label);
    assert_eq!(
        totals["launches_unknown"],
        ended.asked("others"),
        "{totals:#}"
    );
    assert_eq!(totals["panics_caught"], 0, "{totals:#}");
}

#[test]
fn ten_thousand_modules_one_after_the_other_are_never_taken_for_each_other() {
    expect_known("modules", "10000");
}

#[test]
fn kernels_of_libraries_are_never_taken_for_those_of_unloaded_ones() {
    expect_known("libraries", "1000");
}

#[test]
fn functions_of_destroyed_contexts_are_never_taken_for_those_of_new_ones() {
    expect_known("contexts", "200");
}

#[test]
fn more_names_than_there_is_room_for_cost_nothing_but_knowledge() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, Program::Unlinked("identity"));
        let job = job.args(&["names", "70000"]).under(daemon.socket(), class);
        let ended = job.env("PILLION_PROFILE", profile(&gpu)).run();
        let ended = ended.expect_success();
        gpu.expect_equal_counts(label, &ended, &daemon);
        expect_unknown(&daemon, label, &ended);
    }
}

/// 80 blocks of 256 threads: with 32 registers eight fit on an SM of a V100, with 128 registers and
/// 40000 bytes two.
#[test]
fn kernels_of_one_name_need_the_sms_that_the_driver_says_of_each() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, Program::Unlinked("identity"));
        let job = job.args(&["twins", "20"]).under(daemon.socket(), class);
        let ended = job.env("PILLION_LOG", "debug").run().expect_success();
        gpu.expect_equal_counts(label, &ended, &daemon);
        let judged: Vec<&str> = ended
            .errors
            .lines()
            .filter(|line| line.contains("kernel twin:"))
            .collect();
        assert_eq!(judged.len(), 2, "once for each: {judged:#?}");
        assert!(
            judged[0].contains("shared 0+0 registers 32: Unknown, 10 SMs"),
            "{judged:#?}"
        );
        assert!(
            judged[1].contains("shared 40000+0 registers 128: Unknown, 40 SMs"),
            "{judged:#?}"
        );
    }
}

// census: H3
#[test]
fn a_launch_on_several_devices_is_judged_and_counted() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    let alone = gpu.job("alone", Program::Unlinked("several")).run();
    let alone = alone.expect_success();
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, Program::Unlinked("several"));
        let job = job.under(daemon.socket(), class);
        let ended = job.env("PILLION_LOG", "debug").run();
        assert_eq!(ended.output, alone.output, "{ended:#?}");
        assert_eq!(ended.code(), 0);
        gpu.expect_equal_counts(label, &ended, &daemon);
        ended.expect_errors(&["kernel fill: grid [7, 1, 1] block [32, 1, 1] shared 0+0 "]);
    }
}

// census: H3
#[test]
fn a_launch_on_several_devices_waits_at_the_gate() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"temporal\"\nmax_hold_ms = 10000");
    // An hour of one kernel.
    let hp = gpu.hang(&daemon);
    let be = gpu.job("be", Program::Unlinked("several")).args(&["held"]);
    let mut be = be.best_effort(&daemon).start_until("ready");
    daemon.wait_until_held("be");
    hp.signal(rustix::process::Signal::KILL);
    be.wait_for("launched", 1);
    gpu.expect_right_end("be", be, &daemon);
    assert!(daemon.total("be", "launches_held") >= 1);
    assert_eq!(daemon.total("be", "launches_forced"), 0);
}
