//! MPS's control daemon on this machine: its process, its servers, its start and end.
//! It holds a lock on a file in the folder of its pipes as long as it lives (observed with R535 and
//! R550), so it can be found without being asked, even when hung. Questions go through its own
//! program ([`crate::host::mps`]). A second one of the same folder ends at once (observed with
//! R550), so starting one beside another is harmless.

use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use protocol::clock::Clock;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};

use crate::core::mps_servers::{Found, Server};
use crate::host::mps::{Answer, Control, Waited, pipes};
use crate::host::program;
use crate::host::unattached::real_uid;

/// File that the control daemon keeps locked while it lives (observed with R535 and R550).
pub const LOCK_FILE: &str = "control_lock";
/// File with the control daemon's process id, in some releases (R550's writes it, R535's does not).
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
/// Ends MPS, and its servers after 10 s (its manual page).
pub(crate) const QUIT: &str = "quit -t 10\n";
/// A program that ends or starts MPS is killed after this time, ns.
pub(crate) const PROGRAM_NS: u64 = 30_000_000_000;
/// Time for the control daemon to end before it is killed, ns: [`QUIT`]'s limit and half of it.
const QUIT_NS: u64 = 15_000_000_000;
/// The kernel's name of the control daemon and its servers: the first 15 bytes.
const COMM: &str = "nvidia-cuda-mps";
const LOOK_NS_MAX: u64 = 4_000_000_000;
const SERVERS_MAX: usize = 8;
/// Status of a server that accepts no clients until its present ones have left.
const BROKEN: &str = "FAULT";

/// Process id of the living control daemon of this folder. 0: in another PID namespace.
#[must_use]
pub fn control_daemon(folder: &Path) -> Option<u32> {
    holder_of_lock(&folder.join(LOCK_FILE)).or_else(|| {
        let text = fs::read_to_string(folder.join(PID_FILE)).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        let process = Path::new("/proc").join(pid.to_string());
        process.exists().then_some(pid)
    })
}

/// For a caller that may end it: the lock's holder only. A file's id may be reused after a kill.
fn locked_by() -> Option<u32> {
    holder_of_lock(&pipes().join(LOCK_FILE))
}

/// The holder of a lock on the file, by fcntl(2) (`F_GETLK`). Locks nothing.
fn holder_of_lock(path: &Path) -> Option<u32> {
    // The folder may be anybody's: do not follow a link, nor wait for a FIFO, in its place.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC).bits();
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).custom_flags(flags.cast_signed());
    let file = options.open(path).ok()?;
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    // 0: an invisible process; -1: none. Every user who can read it can take a read lock.
    let is_held = lock.l_type == libc::F_WRLCK as i16;
    is_held.then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}

/// Polls this environment's control daemon by program `command`, in at most [`LOOK_NS_MAX`].
pub(crate) fn look(control: &mut Control, command: &[String], clock: &Clock) -> Found {
    let pid = locked_by();
    let end_ns = clock.now_ns().saturating_add(LOOK_NS_MAX);
    let mut ask = |words: &str| control.ask(command, words, &environment(), clock, end_ns);
    match (ask("get_server_list"), pid) {
        (Ok(list), None) if list.words().contains("Cannot find") => Found::Nothing,
        (Ok(list), pid) => {
            let pids: Vec<u32> = list.numbers().collect();
            let servers = pids.into_iter().enumerate();
            let servers = servers.map(|(index, server)| match index < SERVERS_MAX {
                true => server_of(server, &mut ask),
                false => Server::unknown(server),
            });
            Found::Answers {
                // Without a lock it exists if it answers.
                pid: pid.unwrap_or(0),
                servers: servers.collect(),
            }
        }
        (Err(_), None) => Found::Nothing,
        (Err(_), Some(pid)) if clock.now_ns() >= end_ns || control.is_stuck() => Found::Silent {
            pid,
            has_servers: has_servers(pid),
        },
        // It exists, but its program cannot be run or was refused: nothing more is known.
        (Err(why), Some(pid)) => {
            tracing::debug!("MPS's control daemon (pid {pid}) cannot be asked: {why}");
            Found::Unknown { pid }
        }
    }
}

/// Knowledge about a server; unreported parts stay unknown.
fn server_of(pid: u32, ask: &mut impl FnMut(&str) -> Result<Answer, String>) -> Server {
    let status = ask(&format!("get_server_status {pid}"));
    let is_broken = status.map(|status| status.has_word(BROKEN)).ok();
    let clients = ask(&format!("get_client_list {pid}"));
    let clients = clients.ok().and_then(|clients| {
        let pids: Vec<u32> = clients.numbers().collect();
        // Text in place of ids is no list.
        (!pids.is_empty() || clients.words().is_empty()).then_some(pids)
    });
    Server {
        pid,
        is_broken,
        clients,
    }
}

fn environment() -> Vec<CString> {
    program::environment(|_| false, [])
}

/// Whether the silent control daemon has servers, which are its children; true if invisible.
fn has_servers(control_daemon: u32) -> bool {
    children(control_daemon).is_none_or(|children| !children.is_empty())
}

/// A process's children, if the kernel lists them for its threads (proc_tid_children(5)).
fn children(parent: u32) -> Option<Vec<u32>> {
    if parent == 0 {
        return None;
    }
    let threads = fs::read_dir(format!("/proc/{parent}/task")).ok()?;
    let mut all = Vec::new();
    for thread in threads {
        let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
        all.extend(
            listed
                .split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    Some(all)
}

pub(crate) fn process_of(control_daemon: u32) -> Option<OwnedFd> {
    let id = i32::try_from(control_daemon).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
    // The id still refers to the same process.
    (locked_by() == Some(control_daemon)).then_some(process)
}

/// Starts MPS by this command, and waits for the command; else the reason, as text.
pub(crate) fn start(
    control: &mut Control,
    command: &[String],
    clock: &Clock,
) -> Result<(), String> {
    let end_ns = clock.now_ns().saturating_add(PROGRAM_NS);
    control.run(command, "", &environment(), clock, end_ns)
}

/// Ends the control daemon by this command, which gets `quit`. If it still runs after [`QUIT_NS`],
/// kills it with its servers, so that another one can start. False if stopped, or without
/// permission to kill it.
pub(crate) fn end(control: &mut Control, command: &[String], clock: &Clock) -> bool {
    let found = locked_by().filter(|&pid| pid != 0);
    let process = found.and_then(process_of);
    let servers = found.and_then(children).unwrap_or_default();
    let open = |pid: &u32| {
        pidfd_open(
            Pid::from_raw(i32::try_from(*pid).ok()?)?,
            PidfdFlags::empty(),
        )
        .ok()
    };
    let mut servers: Vec<(u32, OwnedFd)> = servers
        .iter()
        .filter_map(|pid| Some((*pid, open(pid)?)))
        .collect();
    // Checked again: an id may have been reused in between.
    let still = found.and_then(children).unwrap_or_default();
    servers.retain(|(pid, _)| still.contains(pid));
    let end_ns = clock.now_ns().saturating_add(QUIT_NS);
    if let Err(why) = control.run(command, QUIT, &environment(), clock, end_ns) {
        tracing::warn!("`quit` to MPS failed: {why}");
    }
    let (Some(process), Some(pid)) = (process, found) else {
        return locked_by().is_none();
    };
    // `quit` returns before the daemon has exited (observed with R535 to R555).
    match control.wait_until(&process, clock, end_ns) {
        Waited::Ended => return true,
        Waited::Stopped => return false,
        Waited::Late => {}
    }
    if locked_by() != Some(pid) || !is_control_daemon(pid) {
        tracing::warn!(
            "process {pid} holds MPS's lock but is no control daemon of this user, and is not \
             killed"
        );
        return false;
    }
    tracing::warn!("MPS's control daemon does not exit by itself: killing it and its servers");
    let servers = servers.iter().map(|(_, server)| server);
    for process in std::iter::once(&process).chain(servers) {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    control.wait_for(&process, clock);
    true
}

/// Whether the kernel reports it as a control daemon started by this very user.
fn is_control_daemon(pid: u32) -> bool {
    let is_ours = real_uid(pid) == Some(geteuid().as_raw());
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    is_ours && name.trim_end() == COMM
}

/// The location of the pipes, as part of a file name.
pub(crate) fn name_of_pipes() -> String {
    let folder = pipes();
    let shown = folder.to_string_lossy();
    let name = shown.trim_matches('/').chars();
    // `!` stands for a slash, and does not occur in the usual paths. 60 characters fit in a file
    // name (255 bytes).
    let name = name.map(|c| if c == '/' { '!' } else { c });
    name.take(60).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_lock_names_its_holder_and_a_file_without_one_nobody() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(control_daemon(folder.path()), None, "no file");
        fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        assert_eq!(control_daemon(folder.path()), None, "nobody holds it");
        // Another process's lock: fcntl(2) does not show one's own. struct flock, on 64 bits.
        let program = r#"use Fcntl qw(:DEFAULT :seek); $| = 1; open(my $f, ">", $ARGV[0]) or die;
            my $lock = pack("s s x4 q q l", F_WRLCK, SEEK_SET, 0, 0, 0); fcntl($f, F_SETLK, $lock) or die; print "held\n"; <STDIN>;"#;
        let mut holder = Command::new("/usr/bin/perl")
            .args(["-e", program])
            .arg(folder.path().join(LOCK_FILE))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 5];
        let said = holder.stdout.as_mut().unwrap();
        std::io::Read::read_exact(said, &mut line).unwrap();
        assert_eq!(control_daemon(folder.path()), Some(holder.id()));
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert_eq!(control_daemon(folder.path()), None, "it has ended");
    }

    #[test]
    fn children_are_listed_and_of_who_cannot_be_seen_there_may_be_some() {
        let mut parent = Command::new("/bin/sh")
            .args(["-c", "sleep 1000 & echo $!; cat; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = parent.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).unwrap();
        let child: u32 = line.trim().parse().unwrap();
        if let Some(children) = children(parent.id()) {
            assert!(children.contains(&child), "{children:?}");
        }
        assert!(has_servers(parent.id()));
        assert!(has_servers(0), "in another PID namespace");
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(has_servers(parent.id()), "it has ended");
    }
}
