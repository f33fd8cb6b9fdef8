//! The processes of a measurement: the daemon, the measuring child, and its neighbours. A child
//! prints a line when it is ready, begins on request, prints its result and then stays, attached,
//! until its standard input ends. So both ends can verify afterwards that the intended state was
//! measured. All processes end when their value is dropped.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use protocol::clock::Clock;
use protocol::hello::{JobClass, ask_status, connect_to};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use tempfile::TempDir;

use crate::artifacts::Artifacts;
use crate::child::Task;
use crate::profile;

/// Limit on the polls for a listening daemon, and their interval: 5 s in all.
const LOOKS_MAX: u32 = 1_000;
const LOOK_NS: u64 = 5_000_000;

/// The daemon's configuration without the socket: everything else as shipped, including `poll_us`.
/// This policy shows best which jobs are held and which go beside others.
const CONFIG: &str =
    "[gpu]\nindex = 0\nsharing = \"mps\"\n[learnt]\nkeep = false\n[policy]\nname = \"orion\"\n";

/// The processors of a measurement. The measured thread has one for itself, the last; the daemon,
/// the neighbours and the library's own threads share the others. With many processors this would
/// happen anyway; with two the scheduler would now and then put them onto the measured one. With a
/// single processor nothing is done.
pub(crate) struct Processors {
    all: CpuSet,
    measured: CpuSet,
    others: CpuSet,
}

impl Processors {
    pub(crate) fn allowed() -> anyhow::Result<Self> {
        let all = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| all.is_set(cpu));
        let (mut measured, mut others) = (all, all);
        if let (Some(last), 2..) = (last, all.count()) {
            measured.clear();
            measured.set(last);
            others.unset(last);
        }
        Ok(Self {
            all,
            measured,
            others,
        })
    }

    /// Leaves the measured one; so do this thread's children.
    pub(crate) fn stand_aside(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(None, &self.others)?)
    }

    pub(crate) fn move_to_measured(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(None, &self.measured)?)
    }

    pub(crate) fn use_all(&self) -> anyhow::Result<()> {
        Ok(sched_setaffinity(None, &self.all)?)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// No device: launches succeed at once; event calls take so many ns, holding the lock of
    /// launches.
    Null { event_ns: u64 },
    /// The software GPU, in real time.
    Served,
}

pub(crate) struct Site {
    folder: TempDir,
    device: Device,
}

impl Site {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::with(Device::Null { event_ns: 0 }, CONFIG)
    }

    pub(crate) fn with(device: Device, config: &str) -> anyhow::Result<Self> {
        let site = Self {
            folder: tempfile::tempdir()?,
            device,
        };
        profile::write(&site.profile())?;
        let socket = format!("[socket]\npath = {:?}\n", site.socket());
        std::fs::write(site.config(), format!("{config}{socket}"))?;
        Ok(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("daemon.sock")
    }

    pub(crate) fn device_socket(&self) -> PathBuf {
        self.path("gpu.sock")
    }

    fn give_device(&self, artifacts: &Artifacts, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", artifacts.driver_folder());
        match self.device {
            Device::Null { event_ns } => {
                command.env("SOFTGPU_NULL", "1");
                if event_ns != 0 {
                    command.env("SOFTGPU_EVENT_NS", event_ns.to_string());
                }
            }
            Device::Served => {
                command.env("SOFTGPU_SOCKET", self.device_socket());
            }
        }
    }

    fn profile(&self) -> PathBuf {
        self.path("profile.toml")
    }

    fn config(&self) -> PathBuf {
        self.path("gpu.toml")
    }
}

pub(crate) struct Daemon {
    process: Child,
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn start(artifacts: &Artifacts, site: &Site) -> anyhow::Result<Self> {
        let mut command = Command::new(&artifacts.daemon);
        command
            .arg("--config")
            .arg(site.config())
            .env_clear()
            .env("PILLION_LOG", "warn");
        site.give_device(artifacts, &mut command);
        let process = command.spawn().context("starting pilliond")?;
        let mut daemon = Self {
            process,
            socket: site.socket(),
        };
        let listens = || ask_status(&daemon.socket).is_ok();
        wait_until(listens, &mut daemon.process, "pilliond")?;
        Ok(daemon)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        let json = ask_status(&self.socket).context("asking pilliond for its status")?;
        Ok(serde_json::from_str(&json)?)
    }
}

pub(crate) fn job<'a>(status: &'a Value, id: &str) -> anyhow::Result<&'a Value> {
    let jobs = status["jobs"].as_array().context("no jobs in the status")?;
    let found = jobs
        .iter()
        .find(|job| job["job"] == id && job["ended_ns"].is_null());
    found.with_context(|| format!("job {id} is not attached"))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon removes its socket.
        end(&mut self.process);
    }
}

pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(artifacts: &Artifacts, site: &Site) -> anyhow::Result<Self> {
        let mut command = Command::new(&artifacts.server);
        command
            .arg("--socket")
            .arg(site.device_socket())
            .args(["--sharing", "mps"]);
        let mut server = Self(command.spawn().context("starting softgpu-server")?);
        let listens = || connect_to(&site.device_socket()).is_ok();
        wait_until(listens, &mut server.0, "softgpu-server")?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

fn wait_until(listens: impl Fn() -> bool, process: &mut Child, name: &str) -> anyhow::Result<()> {
    let clock = Clock::monotonic();
    for _ in 0..LOOKS_MAX {
        if listens() {
            return Ok(());
        }
        if let Some(status) = process.try_wait()? {
            bail!("{name} exited: {status}");
        }
        clock.sleep_until(clock.now_ns() + LOOK_NS);
    }
    bail!("{name} does not listen")
}

fn end(process: &mut Child) {
    // Nothing to do if it is gone already.
    if let Some(pid) = Pid::from_raw(process.id().cast_signed()) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = process.wait();
}

pub(crate) struct Preloaded {
    process: Child,
    /// None once it was told to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

pub(crate) struct Preload<'a> {
    /// `libpillion.so`; none for a control.
    pub(crate) library: Option<&'a Path>,
    pub(crate) class: JobClass,
    pub(crate) job: &'a str,
    pub(crate) is_disabled: bool,
    pub(crate) has_profile: bool,
    /// Whether the environment asks for a managed process: otherwise there is only the preload.
    pub(crate) expects_daemon: bool,
}

impl<'a> Preload<'a> {
    pub(crate) fn new(artifacts: &'a Artifacts, class: JobClass, job: &'a str) -> Self {
        Self {
            library: Some(&artifacts.library),
            class,
            job,
            is_disabled: false,
            has_profile: true,
            expects_daemon: true,
        }
    }

    /// As for [`Self::new`] if it is ours, else without any of it.
    pub(crate) fn if_ours(self, is_ours: bool) -> Self {
        Self {
            library: self.library.filter(|_| is_ours),
            has_profile: is_ours,
            expects_daemon: is_ours,
            ..self
        }
    }
}

impl Preloaded {
    pub(crate) fn start(
        artifacts: &Artifacts,
        site: &Site,
        preload: &Preload<'_>,
        task: &Task,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--child")
            .arg(serde_json::to_string(task)?)
            .env_clear()
            // Quieter than the default: without a daemon a job with an id warns, as it should.
            .env("PILLION_LOG", "error")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        site.give_device(artifacts, &mut command);
        if preload.has_profile {
            command.env("PILLION_PROFILE", site.profile());
        }
        if let Some(library) = preload.library {
            command.env("LD_PRELOAD", library);
        }
        if preload.expects_daemon {
            command
                .env("PILLION_SOCKET", site.socket())
                .env("PILLION_CLASS", preload.class.name())
                .env("PILLION_JOB", preload.job);
        }
        if preload.is_disabled {
            command.env("PILLION_DISABLE", "1");
        }
        let mut process = command.spawn().context("starting a child")?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().context("a child's standard output")?;
        let mut child = Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
        };
        child
            .read_line()
            .context("waiting until a child is ready")?;
        Ok(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn measure(&mut self) -> anyhow::Result<Value> {
        let stdin = self.stdin.as_mut().context("a child's standard input")?;
        stdin.write_all(b"go\n")?;
        let line = self
            .read_line()
            .context("waiting for a child's measurement")?;
        Ok(serde_json::from_str(&line)?)
    }

    fn read_line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("exited early: {}", self.process.wait()?);
        }
        Ok(line)
    }
}

impl Drop for Preloaded {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}
