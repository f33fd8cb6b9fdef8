//! Answers requests about memory. The counters are of allocations as a program sees them: the
//! requested size, whether from the device, a pool, as managed memory or as physical memory without
//! an address; and each way of freeing one. Address space, mappings, and memory of another process
//! do not count.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use softgpu::wire::{GRANULARITY_BYTES, MemoryRequest, Reply, SharedEvent};

use super::{ClientId, World};
use crate::client::Client;
use crate::device_memory::{Access, Block, Owner, Window, rounded_bytes};
use crate::pool::Pool;
use crate::store::{Account, Store};

/// CUDA_ERROR_INVALID_VALUE.
const INVALID_VALUE: u32 = 1;
/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;
/// CUDA_ERROR_INVALID_CONTEXT.
const INVALID_CONTEXT: u32 = 201;
/// CUDA_ERROR_NOT_READY.
const NOT_READY: u32 = 600;

/// Most handles, pools and tokens of one client, each.
const OBJECTS_MAX: usize = 1 << 16;
/// Most tokens of all clients.
const EXPORTS_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Holdings {
    handles: BTreeMap<u64, Handle>,
    pools: BTreeMap<u64, Pool>,
    /// Managed memory: offset in the arena, and its context.
    managed: BTreeMap<u64, u32>,
    /// Last number used for a handle or pool.
    last: u64,
}

#[derive(Debug)]
struct Handle {
    store: Arc<Store>,
    /// Number of releases required.
    names: u64,
}

#[derive(Debug)]
pub(super) struct Export {
    owner: ClientId,
    store: Weak<Store>,
}

impl Holdings {
    pub(crate) fn new(account: &Account) -> Self {
        Self {
            handles: BTreeMap::new(),
            pools: BTreeMap::from([(0, Pool::new(account, 0))]),
            managed: BTreeMap::new(),
            last: 0,
        }
    }

    fn forget(&mut self, block: &Block) {
        let Owner::Pool { pool: number, .. } = block.owner else {
            return;
        };
        if let Some(pool) = self.pools.get_mut(&number) {
            pool.give_back(block.bytes);
            if pool.is_over() {
                self.pools.remove(&number);
            }
        }
    }

    pub(super) fn forget_context(&mut self, context: u32, blocks: &[Block]) {
        for block in blocks {
            self.forget(block);
        }
        self.managed.retain(|_, of| *of != context);
    }

    fn pool(&mut self, pool: u64) -> Result<&mut Pool, u32> {
        let known = self.pools.get_mut(&pool).filter(|pool| !pool.is_ended());
        known.ok_or(INVALID_VALUE)
    }

    fn new_number(&mut self) -> Result<u64, u32> {
        if self.handles.len() + self.pools.len() >= OBJECTS_MAX {
            return Err(OUT_OF_MEMORY);
        }
        self.last += 1;
        Ok(self.last)
    }

    fn add_handle(&mut self, store: Arc<Store>) -> Result<u64, u32> {
        let number = self.new_number()?;
        self.handles.insert(number, Handle { store, names: 1 });
        Ok(number)
    }
}

impl Client {
    pub(super) fn free(&mut self, address: u64) -> Option<()> {
        let is_allocation = |owner| matches!(owner, Owner::Context(_) | Owner::Pool { .. });
        let block = self.space.device.remove(address, is_allocation)?;
        self.holdings.forget(&block);
        Some(())
    }

    fn count_record(&mut self, event: SharedEvent) -> Result<Reply, u32> {
        let number = self.word(event.address)?.wrapping_add(1);
        let earlier = number.saturating_sub(SharedEvent::RECORDS);
        if self.word(event.word_of(number))? < earlier {
            return Err(NOT_READY);
        }
        let written = self
            .space
            .device
            .write(event.address, &number.to_le_bytes());
        written.map_err(|_| INVALID_VALUE)?;
        Ok(words([number, 0, 0, 0]))
    }

    fn record_state(&self, event: SharedEvent, number: u64) -> Result<Reply, u32> {
        let last = self.word(event.address)?;
        let number = if number == 0 { last } else { number };
        let is_reached = number == 0 || self.word(event.word_of(number))? >= number;
        Ok(words([number, is_reached.into(), 0, 0]))
    }

    fn word(&self, address: u64) -> Result<u64, u32> {
        let mut bytes = [0; 8];
        let read = self.space.device.read(address, &mut bytes);
        read.map_err(|_| INVALID_VALUE)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl World {
    pub(super) fn handle_memory(
        &mut self,
        id: ClientId,
        request: MemoryRequest,
    ) -> Result<Reply, u32> {
        use MemoryRequest as R;
        match request {
            R::AllocateLow { context, bytes } => {
                self.allocate(id, context as u32, bytes, Window::Low)
            }
            R::AllocateManaged {
                context,
                offset,
                bytes,
            } => self.allocate_managed(id, context as u32, offset, bytes),
            R::FreeManaged { offset } => self.free_managed(id, offset),
            R::AllocateVariable { context, bytes } => {
                self.check_allocation(id, context as u32, bytes)?;
                let address = self.try_allocate(id, context as u32, bytes, Window::High);
                let address = address.ok_or(OUT_OF_MEMORY)?;
                Ok(Reply::Allocated { address })
            }
            R::FreeVariable { address } => done_if(self.client(id).free(address).is_some()),
            R::CountRecord { address } => self.client(id).count_record(SharedEvent { address }),
            R::RecordState { address, number } => {
                let event = SharedEvent { address };
                self.client(id).record_state(event, number)
            }
            R::Reserve { bytes, align, wish } => self.reserve(id, bytes, align, wish),
            R::Unreserve { address, bytes } => {
                let freed = self.client(id).space.device.unreserve(address, bytes);
                done_if(freed)
            }
            R::Create { bytes } => self.create(id, bytes),
            R::Release { handle } => self.release(id, handle),
            R::Retain { address } => self.retain(id, address),
            R::Map {
                address,
                bytes,
                handle,
                offset,
            } => self.map(id, address, bytes, handle, offset),
            R::Unmap { address, bytes } => self.unmap(id, address, bytes),
            R::SetAccess {
                address,
                bytes,
                access,
            } => self.set_access(id, address, bytes, access),
            R::ExportHandle { .. }
            | R::ExportAddress { .. }
            | R::ImportHandle { .. }
            | R::OpenShared { .. }
            | R::CloseShared { .. } => self.handle_sharing(id, request),
            R::AllocateFromPool {
                context,
                pool,
                bytes,
            } => self.allocate_from_pool(id, context as u32, pool, bytes),
            _ => self.handle_pool(id, request),
        }
    }

    pub(super) fn allocate(
        &mut self,
        id: ClientId,
        context: u32,
        asked_bytes: u64,
        window: Window,
    ) -> Result<Reply, u32> {
        self.check_allocation(id, context, asked_bytes)?;
        let address = self.try_allocate(id, context, asked_bytes, window);
        self.count_allocation(id, asked_bytes, address)
    }

    /// Allocates device memory without counting it; `None` if the device is full.
    fn try_allocate(
        &mut self,
        id: ClientId,
        context: u32,
        asked_bytes: u64,
        window: Window,
    ) -> Option<u64> {
        let total_bytes = self.gpu.device().memory_bytes;
        let bytes = rounded_bytes(asked_bytes)?;
        let charge = self.client(id).memory.try_charge(bytes, total_bytes)?;
        let store = Store::new(bytes, Some(charge));
        let owner = Owner::Context(context);
        self.client(id).space.device.place(window, store, owner)
    }

    fn allocate_from_pool(
        &mut self,
        id: ClientId,
        context: u32,
        pool: u64,
        asked_bytes: u64,
    ) -> Result<Reply, u32> {
        self.check_allocation(id, context, asked_bytes)?;
        let total_bytes = self.gpu.device().memory_bytes;
        let client = self.client(id);
        let from = client.holdings.pool(pool)?;
        let taken = rounded_bytes(asked_bytes).filter(|&bytes| from.try_take(bytes, total_bytes));
        let address = taken.and_then(|bytes| {
            let owner = Owner::Pool { context, pool };
            let store = Store::new(bytes, None);
            let address = client.space.device.place(Window::High, store, owner);
            if address.is_none() {
                client.holdings.pool(pool).ok()?.give_back(bytes);
            }
            address
        });
        self.count_allocation(id, asked_bytes, address)
    }

    fn check_allocation(&mut self, id: ClientId, context: u32, bytes: u64) -> Result<(), u32> {
        if self.client(id).contexts[context as usize].is_none() {
            return Err(INVALID_CONTEXT);
        }
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        Ok(())
    }

    fn count_allocation(
        &mut self,
        id: ClientId,
        asked_bytes: u64,
        address: Option<u64>,
    ) -> Result<Reply, u32> {
        let label = self.client(id).label.clone();
        let counters = self.labels.of(&label);
        let Some(address) = address else {
            counters.allocations_refused += 1;
            return Err(OUT_OF_MEMORY);
        };
        counters.allocations += 1;
        counters.allocated_bytes += asked_bytes;
        Ok(Reply::Allocated { address })
    }

    pub(super) fn count_free(&mut self, id: ClientId) {
        let label = self.client(id).label.clone();
        self.labels.of(&label).frees += 1;
    }

    pub(super) fn free(&mut self, id: ClientId, address: u64) -> Result<Reply, u32> {
        self.client(id).free(address).ok_or(INVALID_VALUE)?;
        self.count_free(id);
        Ok(Reply::Done)
    }

    fn allocate_managed(
        &mut self,
        id: ClientId,
        context: u32,
        offset: u64,
        bytes: u64,
    ) -> Result<Reply, u32> {
        self.check_allocation(id, context, bytes)?;
        let managed = &mut self.client(id).holdings.managed;
        if managed.len() >= OBJECTS_MAX || managed.contains_key(&offset) {
            return Err(INVALID_VALUE);
        }
        managed.insert(offset, context);
        self.count_allocation(id, bytes, Some(offset))
    }

    fn free_managed(&mut self, id: ClientId, offset: u64) -> Result<Reply, u32> {
        let removed = self.client(id).holdings.managed.remove(&offset);
        removed.ok_or(INVALID_VALUE)?;
        self.count_free(id);
        Ok(Reply::Done)
    }

    fn reserve(&mut self, id: ClientId, bytes: u64, align: u64, wish: u64) -> Result<Reply, u32> {
        if bytes == 0 || !align.is_power_of_two() {
            return Err(INVALID_VALUE);
        }
        let reserved = self.client(id).space.device.reserve(bytes, align, wish);
        let address = reserved.ok_or(OUT_OF_MEMORY)?;
        Ok(Reply::Allocated { address })
    }

    fn create(&mut self, id: ClientId, bytes: u64) -> Result<Reply, u32> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY_BYTES) {
            return Err(INVALID_VALUE);
        }
        let total_bytes = self.gpu.device().memory_bytes;
        let charge = self.client(id).memory.try_charge(bytes, total_bytes);
        let store = charge.map(|charge| Store::new(bytes, Some(charge)));
        let holdings = &mut self.client(id).holdings;
        let handle = store.and_then(|store| holdings.add_handle(store).ok());
        self.count_allocation(id, bytes, handle)?;
        Ok(words([handle.unwrap_or(0), 0, 0, 0]))
    }

    fn release(&mut self, id: ClientId, handle: u64) -> Result<Reply, u32> {
        let handles = &mut self.client(id).holdings.handles;
        let known = handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
        known.names -= 1;
        if known.names == 0 {
            handles.remove(&handle);
        }
        self.count_free(id);
        Ok(Reply::Done)
    }

    fn retain(&mut self, id: ClientId, address: u64) -> Result<Reply, u32> {
        let client = self.client(id);
        let (_, block) = client.space.device.block_at(address).ok_or(INVALID_VALUE)?;
        let Owner::Mapping(handle) = block.owner else {
            return Err(INVALID_VALUE);
        };
        let store = Arc::clone(&block.store);
        // Memory that only its mappings keep alive gets its former handle again.
        let holdings = &mut client.holdings;
        let known = holdings
            .handles
            .entry(handle)
            .or_insert(Handle { store, names: 0 });
        known.names += 1;
        Ok(words([handle, 0, 0, 0]))
    }

    fn map(
        &mut self,
        id: ClientId,
        address: u64,
        bytes: u64,
        handle: u64,
        offset: u64,
    ) -> Result<Reply, u32> {
        let client = self.client(id);
        let known = client.holdings.handles.get(&handle).ok_or(INVALID_VALUE)?;
        let end = offset.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let are_whole = [address, bytes, offset]
            .iter()
            .all(|number| number.is_multiple_of(GRANULARITY_BYTES));
        if bytes == 0 || end > known.store.bytes() || !are_whole {
            return Err(INVALID_VALUE);
        }
        let block = Block {
            bytes,
            owner: Owner::Mapping(handle),
            store: Arc::clone(&known.store),
            offset,
            access: Access::None,
        };
        done_if(client.space.device.map(address, block))
    }

    fn unmap(&mut self, id: ClientId, address: u64, bytes: u64) -> Result<Reply, u32> {
        let device = &mut self.client(id).space.device;
        for start in device.mappings(address, bytes).ok_or(INVALID_VALUE)? {
            device.remove(start, |_| true);
        }
        Ok(Reply::Done)
    }

    fn set_access(
        &mut self,
        id: ClientId,
        address: u64,
        bytes: u64,
        access: u64,
    ) -> Result<Reply, u32> {
        let access = match access {
            0 => Access::None,
            1 => Access::Read,
            3 => Access::ReadWrite,
            _ => return Err(INVALID_VALUE),
        };
        let device = &mut self.client(id).space.device;
        for start in device.mappings(address, bytes).ok_or(INVALID_VALUE)? {
            device.set_access(start, access);
        }
        Ok(Reply::Done)
    }

    fn handle_sharing(&mut self, id: ClientId, request: MemoryRequest) -> Result<Reply, u32> {
        use MemoryRequest as R;
        match request {
            R::ExportHandle { handle } => {
                let known = self.client(id).holdings.handles.get(&handle);
                let store = Arc::clone(&known.ok_or(INVALID_VALUE)?.store);
                self.export(id, &store)
            }
            R::ExportAddress { address } => {
                let block = self.client(id).space.device.block_at(address);
                let (start, block) = block.ok_or(INVALID_VALUE)?;
                if start != address || !matches!(block.owner, Owner::Context(_)) {
                    return Err(INVALID_VALUE);
                }
                let store = Arc::clone(&block.store);
                self.export(id, &store)
            }
            R::ImportHandle { low, high } => {
                let (_, store) = self.exported(low, high)?;
                let bytes = store.bytes();
                let handle = self.client(id).holdings.add_handle(store)?;
                Ok(words([handle, bytes, 0, 0]))
            }
            R::OpenShared { context, low, high } => {
                let (owner, store) = self.exported(low, high)?;
                // As in CUDA: a process has its own memory without opening it.
                if owner == id {
                    return Err(INVALID_CONTEXT);
                }
                self.check_allocation(id, context as u32, 1)?;
                let bytes = store.bytes();
                let device = &mut self.client(id).space.device;
                let owner = Owner::Shared(context as u32);
                let address = device.place(Window::High, store, owner);
                Ok(words([address.ok_or(OUT_OF_MEMORY)?, bytes, 0, 0]))
            }
            R::CloseShared { address } => {
                let device = &mut self.client(id).space.device;
                let is_shared = |owner| matches!(owner, Owner::Shared(_));
                done_if(device.remove(address, is_shared).is_some())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn export(&mut self, id: ClientId, store: &Arc<Store>) -> Result<Reply, u32> {
        self.exports
            .retain(|_, export| export.store.strong_count() > 0);
        if self.exports.len() >= EXPORTS_MAX {
            return Err(OUT_OF_MEMORY);
        }
        self.export_last += 1;
        // No other server has the same tokens.
        let token = u128::from_le_bytes(self.uuid).wrapping_add(self.export_last.into());
        let export = Export {
            owner: id,
            store: Arc::downgrade(store),
        };
        self.exports.insert(token, export);
        Ok(words([
            token as u64,
            (token >> 64) as u64,
            store.bytes(),
            0,
        ]))
    }

    fn exported(&self, low: u64, high: u64) -> Result<(ClientId, Arc<Store>), u32> {
        let token = u128::from(low) | u128::from(high) << 64;
        let export = self.exports.get(&token).ok_or(INVALID_VALUE)?;
        let store = export.store.upgrade().ok_or(INVALID_VALUE)?;
        Ok((export.owner, store))
    }

    fn handle_pool(&mut self, id: ClientId, request: MemoryRequest) -> Result<Reply, u32> {
        use MemoryRequest as R;
        let client = self.client(id);
        let (account, holdings) = (&client.memory, &mut client.holdings);
        match request {
            R::CreatePool { max_bytes } => {
                let number = holdings.new_number()?;
                holdings.pools.insert(number, Pool::new(account, max_bytes));
                return Ok(words([number, 0, 0, 0]));
            }
            R::DestroyPool { pool: 0 } => return Err(INVALID_VALUE),
            R::DestroyPool { pool } => {
                if holdings.pool(pool)?.end() {
                    holdings.pools.remove(&pool);
                }
            }
            R::PoolState { pool } => return Ok(words(holdings.pool(pool)?.state())),
            R::SetPoolThreshold { pool, bytes } => holdings.pool(pool)?.set_threshold(bytes),
            R::ResetPoolReserved { pool } => holdings.pool(pool)?.reset_reserved(),
            R::ResetPoolUsed { pool } => holdings.pool(pool)?.reset_used(),
            R::TrimPool { pool, keep_bytes } => holdings.pool(pool)?.trim_to(keep_bytes),
            _ => return Err(INVALID_VALUE),
        }
        Ok(Reply::Done)
    }
}

fn words(words: [u64; 4]) -> Reply {
    Reply::Words { words }
}

fn done_if(done: bool) -> Result<Reply, u32> {
    if done {
        Ok(Reply::Done)
    } else {
        Err(INVALID_VALUE)
    }
}
