//! The thread that saves learnt durations of kernels, and gives them to later runs.
//!
//! A process asks on a separate connection ([`Request::Learnt`](protocol::hello::Request)), which
//! the control thread passes to this one. The answer is a copy in memory of what is known about the
//! process's program ([`crate::host::learnt`]), so that no reader waits for a disk. If the process
//! brought a notebook, the connection stays open, and its end signals the end of the process. The
//! notebook is then read, and every [`READ_EVERY_NS`] before, so that a power failure does not lose
//! a run of weeks.
//! - **In turns.** In each turn this thread answers one process of each user, and reads one
//!   notebook: that of the next user with one due. So whatever one user does, another's request
//!   waits for one notebook of each user at most (some 0.3 s each at the longest). A process that
//!   runs a program which has just ended is answered once that run's note is saved.
//!
//! The disk may be slow or full: only this thread waits for it. A requester continues without an
//! answer after a quarter of a second. A failure to save is an event, once until saving succeeds
//! again; damage is at most one event every [`TELL_EVERY_NS`], and so is a note that cannot be
//! written as a profile. A notebook that contains no profile is only logged, for debugging. A panic
//! over one notebook costs that one. Real time: on the virtual clock nothing waits for this thread.

mod copies;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use profiler::{Profile, learnt};
use protocol::clock::Clock;
use protocol::hello::{LearntOf, Reply, send};
use protocol::notebook::{self, Note};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::config::limits::CLIENTS_MAX;
use crate::core::event::{Draft, Kind};
use crate::daemon::keeper::copies::Copies;
use crate::daemon::shared::Shared;
use crate::host::fd_reaper::UntrustedSocket;
use crate::host::learnt::{Kept, LearntStore};

/// Interval of reading a living process's notebook, ns.
const READ_EVERY_NS: u64 = 60_000_000_000;

/// Retry interval, ns, and retries, of a notebook while another daemon writes.
const AGAIN_NS: u64 = 1_000_000_000;
const TRIES_MAX: u32 = 30;

/// Time for notebooks at the end, ns: the rest is reported before [`crate::daemon`]'s 2 s pass.
const AT_END_NS: u64 = 1_200_000_000;
const PAUSE_NS: u64 = 500_000_000;

/// Queued requests, of all and of one user; beyond it they are refused.
const WAITING_MAX: usize = 256;
const WAITING_OF_USER_MAX: usize = 64;

/// Least interval of events of the same kind, ns.
const TELL_EVERY_NS: u64 = 60_000_000_000;

/// Packets from a process on its connection, on which it has nothing to send.
const TALK_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Inlet {
    waiting: Mutex<VecDeque<Asked>>,
    alarm: OwnedFd,
    store: Arc<LearntStore>,
}

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) socket: UntrustedSocket,
    pub(crate) uid: u32,
    pub(crate) of: LearntOf,
    pub(crate) notebook: Option<OwnedFd>,
}

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    inlet: Arc<Inlet>,
    sessions: Vec<Session>,
    copies: Copies,
    last_uid: u32,
    failures: Teller,
    damages: Teller,
    refusals: Teller,
    clock: Clock,
}

#[derive(Default)]
struct Teller {
    is_said: bool,
    next_ns: u64,
    unsaid: u32,
}

struct Session {
    socket: UntrustedSocket,
    notebook: OwnedFd,
    uid: u32,
    program: String,
    /// The last saved note; 0: none.
    kept: u64,
    due_ns: u64,
    said: u32,
    is_over: bool,
    /// Failed attempts in a row, because another daemon was writing.
    tries: u32,
}

impl Teller {
    fn handle(&mut self, now_ns: u64) -> Option<u32> {
        if now_ns < self.next_ns {
            self.unsaid = self.unsaid.saturating_add(1);
            return None;
        }
        self.next_ns = now_ns + TELL_EVERY_NS;
        Some(std::mem::take(&mut self.unsaid))
    }

    /// As above, for trouble that lasts until a success.
    fn handle_lasting(&mut self, now_ns: u64) -> Option<u32> {
        let said = (!self.is_said).then(|| self.handle(now_ns)).flatten();
        self.is_said |= said.is_some();
        said
    }
}

impl Inlet {
    pub(crate) fn new(store: LearntStore) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waiting: Mutex::default(),
            alarm: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            store: Arc::new(store),
        }))
    }

    /// Queues a request; returns it if too many wait.
    pub(crate) fn put(&self, asked: Asked) -> Result<(), Asked> {
        let mut waiting = self.waiting.lock();
        let own = waiting.iter().filter(|other| other.uid == asked.uid);
        if waiting.len() >= WAITING_MAX || own.count() >= WAITING_OF_USER_MAX {
            return Err(asked);
        }
        waiting.push_back(asked);
        drop(waiting);
        self.ring();
        Ok(())
    }

    pub(crate) fn store(&self) -> &Arc<LearntStore> {
        &self.store
    }

    fn take_turn(&self) -> Vec<Asked> {
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        let mut users = HashSet::new();
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut *waiting).into_iter();
        let (turn, rest): (Vec<Asked>, Vec<Asked>) = all.partition(|asked| users.insert(asked.uid));
        waiting.extend(rest);
        if !waiting.is_empty() {
            self.ring();
        }
        turn
    }

    fn put_back(&self, asked: Asked) {
        self.waiting.lock().push_front(asked);
        self.ring();
    }

    fn ring(&self) {
        // Fails only if the counter is at 2^64 - 2.
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
    }
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, inlet: Arc<Inlet>) -> Self {
        Self {
            shared,
            inlet,
            sessions: Vec::new(),
            copies: Copies::default(),
            last_uid: 0,
            failures: Teller::default(),
            damages: Teller::default(),
            refusals: Teller::default(),
            clock: Clock::monotonic(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.shared.is_stopping() {
            // Before the ends are handled: a process that starts after an end is answered after it.
            let turn = self.inlet.take_turn();
            if let Err(error) = self.hear_all(!turn.is_empty()) {
                // No memory, or no descriptor: perhaps temporary.
                tracing::error!("cannot wait for learnt durations: {error}");
                let again_ns = self.clock.now_ns() + PAUSE_NS;
                self.clock.sleep_until(again_ns);
            }
            self.copies.take_back(self.clock.now_ns());
            for asked in turn {
                match self.is_before_a_note(&asked) {
                    true => self.inlet.put_back(asked),
                    false => self.answer(asked),
                }
            }
            if let Some(place) = self.next() {
                self.keep(place);
            }
        }
        self.begin_end();
        let end_ns = self.clock.now_ns() + AT_END_NS;
        while self.clock.now_ns() < end_ns && self.keep_at_end() {}
        self.tell_what_is_lost();
    }

    fn begin_end(&mut self) {
        for session in &mut self.sessions {
            (session.is_over, session.due_ns) = (true, 0);
        }
    }

    /// Reads one notebook in turn; false if none is left. Retries while another daemon writes.
    fn keep_at_end(&mut self) -> bool {
        let Some(place) = self.next() else {
            return false;
        };
        if self.keep(place)
            && let Some(session) = self.sessions.get_mut(place)
        {
            session.due_ns = 0;
        }
        true
    }

    /// Reports what was not saved in time. Nobody reads events any more, but they are logged.
    fn tell_what_is_lost(&self) {
        let Some(first) = self.sessions.first() else {
            return;
        };
        let why = match self.sessions.iter().any(|session| session.tries > 0) {
            true => "another daemon is writing there",
            false => "there was no time to read them all",
        };
        let folder = self.inlet.store.folder().display();
        let processes = match self.sessions.len() {
            1 => "1 process".to_owned(),
            count => format!("{count} processes"),
        };
        let text = format!(
            "this daemon ends and cannot keep the last kernel durations of {processes} in \
             {folder}: {why}; the next start of {:?} of user {}, for example, begins with older \
             durations",
            first.program, first.uid
        );
        self.shared.tell(Draft::new(Kind::LearntNotKept, text));
    }

    /// Waits for a request or an end, a due read, or a copy to take back, unless there `is_work`;
    /// then handles the ready connections.
    fn hear_all(&mut self, is_work: bool) -> io::Result<()> {
        let due_ns = self.sessions.iter().map(|session| session.due_ns);
        let due_ns = due_ns.chain(self.copies.next_ns()).min();
        let timeout = due_ns.filter(|_| !is_work).map(|due_ns| {
            let left_ns = due_ns.saturating_sub(self.clock.now_ns());
            // A minute at most.
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            }
        });
        let timeout = match is_work {
            true => Some(Timespec::default()),
            false => timeout,
        };
        let alive = self.sessions.iter().enumerate();
        let alive = alive.filter(|(_, session)| !session.is_over);
        let (places, sockets): (Vec<usize>, Vec<BorrowedFd<'_>>) = alive
            .map(|(at, session)| (at, session.socket.as_fd()))
            .unzip();
        let others = [self.shared.stop_fd(), self.inlet.alarm.as_fd()];
        let mut fds: Vec<PollFd<'_>> = others
            .iter()
            .chain(&sockets)
            .map(|source| PollFd::new(source, PollFlags::IN))
            .collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().skip(others.len()).zip(places);
        let ready = ready.filter(|(fd, _)| !fd.revents().is_empty());
        let ready: Vec<usize> = ready.map(|(_, place)| place).collect();
        ready.into_iter().for_each(|place| self.hear(place));
        Ok(())
    }

    fn is_before_a_note(&self, asked: &Asked) -> bool {
        let whose = asked.of.user.unwrap_or(asked.uid);
        self.sessions.iter().any(|session| {
            let is_first = session.is_over && session.tries == 0;
            is_first && session.uid == whose && session.program == asked.of.program
        })
    }

    fn answer(&mut self, asked: Asked) {
        let Asked {
            socket,
            uid,
            of,
            notebook,
        } = asked;
        let whose = of.user.unwrap_or(uid);
        let store = &self.inlet.store;
        let kept = match of.user {
            // A process asks this for itself, and begins with the answer.
            None => store.find_to_begin(whose, &of.program),
            Some(_) => store.find(whose, &of.program),
        };
        let now_ns = self.clock.now_ns();
        let copy = kept.and_then(|text| self.copies.hand_out(uid, &text, now_ns));
        let is_known = copy.is_some();
        let copy: Vec<BorrowedFd<'_>> = copy.iter().map(AsFd::as_fd).collect();
        let reply = Reply::Learnt { is_known }.encode();
        // A process that misses the answer may still take notes; one that has ended is noticed.
        let _ = send(&*socket, &reply, &copy);
        let may_note = whose == uid && learnt::is_name(&of.program) && self.has_room(uid);
        let Some(notebook) = notebook.filter(|_| may_note) else {
            return;
        };
        self.sessions.push(Session {
            socket,
            notebook,
            uid,
            program: of.program,
            kept: 0,
            due_ns: now_ns + READ_EVERY_NS,
            said: 0,
            is_over: false,
            tries: 0,
        });
    }

    fn has_room(&self, uid: u32) -> bool {
        let own = self.sessions.iter().filter(|session| session.uid == uid);
        let of_user = self.shared.state().limits.clients_per_user;
        self.sessions.len() < CLIENTS_MAX && own.count() < of_user
    }

    fn hear(&mut self, place: usize) {
        let now_ns = self.clock.now_ns();
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        session.said += 1;
        let is_over = match session.socket.receive() {
            Ok((packet, _)) => packet.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        if is_over || session.said > TALK_MAX {
            (session.is_over, session.due_ns) = (true, now_ns);
        }
    }

    fn next(&self) -> Option<usize> {
        let due = self
            .sessions
            .iter()
            .map(|session| (session.uid, session.due_ns));
        next_due(due, self.last_uid, self.clock.now_ns())
    }

    /// Saves a notebook's news, forgets an ended process. True: another daemon writes, retry.
    fn keep(&mut self, place: usize) -> bool {
        let now_ns = self.clock.now_ns();
        let Some(session) = self.sessions.get_mut(place) else {
            return false;
        };
        self.last_uid = session.uid;
        session.due_ns = now_ns + READ_EVERY_NS;
        let store = &self.inlet.store;
        let kept = catch_unwind(AssertUnwindSafe(|| session.keep(store)));
        let kept = kept.unwrap_or_else(|_| {
            session.is_over = true;
            let why = "this daemon panicked while reading them".to_owned();
            Ok(Some(Kept::Refused(why)))
        });
        let is_busy = matches!(&kept, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if is_busy && session.tries < TRIES_MAX {
            session.tries += 1;
            session.due_ns = now_ns + AGAIN_NS;
            return true;
        }
        let (uid, program) = (session.uid, session.program.clone());
        session.tries = 0;
        if session.is_over {
            self.sessions.swap_remove(place);
        }
        self.tell(uid, &program, kept);
        false
    }

    fn tell(&mut self, uid: u32, program: &str, kept: io::Result<Option<Kept>>) {
        let now_ns = self.clock.now_ns();
        let (text, unsaid) = match kept {
            Ok(None) => return,
            Ok(Some(Kept::Well)) => return self.failures.is_said = false,
            Ok(Some(Kept::OverDamage(why))) => {
                self.failures.is_said = false;
                let text =
                    format!("replaced the kept durations of {program:?} of user {uid}: {why}");
                (text, self.damages.handle(now_ns))
            }
            // A bad note neither is nor hides disk trouble.
            Ok(Some(Kept::Refused(why))) => {
                let text = format!(
                    "cannot keep the kernel durations of a run of {program:?} of user {uid}: {why}"
                );
                (text, self.refusals.handle(now_ns))
            }
            Err(error) => {
                let folder = self.inlet.store.folder().display();
                let text = format!(
                    "cannot keep kernel durations in {folder}: {error}; the next start of \
                     {program:?} of user {uid} begins with older durations"
                );
                (text, self.failures.handle_lasting(now_ns))
            }
        };
        let text = match unsaid {
            None => return,
            Some(0) => text,
            Some(unsaid) => format!("{text} ({unsaid} similar messages left out)"),
        };
        self.shared.tell(Draft::new(Kind::LearntNotKept, text));
    }
}

impl Session {
    fn keep(&mut self, store: &LearntStore) -> io::Result<Option<Kept>> {
        let Note { number, text } = match notebook::read(&self.notebook) {
            Ok(Some(note)) if note.number != self.kept => note,
            Ok(_) => return Ok(None),
            Err(error) => {
                tracing::debug!("{}: {error}", self.program);
                return Ok(None);
            }
        };
        let text = String::from_utf8_lossy(&text);
        let noted = match Profile::parse(&text, Path::new("notebook")) {
            Ok(noted) => noted,
            // Only its own user loses by it.
            Err(error) => {
                tracing::debug!("{}: {error}", self.program);
                self.kept = number;
                return Ok(None);
            }
        };
        let kept = store.keep(self.uid, &self.program, noted)?;
        self.kept = number;
        Ok(Some(kept))
    }
}

fn next_due(due: impl Iterator<Item = (u32, u64)>, last_uid: u32, now_ns: u64) -> Option<usize> {
    let after = last_uid.wrapping_add(1);
    let due = due.enumerate().filter(|(_, (_, due_ns))| *due_ns <= now_ns);
    let next = due.min_by_key(|(_, (uid, due_ns))| (uid.wrapping_sub(after), *due_ns));
    next.map(|(place, _)| place)
}

#[cfg(test)]
mod tests;
