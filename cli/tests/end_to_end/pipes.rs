//! A reader that stops reading (`pillion status | head -1`) ends a command quietly, as it ends others.

use std::process::{Command, Stdio};

use crate::common::{Ended, builtin_profile, cargo_folder, clean_command, pillion, workspace};

/// 128 + SIGPIPE.
const UNREAD: i32 = 141;

/// Runs `command` with a standard output that nobody reads, and with nobody to complain to if `is_deaf`.
fn run_unread(mut command: Command, is_deaf: bool) -> Ended {
    let unread = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    command.stdin(Stdio::null()).stdout(unread());
    command.stderr(if is_deaf { unread() } else { Stdio::piped() });
    let ended = command.spawn().unwrap().wait_with_output().unwrap();
    Ended {
        status: ended.status,
        output: String::new(),
        errors: String::from_utf8(ended.stderr).unwrap(),
    }
}

fn expect_quiet(arguments: &[&str]) {
    for is_deaf in [false, true] {
        let mut command = clean_command(pillion());
        command.args(arguments);
        let ended = run_unread(command, is_deaf);
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
