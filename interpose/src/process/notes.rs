//! Where a client notes what it learns of kernels, for the next start of its program.
//!
//! The notebook is memory of this process, which the daemon reads ([`protocol::notebook`]). A
//! connection that stays open tells the daemon of this process's end; nothing is said on it. Where
//! the system allows no memory file, or no daemon keeps anything, nothing is noted.

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use client::connection::Descriptor;
use protocol::notebook::Notebook;

use crate::platform::sys::locked;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Notes {
    /// Made when a daemon is first asked.
    notebook: Mutex<Option<Notebook>>,
    /// Its file, for the next daemon.
    file: Descriptor,
    /// To the daemon that reads it.
    connection: Descriptor,
    /// A daemon was given it.
    are_read: AtomicBool,
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

    /// Whether a daemon has been given it.
    pub(crate) fn are_read(&self) -> bool {
        self.are_read.load(Ordering::Relaxed)
    }

    /// Notes what `text` makes.
    pub(crate) fn write(&self, text: impl FnOnce() -> String) {
        if let Some(notebook) = &mut *locked(&self.notebook) {
            notebook.write(text().as_bytes());
        }
    }
}
