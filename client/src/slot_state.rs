//! The life of a stream's slot and the ownership of the slot's event: two atomics, and the rules
//! for changing them.
//! - *free*: left by the thread that makes a slot for a stream, under the lock of `streams`.
//! - *live*: left by the thread that ends the stream, or its context.
//! - *ending*: left only by the thread that ended the stream: to *draining* once an event stands
//!   behind its last work, to *free* if there is nothing to wait for.
//! - *draining*: left by the helper at that event, or by the thread that ends the context;
//!   [`SlotState::try_claim`] decides between them.
//!
//! So a slot is given up once, and never while a thread still puts an event behind its last work. A
//! thread that has taken the event of a slot that is not live must not touch the stream: the thread
//! that ends a stream makes the slot *ending*, then takes the event, then destroys the stream. The
//! model checker runs this source (`client/tests/interleavings.rs`).

use protocol::sync::{AtomicU32, Ordering};

/// The present use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No stream.
    Free,
    /// A stream that can be launched on.
    Live,
    /// A stream that a thread is about to destroy.
    Ending,
    /// A destroyed stream whose last work may still run; its event reports the end.
    Draining,
}

const FREE: u32 = 0;
const LIVE: u32 = 1;
const ENDING: u32 = 2;
const DRAINING: u32 = 3;

/// A slot's state (see the module's head).
pub struct SlotState(AtomicU32);

impl Default for SlotState {
    fn default() -> Self {
        Self::new()
    }
}

impl SlotState {
    /// For a slot without a stream.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// As above; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// The current state.
    #[inline]
    pub fn state(&self) -> State {
        // SeqCst: after taking the slot's event, and after a helper's store that it sleeps.
        match self.0.load(Ordering::SeqCst) {
            LIVE => State::Live,
            ENDING => State::Ending,
            DRAINING => State::Draining,
            _ => State::Free,
        }
    }

    /// Makes the slot live.
    pub fn begin(&self) {
        // Release pairs with the load in `state`: a live slot is filled in.
        self.0.store(LIVE, Ordering::Release);
    }

    /// Ends a live slot's stream: the caller owns the slot. Only under the lock of `streams`.
    pub fn end(&self) {
        self.0.store(ENDING, Ordering::SeqCst);
    }

    /// Leaves the slot to the thread that polls its event, which stands behind its last work.
    pub fn drain(&self) {
        // SeqCst: before checking whether the helper sleeps.
        self.0.store(DRAINING, Ordering::SeqCst);
    }

    /// Makes the caller the thread that gives up a draining slot.
    pub fn try_claim(&self) -> bool {
        let claimed =
            self.0
                .compare_exchange(DRAINING, ENDING, Ordering::SeqCst, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// Frees the slot. Only by its owner.
    pub fn free(&self) {
        // Release pairs with the load in `state` of the thread that finds it free.
        self.0.store(FREE, Ordering::Release);
    }
}

/// The meaning of an event's state while no thread uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Not recorded, or reached.
    Idle,
    /// Recorded, not known to be reached.
    Pending,
}

const IDLE: u32 = 0;
const PENDING: u32 = 1;
const TAKEN: u32 = 2;

/// Ownership of a slot's event: no thread, or one.
pub struct EventTurn(AtomicU32);

impl Default for EventTurn {
    fn default() -> Self {
        Self::new()
    }
}

impl EventTurn {
    /// Free and idle.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// As above; see [`SlotState::new`].
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Whether the event is free and in state `rest`. Reliable only after taking it.
    #[inline]
    pub fn is(&self, rest: Rest) -> bool {
        self.0.load(Ordering::SeqCst) == word(rest)
    }

    /// Takes the event if it is free and in state `rest`.
    #[inline]
    pub fn try_take(&self, rest: Rest) -> bool {
        // SeqCst: taking the event comes before checking the slot's state.
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
