//! What of a record is not read yet: pairs of events around launches.
//!
//! Plain data behind one lock, which is never held across a call of the driver.
//! [`crate::progress::recorder`] says what happens with it.

use std::collections::{HashMap, VecDeque};

use protocol::recording::Kind;

use super::EntryIndex;

/// Most pairs of events of a process.
pub(crate) const PAIRS_MAX: usize = 1024;
/// Most graphs that wait to be read: each has the list of its kernels.
pub(crate) const GRAPHS_MAX: usize = 16;

/// Two events, as numbers, of a context.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) context: u64,
    /// When the first had been recorded, ns.
    pub(crate) began_ns: u64,
}

/// What lies between two events.
#[derive(Debug)]
pub(crate) enum Timed {
    Kernel(EntryIndex),
    /// A graph with these kernels, a repeated one several times.
    Graph(Vec<EntryIndex>),
}

/// A launch whose second event has been recorded.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Where its pair is kept.
    pub(crate) pair: usize,
    pub(crate) timed: Timed,
    pub(crate) kind: Kind,
    /// How long the launch took on the host, ns.
    pub(crate) host_ns: u64,
    /// Index of the client, and of the stream's slot.
    pub(crate) client: u32,
    pub(crate) slot: u32,
    /// [`crate::progress::operations::submitted`] when the second event was recorded.
    pub(crate) operations: u32,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// All pairs ever made; one without a context may be made anew.
    pairs: Vec<Pair>,
    /// Those that nobody uses.
    free: Vec<usize>,
    /// In the order in which they were launched.
    pub(crate) waiting: VecDeque<Waiting>,
    /// How many launches of an entry were considered, by entry.
    seen: Vec<u32>,
    /// The same of a graph, by the place of its number.
    seen_graphs: HashMap<u16, u32>,
    /// Slots on whose streams something was launched.
    slots: Vec<bool>,
}

impl Timings {
    /// A free pair of a context, or a place for one that the caller makes; `None`: all are in use.
    pub(crate) fn take(&mut self, context: u64) -> Option<(usize, Pair)> {
        let of = |at: &usize| self.pairs.get(*at).copied().unwrap_or_default();
        let known = self.free.iter().rposition(|at| of(at).context == context);
        let empty = || self.free.iter().position(|at| of(at).context == 0);
        if let Some(found) = known.or_else(empty) {
            let at = self.free.swap_remove(found);
            return Some((at, of(&at)));
        }
        if self.pairs.len() >= PAIRS_MAX {
            return None;
        }
        self.pairs.push(Pair::default());
        Some((self.pairs.len() - 1, Pair::default()))
    }

    /// What is kept at a place.
    pub(crate) fn pair(&self, at: usize) -> Option<Pair> {
        self.pairs.get(at).copied()
    }

    /// Keeps a pair at a place.
    pub(crate) fn set(&mut self, at: usize, pair: Pair) {
        if let Some(kept) = self.pairs.get_mut(at) {
            *kept = pair;
        }
    }

    /// Nobody uses the pair any more.
    pub(crate) fn give_back(&mut self, at: usize) {
        self.free.push(at);
    }

    /// How often an entry was considered before.
    pub(crate) fn see(&mut self, EntryIndex(entry): EntryIndex) -> u32 {
        let entry = entry as usize;
        if entry >= self.seen.len() {
            self.seen.resize(entry + 1, 0);
        }
        self.seen.get_mut(entry).map_or(0, next)
    }

    /// The same of a graph.
    pub(crate) fn see_graph(&mut self, place: u16) -> u32 {
        next(self.seen_graphs.entry(place).or_default())
    }

    /// Whether it is the first launch on the stream of a slot.
    pub(crate) fn is_new_slot(&mut self, slot: u32) -> bool {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, false);
        }
        let known = self.slots.get_mut(slot);
        known.is_some_and(|known| !std::mem::replace(known, true))
    }

    /// Whether there is room for a graph that waits.
    pub(crate) fn has_room_for_graph(&self) -> bool {
        let graphs = self.waiting.iter();
        let graphs = graphs.filter(|waiting| matches!(waiting.timed, Timed::Graph(_)));
        graphs.count() < GRAPHS_MAX
    }

    /// A context is gone, and its events with it; how many launches were not read.
    pub(crate) fn forget(&mut self, context: u64) -> u64 {
        for pair in &mut self.pairs {
            if pair.context == context {
                *pair = Pair::default();
            }
        }
        let before = self.waiting.len();
        let gone: Vec<usize> = self.waiting.iter().map(|waiting| waiting.pair).collect();
        let is_gone = |at: &usize| self.pairs.get(*at).is_some_and(|pair| pair.context == 0);
        let gone: Vec<usize> = gone.into_iter().filter(is_gone).collect();
        self.waiting.retain(|waiting| !gone.contains(&waiting.pair));
        self.free.extend(gone);
        (before - self.waiting.len()) as u64
    }
}

/// A number, which is one more from now on.
fn next(number: &mut u32) -> u32 {
    let before = *number;
    *number = before.saturating_add(1);
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(pair: usize) -> Waiting {
        Waiting {
            pair,
            timed: Timed::Kernel(EntryIndex(0)),
            kind: Kind::Busy,
            host_ns: 0,
            client: 0,
            slot: 0,
            operations: 0,
        }
    }

    #[test]
    fn pairs_are_bounded_and_used_again_in_their_context() {
        let mut timings = Timings::default();
        for _ in 0..PAIRS_MAX {
            let (at, pair) = timings.take(7).unwrap();
            assert_eq!(pair.context, 0);
            timings.set(at, Pair { context: 7, ..pair });
        }
        assert!(timings.take(7).is_none());
        timings.give_back(3);
        assert!(timings.take(8).is_none(), "it is of another context");
        assert_eq!(timings.take(7).map(|(at, _)| at), Some(3));
    }

    #[test]
    fn what_a_context_takes_along_is_not_read_and_its_places_are_free() {
        let mut timings = Timings::default();
        for context in [7, 8] {
            let (at, pair) = timings.take(context).unwrap();
            timings.set(at, Pair { context, ..pair });
            timings.waiting.push_back(waiting(at));
        }
        assert_eq!(timings.forget(7), 1);
        let left: Vec<usize> = timings.waiting.iter().map(|waiting| waiting.pair).collect();
        assert_eq!(left, [1]);
        assert_eq!(
            timings.take(9).map(|(at, pair)| (at, pair.context)),
            Some((0, 0))
        );
    }
}
