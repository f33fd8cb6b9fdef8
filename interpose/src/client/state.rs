//! This process as a client of a daemon: the shared pages and what was settled when it attached.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use core::{fmt, slice};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use abi::types::{CUcontext, CUdevice};
use profiler::ProfileIndex;
use protocol::clock::Clock;
use protocol::ledger::LedgerPage;
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage};
use protocol::segment::identity;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use crate::client::helper_words::Words;
use crate::client::priority::Priorities;
use crate::platform::sys;

/// A client. There is at most one for each device in a process; its successor takes its place when its daemon has gone.
pub(crate) struct Client {
    /// Its index in [`crate::client::clients::CLIENTS`].
    pub(crate) index: u32,
    /// What its class makes of it.
    pub(crate) side: Side,
    /// How many it follows: of what threads keep about a client, this says whether it is about this one.
    pub(crate) generation: u32,
    /// Its number at the daemon.
    pub(crate) number: u64,
    /// Where the daemon listens; of one that has none, where it is looked for first.
    pub(crate) socket: PathBuf,
    /// The time that daemon and client share.
    pub(crate) clock: Clock,
    /// What the daemon tells everybody; read only.
    pub(crate) daemon: &'static DaemonPage,
    /// What HP tells BE; read only for BE.
    pub(crate) hp: &'static HpPage,
    /// What wakes the daemon.
    pub(crate) bell: &'static BellPage,
    /// What this client and the daemon share.
    pub(crate) page: &'static ClientPage,
    /// The device of that daemon.
    pub(crate) device: CUdevice,
    /// Our slot in the job's ledger, where that daemon keeps one.
    pub(crate) ledger: Option<LedgerSlot>,
    /// The device's identity as daemons know it; empty if the driver does not tell.
    pub(crate) uuid: String,
    /// The connection to the daemon, open as long as both live.
    pub(crate) connection: Connection,
    /// How others speak with the thread that finds out what has completed; the same for all that follow each other.
    pub(crate) helper: &'static Words,
    /// What is known about kernels: one file for a process, whatever its devices.
    pub(crate) profile: Option<&'static ProfileIndex>,
    /// The stream priorities of the device, if there is a choice.
    pub(crate) priorities: Option<Priorities>,
    /// Whether MPS shares the device, if this driver says so.
    pub(crate) is_on_mps: Option<bool>,
    /// What launches on default streams carry as an attribute, if this driver takes one.
    pub(crate) default_priority: Option<i32>,
    /// Of one that no daemon has taken so far.
    pub(crate) provisional: Option<Provisional>,
}

/// What a client that no daemon has taken knows of daemons ([`crate::daemon::provisional`]).
pub(crate) struct Provisional {
    /// Where one may listen, the likeliest first.
    pub(crate) sought: Vec<PathBuf>,
    /// One was there, and refused.
    pub(crate) is_refused: bool,
}

/// What its class makes of a client.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// Launches at once and says so.
    HighPriority,
    /// Launches what the lease allows.
    BestEffort(&'static LeasePage),
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
    /// Whether this is a high-priority client.
    pub(crate) fn is_high_priority(&self) -> bool {
        matches!(self.side, Side::HighPriority)
    }

    /// Where a daemon is looked for.
    pub(crate) fn sought(&self) -> &[PathBuf] {
        let sought = self.provisional.as_ref().map(|known| &known.sought[..]);
        sought.unwrap_or(slice::from_ref(&self.socket))
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
pub(crate) struct Descriptor {
    /// Locked for the length of a system call that does not wait.
    held: Mutex<Option<OwnedFd>>,
    identity: Option<(u64, u64)>,
}

impl Descriptor {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self {
            identity: identity(&descriptor).ok(),
            held: Mutex::new(Some(descriptor)),
        }
    }

    /// Runs `body` with it, if it is still open and this one.
    pub(crate) fn with<T>(&self, body: impl FnOnce(&OwnedFd) -> T) -> Option<T> {
        let held = self.held.lock();
        let held = held.unwrap_or_else(PoisonError::into_inner);
        let is_ours = |held: &&OwnedFd| self.is_of(held);
        held.as_ref().filter(is_ours).map(body)
    }

    /// Whether that is a descriptor of the same file.
    pub(crate) fn is_of(&self, other: &OwnedFd) -> bool {
        self.identity.is_some() && identity(other).ok() == self.identity
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

/// A connection whose end tells the other side that this one is gone.
pub(crate) struct Connection {
    descriptor: Descriptor,
    /// The daemon's side is known to have ended. Threads at the gate read it without a lock and without a system call.
    has_ended: AtomicBool,
    /// When a thread at the gate first rang the daemon in its present sleep.
    rung_ns: AtomicU64,
}

impl Connection {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self {
            descriptor: Descriptor::new(descriptor),
            has_ended: AtomicBool::new(false),
            rung_ns: AtomicU64::new(0),
        }
    }

    /// That of one that never had any.
    pub(crate) fn none() -> Self {
        Self {
            descriptor: Descriptor {
                held: Mutex::new(None),
                identity: None,
            },
            has_ended: AtomicBool::new(false),
            rung_ns: AtomicU64::new(0),
        }
    }

    /// Whether the daemon's side is known to have ended, which a daemon's death does at once.
    pub(crate) fn has_ended(&self) -> bool {
        // Relaxed: the flag is all that is read.
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Notes that the daemon's side has ended.
    pub(crate) fn note_end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
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
        Ok(rustix::io::dup2(other, held.as_mut().unwrap())?)
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
        self.note_end();
        self.descriptor.close();
    }
}

impl fmt::Display for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.side {
            Side::HighPriority => "high-priority",
            Side::BestEffort(_) => "best-effort",
        };
        let kernels = self
            .profile
            .map_or(0, |index| index.profile().kernels.len());
        write!(
            formatter,
            "attached to {} as {class} client {}, {kernels} kernels known",
            self.socket.display(),
            self.number
        )
    }
}
