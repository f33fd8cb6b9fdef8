//! One client's device addresses. The memory behind them is a [`Store`], which several clients may
//! share. Address space can be reserved without memory; mappings lie in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use softgpu::Fault;
use softgpu::wire::{
    ALLOCATION_ALIGN_BYTES, DEVICE_BASE, DEVICE_LOW_BASE, DEVICE_LOW_SPAN_BYTES, DEVICE_SPAN_BYTES,
};

use crate::store::Store;

#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// Index of the device in the client, which determines its addresses.
    index: u64,
    blocks: BTreeMap<u64, Block>,
    reserved: BTreeMap<u64, u64>,
}

#[derive(Debug)]
pub(crate) struct Block {
    /// Rounded up; a kernel's overrun of a few bytes goes unnoticed there, as on hardware.
    pub(crate) bytes: u64,
    pub(crate) owner: Owner,
    pub(crate) store: Arc<Store>,
    /// Offset of its beginning in the store.
    pub(crate) offset: u64,
    pub(crate) access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A context.
    Context(u32),
    /// A context, with memory of this pool.
    Pool { context: u32, pool: u64 },
    /// A context, with another process's memory.
    Shared(u32),
    /// None: a mapping of this handle's memory.
    Mapping(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    Read,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Above 4 GiB.
    High,
    /// Below.
    Low,
}

pub(crate) fn rounded_bytes(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(ALLOCATION_ALIGN_BYTES)
}

impl Default for DeviceMemory {
    fn default() -> Self {
        Self::at(DEVICE_BASE)
    }
}

impl DeviceMemory {
    /// Memory without allocations, from the address `base`, a [`softgpu::wire::device_base`].
    pub(crate) fn at(base: u64) -> Self {
        Self {
            index: base.saturating_sub(DEVICE_BASE) / DEVICE_SPAN_BYTES,
            blocks: BTreeMap::new(),
            reserved: BTreeMap::new(),
        }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.blocks.is_empty() && self.reserved.is_empty()
    }

    fn bounds(&self, window: Window) -> (u64, u64) {
        let (base, bytes) = match window {
            Window::High => (DEVICE_BASE, DEVICE_SPAN_BYTES),
            Window::Low => (DEVICE_LOW_BASE, DEVICE_LOW_SPAN_BYTES),
        };
        let first = base + self.index * bytes;
        (first, first + bytes)
    }

    /// Places a whole store into the first gap that is long enough; `None` if there is none.
    pub(crate) fn place(&mut self, window: Window, store: Arc<Store>, owner: Owner) -> Option<u64> {
        let bytes = store.bytes();
        let address = self.gap(window, bytes, ALLOCATION_ALIGN_BYTES)?;
        let block = Block {
            bytes,
            owner,
            store,
            offset: 0,
            access: Access::ReadWrite,
        };
        self.blocks.insert(address, block);
        Some(address)
    }

    pub(crate) fn remove(
        &mut self,
        address: u64,
        is_it: impl FnOnce(Owner) -> bool,
    ) -> Option<Block> {
        self.blocks
            .get(&address)
            .filter(|block| is_it(block.owner))?;
        self.blocks.remove(&address)
    }

    pub(crate) fn remove_context(&mut self, context: u32) -> Vec<Block> {
        let is_its = |owner: Owner| match owner {
            Owner::Context(of) | Owner::Shared(of) | Owner::Pool { context: of, .. } => {
                of == context
            }
            Owner::Mapping(_) => false,
        };
        let ended = self.blocks.extract_if(.., |_, block| is_its(block.owner));
        ended.map(|(_, block)| block).collect()
    }

    pub(crate) fn block_at(&self, address: u64) -> Option<(u64, &Block)> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }

    /// Reserves address space without memory: at `wish` if that is free, else in the first gap.
    pub(crate) fn reserve(&mut self, bytes: u64, align: u64, wish: u64) -> Option<u64> {
        let (first, end) = self.bounds(Window::High);
        let is_free = wish.is_multiple_of(align)
            && wish >= first
            && wish.checked_add(bytes).is_some_and(|to| to <= end)
            && !self
                .taken()
                .any(|(start, length)| start < wish.saturating_add(bytes) && wish < start + length);
        let address = if is_free {
            wish
        } else {
            self.gap(Window::High, bytes, align)?
        };
        self.reserved.insert(address, bytes);
        Some(address)
    }

    /// Frees a whole reservation, in which nothing may be mapped.
    pub(crate) fn unreserve(&mut self, address: u64, bytes: u64) -> bool {
        if self.reserved.get(&address) != Some(&bytes) || self.is_used(address, bytes) {
            return false;
        }
        self.reserved.remove(&address);
        true
    }

    /// Maps memory into reserved address space; false if it is not reserved, or in use.
    pub(crate) fn map(&mut self, address: u64, block: Block) -> bool {
        let is_reserved =
            self.reserved
                .range(..=address)
                .next_back()
                .is_some_and(|(start, length)| {
                    address
                        .checked_add(block.bytes)
                        .is_some_and(|end| end <= start + length)
                });
        if !is_reserved || self.is_used(address, block.bytes) {
            return false;
        }
        self.blocks.insert(address, block);
        true
    }

    /// The mappings that cover a range without gaps; `None` if there is a gap.
    pub(crate) fn mappings(&self, address: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = address.checked_add(bytes)?;
        let mut next = address;
        let mut starts = Vec::new();
        while next < end {
            let block = self.blocks.get(&next)?;
            if !matches!(block.owner, Owner::Mapping(_)) {
                return None;
            }
            starts.push(next);
            next += block.bytes;
        }
        (next == end && !starts.is_empty()).then_some(starts)
    }

    pub(crate) fn set_access(&mut self, start: u64, access: Access) {
        if let Some(block) = self.blocks.get_mut(&start) {
            block.access = access;
        }
    }

    pub(crate) fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < to.len() {
            let (block, offset, bytes) = self.part(address, done, to.len())?;
            if block.access == Access::None {
                return Err(Fault);
            }
            block.store.read(offset, &mut to[done..done + bytes])?;
            done += bytes;
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let (block, offset, bytes) = self.part(address, done, from.len())?;
            if block.access != Access::ReadWrite {
                return Err(Fault);
            }
            block.store.write(offset, &from[done..done + bytes])?;
            done += bytes;
        }
        Ok(())
    }

    /// The part of a range in one block: the block, its offset in the store, its length. Ranges may
    /// continue from one mapping into the next, but not from an allocation into another.
    fn part(&self, address: u64, done: usize, all: usize) -> Result<(&Block, u64, usize), Fault> {
        let at = address.checked_add(done as u64).ok_or(Fault)?;
        let (start, block) = self.block_at(at).ok_or(Fault)?;
        let left = block.bytes - (at - start);
        let rest = (all - done) as u64;
        if rest > left && !matches!(block.owner, Owner::Mapping(_)) {
            return Err(Fault);
        }
        Ok((block, block.offset + (at - start), rest.min(left) as usize))
    }

    fn is_used(&self, address: u64, bytes: u64) -> bool {
        self.blocks
            .range(..address.saturating_add(bytes))
            .next_back()
            .is_some_and(|(start, block)| start + block.bytes > address)
    }

    fn taken(&self) -> impl Iterator<Item = (u64, u64)> {
        let blocks = self.blocks.iter().map(|(&start, b)| (start, b.bytes));
        blocks.chain(self.reserved.iter().map(|(&start, &bytes)| (start, bytes)))
    }

    fn gap(&self, window: Window, bytes: u64, align: u64) -> Option<u64> {
        let (first, end) = self.bounds(window);
        let mut address = first.checked_next_multiple_of(align)?;
        let mut blocks = self.blocks.range(first..end).peekable();
        let mut reserved = self.reserved.range(first..end).peekable();
        loop {
            // Merges the two maps in order.
            let block = blocks.peek().map(|(start, block)| (**start, block.bytes));
            let space = reserved.peek().map(|(start, bytes)| (**start, **bytes));
            let next = match (block, space) {
                (Some(a), Some(b)) if a.0 < b.0 => blocks.next().map(|_| a),
                (_, Some(b)) => reserved.next().map(|_| b),
                (Some(a), None) => blocks.next().map(|_| a),
                (None, None) => None,
            };
            match next {
                Some((start, length)) if start < address.saturating_add(bytes) => {
                    let after = (start + length).checked_next_multiple_of(align)?;
                    address = address.max(after);
                }
                _ => break,
            }
        }
        (end.checked_sub(address)? >= bytes).then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(memory: &mut DeviceMemory, context: u32, bytes: u64) -> Option<u64> {
        let store = Store::new(bytes, None);
        memory.place(Window::High, store, Owner::Context(context))
    }

    fn mapping(bytes: u64) -> Block {
        Block {
            bytes,
            owner: Owner::Mapping(1),
            store: Store::new(bytes, None),
            offset: 0,
            access: Access::None,
        }
    }

    #[test]
    fn what_lies_outside_an_allocation_is_a_fault() {
        let mut memory = DeviceMemory::default();
        let first = place(&mut memory, 0, 512).unwrap();
        let second = place(&mut memory, 0, 512).unwrap();
        assert_eq!(second, first + 512);
        assert_eq!(memory.write(first, &[0; 513]), Err(Fault));
        assert_eq!(memory.read(first - 1, &mut [0]), Err(Fault));
        assert_eq!(memory.read(u64::MAX, &mut [0; 2]), Err(Fault));
        assert!(memory.remove(first, |_| true).is_some());
        assert!(memory.remove(first, |_| true).is_none());
        assert_eq!(memory.read(first, &mut [0]), Err(Fault));
    }

    #[test]
    fn gaps_are_used_again_and_contexts_freed_whole() {
        let mut memory = DeviceMemory::default();
        let blocks: Vec<u64> = [0, 1, 0]
            .map(|context| place(&mut memory, context, 1024).unwrap())
            .into();
        memory.remove(blocks[1], |_| true);
        assert_eq!(place(&mut memory, 1, 2048), Some(blocks[2] + 1024));
        assert_eq!(place(&mut memory, 1, 512), Some(blocks[1]));
        let freed: u64 = memory.remove_context(1).iter().map(|b| b.bytes).sum();
        assert_eq!(freed, 2560);
        assert_eq!(place(&mut memory, 1, DEVICE_SPAN_BYTES), None);
    }

    #[test]
    fn reserved_space_holds_mappings_and_nothing_else() {
        let mut memory = DeviceMemory::default();
        let space = memory.reserve(8192, 4096, 0).unwrap();
        assert_eq!(space % 4096, 0);
        assert!(place(&mut memory, 0, 512).unwrap() >= space + 8192);
        assert!(!memory.map(space + 4096, mapping(8192)));
        assert!(memory.map(space, mapping(4096)) && memory.map(space + 4096, mapping(4096)));
        assert!(!memory.map(space, mapping(4096)));
        assert!(!memory.unreserve(space, 8192));
        assert_eq!(memory.mappings(space, 4095), None);
        assert_eq!(
            memory.mappings(space, 8192),
            Some(vec![space, space + 4096])
        );

        // Inaccessible until access is set, and then across both.
        assert_eq!(memory.write(space + 4090, &[7; 12]), Err(Fault));
        for start in [space, space + 4096] {
            memory.set_access(start, Access::ReadWrite);
        }
        memory.write(space + 4090, &[7; 12]).unwrap();
        memory.set_access(space + 4096, Access::Read);
        let mut back = [0; 12];
        memory.read(space + 4090, &mut back).unwrap();
        assert_eq!(back, [7; 12]);
        assert_eq!(memory.write(space + 4090, &[7; 12]), Err(Fault));
        for start in [space, space + 4096] {
            memory.remove(start, |_| true).unwrap();
        }
        assert!(!memory.unreserve(space, 4096) && memory.unreserve(space, 8192));
        assert_eq!(memory.reserve(4096, 4096, space + 4096), Some(space + 4096));
    }

    #[test]
    fn low_addresses_fit_in_32_bits() {
        let mut memory = DeviceMemory::default();
        let store = Store::new(512, None);
        let low = memory.place(Window::Low, store, Owner::Context(0)).unwrap();
        assert!(low + 512 <= 1 << 32);
        let all = Store::new(DEVICE_LOW_SPAN_BYTES, None);
        assert_eq!(memory.place(Window::Low, all, Owner::Context(0)), None);
    }
}
