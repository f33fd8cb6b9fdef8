//! What was learnt of a number: how long it was seen to take, and of which of those that have had the number in turn.
//!
//! A kernel keeps its number for good. A graph's number is a place in a table, which another graph has once the first is
//! destroyed, and which means something else once its nodes do; a launch of the first may be in flight then, and what that takes
//! must not be taken for what the second takes. So each of them is a *generation* of the number, and duration and generation
//! are one word: who learns writes the duration only if the generation is still the one that was launched.

use core::sync::atomic::{AtomicU64, Ordering};

/// What a launch is known by to who learns what it takes ([`crate::learner`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// Of a kernel and shape from 1, then those of graphs; 0: none.
    pub(crate) place: u16,
    /// The low 8 bits of the generation.
    pub(crate) generation: u8,
}

/// What is learnt of a kernel and shape, or of a graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt<'a> {
    /// What the profile told of it, ns.
    pub(crate) told_ns: u64,
    /// How many kernels of it the profile does not know; each lasts as long as the daemon assumes.
    pub(crate) unknown: u64,
    /// What it was seen to take.
    pub(crate) taken: &'a Taken,
}

/// See the module's text: the duration in the low half, ns, the generation in the high one. Launches read it, the helper
/// writes durations, and who changes a graph writes generations.
#[derive(Debug)]
pub(crate) struct Taken(AtomicU64);

const GENERATION_SHIFT: u32 = 32;

impl Taken {
    /// Nothing is learnt.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The generation, and what it was seen to take, ns; 0: nothing was learnt. Relaxed, here and below: nothing else
    /// is read because of what this says.
    #[inline]
    pub(crate) fn read(&self) -> (u32, u64) {
        let word = self.0.load(Ordering::Relaxed);
        (
            (word >> GENERATION_SHIFT) as u32,
            word & u64::from(u32::MAX),
        )
    }

    /// What it was seen to take, ns; 0: nothing was learnt.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.read().1
    }

    /// The generation takes so long; 0 forgets what it takes. Whether that is something else than before; nothing is
    /// written of a generation that is over.
    pub(crate) fn set(&self, generation: u32, ns: u64) -> bool {
        let ns = ns.min(u64::from(u32::MAX));
        let word = u64::from(generation) << GENERATION_SHIFT | ns;
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
        let next = u64::from(generation.wrapping_add(1));
        self.0.store(next << GENERATION_SHIFT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_generation_takes_is_not_what_the_next_one_takes() {
        let taken = Taken::new();
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
