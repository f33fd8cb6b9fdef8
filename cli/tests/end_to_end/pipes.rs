//! A reader that stops reading (`pillion status | head -1`) ends a command quietly, like others.

use std::process::Stdio;

use crate::common::{Ended, builtin_profile, cargo_folder, clean_command, pillion, workspace};

/// 128 + SIGPIPE.
const UNREAD: i32 = 141;

/// Becomes a command whose standard output is a pipe without a reader, and its standard error too
/// if the second argument is "deaf". Only this shell ever has the reader: one of the test process's
/// would be open for a moment in other tests' children too, and writing then is no error.
const UNREAD_PIPE: &str = r#"mkfifo "$1" && exec 3<>"$1" 4>"$1" 3<&- || exit 99
[ "$2" = deaf ] && exec 2>&4
shift 2
exec "$@" >&4 4>&-"#;

/// Runs `pillion` with a standard output that nobody reads, and such a standard error if `is_deaf`.
fn run_unread(arguments: &[&str], is_deaf: bool) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let mut command = clean_command("sh");
    command.args(["-c", UNREAD_PIPE, "sh"]);
    command.arg(folder.path().join("pipe"));
    command.arg(if is_deaf { "deaf" } else { "heard" });
    command.arg(pillion()).args(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let ended = command.spawn().unwrap().wait_with_output().unwrap();
    Ended {
        status: ended.status,
        output: String::new(),
        errors: String::from_utf8(ended.stderr).unwrap(),
    }
}

fn expect_quiet(arguments: &[&str]) {
    for is_deaf in [false, true] {
        let ended = run_unread(arguments, is_deaf);
        assert_eq!(
            (ended.code(), &*ended.errors),
            (UNREAD, ""),
            "pillion {arguments:?}"
        );
    }
}

#[test]
fn every_command_that_prints_ends_quietly_when_nobody_reads() {
    cargo_folder();
    let profile = builtin_profile();
    let profile = profile.to_str().unwrap();
    let config = workspace().join("examples/gpu0.toml");
    for arguments in [
        ["workload"].as_slice(),
        &["workload", "bert-base-inference", "-o", "-"],
        &["completions", "bash"],
        &["config", "check", config.to_str().unwrap()],
        &["profile", "show", profile],
        &["profile", "show", "--json", profile],
        &["profile", "check", profile],
        &["profile", "compare", profile, profile],
        &["profile", "import", profile],
        &["status"],
        &["status", "--json"],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        expect_quiet(arguments);
    }
}

#[test]
fn a_demo_whose_table_nobody_reads_ends_quietly_and_leaves_nothing() {
    cargo_folder();
    let device = "V100-SXM2-16GB";
    expect_quiet(&["demo", "--device", device, "--seconds", "0.2"]);
}
