//! The process at the other end of a connection, as reported by the kernel (unix(7), socket(7)).
//! Users and groups are those of the process when it connected, whatever it has become or executed
//! since. The process is known by a descriptor that the kernel keeps with the connection (Linux
//! 6.5), so that no later process of the same id is mistaken for it; on older kernels, by its id.

#![expect(unsafe_code, reason = "system calls without a safe form")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::config::memory_rules::{Owner, cgroups};
use crate::core::job_key::Peer;

/// `SO_PASSRIGHTS` of Linux 6.16 (asm-generic/socket.h): whether senders may pass descriptors.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Room for groups at first; the kernel reports if there are more.
const GROUPS_USUAL: usize = 64;

/// The peer's user.
pub(crate) fn uid_of(socket: &OwnedFd) -> io::Result<u32> {
    Ok(getsockopt(socket, PeerCredentials)?.uid())
}

/// The peer's process id in this PID namespace, or, for a listening socket, the listener's; `None`
/// if it has none here, or cannot be queried.
#[must_use]
pub fn number_of(socket: &OwnedFd) -> Option<u32> {
    let credentials = getsockopt(socket, PeerCredentials).ok()?;
    u32::try_from(credentials.pid())
        .ok()
        .filter(|&pid| pid != 0)
}

/// The peer process, with a descriptor; an error if it has ended, or without a free descriptor.
pub(crate) fn of(socket: &OwnedFd) -> io::Result<(Peer, Option<OwnedFd>)> {
    let credentials = getsockopt(socket, PeerCredentials)?;
    // A process in an invisible PID namespace is 0 here.
    let pid = Pid::from_raw(credentials.pid());
    let process = match pid.map(|pid| process_of(socket, pid)) {
        Some(Ok(process)) => Some(process),
        Some(Err(Errno::SRCH)) => return Err(io::Error::other("the process has ended")),
        _ => None,
    };
    let peer = Peer {
        pid: pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()),
        uid: credentials.uid(),
    };
    Ok((peer, process))
}

fn process_of(socket: &OwnedFd, pid: Pid) -> rustix::io::Result<OwnedFd> {
    match getsockopt(socket, PeerPidfd) {
        Ok(process) => Ok(process),
        Err(nix::Error::ESRCH | nix::Error::EINVAL) => Err(Errno::SRCH),
        Err(_) => pidfd_open(pid, PidfdFlags::empty()),
    }
}

/// The owner of the peer process. Invisible parts are empty: groups on kernels older than 4.13,
/// cgroups in an invisible PID namespace.
pub(crate) fn owner(socket: &OwnedFd, peer: Peer, process: Option<&OwnedFd>) -> Owner {
    let own_group = getsockopt(socket, PeerCredentials).map(|credentials| credentials.gid());
    let mut gids = groups(socket);
    gids.extend(own_group);
    let cgroups = cgroups_of(peer.pid);
    // Read by id: valid if that process is still alive.
    let is_alive = process.is_some_and(|process| !may_have_ended(process));
    Owner {
        uid: peer.uid,
        gids,
        cgroups: if is_alive { cgroups } else { Vec::new() },
    }
}

/// The cgroups of a running process; none if invisible from here (`hidepid`, PID namespace): every
/// rule with a cgroup then applies.
fn cgroups_of(pid: u32) -> Vec<String> {
    cgroups(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
}

/// Whether a process is known to have ended, by its descriptor (pidfd_open(2)).
pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    matches!(poll_now(process), Ok(1..))
}

/// Whether a process may have ended: it has, or the kernel does not report it.
fn may_have_ended(process: &OwnedFd) -> bool {
    !matches!(poll_now(process), Ok(0))
}

fn poll_now(process: &OwnedFd) -> rustix::io::Result<usize> {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default()))
}

fn groups(socket: &OwnedFd) -> Vec<libc::gid_t> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_USUAL];
    // Twice if there are more than usual.
    for _ in 0..2 {
        let mut size_bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `size_bytes` to `groups`, which has that size, and the
        // needed size to `size_bytes`; both outlive the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut size_bytes,
            )
        };
        let count = size_bytes as usize / size_of::<libc::gid_t>();
        match result {
            0 => {
                groups.truncate(count);
                return groups;
            }
            _ if count > groups.len() => groups.resize(count, 0),
            _ => break,
        }
    }
    Vec::new()
}

/// Whether the peer may pass descriptors, if the kernel supports that.
pub(crate) fn let_descriptors(socket: &OwnedFd, may: bool) {
    let may = libc::c_int::from(may);
    // SAFETY: the option's value is an int, read from `may` during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const may).cast(),
            size_of_val(&may) as libc::socklen_t,
        )
    };
    if result != 0 {
        tracing::trace!("this kernel does not keep descriptors out (SO_PASSRIGHTS)");
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::{getgid, getgroups, getuid};
    use protocol::hello::{connect_to, listen_at};

    use super::*;

    fn connection() -> (OwnedFd, OwnedFd, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listener = listen_at(&path).unwrap();
        let client = connect_to(&path).unwrap();
        (client, rustix::net::accept(&listener).unwrap(), folder)
    }

    #[test]
    fn the_other_end_is_known_with_its_groups_and_cgroups() {
        let (_client, server, _folder) = connection();
        let (peer, process) = of(&server).unwrap();
        assert_eq!(peer.pid, std::process::id());
        let owner = owner(&server, peer, process.as_ref());
        assert_eq!(owner.uid, getuid().as_raw());
        let mut expected: Vec<u32> = getgroups().unwrap().iter().map(|g| g.as_raw()).collect();
        expected.push(getgid().as_raw());
        assert_eq!(owner.gids, expected);
        assert!(!owner.cgroups.is_empty());
        // An id alone is not trusted.
        let nobody = super::owner(&server, peer, None);
        assert!(nobody.cgroups.is_empty(), "{nobody:?}");
    }

    #[test]
    fn this_process_has_a_cgroup() {
        assert!(!cgroups_of(std::process::id()).is_empty());
        assert!(cgroups_of(u32::MAX).is_empty());
    }
}
