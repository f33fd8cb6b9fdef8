//! The poll thread, and the daemon as a whole. The poll thread reads the bell, polls the state,
//! rings the due bells, and waits for the bell until the next poll. It reads the bell's
//! word *before* the poll, so that any event during the poll ends the wait at once.

pub(crate) mod control;
mod fault_watch;
mod keeper;
mod memory_watch;
mod mps_watch;
mod requests_keeper;
pub(crate) mod shared;
mod telemetry;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::clock::Clock;
use protocol::pages::Bell;
use rustix::event::{EventfdFlags, eventfd};

use crate::config::gpu::Gpu;
use crate::config::show::Shown;
use crate::config::source::Source;
use crate::config::{Config, ConfigError};
use crate::core::block_priority::BlockPriority;
use crate::core::event::{Draft, Kind};
use crate::core::ledgers::Ledgers;
use crate::core::pages::GpuPages;
use crate::core::state::{Entry, Look, State};
use crate::core::unmanaged;
use crate::daemon::control::Control;
use crate::daemon::fault_watch::FaultWatch;
use crate::daemon::keeper::{Inlet, Keeper};
use crate::daemon::memory_watch::Watch;
use crate::daemon::mps_watch::MpsWatch;
use crate::daemon::requests_keeper::RequestsKeeper;
use crate::daemon::shared::Shared;
use crate::daemon::telemetry::Telemetry;
use crate::host::drain_marker::DrainMarker;
use crate::host::kept_probe::ProbeFile;
use crate::host::kept_requests::RequestsFile;
use crate::host::learnt::{LearntStore, state_folder};
use crate::host::measured;
use crate::host::pages::GpuFds;
use crate::host::realtime;
use crate::host::socket::{Seat, SocketError};
use crate::report::status::Identity;

/// Extra latency that the kernel may add to a sleep; the default of 50 us would double every poll
/// interval (prctl(2), PR_SET_TIMERSLACK).
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("is not zero");

/// Number and length of waits for a thread that saves learnt data.
const KEEPER_WAITS: u32 = 200;
const KEEPER_WAIT_NS: u64 = 10_000_000;

/// Why a daemon cannot start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The socket is unavailable.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No memory, descriptors or threads.
    #[error("{doing}: {source}")]
    System {
        /// The failed step.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A thread of the daemon panicked: a bug of ours.
    #[error("a thread of the daemon panicked")]
    Panicked,
}

/// A listening daemon. [`Daemon::run`] makes it decide.
pub struct Daemon {
    shared: Arc<Shared>,
    gpu: Gpu,
    control: JoinHandle<()>,
    watch: JoinHandle<()>,
    faults: JoinHandle<()>,
    keeper: Option<JoinHandle<()>>,
    requests: Option<JoinHandle<()>>,
    mps: Option<JoinHandle<()>>,
    record: Option<BufWriter<File>>,
}

/// Where learnt durations are saved; `None` if they are not.
fn inlet(config: &Config, gpu: &Gpu, shared: &Shared) -> io::Result<Option<Arc<Inlet>>> {
    let rules = &config.learnt;
    let keeps = rules.keep.unwrap_or(!shared.clock.is_virtual());
    let folder = state_folder(rules).filter(|_| keeps);
    let store = folder.map(|folder| LearntStore::new(folder, gpu));
    store.map(Inlet::new).transpose()
}

fn start_keeper(shared: &Arc<Shared>, inlet: Arc<Inlet>) -> io::Result<JoinHandle<()>> {
    let keeper = Keeper::new(Arc::clone(shared), inlet);
    shared.start_thread("pillion-keeper", move || keeper.run())
}

/// Saves request durations beside the socket; not on virtual time, which ends with the daemon.
fn start_requests_keeper(
    shared: &Arc<Shared>,
    identity: &Identity,
) -> io::Result<Option<JoinHandle<()>>> {
    if shared.clock.is_virtual() {
        return Ok(None);
    }
    let file = RequestsFile::beside(Path::new(&identity.socket), &identity.gpu.uuid);
    let keeper = RequestsKeeper::begin(Arc::clone(shared), file);
    let thread = shared.start_thread("pillion-requests", move || keeper.run())?;
    let _ = shared.requests.set(thread.thread().clone());
    Ok(Some(thread))
}

fn wait_for(thread: &JoinHandle<()>, why: &str) {
    let clock = Clock::monotonic();
    for _ in 0..KEEPER_WAITS {
        if thread.is_finished() {
            return;
        }
        clock.sleep_until(clock.now_ns() + KEEPER_WAIT_NS);
    }
    tracing::warn!("{why}");
}

/// Ends a daemon from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Makes [`Daemon::run`] return soon.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Whether the poll thread has decided for the last time.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.0.has_stopped.load(Ordering::Relaxed)
    }

    /// Logs and reports why the daemon is about to end.
    pub fn tell_why(&self, why: &str) {
        self.0
            .tell(Draft::new(Kind::DaemonEnding, format!("ending: {why}")));
    }
}

/// Checks from another thread whether the daemon decides.
pub struct Pulse {
    shared: Arc<Shared>,
    seen: Option<u64>,
}

impl Pulse {
    /// Whether the poll thread has polled since the last call, when it was rung; true at first. An
    /// idle one polls when rung; one that hangs, or waits for a lock forever, does not.
    pub fn is_beating(&mut self) -> bool {
        let polls = self.shared.polls.load(Ordering::Relaxed);
        let is_beating = self.seen.replace(polls) != Some(polls);
        self.shared.ring();
        is_beating
    }
}

/// Reloads a running daemon's configuration from another thread.
pub struct Reloader {
    shared: Arc<Shared>,
    gpu: Gpu,
    config: Config,
}

impl Reloader {
    /// Re-reads the files and applies them from the next poll on.
    /// # Errors
    /// A file is unusable, or changes what only a new daemon can apply. Nothing changes then, and
    /// the status reports why.
    pub fn reload(&mut self, source: &Source) -> Result<(), ConfigError> {
        let path = source.path();
        let read =
            source
                .read()
                .and_then(|(next, layers)| match self.config.fixed_difference(&next) {
                    None => Ok((next, layers)),
                    Some(section) => {
                        let files = layers.paths().map(|path| path.display().to_string());
                        let files = files.collect::<Vec<_>>().join(", ");
                        Err(ConfigError::Fixed { files, section })
                    }
                });
        let result = read.map(|(mut next, layers)| {
            *self.shared.settings.lock() = Shown::of(&layers, &next).to_json();
            let known = BlockPriority::find(&self.gpu, &measured::folder());
            next.set_block_priority(known.works());
            let mut state = self.shared.state();
            state.reconfigure(&next);
            state.block_priority.known = known;
            drop(state);
            self.shared.inbox().put_rules(&next.faults);
            self.shared.alarm();
            self.shared.unmanaged.lock().rules = next.unmanaged;
            self.shared.configure_probe(next.probe, false);
            self.shared.note_telemetry();
            self.config = next;
        });
        self.shared.tell(match &result {
            Ok(()) => Draft::new(
                Kind::ConfigReloaded,
                format!("{}: in force", path.display()),
            ),
            Err(error) => {
                let why = error.to_string();
                let text = format!("the configuration is unchanged: {why}");
                self.shared.state().handle_config_error(why);
                Draft::new(Kind::ConfigRefused, text)
            }
        });
        if result.is_ok() {
            self.shared.tell_doubts(&self.config);
        }
        self.shared.ring();
        result
    }
}

impl Daemon {
    /// Takes the seat at `socket` and begins to accept clients.
    /// # Errors
    /// The seat is taken, or the system has no memory, descriptors or threads.
    pub fn start(
        config: &Config,
        gpu: Gpu,
        socket: &Path,
        clock: Clock,
    ) -> Result<Self, DaemonError> {
        Self::start_until_idle(config, gpu, socket, clock, None)
    }

    /// As above, for a daemon that ends after being idle that long: no client, and none expected
    /// ([`protocol::hello::Request::Expect`]).
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_until_idle(
        config: &Config,
        gpu: Gpu,
        socket: &Path,
        clock: Clock,
        ends_when_idle: Option<Duration>,
    ) -> Result<Self, DaemonError> {
        let system = |doing| move |source| DaemonError::System { doing, source };
        let known = BlockPriority::find(&gpu, &measured::folder());
        let mut config = config.clone();
        config.set_block_priority(known.works());
        let config = &config;
        let seat = match ends_when_idle {
            None => Seat::take(&gpu.uuid, socket)?,
            Some(_) => Seat::take_for_a_while(&gpu.uuid, socket)?,
        };
        let (pages, fds) =
            GpuPages::create(config, &clock).map_err(system("cannot create shared memory"))?;
        let identity = Identity {
            socket: seat.path().display().to_string(),
            started_ns: clock.now_ns(),
            ends_when_idle,
            gpu,
        };
        let bell = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).map_err(io::Error::from);
        let stop = bell(EventfdFlags::empty());
        let leaving = bell(EventfdFlags::NONBLOCK);
        let alarm = bell(EventfdFlags::NONBLOCK);
        let mps_bell = bell(EventfdFlags::NONBLOCK);
        let telemetry = Bell::default();
        telemetry.key.store(clock.bell_key(), Ordering::Relaxed);
        let mut state = State::new(config, identity.gpu.sms, Arc::clone(&pages));
        state.block_priority.known = known;
        if seat.has_predecessor() {
            state.expect_returning(identity.started_ns);
        }
        let ledgers = Ledgers::new(config.memory.clone(), identity.gpu.memory_bytes);
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            ledgers: Mutex::new(ledgers),
            events: Mutex::default(),
            inbox: Mutex::default(),
            word: Mutex::new(DrainMarker::beside(socket, &identity.gpu.uuid)),
            device_release: Arc::default(),
            alarm: alarm.map_err(system("cannot create an eventfd"))?,
            pages,
            clock,
            is_stopping: AtomicBool::new(false),
            has_stopped: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            has_panicked: AtomicBool::new(false),
            #[cfg(test)]
            panics: Mutex::default(),
            stop: stop.map_err(system("cannot create an eventfd"))?,
            requests: OnceLock::new(),
            leaving: leaving.map_err(system("cannot create an eventfd"))?,
            telemetry,
            device: Mutex::default(),
            probe: Mutex::default(),
            probe_turn: Mutex::default(),
            probe_file: ProbeFile::beside(socket, &identity.gpu.uuid),
            mps: Mutex::default(),
            mps_bell: mps_bell.map_err(system("cannot create an eventfd"))?,
            settings: Mutex::default(),
            unmanaged: Mutex::new(unmanaged::Desk {
                rules: config.unmanaged,
                named: None,
            }),
        });
        shared.tell_start(&identity);
        shared.take_over();
        shared.configure_probe(config.probe, true);
        shared.tell_doubts(config);
        Self::start_threads(shared, config, seat, fds, identity)
    }

    fn start_threads(
        shared: Arc<Shared>,
        config: &Config,
        seat: Seat,
        fds: GpuFds,
        identity: Identity,
    ) -> Result<Self, DaemonError> {
        let system = |doing| move |source| DaemonError::System { doing, source };
        let gpu = identity.gpu.clone();
        let faults = FaultWatch::new(Arc::clone(&shared), &identity.gpu.uuid, config);
        let mps = MpsWatch::new(
            Arc::clone(&shared),
            &config.mps,
            Path::new(&identity.socket),
        );
        let watch = Watch::new(Arc::clone(&shared), &identity.gpu.uuid);
        let keeper =
            inlet(config, &identity.gpu, &shared).map_err(system("cannot create an eventfd"))?;
        // Before clients are accepted, which look for what was learnt about them.
        let requests = start_requests_keeper(&shared, &identity)
            .map_err(system("cannot start the thread that saves requests"))?;
        let control = Control::new(Arc::clone(&shared), seat, fds, identity, keeper.clone())
            .map_err(system("cannot prepare the socket"))?;
        let stopper = StopAtEnd(Arc::clone(&shared));
        let control = shared
            .start_thread("pillion-control", move || {
                let _stopper = stopper;
                control.run();
            })
            .map_err(system("cannot start the control thread"))?;
        let watch = shared
            .start_thread("pillion-memory", move || watch.run())
            .map_err(system("cannot start the memory thread"))?;
        let faults = shared
            .start_thread("pillion-faults", move || faults.run())
            .map_err(system("cannot start the thread that watches for faults"))?;
        let mps = mps.map(|mps| shared.start_thread("pillion-mps", move || mps.run()));
        let mps = (mps.transpose()).map_err(system("cannot start the thread that watches MPS"))?;
        let keeper = keeper.map(|inlet| start_keeper(&shared, inlet)).transpose();
        let keeper = keeper.map_err(system("cannot start the thread that saves durations"))?;
        Ok(Self {
            shared,
            gpu,
            control,
            watch,
            faults,
            keeper,
            requests,
            mps,
            record: None,
        })
    }

    /// Writes grants to best-effort jobs and the reasons of their waits to `file`: one
    /// [`crate::core::state::Entry`] per line.
    #[must_use]
    pub fn record_to(mut self, file: File) -> Self {
        self.shared.state().start_record();
        self.record = Some(BufWriter::new(file));
        self
    }

    /// The configuration that the daemon reports: see [`Shown`].
    #[must_use]
    pub fn showing(self, shown: &Shown) -> Self {
        *self.shared.settings.lock() = shown.to_json();
        self
    }

    /// A handle that ends this daemon.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// A handle that checks whether this daemon decides.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let shared = Arc::clone(&self.shared);
        Pulse { shared, seen: None }
    }

    /// A handle that replaces this daemon's configuration, now `config`.
    #[must_use]
    pub fn reloader(&self, config: Config) -> Reloader {
        Reloader {
            shared: Arc::clone(&self.shared),
            gpu: self.gpu.clone(),
            config,
        }
    }

    /// Decides, in this thread, until stopped. On return there is no socket, and clients have seen
    /// the daemon's end.
    /// # Errors
    /// [`DaemonError::Panicked`].
    pub fn run(mut self) -> Result<(), DaemonError> {
        let clock = self.shared.clock;
        // A failure makes polls late, not wrong.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        clock.enter();
        let telemetry = self.start_telemetry();
        self.poll_until_stopped(&clock);
        self.shared.has_stopped.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.record.as_mut().map(io::Write::flush) {
            tracing::warn!("cannot write the file of PILLION_RECORD; recording stops: {error}");
        }
        clock.leave();
        self.control.join().map_err(|_| DaemonError::Panicked)?;
        self.faults.join().map_err(|_| DaemonError::Panicked)?;
        self.watch.join().map_err(|_| DaemonError::Panicked)?;
        let keepers = [&self.keeper, &self.requests].into_iter().flatten();
        keepers.for_each(|keeper| {
            wait_for(
                keeper,
                "exiting before all learnt data is saved: saving it took longer than 2 s",
            );
        });
        if let Some(mps) = &self.mps {
            wait_for(
                mps,
                "exiting although a command to MPS (nvidia-cuda-mps-control) has not ended",
            );
        }
        if let Some(telemetry) = &telemetry {
            wait_for(
                telemetry,
                "exiting although a call of NVML has not returned",
            );
        }
        // Do not wait for the other threads.
        match self.shared.has_panicked.load(Ordering::Relaxed) {
            true => Err(DaemonError::Panicked),
            false => Ok(()),
        }
    }

    /// Started here, as a participant of the virtual clock; without it expected durations count.
    fn start_telemetry(&self) -> Option<JoinHandle<()>> {
        let telemetry = Telemetry::new(Arc::clone(&self.shared), &self.gpu.uuid);
        let started = (self.shared).start_participant("pillion-telemetry", move || telemetry.run());
        match started {
            Ok(thread) => Some(thread),
            Err(error) => {
                tracing::warn!(
                    "cannot start the telemetry thread, using expected durations alone: {error}"
                );
                None
            }
        }
    }

    fn poll_until_stopped(&mut self, clock: &Clock) {
        let shared = Arc::clone(&self.shared);
        let bell = &shared.pages.bell.bell;
        loop {
            let seen = bell.read();
            let now_ns = clock.now_ns();
            let mut state = shared.state();
            // Acquire pairs with the Release in `Shared::stop`.
            let is_stopping = shared.is_stopping.load(Ordering::Acquire);
            let look = match is_stopping {
                true => {
                    state.close();
                    None
                }
                false => Some(state.poll(now_ns)),
            };
            state.ring_bells(clock);
            // Relaxed: readers only check that it grows.
            shared.polls.fetch_add(1, Ordering::Relaxed);
            if realtime::take_loss() {
                tracing::warn!(
                    "the poll thread ran for 50 ms without sleeping and has lost its real-time \
                     priority"
                );
            }
            let entries = self.record.is_some().then(|| state.take_record());
            drop(state);
            self.write_record(&entries.unwrap_or_default());
            let deadline_ns = match look {
                None => return,
                Some(Look::At(at_ns)) => Some(at_ns),
                Some(Look::WhenRung) => None,
            };
            bell.wait(clock, seen, deadline_ns);
        }
    }
}

impl Daemon {
    /// A write error ends the record, not the daemon.
    fn write_record(&mut self, entries: &[Entry]) {
        let Some(record) = &mut self.record else {
            return;
        };
        let mut lines = entries.iter();
        if let Err(error) = lines.try_for_each(|entry| writeln!(record, "{entry}")) {
            tracing::warn!("cannot write the file of PILLION_RECORD; recording stops: {error}");
            self.record = None;
        }
    }
}

/// Ends the daemon with the control thread: an unreachable daemon must not hold its GPU.
struct StopAtEnd(Arc<Shared>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn gpu() -> Gpu {
        Gpu {
            uuid: "GPU-0000".to_owned(),
            name: "V100-SXM2-16GB".to_owned(),
            pci: "0000:01:00.0".parse().unwrap(),
            sms: 80,
            memory_bytes: 16 << 30,
            cuda_driver: 12_080,
            block_priority: None,
        }
    }

    fn start(folder: &Path) -> Daemon {
        let path = folder.join("gpu0.toml");
        std::fs::write(&path, "[gpu]\nindex = 0\nsharing = \"mps\"\n").unwrap();
        let config = Source::File(path).load().unwrap();
        Daemon::start(
            &config,
            gpu(),
            &folder.join("gpu0.sock"),
            Clock::monotonic(),
        )
        .unwrap()
    }

    #[test]
    fn a_daemon_whose_poll_thread_waits_for_ever_has_no_pulse_and_one_that_is_only_idle_has() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = start(folder.path());
        let (mut pulse, stopper) = (daemon.pulse(), daemon.stopper());
        let shared = Arc::clone(&daemon.shared);
        assert!(pulse.is_beating(), "at first");
        assert!(!pulse.is_beating(), "nobody polls yet");
        let clock = Clock::monotonic();
        let mut wait_for_a_beat = || {
            while !pulse.is_beating() {
                clock.sleep_until(clock.now_ns() + 1_000_000);
            }
        };
        thread::scope(|scope| {
            let running = scope.spawn(move || daemon.run());
            for _ in 0..10 {
                wait_for_a_beat();
            }
            let state = shared.state();
            // Polls are counted under the state's lock.
            let polls = shared.polls.load(Ordering::Relaxed);
            for _ in 0..10 {
                shared.ring();
                clock.sleep_until(clock.now_ns() + 1_000_000);
            }
            assert_eq!(shared.polls.load(Ordering::Relaxed), polls);
            drop(state);
            wait_for_a_beat();
            stopper.stop();
            running.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_panic_in_any_of_its_threads_ends_the_daemon() {
        for name in ["pillion-control", "pillion-memory", "pillion-faults"] {
            let folder = tempfile::tempdir().unwrap();
            let daemon = start(folder.path());
            let socket = folder.path().join("gpu0.sock");
            *daemon.shared.panics.lock() = Some(name);
            daemon.shared.alarm();
            daemon.shared.note_memory();
            let _connection = protocol::hello::connect_to(&socket);
            assert!(matches!(daemon.run(), Err(DaemonError::Panicked)), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_changes_nothing_and_the_next_right_one_is_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu0.toml");
        let write = |sharing: &str, policy: &str| {
            let text = format!(
                "[gpu]\nindex = 0\nsharing = \"{sharing}\"\n[policy]\nname = \"{policy}\"\n"
            );
            std::fs::write(&path, text).unwrap();
        };
        write("mps", "orion");
        let source = Source::File(path.clone());
        let config = source.load().unwrap();
        let socket = folder.path().join("gpu0.sock");
        let daemon = Daemon::start(&config, gpu(), &socket, Clock::monotonic()).unwrap();
        let mut reloader = daemon.reloader(config);
        let shared = Arc::clone(&daemon.shared);
        let policy = || shared.state().gate.policy().name();
        let error = || shared.state().config_error.clone();

        write("mps", "pilion");
        assert!(reloader.reload(&source).is_err());
        assert_eq!(policy(), "orion");
        let said = error().expect("it is kept for the status");
        assert!(said.contains("gpu0.toml:5:8: name is \"pilion\""), "{said}");

        write("timeslice", "pillion");
        let refused = reloader.reload(&source).unwrap_err().to_string();
        assert!(
            refused.ends_with("[gpu] has changed; restart the daemon to apply it"),
            "{refused}"
        );
        assert_eq!(policy(), "orion");

        write("mps", "pillion");
        reloader.reload(&source).unwrap();
        assert_eq!((policy(), error()), ("pillion", None));

        daemon.stopper().stop();
        daemon.run().unwrap();
    }
}
