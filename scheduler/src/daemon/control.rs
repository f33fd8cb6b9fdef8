//! The control thread: accepts, answers, and notices the end of clients.
//! It runs in real time and never waits for the poll thread: on the virtual clock a client keeps
//! the processor while it waits for the reply, so the poll thread cannot run meanwhile. This thread
//! changes the state, under its lock, and rings the poll thread's bell *before* it sends the reply.
//! A client ends with its connection, or with its process (a pidfd), because a forked child may
//! keep the connection open. Either is noticed at once. A client that must know that it was
//! forgotten (on the virtual clock, where that moment must be deterministic) shuts down its side
//! and reads until the end: ours is closed last.
//!
//! No client can block this thread: sockets do not block; a silent connection takes a place of its
//! user in a bounded queue; descriptors of a packet are closed elsewhere; a connection with too
//! many packets is closed; and a status is sent by a thread of its own, of which each user has few
//! and for a bounded time.

mod away;
mod draining;
mod ending;
mod idle;
mod learnt;
mod set;
mod trace;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::VERSION;
use protocol::clock::Clock;
use protocol::hello::{
    Attach, HelloError, JobClass, MemoryOf, PACKET_BYTES_MAX, Reply, Request, send,
};
use protocol::pages::ClientPage;
use protocol::segment::{Mapping, client_page, identity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketFlags, accept_with};

use crate::config::limits::UNHEARD_MAX;
use crate::config::memory_rules::Owner;
use crate::core::event::{Draft, Kind};
use crate::core::fairness::place_to_give_up;
use crate::core::job_key::{JobKey, Peer, job_key};
use crate::core::ledgers::{Brought, Comer, Found, Image, Opened};
use crate::core::state::NewPages;
use crate::daemon::keeper::Inlet;
use crate::daemon::shared::Shared;
use crate::host::fd_reaper::{FdReaper, UntrustedSocket};
use crate::host::mps;
use crate::host::pages::{GpuFds, client_page_of_peer, lease_page};
use crate::host::peer;
use crate::host::socket::Seat;
use crate::report::events;
use crate::report::status::{Identity, Status, Viewer};

use away::refuse;
use ending::Asker;
use idle::Idle;

/// Statuses and events being sent at once; the operator has one more.
const READERS_MAX: usize = 8;
/// Of these, one user's.
const READERS_PER_USER: usize = 2;
const TOO_MANY_READINGS: &str =
    "too many requests for status, events or settings are in progress; try again";

/// Time for a reader of a status or events to read all of it.
const READING_NS_MAX: u64 = 2_000_000_000;

/// Packets from an attached client, which has nothing to send; then its connection is closed.
const TALK_MAX: u32 = 64;

/// Pause of accept when the system has no descriptor.
const ACCEPT_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

pub(crate) struct Control {
    shared: Arc<Shared>,
    seat: Seat,
    fds: GpuFds,
    identity: Identity,
    unheard: VecDeque<Unheard>,
    clients: Vec<Connection>,
    is_accept_paused: bool,
    fd_reaper: Arc<FdReaper>,
    readers: Arc<Mutex<Vec<u32>>>,
    askers: Vec<Asker>,
    /// To the thread that saves learnt durations; `None` if they are not saved.
    keeper: Option<Arc<Inlet>>,
    idle: Idle,
}

struct Unheard {
    uid: u32,
    socket: UntrustedSocket,
}

struct Connection {
    client: u64,
    account: Option<(JobKey, u16)>,
    socket: UntrustedSocket,
    /// None if its process is invisible from here.
    process: Option<OwnedFd>,
    said: u32,
    pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// With its process, or, if that is invisible, perhaps so.
    Death,
    OfConnection,
}

struct Welcomed {
    client: u64,
    class: JobClass,
    account: Option<(JobKey, u16)>,
}

struct Applicant {
    peer: Peer,
    process: Option<OwnedFd>,
    owner: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Stop,
    Listener,
    Unheard(usize),
    ClientSocket(usize),
    ClientProcess(usize),
    Asker,
    Expected,
}

impl Control {
    pub(crate) fn new(
        shared: Arc<Shared>,
        seat: Seat,
        fds: GpuFds,
        identity: Identity,
        keeper: Option<Arc<Inlet>>,
    ) -> io::Result<Self> {
        // Do not block in accept if a connection has been closed again.
        ioctl_fionbio(seat.listener(), true)?;
        Ok(Self {
            shared,
            seat,
            fds,
            idle: Idle::new(identity.ends_when_idle),
            identity,
            unheard: VecDeque::new(),
            clients: Vec::new(),
            is_accept_paused: false,
            fd_reaper: Arc::new(FdReaper::start()?),
            readers: Arc::default(),
            askers: Vec::new(),
            keeper,
        })
    }

    /// Serves until stopped. The socket is removed on return.
    pub(crate) fn run(mut self) {
        loop {
            let ready = match self.wait() {
                Ok(Some(ready)) => ready,
                Ok(None) => return self.tell_idle(),
                Err(error) => {
                    // Only for lack of memory; no client could be served.
                    tracing::error!("cannot wait for clients: {error}");
                    return;
                }
            };
            #[cfg(test)]
            self.shared.panic_if_asked();
            // From the last to the first, so that a removal keeps the other places valid.
            for ready in ready.into_iter().rev() {
                match ready {
                    Ready::Stop => return,
                    Ready::Listener => self.accept(),
                    Ready::Unheard(place) => self.hear(place),
                    Ready::ClientSocket(place) => self.hear_client(place),
                    Ready::ClientProcess(place) => {
                        self.end_client(place, Ending::Death, "its process ended");
                    }
                    Ready::Asker => self.drop_dead_askers(),
                    Ready::Expected => self.drop_dead_expected(),
                }
            }
        }
    }

    /// Ready sources, each client once and in order, stoppers last; none after the idle time.
    fn wait(&mut self) -> io::Result<Option<Vec<Ready>>> {
        let idle_left = self.idle_left();
        let mut sources = vec![(Ready::Stop, self.shared.stop_fd())];
        let is_paused = std::mem::take(&mut self.is_accept_paused);
        if !is_paused {
            sources.push((Ready::Listener, self.seat.listener().as_fd()));
        }
        let unheard = self.unheard.iter().enumerate();
        sources.extend(unheard.map(|(place, one)| (Ready::Unheard(place), one.socket.as_fd())));
        for (place, connection) in self.clients.iter().enumerate() {
            sources.push((Ready::ClientSocket(place), connection.socket.as_fd()));
            if let Some(process) = &connection.process {
                sources.push((Ready::ClientProcess(place), process.as_fd()));
            }
        }
        // Last, so handled before requests: a dead stopper's job no longer counts as being ended.
        let askers = self.askers.iter();
        sources.extend(askers.map(|asker| (Ready::Asker, asker.process.as_fd())));
        let expected = self.idle.expected.iter();
        sources.extend(expected.map(|expected| (Ready::Expected, expected.process.as_fd())));
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|(_, fd)| PollFd::new(fd, PollFlags::IN))
            .collect();
        let timeout = is_paused.then_some(&ACCEPT_PAUSE).or(idle_left.as_ref());
        match poll(&mut fds, timeout) {
            Ok(0) if !is_paused && idle_left.is_some() => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.iter().zip(&fds);
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        let mut ready: Vec<Ready> = ready.map(|((source, _), _)| *source).collect();
        // A dead process's client usually has both events: the second would hit another's place.
        ready.dedup_by(|next, first| match (*first, *next) {
            (Ready::ClientSocket(a), Ready::ClientProcess(b)) if a == b => {
                *first = Ready::ClientProcess(a);
                true
            }
            _ => false,
        });
        Ok(Some(ready))
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match accept_with(self.seat.listener(), flags) {
            Ok(socket) => self.queue(socket),
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                tracing::warn!("cannot accept a connection: {error}");
                self.is_accept_paused = true;
            }
            // Gone again, or interrupted: the next poll shows it.
            Err(_) => {}
        }
    }

    /// Queues a new connection, in place of the oldest of its user, or of the user with most.
    fn queue(&mut self, socket: OwnedFd) {
        let found = peer::uid_of(&socket);
        let uid = *found.as_ref().unwrap_or(&u32::MAX);
        let socket = UntrustedSocket::new(socket, uid, &self.fd_reaper);
        if found.is_err() {
            return;
        }
        if self.fd_reaper.is_shut_out(uid) {
            peer::let_descriptors(&socket, false);
        }
        let limit = self.shared.state().limits.connections_per_user;
        let mut own = self
            .unheard
            .iter()
            .enumerate()
            .filter(|(_, one)| one.uid == uid);
        let oldest_own = own.next().map(|(place, _)| place);
        // `own` has given up its first: 1 for it. The new connection is not in the queue yet.
        let place = match oldest_own {
            Some(place) if 1 + own.count() >= limit => Some(place),
            _ if self.unheard.len() >= UNHEARD_MAX => {
                place_to_give_up(self.unheard.iter().map(|one| one.uid))
            }
            _ => None,
        };
        if let Some(place) = place {
            self.unheard.remove(place);
        }
        self.unheard.push_back(Unheard { uid, socket });
    }

    fn hear(&mut self, place: usize) {
        let Some(Unheard { socket, uid }) = self.unheard.remove(place) else {
            return;
        };
        let (packet, memory) = match socket.receive() {
            Ok((packet, memory)) if !packet.is_empty() => (packet, memory),
            _ => return,
        };
        match Request::decode(&packet) {
            Ok(Request::Status) => self.send_status(socket, uid),
            Ok(Request::Events { since }) => self.send_events(socket, uid, since),
            Ok(Request::Attach(attach)) => {
                self.attach(socket, attach, memory);
            }
            Ok(Request::Set(set)) => self.set(&socket, uid, &set),
            Ok(Request::Stop(stop)) => self.stop(&socket, uid, &stop),
            Ok(Request::Ending(ending)) => self.see_to(&socket, uid, &ending),
            Ok(Request::Resume { job }) => self.resume(socket, uid, &job),
            Ok(Request::Drain { is_release }) => self.drain(&socket, uid, is_release),
            Ok(Request::Memory(of)) => self.tell_memory(&socket, &of),
            Ok(Request::Learnt(of)) => self.pass_on(socket, uid, of, memory),
            Ok(Request::LearntList) => self.send_learnt(socket, uid),
            Ok(Request::Trace { length_ns }) => self.take_trace(socket, uid, length_ns),
            Ok(Request::Expect) => self.expect(&socket),
            Ok(Request::Settings) => self.send_settings(socket, uid),
            Err(HelloError::Version { peer }) => {
                let reason = format!(
                    "the client speaks protocol {peer}, this daemon {VERSION}: use the library and \
                     the daemon of one version"
                );
                self.turn_away_unknown(&socket, reason);
            }
            Err(error) => self.turn_away_unknown(&socket, error.to_string()),
        }
    }

    /// A process asks to attach; `brought` are the memory files of its packet.
    fn attach(&mut self, socket: UntrustedSocket, attach: Attach, brought: Vec<OwnedFd>) {
        let (peer, process) = match peer::of(&socket) {
            Ok(found) => found,
            Err(error) => {
                return refuse(
                    &socket,
                    format!("cannot determine the user of your process: {error}"),
                );
            }
        };
        let applicant = Applicant {
            owner: self.owner(&socket, peer, process.as_ref()),
            peer,
            process,
        };
        let (name, job) = (attach.name.clone(), attach.job.clone());
        match self.try_attach(&socket, &applicant, attach, brought) {
            Ok(Welcomed {
                client,
                class,
                account,
            }) => {
                let key = job_key(&job, class, peer);
                let text = format!(
                    "attached: {} job {:?}, {name}, client {client}",
                    class.name(),
                    key.id
                );
                let draft = Draft::new(Kind::Attached, text);
                self.shared.tell(draft.of_job(&key).pid(peer.pid));
                self.shared.tell_sharing();
                // With clients, the fault thread polls more often.
                self.shared.alarm();
                peer::let_descriptors(&socket, false);
                self.clients.push(Connection {
                    client,
                    account,
                    socket,
                    process: applicant.process,
                    said: 0,
                    pid: peer.pid,
                });
            }
            Err(reason) => {
                self.turn_away(&socket, peer, (name, job), reason);
            }
        }
    }

    /// Best-effort if it asks for high priority without permission: refused, it would run unmanaged
    /// and harm the jobs that the list protects.
    fn class_for(&self, applicant: &Applicant, attach: &Attach) -> JobClass {
        let asked = attach.class;
        if asked != JobClass::HighPriority || self.may_be_high_priority(&applicant.owner) {
            return asked;
        }
        let (pid, uid) = (applicant.peer.pid, applicant.peer.uid);
        let denied = format!("[high_priority] does not allow process {pid} of user {uid}");
        let key = job_key(&attach.job, JobClass::BestEffort, applicant.peer);
        let text = format!("{denied}: job {:?} runs as best-effort", key.id);
        let draft = Draft::new(Kind::Denied, text);
        self.shared.tell(draft.of_job(&key).pid(pid));
        JobClass::BestEffort
    }

    fn may_be_high_priority(&self, owner: &Owner) -> bool {
        let state = self.shared.state();
        let access = state.access.as_ref();
        access.is_none_or(|access| access.allows(owner))
    }

    /// Takes the client's page, adds it to the state, wakes the poll thread, and only then answers.
    fn try_attach(
        &self,
        socket: &OwnedFd,
        applicant: &Applicant,
        mut attach: Attach,
        brought: Vec<OwnedFd>,
    ) -> Result<Welcomed, String> {
        if attach.device.is_empty() {
            tracing::warn!(
                "job {:?}: its driver does not report the device's UUID; assuming that it uses {}",
                attach.job,
                self.identity.gpu.uuid
            );
        } else {
            self.check_device(&attach.device)?;
        }
        let asked = attach.class;
        let class = self.class_for(applicant, &attach);
        attach.class = class;
        let key = job_key(&attach.job, class, applicant.peer);
        let room = self.shared.state().check_comer(&key);
        room.map_err(|refused| refused.to_string())?;
        let clock = self.shared.clock();
        let no_memory = |error: io::Error| format!("cannot create shared memory: {error}");
        let (own, ledger) = sorted(brought, attach.slot.is_some());
        let (client, file, made) = own_page(own, clock)?;
        let lease = lease_page(clock).map_err(no_memory)?;
        // The last step that may fail before the state is asked, as slots are released explicitly.
        let opened = self.open_account(applicant, &attach, ledger)?;
        let slot = opened.as_ref().map(|(_, opened)| opened.slot);
        let pages = NewPages {
            client,
            file,
            lease,
        };
        let attached = self
            .enter(applicant.peer, attach, pages)
            .map_err(|refused| {
                self.cancel_account(opened.as_ref());
                refused.to_string()
            })?;
        if asked != class {
            self.shared.state().handle_denied(attached.client, asked);
        }
        if let Some(why) = &attached.draining {
            self.tell_draining(&key, applicant.peer, why);
        }
        self.shared.ring();
        self.shared.note_telemetry();
        self.shared.wake_requests_keeper();
        let hp = match class {
            JobClass::HighPriority => &self.fds.hp,
            JobClass::BestEffort => &self.fds.hp_read,
        };
        let mut fds: Vec<BorrowedFd<'_>> = [&self.fds.daemon_read, hp, &self.fds.bell]
            .into_iter()
            .map(AsFd::as_fd)
            .collect();
        fds.extend(attached.lease.as_ref().map(|lease| lease.as_fd()));
        fds.extend(opened.as_ref().map(|(_, opened)| opened.fd.as_fd()));
        fds.extend(made.as_ref().map(AsFd::as_fd));
        let client = attached.client;
        let welcome = Reply::Welcome {
            client,
            slot,
            class: Some(class),
        };
        if let Err(error) = send(socket, &welcome.encode(), &fds) {
            self.detach(client, "it did not receive the reply to its attach request");
            self.cancel_account(opened.as_ref());
            return Err(format!("cannot answer its attach request: {error}"));
        }
        let account = opened.map(|(key, opened)| (key, opened.slot));
        Ok(Welcomed {
            client,
            class,
            account,
        })
    }

    fn tell_draining(&self, key: &JobKey, peer: Peer, why: &str) {
        let text = format!(
            "new high-priority job {:?} has attached although the GPU is drained: {why}",
            key.id
        );
        let draft = Draft::new(Kind::AttachedDraining, text);
        self.shared.tell(draft.of_job(key).pid(peer.pid));
    }

    fn open_account(
        &self,
        applicant: &Applicant,
        attach: &Attach,
        brought: Option<OwnedFd>,
    ) -> Result<Option<(JobKey, Opened)>, String> {
        let Some(asked) = &attach.memory else {
            return Ok(None);
        };
        let (peer, owner) = (applicant.peer, &applicant.owner);
        let key = job_key(&attach.job, attach.class, peer);
        let process = applicant.process.as_ref();
        let process = process.and_then(|process| process.try_clone().ok());
        let image = Image::of(peer.pid);
        let brought = brought.zip(attach.slot);
        let comer = Comer {
            peer,
            image,
            process,
            owner,
            asked,
            brought: brought
                .and_then(|(fd, slot)| Brought::open(fd, slot, peer.pid, image, Found::of)),
        };
        let opened = self.shared.ledgers().handle_attach(&key, comer);
        let opened = opened.map_err(|error| error.to_string())?;
        // The comparison begins with the first account.
        self.shared.note_memory();
        Ok(Some((key, opened)))
    }

    fn owner(&self, socket: &OwnedFd, peer: Peer, process: Option<&OwnedFd>) -> Owner {
        let is_asked = self.shared.state().access.is_some() || self.shared.ledgers().has_rules();
        match is_asked {
            true => peer::owner(socket, peer, process),
            false => Owner::default(),
        }
    }

    fn close_account(&self, account: Option<&(JobKey, u16)>) {
        if let Some((key, slot)) = account {
            self.shared.ledgers().handle_detach(key, *slot);
            self.shared.note_memory();
        }
    }

    /// The process was refused, and never had its ledger unless it brought it.
    fn cancel_account(&self, account: Option<&(JobKey, Opened)>) {
        let Some((key, opened)) = account else {
            return;
        };
        let mut ledgers = self.shared.ledgers();
        if opened.is_kept {
            ledgers.handle_detach(key, opened.slot);
        } else {
            ledgers.handle_turned_away(key, opened.slot);
        }
    }

    /// Refuses a process that uses another GPU: its work would hold jobs here that it does not
    /// disturb, and be held for others. A process whose driver does not report its GPU is trusted,
    /// as its configuration names this daemon.
    fn check_device(&self, asked: &str) -> Result<(), String> {
        let gpu = &self.identity.gpu;
        if gpu.is(asked) {
            return Ok(());
        }
        let ours = &gpu.uuid;
        Err(format!(
            "this daemon schedules {ours}, but the process uses {asked}"
        ))
    }

    /// An attached client sends nothing but its end. Packets of a newer protocol are ignored.
    fn hear_client(&mut self, place: usize) {
        let connection = &mut self.clients[place];
        let is_end = match connection.socket.receive() {
            Ok((packet, _)) => packet.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        connection.said += 1;
        if is_end {
            // A dying process often closes its connection first.
            let pid = connection.pid;
            let is_death = connection.process.is_none() || Image::is_ending(pid);
            let ending = if is_death {
                Ending::Death
            } else {
                Ending::OfConnection
            };
            self.end_client(place, ending, "its connection was closed");
        } else if connection.said > TALK_MAX {
            let why = "it sent too many packets, and a client sends none after it has attached";
            self.end_client(place, Ending::OfConnection, why);
        }
    }

    fn end_client(&mut self, place: usize, ending: Ending, why: &str) {
        let connection = self.clients.remove(place);
        if ending == Ending::Death {
            let now_ns = self.shared.clock().now_ns();
            let real_ns = Clock::monotonic().now_ns();
            let mut state = self.shared.state();
            state.handle_death(now_ns, real_ns, connection.client);
        }
        self.detach(connection.client, why);
        self.close_account(connection.account.as_ref());
    }

    fn detach(&self, client: u64, why: &str) {
        let now_ns = self.shared.clock().now_ns();
        let gone = self.shared.state().handle_detach(now_ns, client);
        self.shared.ring();
        if let Some(gone) = gone {
            let text = format!("detached: client {client}: {why}");
            let draft = Draft::new(Kind::Detached, text);
            self.shared.tell(draft.of_job(&gone.key).pid(gone.pid));
        }
        self.shared.tell_sharing();
        self.shared.alarm();
    }

    /// Answers a process of a job with the job's quota and holdings, whether it is a client or not.
    fn tell_memory(&self, socket: &OwnedFd, of: &MemoryOf) {
        let told = peer::of(socket)
            .map_err(|error| format!("cannot determine the user of your process: {error}"))
            .and_then(|(peer, process)| {
                if !of.device.is_empty() {
                    self.check_device(&of.device)?;
                }
                let owner = self.owner(socket, peer, process.as_ref());
                let class = match of.class {
                    JobClass::HighPriority if !self.may_be_high_priority(&owner) => {
                        JobClass::BestEffort
                    }
                    class => class,
                };
                let key = job_key(&of.job, class, peer);
                let ledgers = self.shared.ledgers();
                let told = ledgers.memory_of(&key, &owner, &of.memory);
                told.map_err(|error| error.to_string())
            });
        match told {
            Ok(is) => {
                let _ = send(socket, &Reply::Memory(is).encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    fn send_status(&self, socket: UntrustedSocket, uid: u32) {
        let viewer = Viewer::of(uid);
        let Some(reading) = self.begin_reading(uid, viewer) else {
            return refuse(&socket, TOO_MANY_READINGS.to_owned());
        };
        let now_ns = self.shared.clock().now_ns();
        let mut status = {
            let state = self.shared.state();
            let ledgers = self.shared.ledgers();
            let events = self.shared.events().status();
            Status::of(&state, &ledgers, events, &self.identity, now_ns, viewer)
        };
        status.note_unseen(mps::unseen_pipes());
        status.note_released(self.shared.device_release().released());
        status.gpu.device = self.shared.device_status(now_ns);
        status.gpu.probe = self.shared.probe_status(now_ns);
        status.mps = self.shared.mps_desk().seen.as_ref().map(Into::into);
        status.unmanaged = self.shared.unmanaged_status(viewer);
        send_document(socket, reading, move || status.to_json());
    }

    /// The configuration names users and folders: only for the operator.
    fn send_settings(&self, socket: UntrustedSocket, uid: u32) {
        let viewer = Viewer::of(uid);
        if viewer != Viewer::Operator {
            let why = "only root and the daemon's own user may see its configuration";
            return refuse(&socket, why.to_owned());
        }
        let Some(reading) = self.begin_reading(uid, viewer) else {
            return refuse(&socket, TOO_MANY_READINGS.to_owned());
        };
        let settings = self.shared.settings.lock().clone();
        send_document(socket, reading, move || settings);
    }

    fn send_events(&self, socket: UntrustedSocket, uid: u32, since: u64) {
        let viewer = Viewer::of(uid);
        let Some(reading) = self.begin_reading(uid, viewer) else {
            return refuse(&socket, TOO_MANY_READINGS.to_owned());
        };
        let document = {
            let events = self.shared.events();
            events::Document {
                schema_version: events::SCHEMA_VERSION,
                gpu: self.identity.gpu.uuid.clone(),
                daemon_pid: std::process::id(),
                daemon_started_ns: self.identity.started_ns,
                now_ns: self.shared.clock().now_ns(),
                status: events.status(),
                events: events.since(since, viewer),
            }
        };
        send_document(socket, reading, move || document.to_json());
    }

    fn begin_reading(&self, uid: u32, viewer: Viewer) -> Option<Reading> {
        let mut readers = self.readers.lock();
        let own = readers.iter().filter(|reader| **reader == uid).count();
        let is_full = match viewer {
            Viewer::Operator => readers.len() > READERS_MAX,
            Viewer::User(_) => readers.len() >= READERS_MAX || own >= READERS_PER_USER,
        };
        if is_full {
            return None;
        }
        readers.push(uid);
        let readers = Arc::clone(&self.readers);
        Some(Reading { readers, uid })
    }
}

/// Sorts a client's memory files: its page, unless it cannot create one, and its job's ledger.
fn sorted(brought: Vec<OwnedFd>, has_ledger: bool) -> (Option<OwnedFd>, Option<OwnedFd>) {
    let has_own = brought.len() > usize::from(has_ledger);
    let mut brought = brought.into_iter();
    let own = if has_own { brought.next() } else { None };
    (own, brought.next().filter(|_| has_ledger))
}

/// A client's page and its file's identity: the client's own, or a new one with its descriptor.
fn own_page(brought: Option<OwnedFd>, clock: &Clock) -> Result<OwnPage, String> {
    let page = match brought {
        Some(fd) => client_page_of_peer(&fd).and_then(|page| Ok((page, identity(&fd)?, None))),
        None => client_page(clock).and_then(|(fd, page)| Ok((page, identity(&fd)?, Some(fd)))),
    };
    page.map_err(|error| format!("the client's shared memory cannot be used: {error}"))
}

type OwnPage = (Mapping<ClientPage>, (u64, u64), Option<OwnedFd>);

struct Reading {
    readers: Arc<Mutex<Vec<u32>>>,
    uid: u32,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut readers = self.readers.lock();
        if let Some(place) = readers.iter().position(|reader| *reader == self.uid) {
            readers.swap_remove(place);
        }
    }
}

fn send_document(
    socket: UntrustedSocket,
    reading: Reading,
    to_json: impl FnOnce() -> String + Send + 'static,
) {
    let send = move || {
        let _reading = reading;
        if let Err(error) = send_within(&socket, &to_json(), READING_NS_MAX) {
            tracing::debug!("cannot send a document: {error}");
        }
    };
    let thread = thread::Builder::new().name("pillion-status".to_owned());
    if let Err(error) = thread.spawn(send) {
        tracing::warn!("cannot start a thread to send a document: {error}");
    }
}

/// Sends a document in packets within this time: real time, as the virtual clock stands still.
fn send_within(socket: &OwnedFd, document: &str, within_ns: u64) -> io::Result<()> {
    ioctl_fionbio(socket, false)?;
    let clock = Clock::monotonic();
    let end_ns = clock.now_ns() + within_ns;
    for packet in document.as_bytes().chunks(PACKET_BYTES_MAX) {
        let left_ns = end_ns.saturating_sub(clock.now_ns());
        // A timeout of zero means none.
        if left_ns < 1_000 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        set_socket_timeout(socket, Timeout::Send, Some(Duration::from_nanos(left_ns)))?;
        send(socket, packet, &[])?;
    }
    Ok(())
}
