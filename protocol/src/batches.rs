//! The batch sizes that a program supports, and the one its daemon wants, in the client's page. The
//! program states a *range* for a kind of requests: least and largest batch, and the step between.
//! The daemon answers with the batch that it wants. The page outlives daemons, so no range need be
//! repeated; a daemon older than this table ignores it. A range is one word, and so is its answer,
//! at the same index: readers load it whole, and check it, as a peer writes it.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Kinds of requests that may have a range.
pub const KINDS: usize = 4;

/// Most batches of a range; a search takes as many.
pub const BATCHES_MAX: u32 = 256;

/// Words of the table in a page.
pub const WORDS: usize = KINDS + KINDS / 2;

/// See the module's text. All zero: no range and no wanted batch.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Batches {
    /// Written by the client: kind, step, most, least, 16 bits each from the highest down; 0: no
    /// range.
    ranges: [AtomicU64; KINDS],
    /// Written by the daemon; 0: no batch is wanted.
    wanted: [AtomicU32; KINDS],
}

/// The batches that a program can take for a kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The kind, as the program numbers kinds.
    kind: u16,
    least: u16,
    most: u16,
    step: u16,
}

impl Range {
    /// `least`, `least + step` and so on, up to `most`. `None` if a number other than `kind` is 0,
    /// if one is above 65535, if `most` is below `least`, or for more than [`BATCHES_MAX`].
    #[must_use]
    pub fn new(kind: u32, least: u32, most: u32, step: u32) -> Option<Self> {
        let small = |number: u32| u16::try_from(number).ok();
        let range = Self {
            kind: small(kind)?,
            least: small(least)?,
            most: small(most)?,
            step: small(step)?,
        };
        range.is_valid().then_some(range)
    }

    fn is_valid(self) -> bool {
        let is_one = self.least > 0 && self.step > 0 && self.most >= self.least;
        is_one && u32::from((self.most - self.least) / self.step) < BATCHES_MAX
    }

    /// The kind of requests.
    #[must_use]
    pub fn kind(self) -> u32 {
        self.kind.into()
    }

    /// The batches, ascending; at least one.
    pub fn batches(self) -> impl Iterator<Item = u32> {
        (u32::from(self.least)..=u32::from(self.most)).step_by(self.step.into())
    }

    /// Whether the range contains `batch`.
    #[must_use]
    pub fn contains(self, batch: u32) -> bool {
        let (least, most) = (u32::from(self.least), u32::from(self.most));
        (least..=most).contains(&batch) && (batch - least).is_multiple_of(self.step.into())
    }

    fn to_word(self) -> u64 {
        let [kind, step, most, least] =
            [self.kind, self.step, self.most, self.least].map(u64::from);
        kind << 48 | step << 32 | most << 16 | least
    }

    /// `None` for 0, and for words that no client has written.
    fn from_word(word: u64) -> Option<Self> {
        let range = Self {
            kind: (word >> 48) as u16,
            step: (word >> 32) as u16,
            most: (word >> 16) as u16,
            least: word as u16,
        };
        range.is_valid().then_some(range)
    }
}

impl Batches {
    /// For the client: sets the range of its kind. Returns whether there was a place: there are
    /// [`KINDS`], and a kind keeps its place. Of several threads at once, one wins a place.
    pub fn say(&self, range: Range) -> bool {
        let word = range.to_word();
        self.ranges.iter().any(|place| {
            let next = |held| {
                let is_free = Range::from_word(held).is_none_or(|of| of.kind == range.kind);
                is_free.then_some(word)
            };
            // Relaxed: the word stands alone.
            place
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
                .is_ok()
        })
    }

    /// For the client: the batch wanted for the kind; `None` if none is, or one outside the range.
    #[inline]
    #[must_use]
    pub fn wanted(&self, kind: u32) -> Option<u32> {
        let mut places = self.ranges.iter().zip(&self.wanted);
        places.find_map(|(range, wanted)| {
            let range = Range::from_word(range.load(Ordering::Relaxed))?;
            let wanted = wanted.load(Ordering::Relaxed);
            (range.kind() == kind && range.contains(wanted)).then_some(wanted)
        })
    }

    /// For the daemon: the ranges, by place.
    #[must_use]
    pub fn ranges(&self) -> [Option<Range>; KINDS] {
        core::array::from_fn(|place| Range::from_word(self.ranges[place].load(Ordering::Relaxed)))
    }

    /// For the daemon: sets the batch wanted of the kind there; 0: none. Whether it changed.
    pub fn want(&self, place: usize, batch: u32) -> bool {
        let Some(word) = self.wanted.get(place) else {
            return false;
        };
        // Only the daemon writes the word.
        let before = word.load(Ordering::Relaxed);
        word.store(batch, Ordering::Relaxed);
        before != batch
    }

    /// For the daemon: clears what an earlier daemon wanted.
    pub fn want_nothing(&self) {
        for word in &self.wanted {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_word_is_no_range_or_a_range_that_is_written_so(word: u64) {
            if let Some(range) = Range::from_word(word) {
                prop_assert_eq!(range.to_word(), word);
                let count = range.batches().count() as u32;
                prop_assert!((1..=BATCHES_MAX).contains(&count));
                prop_assert!(range.batches().all(|batch| batch > 0 && range.contains(batch)));
            }
        }

        #[test]
        fn a_range_survives_the_journey(kind in 0..=65_535_u32, least in 1..=1_000_u32, count in 0..256_u32, step in 1..=200_u32) {
            let most = least + count * step;
            let range = Range::new(kind, least, most, step).unwrap();
            prop_assert_eq!(Range::from_word(range.to_word()), Some(range));
            prop_assert_eq!(range.batches().last(), Some(most));
            prop_assert_eq!(range.kind(), kind);
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for (kind, least, most, step) in [
            (0, 0, 8, 1),
            (0, 8, 4, 1),
            (0, 1, 8, 0),
            (0, 1, 257, 1),
            (0, 1, 65_536, 1_000),
            (65_536, 1, 8, 1),
        ] {
            assert_eq!(Range::new(kind, least, most, step), None, "{most}");
        }
        assert!(Range::new(7, 1, 256, 1).is_some());
        assert!(Range::new(0, 1, 1, 1).is_some());
    }

    #[test]
    fn what_is_wanted_of_a_kind_is_read_while_it_is_in_its_range() {
        let page = Batches::default();
        let range = |kind, most| Range::new(kind, 4, most, 4).unwrap();
        assert_eq!(page.wanted(0), None);
        assert!(page.say(range(3, 64)) && page.say(range(0, 32)));
        assert_eq!(page.ranges()[..2], [Some(range(3, 64)), Some(range(0, 32))]);
        assert!(page.want(0, 48) && !page.want(0, 48) && page.want(1, 8));
        assert_eq!((page.wanted(3), page.wanted(0)), (Some(48), Some(8)));
        assert_eq!(page.wanted(1), None);
        // Another range in the same place, which the daemon has not seen yet.
        assert!(page.say(range(3, 16)));
        assert_eq!(page.wanted(3), None);
        assert!(page.want(0, 7));
        assert_eq!(page.wanted(3), None, "not in steps of 4");
        assert!(page.want(0, 0) && page.say(range(1, 8)) && page.say(range(2, 8)));
        assert!(!page.say(range(5, 8)), "no place is left");
        assert!(page.say(range(2, 16)) && !page.want(KINDS, 4));
        page.want_nothing();
        assert_eq!(page.wanted(0), None);
    }
}
