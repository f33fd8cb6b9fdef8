//! Other users and views of the system: without rights, first in a namespace, on a read-only root.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Daemon, Gpu, Process, Program, builtin_profile, cargo_folder, tools};

use super::{preload, public_copy, public_folder, run, text};

const AS_NOBODY: [&str; 5] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
];

/// Runs `work` by the words before it, alone and as a job, in a folder that everybody may enter;
/// program, Pillion and device must agree.
fn expect_same_in(words: &[&str], start: impl Fn(&Gpu) -> Daemon) {
    let tool = tools::that_runs(words);
    let gpu = Gpu::start("mps");
    let daemon = start(&gpu);
    let (folder, library) = public_folder();
    let work = public_copy(&folder, &Program::Linked("work").path(), "work");
    let profile = public_copy(&folder, &builtin_profile(), "profile.toml");
    public_copy(&folder, &cargo_folder().join("libcuda.so"), "libcuda.so.1");
    for (path, mode) in [("", 0o755), ("gpu.sock", 0o777), ("pillion.sock", 0o777)] {
        fs::set_permissions(gpu.path(path), Permissions::from_mode(mode)).unwrap();
    }
    let make = |label: &str| {
        let mut command: Command = gpu.command(&tool);
        command
            .args(&words[1..])
            .arg(text(&work))
            .args(["linked", "20", "7"]);
        command
            .env("LD_LIBRARY_PATH", folder.path())
            .env("SOFTGPU_LABEL", label);
        command
    };
    let alone = run(make("alone"), "");
    assert_eq!(alone.code(), 7, "{alone:#?}");
    let mut command = make("job");
    preload(&mut command, &library, &daemon, "job");
    command.env("PILLION_PROFILE", profile);
    let ours = run(command, "");
    assert_eq!(
        (ours.status, &ours.output),
        (alone.status, &alone.output),
        "{ours:#?}"
    );
    gpu.expect_equal_counts("job", &ours, &daemon);
    assert_eq!(ours.errors, alone.errors);
}

// census: J1
#[test]
fn a_user_without_rights_is_managed() {
    expect_same_in(&AS_NOBODY, |gpu| gpu.daemon(""));
}

/// As systemd starts a daemon (`packaging/systemd`): root, but without root's capabilities.
const WITHOUT_CAPABILITIES: [&str; 6] = [
    "setpriv",
    "--bounding-set=-all",
    "--inh-caps=-all",
    "--ambient-caps=-all",
    "--no-new-privs",
    "--",
];

#[test]
fn a_daemon_without_any_capability_serves_another_user() {
    let words = WITHOUT_CAPABILITIES;
    tools::that_runs(&words);
    expect_same_in(&AS_NOBODY, |gpu| {
        let daemon = gpu.daemon_through(&words);
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let none = format!("{set}:\t0000000000000000\n");
            assert!(status.contains(&none), "{status}");
        }
        daemon
    });
}

// census: J12
#[test]
fn the_first_process_of_a_namespace_is_managed() {
    expect_same_in(&["unshare", "--pid", "--fork", "--mount-proc"], |gpu| {
        gpu.daemon("")
    });
}

#[test]
fn a_process_on_a_root_that_cannot_be_written_is_managed() {
    let script = "mount -o remount,bind,ro / && ! touch /written 2>/dev/null && exec \"$@\"";
    expect_same_in(&["unshare", "--mount", "sh", "-c", script, "sh"], |gpu| {
        gpu.daemon("")
    });
}

/// The daemon may not inspect other users' processes. One that computes and is no client is
/// unmanaged all the same.
#[test]
fn a_daemon_without_any_capability_names_another_users_program_that_computes_and_no_job() {
    tools::that_runs(&WITHOUT_CAPABILITIES);
    let tool = tools::that_runs(&AS_NOBODY);
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon_through(&WITHOUT_CAPABILITIES);
    let (folder, library) = public_folder();
    let load = public_copy(&folder, &Program::Linked("load").path(), "load");
    public_copy(&folder, &cargo_folder().join("libcuda.so"), "libcuda.so.1");
    for (path, mode) in [("", 0o755), ("gpu.sock", 0o777), ("pillion.sock", 0o777)] {
        fs::set_permissions(gpu.path(path), Permissions::from_mode(mode)).unwrap();
    }
    let start = |label: &str, is_job: bool| {
        let mut command = gpu.command(&tool);
        command.args(&AS_NOBODY[1..]).arg(text(&load)).arg("64");
        command.env("LD_LIBRARY_PATH", folder.path());
        command.env("SOFTGPU_LABEL", label);
        if is_job {
            preload(&mut command, &library, &daemon, label);
        }
        let mut process = Process::start(label, command);
        process.wait_for("round", 1);
        process
    };
    let job = start("job", true);
    let other = start("other", false);
    let status = daemon.status_when("a named process", |it| it["unmanaged"]["count"] == 1);
    let named = &status["unmanaged"]["processes"][0];
    assert_eq!(
        (&named["pid"], &named["uid"], &named["name"]),
        (&other.pid().into(), &65_534.into(), &"load".into())
    );
    let reason = named["reason"].as_str().unwrap();
    assert!(reason.contains("may not inspect it"), "{reason}");
    other.finish().expect_success();
    daemon.status_when("nobody named", |it| it["unmanaged"]["count"] == 0);
    job.finish().expect_success();
    assert_eq!(daemon.status()["events"]["counts"]["unmanaged"], 1);
}
