//! Where clients find the daemon, and who may be it.
//!
//! A daemon holds an exclusive lock on a file beside its socket (`<socket>.lock`, its process id in
//! it) for as long as it lives. The lock is the kernel's, so it ends with the process however that
//! ends: a socket found under a free lock is a dead daemon's and is replaced. The lock file itself
//! stays; removing it would let two daemons each lock a file of that name.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::hello::{is_own, is_private, listen_whole, own_socket_folder, temporary_folder};
use rustix::fs::{FlockOperation, flock};

/// Names a socket for everybody: daemon, library, command line.
pub const SOCKET_ENV: &str = "PILLION_SOCKET";

/// Folder of sockets: everybody may look.
const FOLDER_MODE: u32 = 0o755;
/// Root's daemon serves every user; what a client may do follows from its credentials.
const ROOT_SOCKET_MODE: u32 = 0o666;
/// A user's own daemon serves that user.
const USER_SOCKET_MODE: u32 = 0o600;
/// Who may open a file may lock it (flock(2)), and so keep a daemon from its seat.
const LOCK_MODE: u32 = 0o600;

/// Why a daemon cannot have its socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another daemon schedules this GPU.
    #[error("GPU {uuid} is held by pilliond pid {pid} (socket {})", socket.display())]
    Held {
        /// The GPU.
        uuid: String,
        /// The other daemon; "unknown" in the moment in which it starts.
        pid: String,
        /// Its socket.
        socket: PathBuf,
    },
    /// Another daemon schedules this GPU and listens elsewhere.
    #[error("GPU {uuid} is held by {holder}")]
    Claimed {
        /// The GPU.
        uuid: String,
        /// The other daemon's process id and command line.
        holder: String,
    },
    /// The GPU cannot be claimed.
    #[error("claiming GPU {uuid}: {source}")]
    Claim {
        /// The GPU.
        uuid: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is nowhere to put it.
    #[error(
        "{}: is there, and is not a folder of this user's alone (mode 0700), as it must be where \
         XDG_RUNTIME_DIR is not set; remove it or have it removed, or set XDG_RUNTIME_DIR, \
         [socket] path, or {SOCKET_ENV}", .0.display()
    )]
    NoFolder(PathBuf),
    /// Somebody else could write where this user's daemons listen.
    #[error("{}: is not a folder that this user alone may change; have it removed", .0.display())]
    NotOwn(PathBuf),
    /// Something that is no socket is in the way.
    #[error("{}: exists and is not a socket; remove it, or set another [socket] path", .0.display())]
    InTheWay(PathBuf),
    /// The operating system refuses.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// What was done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// The socket of the daemon of a GPU: what the environment says, else the configuration, else the
/// usual place.
///
/// # Errors
///
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

/// Makes the folder in which this user's daemons put their sockets, unless it is there.
///
/// # Errors
///
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
        // Everybody's, whatever the umask of who happens to make it.
        Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(FOLDER_MODE))
            .map_err(io("making it readable"))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io("making it")(error)),
    }
    match is_own(&fs::metadata(&folder).map_err(io("looking at it"))?) {
        true => Ok(folder),
        false => Err(SocketError::NotOwn(folder)),
    }
}

/// Makes a folder in which nobody else can look or write, unless it is there. In `/tmp` anybody may
/// have made one of its name, or a link.
///
/// # Errors
///
/// [`SocketError::NoFolder`] if it is there and is not such a folder, [`SocketError::Io`] if it
/// cannot be made.
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
            return Err(io("making it")(error));
        }
        _ => {}
    }
    match is_private(&fs::symlink_metadata(folder).map_err(io("looking at it"))?) {
        true => Ok(()),
        false => Err(SocketError::NoFolder(folder.to_owned())),
    }
}

/// A socket that listens, and the right to. Dropping it removes the socket and gives up the right.
#[derive(Debug)]
pub struct Seat {
    path: PathBuf,
    listener: OwnedFd,
    has_predecessor: bool,
    /// Nothing of it stays when it is given up, as if no daemon had been there.
    is_for_a_while: bool,
    /// Locked until dropped, which is after the socket was removed.
    _lock: File,
}

impl Seat {
    /// Takes the seat of the daemon of GPU `uuid` at `path`.
    ///
    /// # Errors
    ///
    /// Another daemon has it, or the system refuses a step; see [`SocketError`].
    pub fn take(uuid: &str, path: &Path) -> Result<Self, SocketError> {
        Self::take_as(uuid, path, false)
    }

    /// The same, for a daemon that ends when nobody uses it: who finds its lock file knows that no
    /// administrator has started it ([`is_installed`]).
    ///
    /// # Errors
    ///
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
            builder.create(folder).map_err(io("making its folder"))?;
        }
        let has_predecessor = beside(path, ".lock").exists();
        let lock = lock(uuid, path, is_for_a_while)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::InTheWay(path.to_owned()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("looking at it")(error)),
        }
        let mode = match rustix::process::geteuid().is_root() {
            true => ROOT_SOCKET_MODE,
            false => USER_SOCKET_MODE,
        };
        let listener = listen_whole(path, Some(mode)).map_err(io("listening"))?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            has_predecessor,
            is_for_a_while,
            _lock: lock,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a daemon had it before, since the machine or its container started: `/run` is emptied then.
    #[must_use]
    pub fn has_predecessor(&self) -> bool {
        self.has_predecessor
    }

    /// What to accept from.
    #[must_use]
    pub fn listener(&self) -> &OwnedFd {
        &self.listener
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // If somebody has removed it before us: as good.
        let _ = fs::remove_file(&self.path);
        if self.is_for_a_while {
            // Whoever waits for it holds a file that nobody finds any more; of two who both have a
            // lock then, one gets the GPU (`crate::host::gpu_lock`).
            let _ = fs::remove_file(beside(&self.path, ".lock"));
        }
    }
}

/// The lock file of a daemon that ends when nobody uses it: as that of another, which everybody can
/// see.
const LOCK_MODE_FOR_A_WHILE: u32 = 0o700;

/// Whether the daemon that listens at `socket`, or has since the machine or container started, is
/// one that stays: a service that may just be starting anew.
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
        .map_err(io("opening the lock file"))?;
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
        Err(error) => return Err(io("locking")(error.into())),
    }
    let write = |file: &mut File| -> io::Result<()> {
        // An older daemon made it for everybody to read.
        let mode = match is_for_a_while {
            true => LOCK_MODE_FOR_A_WHILE,
            false => LOCK_MODE,
        };
        file.set_permissions(Permissions::from_mode(mode))?;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(io("writing the process id"))?;
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
            "GPU GPU-1 is held by pilliond pid {} (socket {})",
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
