//! The control daemon: its socket, its servers, in one thread. One server runs at a time, for one
//! user. A request for another user's server goes into a list of pending ones: the running server
//! ends when it has no clients, and the next one is started (NVIDIA's man page; `start_server` was
//! seen to do the same). The device server reports when a client needs a server. If a server wanted
//! by a client does not start, the daemon tries six times, as NVIDIA's was seen to do.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use protocol::clock::Clock;
use protocol::hello::{listen_whole, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use softgpu::wire::MpsRequest;

use crate::device;
use crate::front::{COMMAND, ENDED, GO_ON};
use crate::log::{self, Log};
use crate::process::Process;
use crate::release::Release;
use crate::settings::Settings;

/// Most programs connected at a time.
const FRONTS_MAX: usize = 64;
/// Most pending servers at a time.
const PENDING_MAX: usize = 64;
/// Poll interval for the end of a server's clients, while a request waits for that, ns.
const LOOK_NS: i64 = 5_000_000;
const TRIES: u32 = 6;

#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) release: Release,
    pub(crate) log: Log,
    server_log: Log,
    pid_file: PathBuf,
    /// Locked for the daemon's whole life.
    _lock: File,
    listener: OwnedFd,
    fronts: BTreeMap<u64, Front>,
    front_next: u64,
    device: Option<OwnedFd>,
    pub(crate) server: Option<Process>,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) settings: Settings,
    pub(crate) quit: Option<Quit>,
}

#[derive(Debug)]
struct Front {
    socket: OwnedFd,
    uid: u32,
}

#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) uid: u32,
    pub(crate) tries_left: u32,
    /// Wanted by a client, which is notified if it does not start.
    pub(crate) is_of_client: bool,
}

/// A pending exit, after the servers have ended.
#[derive(Debug)]
pub(crate) struct Quit {
    front: u64,
    /// When a server that has not ended is killed, on the monotonic clock.
    force_ns: Option<u64>,
    status: u8,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    Listener,
    Device,
    ServerReady,
    ServerEnded,
    Front(u64),
}

impl Daemon {
    /// Takes possession of the folder of the pipes. An error is in NVIDIA's words.
    pub(crate) fn open(
        pipes: &Path,
        release: Release,
        is_background: bool,
    ) -> Result<Self, String> {
        let no_access = || {
            let folder = pipes.display();
            format!("Cannot access CUDA_MPS_PIPE_DIRECTORY={folder}")
        };
        if !pipes.is_dir() {
            std::fs::create_dir(pipes).map_err(|_| no_access())?;
            let _ = std::fs::set_permissions(pipes, Permissions::from_mode(0o777));
        }
        let path = pipes.join("control_lock");
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let lock = lock.map_err(|_| no_access())?;
        let _ = std::fs::set_permissions(&path, Permissions::from_mode(0o666));
        fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| "An instance of this daemon is already running".to_owned())?;
        let socket = pipes.join("control");
        let listener = listen_whole(&socket, Some(0o666)).map_err(|_| no_access())?;
        let pid_file = pipes.join("nvidia-cuda-mps-control.pid");
        if release.has_pid_file() {
            let written = std::fs::write(&pid_file, format!("{}\n", std::process::id()));
            written.map_err(|_| no_access())?;
            let _ = std::fs::set_permissions(&pid_file, Permissions::from_mode(0o666));
        }
        let [log, server_log] = match is_background {
            true => Log::both_in_files(),
            false => Log::both_on_stdout(),
        };
        if !log.is_there() {
            println!(
                "Warning: Failed writing log files to directory [{}]. No logs will be available.",
                log::folder().display()
            );
        }
        log.write(&format!(
            "Starting control daemon using socket {}",
            socket.display()
        ));
        log.write(&format!(
            "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
            pipes.display()
        ));
        Ok(Self {
            release,
            log,
            server_log,
            pid_file,
            _lock: lock,
            listener,
            fronts: BTreeMap::new(),
            front_next: 0,
            device: None,
            server: None,
            pending: VecDeque::new(),
            settings: Settings::default(),
            quit: None,
        })
    }

    pub(crate) fn run(mut self) -> ExitCode {
        self.find_device();
        loop {
            self.care_for_servers();
            if let Some(status) = self.try_quit() {
                return status.into();
            }
            let Ok(sources) = self.listen() else {
                return ExitCode::FAILURE;
            };
            for source in sources {
                self.handle(source);
            }
        }
    }

    fn find_device(&mut self) {
        if self.device.is_none() && self.quit.is_none() {
            self.device = device::register(MpsRequest::Control).ok();
        }
    }

    fn listen(&self) -> rustix::io::Result<Vec<Source>> {
        let server = self.server.iter();
        let server = server.flat_map(|server| {
            let ready = server.ready.iter();
            let ready = ready.map(|ready| (Source::ServerReady, ready.as_fd()));
            ready.chain([(Source::ServerEnded, server.ended.as_fd())])
        });
        let device = self.device.iter();
        let device = device.map(|device| (Source::Device, device.as_fd()));
        let fronts = self.fronts.iter();
        let fronts = fronts.map(|(&id, front)| (Source::Front(id), front.socket.as_fd()));
        let sources = [(Source::Listener, self.listener.as_fd())].into_iter();
        let sources = sources.chain(device).chain(server).chain(fronts);
        let sources: Vec<(Source, BorrowedFd<'_>)> = sources.collect();
        let polled = sources.iter();
        let polled = polled.map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_NS,
        };
        let timeout = self.is_waiting().then_some(&look);
        rustix::io::retry_on_intr(|| poll(&mut polled, timeout))?;
        let said = sources.iter().zip(&polled);
        let said = said.filter(|(_, polled)| !polled.revents().is_empty());
        Ok(said.map(|((source, _), _)| *source).collect())
    }

    /// Whether it waits for the end of a server's clients, which must be polled.
    fn is_waiting(&self) -> bool {
        let is_to_end = self.server.as_ref().is_some_and(|server| server.is_to_end);
        is_to_end || !self.pending.is_empty() || self.quit.is_some()
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Listener => self.accept(),
            Source::Device => self.handle_device(),
            Source::ServerReady => self.handle_ready(),
            Source::ServerEnded => self.handle_ended(),
            Source::Front(id) => self.handle_front(id),
        }
    }

    fn accept(&mut self) {
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        let Ok(peer) = socket_peercred(&socket) else {
            return;
        };
        if self.fronts.len() >= FRONTS_MAX {
            return;
        }
        self.find_device();
        self.log.write("Accepting connection...");
        self.log.write("NEW UI");
        let uid = peer.uid.as_raw();
        self.fronts.insert(self.front_next, Front { socket, uid });
        self.front_next += 1;
    }

    fn handle_device(&mut self) {
        let uid = self.device.as_ref().map(device::wanted);
        let Some(Ok(uid)) = uid else {
            self.device = None;
            return;
        };
        self.log.write("Accepting connection...");
        self.log.write(&format!(
            "NEW CLIENT 0 from user {uid}: Server is not ready, push client to pending list"
        ));
        self.await_server(Pending {
            uid,
            tries_left: TRIES,
            is_of_client: true,
        });
    }

    pub(crate) fn await_server(&mut self, pending: Pending) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(pending);
        }
    }

    fn handle_ready(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        let ready = server.ready.as_ref();
        let said = ready.and_then(|ready| rustix::io::read(ready, &mut [0; 16]).ok());
        // A server that closes without output is about to end.
        if said.unwrap_or(0) > 0 {
            server.ready = None;
            let pid = server.pid();
            self.log.write(&format!("NEW SERVER {pid}: Ready"));
            self.pending.pop_front();
        }
    }

    fn handle_ended(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let status = server.status();
        if status != 0 {
            let line = "Server encountered a fatal exception. Shutting down";
            self.log.write(line);
        }
        let pid = server.pid();
        self.log
            .write(&format!("Server {pid} exited with status {status}"));
        self.log.write("Removed Shm file at ");
        if !server.is_ready() {
            self.handle_not_started();
        }
        if let Some(quit) = &mut self.quit {
            quit.status |= u8::from(status != 0 || server.is_forced);
        }
    }

    /// Handles a pending server that did not start.
    fn handle_not_started(&mut self) {
        let Some(pending) = self.pending.front_mut() else {
            return;
        };
        pending.tries_left -= 1;
        if pending.tries_left > 0 {
            return;
        }
        if pending.is_of_client
            && let Some(device) = &self.device
        {
            device::tell(device, MpsRequest::NotStarted);
        }
        self.pending.pop_front();
    }

    fn handle_front(&mut self, id: u64) {
        let Some(front) = self.fronts.get(&id) else {
            return;
        };
        let (packet, uid) = (receive(&front.socket), front.uid);
        let packet = packet.map(|(packet, _)| packet).unwrap_or_default();
        let Some((&COMMAND, line)) = packet.split_first() else {
            self.log.write("UI closed");
            self.fronts.remove(&id);
            return;
        };
        let line = String::from_utf8_lossy(line);
        self.log.write(&format!("Cmd:{line}"));
        let Some(answer) = self.answer(&line, id, uid) else {
            return;
        };
        answer.lines().for_each(|line| self.log.write(line));
        let packet = [&[GO_ON], answer.as_bytes()].concat();
        if let Some(front) = self.fronts.get(&id) {
            let _ = send(&front.socket, &packet, &[]);
        }
    }

    /// Accepts no more clients, and exits when the servers have ended.
    pub(crate) fn begin_to_quit(&mut self, front: u64, patience_s: Option<u64>) {
        let now_ns = Clock::monotonic().now_ns();
        let force_ns = |s: u64| now_ns.saturating_add(s.saturating_mul(1_000_000_000));
        self.quit = Some(Quit {
            front,
            force_ns: patience_s.map(force_ns),
            status: 0,
        });
        self.device = None;
        self.pending.clear();
    }

    /// Starts, ends and kills servers when due.
    fn care_for_servers(&mut self) {
        let Some(server) = &mut self.server else {
            self.start_pending();
            return;
        };
        let force_ns = self.quit.as_ref().and_then(|quit| quit.force_ns);
        let is_late = force_ns.is_some_and(|force_ns| Clock::monotonic().now_ns() >= force_ns);
        if is_late && !server.is_forced {
            let pid = server.pid();
            self.log.write(&format!("Force shutting down server {pid}"));
            server.force();
        }
        if !server.is_ready() {
            return;
        }
        while self
            .pending
            .front()
            .is_some_and(|next| next.uid == server.uid && !server.is_to_end)
        {
            self.pending.pop_front();
        }
        server.is_to_end |= self.quit.is_some() || !self.pending.is_empty();
        // Without a device there are no clients.
        if server.is_to_end && device::try_end(server.pid()).unwrap_or(true) {
            server.tell_to_end();
        }
    }

    fn start_pending(&mut self) {
        let Some(uid) = self.pending.front().map(|pending| pending.uid) else {
            return;
        };
        match Process::start(uid, self.settings.percentage(), &self.server_log) {
            Ok(server) => {
                let pid = server.pid();
                self.log
                    .write(&format!("Starting new server {pid} for user {uid}"));
                self.server = Some(server);
            }
            Err(error) => {
                let line = format!("Failed to start server using uid {uid}, error: {error}");
                self.log.write(&line);
                self.handle_not_started();
            }
        }
    }

    /// The exit status, once it may exit.
    fn try_quit(&mut self) -> Option<u8> {
        if self.server.is_some() {
            return None;
        }
        let quit = self.quit.take()?;
        let status = quit.status;
        self.log.write(&format!("Exit with status {status}"));
        let _ = std::fs::remove_file(&self.pid_file);
        if let Some(front) = self.fronts.get(&quit.front) {
            let _ = send(&front.socket, &[ENDED, status], &[]);
        }
        Some(status)
    }
}
