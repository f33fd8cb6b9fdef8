//! One daemon per GPU, wherever it listens.
//!
//! The lock beside a socket ([`crate::socket`]) keeps two daemons from one *socket*; with another
//! `[socket] path` a second one could still schedule the same GPU, and neither would know of half the
//! jobs. So a daemon also binds an abstract Unix name made of the GPU's UUID (unix(7)): the kernel
//! gives it to one process of a network namespace, says which, and takes it back however that process
//! ends. No file, so no folder that every user must be able to write. Daemons in different network
//! namespaces do not see each other's claim.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

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
            Err(Errno::ADDRINUSE) if is_strangers(&name, uuid) => {
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

/// Whether who has `name` is of another user, and not root. One that cannot be asked (it does not listen, as daemons do, or lets
/// nobody through) is, unless it is a process of ours.
fn is_strangers(name: &SocketAddrUnix, uuid: &str) -> bool {
    let peer = new_socket().and_then(|socket| {
        connect(&socket, name)?;
        socket_peercred(&socket)
    });
    match peer {
        Ok(peer) => !peer.uid.is_root() && peer.uid != rustix::process::getuid(),
        Err(_) => !is_ours(uuid),
    }
}

/// Whether a process of our own user that we can see has the name's socket (proc_pid_net(5), proc_pid_fd(5)).
fn is_ours(uuid: &str) -> bool {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = format!("@pillion/{uuid}");
    let sockets = sockets.lines().map(str::split_ascii_whitespace);
    // A connection that waits to be accepted has the name too, and no inode: 0.
    let inodes = sockets.filter_map(|mut fields| {
        let inode = fields.nth(6)?;
        (fields.next()? == name && inode != "0").then_some(inode)
    });
    let links: Vec<PathBuf> = inodes
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    if links.is_empty() {
        return false;
    }
    let own = rustix::process::getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = processes.filter(|process| process.metadata().is_ok_and(|of| of.uid() == own));
    let mut descriptors = ours.flat_map(|process| {
        let folder = fs::read_dir(process.path().join("fd"));
        folder.into_iter().flatten().flatten()
    });
    descriptors.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| links.contains(&to)))
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
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    match command.trim() {
        "" => format!("pilliond pid {pid}"),
        command => format!("pilliond pid {pid} ({command})"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_gpu_is_claimed_once_and_again_when_it_was_given_up() {
        // Of this process alone, so that a second run of the tests is not in the way.
        let uuid = format!("GPU-claim-{}", std::process::id());
        let claim = Claim::take(&uuid).unwrap();
        let error = Claim::take(&uuid).unwrap_err().to_string();
        let expected = format!("GPU {uuid} is held by pilliond pid {}", std::process::id());
        assert!(error.starts_with(&expected), "{error}");
        // Each attempt leaves connections behind that nobody accepts, until no more can wait.
        for _ in 0..4 {
            let error = Claim::take(&uuid).unwrap_err();
            assert!(matches!(error, SocketError::Claimed { .. }), "{error}");
        }
        Claim::take(&format!("{uuid}-other")).unwrap();
        drop(claim);
        Claim::take(&uuid).unwrap();
    }

    /// A process of another user, which only root may start, that has the name of a GPU's daemon; `listens`: and lets nobody
    /// through. It ends when its input does.
    fn stranger(uuid: &str, listens: bool) -> Child {
        let program = r#"use Socket; $| = 1; $name = pack_sockaddr_un("\0pillion/$ARGV[0]");
            sub new { socket(my $s, PF_UNIX, SOCK_SEQPACKET, 0) or die; $s } $s = new(); bind($s, $name) or die "$!";
            if ($ARGV[1]) { listen($s, 0) or die; push @c, $c = new() and connect($c, $name) or die "$!"; }
            print "ready\n"; <STDIN>;"#;
        let mut child = Command::new("/usr/bin/perl")
            .args(["-e", program, uuid, if listens { "1" } else { "" }])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .uid(61_003)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        child
    }

    #[test]
    fn a_name_that_one_of_ours_has_and_does_not_listen_to_is_claimed() {
        let uuid = format!("GPU-claim-early-{}", std::process::id());
        let socket = new_socket().unwrap();
        let name = SocketAddrUnix::new_abstract_name(format!("pillion/{uuid}").as_bytes());
        bind(&socket, &name.unwrap()).unwrap();
        let error = Claim::take(&uuid).unwrap_err();
        assert!(matches!(error, SocketError::Claimed { .. }), "{error}");
    }

    #[test]
    fn nobody_else_can_keep_a_daemon_from_its_gpu_by_taking_the_name() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not shown: only root can be other users");
            return;
        }
        for listens in [false, true] {
            let uuid = format!("GPU-claim-{listens}-{}", std::process::id());
            let mut stranger = stranger(&uuid, listens);
            Claim::take(&uuid).unwrap();
            drop(stranger.stdin.take());
            assert!(stranger.wait().unwrap().success());
        }
    }
}
