//! Streams: creation, lookup, waiting.

use abi::types::{CUresult, CUstream, CUstream_flags};
use softgpu::wire::{Command, PRIORITY_GREATEST, PRIORITY_LEAST, StreamKind};

use crate::driver::Driver;
use crate::tables::{Context, Green, HANDLE_STEP, Stream};
use crate::thread;

/// Streams that can be waited for together without allocation.
const STREAMS_USUAL: usize = 64;

/// The meaning of stream 0, which depends on the form of the entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    Legacy,
    /// The calling thread's stream (`_ptsz`, `_ptds`).
    PerThread,
}

impl Driver {
    pub(crate) fn create_stream(
        &self,
        context: u64,
        flags: u32,
        priority: i32,
        kind: StreamKind,
    ) -> Result<u64, CUresult> {
        let Context {
            device,
            slot: context_slot,
            green,
            ..
        } = self.context(context)?;
        let (context, green) = match green {
            Some(Green { primary, .. }) => (primary, Some(context)),
            None => (context, None),
        };
        self.await_lock(context);
        let slot = self.tables.lock().slots.take(device, &self.link)?;
        let priority = priority.clamp(PRIORITY_GREATEST, PRIORITY_LEAST);
        let create = Command::CreateStream {
            stream: slot,
            context: context_slot,
            priority,
            kind,
        };
        self.put(slot, &create)?;
        let mut tables = self.tables.lock();
        let handle = tables.new_handle();
        tables.streams.insert(
            handle,
            Stream {
                slot,
                context,
                green,
                flags,
                priority,
                kind,
                id: handle / HANDLE_STEP,
            },
        );
        Ok(handle)
    }

    /// Sets a stream's priority, for later launches.
    pub(crate) fn set_stream_priority(
        &self,
        stream: &Stream,
        priority: i32,
    ) -> Result<(), CUresult> {
        if !(PRIORITY_GREATEST..=PRIORITY_LEAST).contains(&priority) {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut tables = self.tables.lock();
        let known = tables
            .streams
            .values_mut()
            .find(|known| known.slot == stream.slot);
        known.ok_or(CUresult::INVALID_HANDLE)?.priority = priority;
        Ok(())
    }

    pub(crate) fn create_asked_stream(&self, flags: u32, priority: i32) -> Result<u64, CUresult> {
        let kind = match CUstream_flags(flags) {
            CUstream_flags::DEFAULT => StreamKind::Blocking,
            CUstream_flags::NON_BLOCKING => StreamKind::NonBlocking,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        let (context, _) = self.current_itself()?;
        self.create_stream(context, flags, priority, kind)
    }

    /// Closes the stream to further commands; earlier ones still execute.
    pub(crate) fn destroy_stream(&'static self, handle: u64) -> Result<(), CUresult> {
        let mut ended = Default::default();
        let stream = {
            let mut tables = self.tables.lock();
            let known = tables.streams.get(&handle).copied();
            let stream = known.ok_or(CUresult::INVALID_HANDLE)?;
            if stream.kind == StreamKind::Legacy {
                return Err(CUresult::INVALID_HANDLE);
            }
            tables.remove_stream(handle, &self.link);
            if let Some(graph) = tables.captures.handle_stream_destroyed(stream.slot) {
                tables.graphs.remove(graph, &mut ended);
            }
            stream
        };
        let slot = stream.slot;
        self.await_lock(stream.context);
        self.put(slot, &Command::DestroyStream { stream: slot })?;
        self.tables.lock().slots.release(stream.slot);
        self.handle_ended(ended)
    }

    pub(crate) fn stream(&self, handle: CUstream, flavour: Flavour) -> Result<Stream, CUresult> {
        let handle = match (handle.0.addr() as u64, flavour) {
            (0, Flavour::Legacy) | (1, _) => self.current()?.1.legacy,
            (0, Flavour::PerThread) | (2, _) => {
                let (context, _) = self.current_itself()?;
                let create = || self.create_stream(context, 0, 0, StreamKind::Blocking);
                thread::default_stream(context, create)?
            }
            (handle, _) => handle,
        };
        let known = self.tables.lock().streams.get(&handle).copied();
        let stream = known.ok_or(CUresult::INVALID_HANDLE)?;
        if stream
            .green
            .is_some_and(|green| self.context(green).is_err())
        {
            return Err(CUresult::STREAM_DETACHED);
        }
        self.check_context(stream.context)?;
        Ok(stream)
    }

    /// Waits for all work on a stream, and on those that its completion covers.
    pub(crate) fn synchronise_stream(&self, stream: &Stream) -> Result<(), CUresult> {
        self.await_lock(stream.context);
        self.check_submit(stream)?;
        self.await_streams(|other| other.is_answered_by(stream))?;
        self.check_context(stream.context)
    }

    pub(crate) fn await_streams(&self, is_asked: impl Fn(&Stream) -> bool) -> Result<(), CUresult> {
        // For few streams this must not allocate: perhaps no thread can use `malloc` any more.
        let mut first = [None; STREAMS_USUAL];
        let mut further = Vec::new();
        for (index, last) in self.tables.lock().last_commands(is_asked).enumerate() {
            match first.get_mut(index) {
                Some(place) => *place = Some(last),
                None => further.push(last),
            }
        }
        for last in first.into_iter().flatten().chain(further) {
            self.link.wait(last.stream, last.seq)?;
        }
        Ok(())
    }

    /// Whether all work on a stream, and on those that its completion covers, is complete.
    pub(crate) fn query_stream(&self, stream: &Stream) -> Result<(), CUresult> {
        self.link.spend_query();
        self.spend_event_call(stream.context)?;
        self.await_lock(stream.context);
        self.check_submit(stream)?;
        let is_complete = {
            let tables = self.tables.lock();
            let mut asked = tables.last_commands(|other| other.is_answered_by(stream));
            asked.all(|last| self.link.is_complete(last.stream, last.seq))
        };
        if !is_complete {
            return Err(CUresult::NOT_READY);
        }
        self.check_context(stream.context)
    }
}
