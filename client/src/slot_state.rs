//! The life of a stream's slot, and whose turn it is with the slot's event: two words, and who may
//! change them.
//!
//! | slot | who leaves that state |
//! |---|---|
//! | free | who makes a slot for a stream, under the lock of `streams` |
//! | live | who ends the stream, or its context |
//! | ending | who ended it, and nobody else: to *draining* once an event stands behind its last work, to *free* if nothing is left to wait for |
//! | draining | the helper at that event, or who ends the context: [`SlotState::try_claim`] says who |
//!
//! So a slot is given up once, and never while somebody still puts an event behind its last work. Who
//! has taken the event of a slot that is not live must not touch the stream any more: who ends a stream
//! makes the slot *ending*, then takes the event, then destroys.
//!
//! The model checker runs this source (`client/tests/interleavings.rs`).

use protocol::sync::{AtomicU32, Ordering};

/// What a slot is for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No stream.
    Free,
    /// A stream that can be launched on.
    Live,
    /// A stream that somebody is about to destroy.
    Ending,
    /// A destroyed stream whose last work may still run; an event tells when it is over.
    Draining,
}

const FREE: u32 = 0;
const LIVE: u32 = 1;
const ENDING: u32 = 2;
const DRAINING: u32 = 3;

/// See the module's text.
pub struct SlotState(AtomicU32);

impl Default for SlotState {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotState {
    /// Of a slot without a stream.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// The same; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// What it is for now.
    #[inline]
    pub fn state(&self) -> State {
        // SeqCst orders it after taking the slot's event, and after a helper has said that it sleeps.
        match self.0.load(Ordering::SeqCst) {
            LIVE => State::Live,
            ENDING => State::Ending,
            DRAINING => State::Draining,
            _ => State::Free,
        }
    }

    /// The slot is a stream's from here on.
    pub fn begin(&self) {
        // Release pairs with the load in `state`: a live slot is filled in.
        self.0.store(LIVE, Ordering::Release);
    }

    /// The caller ends the stream of a live slot: the slot is the caller's. Only under the lock of
    /// `streams`.
    pub fn end(&self) {
        self.0.store(ENDING, Ordering::SeqCst);
    }

    /// Who ended it leaves the rest to whoever looks at its event, which stands behind its last work.
    pub fn drain(&self) {
        // SeqCst: before the look at whether the helper sleeps.
        self.0.store(DRAINING, Ordering::SeqCst);
    }

    /// Makes the caller the one who gives up a draining slot.
    pub fn try_claim(&self) -> bool {
        let claimed =
            self.0
                .compare_exchange(DRAINING, ENDING, Ordering::SeqCst, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Whoever's it is gives it to who needs one next.
    pub fn free(&self) {
        // Release pairs with the load in `state` of whoever finds it free.
        self.0.store(FREE, Ordering::Release);
    }
}

/// What an event has to tell while nobody uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: not recorded, or reached.
    Idle,
    /// Recorded, not known to be reached.
    Pending,
}

const IDLE: u32 = 0;
const PENDING: u32 = 1;
const TAKEN: u32 = 2;

/// Whose turn it is with a slot's event: nobody's, or one thread's.
pub struct EventTurn(AtomicU32);

impl Default for EventTurn {
    fn default() -> Self {
        Self::new()
    }
}

impl EventTurn {
    /// Nobody's, and nothing to tell.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// The same; see [`SlotState::new`].
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Whether nobody has it and it rests so. Only who takes it may rely on it.
    #[inline]
    pub fn is(&self, rest: Rest) -> bool {
        self.0.load(Ordering::SeqCst) == word(rest)
    }

    /// Takes it if it rests so.
    #[inline]
    pub fn try_take(&self, rest: Rest) -> bool {
        // SeqCst: taking it comes before looking at the slot's state.
        self.0
            .compare_exchange(word(rest), TAKEN, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Gives it back.
    #[inline]
    pub fn release(&self, rest: Rest) {
        self.0.store(word(rest), Ordering::SeqCst);
    }
}

fn word(rest: Rest) -> u32 {
    match rest {
        Rest::Idle => IDLE,
        Rest::Pending => PENDING,
    }
}
