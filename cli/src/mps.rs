//! NVIDIA's MPS on this machine: whether its control daemon runs. Nothing here starts it or ends it. What it is asked for is in
//! `scheduler::host::mps`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::process::geteuid;
use scheduler::host::mps;
pub(crate) use scheduler::host::mps::PIPES_ENV;

/// The file that the control daemon holds a lock on as long as it lives (seen of R535 and R550).
const LOCK_FILE: &str = "control_lock";
/// The file in which the control daemon writes its process id, some releases' (R550's does, R535's
/// does not).
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// What there is of MPS.
#[derive(Clone, Debug)]
pub(crate) struct Mps {
    /// Where a program of this user would look for it.
    pub(crate) folder: PathBuf,
    /// Process id of the control daemon, if it lives; 0 where it has none here.
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
            Some(0) => format!("runs (outside of this container, pipes in {shown})"),
            Some(pid) => match owner(pid).filter(|&uid| uid != 0 && uid != geteuid().as_raw()) {
                Some(uid) => format!(
                    "runs (pid {pid} of user {uid}, who alone can be its client; pipes in {shown})"
                ),
                None => format!("runs (pid {pid}, pipes in {shown})"),
            },
            None => format!("does not run (nobody holds {LOCK_FILE} in {shown})"),
        }
    }
}

/// Its process id; 0 if it is in another PID namespace.
fn control_daemon(folder: &Path) -> Option<u32> {
    holder_of_lock(&folder.join(LOCK_FILE)).or_else(|| {
        let text = fs::read_to_string(folder.join(PID_FILE)).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        let process = Path::new("/proc").join(pid.to_string());
        process.exists().then_some(pid)
    })
}

/// Whose process it is.
fn owner(pid: u32) -> Option<u32> {
    let process = Path::new("/proc").join(pid.to_string());
    Some(process.metadata().ok()?.uid())
}

/// Who holds a lock on the file, as fcntl(2) tells (`F_GETLK`). Nothing is locked.
fn holder_of_lock(path: &Path) -> Option<u32> {
    let file = fs::File::open(path).ok()?;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    // 0: of a process that cannot be seen from here; -1: of a descriptor and no process.
    let is_held = lock.l_type != libc::F_UNLCK as i16;
    is_held.then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}
