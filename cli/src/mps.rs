//! NVIDIA's MPS on this machine: whether its control daemon runs. `scheduler::host::mps_daemon`
//! starts and ends it; `scheduler::host::mps` has the queries to it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use scheduler::host::mps;
pub(crate) use scheduler::host::mps::PIPES_ENV;
use scheduler::host::mps_daemon::{LOCK_FILE, control_daemon};

#[derive(Clone, Debug)]
pub(crate) struct Mps {
    /// Where a program of this user would look for it.
    pub(crate) folder: PathBuf,
    /// Process id of the control daemon, if it lives; 0 if it has none in this namespace.
    pub(crate) pid: Option<u32>,
}

impl Mps {
    /// Looks where this process's environment points.
    pub(crate) fn look() -> Self {
        let folder = mps::pipes();
        let pid = control_daemon(&folder);
        Self { folder, pid }
    }

    pub(crate) fn state(&self) -> String {
        let shown = self.folder.display();
        match self.pid {
            Some(0) => format!("runs (outside this container, pipes in {shown})"),
            Some(pid) => match owner(pid).filter(|&uid| uid != 0 && uid != geteuid().as_raw()) {
                Some(uid) => format!(
                    "runs (pid {pid} of user {uid}; only that user can be its client; pipes in {shown})"
                ),
                None => format!("runs (pid {pid}, pipes in {shown})"),
            },
            None => format!("does not run (no process holds {LOCK_FILE} in {shown})"),
        }
    }
}

pub(crate) fn owner(pid: u32) -> Option<u32> {
    let process = Path::new("/proc").join(pid.to_string());
    Some(process.metadata().ok()?.uid())
}
