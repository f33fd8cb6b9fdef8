//! One daemon per GPU, wherever it listens.
//!
//! The lock beside a socket ([`crate::host::socket`]) keeps two daemons from one *socket*; with
//! another `[socket] path` a second one could still schedule the same GPU, and each would know half
//! of the jobs. So a daemon also binds an abstract Unix name made of the GPU's UUID (unix(7)). The
//! kernel gives the name to one process of a network namespace, reports which, and reclaims it
//! however that process ends. It needs no file, so no folder writable by every user. Daemons in
//! different network namespaces do not see each other's name (docs/limits.md).
//!
//! Any user may bind any abstract name, so holding it does not prove a daemon. The holder counts as
//! one if it is root's or our own user's, or another user's and a `pilliond` as far as the system
//! shows (`/proc/PID/comm`, or an entirely invisible process): two daemons on one GPU would be
//! worse than one that an operator has to end. Any other holder is ignored, and named in the log.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with,
};
use rustix::process::{Pid, test_kill_process};

use crate::host::socket::SocketError;

/// The right to schedule a GPU; released when dropped.
#[derive(Debug)]
pub struct GpuLock {
    socket: Arc<OwnedFd>,
    /// Accepts every connection, so that the peer learns from the kernel who listens: waiting peers
    /// would exhaust the backlog, and take us for no daemon. None where another process has the
    /// name.
    porter: Option<JoinHandle<()>>,
}

impl Drop for GpuLock {
    fn drop(&mut self) {
        // Ends the porter's wait; the name is free once both have dropped the socket.
        let _ = shutdown(&*self.socket, Shutdown::Both);
        if let Some(porter) = self.porter.take() {
            let _ = porter.join();
        }
    }
}

impl GpuLock {
    /// Claims the GPU of this UUID for this process.
    /// # Errors
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
        let socket = Arc::new(socket);
        for _ in 0..TRIES {
            match bind(&*socket, &name) {
                Ok(()) => {
                    listen(&*socket, BACKLOG).map_err(claim)?;
                    let porter = start_porter(&socket);
                    return Ok(Self { socket, porter });
                }
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(claim(error)),
            }
            let stranger = match holder_of(&name, uuid) {
                // The holder does not listen, as daemons do, or accepts nobody, and is invisible: a
                // daemon of ours would be visible. Or it has just ended, and the name is free.
                None => continue,
                Some(holder) if holder.is_daemon() => {
                    let (uuid, holder) = (uuid.to_owned(), holder.words());
                    return Err(SocketError::Claimed { uuid, holder });
                }
                Some(stranger) => stranger.words(),
            };
            return Ok(Self::beside(socket, uuid, &stranger));
        }
        Ok(Self::beside(socket, uuid, "a process that is not visible"))
    }

    /// Another process, which is no daemon, has the name.
    fn beside(socket: Arc<OwnedFd>, uuid: &str, stranger: &str) -> Self {
        tracing::warn!(
            uuid,
            "{stranger} holds the lock name of this GPU's daemons but is no daemon: starting \
             without that lock"
        );
        Self {
            socket,
            porter: None,
        }
    }
}

/// Attempts to find the holder of the name. After them the holder counts as no daemon, and this
/// daemon starts without the lock.
const TRIES: usize = 10;

const BACKLOG: i32 = 64;
/// The porter's stack, bytes: it makes two system calls.
const STACK_BYTES: usize = 64 << 10;

/// Pause of the porter when the system has no descriptor or memory left.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Without a porter the first [`BACKLOG`] peers are still answered.
fn start_porter(socket: &Arc<OwnedFd>) -> Option<JoinHandle<()>> {
    let socket = Arc::clone(socket);
    let let_through = move || {
        // The porter only waits, so its socket may block.
        if ioctl_fionbio(&*socket, false).is_ok() {
            let_through(&socket, || accept_with(&*socket, SocketFlags::CLOEXEC));
        }
    };
    let thread = thread::Builder::new().name("pillion-claim".to_owned());
    let thread = thread.stack_size(STACK_BYTES).spawn(let_through);
    if let Err(error) = &thread {
        tracing::warn!("cannot start the thread that answers other daemons of this GPU: {error}");
    }
    thread.ok()
}

fn let_through(socket: &OwnedFd, mut accept: impl FnMut() -> rustix::io::Result<OwnedFd>) {
    loop {
        match accept() {
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
            // An immediate retry would worsen the shortage; meanwhile the backlog takes some peers.
            // A shutdown is always reported (poll(2), POLLHUP), and only here: accept needs a
            // descriptor first.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                let mut fds = [PollFd::new(socket, PollFlags::empty())];
                let _ = poll(&mut fds, Some(&PAUSE));
                if fds[0].revents().contains(PollFlags::HUP) {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A process that has the name, as far as visible.
#[derive(Debug)]
pub struct Holder {
    /// None if invisible from here.
    pub pid: Option<u32>,
    /// None likewise.
    pub uid: Option<u32>,
}

/// The daemon that has the GPU of this UUID, if any.
#[must_use]
pub fn holder(uuid: &str) -> Option<Holder> {
    let name = SocketAddrUnix::new_abstract_name(format!("pillion/{uuid}").as_bytes()).ok()?;
    holder_of(&name, uuid).filter(Holder::is_daemon)
}

fn holder_of(name: &SocketAddrUnix, uuid: &str) -> Option<Holder> {
    listener_of(name).or_else(|| owner_of(uuid))
}

impl Holder {
    /// Whether it belongs to this process's user.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.uid == Some(rustix::process::getuid().as_raw())
    }

    fn is_daemon(&self) -> bool {
        let own = rustix::process::getuid().as_raw();
        let is_ours = self.uid.is_some_and(|uid| uid == 0 || uid == own);
        is_ours || self.pid.is_none_or(is_called_pilliond)
    }

    fn words(&self) -> String {
        let own = rustix::process::getuid().as_raw();
        let of = match self.uid {
            Some(uid) if uid != own => format!(" of user {uid}"),
            _ => String::new(),
        };
        let Some(pid) = self.pid else {
            return format!("a process{of} that is not visible");
        };
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let kind = match self.is_daemon() {
            true => "pilliond",
            false => "process",
        };
        match command.trim() {
            "" => format!("{kind} pid {pid}{of}"),
            command => format!("{kind} pid {pid}{of} ({command})"),
        }
    }
}

/// Whether it runs a program of our name, or hides it (`hidepid` of proc(5)); false once ended.
fn is_called_pilliond(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => name.starts_with("pilliond"),
        Err(_) => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
        }
    }
}

/// The listener, as the kernel reports; a process in an invisible PID namespace has no id.
fn listener_of(name: &SocketAddrUnix) -> Option<Holder> {
    let socket = new_socket().ok()?;
    connect(&socket, name).ok()?;
    let credentials = getsockopt(&socket, PeerCredentials).ok()?;
    Some(Holder {
        pid: u32::try_from(credentials.pid())
            .ok()
            .filter(|&pid| pid != 0),
        uid: Some(credentials.uid()),
    })
}

/// The owner of the name's socket among visible descriptors: our own user's, and with the right to
/// trace all (proc_pid_net(5), proc_pid_fd(5)).
fn owner_of(uuid: &str) -> Option<Holder> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = format!("@pillion/{uuid}");
    let sockets = sockets.lines().map(str::split_ascii_whitespace);
    // A connection that waits for accept has the name too, with inode 0.
    let inodes = sockets.filter_map(|mut fields| {
        let inode = fields.nth(6)?;
        (fields.next()? == name && inode != "0").then_some(inode)
    });
    let links: Vec<PathBuf> = inodes
        .map(|inode| PathBuf::from(format!("socket:[{inode}]")))
        .collect();
    if links.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    // Skip other entries, such as `self`.
    let mut processes = processes
        .filter_map(|process| Some((process.file_name().to_str()?.parse().ok()?, process)));
    let (pid, process) = processes.find(|(_, process)| {
        let folder = fs::read_dir(process.path().join("fd"));
        let mut descriptors = folder.into_iter().flatten().flatten();
        descriptors.any(|fd| fs::read_link(fd.path()).is_ok_and(|to| links.contains(&to)))
    })?;
    Some(Holder {
        pid: Some(pid),
        uid: process.metadata().ok().map(|of| of.uid()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_gpu_is_claimed_once_and_again_when_it_was_given_up() {
        let uuid = format!("GPU-claim-{}", std::process::id());
        let claim = GpuLock::take(&uuid).unwrap();
        let error = GpuLock::take(&uuid).unwrap_err().to_string();
        let expected = format!(
            "GPU {uuid} already has a daemon: pilliond pid {}",
            std::process::id()
        );
        assert!(error.starts_with(&expected), "{error}");
        for _ in 0..4 * BACKLOG {
            let error = GpuLock::take(&uuid).unwrap_err().to_string();
            assert!(error.starts_with(&expected), "{error}");
        }
        GpuLock::take(&format!("{uuid}-other")).unwrap();
        drop(claim);
        GpuLock::take(&uuid).unwrap();
    }

    /// A porter at a name of this process, with `accept` in place of the system's.
    fn porter(
        which: &str,
        accept: impl Fn(&OwnedFd) -> rustix::io::Result<OwnedFd> + Send + 'static,
    ) -> (SocketAddrUnix, Arc<OwnedFd>, JoinHandle<()>) {
        let name = format!("pillion/GPU-claim-{which}-{}", std::process::id());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let socket = Arc::new(new_socket().unwrap());
        ioctl_fionbio(&*socket, false).unwrap();
        bind(&*socket, &name).unwrap();
        listen(&*socket, 0).unwrap();
        let listener = Arc::clone(&socket);
        let porter = thread::spawn(move || let_through(&listener, || accept(&listener)));
        (name, socket, porter)
    }

    #[test]
    fn who_asks_is_let_through_again_once_there_are_descriptors() {
        let refused = AtomicUsize::new(0);
        let (name, socket, porter) = porter("few", move |listener| {
            let refusals = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS];
            match refusals.get(refused.fetch_add(1, Ordering::Relaxed)) {
                Some(refusal) => Err(*refusal),
                None => accept_with(listener, SocketFlags::CLOEXEC),
            }
        });
        // More than the backlog. Each retries while there is no room, for a minute at most.
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        for _ in 0..8 {
            let asking = new_socket().unwrap();
            let mut tries = 0..6_000;
            while let Err(error) = connect(&asking, &name) {
                assert_eq!((error, tries.next().is_some()), (Errno::AGAIN, true));
                let _ = poll(&mut [], Some(&look));
            }
        }
        shutdown(&*socket, Shutdown::Both).unwrap();
        porter.join().unwrap();
    }

    #[test]
    fn a_porter_ends_with_its_socket_although_there_are_no_descriptors() {
        let (_, socket, porter) = porter("none", |_| Err(Errno::MFILE));
        shutdown(&*socket, Shutdown::Both).unwrap();
        porter.join().unwrap();
    }

    /// A process of another user (only root may start one) that has the name of a GPU's daemon and
    /// calls itself `called`; with `listens` it listens and accepts nobody. It ends with its input.
    fn stranger(uuid: &str, listens: bool, called: &str) -> Child {
        let program = r#"use Socket; $| = 1; $0 = $ARGV[2]; $name = pack_sockaddr_un("\0pillion/$ARGV[0]");
            sub new { socket(my $s, PF_UNIX, SOCK_SEQPACKET, 0) or die; $s } $s = new(); bind($s, $name) or die "$!";
            if ($ARGV[1]) { listen($s, 0) or die; push @c, $c = new() and connect($c, $name) or die "$!"; }
            print "ready\n"; <STDIN>;"#;
        let mut child = Command::new("/usr/bin/perl")
            .args(["-e", program, uuid, if listens { "1" } else { "" }, called])
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
        let error = GpuLock::take(&uuid).unwrap_err();
        assert!(matches!(error, SocketError::Claimed { .. }), "{error}");
    }

    #[test]
    fn who_is_not_called_pilliond_keeps_no_daemon_from_its_gpu_by_taking_the_name() {
        if !rustix::process::geteuid().is_root() {
            testing::ignore("only root can be other users");
        }
        for listens in [false, true] {
            let uuid = format!("GPU-claim-{listens}-{}", std::process::id());
            let mut stranger = stranger(&uuid, listens, "squatter");
            GpuLock::take(&uuid).unwrap();
            drop(stranger.stdin.take());
            assert!(stranger.wait().unwrap().success());
        }
    }

    #[test]
    fn a_daemon_of_another_user_keeps_its_gpu_and_is_named_with_its_user() {
        if !rustix::process::geteuid().is_root() {
            testing::ignore("only root can be other users");
        }
        for listens in [false, true] {
            let uuid = format!("GPU-claim-user-{listens}-{}", std::process::id());
            let mut daemon = stranger(&uuid, listens, "pilliond");
            let error = GpuLock::take(&uuid).unwrap_err().to_string();
            let holder = format!(
                "already has a daemon: pilliond pid {} of user 61003",
                daemon.id()
            );
            assert!(error.contains(&holder), "{error}");
            drop(daemon.stdin.take());
            assert!(daemon.wait().unwrap().success());
            GpuLock::take(&uuid).unwrap();
        }
    }
}
