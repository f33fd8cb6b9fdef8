//! The examples run as their index says, and do what they say.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::tools;
use crate::common::{cargo_folder, clean_command, collect, workspace};

pub(crate) fn example(name: &str) -> PathBuf {
    workspace().join("examples").join(name)
}

/// A command under `with-softgpu`, with the programs of this test's build.
pub(crate) fn with_softgpu() -> Command {
    let mut command = clean_command(example("with-softgpu"));
    command.env("PILLION_BIN", cargo_folder());
    // Wide enough for all columns of the status at its end.
    command.env("COLUMNS", "400");
    command
}

/// The C service that marks its requests, built in that folder.
pub(crate) fn marking_service(folder: &Path) -> PathBuf {
    let service = folder.join("service");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-I"]);
    cc.arg(workspace().join("include")).arg("-o").arg(&service);
    cc.arg(example("7-marks/service.c")).arg("-ldl");
    assert!(cc.status().unwrap().success());
    service
}

fn expect_results(mut command: Command, class: &str) {
    command.env("PILLION_LOG", "error");
    let ended = collect(command).expect_success();
    assert_eq!(ended.output, "65536 results are right\n");
    assert_eq!(launches_shown(&ended.errors, class), 1, "{ended:#?}");
}

/// The launches of that class's job in the status that `with-softgpu` shows at its end.
pub(crate) fn launches_shown(errors: &str, class: &str) -> u64 {
    let is_heading = |line: &&str| line.starts_with("JOB ") && line.contains(" CLASS ");
    let mut lines = errors.lines().skip_while(|line| !is_heading(line));
    let heading = lines.next().unwrap_or_else(|| panic!("no table: {errors}"));
    // Numbers end where their heading does.
    let end = heading.find("LAUNCHES").expect("its column") + "LAUNCHES".len();
    let row = lines.find(|line| line.split_whitespace().nth(1) == Some(class));
    let row = row.unwrap_or_else(|| panic!("no {class}: {errors}"));
    let number = row[..end].split_whitespace().last();
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no number: {errors}"))
}

#[test]
fn the_c_program_runs_by_pillion_run_and_by_hand() {
    let program = tempfile::tempdir().unwrap();
    let saxpy = program.path().join("saxpy");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&saxpy);
    cc.arg(example("1-c-program/saxpy.c")).arg("-ldl");
    assert!(cc.status().unwrap().success());
    let mut by_run = with_softgpu();
    by_run.arg(cargo_folder().join("pillion"));
    by_run
        .args(["run", "--class", "high-priority", "--"])
        .arg(&saxpy);
    expect_results(by_run, "high-priority");
    let mut by_hand = with_softgpu();
    by_hand.arg(example("3-by-hand/preload.sh")).arg(&saxpy);
    expect_results(by_hand, "best-effort");
}

#[test]
fn the_python_program_runs_under_pillion_run() {
    let python = tools::python(&["cuda.bindings", "numpy"]);
    let mut command = with_softgpu();
    command
        .arg(cargo_folder().join("pillion"))
        .args(["run", "--"]);
    command.arg(python).arg(example("2-python/saxpy.py"));
    expect_results(command, "best-effort");
}

#[test]
fn programs_that_mark_their_requests_mark_each_and_run_without_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let service = marking_service(folder.path());
    let python = tools::python(&[]);
    let module = example("7-marks/pillion_marks.py");
    let programs = [vec![service], vec![python, module]];
    for program in &programs {
        let mut alone = with_softgpu();
        alone.args(program);
        let alone = collect(alone).expect_success();
        let expected = "0 of 50 batches marked, the last one of 4 requests\n";
        assert_eq!(alone.output, expected);
        for (class, marked) in [("high-priority", 50), ("best-effort", 0)] {
            let mut managed = with_softgpu();
            managed.arg(cargo_folder().join("pillion"));
            managed.args(["run", "--class", class, "--"]).args(program);
            let managed = collect(managed).expect_success();
            // Nobody wants another batch.
            let said = format!("{marked} of 50 batches marked, the last one of 4 requests\n");
            assert_eq!(managed.output, said, "{managed:#?}");
        }
    }
}

#[test]
fn every_example_stands_in_the_index_with_its_reason() {
    let index = fs::read_to_string(example("README.md")).unwrap();
    for name in [
        "1-c-program/saxpy.c",
        "2-python/saxpy.py",
        "3-by-hand/preload.sh",
        "6-pytorch/pair.sh",
        "6-pytorch/serve.py",
        "6-pytorch/train.py",
        "7-marks/service.c",
        "7-marks/pillion_marks.py",
        "gpu0.toml",
        "monitoring/",
        "with-softgpu",
    ] {
        assert!(index.contains(&format!("({name})")), "{name}");
        assert!(example(name).exists(), "{name}");
    }
    assert_eq!(index.matches("   Why: ").count(), 8);
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    let mut command = with_softgpu();
    command.args(["sh", "-c", "exit 7"]);
    assert_eq!(collect(command).code(), 7);
    let ended = collect(with_softgpu());
    assert_eq!(ended.code(), 2);
    assert!(ended.output.contains("COMMAND"), "{ended:#?}");
}

/// The driver is not a library.
#[test]
fn a_daemon_that_does_not_start_is_said_with_its_words() {
    let bin = tempfile::tempdir().unwrap();
    for (name, built) in [
        ("softgpu-server", "softgpu-server"),
        ("pilliond", "pilliond"),
        ("libcuda.so", "libnvidia_ml.so"),
        ("libnvidia_ml.so", "libnvidia_ml.so"),
    ] {
        symlink(cargo_folder().join(built), bin.path().join(name)).unwrap();
    }
    let mut command = with_softgpu();
    command.env("PILLION_BIN", bin.path()).arg("true");
    let ended = collect(command);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    ended.expect_errors(&[
        "pilliond did not start. Its log:\n",
        "\npilliond: libcuda.so.1 has no cuInit",
    ]);
}
