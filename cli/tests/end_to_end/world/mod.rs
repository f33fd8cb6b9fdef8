//! Other programs, libraries and surroundings: a job starts all kinds of processes, and each must
//! run as without us, whether it touches CUDA or not.

mod beside;
mod debuggers;
mod endings;
mod files;
mod languages;
mod libc;
mod limits;
mod places;
mod shells;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::{Daemon, Ended, Gpu, Process, copy_program, library};

/// The environment of a best-effort job with this id, on top of `command`'s own.
fn preload(command: &mut Command, library: &Path, daemon: &Daemon, label: &str) {
    command
        .env("LD_PRELOAD", library)
        .env("PILLION_SOCKET", daemon.socket())
        .env("PILLION_JOB", label);
}

fn run(command: Command, input: &str) -> Ended {
    let name = format!("{command:?}");
    let mut process = Process::start(&name, command);
    process.write(input);
    process.finish()
}

/// Runs a command without CUDA, alone and as a job: same output and end, and unknown to the daemon.
/// Returns the result.
fn expect_untouched(make: impl Fn(&Gpu) -> Command, input: &str) -> Ended {
    expect_untouched_by(&library(), make, input)
}

fn expect_untouched_by(library: &Path, make: impl Fn(&Gpu) -> Command, input: &str) -> Ended {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let alone = run(make(&gpu), input);
    let mut command = make(&gpu);
    preload(&mut command, library, &daemon, "untouched");
    let ours = run(command, input);
    assert_eq!(ours.status, alone.status, "{ours:#?} {alone:#?}");
    assert_eq!(ours.output, alone.output);
    assert_eq!(ours.errors, alone.errors);
    assert!(daemon.job("untouched").is_null());
    ours
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of these tests are text")
}

/// A folder that every user may enter, with a copy of the library that every user may read.
fn public_folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = public_copy(&folder, &library(), "libpillion.so");
    (folder, copy)
}

fn public_copy(folder: &TempDir, file: &Path, name: &str) -> PathBuf {
    let copy = folder.path().join(name);
    copy_program(file, &copy);
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}
