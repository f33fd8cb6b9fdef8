//! The memory that one client holds on the device.
//!
//! Contents are kept in chunks that exist only once they are written to, so that a program may
//! allocate as much as the modelled device has. What was never written reads as zero.

use std::collections::BTreeMap;
use std::ops::Bound;

use softgpu::Fault;
use softgpu::wire::{ALLOCATION_ALIGN_BYTES, DEVICE_BASE, DEVICE_SPAN_BYTES};

/// Bytes that come into being together.
const CHUNK_BYTES: u64 = 1 << 20;

/// Allocations by address.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory {
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Block {
    /// Rounded up; a kernel that runs over by a few bytes goes unnoticed there, as on hardware.
    bytes: u64,
    /// Slot of the context that owns it.
    context: u32,
    chunks: BTreeMap<u64, Box<[u8]>>,
}

/// What an allocation of `bytes` takes.
pub(crate) fn rounded_bytes(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ALLOCATION_ALIGN_BYTES)
}

impl DeviceMemory {
    /// Takes the first gap that is long enough; `bytes` are as [`rounded_bytes`] says. `None` if
    /// there is none.
    pub(crate) fn allocate(&mut self, context: u32, bytes: u64) -> Option<u64> {
        let mut address = DEVICE_BASE;
        for (&start, block) in &self.blocks {
            if start - address >= bytes {
                break;
            }
            address = start + block.bytes;
        }
        if DEVICE_BASE + DEVICE_SPAN_BYTES - address < bytes {
            return None;
        }
        self.blocks.insert(
            address,
            Block {
                bytes,
                context,
                chunks: BTreeMap::new(),
            },
        );
        Some(address)
    }

    /// Gives back an allocation; says how large it was.
    pub(crate) fn free(&mut self, address: u64) -> Option<u64> {
        self.blocks.remove(&address).map(|block| block.bytes)
    }

    /// Gives back all of a context.
    pub(crate) fn free_context(&mut self, context: u32) -> u64 {
        let held =
            |blocks: &BTreeMap<u64, Block>| blocks.values().map(|block| block.bytes).sum::<u64>();
        let before = held(&self.blocks);
        self.blocks.retain(|_, block| block.context != context);
        before - held(&self.blocks)
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.blocks.values().map(|block| block.bytes).sum()
    }

    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        let (start, block) = self
            .blocks
            .range(..=address)
            .next_back()
            .filter(|(start, block)| block.holds(**start, address, to.len()))
            .ok_or(Fault)?;
        for (chunk, within, range) in pieces(address - start, to.len()) {
            let to = &mut to[range];
            match block.chunks.get(&chunk) {
                Some(bytes) => to.copy_from_slice(&bytes[within..within + to.len()]),
                None => to.fill(0),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let below = (Bound::Unbounded, Bound::Included(address));
        let (&start, block) = self.blocks.range_mut(below).next_back().ok_or(Fault)?;
        if !block.holds(start, address, from.len()) {
            return Err(Fault);
        }
        let block_bytes = block.bytes;
        for (chunk, within, range) in pieces(address - start, from.len()) {
            let chunk_bytes = (block_bytes - chunk * CHUNK_BYTES).min(CHUNK_BYTES);
            let bytes = block
                .chunks
                .entry(chunk)
                .or_insert_with(|| vec![0; chunk_bytes as usize].into_boxed_slice());
            bytes[within..within + range.len()].copy_from_slice(&from[range]);
        }
        Ok(())
    }
}

impl Block {
    fn holds(&self, start: u64, address: u64, bytes: usize) -> bool {
        address
            .checked_add(bytes as u64)
            .is_some_and(|end| end <= start + self.bytes)
    }
}

/// The chunks of a range: number, first byte within it, and which part of the range that is.
fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES) as usize;
        let next = bytes.min(done + CHUNK_BYTES as usize - within);
        let piece = (at / CHUNK_BYTES, within, done..next);
        done = next;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_survive_across_chunks_and_unwritten_memory_is_zero() {
        let mut memory = DeviceMemory::default();
        let base = memory.allocate(0, 16 << 30).unwrap();
        let bytes: Vec<u8> = (0..3 * CHUNK_BYTES + 5).map(|i| (i % 251) as u8).collect();
        let address = base + CHUNK_BYTES - 3;
        memory.write(address, &bytes).unwrap();
        let mut back = vec![1; bytes.len() + 2];
        memory.read(address - 1, &mut back).unwrap();
        assert_eq!(back[0], 0);
        assert!(back[1..=bytes.len()] == bytes, "contents differ");
        assert_eq!(back[bytes.len() + 1], 0);
    }

    #[test]
    fn what_lies_outside_an_allocation_is_a_fault() {
        let mut memory = DeviceMemory::default();
        let first = memory.allocate(0, 512).unwrap();
        let second = memory.allocate(0, 512).unwrap();
        assert_eq!(second, first + 512);
        assert_eq!(memory.write(first, &[0; 513]), Err(Fault));
        assert_eq!(memory.read(first - 1, &mut [0]), Err(Fault));
        assert_eq!(memory.read(u64::MAX, &mut [0; 2]), Err(Fault));
        assert_eq!(memory.free(first), Some(512));
        assert_eq!(memory.free(first), None);
        assert_eq!(memory.read(first, &mut [0]), Err(Fault));
    }

    #[test]
    fn gaps_are_used_again_and_contexts_freed_whole() {
        let mut memory = DeviceMemory::default();
        let blocks: Vec<u64> = [0, 1, 0]
            .map(|context| memory.allocate(context, 1024).unwrap())
            .into();
        memory.free(blocks[1]);
        assert_eq!(memory.allocate(1, 2048), Some(blocks[2] + 1024));
        assert_eq!(memory.allocate(1, 512), Some(blocks[1]));
        assert_eq!(memory.free_context(1), 2560);
        assert_eq!(memory.held_bytes(), 2048);
        assert_eq!(memory.allocate(1, DEVICE_SPAN_BYTES), None);
    }
}
