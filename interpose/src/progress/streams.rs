//! The streams of this process and their progress. Every stream with kernel launches has a *slot*,
//! whose index identifies it to the daemon. A slot counts launched and completed work in one unit:
//! high-priority clients count launches (*sequence numbers*, from 1), best-effort clients expected
//! ns. A position in that count is a *mark*. `issued` is the mark after the last launch that the
//! driver accepted. Completing a mark completes all before it, as streams are ordered. Counts
//! continue when a slot is given to another stream, so a mark is never reached twice. A slot lives
//! a little longer than its stream: work launched on a destroyed stream still runs, so the slot
//! *drains* until its event reports the end ([`client::slot_state`]). Finding a slot takes no lock.
//! Making one tries a lock a bounded number of times: a thread that does not get it launches
//! without a slot this once.

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

pub(crate) static STREAMS: Streams = Streams::new();

/// Slots; the last of them are for overflow.
const SLOTS: usize = STREAMS_MAX as usize;

/// The first of the overflow slots, one per client, for all streams without a slot of their own.
/// Only the synchronisation of a whole context completes one.
const OVERFLOW: u32 = STREAMS_MAX - DEVICES_MAX as u32;

/// Places for keys: twice the slots, so that searches stay short.
const KEYS: usize = 2 * SLOTS;

/// Streams that teach how long kernels take ([`crate::progress::learner`]), 8 KiB of every job's
/// address space each: those in the first slots. A stream gets the lowest free slot, and training
/// launches nearly everything on a few streams.
const LOGS: usize = 24;

/// How long a thread that is not launching waits for the lock, ns, before it ends a stream without
/// the lock. The holder may have lost its processor, which it gets back within milliseconds; one
/// that jumped out holds the lock for good.
const LOCK_PATIENCE_NS: u64 = 20_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Slot(u32),
    /// Too many streams: in the overflow slot.
    Overflow,
    /// Not counted: a stream of a device that is not managed.
    Foreign,
}

pub(crate) struct Streams {
    keys: Keys<KEYS>,
    /// The slot of the key at the same place.
    indices: [AtomicU32; KEYS],
    slots: [Slot; SLOTS],
    /// Slot of the legacy stream, which most launches are on, of the process's only context, which
    /// [`Streams::legacy_context`] names; 0: there is none.
    legacy: AtomicU32,
    legacy_context: AtomicU64,
    /// All slots in use are below this.
    high: AtomicU32,
    lock: TryLock,
    /// Streams in capture, see [`Launched::is_capturing`].
    capturing: AtomicU32,
    /// Those of them without a slot.
    unplaced_captures: Captures,
    /// The application's events, by marks of these streams. Launches read the fields above.
    pub(crate) events: CachePadded<Events>,
    /// Logs of launches, by the slot of their stream; each on cache lines of its own.
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

    pub(crate) fn overflow_of(&self, client: u32) -> u32 {
        (OVERFLOW + client).min(STREAMS_MAX - 1)
    }

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

    pub(crate) fn asked_priority(&self, stream: Stream) -> Option<i32> {
        let slot = self.slot(self.existing(stream)?)?;
        let is_known = slot.launched.has_asked_priority.load(Ordering::Acquire);
        is_known.then(|| slot.launched.asked_priority.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        self.slots.get(index as usize)
    }

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

    /// As above for one client, the overflow slot last.
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

    /// How many streams of a context may have work, without the legacy stream.
    pub(crate) fn count_in(&self, context: Handle) -> usize {
        let has_work = |slot: &Slot| {
            slot.context() == context
                && slot.kind() != Kind::Legacy
                && matches!(slot.state(), State::Live | State::Draining)
        };
        self.used().filter(|(_, slot)| has_work(slot)).count()
    }

    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        // SeqCst pairs with the changes in `set_capturing`: a helper that has set its sleep flag
        // and still sees a capture here is woken by the thread that ends it.
        self.capturing.load(Ordering::SeqCst) != 0
    }

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

    /// Takes out a stream that is about to be destroyed: its slot is not found any more, and the
    /// caller must drain or free it. Waits for a helper that uses the stream; none does afterwards.
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

    /// Takes out every stream of a destroyed context, while the helpers are kept out of the driver
    /// ([`crate::progress::waking::keep_out`]). Returns the slots that the caller must free,
    /// without those that another thread has taken out and not finished.
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

    /// Frees a slot. Only by the thread that took its stream out, or claimed it.
    pub(crate) fn free(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            slot.launched
                .has_asked_priority
                .store(false, Ordering::Relaxed);
            slot.launched.life.free();
        }
    }

    /// A stream's slot, without the driver: `None` for a default stream of several contexts.
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
            // Streams of libraries that bypass our hooks are first seen here.
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

    /// Caches the slot of the only context's legacy stream. The caller has the lock.
    fn keep_legacy(&self, index: u32, context: Handle) {
        // The name is cleared meanwhile: a thread that begins to look does not take the new slot
        // for the old context's. A thread that has read the name before launches in a destroyed
        // context.
        self.legacy_context.store(0, Ordering::SeqCst);
        self.legacy.store(index, Ordering::SeqCst);
        self.legacy_context.store(context.0, Ordering::Release);
    }

    /// A free slot. Ended threads' default streams give theirs up here: their ends are unseen.
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
        // Destroyed streams that the helper has not polled: their work counts as complete.
        for (index, slot) in (0..).zip(&self.slots) {
            if slot.state() == State::Draining && slot.event.is_idle() && slot.try_claim() {
                completion::give_up(index, slot, slot.issued());
                slot.launched.life.free();
            }
        }
        (0..OVERFLOW).find(is_free)
    }

    /// For threads that are not launching: waits for the lock's holder, which may have lost its
    /// processor, and gives up in the end.
    fn lock_patiently(&self) -> Option<Locked<'_>> {
        let mut locked = None;
        backoff::wait_for(&Clock::process(), LOCK_PATIENCE_NS, || {
            locked = self.lock.try_lock();
            locked.is_some()
        });
        locked
    }
}

fn owner_of(stream: Stream) -> Option<Owner> {
    let context = match stream {
        Stream::Created(handle) if CONTEXTS.only().is_none() => {
            match driver::stream_context(handle) {
                Ok(context) => Handle::from(context),
                // A driver before CUDA 9.2 does not say.
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

fn is_ordered(stream: Stream) -> bool {
    match stream {
        Stream::Legacy => false,
        Stream::PerThread => true,
        Stream::Created(handle) => driver::is_blocking(handle),
    }
}

#[cfg(test)]
mod tests;
