//! Descriptors that are kept, and the connection whose end says that one side is gone.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use protocol::segment::identity;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// A descriptor that is kept. A program that closes descriptors which are not its own closes this
/// one as well, and may open something else under its number: so it is known by its file, too.
#[derive(Default)]
pub struct Descriptor {
    /// With its file. Locked for the length of a system call that does not wait.
    held: Mutex<Option<(OwnedFd, Option<File>)>>,
}

/// Device and inode.
type File = (u64, u64);

impl Descriptor {
    /// That one, from now on.
    pub fn new(descriptor: OwnedFd) -> Self {
        let file = identity(&descriptor).ok();
        Self {
            held: Mutex::new(Some((descriptor, file))),
        }
    }

    /// Runs `body` with it, if it is still open and this one.
    pub fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (descriptor, file) = held.as_ref()?;
        (file.is_some() && identity(descriptor).ok() == *file).then(|| body(descriptor))
    }

    /// Whether that is a descriptor of the same file.
    pub fn is_of(&self, other: &OwnedFd) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let file = held.as_ref().and_then(|(_, file)| *file);
        file.is_some() && identity(other).ok() == file
    }

    /// Another one in its place, which is closed.
    pub fn replace(&self, descriptor: OwnedFd) {
        self.close();
        let file = identity(&descriptor).ok();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((descriptor, file));
    }

    /// Closes it if it is this one, and leaves what has its number alone otherwise.
    pub fn close(&self) {
        let is_ours = self.with(|_| ()).is_some();
        let held = self.held.lock();
        let taken = held.unwrap_or_else(PoisonError::into_inner).take();
        if !is_ours {
            core::mem::forget(taken);
        }
    }
}

/// A connection whose end tells the other side that this one is gone; to one daemon after another.
#[derive(Default)]
pub struct Connection {
    descriptor: Descriptor,
    /// How many there were; 0 before the first.
    number: AtomicU64,
    /// The last one of which it is known that the daemon's side has ended. Threads at the gate read
    /// it without a lock and without a system call.
    ended: AtomicU64,
    /// When a thread at the gate first rang the daemon in its present sleep.
    rung_ns: AtomicU64,
}

impl Connection {
    /// To the next daemon.
    pub fn begin(&self, descriptor: OwnedFd) {
        self.descriptor.replace(descriptor);
        self.rung_ns.store(0, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// Which one it is.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Whether the daemon's side is known to have ended, which a daemon's death does at once.
    #[inline]
    pub fn has_ended(&self) -> bool {
        // Relaxed: the numbers are all that is read.
        let ended = self.ended.load(Ordering::Relaxed);
        ended != 0 && ended == self.number()
    }

    /// Notes that the daemon's side of that one has ended.
    pub fn note_end(&self, number: u64) {
        self.ended.fetch_max(number, Ordering::Relaxed);
    }

    /// Since when a daemon that sleeps has not woken, although threads at the gate rang it:
    /// `heartbeat_ns` is of its last poll, and the caller's thread rang at `told_ns`. The first
    /// ring counts, because no single wait may be as long as a daemon's silence may be.
    pub fn rung_ns(&self, heartbeat_ns: u64, told_ns: u64) -> u64 {
        let rung_ns = self.rung_ns.load(Ordering::Relaxed);
        if rung_ns > heartbeat_ns {
            return rung_ns;
        }
        // Of a sleep before.
        self.rung_ns.store(told_ns, Ordering::Relaxed);
        told_ns.max(heartbeat_ns)
    }

    /// Whether the other side has ended it. Not if this side has.
    pub fn is_over(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = self
            .descriptor
            .with(|descriptor| recv(descriptor, &mut [0; 1], flags).map(|(_, n)| n));
        matches!(peeked, Some(Ok(0) | Err(Errno::CONNRESET)))
    }

    /// The descriptor's number, for a call that waits as long as the process lives: not with the
    /// lock. `None` if it is not open.
    pub fn number_to_wait_on(&self) -> Option<RawFd> {
        self.descriptor.with(AsRawFd::as_raw_fd)
    }

    /// How long one call waits for something to read.
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        let set = |socket: &OwnedFd| set_socket_timeout(socket, Timeout::Recv, Some(timeout));
        let set = self.descriptor.with(set);
        Ok(set.unwrap_or(Err(Errno::BADF))?)
    }

    /// Says that nothing more comes from this side, or nothing more at all; whether that could be
    /// said.
    pub fn end(&self, how: Shutdown) -> bool {
        let ended = self
            .descriptor
            .with(|descriptor| shutdown(descriptor, how).is_ok());
        ended.unwrap_or(false)
    }

    /// Runs `body` with it, if it is still open.
    pub fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.descriptor.with(body)
    }

    /// Closes it, as the daemon's side has ended.
    pub fn close(&self) {
        self.note_end(self.number());
        self.descriptor.close();
    }
}
