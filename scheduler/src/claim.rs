//! One daemon per GPU, wherever it listens.
//!
//! The lock beside a socket ([`crate::socket`]) keeps two daemons from one *socket*; with another
//! `[socket] path` a second one could still schedule the same GPU, and neither would know of half the
//! jobs. So a daemon also binds an abstract Unix name made of the GPU's UUID (unix(7)): the kernel
//! gives it to one process of a network namespace, says which, and takes it back however that process
//! ends. No file, so no folder that every user must be able to write. Daemons in different network
//! namespaces do not see each other's claim.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::socket::SocketError;

/// The right to schedule a GPU; given up when dropped.
#[derive(Debug)]
pub struct Claim {
    /// Nobody is accepted: who connects learns from the kernel who listens.
    _socket: OwnedFd,
}

impl Claim {
    /// Claims GPU `uuid` for this process.
    ///
    /// # Errors
    ///
    /// [`SocketError::Claimed`] if another daemon has it, [`SocketError::Claim`] if the system
    /// refuses a step.
    pub fn take(uuid: &str) -> Result<Self, SocketError> {
        let claim = |source: Errno| SocketError::Claim {
            uuid: uuid.to_owned(),
            source: source.into(),
        };
        let name = SocketAddrUnix::new_abstract_name(format!("pillion/{uuid}").as_bytes());
        let name = name.map_err(claim)?;
        let socket = new_socket().map_err(claim)?;
        match bind(&socket, &name) {
            Ok(()) => listen(&socket, 1).map_err(claim)?,
            // Any user may take any abstract name: only one of ours, or root, is a daemon.
            Err(Errno::ADDRINUSE) if is_strangers(&name) => {
                tracing::warn!(
                    uuid,
                    "another user holds the name that daemons of this GPU claim"
                );
            }
            Err(Errno::ADDRINUSE) => {
                return Err(SocketError::Claimed {
                    uuid: uuid.to_owned(),
                    holder: holder(&name),
                });
            }
            Err(error) => return Err(claim(error)),
        }
        Ok(Self { _socket: socket })
    }
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Whether who listens under `name` is known to be of another user, and not root.
fn is_strangers(name: &SocketAddrUnix) -> bool {
    let peer = new_socket().and_then(|socket| {
        connect(&socket, name)?;
        socket_peercred(&socket)
    });
    peer.is_ok_and(|peer| !peer.uid.is_root() && peer.uid != rustix::process::getuid())
}

/// Process id and command line of who listens under `name`; what cannot be seen is left out.
fn holder(name: &SocketAddrUnix) -> String {
    let peer = new_socket().and_then(|socket| {
        connect(&socket, name)?;
        socket_peercred(&socket)
    });
    let Ok(peer) = peer else {
        return "a process that cannot be seen".to_owned();
    };
    let pid = peer.pid.as_raw_nonzero();
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    match command.trim() {
        "" => format!("pilliond pid {pid}"),
        command => format!("pilliond pid {pid} ({command})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_claimed_once_and_again_when_it_was_given_up() {
        // Of this process alone, so that a second run of the tests is not in the way.
        let uuid = format!("GPU-claim-{}", std::process::id());
        let claim = Claim::take(&uuid).unwrap();
        let error = Claim::take(&uuid).unwrap_err().to_string();
        let expected = format!("GPU {uuid} is held by pilliond pid {}", std::process::id());
        assert!(error.starts_with(&expected), "{error}");
        Claim::take(&format!("{uuid}-other")).unwrap();
        drop(claim);
        Claim::take(&uuid).unwrap();
    }
}
