//! Entries by CUPTI's description of a launch: the kernel's name, its shape and its device. CUPTI
//! does not report the operator in which a kernel was launched. Where two entries differ only in
//! that, its durations belong to neither, and both are *ambiguous*. The reader of CUPTI's records
//! reads new entries first ([`Keys::read`]). So no launch waits here, and an entry is found to be
//! ambiguous a moment after its first launch.

use core::sync::atomic::Ordering;
use std::collections::HashMap;

use protocol::recording::{Entry, RecordPage};

use crate::kernels::Shape;

#[derive(Debug, Default)]
pub(super) struct Keys {
    by_name: HashMap<String, Vec<Key>>,
    /// Number of entries read, and those of them without a launch.
    read: u32,
    unlaunched: Vec<u32>,
}

#[derive(Debug)]
struct Key {
    shape: Shape,
    client: u32,
    operator: String,
    /// Two threads that first see a kernel at the same time make one each.
    entries: Vec<u32>,
    /// They differ in their operators.
    is_ambiguous: bool,
}

impl Keys {
    /// Reads the entries that are new, or were launched for the first time since.
    pub(super) fn read(&mut self, page: &RecordPage) {
        // Acquire pairs with the Release of the maker of an entry.
        let used = page.entries_used.load(Ordering::Acquire);
        let before = std::mem::take(&mut self.unlaunched);
        let new = self.read..used;
        self.read = self.read.max(used);
        for index in before.into_iter().chain(new) {
            let Some(entry) = page.entries.get(index as usize) else {
                continue;
            };
            // Acquire pairs with the counting thread's Release: half-made entries have none.
            let launches = entry.launches.load(Ordering::Acquire);
            let in_graphs = entry.graph_launches.load(Ordering::Acquire);
            match launches + in_graphs {
                0 => self.unlaunched.push(index),
                _ => self.note(page, entry, index),
            }
        }
    }

    fn note(&mut self, page: &RecordPage, entry: &Entry, index: u32) {
        let (shape, client) = shape_of(entry);
        let operator = page.text(&entry.operator);
        let keys = self.by_name.entry(page.text(&entry.name)).or_default();
        let mut known = keys.iter_mut();
        let Some(key) = known.find(|key| key.shape == shape && key.client == client) else {
            keys.push(Key {
                shape,
                client,
                operator,
                entries: vec![index],
                is_ambiguous: false,
            });
            return;
        };
        key.entries.push(index);
        key.is_ambiguous |= key.operator != operator;
        if key.is_ambiguous {
            let entries = key.entries.iter();
            for entry in entries.filter_map(|index| page.entries.get(*index as usize)) {
                entry.is_ambiguous.store(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn find(&self, name: &str, shape: &Shape, client: u32) -> &[u32] {
        let keys = self.by_name.get(name).map(Vec::as_slice);
        let mut keys = keys.unwrap_or_default().iter();
        let found = keys.find(|key| key.shape == *shape && key.client == client);
        found.map_or(&[], |key| match key.is_ambiguous {
            true => &key.entries,
            false => &key.entries[..1],
        })
    }
}

fn shape_of(entry: &Entry) -> (Shape, u32) {
    let word = |word: &core::sync::atomic::AtomicU32| word.load(Ordering::Relaxed);
    let shape = Shape {
        grid: entry.grid.each_ref().map(word),
        block: entry.block.each_ref().map(word),
        shared_bytes: word(&entry.shared_bytes),
    };
    (shape, word(&entry.gpu))
}
