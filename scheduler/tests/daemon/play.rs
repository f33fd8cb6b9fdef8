//! The daemon in a thread, and clients that speak the protocol as the library does.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};

use protocol::clock::Clock;
use protocol::hello::{Attach, JobClass, Reply, Request, ask_status, connect_to, receive, send};
use protocol::lease::{Refusal, announce};
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage};
use protocol::record::{Launch, Record};
use protocol::segment::{Access, Mapping, client_page};
use protocol::sync::Ordering;
use scheduler::daemon::{DaemonError, Stopper};
use scheduler::{Config, Daemon, Gpu};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const UUID: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

pub(crate) struct Running {
    folder: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), DaemonError>>>,
}

pub(crate) fn gpu() -> Gpu {
    Gpu {
        uuid: UUID.to_owned(),
        name: "V100-SXM2-16GB".to_owned(),
        pci: "0000:04:00.0".parse().unwrap(),
        sms: 80,
        memory_bytes: 16 << 30,
        cuda_driver: 12_080,
        block_priority: None,
    }
}

pub(crate) fn start_at(socket: &Path) -> Result<Daemon, DaemonError> {
    start_with(socket, "")
}

fn start_with(socket: &Path, sections: &str) -> Result<Daemon, DaemonError> {
    let text = format!(
        "[gpu]\nindex = 0\nsharing = \"mps\"\n[policy]\nname = \"orion\"\nresidual_us = 100\n{sections}"
    );
    let config = Config::check(Path::new("gpu0.toml"), &text).unwrap();
    Daemon::start(&config, gpu(), socket, Clock::process())
}

impl Running {
    pub(crate) fn new() -> Self {
        Self::open_to_all("")
    }

    /// With more sections, at a socket that every user can reach if it is root's.
    pub(crate) fn open_to_all(sections: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let daemon = start_with(&folder.path().join("gpu.sock"), sections).unwrap();
        Self {
            folder,
            stopper: daemon.stopper(),
            thread: Some(thread::spawn(|| daemon.run())),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("gpu.sock")
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&ask_status(&self.socket()).unwrap()).unwrap()
    }

    pub(crate) fn status_when(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let status = self.status();
            if is_so(&status) {
                return status;
            }
            pause();
        }
    }

    pub(crate) fn stop(&mut self) {
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

pub(crate) fn pause() {
    let clock = Clock::monotonic();
    clock.sleep_until(clock.now_ns() + 200_000);
}

pub(crate) struct Client {
    pub(crate) number: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) daemon: Mapping<DaemonPage>,
    pub(crate) hp: Mapping<HpPage>,
    pub(crate) bell: Mapping<BellPage>,
    pub(crate) page: Mapping<ClientPage>,
    pub(crate) lease: Option<Mapping<LeasePage>>,
    pub(crate) hp_fd: OwnedFd,
    pub(crate) daemon_fd: OwnedFd,
}

pub(crate) fn attach(socket: &Path, class: JobClass, job: &str) -> Client {
    attach_as(socket, class, job, Request::encode)
}

fn request(class: JobClass, job: &str, device: &str) -> Request {
    Request::Attach(Attach {
        class,
        job: job.to_owned(),
        name: "python".to_owned(),
        profile: "/profiles/resnet50.toml".to_owned(),
        profile_fit: "measured elsewhere".to_owned(),
        device: device.to_owned(),
        memory: Some(String::new()),
        ..Attach::default()
    })
}

/// Why the daemon refuses a process that uses this device, if it does.
pub(crate) fn reason_not_to_serve(running: &Running, device: &str) -> Option<String> {
    let socket = connect_to(&running.socket()).unwrap();
    let packet = request(JobClass::BestEffort, "train", device).encode();
    let (page_fd, _page) = client_page(&Clock::process()).unwrap();
    send(&socket, &packet, &[page_fd.as_fd()]).unwrap();
    match Reply::decode(&receive(&socket).unwrap().0).unwrap() {
        Reply::Welcome { .. } => None,
        Reply::Refused { reason } => Some(reason),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn attach_as(
    socket: &Path,
    class: JobClass,
    job: &str,
    encode: impl FnOnce(&Request) -> Vec<u8>,
) -> Client {
    let connection = connect_to(socket).unwrap();
    let packet = encode(&request(class, job, UUID));
    let (page_fd, page) = client_page(&Clock::process()).unwrap();
    send(&connection, &packet, &[page_fd.as_fd()]).unwrap();
    let (packet, fds) = receive(&connection).unwrap();
    let reply = Reply::decode(&packet).unwrap();
    let Reply::Welcome { client, .. } = reply else {
        panic!("{reply:?}");
    };
    let mut fds = fds.into_iter();
    let mut next = || fds.next().unwrap();
    let (daemon_fd, hp_fd, bell_fd) = (next(), next(), next());
    let hp_access = match class {
        JobClass::HighPriority => Access::ReadWrite,
        JobClass::BestEffort => Access::Read,
    };
    // As the launching thread does before its first record.
    page.ring_owner[0].store(1, Ordering::Relaxed);
    Client {
        number: client,
        socket: connection,
        daemon: Mapping::open(&daemon_fd, Access::Read).unwrap(),
        hp: Mapping::open(&hp_fd, hp_access).unwrap(),
        bell: Mapping::open(bell_fd, Access::ReadWrite).unwrap(),
        page,
        lease: fds
            .next()
            .filter(|_| class == JobClass::BestEffort)
            .map(|fd| Mapping::open(fd, Access::ReadWrite).unwrap()),
        hp_fd,
        daemon_fd,
    }
}

impl Client {
    /// Waits at the gate, as the library does, until a compute kernel of that cost is charged.
    pub(crate) fn launch_when_allowed(&self, cost_ns: u64) {
        let clock = Clock::process();
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

    pub(crate) fn try_launch(&self, cost_ns: u64) -> Result<bool, Refusal> {
        let lease = self.lease.as_ref().unwrap();
        let now_ns = Clock::process().now_ns();
        let charged = &self.page.charged_ns;
        let terms = lease.try_charge(charged, &self.hp, now_ns, cost_ns, |terms, left_ns| {
            left_ns > 0 && terms.class_bits() & 1 != 0
        })?;
        Ok(terms.ungated())
    }

    pub(crate) fn launch_hp(&self, seq: u64) {
        let launch = Record::Launch(Launch {
            stream: 0,
            seq,
            kernel: 1,
            expected_ns: 1_000_000,
            sm_needed: 80,
            class: 1,
            at_ns: 0,
        });
        self.page.rings[0].push(&launch.encode()).unwrap();
        announce(&self.daemon, &self.hp);
    }

    pub(crate) fn complete_hp(&self, seq: u64) {
        let complete = Record::Complete {
            stream: 0,
            seq,
            at_ns: 0,
        };
        self.page.rings[0].push(&complete.encode()).unwrap();
    }
}

pub(crate) fn pilliond(arguments: &[&OsStr]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilliond"))
        .args(arguments)
        .env_remove("PILLION_SOCKET")
        .output()
        .unwrap()
}
