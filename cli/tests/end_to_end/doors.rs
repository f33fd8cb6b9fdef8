//! A program runs as without Pillion, by whichever way it finds the driver, and counts agree.

use protocol::hello::JobClass;

use crate::common::{Gpu, Program};

const STATUS: &str = "7";

fn expect_unchanged(program: Program, door: &str) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "name = \"orion\"");
    let arguments = [door, "40", STATUS];
    let alone = gpu.job("alone", program).args(&arguments).run();
    assert_eq!(alone.code(), 7, "{alone:#?}");
    assert_eq!(alone.errors, "");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let job = gpu.job(label, program).args(&arguments);
        let ended = job.under(daemon.socket(), class).run();
        assert_eq!(ended.output, alone.output, "{label}: {ended:#?}");
        assert_eq!(ended.code(), 7, "{label}: {ended:#?}");
        assert_eq!(ended.errors, "", "{label}");
        gpu.expect_equal_counts(label, &ended, &daemon);
        let job = daemon.job(label);
        assert_eq!(job["class"], label, "{job:#}");
        let totals = daemon.totals(label);
        assert_eq!(totals["panics_caught"], 0, "{totals:#}");
        assert_eq!(totals["frees"], 3, "{totals:#}");
        assert_eq!(totals["launches_unknown"], 0, "{totals:#}");
        let device = gpu.counts(label);
        for counted in ["allocations", "allocated_bytes", "frees"] {
            assert_eq!(totals[counted], device[counted], "{counted} of {label}");
        }
    }
}

#[test]
fn a_linked_program_runs_unchanged() {
    expect_unchanged(Program::Linked("work"), "linked");
}

#[test]
fn a_program_that_asks_dlsym_runs_unchanged() {
    expect_unchanged(Program::Unlinked("work"), "dlsym");
}

// census: A21, A29
#[test]
fn a_program_that_asks_cu_get_proc_address_through_itself_runs_unchanged() {
    expect_unchanged(Program::Unlinked("work"), "proc");
}

// census: A22
#[test]
fn per_thread_launches_found_by_dlsym_run_unchanged() {
    expect_unchanged(Program::Unlinked("work"), "dlsym-ptsz");
}

// census: A22
#[test]
fn per_thread_launches_found_by_cu_get_proc_address_run_unchanged() {
    expect_unchanged(Program::Unlinked("work"), "proc-ptsz");
}

/// The driver is in the scope of that library alone, which is opened with `RTLD_LOCAL`.
#[test]
fn a_library_that_brings_the_driver_along_for_itself_finds_it_by_default_as_without_us() {
    const ROUNDS: u64 = 20;
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let plugin = Program::WithDriver("plugin").path();
    let plugin = plugin.to_str().expect("paths of these tests are text");
    let rounds = ROUNDS.to_string();
    let host = |label: &str| {
        let job = gpu.job(label, Program::Unlinked("host"));
        job.args(&["plain", plugin, "own", &rounds, "0"])
    };
    let alone = host("alone").run();
    assert_eq!((alone.code(), &*alone.errors), (6, ""), "{alone:#?}");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        let label = class.name();
        let ended = host(label).under(daemon.socket(), class).run();
        assert_eq!((ended.code(), &*ended.errors), (6, ""), "{ended:#?}");
        assert_eq!(ended.output, alone.output, "{label}");
        assert_eq!(gpu.counts(label)["launches"], ROUNDS);
        assert_eq!(daemon.totals(label)["launches"], ROUNDS, "{label}");
    }
}

#[test]
fn the_time_sliced_mode_runs_both_classes_at_once_and_counts_the_same() {
    let (gpu, daemon) = Gpu::with_daemon("timeslice", "");
    let hp = gpu.job("hp", "steady");
    let be = gpu.job("be", "steady");
    let mut hp = hp.high_priority(&daemon).start();
    let mut be = be.best_effort(&daemon).start();
    for _ in 0..20 {
        hp.wait_for("round", 1);
        be.wait_for("round", 1);
    }
    for (label, process) in [("hp", hp), ("be", be)] {
        gpu.expect_right_end(label, process, &daemon);
    }
}

// census: A28
#[test]
fn a_program_that_never_touches_cuda_never_meets_the_daemon() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut command = gpu.command("/bin/echo");
    command
        .arg("untouched")
        .env("LD_PRELOAD", crate::common::library())
        .env("PILLION_JOB", "echo")
        .env("PILLION_SOCKET", daemon.socket());
    let ended = crate::common::collect(command).expect_success();
    assert_eq!((&*ended.output, &*ended.errors), ("untouched\n", ""));
    assert!(daemon.job("echo").is_null());
}
