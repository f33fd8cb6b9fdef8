//! Records a best-effort job's launches and their durations (`pillion profile record`). Every
//! accepted launch is counted. Some are *timed*: the launching thread records an event in the
//! launch's own stream just before and one just after the launch, in the same call of the
//! application. The helper thread reads them once reached.
//!
//! **Why this adds no order.** The stream orders the two events like the launch, and nothing of the
//! calling thread comes between. In the legacy stream an event is a barrier for the context's
//! blocking streams, and so is the launch. Another thread's submission between the events happens
//! *during* the application's call, so the application does not know on which side of the launch it
//! falls. It is ordered as before the launch for what follows it, and as after the launch for what
//! it follows. Any two operations ordered this way are also ordered in one of the two cases. An
//! event at another time has no such guarantee ([`crate::progress::sight`]).
//!
//! There is no event where it may cost more than its place in the stream
//! ([`sight::why_not_timed`]): during a capture in the process, where streams may share a hardware
//! queue, and behind so many operations that the queue may be full. In the last case some are
//! recorded for little-known kernels, as a job that hardly ever waits always launches some there.
//! At most [`STREAM_PAIRS`] pairs wait in a stream, so that a program can still put about as much
//! behind a wait. Not timed either: a launch that may begin before its predecessor ends
//! (programmatic dependent launch), as an event would forbid that; and one on several devices.
//!
//! **What is measured.** If the first event was not reached when the launch had been submitted
//! ([`Kind::Busy`]), the time between the two is the kernel's plus the gap before it, in which the
//! GPU starts it; [`GAP_NS`] is subtracted. On an idle stream the GPU reaches the first event at
//! once and waits for the launch, so the host's time for it is subtracted ([`Kind::Idle`]); such
//! durations count only where there are no others. Assumed: drivers ring last, so the GPU sees both
//! at the calls' ends.
//!
//! **Graphs.** An event inside would change the graph, so some launches are timed as a whole. The
//! time beyond the kernels that were timed outside of graphs is shared evenly among the others
//! ([`Kind::Share`]). **CUPTI.** Where it times the process ([`crate::progress::cupti`]) events
//! time only kernels that differ from others in their operators alone.
//!
//! **How many.** The first of each kernel and shape, one in four until [`FIRST`] were timed, then
//! one in 32, at random ([`Due`]). Pairs are bounded ([`crate::kernels::record::Pairs`]). A pair
//! costs about as much as the launch. No thread waits for another: see [`crate::kernels::record`].

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

/// Durations of a kernel and shape, or launches of a graph, that are wanted soon.
const FIRST: u64 = 64;
/// Most pairs that wait in a stream. Its queue takes about 1000 operations, and a program may put
/// as many launches behind a wait that it ends itself.
const STREAM_PAIRS: u32 = 8;
/// The same for kernels with a known duration (the others are for those late in a burst of
/// launches), and behind so much work that the queue may be full.
const KNOWN_PAIRS: u32 = 4;
const DEEP_KNOWN_PAIRS: u32 = 2;
/// Enough durations of a kernel behind that much work.
const DEEP_MEASURED: u64 = 4;
/// Interval of polling events, ns.
const LOOK_NS: u64 = 2_000_000;
/// Gap between two kernels of a stream that were both submitted long before, ns: the mean of the
/// 7249 gaps below 10 µs in a V100's timeline of ResNet-50's training (softgpu/src/gpu.rs).
const GAP_NS: f32 = 1_400.0;
/// The least meaningful share of a graph's time, ns: no kernel takes less.
const SHARE_NS_MIN: f32 = 100.0;
/// Longest wait for another thread, ns: at the end of a context or the process for a reader, at a
/// graph's launch for a thread that creates one.
const PATIENCE_NS: u64 = 20_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Launched {
    /// A kernel, and whether recording two events around it is harmless.
    Kernel(CUfunction, bool),
    Graph,
    /// A library call whose launches are not seen.
    #[cfg_attr(shim, expect(dead_code, reason = "operators are not the shim's"))]
    Operator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// An entry plus one, or one of the constants below.
    entry: u32,
    /// The index of the pair of events plus one; 0: not timed.
    pair: u32,
}

const NOTHING: u32 = 0;
const GRAPH: u32 = u32::MAX;
const OPERATOR: u32 = u32::MAX - 1;
const NO_ENTRY: u32 = u32::MAX - 2;

impl Ticket {
    pub(crate) const NONE: Self = Self {
        entry: NOTHING,
        pair: 0,
    };

    #[inline]
    pub(crate) fn is_some(self) -> bool {
        self.entry != NOTHING
    }
}

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

struct Wanted<'a> {
    due: &'a Due,
    /// Launches measured on a busy stream; `None` if none was measured on any.
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
    // First: the launch's measurement includes everything before the second event.
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

fn count_graph(client: &Client, record: &Record, exec: CUgraphExec) -> Vec<EntryIndex> {
    record.note(Why::Graphs, 1);
    let mut numbers = None;
    // A thread that creates graphs holds the table for a moment, or for good if it never returns.
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

fn note_stream(client: &Client, record: &Record, slot: Option<u32>) {
    if let Some(slot) = slot
        && record.pairs.is_further_stream(client.index, slot)
    {
        record.note(Why::Streams, 1);
    }
}

/// Most pairs in a stream, including that of a launch with `measured` measurements.
fn pairs_max(measured: Option<u64>, is_deep: bool) -> u32 {
    match (measured, is_deep) {
        (None, _) => STREAM_PAIRS,
        (Some(_), false) => KNOWN_PAIRS,
        (Some(..DEEP_MEASURED), true) => DEEP_KNOWN_PAIRS,
        (Some(_), true) => 0,
    }
}

/// Records the first event of a pair. Returns the pair's index.
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

/// Records the second event of a pair. Returns the pair to be read, for now without a kernel.
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

/// Records the second event, and queries whether the first was reached.
fn finish_pair(pair: &Pair, stream: CUstream) -> Result<Kind, CUresult> {
    succeeded(driver::record_event(event(pair.end), stream))?;
    let start = || driver::query_event(event(pair.start));
    Ok(match driver::with_relaxed_captures(start) {
        CUresult::NOT_READY => Kind::Busy,
        _ => Kind::Idle,
    })
}

/// Reads a client's completed launches, in its helper thread, which other threads' captures do not
/// restrict. Returns when to poll again, ns.
pub(crate) fn poll(client: &Client, now_ns: u64) -> Option<u64> {
    let record = KERNELS.record().filter(|_| client.is_recording)?;
    if client.is_taken()
        && !client.link.lease.is_ungated()
        && record.page().count_of(Why::Gated) == 0
    {
        record.note(Why::Gated, 1);
    }
    cupti::poll(record, now_ns);
    // The thread that is reading reads everything.
    let was_any = record
        .reading
        .try_lock()
        .is_some_and(|_reading| read(record, |waiting| waiting.client == client.index));
    let next_ns = if was_any { LOOK_NS } else { 10 * LOOK_NS };
    Some(now_ns + next_ns)
}

/// Before a context or the process ends: reads all completed launches. A thread interrupted while
/// reading may come here again; its wait for itself is bounded.
pub(crate) fn read_last() {
    let Some(record) = KERNELS.record() else {
        return;
    };
    let mut reading = None;
    // This thread would miss what another thread holds.
    backoff::wait_for(&Clock::process(), PATIENCE_NS, || {
        reading = record.reading.try_lock();
        reading.is_some()
    });
    if reading.is_some() {
        driver::with_relaxed_captures(|| read(record, |_| true));
    }
}

pub(crate) fn handle_context_destroyed(context: CUcontext) {
    if let Some(record) = KERNELS.record() {
        let lost = record.pairs.forget(Handle::from(context).0);
        record.note(Why::NoEvent, lost);
    }
}

/// Reads the completed launches that `is_its` selects; returns whether there were any. The caller
/// holds [`Record::reading`].
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

fn try_read(record: &Record, pair: &Pair, waiting: Waiting) -> Option<Waiting> {
    let (start, end) = (event(pair.start), event(pair.end));
    let elapsed = || match driver::elapsed_ms(start, end) {
        Err(CUresult::NOT_READY) => Ok(None),
        elapsed => elapsed.map(Some),
    };
    // A thread that ends the process may have no context any more, and needs none for this.
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

/// Everything submitted to a stream before that many operations is complete.
fn note_idle(slot: &Slot, operations: u32) {
    if operations.wrapping_sub(slot.idle_at()) < 1 << 31 {
        slot.set_idle_at(operations);
    }
}

fn add(record: &Record, waiting: &Waiting, ns: f32) {
    let host_ns = waiting.host_ns as f32;
    let ns = match waiting.kind {
        // Longer on the host than the kernel: the GPU shows nothing.
        Kind::Idle if host_ns >= ns => return record.note(Why::Brief, 1),
        Kind::Idle => ns - host_ns,
        // A kernel as short as the gap keeps a part.
        _ => (ns - GAP_NS).max(ns / 4.0),
    };
    match &waiting.timed {
        Timed::Kernel(entry) => record.add(*entry, waiting.kind, ns),
        Timed::Graph(entries) => share(record, entries, ns),
    }
}

/// Shares a graph's time among its kernels without a duration of their own.
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
    // If the others account for all of it, nothing is known of these.
    for entry in others.into_iter().filter(|_| share_ns >= SHARE_NS_MIN) {
        record.add(entry, Kind::Share, share_ns);
    }
}

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

/// Runs `calls` with a context current, which it nearly always is.
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
