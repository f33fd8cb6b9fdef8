//! One phase: starts its processes, waits for the jobs, and collects what each party counted.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use protocol::clock::{CLOCK_ENV, Clock, RANK_ENV, read_clock_page};
use protocol::hello::{JobClass, ask_status, connect_to};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::demo::Options;
use crate::demo::calibration::alone;
use crate::demo::record::{CHECK_EVERY, Record};
use crate::demo::stage::{Job, Software, Stage};
use crate::demo::venue::{Machine, Venue};
use crate::mps::PIPES_ENV;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    HpSolo,
    BeSolo,
    Timeslice,
    TimeslicePillion,
    Mps,
    MpsPillion,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) hp: Option<Value>,
    pub(crate) be: Option<Value>,
    /// `None` on hardware.
    pub(crate) device: Option<Value>,
    /// The daemon's status after both jobs ended.
    pub(crate) pillion: Option<Value>,
    /// Execution and leases over time, with `--out`.
    pub(crate) record: Option<Record>,
}

pub(crate) const HP_JOB: &str = "demo-hp";
pub(crate) const BE_JOB: &str = "demo-be";

/// Files that the device server and the daemon write for `--out`.
const DEVICE_RECORD: &str = "device.record";
const GATE_RECORD: &str = "gate.record";

/// Poll interval for children and the progress bar, real time.
const LOOK_NS: u64 = 20_000_000;
/// Real-time limit on a phase without progress on the virtual clock.
const STALL_NS: u64 = 60_000_000_000;
/// Timeout for a server to appear, real time.
const START_NS: u64 = 20_000_000_000;
/// Timeout for a replay to become ready, real time: a driver without a cache of compiled code first
/// compiles some hundred kernels, in 10 to 100 ms each.
const READY_NS: u64 = 120_000_000_000;
/// Printed lines of a failed process's output.
const TAIL_LINES: usize = 12;

impl Phase {
    /// In the order in which they run.
    pub(crate) const ALL: [Self; 6] = [
        Self::HpSolo,
        Self::BeSolo,
        Self::Timeslice,
        Self::TimeslicePillion,
        Self::Mps,
        Self::MpsPillion,
    ];

    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::HpSolo => "hp_solo",
            Self::BeSolo => "be_solo",
            Self::Timeslice => "timeslice",
            Self::TimeslicePillion => "timeslice_pillion",
            Self::Mps => "mps",
            Self::MpsPillion => "mps_pillion",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::HpSolo => "high-priority job alone",
            Self::BeSolo => "best-effort job alone",
            Self::Timeslice => "both, time-sliced",
            Self::TimeslicePillion => "both, time-sliced, under Pillion",
            Self::Mps => "both, under MPS",
            Self::MpsPillion => "both, under MPS and Pillion",
        }
    }

    const fn has_hp(self) -> bool {
        !matches!(self, Self::BeSolo)
    }

    const fn has_be(self) -> bool {
        !matches!(self, Self::HpSolo)
    }

    pub(crate) const fn has_pillion(self) -> bool {
        matches!(self, Self::TimeslicePillion | Self::MpsPillion)
    }

    pub(crate) const fn sharing(self) -> &'static str {
        match self {
            Self::Mps | Self::MpsPillion => "mps",
            _ => "timeslice",
        }
    }

    /// Fails with the last output of a process that cannot be started, fails or makes no progress.
    pub(crate) fn run(
        self,
        options: &Options,
        stage: &Stage,
        progress: &ProgressBar,
    ) -> Result<Outcome> {
        let cast = Cast::start(self, options, stage)?;
        let result = cast
            .begin_together(stage)
            .and_then(|()| cast.play(self, options, stage, progress));
        // Dropping `cast` kills the children that a failure left running.
        result.with_context(|| cast.last_words())
    }
}

struct Cast {
    folder: PathBuf,
    server: Option<Process>,
    daemon: Option<Process>,
    replays: Vec<Process>,
}

/// A child that writes to a file; killed when dropped.
struct Process {
    name: &'static str,
    child: std::cell::RefCell<Child>,
    output: PathBuf,
}

impl Cast {
    fn start(phase: Phase, options: &Options, stage: &Stage) -> Result<Self> {
        let folder = stage.phase_folder(phase.key())?;
        let mut cast = Self {
            folder,
            server: None,
            daemon: None,
            replays: Vec::new(),
        };
        if let Some(software) = &stage.software {
            cast.start_server(phase, options, software)?;
        }
        if phase.has_pillion() {
            cast.start_daemon(phase, options, stage)?;
        }
        if phase.has_hp() {
            cast.start_replay(phase, JobClass::HighPriority, options, stage)?;
        }
        if phase.has_be() {
            cast.start_replay(phase, JobClass::BestEffort, options, stage)?;
        }
        Ok(cast)
    }

    fn start_server(&mut self, phase: Phase, options: &Options, software: &Software) -> Result<()> {
        let folder = &self.folder;
        let replays = usize::from(phase.has_hp()) + usize::from(phase.has_be());
        let processes = replays + usize::from(phase.has_pillion());
        let mut server = Command::new(&software.server);
        server
            .arg("--socket")
            .arg(folder.join("gpu.sock"))
            .args([
                "--device",
                &software.device.name,
                "--sharing",
                phase.sharing(),
            ])
            .arg("--clock-page")
            .arg(folder.join("clock"))
            .args(["--processes", &processes.to_string(), "--json-stats"]);
        if options.out.is_some() {
            server.arg("--record").arg(folder.join(DEVICE_RECORD));
        }
        let server = Process::start("softgpu-server", server, folder)?;
        server.wait_for_socket(&folder.join("gpu.sock"))?;
        self.server = Some(server);
        Ok(())
    }

    fn start_daemon(&mut self, phase: Phase, options: &Options, stage: &Stage) -> Result<()> {
        let config = self.folder.join("gpu0.toml");
        let socket = self.folder.join("pillion.sock");
        // The demo's own server shows only the software GPU.
        let gpu = stage.venue.machine().map_or_else(
            || "index = 0".to_owned(),
            |machine| format!("uuid = {:?}", machine.gpu.uuid),
        );
        let text = format!(
            "[gpu]\n{gpu}\nsharing = \"{}\"\n\n[policy]\nname = \"{}\"\n\n[socket]\npath = {:?}\n",
            phase.sharing(),
            options.policy,
            socket.display().to_string(),
        );
        std::fs::write(&config, text)?;
        let mut daemon = Command::new(&stage.daemon);
        daemon.arg("--config").arg(config);
        self.environment(&mut daemon, phase, stage, 0);
        if options.out.is_some() {
            daemon.env("PILLION_RECORD", self.folder.join(GATE_RECORD));
        }
        let daemon = Process::start("pilliond", daemon, &self.folder)?;
        daemon.wait_for_socket(&socket)?;
        self.daemon = Some(daemon);
        Ok(())
    }

    fn start_replay(
        &mut self,
        phase: Phase,
        class: JobClass,
        options: &Options,
        stage: &Stage,
    ) -> Result<()> {
        let (job, name, rank) = match class {
            JobClass::HighPriority => (&stage.hp, "hp", 1),
            JobClass::BestEffort => (&stage.be, "be", 2),
        };
        let mut replay = Command::new(&stage.replay);
        replay
            .args(&job.trace)
            .args(["--seconds", &stage.seconds.to_string()])
            .args(["--seed", &options.seed.to_string()])
            .args(["--check-every", &CHECK_EVERY.to_string()])
            .arg("--out")
            .arg(self.folder.join(format!("{name}.json")));
        if class == JobClass::HighPriority {
            replay
                .args([
                    "--arrivals",
                    &options.arrivals,
                    "--rate",
                    &options.hp_rate.to_string(),
                ])
                .args(["--arrivals-stream", &options.arrivals_stream.to_string()]);
        }
        if stage.software.is_none() {
            replay.arg("--hold");
        }
        self.environment(&mut replay, phase, stage, rank);
        replay.env("SOFTGPU_LABEL", name);
        if phase.has_pillion() {
            self.under_pillion(&mut replay, phase, class, job, stage);
        }
        self.replays
            .push(Process::start(name, replay, &self.folder)?);
        Ok(())
    }

    /// As `pillion run` sets it, with the demo's own socket.
    fn under_pillion(
        &self,
        replay: &mut Command,
        phase: Phase,
        class: JobClass,
        job: &Job,
        stage: &Stage,
    ) {
        let id = if class == JobClass::HighPriority {
            HP_JOB
        } else {
            BE_JOB
        };
        replay
            .env("LD_PRELOAD", &stage.library)
            .env("PILLION_CLASS", class.name())
            .env("PILLION_JOB", id)
            .env("PILLION_PROFILE", &job.profile)
            .env("PILLION_SOCKET", self.folder.join("pillion.sock"));
        if phase.sharing() == "mps" && class == JobClass::BestEffort {
            // As `pillion run` sets it: 1 is below normal.
            replay.env("CUDA_MPS_CLIENT_PRIORITY", "1");
        }
    }

    fn environment(&self, command: &mut Command, phase: Phase, stage: &Stage, rank: u16) {
        match (&stage.software, &stage.venue) {
            (Some(software), _) => self.on_software(command, software, rank),
            (None, Venue::Machine(machine)) => self.on_machine(command, phase, machine),
            (None, Venue::Software(_)) => {}
        }
    }

    fn on_machine(&self, command: &mut Command, phase: Phase, machine: &Machine) {
        alone(command, machine, &self.folder);
        if phase.sharing() == "mps" {
            match std::env::var_os(PIPES_ENV) {
                Some(folder) => command.env(PIPES_ENV, folder),
                None => command.env_remove(PIPES_ENV),
            };
        }
    }

    fn on_software(&self, command: &mut Command, software: &Software, rank: u16) {
        for (name, _) in std::env::vars_os() {
            // Variables of the caller's shell must not change the demo.
            let text = name.to_string_lossy();
            if text.starts_with("PILLION_") || text.starts_with("SOFTGPU_") {
                command.env_remove(&name);
            }
        }
        command
            .env_remove("LD_PRELOAD")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env("LD_LIBRARY_PATH", &software.driver_folder)
            .env("SOFTGPU_SOCKET", self.folder.join("gpu.sock"))
            .env(CLOCK_ENV, self.folder.join("clock"))
            .env(RANK_ENV, rank.to_string());
    }

    /// Starts both replays. In real time, loading takes time, so each replay waits for the other;
    /// on the virtual clock it takes none.
    fn begin_together(&self, stage: &Stage) -> Result<()> {
        if stage.software.is_some() {
            return Ok(());
        }
        for replay in &self.replays {
            replay.wait_until("not ready", READY_NS, || {
                let said = std::fs::read_to_string(&replay.output).unwrap_or_default();
                said.starts_with("ready")
            })?;
        }
        for replay in &self.replays {
            // End of file on its standard input starts a replay.
            drop(replay.child.borrow_mut().stdin.take());
        }
        Ok(())
    }

    fn play(
        &self,
        phase: Phase,
        options: &Options,
        stage: &Stage,
        progress: &ProgressBar,
    ) -> Result<Outcome> {
        self.wait_for_replays(phase, stage, progress)?;
        let pillion = match &self.daemon {
            Some(daemon) => Some(self.final_status(daemon)?),
            None => None,
        };
        if let Some(daemon) = &self.daemon {
            daemon.stop()?;
        }
        let device = match &self.server {
            Some(server) => Some(statistics(server)?),
            None => None,
        };
        let report = |name: &str, is_there: bool| -> Result<Option<Value>> {
            if !is_there {
                return Ok(None);
            }
            let text = std::fs::read_to_string(self.folder.join(format!("{name}.json")))?;
            Ok(Some(serde_json::from_str(&text)?))
        };
        let hp = report("hp", phase.has_hp())?;
        let record = match options.out {
            Some(_) => Some(self.record(phase, stage, hp.as_ref())?),
            None => None,
        };
        Ok(Outcome {
            hp,
            record,
            be: report("be", phase.has_be())?,
            device,
            pillion,
        })
    }

    fn record(&self, phase: Phase, stage: &Stage, hp: Option<&Value>) -> Result<Record> {
        let gate = self.folder.join(GATE_RECORD);
        let device = self.folder.join(DEVICE_RECORD);
        Record::read(
            stage.software.as_ref().map(|_| device.as_path()),
            phase.has_pillion().then_some(gate.as_path()),
            hp,
            stage.launches(),
        )
    }

    /// Waits until both replays succeed; fails if virtual time stops or another process dies.
    fn wait_for_replays(&self, phase: Phase, stage: &Stage, progress: &ProgressBar) -> Result<()> {
        let clock = Clock::monotonic();
        let index = stage.phases.iter().position(|p| *p == phase).unwrap_or(0) as u64;
        let phase_ms = (stage.seconds * 1e3) as u64;
        let begin_ns = clock.now_ns();
        let mut last = (0, begin_ns);
        loop {
            let mut running = 0;
            for replay in &self.replays {
                match replay.ended()? {
                    None => running += 1,
                    Some(status) => {
                        ensure!(status.success(), "{} failed ({status})", replay.name)
                    }
                }
            }
            if running == 0 {
                return Ok(());
            }
            for other in self.daemon.iter().chain(&self.server) {
                if let Some(status) = other.ended()? {
                    bail!("{} exited ({status}) before the jobs", other.name);
                }
            }
            let now_ns = clock.now_ns();
            // Real-time progress cannot be observed; the replay must end after the phase.
            let moved_ns = match &self.server {
                Some(_) => read_clock_page(&self.folder.join("clock")).unwrap_or(0),
                None => (now_ns - begin_ns).min(phase_ms * 1_000_000),
            };
            progress.set_position(index * phase_ms + (moved_ns / 1_000_000).min(phase_ms));
            if moved_ns != last.0 {
                last = (moved_ns, now_ns);
            } else if now_ns - last.1 > STALL_NS {
                bail!("no progress for {} s", STALL_NS / 1_000_000_000);
            }
            clock.sleep_until(now_ns + LOOK_NS);
        }
    }

    /// The daemon's status after both clients have left, when totals are final.
    fn final_status(&self, daemon: &Process) -> Result<Value> {
        let clock = Clock::monotonic();
        let give_up_ns = clock.now_ns() + START_NS;
        loop {
            let text =
                ask_status(&self.folder.join("pillion.sock")).context("cannot query pilliond")?;
            let status: Value =
                serde_json::from_str(&text).context("cannot parse pilliond's status")?;
            let no_clients = |job: &Value| job["clients"].as_array().is_none_or(Vec::is_empty);
            if status["jobs"]
                .as_array()
                .is_some_and(|jobs| jobs.iter().all(no_clients))
            {
                return Ok(status);
            }
            if clock.now_ns() > give_up_ns {
                bail!(
                    "{} still lists clients that have ended: {text}",
                    daemon.name
                );
            }
            clock.sleep_until(clock.now_ns() + LOOK_NS);
        }
    }

    fn last_words(&self) -> String {
        let mut words = String::from("the last output of the processes:");
        for process in self.replays.iter().chain(&self.daemon).chain(&self.server) {
            let text = std::fs::read_to_string(process.errors()).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                words.push_str(&format!("\n  {}: {line}", process.name));
            }
        }
        words
    }
}

/// The device server prints its statistics when it ends.
fn statistics(server: &Process) -> Result<Value> {
    server.stop()?;
    let said = std::fs::read_to_string(&server.output)?;
    let said = said.find('{').map_or("", |start| &said[start..]);
    serde_json::from_str(said).context("cannot parse the device server's statistics")
}

impl Process {
    fn start(name: &'static str, mut command: Command, folder: &Path) -> Result<Self> {
        let output = folder.join(format!("{name}.out"));
        let errors = File::create(output.with_extension("err"))?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(File::create(&output)?)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self {
            name,
            child: child.into(),
            output,
        })
    }

    fn errors(&self) -> PathBuf {
        self.output.with_extension("err")
    }

    fn ended(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child.borrow_mut().try_wait()?)
    }

    /// The file exists a moment before the server listens.
    fn wait_for_socket(&self, path: &Path) -> Result<()> {
        self.wait_until("no answer on its socket", START_NS, || {
            connect_to(path).is_ok()
        })
    }

    fn wait_until(&self, what: &str, patience_ns: u64, is_so: impl Fn() -> bool) -> Result<()> {
        let clock = Clock::monotonic();
        let give_up_ns = clock.now_ns() + patience_ns;
        while !is_so() {
            if let Some(status) = self.ended()? {
                let said = std::fs::read_to_string(self.errors()).unwrap_or_default();
                bail!("{} exited ({status}): {}", self.name, said.trim());
            }
            ensure!(
                clock.now_ns() < give_up_ns,
                "{}: {what} within {} s",
                self.name,
                patience_ns / 1_000_000_000
            );
            clock.sleep_until(clock.now_ns() + LOOK_NS / 10);
        }
        Ok(())
    }

    fn stop(&self) -> Result<()> {
        let pid = Pid::from_child(&self.child.borrow());
        kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop {}", self.name))?;
        let clock = Clock::monotonic();
        let give_up_ns = clock.now_ns() + START_NS;
        loop {
            if let Some(status) = self.ended()? {
                ensure!(status.success(), "{} failed ({status})", self.name);
                return Ok(());
            }
            ensure!(
                clock.now_ns() < give_up_ns,
                "{} did not exit on SIGTERM",
                self.name
            );
            clock.sleep_until(clock.now_ns() + LOOK_NS / 10);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
