//! Starts a daemon for each GPU that a job may use, where none runs. The daemon belongs to the
//! user, has the file that names the GPU or else the settings for all GPUs, and ends after a minute
//! without users. Only one start of a user runs at a time for a GPU. None is started beside an
//! installed one, even while that one is being restarted.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use nix::sys::prctl::get_child_subreaper;
use nix::unistd::{Uid, User};
use protocol::clock::Clock;
use protocol::hello::{HelloError, Request, SYSTEM_FOLDER, ask_once, socket_paths};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use scheduler::config::gpu::Gpu;
use scheduler::host::gpu_lock::{Holder, holder};
use scheduler::host::{device, socket};

use crate::artifacts;
use crate::daemons::{self, PATIENCE};
use crate::out;

/// `0`: no daemon is started.
const SWITCH: &str = "PILLION_AUTOSTART";
const IDLE_S: u32 = 60;
/// Timeout for another `pillion run` that starts daemons: a driver takes seconds to wake its GPUs.
const TURN_NS: u64 = 60_000_000_000;
/// Timeout for a daemon that has the GPU and does not listen: it is about to listen, or to end.
const HOLDER_NS: u64 = 10_000_000_000;
/// For opening files where another user may have put something: no links, no blocking on a pipe.
const NO_TRAP: i32 = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
/// Poll interval.
const LOOK_NS: u64 = 50_000_000;
/// Variables for the job that must not reach a daemon, which also serves others.
const OF_THE_JOB: [&str; 11] = [
    "LD_PRELOAD",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_INJECTION64_PATH",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_CLIENT_PRIORITY",
    super::NVTX_TOOL,
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "STATE_DIRECTORY",
    "WATCHDOG_USEC",
];
/// Pillion's variables that are meant for a daemon.
const OF_THE_DAEMON: [&str; 2] = ["PILLION_LOG", "PILLION_CONFIG_FOLDER"];

/// Ensures that a daemon runs for the GPU, or for each that the job may see, and stays until this
/// process attaches. Returns a sentence for each failure.
pub(super) fn see_to_daemons(gpu: Option<&Gpu>, may_start: bool) -> Vec<String> {
    if set("PILLION_DISABLE").is_some_and(|value| value != "0") || Clock::process().is_virtual() {
        return Vec::new();
    }
    let is_off = set(SWITCH).is_some_and(|value| value == "0");
    // A named socket is that of a daemon of the user's own.
    if !may_start || is_off || set("PILLION_SOCKET").is_some() {
        for socket in daemons::sockets() {
            is_there(&socket);
        }
        return Vec::new();
    }
    let seen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let gpus = match (gpu, seen.as_deref()) {
        (Some(gpu), _) => vec![gpu.clone()],
        // The job sees no GPU.
        (None, Some("" | "-1" | "NoDevFiles")) => return Vec::new(),
        (None, None) if all_have_daemons() => return Vec::new(),
        (None, _) => match device::gpus() {
            Ok(gpus) => gpus,
            Err(error) => return vec![format!("cannot start a daemon: {error}")],
        },
    };
    let turn_ends_ns = Clock::monotonic().now_ns() + TURN_NS;
    let started = gpus.iter().map(|gpu| (gpu, see_to(gpu, turn_ends_ns)));
    let failed = started.filter_map(|(gpu, started)| Some((gpu, started.err()?)));
    failed
        .map(|(gpu, why)| format!("no daemon serves {}: {why:#}", gpu.uuid))
        .collect()
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether a daemon answers for every GPU that the kernel module lists: then no job waits for CUDA
/// to initialise.
fn all_have_daemons() -> bool {
    let folders = fs::read_dir("/proc/driver/nvidia/gpus");
    let texts = folders.into_iter().flatten().flatten();
    let texts = texts.map(|folder| fs::read_to_string(folder.path().join("information")));
    let uuids: Vec<Option<String>> = texts
        .map(|text| uuid_in(&text.unwrap_or_default()))
        .collect();
    let is_served = |uuid: &Option<String>| uuid.as_deref().is_some_and(is_served);
    !uuids.is_empty() && uuids.iter().all(is_served)
}

fn uuid_in(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let uuid = lines
        .find_map(|line| line.strip_prefix("GPU UUID:"))?
        .trim();
    // The UUID has `?` for digits if the GPU sleeps or its identity is hidden.
    let is_whole = uuid.len() == 40 && !uuid.contains('?');
    is_whole.then(|| uuid.to_owned())
}

/// Whether a daemon of that GPU listens; if so it stays for this process.
fn is_served(uuid: &str) -> bool {
    socket_paths(uuid).iter().any(|path| is_there(path))
}

fn is_there(socket: &Path) -> bool {
    match ask_once(socket, &Request::Expect, PATIENCE) {
        // The daemon listens, and is late.
        Err(HelloError::Io(error)) => {
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
        }
        // The daemon is ending.
        Err(HelloError::Closed) => false,
        // An older daemon refuses, and stays anyway: old versions never end by themselves.
        _ => true,
    }
}

fn see_to(gpu: &Gpu, turn_ends_ns: u64) -> anyhow::Result<()> {
    let uuid = gpu.uuid.as_str();
    if is_served(uuid) {
        return Ok(());
    }
    if std::process::id() == 1 || get_child_subreaper().unwrap_or(false) {
        bail!(
            "the job adopts orphaned processes (as process 1 of a container), so the daemon would become its child; start \
             pilliond before the job, or give the container an init (docker run --init)"
        );
    }
    let clock = Clock::monotonic();
    // Whether there is time for another try.
    let pause = |end_ns: u64| {
        let now_ns = clock.now_ns();
        clock.sleep_until(now_ns + LOOK_NS);
        now_ns < end_ns
    };
    let folder = socket::make_own_folder()?;
    let turn = folder.join(format!("{uuid}.start"));
    let turn = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(NO_TRAP)
        .open(&turn)
        .with_context(|| turn.display().to_string())?;
    loop {
        match flock(&turn, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK | Errno::INTR) if pause(turn_ends_ns) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                bail!("another `pillion run` has been starting the daemon for a minute")
            }
            Err(error) => bail!(
                "cannot lock the start file in {}: {error}",
                folder.display()
            ),
        }
    }
    let holder_ends_ns = clock.now_ns() + HOLDER_NS;
    loop {
        if is_served(uuid) {
            return Ok(());
        }
        let installed = Path::new(SYSTEM_FOLDER).join(format!("{uuid}.sock"));
        if socket::is_installed(&installed) {
            bail!(
                "the daemon installed for this GPU does not answer at {0}; the job attaches when it answers \
                 (see systemctl status 'pilliond@*'; if that daemon was uninstalled, root deletes {0}.lock)",
                installed.display()
            );
        }
        match holder(uuid) {
            // That daemon may be about to listen, or to end.
            Some(holder) if holder.is_ours() || holder.uid == Some(0) => {
                if !pause(holder_ends_ns) {
                    bail!("{}", held(&holder));
                }
            }
            Some(holder) => bail!("{}", held(&holder)),
            None => return start(gpu, &folder),
        }
    }
}

/// Why another daemon's GPU gets none of this user's, and what can be done.
fn held(holder: &Holder) -> String {
    let pid = holder
        .pid
        .map_or_else(String::new, |pid| format!(" (process {pid})"));
    match holder.uid {
        _ if holder.is_ours() => format!(
            "your own daemon{pid} has the GPU but listens at a path where jobs do not search; set PILLION_SOCKET to its path"
        ),
        Some(0) => format!(
            "root's daemon{pid} has the GPU but listens at a path where jobs do not search; ask root for its path and set PILLION_SOCKET"
        ),
        Some(uid) => {
            let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
            let user = user.map_or_else(|| format!("user {uid}"), |user| user.name);
            format!(
                "{user}'s daemon{pid} has the GPU and serves only {user}; ask {user} to end it (`kill {}`), or root to \
                 install a daemon for all users",
                holder.pid.unwrap_or_default()
            )
        }
        None => format!("another daemon{pid} has the GPU, and its user cannot be determined"),
    }
}

fn start(gpu: &Gpu, folder: &Path) -> anyhow::Result<()> {
    let uuid = gpu.uuid.as_str();
    let program = artifacts::find("pilliond")?;
    let log = folder.join(format!("{uuid}.log"));
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(NO_TRAP)
        .open(&log)
        .with_context(|| log.display().to_string())?;
    let mut command = Command::new(program);
    command
        .args([
            "--gpu",
            uuid,
            "--end-when-idle",
            &IDLE_S.to_string(),
            "--detach",
        ])
        .stdin(Stdio::null())
        .stderr(file);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = text.starts_with("PILLION_") && !OF_THE_DAEMON.contains(&&*text);
        if is_ours || OF_THE_JOB.contains(&&*text) {
            command.env_remove(name);
        }
    }
    let ended = command.output();
    // Where SIGCHLD is ignored, the exit status of `pilliond --detach` is unknown.
    if !is_served(uuid) {
        let ended = ended.context("cannot start pilliond")?;
        if ended.status.success() {
            bail!(
                "its daemon has started but listens at a path where jobs do not search ([socket] path of its configuration)"
            );
        }
        let mut said = String::new();
        let _ = File::open(&log).and_then(|mut log| log.read_to_string(&mut said));
        bail!("{}", why_not(&said, &log));
    }
    out::note(format_args!(
        "pillion: started a daemon for {uuid} ({}); it exits {IDLE_S} s after its last job and logs to {}",
        gpu.name,
        log.display()
    ));
    Ok(())
}

/// The reason from a daemon's log, in one line.
fn why_not(said: &str, log: &Path) -> String {
    let reasons = said
        .split_once("pilliond: ")
        .map(|(_, reasons)| reasons.trim());
    match reasons.filter(|reasons| !reasons.is_empty()) {
        Some(reasons) => reasons.replace('\n', "; "),
        None => format!("pilliond exited without a message; see {}", log.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_module_tells_a_gpus_uuid() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 205\nGPU UUID: \t GPU-5a3e7c1c-3c39-1c8b-8f0d-6f3d5a1b2c3d\n\
                    Video BIOS: \t 96.00\n";
        let uuid = "GPU-5a3e7c1c-3c39-1c8b-8f0d-6f3d5a1b2c3d";
        assert_eq!(uuid_in(text).as_deref(), Some(uuid));
        let unknown = "GPU UUID: \t GPU-????????-????-????-????-????????????\n";
        assert_eq!(uuid_in(unknown), None);
        assert_eq!(uuid_in(""), None);
    }

    #[test]
    fn what_a_daemon_says_last_is_why_it_did_not_start() {
        let log = Path::new("/run/pillion/GPU-1.log");
        let said = "INFO reading\npilliond: gpu0.toml:1:1: one\ngpu0.toml:2:1: two\n";
        assert_eq!(why_not(said, log), "gpu0.toml:1:1: one; gpu0.toml:2:1: two");
        let silent = why_not("INFO reading\n", log);
        assert!(silent.ends_with("see /run/pillion/GPU-1.log"), "{silent}");
    }

    #[test]
    fn who_has_the_gpu_is_named_with_what_to_ask() {
        let of = |uid| held(&Holder { pid: Some(12), uid });
        let other = of(Some(61_004));
        assert!(
            other.starts_with("user 61004's daemon (process 12) has the GPU"),
            "{other}"
        );
        assert!(
            other.contains("ask user 61004 to end it (`kill 12`)"),
            "{other}"
        );
        assert!(of(None).contains("cannot be determined"));
    }
}
