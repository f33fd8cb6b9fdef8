//! Programs linked unlike CUDA programs: with another C library, statically, or to run with more
//! rights than their caller has.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Gpu, Program, collect, tools};

use super::{expect_untouched, expect_untouched_by, public_copy, public_folder, text};

/// `plain`'s output about itself, however linked.
const THREAD: &str = "thread 42 main 40 errno 0\n";

fn compile(compiler: &str, out: PathBuf, options: &[&str]) -> PathBuf {
    let compiler = tools::program(compiler);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/plain.c");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-pthread", source, "-o"]);
    command.arg(&out).args(options);
    let ended = collect(command).expect_success();
    assert_eq!(ended.errors, "");
    out
}

fn expect_plain_untouched(compiler: &str, options: &[&str], dlsym: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(compiler, folder.path().join("plain"), options);
    let make = |gpu: &Gpu| {
        let mut command = gpu.command(&program);
        command.args(["a word", "--and=another"]);
        command
    };
    let ours = expect_untouched(make, "one\ntwo\n");
    assert_eq!(ours.code(), 3, "{ours:#?}");
    let arguments = "argument a word\nargument --and=another\ninput one\ninput two\n";
    assert_eq!(ours.output, format!("{arguments}{dlsym}{THREAD}"));
}

/// `plain`'s output about `dlsym`: existing symbols are found, missing ones are not, with a reason.
const FOUND: &str = "dlsym 1 1\nnothing 1 and why\ncuInit 0, driver 0\n";

#[test]
fn a_glibc_program_runs_unchanged() {
    expect_plain_untouched("cc", &["-ldl"], FOUND);
}

// census: A11, J8
#[test]
fn a_musl_program_runs_unchanged() {
    expect_plain_untouched("musl-gcc", &[], FOUND);
}

#[test]
fn a_static_program_runs_unchanged() {
    expect_plain_untouched("cc", &["-static", "-DSTATIC"], "");
}

#[test]
fn a_static_musl_program_runs_unchanged() {
    expect_plain_untouched("musl-gcc", &["-static", "-DSTATIC"], "");
}

// census: J9
#[test]
fn a_program_that_runs_with_more_rights_than_its_caller_runs_without_us() {
    let setpriv = tools::that_runs(&[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ]);
    let (folder, library) = public_folder();
    let program = public_copy(&folder, &Program::Unlinked("who").path(), "who");
    let run = |mode: u32| {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let make = |gpu: &Gpu| {
            let mut command = gpu.command(&setpriv);
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            command.arg(text(&program));
            command
        };
        expect_untouched_by(&library, make, "")
    };
    // With its caller's rights it has our library, invisibly; with root's the linker leaves us out.
    assert_eq!(run(0o755).output, "65534\n");
    assert_eq!(run(0o4755).output, "0\n");
}
