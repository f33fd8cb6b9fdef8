//! Contexts: made, current, destroyed.

use abi::types::{CUdevice, CUlimit, CUresult};
use softgpu::wire::{Reply, Request, StreamKind};

use crate::driver::Driver;
use crate::link::Link;
use crate::tables::Context;
use crate::thread;

/// API version of contexts, as drivers answer it since CUDA 3.2.
pub(crate) const API_VERSION: u32 = 3020;

impl Driver {
    /// The ordinal must be that of the one device.
    pub(crate) fn check_device(&self, device: CUdevice) -> Result<(), CUresult> {
        if device.0 == 0 {
            Ok(())
        } else {
            Err(CUresult::INVALID_DEVICE)
        }
    }

    /// A new context.
    pub(crate) fn create_context(&self, flags: u32) -> Result<u64, CUresult> {
        let slot = match (&self.link, self.link.call(&Request::CreateContext)?) {
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
                    slot,
                    flags,
                    legacy: 0,
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

    /// Waits for a context's work, then forgets the context and all that is in it.
    pub(crate) fn destroy_context(&self, handle: u64) -> Result<(), CUresult> {
        let context = self.context(handle)?;
        // A context with an error is destroyed like any other.
        let _ = self.synchronise_context(handle);
        self.link.call(&Request::DestroyContext {
            context: context.slot,
        })?;
        self.tables.lock().forget_context(handle);
        Ok(())
    }

    /// Destroys a context that the application made.
    pub(crate) fn destroy_created_context(&self, handle: u64) -> Result<(), CUresult> {
        if self.tables.lock().primary.context == Some(handle) {
            return Err(CUresult::INVALID_CONTEXT);
        }
        self.destroy_context(handle)?;
        if thread::current() == Some(handle) {
            thread::pop()?;
        }
        Ok(())
    }

    /// What a handle means.
    pub(crate) fn context(&self, handle: u64) -> Result<Context, CUresult> {
        let known = self.tables.lock().contexts.get(&handle).copied();
        known.ok_or(CUresult::INVALID_CONTEXT)
    }

    /// The calling thread's context, if it works.
    pub(crate) fn current(&self) -> Result<(u64, Context), CUresult> {
        let handle = thread::current().ok_or(CUresult::INVALID_CONTEXT)?;
        let context = self
            .context(handle)
            .map_err(|_| CUresult::CONTEXT_IS_DESTROYED)?;
        self.link.error(context.slot)?;
        Ok((handle, context))
    }

    /// Says an error of a context that was noticed meanwhile.
    pub(crate) fn check_context(&self, handle: u64) -> Result<(), CUresult> {
        self.link.error(self.context(handle)?.slot)
    }

    /// Waits for all that was put on a context's streams.
    pub(crate) fn synchronise_context(&self, handle: u64) -> Result<(), CUresult> {
        self.context(handle)?;
        let points: Vec<(u32, u64)> = {
            let tables = self.tables.lock();
            let of_context = tables
                .streams
                .values()
                .filter(|stream| stream.context == handle);
            of_context
                .map(|stream| (stream.slot, tables.slots.submitted(stream.slot)))
                .collect()
        };
        for (slot, seq) in points {
            self.link.wait(slot, seq)?;
        }
        self.check_context(handle)
    }

    /// The device's primary context, made by the first to ask.
    pub(crate) fn retain_primary(&self) -> Result<u64, CUresult> {
        let existing = {
            let mut tables = self.tables.lock();
            tables.primary.retained += 1;
            tables.primary.context
        };
        if let Some(handle) = existing {
            return Ok(handle);
        }
        let flags = self.tables.lock().primary.flags;
        match self.create_context(flags) {
            Ok(handle) => {
                let mut tables = self.tables.lock();
                let first = *tables.primary.context.get_or_insert(handle);
                drop(tables);
                if first != handle {
                    // Another thread was first.
                    self.destroy_context(handle)?;
                }
                Ok(first)
            }
            Err(error) => {
                self.tables.lock().primary.retained -= 1;
                Err(error)
            }
        }
    }

    /// The last to release destroys it.
    pub(crate) fn release_primary(&self) -> Result<(), CUresult> {
        let last = {
            let mut tables = self.tables.lock();
            let primary = &mut tables.primary;
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

/// Limits as a V100's driver answers them, where they mean anything without device code.
pub(crate) fn limit(limit: CUlimit) -> Result<usize, CUresult> {
    match limit {
        CUlimit::STACK_SIZE => Ok(1024),
        CUlimit::PRINTF_FIFO_SIZE => Ok(7_340_032),
        CUlimit::MALLOC_HEAP_SIZE => Ok(8 << 20),
        _ => Err(CUresult::UNSUPPORTED_LIMIT),
    }
}
