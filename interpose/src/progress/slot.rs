//! A stream's slot: the stream, its launches, and its completion ([`crate::progress::streams`]).

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use abi::types::CUstream;
use client::marks::{Issued, Marks, Seen};
use client::slot_state::{SlotState, State};
use protocol::sync::Line;

use crate::platform::sys;
use crate::process::Handle;
use crate::progress::stream::{Kind, Stream};
use crate::progress::stream_events::Event;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) slot: u32,
    /// The position in the stream's count; 0 means nothing.
    pub(crate) mark: u64,
}

pub(crate) struct Slot {
    /// On its own cache lines: launches write here, the helper and waiting threads to the others.
    pub(super) launched: Line<Launched>,
    seen: Seen,
    idle_at: AtomicU32,
    pub(crate) event: Event,
}

/// The stream's identity, written while the slot has one owner, and what launches write.
pub(super) struct Launched {
    pub(super) life: SlotState,
    pub(super) kind: AtomicU32,
    pub(super) key: AtomicU64,
    pub(super) handle: AtomicU64,
    /// The thread whose default stream it is.
    pub(super) owner: AtomicU32,
    /// Index plus one of its device's client; 0 if the device is not managed.
    pub(super) client: AtomicU32,
    /// For a created stream: its context's legacy stream does not order it.
    pub(super) is_non_blocking: AtomicBool,
    /// Launches on it are captured into a graph, as far as begin and end of captures show.
    pub(super) is_capturing: AtomicBool,
    pub(super) context: AtomicU64,
    /// The priority that the application asked for, if the slot was made with the stream.
    pub(super) asked_priority: AtomicI32,
    pub(super) has_asked_priority: AtomicBool,
    pub(super) issued: Issued,
}

const KIND_LEGACY: u32 = 0;
pub(super) const KIND_PER_THREAD: u32 = 1;
const KIND_CREATED: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) context: Handle,
    /// Index plus one of its device's client; 0 if the device is not managed.
    pub(super) client: u32,
    /// Whether the context's legacy stream orders it.
    pub(super) is_blocking: bool,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            launched: Line(Launched {
                life: SlotState::new(),
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
                issued: Issued::new(),
            }),
            seen: Seen::new(),
            idle_at: AtomicU32::new(0),
            event: Event::new(),
        }
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

    pub(crate) fn state(&self) -> State {
        self.launched.life.state()
    }

    /// Leaves the slot to the helper, which polls its last event. Only by the thread that ended it.
    pub(crate) fn drain(&self) {
        self.launched.life.drain();
    }

    pub(crate) fn try_claim(&self) -> bool {
        self.launched.life.try_claim()
    }

    /// A handle that means the stream in this thread; another thread's default stream has none.
    pub(crate) fn stream_here(&self) -> Option<CUstream> {
        let is_others = self.launched.kind.load(Ordering::Relaxed) == KIND_PER_THREAD
            && self.launched.owner.load(Ordering::Relaxed) != sys::thread_id();
        let handle = self.launched.handle.load(Ordering::Relaxed) as usize;
        (!is_others).then(|| CUstream(core::ptr::with_exposed_provenance_mut(handle)))
    }

    /// A handle to query the stream: its own, or, for an ended thread's default stream, the legacy
    /// stream's, which comes after its work.
    pub(crate) fn stream_to_ask(&self) -> Option<CUstream> {
        self.stream_here()
            .or_else(|| self.is_abandoned().then_some(CUstream::LEGACY))
    }

    /// Whether it is an ended thread's default stream: its work still runs, but it has no handle.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.kind() == Kind::PerThread
            && !sys::is_thread_alive(self.launched.owner.load(Ordering::Relaxed))
    }

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

    /// Everything submitted up to that many operations of the process is complete in this stream.
    pub(crate) fn set_idle_at(&self, operations: u32) {
        self.idle_at.store(operations, Ordering::Relaxed);
    }

    pub(crate) fn context(&self) -> Handle {
        Handle(self.launched.context.load(Ordering::Relaxed))
    }
}

impl Marks for Slot {
    #[inline]
    fn issued_marks(&self) -> &Issued {
        &self.launched.issued
    }

    #[inline]
    fn seen_marks(&self) -> &Seen {
        &self.seen
    }
}
