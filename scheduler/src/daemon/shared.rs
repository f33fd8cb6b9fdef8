//! State shared by the daemon's threads, and its lock order. Leaf locks, under which nothing else
//! may be locked: `device`, `probe`, `unmanaged`, `settings`, the events, the fault thread's
//! messages, and MPS's desk.

use std::collections::VecDeque;
use std::io::{self};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use abi::types::CUresult;
use parking_lot::{Mutex, MutexGuard};
use policy::{DeviceReading, KeptProbe, ProbeParams, ProbeState};
use protocol::clock::Clock;
use protocol::pages::Bell;

use crate::config::Config;
use crate::core::block_priority::BlockPriority;
use crate::core::device_watch::DeviceWatch;
use crate::core::event::{Draft, Kind};
use crate::core::ledgers::Ledgers;
use crate::core::mps_supervisor::Desk;
use crate::core::pages::GpuPages;
use crate::core::probe_watch::{ProbeNews, ProbeWatch};
use crate::core::state::{Released, State, Sticky};
use crate::core::unmanaged;
use crate::host::device_release::DeviceRelease;
use crate::host::drain_marker::{DrainMarker, Found};
use crate::host::kept_probe::ProbeFile;
use crate::report::events::{self, Events};
use crate::report::status::{DeviceStatus, Identity, ProbeStatus, UnmanagedStatus, Viewer};

use crate::config::fault_rules::FaultRules;
use crate::core::fault::Fault;
use crate::faults::act::ENDINGS_MAX;
use crate::faults::ending::Evicted;

/// Most unhandled reports. Beyond it the oldest is dropped: a device may report without end.
const REPORTS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(super) reports: VecDeque<Fault>,
    pub(super) is_memory_news: bool,
    pub(super) rules: Option<FaultRules>,
    pub(super) evicted: Vec<Evicted>,
    pub(super) trouble: Option<String>,
}

impl Inbox {
    pub(crate) fn put_rules(&mut self, rules: &FaultRules) {
        self.rules = Some(rules.clone());
    }

    pub(super) fn put_trouble(&mut self, why: String) {
        self.trouble = Some(why);
    }

    pub(crate) fn put_evicted(&mut self, evicted: Evicted) -> bool {
        let has_room = self.evicted.len() < ENDINGS_MAX;
        if has_room {
            self.evicted.push(evicted);
        }
        has_room
    }

    pub(super) fn put_report(&mut self, fault: Fault) {
        if self.reports.len() >= REPORTS_MAX {
            self.reports.pop_front();
        }
        self.reports.push_back(fault);
    }
}

pub(crate) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) ledgers: Mutex<Ledgers>,
    pub(super) events: Mutex<Events>,
    pub(super) inbox: Mutex<Inbox>,
    /// Persistent drain, for the next daemon. Lock it before the state.
    pub(super) word: Mutex<DrainMarker>,
    pub(super) device_release: Arc<DeviceRelease>,
    /// Readable to wake the fault thread.
    pub(super) alarm: OwnedFd,
    pub(super) pages: Arc<GpuPages>,
    pub(super) clock: Clock,
    pub(super) is_stopping: AtomicBool,
    /// The poll thread has decided for the last time.
    pub(super) has_stopped: AtomicBool,
    pub(super) polls: AtomicU64,
    pub(super) has_panicked: AtomicBool,
    /// For tests: the thread of this name panics.
    #[cfg(test)]
    pub(super) panics: Mutex<Option<&'static str>>,
    pub(super) stop: OwnedFd,
    pub(super) requests: OnceLock<Thread>,
    /// Readable when a process with memory has left.
    pub(super) leaving: OwnedFd,
    pub(super) telemetry: Bell,
    pub(super) device: Mutex<DeviceWatch>,
    pub(super) probe: Mutex<ProbeWatch>,
    /// Held by a change of the probe until its consequences are done. Lock it before all others.
    pub(super) probe_turn: Mutex<()>,
    pub(super) probe_file: ProbeFile,
    pub(super) mps: Mutex<Desk>,
    pub(super) mps_bell: OwnedFd,
    /// Processes outside Pillion, and the rule for them.
    pub(super) unmanaged: Mutex<unmanaged::Desk>,
    pub(super) settings: Mutex<String>,
}

impl Shared {
    /// Locks the state. Never wait under this lock.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Locks the memory accounts. Lock the state, if needed, first.
    pub(crate) fn ledgers(&self) -> MutexGuard<'_, Ledgers> {
        self.ledgers.lock()
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock()
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock()
    }

    pub(crate) fn device_status(&self, now_ns: u64) -> Option<DeviceStatus> {
        DeviceStatus::of(&self.device.lock(), now_ns)
    }

    pub(crate) fn probe_status(&self, now_ns: u64) -> Option<ProbeStatus> {
        let waiting = self.state().holds.waiting();
        ProbeStatus::of(&self.probe.lock(), now_ns, waiting)
    }

    /// The processes outside Pillion that the viewer may see; `None` if NVML cannot list them.
    pub(crate) fn unmanaged_status(&self, viewer: Viewer) -> Option<UnmanagedStatus> {
        let desk = self.unmanaged.lock();
        Some(UnmanagedStatus::of(desk.named.as_ref()?, viewer))
    }

    /// Sets the probe's bounds, or turns it off; `is_first`: continues the previous daemon's.
    pub(super) fn configure_probe(&self, params: Option<ProbeParams>, is_first: bool) {
        let kept = match params.is_some() && is_first {
            true => self.probe_file.read(events::unix_ms()),
            false => Ok(None),
        };
        let kept = kept.unwrap_or_else(|error| {
            let path = self.probe_file.path().display();
            let text = format!(
                "cannot read the GPU's state as the previous daemon left it, so new best-effort \
                 jobs wait until the GPU is seen to be healthy: {path}: {error}"
            );
            self.tell(Draft::new(Kind::ProbeUnhealthy, text));
            Some(KeptProbe {
                state: ProbeState::Unhealthy,
                metric: None,
                entered_ns: Vec::new(),
                clock_mhz: None,
            })
        });
        let _turn = self.probe_turn.lock();
        let mut probe = self.probe.lock();
        let news = probe.configure(self.clock.now_ns(), params, kept);
        drop(probe);
        self.handle_probe(news);
    }

    pub(super) fn handle_probe_reading(&self, now_ns: u64, reading: DeviceReading) {
        let throttle = self.state().gate.throttle_view(now_ns);
        let alone_mhz = throttle.and_then(|view| view.clock_mhz);
        // The consequences are complete before the next change.
        let _turn = self.probe_turn.lock();
        let mut probe = self.probe.lock();
        let news = probe.handle_reading(now_ns, reading, alone_mhz);
        drop(probe);
        if let Some(news) = news {
            self.handle_probe(news);
        }
    }

    fn handle_probe(&self, news: ProbeNews) {
        // First of all, so that the next daemon knows if this one dies here.
        if let Some(kept) = news.keep {
            let written = self.probe_file.write(kept.as_ref(), events::unix_ms());
            let is_news = self.probe.lock().note_saved(written.is_ok());
            if let Some(error) = written.err().filter(|_| is_news) {
                let path = self.probe_file.path().display();
                let text = format!(
                    "cannot save the state of the GPU, so a daemon that starts now would treat the \
                     GPU as healthy: {path}: {error}"
                );
                self.tell(Draft::new(Kind::ActionFailed, text));
            }
        }
        let goes_on = self.state().hold_comers(news.holds, news.is_for_returned);
        if let Some(draft) = news.draft {
            self.tell(draft);
        }
        if let Some(why) = news.evicts {
            self.inbox().put_trouble(why);
            self.alarm();
        }
        if goes_on {
            self.ring();
        }
    }

    pub(crate) fn mps_desk(&self) -> MutexGuard<'_, Desk> {
        self.mps.lock()
    }

    pub(crate) fn mps_bell_fd(&self) -> BorrowedFd<'_> {
        self.mps_bell.as_fd()
    }

    pub(crate) fn wake_mps(&self) {
        let _ = rustix::io::write(&self.mps_bell, &1_u64.to_ne_bytes());
    }

    pub(crate) fn note_orphans(&self, stickies: &[Sticky]) {
        let orphans = stickies
            .iter()
            .filter(|sticky| CUresult(sticky.code) == CUresult::MPS_RPC_FAILURE)
            .map(|sticky| sticky.pid);
        if self.mps_desk().note_orphans(orphans) {
            self.wake_mps();
        }
    }

    /// The daemon's use of the device. Its methods lock nothing else.
    pub(crate) fn device_release(&self) -> &Arc<DeviceRelease> {
        &self.device_release
    }

    pub(crate) fn alarm_fd(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    pub(crate) fn alarm(&self) {
        let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire pairs with the Release in `Shared::stop`.
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Keeps and logs an event. Returns its number.
    pub(crate) fn tell(&self, draft: Draft) -> u64 {
        let event = self
            .events()
            .push(self.clock.now_ns(), events::unix_ms(), draft);
        events::log(&event);
        event.seq
    }

    /// Drains the GPU until [`Shared::release`], also for later daemons. False if already drained.
    pub(crate) fn drain(&self, why: &str) -> bool {
        let word = self.word.lock();
        // First of all, so that the next daemon knows if this one dies here.
        if self.state().holds.draining() != Some(why) {
            self.keep(&word, why, self.device_release.is_released());
        }
        self.state().drain_gpu(why)
    }

    /// As above on request, for a reason that counts only if there is none yet; releases the
    /// device, if requested. Returns whether each is news.
    pub(crate) fn drain_and_release(&self, why: &str, is_release: bool) -> (bool, bool) {
        let word = self.word.lock();
        let known = self.state().holds.draining().map(str::to_owned);
        let is_news = known.is_none();
        let why = known.as_deref().unwrap_or(why);
        let was_released = self.device_release.is_released();
        if is_news || (is_release && !was_released) {
            self.keep(&word, why, is_release || was_released);
        }
        self.state().drain_gpu(why);
        let is_released = is_release && self.device_release.release(self.clock.now_ns());
        (is_news, is_released)
    }

    pub(super) fn keep(&self, word: &DrainMarker, why: &str, is_released: bool) {
        if let Err(error) = word.keep(why, is_released) {
            let path = word.path().display();
            let text = format!(
                "the next daemon will not know that the GPU is drained, or in which state its \
                 device is: cannot write {path}: {error}"
            );
            self.tell(Draft::new(Kind::ActionFailed, text));
        }
    }

    /// The device was released, or is open again: wakes the threads that use it.
    pub(crate) fn note_grip(&self) {
        self.alarm();
        self.note_memory();
        self.note_telemetry();
        self.ring();
    }

    /// Releases holds for faults, of the jobs of one id or (`None`) all, also for later daemons.
    pub(crate) fn release(&self, job: Option<&str>) -> Option<Released> {
        let word = self.word.lock();
        if job.is_none() && self.device_release.is_released() {
            return None;
        }
        let mut released = self.state().release(job);
        if job.is_none() && self.mps_desk().resume() {
            released.others += 1;
            self.wake_mps();
        }
        if job.is_none()
            && let Err(error) = word.remove()
        {
            let path = word.path().display();
            let text =
                format!("the next daemon will drain the GPU again: cannot remove {path}: {error}");
            self.tell(Draft::new(Kind::ActionFailed, text));
        }
        Some(released)
    }

    pub(super) fn tell_start(&self, identity: &Identity) {
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

    pub(super) fn tell_doubts(&self, config: &Config) {
        for doubt in config.missing_programs() {
            self.tell(Draft::new(Kind::ConfigDoubtful, doubt));
        }
        let counting = self.state().block_priority.clone();
        if let (None, BlockPriority::Unusable(why)) = (counting.configured, counting.known) {
            let text = format!(
                "[policy] block_priority is off: the measurement of this GPU cannot be used: {why}"
            );
            self.tell(Draft::new(Kind::ConfigDoubtful, text));
        }
    }

    pub(crate) fn tell_sharing(&self) {
        let news = self.state().take_sharing_news();
        if let Some(news) = news {
            self.tell(news);
        }
    }

    /// Reports collectives, ended marks, useless targets, batches, and targets missed or met.
    pub(crate) fn tell_of_clients(&self) {
        let news = {
            let mut state = self.state();
            [
                state.take_collectives(),
                state.take_marks_news(),
                state.take_unmarked(),
                state.take_tuner_news(),
                state.take_slo_news(),
            ]
        };
        for draft in news.into_iter().flatten() {
            self.tell(draft);
        }
    }

    pub(super) fn take_over(&self) {
        let word = self.word.lock();
        let (kind, text) = match word.read() {
            Found::Nothing => return,
            Found::Why(why, is_released) => {
                self.state().drain_gpu(&why);
                let closed = match is_released {
                    true => {
                        self.device_release.release(self.clock.now_ns());
                        ", NVML stays closed"
                    }
                    false => "",
                };
                let text = format!(
                    "the GPU is still drained until `pillion resume`, as under the previous daemon: \
                     best-effort jobs are held{closed}, and no new high-priority job should be \
                     started here: {why}"
                );
                (Kind::Draining, text)
            }
            Found::Foreign(uid) => {
                let path = word.path().display();
                let text = format!("ignoring {path}: its owner, user {uid}, may not drain the GPU");
                (Kind::ActionFailed, text)
            }
        };
        self.tell(Draft::new(kind, text));
    }

    pub(crate) fn leaving_fd(&self) -> BorrowedFd<'_> {
        self.leaving.as_fd()
    }

    pub(crate) fn note_memory(&self) {
        let _ = rustix::io::write(&self.leaving, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    pub(crate) fn ring(&self) {
        // Every client can write to this bell: a false count of sleepers must not silence it.
        self.pages.bell.bell.ring_surely(&self.clock);
    }

    /// Runs `work` on a thread of that name. A panic there is a bug of ours, and a daemon without
    /// one of its threads could stay blind for months: it ends, and its supervisor starts another.
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

    /// As [`Self::start_thread`], as a participant of the clock, which the caller is, too.
    pub(super) fn start_participant(
        self: &Arc<Self>,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let stopper = StopAtPanic(Arc::clone(self));
        let thread = thread::Builder::new().name(name.to_owned());
        self.clock.spawn(thread, move || {
            let _stopper = stopper;
            work();
        })
    }

    #[cfg(test)]
    pub(crate) fn panic_if_asked(&self) {
        let asked = *self.panics.lock();
        assert!(
            asked.is_none() || asked != thread::current().name(),
            "a test asked for it"
        );
    }

    pub(super) fn stop(&self) {
        // Release pairs with the Acquire in `Daemon::poll_until_stopped` and `is_stopping`; the
        // ring that follows orders it as well.
        self.is_stopping.store(true, Ordering::Release);
        // Fails only if the counter is at 2^64 - 2.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        self.wake_requests_keeper();
        self.wake_telemetry();
        self.ring();
    }

    /// Wakes the thread that reads the device: a law may need readings, or the daemon ends.
    pub(super) fn wake_telemetry(&self) {
        self.telemetry.ring_surely(&self.clock);
    }

    /// A job has come, or a law has changed. Wakes nobody needlessly, even on the virtual clock.
    pub(crate) fn note_telemetry(&self) {
        // Never hold both locks.
        let is_wanted = self.state().wants_telemetry();
        if is_wanted || self.probe.lock().is_on() {
            self.wake_telemetry();
        }
    }

    /// Wakes the thread that saves request durations: there may be requests, or the daemon ends.
    /// Without a high-priority client it sleeps.
    pub(super) fn wake_requests_keeper(&self) {
        if let Some(thread) = self.requests.get() {
            thread.unpark();
        }
    }
}

struct StopAtPanic(Arc<Shared>);

impl Drop for StopAtPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = thread::current().name().unwrap_or("").to_owned();
            tracing::error!("thread {name} panicked, a bug in pilliond: the daemon exits");
            // Relaxed: read after joining this thread, or too early by a thread that does not wait.
            self.0.has_panicked.store(true, Ordering::Relaxed);
            self.0.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_reports_without_end_fills_no_memory() {
        let mut inbox = Inbox::default();
        for xid in 0..3 * REPORTS_MAX as u64 {
            inbox.put_report(Fault::of_xid(xid));
        }
        assert_eq!(inbox.reports.len(), REPORTS_MAX);
        assert_eq!(
            inbox.reports.back().unwrap().code,
            Some(3 * REPORTS_MAX as u64 - 1)
        );
    }
}
