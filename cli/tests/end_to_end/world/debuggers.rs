//! Under a debugger and an instrumenting emulator a job behaves the same, without errors of ours.

use crate::common::{Ended, Gpu, Process, Program, builtin_profile, library, tools};

use super::{preload, text};

fn alone_and_as_job(tool: &str, arguments: &[&str]) -> (Ended, Ended) {
    let tool = tools::program(tool);
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let work = Program::Linked("work").path();
    let make = |label: &str| {
        let mut command = gpu.command(&tool);
        command
            .args(arguments)
            .arg(text(&work))
            .args(["linked", "3", "7"]);
        command
            .env("SOFTGPU_LABEL", label)
            .env("HOME", gpu.path(""));
        command
    };
    // Both are silent throughout, which on a busy machine is minutes.
    let alone = Process::start("alone", make("alone")).finish_whenever();
    let mut command = make("job");
    preload(&mut command, &library(), &daemon, "job");
    command.env("PILLION_PROFILE", builtin_profile());
    let ours = Process::start("job", command).finish_whenever();
    gpu.expect_equal_counts("job", &ours, &daemon);
    (alone, ours)
}

// census: J6
#[test]
fn gdb_stops_at_a_launch_and_sees_the_programs_end() {
    let arguments = [
        "-q",
        "-nx",
        "-batch",
        "-ex",
        "set startup-with-shell off",
        "-ex",
        "set breakpoint pending on",
        "-ex",
        "break cuLaunchKernel",
        "-ex",
        "run",
        "-ex",
        "backtrace",
        "-ex",
        "info sharedlibrary",
        "-ex",
        "delete",
        "-ex",
        "continue",
        "--args",
    ];
    let (alone, ours) = alone_and_as_job("gdb", &arguments);
    for ended in [&alone, &ours] {
        // With us the breakpoint has two places, numbered in the order of addresses.
        let is_hit = ["Breakpoint 1, ", "hit Breakpoint 1."]
            .iter()
            .any(|hit| ended.output.contains(hit));
        assert!(is_hit, "{ended:#?}");
        // If code of another file is inlined at the entry, gdb shows our function as a frame above
        // it, without an address: only the name is the same.
        for part in ["cuLaunchKernel (", "main ("] {
            let is_frame = |line: &str| line.starts_with('#') && line.contains(part);
            assert!(
                ended.output.lines().any(is_frame),
                "no frame of {part:?}: {ended:#?}"
            );
        }
        // gdb may ask a process of several threads for registers while it exits, and give up; then
        // the program's output shows that it reached its end.
        let gave_up = ended.errors.contains("No such process");
        assert!(
            gave_up || ended.output.contains("exited with code 07"),
            "{ended:#?}"
        );
    }
    assert!(ours.output.contains("libpillion.so"), "{ours:#?}");
    let said = |ended: &Ended| {
        let lines = ended.output.lines();
        lines
            .filter(|line| line.starts_with("reduce") || line.starts_with("gemm"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(said(&ours), said(&alone));
    assert_eq!(said(&ours).len(), 2, "{ours:#?}");
}

#[test]
fn valgrind_finds_no_fault_in_ours() {
    let arguments = ["--quiet", "--error-exitcode=99", "--leak-check=no"];
    let (alone, ours) = alone_and_as_job("valgrind", &arguments);
    assert_eq!(ours.status, alone.status, "{ours:#?}");
    assert_eq!(ours.output, alone.output);
    assert_eq!(ours.errors, alone.errors, "{ours:#?}");
    assert_eq!(ours.code(), 7, "{ours:#?}");
}
