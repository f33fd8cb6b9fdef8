//! The set of keys under the library's tables: fixed size, open addressing, no lock, no allocation.
//! A key is a handle or another non-zero number. Its place is one of at most [`PROBES_MAX`] places
//! from where it hashes to; if others take all of them, the table is full for that key. The user
//! then treats the thing as unknown, or replaces another key ([`Keys::replace`]). Values lie in
//! arrays beside the set, at the key's place. A removed key leaves a tombstone ([`REMOVED`]),
//! because searches for keys behind it pass its place. A new key takes the first place that is
//! empty or has a tombstone. After many removals no place is empty any more, and a search for an
//! absent key would try all `PROBES_MAX` places. So the set tracks the greatest distance at which
//! any key was ever put ([`Keys::reach`]), and a search ends there. It depends on how many keys
//! were in the set at once.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) use crate::platform::memo::mix;

/// Most places tried. At half load the longest run of taken places in 65536 is about 40 long.
pub(crate) const PROBES_MAX: usize = 64;

const EMPTY: u64 = 0;
const REMOVED: u64 = u64::MAX;
/// A place between two keys: no key, and not free.
const BUSY: u64 = u64::MAX - 1;

/// A set of non-zero keys. `N` is a power of two.
pub(crate) struct Keys<const N: usize> {
    places: [AtomicU64; N],
    /// Most places tried for any inserted key; never shrinks.
    reach: AtomicUsize,
}

impl<const N: usize> Keys<N> {
    const BITS: u32 = {
        assert!(N.is_power_of_two() && N > 1);
        N.trailing_zeros()
    };

    pub(crate) const fn new() -> Self {
        Self {
            places: [const { AtomicU64::new(EMPTY) }; N],
            reach: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        self.search(key).0
    }

    #[inline]
    fn search(&self, key: u64) -> (Option<usize>, usize) {
        for (place, tried) in Self::probes(key).zip(1..) {
            // Acquire pairs with the Release in `publish`: the key's values are there.
            match self
                .places
                .get(place)
                .map(|word| word.load(Ordering::Acquire))
            {
                Some(found) if found == key => return (Some(place), tried),
                Some(EMPTY) | None => return (None, tried),
                // Relaxed: a thread that knows of the key's insertion knows its reach.
                _ if tried >= self.reach.load(Ordering::Relaxed) => return (None, tried),
                _ => {}
            }
        }
        (None, PROBES_MAX)
    }

    /// The place of a key, inserted if absent. Two threads that insert one key while a third
    /// removes another may get two places: use it where that does no harm.
    pub(crate) fn insert(&self, key: u64) -> Option<usize> {
        if let Some(place) = self.find(key) {
            return Some(place);
        }
        Self::probes(key).find(|&place| {
            let Some(word) = self.places.get(place) else {
                return false;
            };
            // Acquire as in `find`.
            let seen = word.load(Ordering::Acquire);
            // Another thread may have inserted it since the search.
            let is_there = |word: u64| word == key;
            is_there(seen)
                || is_free(seen) && {
                    self.extend_reach(place, key);
                    let swapped =
                        word.compare_exchange(seen, key, Ordering::AcqRel, Ordering::Acquire);
                    swapped.map_or_else(is_there, |_| true)
                }
        })
    }

    pub(crate) fn key_at(&self, place: usize) -> Option<u64> {
        // Acquire as in `find`.
        let key = self.places.get(place)?.load(Ordering::Acquire);
        (!matches!(key, EMPTY | REMOVED | BUSY)).then_some(key)
    }

    #[inline]
    pub(crate) fn is_at(&self, place: usize, key: u64) -> bool {
        // Relaxed: callers have acquired what was stored at the place after the key.
        self.places
            .get(place)
            .is_some_and(|word| word.load(Ordering::Relaxed) == key)
    }

    /// Gives a key the place of another: of the first that was not used lately, or else of the
    /// first. `was_used` returns a place's flag and clears it. `fill` writes the new key's values,
    /// before the key can be found. Returns the replaced key. Callers hold a lock against other
    /// changes of the set, and the set has no free place for the key.
    pub(crate) fn replace(
        &self,
        key: u64,
        mut was_used: impl FnMut(usize) -> bool,
        fill: impl FnOnce(usize),
    ) -> Option<u64> {
        let found = Self::probes(key).find(|&place| !was_used(place));
        let place = found.or_else(|| Self::probes(key).next())?;
        // `fill` publishes by Release: a reader of a new value also sees that the old key left.
        let replaced = self.places.get(place)?.swap(BUSY, Ordering::Relaxed);
        fill(place);
        self.publish(place, key);
        Some(replaced)
    }

    /// A free place for a key. Callers hold a lock, write the key's values, then [`Keys::publish`].
    pub(crate) fn vacancy(&self, key: u64) -> Option<usize> {
        Self::probes(key).find(|&place| {
            self.places
                .get(place)
                .is_some_and(|word| is_free(word.load(Ordering::Relaxed)))
        })
    }

    pub(crate) fn publish(&self, place: usize, key: u64) {
        self.extend_reach(place, key);
        if let Some(word) = self.places.get(place) {
            // Release pairs with the Acquire in `find`.
            word.store(key, Ordering::Release);
        }
    }

    pub(crate) fn remove(&self, key: u64) -> Option<usize> {
        let place = self.find(key)?;
        self.places
            .get(place)?
            .compare_exchange(key, REMOVED, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        Some(place)
    }

    fn extend_reach(&self, place: usize, key: u64) {
        let first = Self::probes(key).next().unwrap_or(0);
        let distance = place.wrapping_sub(first) & (N - 1);
        // Relaxed: the store that publishes the key publishes this.
        self.reach.fetch_max(distance + 1, Ordering::Relaxed);
    }

    #[inline]
    fn probes(key: u64) -> impl Iterator<Item = usize> {
        let first = (mix(key) >> (64 - Self::BITS)) as usize;
        (0..PROBES_MAX.min(N)).map(move |step| (first + step) & (N - 1))
    }
}

fn is_free(word: u64) -> bool {
    matches!(word, EMPTY | REMOVED)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_is_a_set(steps in prop::collection::vec((1u64..20, any::<bool>()), 0..200)) {
            let keys = Box::new(Keys::<64>::new());
            let mut model = HashSet::new();
            for (key, insert) in steps {
                if insert {
                    prop_assert!(keys.insert(key).is_some());
                    model.insert(key);
                } else {
                    prop_assert_eq!(keys.remove(key).is_some(), model.remove(&key));
                }
                for key in 1..20 {
                    prop_assert_eq!(keys.find(key).is_some(), model.contains(&key));
                }
            }
        }
    }

    #[test]
    fn a_full_set_takes_no_more_and_keeps_what_it_has() {
        let keys = Keys::<4>::new();
        let taken: Vec<u64> = (1..=8).filter(|&key| keys.insert(key).is_some()).collect();
        assert_eq!(taken, [1, 2, 3, 4]);
        assert!(taken.iter().all(|&key| keys.find(key).is_some()));
    }

    #[test]
    fn what_is_not_there_is_looked_for_no_longer_after_any_number_of_removals() {
        let keys = Box::new(Keys::<1024>::new());
        // A hundred at a time, as events come and go.
        for key in 1..=100_000_u64 {
            assert!(keys.insert(key * 64).is_some());
            if key > 100 {
                assert!(keys.remove((key - 100) * 64).is_some());
            }
        }
        let absent = 200_000..201_000_u64;
        let most = absent.map(|key| keys.search(key * 64).1).max();
        assert!(most <= Some(16), "{most:?}");
    }

    #[test]
    fn a_key_that_finds_no_place_replaces_the_first_that_was_not_used() {
        let keys = Keys::<4>::new();
        (1..=4).for_each(|key| assert!(keys.insert(key).is_some()));
        let kept = [keys.find(3), keys.find(4)];
        let replaced = keys.replace(5, |place| kept.contains(&Some(place)), |_| {});
        assert!(matches!(replaced, Some(1 | 2)) && keys.find(5).is_some());
        assert_eq!([keys.find(3), keys.find(4)], kept);
        // All are used: one is replaced all the same.
        let replaced = keys.replace(6, |_| true, |_| {}).unwrap();
        assert!(keys.find(6).is_some() && keys.find(replaced).is_none());
        assert_eq!((1..=6).filter(|&key| keys.find(key).is_some()).count(), 4);
    }

    #[test]
    fn threads_that_insert_the_same_keys_agree_on_their_places() {
        let keys = Keys::<1024>::new();
        let places = || -> Vec<_> { (1..500).map(|key| keys.insert(key)).collect() };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(places));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert!(all.iter().all(|places| *places == all[0]));
    }
}
