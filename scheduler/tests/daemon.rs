//! The whole daemon in this process, with clients that speak the protocol as the library does, and
//! `pilliond` as a process where only its command line matters.
//!
//! Time here is real: each test waits for what must happen, without a bound of its own.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use protocol::VERSION;
use protocol::clock::Clock;
use protocol::hello::{Attach, JobClass, Reply, Request, ask_status, connect_to, receive, send};
use protocol::lease::{Refusal, announce};
use protocol::pages::{BellPage, ClientPage, Counter, DaemonPage, HpPage, LeasePage, PAGE_MAGIC};
use protocol::record::{Launch, Record};
use protocol::segment::{Access, Mapping};
use protocol::sync::Ordering;
use scheduler::daemon::{DaemonError, Stopper};
use scheduler::{Config, Daemon, Gpu};
use serde_json::Value;
use tempfile::TempDir;

const UUID: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

/// A daemon that runs in a thread until dropped.
struct Running {
    folder: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
}

fn gpu() -> Gpu {
    Gpu {
        uuid: UUID.to_owned(),
        name: "V100-SXM2-16GB".to_owned(),
        pci: "0000:04:00.0".parse().unwrap(),
        sms: 80,
    }
}

fn start_at(socket: &Path) -> Result<Daemon, DaemonError> {
    let text = "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nresidual_us = 100\n";
    let config = Config::check(Path::new("gpu0.toml"), text).unwrap();
    Daemon::start(&config, gpu(), socket, Clock::monotonic())
}

impl Running {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let daemon = start_at(&folder.path().join("gpu.sock")).unwrap();
        Self {
            folder,
            stopper: daemon.stopper(),
            thread: Some(thread::spawn(|| daemon.run())),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("gpu.sock")
    }

    fn status(&self) -> Value {
        serde_json::from_str(&ask_status(&self.socket()).unwrap()).unwrap()
    }

    /// The status, once it is so.
    fn status_when(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            pause();
        }
    }

    fn stop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets the daemon's threads run before the next look.
fn pause() {
    let clock = Clock::monotonic();
    clock.sleep_until(clock.now_ns() + 200_000);
}

/// An attached client, as the library in this process would be.
struct Client {
    number: u64,
    socket: OwnedFd,
    daemon: Mapping<DaemonPage>,
    hp: Mapping<HpPage>,
    bell: Mapping<BellPage>,
    page: Mapping<ClientPage>,
    lease: Option<Mapping<LeasePage>>,
    hp_fd: OwnedFd,
    daemon_fd: OwnedFd,
}

fn attach(socket: &Path, class: JobClass, job: &str) -> Client {
    let connection = connect_to(socket).unwrap();
    let request = Request::Attach(Attach {
        class,
        job: job.to_owned(),
        name: "python".to_owned(),
        profile: "/profiles/resnet50.toml".to_owned(),
    });
    send(&connection, &request.encode(), &[]).unwrap();
    let (packet, fds) = receive(&connection).unwrap();
    let reply = Reply::decode(&packet).unwrap();
    let Reply::Welcome { client } = reply else {
        panic!("{reply:?}");
    };
    let mut fds = fds.into_iter();
    let mut next = || fds.next().unwrap();
    let (daemon_fd, hp_fd, bell_fd, page_fd) = (next(), next(), next(), next());
    let hp_access = match class {
        JobClass::HighPriority => Access::ReadWrite,
        JobClass::BestEffort => Access::Read,
    };
    Client {
        number: client,
        socket: connection,
        daemon: Mapping::open(&daemon_fd, Access::Read).unwrap(),
        hp: Mapping::open(&hp_fd, hp_access).unwrap(),
        bell: Mapping::open(bell_fd, Access::ReadWrite).unwrap(),
        page: Mapping::open(page_fd, Access::ReadWrite).unwrap(),
        lease: fds
            .next()
            .map(|fd| Mapping::open(fd, Access::ReadWrite).unwrap()),
        hp_fd,
        daemon_fd,
    }
}

impl Client {
    /// Waits at the gate, as the library does, until a compute kernel of that cost is charged.
    fn launch_when_allowed(&self, cost_ns: u64) {
        let clock = Clock::monotonic();
        let lease = self.lease.as_ref().unwrap();
        loop {
            let seen = lease.bell.read();
            if self.try_launch(cost_ns).is_ok() {
                return;
            }
            self.page.waiting.fetch_add(1, Ordering::SeqCst);
            self.bell.bell.ring(&clock);
            lease.bell.wait(&clock, seen, None);
            self.page.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn try_launch(&self, cost_ns: u64) -> Result<bool, Refusal> {
        let lease = self.lease.as_ref().unwrap();
        let now_ns = Clock::monotonic().now_ns();
        let charged = &self.page.charged_ns;
        let terms = lease.try_charge(charged, &self.hp, now_ns, cost_ns, |terms, left_ns| {
            left_ns > 0 && terms.class_bits() & 1 != 0
        })?;
        Ok(terms.ungated())
    }

    fn launch_hp(&self, seq: u64) {
        let launch = Record::Launch(Launch {
            stream: 0,
            seq,
            kernel: 1,
            expected_ns: 1_000_000,
            sm_needed: 80,
            class: 1,
        });
        self.page.rings[0].push(&launch.encode()).unwrap();
        announce(&self.daemon, &self.hp);
    }

    fn complete_hp(&self, seq: u64) {
        let complete = Record::Complete { stream: 0, seq };
        self.page.rings[0].push(&complete.encode()).unwrap();
    }
}

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
    // From here on nothing of the same class goes, whenever the daemon looks.
    assert!(be.try_launch(10_000).is_err());
    let status = running.status_when(|status| status["jobs"][0]["lease"]["beside_hp"] == true);
    assert_eq!(status["hp"]["executing"], serde_json::json!(["compute"]));
    assert_eq!(
        status["jobs"][0]["lease"]["classes"],
        serde_json::json!(["memory", "unknown"])
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
    // A goodbye that is answered: the connection ends after the client was forgotten.
    rustix::net::shutdown(&be.socket, rustix::net::Shutdown::Write).unwrap();
    assert!(receive(&be.socket).unwrap().0.is_empty());
    let status = running.status();
    let job = &status["jobs"][1];
    assert_eq!(
        (&job["job"], &job["clients"]),
        (&"train".into(), &serde_json::json!([]))
    );
    assert_eq!(job["totals"]["launches"], 1);
    assert_eq!(job["in_flight_ns"], 0);
    assert!(job["ended_ns"].is_u64());
}

/// Names the daemon's socket for [`a_process_that_leaves_its_connection_to_a_child`].
const CHILD_ENV: &str = "PILLION_TEST_ATTACH_TO";

#[test]
#[ignore = "a part of the next test, in a process of its own"]
fn a_process_that_leaves_its_connection_to_a_child() {
    let socket = PathBuf::from(std::env::var_os(CHILD_ENV).unwrap());
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
    // The grandchild reads what this process could write, so it lives until that is dropped.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "a_process_that_leaves_its_connection_to_a_child",
        ])
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
            "the client speaks protocol {}.0, this daemon {VERSION}",
            VERSION.major + 1
        ),
    };
    assert_eq!(Reply::decode(&packet).unwrap(), expected);
    assert!(receive(&socket).unwrap().0.is_empty());
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
    let expected = format!("GPU {UUID} is held by pilliond pid {}", std::process::id());
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
    running.status_when(|status| status["jobs"][0]["clients"] == serde_json::json!([]));
    while be.daemon.asleep.load(Ordering::Relaxed) == 0 {
        pause();
    }
    let heartbeat_ns = be.daemon.heartbeat_ns.load(Ordering::Relaxed);
    for _ in 0..50 {
        pause();
    }
    assert_eq!(be.daemon.heartbeat_ns.load(Ordering::Relaxed), heartbeat_ns);
    running.status();
}

fn pilliond(arguments: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilliond"))
        .args(arguments)
        .env_remove("PILLION_SOCKET")
        .output()
        .unwrap()
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
