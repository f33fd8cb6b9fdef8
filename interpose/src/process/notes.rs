//! Where a client notes what it learns of kernels, for the next start of its program.
//!
//! The notebook is memory of this process, which the daemon reads ([`protocol::notebook`]). A
//! connection that stays open tells the daemon of this process's end; nothing is said on it. Where
//! the system allows no memory file, or no daemon keeps anything, nothing is noted.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use client::connection::Descriptor;
use profiler::ProfileIndex;
use protocol::notebook::Notebook;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

use crate::platform::sys::locked;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Notes {
    /// Made when a daemon is first asked.
    notebook: Mutex<Option<Notebook>>,
    /// Its file, for the next daemon.
    file: Descriptor,
    /// To the daemon that reads it, or that has not answered yet.
    connection: Descriptor,
    /// Until when its answer is looked for, ns; 0: not, or not any more.
    late_until_ns: AtomicU64,
    /// When it is looked for next, ns.
    late_look_ns: AtomicU64,
    /// A daemon was given it.
    are_read: AtomicBool,
    /// A daemon has said what is kept.
    is_answered: AtomicBool,
    /// What it has said.
    kept: OnceLock<&'static ProfileIndex>,
    program: OnceLock<Option<String>>,
}

impl Notes {
    /// The file of the notebook, for a daemon; `None` where there can be none.
    pub(crate) fn file(&self) -> Option<OwnedFd> {
        let mut notebook = locked(&self.notebook);
        if notebook.is_none() {
            let (file, made) = Notebook::create().ok()?;
            self.file.replace(file);
            *notebook = Some(made);
        }
        // A program may have closed it; then the daemon that had it reads on, and the next does not.
        self.file.with(OwnedFd::try_clone)?.ok()
    }

    /// A daemon reads it as long as this connection is open.
    pub(crate) fn begin(&self, connection: OwnedFd) {
        self.connection.replace(connection);
        self.are_read.store(true, Ordering::Relaxed);
    }

    /// The daemon may still answer on this connection. `None` ends that.
    pub(crate) fn wait_until(&self, until_ns: Option<u64>) {
        self.late_until_ns
            .store(until_ns.unwrap_or(0), Ordering::Relaxed);
    }

    /// Until when an answer is looked for.
    pub(crate) fn late_until_ns(&self) -> Option<u64> {
        let until_ns = self.late_until_ns.load(Ordering::Relaxed);
        (until_ns > 0).then_some(until_ns)
    }

    /// When it is looked for next.
    pub(crate) fn late_look_ns(&self) -> u64 {
        self.late_look_ns.load(Ordering::Relaxed)
    }

    /// It is looked for next at that time.
    pub(crate) fn look_late_at(&self, at_ns: u64) {
        self.late_look_ns.store(at_ns, Ordering::Relaxed);
    }

    /// What `read` makes of the answer, if it has come.
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

    /// Whether a daemon has been given it.
    pub(crate) fn are_read(&self) -> bool {
        self.are_read.load(Ordering::Relaxed)
    }

    /// Notes what `text` makes, if anything.
    pub(crate) fn write(&self, text: impl FnOnce() -> Option<String>) {
        if let Some(notebook) = &mut *locked(&self.notebook)
            && let Some(text) = text()
        {
            notebook.write(text.as_bytes());
        }
    }

    /// The process exits: the daemon need not wait for children that hold the connection, too.
    pub(crate) fn end(&self) {
        self.connection
            .with(|connection| shutdown(connection, Shutdown::Both).is_ok());
    }

    /// What this process's program is called; found out once, as early as it is asked.
    pub(crate) fn program(&self, find: impl FnOnce() -> Option<String>) -> Option<&str> {
        self.program.get_or_init(find).as_deref()
    }

    /// This is kept of the runs before.
    pub(crate) fn set_kept(&self, kept: &'static ProfileIndex) {
        let _ = self.kept.set(kept);
    }

    /// What is kept of the runs before, without what a profile that the job was given says.
    pub(crate) fn kept(&self) -> Option<&'static ProfileIndex> {
        self.kept.get().copied()
    }

    /// Whether this is the first answer to what is kept of the program. Later ones are of what this
    /// very run has taught, which it knows better.
    pub(crate) fn is_first_answer(&self) -> bool {
        !self.is_answered.swap(true, Ordering::Relaxed)
    }
}
