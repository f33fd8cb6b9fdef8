//! Events and waits, by which the application itself learns about completion.

use core::ffi::c_uint;

use abi::types::{CUcontext, CUevent, CUgreenCtx, CUresult, CUstream};

use super::hook;
use crate::memory::quota::HELD;
use crate::progress::completion::{
    Wait, handle_reached, mark_of_event, mark_of_stream, marks_of_context,
};
use crate::progress::slot::Mark;
use crate::progress::stream::{Flavour, Stream};
use crate::progress::streams::STREAMS;

macro_rules! stream_wait {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(stream: CUstream);
            before |_| mark_of_stream(Stream::of(stream, $flavour)).map(Wait::begin);
            after |_, wait, result| handle_waited(wait.as_ref(), result);
        }
    };
}

stream_wait!(cuStreamSynchronize, Flavour::Plain);
stream_wait!(cuStreamSynchronize_ptsz, Flavour::PerThread);

macro_rules! stream_query {
    ($name:ident, $flavour:expr) => {
        hook! {
            $name(stream: CUstream);
            before |_| mark_of_stream(Stream::of(stream, $flavour));
            after |_, mark, result| handle_complete(*mark, result);
        }
    };
}

stream_query!(cuStreamQuery, Flavour::Plain);
stream_query!(cuStreamQuery_ptsz, Flavour::PerThread);

hook! {
    cuEventSynchronize(event: CUevent);
    before |_| mark_of_event(event).map(Wait::begin);
    after |_, wait, result| handle_waited(wait.as_ref(), result);
}

hook! {
    cuEventQuery(event: CUevent);
    before |_| mark_of_event(event);
    after |_, mark, result| handle_complete(*mark, result);
}

hook! {
    cuCtxSynchronize();
    before |_| marks_of_context(CUcontext::NULL);
    after |_, marks, result| handle_all_complete(marks, result);
}

hook! {
    cuCtxSynchronize_v2(context: CUcontext);
    before |_| marks_of_context(context);
    after |_, marks, result| handle_all_complete(marks, result);
}

macro_rules! record {
    ($name:ident, $flavour:expr $(, $flags:ident)?) => {
        hook! {
            $name(event: CUevent, stream: CUstream $(, $flags: c_uint)?);
            before |_| mark_of_stream(Stream::of(stream, $flavour));
            after |_, mark, result| handle_recorded(event, *mark, result);
        }
    };
}

record!(cuEventRecord, Flavour::Plain);
record!(cuEventRecord_ptsz, Flavour::PerThread);
record!(cuEventRecordWithFlags, Flavour::Plain, flags);
record!(cuEventRecordWithFlags_ptsz, Flavour::PerThread, flags);

/// Defines the recording of an event behind all streams of a context. An event has only one mark
/// here, so waiting for this one shows nothing.
macro_rules! record_context {
    ($name:ident, $context:ty) => {
        hook! {
            $name(context: $context, event: CUevent);
            after |_, result| handle_recorded(event, None, result);
        }
    };
}

record_context!(cuCtxRecordEvent, CUcontext);
record_context!(cuGreenCtxRecordEvent, CUgreenCtx);

/// Defines the query of the time between two events, which is answered once both are reached.
macro_rules! elapsed {
    ($name:ident) => {
        hook! {
            $name(ms: *mut f32, start: CUevent, end: CUevent);
            before |_| [start, end].map(mark_of_event);
            after |_, marks, result| marks.iter().for_each(|mark| handle_complete(*mark, result));
        }
    };
}

elapsed!(cuEventElapsedTime);
elapsed!(cuEventElapsedTime_v2);

/// The call has returned: the work that `wait` names is complete, and no other is known to be.
fn handle_waited(wait: Option<&Wait>, result: CUresult) {
    if result != CUresult::SUCCESS {
        return;
    }
    if let Some(wait) = wait {
        wait.handle_reached();
    }
    HELD.pools.handle_waited();
}

fn handle_complete(mark: Option<Mark>, result: CUresult) {
    if result != CUresult::SUCCESS {
        return;
    }
    if let Some(mark) = mark {
        handle_reached(mark);
    }
    HELD.pools.handle_waited();
}

fn handle_all_complete(marks: &[Mark], result: CUresult) {
    for mark in marks {
        handle_complete(Some(*mark), result);
    }
    handle_complete(None, result);
}

fn handle_recorded(event: CUevent, mark: Option<Mark>, result: CUresult) {
    if result != CUresult::SUCCESS {
        return;
    }
    match mark {
        // In a capture nothing was put into the stream.
        Some(mark) if !STREAMS.is_capturing() => STREAMS.events.handle_recorded(event, mark),
        _ => STREAMS.events.forget(event),
    }
}
