//! The thread that decides, and the daemon as a whole.
//!
//! The poll thread's loop is short: read the bell, poll the state, ring who must be rung, wait for
//! the bell until it is time to look again. The bell's word is read *before* the poll, so that
//! whatever happens during it ends the wait at once.

pub(crate) mod control;
mod fault_watch;
mod memory_watch;

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::{Mutex, MutexGuard};
use protocol::clock::Clock;
use rustix::event::{EventfdFlags, eventfd};

use crate::config::gpu::Gpu;
use crate::config::{Config, ConfigError};
use crate::core::ledgers::Ledgers;
use crate::core::state::{Entry, Look, Released, State};
use crate::daemon::control::Control;
use crate::daemon::fault_watch::{FaultWatch, Inbox};
use crate::daemon::memory_watch::Watch;
use crate::host::drain_marker::{Found, Word};
use crate::host::grip::Grip;
use crate::host::measured::{self, BlockPriority};
use crate::host::pages::GpuPages;
use crate::host::realtime;
use crate::host::socket::{Seat, SocketError};
use crate::report::events::{self, Draft, Events, Kind};
use crate::report::status::Identity;

/// The kernel may end a sleep later than asked by this much; the usual 50 us would double every
/// poll's interval (prctl(2), PR_SET_TIMERSLACK).
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("is not zero");

/// Why a daemon cannot start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Memory, descriptors or threads.
    #[error("{doing}: {source}")]
    System {
        /// What was done.
        doing: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The thread that talks with clients, watches memory, or looks for faults panicked: a bug of ours.
    #[error("a thread of the daemon panicked")]
    Panicked,
}

/// What both threads use.
pub(crate) struct Shared {
    state: Mutex<State>,
    ledgers: Mutex<Ledgers>,
    events: Mutex<Events>,
    inbox: Mutex<Inbox>,
    /// That the GPU is drained, for the next daemon. Whoever needs the state too locks this first.
    word: Mutex<Word>,
    grip: Arc<Grip>,
    /// Readable when whoever looks for faults is to look.
    alarm: OwnedFd,
    pages: Arc<GpuPages>,
    clock: Clock,
    is_stopping: AtomicBool,
    /// How often the poll thread has polled.
    polls: AtomicU64,
    /// A thread has panicked.
    has_panicked: AtomicBool,
    /// A test's: the thread of this name is to panic.
    #[cfg(test)]
    panics: Mutex<Option<&'static str>>,
    /// Readable when stopping.
    stop: OwnedFd,
    /// Readable when a process with memory has left.
    leaving: OwnedFd,
}

impl Shared {
    /// The state, locked. Neither thread waits while it holds it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// What jobs hold of the memory, locked. Whoever needs the state too locks that first.
    pub(crate) fn ledgers(&self) -> MutexGuard<'_, Ledgers> {
        self.ledgers.lock()
    }

    /// What happened so far, locked. Nothing else is locked by who holds it.
    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock()
    }

    /// What other threads leave for the one that looks for faults, locked. Nothing else is locked by who holds it.
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    /// What the daemon has of the device. Nothing else is locked by its methods.
    pub(crate) fn grip(&self) -> &Arc<Grip> {
        &self.grip
    }

    /// Readable when [`Shared::alarm`] was called.
    pub(crate) fn alarm_fd(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Whoever looks for faults is to look now.
    pub(crate) fn alarm(&self) {
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
    }

    /// Whether the daemon is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire pairs with the Release in `Shared::stop`.
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Something happened: it is kept, and logged. Returns its number.
    pub(crate) fn tell(&self, draft: Draft) -> u64 {
        let event = self
            .events()
            .push(self.clock.now_ns(), events::unix_ms(), draft);
        events::log(&event);
        event.seq
    }

    /// Drains the GPU until [`Shared::release`], also for the daemons that come after this one. False if it was drained already.
    pub(crate) fn drain(&self, why: &str) -> bool {
        let word = self.word.lock();
        // First of all: a daemon that dies here has said it.
        if self.state().holds.draining() != Some(why) {
            self.keep(&word, why, self.grip.is_released());
        }
        self.state().drain_gpu(why)
    }

    /// The same because somebody says so, for a reason that counts where there is none yet; and
    /// releases the device, if that is asked. Whether each is news.
    pub(crate) fn drain_and_release(&self, why: &str, is_release: bool) -> (bool, bool) {
        let word = self.word.lock();
        let known = self.state().holds.draining().map(str::to_owned);
        let is_news = known.is_none();
        let why = known.as_deref().unwrap_or(why);
        let was_released = self.grip.is_released();
        if is_news || (is_release && !was_released) {
            self.keep(&word, why, is_release || was_released);
        }
        self.state().drain_gpu(why);
        let is_released = is_release && self.grip.release(self.clock.now_ns());
        (is_news, is_released)
    }

    fn keep(&self, word: &Word, why: &str, is_released: bool) {
        if let Err(error) = word.keep(why, is_released) {
            let path = word.path().display();
            let text =
                format!("a daemon that is started anew will not drain the GPU: {path}: {error}");
            self.tell(Draft::new(Kind::ActionFailed, text));
        }
    }

    /// The device was released, or is open again: whoever looks at it is to see to that.
    pub(crate) fn note_grip(&self) {
        self.alarm();
        self.note_memory();
        self.ring();
    }

    /// Lets go what is held for a fault: of the jobs of one id, or (`None`) everything, for the daemons that come after this one, too.
    pub(crate) fn release(&self, job: Option<&str>) -> Option<Released> {
        let word = self.word.lock();
        if job.is_none() && self.grip.is_released() {
            return None;
        }
        let released = self.state().release(job);
        if job.is_none()
            && let Err(error) = word.remove()
        {
            let path = word.path().display();
            let text =
                format!("a daemon that is started anew will drain the GPU again: {path}: {error}");
            self.tell(Draft::new(Kind::ActionFailed, text));
        }
        Some(released)
    }

    fn tell_start(&self, identity: &Identity) {
        self.tell(Draft::new(
            Kind::DaemonStarted,
            format!(
                "pilliond {} listens for {} at {}",
                env!("CARGO_PKG_VERSION"),
                identity.gpu.uuid,
                identity.socket
            ),
        ));
    }

    /// What of a configuration that is in force will not work.
    fn tell_doubts(&self, config: &Config) {
        for doubt in config.faults.missing_programs() {
            self.tell(Draft::new(Kind::ConfigDoubtful, doubt));
        }
        let counting = self.state().block_priority.clone();
        if let (None, BlockPriority::Unusable(why)) = (counting.configured, counting.known) {
            let text = format!("block_priority is off, as what was measured cannot be used: {why}");
            self.tell(Draft::new(Kind::ConfigDoubtful, text));
        }
    }

    /// What is to be told of how the GPU is shared.
    pub(crate) fn tell_sharing(&self) {
        let news = self.state().take_sharing_news();
        if let Some(news) = news {
            self.tell(news);
        }
    }

    /// Reports jobs that launch collective kernels and are refused for it.
    pub(crate) fn tell_collectives(&self) {
        let news = self.state().take_collectives();
        for draft in news {
            self.tell(draft);
        }
    }

    /// What the daemon before has left to say.
    fn take_over(&self) {
        let word = self.word.lock();
        let (kind, text) = match word.read() {
            Found::Nothing => return,
            Found::Why(why, is_released) => {
                self.state().drain_gpu(&why);
                let closed = match is_released {
                    true => {
                        self.grip.release(self.clock.now_ns());
                        ", NVML stays closed"
                    }
                    false => "",
                };
                let text = format!(
                    "still no new high-priority job should be started here, and best-effort jobs are held{closed}, until `pillion resume`, as under the daemon before: {why}"
                );
                (Kind::Draining, text)
            }
            Found::Foreign(uid) => {
                let path = word.path().display();
                let text = format!(
                    "{path} is of user {uid}, who may not say that the GPU is drained: it is left aside"
                );
                (Kind::ActionFailed, text)
            }
        };
        self.tell(Draft::new(kind, text));
    }

    /// Readable once there is somebody's memory to watch, or to watch closely.
    pub(crate) fn leaving_fd(&self) -> BorrowedFd<'_> {
        self.leaving.as_fd()
    }

    /// A process that has memory has come or left: the thread that watches it is to look.
    pub(crate) fn note_memory(&self) {
        let _ = rustix::io::write(&self.leaving, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// Makes the poll thread look now.
    pub(crate) fn ring(&self) {
        // Every client can write to this bell; a false count of sleepers must not make us deaf.
        self.pages.bell.bell.ring_surely(&self.clock);
    }

    /// Runs `work` on a thread of that name. A panic there is a bug of ours, and a daemon without one of its threads would go on for
    /// months blind: it ends, and whoever supervises it starts another.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let stopper = StopAtPanic(Arc::clone(self));
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            let _stopper = stopper;
            work();
        })
    }

    /// Panics if a test wants that of this thread.
    #[cfg(test)]
    pub(crate) fn panic_if_asked(&self) {
        let asked = *self.panics.lock();
        assert!(
            asked.is_none() || asked != thread::current().name(),
            "a test asked for it"
        );
    }

    fn stop(&self) {
        // Release pairs with the Acquire in `Daemon::run`; the ring that follows orders it as well.
        self.is_stopping.store(true, Ordering::Release);
        // It can fail only if it is readable 2^64 - 2 times over.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        self.ring();
    }
}

/// A daemon that listens. [`Daemon::run`] makes it decide.
pub struct Daemon {
    shared: Arc<Shared>,
    gpu: Gpu,
    control: JoinHandle<()>,
    watch: JoinHandle<()>,
    faults: JoinHandle<()>,
    record: Option<BufWriter<File>>,
}

/// Ends a daemon from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Makes [`Daemon::run`] return soon.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Says in log and events why the daemon is about to end.
    pub fn tell_why(&self, why: &str) {
        self.0
            .tell(Draft::new(Kind::DaemonEnding, format!("ending: {why}")));
    }
}

/// Says whether a daemon decides, from another thread.
pub struct Pulse {
    shared: Arc<Shared>,
    seen: Option<u64>,
}

impl Pulse {
    /// Whether the poll thread has polled since this was last asked, when it was rung; true at first. An idle one polls when it is rung,
    /// and one that hangs, or waits for a lock that nobody gives back, does not.
    pub fn is_beating(&mut self) -> bool {
        let polls = self.shared.polls.load(Ordering::Relaxed);
        let is_beating = self.seen.replace(polls) != Some(polls);
        self.shared.ring();
        is_beating
    }
}

/// Gives a running daemon its configuration anew, from another thread.
pub struct Reloader {
    shared: Arc<Shared>,
    gpu: Gpu,
    config: Config,
}

impl Reloader {
    /// Reads the file at `path` and puts it in force, from the next poll on.
    ///
    /// # Errors
    ///
    /// The file cannot be used, or says what only a new daemon can take over. All stays as it was, and
    /// the status says why.
    pub fn reload(&mut self, path: &Path) -> Result<(), ConfigError> {
        let read = Config::load(path).and_then(|next| match self.config.fixed_difference(&next) {
            None => Ok(next),
            Some(section) => Err(ConfigError::Fixed {
                path: path.to_owned(),
                section,
            }),
        });
        let result = read.map(|mut next| {
            let known = BlockPriority::find(&self.gpu, &measured::folder());
            next.set_block_priority(known.works());
            let mut state = self.shared.state();
            state.reconfigure(&next);
            state.block_priority.known = known;
            drop(state);
            self.shared.inbox().put_rules(&next.faults);
            self.shared.alarm();
            self.config = next;
        });
        self.shared.tell(match &result {
            Ok(()) => Draft::new(
                Kind::ConfigReloaded,
                format!("{}: in force", path.display()),
            ),
            Err(error) => {
                let why = error.to_string();
                let text = format!("the configuration stays as it was: {why}");
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
    ///
    /// # Errors
    ///
    /// The seat is taken, or the system gives no memory, descriptors or threads.
    pub fn start(
        config: &Config,
        gpu: Gpu,
        socket: &Path,
        clock: Clock,
    ) -> Result<Self, DaemonError> {
        let system = |doing| move |source| DaemonError::System { doing, source };
        let known = BlockPriority::find(&gpu, &measured::folder());
        let mut config = config.clone();
        config.set_block_priority(known.works());
        let config = &config;
        let seat = Seat::take(&gpu.uuid, socket)?;
        let (pages, fds) =
            GpuPages::create(config, &clock).map_err(system("making shared pages"))?;
        let identity = Identity {
            socket: seat.path().display().to_string(),
            started_ns: clock.now_ns(),
            gpu,
        };
        let bell = |flags| eventfd(0, EventfdFlags::CLOEXEC | flags).map_err(io::Error::from);
        let stop = bell(EventfdFlags::empty());
        let leaving = bell(EventfdFlags::NONBLOCK);
        let alarm = bell(EventfdFlags::NONBLOCK);
        let gpu = identity.gpu.clone();
        let mut state = State::new(config, gpu.sms, Arc::clone(&pages));
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
            word: Mutex::new(Word::beside(socket, &identity.gpu.uuid)),
            grip: Arc::default(),
            alarm: alarm.map_err(system("making an eventfd"))?,
            pages,
            clock,
            is_stopping: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            has_panicked: AtomicBool::new(false),
            #[cfg(test)]
            panics: Mutex::default(),
            stop: stop.map_err(system("making an eventfd"))?,
            leaving: leaving.map_err(system("making an eventfd"))?,
        });
        shared.tell_start(&identity);
        shared.take_over();
        shared.tell_doubts(config);
        let faults = FaultWatch::new(Arc::clone(&shared), &identity.gpu.uuid, &config.faults);
        let watch = Watch::new(Arc::clone(&shared), &identity.gpu.uuid);
        let control = Control::new(Arc::clone(&shared), seat, fds, identity)
            .map_err(system("preparing the socket"))?;
        let stopper = StopAtEnd(Arc::clone(&shared));
        let control = shared
            .start_thread("pillion-control", move || {
                let _stopper = stopper;
                control.run();
            })
            .map_err(system("starting the control thread"))?;
        let watch = shared
            .start_thread("pillion-memory", move || watch.run())
            .map_err(system("starting the memory thread"))?;
        let faults = shared
            .start_thread("pillion-faults", move || faults.run())
            .map_err(system("starting the thread that looks for faults"))?;
        Ok(Self {
            shared,
            gpu,
            control,
            watch,
            faults,
            record: None,
        })
    }

    /// Writes to `file` what is granted to best-effort jobs and why they wait: one
    /// [`crate::core::state::Entry`] per line.
    #[must_use]
    pub fn record_to(mut self, file: File) -> Self {
        self.shared.state().start_record();
        self.record = Some(BufWriter::new(file));
        self
    }

    /// A handle that ends this daemon.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// A handle that says whether this daemon decides.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let shared = Arc::clone(&self.shared);
        Pulse { shared, seen: None }
    }

    /// A handle that gives this daemon another configuration than `config`, which it has.
    #[must_use]
    pub fn reloader(&self, config: Config) -> Reloader {
        Reloader {
            shared: Arc::clone(&self.shared),
            gpu: self.gpu.clone(),
            config,
        }
    }

    /// Decides, in this thread, until stopped. The socket is gone when this returns, and clients
    /// have seen that the daemon is.
    ///
    /// # Errors
    ///
    /// [`DaemonError::Panicked`].
    pub fn run(mut self) -> Result<(), DaemonError> {
        let clock = self.shared.clock;
        // Without it polls are late, not wrong.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        clock.enter();
        self.poll_until_stopped(&clock);
        if let Some(Err(error)) = self.record.as_mut().map(io::Write::flush) {
            tracing::warn!("the record ends: {error}");
        }
        clock.leave();
        self.control.join().map_err(|_| DaemonError::Panicked)?;
        self.faults.join().map_err(|_| DaemonError::Panicked)?;
        self.watch.join().map_err(|_| DaemonError::Panicked)?;
        // Others are not waited for.
        match self.shared.has_panicked.load(Ordering::Relaxed) {
            true => Err(DaemonError::Panicked),
            false => Ok(()),
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
            // Relaxed: who reads it only wants to see it grow.
            shared.polls.fetch_add(1, Ordering::Relaxed);
            if realtime::take_loss() {
                tracing::warn!(
                    "the poll thread ran for 50 ms without sleeping and has no real-time priority any more"
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
    /// A record that cannot be written ends; the daemon does not.
    fn write_record(&mut self, entries: &[Entry]) {
        let Some(record) = &mut self.record else {
            return;
        };
        let mut lines = entries.iter();
        if let Err(error) = lines.try_for_each(|entry| writeln!(record, "{entry}")) {
            tracing::warn!("the record ends: {error}");
            self.record = None;
        }
    }
}

/// Ends the daemon when the control thread does, whatever the reason: a daemon that nobody can
/// reach must not hold its GPU.
struct StopAtEnd(Arc<Shared>);

impl Drop for StopAtEnd {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Ends the daemon when a thread panics.
struct StopAtPanic(Arc<Shared>);

impl Drop for StopAtPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = thread::current().name().unwrap_or("").to_owned();
            tracing::error!("thread {name} panicked, a bug of ours: the daemon ends");
            // Relaxed: read after this thread was joined, or too early by a thread that nobody waits for.
            self.0.has_panicked.store(true, Ordering::Relaxed);
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose GPU is nobody's.
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
        let config = Config::load(&path).unwrap();
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
            // What it counts it counts with the state in hand.
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
            // The control thread looks when somebody connects.
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
        let config = Config::load(&path).unwrap();
        let socket = folder.path().join("gpu0.sock");
        let daemon = Daemon::start(&config, gpu(), &socket, Clock::monotonic()).unwrap();
        let mut reloader = daemon.reloader(config);
        let shared = Arc::clone(&daemon.shared);
        let policy = || shared.state().gate.policy().name();
        let error = || shared.state().config_error.clone();

        write("mps", "pilion");
        assert!(reloader.reload(&path).is_err());
        assert_eq!(policy(), "orion");
        let said = error().expect("it is kept for the status");
        assert!(said.contains("gpu0.toml:5:8: name is \"pilion\""), "{said}");

        write("timeslice", "pillion");
        let refused = reloader.reload(&path).unwrap_err().to_string();
        assert!(
            refused.ends_with("[gpu] has changed, which takes a restart"),
            "{refused}"
        );
        assert_eq!(policy(), "orion");

        write("mps", "pillion");
        reloader.reload(&path).unwrap();
        assert_eq!((policy(), error()), ("pillion", None));

        daemon.stopper().stop();
        daemon.run().unwrap();
    }
}
