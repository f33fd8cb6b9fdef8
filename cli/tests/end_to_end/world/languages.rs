//! Programs of languages with a runtime of their own: Go, Java, Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Gpu, Program, builtin_profile, collect, library, tools};

use super::{expect_untouched, preload, run, text};

/// Where the sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");

/// Runs a command that uses CUDA alone and as a job; both must say and do the same.
fn expect_same(make: impl Fn(&Gpu) -> Command, launches: u64) -> String {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
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

fn go_program(folder: &Path) -> Option<PathBuf> {
    let go = tools::program("go")?;
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
    Some(out)
}

// census: G2
#[test]
fn a_go_program_runs_unchanged_with_and_without_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = go_program(folder.path()) else {
        return;
    };
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

// census: G1, G2, I14
#[test]
fn a_java_program_runs_unchanged_with_and_without_cuda() {
    let (Some(java), Some(javac)) = (tools::program("java"), tools::program("javac")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut compile = Command::new(javac);
    compile
        .arg("-d")
        .arg(folder.path())
        .arg(format!("{SOURCES}/Native.java"));
    collect(compile).expect_success();
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&java);
        command
            .args(["-Xshare:auto", "-XX:-UsePerfData", "-cp"])
            .arg(folder.path())
            .arg("Native");
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

// census: F8
#[test]
fn python_children_of_every_kind_run_unchanged() {
    let Some(python) = tools::python(&["ctypes", "multiprocessing"]) else {
        return;
    };
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
