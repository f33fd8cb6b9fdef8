//! Memory that belongs to graphs.

use std::collections::HashMap;

use abi::types::{CUgraphMem_attribute as Attribute, CUresult};
use softgpu::wire::ALLOCATION_ALIGN_BYTES;

use super::Kind;
use super::exec::MemoryStep;
use crate::driver::Driver;
use crate::tables::Stream;

#[derive(Debug, Default)]
pub(crate) struct GraphMemory {
    blocks: HashMap<u64, Block>,
    /// Bytes of removed blocks that the device does not have back yet.
    leaving_bytes: u64,
    used_high_bytes: u64,
    reserved_high_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    /// Graphs and executables with its node.
    owners: u32,
    /// Whether a launch has allocated it and it has not been freed.
    is_used: bool,
}

impl GraphMemory {
    fn insert(&mut self, address: u64, bytes: u64) {
        let block = Block {
            bytes,
            owners: 1,
            is_used: false,
        };
        self.blocks.insert(address, block);
        self.reserved_high_bytes = self.reserved_high_bytes.max(self.reserved_bytes());
    }

    /// Adds an executable as owner of the nodes' blocks.
    pub(crate) fn retain(&mut self, steps: &[MemoryStep]) {
        for step in steps {
            if let MemoryStep::Allocate(address) = step
                && let Some(block) = self.blocks.get_mut(address)
            {
                block.owners += 1;
            }
        }
    }

    /// Removes an owner. Returns the size if the memory must be freed
    /// ([`Driver::free_graph_block`]).
    pub(crate) fn release(&mut self, address: u64) -> Option<u64> {
        let block = self.blocks.get_mut(&address)?;
        block.owners = block.owners.saturating_sub(1);
        self.remove_if_unused(address)
    }

    fn remove_if_unused(&mut self, address: u64) -> Option<u64> {
        let is_over = |block: &Block| block.owners == 0 && !block.is_used;
        self.blocks.get(&address).filter(|block| is_over(block))?;
        let Block { bytes, .. } = self.blocks.remove(&address)?;
        self.leaving_bytes += stepped(bytes);
        Some(bytes)
    }

    fn handle_given_back(&mut self, bytes: u64) {
        self.leaving_bytes = self.leaving_bytes.saturating_sub(stepped(bytes));
    }

    /// Applies a launch, or refuses it: memory of the previous launch is still in use.
    pub(crate) fn launch(&mut self, steps: &[MemoryStep], auto_free: bool) -> Result<(), CUresult> {
        let is_used = |address: &u64| self.blocks.get(address).is_some_and(|block| block.is_used);
        let is_busy = |step: &MemoryStep| match step {
            MemoryStep::Allocate(address) => is_used(address),
            MemoryStep::Free(_) => false,
        };
        if !auto_free && steps.iter().any(is_busy) {
            return Err(CUresult::INVALID_VALUE);
        }
        for step in steps {
            let (address, is_used) = match *step {
                MemoryStep::Allocate(address) => (address, true),
                MemoryStep::Free(address) => (address, false),
            };
            if let Some(block) = self.blocks.get_mut(&address) {
                block.is_used = is_used;
            }
            self.used_high_bytes = self.used_high_bytes.max(self.used_bytes());
        }
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        let used = self.blocks.values().filter(|block| block.is_used);
        used.map(|block| block.bytes).sum()
    }

    /// Memory allocated for the blocks, rounded up to the device's granularity.
    fn reserved_bytes(&self) -> u64 {
        let blocks = self.blocks.values().map(|block| stepped(block.bytes));
        blocks.sum::<u64>() + self.leaving_bytes
    }

    pub(crate) fn attribute(&self, attribute: Attribute) -> Result<u64, CUresult> {
        Ok(match attribute {
            Attribute::USED_MEM_CURRENT => self.used_bytes(),
            Attribute::USED_MEM_HIGH => self.used_high_bytes,
            Attribute::RESERVED_MEM_CURRENT => self.reserved_bytes(),
            Attribute::RESERVED_MEM_HIGH => self.reserved_high_bytes,
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }

    pub(crate) fn set_attribute(
        &mut self,
        attribute: Attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        match attribute {
            Attribute::USED_MEM_HIGH if value == 0 => self.used_high_bytes = self.used_bytes(),
            Attribute::RESERVED_MEM_HIGH if value == 0 => {
                self.reserved_high_bytes = self.reserved_bytes();
            }
            _ => return Err(CUresult::INVALID_VALUE),
        }
        Ok(())
    }
}

/// Memory that the device allocates for `bytes`.
fn stepped(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALLOCATION_ALIGN_BYTES)
}

impl Driver {
    pub(crate) fn add_allocate_node(
        &self,
        graph: u64,
        dependencies: &[u64],
        bytes: u64,
    ) -> Result<(u64, u64), CUresult> {
        if self.tables.lock().graphs.graph(graph)?.is_child {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let address = self.graph_block(bytes)?;
        match self.add_node(graph, dependencies, Kind::Allocate(address)) {
            Ok(node) => Ok((node, address)),
            Err(error) => {
                self.drop_graph_block(address)?;
                Err(error)
            }
        }
    }

    fn graph_block(&self, bytes: u64) -> Result<u64, CUresult> {
        let address = self.allocate(bytes)?;
        self.tables.lock().graphs.memory.insert(address, bytes);
        Ok(address)
    }

    fn drop_graph_block(&self, address: u64) -> Result<(), CUresult> {
        let released = self.tables.lock().graphs.memory.release(address);
        released.map_or(Ok(()), |bytes| self.free_graph_block(address, bytes))
    }

    pub(crate) fn free_graph_block(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let freed = self.free_now(address);
        let memory = &mut self.tables.lock().graphs.memory;
        memory.handle_given_back(bytes);
        freed
    }

    /// A free node for memory of this process, from an allocation node or not.
    pub(crate) fn free_node(&self, address: u64) -> Result<Kind, CUresult> {
        let allocation = self.allocation(address)?;
        if allocation.start != address {
            return Err(CUresult::INVALID_VALUE);
        }
        let is_graphs = self.is_graph_block(address);
        // The device server cannot free memory of other kinds in stream order.
        is_graphs
            .then_some(Kind::Free(address))
            .ok_or(CUresult::NOT_SUPPORTED)
    }

    pub(crate) fn is_graph_block(&self, address: u64) -> bool {
        self.tables
            .lock()
            .graphs
            .memory
            .blocks
            .contains_key(&address)
    }

    pub(crate) fn graph_block_bytes(&self, address: u64) -> Option<u64> {
        let tables = self.tables.lock();
        Some(tables.graphs.memory.blocks.get(&address)?.bytes)
    }

    pub(crate) fn try_free_graph_block(&self, address: u64) -> Result<bool, CUresult> {
        let is_over = {
            let memory = &mut self.tables.lock().graphs.memory;
            match memory.blocks.get_mut(&address) {
                None => return Ok(false),
                Some(block) if !block.is_used => return Err(CUresult::INVALID_VALUE),
                Some(block) => block.is_used = false,
            }
            memory.remove_if_unused(address)
        };
        if let Some(bytes) = is_over {
            self.free_graph_block(address, bytes)?;
        }
        Ok(true)
    }

    /// Records a stream-ordered allocation, if the stream is in capture; returns its address.
    pub(crate) fn try_capture_allocation(
        &self,
        stream: &Stream,
        bytes: u64,
    ) -> Result<Option<u64>, CUresult> {
        if !self.is_captured(stream)? {
            return Ok(None);
        }
        let address = self.graph_block(bytes)?;
        match self.try_capture(stream, |_| Ok(Kind::Allocate(address))) {
            Ok(true) => Ok(Some(address)),
            other => {
                self.drop_graph_block(address)?;
                other.map(|_| None)
            }
        }
    }

    /// Records a stream-ordered free, if the stream is in capture.
    pub(crate) fn try_capture_free(&self, stream: &Stream, address: u64) -> Result<bool, CUresult> {
        if !self.is_captured(stream)? {
            return Ok(false);
        }
        let kind = self.free_node(address)?;
        self.try_capture(stream, |_| Ok(kind))
    }
}
