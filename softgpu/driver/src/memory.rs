//! Device memory and pinned host memory.
//!
//! Allocation takes effect at once, in stream-ordered calls too: `cuMemAllocAsync` allocates before
//! it returns, and `cuMemFreeAsync` waits for its stream and frees. Both are allowed by CUDA's
//! rules and slower than CUDA.

use abi::types::{CUmemHostAlloc_flags, CUresult};
use softgpu::wire::{
    ALLOCATION_ALIGN_BYTES, DEVICE_BASE, DEVICE_SPAN_BYTES, HOST_ARENA_BYTES, Reply, Request,
};

use crate::driver::Driver;
use crate::link::Link;
use crate::tables::{Context, DeviceBlock, HostBlock, Point, Stream, Tables};

/// What an address of the application means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Inside an allocation on the device.
    Device,
    /// Inside a pinned allocation.
    Pinned,
    /// Any other memory of the process.
    Pageable,
}

/// An allocation, for those who ask about an address in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) place: Place,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
    pub(crate) id: u64,
}

impl Driver {
    /// Device memory in the current context.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, CUresult> {
        let (context, Context { slot, .. }) = self.current()?;
        if bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let reply = self.link.call(&Request::Allocate {
            context: slot,
            bytes,
        })?;
        let mut tables = self.tables.lock();
        let id = tables.new_handle();
        let block = DeviceBlock { context, id };
        match (&self.link, reply) {
            (Link::Live(_), Reply::Allocated { address }) => {
                tables.device.insert(address, bytes, block);
                Ok(address)
            }
            (Link::Null, _) => {
                let (align, end) = (
                    ALLOCATION_ALIGN_BYTES,
                    DEVICE_BASE + self.device.memory_bytes,
                );
                let taken = tables.device.take(bytes, align, DEVICE_BASE, end, block);
                taken.ok_or(CUresult::OUT_OF_MEMORY)
            }
            _ => Err(CUresult::DEVICE_UNAVAILABLE),
        }
    }

    /// Waits for the context's work, as CUDA does in effect, and gives device memory back.
    pub(crate) fn free(&self, address: u64) -> Result<(), CUresult> {
        if address == 0 {
            return Ok(());
        }
        let context = self.device_block_at(address)?.context;
        self.synchronise_context(context)?;
        self.free_now(address)
    }

    /// Waits for a stream and gives device memory back.
    pub(crate) fn free_after(&self, address: u64, stream: &Stream) -> Result<(), CUresult> {
        self.device_block_at(address)?;
        self.synchronise_stream(stream)?;
        self.free_now(address)
    }

    fn free_now(&self, address: u64) -> Result<(), CUresult> {
        self.link.call(&Request::Free { address })?;
        let removed = self.tables.lock().device.remove(address);
        removed.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }

    /// The block that begins there.
    fn device_block_at(&self, address: u64) -> Result<DeviceBlock, CUresult> {
        let tables = self.tables.lock();
        match tables.device.holding(address, 1) {
            Some((start, _, block)) if start == address => Ok(*block),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Free and total bytes of the device.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), CUresult> {
        self.current()?;
        match self.link.call(&Request::MemoryInfo)? {
            Reply::Memory {
                free_bytes,
                total_bytes,
            } => Ok((free_bytes, total_bytes)),
            _ => Ok((self.device.memory_bytes, self.device.memory_bytes)),
        }
    }

    /// Pinned host memory; returns its address.
    pub(crate) fn allocate_pinned(&self, bytes: u64, flags: u32) -> Result<u64, CUresult> {
        let (context, _) = self.current()?;
        let all = CUmemHostAlloc_flags::PORTABLE.0
            | CUmemHostAlloc_flags::DEVICEMAP.0
            | CUmemHostAlloc_flags::WRITECOMBINED.0;
        if bytes == 0 || flags & !all != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let Link::Live(live) = &self.link else {
            return Err(CUresult::NOT_SUPPORTED);
        };
        let mut tables = self.tables.lock();
        let id = tables.new_handle();
        let block = HostBlock::Pinned { context, id };
        Ok(live.host_base() + self.take_host(&mut tables, bytes, block)?)
    }

    /// Gives pinned memory back.
    pub(crate) fn free_pinned(&self, address: u64) -> Result<(), CUresult> {
        if address == 0 {
            return Ok(());
        }
        let Link::Live(live) = &self.link else {
            return Err(CUresult::INVALID_VALUE);
        };
        let allocation = self.allocation(address)?;
        if allocation.place != Place::Pinned || allocation.start != address {
            return Err(CUresult::INVALID_VALUE);
        }
        self.synchronise_context(allocation.context)?;
        let offset = address - live.host_base();
        if let Some((bytes, _)) = self.tables.lock().host.remove(offset) {
            live.release_host(offset, bytes);
        }
        Ok(())
    }

    /// Whether an address is in pinned memory.
    pub(crate) fn is_pinned(&self, address: u64) -> bool {
        self.allocation(address)
            .is_ok_and(|allocation| allocation.place == Place::Pinned)
    }

    /// A part of the host arena for a copy that is being made.
    pub(crate) fn stage(&self, bytes: u64) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        self.take_host(&mut tables, bytes, HostBlock::Busy)
    }

    /// The staged copy was put at this point: the part is free once that is complete.
    pub(crate) fn staged_until(&self, offset: u64, until: Point) {
        let mut tables = self.tables.lock();
        if let Some((bytes, _)) = tables.host.remove(offset) {
            tables
                .host
                .insert(offset, bytes, HostBlock::Staged { until });
        }
    }

    /// The part is free.
    pub(crate) fn unstage(&self, offset: u64) {
        self.tables.lock().host.remove(offset);
    }

    fn take_host(
        &self,
        tables: &mut Tables,
        bytes: u64,
        block: HostBlock,
    ) -> Result<u64, CUresult> {
        let link = &self.link;
        tables.host.retain(|block| match block {
            HostBlock::Staged { until } => !link.is_complete(until.stream, until.seq),
            _ => true,
        });
        let bytes = bytes
            .checked_next_multiple_of(ALLOCATION_ALIGN_BYTES)
            .ok_or(CUresult::OUT_OF_MEMORY)?;
        let taken = tables
            .host
            .take(bytes, ALLOCATION_ALIGN_BYTES, 0, HOST_ARENA_BYTES, block);
        taken.ok_or(CUresult::OUT_OF_MEMORY)
    }

    /// Where a range of addresses is. A range that begins on the device must lie in one allocation
    /// there.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Result<Place, CUresult> {
        let tables = self.tables.lock();
        if (DEVICE_BASE..DEVICE_BASE + DEVICE_SPAN_BYTES).contains(&address) {
            return match tables.device.holding(address, bytes) {
                Some(_) => Ok(Place::Device),
                None => Err(CUresult::INVALID_VALUE),
            };
        }
        let offset = match &self.link {
            Link::Live(live) => address.checked_sub(live.host_base()),
            Link::Null => None,
        };
        let block = offset.and_then(|offset| tables.host.holding(offset, bytes));
        Ok(match block {
            Some((_, _, HostBlock::Pinned { .. })) => Place::Pinned,
            _ => Place::Pageable,
        })
    }

    /// The allocation that an address is in; none for pageable memory.
    pub(crate) fn allocation(&self, address: u64) -> Result<Allocation, CUresult> {
        let tables = self.tables.lock();
        if let Some((start, bytes, block)) = tables.device.holding(address, 1) {
            let DeviceBlock { context, id } = *block;
            return Ok(Allocation {
                place: Place::Device,
                start,
                bytes,
                context,
                id,
            });
        }
        let Link::Live(live) = &self.link else {
            return Err(CUresult::INVALID_VALUE);
        };
        let offset = address
            .checked_sub(live.host_base())
            .ok_or(CUresult::INVALID_VALUE)?;
        match tables.host.holding(offset, 1) {
            Some((start, bytes, &HostBlock::Pinned { context, id, .. })) => {
                let start = start + live.host_base();
                Ok(Allocation {
                    place: Place::Pinned,
                    start,
                    bytes,
                    context,
                    id,
                })
            }
            _ => Err(CUresult::INVALID_VALUE),
        }
    }
}
