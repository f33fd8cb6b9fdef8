//! The unread part of a record: pairs of events around launches. Each pair belongs to one thread at
//! a time: the launching thread, none while it waits to be read, then the reading thread. No thread
//! waits for another here. A thread that leaves in the middle of a launch takes its pair along, and
//! one of the places of its stream. [`crate::progress::recorder`] uses the pairs.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Mutex;

use protocol::record::STREAMS_MAX;
use protocol::recording::{GPUS_MAX, Kind, Why};

use super::EntryIndex;

/// Most pairs of events in a process.
pub(crate) const PAIRS_MAX: usize = 1024;
/// Most unread graphs: each has the list of its kernels.
pub(crate) const GRAPHS_MAX: u32 = 16;

/// Two events, as numbers, of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// 0: there are no events yet.
    pub(crate) context: u64,
    pub(crate) began_ns: u64,
}

#[derive(Debug)]
pub(crate) enum Timed {
    Kernel(EntryIndex),
    /// A graph with these kernels, a repeated one several times.
    Graph(Vec<EntryIndex>),
}

#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) timed: Timed,
    pub(crate) kind: Kind,
    /// Duration of the launch call on the host, ns.
    pub(crate) host_ns: u64,
    /// Indices of the client and of the stream's slot.
    pub(crate) client: u32,
    pub(crate) slot: u32,
    /// [`crate::progress::operations::submitted`] when the second event was recorded.
    pub(crate) operations: u32,
}

pub(crate) struct Pairs {
    cells: Box<[Cell]>,
    /// By slot: pairs that are not free.
    of_slots: Box<[AtomicU32]>,
    /// By slot: whether its stream had a launch.
    is_used: Box<[AtomicBool]>,
    /// By client: the same for any of its streams.
    has_stream: Box<[AtomicBool]>,
    graphs: AtomicU32,
}

struct Cell {
    /// [`FREE`], [`HELD`] or [`WAITING`].
    state: AtomicU32,
    slot: AtomicU32,
    is_graph: AtomicU32,
    start: AtomicU64,
    end: AtomicU64,
    context: AtomicU64,
    began_ns: AtomicU64,
    /// Only the thread that holds the pair locks it, so the lock is never contended.
    waiting: Mutex<Option<Waiting>>,
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const WAITING: u32 = 2;

impl Pairs {
    pub(crate) fn new() -> Self {
        Self {
            cells: (0..PAIRS_MAX).map(|_| Cell::new()).collect(),
            of_slots: (0..STREAMS_MAX).map(|_| AtomicU32::new(0)).collect(),
            is_used: flags(STREAMS_MAX as usize),
            has_stream: flags(GPUS_MAX),
            graphs: AtomicU32::new(0),
        }
    }

    /// A pair of a context, for a launch on the stream of a slot that has fewer than `most`. The
    /// caller creates missing events.
    pub(crate) fn take(
        &self,
        context: u64,
        slot: u32,
        most: u32,
        is_graph: bool,
    ) -> Result<(usize, Pair), Why> {
        if is_graph && !add_below(&self.graphs, GRAPHS_MAX) {
            return Err(Why::Full);
        }
        let taken = self.take_counted(context, slot, most, is_graph);
        if taken.is_err() && is_graph {
            self.graphs.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    fn take_counted(
        &self,
        context: u64,
        slot: u32,
        most: u32,
        is_graph: bool,
    ) -> Result<(usize, Pair), Why> {
        let of_slot = self.of_slots.get(slot as usize).ok_or(Why::NoSlot)?;
        if !add_below(of_slot, most) {
            return Err(Why::Full);
        }
        for (at, cell) in self.cells.iter().enumerate() {
            let its = cell.context.load(Ordering::Relaxed);
            if (its == 0 || its == context) && cell.change(FREE, HELD) {
                // Another thread may have had it in between.
                let pair = cell.pair();
                if pair.context == 0 || pair.context == context {
                    cell.slot.store(slot, Ordering::Relaxed);
                    cell.is_graph.store(u32::from(is_graph), Ordering::Relaxed);
                    return Ok((at, pair));
                }
                cell.state.store(FREE, Ordering::Release);
            }
        }
        of_slot.fetch_sub(1, Ordering::Relaxed);
        Err(Why::NoEvent)
    }

    pub(crate) fn pair(&self, at: usize) -> Option<Pair> {
        self.cells.get(at).map(Cell::pair)
    }

    pub(crate) fn set(&self, at: usize, pair: &Pair) {
        if let Some(cell) = self.cells.get(at) {
            cell.start.store(pair.start, Ordering::Relaxed);
            cell.end.store(pair.end, Ordering::Relaxed);
            cell.began_ns.store(pair.began_ns, Ordering::Relaxed);
            cell.context.store(pair.context, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_back(&self, at: usize) {
        let Some(cell) = self.cells.get(at) else {
            return;
        };
        if cell.is_graph.swap(0, Ordering::Relaxed) != 0 {
            self.graphs.fetch_sub(1, Ordering::Relaxed);
        }
        let slot = cell.slot.load(Ordering::Relaxed);
        if let Some(of_slot) = self.of_slots.get(slot as usize) {
            of_slot.fetch_sub(1, Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `change`: the next owner sees the events.
        cell.state.store(FREE, Ordering::Release);
    }

    pub(crate) fn wait(&self, at: usize, waiting: Waiting) {
        let Some(cell) = self.cells.get(at) else {
            return;
        };
        if let Ok(mut kept) = cell.waiting.try_lock() {
            *kept = Some(waiting);
        }
        // Release pairs with the Acquire in `change`: the reader sees what waits.
        cell.state.store(WAITING, Ordering::Release);
    }

    /// Visits the waiting pairs; `read` holds each meanwhile, and what it returns waits on.
    pub(crate) fn read_each(&self, mut read: impl FnMut(&Pair, Waiting) -> Option<Waiting>) {
        for (at, cell) in self.cells.iter().enumerate() {
            if cell.state.load(Ordering::Relaxed) != WAITING || !cell.change(WAITING, HELD) {
                continue;
            }
            let kept = cell.take_waiting();
            match kept.and_then(|waiting| read(&cell.pair(), waiting)) {
                Some(waiting) => self.wait(at, waiting),
                None => self.give_back(at),
            }
        }
    }

    /// Whether a launch is the first on a stream of a client that had one on another stream.
    pub(crate) fn is_further_stream(&self, client: u32, slot: u32) -> bool {
        let is_set = |flags: &[AtomicBool], index: u32| {
            let flag = flags.get(index as usize);
            flag.is_none_or(|flag| {
                flag.load(Ordering::Relaxed) || flag.swap(true, Ordering::Relaxed)
            })
        };
        !is_set(&self.is_used, slot) && is_set(&self.has_stream, client)
    }

    /// A context is gone, and its events with it. Returns how many launches were not read.
    pub(crate) fn forget(&self, context: u64) -> u64 {
        let mut lost = 0;
        for (at, cell) in self.cells.iter().enumerate() {
            if cell.context.load(Ordering::Relaxed) != context {
                continue;
            }
            if cell.change(WAITING, HELD) {
                cell.take_waiting();
                self.set(at, &Pair::default());
                self.give_back(at);
                lost += 1;
            } else if cell.change(FREE, HELD) {
                self.set(at, &Pair::default());
                cell.state.store(FREE, Ordering::Release);
            }
        }
        lost
    }
}

impl Cell {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            slot: AtomicU32::new(0),
            is_graph: AtomicU32::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            context: AtomicU64::new(0),
            began_ns: AtomicU64::new(0),
            waiting: Mutex::new(None),
        }
    }

    /// Changes the state if it is `from`. Acquire pairs with the Release of the previous owner.
    fn change(&self, from: u32, to: u32) -> bool {
        let (changed, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.state
            .compare_exchange(from, to, changed, failed)
            .is_ok()
    }

    fn pair(&self) -> Pair {
        Pair {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            context: self.context.load(Ordering::Relaxed),
            began_ns: self.began_ns.load(Ordering::Relaxed),
        }
    }

    fn take_waiting(&self) -> Option<Waiting> {
        self.waiting.try_lock().ok()?.take()
    }
}

fn flags(count: usize) -> Box<[AtomicBool]> {
    (0..count).map(|_| AtomicBool::new(false)).collect()
}

fn add_below(number: &AtomicU32, most: u32) -> bool {
    let more = |before: u32| (before < most).then(|| before + 1);
    number
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot for each, so that slots do not limit.
    fn take(pairs: &Pairs, context: u64, slot: u32) -> Result<(usize, Pair), Why> {
        pairs.take(context, slot % STREAMS_MAX, u32::MAX, false)
    }

    fn waiting(slot: u32) -> Waiting {
        Waiting {
            timed: Timed::Kernel(EntryIndex(0)),
            kind: Kind::Busy,
            host_ns: 0,
            client: 0,
            slot,
            operations: 0,
        }
    }

    #[test]
    fn pairs_are_bounded_and_used_again_in_their_context() {
        let pairs = Pairs::new();
        for slot in 0..PAIRS_MAX as u32 {
            let (at, pair) = take(&pairs, 7, slot).unwrap();
            assert_eq!(pair.context, 0);
            pairs.set(at, &Pair { context: 7, ..pair });
        }
        assert_eq!(take(&pairs, 7, 0), Err(Why::NoEvent));
        pairs.give_back(3);
        assert_eq!(
            take(&pairs, 8, 0),
            Err(Why::NoEvent),
            "it is of another context"
        );
        assert_eq!(take(&pairs, 7, 0).map(|(at, _)| at), Ok(3));
    }

    #[test]
    fn as_many_wait_in_a_stream_as_may_also_while_a_thread_reads() {
        let pairs = Pairs::new();
        let take = |slot| pairs.take(7, slot, 2, false).map(|(at, _)| at);
        for _ in 0..2 {
            let at = take(0).unwrap();
            pairs.wait(at, waiting(0));
        }
        assert_eq!(take(0), Err(Why::Full));
        let mut read = 0;
        pairs.read_each(|_, waiting| {
            read += 1;
            assert_eq!(take(0), Err(Why::Full));
            Some(waiting)
        });
        assert_eq!((read, take(0)), (2, Err(Why::Full)));
        let other = take(1).unwrap();
        pairs.give_back(other);
        pairs.read_each(|_, _| None);
        assert!(take(0).is_ok() && take(0).is_ok());
        assert_eq!(take(0), Err(Why::Full));
    }

    #[test]
    fn graphs_that_wait_are_bounded() {
        let pairs = Pairs::new();
        let take = |slot| pairs.take(7, slot, 1, true).map(|(at, _)| at);
        let taken: Vec<usize> = (0..GRAPHS_MAX).map(|slot| take(slot).unwrap()).collect();
        assert_eq!(take(GRAPHS_MAX), Err(Why::Full));
        pairs.give_back(taken[0]);
        assert_eq!(take(1), Err(Why::Full), "its stream has one");
        assert!(take(GRAPHS_MAX).is_ok());
    }

    #[test]
    fn streams_count_beyond_the_first_of_each_device() {
        let pairs = Pairs::new();
        let launches = [(0, 3), (0, 3), (1, 4), (0, 5), (1, 4), (0, 5)];
        let further = launches.map(|(client, slot)| pairs.is_further_stream(client, slot));
        assert_eq!(further, [false, false, false, true, false, false]);
    }

    #[test]
    fn what_a_context_takes_along_is_not_read_and_its_places_are_free() {
        let pairs = Pairs::new();
        for context in [7, 8] {
            let (at, pair) = take(&pairs, context, 0).unwrap();
            pairs.set(at, &Pair { context, ..pair });
            pairs.wait(at, waiting(context as u32));
        }
        assert_eq!(pairs.forget(7), 1);
        let mut left = Vec::new();
        pairs.read_each(|pair, waiting| {
            left.push((pair.context, waiting.slot));
            Some(waiting)
        });
        assert_eq!(left, [(8, 8)]);
        assert_eq!(take(&pairs, 9, 0), Ok((0, Pair::default())));
    }

    #[test]
    fn threads_that_take_and_read_at_once_never_have_more_than_may_wait() {
        const MOST: u32 = 4;
        let (pairs, held) = (Pairs::new(), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Ok((at, pair)) = pairs.take(7, 0, MOST, false) {
                            assert!(held.fetch_add(1, Ordering::SeqCst) < MOST);
                            pairs.set(at, &Pair { context: 7, ..pair });
                            pairs.wait(at, waiting(0));
                        }
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20_000 {
                    pairs.read_each(|_, _| {
                        held.fetch_sub(1, Ordering::SeqCst);
                        None
                    });
                }
            });
        });
    }
}
