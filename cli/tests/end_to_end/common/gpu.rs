//! A software GPU with its daemon and its jobs.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use protocol::hello::{JobClass, ask_status, connect_to, receive, send};
use rustix::process::Signal;
use serde_json::Value;
use softgpu::wire::{Reply, Request};
use tempfile::TempDir;

use super::parts::{builtin_profile, cargo_folder, driver_folder, library, pillion};
use super::{CommandLine, Control, Ended, HANG, Process, collect, until};

/// A software GPU in real time.
#[derive(Debug)]
pub(crate) struct Gpu {
    folder: TempDir,
    server: Process,
    sharing: &'static str,
    null: String,
}

#[derive(Debug)]
pub(crate) struct Daemon {
    process: Process,
    socket: PathBuf,
}

/// A process of a job to start; its label at the device is its job's id at the daemon.
#[derive(Debug)]
pub(crate) struct Job {
    label: String,
    command: Command,
}

/// Counted by program, Pillion and device under the same name.
const COUNTED: [&str; 3] = ["launches", "copied_h2d_bytes", "copied_d2h_bytes"];

/// A GPU under MPS with a daemon as shipped, on which one program is run in several ways.
pub(crate) struct Stage {
    pub(crate) gpu: Gpu,
    pub(crate) daemon: Daemon,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let (gpu, daemon) = Gpu::with_daemon("mps", "");
        Self { gpu, daemon }
    }
}

impl Gpu {
    /// A V100 shared by `mps` or `timeslice`.
    pub(crate) fn start(sharing: &'static str) -> Self {
        Self::start_device("V100-SXM2-16GB", sharing)
    }

    /// [`Self::start`] and a daemon with these lines in its `[policy]`.
    pub(crate) fn with_daemon(sharing: &'static str, policy: &str) -> (Self, Daemon) {
        let gpu = Self::start(sharing);
        let daemon = gpu.daemon(policy);
        (gpu, daemon)
    }

    pub(crate) fn with_null_daemon() -> (Self, Daemon) {
        let gpu = Self::start("mps");
        let daemon = gpu.null_daemon();
        (gpu, daemon)
    }

    pub(crate) fn start_device(device: &str, sharing: &'static str) -> Self {
        Self::start_with(device, sharing, |_, _| ())
    }

    /// Writes MPS's logs, `control.log` and `server.log`, to its folder.
    pub(crate) fn start_logging_mps(sharing: &'static str) -> Self {
        Self::start_with("V100-SXM2-16GB", sharing, |command, folder| {
            command.arg("--mps-log").arg(folder.join("control.log"));
            let server_log = folder.join("server.log");
            command.arg("--mps-server-log").arg(server_log);
        })
    }

    /// Under MPS, where a process that ends with work in flight takes all others along.
    pub(crate) fn start_contagious() -> Self {
        Self::start_with("V100-SXM2-16GB", "mps", |command, _| {
            command.args(["--mps-kill", "contagious"]);
        })
    }

    /// Under MPS without an MPS of its own: contexts need a server of MPS's stand-in.
    pub(crate) fn start_with_mps_apart() -> Self {
        Self::start_with("V100-SXM2-16GB", "mps", |command, _| {
            command.arg("--mps-managed");
        })
    }

    /// A V100 that records what it runs in `device.tsv` in its folder.
    pub(crate) fn start_recording(sharing: &'static str) -> Self {
        Self::start_with("V100-SXM2-16GB", sharing, |command, folder| {
            command.arg("--record").arg(folder.join("device.tsv"));
        })
    }

    /// Ends it; returns that record.
    pub(crate) fn end_recording(self, record: &Path) -> String {
        self.server.signal(Signal::TERM);
        self.server.finish().expect_success();
        std::fs::read_to_string(record).unwrap()
    }

    /// Without block priority: waiting blocks of a kernel with greater priority do not go first.
    pub(crate) fn start_without_block_priority(sharing: &'static str) -> Self {
        Self::start_with("V100-SXM2-16GB", sharing, |command, _| {
            command.args(["--block-priority", "off"]);
        })
    }

    fn start_with(device: &str, sharing: &'static str, with: impl Fn(&mut Command, &Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(cargo_folder().join("softgpu-server"));
        command
            .arg("--socket")
            .arg(folder.path().join("gpu.sock"))
            .args(["--device", device, "--sharing", sharing, "--scale", "1"]);
        with(&mut command, folder.path());
        let server = Process::start("softgpu-server", command);
        let mut gpu = Self {
            folder,
            server,
            sharing,
            null: null_number(),
        };
        until("the device server", || {
            let is_running = gpu.server.is_running();
            assert!(is_running, "softgpu-server: {}", gpu.server.errors());
            connect_to(&gpu.socket()).ok()
        });
        gpu
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("gpu.sock")
    }

    pub(crate) fn server_pid(&self) -> u32 {
        self.server.pid()
    }

    /// A path in a folder that lives as long as the GPU.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn counts(&self, label: &str) -> Value {
        self.stats()["labels"][label].clone()
    }

    /// Signals the device server; stopping it stops the whole device.
    pub(crate) fn signal(&self, signal: Signal) {
        match signal {
            Signal::STOP => self.server.stop(),
            _ => self.server.signal(signal),
        }
    }

    /// These processes' device memory together, as the server reports to monitors, bytes.
    pub(crate) fn held_by(&self, pids: &[u32]) -> u64 {
        let socket = self.ask(&Request::Monitor);
        let (packet, _) = receive(&socket).unwrap();
        let Ok(Reply::Monitor(monitor)) = Reply::decode(&packet) else {
            panic!("not what was asked");
        };
        let processes = monitor.processes.iter();
        let theirs = processes.filter(|process| pids.contains(&process.pid));
        theirs.map(|process| process.held_bytes).sum()
    }

    fn ask(&self, request: &Request) -> OwnedFd {
        let socket = connect_to(&self.socket())
            .unwrap_or_else(|error| panic!("{error}: {}", self.server.errors()));
        send(&socket, &request.encode(), &[]).unwrap();
        socket
    }

    pub(crate) fn stats(&self) -> Value {
        let socket = self.ask(&Request::Stats);
        let mut json = Vec::new();
        loop {
            let (packet, _) = receive(&socket).unwrap();
            if packet.is_empty() {
                break;
            }
            json.extend(packet);
        }
        serde_json::from_slice(&json).unwrap()
    }

    pub(crate) fn inject(&self, fault: &str) {
        let mut command = Command::new(cargo_folder().join("softgpu-server"));
        command.arg("--socket").arg(self.socket());
        command.args(["--inject", fault]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{fault}: {output:?}");
    }

    /// A command with only this GPU in its environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean_command(program);
        command
            .env("LD_LIBRARY_PATH", driver_folder())
            .env("SOFTGPU_SOCKET", self.socket())
            // Its daemon keeps learnt durations there.
            .env("STATE_DIRECTORY", self.path("state"));
        command
    }

    /// A process of this label without Pillion.
    pub(crate) fn job(&self, label: &str, line: impl Into<CommandLine>) -> Job {
        let CommandLine { program, arguments } = line.into();
        self.job_of(label, &program.path()).args(&arguments)
    }

    /// The high-priority job `hp` with a kernel in flight that outlasts every test.
    pub(crate) fn hang(&self, daemon: &Daemon) -> Process {
        let hp = self.job("hp", HANG).high_priority(daemon);
        hp.start_until("launched")
    }

    pub(crate) fn job_of(&self, label: &str, program: &Path) -> Job {
        let mut command = self.command(program);
        command.env("SOFTGPU_LABEL", label);
        Job {
            label: label.to_owned(),
            command,
        }
    }

    /// A high-priority and a best-effort job of one command line; both have printed `line`.
    pub(crate) fn pair(
        &self,
        command: &'static str,
        daemon: &Daemon,
        line: &str,
    ) -> [(&'static str, Process); 2] {
        let hp = self.job("hp", command).high_priority(daemon).start();
        let be = self.job("be", command).best_effort(daemon).start();
        [("hp", hp), ("be", be)].map(|(label, mut job)| {
            job.wait_for(line, 1);
            (label, job)
        })
    }

    pub(crate) fn pillion(&self, daemon: &Daemon, arguments: &[&str]) -> Command {
        let mut command = self.command(pillion());
        command
            .args(arguments)
            .env("PILLION_SOCKET", daemon.socket());
        command
    }

    pub(crate) fn stop(&self, control: &Control, daemon: &Daemon, arguments: &[&str]) -> Command {
        let mut command = self.pillion(daemon, &["stop"]);
        command.args(arguments).env("PATH", control.search_path());
        command
    }

    pub(crate) fn tell(&self, daemon: &Daemon, arguments: &[&str]) -> Ended {
        collect(self.pillion(daemon, arguments))
    }

    /// A process started by `pillion run` with `arguments`, under the daemon's socket.
    pub(crate) fn pillion_run(&self, label: &str, socket: &Path, arguments: &[&str]) -> Job {
        let mut command = self.command(pillion());
        command
            .env("SOFTGPU_LABEL", label)
            .env("PILLION_SOCKET", socket)
            .arg("run")
            .args(arguments);
        Job {
            label: label.to_owned(),
            command,
        }
    }

    /// Writes a daemon's configuration with these lines in its `[policy]`.
    pub(crate) fn config(&self, socket: &Path, policy: &str) -> PathBuf {
        self.config_told(self.sharing, socket, policy)
    }

    fn config_told(&self, sharing: &str, socket: &Path, policy: &str) -> PathBuf {
        let path = self.folder.path().join("gpu0.toml");
        let text = format!(
            "[gpu]\nindex = 0\nsharing = \"{sharing}\"\n\n[policy]\n{policy}\n\n[socket]\npath = {socket:?}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A daemon with these lines in its `[policy]`.
    pub(crate) fn daemon(&self, policy: &str) -> Daemon {
        self.daemon_at(self.path("pillion.sock"), policy)
    }

    /// A daemon with this value of `sharing`, and with these lines from its `[policy]` on.
    pub(crate) fn daemon_told(&self, sharing: &str, policy: &str) -> Daemon {
        let socket = self.path("pillion.sock");
        let mut command = self.command(cargo_folder().join("pilliond"));
        command
            .arg("--config")
            .arg(self.config_told(sharing, &socket, policy));
        Self::daemon_of(command, socket)
    }

    pub(crate) fn daemon_at(&self, socket: PathBuf, policy: &str) -> Daemon {
        self.daemon_by(socket, policy, |command| command)
    }

    /// The daemon for a driver in its null mode: calls succeed at once and make no system call.
    pub(crate) fn null_daemon(&self) -> Daemon {
        self.null_daemon_in(&[])
    }

    pub(crate) fn null_daemon_in(&self, environment: &[(&str, &Path)]) -> Daemon {
        self.daemon_by(self.path("pillion.sock"), "", |command| {
            command.env("SOFTGPU_NULL", &self.null);
            command.envs(environment.iter().copied())
        })
    }

    pub(crate) fn null(&self) -> &str {
        &self.null
    }

    pub(crate) fn daemon_with(&self, name: &str, value: &Path) -> Daemon {
        self.daemon_in(&[(name, value)])
    }

    pub(crate) fn daemon_in(&self, environment: &[(&str, &Path)]) -> Daemon {
        self.daemon_by(self.path("pillion.sock"), "", |command| {
            command.envs(environment.iter().copied())
        })
    }

    /// A daemon with this stand-in for MPS's program, with these sections and lines in `[faults]`.
    pub(crate) fn daemon_beside(&self, control: &Control, sections: &str, faults: &str) -> Daemon {
        let program = control.program();
        let faults = format!("[mps]\nterminate = [{program:?}]\n[faults]\n{faults}");
        self.daemon(&format!("{sections}\n{faults}"))
    }

    pub(crate) fn daemon_at_with(
        &self,
        socket: PathBuf,
        policy: &str,
        (name, value): (&str, &Path),
    ) -> Daemon {
        self.daemon_by(socket, policy, |command| command.env(name, value))
    }

    fn daemon_by(
        &self,
        socket: PathBuf,
        policy: &str,
        with: impl Fn(&mut Command) -> &mut Command,
    ) -> Daemon {
        let mut command = self.command(cargo_folder().join("pilliond"));
        with(command.arg("--config").arg(self.config(&socket, policy)));
        Self::daemon_of(command, socket)
    }

    pub(crate) fn daemon_through(&self, words: &[&str]) -> Daemon {
        let socket = self.path("pillion.sock");
        let mut command = self.command(words[0]);
        command
            .args(&words[1..])
            .arg(cargo_folder().join("pilliond"))
            .arg("--config")
            .arg(self.config(&socket, ""));
        Self::daemon_of(command, socket)
    }

    fn daemon_of(command: Command, socket: PathBuf) -> Daemon {
        let mut process = Process::start("pilliond", command);
        until("the daemon's socket", || {
            assert!(process.is_running(), "pilliond: {}", process.errors());
            ask_status(&socket).ok()
        });
        Daemon { process, socket }
    }

    /// Tells a process to end, and expects success and equal counts everywhere.
    pub(crate) fn expect_right_end(&self, label: &str, process: Process, daemon: &Daemon) -> Ended {
        let ended = process.finish().expect_success();
        self.expect_equal_counts(label, &ended, daemon);
        ended
    }

    pub(crate) fn expect_equal_counts(&self, label: &str, ended: &Ended, daemon: &Daemon) {
        let totals = daemon.totals(label);
        let device = self.counts(label);
        for counted in COUNTED {
            let asked = ended.asked(counted);
            assert_eq!(
                totals[counted], asked,
                "Pillion: {counted} of {label}: {totals:#}"
            );
            assert_eq!(
                device[counted], asked,
                "device: {counted} of {label}: {device:#}"
            );
        }
    }
}

/// Several software GPUs in real time, whose daemons clients find by the GPUs' identities.
#[derive(Debug)]
pub(crate) struct Machine {
    gpus: Vec<Gpu>,
    /// The users' runtime folder.
    folder: TempDir,
}

impl Machine {
    pub(crate) fn start(sharing: &'static str, count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pillion")).unwrap();
        Self {
            gpus: (0..count).map(|_| Gpu::start(sharing)).collect(),
            folder,
        }
    }

    pub(crate) fn gpu(&self, index: usize) -> &Gpu {
        &self.gpus[index]
    }

    pub(crate) fn daemon(&self, index: usize, policy: &str) -> Daemon {
        let stats = self.gpus[index].stats();
        let uuid = stats["uuid"].as_str().expect("the server says it");
        let socket = self
            .folder
            .path()
            .join("pillion")
            .join(format!("{uuid}.sock"));
        self.gpus[index].daemon_at(socket, policy)
    }

    pub(crate) fn command(&self, label: &str, program: &Path, arguments: &[&str]) -> Job {
        let sockets = std::env::join_paths(self.gpus.iter().map(Gpu::socket)).unwrap();
        self.gpus[0]
            .job_of(label, program)
            .args(arguments)
            .env("SOFTGPU_SOCKET", sockets)
            .env("XDG_RUNTIME_DIR", self.folder.path())
    }

    pub(crate) fn job(&self, label: &str, line: impl Into<CommandLine>) -> Job {
        let sockets = std::env::join_paths(self.gpus.iter().map(Gpu::socket)).unwrap();
        self.gpus[0]
            .job(label, line)
            .env("SOFTGPU_SOCKET", sockets)
            .env("XDG_RUNTIME_DIR", self.folder.path())
    }
}

impl Daemon {
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn status(&self) -> Value {
        let text = ask_status(&self.socket)
            .unwrap_or_else(|error| panic!("{error}: {}", self.process.errors()));
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn status_when(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.status()).filter(&is_so))
    }

    pub(crate) fn table(&self) -> String {
        self.shown(&["status"])
    }

    /// The output of `pillion status --explain` for the GPU and each job, each remark on one line.
    pub(crate) fn explained(&self) -> String {
        let status = self.status();
        let jobs = status["jobs"].as_array().into_iter().flatten();
        let names = jobs.map(|job| &job["job"]).chain([&status["gpu"]["uuid"]]);
        let texts = names.map(|name| self.explained_of(name.as_str().unwrap()));
        texts.collect()
    }

    pub(crate) fn explained_of(&self, job: &str) -> String {
        self.shown(&["status", "--explain", job])
    }

    fn shown(&self, words: &[&str]) -> String {
        let mut command = clean_command(pillion());
        command.args(words).env("PILLION_SOCKET", &self.socket);
        command.env("COLUMNS", "10000");
        collect(command).expect_success().output
    }

    /// The entry of a job, `Null` if there is none.
    pub(crate) fn job(&self, label: &str) -> Value {
        job_of(&self.status(), label)
    }

    pub(crate) fn job_when(
        &self,
        label: &str,
        what: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&format!("{label}: {what}"), || {
            Some(self.job(label)).filter(&is_so)
        })
    }

    pub(crate) fn wait_for_clients(&self, label: &str, count: usize) -> Value {
        self.job_when(label, &format!("{count} clients"), |job| {
            job["clients"].as_array().map_or(0, Vec::len) == count
        })
    }

    pub(crate) fn wait_until_held(&self, label: &str) {
        self.job_when(label, "a thread at the gate", |job| job["waiting"] == true);
    }

    /// Waits until a poll after this call finds nothing in flight for a job: the status is as of
    /// the last poll, of a thousand a second.
    pub(crate) fn wait_until_nothing_in_flight(&self, label: &str) {
        let now_ns = || self.status()["daemon"]["now_ns"].as_u64().unwrap();
        let begun_ns = now_ns();
        until("a hundred looks", || now_ns() - begun_ns > 100_000_000);
        self.job_when(label, "nothing in flight", |job| job["in_flight_ns"] == 0);
    }

    /// The counts of a job's clients, after all of them have ended.
    pub(crate) fn totals(&self, label: &str) -> Value {
        self.job_when(label, "the end of its clients", |job| {
            !job.is_null() && job["clients"].as_array().is_none_or(Vec::is_empty)
        })["totals"]
            .clone()
    }

    pub(crate) fn total(&self, label: &str, counter: &str) -> u64 {
        let totals = self.totals(label);
        totals[counter]
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {counter} in {totals:#}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn wait_for_reports(&self) {
        until("NVML's reports", || self.log().contains("NVML reports"));
    }

    pub(crate) fn log(&self) -> String {
        self.process.errors()
    }

    pub(crate) fn finish(self) -> Ended {
        self.process.finish()
    }

    pub(crate) fn kill(self) {
        self.process.kill();
    }

    /// Ends it in an orderly way.
    pub(crate) fn end(self) {
        self.signal(Signal::TERM);
        self.finish().expect_success();
    }
}

impl Job {
    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Preloads the library, and sets the daemon's socket and the kernels' profile.
    pub(crate) fn under(self, socket: &Path, class: JobClass) -> Self {
        self.in_class(class).env("PILLION_SOCKET", socket)
    }

    /// [`Self::under`] with daemons found by the devices' identities.
    pub(crate) fn in_class(self, class: JobClass) -> Self {
        let label = self.label.clone();
        self.env("LD_PRELOAD", library())
            .env("PILLION_CLASS", class.name())
            .env("PILLION_JOB", label)
            .env("PILLION_PROFILE", builtin_profile())
    }

    pub(crate) fn without_profile(mut self) -> Self {
        self.command.env_remove("PILLION_PROFILE");
        self
    }

    pub(crate) fn high_priority(self, daemon: &Daemon) -> Self {
        self.under(daemon.socket(), JobClass::HighPriority)
    }

    pub(crate) fn best_effort(self, daemon: &Daemon) -> Self {
        self.under(daemon.socket(), JobClass::BestEffort)
    }

    pub(crate) fn start(self) -> Process {
        Process::start(&self.label, self.command)
    }

    pub(crate) fn start_until(self, line: &str) -> Process {
        let mut process = self.start();
        process.wait_for(line, 1);
        process
    }

    pub(crate) fn run(self) -> Ended {
        self.start().finish()
    }
}

/// A number that no other test on this machine has: each device in null mode has its own daemon.
fn null_number() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(
        "{}",
        (u64::from(std::process::id()) << 16) + u64::from(next)
    )
}

fn job_of(status: &Value, label: &str) -> Value {
    let jobs = status["jobs"].as_array().expect("a list of jobs");
    let found = jobs.iter().find(|job| job["job"] == label);
    found.cloned().unwrap_or_default()
}

/// Other variables that change programs' output: language, colours, start-up files of shells,
/// settings of debuggers and emulators.
const OF_THE_CALLER: [&str; 10] = [
    "BASH_ENV",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "ENV",
    "LANG",
    "LANGUAGE",
    "DEBUGINFOD_URLS",
    "GLIBC_TUNABLES",
    "MALLOC_CHECK_",
    "VALGRIND_OPTS",
];

/// A command without the caller's environment about Pillion or a GPU.
pub(crate) fn clean_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = ["PILLION_", "SOFTGPU_", "CUDA_", "LC_"]
            .iter()
            .any(|prefix| text.starts_with(prefix));
        if is_ours || OF_THE_CALLER.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command
        // Nobody can create a folder there: tests leave no learnt durations on the machine.
        .env("STATE_DIRECTORY", "/proc/no-state")
        // Nor is a daemon left there.
        .env("PILLION_AUTOSTART", "0")
        .env_remove("LD_PRELOAD")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("XDG_RUNTIME_DIR");
    command
}
