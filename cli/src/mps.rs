//! NVIDIA's MPS on this machine: whether its control daemon runs, and what it is asked for before one of its clients is killed.
//! Nothing here starts it or ends it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use protocol::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};

/// Names the folder of the pipes (NVIDIA's MPS guide).
pub(crate) const PIPES_ENV: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// The program that speaks with the control daemon: commands on its standard input, answers on its standard output.
const CONTROL: &str = "nvidia-cuda-mps-control";
/// Where they are if the environment does not say.
const PIPES: &str = "/tmp/nvidia-mps";
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
        let folder = std::env::var_os(PIPES_ENV)
            .filter(|value| !value.is_empty())
            .map_or_else(|| PathBuf::from(PIPES), PathBuf::from);
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

/// Has MPS end what a client of it has in flight and take it out of the server (`terminate_client`; NVIDIA's MPS guide), so that
/// killing it afterwards takes no other client along. The process lives on. At `end_ns` on `clock` nothing is waited for any more.
///
/// Asked are the servers of the control daemon that this command's environment names, else of the process's own if it is our
/// user's (another user could name a folder where writing does harm), else of NVIDIA's usual one. A control daemon in another
/// PID namespace knows the process by another number and does not find it.
///
/// # Errors
///
/// Why not, in words: no such program, no server has this client, it refuses, it takes too long.
pub(crate) fn terminate(clock: &Clock, pid: i32, end_ns: u64) -> Result<(), String> {
    let pipes = pipes_of(pid);
    let ask = |command: &str| ask_control(clock, command, pipes.as_deref(), end_ns);
    let servers = ask("get_server_list")?;
    let mut has_servers = false;
    for server in numbers_of(&servers) {
        has_servers = true;
        if !numbers_of(&ask(&format!("get_client_list {server}"))?).any(|client| client == pid) {
            continue;
        }
        let answer = ask(&format!("terminate_client {server} {pid}"))?;
        return match is_success(&answer) {
            true => Ok(()),
            false => Err(format!("terminate_client: {}", answer.trim())),
        };
    }
    Err(match has_servers {
        true => "no server of MPS has it as a client".to_owned(),
        false => "MPS has no server".to_owned(),
    })
}

/// Process ids, one at the beginning of each line.
fn numbers_of(answer: &str) -> impl Iterator<Item = i32> + '_ {
    let firsts = answer
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    firsts.filter_map(|word| word.parse().ok())
}

/// NVIDIA's guide has no text for success; what drivers print for it is nothing, 0, or a line with the result's name.
fn is_success(answer: &str) -> bool {
    matches!(answer.trim(), "" | "0") || answer.contains("CUDA_SUCCESS")
}

/// The folder of the pipes that a process of our own user was started with, where our own environment names none.
fn pipes_of(pid: i32) -> Option<OsString> {
    let is_named = std::env::var_os(PIPES_ENV).is_some_and(|value| !value.is_empty());
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let is_ours = fs::metadata(&folder).is_ok_and(|of| of.uid() == geteuid().as_raw());
    if is_named || !is_ours {
        return None;
    }
    let environment = fs::read(folder.join("environ")).ok()?;
    let name = format!("{PIPES_ENV}=");
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes()))?;
    Some(OsString::from_vec(value.to_vec())).filter(|value| !value.as_bytes().is_empty())
}

/// What the control daemon answers to one command.
fn ask_control(
    clock: &Clock,
    command: &str,
    pipes: Option<&OsStr>,
    end_ns: u64,
) -> Result<String, String> {
    let mut control = Command::new(CONTROL);
    control
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(pipes) = pipes {
        control.env(PIPES_ENV, pipes);
    }
    let mut child = control
        .spawn()
        .map_err(|error| format!("{CONTROL}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that has ended without reading is judged by how it ended.
        let _ = writeln!(stdin, "{command}");
    }
    if !has_ended_by(clock, &child, end_ns) {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{CONTROL} does not answer {command:?} in time"));
    }
    let status = child
        .wait()
        .map_err(|error| format!("{CONTROL}: {error}"))?;
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // What it left to a process of its own is not waited for: a pipe holds all that lists are long.
        let _ = rustix::io::ioctl_fionbio(&stdout, true);
        let _ = stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match status.success() {
        true => Ok(answer),
        false => Err(format!(
            "{CONTROL} ends with {status} after {command:?}: {}",
            answer.trim()
        )),
    }
}

/// More of an answer is not read, bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 16;

/// Waits for a child's end until `end_ns`.
fn has_ended_by(clock: &Clock, child: &Child, end_ns: u64) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
        return false;
    };
    loop {
        let left_ns = end_ns.saturating_sub(clock.now_ns());
        let timeout = Timespec {
            tv_sec: (left_ns / 1_000_000_000) as i64,
            tv_nsec: (left_ns % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready == Ok(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_drivers_write_them() {
        let list = "4242\n 17 something\nno server\n\n";
        assert_eq!(numbers_of(list).collect::<Vec<_>>(), [4242, 17]);
        for success in ["", "0\n", "terminate_client: CUDA_SUCCESS\n"] {
            assert!(is_success(success), "{success:?}");
        }
        for failure in ["1", "CUDA_ERROR_INVALID_VALUE", "Command not recognized"] {
            assert!(!is_success(failure), "{failure:?}");
        }
    }
}
