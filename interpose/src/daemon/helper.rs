//! The helper threads, one per client: they find out what has completed when the application does
//! not ask.
//!
//! *Best-effort, while gated*: the helper learns of completion as [`crate::progress::sight`] allows
//! for each stream. At most one event of ours is outstanding in a stream; its first poll comes
//! after a learnt part of the expected duration ([`policy::looks`]), further ones at most every
//! [`POLL_NS`]. Completed work is counted in the client's page, and the daemon rung for waiting
//! threads.
//!
//! *Best-effort, with nobody to protect* (an ungated lease): it works only in one *window* of 10 ms
//! in each second with a launch, so that durations are learnt before a high-priority job comes.
//! While unknown kernels are launched, windows are longer, up to a tenth of the time ([`watch`]).
//! The daemon rings the helper when leases become gated.
//!
//! *High-priority*: it queries whether streams are idle only while the daemon asks (`probe`),
//! because the application has been silent and best-effort work waits. It synchronises only when
//! the process dies of a signal.
//!
//! *Every helper* is never in the driver for long, blocks every signal, and its own calls are not
//! hooked. In some streams only launching threads may record (see `launch`); the helper queries
//! their events. It also reports kernels' names while a trace is taken ([`Names`]), calls the
//! program's functions with a wanted batch ([`crate::process::batches`]), and after its daemon's
//! end moves its client to another daemon ([`crate::daemon::reattach`]).
//!
//! **Sleeping and waking.** The launch path must not pay for a system call per launch, so the
//! helper publishes until when it sleeps ([`waking`]). A launching thread counts its launch, then
//! reads that time, and rings only if the launch should end well before. A helper that sleeps
//! without a limit stores the time, then checks for launches. Both are sequentially consistent, so
//! one of the two sees the other. A limit bounds how long a launch is missed.

use core::sync::atomic::{AtomicBool, Ordering};
use std::io;
use std::thread::Builder;

use abi::types::CUresult;
use client::completion::complete_at_end;
use client::marks::Marks;
use client::slot_state::State;
use client::{announce, backoff, ending};
use policy::Looks;

use crate::daemon::kept;
use crate::daemon::reattach::Watch;
use crate::dispatch::driver_exclusion::HOLDERS;
use crate::dispatch::{guard, panics};
use crate::driver;
use crate::kernels::KERNELS;
use crate::platform::sys;
#[cfg(not(shim))]
use crate::process::batches;
use crate::process::{self, Client, Handle, dying};
use crate::progress::contexts::CONTEXTS;
use crate::progress::learner::Learner;
use crate::progress::slot::Slot;
use crate::progress::streams::STREAMS;
use crate::progress::traced::Names;
use crate::progress::waking::EARLIER_NS;
use crate::progress::{completion, recorder, waking};
use crate::signals::handler;

mod watch;

use watch::{Watched, Window};

/// First poll for unknown kernels to report, ns.
const UNKNOWN_FIRST_NS: u64 = 1_000_000_000;

/// Shortest interval of queries of an event, ns; also the interval in a process that ends.
const POLL_NS: u64 = 20_000;

/// Longest sleep while work is in flight, ns: bounds how late a launch that rang nothing is seen.
const SLEEP_NS_MAX: u64 = 50_000_000;

/// With nobody to protect, durations are learnt for [`WINDOW_NS`] in each [`WINDOW_EVERY_NS`].
const WINDOW_EVERY_NS: u64 = 1_000_000_000;
/// See [`WINDOW_EVERY_NS`]: 1 % of the time.
const WINDOW_NS: u64 = 10_000_000;

/// Longest wait for the start of a helper, ns. It took up to 3 ms beside ten busy processes, and
/// takes all of this if the starting thread holds what the helper needs: a library that creates its
/// context while it is being loaded.
const READY_NS: u64 = 50_000_000;

/// A dying process counts as drained after so long without a launch, ns: a thread that the signal
/// hit inside a launch finishes it first, and only then is the launch visible.
const SETTLE_NS: u64 = 1_000_000;

/// Longest wait at exit for the last note, ns. A note of some hundred kernels takes milliseconds.
const LAST_NOTE_NS: u64 = 20_000_000;

/// The thread's stack, bytes. Its own part is small; the driver's calls need the rest.
const STACK_BYTES: usize = 512 << 10;

/// The process is about to exit: helpers poll everything in flight.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Starts the thread, and waits a moment until it is *ready*: an application thread that a signal
/// stops may hold locks for good ([`handler`]), and the helper's first calls take some.
/// `is_refused`: a daemon refused the client.
pub(crate) fn start(client: &'static Client, is_refused: bool) -> io::Result<()> {
    driver::ending::look_up();
    let builder = Builder::new()
        .name("pillion".into())
        .stack_size(STACK_BYTES);
    // As a participant of the clock, so that it has its turn on virtual time.
    let thread =
        sys::with_signals_blocked(|| client.clock.spawn(builder, move || run(client, is_refused)));
    // Detached: it lives as long as the process.
    thread.map(drop)?;
    // On virtual time no signal comes at a critical moment.
    if !client.clock.is_virtual() {
        let is_ready = || client.helper.is_ready.load(Ordering::Relaxed);
        backoff::wait_for(&client.clock, READY_NS, is_ready);
    }
    Ok(())
}

/// Waits at most `limit_ms` until the helpers have seen nothing in flight; returns whether they
/// have. They poll, so that endless work keeps none of them in the driver.
pub(crate) fn finish_all(limit_ms: u32) -> bool {
    LEAVING.store(true, Ordering::SeqCst);
    process::clients().for_each(waking::wake_surely);
    let is_finished = |client: &'static Client| {
        let is_capturing = STREAMS.is_capturing();
        let copies = client.helper.copies.load(Ordering::SeqCst);
        copies == 0
            && STREAMS
                .used_by(client.index)
                .all(|(_, slot)| slot.is_surely_complete() || !can_progress(slot, is_capturing))
    };
    let is_over = process::clients().next().is_none_or(|client| {
        let limit_ns = u64::from(limit_ms) * 1_000_000;
        backoff::wait_for(&client.clock, limit_ns, || {
            process::clients().all(is_finished)
        })
    });
    if is_over {
        process::clients().for_each(give_up_unseen);
        process::clients().for_each(wait_for_last_note);
    }
    is_over
}

/// Waits until the learnt durations are noted, if a daemon reads them, at least for the helper to
/// wake. After [`LAST_NOTE_NS`] the previous note is the last.
fn wait_for_last_note(client: &Client) {
    if client.notes.are_read() && !client.clock.is_virtual() {
        let has_noted = || client.helper.has_noted.load(Ordering::Relaxed);
        backoff::wait_for(&client.clock, LAST_NOTE_NS, has_noted);
    }
}

/// Work that only its own thread could observe must not look in flight when the process is gone.
fn give_up_unseen(client: &'static Client) {
    let is_capturing = STREAMS.is_capturing();
    for (index, slot) in STREAMS.used_by(client.index) {
        if slot.is_in_flight() && !can_progress(slot, is_capturing) {
            completion::give_up(index, slot, slot.issued());
        }
    }
}

fn run(client: &'static Client, is_refused: bool) {
    guard::mark_thread_as_ours();
    sys::use_exact_timers();
    let mut helper = Helper {
        client,
        context: None,
        is_relaxed: false,
        rested: None,
        learner: Learner::default(),
        watched: Vec::new(),
        looks: Looks::default(),
        window: Window::default(),
        looked_at: 0,
        unknown: UnknownLooks::new(client),
        names: Names::default(),
    };
    let mut watch = Watch::new(client, is_refused);
    panics::guarded(usize::MAX, || helper.get_ready());
    client.helper.is_ready.store(true, Ordering::Relaxed);
    while !waking::are_stopping() {
        // Skip the daemon while dying: a poll may take locks, or seconds.
        if !dying::is_dying() && !LEAVING.load(Ordering::SeqCst) {
            panics::guarded(usize::MAX, || watch.poll());
        }
        let seen = client.page.helper_bell.read();
        // Only `STOP_ASKED`: this process itself sets the other values. Not before the client is
        // settled: the drain would not wait for other clients' work.
        if ending::is_asked(&client.page)
            && process::clients().any(|known| known.index == client.index)
        {
            handler::handle_stop();
        }
        if dying::is_dying() {
            if helper.try_drain() {
                return;
            }
            let deadline_ns = client.clock.now_ns() + POLL_NS;
            client.clock.sleep_until(deadline_ns);
            continue;
        }
        // A panic of ours costs one poll, not the thread.
        #[cfg(not(shim))]
        if !LEAVING.load(Ordering::SeqCst) {
            // No calls into a program that is about to exit.
            panics::guarded(usize::MAX, || batches::poll(client));
        }
        let next_ns = panics::guarded(usize::MAX, || helper.poll()).flatten();
        let record_ns = panics::guarded(usize::MAX, || helper.poll_record()).flatten();
        let late_ns = panics::guarded(usize::MAX, || kept::poll_late(client)).flatten();
        // A process that is about to exit does not poll its daemon, even if due.
        let is_leaving = LEAVING.load(Ordering::SeqCst);
        let others = [
            watch.next_ns().filter(|_| !is_leaving),
            helper.learner.next_ns(is_leaving),
            record_ns,
            late_ns,
            helper.unknown.poll(client),
            panics::guarded(usize::MAX, || helper.names.poll(client)).flatten(),
        ];
        let until_ns = others.into_iter().flatten().chain(next_ns).min();
        // Without a daemon, launches need not wake the helper.
        let said_ns = match client.is_taken() {
            false => 0,
            true => next_ns.unwrap_or(u64::MAX),
        };
        client.helper.asleep.store(said_ns, Ordering::SeqCst);
        let now_ns = client.clock.now_ns();
        if let Some(soon_ns) = next_ns.filter(|&next_ns| next_ns <= now_ns + POLL_NS) {
            // Not on the bell: counting sleepers would write to the cache line in the client's page
            // that every best-effort launch charges.
            client.clock.sleep_until(soon_ns);
        } else if next_ns.is_some() || !helper.has_work() {
            let bell = &client.page.helper_bell;
            bell.wait(&client.clock, seen, until_ns);
        }
        client.helper.asleep.store(0, Ordering::SeqCst);
    }
}

struct Helper {
    client: &'static Client,
    /// The current context of this thread, and [`waking::entered`] when it was set.
    context: Option<(Handle, u32)>,
    is_relaxed: bool,
    /// In a dying process: the launches when the driver first had nothing left, and when, ns.
    rested: Option<(u64, u64)>,
    learner: Learner,
    /// By slot, up to the highest polled.
    watched: Vec<Watched>,
    looks: Looks,
    window: Window,
    /// The sum of all streams' launches at the last poll.
    looked_at: u64,
    unknown: UnknownLooks,
    names: Names,
}

/// When to poll whether to report unknown kernels: after 1 s, 2 s, 4 s and so on, so that a
/// high-priority job with known kernels is soon left alone.
struct UnknownLooks {
    began_ns: u64,
    next_ns: Option<u64>,
}

impl UnknownLooks {
    fn new(client: &Client) -> Self {
        let began_ns = client.clock.now_ns();
        let is_real = !client.clock.is_virtual();
        Self {
            began_ns,
            next_ns: is_real.then_some(began_ns + UNKNOWN_FIRST_NS),
        }
    }

    fn poll(&mut self, client: &Client) -> Option<u64> {
        let next_ns = self.next_ns?;
        let now_ns = client.clock.now_ns();
        if now_ns >= next_ns {
            let age_ns = now_ns - self.began_ns;
            self.next_ns = (!KERNELS.poll_unknown(client)).then_some(now_ns + age_ns);
        }
        self.next_ns
    }
}

impl Helper {
    /// Makes the first driver calls, which create the driver's per-thread state. Thread-locals of a
    /// library that was loaded late are created under the dynamic linker's lock and by `malloc`.
    fn get_ready(&mut self) {
        self.in_driver(|helper| {
            if let Some(context) = CONTEXTS.on(helper.client.device).next() {
                helper.enter(context);
            }
        });
    }

    fn streams(&self) -> impl Iterator<Item = (u32, &'static Slot)> + use<> {
        STREAMS.used_by(self.client.index)
    }

    /// Polls every stream once. Returns when to poll again. `None`: when something is launched.
    fn poll(&mut self) -> Option<u64> {
        let client = self.client;
        announce::answer(client, &client.thread(), self.streams());
        let now_ns = client.clock.now_ns();
        self.looked_at = self.issued();
        let wants_learning = self.learner.poll_switch(client);
        let (is_watching, window_ns) = self.poll_interest(now_ns, wants_learning);
        let is_leaving = LEAVING.load(Ordering::SeqCst);
        let words = &client.helper;
        if is_watching && !words.is_watching.load(Ordering::Relaxed) {
            self.forget_progress();
        }
        words.is_watching.store(is_watching, Ordering::Relaxed);
        let is_learning = wants_learning && is_watching;
        // Every launch reads it: write only changes.
        if words.is_learning.load(Ordering::Relaxed) != is_learning {
            words.is_learning.store(is_learning, Ordering::Relaxed);
        }
        let mut next_ns = None;
        for (index, slot) in self.streams() {
            let wanted_ns = match (is_leaving, is_watching) {
                (true, _) => self.poll_last(index, slot),
                (false, true) if client.is_high_priority() => self.poll_asked(index, slot, now_ns),
                (false, true) => self.poll_slot(index, slot, now_ns),
                (false, false) => self
                    .poll_draining(index, slot, now_ns)
                    .map(|next_ns| next_ns.max(now_ns + SLEEP_NS_MAX)),
            };
            next_ns = next_ns.into_iter().chain(wanted_ns).min();
            // Includes completion by the application's own waits.
            if is_learning {
                self.learner.poll_slot(client, index, slot);
            }
        }
        self.learner.poll_longest(client);
        match is_leaving {
            false => self.learner.poll_note(client),
            true if next_ns.is_none() => {
                self.learner.note_last(client);
                // Relaxed: the note's checksum shows that it is whole.
                words.has_noted.store(true, Ordering::Relaxed);
            }
            true => {}
        }
        let next_ns = next_ns.into_iter().chain(window_ns).min();
        next_ns.map(|next_ns| next_ns.clamp(now_ns, now_ns + SLEEP_NS_MAX.max(WINDOW_EVERY_NS)))
    }

    fn poll_record(&mut self) -> Option<u64> {
        let client = self.client;
        if !client.is_recording {
            return None;
        }
        let now_ns = client.clock.now_ns();
        let next_ns = self.in_driver(|helper| {
            helper.relax();
            recorder::poll(client, now_ns)
        });
        next_ns.unwrap_or(Some(now_ns + EARLIER_NS))
    }

    /// The process is dying: waits for work in flight on the client's device, and reports the end.
    /// `false`: try again. A hang is ended by the sender's next signal ([`handler`]).
    fn try_drain(&mut self) -> bool {
        let before = self.issued();
        let is_finished = self.in_driver(|helper| {
            for context in CONTEXTS.on(helper.client.device) {
                if helper.enter(context) {
                    helper.finish(context);
                }
            }
        });
        let is_done = is_finished.is_some() && self.has_settled(before);
        if is_done {
            self.handle_drained();
            handler::handle_drained(process::clients().count() as u32);
        }
        is_done
    }

    /// Whether nothing was launched beyond `waited_for`, which is complete, for [`SETTLE_NS`].
    fn has_settled(&mut self, waited_for: u64) -> bool {
        let copies = self.client.helper.copies.load(Ordering::SeqCst);
        if self.issued() != waited_for || copies != 0 {
            self.rested = None;
            return false;
        }
        let now_ns = self.client.clock.now_ns();
        match self.rested {
            Some((issued, since_ns)) if issued == waited_for => {
                now_ns.saturating_sub(since_ns) >= SETTLE_NS
            }
            _ => {
                self.rested = Some((waited_for, now_ns));
                false
            }
        }
    }

    fn issued(&self) -> u64 {
        let issued = self.streams().map(|(_, slot)| slot.issued());
        issued.fold(0, u64::wrapping_add)
    }

    /// Everything launched is complete, and readers of the client's page must see that. During a
    /// capture, completion was noted stream by stream.
    fn handle_drained(&self) {
        if STREAMS.is_capturing() {
            return;
        }
        for (index, slot) in self.streams().filter(|(_, slot)| slot.is_in_flight()) {
            complete_at_end(self.client, (index, slot), slot.issued());
        }
    }

    /// Runs `calls` in the driver, unless helpers are kept out of it; then `None`.
    fn in_driver<T>(&mut self, calls: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let in_driver = &self.client.helper.in_driver;
        in_driver.store(true, Ordering::SeqCst);
        let may_enter = !waking::are_stopping() && !HOLDERS.is_any();
        let made = may_enter.then(|| calls(self));
        in_driver.store(false, Ordering::SeqCst);
        made
    }

    /// Waits for work in flight in the current context. An error of a broken one counts as the end.
    fn finish(&self, context: Handle) {
        if !STREAMS.is_capturing() {
            let _ = driver::ending::synchronize_context();
            return;
        }
        // With a capture, only streams outside it can be synchronised (`cuStreamBeginCapture`).
        for (index, slot) in self.streams() {
            let here = || slot.context() == context;
            let mark = slot.issued();
            if let Some(stream) = slot.stream_here().filter(|_| here())
                && !driver::is_still_capturing(stream)
            {
                let _ = driver::ending::synchronize_stream(stream);
                complete_at_end(self.client, (index, slot), mark);
            }
        }
    }

    /// Whether something was launched since the last poll without waking this thread.
    fn has_work(&self) -> bool {
        let words = &self.client.helper;
        !self.client.is_high_priority()
            && words.is_watching.load(Ordering::Relaxed)
            && self.issued() != self.looked_at
    }

    /// The driver refuses queries: the context is broken or gone, and its work over.
    fn give_up_on(&self, index: u32, slot: &Slot) {
        completion::give_up(index, slot, slot.issued());
    }

    /// Makes captures in other threads forbid this one nothing.
    fn relax(&mut self) {
        if !self.is_relaxed {
            // A driver without capture has no mode to set.
            let _ = driver::relax_capture_mode();
            self.is_relaxed = true;
        }
    }

    fn enter(&mut self, context: Handle) -> bool {
        self.relax();
        let wanted = Some((context, waking::entered()));
        if self.context == wanted {
            return true;
        }
        let is_entered = driver::set_current_context(context.context()) == CUresult::SUCCESS;
        self.context = wanted.filter(|_| is_entered);
        is_entered
    }
}

/// Whether a process that exits can learn more about a slot. The overflow slot has no stream;
/// another thread's default stream shows only by an event that its thread recorded. During a
/// capture only events recorded outside it are queried, which disturbs no capture in relaxed mode
/// (`cuThreadExchangeStreamCaptureMode`).
fn can_progress(slot: &Slot, is_capturing: bool) -> bool {
    if slot.event.is_pending() {
        return true;
    }
    match slot.state() {
        State::Live => !is_capturing && slot.stream_here().is_some(),
        State::Draining => true,
        State::Ending | State::Free => false,
    }
}
