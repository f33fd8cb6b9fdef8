//! Descriptors that strangers send, and how to be rid of them.
//!
//! Whoever connects may pass any descriptor (unix(7), `SCM_RIGHTS`), and closing the last one of a file may take as long as its
//! sender likes: a file system of its own is asked, a TCP connection may linger (socket(7), `SO_LINGER`). That holds for what
//! arrives in our table, for what the kernel throws away for us, and for what is left unread in a connection that we close. So
//! the thread that serves clients closes none but small memory files that cannot grow, whose end takes nobody's consent and no time: all
//! others go to a thread that does nothing else, and a connection is read to its end before it is closed ([`Line`]).
//!
//! If that thread does not get on, no more descriptors are let in (Linux 6.16); an older kernel throws them away, which may
//! keep the thread that reads.

use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use protocol::hello::{receive, receive_packet};
use protocol::ledger::LedgerPage;
use protocol::pages::ClientPage;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::ioctl_fionbio;
use rustix::net::{Shutdown, shutdown};

/// Descriptors that wait to be closed; with so many there is an attack, and no more are let in.
const LEFT_USUAL_MAX: usize = 64;
/// Of those that are on their way already so many are taken; the rest is the kernel's to throw away.
const LEFT_MAX: usize = 2_048;

/// What clients have to bring: their page, and the ledger of their job.
const MEMORY_BYTES_MAX: i64 = size_of::<ClientPage>() as i64;
const _: () = assert!(size_of::<LedgerPage>() <= size_of::<ClientPage>());

/// Pages of such a file, bytes: four huge ones, where the system makes memory files of these
/// (tmpfs(5), `shmem_enabled`).
const PAGES_BYTES_MAX: i64 = 8 << 20;
/// What `st_blocks` is counted in, bytes (stat(3type)).
const BLOCK_BYTES: i64 = 512;

/// Packets that a connection can hold unread: some hundred of the smallest fill its buffer.
const UNREAD_MAX: usize = 4_096;

/// The thread that closes what others send.
#[derive(Debug)]
pub(crate) struct Disposal {
    queue: Sender<OwnedFd>,
    /// What it has not closed yet.
    left: Arc<AtomicUsize>,
}

impl Disposal {
    /// Starts the thread. It ends some time after this is dropped, and holds nobody up.
    ///
    /// # Errors
    ///
    /// The system has no thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, sent) = channel::<OwnedFd>();
        let left = Arc::new(AtomicUsize::new(0));
        let closed = Arc::clone(&left);
        let close_all = move || {
            for fd in sent {
                drop(fd);
                closed.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("pillion-dispose".to_owned());
        thread.spawn(close_all)?;
        Ok(Self { queue, left })
    }

    /// Whether so much waits to be closed that no more should be let in.
    pub(crate) fn is_stuck(&self) -> bool {
        // Relaxed: a count, nothing is ordered by it.
        self.left.load(Ordering::Relaxed) >= LEFT_USUAL_MAX
    }

    fn receive(&self, socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        if self.left.load(Ordering::Relaxed) >= LEFT_MAX {
            return Ok((receive_packet(socket)?, Vec::new()));
        }
        let (packet, fds) = receive(socket)?;
        let (memory, others): (Vec<OwnedFd>, Vec<OwnedFd>) =
            fds.into_iter().partition(is_page_like);
        for fd in others {
            self.left.fetch_add(1, Ordering::Relaxed);
            // The thread ends after us.
            let _ = self.queue.send(fd);
        }
        Ok((packet, memory))
    }
}

/// Whether it may be what clients have to bring. What is larger takes its time to be closed: all its pages are given back. Only memory
/// files can have seals at all, and one with this seal gets no more pages than it has within its size (fcntl(2), `F_SEAL_GROW`); that it
/// is there is looked at first. Pages may be behind the end (fallocate(2)), so they are counted, too.
fn is_page_like(fd: &OwnedFd) -> bool {
    let is_sealed = fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::GROW));
    is_sealed
        && fstat(fd).is_ok_and(|file| {
            let pages_bytes = file.st_blocks.saturating_mul(BLOCK_BYTES);
            file.st_size <= MEMORY_BYTES_MAX && pages_bytes <= PAGES_BYTES_MAX
        })
}

/// A connection with somebody who is not believed. Dropping it closes it, and what was not read of it elsewhere.
#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    disposal: Arc<Disposal>,
}

impl Line {
    /// One that was accepted.
    pub(crate) fn new(socket: OwnedFd, disposal: &Arc<Disposal>) -> Self {
        let disposal = Arc::clone(disposal);
        Self { socket, disposal }
    }

    /// Receives one packet, and the memory files that came with it. Whether they are of any use is not looked at.
    ///
    /// # Errors
    ///
    /// What the system says; that there is nothing to read, too.
    pub(crate) fn receive(&self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        self.disposal.receive(&self.socket)
    }
}

impl Deref for Line {
    type Target = OwnedFd;
    fn deref(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // After this nothing more arrives. What we have sent can still be read.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let _ = ioctl_fionbio(&self.socket, true);
        for _ in 0..UNREAD_MAX {
            match self.receive() {
                Ok((packet, _)) if !packet.is_empty() => {}
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::hello::{connect_to, listen_at, send};
    use protocol::segment::create_sealed;
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fcntl_add_seals, memfd_create};
    use std::os::fd::AsFd;

    use super::*;

    /// Somebody who sends, and the connection with it.
    fn connected() -> (OwnedFd, Line) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let listener = listen_at(&path).unwrap();
        let client = connect_to(&path).unwrap();
        let disposal = Arc::new(Disposal::start().unwrap());
        let line = Line::new(rustix::net::accept(&listener).unwrap(), &disposal);
        (client, line)
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
        // Nor is there more once it is sealed.
        assert!(fallocate(&deep, FallocateFlags::KEEP_SIZE, behind, 1).is_err());
        send(&client, b"x", &[growing.as_fd(), deep.as_fd()]).unwrap();
        let (_, kept) = line.receive().unwrap();
        assert_eq!(kept.len(), 0);
    }
}
