//! Starting a program: without a shell, in its own process group, with default signals.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::SigSet;
use nix::sys::wait::waitpid;
use nix::unistd::Pid as NixPid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

#[derive(Debug)]
pub(crate) struct Started {
    /// Its id, and that of its group. The starter waits for it (waitpid(2)).
    pub(crate) child: NixPid,
    /// Readable when it has ended.
    pub(crate) process: OwnedFd,
}

impl Started {
    /// Kills it, and its children that are still in its group.
    pub(crate) fn kill(&self) {
        kill_group(self.child);
        // It may have left the group.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

#[derive(Debug)]
pub(crate) enum Output {
    /// Our own standard error: a daemon's log.
    Log,
    To([OwnedFd; 2]),
}

/// Starts a program that reads `input`: `command` is its name (one without a slash is searched on
/// the search path) and its arguments. Error, as text: no such program, no process or descriptor.
pub(crate) fn spawn(
    command: &[String],
    input: &str,
    output: &Output,
    environment: &[CString],
) -> Result<Started, String> {
    let program = command.first().ok_or("no program is named")?;
    let failed = |error: &dyn std::fmt::Display| format!("cannot run {program}: {error}");
    let input = input_of(input).map_err(|error| failed(&error))?;
    let (files, how) = prepared(input.as_raw_fd(), output).map_err(|error| failed(&error))?;
    let arguments: Vec<CString> = command.iter().map(text_of).collect();
    let name = text_of(program);
    let child = posix_spawnp(&name, &files, &how, &arguments, environment);
    let child = child.map_err(|error| failed(&error))?;
    let process = Pid::from_raw(child.as_raw())
        .ok_or_else(|| failed(&"the system returned no process id"))
        .and_then(|pid| {
            pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
                kill_group(child);
                let _ = waitpid(child, None);
                failed(&error)
            })
        });
    process.map(|process| Started { child, process })
}

fn prepared(input: RawFd, output: &Output) -> nix::Result<(PosixSpawnFileActions, PosixSpawnAttr)> {
    let mut files = PosixSpawnFileActions::init()?;
    files.add_dup2(input, 0)?;
    match output {
        Output::Log => files.add_dup2(2, 1)?,
        Output::To([output, errors]) => {
            files.add_dup2(output.as_raw_fd(), 1)?;
            files.add_dup2(errors.as_raw_fd(), 2)?;
        }
    }
    let mut how = PosixSpawnAttr::init()?;
    // The daemon's threads block the signals that would end it.
    how.set_sigmask(&SigSet::empty())?;
    how.set_sigdefault(&SigSet::all())?;
    how.set_pgroup(NixPid::from_raw(0))?;
    how.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETPGROUP,
    )?;
    Ok((files, how))
}

/// Our environment without the service manager's variables and `is_left_out`; then `more`.
pub(crate) fn environment(
    is_left_out: impl Fn(&OsStr) -> bool,
    more: impl IntoIterator<Item = (OsString, OsString)>,
) -> Vec<CString> {
    let own = std::env::vars_os().filter(|(name, _)| name != "NOTIFY_SOCKET" && !is_left_out(name));
    own.chain(more)
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .map(|bytes| text_of(OsStr::from_bytes(&bytes)))
        .collect()
}

fn text_of(text: impl AsRef<OsStr>) -> CString {
    let bytes = text.as_ref().as_bytes().iter().copied();
    let bytes: Vec<u8> = bytes.filter(|&byte| byte != 0).collect();
    CString::new(bytes).expect("no byte of it is zero")
}

fn input_of(text: &str) -> std::io::Result<File> {
    if text.is_empty() {
        return File::open("/dev/null");
    }
    let mut file = File::from(memfd_create("pillion-input", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn kill_group(child: NixPid) {
    if let Some(group) = Pid::from_raw(child.as_raw()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
