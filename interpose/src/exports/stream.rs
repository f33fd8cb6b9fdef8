//! Streams and their priorities, and the end of events.

use core::ffi::{c_int, c_uint};

use abi::types::{CUevent, CUresult, CUstream};

use super::{hook, stored};
use crate::client::Client;
use crate::events::EVENTS;
use crate::priority;
use crate::streams::{Flavour, STREAMS, Stream};
use crate::{completion, driver, helper, marks};

hook! {
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    before |client| mapped(client, priority::DEFAULT);
    call |mapped, real| match mapped.copied().flatten() {
        Some(mapped) if mapped != priority::DEFAULT => {
            driver::create_stream(stream, flags, mapped)
        }
        // SAFETY: the application's own arguments, passed on.
        _ => unsafe { real(stream, flags) },
    };
    // SAFETY: this call's output parameter.
    after |client, _, result| unsafe {
        handle_created(client, stream, priority::DEFAULT, result);
    };
}

hook! {
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, asked: c_int);
    before |client| mapped(client, asked);
    call |mapped, real| {
        let priority = mapped.copied().flatten().unwrap_or(asked);
        // SAFETY: the application's own arguments, passed on but for the number of the priority.
        unsafe { real(stream, flags, priority) }
    };
    // SAFETY: this call's output parameter.
    after |client, _, result| unsafe { handle_created(client, stream, asked, result) };
}

hook! {
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    // SAFETY: this call's output parameter.
    after |client, result| unsafe {
        answer_priority(client, Stream::of(stream, Flavour::Plain), priority, result);
    };
}

hook! {
    cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int);
    // SAFETY: this call's output parameter.
    after |client, result| unsafe {
        answer_priority(client, Stream::of(stream, Flavour::PerThread), priority, result);
    };
}

/// Defines the end of a stream.
macro_rules! destroy_stream {
    ($name:ident) => {
        hook! {
            $name(stream: CUstream);
            before |client| {
                if let Some(client) = client {
                    handle_ending(client, stream);
                }
            };
            after |_, (), _| ();
        }
    };
}

destroy_stream!(cuStreamDestroy);
destroy_stream!(cuStreamDestroy_v2);

/// Defines the end of an event.
macro_rules! destroy_event {
    ($name:ident) => {
        hook! {
            $name(event: CUevent);
            // Before the call: afterwards the address may already be another thread's event.
            before |_| EVENTS.forget(event);
            after |_, (), _| ();
        }
    };
}

destroy_event!(cuEventDestroy);
destroy_event!(cuEventDestroy_v2);

/// What a stream gets that asks for this priority.
fn mapped(client: Option<&Client>, asked: c_int) -> Option<c_int> {
    let client = client?;
    let range = client.priorities?;
    Some(range.of(client.is_high_priority(), asked))
}

/// Keeps what was asked for, which the application gets back when it asks.
///
/// # Safety
/// As [`stored`].
unsafe fn handle_created(
    client: Option<&Client>,
    stream: *const CUstream,
    asked: c_int,
    result: CUresult,
) {
    // SAFETY: the caller's promise.
    let Some((client, stream)) = client.zip(unsafe { stored(stream, result) }) else {
        return;
    };
    if let Some(range) = client.priorities {
        let stream = Stream::of(stream, Flavour::Plain);
        STREAMS.handle_created(stream, client.home(), range.clamp(asked));
    }
}

/// # Safety
/// As [`stored`].
unsafe fn answer_priority(
    client: Option<&Client>,
    stream: Stream,
    priority: *mut c_int,
    result: CUresult,
) {
    if result != CUresult::SUCCESS || priority.is_null() {
        return;
    }
    let asked = client.and_then(|client| STREAMS.asked_priority(stream, client.home()));
    if let Some(asked) = asked {
        // SAFETY: the driver has just written there.
        unsafe { *priority = asked };
    }
}

/// A stream is about to be destroyed. Its last work still runs: an event stays behind to tell when
/// that is over, which the helper asks.
fn handle_ending(client: &Client, stream: CUstream) {
    let ending = Stream::of(stream, Flavour::Plain);
    if ending.is_default() {
        return;
    }
    let Some(index) = STREAMS.take_out(ending, client.home()) else {
        return;
    };
    let Some(slot) = STREAMS.slot(index) else {
        return;
    };
    if marks::record_last(slot, stream) {
        helper::wake(client);
        return;
    }
    let issued = slot.issued();
    completion::complete(client, index, issued);
    STREAMS.free(index);
}
