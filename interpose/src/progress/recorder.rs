//! Records what a best-effort job launches and how long it takes (`pillion profile record`).
//!
//! Every launch that the driver takes is counted. Some are *timed*: the launching thread records an
//! event in the launch's own stream just before the launch, and one just after it, in the same call
//! of the application's. The helper thread reads them when they were reached.
//!
//! **Why this adds no order.** The stream orders the two events as it orders the launch, and nothing
//! of the calling thread comes between. In the legacy stream an event is a barrier for the
//! blocking streams of the context, and so is the launch. What another thread submits between the
//! events is submitted *during* the application's call, so the application does not know on which
//! side of the launch it comes; it is ordered as if it came before for what follows it, and as if it
//! came after for what it follows. Work that waits for each other in that order waits for each other
//! in one of the two, too. This is not so of an event at another time
//! ([`crate::progress::sight`]). Where an event may cost more than its place in the stream there is
//! none ([`sight::why_not_timed`]): while a stream of the process is in capture, where streams may
//! share a hardware queue, and behind so many operations that the queue may be full. In the last case
//! some are recorded for kernels of which little is known, as some kernels of a job that hardly ever
//! waits are always launched there. At most [`STREAM_PAIRS`] pairs wait in a stream at a time, so that
//! what a program can put behind a wait does not become noticeably less.
//!
//! Not timed either: a launch that may begin before the one in front of it ends (programmatic
//! dependent launch), which an event between them would forbid; and one on several devices.
//!
//! **What is measured.** If the first event was not reached when the launch had been submitted
//! ([`Kind::Busy`]), the time between the two is the kernel's own and the gap in front of it, in
//! which the GPU starts it; [`GAP_NS`] is subtracted for that. On an idle stream the GPU
//! reaches the first event at once and waits for the launch, so what the host took for that is
//! subtracted ([`Kind::Idle`]); such durations only count where there are no others.
//!
//! **Graphs.** An event inside would be another graph. Some launches of a graph are timed as a
//! whole. What they take beyond the kernels that were timed outside of graphs is shared evenly among
//! the others ([`Kind::Share`]).
//!
//! **How many.** The first [`FIRST`] of each kernel and shape, then one in [`EVERY`].
//! Pairs are bounded ([`crate::kernels::record::Timings`]). A pair costs about as much as the launch.

use core::sync::atomic::Ordering;

use abi::types::{CUcontext, CUevent, CUfunction, CUgraphExec, CUresult, CUstream};
use client::backoff;
use protocol::clock::Clock;
use protocol::recording::{Kind, Why};

use crate::driver;
use crate::kernels::graphs::GRAPHS;
use crate::kernels::record::{EntryIndex, Pair, Record, Timed, Waiting};
use crate::kernels::{KERNELS, Number};
use crate::platform::sys::locked;
use crate::process::{Client, Handle};
use crate::progress::slot::Slot;
use crate::progress::streams::STREAMS;
use crate::progress::{operations, sight};

/// Launches of a kernel and shape, or of a graph, that are all timed.
const FIRST: u64 = 64;
/// Of these, and of more on an idle stream, at most so many are tried.
const TRIED_MAX: u32 = 256;
/// After them, one in so many is timed.
const EVERY: u32 = 32;
/// Pairs that wait at once in a stream. Its queue takes about 1000 operations, and a program may put
/// as many launches behind a wait that it ends itself.
const STREAM_PAIRS: usize = 8;
/// How many may with that of a kernel of which a duration is known: the others are for those that
/// come late in a burst of launches. And behind so much work that the queue may be full.
const KNOWN_PAIRS: usize = 4;
const DEEP_KNOWN_PAIRS: usize = 2;
/// So many durations of a kernel are enough there.
const DEEP_MEASURED: u64 = 4;
/// Between two looks at events that wait to be read, ns.
const LOOK_NS: u64 = 2_000_000;
/// What lies between two kernels of a stream that were both submitted long before, ns: the mean of
/// the 7249 gaps below 10 µs in a V100's timeline of ResNet-50's training (softgpu/src/gpu.rs).
const GAP_NS: f32 = 1_400.0;
/// Longest wait of a thread that ends a context or the process for another that reads, ns.
const PATIENCE_NS: u64 = 20_000_000;

/// What is launched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Launched {
    /// A kernel, and whether two events around it leave it as it is.
    Kernel(CUfunction, bool),
    /// A graph.
    Graph,
    /// A call of a library whose launches are not seen.
    #[cfg_attr(shim, expect(dead_code, reason = "operators are not the shim's"))]
    Operator,
}

/// A launch between [`begin`] and [`end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// An entry plus one, or one of the below.
    entry: u32,
    /// The place of the pair of events plus one; 0: not timed.
    pair: u32,
}

/// Not recorded.
const NOTHING: u32 = 0;
const GRAPH: u32 = u32::MAX;
const OPERATOR: u32 = u32::MAX - 1;
const NO_ENTRY: u32 = u32::MAX - 2;

impl Ticket {
    /// Of a launch that is not recorded.
    pub(crate) const NONE: Self = Self {
        entry: NOTHING,
        pair: 0,
    };

    /// Whether the launch is recorded.
    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self.entry != NOTHING
    }
}

/// Before a launch of a client that is recorded; `slot` is that of its stream.
#[cold]
pub(crate) fn begin(
    client: &Client,
    slot: Option<u32>,
    number: Number,
    launched: Launched,
) -> Ticket {
    let Some(record) = KERNELS.record() else {
        return Ticket::NONE;
    };
    let mut measured = None;
    let (entry, is_wanted) = match launched {
        Launched::Operator => (OPERATOR, false),
        Launched::Graph => (GRAPH, wants_graph(record, number)),
        Launched::Kernel(function, may_time) => {
            let describe = || KERNELS.describe(number, function);
            match record.entry_of(number, describe) {
                None => (NO_ENTRY, false),
                Some(entry) => {
                    measured = measured_of(record, entry);
                    let seen = locked(&record.timings).see(entry);
                    let is_wanted = is_due(seen, measured);
                    if is_wanted && !may_time {
                        record.note(Why::Programmatic, 1);
                    }
                    (entry.0 + 1, is_wanted && may_time)
                }
            }
        }
    };
    let mut pair = 0;
    if is_wanted {
        match open(client, record, slot, measured) {
            Ok(at) => pair = at as u32 + 1,
            Err(why) => record.note(why, 1),
        }
    }
    Ticket { entry, pair }
}

/// After it; whether the driver took it.
#[cold]
pub(crate) fn end(
    client: &Client,
    slot: Option<u32>,
    ticket: Ticket,
    launched: Option<CUgraphExec>,
    is_accepted: bool,
) {
    let Some(record) = KERNELS.record() else {
        return;
    };
    let pair = ticket.pair.checked_sub(1).map(|at| at as usize);
    if !is_accepted {
        if let Some(at) = pair {
            locked(&record.timings).give_back(at);
        }
        return;
    }
    let host_end_ns = client.clock.now_ns();
    let timed = match (ticket.entry, launched) {
        (GRAPH, Some(exec)) => Some(Timed::Graph(count_graph(record, exec))),
        (OPERATOR, _) => {
            record.note(Why::Operators, 1);
            None
        }
        (NO_ENTRY | NOTHING | GRAPH, _) => {
            record.note(Why::NoRoom, 1);
            None
        }
        (entry, _) => {
            let entry = EntryIndex(entry - 1);
            if let Some(words) = record.entry(entry) {
                words.launches.fetch_add(1, Ordering::Relaxed);
            }
            Some(Timed::Kernel(entry))
        }
    };
    note_stream(record, slot);
    if let Some((at, timed)) = pair.zip(timed) {
        close(client, record, (slot, at), timed, host_end_ns);
    }
}

/// How many launches of an entry were measured on a busy stream; `None` if none was on any.
fn measured_of(record: &Record, entry: EntryIndex) -> Option<u64> {
    let words = record.entry(entry)?;
    match Kind::of(words.kind.load(Ordering::Relaxed)) {
        Kind::Busy => Some(words.measured.load(Ordering::Relaxed)),
        Kind::Idle => Some(0),
        Kind::None | Kind::Share => None,
    }
}

/// Whether a launch is to be timed that `seen` others came before, of which `measured` were.
fn is_due(seen: u32, measured: Option<u64>) -> bool {
    match measured {
        None => true,
        Some(measured) => (measured < FIRST && seen < TRIED_MAX) || seen.is_multiple_of(EVERY),
    }
}

fn wants_graph(record: &Record, number: Number) -> bool {
    let mut timings = locked(&record.timings);
    let seen = timings.see_graph(number.place);
    is_due(seen, Some(u64::from(seen))) && timings.has_room_for_graph()
}

/// Counts the kernels of a graph that was launched; their entries.
fn count_graph(record: &Record, exec: CUgraphExec) -> Vec<EntryIndex> {
    record.note(Why::Graphs, 1);
    let numbers = GRAPHS.numbers(exec);
    let is_known = numbers.is_some();
    let numbers = numbers.unwrap_or_default();
    let of =
        |number: &Number| record.entry_of(*number, || KERNELS.describe(*number, CUfunction::NULL));
    let entries: Vec<EntryIndex> = numbers.iter().filter_map(of).collect();
    for entry in entries.iter().filter_map(|entry| record.entry(*entry)) {
        entry.graph_launches.fetch_add(1, Ordering::Relaxed);
    }
    if !is_known || entries.len() < numbers.len() {
        record.note(Why::UnknownGraphs, 1);
    }
    entries
}

fn note_stream(record: &Record, slot: Option<u32>) {
    if let Some(slot) = slot
        && locked(&record.timings).is_new_slot(slot)
    {
        record.note(Why::Streams, 1);
    }
}

/// How many pairs may wait in a stream with that of a launch of which so many were measured.
fn pairs_max(measured: Option<u64>, is_deep: bool) -> usize {
    match (measured, is_deep) {
        (None, _) => STREAM_PAIRS,
        (Some(_), false) => KNOWN_PAIRS,
        (Some(..DEEP_MEASURED), true) => DEEP_KNOWN_PAIRS,
        (Some(_), true) => 0,
    }
}

/// Records the first event of a pair; where the pair is.
fn open(
    client: &Client,
    record: &Record,
    slot: Option<u32>,
    measured: Option<u64>,
) -> Result<usize, Why> {
    let index = slot.ok_or(Why::NoSlot)?;
    let slot = STREAMS.slot(index).ok_or(Why::NoSlot)?;
    let why = sight::why_not_timed(client, slot);
    let is_deep = match why {
        None => false,
        Some(Why::Deep) => true,
        Some(why) => return Err(why),
    };
    if waiting_in(record, index) >= pairs_max(measured, is_deep) {
        return Err(why.unwrap_or(Why::Full));
    }
    let stream = slot.stream_here().ok_or(Why::NoSlot)?;
    let context = slot.context();
    let taken = locked(&record.timings).take(context.0);
    let (at, mut pair) = taken.ok_or(Why::NoEvent)?;
    let begun = in_context(context, || {
        if pair.context != context.0 {
            pair = new_pair(context)?;
        }
        succeeded(driver::record_event(event(pair.start), stream))
    });
    pair.began_ns = client.clock.now_ns();
    let mut timings = locked(&record.timings);
    timings.set(at, pair);
    if begun.is_err() {
        timings.give_back(at);
        return Err(Why::NoEvent);
    }
    Ok(at)
}

/// How many pairs wait in the stream of a slot.
fn waiting_in(record: &Record, slot: u32) -> usize {
    let timings = locked(&record.timings);
    let its = timings
        .waiting
        .iter()
        .filter(|waiting| waiting.slot == slot);
    its.count()
}

/// Records the second event of a pair: what was launched waits to be read.
fn close(
    client: &Client,
    record: &Record,
    (slot_index, at): (Option<u32>, usize),
    timed: Timed,
    host_end_ns: u64,
) {
    let pair = locked(&record.timings).pair(at);
    let slot = slot_index.and_then(|index| Some((index, STREAMS.slot(index)?)));
    let ended = slot.zip(pair).and_then(|((index, slot), pair)| {
        let stream = slot.stream_here()?;
        let kind = in_context(slot.context(), || finish_pair(&pair, stream)).ok()?;
        Some(Waiting {
            pair: at,
            timed,
            kind,
            host_ns: host_end_ns.saturating_sub(pair.began_ns),
            client: client.index,
            slot: index,
            operations: operations::submitted(client),
        })
    });
    let mut timings = locked(&record.timings);
    match ended {
        Some(waiting) => timings.waiting.push_back(waiting),
        None => {
            timings.give_back(at);
            record.note(Why::NoEvent, 1);
        }
    }
}

/// Records the second event, and finds out whether the first had been reached by now.
fn finish_pair(pair: &Pair, stream: CUstream) -> Result<Kind, CUresult> {
    succeeded(driver::record_event(event(pair.end), stream))?;
    let start = || driver::query_event(event(pair.start));
    Ok(match driver::with_relaxed_captures(start) {
        CUresult::NOT_READY => Kind::Busy,
        _ => Kind::Idle,
    })
}

/// Reads what was reached of a client's launches, in its helper thread, which captures of others
/// forbid nothing. When to look again, ns.
pub(crate) fn poll(client: &Client, now_ns: u64) -> Option<u64> {
    let record = KERNELS.record().filter(|_| client.is_recording)?;
    if client.is_taken()
        && !client.link.lease.is_ungated()
        && record.page().count_of(Why::Gated) == 0
    {
        record.note(Why::Gated, 1);
    }
    let waits = read(record, |waiting| waiting.client == client.index);
    let next_ns = if waits { LOOK_NS } else { 10 * LOOK_NS };
    Some(now_ns + next_ns)
}

/// Before a context or the process ends: reads what was reached of all launches.
pub(crate) fn read_last() {
    if let Some(record) = KERNELS.record() {
        driver::with_relaxed_captures(|| read(record, |_| true));
    }
}

/// A context is gone, and its events with it.
pub(crate) fn handle_context_destroyed(context: CUcontext) {
    if let Some(record) = KERNELS.record() {
        let lost = locked(&record.timings).forget(Handle::from(context).0);
        record.note(Why::NoEvent, lost);
    }
}

/// Reads what was reached of the launches that `is_its` picks; whether others of them are left.
fn read(record: &Record, is_its: impl Fn(&Waiting) -> bool) -> bool {
    let mut reading = None;
    // One reader at a time: what one has taken out the other would not find.
    backoff::wait_for(&Clock::process(), PATIENCE_NS, || {
        reading = record.reading.try_lock();
        reading.is_some()
    });
    if reading.is_none() {
        return true;
    }
    let all: Vec<Waiting> = locked(&record.timings).waiting.drain(..).collect();
    let mut kept = Vec::new();
    let mut busy_slots: Vec<u32> = Vec::new();
    for waiting in all {
        let is_behind = busy_slots.contains(&waiting.slot);
        if is_behind || !is_its(&waiting) {
            kept.push(waiting);
        } else if let Some(waiting) = try_read(record, waiting) {
            busy_slots.push(waiting.slot);
            kept.push(waiting);
        }
    }
    let is_left = kept.iter().any(is_its);
    let mut timings = locked(&record.timings);
    for waiting in kept.into_iter().rev() {
        timings.waiting.push_front(waiting);
    }
    is_left
}

/// Reads a launch; gives it again if it is not over.
fn try_read(record: &Record, waiting: Waiting) -> Option<Waiting> {
    let pair = locked(&record.timings).pair(waiting.pair)?;
    match driver::query_event(event(pair.end)) {
        CUresult::NOT_READY => return Some(waiting),
        CUresult::SUCCESS => {
            if let Some(slot) = STREAMS
                .slot(waiting.slot)
                .filter(|s| s.context().0 == pair.context)
            {
                note_idle(slot, waiting.operations);
            }
            match driver::elapsed_ms(event(pair.start), event(pair.end)) {
                Ok(ms) => add(record, &waiting, ms * 1e6),
                Err(_) => record.note(Why::NoEvent, 1),
            }
        }
        _ => record.note(Why::NoEvent, 1),
    }
    locked(&record.timings).give_back(waiting.pair);
    None
}

/// All that was submitted to a stream before so many operations is complete.
fn note_idle(slot: &Slot, operations: u32) {
    if operations.wrapping_sub(slot.idle_at()) < 1 << 31 {
        slot.set_idle_at(operations);
    }
}

/// Adds what a launch took.
fn add(record: &Record, waiting: &Waiting, ns: f32) {
    let host_ns = waiting.host_ns as f32;
    let ns = match waiting.kind {
        // What took the host longer than the kernel the GPU tells nothing.
        Kind::Idle if host_ns >= ns => return,
        Kind::Idle => ns - host_ns,
        // Of a kernel as short as the gap a part is left.
        _ => (ns - GAP_NS).max(ns / 4.0),
    };
    match &waiting.timed {
        Timed::Kernel(entry) => record.add(*entry, waiting.kind, ns),
        Timed::Graph(entries) => share(record, entries, ns),
    }
}

/// Shares what a graph took among those of its kernels that were not timed by themselves.
fn share(record: &Record, entries: &[EntryIndex], ns: f32) {
    let own_ns = |entry: &EntryIndex| {
        let words = record.entry(*entry)?;
        let kind = Kind::of(words.kind.load(Ordering::Relaxed));
        let measured = words.measured.load(Ordering::Relaxed);
        let sum_ns = words.measured_ns.load(Ordering::Relaxed);
        (kind > Kind::Share && measured > 0).then(|| sum_ns as f32 / measured as f32)
    };
    let known_ns: f32 = entries.iter().filter_map(own_ns).sum();
    let others: Vec<EntryIndex> = entries
        .iter()
        .copied()
        .filter(|entry| own_ns(entry).is_none())
        .collect();
    let share_ns = (ns - known_ns).max(0.0) / others.len().max(1) as f32;
    for entry in others {
        record.add(entry, Kind::Share, share_ns);
    }
}

/// Two events that measure time, made in the context that is current.
fn new_pair(context: Handle) -> Result<Pair, CUresult> {
    let start = driver::new_timing_event()?;
    let end = driver::new_timing_event().inspect_err(|_| {
        let _ = driver::destroy_event(start);
    })?;
    let number = |event: CUevent| event.0.expose_provenance() as u64;
    Ok(Pair {
        start: number(start),
        end: number(end),
        context: context.0,
        began_ns: 0,
    })
}

fn event(number: u64) -> CUevent {
    CUevent(core::ptr::with_exposed_provenance_mut(number as usize))
}

/// Does that with a context current, which it nearly always is.
fn in_context<T>(
    context: Handle,
    calls: impl FnOnce() -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    if driver::current_context().is_ok_and(|now| Handle::from(now) == context) {
        return calls();
    }
    driver::with_context(context.context(), calls)?
}

fn succeeded(result: CUresult) -> Result<(), CUresult> {
    match result {
        CUresult::SUCCESS => Ok(()),
        result => Err(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_launches_are_timed_and_then_one_in_so_many() {
        assert!((0..FIRST as u32).all(|seen| is_due(seen, Some(u64::from(seen)))));
        let later = (1_000..2_000).filter(|seen| is_due(*seen, Some(FIRST)));
        assert_eq!(later.count(), 1_000 / EVERY as usize);
        // On an idle stream more are tried, not all.
        let tried = (0..10_000).filter(|seen| is_due(*seen, Some(0)));
        assert!(tried.count() < 2 * TRIED_MAX as usize + 10_000 / EVERY as usize);
        assert!(is_due(10_001, None), "as long as there is none");
    }

    #[test]
    fn of_the_pairs_in_a_stream_some_are_for_kernels_without_a_duration() {
        assert!(pairs_max(Some(1), false) < pairs_max(None, false));
        assert!(pairs_max(Some(1), true) < pairs_max(Some(1), false));
        assert_eq!(pairs_max(None, true), STREAM_PAIRS);
        assert_eq!(pairs_max(Some(DEEP_MEASURED), true), 0);
    }

    #[test]
    fn a_launch_that_is_not_recorded_has_no_ticket() {
        assert!(!Ticket::NONE.is_some());
        assert!(Ticket { entry: 1, pair: 0 }.is_some());
    }
}
