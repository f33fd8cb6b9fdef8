//! The thread that watches the GPU's memory: takes back what dead processes held, once the device shows it free.
//!
//! A thread of its own, because NVML may take its time, and in real time, because what it asks is: on the virtual
//! clock nothing waits for it. NVML is opened when it is first needed; where there is none that is said once, and
//! the end of a process has to do.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::daemon::Shared;
use crate::nvml::{NvmlError, Processes};

/// Between two looks while memory of a dead process is not back. A fifth of the 100 ms within which it is to be.
const LEAVING_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// See the module's text.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    uuid: String,
    nvml: Nvml,
}

enum Nvml {
    NotOpened,
    Open(Processes),
    Missing,
}

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>, uuid: &str) -> Self {
        Self {
            shared,
            uuid: uuid.to_owned(),
            nvml: Nvml::NotOpened,
        }
    }

    /// Watches until the daemon stops.
    pub(crate) fn run(mut self) {
        while self.wait() {
            if self.shared.ledgers().is_anybody_leaving() {
                self.look();
            }
        }
    }

    /// Until there is something to look at; false when the daemon stops.
    fn wait(&self) -> bool {
        let is_urgent = self.shared.ledgers().is_anybody_leaving();
        let (stop, leaving) = (self.shared.stop_fd(), self.shared.leaving_fd());
        let mut fds = [
            PollFd::new(&stop, PollFlags::IN),
            PollFd::new(&leaving, PollFlags::IN),
        ];
        let timeout = is_urgent.then_some(&LEAVING_LOOK);
        // Interrupted or not, the next look is none too many.
        let _ = poll(&mut fds, timeout);
        let [stopped, left] = fds.map(|fd| !fd.revents().is_empty());
        if left {
            let _ = rustix::io::read(leaving, &mut [0; 8]);
        }
        !stopped
    }

    fn look(&mut self) {
        // Asked before the ledgers are locked: who attaches does not wait for NVML.
        let listed = match self.listed() {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!("{error}; memory of processes that ended counts as free at once");
                self.nvml = Nvml::Missing;
                Vec::new()
            }
        };
        let mut ledgers = self.shared.ledgers();
        ledgers.poll_leaving(has_ended, |pid| listed.contains(&pid));
    }

    /// The processes that have memory of the device.
    fn listed(&mut self) -> Result<Vec<u32>, NvmlError> {
        if let Nvml::NotOpened = self.nvml {
            self.nvml = Nvml::Open(Processes::open(&self.uuid)?);
        }
        match &self.nvml {
            Nvml::Open(processes) => Ok(processes.list()?.iter().map(|found| found.pid).collect()),
            _ => Ok(Vec::new()),
        }
    }
}

/// Whether a process has ended, by its descriptor (pidfd_open(2)).
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .is_ok_and(|ready| ready > 0)
}
