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
//! subtracted ([`Kind::Idle`]); such durations only count where there are no others. That is right if the
//! GPU hears of both at the end of their calls, as drivers ring last.
//!
//! **Graphs.** An event inside would be another graph. Some launches of a graph are timed as a
//! whole. What they take beyond the kernels that were timed outside of graphs is shared evenly among
//! the others ([`Kind::Share`]).
//!
//! **CUPTI.** Where it times the process ([`crate::progress::cupti`]) there is no event, but for
//! kernels that are told apart by their operators alone.
//!
//! **How many.** The first of each kernel and shape, one in four until [`FIRST`] were timed, then one in
//! 32, by chance ([`Due`]). Pairs are bounded ([`crate::kernels::record::Pairs`]). A pair costs about as much as the
//! launch.
//!
//! No thread waits for another: see [`crate::kernels::record`].

use core::sync::atomic::Ordering;

use abi::types::{CUcontext, CUevent, CUfunction, CUgraphExec, CUresult, CUstream};
use client::backoff;
use protocol::clock::Clock;
use protocol::recording::{Kind, Why};

use crate::driver;
use crate::kernels::graphs::GRAPHS;
use crate::kernels::record::{Due, EntryIndex, Known, Pair, Record, Timed, Waiting};
use crate::kernels::{KERNELS, Number};
use crate::process::{Client, Handle};
use crate::progress::slot::Slot;
use crate::progress::streams::STREAMS;
use crate::progress::{cupti, operations, sight};

/// So many durations of a kernel and shape, or launches of a graph, are soon to be there.
const FIRST: u64 = 64;
/// Pairs that wait at once in a stream. Its queue takes about 1000 operations, and a program may put
/// as many launches behind a wait that it ends itself.
const STREAM_PAIRS: u32 = 8;
/// How many may with that of a kernel of which a duration is known: the others are for those that
/// come late in a burst of launches. And behind so much work that the queue may be full.
const KNOWN_PAIRS: u32 = 4;
const DEEP_KNOWN_PAIRS: u32 = 2;
/// So many durations of a kernel are enough there.
const DEEP_MEASURED: u64 = 4;
/// Between two looks at events that wait to be read, ns.
const LOOK_NS: u64 = 2_000_000;
/// What lies between two kernels of a stream that were both submitted long before, ns: the mean of
/// the 7249 gaps below 10 µs in a V100's timeline of ResNet-50's training (softgpu/src/gpu.rs).
const GAP_NS: f32 = 1_400.0;
/// The least share of a graph's time that says something, ns: no kernel takes less.
const SHARE_NS_MIN: f32 = 100.0;
/// Longest wait of a thread that ends a context or the process for another that reads, or of one
/// that launches a graph for another that makes one, ns.
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
    let (entry, wanted) = match launched {
        Launched::Operator => (OPERATOR, None),
        Launched::Graph if record.is_told() => (GRAPH, None),
        Launched::Graph => (GRAPH, wanted_graph(record, number)),
        Launched::Kernel(function, may_time) => {
            let describe = || KERNELS.describe(number, function);
            match record.entry_of(number, describe) {
                None => (NO_ENTRY, None),
                Some(entry) if !record.wants_events(entry) => (entry.0 + 1, None),
                Some(entry) => {
                    let wanted = wanted_kernel(record, entry);
                    if wanted.is_some() && !may_time {
                        record.note(Why::Programmatic, 1);
                    }
                    (entry.0 + 1, wanted.filter(|_| may_time))
                }
            }
        }
    };
    let mut pair = 0;
    if let Some(wanted) = wanted {
        match open(client, record, slot, &wanted) {
            Ok(at) => {
                pair = at as u32 + 1;
                wanted.due.handle_tried(wanted.known(), record.random());
            }
            Err(why) => {
                if matches!(why, Why::Full | Why::Deep) {
                    wanted.due.put_off(wanted.known(), record.random());
                }
                record.note(why, 1);
            }
        }
    }
    Ticket { entry, pair }
}

/// A launch that is to be timed.
struct Wanted<'a> {
    due: &'a Due,
    /// How many of its launches were measured on a busy stream; `None` if none was on any.
    measured: Option<u64>,
    is_graph: bool,
}

impl Wanted<'_> {
    fn known(&self) -> Known {
        match self.measured {
            None if self.is_graph && u64::from(self.due.tried()) >= FIRST => Known::Enough,
            None => Known::Nothing,
            Some(..FIRST) => Known::Little,
            Some(_) => Known::Enough,
        }
    }
}

fn wanted_kernel(record: &Record, entry: EntryIndex) -> Option<Wanted<'_>> {
    let (words, due) = (record.entry(entry)?, record.due(entry)?);
    let measured = match Kind::of(words.kind.load(Ordering::Relaxed)) {
        Kind::Busy | Kind::Cupti => Some(words.measured.load(Ordering::Relaxed)),
        Kind::Idle => Some(0),
        Kind::None | Kind::Share => None,
    };
    due.see().then_some(Wanted {
        due,
        measured,
        is_graph: false,
    })
}

fn wanted_graph(record: &Record, number: Number) -> Option<Wanted<'_>> {
    let due = record.graph_due(number)?;
    due.see().then_some(Wanted {
        due,
        measured: None,
        is_graph: true,
    })
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
            record.pairs.give_back(at);
        }
        return;
    }
    // First of all: what comes before the second event is measured with the launch.
    let host_end_ns = client.clock.now_ns();
    let closed = pair.map(|at| (at, close(client, record, (slot, at), host_end_ns)));
    let timed = match (ticket.entry, launched) {
        (GRAPH, Some(exec)) => Some(Timed::Graph(count_graph(client, record, exec))),
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
                // Release pairs with the Acquire of `Keys::read`: the entry is whole.
                words.launches.fetch_add(1, Ordering::Release);
            }
            Some(Timed::Kernel(entry))
        }
    };
    cupti::note_launched(record);
    note_stream(client, record, slot);
    let Some((at, closed)) = closed else {
        return;
    };
    match closed.zip(timed) {
        Some((closed, timed)) => record.pairs.wait(at, Waiting { timed, ..closed }),
        None => {
            record.pairs.give_back(at);
            record.note(Why::NoEvent, 1);
        }
    }
}

/// Counts the kernels of a graph that was launched; their entries.
fn count_graph(client: &Client, record: &Record, exec: CUgraphExec) -> Vec<EntryIndex> {
    record.note(Why::Graphs, 1);
    let mut numbers = None;
    // A thread that makes graphs has them for a moment, or for good if it never comes back.
    backoff::wait_for(&client.clock, PATIENCE_NS, || {
        numbers = GRAPHS.try_numbers(exec);
        numbers.is_some()
    });
    let numbers = numbers.flatten();
    let is_known = numbers.is_some();
    let numbers = numbers.unwrap_or_default();
    let of =
        |number: &Number| record.entry_of(*number, || KERNELS.describe(*number, CUfunction::NULL));
    let entries: Vec<EntryIndex> = numbers.iter().filter_map(of).collect();
    for entry in entries.iter().filter_map(|entry| record.entry(*entry)) {
        entry.graph_launches.fetch_add(1, Ordering::Release);
    }
    if !is_known || entries.len() < numbers.len() {
        record.note(Why::UnknownGraphs, 1);
    }
    entries
}

/// Counts streams of a device beyond the first.
fn note_stream(client: &Client, record: &Record, slot: Option<u32>) {
    if let Some(slot) = slot
        && record.pairs.is_further_stream(client.index, slot)
    {
        record.note(Why::Streams, 1);
    }
}

/// How many pairs may wait in a stream with that of a launch of which so many were measured.
fn pairs_max(measured: Option<u64>, is_deep: bool) -> u32 {
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
    wanted: &Wanted<'_>,
) -> Result<usize, Why> {
    let index = slot.ok_or(Why::NoSlot)?;
    let slot = STREAMS.slot(index).ok_or(Why::NoSlot)?;
    let why = sight::why_not_timed(client, slot);
    let is_deep = match why {
        None => false,
        Some(Why::Deep) => true,
        Some(why) => return Err(why),
    };
    let stream = slot.stream_here().ok_or(Why::NoSlot)?;
    let context = slot.context();
    let most = pairs_max(wanted.measured, is_deep);
    let taken = record.pairs.take(context.0, index, most, wanted.is_graph);
    let (at, mut pair) = taken.map_err(|refused| match refused {
        Why::Full => why.unwrap_or(Why::Full),
        refused => refused,
    })?;
    let begun = in_context(context, || {
        if pair.context != context.0 {
            pair = new_pair(context)?;
        }
        succeeded(driver::record_event(event(pair.start), stream))
    });
    pair.began_ns = client.clock.now_ns();
    record.pairs.set(at, &pair);
    if begun.is_err() {
        record.pairs.give_back(at);
        return Err(Why::NoEvent);
    }
    Ok(at)
}

/// Records the second event of a pair; what is to be read of it, as of the launch of no kernel.
fn close(
    client: &Client,
    record: &Record,
    (slot, at): (Option<u32>, usize),
    host_end_ns: u64,
) -> Option<Waiting> {
    let (index, pair) = (slot?, record.pairs.pair(at)?);
    let slot = STREAMS.slot(index)?;
    let stream = slot.stream_here()?;
    let kind = in_context(slot.context(), || finish_pair(&pair, stream)).ok()?;
    Some(Waiting {
        timed: Timed::Graph(Vec::new()),
        kind,
        host_ns: host_end_ns.saturating_sub(pair.began_ns),
        client: client.index,
        slot: index,
        operations: operations::submitted(client),
    })
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
    cupti::poll(record, now_ns);
    // Who reads just now reads it all.
    let was_any = record
        .reading
        .try_lock()
        .is_some_and(|_reading| read(record, |waiting| waiting.client == client.index));
    let next_ns = if was_any { LOOK_NS } else { 10 * LOOK_NS };
    Some(now_ns + next_ns)
}

/// Before a context or the process ends: reads what was reached of all launches. A thread that was
/// interrupted while it reads may come here again: it does not wait for itself for long.
pub(crate) fn read_last() {
    let Some(record) = KERNELS.record() else {
        return;
    };
    let mut reading = None;
    // What another thread holds just now this one would not find.
    backoff::wait_for(&Clock::process(), PATIENCE_NS, || {
        reading = record.reading.try_lock();
        reading.is_some()
    });
    if reading.is_some() {
        driver::with_relaxed_captures(|| read(record, |_| true));
    }
}

/// A context is gone, and its events with it.
pub(crate) fn handle_context_destroyed(context: CUcontext) {
    if let Some(record) = KERNELS.record() {
        let lost = record.pairs.forget(Handle::from(context).0);
        record.note(Why::NoEvent, lost);
    }
}

/// Reads what was reached of the launches that `is_its` picks; whether there were any. By the thread
/// that holds [`Record::reading`].
fn read(record: &Record, is_its: impl Fn(&Waiting) -> bool) -> bool {
    let mut was_any = false;
    record.pairs.read_each(|pair, waiting| {
        if !is_its(&waiting) {
            return Some(waiting);
        }
        was_any = true;
        try_read(record, pair, waiting)
    });
    was_any
}

/// Reads a launch; gives it again if it is not over.
fn try_read(record: &Record, pair: &Pair, waiting: Waiting) -> Option<Waiting> {
    let (start, end) = (event(pair.start), event(pair.end));
    let elapsed = || match driver::elapsed_ms(start, end) {
        Err(CUresult::NOT_READY) => Ok(None),
        elapsed => elapsed.map(Some),
    };
    // A thread that ends the process may have no context any more, and need none for this.
    let took = in_context(Handle(pair.context), elapsed).or_else(|_| elapsed());
    match took {
        Ok(None) => return Some(waiting),
        Ok(Some(ms)) => {
            if let Some(slot) = STREAMS
                .slot(waiting.slot)
                .filter(|s| s.context().0 == pair.context)
            {
                note_idle(slot, waiting.operations);
            }
            add(record, &waiting, ms * 1e6);
        }
        Err(_) => record.note(Why::NoEvent, 1),
    }
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
        Kind::Idle if host_ns >= ns => return record.note(Why::Brief, 1),
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
    let share_ns = (ns - known_ns) / others.len().max(1) as f32;
    // Where the others took it all it is not known of these.
    for entry in others.into_iter().filter(|_| share_ns >= SHARE_NS_MIN) {
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
    use crate::kernels::record::Described;

    #[test]
    fn a_graph_whose_known_kernels_took_it_all_says_nothing_of_the_others() {
        let name = format!("pillion-recorder-test-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let record = Record::open(&folder).unwrap();
        let entry = |place| {
            let number = Number {
                place,
                generation: 0,
            };
            record
                .entry_of(number, || Some(Described::named("k")))
                .unwrap()
        };
        let [known, other] = [entry(1), entry(2)];
        record.add(known, Kind::Busy, 9_000.0);
        for graph_ns in [8_000.0, 9_000.0, 9_050.0] {
            share(&record, &[known, other], graph_ns);
            assert!(record.entry(other).unwrap().samples_ns().is_empty());
        }
        share(&record, &[known, other], 13_000.0);
        assert_eq!(record.entry(other).unwrap().samples_ns(), [4_000.0]);
        std::fs::remove_dir_all(folder).unwrap();
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
