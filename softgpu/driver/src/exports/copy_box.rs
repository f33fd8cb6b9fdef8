//! Copies of two and three dimensions, and in batches.

use std::ffi::{c_uchar, c_uint, c_ulonglong, c_ushort};

use abi::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER,
    CUDA_MEMCPY3D_v1, CUdeviceptr, CUdeviceptr_v1, CUmemcpy3DOperand, CUmemcpy3DOperandType,
    CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, CUstream,
};
use softgpu::wire::{Extent, Spot};

use super::{exports, flavoured};
use crate::boxes::{BoxCopy, Memory, Side};
use crate::copies::{Copy, Kind};
use crate::driver::Driver;
use crate::raw::{In, Out};
use crate::streams::Flavour;
use crate::tables::Stream;

/// Copies according to a descriptor: on a stream, or synchronously on the default one.
fn copy<T>(
    driver: &Driver,
    flavour: Flavour,
    stream: Option<CUstream>,
    descriptor: &In<T>,
) -> Result<(), CUresult>
where
    T: core::marker::Copy,
    BoxCopy: TryFrom<T, Error = CUresult>,
{
    let descriptor = descriptor.get()?;
    let waits = stream.is_none();
    let stream = driver.stream(stream.unwrap_or(CUstream::NULL), flavour)?;
    let copy = BoxCopy::try_from(descriptor)?;
    driver.copy_box(&stream, &BoxCopy { waits, ..copy })
}

/// As above between contexts, which must exist.
fn copy_peer(
    driver: &Driver,
    flavour: Flavour,
    stream: Option<CUstream>,
    descriptor: &In<CUDA_MEMCPY3D_PEER>,
) -> Result<(), CUresult> {
    let asked = descriptor.get()?;
    driver.context(asked.src_context.0.addr() as u64)?;
    driver.context(asked.dst_context.0.addr() as u64)?;
    copy(driver, flavour, stream, descriptor)
}

/// A stream for batches: any but the legacy one.
fn batch_stream(driver: &Driver, stream: CUstream, flavour: Flavour) -> Result<Stream, CUresult> {
    let is_legacy = stream == CUstream::LEGACY || (stream.is_null() && flavour == Flavour::Legacy);
    if is_legacy {
        return Err(CUresult::INVALID_VALUE);
    }
    driver.stream(stream, flavour)
}

fn check_attributes(attributes: &CUmemcpyAttributes) -> Result<(), CUresult> {
    check_order(attributes.src_access_order, attributes.flags)
}

fn check_order(order: CUmemcpySrcAccessOrder, flags: c_uint) -> Result<(), CUresult> {
    let is_order = order != CUmemcpySrcAccessOrder::INVALID && order.name().is_some();
    if is_order && flags <= 1 {
        Ok(())
    } else {
        Err(CUresult::INVALID_VALUE)
    }
}

struct Batch {
    to: In<CUdeviceptr>,
    from: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
}

impl Batch {
    /// A copy's attributes are those of the last index that is not beyond it.
    fn check(
        &self,
        attributes: &In<CUmemcpyAttributes>,
        indices: &In<usize>,
        attribute_count: usize,
    ) -> Result<(), CUresult> {
        if self.count == 0 || attribute_count == 0 || attribute_count > self.count {
            return Err(CUresult::INVALID_VALUE);
        }
        for index in 0..attribute_count {
            check_attributes(&attributes.at(index)?)?;
            let at = indices.at(index)?;
            let is_first = index == 0 && at == 0;
            let is_next = index > 0 && at > indices.at(index - 1)? && at < self.count;
            if !is_first && !is_next {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Checks all copies, then makes them; an error has the failing copy's index.
    fn copy(&self, driver: &Driver, stream: &Stream) -> Result<(), (usize, CUresult)> {
        for index in 0..self.count {
            let checked = self.one(index).and_then(|copy| {
                if copy.bytes == 0 || copy.to == 0 || copy.from == 0 {
                    return Err(CUresult::INVALID_VALUE);
                }
                driver.place(copy.to, copy.bytes)?;
                driver.place(copy.from, copy.bytes).map(|_| ())
            });
            checked.map_err(|error| (index, error))?;
        }
        for index in 0..self.count {
            let copied = self.one(index).and_then(|copy| driver.copy(stream, copy));
            copied.map_err(|error| (index, error))?;
        }
        Ok(())
    }

    fn one(&self, index: usize) -> Result<Copy, CUresult> {
        Ok(Copy {
            to: self.to.at(index)?.0,
            from: self.from.at(index)?.0,
            bytes: self.sizes.at(index)? as u64,
            kind: Kind::Unified,
            waits: false,
        })
    }
}

/// Reports which copy failed, or that none in particular did.
fn report(failed: &Out<usize>, result: Result<(), (usize, CUresult)>) -> Result<(), CUresult> {
    result.map_err(|(index, error)| {
        failed.set_if_wanted(index);
        error
    })
}

const WHOLE: usize = usize::MAX;

/// An operand of a batch, with the bytes of an element.
fn operand(driver: &Driver, operand: &CUmemcpy3DOperand, element: u64) -> Result<Side, CUresult> {
    let [first, row, rows, _] = operand.words;
    match operand.kind {
        CUmemcpy3DOperandType::POINTER => Ok(Side {
            memory: Memory::Unified(first),
            offset: [0; 3],
            pitch: [
                row.checked_mul(element).ok_or(CUresult::INVALID_VALUE)?,
                rows,
            ],
        }),
        CUmemcpy3DOperandType::ARRAY => {
            driver.array(first)?;
            let [_, x, y, z] = operand.words;
            let x = x.checked_mul(element).ok_or(CUresult::INVALID_VALUE)?;
            Ok(Side {
                memory: Memory::Array(first),
                offset: [x, y, z],
                pitch: [0; 2],
            })
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// Extents are in elements: those of an array if there is one, else bytes.
fn element_bytes(driver: &Driver, copy: &CUDA_MEMCPY3D_BATCH_OP) -> Result<u64, CUresult> {
    for operand in [&copy.dst, &copy.src] {
        if operand.kind == CUmemcpy3DOperandType::ARRAY {
            let bytes = driver.array(operand.words[0])?.descriptor.element_bytes();
            return Ok(bytes.ok_or(CUresult::INVALID_VALUE)? as u64);
        }
    }
    Ok(1)
}

fn batch_box(driver: &Driver, copy: &CUDA_MEMCPY3D_BATCH_OP) -> Result<BoxCopy, CUresult> {
    check_order(copy.src_access_order, copy.flags)?;
    let element = element_bytes(driver, copy)?;
    let extent = Extent {
        width: (copy.extent.width as u64)
            .checked_mul(element)
            .ok_or(CUresult::INVALID_VALUE)?,
        height: copy.extent.height as u64,
        depth: copy.extent.depth as u64,
    };
    // A row length or layer height of 0 means the extent's.
    let whole = |mut side: Side| {
        if side.pitch[0] == 0 {
            side.pitch[0] = extent.width;
        }
        if side.pitch[1] == 0 {
            side.pitch[1] = extent.height;
        }
        side
    };
    Ok(BoxCopy {
        to: whole(operand(driver, &copy.dst, element)?),
        from: whole(operand(driver, &copy.src, element)?),
        extent,
        waits: false,
    })
}

fn copy_boxes(
    driver: &Driver,
    stream: &Stream,
    copies: &In<CUDA_MEMCPY3D_BATCH_OP>,
    count: usize,
    flags: c_ulonglong,
) -> Result<(), (usize, CUresult)> {
    if count == 0 || flags != 0 {
        return Err((WHOLE, CUresult::INVALID_VALUE));
    }
    for index in 0..count {
        let checked = copies.at(index).and_then(|copy| batch_box(driver, &copy));
        checked.map_err(|error| (index, error))?;
    }
    for index in 0..count {
        let copied = copies
            .at(index)
            .and_then(|copy| batch_box(driver, &copy))
            .and_then(|copy| driver.copy_box(stream, &copy));
        copied.map_err(|error| (index, error))?;
    }
    Ok(())
}

fn set(
    driver: &Driver,
    flavour: Flavour,
    stream: CUstream,
    [to, pitch]: [u64; 2],
    (width_bytes, value): (u32, u32),
    [width, height]: [usize; 2],
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    let spot = Spot {
        start: to,
        pitch,
        slice: 0,
    };
    let size = [width as u64, height as u64];
    driver.set_box(&stream, spot, width_bytes, value, size)
}

/// The forms of CUDA 2, which have one flavour.
const LEGACY: Flavour = Flavour::Legacy;

exports! {
    cuMemcpy2D(copied: In<CUDA_MEMCPY2D_v1>) live |driver| copy(driver, LEGACY, None, &copied);
    cuMemcpy2DUnaligned(copied: In<CUDA_MEMCPY2D_v1>) live |driver| copy(driver, LEGACY, None, &copied);
    cuMemcpy2DAsync(copied: In<CUDA_MEMCPY2D_v1>, stream: CUstream) live
        |driver| copy(driver, LEGACY, Some(stream), &copied);
    cuMemcpy3D(copied: In<CUDA_MEMCPY3D_v1>) live |driver| copy(driver, LEGACY, None, &copied);
    cuMemcpy3DAsync(copied: In<CUDA_MEMCPY3D_v1>, stream: CUstream) live
        |driver| copy(driver, LEGACY, Some(stream), &copied);

    cuMemsetD2D8(to: CUdeviceptr_v1, pitch: c_uint, value: c_uchar, width: c_uint, height: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, [to.0.into(), pitch.into()], (1, value.into()),
            [width as usize, height as usize]);
    cuMemsetD2D16(to: CUdeviceptr_v1, pitch: c_uint, value: c_ushort, width: c_uint, height: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, [to.0.into(), pitch.into()], (2, value.into()),
            [width as usize, height as usize]);
    cuMemsetD2D32(to: CUdeviceptr_v1, pitch: c_uint, value: c_uint, width: c_uint, height: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, [to.0.into(), pitch.into()], (4, value),
            [width as usize, height as usize]);
}

flavoured! {
    cuMemcpy2D_v2 cuMemcpy2D_v2_ptds (copied: In<CUDA_MEMCPY2D>) live
        |driver, flavour| copy(driver, flavour, None, &copied);
    cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds (copied: In<CUDA_MEMCPY2D>) live
        |driver, flavour| copy(driver, flavour, None, &copied);
    cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz (copied: In<CUDA_MEMCPY2D>, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), &copied);
    cuMemcpy3D_v2 cuMemcpy3D_v2_ptds (copied: In<CUDA_MEMCPY3D>) live
        |driver, flavour| copy(driver, flavour, None, &copied);
    cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz (copied: In<CUDA_MEMCPY3D>, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), &copied);
    cuMemcpy3DPeer cuMemcpy3DPeer_ptds (copied: In<CUDA_MEMCPY3D_PEER>) live
        |driver, flavour| copy_peer(driver, flavour, None, &copied);
    cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz (copied: In<CUDA_MEMCPY3D_PEER>, stream: CUstream) live
        |driver, flavour| copy_peer(driver, flavour, Some(stream), &copied);

    cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz (
        to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CUmemcpyAttributes>, indices: In<usize>, attribute_count: usize,
        failed: Out<usize>, stream: CUstream
    ) live |driver, flavour| {
        failed.set_if_wanted(WHOLE);
        let stream = batch_stream(driver, stream, flavour)?;
        let batch = Batch { to, from, sizes, count };
        batch.check(&attributes, &indices, attribute_count)?;
        report(&failed, batch.copy(driver, &stream))
    };

    cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz (
        to: In<CUdeviceptr>, from: In<CUdeviceptr>, sizes: In<usize>, count: usize,
        attributes: In<CUmemcpyAttributes>, indices: In<usize>, attribute_count: usize,
        stream: CUstream
    ) live |driver, flavour| {
        let stream = batch_stream(driver, stream, flavour)?;
        let batch = Batch { to, from, sizes, count };
        batch.check(&attributes, &indices, attribute_count)?;
        batch.copy(driver, &stream).map_err(|(_, error)| error)
    };

    cuMemcpyWithAttributesAsync cuMemcpyWithAttributesAsync_ptsz (
        to: CUdeviceptr, from: CUdeviceptr, bytes: usize, attributes: In<CUmemcpyAttributes>,
        stream: CUstream
    ) live |driver, flavour| {
        let stream = batch_stream(driver, stream, flavour)?;
        check_attributes(&attributes.get()?)?;
        driver.copy(&stream, Copy {
            to: to.0,
            from: from.0,
            bytes: bytes as u64,
            kind: Kind::Unified,
            waits: false,
        })
    };

    cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz (
        count: usize, copies: In<CUDA_MEMCPY3D_BATCH_OP>, failed: Out<usize>, flags: c_ulonglong,
        stream: CUstream
    ) live |driver, flavour| {
        failed.set_if_wanted(WHOLE);
        let stream = batch_stream(driver, stream, flavour)?;
        report(&failed, copy_boxes(driver, &stream, &copies, count, flags))
    };

    cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz (
        count: usize, copies: In<CUDA_MEMCPY3D_BATCH_OP>, flags: c_ulonglong, stream: CUstream
    ) live |driver, flavour| {
        let stream = batch_stream(driver, stream, flavour)?;
        copy_boxes(driver, &stream, &copies, count, flags).map_err(|(_, error)| error)
    };

    cuMemcpy3DWithAttributesAsync cuMemcpy3DWithAttributesAsync_ptsz (
        copied: In<CUDA_MEMCPY3D_BATCH_OP>, flags: c_ulonglong, stream: CUstream
    ) live |driver, flavour| {
        let stream = batch_stream(driver, stream, flavour)?;
        copy_boxes(driver, &stream, &copied, 1, flags).map_err(|(_, error)| error)
    };

    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds (
        to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize
    ) live |driver, flavour| set(driver, flavour, CUstream::NULL, [to.0, pitch as u64],
        (1, value.into()), [width, height]);
    cuMemsetD2D8Async cuMemsetD2D8Async_ptsz (
        to: CUdeviceptr, pitch: usize, value: c_uchar, width: usize, height: usize, stream: CUstream
    ) live |driver, flavour| set(driver, flavour, stream, [to.0, pitch as u64],
        (1, value.into()), [width, height]);
    cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds (
        to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize
    ) live |driver, flavour| set(driver, flavour, CUstream::NULL, [to.0, pitch as u64],
        (2, value.into()), [width, height]);
    cuMemsetD2D16Async cuMemsetD2D16Async_ptsz (
        to: CUdeviceptr, pitch: usize, value: c_ushort, width: usize, height: usize, stream: CUstream
    ) live |driver, flavour| set(driver, flavour, stream, [to.0, pitch as u64],
        (2, value.into()), [width, height]);
    cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds (
        to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize
    ) live |driver, flavour| set(driver, flavour, CUstream::NULL, [to.0, pitch as u64],
        (4, value), [width, height]);
    cuMemsetD2D32Async cuMemsetD2D32Async_ptsz (
        to: CUdeviceptr, pitch: usize, value: c_uint, width: usize, height: usize, stream: CUstream
    ) live |driver, flavour| set(driver, flavour, stream, [to.0, pitch as u64],
        (4, value), [width, height]);
}
