//! The knowledge about a number: its observed duration, and the generation that it belongs to. A
//! number is a place in a table. A kernel's place is given to another kernel when the table is full
//! and the first one was not used lately ([`crate::platform::memo`]). A graph's place is reused in
//! the same way, or when the graph is destroyed, and changes its meaning when its nodes change.
//! Launches of the first owner may be in flight then, and their durations must not count for the
//! second. So each owner is a *generation* of the number, and duration and generation are one word:
//! the learner writes a duration only if the generation is still that of the launch.

use core::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Number {
    /// Kernels and shapes from 1, then graphs; 0: none.
    pub(crate) place: u16,
    /// The low 8 bits of the generation.
    pub(crate) generation: u8,
}

impl Number {
    /// Copies: the learner ignores them, and kernels that complete together with one.
    pub(crate) const COPY: Self = Self {
        place: 0,
        generation: 1,
    };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt<'a> {
    /// The duration from the profile, ns.
    pub(crate) told_ns: u64,
    /// How many of its kernels the profile lacks; each lasts as long as the daemon assumes.
    pub(crate) unknown: u64,
    pub(crate) is_classed: bool,
    pub(crate) taken: Taken<'a>,
}

/// A number's word (see the module's head): the duration in the low half, ns, the generation in the
/// high one. Launches read it; the helper writes durations, a thread that reuses it generations.
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

    /// The generation, and the observed duration, ns; 0: nothing was learnt. Relaxed, here and
    /// below: the value guards no other data.
    #[inline]
    pub(crate) fn read(&self) -> (u32, u64) {
        let word = self.0.load(Ordering::Relaxed);
        ((word >> GENERATION_SHIFT) as u32, Self::ns_of(word))
    }

    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        self.read().1
    }

    /// Sets the duration of a generation, unless past; 0 forgets it. Whether it changed.
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

    /// Begins the number's next generation. Callers hold a lock against other callers.
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
