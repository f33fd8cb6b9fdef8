//! The folder in which a job's processes record.
//!
//! It is somebody's for as long as he holds its lock (flock(2)): process ids mean nothing where
//! `/dev/shm` is shared with other containers.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use tempfile::TempDir;

/// Memory files that outlive a process and need no disk.
const SHARED_MEMORY: &str = "/dev/shm";
/// The beginning of a spool folder's name, before the id of its command, which is for people.
const FOLDER_PREFIX: &str = "pillion-spool-";
/// A folder may be taken for one that was left, between its making and its locking; so often another
/// is made.
const ATTEMPTS_MAX: u32 = 16;

/// The folder, which goes with this.
pub(super) struct Spool {
    folder: TempDir,
    /// Closed in programs that are started.
    _lock: File,
}

impl Spool {
    /// A folder of this user alone. What a command left that was killed is removed.
    pub(super) fn new() -> io::Result<Self> {
        let shared = Path::new(SHARED_MEMORY);
        remove_left(shared);
        let mut made = Err(io::ErrorKind::NotFound.into());
        for _ in 0..ATTEMPTS_MAX {
            made = Self::make(shared);
            if !made.as_ref().is_err_and(super::is_gone) {
                break;
            }
        }
        made
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn make(shared: &Path) -> io::Result<Self> {
        let prefix = format!("{FOLDER_PREFIX}{}-", std::process::id());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        let folder = builder.tempdir_in(shared).or_else(|_| builder.tempdir())?;
        let lock = File::open(folder.path())?;
        // Where locks are not known nobody removes anything either. Who holds it removes it.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            return Err(io::ErrorKind::NotFound.into());
        }
        fs::metadata(folder.path())?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }
}

/// Removes the folders that nobody holds any more.
fn remove_left(shared: &Path) {
    for entry in fs::read_dir(shared).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with(FOLDER_PREFIX) {
            continue;
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(entry.path());
        // Another user's stays where it is.
        if let Ok(folder) = folder
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
