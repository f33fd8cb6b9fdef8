//! The daemon's socket, and the right to serve it.
//! A daemon holds an exclusive lock on a file beside its socket (`<socket>.lock`, with its process
//! id) for as long as it lives. The kernel's lock ends with the process however that ends: a socket
//! with a free lock belongs to a dead daemon and is replaced. The lock file itself stays; removing
//! it would let two daemons each lock a file of that name.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::hello::{is_own, is_private, listen_whole, own_socket_folder, temporary_folder};
use rustix::fs::{FlockOperation, flock};

/// Environment variable for the socket: of daemon, library, command line.
pub const SOCKET_ENV: &str = "PILLION_SOCKET";

/// Folder of sockets, readable by everybody.
const FOLDER_MODE: u32 = 0o755;
/// Root's daemon serves every user; a client's rights follow from its credentials.
const ROOT_SOCKET_MODE: u32 = 0o666;
const USER_SOCKET_MODE: u32 = 0o600;
/// A user who may open the file may lock it (flock(2)), and so keep a daemon from its seat.
const LOCK_MODE: u32 = 0o600;

/// Why a daemon cannot have its socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon schedules this GPU.
    #[error("GPU {uuid} already has a daemon: pilliond pid {pid} (socket {})", socket.display())]
    Held {
        /// The GPU.
        uuid: String,
        /// The other daemon; "unknown" while it starts.
        pid: String,
        /// Its socket.
        socket: PathBuf,
    },
    /// Another daemon schedules this GPU and listens elsewhere.
    #[error("GPU {uuid} already has a daemon: {holder}")]
    Claimed {
        /// The GPU.
        uuid: String,
        /// The other daemon's process id and command line.
        holder: String,
    },
    /// The GPU cannot be claimed.
    #[error("cannot claim GPU {uuid}: {source}")]
    Claim {
        /// The GPU.
        uuid: String,
        /// The system's error.
        source: io::Error,
    },
    /// No folder for it.
    #[error(
        "{}: exists but is not a folder of this user alone (mode 0700), as it must be where \
         XDG_RUNTIME_DIR is not set; remove it or have it removed, or set XDG_RUNTIME_DIR, \
         [socket] path, or {SOCKET_ENV}", .0.display()
    )]
    NoFolder(PathBuf),
    /// Another user could write where this user's daemons listen.
    #[error("{}: is not a folder that only this user can change; have it removed", .0.display())]
    NotOwn(PathBuf),
    /// A file that is no socket is in the way.
    #[error("{}: exists and is not a socket; remove it, or set another [socket] path", .0.display())]
    InTheWay(PathBuf),
    /// The system refuses.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The failed step.
        doing: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The socket of a GPU's daemon: from the environment, else the configuration, else the default.
/// # Errors
/// [`SocketError::NoFolder`].
pub fn path_of(uuid: &str, configured: Option<&Path>) -> Result<PathBuf, SocketError> {
    let named = std::env::var_os(SOCKET_ENV).filter(|value| !value.is_empty());
    if let Some(path) = named {
        return Ok(path.into());
    }
    if let Some(path) = configured {
        return Ok(path.to_owned());
    }
    let folder = own_socket_folder();
    if folder == temporary_folder() {
        private_folder(&folder)?;
    }
    Ok(folder.join(format!("{uuid}.sock")))
}

/// Creates the folder for this user's sockets, unless it exists.
/// # Errors
/// As [`private_folder`].
pub fn make_own_folder() -> Result<PathBuf, SocketError> {
    let folder = own_socket_folder();
    if folder == temporary_folder() {
        private_folder(&folder)?;
        return Ok(folder);
    }
    let io = |doing| {
        let path = folder.clone();
        move |source| SocketError::Io {
            doing,
            path,
            source,
        }
    };
    match fs::create_dir(&folder) {
        // Readable by everybody, whatever the creator's umask.
        Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE))
            .map_err(io("cannot be made readable"))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io("cannot be created")(error)),
    }
    match is_own(&fs::metadata(&folder).map_err(io("cannot be examined"))?) {
        true => Ok(folder),
        false => Err(SocketError::NotOwn(folder)),
    }
}

/// Creates a folder in which nobody else can read or write, unless it exists. In `/tmp` anybody may
/// have created one of its name, or a link. Error: [`SocketError::NoFolder`] if it exists and is
/// not such a folder, [`SocketError::Io`] if it cannot be made.
fn private_folder(folder: &Path) -> Result<(), SocketError> {
    let io = |doing| {
        move |source: io::Error| SocketError::Io {
            doing,
            path: folder.to_owned(),
            source,
        }
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io("cannot be created")(error));
        }
        _ => {}
    }
    match is_private(&fs::symlink_metadata(folder).map_err(io("cannot be examined"))?) {
        true => Ok(()),
        false => Err(SocketError::NoFolder(folder.to_owned())),
    }
}

/// A listening socket, and the right to it. Dropping it removes the socket and releases the right.
#[derive(Debug)]
pub struct Seat {
    path: PathBuf,
    listener: OwnedFd,
    has_predecessor: bool,
    /// Leave nothing behind when dropped, as if no daemon had existed.
    is_for_a_while: bool,
    /// Locked until dropped, which is after the socket was removed.
    _lock: File,
}

impl Seat {
    /// Takes the seat of the daemon of GPU `uuid` at `path`.
    /// # Errors
    /// Another daemon has it, or the system refuses a step; see [`SocketError`].
    pub fn take(uuid: &str, path: &Path) -> Result<Self, SocketError> {
        Self::take_as(uuid, path, false)
    }

    /// As above, for a daemon that ends when unused: its lock file shows that no administrator has
    /// started it ([`is_installed`]).
    /// # Errors
    /// As [`Seat::take`].
    pub fn take_for_a_while(uuid: &str, path: &Path) -> Result<Self, SocketError> {
        Self::take_as(uuid, path, true)
    }

    fn take_as(uuid: &str, path: &Path, is_for_a_while: bool) -> Result<Self, SocketError> {
        let io = |doing| {
            move |source: io::Error| SocketError::Io {
                doing,
                path: path.to_owned(),
                source,
            }
        };
        if let Some(folder) = path.parent() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(FOLDER_MODE);
            builder
                .create(folder)
                .map_err(io("its folder cannot be created"))?;
        }
        let has_predecessor = beside(path, ".lock").exists();
        let lock = lock(uuid, path, is_for_a_while)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("cannot be examined")(error)),
        }
        let mode = match rustix::process::geteuid().is_root() {
            true => ROOT_SOCKET_MODE,
            false => USER_SOCKET_MODE,
        };
        let listener = listen_whole(path, Some(mode)).map_err(io("cannot listen there"))?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            has_predecessor,
            is_for_a_while,
            _lock: lock,
        })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the seat had a daemon since the machine or container started: that empties `/run`.
    #[must_use]
    pub fn has_predecessor(&self) -> bool {
        self.has_predecessor
    }

    /// The listening socket.
    #[must_use]
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // It may be removed already, which is fine.
        let _ = fs::remove_file(&self.path);
        if self.is_for_a_while {
            // A daemon that waits for the lock then holds an unlinked file. Two daemons may each
            // have a lock; only one of them gets the GPU (`crate::host::gpu_lock`).
            let _ = fs::remove_file(beside(&self.path, ".lock"));
        }
    }
}

/// Lock file mode of a daemon that ends when unused: visible to all, unlike [`LOCK_MODE`].
const LOCK_MODE_FOR_A_WHILE: u32 = 0o700;

/// Whether the daemon that listens at `socket`, or did since the machine or container started, is
/// permanent: a service that may just be restarting.
#[must_use]
pub fn is_installed(socket: &Path) -> bool {
    let mode = fs::metadata(beside(socket, ".lock")).map(|lock| lock.permissions().mode() & 0o777);
    mode.is_ok_and(|mode| mode != LOCK_MODE_FOR_A_WHILE)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(uuid: &str, socket: &Path, is_for_a_while: bool) -> Result<File, SocketError> {
    let path = beside(socket, ".lock");
    let io = |doing| {
        let path = path.clone();
        move |source| SocketError::Io {
            doing,
            path,
            source,
        }
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(LOCK_MODE)
        .open(&path)
        .map_err(io("the lock file cannot be opened"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = match pid.trim() {
                "" => "unknown",
                pid => pid,
            };
            return Err(SocketError::Held {
                uuid: uuid.to_owned(),
                pid: pid.to_owned(),
                socket: socket.to_owned(),
            });
        }
        Err(error) => return Err(io("cannot be locked")(error.into())),
    }
    let write = |file: &mut File| -> io::Result<()> {
        // An older daemon made it readable for everybody.
        let mode = match is_for_a_while {
            true => LOCK_MODE_FOR_A_WHILE,
            false => LOCK_MODE,
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(io("the process id cannot be written"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use protocol::hello::listen_at;

    use super::*;

    #[test]
    fn the_second_daemon_of_a_gpu_is_told_who_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/gpu.sock");
        let seat = Seat::take("GPU-1", &path).unwrap();
        let error = Seat::take("GPU-1", &path).unwrap_err().to_string();
        let expected = format!(
            "GPU GPU-1 already has a daemon: pilliond pid {} (socket {})",
            std::process::id(),
            path.display()
        );
        assert_eq!(error, expected);
        drop(seat);
        assert!(!path.exists());
        Seat::take("GPU-1", &path).unwrap();
    }

    #[test]
    fn a_dead_daemons_socket_is_replaced_and_anything_else_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.sock");
        drop(listen_at(&path).unwrap());
        assert!(path.exists());
        drop(Seat::take("GPU-1", &path).unwrap());
        fs::write(&path, "a letter").unwrap();
        let error = Seat::take("GPU-1", &path).unwrap_err();
        assert!(matches!(error, SocketError::InTheWay(_)), "{error}");
        assert!(path.exists());
    }

    #[test]
    fn a_daemon_for_a_while_leaves_nothing_and_is_not_taken_for_an_installed_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.sock");
        assert!(!is_installed(&path));
        let seat = Seat::take_for_a_while("GPU-1", &path).unwrap();
        assert!(!is_installed(&path));
        assert!(Seat::take("GPU-1", &path).is_err());
        drop(seat);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(Seat::take("GPU-1", &path).unwrap());
        assert!(is_installed(&path), "it may be starting anew");
    }

    #[test]
    fn nobody_else_can_lock_a_daemon_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu.sock");
        let lock = folder.path().join("gpu.sock.lock");
        let mode = || fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
        drop(Seat::take("GPU-1", &path).unwrap());
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        drop(Seat::take("GPU-1", &path).unwrap());
        assert_eq!(mode(), 0o600);
    }
}
