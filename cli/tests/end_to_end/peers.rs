//! Daemons and clients of other versions, and a second daemon on a GPU.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::hello::{Attach, JobClass, Reply, Request, connect_to, listen_at, receive, send};
use protocol::{VERSION, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::common::{
    Gpu, PATIENCE_NS, Process, builtin_profile, cargo_folder, collect, copy_program, tools, until,
};

/// A version that this build cannot talk to.
const NEWER: Version = Version {
    major: VERSION.major + 1,
    minor: 0,
};

/// Makes a packet one of [`NEWER`]: the version stands after the magic, in every version.
fn newer(mut packet: Vec<u8>) -> Vec<u8> {
    packet[4..6].copy_from_slice(&NEWER.major.to_le_bytes());
    packet[6..8].copy_from_slice(&NEWER.minor.to_le_bytes());
    packet
}

pub(crate) fn accept_and_hear(listener: &OwnedFd) -> (OwnedFd, Vec<u8>, Vec<OwnedFd>) {
    let patience = Timespec {
        tv_sec: (PATIENCE_NS / 1_000_000_000) as i64,
        tv_nsec: 0,
    };
    let mut called = [PollFd::new(listener, PollFlags::IN)];
    assert_eq!(poll(&mut called, Some(&patience)), Ok(1), "nobody connects");
    let socket = rustix::net::accept(listener).unwrap();
    let (packet, pages) = receive(&socket).unwrap();
    (socket, packet, pages)
}

/// Runs `work` against a daemon that answers `reply` to the hello; returns its standard error.
fn run_against(gpu: &Gpu, reply: &[u8]) -> String {
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let launches_before = gpu.counts("job")["launches"].as_u64().unwrap_or(0);
    let job = gpu.job("job", "work linked 10 0");
    let process = job.under(&path, JobClass::BestEffort).start();
    let (socket, packet, _) = accept_and_hear(&listener);
    let Request::Attach(attach) = Request::decode(&packet).unwrap() else {
        panic!("not an attach: {packet:?}")
    };
    assert_eq!((&*attach.job, attach.class), ("job", JobClass::BestEffort));
    assert_eq!(attach.name, "work-linked");
    send(&socket, reply, &[]).unwrap();
    let ended = process.finish().expect_success();
    let device = gpu.counts("job");
    assert_eq!(
        device["launches"],
        launches_before + ended.asked("launches")
    );
    fs::remove_file(path).unwrap();
    ended.errors
}

fn expect_both_versions(text: &str) {
    for version in [VERSION, NEWER] {
        assert!(
            text.contains(&version.to_string()),
            "{version} not in {text}"
        );
    }
}

// census: J3
#[test]
fn a_job_runs_unmanaged_under_a_newer_daemon_and_names_both_versions() {
    let gpu = Gpu::start("mps");
    let welcome = Reply::Welcome {
        client: 1,
        slot: None,
        class: None,
    };
    let refused = Reply::Refused {
        reason: "too old".to_owned(),
    };
    for reply in [welcome, refused] {
        let errors = run_against(&gpu, &newer(reply.encode()));
        expect_both_versions(&errors);
        assert_eq!(errors.matches("unmanaged").count(), 1, "{errors}");
    }
}

#[test]
fn a_job_runs_unmanaged_when_the_daemons_answer_makes_no_sense() {
    let gpu = Gpu::start("mps");
    let no_pages = Reply::Welcome {
        client: 1,
        slot: None,
        class: None,
    }
    .encode();
    for reply in [b"?".to_vec(), vec![0; 9], no_pages] {
        let errors = run_against(&gpu, &reply);
        assert_eq!(errors.matches("unmanaged").count(), 1, "{errors}");
    }
}

// census: G3
#[test]
fn a_job_runs_unmanaged_when_the_daemon_refuses_it_and_says_why() {
    let gpu = Gpu::start("mps");
    let reason = "no room for anybody".to_owned();
    let errors = run_against(&gpu, &Reply::Refused { reason }.encode());
    assert!(errors.contains("no room for anybody"), "{errors}");
}

/// A daemon asked by more processes than it can serve at once hangs up on some.
#[test]
fn a_job_that_is_hung_up_on_without_an_answer_asks_again() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let job = gpu.job("job", "work linked 10 0");
    let process = job.under(&path, JobClass::BestEffort).start();
    for _ in 0..3 {
        drop(accept_and_hear(&listener));
    }
    let (socket, ..) = accept_and_hear(&listener);
    let reason = "the fourth time".to_owned();
    send(&socket, &Reply::Refused { reason }.encode(), &[]).unwrap();
    let ended = process.finish().expect_success();
    assert!(ended.errors.contains("the fourth time"), "{ended:#?}");
}

#[test]
fn a_job_that_is_never_answered_runs_unmanaged_in_the_end() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let job = gpu.job("job", "work linked 10 0");
    let mut process = job.under(&path, JobClass::BestEffort).start();
    process.tell_to_end();
    until("the end of the job", || {
        let at_once = Timespec::default();
        let mut called = [PollFd::new(&listener, PollFlags::IN)];
        if poll(&mut called, Some(&at_once)) == Ok(1) {
            drop(rustix::net::accept(&listener).unwrap());
        }
        !process.is_running()
    });
    let ended = process.finish().expect_success();
    assert_eq!(ended.errors.matches("unmanaged").count(), 1, "{ended:#?}");
}

/// Silent meanwhile, the connection could be closed: a daemon hangs up on the longest silent.
#[test]
fn a_job_does_not_connect_before_it_has_read_its_profile() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let profile = gpu.path("slow.profile.toml");
    let status = Command::new("mkfifo").arg(&profile).status().unwrap();
    assert!(status.success());
    let job = gpu.job("job", "work linked 10 0");
    let job = job.under(&path, JobClass::BestEffort);
    let process = job.env("PILLION_PROFILE", &profile).start();
    // Opening it for writing blocks until somebody reads.
    let is_read = until("the library to read its profile", || {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        options.open(&profile).ok()
    });
    let mut written = OpenOptions::new().write(true).open(&profile).unwrap();
    let at_once = Timespec::default();
    let mut called = [PollFd::new(&listener, PollFlags::IN)];
    assert_eq!(poll(&mut called, Some(&at_once)), Ok(0), "it has connected");
    let text = fs::read(builtin_profile()).unwrap();
    written.write_all(&text).unwrap();
    drop((written, is_read));
    let (socket, ..) = accept_and_hear(&listener);
    let reason = "with its profile".to_owned();
    send(&socket, &Reply::Refused { reason }.encode(), &[]).unwrap();
    let ended = process.finish().expect_success();
    assert!(ended.errors.contains("with its profile"), "{ended:#?}");
}

#[test]
fn the_daemon_refuses_a_newer_client_and_names_both_versions() {
    let (_gpu, daemon) = Gpu::with_daemon("mps", "");
    let attach = Request::Attach(Attach {
        class: JobClass::BestEffort,
        job: "newer".to_owned(),
        name: "newer".to_owned(),
        ..Attach::default()
    });
    let socket = connect_to(daemon.socket()).unwrap();
    send(&socket, &newer(attach.encode()), &[]).unwrap();
    let (packet, fds) = receive(&socket).unwrap();
    let Reply::Refused { reason } = Reply::decode(&packet).unwrap() else {
        panic!("not refused: {packet:?}")
    };
    expect_both_versions(&reason);
    assert!(fds.is_empty());
    assert!(daemon.job("newer").is_null());
}

/// Makes a packet one of minor version `minor`, with `more` at its end.
pub(crate) fn of_minor(mut packet: Vec<u8>, minor: u16, more: &[u8]) -> Vec<u8> {
    packet[6..8].copy_from_slice(&minor.to_le_bytes());
    packet.extend_from_slice(more);
    packet
}

// census: J3
#[test]
fn a_client_and_a_daemon_of_other_minor_versions_serve_each_other() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    // A relay between the two, so that each believes the other's label.
    let path = gpu.path("relay.sock");
    let listener = listen_at(&path).unwrap();
    let newer = VERSION.minor + 7;
    for (label, client, server) in [
        ("older client, newer daemon", (0, ""), (newer, "and more")),
        ("newer client, older daemon", (newer, "and more"), (0, "")),
    ] {
        let job = gpu.job(label, "work linked 10 0");
        let process = job.under(&path, JobClass::BestEffort).start();
        let (to_client, packet, pages) = accept_and_hear(&listener);
        let to_daemon = connect_to(daemon.socket()).unwrap();
        let packet = of_minor(packet, client.0, client.1.as_bytes());
        let pages: Vec<_> = pages.iter().map(AsFd::as_fd).collect();
        send(&to_daemon, &packet, &pages).unwrap();
        let (packet, pages) = receive(&to_daemon).unwrap();
        let packet = of_minor(packet, server.0, server.1.as_bytes());
        let pages: Vec<_> = pages.iter().map(AsFd::as_fd).collect();
        send(&to_client, &packet, &pages).unwrap();
        if server.0 >= 1 {
            // The library asks for its program's kept durations, and continues without an answer.
            drop(accept_and_hear(&listener));
        }
        let ended = process.finish().expect_success();
        assert_eq!(ended.errors, "", "{label}");
        drop(to_daemon);
        gpu.expect_equal_counts(label, &ended, &daemon);
    }
}

#[test]
fn status_of_a_newer_daemon_names_both_versions() {
    let gpu = Gpu::start("mps");
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let mut command = gpu.command(crate::common::pillion());
    command.arg("status").env("PILLION_SOCKET", &path);
    let process = Process::start("pillion status", command);
    let (socket, ..) = accept_and_hear(&listener);
    let reason = "too old".to_owned();
    send(&socket, &newer(Reply::Refused { reason }.encode()), &[]).unwrap();
    drop(socket);
    let ended = process.finish();
    assert_eq!(ended.code(), 69, "{ended:#?}");
    expect_both_versions(&ended.errors);
}

/// Starts a further daemon at `socket`, which must be refused because of `pid`.
fn expect_held(gpu: &Gpu, socket: &Path, pid: u32) {
    let mut command = gpu.command(cargo_folder().join("pilliond"));
    command.arg("--config").arg(gpu.config(socket, ""));
    let ended = collect(command);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let holder = format!("pid {pid}");
    ended.expect_errors(&["already has a daemon: ", &holder, "GPU-"]);
}

#[test]
fn a_second_daemon_is_told_who_holds_the_gpu_and_the_first_goes_on() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    let mut job = gpu.job("job", "steady").best_effort(&daemon).start();
    job.wait_for("round", 1);
    expect_held(&gpu, daemon.socket(), daemon.pid());
    job.wait_for_new("round", 5);
    gpu.expect_right_end("job", job, &daemon);
}

#[test]
fn a_second_daemon_is_told_who_holds_the_gpu_wherever_it_would_listen() {
    let (gpu, daemon) = Gpu::with_daemon("mps", "");
    expect_held(&gpu, &gpu.path("other.sock"), daemon.pid());
    assert_eq!(daemon.status()["daemon"]["pid"], daemon.pid());
}

const USER: u32 = 65534;

/// A daemon as [`USER`] would start it, which listens in a folder of its own.
fn daemon_of_user(gpu: &Gpu, setpriv: &Path) -> Command {
    let folder = gpu.path("user");
    fs::create_dir_all(&folder).unwrap();
    chown(&folder, Some(USER), Some(USER)).unwrap();
    // Copies the parts to where that user may read them.
    let copy = |built: &str, name: &str| -> PathBuf {
        let to = folder.join(name);
        copy_program(&cargo_folder().join(built), &to);
        fs::set_permissions(&to, Permissions::from_mode(0o755)).unwrap();
        to
    };
    copy("libcuda.so", "libcuda.so.1");
    copy("libnvidia_ml.so", "libnvidia-ml.so.1");
    for (path, mode) in [("", 0o755), ("gpu.sock", 0o777)] {
        fs::set_permissions(gpu.path(path), Permissions::from_mode(mode)).unwrap();
    }
    let id = |option: &str| format!("--{option}={USER}");
    let mut command = gpu.command(setpriv);
    command
        .args([&*id("reuid"), &id("regid"), "--clear-groups", "--"])
        .arg(copy("pilliond", "pilliond"))
        .arg("--config")
        .arg(gpu.config(&folder.join("users.sock"), ""))
        .env("LD_LIBRARY_PATH", &folder);
    command
}

#[test]
fn daemons_of_two_users_never_own_one_gpu_and_the_second_is_told_whose_the_first_is() {
    let words = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--",
    ];
    let setpriv = tools::that_runs(&words);
    let gpu = Gpu::start("mps");
    let roots = gpu.daemon("");
    let refused = collect(daemon_of_user(&gpu, &setpriv));
    assert_eq!(refused.code(), 1, "{refused:#?}");
    refused.expect_errors(&[
        "already has a daemon: ",
        &format!("pid {} of user 0", roots.pid()),
    ]);
    assert_eq!(roots.status()["daemon"]["pid"], roots.pid());
    drop(roots);
    let users = Process::start("pilliond", daemon_of_user(&gpu, &setpriv));
    until("the user's daemon", || users.errors().contains("ready: "));
    // Repeatedly, as by a service manager.
    for _ in 0..3 {
        let mut command = gpu.command(cargo_folder().join("pilliond"));
        let socket = gpu.path("roots.sock");
        command.arg("--config").arg(gpu.config(&socket, ""));
        let refused = collect(command);
        assert_eq!(refused.code(), 1, "{refused:#?}");
        let holder = format!("pid {} of user {USER}", users.pid());
        refused.expect_errors(&["already has a daemon: ", &holder]);
    }
    drop(users);
    gpu.daemon("");
}
