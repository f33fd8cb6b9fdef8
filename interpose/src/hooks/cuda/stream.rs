//! Streams and their priorities; events shared with other processes, and the end of events.

use core::ffi::{c_int, c_uint};

use abi::types::{
    CUevent, CUgreenCtx, CUipcEventHandle, CUlaunchAttributeID, CUlaunchAttributeValue, CUresult,
    CUstream, CUstream_flags,
};
use client::marks::Marks;

use protocol::pages::Counter;

use super::{hook, stored};
use crate::driver;
use crate::platform::phase;
use crate::process::clients::{CLIENTS, Managed};
use crate::process::{Client, priority};
use crate::progress::contexts::{self, CONTEXTS};
use crate::progress::sight::{self, Sight};
use crate::progress::stream::{Flavour, Stream};
use crate::progress::streams::{Place, STREAMS};
use crate::progress::{completion, operations, stream_events, waking};

hook! {
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    before |client| {
        expect(client, flags);
        mapped(client, priority::DEFAULT)
    };
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
    before |client| {
        expect(client, flags);
        mapped(client, asked)
    };
    call |mapped, real| {
        let priority = mapped.copied().flatten().unwrap_or(asked);
        // SAFETY: the application's own arguments, passed on except for the priority.
        unsafe { real(stream, flags, priority) }
    };
    // SAFETY: this call's output parameter.
    after |client, _, result| unsafe { handle_created(client, stream, asked, result) };
}

hook! {
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    // SAFETY: this call's output parameter.
    after |_, result| unsafe {
        answer_priority(Stream::of(stream, Flavour::Plain), priority, result);
    };
}

hook! {
    cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int);
    // SAFETY: this call's output parameter.
    after |_, result| unsafe {
        answer_priority(Stream::of(stream, Flavour::PerThread), priority, result);
    };
}

hook! {
    cuGreenCtxStreamCreate(
        stream: *mut CUstream,
        context: CUgreenCtx,
        flags: c_uint,
        asked: c_int,
    );
    before |_| {
        let client = client_of_green(context);
        (client, mapped(client, asked))
    };
    call |prepared, real| {
        let priority = prepared.and_then(|(_, mapped)| *mapped).unwrap_or(asked);
        // SAFETY: the application's own arguments, passed on except for the priority.
        unsafe { real(stream, context, flags, priority) }
    };
    // SAFETY: this call's output parameter.
    after |_, (client, _), result| unsafe { handle_created(*client, stream, asked, result) };
}

/// Defines the setting of a stream's attribute: a priority is mapped as at the stream's creation.
macro_rules! set_attribute {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(
                stream: CUstream,
                attribute: CUlaunchAttributeID,
                value: *const CUlaunchAttributeValue,
            );
            // SAFETY: the application's value, valid for the call, or null.
            before |_| unsafe { asked_priority(Stream::of(stream, $flavour), attribute, value) };
            call |asked, real| match asked.copied().flatten() {
                Some((_, mapped)) => {
                    let own = CUlaunchAttributeValue::from_int(mapped);
                    // SAFETY: the application's own arguments, and a value that outlives the call.
                    unsafe { real(stream, attribute, &raw const own) }
                }
                // SAFETY: the application's own arguments, passed on.
                None => unsafe { real(stream, attribute, value) },
            };
            after |_, asked, result| {
                if let (Some((asked, _)), CUresult::SUCCESS) = (asked, result) {
                    handle_asked(Stream::of(stream, $flavour), *asked);
                }
            };
        }
    };
}

set_attribute!(cuStreamSetAttribute, Flavour::Plain);
set_attribute!(cuStreamSetAttribute_ptsz, Flavour::PerThread);

/// Defines the query of a stream's attribute: a priority is the one that was asked for.
macro_rules! attribute {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(
                stream: CUstream,
                attribute: CUlaunchAttributeID,
                value: *mut CUlaunchAttributeValue,
            );
            after |_, result| if attribute == CUlaunchAttributeID::PRIORITY {
                // SAFETY: this call's output parameter, which begins with the priority.
                unsafe { answer_priority(Stream::of(stream, $flavour), value.cast(), result) };
            };
        }
    };
}

attribute!(cuStreamGetAttribute, Flavour::Plain);
attribute!(cuStreamGetAttribute_ptsz, Flavour::PerThread);

macro_rules! copy_attributes {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(to: CUstream, from: CUstream);
            after |_, result| if result == CUresult::SUCCESS {
                handle_copied(Stream::of(to, $flavour), Stream::of(from, $flavour));
            };
        }
    };
}

copy_attributes!(cuStreamCopyAttributes, Flavour::Plain);
copy_attributes!(cuStreamCopyAttributes_ptsz, Flavour::PerThread);

macro_rules! destroy_stream {
    ($name:ident) => {
        hook! {
            $name(stream: CUstream);
            before |_| handle_ending(stream);
            after |_, asked, result| handle_kept(stream, *asked, result);
        }
    };
}

destroy_stream!(cuStreamDestroy);
destroy_stream!(cuStreamDestroy_v2);

macro_rules! destroy_event {
    ($name:ident) => {
        hook! {
            $name(event: CUevent);
            // Before the call: afterwards the address may already be another thread's event.
            before |_| STREAMS.events.handle_destroyed(event);
            after |_, (), _| ();
        }
    };
}

destroy_event!(cuEventDestroy);
destroy_event!(cuEventDestroy_v2);

hook! {
    cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
    after |_, result| if result == CUresult::SUCCESS {
        STREAMS.events.handle_shared(event);
    };
}

hook! {
    cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);
    after |_, result| {
        // SAFETY: the driver has written the event, as it succeeded.
        if let Some(event) = unsafe { stored(event, result) } {
            STREAMS.events.handle_shared(event);
        }
    };
}

fn expect(client: Option<&Client>, flags: c_uint) {
    let is_blocking = flags & CUstream_flags::NON_BLOCKING.0 == 0;
    if let Some(context) = CONTEXTS
        .current()
        .filter(|_| client.is_some() && is_blocking)
    {
        contexts::handle_ordered_stream(context);
    }
}

fn mapped(client: Option<&Client>, asked: c_int) -> Option<c_int> {
    let client = client?;
    let range = client.priorities?;
    Some(range.of(client.is_high_priority(), asked))
}

fn client_of_green(context: CUgreenCtx) -> Option<&'static Client> {
    if !phase::is_attached() {
        return None;
    }
    let (_, device) = driver::context_of_green(context).ok()?;
    match CLIENTS.of_device(device) {
        Managed::By(client) => Some(client),
        Managed::No | Managed::NotYet => None,
    }
}

/// The priority asked for a managed stream, and the mapped one; `None` for another attribute, or an
/// unmanaged stream. Safety: `value` is null or valid.
unsafe fn asked_priority(
    stream: Stream,
    attribute: CUlaunchAttributeID,
    value: *const CUlaunchAttributeValue,
) -> Option<(c_int, c_int)> {
    if attribute != CUlaunchAttributeID::PRIORITY || stream.is_default() {
        return None;
    }
    let Place::Slot(index) = STREAMS.place(stream) else {
        return None;
    };
    let client = STREAMS.client_of(index)?;
    let range = client.priorities?;
    // SAFETY: as the caller promises.
    let asked = unsafe { value.as_ref() }?.as_int();
    // The driver refuses a priority out of range.
    (range.clamp(asked) == asked).then(|| (asked, range.of(client.is_high_priority(), asked)))
}

/// A stream has another's attributes. A default stream's were never mapped: set the priority again.
fn handle_copied(to: Stream, from: Stream) {
    if to.is_default() {
        return;
    }
    let asked = STREAMS.asked_priority(from).unwrap_or(priority::DEFAULT);
    let Some(client) = STREAMS
        .existing(to)
        .and_then(|index| STREAMS.client_of(index))
    else {
        return;
    };
    if let Some(mapped) = mapped(Some(client), asked) {
        if from.is_default() {
            // A driver whose streams have no settable priority did not copy one either.
            let _ = driver::set_stream_priority(to.handle(), mapped);
        }
        handle_asked(to, asked);
    }
}

fn handle_asked(stream: Stream, asked: c_int) {
    STREAMS.handle_created(stream, asked);
    let index = STREAMS.existing(stream);
    if let Some(client) = index.and_then(|index| STREAMS.client_of(index))
        && let Some(range) = client.priorities
        && range.handle_asked(&client.priority_use, client.is_high_priority(), asked)
    {
        client.page.count(Counter::PrioritiesShared, 1);
    }
}

/// Keeps the priority that was asked for, for later queries. Safety: as [`stored`].
unsafe fn handle_created(
    client: Option<&Client>,
    stream: *const CUstream,
    asked: c_int,
    result: CUresult,
) {
    // SAFETY: as the caller promises.
    let Some((client, stream)) = client.zip(unsafe { stored(stream, result) }) else {
        return;
    };
    let stream = Stream::of(stream, Flavour::Plain);
    match client.priorities {
        Some(range) => handle_asked(stream, range.clamp(asked)),
        // The stream counts among its context's streams, with or without launches.
        None => _ = STREAMS.place(stream),
    }
}

/// Safety: as [`stored`].
unsafe fn answer_priority(stream: Stream, priority: *mut c_int, result: CUresult) {
    if result != CUresult::SUCCESS || priority.is_null() {
        return;
    }
    if let Some(asked) = STREAMS.asked_priority(stream) {
        // SAFETY: the driver has just written there.
        unsafe { *priority = asked };
    }
}

/// A stream is about to be destroyed. Its last work still runs: where [`sight`] allows an event,
/// one is recorded to show the end of that work; otherwise expected durations do. A high-priority
/// stream gets no event. Returns the priority that was asked for, if known.
fn handle_ending(stream: CUstream) -> Option<c_int> {
    let ending = Stream::of(stream, Flavour::Plain);
    if ending.is_default() {
        return None;
    }
    let asked = STREAMS.asked_priority(ending);
    let index = STREAMS.take_out(stream)?;
    let slot = STREAMS.slot(index)?;
    // A capture of it has ended, for which the helpers may have stayed out.
    waking::wake_all();
    let client = STREAMS.client_of(index).filter(|_| slot.is_in_flight());
    let Some(client) = client.filter(|client| !client.is_high_priority()) else {
        completion::give_up(index, slot, slot.issued());
        STREAMS.free(index);
        return asked;
    };
    if let Sight::Event | Sight::EventByLauncher = sight::sight_of(client, slot) {
        stream_events::record_last(slot, stream, operations::submitted(client));
    }
    slot.drain();
    waking::wake_idle(client);
    asked
}

/// The driver did not destroy the stream: queries still return the priority that was asked for.
fn handle_kept(stream: CUstream, asked: Option<c_int>, result: CUresult) {
    if result == CUresult::SUCCESS {
        return;
    }
    if let Some(asked) = asked {
        handle_asked(Stream::of(stream, Flavour::Plain), asked);
    }
}
