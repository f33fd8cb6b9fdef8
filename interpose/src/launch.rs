//! A kernel launch, before and after the driver's call.

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use abi::types::{CUfunction, CUgraphExec, CUresult};
use client::announce::{self, Announced};
use client::gate::{self, Grant, IsHighPriority};
use client::marks::Marks;
use client::rings;
use protocol::pages::{Counter, LARGE_COPY_BYTES};

use crate::daemon::lifecycle;
use crate::dispatch::telemetry;
use crate::driver;
use crate::kernels::graphs::{GRAPHS, GraphName};
#[cfg(not(shim))]
use crate::kernels::labels::LabelIndex;
use crate::kernels::{KERNELS, Known, Number, Shape, labels};
use crate::process::{self, Client, dying};
use crate::progress::recorder::{self, Launched, Ticket};
use crate::progress::sight::{self, Sight};
use crate::progress::slot::Slot;
use crate::progress::stream::{Kind, Stream};
use crate::progress::streams::{Place, STREAMS};
use crate::progress::traced::{self, Copied, Copying};
use crate::progress::{learner, operations, stream_events, waking};

/// Least expected work between two events that a launching thread records in a stream, ns: an event
/// costs the thread about as much as a launch.
const RECORD_NS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) function: CUfunction,
    pub(crate) shape: Shape,
    pub(crate) stream: Stream,
    /// Whether recording two events around the launch is harmless ([`recorder`]).
    pub(crate) may_time: bool,
}

pub(crate) enum Begun {
    Unmanaged,
    /// Captured into a graph: only counted.
    Recorded(&'static Client),
    Announced {
        client: &'static Client,
        slot: u32,
        seq: u64,
        stream: Stream,
        ticket: Ticket,
    },
    Admitted {
        client: &'static Client,
        /// `None`: counted as complete at once, as there was no slot.
        slot: Option<u32>,
        grant: Grant,
        number: Number,
        ticket: Ticket,
    },
}

/// Runs before the driver's call; best-effort launches may wait here.
#[inline]
pub(crate) fn begin(client: Option<&'static Client>, request: &Request) -> Begun {
    let label = labels::handle_launch();
    begin_known(
        client,
        request.stream,
        Launched::Kernel(request.function, request.may_time),
        || request.is_empty(),
        |client| {
            let known = KERNELS.identify(client, request.function, &request.shape, label);
            (known, known.unknown())
        },
    )
}

/// As [`begin`]. `look` returns what is known of the launch, and how many of its kernels are
/// unknown; `is_refused` whether every driver refuses it.
#[inline]
fn begin_known(
    client: Option<&'static Client>,
    stream: Stream,
    launched: Launched,
    is_refused: impl FnOnce() -> bool,
    look: impl FnOnce(&'static Client) -> (Known, u64),
) -> Begun {
    if client.is_none() && !lifecycle::handle_launch_without_client() {
        return Begun::Unmanaged;
    }
    if STREAMS.is_capturing() && driver::is_capturing(stream.handle()) {
        return process::client().map_or(Begun::Unmanaged, Begun::Recorded);
    }
    // The client is the stream's, whatever device is current.
    let place = STREAMS.place(stream);
    let Some(client) = client_at(place) else {
        if matches!(place, Place::Foreign) {
            telemetry::handle_foreign_launch();
        }
        return Begun::Unmanaged;
    };
    let (known, unknown) = look(client);
    if client.is_high_priority() {
        return announced(client, place, stream, &known, launched);
    }
    // The driver refuses it, and should do so at once.
    if is_refused() {
        return Begun::Unmanaged;
    }
    let slot = slot_at(place);
    let mark_own = || mark_own_stream(client, slot);
    let admitted = match known.is_collective {
        true => {
            let stop = dying::stop_if_dying;
            gate::admit_collective(client, &known.kernel, unknown, mark_own, stop)
        }
        false => gate::admit(
            client,
            &known.kernel,
            unknown,
            mark_own,
            dying::stop_if_dying,
        ),
    };
    match admitted {
        Ok(grant) => {
            if client.trace() != 0 {
                traced::handle_admitted(client, place, &known, &grant);
            }
            Begun::Admitted {
                client,
                slot,
                grant,
                number: known.number,
                ticket: ticket(client, slot, &known, launched),
            }
        }
        Err(IsHighPriority) => announced(client, place, stream, &known, launched),
    }
}

#[inline]
fn ticket(client: &Client, slot: Option<u32>, known: &Known, launched: Launched) -> Ticket {
    match client.is_recording {
        true => recorder::begin(client, slot, known.number, launched),
        false => Ticket::NONE,
    }
}

#[inline]
fn announced(
    client: &'static Client,
    place: Place,
    stream: Stream,
    known: &Known,
    launched: Launched,
) -> Begun {
    let index = match place {
        Place::Slot(index) => index,
        _ => STREAMS.overflow_of(client.index),
    };
    let Some(slot) = STREAMS.slot(index) else {
        return Begun::Unmanaged;
    };
    let launch = Announced {
        id: known.id,
        kernel: known.kernel,
        is_profiled: known.is_profiled,
    };
    Begun::Announced {
        client,
        slot: index,
        seq: announce::submit(client, &client.thread(), (index, slot), &launch),
        stream,
        ticket: ticket(client, Some(index), known, launched),
    }
}

impl Request {
    /// Whether it names no kernel or no block, which every driver refuses.
    fn is_empty(&self) -> bool {
        self.function.is_null() || self.shape.grid.contains(&0) || self.shape.block.contains(&0)
    }
}

pub(crate) struct BegunGraph {
    begun: Begun,
    exec: CUgraphExec,
    kernels: u64,
    collectives: u64,
}

/// Runs before the driver's launch of a graph: as for one kernel of the graph's cost.
#[inline]
pub(crate) fn begin_graph(
    client: Option<&'static Client>,
    exec: CUgraphExec,
    stream: Stream,
) -> BegunGraph {
    let (mut kernels, mut collectives) = (0, 0);
    let begun = begin_known(
        client,
        stream,
        Launched::Graph,
        || exec.is_null(),
        |client| {
            let (cost, known) = GRAPHS.launched(exec);
            (kernels, collectives) = (cost.kernels, cost.collectives);
            let longest = &client.page.told.longest;
            // Learnt durations are reported by the learner.
            if !known.is_learnt && !longest.has(cost.kernel.expected_ns) {
                let name = GraphName(kernels);
                longest.note(cost.kernel.expected_ns, cost.kernel.sm_needed, name);
            }
            if cost.unknown > 0 {
                KERNELS.handle_unknown(client, cost.unknown);
            }
            (known, if known.is_learnt { 0 } else { cost.unknown })
        },
    );
    BegunGraph {
        begun,
        exec,
        kernels,
        collectives,
    }
}

#[inline]
pub(crate) fn end_graph(graph: &BegunGraph, result: CUresult) {
    settle(&graph.begun, result, Some(graph.exec), |client| {
        client.page.count(Counter::GraphLaunches, 1);
        client.page.count(Counter::GraphKernels, graph.kernels);
        if graph.collectives > 0 && !client.is_high_priority() {
            client.page.count(Counter::Collectives, graph.collectives);
        }
    });
}

/// Runs before an operator whose launches are not seen: as for one launch of its profile.
#[cfg(not(shim))]
pub(crate) fn begin_operator(
    client: Option<&'static Client>,
    stream: Stream,
    label: LabelIndex,
) -> Begun {
    begin_known(
        client,
        stream,
        Launched::Operator,
        || false,
        |client| {
            let known = KERNELS.operator(client, label);
            (known, known.unknown())
        },
    )
}

/// Any result but success takes the launch back.
#[cfg(not(shim))]
pub(crate) fn end_operator(begun: &Begun, result: CUresult) {
    settle(begun, result, None, |client| {
        client.page.count(Counter::OperatorsAsLaunches, 1);
    });
}

pub(crate) struct BegunCopy {
    begun: Begun,
    _in_call: Option<InCall>,
    traced: Option<Copied>,
}

/// A call that waits for its copy, which is on no stream until then: draining checks this.
struct InCall(&'static Client);

impl InCall {
    fn new(client: &'static Client) -> Self {
        client.helper.copies.fetch_add(1, Ordering::SeqCst);
        Self(client)
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        self.0.helper.copies.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs before a copy. If the daemon gates copies, a large one of a best-effort client is charged
/// and waits like a launch; others go. Each is recorded while a trace is taken.
#[inline]
pub(crate) fn begin_copy(client: Option<&'static Client>, copying: &Copying) -> BegunCopy {
    match client {
        Some(client)
            if (copying.bytes >= LARGE_COPY_BYTES && client.gates_copies())
                || client.trace() != 0 =>
        {
            begin_seen_copy(copying)
        }
        _ => BegunCopy::NONE,
    }
}

#[cold]
#[inline(never)]
fn begin_seen_copy(copying: &Copying) -> BegunCopy {
    let stream = copying.stream;
    if STREAMS.is_capturing() && driver::is_capturing(stream.handle()) {
        return BegunCopy::NONE;
    }
    let place = STREAMS.place(stream);
    let Some(client) = client_at(place) else {
        return BegunCopy::NONE;
    };
    let is_large = copying.bytes >= LARGE_COPY_BYTES && client.gates_copies();
    let begun = match is_large {
        true => begin_large_copy(client, place, copying),
        false => BegunCopy::NONE,
    };
    // After a large copy's wait, which its lease records.
    let traced = (client.trace() != 0).then(|| Copied::begin(client, place, copying));
    BegunCopy { traced, ..begun }
}

fn begin_large_copy(client: &'static Client, place: Place, copying: &Copying) -> BegunCopy {
    let kernel = copying.kernel();
    let slot = slot_at(place);
    let mark_own = || mark_own_stream(client, slot);
    let Ok(grant) = gate::admit_copy(client, &kernel, mark_own, dying::stop_if_dying) else {
        return BegunCopy::NONE;
    };
    let begun = Begun::Admitted {
        client,
        // The copy is complete when the call returns.
        slot: slot.filter(|_| !copying.is_waited_for),
        grant,
        number: Number::COPY,
        ticket: Ticket::NONE,
    };
    BegunCopy {
        begun,
        _in_call: copying.is_waited_for.then(|| InCall::new(client)),
        traced: None,
    }
}

impl BegunCopy {
    const NONE: Self = Self {
        begun: Begun::Unmanaged,
        _in_call: None,
        traced: None,
    };
}

#[inline]
pub(crate) fn end_copy(copy: &BegunCopy, result: CUresult) {
    if let Begun::Admitted { .. } = copy.begun {
        end_large_copy(copy, result);
    }
    if let Some(traced) = copy.traced.as_ref().filter(|_| result == CUresult::SUCCESS) {
        traced.tell();
    }
}

// Out of line: one copy for all copy hooks.
#[cold]
#[inline(never)]
fn end_large_copy(copy: &BegunCopy, result: CUresult) {
    settle(&copy.begun, result, None, |_| ());
}

#[inline]
fn client_at(place: Place) -> Option<&'static Client> {
    match place {
        Place::Slot(index) => STREAMS.client_of(index),
        Place::Overflow => process::client(),
        Place::Foreign => None,
    }
}

fn slot_at(place: Place) -> Option<u32> {
    match place {
        Place::Slot(index) => Some(index),
        Place::Overflow | Place::Foreign => None,
    }
}

impl Begun {
    /// The priority that the launch carries as an attribute: only high-priority launches on default
    /// streams, which cannot have a priority.
    #[inline]
    pub(crate) fn priority(&self) -> Option<c_int> {
        match self {
            Self::Announced { client, stream, .. }
                if stream.is_default()
                    && client.priority_use.may_be_added()
                    && client.adds_priority() =>
            {
                client.default_priority
            }
            _ => None,
        }
    }

    #[inline]
    fn recorded(&self) -> (Option<u32>, Ticket) {
        match *self {
            Self::Announced { slot, ticket, .. } => (Some(slot), ticket),
            Self::Admitted { slot, ticket, .. } => (slot, ticket),
            Self::Unmanaged | Self::Recorded(_) => (None, Ticket::NONE),
        }
    }

    /// The driver refused the launch only because of that priority.
    #[cold]
    pub(crate) fn give_up_priority(&self) {
        if let Self::Announced { client, .. } = self {
            client.priority_use.give_up();
        }
    }
}

#[inline]
pub(crate) fn end(begun: &Begun, result: CUresult) {
    settle(begun, result, None, |client| {
        rings::count_launch(&client.page, &client.thread());
    });
}

#[inline]
fn settle(
    begun: &Begun,
    result: CUresult,
    graph: Option<CUgraphExec>,
    count: impl FnOnce(&'static Client),
) {
    let accepted = result == CUresult::SUCCESS;
    let client = match begun {
        Begun::Unmanaged => return,
        Begun::Recorded(client) => {
            if accepted {
                client.page.count(Counter::Captured, 1);
            }
            return;
        }
        Begun::Announced { client, .. } | Begun::Admitted { client, .. } => *client,
    };
    let (slot, ticket) = begun.recorded();
    if ticket.is_some() {
        recorder::end(client, slot, ticket, graph, accepted);
    }
    if accepted {
        count(client);
    }
    match *begun {
        Begun::Unmanaged | Begun::Recorded(_) => {}
        Begun::Announced {
            slot: index, seq, ..
        } => {
            if let Some(slot) = STREAMS.slot(index) {
                let stream = (index, slot);
                announce::handle_launched(client, &client.thread(), stream, seq, accepted);
            }
        }
        Begun::Admitted {
            slot,
            ref grant,
            number,
            ..
        } => {
            match number == Number::COPY {
                true => gate::handle_copied(client, grant, accepted),
                false => gate::handle_launched(client, grant, accepted),
            }
            if accepted {
                handle_admitted(client, slot, grant, number);
            }
        }
    }
}

#[inline]
fn handle_admitted(client: &Client, slot: Option<u32>, grant: &Grant, number: Number) {
    let placed = slot.and_then(|index| Some((index, STREAMS.slot(index)?)));
    let Some((index, slot)) = placed else {
        return client::completion::count(client, grant.cost_ns);
    };
    let mark = slot.add_issued(grant.cost_ns);
    if client.helper.is_learning() {
        learner::handle_launch(index, mark, grant, number);
    }
    // The completion of ungated work does not matter, unless its duration is being learnt.
    if grant.is_ungated() && !client.helper.is_learning() {
        return waking::wake_idle(client);
    }
    let is_pending = slot.event.is_pending();
    if !is_pending && is_own_to_mark(slot) && mark.wrapping_sub(slot.event.mark()) >= RECORD_NS {
        record_own(client, slot);
    }
    if !is_pending {
        let in_flight_ns = mark.saturating_sub(slot.completed());
        waking::wake_before(client, grant.at_ns.saturating_add(in_flight_ns));
    }
}

/// Whether only a launching thread may record an event in it ([`crate::progress::sight`]).
#[inline]
fn is_own_to_mark(slot: &Slot) -> bool {
    matches!(slot.kind(), Kind::PerThread | Kind::Blocking) || STREAMS.is_capturing()
}

/// Before this thread waits at the gate: records an event behind its launches, if possible.
#[cold]
fn mark_own_stream(client: &Client, slot: Option<u32>) {
    // A helper that slept while there was nobody to protect may not know that this has changed.
    waking::wake_to_watch(client);
    let Some(slot) = slot.and_then(|index| STREAMS.slot(index)) else {
        return;
    };
    if is_own_to_mark(slot) && slot.is_in_flight() && slot.event.is_idle() {
        record_own(client, slot);
    }
    if slot.kind() == Kind::Legacy && slot.is_in_flight() && !slot.event.is_pending() {
        // No event is allowed here, so the helper queries more often from now on.
        waking::wake_before(client, 0);
    }
}

#[cold]
fn record_own(client: &Client, slot: &Slot) {
    if sight::sight_of(client, slot) == Sight::EventByLauncher {
        stream_events::try_record(slot, operations::submitted(client));
    }
}
