//! Memory that is charged in special ways, once, and given back when the device has it: variables
//! of modules, green contexts, contexts, and the memory of a program that executes another.

use serde_json::Value;

use crate::common::{Daemon, Gpu, Process};

const MIB: u64 = 1 << 20;

fn start(gpu: &Gpu, daemon: &Daemon, mode: &str) -> Process {
    let job = gpu.job("job", "charges").args(&[mode]);
    job.best_effort(daemon).start()
}

fn held(daemon: &Daemon) -> u64 {
    daemon.job("job")["memory"]["held_bytes"]
        .as_u64()
        .expect("a number")
}

fn of_kind(daemon: &Daemon, kind: &str) -> Value {
    daemon.job("job")["memory"]["by_kind"][kind].clone()
}

fn used(gpu: &Gpu) -> u64 {
    gpu.stats()["memory"]["used_bytes"]
        .as_u64()
        .expect("a number")
}

fn next_look(process: &mut Process) {
    process.write("\n");
    process.wait_for("look", 1);
}

#[test]
fn a_modules_variable_is_charged_once_and_goes_with_the_module() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut process = start(&gpu, &daemon, "variable");
    process.wait_for("look", 1);
    assert_eq!(held(&daemon), used(&gpu));
    assert_eq!(
        of_kind(&daemon, "module"),
        3_000_000_u64.next_multiple_of(512)
    );
    next_look(&mut process);
    assert_eq!((held(&daemon), used(&gpu)), (0, 0));
}

#[test]
fn memory_of_a_green_context_is_the_primary_contexts() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut process = start(&gpu, &daemon, "green");
    process.wait_for("look", 1);
    assert_eq!((held(&daemon), used(&gpu)), (64 * MIB, 64 * MIB));
    next_look(&mut process);
    assert_eq!(
        (held(&daemon), used(&gpu)),
        (64 * MIB, 64 * MIB),
        "the green context is gone"
    );
    next_look(&mut process);
    assert_eq!(
        (held(&daemon), used(&gpu)),
        (0, 0),
        "the primary context is gone"
    );
}

// census: D7
#[test]
fn a_context_is_charged_while_there_is_any() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "[memory]\ncontext = \"300MiB\"");
    let mut process = start(&gpu, &daemon, "contexts");
    process.wait_for("look", 1);
    assert_eq!(held(&daemon), 300 * MIB);
    next_look(&mut process);
    assert_eq!(held(&daemon), 0);
    next_look(&mut process);
    assert_eq!(held(&daemon), 300 * MIB);
}

/// A failed capture leaves nothing with the driver, and nothing in the account.
// census: D14
#[test]
fn what_a_capture_asked_for_that_came_to_nothing_is_charged_no_more() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut process = start(&gpu, &daemon, "capture");
    for look in ["voided", "thrown away", "left to its stream"] {
        process.wait_for("look", 1);
        assert_eq!((held(&daemon), used(&gpu)), (0, 0), "{look}");
        process.write("\n");
    }
    process.finish().expect_success();
}

/// The program checks each step; without us its expectations match the driver's, too.
// census: B14, B15
#[test]
fn what_is_free_moves_with_what_a_process_takes_and_memory_of_the_host_is_not_charged() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let run = |is_ours: bool| {
        let job = gpu.job("job", "charges free");
        let job = match is_ours {
            true => job.best_effort(&daemon).env("PILLION_MEMORY", "1GiB"),
            false => job,
        };
        let mut process = job.start_until("look");
        if is_ours {
            assert_eq!((held(&daemon), used(&gpu)), (0, 0));
        }
        process.write("\n");
        process.wait_for("look", 1);
        if is_ours {
            assert_eq!((held(&daemon), used(&gpu)), (1024 * MIB, 1024 * MIB));
        }
        process.finish().expect_success()
    };
    let alone = run(false);
    assert_eq!(run(true).output, alone.output);
    assert!(alone.output.contains("host "), "{alone:#?}");
}

/// The first program's memory is free when the other attaches, and not before the device has it.
#[test]
fn a_program_that_executes_another_leaves_it_the_whole_quota() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let job = gpu.job("job", "charges exec").best_effort(&daemon);
    let mut process = job.env("PILLION_MEMORY", "1GiB").start_until("granted");
    process.wait_for("look", 1);
    process.write("\n");
    assert_eq!(process.next_line(), "granted", "by the other program");
    process.wait_for("look", 1);
    assert_eq!((held(&daemon), used(&gpu)), (700 * MIB, 700 * MIB));
}

#[test]
fn a_jobs_id_that_is_used_again_begins_anew() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for (quota, bytes) in [("1GiB", 1024), ("2GiB", 2048), ("512MiB", 512)] {
        let job = gpu.job("job", "quota fill 0 0 0").best_effort(&daemon);
        let ended = job.env("PILLION_MEMORY", quota).run().expect_success();
        assert_eq!(ended.asked("total") / MIB, bytes, "{quota}: {ended:#?}");
        let memory = &daemon.job_when("job", "nothing held", |job| job["memory"]["processes"] == 0)
            ["memory"];
        assert_eq!(memory["peak_bytes"], bytes * MIB);
        assert_eq!(memory["refused"], 1);
    }
}
