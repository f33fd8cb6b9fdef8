//! Events and waiting: what the application itself finds out about completion.

use core::ffi::c_uint;

use abi::types::{CUcontext, CUevent, CUresult, CUstream};

use super::hook;
use crate::client::Client;
use crate::completion::{Mark, handle_reached, mark_of_event, mark_of_stream, marks_of_context};
use crate::events::EVENTS;
use crate::streams::{Flavour, STREAMS, Stream};

/// Defines a wait for, or a question about, a stream.
macro_rules! stream_wait {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(stream: CUstream);
            before |client| client
                .and_then(|client| mark_of_stream(client, Stream::of(stream, $flavour)));
            after |client, mark, result| handle_waited(client, *mark, result);
        }
    };
}

stream_wait!(cuStreamSynchronize, Flavour::Plain);
stream_wait!(cuStreamSynchronize_ptsz, Flavour::PerThread);
stream_wait!(cuStreamQuery, Flavour::Plain);
stream_wait!(cuStreamQuery_ptsz, Flavour::PerThread);

/// Defines a wait for, or a question about, an event.
macro_rules! event_wait {
    ($name:ident) => {
        hook! {
            $name(event: CUevent);
            before |client| client.and_then(|_| mark_of_event(event));
            after |client, mark, result| handle_waited(client, *mark, result);
        }
    };
}

event_wait!(cuEventSynchronize);
event_wait!(cuEventQuery);

hook! {
    cuCtxSynchronize();
    before |client| client.map(|client| marks_of_context(client, CUcontext::NULL));
    after |client, marks, result| handle_context_waited(client, marks.as_deref(), result);
}

hook! {
    cuCtxSynchronize_v2(context: CUcontext);
    before |client| client.map(|client| marks_of_context(client, context));
    after |client, marks, result| handle_context_waited(client, marks.as_deref(), result);
}

/// Defines the recording of an event.
macro_rules! record {
    ($name:ident, $flavour:expr $(, $flags:ident)?) => {
        hook! {
            $name(event: CUevent, stream: CUstream $(, $flags: c_uint)?);
            before |client| client
                .and_then(|client| mark_of_stream(client, Stream::of(stream, $flavour)));
            after |client, mark, result| handle_recorded(client, event, *mark, result);
        }
    };
}

record!(cuEventRecord, Flavour::Plain);
record!(cuEventRecord_ptsz, Flavour::PerThread);
record!(cuEventRecordWithFlags, Flavour::Plain, flags);
record!(cuEventRecordWithFlags_ptsz, Flavour::PerThread, flags);

fn handle_waited(client: Option<&Client>, mark: Option<Mark>, result: CUresult) {
    if let (Some(client), Some(mark), CUresult::SUCCESS) = (client, mark, result) {
        handle_reached(client, mark);
    }
}

fn handle_context_waited(client: Option<&Client>, marks: Option<&[Mark]>, result: CUresult) {
    for mark in marks.into_iter().flatten() {
        handle_waited(client, Some(*mark), result);
    }
}

fn handle_recorded(client: Option<&Client>, event: CUevent, mark: Option<Mark>, result: CUresult) {
    if client.is_none() || result != CUresult::SUCCESS {
        return;
    }
    match mark {
        // In a capture nothing was put into the stream.
        Some(mark) if !STREAMS.is_capturing() => EVENTS.handle_recorded(event, mark),
        _ => EVENTS.forget(event),
    }
}
