//! Bounded queues of records between a client and the daemon. [`Spsc`] has one producer thread, the
//! launching thread that claims it; [`Mpsc`] is shared by those beyond the first
//! [`crate::pages::RINGS`]. The peer can scribble over both: every word is an atomic, and the
//! consumer keeps its position ([`Cursor`]), never reading `head` back. A full ring refuses the
//! record: the producer never waits, and the caller counts the drop.

use crate::record::RECORD_WORDS;
use crate::sync::{AtomicU64, Line, Ordering, PUBLISH};

type Slot = [AtomicU64; RECORD_WORDS];

/// A queue with a single producer. `N` is a power of two.
#[derive(Debug)]
#[repr(C)]
pub struct Spsc<const N: usize> {
    producer: Line<ProducerSide>,
    /// Records taken so far, written by the consumer.
    head: Line<AtomicU64>,
    slots: [Slot; N],
}

#[derive(Debug, Default)]
#[repr(C)]
struct ProducerSide {
    tail: AtomicU64,
    /// Last value of `head` read: the consumer's line is touched once per lap, not per push.
    head_seen: AtomicU64,
}

/// The queue had no room; the record was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The producer's index is impossible: a peer's fault, and the consumer gives the ring up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ring index {tail} is {} ahead of {head}, more than the ring holds", tail.wrapping_sub(*head))]
pub struct BadIndex {
    /// The peer's index.
    pub tail: u64,
    /// The consumer's own position.
    pub head: u64,
}

/// The consumer's position in one ring, kept in the consumer's own memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    head: u64,
}

impl<const N: usize> Spsc<N> {
    const MASK: u64 = {
        assert!(N.is_power_of_two());
        N as u64 - 1
    };

    /// Stores a record. Only one thread at a time may call this.
    #[inline]
    pub fn push(&self, record: &[u64; RECORD_WORDS]) -> Result<(), Full> {
        let side = &self.producer;
        let tail = side.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(side.head_seen.load(Ordering::Relaxed)) >= N as u64 {
            // Acquire pairs with `pop`'s Release: else stores overwrite a slot still being copied.
            let head = self.head.load(Ordering::Acquire);
            side.head_seen.store(head, Ordering::Relaxed);
            if tail.wrapping_sub(head) >= N as u64 {
                return Err(Full);
            }
        }
        let slot = &self.slots[(tail & Self::MASK) as usize];
        for (word, value) in slot.iter().zip(record) {
            word.store(*value, Ordering::Relaxed);
        }
        // Pairs with `pop`'s Acquire of `tail`: else it could see the new index with old words.
        side.tail.store(tail.wrapping_add(1), PUBLISH);
        Ok(())
    }

    /// The next record's slot: one cache line, read by the consumer a lap ago. Prefetched, it costs
    /// no wait in [`crate::lease::announce`], whose fence completes the push.
    #[inline]
    pub fn next_slot(&self) -> *const [AtomicU64; RECORD_WORDS] {
        let tail = self.producer.tail.load(Ordering::Relaxed);
        &raw const self.slots[(tail & Self::MASK) as usize]
    }

    /// Takes the oldest record, if any.
    pub fn pop(&self, cursor: &mut Cursor) -> Result<Option<[u64; RECORD_WORDS]>, BadIndex> {
        // Acquire pairs with the publishing store in `push`.
        let tail = self.producer.tail.load(Ordering::Acquire);
        let ahead = tail.wrapping_sub(cursor.head);
        if ahead == 0 {
            return Ok(None);
        }
        if ahead > N as u64 {
            return Err(BadIndex {
                tail,
                head: cursor.head,
            });
        }
        let slot = &self.slots[(cursor.head & Self::MASK) as usize];
        let record = core::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
        cursor.head = cursor.head.wrapping_add(1);
        // Release pairs with the Acquire load of `head` in `push`.
        self.head.store(cursor.head, Ordering::Release);
        Ok(Some(record))
    }

    /// Where a new consumer begins: behind all earlier records; it ignores its predecessor's words.
    pub fn skip(&self) -> Cursor {
        // Acquire pairs with the publishing store in `push`: skipped slots are no longer written.
        let head = self.producer.tail.load(Ordering::Acquire);
        self.head.store(head, Ordering::Release);
        Cursor { head }
    }

    /// A ring for tests; shipped rings lie in zeroed shared memory, which is the same value.
    #[cfg(any(test, loom))]
    pub fn empty() -> Self {
        Self {
            producer: Line::default(),
            head: Line::default(),
            slots: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

/// A queue for any number of producers. `N` is a power of two. A slot's turn word is `2 * lap` if
/// free for that lap, `2 * lap + 1` if filled. A producer claims an index by compare-and-swap,
/// fills the slot, sets its turn. A thread that dies in between stops the ring for its own process.
#[derive(Debug)]
#[repr(C)]
pub struct Mpsc<const N: usize> {
    tail: Line<AtomicU64>,
    turns: [AtomicU64; N],
    slots: [Slot; N],
}

impl<const N: usize> Mpsc<N> {
    /// Most compare-and-swaps that one push may lose before it gives up and returns [`Full`].
    pub const CLAIMS_MAX: usize = 64;

    const MASK: u64 = {
        assert!(N.is_power_of_two());
        N as u64 - 1
    };

    /// Stores a record from any thread.
    pub fn push(&self, record: &[u64; RECORD_WORDS]) -> Result<(), Full> {
        for _ in 0..Self::CLAIMS_MAX {
            let tail = self.tail.load(Ordering::Relaxed);
            let index = (tail & Self::MASK) as usize;
            let lap = tail / N as u64;
            // Acquire pairs with `pop`'s Release: else stores overtake the consumer's copy.
            let turn = self.turns[index].load(Ordering::Acquire);
            if turn < 2 * lap {
                return Err(Full);
            }
            let claimed = turn == 2 * lap
                && self
                    .tail
                    .compare_exchange(tail, tail + 1, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if claimed {
                for (word, value) in self.slots[index].iter().zip(record) {
                    word.store(*value, Ordering::Relaxed);
                }
                // Pairs with the Acquire load of the turn in `pop`.
                self.turns[index].store(2 * lap + 1, PUBLISH);
                return Ok(());
            }
        }
        Err(Full)
    }

    /// Takes the oldest record, if it is filled.
    pub fn pop(&self, cursor: &mut Cursor) -> Option<[u64; RECORD_WORDS]> {
        let index = (cursor.head & Self::MASK) as usize;
        let lap = cursor.head / N as u64;
        // Acquire pairs with the publishing store of the turn in `push`.
        if self.turns[index].load(Ordering::Acquire) != 2 * lap + 1 {
            return None;
        }
        let record = core::array::from_fn(|i| self.slots[index][i].load(Ordering::Relaxed));
        cursor.head = cursor.head.wrapping_add(1);
        // Release pairs with the Acquire load of the turn in `push`.
        self.turns[index].store(2 * (lap + 1), Ordering::Release);
        Some(record)
    }

    /// Where a new consumer begins: behind all records, or at the oldest claimed, unfilled slot.
    pub fn skip(&self) -> Cursor {
        let tail = self.tail.load(Ordering::Relaxed);
        // The previous consumer has taken everything that is a lap older.
        let mut cursor = Cursor {
            head: tail.saturating_sub(N as u64),
        };
        while cursor.head < tail {
            let turn = &self.turns[(cursor.head & Self::MASK) as usize];
            // Acquire pairs with the publishing store of the turn in `push`.
            if turn.load(Ordering::Acquire) == 2 * (cursor.head / N as u64) {
                break;
            }
            if self.pop(&mut cursor).is_none() {
                // Taken by the previous consumer.
                cursor.head += 1;
            }
        }
        cursor
    }

    /// A ring for tests; see [`Spsc::empty`].
    #[cfg(any(test, loom))]
    pub fn empty() -> Self {
        Self {
            tail: Line::default(),
            turns: core::array::from_fn(|_| AtomicU64::new(0)),
            slots: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn record(value: u64) -> [u64; RECORD_WORDS] {
        core::array::from_fn(|i| value.wrapping_mul(31).wrapping_add(i as u64))
    }

    fn check_bounded_queue(
        pushes: Vec<bool>,
        push: impl Fn(&[u64; RECORD_WORDS]) -> bool,
        mut pop: impl FnMut() -> Option<[u64; RECORD_WORDS]>,
    ) -> Result<(), TestCaseError> {
        let mut model = VecDeque::new();
        for (i, is_push) in pushes.into_iter().enumerate() {
            if is_push {
                let stored = push(&record(i as u64));
                prop_assert_eq!(stored, model.len() < 8);
                if stored {
                    model.push_back(record(i as u64));
                }
            } else {
                prop_assert_eq!(pop(), model.pop_front());
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn spsc_is_a_bounded_queue(pushes in prop::collection::vec(any::<bool>(), 0..200)) {
            let ring = Spsc::<8>::empty();
            let mut cursor = Cursor::default();
            let push = |record: &_| ring.push(record).is_ok();
            check_bounded_queue(pushes, push, || ring.pop(&mut cursor).unwrap())?;
        }

        #[test]
        fn mpsc_is_a_bounded_queue(pushes in prop::collection::vec(any::<bool>(), 0..200)) {
            let ring = Mpsc::<8>::empty();
            let mut cursor = Cursor::default();
            let push = |record: &_| ring.push(record).is_ok();
            check_bounded_queue(pushes, push, || ring.pop(&mut cursor))?;
        }
    }

    #[test]
    fn an_index_beyond_the_ring_is_a_peers_fault() {
        let ring = Spsc::<4>::empty();
        ring.producer.tail.store(9, Ordering::Relaxed);
        let error = ring.pop(&mut Cursor::default()).unwrap_err();
        assert_eq!(error, BadIndex { tail: 9, head: 0 });
    }

    #[test]
    fn a_new_consumer_begins_behind_what_was_pushed_before_and_the_ring_has_room_again() {
        let (spsc, mpsc) = (Spsc::<4>::empty(), Mpsc::<4>::empty());
        for taken in 0..6 {
            let (mut first, mut second) = (spsc.skip(), mpsc.skip());
            for value in 0..4 {
                spsc.push(&record(value)).unwrap();
                mpsc.push(&record(value)).unwrap();
            }
            for value in 0..taken.min(4) {
                assert_eq!(spsc.pop(&mut first).unwrap(), Some(record(value)));
                assert_eq!(mpsc.pop(&mut second), Some(record(value)));
            }
        }
        let (mut first, mut second) = (spsc.skip(), mpsc.skip());
        assert_eq!(spsc.pop(&mut first).unwrap(), None);
        assert_eq!(mpsc.pop(&mut second), None);
        spsc.push(&record(9)).unwrap();
        mpsc.push(&record(9)).unwrap();
        assert_eq!(spsc.pop(&mut first).unwrap(), Some(record(9)));
        assert_eq!(mpsc.pop(&mut second), Some(record(9)));
    }

    #[test]
    fn a_slot_that_is_claimed_and_not_filled_is_not_skipped() {
        let ring = Mpsc::<4>::empty();
        ring.push(&record(0)).unwrap();
        ring.tail.store(2, Ordering::Relaxed);
        let mut cursor = ring.skip();
        assert_eq!(ring.pop(&mut cursor), None);
        ring.push(&record(2)).unwrap();
        ring.turns[1].store(1, PUBLISH);
        assert!(ring.pop(&mut cursor).is_some());
        assert_eq!(ring.pop(&mut cursor), Some(record(2)));
        for value in 0..4 {
            ring.push(&record(value)).unwrap();
            assert_eq!(ring.pop(&mut cursor), Some(record(value)));
        }
    }

    #[test]
    fn indices_may_wrap_around() {
        let ring = Spsc::<4>::empty();
        let start = u64::MAX - 1;
        ring.producer.tail.store(start, Ordering::Relaxed);
        ring.producer.head_seen.store(start, Ordering::Relaxed);
        let mut cursor = Cursor { head: start };
        for value in 0..4 {
            ring.push(&record(value)).unwrap();
            assert_eq!(ring.pop(&mut cursor).unwrap(), Some(record(value)));
        }
    }
}
