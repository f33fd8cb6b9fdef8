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
//! still runs, so the slot *drains* until its event says that it is over ([`crate::client::slot_state`]).
//!
//! Finding a slot takes no lock. Making one takes a lock that is tried a bounded number of times: a
//! thread that cannot have it launches without a slot this once.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::types::{CUcontext, CUstream};
use protocol::clock::Clock;
use protocol::record::STREAMS_MAX;
use protocol::sync::Line;

use crate::client::clients::{CLIENTS, Managed};
use crate::client::slot_state::{Life, State};
use crate::client::waited::{Seen, Waited};
use crate::client::{Client, Handle};
use crate::driver;
use crate::platform::config::DEVICES_MAX;
use crate::platform::table::{Keys, mix};
use crate::platform::{backoff, sys};
use crate::progress::captures::Captures;
use crate::progress::completion;
use crate::progress::contexts::CONTEXTS;
use crate::progress::sight::{self, Kind};
use crate::progress::stream_events::Event;

/// The streams of this process.
pub(crate) static STREAMS: Streams = Streams::new();

/// Slots; the last of them are for overflow.
const SLOTS: usize = STREAMS_MAX as usize;

/// The first of the overflow slots, one for each client: for all streams that found no slot of their
/// own. Only the synchronisation of a whole context completes one.
const OVERFLOW: u32 = STREAMS_MAX - DEVICES_MAX as u32;

/// Places for keys: twice the slots, so that searches stay short.
const KEYS: usize = 2 * SLOTS;

/// Attempts at the lock. It is held for about 100 ns by whoever makes or ends a stream.
const LOCK_ATTEMPTS_MAX: u32 = 10_000;

/// How long who is not launching waits for the lock, ns, before a stream is ended without it. Its holder may have lost its processor, which it
/// has again within milliseconds; one that was jumped out of holds it for good.
const LOCK_PATIENCE_NS: u64 = 20_000_000;

/// Which stream an entry point means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The context's default stream.
    Legacy,
    /// The calling thread's default stream.
    PerThread,
    /// One that the application made.
    Created(CUstream),
}

/// What stream 0 means to an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// [`Stream::Legacy`].
    Plain,
    /// [`Stream::PerThread`]: the `_ptsz` and `_ptds` forms.
    PerThread,
}

impl Stream {
    /// The stream that a handle means in an entry point of that flavour.
    #[inline]
    pub(crate) fn of(handle: CUstream, flavour: Flavour) -> Self {
        match (handle, flavour) {
            (CUstream::LEGACY, _) | (CUstream::NULL, Flavour::Plain) => Self::Legacy,
            (CUstream::PER_THREAD, _) | (CUstream::NULL, Flavour::PerThread) => Self::PerThread,
            _ => Self::Created(handle),
        }
    }

    /// A handle that means this stream in an entry point of either flavour.
    pub(crate) fn handle(self) -> CUstream {
        match self {
            Self::Legacy => CUstream::LEGACY,
            Self::PerThread => CUstream::PER_THREAD,
            Self::Created(handle) => handle,
        }
    }

    /// Whether it is there without having been made.
    pub(crate) fn is_default(self) -> bool {
        !matches!(self, Self::Created(_))
    }

    /// The key of this stream, which never is 0 or all ones. Handles are addresses, so their low
    /// three bits are zero; in ours they are not. `context` tells default streams of several
    /// contexts apart.
    #[inline]
    fn key(self, context: Handle) -> u64 {
        match self {
            Self::Legacy => context.0 & !7 | 1,
            Self::PerThread => (mix(context.0) & !7) ^ (u64::from(sys::thread_id()) << 3) | 2,
            Self::Created(handle) => handle.0 as u64,
        }
    }
}

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
    lock: AtomicBool,
    /// Streams in capture, see [`Launched::is_capturing`].
    capturing: AtomicU32,
    /// Those of them that have no slot.
    unplaced_captures: Captures,
}

/// One stream.
pub(crate) struct Slot {
    launched: Line<Launched>,
    /// On another line than what launches write: the helper and waiting threads write here.
    seen: Line<Seen>,
    /// High-priority: the mark up to which the daemon was told.
    pub(crate) told: AtomicU64,
    /// Best-effort: see [`Slot::give_up`].
    given_up: AtomicU64,
    /// See [`Slot::is_surely_complete`].
    known: AtomicU64,
    /// See [`Slot::idle_at`].
    idle_at: AtomicU32,
    /// See [`crate::progress::stream_events`].
    pub(crate) event: Event,
}

/// What the stream is, written while its slot is nobody else's, and what launches write.
struct Launched {
    life: Life,
    kind: AtomicU32,
    key: AtomicU64,
    handle: AtomicU64,
    /// The thread whose default stream it is.
    owner: AtomicU32,
    /// Index plus one of the client that its device has; 0 if the device is not managed.
    client: AtomicU32,
    /// The legacy stream of its context does not order it. Of one that the application made.
    is_non_blocking: AtomicBool,
    /// Launches on it are recorded into a graph, as far as begin and end of captures tell.
    is_capturing: AtomicBool,
    context: AtomicU64,
    /// What the application asked for, if the slot was made with the stream.
    asked_priority: AtomicI32,
    has_asked_priority: AtomicBool,
    /// High-priority: the last sequence number given out.
    seq: AtomicU64,
    /// The mark behind the last launch that the driver took.
    issued: AtomicU64,
}

const KIND_LEGACY: u32 = 0;
const KIND_PER_THREAD: u32 = 1;
const KIND_CREATED: u32 = 2;

impl Streams {
    const fn new() -> Self {
        Self {
            keys: Keys::new(),
            indices: [const { AtomicU32::new(0) }; KEYS],
            slots: [const { Slot::new() }; SLOTS],
            legacy: AtomicU32::new(0),
            legacy_context: AtomicU64::new(0),
            high: AtomicU32::new(0),
            lock: AtomicBool::new(false),
            capturing: AtomicU32::new(0),
            unplaced_captures: Captures::new(),
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
    /// caller's to drain or to free.
    pub(crate) fn take_out(&self, stream: CUstream) -> Option<u32> {
        self.forget_capture(Stream::Created(stream));
        let _locked = self.lock_patiently()?;
        let place = self.keys.remove(Stream::Created(stream).key(Handle(0)))?;
        let index = self.indices.get(place)?.load(Ordering::Relaxed);
        self.set_capturing(index, false);
        self.slot(index)?.launched.life.end();
        Some(index)
    }

    /// Takes out every stream of a context that was destroyed: their slots, which are the caller's to
    /// free. Not among them are those that somebody else has taken out and has not done with.
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
            sight::handle_ordered_stream(owner.context);
        }
        self.make(stream, owner).ok_or(Place::Overflow)
    }

    fn make(&self, stream: Stream, owner: Owner) -> Option<u32> {
        let key = match stream {
            Stream::Created(_) => stream.key(Handle(0)),
            _ => stream.key(owner.context),
        };
        let _locked = self.try_lock()?;
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
            locked = self.try_lock();
            locked.is_some()
        });
        locked
    }

    fn try_lock(&self) -> Option<Locked<'_>> {
        for _ in 0..LOCK_ATTEMPTS_MAX {
            // Acquire pairs with the Release in `drop`.
            if !self.lock.swap(true, Ordering::Acquire) {
                return Some(Locked(&self.lock));
            }
            core::hint::spin_loop();
        }
        None
    }
}

/// Whose a stream is.
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Its context.
    context: Handle,
    /// Index plus one of the client that its device has; 0 if the device is not managed.
    client: u32,
    /// Whether the context's legacy stream orders it.
    is_blocking: bool,
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

struct Locked<'a>(&'a AtomicBool);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            launched: Line(Launched {
                life: Life::new(),
                kind: AtomicU32::new(KIND_LEGACY),
                key: AtomicU64::new(0),
                handle: AtomicU64::new(0),
                owner: AtomicU32::new(0),
                client: AtomicU32::new(0),
                is_non_blocking: AtomicBool::new(false),
                is_capturing: AtomicBool::new(false),
                context: AtomicU64::new(0),
                asked_priority: AtomicI32::new(0),
                has_asked_priority: AtomicBool::new(false),
                seq: AtomicU64::new(0),
                issued: AtomicU64::new(0),
            }),
            seen: Line(Seen::new()),
            told: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            known: AtomicU64::new(0),
            idle_at: AtomicU32::new(0),
            event: Event::new(),
        }
    }

    /// High-priority: numbers the next launch.
    #[inline]
    pub(crate) fn next_seq(&self) -> u64 {
        self.launched.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// High-priority: whether a launch was ever numbered here.
    pub(crate) fn has_launched(&self) -> bool {
        self.launched.seq.load(Ordering::Relaxed) > 0
    }

    /// High-priority: the driver took, or refused, the launch of that number.
    #[inline]
    pub(crate) fn set_issued(&self, seq: u64) {
        // Release pairs with the loads of whoever takes a mark: the launch has been made. The
        // greatest number stays: threads that launch on one stream may come here in any order.
        self.launched.issued.fetch_max(seq, Ordering::Release);
    }

    /// Best-effort: the driver took a launch of so many expected ns. The mark behind it.
    #[inline]
    pub(crate) fn add_issued(&self, expected_ns: u64) -> u64 {
        // SeqCst: before the look at whether the helper sleeps, see `helper`.
        let before = self
            .launched
            .issued
            .fetch_add(expected_ns, Ordering::SeqCst);
        before.wrapping_add(expected_ns)
    }

    /// What is about to be given up for good was not seen complete: it teaches nobody how long it took.
    pub(crate) fn give_up(&self, mark: u64) {
        // Before `set_known`, whose release publishes it.
        self.given_up.fetch_max(mark, Ordering::Relaxed);
    }

    /// The mark up to which work was given up. Read after [`Slot::known`].
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// The mark behind the last launch that the driver took.
    #[inline]
    pub(crate) fn issued(&self) -> u64 {
        self.launched.issued.load(Ordering::SeqCst)
    }

    /// The mark up to which everything is complete.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.seen.completed.load(Ordering::Acquire)
    }

    fn begin(&self, stream: Stream, key: u64, owner: Owner) {
        let (kind, thread_id) = match stream {
            Stream::Legacy => (KIND_LEGACY, 0),
            Stream::PerThread => (KIND_PER_THREAD, sys::thread_id()),
            Stream::Created(_) => (KIND_CREATED, 0),
        };
        let handle = stream.handle().0.expose_provenance() as u64;
        self.launched.kind.store(kind, Ordering::Relaxed);
        self.launched.key.store(key, Ordering::Relaxed);
        self.launched.handle.store(handle, Ordering::Relaxed);
        self.launched.owner.store(thread_id, Ordering::Relaxed);
        self.launched
            .context
            .store(owner.context.0, Ordering::Relaxed);
        self.launched.client.store(owner.client, Ordering::Relaxed);
        self.launched
            .is_non_blocking
            .store(!owner.is_blocking, Ordering::Relaxed);
        self.launched.is_capturing.store(false, Ordering::Relaxed);
        self.launched.life.begin();
    }

    /// What it is for now.
    pub(crate) fn state(&self) -> State {
        self.launched.life.state()
    }

    /// Who took its stream out leaves the rest to the helper: its event stands behind its last work.
    pub(crate) fn drain(&self) {
        self.launched.life.drain();
    }

    /// Makes the caller the one who frees a draining slot.
    pub(crate) fn try_claim(&self) -> bool {
        self.launched.life.try_claim()
    }

    /// The stream, as a handle that means it in this thread; `None` for another thread's default
    /// stream, which has no such handle.
    pub(crate) fn stream_here(&self) -> Option<CUstream> {
        let is_others = self.launched.kind.load(Ordering::Relaxed) == KIND_PER_THREAD
            && self.launched.owner.load(Ordering::Relaxed) != sys::thread_id();
        let handle = self.launched.handle.load(Ordering::Relaxed) as usize;
        (!is_others).then(|| CUstream(core::ptr::with_exposed_provenance_mut(handle)))
    }

    /// Whether it is the default stream of a thread that has ended. What was launched there still
    /// runs, and nobody has a handle of it any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.kind() == Kind::PerThread
            && !sys::is_thread_alive(self.launched.owner.load(Ordering::Relaxed))
    }

    /// What it is to the legacy stream.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        match self.launched.kind.load(Ordering::Relaxed) {
            KIND_LEGACY => Kind::Legacy,
            KIND_PER_THREAD => Kind::PerThread,
            _ if self.launched.is_non_blocking.load(Ordering::Relaxed) => Kind::NonBlocking,
            _ => Kind::Blocking,
        }
    }

    /// How many operations the process had submitted ([`sight::operations`]) when the stream was last
    /// known to have completed all of its own.
    pub(crate) fn idle_at(&self) -> u32 {
        self.idle_at.load(Ordering::Relaxed)
    }

    /// Everything that was submitted up to so many operations of the process is complete in this stream.
    pub(crate) fn set_idle_at(&self, operations: u32) {
        self.idle_at.store(operations, Ordering::Relaxed);
    }

    /// The stream's context.
    pub(crate) fn context(&self) -> Handle {
        Handle(self.launched.context.load(Ordering::Relaxed))
    }

    /// Whether anything launched is not known to be complete.
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.issued() > self.completed()
    }

    /// Whether everything issued is complete and was seen to be, or was given up for good: not only expected to be.
    pub(crate) fn is_surely_complete(&self) -> bool {
        self.issued() <= self.known()
    }

    /// Everything up to `mark` was seen complete, or given up for good.
    pub(crate) fn set_known(&self, mark: u64) {
        self.known.fetch_max(mark, Ordering::Release);
    }

    /// The mark up to which everything was seen complete, or given up for good: not only expected to be.
    pub(crate) fn known(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }

    /// Best-effort: see [`Seen`].
    pub(crate) fn waited(&self) -> &Waited {
        &self.seen.waited
    }

    /// Moves `completed` up to `mark`; by how much.
    pub(crate) fn advance(&self, mark: u64) -> u64 {
        let before = self.seen.completed.fetch_max(mark, Ordering::AcqRel);
        mark.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests;
