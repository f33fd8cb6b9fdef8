//! The library as a file: replaced under a process, not readable, in a folder with an unusual name.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Gpu, Program, copy_program, library, pillion, tools};

use super::{preload, public_copy, public_folder, run, text};

// census: A13
#[test]
fn the_library_is_replaced_under_a_running_process() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let (folder, copy) = public_folder();
    let job = gpu.job("old", "steady").best_effort(&daemon);
    let mut old = job.env("LD_PRELOAD", &copy).start();
    old.wait_for("round", 2);
    // As package managers do it: beside it, then renamed over it.
    let update = public_copy(&folder, &library(), "libpillion.so.new");
    fs::rename(update, &copy).unwrap();
    old.wait_for_new("round", 5);
    let job = gpu.job("new", "steady").best_effort(&daemon);
    let mut new = job.env("LD_PRELOAD", &copy).start();
    new.wait_for("round", 2);
    fs::remove_file(&copy).unwrap();
    old.wait_for_new("round", 5);
    new.wait_for_new("round", 5);
    for (label, process) in [("old", old), ("new", new)] {
        let ended = process.finish().expect_success();
        assert_eq!(ended.errors, "", "{label}");
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}

fn as_nobody(gpu: &Gpu) -> Command {
    const WORDS: [&str; 5] = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ];
    let mut command = gpu.command(tools::that_runs(&WORDS));
    command.args(&WORDS[1..]);
    command
}

// census: A14
#[test]
fn a_library_that_cannot_be_read_is_said_by_pillion_run_and_harms_nobody() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let (folder, copy) = public_folder();
    let pillion = public_copy(&folder, pillion(), "pillion");
    fs::set_permissions(&copy, Permissions::from_mode(0o000)).unwrap();
    let mut command = as_nobody(&gpu);
    command.arg(&pillion).args(["run", "--", "echo", "started"]);
    let ended = run(command, "");
    assert_eq!((ended.code(), &*ended.output), (1, ""), "{ended:#?}");
    ended.expect_errors(&[text(&copy), "Permission denied"]);
    // Preloaded by hand, the dynamic linker reports it, and the program runs.
    let mut command = as_nobody(&gpu);
    command.args(["env", "echo", "started"]);
    preload(&mut command, &copy, &daemon, "job");
    let ended = run(command, "").expect_success();
    assert_eq!(ended.output, "started\n");
    ended.expect_errors(&["cannot be preloaded"]);
}

#[test]
fn pillion_run_refuses_a_path_that_the_dynamic_linker_would_take_apart() {
    let gpu = Gpu::start("mps");
    for name in ["two words", "with:colon", "with;semicolon", "plain"] {
        let folder = gpu.path(name);
        fs::create_dir(&folder).unwrap();
        let put = |file: &Path, name: &str| copy_program(file, &folder.join(name));
        put(pillion(), "pillion");
        put(&library(), "libpillion.so");
        let mut command = gpu.command(folder.join("pillion"));
        command.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        let ended = run(command, "");
        let path = folder.join("libpillion.so");
        if name == "plain" || name == "with;semicolon" {
            let ended = ended.expect_success();
            assert_eq!(
                (&*ended.output, &*ended.errors),
                (&*format!("{}\n", path.display()), "")
            );
            continue;
        }
        assert_eq!((ended.code(), &*ended.output), (1, ""), "{ended:#?}");
        ended.expect_errors(&[text(&path), "LD_PRELOAD"]);
    }
}

#[test]
fn pillion_run_keeps_what_else_was_to_be_preloaded() {
    let gpu = Gpu::start("mps");
    let other = Program::Library("wrap_getenv").path();
    let mut command = gpu.command(pillion());
    command.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    command.env("LD_PRELOAD", &other);
    let ended = run(command, "").expect_success();
    assert!(
        ended
            .output
            .ends_with(&format!("libpillion.so:{}\n", other.display())),
        "{ended:#?}"
    );
}
