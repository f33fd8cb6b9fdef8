//! This process as a client of a device's daemons, and that device as its driver describes it.

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

/// A client. At most one per device, for the life of the process; daemons come and go.
pub(crate) struct Client {
    pub(crate) shared: client::Client,
    pub(crate) index: u32,
    pub(crate) device: CUdevice,
    /// The device's identity as daemons know it; empty if the driver does not report it.
    pub(crate) uuid: String,
    /// Where a daemon may listen, the likeliest first.
    pub(crate) sought: Vec<PathBuf>,
    pub(crate) socket: Mutex<PathBuf>,
    pub(crate) helper: Words,
    /// Known kernels: from the process's profile, and kept from earlier runs.
    pub(crate) known: Current<ProfileIndex>,
    pub(crate) gpu: Gpu,
    pub(crate) notes: Notes,
    pub(crate) is_recording: bool,
    pub(crate) priorities: Option<Priorities>,
    /// The priority of high-priority launches on default streams, if this driver supports it.
    pub(crate) default_priority: Option<i32>,
    pub(crate) priority_use: PriorityUse,
    #[cfg(not(shim))]
    pub(crate) requests: OpenRequests,
    #[cfg(not(shim))]
    pub(crate) on_batch: Handlers,
    /// Whether MPS shares the device, if this driver reports it.
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
    #[inline]
    pub(crate) fn thread(&self) -> ThisThread {
        ThisThread::of(self.index)
    }

    #[inline]
    pub(crate) fn profile(&self) -> Option<&'static ProfileIndex> {
        self.known.get()
    }

    pub(crate) fn note_socket(&self, socket: &Path) {
        let mut last = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.clone_into(&mut last);
    }
}

/// A context handle as a number, which other threads may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    pub(crate) fn context(self) -> CUcontext {
        CUcontext(core::ptr::with_exposed_provenance_mut(self.0 as usize))
    }
}

impl From<CUcontext> for Handle {
    fn from(context: CUcontext) -> Self {
        Self(context.0.expose_provenance() as u64)
    }
}
