//! Managed memory: advice, prefetches, attributes of ranges.

use std::ffi::{c_uint, c_ulonglong};

use abi::types::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags, CUmemLocation,
    CUresult, CUstream,
};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::managed::{RangeAttribute, location_of};
use crate::raw::{Bytes, In, Out};
use crate::streams::Flavour;

const INT_BYTES: usize = 4;

fn write_range_attribute(
    driver: &Driver,
    to: Bytes,
    room_bytes: usize,
    attribute: CUmem_range_attribute,
    [address, bytes]: [u64; 2],
) -> Result<(), CUresult> {
    if to.is_null() || room_bytes == 0 || !room_bytes.is_multiple_of(INT_BYTES) {
        return Err(CUresult::INVALID_VALUE);
    }
    let numbers = match driver.range_attribute(attribute, address, bytes)? {
        RangeAttribute::One(number) if room_bytes == INT_BYTES => vec![number],
        RangeAttribute::One(_) => return Err(CUresult::INVALID_VALUE),
        RangeAttribute::Many(mut numbers) => {
            numbers.resize(room_bytes / INT_BYTES, CUdevice::INVALID.0);
            numbers
        }
    };
    to.with_mut(room_bytes, |to| {
        for (to, number) in to.chunks_exact_mut(INT_BYTES).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
    })
}

fn prefetch(
    driver: &Driver,
    flavour: Flavour,
    address: CUdeviceptr,
    bytes: usize,
    to: CUmemLocation,
    stream: CUstream,
) -> Result<(), CUresult> {
    driver.stream(stream, flavour)?;
    driver.prefetch(address.0, bytes as u64, to)
}

/// Ranges of managed memory, each with the location selected by a list of indices; checked first.
struct Batch {
    addresses: In<CUdeviceptr>,
    sizes: In<usize>,
    count: usize,
}

impl Batch {
    fn each(&self, act: impl Fn(usize, u64, u64) -> Result<(), CUresult>) -> Result<(), CUresult> {
        if self.count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        (0..self.count).try_for_each(|index| {
            act(
                index,
                self.addresses.at(index)?.0,
                self.sizes.at(index)? as u64,
            )
        })
    }

    fn discard(&self, driver: &Driver) -> Result<(), CUresult> {
        self.each(|_, address, bytes| driver.discard(address, bytes))
    }

    fn prefetch(
        &self,
        driver: &Driver,
        locations: &In<CUmemLocation>,
        indices: &In<usize>,
        location_count: usize,
    ) -> Result<(), CUresult> {
        if location_count == 0 || location_count > self.count || indices.at(0)? != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        for index in 1..location_count {
            let (before, next) = (indices.at(index - 1)?, indices.at(index)?);
            if next <= before || next >= self.count {
                return Err(CUresult::INVALID_VALUE);
            }
        }
        // The location of the last index that is not beyond the range.
        let location = |range: usize| {
            let mut which = 0;
            while which + 1 < location_count && indices.at(which + 1)? <= range {
                which += 1;
            }
            locations.at(which)
        };
        self.discard(driver)?;
        self.each(|index, address, bytes| driver.prefetch(address, bytes, location(index)?))
    }
}

exports! {
    cuMemAllocManaged(address: Out<CUdeviceptr>, bytes: usize, flags: c_uint) |driver| {
        if address.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        address.set(CUdeviceptr(driver.allocate_managed(bytes as u64, flags)?))
    };

    cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice)
        |driver| driver.advise(address.0, bytes as u64, advice, location_of(device));

    cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation)
        |driver| driver.advise(address.0, bytes as u64, advice, location);

    cuMemRangeGetAttribute(
        to: Bytes,
        room_bytes: usize,
        attribute: CUmem_range_attribute,
        address: CUdeviceptr,
        bytes: usize,
    ) |driver| write_range_attribute(
        driver, to, room_bytes, attribute, [address.0, bytes as u64],
    );

    cuMemRangeGetAttributes(
        to: In<Bytes>,
        rooms: In<usize>,
        attributes: In<CUmem_range_attribute>,
        count: usize,
        address: CUdeviceptr,
        bytes: usize,
    ) |driver| {
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let range = [address.0, bytes as u64];
        (0..count).try_for_each(|index| {
            let (to, room, attribute) = (to.at(index)?, rooms.at(index)?, attributes.at(index)?);
            write_range_attribute(driver, to, room, attribute, range)
        })
    };
}

flavoured! {
    cuMemPrefetchAsync cuMemPrefetchAsync_ptsz (
        address: CUdeviceptr, bytes: usize, to: CUdevice, stream: CUstream
    ) |driver, flavour| prefetch(driver, flavour, address, bytes, location_of(to), stream);

    cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz (
        address: CUdeviceptr, bytes: usize, to: CUmemLocation, flags: c_uint, stream: CUstream
    ) |driver, flavour| {
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        prefetch(driver, flavour, address, bytes, to, stream)
    };

    cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz (
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>,
        indices: In<usize>, location_count: usize, flags: c_ulonglong, stream: CUstream
    ) |driver, flavour| {
        driver.stream(stream, flavour)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let batch = Batch { addresses, sizes, count };
        batch.prefetch(driver, &locations, &indices, location_count)
    };

    cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz (
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, flags: c_ulonglong,
        stream: CUstream
    ) |driver, flavour| {
        driver.stream(stream, flavour)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        Batch { addresses, sizes, count }.discard(driver)
    };

    cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz (
        addresses: In<CUdeviceptr>, sizes: In<usize>, count: usize, locations: In<CUmemLocation>,
        indices: In<usize>, location_count: usize, flags: c_ulonglong, stream: CUstream
    ) |driver, flavour| {
        driver.stream(stream, flavour)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        let batch = Batch { addresses, sizes, count };
        batch.prefetch(driver, &locations, &indices, location_count)
    };

    // The streams with which the host shares managed memory do not affect its location.
    cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz (
        stream: CUstream, address: CUdeviceptr, bytes: usize, flags: c_uint
    ) |driver, flavour| {
        driver.stream(stream, flavour)?;
        if CUmemAttach_flags(flags).name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        driver.discard(address.0, bytes.max(1) as u64)
    };
}
