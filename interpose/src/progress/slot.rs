//! One stream's slot: what the stream is, what was launched on it, and what is complete
//! ([`crate::progress::streams`]).

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::types::CUstream;
use protocol::sync::Line;

use crate::client::Handle;
use crate::client::slot_state::{Life, State};
use crate::client::waited::{Seen, Waited};
use crate::platform::sys;
use crate::progress::stream::{Kind, Stream};
use crate::progress::stream_events::Event;

/// A mark in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Index of the stream's slot.
    pub(crate) slot: u32,
    /// The position in its count; never 0 where it tells something.
    pub(crate) mark: u64,
}

/// One stream.
pub(crate) struct Slot {
    /// On lines of its own: launches write here, the helper and waiting threads to all that
    /// follows.
    pub(super) launched: Line<Launched>,
    pub(super) seen: Seen,
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
pub(super) struct Launched {
    pub(super) life: Life,
    pub(super) kind: AtomicU32,
    pub(super) key: AtomicU64,
    pub(super) handle: AtomicU64,
    /// The thread whose default stream it is.
    pub(super) owner: AtomicU32,
    /// Index plus one of the client that its device has; 0 if the device is not managed.
    pub(super) client: AtomicU32,
    /// The legacy stream of its context does not order it. Of one that the application made.
    pub(super) is_non_blocking: AtomicBool,
    /// Launches on it are recorded into a graph, as far as begin and end of captures tell.
    pub(super) is_capturing: AtomicBool,
    pub(super) context: AtomicU64,
    /// What the application asked for, if the slot was made with the stream.
    pub(super) asked_priority: AtomicI32,
    pub(super) has_asked_priority: AtomicBool,
    /// High-priority: the last sequence number given out.
    pub(super) seq: AtomicU64,
    /// The mark behind the last launch that the driver took.
    pub(super) issued: AtomicU64,
}

const KIND_LEGACY: u32 = 0;
pub(super) const KIND_PER_THREAD: u32 = 1;
const KIND_CREATED: u32 = 2;

/// Whose a stream is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    /// Its context.
    pub(super) context: Handle,
    /// Index plus one of the client that its device has; 0 if the device is not managed.
    pub(super) client: u32,
    /// Whether the context's legacy stream orders it.
    pub(super) is_blocking: bool,
}

impl Slot {
    pub(super) const fn new() -> Self {
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
            seen: Seen::new(),
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
        // SeqCst: before the look at whether the helper sleeps, see [`crate::daemon::helper`].
        let before = self
            .launched
            .issued
            .fetch_add(expected_ns, Ordering::SeqCst);
        before.wrapping_add(expected_ns)
    }

    /// What is about to be given up for good was not seen complete: it teaches nobody how long it
    /// took.
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

    pub(super) fn begin(&self, stream: Stream, key: u64, owner: Owner) {
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

    /// Who took its stream out leaves the rest to the helper: its event stands behind its last
    /// work.
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

    /// How many operations the process had submitted ([`operations::submitted`]) when the stream
    /// was last known to have completed all of its own.
    pub(crate) fn idle_at(&self) -> u32 {
        self.idle_at.load(Ordering::Relaxed)
    }

    /// Everything that was submitted up to so many operations of the process is complete in this
    /// stream.
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

    /// Whether everything issued is complete and was seen to be, or was given up for good: not only
    /// expected to be.
    pub(crate) fn is_surely_complete(&self) -> bool {
        self.issued() <= self.known()
    }

    /// Everything up to `mark` was seen complete, or given up for good.
    pub(crate) fn set_known(&self, mark: u64) {
        self.known.fetch_max(mark, Ordering::Release);
    }

    /// The mark up to which everything was seen complete, or given up for good: not only expected
    /// to be.
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
