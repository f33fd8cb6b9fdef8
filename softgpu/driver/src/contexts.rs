//! Contexts: creation, current context, destruction.

use abi::types::{CUdevice, CUlimit, CUresult};
use softgpu::wire::{Reply, Request, StreamKind};

use crate::driver::Driver;
use crate::link::Link;
use crate::tables::Context;
use crate::thread;

/// API version of contexts, as drivers report it since CUDA 3.2.
pub(crate) const API_VERSION: u32 = 3020;

/// CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_SERVER_NOT_READY: CUresult = CUresult(807);
/// Poll interval of a thread that waits for an MPS server.
const MPS_LOOK_NS: u64 = 5_000_000;
/// Most polls: half a minute. NVIDIA documents no limit; its driver waited throughout an
/// observation of ten seconds with a stopped control daemon.
const MPS_LOOKS_MAX: u32 = 6000;

impl Driver {
    pub(crate) fn check_device(&self, device: CUdevice) -> Result<usize, CUresult> {
        self.gpu(device).map(|_| device.0 as usize)
    }

    pub(crate) fn create_context(&self, device: usize, flags: u32) -> Result<u64, CUresult> {
        let connections = self.connections;
        let create = Request::CreateContext {
            connections,
            sms_max: self.gpus[device].sms(),
        };
        let reply = self.ask_for_context(device, &create)?;
        let slot = match (&self.link, reply) {
            (Link::Live(_), Reply::Context { context }) => context,
            (Link::Null, _) => 0,
            _ => return Err(CUresult::DEVICE_UNAVAILABLE),
        };
        let handle = {
            let mut tables = self.tables.lock();
            let handle = tables.new_handle();
            tables.contexts.insert(
                handle,
                Context {
                    device,
                    slot,
                    flags,
                    legacy: 0,
                    attached: 1,
                    green: None,
                    is_locked: false,
                },
            );
            handle
        };
        let legacy = self.create_stream(handle, 0, 0, StreamKind::Legacy)?;
        if let Some(context) = self.tables.lock().contexts.get_mut(&handle) {
            context.legacy = legacy;
        }
        Ok(handle)
    }

    /// Creates a context; waits for a pending MPS server, as long as it may take to start.
    fn ask_for_context(&self, device: usize, create: &Request) -> Result<Reply, CUresult> {
        for _ in 0..MPS_LOOKS_MAX {
            match self.link.call_on(device, create)? {
                Reply::Later => self.link.sleep(MPS_LOOK_NS),
                reply => return Ok(reply),
            }
        }
        Err(MPS_SERVER_NOT_READY)
    }

    /// Waits for a context's work, then removes the context and everything in it.
    pub(crate) fn destroy_context(&self, handle: u64) -> Result<(), CUresult> {
        let context = self.context(handle)?;
        // Errors of a context do not prevent its destruction.
        let _ = self.synchronise_context(handle);
        self.link.call(&Request::DestroyContext {
            context: context.slot,
        })?;
        self.tables.lock().forget_context(handle);
        Ok(())
    }

    pub(crate) fn destroy_created_context(&self, handle: u64) -> Result<(), CUresult> {
        if self.context(handle)?.green.is_some() {
            return Err(CUresult::INVALID_CONTEXT);
        }
        let is_primary = {
            let tables = self.tables.lock();
            let mut primaries = tables.primaries.iter();
            primaries.any(|primary| primary.context == Some(handle))
        };
        if is_primary {
            return Err(CUresult::INVALID_CONTEXT);
        }
        self.destroy_context(handle)?;
        if thread::current() == Some(handle) {
            thread::pop()?;
        }
        Ok(())
    }

    pub(crate) fn attach_context(&self, handle: u64) -> Result<(), CUresult> {
        let mut tables = self.tables.lock();
        let context = tables.contexts.get_mut(&handle);
        context.ok_or(CUresult::INVALID_CONTEXT)?.attached += 1;
        Ok(())
    }

    /// Decrements the context's use count; the last use destroys the context.
    pub(crate) fn detach_context(&self, handle: u64) -> Result<(), CUresult> {
        let is_last = {
            let mut tables = self.tables.lock();
            let context = tables.contexts.get_mut(&handle);
            let context = context.ok_or(CUresult::INVALID_CONTEXT)?;
            context.attached -= 1;
            context.attached == 0
        };
        if is_last {
            self.destroy_created_context(handle)
        } else {
            Ok(())
        }
    }

    /// Destroys a device's primary context, whatever its retain count; it can be retained again.
    pub(crate) fn reset_primary(&self, device: usize) -> Result<(), CUresult> {
        let primary = std::mem::take(&mut self.tables.lock().primaries[device]);
        self.tables.lock().primaries[device].flags = primary.flags;
        primary
            .context
            .map_or(Ok(()), |handle| self.destroy_context(handle))
    }

    pub(crate) fn context(&self, handle: u64) -> Result<Context, CUresult> {
        let known = self.tables.lock().contexts.get(&handle).copied();
        known.ok_or(CUresult::INVALID_CONTEXT)
    }

    /// The context with the memory and code of the calling thread's working context: for a green
    /// context the primary context, except for the default stream.
    pub(crate) fn current(&self) -> Result<(u64, Context), CUresult> {
        let (handle, context) = self.current_itself()?;
        let Some(green) = context.green else {
            return Ok((handle, context));
        };
        let primary = self
            .context(green.primary)
            .map_err(|_| CUresult::CONTEXT_IS_DESTROYED)?;
        let legacy = context.legacy;
        Ok((green.primary, Context { legacy, ..primary }))
    }

    pub(crate) fn current_itself(&self) -> Result<(u64, Context), CUresult> {
        let handle = thread::current().ok_or(CUresult::INVALID_CONTEXT)?;
        let context = self
            .context(handle)
            .map_err(|_| CUresult::CONTEXT_IS_DESTROYED)?;
        self.link.error(context.slot)?;
        Ok((handle, context))
    }

    pub(crate) fn check_context(&self, handle: u64) -> Result<(), CUresult> {
        self.link.error(self.context(handle)?.slot)
    }

    /// Waits for all work on a context's streams, destroyed streams included.
    pub(crate) fn synchronise_context(&self, handle: u64) -> Result<(), CUresult> {
        self.context(handle)?;
        self.await_lock(handle);
        self.await_streams(|stream| stream.is_of(handle))?;
        self.check_context(handle)
    }

    pub(crate) fn retain_primary(&self, device: usize) -> Result<u64, CUresult> {
        let (existing, flags) = {
            let mut tables = self.tables.lock();
            let primary = &mut tables.primaries[device];
            primary.retained += 1;
            (primary.context, primary.flags)
        };
        if let Some(handle) = existing {
            return Ok(handle);
        }
        match self.create_context(device, flags) {
            Ok(handle) => {
                let mut tables = self.tables.lock();
                let first = *tables.primaries[device].context.get_or_insert(handle);
                drop(tables);
                if first != handle {
                    // Another thread has created it first.
                    self.destroy_context(handle)?;
                }
                Ok(first)
            }
            Err(error) => {
                self.tables.lock().primaries[device].retained -= 1;
                Err(error)
            }
        }
    }

    /// Releases the primary context; the last release destroys it.
    pub(crate) fn release_primary(&self, device: usize) -> Result<(), CUresult> {
        let last = {
            let mut tables = self.tables.lock();
            let primary = &mut tables.primaries[device];
            primary.retained = primary
                .retained
                .checked_sub(1)
                .ok_or(CUresult::INVALID_CONTEXT)?;
            if primary.retained == 0 {
                primary.context.take()
            } else {
                None
            }
        };
        last.map_or(Ok(()), |handle| self.destroy_context(handle))
    }
}

/// Limits as a V100's driver reports them, as far as they apply without device code.
pub(crate) fn limit(limit: CUlimit) -> Result<usize, CUresult> {
    match limit {
        CUlimit::STACK_SIZE => Ok(1024),
        CUlimit::PRINTF_FIFO_SIZE => Ok(7_340_032),
        CUlimit::MALLOC_HEAP_SIZE => Ok(8 << 20),
        _ => Err(CUresult::UNSUPPORTED_LIMIT),
    }
}
