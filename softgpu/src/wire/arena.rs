//! The host arena: the part of a client's memory that the device can access. The application writes
//! there at any time, so every access is atomic: whole words in the middle, compare-and-swap at the
//! ends, so that concurrent writes to neighbouring bytes are not lost.

use std::sync::atomic::{AtomicU64, Ordering};

use super::HOST_ARENA_BYTES;

const WORDS: usize = HOST_ARENA_BYTES as usize / 8;

/// Memory that driver and server map. Offsets are in bytes from its start.
#[repr(C)]
pub struct HostArena([AtomicU64; WORDS]);

impl HostArena {
    /// Copies bytes out. False, and nothing is copied, if the range leaves the arena.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        if !is_inside(offset, to.len()) {
            return false;
        }
        let (first, skip) = (offset as usize / 8, offset as usize % 8);
        let (head, rest) = to.split_at_mut(to.len().min((8 - skip) % 8));
        if !head.is_empty() {
            let word = self.load(first);
            head.copy_from_slice(&word[skip..skip + head.len()]);
        }
        let first = (offset as usize).div_ceil(8);
        let (chunks, tail) = rest.as_chunks_mut::<8>();
        for (index, chunk) in (first..).zip(chunks.iter_mut()) {
            *chunk = self.load(index);
        }
        if !tail.is_empty() {
            let word = self.load(first + chunks.len());
            tail.copy_from_slice(&word[..tail.len()]);
        }
        true
    }

    /// Copies bytes in. False, and nothing is copied, if the range leaves the arena.
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        if !is_inside(offset, from.len()) {
            return false;
        }
        let (first, skip) = (offset as usize / 8, offset as usize % 8);
        let (head, rest) = from.split_at(from.len().min((8 - skip) % 8));
        self.store_part(first, skip, head);
        let first = (offset as usize).div_ceil(8);
        let (chunks, tail) = rest.as_chunks::<8>();
        for (index, &chunk) in (first..).zip(chunks) {
            self.0[index].store(u64::from_le_bytes(chunk), Ordering::Relaxed);
        }
        self.store_part(first + chunks.len(), 0, tail);
        true
    }

    fn load(&self, index: usize) -> [u8; 8] {
        self.0[index].load(Ordering::Relaxed).to_le_bytes()
    }

    fn store_part(&self, index: usize, skip: usize, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let insert = |word: u64| {
            let mut bytes = word.to_le_bytes();
            bytes[skip..skip + part.len()].copy_from_slice(part);
            Some(u64::from_le_bytes(bytes))
        };
        let relaxed = Ordering::Relaxed;
        self.0[index]
            .fetch_update(relaxed, relaxed, insert)
            .expect("the update always gives a word");
    }
}

impl std::fmt::Debug for HostArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostArena").finish_non_exhaustive()
    }
}

fn is_inside(offset: u64, bytes: usize) -> bool {
    offset
        .checked_add(bytes as u64)
        .is_some_and(|end| end <= HOST_ARENA_BYTES)
}
