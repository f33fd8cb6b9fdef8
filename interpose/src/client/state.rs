//! This process as a client of a daemon: the shared pages and what was settled when it attached.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::types::{CUcontext, CUdevice};
use profiler::ProfileIndex;
use protocol::clock::Clock;
use protocol::ledger::LedgerPage;
use protocol::pages::{ClientPage, LeasePage};
use protocol::segment::{Mapping, identity};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::client::helper_words::Words;
use crate::client::link::Link;
use crate::client::priority::Priorities;
use crate::platform::sys;

/// A client. There is at most one for each device in a process, for the life of the process; its
/// daemons come and go.
pub(crate) struct Client {
    /// Its index in [`crate::client::clients::CLIENTS`].
    pub(crate) index: u32,
    /// The device of its daemons.
    pub(crate) device: CUdevice,
    /// The device's identity as daemons know it; empty if the driver does not tell.
    pub(crate) uuid: String,
    /// Where a daemon may listen, the likeliest first.
    pub(crate) sought: Vec<PathBuf>,
    /// Where the last daemon that took it listens, or did.
    pub(crate) socket: Mutex<PathBuf>,
    /// The time that daemon and client share.
    pub(crate) clock: Clock,
    /// What this client and its daemons share: sums, counters and rings, of the whole life of the
    /// process.
    pub(crate) page: Mapping<ClientPage>,
    /// Of that page, for the next daemon.
    pub(crate) page_descriptor: Descriptor,
    /// The daemon's pages.
    pub(crate) link: Link,
    /// The connection to the daemon, open as long as both live.
    pub(crate) connection: Connection,
    /// Our slot in the job's ledger, where the daemon keeps one.
    pub(crate) ledger: Mutex<Option<LedgerSlot>>,
    /// How others speak with the thread that finds out what has completed.
    pub(crate) helper: Words,
    /// What is known about kernels: one file for a process, whatever its devices.
    pub(crate) profile: Option<&'static ProfileIndex>,
    /// The stream priorities of the device, if there is a choice.
    pub(crate) priorities: Option<Priorities>,
    /// What high-priority launches on default streams carry as an attribute, if this driver takes
    /// one.
    pub(crate) default_priority: Option<i32>,
    /// Whether MPS shares the device, if this driver says so.
    pub(crate) is_on_mps: Option<bool>,
    /// A daemon has taken it, at least once.
    pub(crate) is_taken: AtomicBool,
}

/// What its class makes of a client.
#[derive(Clone, Copy)]
pub(crate) enum Side<'a> {
    /// Launches at once and says so.
    HighPriority,
    /// Launches what the lease allows.
    BestEffort(&'a LeasePage),
}

/// A context handle as a number, which may be kept where every thread sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    /// The handle as the driver takes it.
    pub(crate) fn context(self) -> CUcontext {
        CUcontext(core::ptr::with_exposed_provenance_mut(self.0 as usize))
    }
}

impl From<CUcontext> for Handle {
    fn from(context: CUcontext) -> Self {
        Self(context.0.expose_provenance() as u64)
    }
}

impl Client {
    /// Whether the daemon has this process for high-priority.
    #[inline]
    pub(crate) fn is_high_priority(&self) -> bool {
        self.link.is_high_priority()
    }

    /// What its class makes of it, as of now.
    #[inline]
    pub(crate) fn side(&self) -> Side<'_> {
        match self.is_high_priority() {
            true => Side::HighPriority,
            false => Side::BestEffort(&self.link.lease),
        }
    }

    /// Its slot in the job's ledger, if it has one.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Option<LedgerSlot>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it has this slot.
    pub(crate) fn set_ledger(&self, ledger: LedgerSlot) {
        if let Some(before) = self.ledger().replace(ledger) {
            before.descriptor.close();
        }
    }

    /// A daemon that listens there has taken it.
    pub(crate) fn note_socket(&self, socket: &Path) {
        let mut last = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.clone_into(&mut last);
    }

    /// Whether a daemon has taken it so far.
    pub(crate) fn is_taken(&self) -> bool {
        // Relaxed: it stands for itself.
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// A process's slot in its job's ledger.
pub(crate) struct LedgerSlot {
    pub(crate) page: &'static LedgerPage,
    pub(crate) slot: usize,
    /// Of the page, for the next daemon.
    pub(crate) descriptor: Descriptor,
}

/// A descriptor that is kept. A program that closes descriptors which are not its own closes this one as well, and may open something
/// else under its number: so it is known by its file, too.
#[derive(Default)]
pub(crate) struct Descriptor {
    /// With its file. Locked for the length of a system call that does not wait.
    held: Mutex<Option<(OwnedFd, Option<File>)>>,
}

/// Device and inode.
type File = (u64, u64);

impl Descriptor {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        let file = identity(&descriptor).ok();
        Self {
            held: Mutex::new(Some((descriptor, file))),
        }
    }

    /// Runs `body` with it, if it is still open and this one.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (descriptor, file) = held.as_ref()?;
        (file.is_some() && identity(descriptor).ok() == *file).then(|| body(descriptor))
    }

    /// Whether that is a descriptor of the same file.
    pub(crate) fn is_of(&self, other: &OwnedFd) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let file = held.as_ref().and_then(|(_, file)| *file);
        file.is_some() && identity(other).ok() == file
    }

    /// Another one in its place, which is closed.
    pub(crate) fn replace(&self, descriptor: OwnedFd) {
        self.close();
        let file = identity(&descriptor).ok();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some((descriptor, file));
    }

    /// Closes it if it is this one, and leaves what has its number alone otherwise.
    pub(crate) fn close(&self) {
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
pub(crate) struct Connection {
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
    pub(crate) fn begin(&self, descriptor: OwnedFd) {
        self.descriptor.replace(descriptor);
        self.rung_ns.store(0, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    /// Which one it is.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Whether the daemon's side is known to have ended, which a daemon's death does at once.
    pub(crate) fn has_ended(&self) -> bool {
        // Relaxed: the numbers are all that is read.
        let ended = self.ended.load(Ordering::Relaxed);
        ended != 0 && ended == self.number()
    }

    /// Notes that the daemon's side of that one has ended.
    pub(crate) fn note_end(&self, number: u64) {
        self.ended.fetch_max(number, Ordering::Relaxed);
    }

    /// Since when a daemon that sleeps has not woken, although threads at the gate rang it: `heartbeat_ns` is of its last poll, and the
    /// caller's thread rang at `told_ns`. The first ring counts, because no single wait may be as long as a daemon's silence may be.
    pub(crate) fn rung_ns(&self, heartbeat_ns: u64, told_ns: u64) -> u64 {
        let rung_ns = self.rung_ns.load(Ordering::Relaxed);
        if rung_ns > heartbeat_ns {
            return rung_ns;
        }
        // Of a sleep before.
        self.rung_ns.store(told_ns, Ordering::Relaxed);
        told_ns.max(heartbeat_ns)
    }

    /// Whether the other side has ended it. Not if this side has.
    pub(crate) fn is_over(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = self
            .descriptor
            .with(|descriptor| recv(descriptor, &mut [0; 1], flags).map(|(_, n)| n));
        matches!(peeked, Some(Ok(0) | Err(Errno::CONNRESET)))
    }

    /// Waits until there is something to read, or the other side has ended it, or the receive timeout is over; how many bytes of a packet
    /// there are at least, none of which is taken. `None` if it is not open.
    pub(crate) fn wait_to_read(&self) -> Option<Result<usize, io::ErrorKind>> {
        // Not with the lock: a wait may last as long as the process.
        let number = self.descriptor.with(AsRawFd::as_raw_fd)?;
        Some(sys::peek(number).map_err(|error| error.kind()))
    }

    /// How long one call waits for something to read.
    pub(crate) fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        let set = |socket: &OwnedFd| set_socket_timeout(socket, Timeout::Recv, Some(timeout));
        let set = self.descriptor.with(set);
        Ok(set.unwrap_or(Err(Errno::BADF))?)
    }

    /// Puts another file under its number, as a program may do that closes descriptors which are not its own.
    #[cfg(test)]
    pub(crate) fn replace(&self, other: &OwnedFd) -> io::Result<()> {
        let mut held = self.descriptor.held.lock().unwrap();
        let (descriptor, _) = held.as_mut().unwrap();
        Ok(rustix::io::dup2(other, descriptor)?)
    }

    /// Says that nothing more comes from this side, or nothing more at all; whether that could be said.
    pub(crate) fn end(&self, how: Shutdown) -> bool {
        let ended = self
            .descriptor
            .with(|descriptor| shutdown(descriptor, how).is_ok());
        ended.unwrap_or(false)
    }

    /// Runs `body` with it, if it is still open.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        self.descriptor.with(body)
    }

    /// Closes it, as the daemon's side has ended.
    pub(crate) fn close(&self) {
        self.note_end(self.number());
        self.descriptor.close();
    }
}
