//! Physical memory and address space apart, and memory shared between processes. Memory can be
//! passed to another process of the same server as a file descriptor from
//! `cuMemExportToShareableHandle`, or as a handle from `cuIpcGetMemHandle`. Either has a token
//! known to the server; the memory itself never leaves the server. Unlike with CUDA, a token does
//! not keep memory alive: a descriptor is worthless once the exporter has released the memory.
//! Address space belongs to a device here, because each server has its own: that of the current
//! context, or the first. Memory of another device cannot be mapped there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::IntoRawFd;

use abi::types::{
    CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUresult,
};
use rustix::fs::{MemfdFlags, memfd_create};
use softgpu::wire::{GRANULARITY_BYTES, MemoryRequest};

use crate::driver::Driver;
use crate::holdings::{Physical, Wishes};
use crate::link::device_of_address;
use crate::tables::BlockKind;
use crate::thread;

/// Mandatory flag of `cuIpcOpenMemHandle`.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;
/// Head of a descriptor's or handle's contents.
const MAGIC: [u8; 8] = *b"softgpum";
/// Magic, token, size.
const TOKEN_BYTES: usize = 32;

impl Driver {
    /// Checks the requested properties of physical memory; returns its device.
    pub(crate) fn check_properties(
        &self,
        properties: &CUmemAllocationProp,
    ) -> Result<usize, CUresult> {
        if properties.kind != CUmemAllocationType::PINNED {
            return Err(CUresult::INVALID_VALUE);
        }
        let device = self.located(properties.location)?;
        match CUmemAllocationHandleType(properties.requested_handle_types) {
            CUmemAllocationHandleType::NONE | CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => {
                Ok(device)
            }
            _ => Err(CUresult::NOT_SUPPORTED),
        }
    }

    /// Allocates physical memory; needs no context.
    pub(crate) fn create_physical(
        &self,
        bytes: u64,
        properties: &CUmemAllocationProp,
        flags: u64,
    ) -> Result<u64, CUresult> {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let device = self.check_properties(properties)?;
        let [number, ..] = self.ask(device, MemoryRequest::Create { bytes })?;
        let wishes = Wishes {
            handle_types: properties.requested_handle_types,
            flags: properties.alloc_flags,
        };
        Ok(self.note_physical(device, number, bytes, wishes))
    }

    fn note_physical(&self, device: usize, number: u64, bytes: u64, wishes: Wishes) -> u64 {
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        let physical = Physical {
            device,
            number,
            bytes,
            wishes,
            names: 1,
        };
        tables.holdings.handles.insert(handle, physical);
        handle
    }

    fn physical(&self, handle: u64) -> Result<Physical, CUresult> {
        let known = self.tables.lock().holdings.handles.get(&handle).copied();
        known.ok_or(CUresult::INVALID_VALUE)
    }

    pub(crate) fn release_physical(&self, handle: u64) -> Result<(), CUresult> {
        let Physical { device, number, .. } = self.physical(handle)?;
        self.ask(device, MemoryRequest::Release { handle: number })?;
        let handles = &mut self.tables.lock().holdings.handles;
        if let Some(physical) = handles.get_mut(&handle) {
            physical.names -= 1;
            if physical.names == 0 {
                handles.remove(&handle);
            }
        }
        Ok(())
    }

    pub(crate) fn retain_physical(&self, address: u64) -> Result<u64, CUresult> {
        let BlockKind::Mapping {
            handle, physical, ..
        } = self.block_around(address)?.kind
        else {
            return Err(CUresult::INVALID_VALUE);
        };
        self.ask(physical.device, MemoryRequest::Retain { address })?;
        let handles = &mut self.tables.lock().holdings.handles;
        let known = handles.entry(handle).or_insert(Physical {
            names: 0,
            ..physical
        });
        known.names += 1;
        Ok(handle)
    }

    pub(crate) fn physical_properties(&self, handle: u64) -> Result<CUmemAllocationProp, CUresult> {
        let Physical { device, wishes, .. } = self.physical(handle)?;
        Ok(CUmemAllocationProp {
            kind: CUmemAllocationType::PINNED,
            requested_handle_types: wishes.handle_types,
            location: CUmemLocation {
                kind: CUmemLocationType::DEVICE,
                id: device as i32,
            },
            win32_handle_meta_data: std::ptr::null_mut(),
            alloc_flags: wishes.flags,
        })
    }

    pub(crate) fn reserve(&self, bytes: u64, align: u64, wish: u64) -> Result<u64, CUresult> {
        let align = if align == 0 { GRANULARITY_BYTES } else { align };
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY_BYTES) || !align.is_power_of_two() {
            return Err(CUresult::INVALID_VALUE);
        }
        let align = align.max(GRANULARITY_BYTES);
        let context = thread::current().and_then(|handle| self.context(handle).ok());
        let device = context.map_or(0, |context| context.device);
        let [address, ..] = self.ask(device, MemoryRequest::Reserve { bytes, align, wish })?;
        let mut tables = self.tables.lock();
        tables.holdings.reserved.insert(address, bytes, ());
        Ok(address)
    }

    /// Frees a whole reservation, in which nothing may be mapped.
    pub(crate) fn unreserve(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        self.check_reserved(address, bytes)?;
        let device = device_of_address(address);
        self.ask(device, MemoryRequest::Unreserve { address, bytes })?;
        self.tables.lock().holdings.reserved.remove(address);
        Ok(())
    }

    fn check_reserved(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let tables = self.tables.lock();
        let inside = tables.holdings.reserved.holding(address, bytes);
        inside.map(|_| ()).ok_or(CUresult::INVALID_VALUE)
    }

    /// Maps memory, without access rights yet.
    pub(crate) fn map(
        &self,
        address: u64,
        bytes: u64,
        offset: u64,
        handle: u64,
        flags: u64,
    ) -> Result<(), CUresult> {
        let physical = self.physical(handle)?;
        self.check_reserved(address, bytes)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if physical.device != device_of_address(address) {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let request = MemoryRequest::Map {
            address,
            bytes,
            handle: physical.number,
            offset,
        };
        self.ask(physical.device, request)?;
        let kind = BlockKind::Mapping {
            handle,
            physical,
            access: CUmemAccess_flags::NONE,
        };
        self.note_block(address, bytes, 0, kind);
        Ok(())
    }

    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        self.check_reserved(address, bytes)?;
        // Work that still uses the memory may finish, as with CUDA's free.
        self.synchronise_device_of(address)?;
        let device = device_of_address(address);
        self.ask(device, MemoryRequest::Unmap { address, bytes })?;
        let mut tables = self.tables.lock();
        let mut next = address;
        while next < address + bytes {
            let Some((length, _)) = tables.device.remove(next) else {
                break;
            };
            next += length;
        }
        Ok(())
    }

    fn synchronise_device_of(&self, address: u64) -> Result<(), CUresult> {
        let device = device_of_address(address);
        let contexts: Vec<u64> = {
            let tables = self.tables.lock();
            let all = tables.contexts.iter();
            all.filter(|(_, context)| context.device == device)
                .map(|(&handle, _)| handle)
                .collect()
        };
        for context in contexts {
            self.synchronise_context(context)?;
        }
        Ok(())
    }

    pub(crate) fn set_access(
        &self,
        address: u64,
        bytes: u64,
        access: CUmemAccessDesc,
    ) -> Result<(), CUresult> {
        self.check_reserved(address, bytes)?;
        let device = device_of_address(address);
        if self.located(access.location)? != device {
            return Err(CUresult::INVALID_DEVICE);
        }
        let request = MemoryRequest::SetAccess {
            address,
            bytes,
            access: access.flags.0.into(),
        };
        self.ask(device, request)?;
        let mut tables = self.tables.lock();
        for block in tables.device.within_mut(address, bytes) {
            if let BlockKind::Mapping { access: old, .. } = &mut block.kind {
                *old = access.flags;
            }
        }
        Ok(())
    }

    pub(crate) fn access(
        &self,
        location: CUmemLocation,
        address: u64,
    ) -> Result<CUmemAccess_flags, CUresult> {
        let device = self.located(location)?;
        match self.block_around(address)?.kind {
            BlockKind::Mapping { access, .. } if device == device_of_address(address) => Ok(access),
            BlockKind::Mapping { .. } => Ok(CUmemAccess_flags::NONE),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    pub(crate) fn export_physical(
        &self,
        handle: u64,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Result<i32, CUresult> {
        let physical = self.physical(handle)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR {
            return Err(CUresult::NOT_SUPPORTED);
        }
        if physical.wishes.handle_types & kind.0 == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let request = MemoryRequest::ExportHandle {
            handle: physical.number,
        };
        let token = Token::of(self.ask(physical.device, request)?);
        let failed = |_| CUresult::OPERATING_SYSTEM;
        let fd = memfd_create(c"softgpu-memory", MemfdFlags::CLOEXEC)
            .map_err(|_| CUresult::OPERATING_SYSTEM)?;
        let mut file = File::from(fd);
        file.write_all(&token.encode(MAGIC)).map_err(failed)?;
        Ok(file.into_raw_fd())
    }

    pub(crate) fn import_physical(
        &self,
        descriptor: i32,
        kind: CUmemAllocationHandleType,
    ) -> Result<u64, CUresult> {
        if kind != CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let mut bytes = [0; TOKEN_BYTES];
        let token = File::open(format!("/proc/self/fd/{descriptor}"))
            .and_then(|mut file| file.read_exact(&mut bytes))
            .ok()
            .and_then(|()| Token::decode(&bytes, MAGIC))
            .ok_or(CUresult::INVALID_VALUE)?;
        let (low, high) = (token.low, token.high);
        let (device, [number, bytes, ..]) =
            self.ask_each(MemoryRequest::ImportHandle { low, high })?;
        let wishes = Wishes {
            handle_types: kind.0,
            flags: abi::types::CUmemAllocFlags {
                compression_type: 0,
                gpu_direct_rdma_capable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        Ok(self.note_physical(device, number, bytes, wishes))
    }

    pub(crate) fn ipc_handle(&self, address: u64) -> Result<CUipcMemHandle, CUresult> {
        self.current()?;
        let (start, _) = self.block_with_start(address)?;
        let request = MemoryRequest::ExportAddress { address: start };
        let token = Token::of(self.ask(device_of_address(start), request)?);
        let mut reserved = [0; 64];
        for (to, byte) in reserved.iter_mut().zip(token.encode(MAGIC)) {
            *to = byte as std::ffi::c_char;
        }
        Ok(CUipcMemHandle { reserved })
    }

    pub(crate) fn open_ipc(&self, handle: &CUipcMemHandle, flags: u32) -> Result<u64, CUresult> {
        let (context, found) = self.current()?;
        if flags != LAZY_ENABLE_PEER_ACCESS {
            return Err(CUresult::INVALID_VALUE);
        }
        let bytes: [u8; TOKEN_BYTES] = std::array::from_fn(|i| handle.reserved[i] as u8);
        let token = Token::decode(&bytes, MAGIC).ok_or(CUresult::INVALID_HANDLE)?;
        if let Some((address, count)) = self.tables.lock().holdings.opened.get_mut(&token.key()) {
            *count += 1;
            return Ok(*address);
        }
        let answer = self.ask(found.device, token.open(found.local_slot()));
        let [address, bytes, ..] = answer.map_err(|error| match error {
            CUresult::INVALID_VALUE => CUresult::INVALID_HANDLE,
            other => other,
        })?;
        let kind = BlockKind::Shared { token: token.key() };
        self.note_block(address, bytes, context, kind);
        let mut tables = self.tables.lock();
        tables.holdings.opened.insert(token.key(), (address, 1));
        Ok(address)
    }

    pub(crate) fn close_ipc(&self, address: u64) -> Result<(), CUresult> {
        let block = self.device_block_at(address)?;
        let BlockKind::Shared { token } = block.kind else {
            return Err(CUresult::INVALID_VALUE);
        };
        {
            let mut tables = self.tables.lock();
            let opened = &mut tables.holdings.opened;
            if let Some((_, count @ 2..)) = opened.get_mut(&token) {
                *count -= 1;
                return Ok(());
            }
            opened.remove(&token);
        }
        self.synchronise_context(block.context)?;
        let device = device_of_address(address);
        self.ask(device, MemoryRequest::CloseShared { address })?;
        self.tables.lock().device.remove(address);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    low: u64,
    high: u64,
    bytes: u64,
}

impl Token {
    pub(crate) fn of([low, high, bytes, _]: [u64; 4]) -> Self {
        Self { low, high, bytes }
    }

    pub(crate) fn open(self, context: u64) -> MemoryRequest {
        let Self { low, high, .. } = self;
        MemoryRequest::OpenShared { context, low, high }
    }

    fn key(self) -> u128 {
        u128::from(self.low) | u128::from(self.high) << 64
    }

    pub(crate) fn encode(self, magic: [u8; 8]) -> [u8; TOKEN_BYTES] {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..8].copy_from_slice(&magic);
        for (to, word) in bytes[8..]
            .chunks_exact_mut(8)
            .zip([self.low, self.high, self.bytes])
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; TOKEN_BYTES], magic: [u8; 8]) -> Option<Self> {
        let (head, words) = bytes.split_first_chunk()?;
        let mut words = words.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        (*head == magic).then_some(())?;
        Some(Self {
            low: words.next()?,
            high: words.next()?,
            bytes: words.next()?,
        })
    }
}
