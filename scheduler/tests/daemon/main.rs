//! The whole daemon in this process, with clients that speak the protocol as the library does, and
//! `pilliond` as a process where only its command line matters.
//! Time here is real: each test waits for its condition, without a timeout of its own.

// Marked so that lints treat these helpers as part of the tests.
#[cfg(test)]
mod play;
#[cfg(test)]
mod users;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use protocol::VERSION;
use protocol::clock::coordinator::Coordinator;
use protocol::clock::{CLOCK_ENV, Clock};
use protocol::hello::{JobClass, Reply, Request, connect_to, receive, send};
use protocol::pages::{COUNTERS_ROOM, Counter, HpPage, PAGE_MAGIC};
use protocol::segment::{Access, Mapping};
use protocol::sync::Ordering;
use serde_json::{Value, json};

use play::{Running, UUID, attach, attach_as, pause, pilliond, reason_not_to_serve, start_at};

#[test]
fn a_client_attaches_and_is_shown_with_its_counters() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    assert_eq!(be.daemon.magic.load(Ordering::Relaxed), PAGE_MAGIC);
    assert_eq!(be.daemon.max_hold_ns.load(Ordering::Relaxed), 100_000_000);
    be.page.count(Counter::Launches, 5);
    let status = running.status();
    assert_eq!(status["gpu"]["uuid"], UUID);
    assert_eq!(status["daemon"]["pid"], std::process::id());
    let job = &status["jobs"][0];
    assert_eq!(
        (&job["job"], &job["class"]),
        (&"train".into(), &"best-effort".into())
    );
    let client = &job["clients"][0];
    assert_eq!(client["client"], be.number);
    assert_eq!(client["pid"], std::process::id());
    assert_eq!(client["name"], "python");
    assert_eq!(client["counters"]["launches"], 5);
}

#[test]
fn what_a_client_must_not_write_cannot_be_mapped_for_writing() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    let hp = attach(&running.socket(), JobClass::HighPriority, "serve");
    assert!(hp.lease.is_none());
    for fd in [&be.daemon_fd, &hp.daemon_fd, &be.hp_fd] {
        assert!(Mapping::<HpPage>::open(fd, Access::ReadWrite).is_err());
    }
}

#[test]
fn a_lease_is_granted_revoked_by_a_launch_and_granted_again() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    be.launch_when_allowed(10_000);
    be.page.completed_ns.fetch_add(10_000, Ordering::Relaxed);
    let hp = attach(&running.socket(), JobClass::HighPriority, "serve");
    running.status_when(|status| status["jobs"][0]["lease"]["ungated"] == false);
    hp.launch_hp(1);
    // From here on no kernel of the same class is admitted, whenever the daemon polls.
    assert!(be.try_launch(10_000).is_err());
    let status = running.status_when(|status| status["jobs"][0]["lease"]["beside_hp"] == true);
    assert_eq!(status["hp"]["executing"], json!(["compute"]));
    assert_eq!(
        status["jobs"][0]["lease"]["classes"],
        json!(["memory", "unknown"])
    );
    assert!(be.try_launch(10_000).is_err());
    hp.complete_hp(1);
    be.launch_when_allowed(10_000);
}

#[test]
fn a_waiter_is_woken_when_a_high_priority_client_goes() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    let hp = attach(&running.socket(), JobClass::HighPriority, "serve");
    hp.launch_hp(1);
    running.status_when(|status| status["hp"]["busy"] == true);
    let waiter = thread::spawn(move || {
        be.launch_when_allowed(10_000);
        be
    });
    running.status_when(|status| status["jobs"][0]["waiting"] == true);
    drop(hp);
    let be = waiter.join().unwrap();
    assert_eq!(be.try_launch(10_000), Ok(true));
}

#[test]
fn a_client_that_ends_gives_back_what_it_had_in_flight_and_its_job_is_still_listed() {
    let running = Running::new();
    let _hp = attach(&running.socket(), JobClass::HighPriority, "serve");
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    be.launch_when_allowed(500_000);
    be.page.count(Counter::Launches, 1);
    running.status_when(|status| status["jobs"][1]["in_flight_ns"] == 500_000);
    // An acknowledged detach: the connection ends after the client was forgotten.
    rustix::net::shutdown(&be.socket, rustix::net::Shutdown::Write).unwrap();
    assert!(receive(&be.socket).unwrap().0.is_empty());
    let status = running.status();
    let job = &status["jobs"][1];
    assert_eq!(
        (&job["job"], &job["clients"]),
        (&"train".into(), &json!([]))
    );
    assert_eq!(job["totals"]["launches"], 1);
    assert_eq!(job["in_flight_ns"], 0);
    assert!(job["ended_ns"].is_u64());
}

/// Names the daemon's socket for the part of the next test in a separate process, which does
/// nothing without it.
const CHILD_ENV: &str = "PILLION_TEST_ATTACH_TO";

#[test]
fn a_process_that_leaves_its_connection_to_a_child() {
    let Some(socket) = std::env::var_os(CHILD_ENV) else {
        return;
    };
    let socket = PathBuf::from(socket);
    let client = attach(&socket, JobClass::BestEffort, "train");
    let mut child = Command::new("cat")
        .stdin(Stdio::inherit())
        .stdout(client.socket.try_clone().unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.try_wait().unwrap().is_none());
}

#[test]
fn the_death_of_a_process_is_noticed_though_its_child_holds_the_connection() {
    let running = Running::new();
    // The grandchild's stdin is a pipe of this process, so it lives until that is dropped.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_leaves_its_connection_to_a_child"])
        .env(CHILD_ENV, running.socket())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let grandchilds_input = child.stdin.take();
    assert!(child.wait().unwrap().success());
    let status = running.status_when(|status| status["jobs"][0]["clients"] == Value::Array(vec![]));
    assert_eq!(status["jobs"][0]["job"], "train");
    drop(grandchilds_input);
}

#[test]
fn a_client_is_attached_as_long_as_any_copy_of_its_connection_is_open() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    let copy = be.socket.try_clone().unwrap();
    drop(be);
    assert_eq!(
        running.status()["jobs"][0]["clients"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    drop(copy);
    running.status_when(|status| status["jobs"][0]["clients"] == Value::Array(vec![]));
}

#[test]
fn another_protocol_version_is_refused_with_both_versions() {
    let running = Running::new();
    let socket = connect_to(&running.socket()).unwrap();
    let mut packet = Request::Status.encode();
    packet[4..6].copy_from_slice(&(VERSION.major + 1).to_le_bytes());
    send(&socket, &packet, &[]).unwrap();
    let (packet, _) = receive(&socket).unwrap();
    let expected = Reply::Refused {
        reason: format!(
            "the client speaks protocol {}.{}, this daemon {VERSION}: use the library and \
             the daemon of one version",
            VERSION.major + 1,
            VERSION.minor
        ),
    };
    assert_eq!(Reply::decode(&packet).unwrap(), expected);
    assert!(receive(&socket).unwrap().0.is_empty());
}

#[test]
fn clients_of_older_and_newer_minor_versions_are_served_and_counted() {
    let running = Running::new();
    let older = |mut packet: Vec<u8>| {
        packet[6..8].copy_from_slice(&0_u16.to_le_bytes());
        // Fields of later versions: the device, then the quota, which is empty here, the slot, a
        // flag, an answer, a target and two shares, empty too.
        packet.truncate(packet.len() - 2 - UUID.len() - 2 - 2 - 1 - 1 - 2 - 2 - 2);
        packet
    };
    let newer = |mut packet: Vec<u8>| {
        packet[6..8].copy_from_slice(&(VERSION.minor + 7).to_le_bytes());
        packet.extend_from_slice(b"what is not known yet");
        packet
    };
    for (job, is_newer) in [("older", false), ("newer", true)] {
        let client =
            attach_as(
                &running.socket(),
                JobClass::BestEffort,
                job,
                |request| match is_newer {
                    true => newer(request.encode()),
                    false => older(request.encode()),
                },
            );
        client.page.count(Counter::Launches, 3);
        // A counter of a later version: in the reserved room, unknown here.
        client.page.told.counters[COUNTERS_ROOM - 1].store(5, Ordering::Relaxed);
        client.launch_when_allowed(1_000);
        let status = running.status();
        let jobs = status["jobs"].as_array().unwrap();
        let found = jobs.iter().find(|found| found["job"] == job).unwrap();
        assert_eq!(found["clients"][0]["counters"]["launches"], 3);
    }
}

#[test]
fn a_process_on_another_gpu_is_turned_away_and_one_whose_driver_does_not_tell_is_served() {
    let running = Running::new();
    let other = "GPU-ffffffff-0000-0000-0000-000000000000";
    let reason = format!("this daemon schedules {UUID}, but the process uses {other}");
    assert_eq!(reason_not_to_serve(&running, other), Some(reason.clone()));
    assert_eq!(running.status()["turned_away"][0]["reason"], reason);
    for served in [UUID, &UUID.to_uppercase(), ""] {
        assert_eq!(reason_not_to_serve(&running, served), None, "{served:?}");
    }
}

#[test]
fn a_process_that_is_turned_away_again_and_again_is_one_event_and_counted() {
    let running = Running::new();
    let other = "GPU-ffffffff-0000-0000-0000-000000000000";
    for times in 1..=50 {
        assert!(reason_not_to_serve(&running, other).is_some());
        let status = running.status();
        assert_eq!(status["events"]["counts"]["turned-away"], 1, "{status:#}");
        let listed = status["turned_away"].as_array().unwrap();
        assert_eq!((listed.len(), &listed[0]["times"]), (1, &times.into()));
    }
}

#[test]
fn a_packet_that_is_none_of_ours_is_refused_and_silent_connections_block_nobody() {
    let running = Running::new();
    let silent: Vec<OwnedFd> = (0..200)
        .map(|_| connect_to(&running.socket()).unwrap())
        .collect();
    let socket = connect_to(&running.socket()).unwrap();
    send(&socket, b"GET / HTTP/1.1", &[]).unwrap();
    let (packet, _) = receive(&socket).unwrap();
    let expected = Reply::Refused {
        reason: "not a Pillion message: wrong magic".to_owned(),
    };
    assert_eq!(Reply::decode(&packet).unwrap(), expected);
    drop(silent);
    attach(&running.socket(), JobClass::BestEffort, "train");
}

#[test]
fn the_second_daemon_of_a_gpu_is_told_who_holds_it() {
    let mut running = Running::new();
    let error = start_at(&running.socket()).err().unwrap().to_string();
    let expected = format!(
        "GPU {UUID} already has a daemon: pilliond pid {}",
        std::process::id()
    );
    assert!(error.starts_with(&expected), "{error}");
    running.status();
    running.stop();
    start_at(&running.socket()).unwrap().stopper().stop();
}

#[test]
fn a_daemon_that_ends_removes_its_socket_and_shows_that_it_is_gone() {
    let mut running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    let hp = attach(&running.socket(), JobClass::HighPriority, "serve");
    running.status_when(|status| status["hp"]["live_epoch"] != 0);
    let seen = be.lease.as_ref().unwrap().bell.read();
    running.stop();
    assert!(!running.socket().exists());
    assert_eq!(be.daemon.heartbeat_ns.load(Ordering::Relaxed), 0);
    assert_eq!(hp.daemon.live_epoch.load(Ordering::Relaxed), 0);
    assert_ne!(
        be.lease.as_ref().unwrap().bell.read(),
        seen,
        "waiters are woken"
    );
    assert!(receive(&be.socket).unwrap().0.is_empty());
}

#[test]
fn a_daemon_without_clients_sleeps() {
    let running = Running::new();
    let be = attach(&running.socket(), JobClass::BestEffort, "train");
    drop(be.socket);
    running.status_when(|status| status["jobs"][0]["clients"] == json!([]));
    // It announces its sleep, then stops its heartbeat; otherwise it may only lack a processor.
    let heartbeat = || be.daemon.heartbeat_ns.load(Ordering::Relaxed);
    loop {
        let is_asleep = be.daemon.asleep.load(Ordering::Acquire) == 1;
        let last_ns = heartbeat();
        (0..50).for_each(|_| pause());
        if is_asleep && heartbeat() == last_ns {
            break;
        }
    }
    running.status();
}

/// Names the folder for the part of the next test with a virtual clock, which does nothing without
/// it.
const FOLDER_ENV: &str = "PILLION_TEST_FOLDER";

#[test]
fn attach_and_launch_while_time_stands_still() {
    let Some(folder) = std::env::var_os(FOLDER_ENV) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let clock = Clock::process();
    assert!(clock.is_virtual(), "{:?}", Clock::open_error());
    let socket = folder.join("gpu.sock");
    let daemon = start_at(&socket).unwrap();
    let stopper = daemon.stopper();
    let daemon = thread::spawn(|| daemon.run());
    clock.enter();
    let start_ns = clock.now_ns();
    // The poll thread cannot run while this one does; the control thread must do without it.
    let be = attach(&socket, JobClass::BestEffort, "train");
    be.launch_when_allowed(10_000);
    assert_eq!(clock.now_ns(), start_ns);
    be.page.completed_ns.fetch_add(10_000, Ordering::Relaxed);
    let hp = attach(&socket, JobClass::HighPriority, "serve");
    clock.sleep_until(start_ns + 1);
    assert_eq!(
        be.try_launch(0),
        Ok(false),
        "gated before any time has passed"
    );
    hp.launch_hp(1);
    assert!(be.try_launch(10_000).is_err());
    clock.sleep_until(start_ns + 20_000_000);
    let heartbeat_ns = be.daemon.heartbeat_ns.load(Ordering::Relaxed);
    assert!(clock.now_ns() - heartbeat_ns <= 1_000_000);
    hp.complete_hp(1);
    be.launch_when_allowed(10_000);
    assert_eq!(clock.now_ns(), start_ns + 20_000_000);
    stopper.stop();
    clock.leave();
    daemon.join().unwrap().unwrap();
}

#[test]
fn on_the_virtual_clock_nothing_that_the_daemon_does_takes_time() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("clock");
    let coordinator = Coordinator::create(&page, 1).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attach_and_launch_while_time_stands_still"])
        .env(CLOCK_ENV, &page)
        .env(FOLDER_ENV, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if !coordinator.has_started() {
            coordinator.idle();
        } else if !coordinator.run_one() {
            match coordinator.next_deadline_ns() {
                Some(at_ns) => coordinator.advance_to(at_ns),
                None => coordinator.idle(),
            }
        }
    };
    assert!(status.success());
}

#[test]
fn a_configuration_that_cannot_be_used_ends_with_2_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu0.toml");
    std::fs::write(&path, "[gpu]\nindx = 0\nsharing = \"mps\"\n").unwrap();
    let output = pilliond(&["--config".as_ref(), path.as_ref()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let expected = format!("{}:2:1: unknown key `indx` in [gpu]", path.display());
    assert!(
        text.contains(&expected) && text.contains("nearest is `index`"),
        "{text}"
    );
    let output = pilliond(&["--config".as_ref(), "/nowhere/gpu0.toml".as_ref()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(pilliond(&[]).status.code(), Some(2));
}

#[test]
fn help_shows_an_example() {
    let output = pilliond(&["--help".as_ref()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("pilliond --config /etc/pillion/gpu0.toml"),
        "{text}"
    );
}
