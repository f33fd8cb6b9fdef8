//! Programs of languages with a runtime of their own: Go, Java, Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::hello::JobClass;
use rustix::process::Signal;

use crate::common::{Ended, Gpu, Job, Program, builtin_profile, collect, library, tools};

use super::{expect_untouched, preload, run, text};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

fn expect_same(make: impl Fn(&Gpu) -> Command, launches: u64) -> String {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut alone = make(&gpu);
    alone.env("SOFTGPU_LABEL", "alone");
    let alone = run(alone, "");
    let mut ours = make(&gpu);
    preload(&mut ours, &library(), &daemon, "job");
    ours.env("SOFTGPU_LABEL", "job")
        .env("PILLION_PROFILE", builtin_profile());
    let ours = run(ours, "");
    assert_eq!(ours.code(), 9, "{ours:#?} {alone:#?}");
    assert_eq!((&ours.output, ours.status), (&alone.output, alone.status));
    assert_eq!(ours.errors, alone.errors);
    assert_eq!(daemon.total("job", "launches"), launches);
    assert_eq!(gpu.counts("job")["launches"], launches);
    assert_eq!(
        daemon.total("job", "allocations"),
        gpu.counts("job")["allocations"].as_u64().unwrap()
    );
    ours.output
}

/// A job that SIGINT ends. A test in a shell's background has inherited SIGINT as ignored, and Go
/// and Java keep that. env(1) of GNU coreutils 8.31 restores the default, and becomes the program.
/// (Not under timeout(1), which handles SIGINT: its children have the default.)
fn interruptible(gpu: &Gpu, label: &str, program: &Path) -> Job {
    let job = gpu.job_of(label, Path::new("/usr/bin/env"));
    job.arg("--default-signal=INT").arg(program)
}

fn ask_to_end(job: Job, signal: Signal) -> Ended {
    let process = job.start_until("ready");
    process.signal(signal);
    process.finish_untold()
}

/// Runs a program that prints "ready" with work in flight and is asked to end, alone and in both
/// classes: same output and effects, and all its work is done.
fn expect_same_end(make: impl Fn(&Gpu, &str) -> Job, code: impl Fn(Signal) -> Option<i32>) {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    for signal in [Signal::TERM, Signal::INT] {
        let alone = ask_to_end(make(&gpu, &format!("alone {signal:?}")), signal);
        assert_eq!(alone.status.code(), code(signal), "{alone:#?}");
        for class in [JobClass::HighPriority, JobClass::BestEffort] {
            let label = format!("{} {signal:?}", class.name());
            let job = make(&gpu, &label).under(daemon.socket(), class);
            // Hides unknown kernels; and it drains for as long as a busy machine takes.
            let job = job
                .env("PILLION_LOG", "error")
                .env("PILLION_DRAIN_MS", "60000");
            let ours = ask_to_end(job, signal);
            assert_eq!(ours.status, alone.status, "{label}: {ours:#?}");
            assert_eq!((&ours.output, &ours.errors), (&alone.output, &alone.errors));
            daemon.wait_for_clients(&label, 0);
            let counts = gpu.counts(&label);
            assert!(counts["launches"].as_u64() > Some(1), "{counts:#}");
            assert_eq!(counts["launches_completed"], counts["launches"], "{label}");
        }
    }
}

fn go_program(folder: &Path) -> PathBuf {
    let go = tools::program("go");
    let out = folder.join("native");
    let mut build = Command::new(go);
    build
        .args(["build", "-o"])
        .arg(&out)
        .arg("native.go")
        .current_dir(SOURCES);
    build
        .env("GO111MODULE", "off")
        .env("GOCACHE", folder.join("cache"));
    build
        .env("CGO_ENABLED", "1")
        .env("CGO_CFLAGS", format!("-I{SOURCES}"));
    let status = build.status().expect("go was found");
    assert!(status.success(), "{build:?}");
    out
}

// census: G2
#[test]
fn a_go_program_runs_unchanged_with_and_without_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let program = go_program(folder.path());
    let plain = expect_untouched(|gpu| gpu.command(&program), "");
    assert_eq!(
        (plain.code(), &*plain.output),
        (9, "sum 140\nsignal user defined signal 1\nchild\n")
    );
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&program);
        command.arg("cuda");
        command
    };
    assert!(expect_same(make, 12).contains("launches 12\n"));
}

// census: G2
#[test]
fn a_go_program_that_is_asked_to_end_does_so_as_without_us() {
    let folder = tempfile::tempdir().unwrap();
    let program = go_program(folder.path());
    let program = &program;
    let make = |how: &'static str| {
        move |gpu: &Gpu, label: &str| interruptible(gpu, label, program).arg(how)
    };
    // Go handles every signal, and dies of it if the program has not asked for it.
    expect_same_end(make("default"), |_| None);
    expect_same_end(make("notified"), |_| Some(7));
}

/// Java's options before its class path: write nothing that others see.
const JAVA: [&str; 3] = ["-Xshare:auto", "-XX:-UsePerfData", "-cp"];

fn java_program(folder: &Path) -> PathBuf {
    let (java, javac) = (tools::program("java"), tools::program("javac"));
    let mut compile = Command::new(javac);
    compile
        .arg("-d")
        .arg(folder)
        .arg(format!("{SOURCES}/Native.java"));
    collect(compile).expect_success();
    java
}

// census: G1, G2, I14
#[test]
fn a_java_program_runs_unchanged_with_and_without_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let java = java_program(folder.path());
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&java);
        command.args(JAVA).arg(folder.path()).arg("Native");
        command
    };
    let plain = expect_untouched(make, "");
    assert_eq!(
        (plain.code(), &*plain.output),
        (9, "sum 140\nchild\nhook\n")
    );
    let native = Program::Library("native").path();
    let with_cuda = |gpu: &Gpu| {
        let mut command = make(gpu);
        command.arg(text(&native));
        command
    };
    assert!(expect_same(with_cuda, 12).contains("launches 12\n"));
}

// census: G2
#[test]
fn a_java_program_that_is_asked_to_end_calls_its_hook_as_without_us() {
    let folder = tempfile::tempdir().unwrap();
    let java = java_program(folder.path());
    let native = Program::Library("native").path();
    let make = |gpu: &Gpu, label: &str| {
        let job = interruptible(gpu, label, &java)
            .args(&JAVA)
            .arg(folder.path());
        job.arg("Native").arg(&native).arg("asked")
    };
    // Java exits by itself, with the code by which shells name the signal.
    expect_same_end(make, |signal| Some(128 + signal.as_raw()));
}

// census: F8
#[test]
fn python_children_of_every_kind_run_unchanged() {
    let python = tools::python(&["ctypes", "multiprocessing"]);
    let script = fs::canonicalize(format!("{SOURCES}/children.py")).unwrap();
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&python);
        command.arg(&script).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let output = expect_same(make, 0);
    for part in [
        "plain\n",
        "fork [([0, 0, 0, 0, 0, 0], True)",
        "spawn [([0,",
        "forkserver [([0,",
        "here ([0, 0, 0, 0, 0, 0], True)",
    ] {
        assert!(output.contains(part), "no {part:?} in {output}");
    }
}
