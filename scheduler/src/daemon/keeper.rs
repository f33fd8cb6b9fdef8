//! The thread that keeps what runs teach of their kernels, and gives it to the next ones.
//!
//! A process asks on a connection of its own ([`Request::Learnt`](protocol::hello::Request)), which
//! the thread that talks with clients passes on to this one. The answer is what is kept of the
//! process's program ([`crate::host::learnt`]). If the process brought a notebook, the connection
//! stays open, and its end says that the process has ended. The notebook is read then, and every
//! [`READ_EVERY_NS`] before, so that a run of weeks is kept although the machine loses its power.
//!
//! The disk may take its time, or be full: this thread alone waits for it. Who asks meanwhile goes
//! on without an answer after a quarter of a second. What cannot be kept is an event, once until
//! something was kept again.
//!
//! Real time: on the virtual clock nothing waits for this thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use profiler::Profile;
use protocol::clock::Clock;
use protocol::hello::{LearntOf, Reply, send};
use protocol::notebook;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::config::limits::CLIENTS_MAX;
use crate::core::event::{Draft, Kind};
use crate::daemon::shared::Shared;
use crate::host::fd_reaper::UntrustedSocket;
use crate::host::learnt::{Kept, LearntStore};

/// Between two looks into the notebook of a process that lives, ns.
const READ_EVERY_NS: u64 = 60_000_000_000;

/// Requests that wait for this thread; who comes then is refused.
const WAITING_MAX: usize = 64;

/// Packets that a process may send on its connection, on which it has nothing to say.
const TALK_MAX: u32 = 64;

/// Where requests wait, and where the thread is woken.
#[derive(Debug)]
pub(crate) struct Inlet {
    waiting: Mutex<VecDeque<Asked>>,
    alarm: OwnedFd,
    store: Arc<LearntStore>,
}

/// A process that wants to know what is kept of its program.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) socket: UntrustedSocket,
    pub(crate) uid: u32,
    pub(crate) of: LearntOf,
    /// Where it notes what it learns, if it does.
    pub(crate) notebook: Option<OwnedFd>,
}

/// See the module's text.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    inlet: Arc<Inlet>,
    sessions: Vec<Session>,
    /// That something cannot be kept was said.
    is_said: bool,
    /// Real time.
    clock: Clock,
}

/// A process that notes what it learns.
struct Session {
    socket: UntrustedSocket,
    notebook: OwnedFd,
    uid: u32,
    program: String,
    /// The last note that was kept; 0: none.
    kept: u64,
    /// When it is looked into again, ns.
    due_ns: u64,
    /// Packets that it has sent.
    said: u32,
}

impl Inlet {
    pub(crate) fn new(store: LearntStore) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            waiting: Mutex::default(),
            alarm: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            store: Arc::new(store),
        }))
    }

    /// Passes a request on; gives it back if too many wait.
    pub(crate) fn put(&self, asked: Asked) -> Result<(), Asked> {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITING_MAX {
            return Err(asked);
        }
        waiting.push_back(asked);
        drop(waiting);
        // It can fail only if it is readable 2^64 - 2 times over.
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
        Ok(())
    }

    pub(crate) fn store(&self) -> &Arc<LearntStore> {
        &self.store
    }

    fn take(&self) -> VecDeque<Asked> {
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        std::mem::take(&mut *self.waiting.lock())
    }
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>, inlet: Arc<Inlet>) -> Self {
        Self {
            shared,
            inlet,
            sessions: Vec::new(),
            is_said: false,
            clock: Clock::monotonic(),
        }
    }

    /// Keeps until the daemon ends, and then once more.
    pub(crate) fn run(mut self) {
        while !self.shared.is_stopping() {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!("waiting for what runs have learnt: {error}");
                    return;
                }
            };
            // From the last to the first, so that removing one leaves the places of the rest.
            for place in ready.into_iter().rev() {
                self.hear(place);
            }
            for asked in self.inlet.take() {
                self.answer(asked);
            }
            self.look();
        }
        for place in 0..self.sessions.len() {
            self.keep(place);
        }
    }

    /// Waits until somebody asks or ends, or a look is due; which sessions have something to say.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let mut sources: Vec<BorrowedFd<'_>> =
            vec![self.shared.stop_fd(), self.inlet.alarm.as_fd()];
        let others = sources.len();
        sources.extend(self.sessions.iter().map(|session| session.socket.as_fd()));
        let mut fds: Vec<PollFd<'_>> = sources
            .iter()
            .map(|source| PollFd::new(source, PollFlags::IN))
            .collect();
        let due_ns = self.sessions.iter().map(|session| session.due_ns).min();
        let timeout = due_ns.map(|due_ns| {
            let left_ns = due_ns.saturating_sub(self.clock.now_ns());
            // A minute at most.
            Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as i64,
            }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = fds.iter().skip(others).enumerate();
        let ready = ready.filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(place, _)| place).collect())
    }

    /// Tells a process what is kept of its program, and listens for its end if it notes.
    fn answer(&mut self, asked: Asked) {
        let Asked {
            socket,
            uid,
            of,
            notebook,
        } = asked;
        let whose = of.user.unwrap_or(uid);
        let kept = self.inlet.store.find(whose, &of.program);
        let is_known = kept.is_some();
        let kept: Vec<BorrowedFd<'_>> = kept.iter().map(AsFd::as_fd).collect();
        let reply = Reply::Learnt { is_known }.encode();
        if send(&*socket, &reply, &kept).is_err() {
            return;
        }
        let Some(notebook) = notebook.filter(|_| whose == uid && self.has_room(uid)) else {
            return;
        };
        self.sessions.push(Session {
            socket,
            notebook,
            uid,
            program: of.program,
            kept: 0,
            due_ns: self.clock.now_ns() + READ_EVERY_NS,
            said: 0,
        });
    }

    fn has_room(&self, uid: u32) -> bool {
        let own = self.sessions.iter().filter(|session| session.uid == uid);
        let of_user = self.shared.state().limits.clients_per_user;
        self.sessions.len() < CLIENTS_MAX && own.count() < of_user
    }

    /// A process has ended its connection, or says something.
    fn hear(&mut self, place: usize) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        session.said += 1;
        let is_over = match session.socket.receive() {
            Ok((packet, _)) => packet.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        if is_over || session.said > TALK_MAX {
            self.keep(place);
            self.sessions.swap_remove(place);
        }
    }

    /// Reads the notebooks whose time it is.
    fn look(&mut self) {
        let now_ns = self.clock.now_ns();
        for place in 0..self.sessions.len() {
            let session = self.sessions.get(place);
            if session.is_some_and(|session| session.due_ns <= now_ns) {
                self.keep(place);
            }
        }
    }

    /// Keeps what is new in a notebook.
    fn keep(&mut self, place: usize) {
        let Some(session) = self.sessions.get_mut(place) else {
            return;
        };
        session.due_ns = self.clock.now_ns() + READ_EVERY_NS;
        let note = match notebook::read(&session.notebook) {
            Ok(Some(note)) if note.number != session.kept => note,
            Ok(_) => return,
            Err(error) => return tracing::debug!("{}: {error}", session.program),
        };
        session.kept = note.number;
        let text = String::from_utf8_lossy(&note.text);
        let noted = match Profile::parse(&text, Path::new("notebook")) {
            Ok(noted) => noted,
            // Its own user's loss.
            Err(error) => return tracing::debug!("{}: {error}", session.program),
        };
        let kept = self.inlet.store.keep(session.uid, &session.program, noted);
        let program = session.program.clone();
        self.tell(&program, kept);
    }

    fn tell(&mut self, program: &str, kept: io::Result<Kept>) {
        match kept {
            Ok(kept) => {
                self.is_said = false;
                if let Kept::OverDamage(why) = kept {
                    let text = format!("what was kept of {program:?} is replaced: {why}");
                    self.shared.tell(Draft::new(Kind::LearntNotKept, text));
                }
            }
            Err(_) if self.is_said => {}
            Err(error) => {
                self.is_said = true;
                let folder = self.inlet.store.folder().display();
                let text = format!(
                    "what runs teach of their kernels is not kept in {folder}: {error}; the next \
                     start of {program:?} begins with what was kept before"
                );
                self.shared.tell(Draft::new(Kind::LearntNotKept, text));
            }
        }
    }
}
