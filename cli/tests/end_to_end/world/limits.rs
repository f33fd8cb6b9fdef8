//! Restricted processes: closed standard descriptors, few descriptors, little memory, denied calls.

use std::fs;
use std::process::Command;

use crate::common::{Daemon, Gpu, Program, builtin_profile, library};

use super::{preload, run, text};

/// Runs `fds`, which closes these descriptors before it touches CUDA, and returns its report. The
/// driver is in its null mode, in which it opens nothing itself.
fn report(gpu: &Gpu, label: &str, closed: &[&str], daemon: Option<&Daemon>) -> String {
    let report = gpu.path("report");
    let _ = fs::remove_file(&report);
    let mut arguments = vec![text(&report)];
    arguments.extend(closed);
    let job = gpu.job(label, "fds").args(&arguments);
    let job = match daemon {
        Some(daemon) => job.best_effort(daemon),
        None => job,
    };
    let ended = job.env("SOFTGPU_NULL", gpu.null()).run();
    assert_eq!(ended.code(), 0, "{closed:?} {ended:#?}");
    fs::read_to_string(&report).unwrap()
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    for closed in [vec!["0"], vec!["1"], vec!["2"], vec!["0", "1", "2"]] {
        let alone = report(&gpu, "alone", &closed, None);
        let label = closed.join("-");
        let ours = report(&gpu, &label, &closed, Some(&daemon));
        assert_eq!(ours, alone, "{closed:?}");
        assert_eq!(ours.matches("closed\n").count(), closed.len(), "{ours}");
        assert_eq!(daemon.total(&label, "launches"), 10);
    }
}

fn limited(gpu: &Gpu, limit: &str, program: Program, arguments: &str) -> Command {
    let script = format!(
        "ulimit {limit} && exec {} {arguments}",
        text(&program.path())
    );
    let mut command = gpu.command("/bin/sh");
    command.args(["-c", &script]);
    command
}

/// Runs a command alone and as a job: same output and end. Returns our lines, the only new errors.
fn expect_same_but_for_our_lines(
    daemon: &Daemon,
    label: &str,
    make: impl Fn() -> Command,
) -> Vec<String> {
    let start = |mut command: Command| {
        command.env("SOFTGPU_LABEL", label);
        run(command, "")
    };
    let alone = start(make());
    let mut command = make();
    preload(&mut command, &library(), daemon, label);
    command.env("PILLION_PROFILE", builtin_profile());
    let ours = start(command);
    assert_eq!(ours.status, alone.status, "{label}: {ours:#?} {alone:#?}");
    assert_eq!(ours.output, alone.output, "{label}");
    let is_ours = |line: &&str| line.starts_with("pillion: ");
    let others: Vec<&str> = ours.errors.lines().filter(|line| !is_ours(line)).collect();
    let expected: Vec<&str> = alone.errors.lines().collect();
    assert_eq!(others, expected, "{label}");
    ours.errors
        .lines()
        .filter(is_ours)
        .map(str::to_owned)
        .collect()
}

// census: G3, J2
#[test]
fn a_process_that_may_open_few_descriptors_runs_and_is_unmanaged_at_worst() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut unmanaged = 0;
    // From less than the driver needs to enough for both.
    for count in 4..=20 {
        let label = format!("descriptors-{count}");
        let make = || {
            limited(
                &gpu,
                &format!("-n {count}"),
                Program::Linked("work"),
                "linked 5 7",
            )
        };
        let lines = expect_same_but_for_our_lines(&daemon, &label, make);
        if let Some(line) = lines.first() {
            assert!(
                line.starts_with("pillion: this process runs unmanaged: "),
                "{lines:?}"
            );
            assert_eq!(lines.len(), 1, "{lines:?}");
            unmanaged += 1;
        }
    }
    assert!(unmanaged > 0, "the limits were too high to show anything");
    assert_eq!(daemon.total("descriptors-20", "launches"), 13);
}

#[test]
fn a_process_with_little_room_for_memory_runs_and_is_unmanaged_at_worst() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    // The stand-in driver maps all the memory of its device, and its null mode none. The library
    // takes 9.7 MiB, its tables 7.1 of them: below 14 MiB the dynamic linker ends the program.
    for kib in [
        14_592,
        16 << 10,
        20 << 10,
        28 << 10,
        40 << 10,
        64 << 10,
        256 << 10,
    ] {
        let label = format!("room-{kib}");
        let report = gpu.path("report");
        let make = || {
            let limit = format!("-v {kib}");
            let mut command = limited(&gpu, &limit, Program::Linked("fds"), text(&report));
            command.env("SOFTGPU_NULL", gpu.null());
            command
        };
        let lines = expect_same_but_for_our_lines(&daemon, &label, make);
        assert!(lines.len() <= 1, "{lines:?}");
    }
    assert_eq!(daemon.total("room-262144", "launches"), 10);
}

/// Runs `work` under a filter for system calls; returns our lines.
fn confined(gpu: &Gpu, daemon: &Daemon, filter: &str) -> Vec<String> {
    let work = Program::Linked("work").path();
    let make = || {
        let mut command = gpu.command(Program::Unlinked("confine").path());
        command.args([filter, text(&work), "linked", "20", "7"]);
        command
    };
    expect_same_but_for_our_lines(daemon, filter, make)
}

#[test]
fn a_process_under_a_containers_filter_is_managed_as_ever() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    // A job to protect, so that leases are gated.
    let mut hp = gpu.job("hp", "idle").high_priority(&daemon).start();
    hp.wait_for("ready", 1);
    for filter in ["container", "strict"] {
        let lines = confined(&gpu, &daemon, filter);
        assert!(lines.is_empty(), "{filter}: {lines:?}");
        assert_eq!(daemon.total(filter, "launches"), 43);
    }
    hp.finish().expect_success();
}

// census: H13, H14
#[test]
fn a_process_that_may_not_connect_or_start_threads_runs_unmanaged() {
    let (gpu, daemon) = Gpu::with_null_daemon();
    for (filter, why) in [
        ("no-sockets", "no daemon"),
        ("no-threads", "cannot start the helper thread"),
    ] {
        let report = gpu.path("report");
        let make = || {
            let mut command = gpu.command(Program::Unlinked("confine").path());
            command.args([filter, text(&Program::Linked("fds").path()), text(&report)]);
            command.env("SOFTGPU_NULL", gpu.null());
            command
        };
        let lines = expect_same_but_for_our_lines(&daemon, filter, make);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let expected = format!("pillion: this process runs unmanaged: {why}");
        assert!(lines[0].starts_with(&expected), "{lines:?}");
    }
}
