//! The sockets: those on which a daemon listens, and connections to them.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Suffix of a socket's name until it listens, see [`listen_whole`].
pub const NEW_SUFFIX: &str = ".new";
const BACKLOG: i32 = 128;

/// A socket that accepts clients at `path`, which must not exist.
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket that accepts clients at `path` and appears in one step. It is created under another
/// name (`path` and [`NEW_SUFFIX`]) with the permissions `mode` (without one, those that the umask
/// leaves), then renamed. A process that sees the socket can therefore connect, and a dead daemon's
/// socket is replaced without a gap. Any other file at `path` is replaced as well.
pub fn listen_whole(path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    let mut new_path = path.as_os_str().to_owned();
    new_path.push(NEW_SUFFIX);
    let new_path = PathBuf::from(new_path);
    match fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = listen_at(&new_path)?;
    if let Some(mode) = mode {
        fs::set_permissions(&new_path, Permissions::from_mode(mode))?;
    }
    fs::rename(&new_path, path)?;
    Ok(socket)
}

/// A connection to `path` on which no step exceeds `patience`: a stopped daemon hangs no client.
pub fn connect_within(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(patience))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A connection to the daemon at `path`.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
