//! The socket: connections, messages, and the end of the program.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use parking_lot::Mutex;
use protocol::hello::{connect_to, listen_whole, receive, send, send_status};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{PidfdFlags, pidfd_open};
use softgpu::wire::{MpsRequest, Reply, Request, WireError};

use crate::world::{CLIENTS_MAX, ClientId, World};

/// CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: the process is of another build.
const SYSTEM_DRIVER_MISMATCH: u32 = 803;
/// CUDA_ERROR_NOT_PERMITTED.
const NOT_PERMITTED: u32 = 800;

/// Most connections at a time, of drivers and of tools.
const CONNECTIONS_MAX: usize = 2 * CLIENTS_MAX;

#[derive(Debug)]
pub(crate) struct Socket {
    listener: OwnedFd,
    path: PathBuf,
    signals: SignalFd,
    connections: BTreeMap<u64, Connection>,
    connection_next: u64,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    pid: Option<u32>,
    uid: Option<u32>,
    /// Readable once the process has ended, even if a child of it still has the socket open.
    process: Option<OwnedFd>,
    client: Option<ClientId>,
    mps: Option<MpsPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MpsPart {
    Control,
    Server(u32),
}

enum Heard {
    Message(u64),
    End(u64),
}

/// Fails if another server listens at `path`. Call before replacing anything that it might use.
pub(crate) fn check_unused(path: &Path) -> anyhow::Result<()> {
    if connect_to(path).is_ok() {
        bail!(
            "another server listens at {}; end it, or choose another path",
            path.display()
        );
    }
    Ok(())
}

impl Socket {
    /// Listens at `path`, replacing a server that has ended. Call before starting threads: it
    /// blocks SIGTERM and SIGINT, which [`Self::serve`] then waits for.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        signals.thread_block().context("cannot block signals")?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)
            .context("cannot create a signal descriptor")?;
        let listener = listen_whole(path, None)
            .with_context(|| format!("cannot listen at {}", path.display()))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            signals,
            connections: BTreeMap::new(),
            connection_next: 0,
        })
    }

    /// Serves until a signal ends the program, and removes the socket's file.
    pub(crate) fn serve(mut self, world: &Mutex<World>) -> io::Result<()> {
        loop {
            let (is_asked_to_end, is_called, heard) = self.listen()?;
            for heard in heard {
                let (id, keep) = match heard {
                    Heard::Message(id) => (id, self.handle_message(id, world)),
                    Heard::End(id) => (id, false),
                };
                if !keep {
                    self.hang_up(id, world);
                }
            }
            // After the clients that ended before the signal, so that they are counted as ended.
            if is_asked_to_end {
                return std::fs::remove_file(&self.path);
            }
            if is_called {
                self.accept();
            }
        }
    }

    fn listen(&self) -> io::Result<(bool, bool, Vec<Heard>)> {
        let fds: Vec<(Option<u64>, BorrowedFd<'_>, bool)> = [
            (None, self.signals.as_fd(), false),
            (None, self.listener.as_fd(), false),
        ]
        .into_iter()
        .chain(self.connections.iter().flat_map(|(&id, connection)| {
            let process = connection
                .process
                .iter()
                .map(move |fd| (Some(id), fd.as_fd(), true));
            process.chain([(Some(id), connection.socket.as_fd(), false)])
        }))
        .collect();
        let mut polled: Vec<PollFd<'_>> = fds
            .iter()
            .map(|(_, fd, _)| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
        let is_ready = |index: usize| !polled[index].revents().is_empty();
        let heard = fds.iter().enumerate().filter(|&(index, _)| is_ready(index));
        let heard = heard.filter_map(|(_, &(id, _, is_process))| {
            Some(if is_process {
                Heard::End(id?)
            } else {
                Heard::Message(id?)
            })
        });
        Ok((is_ready(0), is_ready(1), heard.collect()))
    }

    fn accept(&mut self) {
        // A caller that hung up, or one too many, is no reason to end.
        let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC) else {
            return;
        };
        if self.connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let peer = socket_peercred(&socket).ok();
        let process = peer.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()).ok());
        let connection = Connection {
            socket: Arc::new(socket),
            pid: peer.and_then(|peer| peer.pid.as_raw_nonzero().get().try_into().ok()),
            uid: peer.map(|peer| peer.uid.as_raw()),
            process,
            client: None,
            mps: None,
        };
        self.connections.insert(self.connection_next, connection);
        self.connection_next += 1;
    }

    /// Handles a message; returns whether the connection continues.
    fn handle_message(&mut self, id: u64, world: &Mutex<World>) -> bool {
        // The connection may have ended earlier in this round.
        let Some(connection) = self.connections.get_mut(&id) else {
            return true;
        };
        let Ok((packet, fds)) = receive(&connection.socket) else {
            return false;
        };
        let request = match Request::decode(&packet) {
            Ok(request) => request,
            Err(WireError::Version(_)) => {
                // A reply of this version shows the peer the version.
                let code = SYSTEM_DRIVER_MISMATCH;
                let _ = send(&connection.socket, &Reply::Refused { code }.encode(), &[]);
                return false;
            }
            Err(_) => return false,
        };
        match (connection.client, request) {
            (None, Request::Hello { label }) => {
                connection.welcome(&label, fds.into_iter().next(), world)
            }
            (None, Request::Stats) => {
                let stats = world.lock().stats();
                let _ = send_status(&connection.socket, &stats);
                false
            }
            (None, Request::Monitor) => {
                let monitor = world.lock().monitor();
                let _ = send(&connection.socket, &Reply::Monitor(monitor).encode(), &[]);
                false
            }
            (None, Request::Inject(fault)) => {
                world.lock().inject(&fault);
                let _ = send(&connection.socket, &Reply::Done.encode(), &[]);
                false
            }
            (None, Request::Mps(request)) => connection.handle_mps(request, world),
            (Some(client), request) => {
                let reply = world.lock().handle_request(client, &request);
                reply.is_some_and(|reply| send(&connection.socket, &reply.encode(), &[]).is_ok())
            }
            (None, _) => false,
        }
    }

    fn hang_up(&mut self, id: u64, world: &Mutex<World>) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if let Some(client) = connection.client {
            world.lock().remove_client(client);
        }
        match connection.mps {
            Some(MpsPart::Control) => world.lock().remove_mps_control(),
            Some(MpsPart::Server(pid)) => world.lock().remove_mps_server(pid),
            None => {}
        }
    }
}

impl Connection {
    fn welcome(&mut self, label: &str, host: Option<OwnedFd>, world: &Mutex<World>) -> bool {
        let added = world
            .lock()
            .add_client(label, self.pid, Arc::clone(&self.socket), host);
        let Ok((client, reply, fds)) = added else {
            return false;
        };
        self.client = Some(client);
        world.lock().note_user(client, self.uid);
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        send(&self.socket, &reply.encode(), &fds).is_ok()
    }

    fn handle_mps(&mut self, request: MpsRequest, world: &Mutex<World>) -> bool {
        let mut world = world.lock();
        let is_taken = match request {
            MpsRequest::Control => {
                let is_taken = world.try_add_mps_control(&self.socket);
                self.mps = is_taken.then_some(MpsPart::Control);
                is_taken
            }
            MpsRequest::NotStarted => {
                if self.mps == Some(MpsPart::Control) {
                    world.handle_mps_not_started();
                }
                return self.mps == Some(MpsPart::Control);
            }
            MpsRequest::Server => {
                let peer = self.pid.zip(self.uid);
                let server = peer.filter(|&(pid, uid)| world.try_add_mps_server(pid, uid));
                self.mps = server.map(|(pid, _)| MpsPart::Server(pid));
                self.mps.is_some()
            }
            MpsRequest::Clients => {
                let clients = Reply::MpsClients(world.mps_clients());
                let _ = send(&self.socket, &clients.encode(), &[]);
                return false;
            }
            MpsRequest::End { server } => world.try_end_mps_server(server),
        };
        let reply = match is_taken {
            true => Reply::Done,
            false => Reply::Refused {
                code: NOT_PERMITTED,
            },
        };
        send(&self.socket, &reply.encode(), &[]).is_ok() && self.mps.is_some()
    }
}
