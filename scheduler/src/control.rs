//! The thread that talks with clients: accepts, answers, notices their end.
//!
//! It runs in real time and never waits for the poll thread: on the virtual clock a client keeps the
//! processor while it waits for our reply, so the poll thread cannot run meanwhile. The state is
//! changed here, under its lock, and the poll thread's bell rung, *before* the reply leaves.
//!
//! A client ends with its connection, or with its process (a pidfd): a child that was forked keeps
//! the connection open, and a connection cannot outlive what it is for. Either is noticed at once. A
//! client that must know that it has been forgotten (on the virtual clock, where the moment must not
//! be left to chance) shuts its side down and reads until the end: ours is closed last.
//!
//! Nobody can stop this thread: sockets do not block, a connection that says nothing costs a place
//! in a bounded queue, and a status goes out on a thread of its own.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use protocol::VERSION;
use protocol::hello::{
    Attach, HelloError, JobClass, MemoryOf, Reply, Request, Set, receive, send, send_status,
};
use protocol::quota::Quota;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::daemon::Shared;
use crate::ledgers::{Image, LedgerError, Opened};
use crate::pages::{GpuFds, client_page, lease_page};
use crate::socket::Seat;
use crate::state::{JobKey, NewPages, Peer, TurnedAway, job_key};
use crate::status::{Identity, Status};

/// Connections that have not said yet what they want. The oldest is dropped for another.
const UNHEARD_MAX: usize = 64;

/// Statuses being sent at once.
const STATUS_THREADS_MAX: usize = 8;

/// How long somebody who asked for a status may take to read it.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// How long no connection is accepted after the system had no descriptor left for one.
const ACCEPT_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// The control thread's own.
pub(crate) struct Control {
    shared: Arc<Shared>,
    seat: Seat,
    fds: GpuFds,
    identity: Identity,
    unheard: VecDeque<OwnedFd>,
    clients: Vec<Connection>,
    /// The system had no descriptor left.
    is_accept_paused: bool,
    status_threads: Arc<AtomicUsize>,
}

/// An attached client's.
struct Connection {
    client: u64,
    /// Its job and slot, if it keeps an account of its memory.
    account: Option<(JobKey, u16)>,
    socket: OwnedFd,
    /// None where its process cannot be seen from here.
    process: Option<OwnedFd>,
}

/// An attached client's number, and its account.
type Welcomed = (u64, Option<(JobKey, u16)>);

/// Which descriptor is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Stop,
    Listener,
    Unheard(usize),
    ClientSocket(usize),
    ClientProcess(usize),
}

impl Control {
    pub(crate) fn new(
        shared: Arc<Shared>,
        seat: Seat,
        fds: GpuFds,
        identity: Identity,
    ) -> io::Result<Self> {
        // A connection that is gone again when we accept must not make us wait for the next.
        ioctl_fionbio(seat.listener(), true)?;
        Ok(Self {
            shared,
            seat,
            fds,
            identity,
            unheard: VecDeque::new(),
            clients: Vec::new(),
            is_accept_paused: false,
            status_threads: Arc::new(AtomicUsize::new(0)),
        })
    }

    /// Serves until told to stop. The socket is gone when this returns.
    pub(crate) fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    // Only for want of memory; nobody could be served.
                    tracing::error!("waiting for clients: {error}");
                    return;
                }
            };
            // From the last to the first, so that removing one leaves the places of the rest.
            for ready in ready.into_iter().rev() {
                match ready {
                    Ready::Stop => return,
                    Ready::Listener => self.accept(),
                    Ready::Unheard(place) => self.hear(place),
                    Ready::ClientSocket(place) => self.hear_client(place),
                    Ready::ClientProcess(place) => self.end_client(place, "its process ended"),
                }
            }
        }
    }

    /// What is ready, each client once, clients last and in order.
    fn wait(&mut self) -> io::Result<Vec<Ready>> {
        let mut sources = vec![(Ready::Stop, self.shared.stop_fd())];
        let is_paused = std::mem::take(&mut self.is_accept_paused);
        if !is_paused {
            sources.push((Ready::Listener, self.seat.listener().as_fd()));
        }
        let unheard = self.unheard.iter().enumerate();
        sources.extend(unheard.map(|(place, socket)| (Ready::Unheard(place), socket.as_fd())));
        for (place, connection) in self.clients.iter().enumerate() {
            sources.push((Ready::ClientSocket(place), connection.socket.as_fd()));
            if let Some(process) = &connection.process {
                sources.push((Ready::ClientProcess(place), process.as_fd()));
            }
        }
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd)| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = is_paused.then_some(&ACCEPT_PAUSE);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        let mut ready: Vec<Ready> = ready.map(|((source, _), _)| *source).collect();
        // A client whose process has ended usually has both: the second would name another's place.
        ready.dedup_by(|next, first| match (*first, *next) {
            (Ready::ClientSocket(a), Ready::ClientProcess(b)) if a == b => {
                *first = Ready::ClientProcess(a);
                true
            }
            _ => false,
        });
        Ok(ready)
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(self.seat.listener(), flags) {
            Ok(socket) => {
                if self.unheard.len() >= UNHEARD_MAX {
                    self.unheard.pop_front();
                }
                self.unheard.push_back(socket);
            }
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                tracing::warn!("accepting a connection: {error}");
                self.is_accept_paused = true;
            }
            // Gone again, or interrupted: the next call of poll tells.
            Err(_) => {}
        }
    }

    /// A new connection says what it wants.
    fn hear(&mut self, place: usize) {
        let Some(socket) = self.unheard.remove(place) else {
            return;
        };
        let packet = match receive(&socket) {
            Ok((packet, _)) if packet.is_empty() => return,
            Ok((packet, _)) => packet,
            Err(_) => return,
        };
        match Request::decode(&packet) {
            Ok(Request::Status) => self.send_status(socket),
            Ok(Request::Attach(attach)) => self.attach(socket, attach),
            Ok(Request::Set(set)) => self.set(&socket, &set),
            Ok(Request::Memory(of)) => self.tell_memory(&socket, &of),
            Err(HelloError::Version { peer }) => {
                let reason = format!("the client speaks protocol {peer}, this daemon {VERSION}");
                self.turn_away_unknown(&socket, reason);
            }
            Err(error) => self.turn_away_unknown(&socket, error.to_string()),
        }
    }

    fn attach(&mut self, socket: OwnedFd, attach: Attach) {
        let (peer, process) = match peer_of(&socket) {
            Ok(found) => found,
            Err(error) => return refuse(&socket, format!("who you are cannot be seen: {error}")),
        };
        let class = attach.class;
        let (name, job) = (attach.name.clone(), attach.job.clone());
        let who = format!("{} job {:?} pid {}", class.name(), attach.job, peer.pid);
        match self.try_attach(&socket, peer, attach, process.as_ref()) {
            Ok((client, account)) => {
                tracing::info!(client, "attached: {who}");
                self.clients.push(Connection {
                    client,
                    account,
                    socket,
                    process,
                });
            }
            Err(reason) => {
                tracing::warn!("refused: {who}: {reason}");
                self.turn_away(&socket, peer, (name, job), reason);
            }
        }
    }

    /// Refuses a process that did not come to say who it is.
    fn turn_away_unknown(&self, socket: &OwnedFd, reason: String) {
        match peer_of(socket) {
            Ok((peer, _)) => self.turn_away(socket, peer, Default::default(), reason),
            Err(_) => refuse(socket, reason),
        }
    }

    /// Refuses a process, and remembers it for the status.
    fn turn_away(
        &self,
        socket: &OwnedFd,
        peer: Peer,
        (name, job): (String, String),
        reason: String,
    ) {
        self.shared.state().handle_turned_away(TurnedAway {
            pid: peer.pid,
            uid: peer.uid,
            name,
            job,
            attached: false,
            reason: reason.clone(),
            at_ns: self.shared.clock().now_ns(),
        });
        refuse(socket, reason);
    }

    /// Makes the client's pages, adds it to the state, wakes the poll thread, and only then says
    /// welcome.
    fn try_attach(
        &self,
        socket: &OwnedFd,
        peer: Peer,
        attach: Attach,
        process: Option<&OwnedFd>,
    ) -> Result<Welcomed, String> {
        self.check_device(&attach)?;
        let class = attach.class;
        let clock = self.shared.clock();
        let no_memory = |error: io::Error| format!("no shared memory: {error}");
        let (client_fd, client) = client_page(clock).map_err(no_memory)?;
        let lease = lease_page(clock).map_err(no_memory)?;
        // Last of all that may fail before the state is asked: a slot is given back by hand.
        let opened = self.open_account(peer, &attach, process)?;
        let slot = opened.as_ref().map(|(_, opened)| opened.slot);
        let account = opened
            .as_ref()
            .map(|(key, opened)| (key.clone(), opened.slot));
        let pages = NewPages { client, lease };
        let now_ns = clock.now_ns();
        let attached = self
            .shared
            .state()
            .handle_attach(now_ns, peer, attach, pages)
            .map_err(|refused| {
                self.cancel_account(account.as_ref());
                refused.to_string()
            })?;
        self.shared.ring();
        let hp = match class {
            JobClass::HighPriority => &self.fds.hp,
            JobClass::BestEffort => &self.fds.hp_read,
        };
        let mut fds: Vec<BorrowedFd<'_>> = [&self.fds.daemon_read, hp, &self.fds.bell, &client_fd]
            .into_iter()
            .map(AsFd::as_fd)
            .collect();
        fds.extend(attached.lease.as_ref().map(|lease| lease.as_fd()));
        fds.extend(opened.as_ref().map(|(_, opened)| opened.fd.as_fd()));
        let client = attached.client;
        if let Err(error) = send(socket, &Reply::Welcome { client, slot }.encode(), &fds) {
            self.detach(client);
            self.cancel_account(account.as_ref());
            return Err(format!("it does not take the welcome: {error}"));
        }
        Ok((client, account))
    }

    /// A slot in its job's ledger, for a process that keeps an account of its memory.
    fn open_account(
        &self,
        peer: Peer,
        attach: &Attach,
        process: Option<&OwnedFd>,
    ) -> Result<Option<(JobKey, Opened)>, String> {
        let Some(asked) = &attach.memory else {
            return Ok(None);
        };
        let key = job_key(&attach.job, attach.class, peer);
        let process = process.and_then(|process| process.try_clone().ok());
        let image = Image::of(peer.pid);
        let mut ledgers = self.shared.ledgers();
        let opened = ledgers.handle_attach(&key, peer, image, process, asked);
        let opened = opened.map_err(|error| error.to_string())?;
        Ok(Some((key, opened)))
    }

    /// What the process held comes back once the device shows it free.
    fn close_account(&self, account: Option<&(JobKey, u16)>) {
        if let Some((key, slot)) = account {
            self.shared.ledgers().handle_detach(key, *slot);
            self.shared.note_leaving();
        }
    }

    /// The process was turned away and never had its ledger.
    fn cancel_account(&self, account: Option<&(JobKey, u16)>) {
        if let Some((key, slot)) = account {
            self.shared.ledgers().handle_turned_away(key, *slot);
        }
    }

    /// Turns away who uses another GPU: its work would hold jobs here that it does not disturb, and
    /// be held for others. Who cannot say which it uses (its driver does not tell) is believed, as
    /// somebody has named this daemon to it.
    fn check_device(&self, attach: &Attach) -> Result<(), String> {
        let (asked, gpu) = (&attach.device, &self.identity.gpu);
        if asked.is_empty() {
            tracing::warn!(
                "job {:?}: its driver does not tell the device's UUID; it is taken to use {}",
                attach.job,
                gpu.uuid
            );
        } else if !gpu.is(asked) {
            let ours = &gpu.uuid;
            return Err(format!(
                "this daemon schedules {ours}, and the process uses {asked}"
            ));
        }
        Ok(())
    }

    /// An attached client has nothing to say on its connection but its end. A newer one may think it
    /// has; it is not heard.
    fn hear_client(&mut self, place: usize) {
        let is_end = match receive(&self.clients[place].socket) {
            Ok((packet, _)) => packet.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        if is_end {
            self.end_client(place, "its connection ended");
        }
    }

    fn end_client(&mut self, place: usize, why: &str) {
        let connection = self.clients.remove(place);
        self.detach(connection.client);
        self.close_account(connection.account.as_ref());
        tracing::info!(client = connection.client, "detached: {why}");
    }

    fn detach(&self, client: u64) {
        let now_ns = self.shared.clock().now_ns();
        self.shared.state().handle_detach(now_ns, client);
        self.shared.ring();
    }

    /// Another quota for a running job.
    fn set(&self, socket: &OwnedFd, set: &Set) {
        match self.try_set(socket, set) {
            Ok(()) => {
                tracing::info!("job {:?} may hold {}", set.job, set.memory);
                let _ = send(socket, &Reply::Done.encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    fn try_set(&self, socket: &OwnedFd, set: &Set) -> Result<(), String> {
        let credentials = getsockopt(socket, PeerCredentials);
        let uid = credentials
            .map_err(|error| format!("who you are cannot be seen: {error}"))?
            .uid();
        let quota = Quota::parse(&set.memory)
            .filter(|quota| !quota.is_too_small())
            .ok_or_else(|| LedgerError::Quota(set.memory.clone()).to_string())?;
        let ledgers = self.shared.ledgers();
        let whose = Some(uid).filter(|&uid| uid != 0);
        let set_jobs = ledgers.set_quota(&set.job, whose, quota);
        match set_jobs.map_err(|error| error.to_string())? {
            0 if ledgers.has_job(&set.job) => Err(format!("job {:?} is another user's", set.job)),
            0 => Err(format!("no job {:?} holds memory of this GPU", set.job)),
            _ => Ok(()),
        }
    }

    /// Tells a process of a job what the job may hold and holds, whether it is a client or not.
    fn tell_memory(&self, socket: &OwnedFd, of: &MemoryOf) {
        let told = peer_of(socket)
            .map_err(|error| format!("who you are cannot be seen: {error}"))
            .and_then(|(peer, _)| {
                let key = job_key(&of.job, of.class, peer);
                let ledgers = self.shared.ledgers();
                let told = ledgers.memory_of(&key, &of.memory);
                told.map_err(|error| error.to_string())
            });
        match told {
            Ok(is) => {
                let _ = send(socket, &Reply::Memory(is).encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    fn send_status(&self, socket: OwnedFd) {
        let now_ns = self.shared.clock().now_ns();
        let status = {
            let state = self.shared.state();
            let ledgers = self.shared.ledgers();
            Status::of(&state, &ledgers, &self.identity, now_ns)
        };
        let running = Arc::clone(&self.status_threads);
        // Relaxed: a count, nothing is ordered by it.
        if running.fetch_add(1, Ordering::Relaxed) >= STATUS_THREADS_MAX {
            running.fetch_sub(1, Ordering::Relaxed);
            return refuse(&socket, "too many statuses are being read".to_owned());
        }
        let count = Arc::clone(&running);
        let send = move || {
            let sent = prepare(&socket).and_then(|()| send_status(&socket, &status.to_json()));
            if let Err(error) = sent {
                tracing::debug!("sending a status: {error}");
            }
            count.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = thread::Builder::new().name("pillion-status".to_owned());
        if let Err(error) = thread.spawn(send) {
            tracing::warn!("no thread for a status: {error}");
            running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Blocking again, but not for ever.
fn prepare(socket: &OwnedFd) -> io::Result<()> {
    ioctl_fionbio(socket, false)?;
    set_socket_timeout(socket, Timeout::Send, Some(STATUS_TIMEOUT))?;
    Ok(())
}

/// The process at the other end, as the kernel knows it, and a descriptor of it.
fn peer_of(socket: &OwnedFd) -> io::Result<(Peer, Option<OwnedFd>)> {
    let credentials = getsockopt(socket, PeerCredentials)?;
    // A process in another PID namespace that we cannot see into is 0 here.
    let pid = Pid::from_raw(credentials.pid());
    let process = match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Ok(process)) => Some(process),
        Some(Err(Errno::SRCH)) => return Err(io::Error::other("the process has ended")),
        _ => None,
    };
    let peer = Peer {
        pid: pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()),
        uid: credentials.uid(),
    };
    Ok((peer, process))
}

/// Tells why not. Whether it is heard is the other side's affair.
fn refuse(socket: &OwnedFd, reason: String) {
    let _ = send(socket, &Reply::Refused { reason }.encode(), &[]);
}
