//! Small ordered maps and sets as sorted vectors. The model keeps a handful of streams, kernels and
//! cohorts at a time and visits them at every event. For so few a sorted vector is several times
//! faster than a tree, and iterates in the same order, so results do not depend on the choice.
//! Appending, where new numbers go, and lookup are fast with thousands too; a removal from the
//! middle moves what follows.

#[derive(Clone, Debug)]
pub(crate) struct FlatMap<K, V> {
    entries: Vec<(K, V)>,
}

#[derive(Clone, Debug)]
pub(crate) struct FlatSet<K> {
    members: Vec<K>,
}

impl<K: Copy + Ord, V> FlatMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let index = self.find(key).ok()?;
        Some(&self.entries[index].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let index = self.find(key).ok()?;
        Some(&mut self.entries[index].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Returns the former value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(index) => Some(std::mem::replace(&mut self.entries[index].1, value)),
            Err(index) => {
                self.entries.insert(index, (key, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let index = self.find(key).ok()?;
        Some(self.entries.remove(index).1)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let index = match self.find(&key) {
            Ok(index) => index,
            Err(index) => {
                self.entries.insert(index, (key, make()));
                index
            }
        };
        &mut self.entries[index].1
    }

    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.entries.first().map(|(key, value)| (key, value))
    }

    pub(crate) fn pop_first(&mut self) -> Option<(K, V)> {
        if self.entries.is_empty() {
            return None;
        }
        Some(self.entries.remove(0))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    fn find(&self, key: &K) -> Result<usize, usize> {
        // The newest entry is requested most.
        match self.entries.last() {
            None => Err(0),
            Some((last, _)) if last == key => Ok(self.entries.len() - 1),
            Some((last, _)) if last < key => Err(self.entries.len()),
            Some(_) => self.entries.binary_search_by(|(other, _)| other.cmp(key)),
        }
    }
}

impl<K: Copy + Ord, V> Default for FlatMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord> FlatSet<K> {
    pub(crate) const fn new() -> Self {
        Self {
            members: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.members.binary_search(key).is_ok()
    }

    pub(crate) fn insert(&mut self, key: K) {
        if let Err(index) = self.members.binary_search(&key) {
            self.members.insert(index, key);
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Ok(index) = self.members.binary_search(key) {
            self.members.remove(index);
        }
    }

    pub(crate) fn first(&self) -> Option<&K> {
        self.members.first()
    }

    pub(crate) fn retain(&mut self, keep: impl FnMut(&K) -> bool) {
        self.members.retain(keep);
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, K> {
        self.members.iter()
    }
}

impl<K: Copy + Ord> Default for FlatSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_flat_map_is_a_map(calls in prop::collection::vec((0u8..6, 0u8..20, any::<u16>()), 0..200)) {
            let mut flat = FlatMap::new();
            let mut tree = BTreeMap::new();
            for (call, key, value) in calls {
                match call {
                    0 | 1 => prop_assert_eq!(flat.insert(key, value), tree.insert(key, value)),
                    2 => prop_assert_eq!(flat.remove(&key), tree.remove(&key)),
                    3 => prop_assert_eq!(flat.pop_first(), tree.pop_first()),
                    4 => {
                        let made = *flat.get_or_insert_with(key, || value);
                        prop_assert_eq!(made, *tree.entry(key).or_insert(value));
                    }
                    _ => prop_assert_eq!(flat.get_mut(&key), tree.get_mut(&key)),
                }
                prop_assert!(flat.iter().eq(tree.iter()));
                prop_assert_eq!(flat.first(), tree.first_key_value());
                prop_assert_eq!(flat.contains_key(&key), tree.contains_key(&key));
                prop_assert_eq!(flat.len(), tree.len());
            }
        }
    }
}
