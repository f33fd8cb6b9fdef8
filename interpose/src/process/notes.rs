//! Where a client notes what it learns of kernels, for the program's next start. The notebook is
//! memory of this process, which the daemon reads ([`protocol::notebook`]). A connection on which
//! nothing is sent shows the daemon this process's end. Nothing is noted where the system allows no
//! memory file, or no daemon keeps notes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use client::connection::Descriptor;
use profiler::ProfileIndex;
use protocol::notebook::Notebook;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use crate::platform::sys::locked;

#[derive(Default)]
pub(crate) struct Notes {
    /// Created when a daemon is first asked.
    notebook: Mutex<Option<Notebook>>,
    /// Its file, for the next daemon.
    file: Descriptor,
    /// To the daemon that reads it, or that has not answered yet.
    connection: Descriptor,
    /// Until when to poll for the answer, ns; 0: do not poll.
    late_until_ns: AtomicU64,
    late_look_ns: AtomicU64,
    are_read: AtomicBool,
    is_answered: AtomicBool,
    kept: OnceLock<&'static ProfileIndex>,
    program: OnceLock<Option<String>>,
}

impl Notes {
    pub(crate) fn file(&self) -> Option<OwnedFd> {
        let mut notebook = locked(&self.notebook);
        if notebook.is_none() {
            let (file, made) = Notebook::create().ok()?;
            self.file.replace(file);
            *notebook = Some(made);
        }
        // If the program has closed it, the daemon that had it reads on, and the next does not.
        self.file.with(OwnedFd::try_clone)?.ok()
    }

    /// The daemon reads the notebook as long as this connection is open.
    pub(crate) fn begin(&self, connection: OwnedFd) {
        self.connection.replace(connection);
        self.are_read.store(true, Ordering::Relaxed);
    }

    /// The daemon may still answer on this connection until then. `None`: no more.
    pub(crate) fn wait_until(&self, until_ns: Option<u64>) {
        self.late_until_ns
            .store(until_ns.unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn late_until_ns(&self) -> Option<u64> {
        let until_ns = self.late_until_ns.load(Ordering::Relaxed);
        (until_ns > 0).then_some(until_ns)
    }

    pub(crate) fn late_look_ns(&self) -> u64 {
        self.late_look_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn look_late_at(&self, at_ns: u64) {
        self.late_look_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Passes the connection to `read`, if the answer has come.
    pub(crate) fn answer<T>(&self, read: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        let is_there = |connection: &OwnedFd| {
            let mut sources = [PollFd::new(connection, PollFlags::IN)];
            poll(&mut sources, Some(&Timespec::default())) == Ok(1)
        };
        self.connection
            .with(|connection| is_there(connection).then(|| read(connection)))?
    }

    /// The connection to a daemon that reads nothing, but may still answer.
    pub(crate) fn hold(&self, connection: OwnedFd) {
        self.connection.replace(connection);
    }

    pub(crate) fn are_read(&self) -> bool {
        self.are_read.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, text: impl FnOnce() -> Option<String>) {
        if let Some(notebook) = &mut *locked(&self.notebook)
            && let Some(text) = text()
        {
            notebook.write(text.as_bytes());
        }
    }

    /// The process exits: closes the connection also for children that inherited it.
    pub(crate) fn end(&self) {
        self.connection
            .with(|connection| shutdown(connection, Shutdown::Both).is_ok());
    }

    /// The program's name; found once, on first use.
    pub(crate) fn program(&self, find: impl FnOnce() -> Option<String>) -> Option<&str> {
        self.program.get_or_init(find).as_deref()
    }

    pub(crate) fn set_kept(&self, kept: &'static ProfileIndex) {
        let _ = self.kept.set(kept);
    }

    /// The knowledge kept of earlier runs, without the contents of the job's profile.
    pub(crate) fn kept(&self) -> Option<&'static ProfileIndex> {
        self.kept.get().copied()
    }

    /// Whether this is the first answer. Later ones contain what this very run has learnt.
    pub(crate) fn is_first_answer(&self) -> bool {
        !self.is_answered.swap(true, Ordering::Relaxed)
    }
}
