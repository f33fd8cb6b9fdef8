//! Safe disposal of descriptors that untrusted peers send.
//!
//! A peer may pass any descriptor (unix(7), `SCM_RIGHTS`), and closing the last one of a file may
//! take as long as its sender likes: a user-space file system is asked, a TCP connection may linger
//! (socket(7), `SO_LINGER`). That holds for descriptors in our table, for those that the kernel
//! discards for us, and for those left unread in a connection that we close. So the thread that
//! serves clients closes only memory files that cannot grow and are no larger than a client's page
//! (4.3 MB), which takes nobody's consent and little time. All others go to a dedicated thread, and
//! a connection is read to its end before it is closed ([`UntrustedSocket`]).
//!
//! If that thread blocks, all users' descriptors queue behind the one being closed, and are counted
//! by user. A user with [`OF_USER_USUAL_MAX`] queued may pass no more (Linux 6.16), except on a
//! connection that is not accepted yet, whose user is unknown. From [`OF_USER_MAX`] on none are
//! taken, on any kernel: the user's packets are peeked at and left in the socket with their
//! descriptors, and that thread closes the user's connections, too. Other users' pages still
//! arrive.
//!
//! The number of kept descriptors is bounded: [`OF_USER_KEPT_MAX`] for a user, [`KEPT_MAX`] for
//! all. Beyond it the serving thread closes them and may block: no peer can be made to take a
//! descriptor back.

use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use parking_lot::Mutex;
use protocol::hello::{PACKET_BYTES_MAX, receive};
use protocol::ledger::LedgerPage;
use protocol::pages::ClientPage;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::ioctl_fionbio;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// Queued descriptors of one user that indicate an attack: no more are let in.
const OF_USER_USUAL_MAX: usize = 64;
/// From this many queued descriptors on, nothing more is received from the user. It is above
/// [`OF_USER_USUAL_MAX`], because packets sent before may still bring descriptors.
const OF_USER_MAX: usize = 512;
/// Kept descriptors of one user, including connections with untaken descriptors.
const OF_USER_KEPT_MAX: usize = KEPT_MAX / 4 * 3;
const KEPT_MAX: usize = 2_048;

/// Size of what clients legitimately bring: their page, and the job's ledger.
const MEMORY_BYTES_MAX: i64 = size_of::<ClientPage>() as i64;
const _: () = assert!(size_of::<LedgerPage>() <= size_of::<ClientPage>());

/// Memory of such a file: four huge pages, where it has them (tmpfs(5), `shmem_enabled`).
const PAGES_BYTES_MAX: i64 = 8 << 20;
/// Unit of `st_blocks`, bytes (stat(3type)).
const BLOCK_BYTES: i64 = 512;

/// Packets that a connection can hold unread: some hundred of the smallest fill its buffer.
const UNREAD_MAX: usize = 4_096;

#[derive(Debug, Default)]
struct Waiting(HashMap<u32, usize>);

impl Waiting {
    fn of(&self, uid: u32) -> usize {
        self.0.get(&uid).copied().unwrap_or(0)
    }

    fn add(&mut self, uid: u32) -> bool {
        let has_room = self.of(uid) < OF_USER_KEPT_MAX && self.0.values().sum::<usize>() < KEPT_MAX;
        if has_room {
            *self.0.entry(uid).or_default() += 1;
        }
        has_room
    }

    fn remove(&mut self, uid: u32) {
        if let Some(count) = self.0.get_mut(&uid) {
            *count -= 1;
        }
        self.0.retain(|_, count| *count > 0);
    }
}

#[derive(Debug)]
pub(crate) struct FdReaper {
    queue: Sender<(u32, OwnedFd)>,
    /// Not closed yet. Never close anything under this lock.
    waiting: Arc<Mutex<Waiting>>,
}

impl FdReaper {
    /// Starts the thread. It ends some time after this is dropped, without delaying the drop.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, sent) = channel::<(u32, OwnedFd)>();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let closed = Arc::clone(&waiting);
        let close_all = move || {
            for (uid, fd) in sent {
                drop(fd);
                closed.lock().remove(uid);
            }
        };
        let thread = thread::Builder::new().name("pillion-dispose".to_owned());
        thread.spawn(close_all)?;
        Ok(Self { queue, waiting })
    }

    pub(crate) fn is_shut_out(&self, uid: u32) -> bool {
        self.waiting.lock().of(uid) >= OF_USER_USUAL_MAX
    }

    fn is_full(&self, uid: u32) -> bool {
        self.waiting.lock().of(uid) >= OF_USER_MAX
    }

    /// Queues a descriptor for the thread, or closes it here if there is no room.
    fn dispose(&self, uid: u32, fd: OwnedFd) {
        let has_room = self.waiting.lock().add(uid);
        if has_room {
            // The thread outlives this handle.
            let _ = self.queue.send((uid, fd));
        }
    }
}

/// Whether it may be what clients legitimately bring. Larger files take long to close, as all their
/// pages are freed. Only memory files can have seals, and this seal prevents more pages within the
/// size (fcntl(2), `F_SEAL_GROW`); it must be checked first. Pages may exist beyond the end
/// (fallocate(2)), so they are counted, too.
fn is_page_like(fd: &OwnedFd) -> bool {
    let is_sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::GROW));
    is_sealed
        && fstat(fd).is_ok_and(|file| {
            let pages_bytes = file.st_blocks.saturating_mul(BLOCK_BYTES);
            file.st_size <= MEMORY_BYTES_MAX && pages_bytes <= PAGES_BYTES_MAX
        })
}

/// A connection with an untrusted peer. Dropping it closes it, and disposes of unread descriptors.
#[derive(Debug)]
pub(crate) struct UntrustedSocket {
    socket: OwnedFd,
    uid: u32,
    fd_reaper: Arc<FdReaper>,
}

impl UntrustedSocket {
    pub(crate) fn new(socket: OwnedFd, uid: u32, fd_reaper: &Arc<FdReaper>) -> Self {
        let fd_reaper = Arc::clone(fd_reaper);
        Self {
            socket,
            uid,
            fd_reaper,
        }
    }

    /// Receives one packet, and its memory files, whose content is not checked. For a user with
    /// [`OF_USER_MAX`] queued it returns the same packet each time, and leaves its descriptors in
    /// the connection. Error: the system's error, including an empty socket.
    pub(crate) fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        if self.fd_reaper.is_full(self.uid) {
            return Ok((self.peek()?, Vec::new()));
        }
        let (packet, fds) = receive(&self.socket)?;
        let (memory, others): (Vec<OwnedFd>, Vec<OwnedFd>) =
            fds.into_iter().partition(is_page_like);
        for fd in others {
            self.fd_reaper.dispose(self.uid, fd);
        }
        Ok((packet, memory))
    }

    /// The next packet, left in place: receiving it would make the kernel close descriptors here.
    fn peek(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PACKET_BYTES_MAX];
        let received = rustix::io::retry_on_intr(|| {
            recv(&self.socket, &mut bytes[..], RecvFlags::PEEK).map(|(_, received)| received)
        });
        bytes.truncate(received?);
        Ok(bytes)
    }
}

impl Deref for UntrustedSocket {
    type Target = OwnedFd;
    fn deref(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for UntrustedSocket {
    fn drop(&mut self) {
        // Nothing arrives after this, and data that we sent can still be read.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let _ = ioctl_fionbio(&self.socket, true);
        for _ in 0..UNREAD_MAX {
            if self.fd_reaper.is_full(self.uid) {
                // The thread gets the connection's last descriptor, and closes its content there.
                if let Ok(socket) = self.socket.try_clone() {
                    self.fd_reaper.dispose(self.uid, socket);
                }
                break;
            }
            match self.receive() {
                Ok((packet, _)) if !packet.is_empty() => {}
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::path::PathBuf;
    use std::time::Duration;

    use protocol::hello::{FDS_MAX, connect_to, listen_at, send};
    use protocol::segment::create_sealed;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, memfd_create};
    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    const ANNE: u32 = 61_001;
    const BOB: u32 = 61_002;

    struct Listening {
        listener: OwnedFd,
        path: PathBuf,
        fd_reaper: Arc<FdReaper>,
        _folder: tempfile::TempDir,
    }

    impl Listening {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("s.sock");
            Self {
                listener: listen_at(&path).unwrap(),
                path,
                fd_reaper: Arc::new(FdReaper::start().unwrap()),
                _folder: folder,
            }
        }

        fn connected(&self, uid: u32) -> (OwnedFd, UntrustedSocket) {
            let client = connect_to(&self.path).unwrap();
            let accepted = rustix::net::accept(&self.listener).unwrap();
            (client, UntrustedSocket::new(accepted, uid, &self.fd_reaper))
        }

        fn waiting(&self, uid: u32) -> usize {
            self.fd_reaper.waiting.lock().of(uid)
        }

        fn pages_of(&self, uid: u32) -> usize {
            let (client, line) = self.connected(uid);
            let page = create_sealed("page", size_of::<ClientPage>() as u64).unwrap();
            send(&client, b"x", &[page.as_fd()]).unwrap();
            let (packet, kept) = line.receive().unwrap();
            assert_eq!(packet, b"x");
            kept.len()
        }
    }

    fn connected() -> (OwnedFd, UntrustedSocket) {
        Listening::new().connected(ANNE)
    }

    /// A TCP connection whose close waits a day for unread data.
    fn endless_to_close() -> (OwnedFd, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        connection.set_nonblocking(true).unwrap();
        while connection.write(&[0; 65_536]).is_ok() {}
        let connection = OwnedFd::from(connection);
        set_socket_linger(&connection, Some(Duration::from_secs(86_400))).unwrap();
        (connection, listener)
    }

    #[test]
    fn what_of_one_user_does_not_let_itself_be_closed_costs_another_nothing() {
        let listening = Listening::new();
        let (client, line) = listening.connected(ANNE);
        let (endless, _tcp) = endless_to_close();
        send(&client, b"x", &[endless.as_fd()]).unwrap();
        drop(endless);
        line.receive().unwrap();
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        while listening.waiting(ANNE) < OF_USER_USUAL_MAX {
            assert!(!listening.fd_reaper.is_shut_out(ANNE));
            send(&client, b"x", &[pipe.as_fd(); FDS_MAX]).unwrap();
            line.receive().unwrap();
        }
        assert!(listening.fd_reaper.is_shut_out(ANNE));
        assert!(!listening.fd_reaper.is_shut_out(BOB));
        assert_eq!(listening.pages_of(BOB), 1);
        // His wait behind hers, and block only him.
        let (bobs, bobs_line) = listening.connected(BOB);
        send(&bobs, b"x", &[pipe.as_fd()]).unwrap();
        bobs_line.receive().unwrap();
        assert_eq!(listening.waiting(BOB), 1);
        // Her earlier descriptors are taken up to a bound, the rest left in place.
        while listening.waiting(ANNE) < OF_USER_MAX {
            send(&client, b"x", &[pipe.as_fd(); FDS_MAX]).unwrap();
            line.receive().unwrap();
        }
        let kept = listening.waiting(ANNE);
        let (second, _second_tcp) = endless_to_close();
        send(&client, b"y", &[second.as_fd()]).unwrap();
        drop(second);
        for _ in 0..2 {
            let (packet, memory) = line.receive().unwrap();
            assert_eq!((packet.as_slice(), memory.len()), (&b"y"[..], 0));
        }
        assert_eq!(listening.pages_of(ANNE), 0);
        drop(line);
        assert_eq!(listening.waiting(ANNE), kept + 2);
        assert_eq!(listening.pages_of(BOB), 1);
    }

    #[test]
    fn what_is_kept_open_is_bounded_for_a_user_and_for_all() {
        let mut waiting = Waiting::default();
        let mut added = |uid| (0..2 * KEPT_MAX).filter(|_| waiting.add(uid)).count();
        assert_eq!(added(ANNE), OF_USER_KEPT_MAX);
        assert_eq!(added(BOB), KEPT_MAX - OF_USER_KEPT_MAX);
        assert_eq!(added(0), 0);
        waiting.remove(ANNE);
        assert!(waiting.add(0));
        (0..KEPT_MAX).for_each(|_| waiting.remove(BOB));
        assert_eq!((waiting.of(BOB), waiting.0.len()), (0, 2));
    }

    #[test]
    fn what_is_too_large_for_a_page_is_closed_elsewhere() {
        let (client, line) = connected();
        let page = create_sealed("small", size_of::<ClientPage>() as u64).unwrap();
        let large = create_sealed("large", 64 << 20).unwrap();
        send(&client, b"x", &[large.as_fd(), page.as_fd(), large.as_fd()]).unwrap();
        let (_, kept) = line.receive().unwrap();
        let sizes: Vec<_> = kept.iter().map(|fd| fstat(fd).unwrap().st_size).collect();
        assert_eq!(sizes, [MEMORY_BYTES_MAX]);
    }

    #[test]
    fn what_may_grow_or_has_pages_behind_its_end_is_closed_elsewhere() {
        let (client, line) = connected();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let growing = memfd_create("growing", flags).unwrap();
        let deep = memfd_create("deep", flags).unwrap();
        let behind = 2 * PAGES_BYTES_MAX as u64;
        fallocate(&deep, FallocateFlags::KEEP_SIZE, 0, behind).unwrap();
        fcntl_add_seals(&deep, SealFlags::GROW).unwrap();
        assert_eq!(fstat(&deep).unwrap().st_size, 0);
        // Nor can it grow once it is sealed.
        assert!(fallocate(&deep, FallocateFlags::KEEP_SIZE, behind, 1).is_err());
        send(&client, b"x", &[growing.as_fd(), deep.as_fd()]).unwrap();
        let (_, kept) = line.receive().unwrap();
        assert_eq!(kept.len(), 0);
    }
}
