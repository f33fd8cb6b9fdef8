//! An MPS server's process, as the control daemon sees it: this program, run as its clients' user.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

use crate::log::Log;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Readable once it has ended.
    pub(crate) ended: OwnedFd,
    /// Readable once it is ready.
    pub(crate) ready: Option<OwnedFd>,
    pub(crate) uid: u32,
    /// Thread percentage of its clients, as printed.
    pub(crate) percentage: String,
    /// It ends when it has no clients.
    pub(crate) is_to_end: bool,
    /// The daemon has killed it.
    pub(crate) is_forced: bool,
}

impl Process {
    /// Starts a server for a user. It writes into the servers' log.
    pub(crate) fn start(uid: u32, percentage: String, log: &Log) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("nvidia-cuda-mps-server").arg("--server");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.file().map_or_else(Stdio::null, Stdio::from));
        if uid != geteuid().as_raw() {
            command.uid(uid);
        }
        let mut child = command.spawn()?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let ready = child.stdout.take().map(OwnedFd::from);
        Ok(Self {
            child,
            ended,
            ready,
            uid,
            percentage,
            is_to_end: false,
            is_forced: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.is_none()
    }

    /// Makes it exit by itself, at once.
    pub(crate) fn tell_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn force(&mut self) {
        self.is_forced = true;
        let _ = self.child.kill();
    }

    /// Its exit status, once it has ended: 0 if a signal ended it, as NVIDIA's daemon reports.
    pub(crate) fn status(&mut self) -> i32 {
        let status = self.child.wait();
        status.ok().and_then(|status| status.code()).unwrap_or(0)
    }
}
