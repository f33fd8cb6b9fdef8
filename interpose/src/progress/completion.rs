//! Completion as shown by the application's own waits. A mark is taken before the driver's call and
//! completed after its success: launches in between may still run. Only the driver's guarantees are
//! used: a stream's synchronisation completes that stream alone, even the legacy stream's, which
//! usually completes others too.

use abi::types::{CUcontext, CUevent};
use client::completion;
use client::marks::Marks;

use crate::process::{Client, Handle};
use crate::progress::contexts::CONTEXTS;
use crate::progress::operations;
use crate::progress::slot::{Mark, Slot};
use crate::progress::stream::{Kind, Stream};
use crate::progress::streams::STREAMS;

pub(crate) fn mark_of_stream(stream: Stream) -> Option<Mark> {
    let slot = STREAMS.existing(stream)?;
    let mark = STREAMS.slot(slot)?.issued();
    Some(Mark { slot, mark })
}

pub(crate) fn mark_of_event(event: CUevent) -> Option<Mark> {
    STREAMS.events.find(event)
}

/// The marks after everything launched in a context; null means the calling thread's.
pub(crate) fn marks_of_context(context: CUcontext) -> Vec<Mark> {
    let context = match Handle::from(context) {
        Handle(0) => CONTEXTS.current(),
        given => Some(given),
    };
    let Some(context) = context else {
        return Vec::new();
    };
    let device = CONTEXTS.device_of(context.context());
    // An overflow slot has no context of its own: it completes with its device's only one.
    let is_all = device.is_some_and(|device| CONTEXTS.count_on(device) == 1);
    let is_within = |(index, slot): &(u32, &Slot)| {
        slot.context() == context
            || is_all
                && slot.context() == Handle(0)
                && STREAMS.client_of(*index).map(|client| client.device) == device
    };
    STREAMS
        .used()
        // Work that was only expected to be complete is now observed to be.
        .filter(|(_, slot)| !slot.is_surely_complete())
        .filter(is_within)
        .map(|(index, slot)| Mark {
            slot: index,
            mark: slot.issued(),
        })
        .collect()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    mark: Mark,
    /// When it began, on the client's clock, ns; `u64::MAX`: it shows nothing about durations.
    began_ns: u64,
}

impl Wait {
    pub(crate) fn begin(mark: Mark) -> Self {
        let teaches = |slot: &Slot| {
            // Waiting for the legacy stream also waits for the streams that it orders.
            let is_more = slot.kind() == Kind::Legacy && CONTEXTS.is_mixed(slot.context());
            slot.known() < mark.mark && !is_more
        };
        let teacher = best_effort(mark.slot).filter(|(slot, _)| teaches(slot));
        let began_ns = teacher.map_or(u64::MAX, |(_, client)| client.clock.now_ns());
        Self { mark, began_ns }
    }

    pub(crate) fn handle_reached(&self) {
        reached(self.mark, self.began_ns);
    }
}

pub(crate) fn handle_reached(mark: Mark) {
    reached(mark, u64::MAX);
}

/// As above, found out by a call that waited since `began_ns`; `u64::MAX`: no such call.
fn reached(mark: Mark, began_ns: u64) {
    let Some((slot, client)) = best_effort(mark.slot) else {
        return complete(mark.slot, mark.mark);
    };
    let now_ns = client.clock.now_ns();
    if slot.issued() == mark.mark {
        slot.set_idle_at(operations::submitted(client));
    }
    complete(mark.slot, mark.mark);
    slot.waited().handle_waited(mark.mark, began_ns, now_ns);
}

fn best_effort(index: u32) -> Option<(&'static Slot, &'static Client)> {
    let client = STREAMS.client_of(index)?;
    let slot = STREAMS.slot(index)?;
    (!client.is_high_priority()).then_some((slot, client))
}

/// Everything up to `mark` is expected to be complete by now.
pub(crate) fn expect(index: u32, slot: &Slot, mark: u64) {
    if let Some(client) = STREAMS.client_of(index) {
        completion::expect(client, slot, mark);
    }
}

/// Counts everything up to `mark` as complete, because nothing will report its completion.
pub(crate) fn give_up(index: u32, slot: &Slot, mark: u64) {
    if !slot.is_surely_complete() {
        slot.give_up(mark);
    }
    complete(index, mark);
}

pub(crate) fn complete(index: u32, mark: u64) {
    // The client first: once all is complete the slot may be reused.
    if let Some((slot, client)) = STREAMS.slot(index).zip(STREAMS.client_of(index)) {
        completion::complete(client, &client.thread(), (index, slot), mark);
    }
}
