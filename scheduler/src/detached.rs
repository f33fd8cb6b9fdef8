//! Starts the daemon in the background: `pilliond --detach`.
//! This process starts another of the same program, waits until that is ready, and exits. So the
//! daemon is nobody's child: a job that waits for its children must not meet one that it did not
//! start. The result goes to standard output, and the daemon's log to this process's standard
//! error.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid, umask};
use rustix::stdio::dup2_stdout;

/// Longest wait for the daemon. A driver that wakes its GPUs takes seconds.
const READY: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

pub(crate) const ENV: &str = "PILLION_DETACHED";

/// Starts a daemon with this process's arguments without `--detach`, and prints its socket.
pub(crate) fn start() -> anyhow::Result<ExitCode> {
    close_inherited();
    let program = std::env::current_exe().context("cannot find this program's file")?;
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
        .context("cannot start the daemon")?;
    let mut said = String::new();
    if let Some(output) = daemon.stdout.take() {
        let mut fds = [PollFd::new(&output, PollFlags::IN)];
        if poll(&mut fds, Some(&READY)) == Ok(0) {
            let _ = daemon.kill();
            anyhow::bail!(
                "the daemon did not become ready within {} s, and was killed",
                READY.tv_sec
            );
        }
        BufReader::new(output).read_line(&mut said)?;
    }
    if said.is_empty() {
        // It has written the reason to standard error.
        let code = daemon
            .wait()?
            .code()
            .and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    write!(std::io::stdout(), "{said}")?;
    Ok(ExitCode::SUCCESS)
}

/// Closes all inherited descriptors but the standard streams in the new process: somebody may wait
/// for the end of a pipe, or for a lock.
#[expect(unsafe_code, reason = "marks descriptors by their numbers")]
fn close_inherited() {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for number in numbers.filter(|&number: &i32| number > 2) {
        // SAFETY: closes no descriptor, and none of this program's is meant to survive an exec.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Leaves the parent's session and terminal, and drops limits that were for the parent's job.
pub(crate) fn leave_session() {
    if std::env::var_os(ENV).is_none() {
        return;
    }
    // It leads no process group, so this cannot fail.
    let _ = setsid();
    umask(Mode::from_raw_mode(0o022));
    for resource in [Resource::Cpu, Resource::As, Resource::Fsize] {
        let limit = getrlimit(resource);
        let current = limit.maximum;
        let _ = setrlimit(resource, Rlimit { current, ..limit });
    }
}

/// Prints that the daemon is ready, then disconnects its standard output.
pub(crate) fn tell_ready(ready: &str) -> anyhow::Result<()> {
    if std::env::var_os(ENV).is_none() {
        return Ok(());
    }
    // Files for reloads have absolute paths.
    let _ = std::env::set_current_dir("/");
    writeln!(std::io::stdout(), "{ready}").context("cannot report that the daemon is ready")?;
    dup2_stdout(File::options().write(true).open("/dev/null")?).context("cannot close the output")
}
