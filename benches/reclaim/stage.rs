//! The processes of a measurement, and the observation of one's end.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use benches::bench::cargo_build;
use protocol::clock::Clock;
use protocol::hello::{JobClass, MemoryIs, MemoryOf, Reply, Request, connect_to, receive, send};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use softgpu::wire;
use tempfile::TempDir;

use crate::holder;

/// The process's allocations: as much as a small model, in as many parts.
const PARTS: usize = 64;
const PART_BYTES: usize = 8 << 20;
const JOB: &str = "reclaim";
/// Poll interval, ns; a poll itself takes some 100 us.
const LOOK_NS: u64 = 200_000;
/// Limit on polls on each side of an end: a minute and more.
const LOOKS_MAX: u32 = 300_000;
const END: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

pub(crate) struct Stage {
    built: PathBuf,
    clock: Clock,
    // Dropped in this order.
    daemon: Ending,
    _server: Ending,
    folder: TempDir,
}

/// A process that is asked to end when this is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// When the ends of a process were seen, ns from its kill; and the longest time between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    ended_ns: u64,
    /// The device has no memory for it.
    freed_ns: u64,
    /// No account has it; the same as `freed_ns` for the control.
    back_ns: u64,
    pub(crate) look_ns_max: u64,
}

impl Fate {
    pub(crate) fn device_ns(&self) -> u64 {
        self.freed_ns.saturating_sub(self.ended_ns)
    }

    pub(crate) fn account_ns(&self) -> u64 {
        self.back_ns.saturating_sub(self.ended_ns)
    }

    /// From when both are known.
    pub(crate) fn pillion_ns(&self) -> u64 {
        self.back_ns
            .saturating_sub(self.ended_ns.max(self.freed_ns))
    }
}

pub(crate) fn hold() -> anyhow::Result<()> {
    holder::hold(PARTS, PART_BYTES)?;
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn build() -> anyhow::Result<PathBuf> {
    let mut command = cargo_build(&[
        "pillion-interpose",
        "pillion-softgpu-driver",
        "pillion-softgpu-nvml",
        "pillion-softgpu-server",
        "pillion-scheduler",
    ]);
    ensure!(
        command.args(["--quiet", "--release"]).status()?.success(),
        "cargo could not build the artifacts"
    );
    // <target>/<profile>/deps/reclaim-…
    let own = std::env::current_exe()?;
    let target = own.ancestors().nth(3).context("cargo's target folder")?;
    Ok(target.join("release"))
}

impl Stage {
    pub(crate) fn set() -> anyhow::Result<Self> {
        let built = build()?;
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("driver"))?;
        symlink(built.join("libcuda.so"), path("driver/libcuda.so.1"))?;
        symlink(
            built.join("libnvidia_ml.so"),
            path("driver/libnvidia-ml.so.1"),
        )?;
        let socket = path("pillion.sock");
        let config = format!(
            "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = false\n[socket]\npath = {socket:?}\n"
        );
        std::fs::write(path("gpu.toml"), config)?;
        let clock = Clock::monotonic();
        let mut command = Command::new(built.join("softgpu-server"));
        command.arg("--socket").arg(path("gpu.sock"));
        command.args(["--sharing", "mps"]);
        let server = Ending(command.spawn().context("starting softgpu-server")?);
        wait(&clock, "the device server", || {
            connect_to(&path("gpu.sock")).ok()
        })?;
        let mut command = Command::new(built.join("pilliond"));
        command.arg("--config").arg(path("gpu.toml"));
        command.env_clear().env("PILLION_LOG", "warn");
        command.env("LD_LIBRARY_PATH", path("driver"));
        command.env("SOFTGPU_SOCKET", path("gpu.sock"));
        let daemon = Ending(command.spawn().context("starting pilliond")?);
        wait(&clock, "pilliond", || connect_to(&socket).ok())?;
        Ok(Self {
            folder,
            built,
            clock,
            daemon,
            _server: server,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn kill_one(&self, is_ours: bool) -> anyhow::Result<Fate> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--hold")
            .env_clear()
            .env("LD_LIBRARY_PATH", self.path("driver"))
            .env("SOFTGPU_SOCKET", self.path("gpu.sock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if is_ours {
            command
                .env("LD_PRELOAD", self.built.join("libpillion.so"))
                .env("PILLION_SOCKET", self.path("pillion.sock"))
                .env("PILLION_CLASS", "best-effort")
                .env("PILLION_JOB", JOB)
                .env("PILLION_LOG", "warn");
        }
        let mut child = command.spawn().context("starting a child")?;
        let stdout = child.stdout.take().context("a child's standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(
            line == "ready\n",
            "expected \"ready\" from a child, read {line:?}"
        );
        let pid = child.id();
        ensure!(
            self.has_memory(pid)?,
            "the device reports no memory of process {pid}"
        );
        ensure!(
            self.has_account(pid)? == is_ours,
            "process {pid}: expected in the account: {is_ours}"
        );
        let raw = Pid::from_raw(pid.cast_signed()).context("a process id")?;
        let process = pidfd_open(raw, PidfdFlags::empty())?;
        let fate = self.watch(&mut child, pid, &process, is_ours);
        child.wait()?;
        fate
    }

    fn watch(
        &self,
        child: &mut Child,
        pid: u32,
        process: &OwnedFd,
        is_ours: bool,
    ) -> anyhow::Result<Fate> {
        let killed_ns = self.clock.now_ns();
        let since = || self.clock.now_ns() - killed_ns;
        child.kill()?;
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        ensure!(
            poll(&mut ended, Some(&END))? == 1,
            "process {pid} does not exit"
        );
        let ended_ns = since();
        let (mut freed_ns, mut back_ns) = (None, None);
        let (mut looked_ns, mut look_ns_max) = (ended_ns, 0);
        for _ in 0..LOOKS_MAX {
            if freed_ns.is_none() && !self.has_memory(pid)? {
                freed_ns = Some(since());
            }
            if is_ours && back_ns.is_none() && !self.has_account(pid)? {
                back_ns = Some(since());
            }
            let now_ns = since();
            look_ns_max = look_ns_max.max(now_ns - looked_ns);
            looked_ns = now_ns;
            let back = if is_ours { back_ns } else { freed_ns };
            if let (Some(freed_ns), Some(back_ns)) = (freed_ns, back) {
                return Ok(Fate {
                    ended_ns,
                    freed_ns,
                    back_ns,
                    look_ns_max,
                });
            }
            self.clock.sleep_until(self.clock.now_ns() + LOOK_NS);
        }
        bail!("the memory of process {pid} is not freed")
    }

    fn has_memory(&self, pid: u32) -> anyhow::Result<bool> {
        let packet = ask(&self.path("gpu.sock"), &wire::Request::Monitor.encode())?;
        let wire::Reply::Monitor(monitor) = wire::Reply::decode(&packet)? else {
            bail!("a reply to another request");
        };
        let its = monitor.processes.iter().find(|process| process.pid == pid);
        Ok(its.is_some_and(|process| process.held_bytes > 0))
    }

    fn has_account(&self, pid: u32) -> anyhow::Result<bool> {
        let of = MemoryOf {
            class: JobClass::BestEffort,
            job: JOB.to_owned(),
            memory: String::new(),
            device: String::new(),
        };
        let packet = ask(&self.path("pillion.sock"), &Request::Memory(of).encode())?;
        match Reply::decode(&packet)? {
            Reply::Memory(MemoryIs {
                held_bytes, pids, ..
            }) => {
                let is_there = pids.contains(&pid);
                let bytes = (PARTS * PART_BYTES) as u64;
                ensure!(
                    held_bytes == if is_there { bytes } else { 0 },
                    "process {pid}: {held_bytes} bytes in the account"
                );
                Ok(is_there)
            }
            other => bail!(
                "unexpected reply {other:?} from pilliond, pid {}",
                self.daemon.0.id()
            ),
        }
    }
}

fn ask(socket: &Path, question: &[u8]) -> anyhow::Result<Vec<u8>> {
    let socket = connect_to(socket)?;
    send(&socket, question, &[])?;
    Ok(receive(&socket)?.0)
}

fn wait<T>(clock: &Clock, what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return Ok(found);
        }
        clock.sleep_until(clock.now_ns() + LOOK_NS);
    }
    bail!("{what} does not start")
}
