//! Ranges of addresses taken from a larger one.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct Ranges<T> {
    taken: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self {
            taken: BTreeMap::new(),
        }
    }
}

impl<T> Ranges<T> {
    pub(crate) fn insert(&mut self, start: u64, bytes: u64, owner: T) {
        self.taken.insert(start, (bytes, owner));
    }

    /// Takes the first gap of `bytes` between `first` and `end`; starts are multiples of `align`.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        align: u64,
        first: u64,
        end: u64,
        owner: T,
    ) -> Option<u64> {
        let mut start = first;
        for (&next, &(length, _)) in &self.taken {
            if next >= start && next - start >= bytes {
                break;
            }
            start = (next + length).next_multiple_of(align);
        }
        if end.checked_sub(start)? < bytes {
            return None;
        }
        self.taken.insert(start, (bytes, owner));
        Some(start)
    }

    pub(crate) fn remove(&mut self, start: u64) -> Option<(u64, T)> {
        self.taken.remove(&start)
    }

    /// The range that contains all of `bytes` from `address`: its start, its length, its owner.
    pub(crate) fn holding(&self, address: u64, bytes: u64) -> Option<(u64, u64, &T)> {
        let (&start, (length, owner)) = self.taken.range(..=address).next_back()?;
        let is_inside =
            (address - start).checked_add(bytes)? <= *length && address - start < *length;
        is_inside.then_some((start, *length, owner))
    }

    pub(crate) fn within_mut(&mut self, address: u64, bytes: u64) -> impl Iterator<Item = &mut T> {
        let end = address.saturating_add(bytes);
        let first = self.taken.range(..=address).next_back();
        let first = first.map_or(address, |(&start, _)| start).min(end);
        self.taken
            .range_mut(first..end)
            .filter(move |(start, (length, _))| **start + *length > address)
            .map(|(_, (_, owner))| owner)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.taken.retain(|_, (_, owner)| keep(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_and_ends_respected() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.take(100, 64, 0, 1000, 'a'), Some(0));
        assert_eq!(ranges.take(100, 64, 0, 1000, 'b'), Some(128));
        assert_eq!(ranges.take(800, 64, 0, 1000, 'c'), None);
        ranges.remove(0);
        assert_eq!(ranges.take(128, 64, 0, 1000, 'd'), Some(0));
        assert_eq!(ranges.holding(127, 1), Some((0, 128, &'d')));
        assert_eq!(ranges.holding(127, 2), None);
        assert_eq!(ranges.holding(300, 1), None);
        let overlapping: Vec<char> = ranges.within_mut(127, 2).map(|owner| *owner).collect();
        assert_eq!(overlapping, ['d', 'b']);
        assert_eq!(ranges.within_mut(228, 5).count(), 0);
    }
}
