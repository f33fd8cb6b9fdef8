//! Our own events, which show when a mark in a stream has been reached. Each slot has one event. A
//! thread takes the event before it records or queries it, so the helper thread, a launching thread
//! and a thread that destroys the stream never use the event, or the stream's handle, at once;
//! [`client::slot_state`] has the order of taking slot and event.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::types::{CUevent, CUresult, CUstream};
use client::backoff;
use client::marks::Marks;
use client::slot_state::{EventTurn, Rest, State};
use protocol::clock::Clock;

use crate::driver;
use crate::process::Handle;
use crate::progress::slot::Slot;

pub(crate) struct Event {
    pub(super) turn: EventTurn,
    /// The handle; 0 before the first use. This and the following belong to the event's holder.
    handle: AtomicU64,
    /// The context it was made in: an event cannot be recorded in a stream of another.
    context: AtomicU64,
    mark: AtomicU64,
    /// [`crate::progress::operations::submitted`] when it was recorded.
    operations: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Pending,
    /// Not now: taken, or a capture forbids it.
    Later,
    /// The driver refuses. The context is broken or gone, and its work is over.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Reached(u64),
    NotYet(u64),
    /// The driver will not report any more whether everything up to this mark is.
    Lost(u64),
    /// Taken by another thread, or a capture forbids the query.
    Unknown,
}

impl Event {
    pub(crate) const fn new() -> Self {
        Self {
            turn: EventTurn::new(),
            handle: AtomicU64::new(0),
            context: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            operations: AtomicU32::new(0),
        }
    }

    /// The mark that it was last recorded behind; only a hint without taking the event.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.turn.is(Rest::Pending)
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.turn.is(Rest::Idle)
    }

    /// Takes the event in any state, which it returns. Its holder is in a driver call that does not
    /// wait for the device; `None`: that call took too long.
    fn take_patiently(&self) -> Option<Rest> {
        let mut taken = None;
        backoff::wait_until(&Clock::process(), || {
            let rests = [Rest::Idle, Rest::Pending];
            taken = rests.into_iter().find(|&rest| self.turn.try_take(rest));
            taken.is_some()
        });
        taken
    }

    /// Waits for its present holder. The caller has ended the slot's stream: afterwards no other
    /// thread uses the stream's handle, except one whose driver call took too long.
    pub(crate) fn wait_until_unused(&self) {
        if let Some(rest) = self.take_patiently() {
            self.turn.release(rest);
        }
    }
}

/// Records behind everything issued on a live stream that has a handle in this thread. `operations`
/// is [`crate::progress::operations::submitted`].
pub(crate) fn try_record(slot: &Slot, operations: u32) -> Recorded {
    if !slot.event.turn.try_take(Rest::Idle) {
        return Recorded::Later;
    }
    let Some(stream) = live(slot).and_then(Slot::stream_here) else {
        slot.event.turn.release(Rest::Idle);
        return Recorded::Later;
    };
    record_taken(slot, stream, operations)
}

/// Queries a live stream ([`Slot::stream_to_ask`]) for completion. Enqueues nothing.
pub(crate) fn try_idle(slot: &Slot, operations: u32) -> Reach {
    if !slot.event.turn.try_take(Rest::Idle) {
        return Reach::Unknown;
    }
    let mark = slot.issued();
    let result = match live(slot).and_then(Slot::stream_to_ask) {
        Some(stream) => driver::query_stream(stream),
        None => CUresult::STREAM_CAPTURE_UNSUPPORTED,
    };
    slot.event.turn.release(Rest::Idle);
    match result {
        CUresult::SUCCESS => {
            slot.set_idle_at(operations);
            Reach::Reached(mark)
        }
        CUresult::NOT_READY => Reach::NotYet(mark),
        result if is_capture(result) => Reach::Unknown,
        _ => Reach::Lost(mark),
    }
}

pub(crate) fn try_reach(slot: &Slot) -> Reach {
    if !slot.event.turn.try_take(Rest::Pending) {
        return Reach::Unknown;
    }
    let mark = slot.event.mark.load(Ordering::Relaxed);
    match driver::query_event(handle(slot.event.handle.load(Ordering::Relaxed))) {
        CUresult::SUCCESS => {
            slot.set_idle_at(slot.event.operations.load(Ordering::Relaxed));
            slot.event.turn.release(Rest::Idle);
            Reach::Reached(mark)
        }
        CUresult::NOT_READY => {
            slot.event.turn.release(Rest::Pending);
            Reach::NotYet(mark)
        }
        // Recorded into a capture after all: it will never be reached. A new one is recorded later.
        CUresult::CAPTURED_EVENT => {
            slot.event.turn.release(Rest::Idle);
            Reach::Unknown
        }
        result if is_capture(result) => {
            slot.event.turn.release(Rest::Pending);
            Reach::Unknown
        }
        _ => {
            // It will report nothing more; a new one is made if the slot is used again.
            slot.event.handle.store(0, Ordering::Relaxed);
            slot.event.turn.release(Rest::Idle);
            Reach::Lost(mark)
        }
    }
}

/// Records the event behind the last work of a stream that the caller has taken out and is about to
/// destroy. Returns whether it is pending; if not, nothing will show when that work is over.
pub(crate) fn record_last(slot: &Slot, stream: CUstream, operations: u32) -> bool {
    if slot.event.take_patiently().is_none() {
        return false;
    }
    if slot.is_in_flight() {
        return record_taken(slot, stream, operations) == Recorded::Pending;
    }
    slot.event.turn.release(Rest::Idle);
    false
}

/// The slot's context is gone, and the event with it.
pub(crate) fn forget(slot: &Slot) {
    slot.event.handle.store(0, Ordering::Relaxed);
    slot.event.turn.release(Rest::Idle);
}

/// A context is gone, with all events made in it, even those of slots whose streams ended before.
pub(crate) fn forget_all_of<'a>(slots: impl Iterator<Item = &'a Slot>, context: Handle) {
    for slot in slots {
        let event = &slot.event;
        if event.handle.load(Ordering::Relaxed) == 0
            || event.context.load(Ordering::Relaxed) != context.0
            || event.take_patiently().is_none()
        {
            continue;
        }
        // It may have been made anew meanwhile.
        if event.context.load(Ordering::Relaxed) == context.0 {
            event.handle.store(0, Ordering::Relaxed);
        }
        event.turn.release(Rest::Idle);
    }
}

/// The slot, if its stream can be used. The caller has taken the event, so the slot's stream is not
/// destroyed before the caller releases it ([`Event::wait_until_unused`]).
fn live(slot: &Slot) -> Option<&Slot> {
    (slot.state() == State::Live).then_some(slot)
}

/// Records the taken event. It is made and recorded in the slot's own context: an application may
/// destroy a stream, or launch on it, while another context is current, or none.
fn record_taken(slot: &Slot, stream: CUstream, operations: u32) -> Recorded {
    let mark = slot.issued();
    let record = || event_for(slot).map(|event| driver::record_event(event, stream));
    let own = slot.context();
    let is_current = driver::current_context().is_ok_and(|now| Handle::from(now) == own);
    let recorded = if is_current {
        record()
    } else {
        driver::with_context(own.context(), record).and_then(|recorded| recorded)
    };
    match recorded {
        Ok(CUresult::SUCCESS) => {
            slot.event.mark.store(mark, Ordering::Relaxed);
            slot.event.operations.store(operations, Ordering::Relaxed);
            slot.event.turn.release(Rest::Pending);
            Recorded::Pending
        }
        Ok(result) | Err(result) if is_capture(result) => {
            slot.event.turn.release(Rest::Idle);
            Recorded::Later
        }
        Ok(_) | Err(_) => {
            // The stream does not accept this event; the next one is made anew.
            slot.event.handle.store(0, Ordering::Relaxed);
            slot.event.turn.release(Rest::Idle);
            Recorded::Never
        }
    }
}

/// The slot's event, made anew if it has none in this context.
fn event_for(slot: &Slot) -> Result<CUevent, CUresult> {
    let known = slot.event.handle.load(Ordering::Relaxed);
    let context = slot.context().0;
    if known != 0 {
        if slot.event.context.load(Ordering::Relaxed) == context {
            return Ok(handle(known));
        }
        // Its context may be gone; the result does not matter.
        let _ = driver::destroy_event(handle(known));
        slot.event.handle.store(0, Ordering::Relaxed);
    }
    let event = driver::new_event()?;
    slot.event
        .handle
        .store(event.0.expose_provenance() as u64, Ordering::Relaxed);
    slot.event.context.store(context, Ordering::Relaxed);
    Ok(event)
}

fn handle(number: u64) -> CUevent {
    CUevent(core::ptr::with_exposed_provenance_mut(number as usize))
}

/// Whether a result only reports a capture under way (CUDA driver API, 900 to 908).
fn is_capture(result: CUresult) -> bool {
    (CUresult::STREAM_CAPTURE_UNSUPPORTED.0..=CUresult::STREAM_CAPTURE_WRONG_THREAD.0)
        .contains(&result.0)
}
