//! Starts the daemon in the background: `pilliond --detach`.
//!
//! This process starts another of the same program, waits until that is ready, and ends. So the
//! daemon is nobody's child: a job that waits for its children must not meet one that it did not
//! start. How it began is said on its standard output, and what it logs goes where this process's
//! standard error goes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid, umask};
use rustix::stdio::dup2_stdout;

/// Longest wait for the daemon. A driver that has to wake its GPUs takes seconds.
const READY: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// Told to the process that goes on.
pub(crate) const ENV: &str = "PILLION_DETACHED";

/// Starts a daemon with this process's arguments but `--detach`, and says where it listens.
pub(crate) fn start() -> anyhow::Result<ExitCode> {
    close_inherited();
    let program = std::env::current_exe().context("where this program lies")?;
    let arguments: Vec<OsString> = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != "--detach")
        .collect();
    let mut daemon = Command::new(program)
        .args(arguments)
        .env(ENV, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the daemon")?;
    let mut said = String::new();
    if let Some(output) = daemon.stdout.take() {
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        if poll(&mut fds, Some(&READY)) == Ok(0) {
            let _ = daemon.kill();
            anyhow::bail!("it did not become ready within {} s", READY.tv_sec);
        }
        BufReader::new(output).read_line(&mut said)?;
    }
    if said.is_empty() {
        // It has said why on standard error.
        let code = daemon
            .wait()?
            .code()
            .and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    write!(std::io::stdout(), "{said}")?;
    Ok(ExitCode::SUCCESS)
}

/// Has whatever this process was given besides its standard streams end with it: somebody may wait
/// for the end of a pipe, or for a lock.
#[expect(unsafe_code, reason = "marks descriptors by their numbers")]
fn close_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|&number: &i32| number > 2) {
        // SAFETY: no descriptor is closed here, and none of this program is meant to outlive an exec.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Leaves the session and the terminal of the process that started this one, if this one is to go on
/// by itself, and the limits that were meant for that process's job.
pub(crate) fn leave_session() {
    if std::env::var_os(ENV).is_none() {
        return;
    }
    // It leads no group of its own, so nothing refuses this.
    let _ = setsid();
    umask(Mode::from_raw_mode(0o022));
    for resource in [Resource::Cpu, Resource::As, Resource::Fsize] {
        let limit = getrlimit(resource);
        let current = limit.maximum;
        let _ = setrlimit(resource, Rlimit { current, ..limit });
    }
}

/// Says that the daemon is ready, after which its output is nobody's.
pub(crate) fn tell_ready(ready: &str) -> anyhow::Result<()> {
    if std::env::var_os(ENV).is_none() {
        return Ok(());
    }
    // What is read again was made absolute.
    let _ = std::env::set_current_dir("/");
    writeln!(std::io::stdout(), "{ready}").context("saying that the daemon is ready")?;
    dup2_stdout(File::options().write(true).open("/dev/null")?).context("closing the output")
}
