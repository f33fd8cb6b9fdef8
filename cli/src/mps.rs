//! NVIDIA's MPS on this machine: whether its control daemon runs. Nothing here starts it or ends it. What it is asked for is in
//! `scheduler::mps`.

use std::fs;
use std::path::{Path, PathBuf};

use scheduler::mps;
pub(crate) use scheduler::mps::PIPES_ENV;

/// The file in which the control daemon writes its process id.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// What there is of MPS.
#[derive(Clone, Debug)]
pub(crate) struct Mps {
    /// Where a program of this user would look for it.
    pub(crate) folder: PathBuf,
    /// Process id of the control daemon, if it lives.
    pub(crate) pid: Option<u32>,
}

impl Mps {
    /// Looks where this process's environment says.
    pub(crate) fn look() -> Self {
        let folder = mps::pipes();
        let pid = control_daemon(&folder);
        Self { folder, pid }
    }

    /// In words.
    pub(crate) fn state(&self) -> String {
        let shown = self.folder.display();
        match self.pid {
            Some(pid) => format!("runs (pid {pid}, pipes in {shown})"),
            None => format!("does not run (no {PID_FILE} of a living process in {shown})"),
        }
    }
}

fn control_daemon(folder: &Path) -> Option<u32> {
    let text = fs::read_to_string(folder.join(PID_FILE)).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new("/proc")
        .join(pid.to_string())
        .exists()
        .then_some(pid)
}
