//! Events: points in streams, with the time at which they were reached.

use abi::types::{CUevent_flags, CUresult};
use softgpu::wire::Work;

use crate::cost::QUERY_HOST_NS;
use crate::driver::Driver;
use crate::shared_events::Words;
use crate::tables::{Context, Event, Point, Stream};

const FLAGS: u32 = CUevent_flags::BLOCKING_SYNC.0
    | CUevent_flags::DISABLE_TIMING.0
    | CUevent_flags::INTERPROCESS.0;

impl Driver {
    pub(crate) fn create_event(&self, flags: u32) -> Result<u64, CUresult> {
        self.current()?;
        if flags & !FLAGS != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let is_shared = flags & CUevent_flags::INTERPROCESS.0 != 0;
        let words = is_shared.then(|| self.new_words(flags)).transpose()?;
        self.add_event(flags, words)
    }

    pub(crate) fn add_event(&self, flags: u32, shared: Option<Words>) -> Result<u64, CUresult> {
        let (context, Context { device, .. }) = self.current()?;
        let mut tables = self.tables.lock();
        let slot = tables.event_slots.take(device)?;
        let handle = tables.new_handle();
        tables.events.insert(
            handle,
            Event {
                slot,
                context,
                flags,
                last: None,
                shared,
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
        tables.captures.handle_event_destroyed(handle);
        drop(tables);
        if let Some(words) = event.shared {
            self.end_words(event.context, words);
        }
        Ok(())
    }

    pub(crate) fn event(&self, handle: u64) -> Result<Event, CUresult> {
        let known = self.tables.lock().events.get(&handle).copied();
        known.ok_or(CUresult::INVALID_HANDLE)
    }

    /// Puts a record on a stream, or into its capture: an external record is a node there; another
    /// one only sets the event's position.
    pub(crate) fn record_event(
        &self,
        handle: u64,
        stream: &Stream,
        is_external: bool,
    ) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        if event.context != stream.context {
            return Err(CUresult::INVALID_HANDLE);
        }
        if self.try_capture_record(stream, handle, is_external)? {
            return Ok(());
        }
        self.spend_event_call(stream.context)?;
        let point = match event.shared {
            Some(words) => self.record_shared(handle, words, stream)?,
            None => self.put_record(&event, stream)?,
        };
        if let Some(event) = self.tables.lock().events.get_mut(&handle) {
            event.last = Some(point);
        }
        self.link.spend(QUERY_HOST_NS);
        Ok(())
    }

    fn put_record(&self, event: &Event, stream: &Stream) -> Result<Point, CUresult> {
        let record = {
            let mut tables = self.tables.lock();
            tables.record_last += 1;
            tables.record_last
        };
        let event = event.slot;
        self.submit(stream, Work::Record { event, record })
    }

    pub(crate) fn wait_event(
        &'static self,
        stream: &Stream,
        handle: u64,
        is_external: bool,
    ) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        if self.try_capture_wait(stream, handle, is_external)? {
            return Ok(());
        }
        if let Some(words) = event.shared {
            self.wait_shared(stream, words)?;
        } else if let Some(point) = event.last
            && !self.link.is_complete(point.stream, point.seq)
        {
            if self.context(event.context)?.device != self.context(stream.context)?.device {
                // A server that has ended reports nothing more; then the stream need not wait
                // either.
                return self.wait_across(stream, move || {
                    let _ = self.link.wait(point.stream, point.seq);
                });
            }
            self.wait_for(stream, point)?;
        }
        self.link.spend(QUERY_HOST_NS);
        Ok(())
    }

    /// Records an event behind all streams of a context: the legacy stream waits for them first.
    pub(crate) fn record_context(&'static self, context: u64, handle: u64) -> Result<(), CUresult> {
        let owner = self.context(context)?.green;
        let owner = owner.map_or(context, |green| green.primary);
        if self.event(handle)?.context != owner {
            return Err(CUresult::INVALID_HANDLE);
        }
        let legacy = self.legacy_of(context)?;
        for other in self.streams_of(context) {
            let seq = self.tables.lock().slots.submitted(other.slot);
            if other.slot != legacy.slot && !self.link.is_complete(other.slot, seq) {
                self.wait_for(
                    &legacy,
                    Point {
                        stream: other.slot,
                        seq,
                    },
                )?;
            }
        }
        self.record_event(handle, &legacy, false)
    }

    /// Lets all streams of a context wait for an event.
    pub(crate) fn wait_in_context(
        &'static self,
        context: u64,
        handle: u64,
    ) -> Result<(), CUresult> {
        self.context(context)?;
        self.event(handle)?;
        for stream in self.streams_of(context) {
            self.wait_event(&stream, handle, false)?;
        }
        Ok(())
    }

    fn legacy_of(&self, context: u64) -> Result<Stream, CUresult> {
        let legacy = self.context(context)?.legacy;
        let known = self.tables.lock().streams.get(&legacy).copied();
        known.ok_or(CUresult::INVALID_CONTEXT)
    }

    fn streams_of(&self, context: u64) -> Vec<Stream> {
        let tables = self.tables.lock();
        let streams = tables.streams.values();
        streams
            .filter(|stream| stream.is_of(context))
            .copied()
            .collect()
    }

    fn wait_for(&self, stream: &Stream, point: Point) -> Result<Point, CUresult> {
        let Point {
            stream: other,
            seq: other_seq,
        } = point;
        self.submit(stream, Work::Wait { other, other_seq })
    }

    pub(crate) fn synchronise_event(&self, handle: u64) -> Result<(), CUresult> {
        let event = self.event(handle)?;
        self.await_lock(event.context);
        self.check_event(handle)?;
        if let Some(words) = event.shared {
            self.synchronise_shared(&event, words)?;
        } else if let Some(point) = event.last {
            self.link.wait(point.stream, point.seq)?;
        }
        self.check_context(event.context)
    }

    pub(crate) fn query_event(&self, handle: u64) -> Result<(), CUresult> {
        self.link.spend_query();
        let event = self.event(handle)?;
        self.spend_event_call(event.context)?;
        self.await_lock(event.context);
        self.check_event(handle)?;
        self.check_context(event.context)?;
        match event.shared {
            Some(words) => self.query_shared(words),
            None => self.check_reached(&event),
        }
    }

    pub(crate) fn elapsed_ms(&self, start: u64, end: u64) -> Result<f32, CUresult> {
        for event in [start, end] {
            self.event(event)?;
            self.check_event(event)?;
        }
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
