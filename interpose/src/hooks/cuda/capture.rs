//! Stream capture: launches on the stream are recorded, not run; the helper avoids the driver.

use core::ffi::c_void;

use abi::types::{CUgraph, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode};

use super::hook;
use crate::driver;
use crate::progress::stream::{Flavour, Stream};
use crate::progress::streams::STREAMS;
use crate::progress::waking;

macro_rules! begin {
    ($name:ident, $flavour:expr $(, $argument:ident: $type:ty)*) => {
        hook! {
            $name(stream: CUstream $(, $argument: $type)*);
            // An event of ours recorded meanwhile would become part of the graph, or void it.
            before |_| waking::keep_out();
            after |_, _, result| handle_begun(Stream::of(stream, $flavour), result);
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
    after |_, result| handle_ended(Stream::of(stream, Flavour::Plain), result);
}

hook! {
    cuStreamEndCaptureToCig_ptsz(stream: CUstream);
    after |_, result| handle_ended(Stream::of(stream, Flavour::PerThread), result);
}

hook! {
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    after |_, result| handle_ended(Stream::of(stream, Flavour::Plain), result);
}

hook! {
    cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph);
    after |_, result| handle_ended(Stream::of(stream, Flavour::PerThread), result);
}

fn handle_begun(stream: Stream, result: CUresult) {
    if result == CUresult::SUCCESS {
        STREAMS.handle_capture_begun(stream);
    }
}

/// A failed end mostly ends the capture too, unless this thread may not end it or the call is
/// invalid. The driver is asked, but only during a capture: R595 does not survive being asked about
/// a handle that it has just refused.
fn handle_ended(stream: Stream, result: CUresult) {
    let is_refused = || !STREAMS.is_capturing() || driver::is_still_capturing(stream.handle());
    if result != CUresult::SUCCESS && is_refused() {
        return;
    }
    STREAMS.handle_capture_ended(stream);
    waking::wake_all();
}
