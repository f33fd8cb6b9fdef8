//! Copies and fills of boxes: rows and slices, to and from arrays. Sides are as in `copies`:
//! pageable memory is staged, packed, and a copy to it waits.

use abi::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1,
    CUmemorytype, CUresult,
};
use softgpu::CopyDirection;
use softgpu::wire::{Extent, Spot, Work};

use crate::driver::Driver;
use crate::link::{Link, Live};
use crate::memory::Place;
use crate::raw::Bytes;
use crate::tables::{Point, Stream};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) memory: Memory,
    /// First byte of a row, first row, first slice.
    pub(crate) offset: [u64; 3],
    /// Bytes from row to row, rows from slice to slice; not for arrays.
    pub(crate) pitch: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Host(u64),
    Device(u64),
    Unified(u64),
    Array(u64),
    /// A checked address inside an array.
    Inside(u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BoxCopy {
    pub(crate) to: Side,
    pub(crate) from: Side,
    pub(crate) extent: Extent,
    /// Whether the call returns only when the copy is complete.
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    place: Place,
    spot: Spot,
}

impl Driver {
    pub(crate) fn copy_box(&self, stream: &Stream, copy: &BoxCopy) -> Result<(), CUresult> {
        let Link::Live(live) = &self.link else {
            return Ok(());
        };
        let extent = copy.extent;
        let bytes = extent.bytes().ok_or(CUresult::INVALID_VALUE)?;
        extent.rows().ok_or(CUresult::INVALID_VALUE)?;
        let to = self.find_side(&copy.to, &extent)?;
        let from = self.find_side(&copy.from, &extent)?;
        if bytes == 0 {
            return Ok(());
        }
        let starts = [to.spot.start, from.spot.start];
        if self.gpus.len() > 1 && self.leaves_device(stream, starts)? {
            return Err(CUresult::NOT_SUPPORTED);
        }
        match (to.place, from.place) {
            (Place::Pageable, Place::Pageable | Place::Pinned)
            | (Place::Pinned, Place::Pageable) => {
                self.synchronise_stream(stream)?;
                each_row(&extent, |row| {
                    let row_of = |side: &Found| Bytes::at(side.spot.row(&extent, row));
                    row_of(&to).move_from(row_of(&from), extent.width as usize)
                })
            }
            (_, Place::Pageable) => self.copy_box_staged(live, stream, copy, to, from),
            (Place::Pageable, _) => self.copy_box_out(live, stream, &extent, to, from),
            _ => {
                let direction = direction(to.place, from.place);
                let point = self.put_box(stream, direction, to.spot, from.spot, extent)?;
                let waits = copy.waits && direction != CopyDirection::DeviceToDevice;
                self.finish(stream, waits.then_some(point))
            }
        }
    }

    fn copy_box_staged(
        &self,
        live: &Live,
        stream: &Stream,
        copy: &BoxCopy,
        to: Found,
        from: Found,
    ) -> Result<(), CUresult> {
        let extent = copy.extent;
        let offset = self.stage(extent.bytes().ok_or(CUresult::INVALID_VALUE)?)?;
        let packed = Spot::packed(offset, &extent);
        let staged = each_row(&extent, |row| {
            Bytes::at(from.spot.row(&extent, row)).with(extent.width as usize, |bytes| {
                live.host().write(packed.row(&extent, row), bytes);
            })
        });
        let staged = staged.and_then(|()| {
            let from = Spot::packed(live.host_base() + offset, &extent);
            self.put_box(stream, CopyDirection::HostToDevice, to.spot, from, extent)
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

    fn copy_box_out(
        &self,
        live: &Live,
        stream: &Stream,
        extent: &Extent,
        to: Found,
        from: Found,
    ) -> Result<(), CUresult> {
        let offset = self.stage(extent.bytes().ok_or(CUresult::INVALID_VALUE)?)?;
        let packed = Spot::packed(offset, extent);
        let staging = Spot::packed(live.host_base() + offset, extent);
        let copied = self
            .put_box(
                stream,
                CopyDirection::DeviceToHost,
                staging,
                from.spot,
                *extent,
            )
            .and_then(|point| self.finish(stream, Some(point)))
            .and_then(|()| {
                each_row(extent, |row| {
                    let to = Bytes::at(to.spot.row(extent, row));
                    to.with_mut(extent.width as usize, |bytes| {
                        live.host().read(packed.row(extent, row), bytes);
                    })
                })
            });
        self.unstage(offset);
        copied
    }

    fn put_box(
        &self,
        stream: &Stream,
        direction: CopyDirection,
        to: Spot,
        from: Spot,
        extent: Extent,
    ) -> Result<Point, CUresult> {
        let work = Work::CopyBox {
            direction,
            to,
            from,
            extent,
        };
        self.submit(stream, work)
    }

    /// Fills rows of `width` values each, `pitch` bytes apart.
    pub(crate) fn set_box(
        &self,
        stream: &Stream,
        to: Spot,
        width_bytes: u32,
        value: u32,
        [width, height]: [u64; 2],
    ) -> Result<(), CUresult> {
        let extent = Extent {
            width: width
                .checked_mul(width_bytes.into())
                .ok_or(CUresult::INVALID_VALUE)?,
            height,
            depth: 1,
        };
        let span = to.span(&extent).ok_or(CUresult::INVALID_VALUE)?;
        extent.rows().ok_or(CUresult::INVALID_VALUE)?;
        if span == 0 {
            return Ok(());
        }
        let is_aligned = to.start.is_multiple_of(width_bytes.into())
            && (height == 1 || to.pitch.is_multiple_of(width_bytes.into()));
        let is_apart = height == 1 || to.pitch >= extent.width;
        if !is_aligned || !is_apart || self.place(to.start, span)? == Place::Pageable {
            return Err(CUresult::INVALID_VALUE);
        }
        let work = Work::SetBox {
            to,
            width_bytes,
            value,
            extent,
        };
        self.submit(stream, work)?;
        self.finish(stream, None)
    }

    /// Checks a side: finds its beginning, and checks that all of the box is there.
    fn find_side(&self, side: &Side, extent: &Extent) -> Result<Found, CUresult> {
        if let Memory::Array(handle) = side.memory {
            return self.find_array(handle, side.offset, extent);
        }
        if let Memory::Inside(start) = side.memory {
            return Ok(Found {
                place: Place::Device,
                spot: Spot::packed(start, extent),
            });
        }
        let [x, y, z] = side.offset;
        let [pitch, height] = side.pitch;
        let is_one_row = extent.height <= 1 && extent.depth <= 1;
        let row = x.checked_add(extent.width);
        let rows = y.checked_add(extent.height);
        let (row, rows) = row.zip(rows).ok_or(CUresult::INVALID_VALUE)?;
        if (!is_one_row && pitch < row) || (extent.depth > 1 && height < rows) {
            return Err(CUresult::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(height).ok_or(CUresult::INVALID_VALUE)?;
        let (Memory::Host(base) | Memory::Device(base) | Memory::Unified(base)) = side.memory
        else {
            return Err(CUresult::INVALID_VALUE);
        };
        let start = slice
            .checked_mul(z)
            .zip(pitch.checked_mul(y))
            .and_then(|(slices, rows)| base.checked_add(slices)?.checked_add(rows)?.checked_add(x))
            .ok_or(CUresult::INVALID_VALUE)?;
        let spot = Spot {
            start,
            pitch,
            slice,
        };
        let span = spot.span(extent).ok_or(CUresult::INVALID_VALUE)?;
        if span == 0 {
            let place = Place::Pageable;
            return Ok(Found { place, spot });
        }
        let place = self.place(start, span)?;
        let is_as_said = match side.memory {
            Memory::Host(_) => !matches!(place, Place::Device),
            Memory::Device(_) => place != Place::Pageable,
            _ => true,
        };
        if base == 0 || !is_as_said {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(Found { place, spot })
    }

    fn find_array(
        &self,
        handle: u64,
        [x, y, z]: [u64; 3],
        extent: &Extent,
    ) -> Result<Found, CUresult> {
        let array = self.array(handle)?;
        let descriptor = array.descriptor;
        let element = descriptor.element_bytes().ok_or(CUresult::INVALID_VALUE)? as u64;
        let [width, height, depth] = [
            descriptor.width as u64 * element,
            descriptor.height.max(1) as u64,
            descriptor.depth.max(1) as u64,
        ];
        let fits = |offset: u64, length: u64, all: u64| {
            offset.checked_add(length).is_some_and(|end| end <= all)
        };
        let is_whole = x.is_multiple_of(element) && extent.width.is_multiple_of(element);
        let is_inside = fits(x, extent.width, width)
            && fits(y, extent.height, height)
            && fits(z, extent.depth, depth);
        if !is_inside || !is_whole {
            return Err(CUresult::INVALID_VALUE);
        }
        let slice = width * height;
        let spot = Spot {
            start: array.start + z * slice + y * width + x,
            pitch: width,
            slice,
        };
        let place = Place::Device;
        Ok(Found { place, spot })
    }

    /// Treats bytes of an array from an offset on as one row, for one-dimensional copies.
    pub(crate) fn array_row(&self, handle: u64, offset: u64, bytes: u64) -> Result<u64, CUresult> {
        let array = self.array(handle)?;
        let descriptor = array.descriptor;
        let all = descriptor.bytes().ok_or(CUresult::INVALID_VALUE)? as u64;
        // These copies are documented for one-dimensional arrays; here further rows follow.
        if offset.checked_add(bytes).is_none_or(|end| end > all) {
            return Err(CUresult::INVALID_VALUE);
        }
        Ok(array.start + offset)
    }
}

/// The engine for a copy.
pub(crate) fn direction(to: Place, from: Place) -> CopyDirection {
    match (to, from) {
        (Place::Pinned, Place::Device | Place::Managed) => CopyDirection::DeviceToHost,
        (_, Place::Device | Place::Managed) => CopyDirection::DeviceToDevice,
        _ => CopyDirection::HostToDevice,
    }
}

fn each_row(
    extent: &Extent,
    mut act: impl FnMut(u64) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    (0..extent.height * extent.depth).try_for_each(&mut act)
}

macro_rules! side {
    ($copy:ident, $kind:ident, $host:ident, $device:ident, $array:ident,
        [$($offset:expr),*], [$($pitch:expr),*]) => {
        Side {
            memory: match $copy.$kind {
                CUmemorytype::HOST => Memory::Host($copy.$host.expose_provenance() as u64),
                CUmemorytype::DEVICE => Memory::Device($copy.$device.0.into()),
                CUmemorytype::ARRAY => Memory::Array($copy.$array.0.addr() as u64),
                CUmemorytype::UNIFIED => Memory::Unified($copy.$device.0.into()),
                _ => return Err(CUresult::INVALID_VALUE),
            },
            offset: [$(u64::try_from($offset).unwrap_or(u64::MAX)),*],
            pitch: [$(u64::try_from($pitch).unwrap_or(u64::MAX)),*],
        }
    };
}

/// Reads descriptors. Depth, levels of detail, slices and heights belong only to boxes.
macro_rules! descriptor {
    (
        $type:ty, |$copy:ident|
        z: [$src_z:expr, $dst_z:expr], heights: [$src_height:expr, $dst_height:expr],
        lods: $lods:expr, depth: $depth:expr
    ) => {
        impl TryFrom<$type> for BoxCopy {
            type Error = CUresult;

            #[allow(
                clippy::unnecessary_cast,
                clippy::useless_conversion,
                reason = "sizes have two widths"
            )]
            fn try_from($copy: $type) -> Result<Self, CUresult> {
                if $lods != [0, 0] {
                    return Err(CUresult::INVALID_VALUE);
                }
                let from = side!(
                    $copy,
                    src_memory_type,
                    src_host,
                    src_device,
                    src_array,
                    [$copy.src_x_in_bytes, $copy.src_y, $src_z],
                    [$copy.src_pitch, $src_height]
                );
                let to = side!(
                    $copy,
                    dst_memory_type,
                    dst_host,
                    dst_device,
                    dst_array,
                    [$copy.dst_x_in_bytes, $copy.dst_y, $dst_z],
                    [$copy.dst_pitch, $dst_height]
                );
                let extent = Extent {
                    width: $copy.width_in_bytes as u64,
                    height: $copy.height as u64,
                    depth: $depth as u64,
                };
                Ok(Self {
                    to,
                    from,
                    extent,
                    waits: false,
                })
            }
        }
    };
}

macro_rules! rectangle {
    ($type:ty) => {
        descriptor! {
            $type, |copy| z: [0_u64, 0_u64], heights: [0_u64, 0_u64], lods: [0_u64, 0_u64], depth: 1
        }
    };
}

macro_rules! cuboid {
    ($type:ty) => {
        descriptor! {
            $type, |copy| z: [copy.src_z, copy.dst_z], heights: [copy.src_height, copy.dst_height],
            lods: [copy.src_lod, copy.dst_lod], depth: copy.depth
        }
    };
}

rectangle!(CUDA_MEMCPY2D_v1);
rectangle!(CUDA_MEMCPY2D);
cuboid!(CUDA_MEMCPY3D_v1);
cuboid!(CUDA_MEMCPY3D);
cuboid!(CUDA_MEMCPY3D_PEER);
