//! Daemons and clients of other versions, and a second daemon on a GPU.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use protocol::hello::{Attach, JobClass, Reply, Request, connect_to, listen_at, receive, send};
use protocol::{VERSION, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{Gpu, PATIENCE_NS, Process, Program, cargo_folder};

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

/// Accepts a connection and hears its first packet.
fn accept_and_hear(listener: &OwnedFd) -> (OwnedFd, Vec<u8>) {
    let patience = Timespec {
        tv_sec: (PATIENCE_NS / 1_000_000_000) as i64,
        tv_nsec: 0,
    };
    let mut called = [PollFd::new(listener, PollFlags::IN)];
    assert_eq!(poll(&mut called, Some(&patience)), Ok(1), "nobody connects");
    let socket = rustix::net::accept(listener).unwrap();
    let (packet, _) = receive(&socket).unwrap();
    (socket, packet)
}

/// Runs `work` against a daemon that answers `reply` to the hello; returns what it said on stderr.
fn run_against(gpu: &Gpu, reply: &[u8]) -> String {
    let path = gpu.path("fake.sock");
    let listener = listen_at(&path).unwrap();
    let launches_before = gpu.counts("job")["launches"].as_u64().unwrap_or(0);
    let job = gpu.job("job", Program::Linked("work"));
    let job = job.args(&["linked", "10", "0"]);
    let process = job.under(&path, JobClass::BestEffort).start();
    let (socket, packet) = accept_and_hear(&listener);
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
    std::fs::remove_file(path).unwrap();
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

#[test]
fn the_daemon_refuses_a_newer_client_and_names_both_versions() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let attach = Request::Attach(Attach {
        class: JobClass::BestEffort,
        job: "newer".to_owned(),
        name: "newer".to_owned(),
        profile: String::new(),
        profile_fit: String::new(),
        device: String::new(),
        memory: None,
        slot: None,
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
fn of_minor(mut packet: Vec<u8>, minor: u16, more: &[u8]) -> Vec<u8> {
    packet[6..8].copy_from_slice(&minor.to_le_bytes());
    packet.extend_from_slice(more);
    packet
}

// census: J3
#[test]
fn a_client_and_a_daemon_of_other_minor_versions_serve_each_other() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    // Between the two, so that each takes the other for what the label says.
    let path = gpu.path("relay.sock");
    let listener = listen_at(&path).unwrap();
    let newer = VERSION.minor + 7;
    for (label, client, server) in [
        ("older client, newer daemon", (0, ""), (newer, "and more")),
        ("newer client, older daemon", (newer, "and more"), (0, "")),
    ] {
        let job = gpu.job(label, Program::Linked("work"));
        let job = job.args(&["linked", "10", "0"]);
        let process = job.under(&path, JobClass::BestEffort).start();
        let (to_client, packet) = accept_and_hear(&listener);
        let to_daemon = connect_to(daemon.socket()).unwrap();
        let packet = of_minor(packet, client.0, client.1.as_bytes());
        send(&to_daemon, &packet, &[]).unwrap();
        let (packet, pages) = receive(&to_daemon).unwrap();
        let packet = of_minor(packet, server.0, server.1.as_bytes());
        let pages: Vec<_> = pages.iter().map(AsFd::as_fd).collect();
        send(&to_client, &packet, &pages).unwrap();
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
    let (socket, _) = accept_and_hear(&listener);
    let reason = "too old".to_owned();
    send(&socket, &newer(Reply::Refused { reason }.encode()), &[]).unwrap();
    drop(socket);
    let ended = process.finish();
    assert_eq!(ended.code(), 69, "{ended:#?}");
    expect_both_versions(&ended.errors);
}

/// Starts a further daemon at `socket`, which must be refused because `pid` is there.
fn expect_held(gpu: &Gpu, socket: &Path, pid: u32) {
    let mut command = gpu.command(cargo_folder().join("pilliond"));
    command.arg("--config").arg(gpu.config(socket, ""));
    let ended = crate::common::collect(command);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let holder = format!("pid {pid}");
    ended.expect_errors(&["is held by", &holder, "GPU-"]);
}

#[test]
fn a_second_daemon_is_told_who_holds_the_gpu_and_the_first_goes_on() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    let job = gpu.job("job", Program::Linked("steady"));
    let mut job = job.best_effort(&daemon).start();
    job.wait_for("round", 1);
    expect_held(&gpu, daemon.socket(), daemon.pid());
    job.wait_for_new("round", 5);
    let ended = job.finish().expect_success();
    gpu.expect_equal_counts("job", &ended, &daemon);
}

#[test]
fn a_second_daemon_is_told_who_holds_the_gpu_wherever_it_would_listen() {
    let gpu = Gpu::start("mps");
    let daemon = gpu.daemon("");
    expect_held(&gpu, &gpu.path("other.sock"), daemon.pid());
    assert_eq!(daemon.status()["daemon"]["pid"], daemon.pid());
}
