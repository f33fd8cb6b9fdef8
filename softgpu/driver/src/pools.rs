//! Memory pools. A pool reserves bytes of its device at the server (`softgpu/server`'s `pool`). An
//! allocation has its memory when the call returns; a free is stream-ordered. If the device is full
//! while frees are pending, allocation waits for them and retries, which CUDA allows with internal
//! dependencies. No pool can be created for sharing with other processes.

use abi::types::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUresult,
};
use softgpu::wire::{MemoryRequest, Request, Work};

use crate::driver::Driver;
use crate::holdings::Pool;
use crate::link::device_of_address;
use crate::tables::{BlockKind, DeviceBlock, Stream};

impl Driver {
    pub(crate) fn located(&self, location: CUmemLocation) -> Result<usize, CUresult> {
        match location.kind {
            CUmemLocationType::DEVICE => self.check_device(abi::types::CUdevice(location.id)),
            CUmemLocationType::HOST
            | CUmemLocationType::HOST_NUMA
            | CUmemLocationType::HOST_NUMA_CURRENT => Err(CUresult::NOT_SUPPORTED),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn default_pool(&self, device: usize) -> u64 {
        let mut tables = self.tables.lock();
        if let Some(&handle) = tables.holdings.default_pools.get(&device) {
            return handle;
        }
        let handle = tables.new_handle();
        tables.holdings.default_pools.insert(device, handle);
        tables.holdings.pools.insert(handle, Pool::new(device, 0));
        handle
    }

    pub(crate) fn current_pool(&self, device: usize) -> u64 {
        let current = {
            let tables = self.tables.lock();
            tables.holdings.current_pools.get(&device).copied()
        };
        current.unwrap_or_else(|| self.default_pool(device))
    }

    pub(crate) fn set_current_pool(&self, device: usize, handle: u64) -> Result<(), CUresult> {
        if self.pool(handle)?.device != device {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut tables = self.tables.lock();
        tables.holdings.current_pools.insert(device, handle);
        Ok(())
    }

    pub(crate) fn create_pool(&self, properties: &CUmemPoolProps) -> Result<u64, CUresult> {
        if properties.alloc_type != CUmemAllocationType::PINNED {
            return Err(CUresult::INVALID_VALUE);
        }
        let device = self.located(properties.location)?;
        if properties.handle_types != CUmemAllocationHandleType::NONE {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let max_bytes = properties.max_size as u64;
        let [number, ..] = self.ask(device, MemoryRequest::CreatePool { max_bytes })?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        let pool = Pool::new(device, number);
        tables.holdings.pools.insert(handle, pool);
        Ok(handle)
    }

    /// Closes the pool to further allocations; existing ones live on.
    pub(crate) fn destroy_pool(&self, handle: u64) -> Result<(), CUresult> {
        let Pool { device, number, .. } = self.pool(handle)?;
        // A device's default pool cannot be destroyed; the server refuses it.
        self.ask(device, MemoryRequest::DestroyPool { pool: number })?;
        let mut tables = self.tables.lock();
        tables.holdings.pools.remove(&handle);
        tables.holdings.current_pools.retain(|_, of| *of != handle);
        Ok(())
    }

    pub(crate) fn pool(&self, handle: u64) -> Result<Pool, CUresult> {
        let known = self.tables.lock().holdings.pools.get(&handle).copied();
        known.ok_or(CUresult::INVALID_VALUE)
    }

    /// Allocates from a pool; `None` is the current one of the stream's device.
    pub(crate) fn allocate_async(
        &self,
        bytes: u64,
        pool: Option<u64>,
        stream: &Stream,
    ) -> Result<u64, CUresult> {
        let context = self.context(stream.context)?;
        if bytes == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.link.is_null() {
            return self.allocate(bytes);
        }
        let handle = pool.unwrap_or_else(|| self.current_pool(context.device));
        let pool = self.pool(handle)?;
        if pool.device != context.device {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = MemoryRequest::AllocateFromPool {
            context: context.local_slot(),
            pool: pool.number,
            bytes,
        };
        let answer = match self.ask(pool.device, request) {
            Err(CUresult::OUT_OF_MEMORY) if self.finish_frees()? => self.ask(pool.device, request),
            answer => answer,
        };
        let [address, ..] = answer?;
        self.note_block(address, bytes, stream.context, BlockKind::Pool(handle));
        Ok(address)
    }

    /// Waits for pending frees; false if there are none.
    fn finish_frees(&self) -> Result<bool, CUresult> {
        let freeing = std::mem::take(&mut self.tables.lock().holdings.freeing);
        let mut has_waited = false;
        for point in freeing {
            has_waited |= !self.link.is_complete(point.stream, point.seq);
            self.link.wait(point.stream, point.seq)?;
        }
        Ok(has_waited)
    }

    /// Frees memory when the stream's earlier work is complete.
    pub(crate) fn free_async(&self, address: u64, stream: &Stream) -> Result<(), CUresult> {
        let kind = self.device_block_at(address)?.kind;
        if !matches!(kind, BlockKind::Plain | BlockKind::Pool(_)) {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.context(stream.context)?.device != device_of_address(address) {
            self.synchronise_stream(stream)?;
            self.link.call(&Request::Free { address })?;
            self.tables.lock().device.remove(address);
            return Ok(());
        }
        // From here on the address is unknown to this process.
        let removed = self.tables.lock().device.remove(address);
        removed.ok_or(CUresult::INVALID_VALUE)?;
        let point = self.submit(stream, Work::Free { address })?;
        let link = &self.link;
        let freeing = &mut self.tables.lock().holdings.freeing;
        freeing.retain(|point| !link.is_complete(point.stream, point.seq));
        freeing.push(point);
        Ok(())
    }

    /// An attribute's value; values of type `int` are in the low half.
    pub(crate) fn pool_attribute(
        &self,
        handle: u64,
        attribute: CUmemPool_attribute,
    ) -> Result<u64, CUresult> {
        use CUmemPool_attribute as A;
        let pool = self.pool(handle)?;
        let state = |index: usize| {
            let request = MemoryRequest::PoolState { pool: pool.number };
            self.ask(pool.device, request).map(|state| state[index])
        };
        match attribute {
            A::REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::REUSE_ALLOW_OPPORTUNISTIC
            | A::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                Ok(pool.reuse[attribute.0 as usize - 1] as u64)
            }
            A::RELEASE_THRESHOLD => Ok(pool.threshold),
            A::RESERVED_MEM_CURRENT => state(0),
            A::RESERVED_MEM_HIGH => state(1),
            A::USED_MEM_CURRENT => state(2),
            A::USED_MEM_HIGH => state(3),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Sets an attribute. A high-water mark can only be reset.
    pub(crate) fn set_pool_attribute(
        &self,
        handle: u64,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> Result<(), CUresult> {
        use CUmemPool_attribute as A;
        let Pool { device, number, .. } = self.pool(handle)?;
        let pool = number;
        let change = |change: &dyn Fn(&mut Pool)| {
            if let Some(pool) = self.tables.lock().holdings.pools.get_mut(&handle) {
                change(pool);
            }
        };
        match attribute {
            A::REUSE_FOLLOW_EVENT_DEPENDENCIES
            | A::REUSE_ALLOW_OPPORTUNISTIC
            | A::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                change(&|pool| pool.reuse[attribute.0 as usize - 1] = value as i32);
                return Ok(());
            }
            A::RELEASE_THRESHOLD => {
                let bytes = value;
                self.ask(device, MemoryRequest::SetPoolThreshold { pool, bytes })?;
                change(&|pool| pool.threshold = value);
            }
            A::RESERVED_MEM_HIGH if value == 0 => {
                self.ask(device, MemoryRequest::ResetPoolReserved { pool })?;
            }
            A::USED_MEM_HIGH if value == 0 => {
                self.ask(device, MemoryRequest::ResetPoolUsed { pool })?;
            }
            _ => return Err(CUresult::INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn trim_pool(&self, handle: u64, keep_bytes: u64) -> Result<(), CUresult> {
        let Pool { device, number, .. } = self.pool(handle)?;
        let request = MemoryRequest::TrimPool {
            pool: number,
            keep_bytes,
        };
        self.ask(device, request).map(|_| ())
    }

    /// Only the pool's own device can access it, and always.
    pub(crate) fn set_pool_access(
        &self,
        handle: u64,
        access: CUmemAccessDesc,
    ) -> Result<(), CUresult> {
        let pool = self.pool(handle)?;
        let device = self.located(access.location)?;
        match access.flags {
            CUmemAccess_flags::READWRITE if device == pool.device => Ok(()),
            // Its own device cannot lose access.
            _ if device == pool.device => Err(CUresult::INVALID_DEVICE),
            CUmemAccess_flags::NONE => Ok(()),
            CUmemAccess_flags::READ | CUmemAccess_flags::READWRITE => Err(CUresult::INVALID_DEVICE),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn pool_access(
        &self,
        handle: u64,
        location: CUmemLocation,
    ) -> Result<CUmemAccess_flags, CUresult> {
        let pool = self.pool(handle)?;
        Ok(if self.located(location)? == pool.device {
            CUmemAccess_flags::READWRITE
        } else {
            CUmemAccess_flags::NONE
        })
    }

    pub(crate) fn note_block(&self, address: u64, bytes: u64, context: u64, kind: BlockKind) {
        let mut tables = self.tables.lock();
        let id = tables.new_handle();
        let block = DeviceBlock {
            context,
            id,
            kind,
            has_sync_memops: false,
        };
        tables.device.insert(address, bytes, block);
    }
}

impl Pool {
    fn new(device: usize, number: u64) -> Self {
        Self {
            device,
            number,
            threshold: 0,
            // All ways of reuse are allowed at first.
            reuse: [1; 3],
        }
    }
}
