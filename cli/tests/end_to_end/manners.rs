//! A guest in another process takes no signals, does not change the process, wait, work at load or
//! after the end, or depend on a place.

use protocol::hello::JobClass;

use crate::common::{Daemon, Gpu, Job, Program, library};

const CLASSES: [JobClass; 2] = [JobClass::HighPriority, JobClass::BestEffort];

fn expect_same(program: &'static str, arguments: &[&str]) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = gpu.job("alone", Program::Linked(program));
    let alone = alone.args(arguments).run();
    for class in CLASSES {
        let job = gpu.job(class.name(), Program::Linked(program));
        let ended = job.args(arguments).under(daemon.socket(), class).run();
        assert_eq!(ended.output, alone.output, "{class:?} {ended:#?}");
        assert_eq!(ended.status, alone.status, "{class:?} {ended:#?}");
        assert_eq!(ended.errors, alone.errors, "{class:?}");
        let totals = daemon.totals(class.name());
        assert!(totals["launches"].as_u64() > Some(0), "{totals:#}");
    }
}

// census: G1, G2, G4
#[test]
fn signal_handlers_file_mode_mask_and_folder_are_the_applications() {
    expect_same("manners", &[]);
}

// census: G5, L5
#[test]
fn calls_from_destructors_and_after_main_are_answered_as_by_the_driver() {
    expect_same("late", &[]);
}

/// A process with its driver in null mode, so that every system call and lock would be ours.
fn quiet(gpu: &Gpu, daemon: &Daemon, class: JobClass, how: &str) -> Job {
    let job = gpu.job(class.name(), "quiet");
    job.args(&[how, "20000"])
        .under(daemon.socket(), class)
        .env("SOFTGPU_NULL", gpu.null())
}

fn expect_quiet(class: JobClass, how: &str) {
    let (gpu, daemon) = Gpu::with_null_daemon();
    let ended = quiet(&gpu, &daemon, class, how).run().expect_success();
    let said = "0 allocations, 0 locks, 0 look-ups\n";
    assert!(ended.output.starts_with(said), "{ended:#?}");
    assert_eq!(ended.asked("launches"), 20_100);
    assert_eq!(daemon.total(class.name(), "launches"), 20_100);
}

// census: K2, K3
#[test]
fn a_high_priority_launch_makes_no_system_call_and_reads_no_clock() {
    expect_quiet(JobClass::HighPriority, "strict");
}

// census: K2
#[test]
fn a_best_effort_launch_inside_its_lease_allocates_locks_and_looks_up_nothing() {
    expect_quiet(JobClass::BestEffort, "counted");
}

#[test]
fn the_watch_on_launches_would_see_what_it_is_for() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    // Best-effort launches read the clock, for which the strict watch kills.
    let ended = quiet(&gpu, &daemon, JobClass::BestEffort, "strict").run();
    assert!(!ended.status.success(), "{ended:#?}");
}

// census: A10
#[test]
fn the_library_works_wherever_it_lies_and_whatever_it_is_called() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let moved = gpu.path("other-name.so.7");
    std::fs::copy(library(), &moved).unwrap();
    for (program, door) in [
        (Program::Linked("work"), "linked"),
        (Program::Unlinked("work"), "proc"),
    ] {
        let job = gpu.job(door, program).args(&[door, "10", "0"]);
        let job = job.best_effort(&daemon).env("LD_PRELOAD", &moved);
        let ended = job.run().expect_success();
        gpu.expect_equal_counts(door, &ended, &daemon);
    }
}

// census: C5
#[test]
fn a_process_without_a_device_is_told_so_by_the_driver() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let script = gpu.path("script");
    let calls =
        "cuInit i0\ncuDeviceGetCount b\ncuCtxCreate_v2 oCUcontext i0 i0\ncuMemAlloc_v2 b i4\n";
    std::fs::write(&script, calls).unwrap();
    let job = |label| {
        let job = gpu.job(label, Program::Unlinked("script"));
        job.args(&[script.to_str().unwrap()])
            .env("SOFTGPU_SOCKET", "/nowhere")
            .env("CUDA_VISIBLE_DEVICES", "")
    };
    let alone = job("alone").run().expect_success();
    assert!(alone.output.starts_with("cuInit -> 100"), "{alone:#?}");
    for class in CLASSES {
        let ended = job(class.name()).under(daemon.socket(), class).run();
        assert_eq!(ended.expect_success().output, alone.output);
    }
}

// census: E17
#[test]
fn a_job_goes_on_when_the_daemons_socket_is_removed() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let hp = gpu.job("hp", "steady");
    let be = gpu.job("be", "steady");
    let mut hp = hp.high_priority(&daemon).start();
    let mut be = be.best_effort(&daemon).start();
    hp.wait_for("round", 3);
    be.wait_for("round", 3);
    let elsewhere = gpu.path("elsewhere.sock");
    std::fs::rename(daemon.socket(), &elsewhere).unwrap();
    std::fs::write(daemon.socket(), "not a socket").unwrap();
    hp.wait_for_new("round", 5);
    be.wait_for_new("round", 5);
    std::fs::rename(&elsewhere, daemon.socket()).unwrap();
    for (label, process) in [("hp", hp), ("be", be)] {
        let ended = process.finish().expect_success();
        assert_eq!(ended.errors, "", "{label}");
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}
