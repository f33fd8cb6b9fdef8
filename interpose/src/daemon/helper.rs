//! The helper threads, one for each client: find out what has completed when the application does
//! not ask.
//!
//! *Best-effort, while gated*: the helper learns of completion as [`crate::progress::sight`] allows
//! for each stream. At most one event of ours is outstanding in a stream; the first look at it
//! comes after a learnt part of what is expected ([`policy::looks`]), further ones every
//! [`POLL_NS`] at most. What has completed goes into the client's page, and the daemon is rung if a
//! thread waits at the gate. *Best-effort, with nobody to protect* (an ungated lease): the helper
//! does nothing, except in one *window* of 10 ms in each second in which something was launched, so
//! that durations are learnt before a high-priority job comes; longer, and for up to a tenth of the
//! time, while kernels are launched that nobody knows ([`watch`]). The daemon rings it when leases
//! become gated. *High-priority*: it does nothing, except while the daemon asks (`probe`), because
//! the application has been silent and best-effort work waits: then it asks streams whether they
//! are idle.
//!
//! It never synchronises while the process lives, so it is never in the driver for long; when the
//! process dies of a signal it does. It has every signal blocked and its own calls are not hooked. In
//! some streams only launching threads may record (see `launch`); the helper queries their events.
//!
//! While a trace is taken it tells what kernels are called ([`Names`]).
//!
//! It tells the program which batch is wanted, where that has asked ([`crate::process::batches`]).
//! It also is told that the daemon is gone, and makes its client another one's
//! ([`crate::daemon::reattach`]).
//!
//! **Sleeping and waking.** The launch path must not pay for a system call per launch, so the helper
//! says until when it sleeps ([`waking`]). A launching thread stores what it launched, then
//! reads that word, and rings only if the launch is expected to end well before. A helper that sleeps
//! without a limit stores the word, then looks whether something was launched. Both in
//! sequentially consistent order, so one of the two sees the other. With a limit, what is missed is
//! seen when the limit is over.

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

/// Until it is first looked whether kernels are unknown, ns.
const UNKNOWN_FIRST_NS: u64 = 1_000_000_000;

/// Least time between two queries of an event, ns. A helper of a process that ends looks as often.
const POLL_NS: u64 = 20_000;

/// Longest sleep while something is in flight, ns: it bounds how late a launch is seen that rang for nobody.
const SLEEP_NS_MAX: u64 = 50_000_000;

/// With nobody to protect: durations are learnt for [`WINDOW_NS`] in each [`WINDOW_EVERY_NS`].
const WINDOW_EVERY_NS: u64 = 1_000_000_000;
/// See [`WINDOW_EVERY_NS`]: 1 % of the time.
const WINDOW_NS: u64 = 10_000_000;

/// How long the start of a helper is waited for at most, ns. It took up to three milliseconds beside ten busy processes, and takes
/// all of this where who starts it holds what it needs: a library that makes its context while it is being loaded.
const READY_NS: u64 = 50_000_000;

/// So long nothing more has been launched when a dying process counts as drained, ns: a thread that the signal met inside a launch
/// ends it first, and is seen to have launched only then.
const SETTLE_NS: u64 = 1_000_000;

/// Longest wait at exit for the last note of what was learnt, ns. One of some hundred kernels takes
/// milliseconds.
const LAST_NOTE_NS: u64 = 20_000_000;

/// The thread's stack, bytes. Its own part is small; the driver's calls need the rest.
const STACK_BYTES: usize = 512 << 10;

/// The process is about to exit: helpers look at all that is in flight.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Starts the thread, and waits a moment until it is *ready*: a thread of the application's that a
/// signal stops may hold locks of the process for good ([`handler`]), and the first of the helper's
/// calls take some. `is_refused`: a daemon was there, and did not want the client.
pub(crate) fn start(client: &'static Client, is_refused: bool) -> io::Result<()> {
    driver::ending::look_up();
    let builder = Builder::new()
        .name("pillion".into())
        .stack_size(STACK_BYTES);
    // A participant of the clock, so that it has its turn on virtual time.
    let thread =
        sys::with_signals_blocked(|| client.clock.spawn(builder, move || run(client, is_refused)));
    // Detached: it lives as long as the process.
    thread.map(drop)?;
    // On virtual time nothing is sent to a process at a moment that matters.
    if !client.clock.is_virtual() {
        let is_ready = || client.helper.is_ready.load(Ordering::Relaxed);
        backoff::wait_for(&client.clock, READY_NS, is_ready);
    }
    Ok(())
}

/// Waits until the helpers have seen that nothing is in flight any more, for so long at most, ms; whether nothing is. They look, and do not
/// synchronise: what never ends keeps none of them in the driver.
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
    // One clock for all of them.
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

/// Waits until what the process has learnt is noted, where a daemon reads it: where all is, as long
/// as the helper takes to wake. Never longer than [`LAST_NOTE_NS`], after which the note before is
/// the last.
fn wait_for_last_note(client: &Client) {
    if client.notes.are_read() && !client.clock.is_virtual() {
        let has_noted = || client.helper.has_noted.load(Ordering::Relaxed);
        backoff::wait_for(&client.clock, LAST_NOTE_NS, has_noted);
    }
}

/// What nothing will tell of any more, because its thread alone could, is not to look as if it were in flight when the process is gone.
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
        // Of one that is dying the daemon is of no interest, and to look may take locks, or seconds.
        if !dying::is_dying() && !LEAVING.load(Ordering::SeqCst) {
            panics::guarded(usize::MAX, || watch.poll());
        }
        let seen = client.page.helper_bell.read();
        // The other words are its own process's.
        // Before the client is one of the process's, what others have in flight would not be waited for.
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
        // A panic of ours costs one look, not the thread.
        #[cfg(not(shim))]
        if !LEAVING.load(Ordering::SeqCst) {
            // Of a program that is about to exit nothing is called.
            panics::guarded(usize::MAX, || batches::poll(client));
        }
        let next_ns = panics::guarded(usize::MAX, || helper.poll()).flatten();
        let record_ns = panics::guarded(usize::MAX, || helper.poll_record()).flatten();
        let late_ns = panics::guarded(usize::MAX, || kept::poll_late(client)).flatten();
        // Of one that is about to exit nobody looks, also where it would be time to.
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
        // While there is no daemon to be told, launches do not wake it.
        let said_ns = match client.is_taken() {
            false => 0,
            true => next_ns.unwrap_or(u64::MAX),
        };
        client.helper.asleep.store(said_ns, Ordering::SeqCst);
        let now_ns = client.clock.now_ns();
        if let Some(soon_ns) = next_ns.filter(|&next_ns| next_ns <= now_ns + POLL_NS) {
            // Not on the bell: counting sleepers would write to the line in the client's page that every best-effort launch
            // charges.
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
    /// The context that is current in this thread, and [`waking::entered`] when it became that.
    context: Option<(Handle, u32)>,
    /// Whether this thread's capture mode was set.
    is_relaxed: bool,
    /// In a dying process: what had been launched when the driver had nothing left for the first time, and when that was, ns.
    rested: Option<(u64, u64)>,
    /// What best-effort kernels take.
    learner: Learner,
    /// By slot, as far as any was looked at.
    watched: Vec<Watched>,
    looks: Looks,
    window: Window,
    /// What had been launched at the last look, on all streams together.
    looked_at: u64,
    unknown: UnknownLooks,
    /// What a trace that is taken is told of kernels' names.
    names: Names,
}

/// When it is looked whether unknown kernels are to be spoken of: after 1 s, 2 s, 4 s and so on, so
/// that a high-priority job whose kernels are known is soon left in peace.
struct UnknownLooks {
    began_ns: u64,
    /// `None`: no more.
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

    /// Looks if it is time to; when to look next.
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
    /// Makes the first calls, after which the driver has made what it keeps for each thread. What a thread has of its own in a
    /// library that was loaded late comes into being under the dynamic linker's lock and by `malloc`.
    fn get_ready(&mut self) {
        self.in_driver(|helper| {
            if let Some(context) = CONTEXTS.on(helper.client.device).next() {
                helper.enter(context);
            }
        });
    }

    /// The streams of this client.
    fn streams(&self) -> impl Iterator<Item = (u32, &'static Slot)> + use<> {
        STREAMS.used_by(self.client.index)
    }

    /// Looks at every stream once; when to look again. `None`: when something is launched.
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
        // Every launch reads it: it is not written for nothing.
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
            // What the application's own waiting completed, too.
            if is_learning {
                self.learner.poll_slot(client, index, slot);
            }
        }
        self.learner.poll_longest(client);
        match is_leaving {
            false => self.learner.poll_note(client),
            true if next_ns.is_none() => {
                self.learner.note_last(client);
                // Relaxed: that a note is whole its checksum tells.
                words.has_noted.store(true, Ordering::Relaxed);
            }
            true => {}
        }
        let next_ns = next_ns.into_iter().chain(window_ns).min();
        next_ns.map(|next_ns| next_ns.clamp(now_ns, now_ns + SLEEP_NS_MAX.max(WINDOW_EVERY_NS)))
    }

    /// Reads what was recorded; when to do so again.
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

    /// The process is dying: waits for what is in flight on the client's device, and says so.
    /// `false` if that has to be tried again. What hangs is the affair of whoever sent the signal:
    /// it comes once more ([`handler`]).
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

    /// Whether what was launched up to `waited_for`, for which the driver has been waited, is all, and has been for [`SETTLE_NS`].
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

    /// What was launched on all streams together, ever, as a number that is another one once there is more.
    fn issued(&self) -> u64 {
        let issued = self.streams().map(|(_, slot)| slot.issued());
        issued.fold(0, u64::wrapping_add)
    }

    /// All that was launched is complete, and who asks after the process's end is to know that. Where something is captured, what is has
    /// been noted stream by stream.
    fn handle_drained(&self) {
        if STREAMS.is_capturing() {
            return;
        }
        for (index, slot) in self.streams().filter(|(_, slot)| slot.is_in_flight()) {
            complete_at_end(self.client, (index, slot), slot.issued());
        }
    }

    /// Does that in the driver, unless helpers are kept out of it; `None` if they are.
    fn in_driver<T>(&mut self, calls: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let in_driver = &self.client.helper.in_driver;
        in_driver.store(true, Ordering::SeqCst);
        let may_enter = !waking::are_stopping() && !HOLDERS.is_any();
        let made = may_enter.then(|| calls(self));
        in_driver.store(false, Ordering::SeqCst);
        made
    }

    /// Waits for what is in flight in the context that is current here. What a broken one answers is as good as an end.
    fn finish(&self, context: Handle) {
        if !STREAMS.is_capturing() {
            let _ = driver::ending::synchronize_context();
            return;
        }
        // A context with a capture in it cannot be waited for, the streams outside can (CUDA driver API,
        // `cuStreamBeginCapture`).
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

    /// Whether something was launched since the last look that did not wake this thread.
    fn has_work(&self) -> bool {
        let words = &self.client.helper;
        !self.client.is_high_priority()
            && words.is_watching.load(Ordering::Relaxed)
            && self.issued() != self.looked_at
    }

    /// What the driver will not speak about is over: its context is broken or gone.
    fn give_up_on(&self, index: u32, slot: &Slot) {
        completion::give_up(index, slot, slot.issued());
    }

    /// Asks that captures of other threads forbid this one nothing.
    fn relax(&mut self) {
        if !self.is_relaxed {
            // A driver without capture has no mode to set.
            let _ = driver::relax_capture_mode();
            self.is_relaxed = true;
        }
    }

    /// Makes the context current in this thread.
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

/// Whether a process that exits can find out more about a slot. The overflow slot is nobody's stream, and another
/// thread's default stream is only seen through an event that its thread recorded. While anything is captured only
/// events are asked that were recorded outside, which disturbs no capture in a thread whose mode is relaxed
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
