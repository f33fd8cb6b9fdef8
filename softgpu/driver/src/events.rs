//! Events: points in streams, with the time at which they were reached.

use abi::types::{CUevent_flags, CUresult};
use softgpu::wire::Command;

use crate::cost::QUERY_HOST_NS;
use crate::driver::Driver;
use crate::tables::{Event, Stream};

/// All flags that an event may have.
const FLAGS: u32 = CUevent_flags::BLOCKING_SYNC.0 | CUevent_flags::DISABLE_TIMING.0;

impl Driver {
    /// A new event; returns its handle. Events for other processes are not supported.
    pub(crate) fn create_event(&self, flags: u32) -> Result<u64, CUresult> {
        let (context, _) = self.current()?;
        if flags & CUevent_flags::INTERPROCESS.0 != 0 {
            return Err(CUresult::NOT_SUPPORTED);
        }
        if flags & !FLAGS != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let mut tables = self.tables.lock();
        let slot = tables.event_slots.take()?;
        let handle = tables.new_handle();
        tables.events.insert(
            handle,
            Event {
                slot,
                context,
                flags,
                last: None,
            },
        );
        Ok(handle)
    }

    pub(crate) fn destroy_event(&self, handle: u64) -> Result<(), CUresult> {
        let mut tables = self.tables.lock();
        let event = tables
            .events
            .remove(&handle)
            .ok_or(CUresult::INVALID_HANDLE)?;
        tables.event_slots.release(event.slot);
        Ok(())
    }

    pub(crate) fn event(&self, handle: u64) -> Result<Event, CUresult> {
        let known = self.tables.lock().events.get(&handle).copied();
        known.ok_or(CUresult::INVALID_HANDLE)
    }

    /// Puts a record on a stream.
    pub(crate) fn record_event(&self, handle: u64, stream: &Stream) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        if event.context != stream.context {
            return Err(CUresult::INVALID_HANDLE);
        }
        let record = {
            let mut tables = self.tables.lock();
            tables.record_last += 1;
            tables.record_last
        };
        let (stream_slot, event_slot) = (stream.slot, event.slot);
        let command = |seq| Command::Record {
            stream: stream_slot,
            seq,
            event: event_slot,
            record,
        };
        let point = self.submit(stream, command)?;
        if let Some(event) = self.tables.lock().events.get_mut(&handle) {
            event.last = Some(point);
        }
        self.link.spend(QUERY_HOST_NS);
        Ok(())
    }

    /// Lets a stream wait for an event's last record; for one that was never recorded there is
    /// nothing to wait for.
    pub(crate) fn wait_event(&self, stream: &Stream, handle: u64) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        if let Some(point) = event.last
            && !self.link.is_complete(point.stream, point.seq)
        {
            let slot = stream.slot;
            let (other, other_seq) = (point.stream, point.seq);
            self.submit(stream, |seq| Command::Wait {
                stream: slot,
                seq,
                other,
                other_seq,
            })?;
        }
        self.link.spend(QUERY_HOST_NS);
        Ok(())
    }

    pub(crate) fn synchronise_event(&self, handle: u64) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        if let Some(point) = event.last {
            self.link.wait(point.stream, point.seq)?;
        }
        self.check_context(event.context)
    }

    pub(crate) fn query_event(&self, handle: u64) -> Result<(), CUresult> {
        self.link.spend_query();
        let event = self.event(handle)?;
        self.check_context(event.context)?;
        self.check_reached(&event)
    }

    /// Device milliseconds between two events.
    pub(crate) fn elapsed_ms(&self, start: u64, end: u64) -> Result<f32, CUresult> {
        let [start, end] = [self.event(start)?, self.event(end)?];
        for event in [&start, &end] {
            let is_timed = event.flags & CUevent_flags::DISABLE_TIMING.0 == 0;
            if !is_timed || event.last.is_none() {
                return Err(CUresult::INVALID_HANDLE);
            }
            self.check_reached(event)?;
        }
        let [start_ns, end_ns] = [start, end].map(|event| self.link.event_ns(event.slot));
        Ok((end_ns as f64 - start_ns as f64) as f32 / 1e6)
    }

    fn check_reached(&self, event: &Event) -> Result<(), CUresult> {
        match event.last {
            Some(point) if !self.link.is_complete(point.stream, point.seq) => {
                Err(CUresult::NOT_READY)
            }
            _ => Ok(()),
        }
    }
}
