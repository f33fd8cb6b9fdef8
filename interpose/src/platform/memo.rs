//! A fixed-size cache table without locks or allocation. A full table replaces an entry that was
//! not used lately. Shapes of launches ([`crate::kernels`]) and labels ([`crate::kernels::labels`])
//! are kept in such tables. A program that meets new shapes for ever (a server that sees every
//! sequence length) fills any table. If it kept its old entries, every launch of a new shape would
//! pay for a search of the profile and for calls to the driver, for the rest of the program's life.
//!
//! **Place.** A key may lie at [`WINDOW`] consecutive places, from the place that it hashes to. A
//! new key takes the first empty place, or else the first place whose entry was not used lately.
//! Searches and replacement begin at the same place, so a key that replaces another is found about
//! as fast as the first keys of an empty table: after 40 000 others a new key lies 0.8 places from
//! its first one (2.1 if each of the others was used three times).
//!
//! **Replacement** is CLOCK (second chance). A hit sets the flag [`USED`] if it is clear, so that
//! hits hardly ever write. A key that looks for a place clears the flag of each entry that it
//! passes. An entry is therefore replaced only if no search has found it since a key last passed
//! it. A new entry begins without the flag: keys that are used once replace each other, and spare
//! entries that are used again. If all entries of the window were used lately, the first is
//! replaced. So a search reads at most `WINDOW` entries and a replacement tries at most three times
//! as many.
//!
//! **Reading.** The state of an entry is a [`SeqLock`], whose version contains the *generation* of
//! the entry, which grows with each replacement. A writer marks the entry [`FILLING`]; readers skip
//! it. Generations have 16 bits: a reader would return a torn entry if its place were replaced
//! exactly 65 536 times between its two loads of the state, which takes as many new keys of one
//! window. The model checker runs this source (`client/tests/interleavings.rs`).

use protocol::sync::{AtomicU64, Ordering, SeqLock};

/// Places that a key may lie at. In a table filled at random to 3/4, one key in 30 finds all taken.
pub(crate) const WINDOW: usize = 32;

/// `N` entries (a power of two) of `K` words of key and `R` of its own. 8 words are a cache line.
pub(crate) struct Memo<const N: usize, const K: usize, const R: usize> {
    entries: [Entry<K, R>; N],
}

#[repr(align(64))]
struct Entry<const K: usize, const R: usize> {
    /// [`EMPTY`]; [`FILLING`]; or [`READY`], perhaps [`USED`], with generation and note.
    state: SeqLock,
    key: [AtomicU64; K],
    rest: [AtomicU64; R],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<const R: usize> {
    pub(crate) place: usize,
    /// How often the place was reused; from 0.
    pub(crate) generation: u16,
    /// The key's note, [`NOTE_BITS`] wide.
    pub(crate) note: u64,
    /// The key's words, unless changed since.
    pub(crate) rest: [u64; R],
}

pub(crate) const NOTE_BITS: u32 = 64 - NOTE_SHIFT;

const EMPTY: u64 = 0;
const FILLING: u64 = 1;
const READY: u64 = 2;
const USED: u64 = 4;
const GENERATION_SHIFT: u32 = 8;
const NOTE_SHIFT: u32 = 24;

impl<const N: usize, const K: usize, const R: usize> Memo<N, K, R> {
    const BITS: u32 = {
        assert!(N.is_power_of_two() && N > 1);
        N.trailing_zeros()
    };

    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const {
                Entry {
                    state: SeqLock::new(EMPTY),
                    key: [const { AtomicU64::new(0) }; K],
                    rest: [const { AtomicU64::new(0) }; R],
                }
            }; N],
        }
    }

    /// As above; loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            entries: core::array::from_fn(|_| Entry {
                state: SeqLock::new(EMPTY),
                key: core::array::from_fn(|_| AtomicU64::new(0)),
                rest: core::array::from_fn(|_| AtomicU64::new(0)),
            }),
        }
    }

    /// Finds a key's entry and marks it used.
    #[inline]
    pub(crate) fn find(&self, key: &[u64; K]) -> Option<Found<R>> {
        for place in Self::window(key) {
            let entry = self.entries.get(place)?;
            let state = entry.state.load();
            if state == EMPTY {
                // Entries are never emptied, so the key lies no farther.
                return None;
            }
            if state & READY != 0
                && entry.has(key)
                && let Some(found) = entry.read(place, state)
            {
                if state & USED == 0 {
                    entry.mark_used(state);
                }
                return Some(found);
            }
        }
        None
    }

    /// Inserts a key that was not found, replacing another if need be; `rest` is given the
    /// generation. `None` if other threads are filling every place that the key may have. Threads
    /// that insert one key at the same time insert it several times: searches find the first of
    /// these entries, and the others, unused, will be replaced.
    pub(crate) fn keep(
        &self,
        key: &[u64; K],
        note: u64,
        rest: impl FnOnce(u16) -> [u64; R],
    ) -> Option<Found<R>> {
        debug_assert!(note < 1 << NOTE_BITS);
        let (place, generation) = self.claim(key)?;
        let entry = self.entries.get(place)?;
        let rest = rest(generation);
        for (word, value) in entry.key.iter().zip(key) {
            word.store(*value, Ordering::Relaxed);
        }
        for (word, value) in entry.rest.iter().zip(rest) {
            word.store(value, Ordering::Relaxed);
        }
        let state = READY | u64::from(generation) << GENERATION_SHIFT | note << NOTE_SHIFT;
        entry.state.finish(state);
        Some(Found {
            place,
            generation,
            note,
            rest,
        })
    }

    /// The key and the entry at a place, if any. Does not mark it used.
    pub(crate) fn at(&self, place: usize) -> Option<([u64; K], Found<R>)> {
        let entry = self.entries.get(place)?;
        let state = entry.state.load();
        if state & READY == 0 {
            return None;
        }
        let key = entry
            .key
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        Some((key, entry.read(place, state)?))
    }

    /// A word of the key at a place, for users who change it. It must state its generation.
    pub(crate) fn word(&self, place: usize, index: usize) -> Option<&AtomicU64> {
        self.entries.get(place)?.rest.get(index)
    }

    /// Takes a place for a key. Returns it and the generation that begins there.
    fn claim(&self, key: &[u64; K]) -> Option<(usize, u16)> {
        let try_take = |place: usize, state: u64| {
            let entry = self.entries.get(place)?;
            let is_taken = entry.state.try_begin(state, FILLING);
            let generation = match state {
                EMPTY => 0,
                before => ((before >> GENERATION_SHIFT) as u16).wrapping_add(1),
            };
            is_taken.then_some((place, generation))
        };
        let state_at = |place: usize| Some(self.entries.get(place)?.state.load());
        // Load first: a failed exchange would take the cache line from launching threads.
        let mut empty = Self::window(key).filter(|&place| state_at(place) == Some(EMPTY));
        let found = empty.find_map(|place| try_take(place, EMPTY));
        found.or_else(|| {
            // The first round clears every flag, so the second finds an entry.
            let mut twice = Self::window(key).chain(Self::window(key));
            twice.find_map(|place| {
                let state = state_at(place)?;
                if state & READY == 0 {
                    return None;
                }
                if state & USED == 0 {
                    return try_take(place, state);
                }
                // Leave an entry that was replaced meanwhile as it is.
                self.entries.get(place)?.state.try_set(state, state & !USED);
                None
            })
        })
    }

    /// The places of a key in the order in which they are tried.
    #[inline]
    fn window(key: &[u64; K]) -> impl Iterator<Item = usize> {
        // Independent products run in parallel; the rotations keep equal words from cancelling.
        let words = key.iter().enumerate();
        let folded = words.fold(0, |folded: u64, (index, word)| {
            folded ^ mix(*word).rotate_left(17 * index as u32)
        });
        let first = (mix(folded) >> (64 - Self::BITS)) as usize;
        (0..WINDOW.min(N)).map(move |step| (first + step) & (N - 1))
    }

    #[cfg(all(test, not(loom)))]
    fn distance(key: &[u64; K], place: usize) -> Option<usize> {
        Self::window(key).position(|tried| tried == place)
    }
}

impl<const K: usize, const R: usize> Entry<K, R> {
    #[inline]
    fn has(&self, key: &[u64; K]) -> bool {
        let mut words = self.key.iter().zip(key);
        words.all(|(word, value)| word.load(Ordering::Relaxed) == *value)
    }

    /// The entry, if everything read since `state` is of one generation.
    #[inline]
    fn read(&self, place: usize, state: u64) -> Option<Found<R>> {
        let found = Found {
            place,
            generation: (state >> GENERATION_SHIFT) as u16,
            note: state >> NOTE_SHIFT,
            rest: self
                .rest
                .each_ref()
                .map(|word| word.load(Ordering::Relaxed)),
        };
        self.state.is_still(state, USED).then_some(found)
    }

    #[cold]
    fn mark_used(&self, state: u64) {
        // Leave an entry that was replaced meanwhile as it is.
        self.state.try_set(state, state | USED);
    }
}

/// Spreads a key over all bits, the high ones best: Fibonacci hashing (Knuth, TAOCP 3, §6.4).
#[inline]
pub(crate) fn mix(key: u64) -> u64 {
    // The low bits of handles are zero and the high ones equal; folding combines both.
    (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Small = Memo<64, 2, 1>;

    fn key(number: u64) -> ([u64; 2], u64) {
        ([number, !number], number.wrapping_mul(3))
    }

    fn use_key<const N: usize>(memo: &Memo<N, 2, 1>, number: u64) -> (usize, bool) {
        let (key, word) = key(number);
        if let Some(found) = memo.find(&key) {
            assert_eq!((found.rest, found.note), ([word], number & 0xff));
            return (found.place, true);
        }
        let kept = memo.keep(&key, number & 0xff, |_| [word]);
        let kept = kept.expect("nobody else is filling anything");
        assert_eq!(memo.at(kept.place), Some((key, kept)));
        (kept.place, false)
    }

    type Large = Memo<{ 1 << 15 }, 2, 1>;

    #[test]
    fn an_entry_is_a_cache_line() {
        assert_eq!(size_of::<Memo<4, 5, 2>>(), 4 * 64);
        assert_eq!(size_of::<Memo<4, 6, 0>>(), 4 * 64);
    }

    #[test]
    fn what_is_used_again_and_again_stays_while_40_000_others_pass() {
        // Other keys that are used once, and others that are used several times and then no more.
        for times in [1, 3] {
            let memo = Box::leak(Box::new(Large::new()));
            let mut misses = 0;
            for other in 0..40_000 {
                misses += u32::from(!use_key(memo, other % 100).1);
                assert!(!use_key(memo, 1_000 + other).1);
                (1..times).for_each(|_| assert!(use_key(memo, 1_000 + other).1));
            }
            // A first miss each, and a miss where two others passed a key since its last use.
            assert!((100..110).contains(&misses), "{times}: {misses}");
        }
    }

    #[test]
    fn a_key_that_comes_late_lies_as_near_as_one_that_came_early() {
        for times in [1, 3] {
            let memo = Box::leak(Box::new(Large::new()));
            let far = |numbers: core::ops::Range<u64>| -> usize {
                let places = numbers.map(|number| {
                    let (place, _) = use_key(memo, number);
                    (1..times).for_each(|_| assert_eq!(use_key(memo, number), (place, true)));
                    Large::distance(&key(number).0, place).unwrap()
                });
                places.sum()
            };
            // In places, of a hundred keys.
            assert!(far(0..100) < 10);
            far(1_000..41_000);
            let late = far(50_000..50_100);
            assert!(late < 300, "{times}: {late}");
        }
    }

    #[test]
    fn where_all_were_used_lately_one_goes_all_the_same() {
        let memo = Box::new(Small::new());
        for number in 0..10_000 {
            let (place, _) = use_key(&memo, number);
            assert_eq!(use_key(&memo, number), (place, true));
        }
    }

    #[test]
    fn each_key_of_a_place_has_a_generation_of_its_own() {
        let memo = Box::new(Memo::<2, 2, 1>::new());
        let generations: Vec<_> = (0..100)
            .map(|number| {
                let (key, word) = key(number);
                memo.keep(&key, 0, |generation| [word + u64::from(generation) * 1_000])
            })
            .map(|kept| kept.map(|kept| (kept.place, kept.generation)).unwrap())
            .collect();
        let mut sorted = generations.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), generations.len());
        let (_, last) = memo.at(generations[99].0).unwrap();
        assert_eq!(last.generation, generations[99].1);
        assert_eq!(last.rest, [99 * 3 + u64::from(last.generation) * 1_000]);
        assert!(memo.at(2).is_none());
    }

    #[test]
    fn threads_that_replace_each_others_keys_never_read_a_mixture() {
        static MEMO: Small = Small::new();
        let rounds = |first: u64| {
            for n in 0..200_000 {
                // As `use_key`, but an inserted key may be replaced before it is looked for.
                let (key, word) = key((first + n * 7919) % 300);
                match MEMO.find(&key) {
                    Some(found) => assert_eq!((found.rest, found.note), ([word], key[0] & 0xff)),
                    None => _ = MEMO.keep(&key, key[0] & 0xff, |_| [word]),
                }
                if let Some((key, found)) = MEMO.at(n as usize % 64) {
                    assert_eq!((key[1], found.rest), (!key[0], [key[0] * 3]));
                }
            }
        };
        std::thread::scope(|scope| {
            for first in [0, 100, 200] {
                scope.spawn(move || rounds(first));
            }
        });
    }
}
