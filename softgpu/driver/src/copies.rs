//! Copies and fills. As on hardware: a copy from pageable memory is staged, so the application may
//! change its memory when the call returns; a copy to pageable memory waits; copies between the
//! device and pinned memory are asynchronous both ways. The synchronous calls wait for their copy
//! if one side is the host, and return at once if both sides are on the device.

use abi::types::CUresult;
use softgpu::CopyDirection;
use softgpu::wire::Work;

use crate::boxes::direction;
use crate::cost::SUBMIT_HOST_NS;
use crate::driver::Driver;
use crate::graphs::Kind as NodeKind;
use crate::graphs::nodes::SetNode;
use crate::link::{Link, Live, device_of_address};
use crate::memory::Place;
use crate::raw::Bytes;
use crate::tables::{Point, Stream};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    /// Whether the call returns only when the copy is complete.
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Determined by the addresses.
    Unified,
}

impl Driver {
    pub(crate) fn copy(&self, stream: &Stream, copy: Copy) -> Result<(), CUresult> {
        if copy.bytes == 0 {
            return Ok(());
        }
        let Link::Live(live) = &self.link else {
            return Ok(());
        };
        if copy.waits {
            self.check_submit(stream)?;
        } else if self.is_captured(stream)? {
            let node = self.flat_copy_node(stream.context, [copy.to, copy.from, copy.bytes])?;
            self.try_capture(stream, |_| Ok(NodeKind::Copy(Box::new(node))))?;
            return Ok(());
        }
        let to = self.place(copy.to, copy.bytes)?;
        let from = self.place(copy.from, copy.bytes)?;
        let is_as_said = match copy.kind {
            Kind::HostToDevice => to != Place::Pageable && from != Place::Device,
            Kind::DeviceToHost => to != Place::Device && from != Place::Pageable,
            Kind::DeviceToDevice => to != Place::Pageable && from != Place::Pageable,
            Kind::Unified => true,
        };
        if !is_as_said {
            return Err(CUresult::INVALID_VALUE);
        }
        if self.gpus.len() > 1 && self.leaves_device(stream, [copy.to, copy.from])? {
            return self.copy_between(live, stream, copy, [to, from]);
        }
        match (to, from) {
            (Place::Pageable, Place::Pageable | Place::Pinned)
            | (Place::Pinned, Place::Pageable) => self.copy_on_host(stream, copy),
            (_, Place::Pageable) => self.copy_staged(live, stream, copy),
            (Place::Pageable, _) => self.copy_out(live, stream, copy),
            _ => {
                let direction = direction(to, from);
                let point = self.put_copy(stream, direction, copy.to, copy.from, copy.bytes)?;
                let waits = copy.waits && direction != CopyDirection::DeviceToDevice;
                self.finish(stream, waits.then_some(point))
            }
        }
    }

    fn copy_staged(&self, live: &Live, stream: &Stream, copy: Copy) -> Result<(), CUresult> {
        let offset = self.stage(copy.bytes)?;
        let from = live.host_base() + offset;
        let staged = Bytes::at(copy.from)
            .with(copy.bytes as usize, |bytes| {
                live.host().write(offset, bytes)
            })
            .and_then(|_| {
                self.put_copy(
                    stream,
                    CopyDirection::HostToDevice,
                    copy.to,
                    from,
                    copy.bytes,
                )
            });
        match staged {
            Ok(point) => {
                self.staged_until(offset, point);
                self.finish(stream, copy.waits.then_some(point))
            }
            Err(error) => {
                self.unstage(offset);
                Err(error)
            }
        }
    }

    fn copy_out(&self, live: &Live, stream: &Stream, copy: Copy) -> Result<(), CUresult> {
        let offset = self.stage(copy.bytes)?;
        let to = live.host_base() + offset;
        let copied = self
            .put_copy(
                stream,
                CopyDirection::DeviceToHost,
                to,
                copy.from,
                copy.bytes,
            )
            .and_then(|point| self.finish(stream, Some(point)))
            .and_then(|()| {
                let read = |bytes: &mut [u8]| live.host().read(offset, bytes);
                Bytes::at(copy.to).with_mut(copy.bytes as usize, read)
            });
        self.unstage(offset);
        copied.map(|_| ())
    }

    pub(crate) fn leaves_device(
        &self,
        stream: &Stream,
        addresses: [u64; 2],
    ) -> Result<bool, CUresult> {
        let device = self.context(stream.context)?.device;
        let mut found = addresses
            .into_iter()
            .filter(|&address| self.block_around(address).is_ok());
        Ok(found.any(|address| device_of_address(address) != device))
    }

    /// Copies between devices, or with memory of another device than the stream's: through the
    /// host, in the stream's order; it is complete on return. Each device counts its half.
    fn copy_between(
        &self,
        live: &Live,
        stream: &Stream,
        copy: Copy,
        [to, from]: [Place; 2],
    ) -> Result<(), CUresult> {
        self.synchronise_stream(stream)?;
        let waiting = Copy {
            waits: true,
            kind: Kind::Unified,
            ..copy
        };
        match (to, from) {
            (Place::Device, Place::Device) => {
                let offset = self.stage(copy.bytes)?;
                let staging = live.host_base() + offset;
                let half = |stream: &Stream, direction, to, from| {
                    let point = self.put_copy(stream, direction, to, from, copy.bytes)?;
                    self.finish(stream, Some(point))
                };
                let copied = self
                    .stream_at(copy.from)
                    .and_then(|s| half(&s, CopyDirection::DeviceToHost, staging, copy.from))
                    .and_then(|()| self.stream_at(copy.to))
                    .and_then(|s| half(&s, CopyDirection::HostToDevice, copy.to, staging));
                self.unstage(offset);
                copied
            }
            (Place::Device, _) => self.copy(&self.stream_at(copy.to)?, waiting),
            _ => self.copy(&self.stream_at(copy.from)?, waiting),
        }
    }

    /// The legacy stream of a context on the device that an address lies on.
    fn stream_at(&self, address: u64) -> Result<Stream, CUresult> {
        let device = device_of_address(address);
        let tables = self.tables.lock();
        let context = tables.contexts.values().find(|c| c.device == device);
        let legacy = context.and_then(|context| tables.streams.get(&context.legacy));
        legacy.copied().ok_or(CUresult::INVALID_CONTEXT)
    }

    /// Copies within the host: in the stream's order, by this thread.
    fn copy_on_host(&self, stream: &Stream, copy: Copy) -> Result<(), CUresult> {
        self.synchronise_stream(stream)?;
        Bytes::at(copy.to).move_from(Bytes::at(copy.from), copy.bytes as usize)
    }

    fn put_copy(
        &self,
        stream: &Stream,
        direction: CopyDirection,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Result<Point, CUresult> {
        let work = Work::Copy {
            direction,
            to,
            from,
            bytes,
        };
        self.submit(stream, work)
    }

    /// Fills memory with `count` values of `width_bytes`. Never waits: it is device memory.
    pub(crate) fn set(
        &self,
        stream: &Stream,
        to: u64,
        width_bytes: u32,
        value: u32,
        count: u64,
    ) -> Result<(), CUresult> {
        let bytes = count
            .checked_mul(width_bytes.into())
            .ok_or(CUresult::INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(());
        }
        let is_aligned = to.is_multiple_of(width_bytes.into());
        let is_elsewhere = self.gpus.len() > 1 && self.leaves_device(stream, [to; 2])?;
        if !is_aligned || is_elsewhere || self.place(to, bytes)? == Place::Pageable {
            return Err(CUresult::INVALID_VALUE);
        }
        let node = SetNode {
            context: stream.context,
            dst: to,
            pitch: 0,
            value,
            width_bytes,
            width: count,
            height: 1,
        };
        if self.try_capture(stream, |_| Ok(NodeKind::Set(node)))? {
            return Ok(());
        }
        let work = Work::Set {
            to,
            width_bytes,
            value,
            count,
        };
        self.submit(stream, work)?;
        self.finish(stream, None)
    }

    pub(crate) fn finish(&self, stream: &Stream, until: Option<Point>) -> Result<(), CUresult> {
        self.link.spend(SUBMIT_HOST_NS);
        if let Some(point) = until {
            self.link.wait(point.stream, point.seq)?;
            self.check_context(stream.context)?;
        }
        Ok(())
    }
}
