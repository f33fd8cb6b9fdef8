//! Streams: made, found, waited for.

use abi::types::{CUresult, CUstream, CUstream_flags};
use softgpu::wire::{Command, PRIORITY_GREATEST, PRIORITY_LEAST, StreamKind};

use crate::driver::Driver;
use crate::tables::Stream;
use crate::thread;

/// What stream 0 means: it depends on the form of the entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// The context's legacy stream.
    Legacy,
    /// The calling thread's stream (`_ptsz`, `_ptds`).
    PerThread,
}

impl Driver {
    /// A new stream of a context; returns its handle.
    pub(crate) fn create_stream(
        &self,
        context: u64,
        flags: u32,
        priority: i32,
        kind: StreamKind,
    ) -> Result<u64, CUresult> {
        let context_slot = self.context(context)?.slot;
        let slot = self.tables.lock().slots.take(&self.link)?;
        let priority = priority.clamp(PRIORITY_GREATEST, PRIORITY_LEAST);
        self.put(&Command::CreateStream {
            stream: slot,
            context: context_slot,
            priority,
            kind,
        })?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.streams.insert(
            handle,
            Stream {
                slot,
                context,
                flags,
                priority,
                kind,
            },
        );
        Ok(handle)
    }

    /// A stream that the application asks for.
    pub(crate) fn create_asked_stream(&self, flags: u32, priority: i32) -> Result<u64, CUresult> {
        let kind = match CUstream_flags(flags) {
            CUstream_flags::DEFAULT => StreamKind::Blocking,
            CUstream_flags::NON_BLOCKING => StreamKind::NonBlocking,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        let (context, _) = self.current()?;
        self.create_stream(context, flags, priority, kind)
    }

    /// No more commands; what was put still executes.
    pub(crate) fn destroy_stream(&self, handle: u64) -> Result<(), CUresult> {
        let stream = {
            let mut tables = self.tables.lock();
            let known = tables.streams.get(&handle).copied();
            let stream = known.ok_or(CUresult::INVALID_HANDLE)?;
            if stream.kind == StreamKind::Legacy {
                return Err(CUresult::INVALID_HANDLE);
            }
            tables.streams.remove(&handle);
            stream
        };
        self.put(&Command::DestroyStream {
            stream: stream.slot,
        })?;
        self.tables.lock().slots.release(stream.slot);
        Ok(())
    }

    /// The stream that an application means.
    pub(crate) fn stream(&self, handle: CUstream, flavour: Flavour) -> Result<Stream, CUresult> {
        let handle = match (handle.0.addr() as u64, flavour) {
            (0, Flavour::Legacy) | (1, _) => self.current()?.1.legacy,
            (0, Flavour::PerThread) | (2, _) => {
                let (context, _) = self.current()?;
                let create = || self.create_stream(context, 0, 0, StreamKind::Blocking);
                thread::default_stream(context, create)?
            }
            (handle, _) => handle,
        };
        let known = self.tables.lock().streams.get(&handle).copied();
        let stream = known.ok_or(CUresult::INVALID_HANDLE)?;
        self.check_context(stream.context)?;
        Ok(stream)
    }

    /// Waits for all that was put on a stream.
    pub(crate) fn synchronise_stream(&self, stream: &Stream) -> Result<(), CUresult> {
        let seq = self.tables.lock().slots.submitted(stream.slot);
        self.link.wait(stream.slot, seq)?;
        self.check_context(stream.context)
    }

    /// Whether all that was put on a stream is complete.
    pub(crate) fn query_stream(&self, stream: &Stream) -> Result<(), CUresult> {
        self.link.spend_query();
        let seq = self.tables.lock().slots.submitted(stream.slot);
        if !self.link.is_complete(stream.slot, seq) {
            return Err(CUresult::NOT_READY);
        }
        self.check_context(stream.context)
    }
}
