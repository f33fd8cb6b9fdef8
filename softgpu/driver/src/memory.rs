//! Device memory and pinned host memory. Allocation and `cuMemFree` take effect before the call
//! returns; stream-ordered frees are in `pools`. Pinned memory lies in the host arena, which the
//! device can access. The application's own registered memory does not: copies of it are staged
//! like pageable ones, and it has no device address.

use abi::types::{CUmemAccess_flags, CUmemHostAlloc_flags, CUmemHostRegister_flags, CUresult};
use softgpu::wire::{
    ALLOCATION_ALIGN_BYTES, DEVICE_BASE, DEVICE_LOW_BASE, DEVICE_LOW_SPAN_BYTES, DEVICES,
    HOST_ARENA_BYTES, MemoryRequest, Reply, Request, device_base,
};

use crate::driver::Driver;
use crate::holdings::Registered;
use crate::link::{Link, device_of_address};
use crate::raw;
use crate::tables::{BlockKind, Context, DeviceBlock, HostBlock, Point, Tables};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Inside a pinned allocation.
    Pinned,
    /// Inside managed memory, which is the device's although it lies in the host arena.
    Managed,
    /// Any other memory of the process.
    Pageable,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) place: Place,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) id: u64,
    pub(crate) block: Option<DeviceBlock>,
}

impl Driver {
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, CUresult> {
        let (context, Context { device, slot, .. }) = self.current()?;
        if bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let reply = self.link.call(&Request::Allocate {
            context: slot,
            bytes,
        })?;
        let mut tables = self.tables.lock();
        let id = tables.new_handle();
        let block = DeviceBlock {
            context,
            id,
            kind: BlockKind::Plain,
            has_sync_memops: false,
        };
        match (&self.link, reply) {
            (Link::Live(_), Reply::Allocated { address }) => {
                tables.device.insert(address, bytes, block);
                Ok(address)
            }
            (Link::Null, _) => {
                let (align, end) = (
                    ALLOCATION_ALIGN_BYTES,
                    DEVICE_BASE + self.gpus[device].device.memory_bytes,
                );
                let taken = tables.device.take(bytes, align, DEVICE_BASE, end, block);
                taken.ok_or(CUresult::OUT_OF_MEMORY)
            }
            _ => Err(CUresult::DEVICE_UNAVAILABLE),
        }
    }

    /// Waits for the context's work, as CUDA effectively does, and frees device memory.
    pub(crate) fn free(&self, address: u64) -> Result<(), CUresult> {
        if address == 0 {
            return Ok(());
        }
        if let Some(freed) = self.free_managed(address) {
            return freed;
        }
        if self.try_free_graph_block(address)? {
            return Ok(());
        }
        let block = self.device_block_at(address)?;
        if !matches!(block.kind, BlockKind::Plain | BlockKind::Pool(_)) {
            return Err(CUresult::INVALID_VALUE);
        }
        self.synchronise_context(block.context)?;
        self.free_now(address)
    }

    /// Allocates device memory with a 32-bit address, as for CUDA 2.
    pub(crate) fn allocate_low(&self, bytes: u64) -> Result<u32, CUresult> {
        let (handle, context) = self.current()?;
        if bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        self.keep_off_low_addresses(context.device)?;
        let request = MemoryRequest::AllocateLow {
            context: context.local_slot(),
            bytes,
        };
        let [address, ..] = self.ask(context.device, request)?;
        self.note_block(address, bytes, handle, BlockKind::Plain);
        u32::try_from(address).map_err(|_| CUresult::UNKNOWN)
    }

    /// Ensures that no address below 4 GiB is one of device and host at once.
    fn keep_off_low_addresses(&self, device: usize) -> Result<(), CUresult> {
        let mut tables = self.tables.lock();
        if !tables.holdings.low.contains(&device) {
            let start = DEVICE_LOW_BASE + device as u64 * DEVICE_LOW_SPAN_BYTES;
            raw::keep_off(start, DEVICE_LOW_SPAN_BYTES)?;
            tables.holdings.low.push(device);
        }
        Ok(())
    }

    pub(crate) fn ask(&self, device: usize, request: MemoryRequest) -> Result<[u64; 4], CUresult> {
        self.link.ask(device, request)
    }

    /// Sends a request to the servers in turn until one succeeds; returns its index.
    pub(crate) fn ask_each(&self, request: MemoryRequest) -> Result<(usize, [u64; 4]), CUresult> {
        let answers = (0..self.gpus.len()).map(|device| (device, self.ask(device, request)));
        let mut answered = answers.filter_map(|(device, answer)| Some((device, answer.ok()?)));
        answered.next().ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn free_now(&self, address: u64) -> Result<(), CUresult> {
        // Removed before the server frees it: then another thread may get the same address at once.
        let removed = self.tables.lock().device.remove(address);
        removed.ok_or(CUresult::INVALID_VALUE)?;
        self.link.call(&Request::Free { address })?;
        Ok(())
    }

    /// The block that contains an address, among those with addresses known to the application.
    pub(crate) fn block_around(&self, address: u64) -> Result<DeviceBlock, CUresult> {
        self.block_with_start(address).map(|(_, block)| block)
    }

    /// As above, with its start.
    pub(crate) fn block_with_start(&self, address: u64) -> Result<(u64, DeviceBlock), CUresult> {
        let tables = self.tables.lock();
        match tables.device.holding(address, 1) {
            Some((start, _, block)) if block.kind != BlockKind::Array => Ok((start, *block)),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn device_block_at(&self, address: u64) -> Result<DeviceBlock, CUresult> {
        let tables = self.tables.lock();
        match tables.device.holding(address, 1) {
            Some((start, _, block)) if start == address => Ok(*block),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn host_base(&self) -> Option<u64> {
        match &self.link {
            Link::Live(live) => Some(live.host_base()),
            Link::Null => None,
        }
    }

    pub(crate) fn host(&self) -> Option<&softgpu::wire::HostArena> {
        match &self.link {
            Link::Live(live) => Some(live.host()),
            Link::Null => None,
        }
    }

    pub(crate) fn memory_info(&self) -> Result<(u64, u64), CUresult> {
        let (_, Context { device, .. }) = self.current()?;
        match self.link.call_on(device, &Request::MemoryInfo)? {
            Reply::Memory {
                free_bytes,
                total_bytes,
            } => Ok((free_bytes, total_bytes)),
            _ => {
                let total_bytes = self.gpus[device].device.memory_bytes;
                Ok((total_bytes, total_bytes))
            }
        }
    }

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
        let block = HostBlock::Pinned { context, id, flags };
        Ok(live.host_base() + self.take_host(&mut tables, bytes, block)?)
    }

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

    pub(crate) fn device_pointer(&self, address: u64) -> Result<u64, CUresult> {
        match self.allocation(address)?.place {
            Place::Pinned | Place::Managed => Ok(address),
            Place::Pageable => Err(CUresult::NOT_SUPPORTED),
            Place::Device => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn pinned_flags(&self, address: u64) -> Result<u32, CUresult> {
        let tables = self.tables.lock();
        if let Some((_, _, registered)) = tables.holdings.registered.holding(address, 1) {
            return Ok(registered.flags);
        }
        match self.arena_block(&tables, address, 1) {
            Some((_, _, HostBlock::Pinned { flags, .. })) => Ok(flags),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Registers memory of the application, which then counts as pinned.
    pub(crate) fn register(&self, address: u64, bytes: u64, flags: u32) -> Result<(), CUresult> {
        let (context, _) = self.current()?;
        let all = CUmemHostRegister_flags::PORTABLE.0
            | CUmemHostRegister_flags::DEVICEMAP.0
            | CUmemHostRegister_flags::IOMEMORY.0
            | CUmemHostRegister_flags::READ_ONLY.0;
        let is_range = address.checked_add(bytes).is_some();
        if address == 0 || bytes == 0 || flags & !all != 0 || !is_range {
            return Err(CUresult::INVALID_VALUE);
        }
        if flags & CUmemHostRegister_flags::IOMEMORY.0 != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let mut tables = self.tables.lock();
        let is_ours = self.arena_block(&tables, address, 1).is_some();
        let overlapping = tables
            .holdings
            .registered
            .within_mut(address, bytes)
            .count();
        if overlapping > 0 || is_ours {
            return Err(CUresult::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let id = tables.new_handle();
        let registered = Registered { context, id, flags };
        tables
            .holdings
            .registered
            .insert(address, bytes, registered);
        Ok(())
    }

    pub(crate) fn unregister(&self, address: u64) -> Result<(), CUresult> {
        if address == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let context = {
            let tables = self.tables.lock();
            match tables.holdings.registered.holding(address, 1) {
                Some((start, _, registered)) if start == address => registered.context,
                _ => return Err(CUresult::HOST_MEMORY_NOT_REGISTERED),
            }
        };
        self.synchronise_context(context)?;
        self.tables.lock().holdings.registered.remove(address);
        Ok(())
    }

    pub(crate) fn stage(&self, bytes: u64) -> Result<u64, CUresult> {
        let mut tables = self.tables.lock();
        self.take_host(&mut tables, bytes, HostBlock::Busy)
    }

    /// Marks a staged part as used until this point.
    pub(crate) fn staged_until(&self, offset: u64, until: Point) {
        let mut tables = self.tables.lock();
        if let Some((bytes, _)) = tables.host.remove(offset) {
            tables
                .host
                .insert(offset, bytes, HostBlock::Staged { until });
        }
    }

    pub(crate) fn unstage(&self, offset: u64) {
        self.tables.lock().host.remove(offset);
    }

    pub(crate) fn take_host(
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

    /// The place of a range of addresses. A range that begins on the device must lie in one
    /// allocation there, or in mappings without a gap, and be accessible.
    pub(crate) fn place(&self, address: u64, bytes: u64) -> Result<Place, CUresult> {
        let tables = self.tables.lock();
        let is_high = (DEVICE_BASE..device_base(DEVICES)).contains(&address);
        if is_high || tables.device.holding(address, 1).is_some() {
            return check_device_range(&tables, address, bytes).map(|()| Place::Device);
        }
        Ok(match self.arena_block(&tables, address, bytes) {
            Some((_, _, HostBlock::Pinned { .. })) => Place::Pinned,
            Some((_, _, HostBlock::Managed { .. })) => Place::Managed,
            _ => Place::Pageable,
        })
    }

    /// The part of the host arena that contains a range: its first address, length, use.
    fn arena_block(
        &self,
        tables: &Tables,
        address: u64,
        bytes: u64,
    ) -> Option<(u64, u64, HostBlock)> {
        let Link::Live(live) = &self.link else {
            return None;
        };
        let offset = address.checked_sub(live.host_base())?;
        let (start, length, block) = tables.host.holding(offset, bytes)?;
        Some((live.host_base() + start, length, *block))
    }

    pub(crate) fn allocation(&self, address: u64) -> Result<Allocation, CUresult> {
        let tables = self.tables.lock();
        let device_of = |context: u64| {
            let known = tables.contexts.get(&context);
            known.map_or(0, |context| context.device)
        };
        if let Some((start, bytes, block)) = tables.device.holding(address, 1) {
            if block.kind == BlockKind::Array {
                return Err(CUresult::INVALID_VALUE);
            }
            return Ok(Allocation {
                place: Place::Device,
                start,
                bytes,
                context: block.context,
                device: device_of_address(address),
                id: block.id,
                block: Some(*block),
            });
        }
        let registered = tables.holdings.registered.holding(address, 1);
        let registered = registered.map(|(start, bytes, registered)| {
            let Registered { context, id, .. } = *registered;
            (Place::Pageable, start, bytes, context, id)
        });
        let arena = || match self.arena_block(&tables, address, 1)? {
            (start, bytes, HostBlock::Pinned { context, id, .. }) => {
                Some((Place::Pinned, start, bytes, context, id))
            }
            (start, bytes, HostBlock::Managed { context, id }) => {
                Some((Place::Managed, start, bytes, context, id))
            }
            _ => None,
        };
        let found = registered.or_else(arena).ok_or(CUresult::INVALID_VALUE)?;
        let (place, start, bytes, context, id) = found;
        Ok(Allocation {
            place,
            start,
            bytes,
            context,
            device: device_of(context),
            id,
            block: None,
        })
    }
}

fn check_device_range(tables: &Tables, address: u64, bytes: u64) -> Result<(), CUresult> {
    let end = address.checked_add(bytes).ok_or(CUresult::INVALID_VALUE)?;
    let mut next = address;
    loop {
        let holding = tables.device.holding(next, 1);
        let (start, length, block) = holding.ok_or(CUresult::INVALID_VALUE)?;
        let is_mapping = match block.kind {
            BlockKind::Array => return Err(CUresult::INVALID_VALUE),
            BlockKind::Mapping { access, .. } if access == CUmemAccess_flags::NONE => {
                return Err(CUresult::INVALID_VALUE);
            }
            BlockKind::Mapping { .. } => true,
            _ => false,
        };
        if end <= start + length {
            return Ok(());
        }
        if !is_mapping {
            return Err(CUresult::INVALID_VALUE);
        }
        next = start + length;
    }
}
