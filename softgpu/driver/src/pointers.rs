//! Queries about addresses.

use abi::types::{CUdevice, CUmemorytype, CUpointer_attribute, CUresult};

use crate::driver::Driver;
use crate::memory::{Allocation, Place};
use crate::raw::Bytes;
use crate::tables::BlockKind;

const VALUE_BYTES: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Value {
    bytes: [u8; VALUE_BYTES],
    length: usize,
}

impl Value {
    fn of<const N: usize>(value: [u8; N]) -> Self {
        let mut bytes = [0; VALUE_BYTES];
        bytes[..N].copy_from_slice(&value);
        Self { bytes, length: N }
    }

    fn word(value: u64) -> Self {
        Self::of(value.to_ne_bytes())
    }

    fn half(value: u32) -> Self {
        Self::of(value.to_ne_bytes())
    }

    fn flag(is_so: bool) -> Self {
        Self::of([is_so.into()])
    }

    fn write(self, to: Bytes) -> Result<(), CUresult> {
        to.with_mut(self.length, |to| {
            to.copy_from_slice(&self.bytes[..self.length]);
        })
    }
}

impl Driver {
    pub(crate) fn write_pointer_attribute(
        &self,
        to: Bytes,
        attribute: CUpointer_attribute,
        address: u64,
    ) -> Result<(), CUresult> {
        if to.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let found = self.allocation(address)?;
        self.pointer_attribute(attribute, address, &found)?
            .write(to)
    }

    /// `cuPointerGetAttributes` for one attribute: those of an unknown address are null.
    pub(crate) fn write_pointer_attribute_or_none(
        &self,
        to: Bytes,
        attribute: CUpointer_attribute,
        address: u64,
    ) -> Result<(), CUresult> {
        let known = self
            .allocation(address)
            .and_then(|found| self.pointer_attribute(attribute, address, &found));
        known.or_else(|_| absent(attribute))?.write(to)
    }

    fn pointer_attribute(
        &self,
        attribute: CUpointer_attribute,
        address: u64,
        found: &Allocation,
    ) -> Result<Value, CUresult> {
        use CUpointer_attribute as A;
        let is_host = matches!(found.place, Place::Pinned | Place::Pageable);
        let is_registered = found.place == Place::Pageable;
        let is_managed = found.place == Place::Managed;
        let kind = found.block.map(|block| block.kind);
        let is_plain = kind == Some(BlockKind::Plain);
        let mapping = match kind {
            Some(BlockKind::Mapping { physical, .. }) => Some(physical),
            _ => None,
        };
        Ok(match attribute {
            A::CONTEXT => Value::word(found.context),
            A::MEMORY_TYPE if is_host => Value::half(CUmemorytype::HOST.0),
            A::MEMORY_TYPE => Value::half(CUmemorytype::DEVICE.0),
            // The device cannot access registered memory, see `memory`.
            A::DEVICE_POINTER if !is_registered => Value::word(address),
            A::HOST_POINTER if is_host || is_managed => Value::word(address),
            A::BUFFER_ID => Value::word(found.id),
            A::DEVICE_ORDINAL => Value::half(found.device as u32),
            A::IS_MANAGED => Value::flag(is_managed),
            A::SYNC_MEMOPS => Value::flag(found.block.is_some_and(|block| block.has_sync_memops)),
            A::IS_LEGACY_CUDA_IPC_CAPABLE => Value::flag(is_plain),
            A::IS_GPU_DIRECT_RDMA_CAPABLE | A::IS_HW_DECOMPRESS_CAPABLE => Value::flag(false),
            A::MAPPED => Value::flag(true),
            A::RANGE_START_ADDR => Value::word(found.start),
            A::RANGE_SIZE => Value::word(found.bytes),
            A::ALLOWED_HANDLE_TYPES => {
                let types = mapping.map_or(0, |physical| physical.wishes.handle_types);
                Value::word(types.into())
            }
            A::ACCESS_FLAGS => Value::half(match kind {
                Some(BlockKind::Mapping { access, .. }) => access.0,
                _ => abi::types::CUmemAccess_flags::READWRITE.0,
            }),
            A::MEMPOOL_HANDLE => Value::word(match kind {
                Some(BlockKind::Pool(handle)) => handle,
                _ => 0,
            }),
            A::MAPPING_SIZE if mapping.is_some() => Value::word(found.bytes),
            A::MAPPING_BASE_ADDR if mapping.is_some() => Value::word(found.start),
            A::MEMORY_BLOCK_ID => Value::word(match kind {
                Some(BlockKind::Mapping { handle, .. }) => handle,
                _ => found.id,
            }),
            _ => return Err(CUresult::INVALID_VALUE),
        })
    }

    /// `cuPointerSetAttribute`: only one can be set.
    pub(crate) fn set_pointer_attribute(
        &self,
        value: Bytes,
        attribute: CUpointer_attribute,
        address: u64,
    ) -> Result<(), CUresult> {
        if attribute != CUpointer_attribute::SYNC_MEMOPS {
            return Err(CUresult::INVALID_VALUE);
        }
        let is_set = value.with(1, |byte| byte[0] != 0)?;
        let mut tables = self.tables.lock();
        // Only memory of the device has the attribute.
        let block = tables.device.within_mut(address, 1).next();
        block.ok_or(CUresult::INVALID_VALUE)?.has_sync_memops = is_set;
        Ok(())
    }
}

fn absent(attribute: CUpointer_attribute) -> Result<Value, CUresult> {
    use CUpointer_attribute as A;
    Ok(match attribute {
        A::CONTEXT
        | A::DEVICE_POINTER
        | A::HOST_POINTER
        | A::BUFFER_ID
        | A::RANGE_START_ADDR
        | A::RANGE_SIZE
        | A::ALLOWED_HANDLE_TYPES
        | A::MEMPOOL_HANDLE
        | A::MAPPING_SIZE
        | A::MAPPING_BASE_ADDR
        | A::MEMORY_BLOCK_ID => Value::word(0),
        A::MEMORY_TYPE | A::ACCESS_FLAGS => Value::half(0),
        A::DEVICE_ORDINAL => Value::half(CUdevice::INVALID.0 as u32),
        A::IS_MANAGED
        | A::SYNC_MEMOPS
        | A::IS_LEGACY_CUDA_IPC_CAPABLE
        | A::MAPPED
        | A::IS_GPU_DIRECT_RDMA_CAPABLE
        | A::IS_HW_DECOMPRESS_CAPABLE => Value::flag(false),
        _ => return Err(CUresult::INVALID_VALUE),
    })
}
