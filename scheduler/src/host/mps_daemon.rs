//! MPS's control daemon on this machine: which process it is, which servers it has, and how it is
//! started and ended.
//!
//! It holds a lock on a file in the folder of its pipes as long as it lives (seen of R535 and
//! R550), so that it is found without being asked, also where it hangs. What it is asked goes
//! through its own program ([`crate::host::mps`]). A second one of the same folder ends at once
//! (seen of R550), so that starting one beside another harms nobody.

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

/// The file that the control daemon holds a lock on as long as it lives (seen of R535 and R550).
pub const LOCK_FILE: &str = "control_lock";
/// The file in which the control daemon writes its process id, some releases' (R550's does, R535's
/// does not).
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
/// What ends MPS, and its servers with it after so many seconds (its manual page).
pub(crate) const QUIT: &str = "quit -t 10\n";
/// After so long a program that ends or starts MPS is killed, ns.
pub(crate) const PROGRAM_NS: u64 = 30_000_000_000;
/// So long it has to end before it is killed, ns: half as long again as [`QUIT`] takes at most.
const QUIT_NS: u64 = 15_000_000_000;
/// What the kernel calls the control daemon and its servers: 15 bytes of their names.
const COMM: &str = "nvidia-cuda-mps";
/// For one look, ns.
const LOOK_NS_MAX: u64 = 4_000_000_000;
/// Servers that are asked about in one look: there is one for each user that waits.
const SERVERS_MAX: usize = 8;
/// The word for a server that takes no new clients until those that it has are gone.
const BROKEN: &str = "FAULT";

/// The control daemon's process id, if it lives: of the one with its pipes in this folder. 0 if it
/// is in another PID namespace.
#[must_use]
pub fn control_daemon(folder: &Path) -> Option<u32> {
    holder_of_lock(&folder.join(LOCK_FILE)).or_else(|| {
        let text = fs::read_to_string(folder.join(PID_FILE)).ok()?;
        let pid: u32 = text.trim().parse().ok()?;
        let process = Path::new("/proc").join(pid.to_string());
        process.exists().then_some(pid)
    })
}

/// The same for who may end it: the process that holds the lock and no other. A file with a number
/// stays when its process is killed, and the number may be another's then.
fn locked_by() -> Option<u32> {
    holder_of_lock(&pipes().join(LOCK_FILE))
}

/// Who holds a lock on the file, as fcntl(2) tells (`F_GETLK`). Nothing is locked.
fn holder_of_lock(path: &Path) -> Option<u32> {
    // The folder may be anybody's: neither a link nor a FIFO in its place is followed or waited
    // for.
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
    // 0: of a process that cannot be seen from here; -1: of a descriptor and no process.
    // Who can read the file can lock it for reading.
    let is_held = lock.l_type == libc::F_WRLCK as i16;
    is_held.then(|| u32::try_from(lock.l_pid).unwrap_or(0))
}

/// Looks at the control daemon whose pipes are where this process's environment says, in
/// [`LOOK_NS_MAX`] at most. `command` is the program that speaks with it.
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
                // One that holds no lock is there if it answers.
                pid: pid.unwrap_or(0),
                servers: servers.collect(),
            }
        }
        (Err(_), None) => Found::Nothing,
        (Err(_), Some(pid)) if clock.now_ns() >= end_ns || control.is_stuck() => Found::Silent {
            pid,
            has_servers: has_servers(pid),
        },
        // It is there, and its program cannot be run or was turned away: nothing is known of it.
        (Err(why), Some(pid)) => {
            tracing::debug!("MPS's control daemon (pid {pid}) cannot be asked: {why}");
            Found::Unknown { pid }
        }
    }
}

/// What is known of a server. Of what the control daemon does not say nothing follows.
fn server_of(pid: u32, ask: &mut impl FnMut(&str) -> Result<Answer, String>) -> Server {
    let status = ask(&format!("get_server_status {pid}"));
    let is_broken = status.map(|status| status.has_word(BROKEN)).ok();
    let clients = ask(&format!("get_client_list {pid}"));
    let clients = clients.ok().and_then(|clients| {
        let pids: Vec<u32> = clients.numbers().collect();
        // Words in place of numbers are no list.
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

/// Whether the control daemon has servers, which it starts as its own children: of one that does
/// not answer. True where that cannot be seen.
fn has_servers(control_daemon: u32) -> bool {
    children(control_daemon).is_none_or(|children| !children.is_empty())
}

/// A process's children, as the kernel lists them for each of its threads (proc_tid_children(5));
/// `None` where it does not.
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

/// The control daemon as a process, whose descriptor is readable once it has ended.
pub(crate) fn process_of(control_daemon: u32) -> Option<OwnedFd> {
    let id = i32::try_from(control_daemon).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
    // The number is still the same one's.
    (locked_by() == Some(control_daemon)).then_some(process)
}

/// Starts MPS by this command, which is waited for.
///
/// # Errors
///
/// In words: it cannot be run, fails, or does not come back.
pub(crate) fn start(
    control: &mut Control,
    command: &[String],
    clock: &Clock,
) -> Result<(), String> {
    let end_ns = clock.now_ns().saturating_add(PROGRAM_NS);
    control.run(command, "", &environment(), clock, end_ns)
}

/// Ends the control daemon by this command, which gets `quit`; one that is there all the same after
/// [`QUIT_NS`] is killed, with its servers, so that another one can be started. False where nothing
/// is waited for any more, or it may not be killed.
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
    // Seen again: a number that was free in between would be another process's.
    let still = found.and_then(children).unwrap_or_default();
    servers.retain(|(pid, _)| still.contains(pid));
    let end_ns = clock.now_ns().saturating_add(QUIT_NS);
    if let Err(why) = control.run(command, QUIT, &environment(), clock, end_ns) {
        tracing::warn!("MPS was told to end: {why}");
    }
    let (Some(process), Some(pid)) = (process, found) else {
        return locked_by().is_none();
    };
    // `quit` comes back before the daemon has gone (seen of R535 to R555).
    match control.wait_until(&process, clock, end_ns) {
        Waited::Ended => return true,
        Waited::Stopped => return false,
        Waited::Late => {}
    }
    if locked_by() != Some(pid) || !is_control_daemon(pid) {
        tracing::warn!(
            "what holds MPS's lock (pid {pid}) is no control daemon of this user and is left alone"
        );
        return false;
    }
    tracing::warn!("MPS's control daemon does not end by itself and is killed, with its servers");
    let servers = servers.iter().map(|(_, server)| server);
    for process in std::iter::once(&process).chain(servers) {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    control.wait_for(&process, clock);
    true
}

/// Whether it is a control daemon that this user, and nobody else, has started: the kernel says
/// whose it is and what it runs.
fn is_control_daemon(pid: u32) -> bool {
    let is_ours = real_uid(pid) == Some(geteuid().as_raw());
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    is_ours && name.trim_end() == COMM
}

/// Where the pipes are, in words of a file's name.
pub(crate) fn name_of_pipes() -> String {
    let folder = pipes();
    let shown = folder.to_string_lossy();
    let name = shown.trim_matches('/').chars();
    // No part of a path has a slash, and none of ours this. A file's name has 255 bytes at most.
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
        // A lock of fcntl(2) is another process's, or it is not seen.
        // struct flock, on machines of 64 bits.
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
