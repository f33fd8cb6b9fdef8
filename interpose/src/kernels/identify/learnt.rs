//! What was learnt of a number: how long it was seen to take, and of which of those that have had the number in turn.
//!
//! A number is a place in a table. A kernel's place is given to another kernel when the table is
//! full and the first one was not used lately ([`crate::platform::memo`]). A graph's place is given
//! to another graph when the first one is destroyed, or as a kernel's is, and means something else
//! when its nodes do. Launches of the first one may be in flight then, and what they take must not
//! be taken for what the second one takes. So each of them is a *generation* of the number, and
//! duration and generation are one word: the learner writes a duration only if the generation is
//! still the one that was launched.

use core::sync::atomic::{AtomicU64, Ordering};

/// What a launch is known by to who learns what it takes ([`crate::progress::learner`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// Of a kernel and shape from 1, then those of graphs; 0: none.
    pub(crate) place: u16,
    /// The low 8 bits of the generation.
    pub(crate) generation: u8,
}

impl Number {
    /// That of copies: nothing is learnt of them, nor of kernels that are seen complete with one.
    pub(crate) const COPY: Self = Self {
        place: 0,
        generation: 1,
    };
}

/// What is learnt of a kernel and shape, or of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt<'a> {
    /// What the profile told of it, ns.
    pub(crate) told_ns: u64,
    /// How many kernels of it the profile does not know; each lasts as long as the daemon assumes.
    pub(crate) unknown: u64,
    /// Whether it has a resource class.
    pub(crate) is_classed: bool,
    /// What it was seen to take.
    pub(crate) taken: Taken<'a>,
}

/// The word of a number, see the module's text: the duration in the low half, ns, the generation in
/// the high one. Launches read it, the helper writes durations, and who gives the number to another
/// kernel or graph writes generations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a>(pub(crate) &'a AtomicU64);

const GENERATION_SHIFT: u32 = 32;

impl Taken<'_> {
    /// The word of a generation of which nothing is learnt.
    pub(crate) const fn fresh(generation: u32) -> u64 {
        (generation as u64) << GENERATION_SHIFT
    }

    /// The duration in a word, ns; 0: nothing was learnt.
    #[inline]
    pub(crate) const fn ns_of(word: u64) -> u64 {
        word & u32::MAX as u64
    }

    /// The generation, and what it was seen to take, ns; 0: nothing was learnt. Relaxed, here and below: nothing else
    /// is read because of what this says.
    #[inline]
    pub(crate) fn read(&self) -> (u32, u64) {
        let word = self.0.load(Ordering::Relaxed);
        ((word >> GENERATION_SHIFT) as u32, Self::ns_of(word))
    }

    /// What it was seen to take, ns; 0: nothing was learnt.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.read().1
    }

    /// The generation takes so long; 0 forgets what it takes. Whether that is something else than before; nothing is
    /// written of a generation that is over.
    pub(crate) fn set(&self, generation: u32, ns: u64) -> bool {
        let word = Self::fresh(generation) | ns.min(u64::from(u32::MAX));
        let set = |before: u64| {
            let is_its = before >> GENERATION_SHIFT == u64::from(generation);
            (is_its && before != word).then_some(word)
        };
        let changed = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
        changed.is_ok()
    }

    /// The number is another's from now on. Callers hold a lock that keeps others from saying so.
    pub(crate) fn begin_generation(&self) {
        let (generation, _) = self.read();
        // Release pairs with the fence in `Graphs::launched`: a reader that sees the generation
        // sees that the place is another executable's.
        self.0
            .store(Self::fresh(generation.wrapping_add(1)), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_generation_takes_is_not_what_the_next_one_takes() {
        let word = AtomicU64::new(0);
        let taken = Taken(&word);
        assert!(taken.set(0, 7) && !taken.set(0, 7));
        assert_eq!(taken.read(), (0, 7));
        taken.begin_generation();
        assert_eq!(taken.read(), (1, 0));
        assert!(!taken.set(0, 8));
        assert_eq!(taken.read(), (1, 0));
        assert!(taken.set(1, u64::MAX));
        assert_eq!(taken.read(), (1, u64::from(u32::MAX)));
        assert!(taken.set(1, 0));
        assert_eq!(taken.ns(), 0);
    }
}
