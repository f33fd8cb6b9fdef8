//! Copies and fills.
//!
//! As on hardware: a copy from pageable memory is staged, so the application may change its memory
//! when the call returns; a copy to pageable memory waits; copies between the device and pinned
//! memory are asynchronous both ways. The synchronous calls wait for their copy where one side is
//! the host, and return at once where both sides are on the device.

use abi::types::CUresult;
use softgpu::CopyDirection;
use softgpu::wire::Command;

use crate::cost::SUBMIT_HOST_NS;
use crate::driver::Driver;
use crate::link::{Link, Live};
use crate::memory::Place;
use crate::raw::Bytes;
use crate::tables::{Point, Stream};

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    /// Whether the call returns only when the copy is complete.
    pub(crate) waits: bool,
}

/// What the call says about its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// The addresses say it.
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
        match (to, from) {
            (Place::Pageable, Place::Pageable | Place::Pinned)
            | (Place::Pinned, Place::Pageable) => self.copy_on_host(stream, copy),
            (Place::Device, Place::Pageable) => self.copy_staged(live, stream, copy),
            (Place::Pageable, Place::Device) => self.copy_out(live, stream, copy),
            (Place::Device | Place::Pinned, Place::Device | Place::Pinned) => {
                let direction = match (to, from) {
                    (Place::Pinned, Place::Device) => CopyDirection::DeviceToHost,
                    (_, Place::Device) => CopyDirection::DeviceToDevice,
                    _ => CopyDirection::HostToDevice,
                };
                let point = self.put_copy(stream, direction, copy.to, copy.from, copy.bytes)?;
                let waits = copy.waits && direction != CopyDirection::DeviceToDevice;
                self.finish(stream, waits.then_some(point))
            }
        }
    }

    /// From pageable memory to the device.
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

    /// From the device to pageable memory.
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

    /// Where the device has no part: in the stream's order, by this thread.
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
        let slot = stream.slot;
        self.submit(stream, |seq| Command::Copy {
            stream: slot,
            seq,
            direction,
            to,
            from,
            bytes,
        })
    }

    /// Fills memory with `count` values of `width_bytes`. Never waits, as the memory is the
    /// device's.
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
        if !is_aligned || self.place(to, bytes)? == Place::Pageable {
            return Err(CUresult::INVALID_VALUE);
        }
        let slot = stream.slot;
        self.submit(stream, |seq| Command::Set {
            stream: slot,
            seq,
            to,
            width_bytes,
            value,
            count,
        })?;
        self.finish(stream, None)
    }

    /// Spends what the call costs, and waits if it must.
    fn finish(&self, stream: &Stream, until: Option<Point>) -> Result<(), CUresult> {
        self.link.spend(SUBMIT_HOST_NS);
        if let Some(point) = until {
            self.link.wait(point.stream, point.seq)?;
            self.check_context(stream.context)?;
        }
        Ok(())
    }
}
