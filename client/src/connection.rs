//! Our descriptors in a program that may close them, and the connection to the daemon.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use protocol::segment::identity;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

/// A descriptor of ours. A program that closes descriptors it does not own may close this one and
/// open something else under its number, so the file's identity is checked.
#[derive(Default)]
pub struct Descriptor {
    /// The lock is held for one system call that does not block.
    held: Mutex<Option<(OwnedFd, Option<File>)>>,
}

/// Device and inode.
type File = (u64, u64);

impl Descriptor {
    /// Takes over `descriptor`.
    pub fn new(descriptor: OwnedFd) -> Self {
        let file = identity(&descriptor).ok();
        Self {
            held: Mutex::new(Some((descriptor, file))),
        }
    }

    /// Runs `body` with the descriptor, if it is still open and still refers to our file.
    pub fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (descriptor, file) = held.as_ref()?;
        (file.is_some() && identity(descriptor).ok() == *file).then(|| body(descriptor))
    }

    /// Whether `other` refers to the same file.
    pub fn is_of(&self, other: &OwnedFd) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let file = held.as_ref().and_then(|(_, file)| *file);
        file.is_some() && identity(other).ok() == file
    }

    /// Closes the descriptor and keeps another one in its place.
    pub fn replace(&self, descriptor: OwnedFd) {
        self.close();
        let file = identity(&descriptor).ok();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((descriptor, file));
    }

    /// Closes the descriptor, unless its number now belongs to another file.
    pub fn close(&self) {
        let is_ours = self.with(|_| ()).is_some();
        let held = self.held.lock();
        let taken = held.unwrap_or_else(PoisonError::into_inner).take();
        if !is_ours {
            core::mem::forget(taken);
        }
    }
}

/// A connection whose end reports that this side is gone; to one daemon after another.
#[derive(Default)]
pub struct Connection {
    descriptor: Descriptor,
    /// Number of connections so far; 0 before the first.
    number: AtomicU64,
    /// The last connection known to have ended; the gate reads it without lock or system call.
    ended: AtomicU64,
    /// When a thread at the gate first rang during the daemon's present sleep.
    rung_ns: AtomicU64,
}

impl Connection {
    /// Begins the connection to the next daemon.
    pub fn begin(&self, descriptor: OwnedFd) {
        self.descriptor.replace(descriptor);
        self.rung_ns.store(0, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// The current connection's number.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Whether the daemon's side is known to have ended. A daemon's death ends it at once.
    #[inline]
    pub fn has_ended(&self) -> bool {
        // Relaxed: nothing but these numbers is read.
        let ended = self.ended.load(Ordering::Relaxed);
        ended != 0 && ended == self.number()
    }

    /// Notes that the daemon's side of connection `number` has ended.
    pub fn note_end(&self, number: u64) {
        self.ended.fetch_max(number, Ordering::Relaxed);
    }

    /// Since when a sleeping daemon has not woken although threads at the gate rang. `heartbeat_ns`
    /// is the time of its last poll, `told_ns` when the caller's thread rang. The first ring of the
    /// sleep counts, because no single wait may be as long as a daemon's permitted silence.
    pub fn rung_ns(&self, heartbeat_ns: u64, told_ns: u64) -> u64 {
        let rung_ns = self.rung_ns.load(Ordering::Relaxed);
        if rung_ns > heartbeat_ns {
            return rung_ns;
        }
        // The stored ring belongs to an earlier sleep.
        self.rung_ns.store(told_ns, Ordering::Relaxed);
        told_ns.max(heartbeat_ns)
    }

    /// Whether the other side has ended the connection. False if this side ended it.
    pub fn is_over(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = self
            .descriptor
            .with(|descriptor| recv(descriptor, &mut [0; 1], flags).map(|(_, n)| n));
        matches!(peeked, Some(Ok(0) | Err(Errno::CONNRESET)))
    }

    /// The descriptor's number, for a call that blocks for the life of the process and so must not
    /// hold the lock. `None` if the descriptor is not open.
    pub fn number_to_wait_on(&self) -> Option<RawFd> {
        self.descriptor.with(AsRawFd::as_raw_fd)
    }

    /// Sets how long one receive call waits for data.
    pub fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        let set = |socket: &OwnedFd| set_socket_timeout(socket, Timeout::Recv, Some(timeout));
        let set = self.descriptor.with(set);
        Ok(set.unwrap_or(Err(Errno::BADF))?)
    }

    /// Shuts down sending, or both directions. Returns whether that succeeded.
    pub fn end(&self, how: Shutdown) -> bool {
        let ended = self
            .descriptor
            .with(|descriptor| shutdown(descriptor, how).is_ok());
        ended.unwrap_or(false)
    }

    /// Runs `body` with the descriptor, if it is still open.
    pub fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.descriptor.with(body)
    }

    /// Closes the connection, as the daemon's side has ended.
    pub fn close(&self) {
        self.note_end(self.number());
        self.descriptor.close();
    }
}
