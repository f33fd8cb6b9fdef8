//! Stream capture: operations on a stream become nodes of a graph. A capture begins on its *origin*
//! stream, spreads to others through events recorded in it, and ends on the origin, when all others
//! have been joined again. An operation that would tie captured work to running work is refused and
//! *invalidates* the capture, which can then only be ended.
//!
//! **Unsafe calls.** Some calls may wait for streams, or use the legacy stream, internally
//! ([`UNSAFE`]). A capture that is not relaxed forbids them to the thread that began it, a global
//! one to every thread; each thread can opt out (`cuThreadExchangeStreamCaptureMode`). The codes
//! and rules are those of the CUDA driver API's documentation of `cuStreamBeginCapture`,
//! `cuThreadExchangeStreamCaptureMode` and results 900 to 908.

use std::collections::{HashMap, HashSet};
use std::thread::ThreadId;

use abi::id;
use abi::types::{CUgraphEdgeData, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};
use softgpu::wire::StreamKind;

use crate::driver::Driver;
use crate::graphs::Kind;
use crate::tables::{Stream, Tables};
use crate::thread;

#[derive(Debug, Default)]
pub(crate) struct Captures {
    id_last: u64,
    running: HashMap<u64, Capture>,
    /// The capture of each captured stream, by its slot.
    of_slot: HashMap<u32, u64>,
    /// Events last recorded in a capture, by handle.
    events: HashMap<u64, Captured>,
}

#[derive(Debug)]
struct Capture {
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    origin: u32,
    graph: u64,
    is_given: bool,
    is_invalid: bool,
    streams: HashMap<u32, Lane>,
}

#[derive(Debug)]
struct Lane {
    kind: StreamKind,
    context: u64,
    after: Vec<u64>,
    /// Zeroes of the same number, for queries of edge data.
    edge_data: Vec<CUgraphEdgeData>,
}

#[derive(Clone, Debug)]
struct Captured {
    capture: u64,
    after: Vec<u64>,
}

/// The result of a query about a capture. The addresses are valid until the stream is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) status: CUstreamCaptureStatus,
    pub(crate) id: u64,
    pub(crate) graph: u64,
    pub(crate) after: usize,
    pub(crate) edge_data: usize,
    pub(crate) count: usize,
}

impl Captures {
    fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn owns(&self, graph: u64) -> bool {
        self.running
            .values()
            .any(|capture| capture.graph == graph && !capture.is_given)
    }

    fn invalidate(&mut self, which: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for capture in self.running.values_mut().filter(|capture| which(capture)) {
            capture.is_invalid = true;
            any = true;
        }
        any
    }

    /// Invalidates the captures that work on the context's legacy stream would wait for.
    fn invalidate_blocking(&mut self, context: u64) -> bool {
        self.invalidate(|capture| capture.is_blocking_in(context))
    }

    /// Refuses operations that cannot be recorded: on a stream in capture, or on a legacy stream
    /// that such a stream is ordered with.
    pub(crate) fn check_submit(&mut self, stream: &Stream) -> Result<(), CUresult> {
        if self.is_empty() {
            return Ok(());
        }
        if let Some(&id) = self.of_slot.get(&stream.slot) {
            self.invalidate_one(id);
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        if stream.kind == StreamKind::Legacy && self.invalidate_blocking(stream.context) {
            return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
        }
        Ok(())
    }

    fn invalidate_one(&mut self, id: u64) {
        if let Some(capture) = self.running.get_mut(&id) {
            capture.is_invalid = true;
        }
    }

    /// Refuses an unsafe call of this thread, and invalidates the captures that forbid it.
    fn check_unsafe(&mut self) -> Result<(), CUresult> {
        if self.is_empty() {
            return Ok(());
        }
        let mode = thread::capture_mode();
        let this = std::thread::current().id();
        let forbids = |capture: &Capture| match (capture.mode, mode) {
            (_, CUstreamCaptureMode::RELAXED) | (CUstreamCaptureMode::RELAXED, _) => false,
            _ if capture.thread == this => true,
            (CUstreamCaptureMode::GLOBAL, CUstreamCaptureMode::GLOBAL) => true,
            _ => false,
        };
        if self.invalidate(forbids) {
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    fn end(&mut self, id: u64) -> Option<Capture> {
        self.of_slot.retain(|_, other| *other != id);
        self.running.remove(&id)
    }

    /// Handles a stream's destruction. Returns the graph that a capture begun on it had created.
    pub(crate) fn handle_stream_destroyed(&mut self, slot: u32) -> Option<u64> {
        let id = self.of_slot.remove(&slot)?;
        let capture = self.running.get_mut(&id)?;
        capture.streams.remove(&slot);
        capture.is_invalid = true;
        if capture.origin != slot {
            return None;
        }
        let ended = self.end(id).filter(|capture| !capture.is_given);
        ended.map(|capture| capture.graph)
    }

    pub(crate) fn handle_event_destroyed(&mut self, event: u64) {
        self.events.remove(&event);
    }

    /// Refuses a query of an event that was recorded in a capture.
    fn check_event(&mut self, event: u64) -> Result<(), CUresult> {
        let Some(captured) = self.events.get(&event) else {
            return Ok(());
        };
        let id = captured.capture;
        self.invalidate_one(id);
        Err(CUresult::CAPTURED_EVENT)
    }
}

impl Capture {
    fn is_blocking_in(&self, context: u64) -> bool {
        self.streams
            .values()
            .any(|lane| lane.kind == StreamKind::Blocking && lane.context == context)
    }
}

impl Lane {
    fn new(stream: &Stream, after: Vec<u64>) -> Self {
        let mut lane = Self {
            kind: stream.kind,
            context: stream.context,
            after: Vec::new(),
            edge_data: Vec::new(),
        };
        lane.set(after);
        lane
    }

    fn set(&mut self, after: Vec<u64>) {
        self.edge_data = vec![CUgraphEdgeData::default(); after.len()];
        self.after = after;
    }
}

impl Driver {
    pub(crate) fn begin_capture(
        &self,
        stream: &Stream,
        mode: CUstreamCaptureMode,
        given: Option<(u64, Vec<u64>)>,
    ) -> Result<(), CUresult> {
        if mode.name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        if stream.kind == StreamKind::Legacy {
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut tables = self.tables.lock();
        if tables.captures.of_slot.contains_key(&stream.slot) {
            return Err(CUresult::ILLEGAL_STATE);
        }
        let is_given = given.is_some();
        let (graph, after) = match given {
            Some((graph, after)) => {
                for &node in &after {
                    if tables.graphs.node(node)?.graph != graph {
                        return Err(CUresult::INVALID_VALUE);
                    }
                }
                tables.graphs.graph(graph)?;
                (graph, after)
            }
            None => {
                let graph = tables.new_handle();
                tables.graphs.graphs.insert(graph, Default::default());
                (graph, Vec::new())
            }
        };
        let captures = &mut tables.captures;
        captures.id_last += 1;
        let id = captures.id_last;
        captures.of_slot.insert(stream.slot, id);
        let capture = Capture {
            mode,
            thread: std::thread::current().id(),
            origin: stream.slot,
            graph,
            is_given,
            is_invalid: false,
            streams: HashMap::from([(stream.slot, Lane::new(stream, after))]),
        };
        captures.running.insert(id, capture);
        Ok(())
    }

    /// Ends the capture that began on a stream. Returns its graph.
    pub(crate) fn end_capture(&'static self, stream: &Stream) -> Result<u64, CUresult> {
        let mut ended = Default::default();
        let result = {
            let mut tables = self.tables.lock();
            let captures = &mut tables.captures;
            let id = *captures
                .of_slot
                .get(&stream.slot)
                .ok_or(CUresult::ILLEGAL_STATE)?;
            let capture = captures.running.get(&id).ok_or(CUresult::ILLEGAL_STATE)?;
            if capture.origin != stream.slot {
                captures.invalidate_one(id);
                return Err(CUresult::STREAM_CAPTURE_UNMATCHED);
            }
            let is_threads = capture.mode != CUstreamCaptureMode::RELAXED;
            if is_threads && capture.thread != std::thread::current().id() {
                return Err(CUresult::STREAM_CAPTURE_WRONG_THREAD);
            }
            let capture = captures.end(id).ok_or(CUresult::ILLEGAL_STATE)?;
            let why = if capture.is_invalid {
                Some(CUresult::STREAM_CAPTURE_INVALIDATED)
            } else if !is_joined(&tables, &capture) {
                Some(CUresult::STREAM_CAPTURE_UNJOINED)
            } else {
                None
            };
            match why {
                None => Ok(capture.graph),
                Some(why) => {
                    if !capture.is_given {
                        tables.graphs.remove(capture.graph, &mut ended);
                    }
                    Err(why)
                }
            }
        };
        self.handle_ended(ended)?;
        result
    }

    /// State of a stream's capture. Refused for the legacy stream beside a captured blocking one.
    pub(crate) fn capture_info(&self, stream: &Stream) -> Result<Info, CUresult> {
        let tables = self.tables.lock();
        let captures = &tables.captures;
        let none = Info {
            status: CUstreamCaptureStatus::NONE,
            id: 0,
            graph: 0,
            after: 0,
            edge_data: 0,
            count: 0,
        };
        let blocks = |capture: &Capture| capture.is_blocking_in(stream.context);
        if stream.kind == StreamKind::Legacy && captures.running.values().any(blocks) {
            return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
        }
        let Some(&id) = captures.of_slot.get(&stream.slot) else {
            return Ok(none);
        };
        let capture = captures.running.get(&id).ok_or(CUresult::ILLEGAL_STATE)?;
        if capture.is_invalid {
            let status = CUstreamCaptureStatus::INVALIDATED;
            return Ok(Info { status, ..none });
        }
        let lane = &capture.streams[&stream.slot];
        Ok(Info {
            status: CUstreamCaptureStatus::ACTIVE,
            id,
            graph: capture.graph,
            after: lane.after.as_ptr().expose_provenance(),
            edge_data: lane.edge_data.as_ptr().expose_provenance(),
            count: lane.after.len(),
        })
    }

    pub(crate) fn update_capture(
        &self,
        stream: &Stream,
        nodes: &[u64],
        replaces: bool,
    ) -> Result<(), CUresult> {
        let tables = &mut *self.tables.lock();
        let (capture, slot) =
            capture_of(&mut tables.captures, stream)?.ok_or(CUresult::ILLEGAL_STATE)?;
        for &node in nodes {
            if tables.graphs.node(node)?.graph != capture.graph {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        let lane = capture
            .streams
            .get_mut(&slot)
            .ok_or(CUresult::ILLEGAL_STATE)?;
        let mut after = if replaces {
            Vec::new()
        } else {
            lane.after.clone()
        };
        after.extend(
            nodes
                .iter()
                .filter(|node| !lane.after.contains(node) || replaces),
        );
        lane.set(after);
        Ok(())
    }

    /// Whether the stream is in capture; an error if that capture was invalidated.
    pub(crate) fn is_captured(&self, stream: &Stream) -> Result<bool, CUresult> {
        let mut tables = self.tables.lock();
        if tables.captures.is_empty() {
            return Ok(false);
        }
        Ok(capture_of(&mut tables.captures, stream)?.is_some())
    }

    /// Records an operation as the node that `make` returns, if the stream is in capture.
    pub(crate) fn try_capture(
        &self,
        stream: &Stream,
        make: impl FnOnce(&mut Tables) -> Result<Kind, CUresult>,
    ) -> Result<bool, CUresult> {
        let tables = &mut *self.tables.lock();
        if tables.captures.is_empty() {
            return Ok(false);
        }
        let Some((capture, slot)) = capture_of(&mut tables.captures, stream)? else {
            return Ok(false);
        };
        let (graph, after) = (capture.graph, capture.streams[&slot].after.clone());
        let kind = make(tables)?;
        if matches!(kind, Kind::Kernel(_) | Kind::Child(_)) {
            self.link.count_captured(stream.slot);
        }
        let node = tables.add_node(graph, &after, kind)?;
        if let Some((capture, slot)) = capture_of(&mut tables.captures, stream)?
            && let Some(lane) = capture.streams.get_mut(&slot)
        {
            lane.set(vec![node]);
        }
        Ok(true)
    }

    /// Records an event in the stream's capture, if any; otherwise it is one of running work.
    pub(crate) fn try_capture_record(
        &self,
        stream: &Stream,
        event: u64,
        is_external: bool,
    ) -> Result<bool, CUresult> {
        if is_external {
            return self.try_capture(stream, |_| Ok(Kind::Record(event)));
        }
        let tables = &mut *self.tables.lock();
        if tables.captures.events.is_empty() && tables.captures.is_empty() {
            return Ok(false);
        }
        let Some((capture, slot)) = capture_of(&mut tables.captures, stream)? else {
            tables.captures.events.remove(&event);
            return Ok(false);
        };
        let after = capture.streams[&slot].after.clone();
        let capture = tables.captures.of_slot[&stream.slot];
        tables
            .captures
            .events
            .insert(event, Captured { capture, after });
        Ok(true)
    }

    /// Lets a captured stream wait for an event, or brings the stream into the event's capture.
    pub(crate) fn try_capture_wait(
        &self,
        stream: &Stream,
        event: u64,
        is_external: bool,
    ) -> Result<bool, CUresult> {
        if is_external {
            return self.try_capture(stream, |_| Ok(Kind::Wait(event)));
        }
        let tables = &mut *self.tables.lock();
        let captures = &mut tables.captures;
        if captures.events.is_empty() && captures.is_empty() {
            return Ok(false);
        }
        let own = match capture_of(captures, stream)? {
            Some(_) => Some(captures.of_slot[&stream.slot]),
            None => None,
        };
        match (own, captures.events.get(&event).cloned()) {
            (None, None) => Ok(false),
            (Some(own), None) => {
                let was_recorded = tables
                    .events
                    .get(&event)
                    .is_some_and(|event| event.last.is_some());
                if !was_recorded {
                    return Ok(true);
                }
                captures.invalidate_one(own);
                Err(CUresult::STREAM_CAPTURE_ISOLATION)
            }
            (None, Some(captured)) => join(captures, stream, captured),
            (Some(own), Some(captured)) if own == captured.capture => {
                join(captures, stream, captured)
            }
            (Some(own), Some(captured)) => {
                captures.invalidate_one(own);
                captures.invalidate_one(captured.capture);
                Err(CUresult::STREAM_CAPTURE_MERGE)
            }
        }
    }

    pub(crate) fn check_submit(&self, stream: &Stream) -> Result<(), CUresult> {
        self.tables.lock().captures.check_submit(stream)
    }

    pub(crate) fn check_event(&self, event: u64) -> Result<(), CUresult> {
        self.tables.lock().captures.check_event(event)
    }

    pub(crate) fn check_capture(&self, care: Care) -> Result<(), CUresult> {
        match care {
            Care::None => Ok(()),
            Care::Unsafe => self.tables.lock().captures.check_unsafe(),
            Care::Legacy => {
                let Ok((context, _)) = self.current() else {
                    return Ok(());
                };
                let captures = &mut self.tables.lock().captures;
                if captures.invalidate_blocking(context) {
                    return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
                }
                captures.check_unsafe()
            }
            Care::Context => {
                let Ok((context, _)) = self.current() else {
                    return Ok(());
                };
                let in_context = |capture: &Capture| {
                    let mut lanes = capture.streams.values();
                    lanes.any(|lane| lane.context == context)
                };
                let captures = &mut self.tables.lock().captures;
                if captures.invalidate(in_context) {
                    return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
                }
                captures.check_unsafe()
            }
        }
    }
}

/// The stream's valid capture and slot. A legacy stream is in no capture, and cannot be used while
/// a blocking stream is in one.
fn capture_of<'a>(
    captures: &'a mut Captures,
    stream: &Stream,
) -> Result<Option<(&'a mut Capture, u32)>, CUresult> {
    let Some(&id) = captures.of_slot.get(&stream.slot) else {
        if stream.kind == StreamKind::Legacy && captures.invalidate_blocking(stream.context) {
            return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
        }
        return Ok(None);
    };
    match captures.running.get_mut(&id) {
        Some(capture) if capture.is_invalid => Err(CUresult::STREAM_CAPTURE_INVALIDATED),
        Some(capture) => Ok(Some((capture, stream.slot))),
        None => Ok(None),
    }
}

/// Brings a stream into an event's capture, behind the event.
fn join(captures: &mut Captures, stream: &Stream, captured: Captured) -> Result<bool, CUresult> {
    let id = captured.capture;
    let Some(capture) = captures.running.get_mut(&id) else {
        return Err(CUresult::CAPTURED_EVENT);
    };
    if stream.kind == StreamKind::Legacy {
        capture.is_invalid = true;
        return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
    }
    if capture.is_invalid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    let lane = capture
        .streams
        .entry(stream.slot)
        .or_insert_with(|| Lane::new(stream, Vec::new()));
    let mut after = lane.after.clone();
    for node in captured.after {
        if !after.contains(&node) {
            after.push(node);
        }
    }
    lane.set(after);
    captures.of_slot.insert(stream.slot, id);
    Ok(true)
}

/// Whether the origin depends on everything recorded on other streams.
fn is_joined(tables: &Tables, capture: &Capture) -> bool {
    let Ok(graph) = tables.graphs.graph(capture.graph) else {
        return false;
    };
    let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
    for edge in &graph.edges {
        before.entry(edge.to).or_default().push(edge.from);
    }
    let Some(origin) = capture.streams.get(&capture.origin) else {
        return false;
    };
    let mut reached: HashSet<u64> = HashSet::new();
    let mut next: Vec<u64> = origin.after.clone();
    while let Some(node) = next.pop() {
        if reached.insert(node) {
            next.extend(before.get(&node).into_iter().flatten());
        }
    }
    capture
        .streams
        .values()
        .flat_map(|lane| &lane.after)
        .all(|node| reached.contains(node))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    None,
    /// The call may wait, or use the legacy stream: see the module's text.
    Unsafe,
    /// The call uses the legacy stream of the current context and waits.
    Legacy,
    /// The call waits for all streams of the current context, those in capture too.
    Context,
}

/// The effect of an entry point on captures. Unsafe here are calls that allocate, free, load, wait
/// or copy without a stream; NVIDIA's examples are `cudaMalloc` and `cudaEventQuery`.
pub(crate) const fn care(index: usize) -> Care {
    if is_among(index, &WHOLE_CONTEXT) {
        Care::Context
    } else if is_among(index, &ON_LEGACY) {
        Care::Legacy
    } else if is_among(index, &UNSAFE) {
        Care::Unsafe
    } else {
        Care::None
    }
}

const fn is_among(index: usize, entry_points: &[usize]) -> bool {
    let mut place = 0;
    while place < entry_points.len() {
        if entry_points[place] == index {
            return true;
        }
        place += 1;
    }
    false
}

const WHOLE_CONTEXT: [usize; 2] = [id::cuCtxSynchronize, id::cuCtxSynchronize_v2];

const ON_LEGACY: [usize; 4] = [
    id::cuMemcpyHtoD_v2,
    id::cuMemcpyDtoH_v2,
    id::cuMemcpyDtoD_v2,
    id::cuMemcpy,
];

const UNSAFE: [usize; 30] = [
    id::cuMemAlloc_v2,
    id::cuMemAllocPitch,
    id::cuMemAllocPitch_v2,
    id::cuMemAllocManaged,
    id::cuMemFree,
    id::cuMemFree_v2,
    id::cuMemHostAlloc,
    id::cuMemAllocHost,
    id::cuMemAllocHost_v2,
    id::cuMemFreeHost,
    id::cuMemHostRegister,
    id::cuMemHostRegister_v2,
    id::cuMemHostUnregister,
    id::cuArrayCreate,
    id::cuArrayCreate_v2,
    id::cuArray3DCreate,
    id::cuArray3DCreate_v2,
    id::cuArrayDestroy,
    id::cuModuleUnload,
    id::cuLibraryUnload,
    id::cuCtxDestroy,
    id::cuCtxDestroy_v2,
    id::cuDevicePrimaryCtxReset,
    id::cuDevicePrimaryCtxReset_v2,
    id::cuEventQuery,
    id::cuEventSynchronize,
    id::cuStreamQuery,
    id::cuStreamQuery_ptsz,
    id::cuStreamSynchronize,
    id::cuStreamSynchronize_ptsz,
];
