//! Stream capture: while it lasts, launches on the stream are recorded and not run, and the helper
//! keeps out of the driver.

use core::ffi::c_void;

use abi::types::{CUgraph, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode};

use super::hook;
use crate::client::Client;
use crate::helper;
use crate::streams::{Flavour, Place, STREAMS, Stream};

/// Defines the beginning of a capture.
macro_rules! begin {
    ($name:ident, $flavour:expr $(, $argument:ident: $type:ty)*) => {
        hook! {
            $name(stream: CUstream $(, $argument: $type)*);
            // An event of ours recorded meanwhile would become part of the graph, or void it.
            before |client| client.map(|_| helper::keep_out());
            after |client, _, result| {
                handle_begun(client, Stream::of(stream, $flavour), result);
            };
        }
    };
}

begin!(cuStreamBeginCapture, Flavour::Plain);
begin!(cuStreamBeginCapture_ptsz, Flavour::PerThread);
begin!(cuStreamBeginCapture_v2, Flavour::Plain, mode: CUstreamCaptureMode);
begin!(cuStreamBeginCapture_v2_ptsz, Flavour::PerThread, mode: CUstreamCaptureMode);
begin!(cuStreamBeginCaptureToCig, Flavour::Plain, parameters: *mut c_void);
begin!(cuStreamBeginCaptureToCig_ptsz, Flavour::PerThread, parameters: *mut c_void);
begin!(
    cuStreamBeginCaptureToGraph,
    Flavour::Plain,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    mode: CUstreamCaptureMode
);
begin!(
    cuStreamBeginCaptureToGraph_ptsz,
    Flavour::PerThread,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    mode: CUstreamCaptureMode
);

begin!(
    cuStreamBeginRecaptureToGraph,
    Flavour::Plain,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: *mut c_void,
    user_data: *mut c_void
);
begin!(
    cuStreamBeginRecaptureToGraph_ptsz,
    Flavour::PerThread,
    mode: CUstreamCaptureMode,
    graph: CUgraph,
    callback: *mut c_void,
    user_data: *mut c_void
);

hook! {
    cuStreamEndCaptureToCig(stream: CUstream);
    after |client, result| handle_ended(client, Stream::of(stream, Flavour::Plain), result);
}

hook! {
    cuStreamEndCaptureToCig_ptsz(stream: CUstream);
    after |client, result| handle_ended(client, Stream::of(stream, Flavour::PerThread), result);
}

hook! {
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    after |client, result| handle_ended(client, Stream::of(stream, Flavour::Plain), result);
}

hook! {
    cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph);
    after |client, result| handle_ended(client, Stream::of(stream, Flavour::PerThread), result);
}

fn handle_begun(client: Option<&Client>, stream: Stream, result: CUresult) {
    let Some(client) = client.filter(|_| result == CUresult::SUCCESS) else {
        return;
    };
    if let Place::Slot(index) = STREAMS.place(stream, client.home()) {
        STREAMS.set_capturing(index, true);
    }
}

/// A capture that failed has ended too, except for a thread that may not end it.
fn handle_ended(client: Option<&Client>, stream: Stream, result: CUresult) {
    let Some(client) = client.filter(|_| result != CUresult::STREAM_CAPTURE_WRONG_THREAD) else {
        return;
    };
    if let Some(index) = STREAMS.existing(stream, client.home()) {
        STREAMS.set_capturing(index, false);
        helper::wake(client);
    }
}
