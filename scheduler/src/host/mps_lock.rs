//! Which daemon supervises MPS: one of a machine, while there is a daemon for each GPU.
//!
//! A lock on a file in the folder of the sockets, one for each folder of MPS's pipes. It is the
//! kernel's (flock(2)) and ends with the process, however that ends; then another daemon finds it
//! free at its next look. The file stays. Daemons whose sockets are in different folders do not see
//! each other's lock; then two of them supervise, and of two control daemons that they start the
//! second one ends at once.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// The right to start and restart MPS, as long as it is held.
#[derive(Debug)]
pub(crate) struct MpsLock {
    path: PathBuf,
    held: Option<File>,
    /// That it cannot be had was told.
    is_told: bool,
}

impl MpsLock {
    /// In this folder, for MPS's pipes of this name. Nothing is locked yet.
    pub(crate) fn new(folder: &Path, pipes: &str) -> Self {
        Self {
            path: folder.join(format!("mps-{pipes}.lock")),
            held: None,
            is_told: false,
        }
    }

    /// Whether it is ours, or is now.
    pub(crate) fn try_hold(&mut self) -> bool {
        if self.held.is_some() {
            return true;
        }
        match self.take() {
            Ok(file) => self.held = file,
            Err(error) if !std::mem::replace(&mut self.is_told, true) => {
                let path = self.path.display();
                tracing::warn!("{path}: {error}; this daemon does not supervise MPS");
            }
            Err(_) => {}
        }
        self.held.is_some()
    }

    fn take(&self) -> io::Result<Option<File>> {
        let mut options = OpenOptions::new();
        // Who may open it may lock it.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let options = options.custom_flags(flags);
        let file = options.write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(&self.path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_of_several_supervises_and_the_next_when_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |pipes| MpsLock::new(folder.path(), pipes);
        let (mut first, mut second, mut other) = (lock("a"), lock("a"), lock("b"));
        assert!(first.try_hold() && !second.try_hold());
        assert!(first.try_hold(), "it keeps it");
        assert!(other.try_hold(), "of another MPS");
        drop(first);
        assert!(second.try_hold());
    }

    #[test]
    fn where_there_is_no_folder_nobody_supervises() {
        assert!(!MpsLock::new(Path::new("/no/such/folder"), "a").try_hold());
    }
}
