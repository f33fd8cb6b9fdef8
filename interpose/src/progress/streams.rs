//! The streams of this process and how far each has come.
//!
//! Every stream that kernels are launched on has a *slot*, whose index names it to the daemon. A
//! slot counts what was launched and what is known to be complete, in one unit: high-priority
//! clients count launches (*sequence numbers*, from 1), best-effort clients expected ns. A position
//! in that count is a *mark*; `issued` is the mark behind the last launch that the driver took, and
//! whatever completes a mark completes all before it, as streams are ordered. Counts go on when a
//! slot is given to another stream, so a mark is never reached twice.
//!
//! A slot lives as long as its stream, and a little longer: work launched on a destroyed stream
//! still runs, so the slot *drains* until its event says that it is over
//! ([`client::slot_state`]).
//!
//! Finding a slot takes no lock. Making one takes a lock that is tried a bounded number of times: a
//! thread that cannot have it launches without a slot this once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::types::{CUcontext, CUstream};
use client::backoff;
use client::launch_log::{LAUNCHES, LaunchLog};
use client::marks::Marks;
use client::slot_state::State;
use crossbeam_utils::CachePadded;
use protocol::clock::Clock;
use protocol::record::STREAMS_MAX;
use protocol::sync::{Locked, TryLock};

use crate::driver;
use crate::platform::config::DEVICES_MAX;
use crate::platform::sys;
use crate::platform::table::Keys;
use crate::process::clients::{CLIENTS, Managed};
use crate::process::{Client, Handle};
use crate::progress::captures::Captures;
use crate::progress::completion;
use crate::progress::contexts::{self, CONTEXTS};
use crate::progress::events::Events;
use crate::progress::slot::{KIND_PER_THREAD, Owner, Slot};
use crate::progress::stream::{Kind, Stream};

/// The streams of this process.
pub(crate) static STREAMS: Streams = Streams::new();

/// Slots; the last of them are for overflow.
const SLOTS: usize = STREAMS_MAX as usize;

/// The first of the overflow slots, one for each client: for all streams that found no slot of their
/// own. Only the synchronisation of a whole context completes one.
const OVERFLOW: u32 = STREAMS_MAX - DEVICES_MAX as u32;

/// Places for keys: twice the slots, so that searches stay short.
const KEYS: usize = 2 * SLOTS;

/// Streams that teach how long kernels take ([`crate::progress::learner`]), 8 KiB of every job's
/// address space each: those in the first slots. A stream gets the lowest slot that is free, and
/// training launches nearly all on a few.
const LOGS: usize = 24;

/// How long who is not launching waits for the lock, ns, before a stream is ended without it. Its holder may have lost its processor, which it
/// has again within milliseconds; one that was jumped out of holds it for good.
const LOCK_PATIENCE_NS: u64 = 20_000_000;

/// Where a launch on a stream is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this slot.
    Slot(u32),
    /// Nowhere of its own: too many streams.
    Overflow,
    /// Not at all: a stream of a device that is not managed.
    Foreign,
}

/// See [`STREAMS`].
pub(crate) struct Streams {
    keys: Keys<KEYS>,
    /// The slot of the key at the same place.
    indices: [AtomicU32; KEYS],
    slots: [Slot; SLOTS],
    /// Slot of the legacy stream, which most launches are on, of the context that
    /// [`Streams::legacy_context`] names: the only one of the process, or there is none (0).
    legacy: AtomicU32,
    legacy_context: AtomicU64,
    /// All slots in use are below this.
    high: AtomicU32,
    /// Held by whoever makes or ends a stream.
    lock: TryLock,
    /// Streams in capture, see [`Launched::is_capturing`].
    capturing: AtomicU32,
    /// Those of them that have no slot.
    unplaced_captures: Captures,
    /// The application's events, by the marks of these streams. Apart from the words above, which
    /// launches read.
    pub(crate) events: CachePadded<Events>,
    /// What launches write down, by the slot of their stream; each on lines of its own.
    logs: [LaunchLog<LAUNCHES>; LOGS],
}

impl Streams {
    const fn new() -> Self {
        Self {
            keys: Keys::new(),
            indices: [const { AtomicU32::new(0) }; KEYS],
            slots: [const { Slot::new() }; SLOTS],
            legacy: AtomicU32::new(0),
            legacy_context: AtomicU64::new(0),
            high: AtomicU32::new(0),
            lock: TryLock::new(),
            capturing: AtomicU32::new(0),
            unplaced_captures: Captures::new(),
            events: CachePadded::new(Events::new()),
            logs: [const { LaunchLog::new() }; LOGS],
        }
    }

    /// Where a launch on the stream is counted, making a slot at first sight.
    #[inline]
    pub(crate) fn place(&self, stream: Stream) -> Place {
        let index = match self.find(stream) {
            Some(index) => index,
            None => match self.place_anew(stream) {
                Ok(index) => index,
                Err(place) => return place,
            },
        };
        match self.slot(index) {
            Some(slot) if slot.launched.client.load(Ordering::Relaxed) == 0 => Place::Foreign,
            Some(_) => Place::Slot(index),
            None => Place::Overflow,
        }
    }

    /// The slot of a stream that has one.
    #[inline]
    pub(crate) fn existing(&self, stream: Stream) -> Option<u32> {
        if let Some(index) = self.find(stream) {
            return Some(index);
        }
        if !stream.is_default() {
            return None;
        }
        self.find_key(stream.key(CONTEXTS.current()?))
    }

    /// The client of a slot, if its device is managed.
    #[inline]
    pub(crate) fn client_of(&self, index: u32) -> Option<&'static Client> {
        let client = match index.checked_sub(OVERFLOW) {
            Some(client) => client,
            None => {
                let slot = self.slot(index)?;
                slot.launched
                    .client
                    .load(Ordering::Relaxed)
                    .checked_sub(1)?
            }
        };
        CLIENTS.at(client)
    }

    /// The slot of all streams of a client that found no slot of their own.
    pub(crate) fn overflow_of(&self, client: u32) -> u32 {
        (OVERFLOW + client).min(STREAMS_MAX - 1)
    }

    /// Notes a stream that the application made, with the priority it asked for.
    pub(crate) fn handle_created(&self, stream: Stream, asked_priority: i32) {
        let Place::Slot(index) = self.place(stream) else {
            return;
        };
        if let Some(slot) = self.slot(index) {
            slot.launched
                .asked_priority
                .store(asked_priority, Ordering::Relaxed);
            slot.launched
                .has_asked_priority
                .store(true, Ordering::Release);
        }
    }

    /// The priority that the application asked for when it made the stream.
    pub(crate) fn asked_priority(&self, stream: Stream) -> Option<i32> {
        let slot = self.slot(self.existing(stream)?)?;
        let is_known = slot.launched.has_asked_priority.load(Ordering::Acquire);
        is_known.then(|| slot.launched.asked_priority.load(Ordering::Relaxed))
    }

    /// A slot by its index.
    #[inline]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

    /// What launches on a slot's stream write down, if the stream teaches.
    #[inline]
    pub(super) fn log(&self, index: u32) -> Option<&LaunchLog<LAUNCHES>> {
        self.logs.get(index as usize)
    }

    /// All slots that may be in use, the overflow slots last.
    pub(crate) fn used(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let high = self.high.load(Ordering::Acquire);
        (0..high)
            .chain(OVERFLOW..STREAMS_MAX)
            .filter_map(|index| Some((index, self.slot(index)?)))
    }

    /// The same of one client, the overflow slot last.
    pub(crate) fn used_by(&self, client: u32) -> impl Iterator<Item = (u32, &Slot)> + use<'_> {
        let high = self.high.load(Ordering::Acquire);
        (0..high)
            .filter_map(|index| Some((index, self.slot(index)?)))
            .filter(move |(_, slot)| slot.launched.client.load(Ordering::Relaxed) == client + 1)
            .chain(
                [self.overflow_of(client)]
                    .into_iter()
                    .filter_map(|index| Some((index, self.slot(index)?))),
            )
    }

    /// How many streams of a context may have work, the legacy stream not among them.
    pub(crate) fn count_in(&self, context: Handle) -> usize {
        let has_work = |slot: &Slot| {
            slot.context() == context
                && slot.kind() != Kind::Legacy
                && matches!(slot.state(), State::Live | State::Draining)
        };
        self.used().filter(|(_, slot)| has_work(slot)).count()
    }

    /// Whether any stream is in capture.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        // SeqCst pairs with the changes in `set_capturing`: a helper that has said that it sleeps and still sees a capture
        // here is woken by whoever ends it.
        self.capturing.load(Ordering::SeqCst) != 0
    }

    /// A stream's capture began.
    pub(crate) fn handle_capture_begun(&self, stream: Stream) {
        self.begin_capture(stream, self.place(stream));
    }

    fn begin_capture(&self, stream: Stream, place: Place) {
        match place {
            Place::Slot(index) => self.set_capturing(index, true),
            Place::Overflow => {
                let owner = owner_of(stream);
                let context = owner.map_or(Handle(0), |owner| owner.context);
                if self.unplaced_captures.begin(stream.key(context), context.0) {
                    self.capturing.fetch_add(1, Ordering::SeqCst);
                }
            }
            Place::Foreign => {}
        }
    }

    /// A stream's capture ended.
    pub(crate) fn handle_capture_ended(&self, stream: Stream) {
        if let Some(index) = self.existing(stream) {
            self.set_capturing(index, false);
        }
        // It may have been given a slot meanwhile.
        self.forget_capture(stream);
    }

    /// Forgets the capture of a stream that had no slot when it began.
    fn forget_capture(&self, stream: Stream) {
        let context = match stream {
            Stream::Created(_) => Some(Handle(0)),
            _ => CONTEXTS.current(),
        };
        if context.is_some_and(|context| self.unplaced_captures.end(stream.key(context))) {
            self.capturing.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Notes that the capture of a slot's stream began or ended.
    fn set_capturing(&self, index: u32, is_capturing: bool) {
        let Some(slot) = self.slot(index) else { return };
        let was = slot
            .launched
            .is_capturing
            .swap(is_capturing, Ordering::Relaxed);
        match (was, is_capturing) {
            (false, true) => _ = self.capturing.fetch_add(1, Ordering::SeqCst),
            (true, false) => _ = self.capturing.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }

    /// Takes a stream out that is about to be destroyed: nobody finds its slot any more, which is the
    /// caller's to drain or to free. Waits for a helper that uses the stream; none does afterwards.
    pub(crate) fn take_out(&self, stream: CUstream) -> Option<u32> {
        self.forget_capture(Stream::Created(stream));
        let index = self.take_out_locked(stream)?;
        self.slot(index)?.event.wait_until_unused();
        Some(index)
    }

    fn take_out_locked(&self, stream: CUstream) -> Option<u32> {
        let _locked = self.lock_patiently()?;
        let place = self.keys.remove(Stream::Created(stream).key(Handle(0)))?;
        let index = self.indices.get(place)?.load(Ordering::Relaxed);
        self.set_capturing(index, false);
        self.slot(index)?.launched.life.end();
        Some(index)
    }

    /// Takes out every stream of a context that was destroyed, while the helpers are kept out of the driver
    /// ([`crate::progress::waking::keep_out`]): their slots, which are the caller's to free. Not among them are those that somebody else has taken out and has not done with.
    pub(crate) fn take_out_context(&self, context: CUcontext) -> Vec<u32> {
        let Some(_locked) = self.lock_patiently() else {
            return Vec::new();
        };
        let context = Handle::from(context);
        let captures = self.unplaced_captures.end_all_of(context.0);
        self.capturing.fetch_sub(captures, Ordering::SeqCst);
        if self.legacy_context.load(Ordering::Relaxed) == context.0 {
            self.legacy_context.store(0, Ordering::Release);
        }
        self.used()
            .filter(|(_, slot)| slot.context() == context)
            .filter(|&(index, slot)| match slot.state() {
                State::Live => {
                    self.keys.remove(slot.launched.key.load(Ordering::Relaxed));
                    self.set_capturing(index, false);
                    slot.launched.life.end();
                    true
                }
                State::Draining => slot.try_claim(),
                State::Ending | State::Free => false,
            })
            .map(|(index, _)| index)
            .collect()
    }

    /// Gives a slot to whoever needs one next. Only by who took its stream out, or claimed it.
    pub(crate) fn free(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            slot.launched
                .has_asked_priority
                .store(false, Ordering::Relaxed);
            slot.launched.life.free();
        }
    }

    /// The slot of a stream, without asking the driver anything: `None` also for a default stream
    /// of one of several contexts.
    #[inline]
    fn find(&self, stream: Stream) -> Option<u32> {
        let context = match stream {
            Stream::Created(_) => Handle(0),
            _ => CONTEXTS.only()?,
        };
        // Acquire pairs with the Release in `keep_legacy`: the slot is this context's.
        if stream == Stream::Legacy && self.legacy_context.load(Ordering::Acquire) == context.0 {
            return Some(self.legacy.load(Ordering::Relaxed));
        }
        self.find_key(stream.key(context))
    }

    #[inline]
    fn find_key(&self, key: u64) -> Option<u32> {
        let place = self.keys.find(key)?;
        Some(self.indices.get(place)?.load(Ordering::Relaxed))
    }

    /// The slot of a stream that [`Streams::find`] does not find, made if there is none.
    #[cold]
    fn place_anew(&self, stream: Stream) -> Result<u32, Place> {
        let owner = owner_of(stream).ok_or(Place::Foreign)?;
        if owner.is_blocking {
            // Streams of libraries that pass by our hooks are first seen here.
            contexts::handle_ordered_stream(owner.context);
        }
        self.make(stream, owner).ok_or(Place::Overflow)
    }

    fn make(&self, stream: Stream, owner: Owner) -> Option<u32> {
        let key = match stream {
            Stream::Created(_) => stream.key(Handle(0)),
            _ => stream.key(owner.context),
        };
        let _locked = self.lock.try_lock()?;
        let index = match self.find_key(key) {
            Some(index) => index,
            None => {
                let place = self.keys.vacancy(key)?;
                let index = self.free_slot()?;
                self.slot(index)?.begin(stream, key, owner);
                self.indices.get(place)?.store(index, Ordering::Relaxed);
                self.high.fetch_max(index + 1, Ordering::AcqRel);
                self.keys.publish(place, key);
                index
            }
        };
        if stream == Stream::Legacy && CONTEXTS.only() == Some(owner.context) {
            self.keep_legacy(index, owner.context);
        }
        Some(index)
    }

    /// Keeps at hand the slot of the legacy stream of the only context. The caller has the lock.
    fn keep_legacy(&self, index: u32, context: Handle) {
        // Nobody takes the new slot for the old context's: its name is gone meanwhile.
        self.legacy_context.store(0, Ordering::SeqCst);
        self.legacy.store(index, Ordering::SeqCst);
        self.legacy_context.store(context.0, Ordering::Release);
    }

    /// A slot that nobody has. Default streams of threads that ended give theirs up only here:
    /// nothing tells when a thread ends.
    fn free_slot(&self) -> Option<u32> {
        let is_free = |index: &u32| self.slot(*index).is_some_and(|s| s.state() == State::Free);
        if let Some(index) = (0..OVERFLOW).find(is_free) {
            return Some(index);
        }
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.launched.kind.load(Ordering::Relaxed) == KIND_PER_THREAD
                && slot.state() == State::Live
                && !slot.is_in_flight()
                && !sys::is_thread_alive(slot.launched.owner.load(Ordering::Relaxed))
            {
                self.keys.remove(slot.launched.key.load(Ordering::Relaxed));
                self.set_capturing(index, false);
                completion::give_up(index, slot, slot.issued());
                slot.launched.life.free();
            }
        }
        // Of destroyed streams that the helper has not looked at: what ran there counts as complete.
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.state() == State::Draining && slot.event.is_idle() && slot.try_claim() {
                completion::give_up(index, slot, slot.issued());
                slot.launched.life.free();
            }
        }
        (0..OVERFLOW).find(is_free)
    }

    /// For those who are not launching: waits for whoever holds the lock, who may have lost its processor, and gives it up in the end.
    fn lock_patiently(&self) -> Option<Locked<'_>> {
        let mut locked = None;
        backoff::wait_for(&Clock::process(), LOCK_PATIENCE_NS, || {
            locked = self.lock.try_lock();
            locked.is_some()
        });
        locked
    }
}

/// Whose a stream is; `None` if that is not known, or not yet settled.
fn owner_of(stream: Stream) -> Option<Owner> {
    let context = match stream {
        Stream::Created(handle) if CONTEXTS.only().is_none() => {
            match driver::stream_context(handle) {
                Ok(context) => Handle::from(context),
                // A driver before CUDA 9.2 does not tell.
                Err(_) => CONTEXTS.current()?,
            }
        }
        _ => CONTEXTS.current()?,
    };
    let managed = if CLIENTS.are_several() {
        CLIENTS.of_device(CONTEXTS.device_or_ask(context.context())?)
    } else {
        CLIENTS.of_only_device()
    };
    let client = match managed {
        Managed::NotYet => return None,
        Managed::No => 0,
        Managed::By(client) => client.index + 1,
    };
    Some(Owner {
        context,
        client,
        is_blocking: is_ordered(stream),
    })
}

/// Whether the legacy stream of its context orders a stream.
fn is_ordered(stream: Stream) -> bool {
    match stream {
        Stream::Legacy => false,
        Stream::PerThread => true,
        Stream::Created(handle) => driver::is_blocking(handle),
    }
}

#[cfg(test)]
mod tests;
