//! This process as a client of a daemon: the shared pages and what was settled when it attached.

use core::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use abi::types::{CUcontext, CUdevice};
use profiler::ProfileIndex;
use protocol::clock::Clock;
use protocol::ledger::LedgerPage;
use protocol::pages::{BellPage, ClientPage, DaemonPage, HpPage, LeasePage};

use crate::helper;
use crate::priority::Priorities;

/// A client. There is at most one for each device in a process, for good.
pub(crate) struct Client {
    /// Its index in [`crate::clients::CLIENTS`].
    pub(crate) index: u32,
    /// What its class makes of it.
    pub(crate) side: Side,
    /// Its number at the daemon.
    pub(crate) number: u64,
    /// Where the daemon listens.
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
    /// The job's ledger and our slot in it, where that daemon keeps one.
    pub(crate) ledger: Option<(&'static LedgerPage, usize)>,
    /// The connection to the daemon, open as long as the process lives.
    pub(crate) connection: OwnedFd,
    /// How others speak with the thread that finds out what has completed.
    pub(crate) helper: helper::Words,
    /// What is known about kernels: one file for a process, whatever its devices.
    pub(crate) profile: Option<&'static ProfileIndex>,
    /// The stream priorities of the device, if there is a choice.
    pub(crate) priorities: Option<Priorities>,
    /// What launches on default streams carry as an attribute, if this driver takes one.
    pub(crate) default_priority: Option<i32>,
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
