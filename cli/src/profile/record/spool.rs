//! The folder where a job's processes record. A command owns it while it holds the folder's lock
//! (flock(2)): process ids mean nothing where `/dev/shm` is shared with other containers.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use tempfile::TempDir;

/// Its files outlive a process and need no disk.
const SHARED_MEMORY: &str = "/dev/shm";
/// The command's process id follows, for people.
const FOLDER_PREFIX: &str = "pillion-spool-";
/// Limit on retries: before it is locked, a new folder looks abandoned to other commands.
const ATTEMPTS_MAX: u32 = 16;

/// Removed on drop.
pub(super) struct Spool {
    folder: TempDir,
    /// Closed in child programs.
    _lock: File,
}

impl Spool {
    /// Creates a folder for this user only, and removes folders of killed commands.
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
        // Without locks in the file system, nobody removes folders. The holder of the lock removes
        // this one.
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
        // Another user's folder stays.
        if let Ok(folder) = folder
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
