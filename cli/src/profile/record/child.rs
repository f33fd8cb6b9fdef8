//! The job as a child process: forwards signals, and waits for its end.

#![expect(unsafe_code, reason = "sets the disposition of SIGCHLD")]

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigHandler, SigSet, Signal, kill, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getsid};

/// Signals that end a program, and signals that programs define themselves.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// `si_code` of a signal from the kernel (sigaction(2)), such as a terminal's, which reaches the
/// whole foreground group, with the job. Only SIGHUP goes to the session's leader alone.
const FROM_KERNEL: i32 = 0x80;

/// A shell adds this to a fatal signal's number.
const SIGNALLED: i32 = 128;

pub(super) struct Child {
    pid: Pid,
    /// Forwarded signals and SIGCHLD, blocked while the command lives.
    signals: SignalFd,
}

impl Child {
    /// Starts a program with additional variables. It inherits this command's original signal mask.
    pub(super) fn start(
        program: &Path,
        arguments: &[OsString],
        more: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let mask: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
        let before = SigSet::thread_get_mask()?;
        // Block before the start, so that a signal that arrives now is forwarded later.
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let mut how = PosixSpawnAttr::init()?;
        how.set_sigmask(&before)?;
        how.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK)?;
        let files = PosixSpawnFileActions::init()?;
        let own = OsString::from("pillion");
        let arguments = [&own].into_iter().chain(arguments);
        let arguments: Vec<CString> = arguments
            .map(|text| text_of(text))
            .collect::<io::Result<_>>()?;
        let is_other = |name: &OsString| more.iter().all(|(set, _)| set != name);
        let others = std::env::vars_os().filter(|(name, _)| is_other(name));
        let mut variables = Vec::new();
        for (name, value) in others.chain(more.iter().cloned()) {
            variables.push(text_of(&assignment(&name, &value))?);
        }
        let program = text_of(program.as_os_str())?;
        let pid = posix_spawn(program.as_c_str(), &files, &how, &arguments, &variables)?;
        // A parent may have set SIGCHLD to be ignored; then no child's end can be waited for
        // (waitpid(2)). Change it only now, because the job inherits ignored signals.
        // SAFETY: `SigDfl` installs no handler, so no code of ours runs in signal context. Nothing
        // in the command relies on another disposition of SIGCHLD: it reads a signalfd.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl)? };
        Ok(Self { pid, signals })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Waits at most `patience`; returns the exit code of a job that has ended.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<u8>> {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut sources = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut sources, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(come) = self.signals.read_signal()? {
            let signal = Signal::try_from(come.ssi_signo as i32).ok();
            let signal = signal.filter(|signal| PASSED_ON.contains(signal));
            let is_for_group = |signal: &Signal| {
                come.ssi_code == FROM_KERNEL && !(*signal == Signal::SIGHUP && is_session_leader())
            };
            if let Some(signal) = signal.filter(|signal| !is_for_group(signal)) {
                // If the job has just ended, `waitpid` below reports it.
                let _ = kill(self.pid, signal);
            }
        }
        let ended = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => code,
            Ok(WaitStatus::Signaled(_, signal, _)) => SIGNALLED + signal as i32,
            Ok(_) | Err(Errno::EINTR) => return Ok(None),
            // The job ended while SIGCHLD was still ignored, see `start`.
            Err(Errno::ECHILD) => 1,
            Err(error) => return Err(error.into()),
        };
        Ok(Some(u8::try_from(ended).unwrap_or(1)))
    }
}

fn is_session_leader() -> bool {
    getsid(None) == Ok(getpid())
}

fn assignment(name: &OsStr, value: &OsStr) -> OsString {
    let mut text = name.to_owned();
    text.push("=");
    text.push(value);
    text
}

fn text_of(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}
