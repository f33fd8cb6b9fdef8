//! This process as a client of a device's daemons, and what the driver says of that device.

use core::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use abi::types::{CUcontext, CUdevice};
#[cfg(not(shim))]
use client::requests::OpenRequests;
use profiler::ProfileIndex;
use profiler::scale::Gpu;

use crate::platform::sys::Current;
#[cfg(not(shim))]
use crate::process::batch_handlers::Handlers;
use crate::process::helper_words::Words;
use crate::process::notes::Notes;
use crate::process::priority::{Priorities, PriorityUse};
use crate::process::thread::ThisThread;

/// A client. There is at most one for each device in a process, for the life of the process; its
/// daemons come and go.
pub(crate) struct Client {
    /// What it shares with them.
    pub(crate) shared: client::Client,
    /// Its index in [`crate::process::clients::CLIENTS`].
    pub(crate) index: u32,
    /// The device of its daemons.
    pub(crate) device: CUdevice,
    /// The device's identity as daemons know it; empty if the driver does not tell.
    pub(crate) uuid: String,
    /// Where a daemon may listen, the likeliest first.
    pub(crate) sought: Vec<PathBuf>,
    /// Where the last daemon that took it listens, or did.
    pub(crate) socket: Mutex<PathBuf>,
    /// How others speak with the thread that finds out what has completed.
    pub(crate) helper: Words,
    /// What is known about kernels: the process's file, and what was kept of runs before.
    pub(crate) known: Current<ProfileIndex>,
    /// The device as its driver describes it.
    pub(crate) gpu: Gpu,
    /// Where it notes what it learns of kernels.
    pub(crate) notes: Notes,
    /// Whether what is launched is recorded ([`crate::kernels::record`]).
    pub(crate) is_recording: bool,
    /// The stream priorities of the device, if there is a choice.
    pub(crate) priorities: Option<Priorities>,
    /// What high-priority launches on default streams carry as an attribute, if this driver takes
    /// one.
    pub(crate) default_priority: Option<i32>,
    /// What the application asked of the one, and whether the driver takes the other.
    pub(crate) priority_use: PriorityUse,
    /// Which requests its program has begun and not ended ([`crate::process::marks`]).
    #[cfg(not(shim))]
    pub(crate) requests: OpenRequests,
    /// Which functions of its program are told of a batch that is wanted.
    #[cfg(not(shim))]
    pub(crate) on_batch: Handlers,
    /// Whether MPS shares the device, if this driver says so.
    pub(crate) is_on_mps: Option<bool>,
}

impl Deref for Client {
    type Target = client::Client;

    #[inline]
    fn deref(&self) -> &client::Client {
        &self.shared
    }
}

impl Client {
    /// The calling thread, as this client's daemons hear of it.
    #[inline]
    pub(crate) fn thread(&self) -> ThisThread {
        ThisThread::of(self.index)
    }

    /// What is known about kernels.
    #[inline]
    pub(crate) fn profile(&self) -> Option<&'static ProfileIndex> {
        self.known.get()
    }

    /// A daemon that listens there has taken it.
    pub(crate) fn note_socket(&self, socket: &Path) {
        let mut last = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.clone_into(&mut last);
    }
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
