//! Memory.

use std::ffi::{c_uint, c_void};

use abi::types::{CUdeviceptr, CUdeviceptr_v1, CUpointer_attribute, CUresult};

use super::exports;
use crate::driver::Driver;
use crate::memory::Place;
use crate::raw::{Bytes, In, Out};

fn pin(
    driver: &Driver,
    address: &Out<*mut c_void>,
    bytes: usize,
    flags: c_uint,
) -> Result<(), CUresult> {
    if address.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let pinned = driver.allocate_pinned(bytes as u64, flags)?;
    address.set(std::ptr::with_exposed_provenance_mut(pinned as usize))
}

exports! {
    cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) |driver| {
        if address.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        address.set(CUdeviceptr(driver.allocate(bytes as u64)?))
    };

    cuMemFree_v2(address: CUdeviceptr) |driver| driver.free(address.0);

    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |driver| {
        let (free_bytes, total_bytes) = driver.memory_info()?;
        free.set(free_bytes as usize)?;
        total.set(total_bytes as usize)
    };

    cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint)
        |driver| pin(driver, &address, bytes, flags);

    cuMemAllocHost_v2(address: Out<*mut c_void>, bytes: usize) |driver| pin(driver, &address, bytes, 0);

    cuMemFreeHost(address: Bytes) |driver| driver.free_pinned(address.address());

    // Device and host have one address space, so the pointer is the same.
    cuMemHostGetDevicePointer_v2(device: Out<CUdeviceptr>, host: Bytes, flags: c_uint) |driver| {
        if flags != 0 || device.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        device.set(CUdeviceptr(driver.device_pointer(host.address())?))
    };

    cuMemHostGetFlags(flags: Out<c_uint>, host: Bytes)
        |driver| flags.set(driver.pinned_flags(host.address())?);

    cuMemHostRegister(address: Bytes, bytes: usize, flags: c_uint)
        |driver| driver.register(address.address(), bytes as u64, flags);

    cuMemHostRegister_v2(address: Bytes, bytes: usize, flags: c_uint)
        |driver| driver.register(address.address(), bytes as u64, flags);

    cuMemHostUnregister(address: Bytes) |driver| driver.unregister(address.address());

    cuMemAllocHost(address: Out<*mut c_void>, bytes: c_uint)
        |driver| pin(driver, &address, bytes as usize, 0);

    cuMemAlloc(address: Out<CUdeviceptr_v1>, bytes: c_uint) |driver| {
        if address.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        address.set(CUdeviceptr_v1(driver.allocate_low(bytes.into())?))
    };

    cuMemAllocPitch(
        address: Out<CUdeviceptr_v1>,
        pitch: Out<c_uint>,
        width_bytes: c_uint,
        height: c_uint,
        element_bytes: c_uint,
    ) |driver| {
        if address.is_null() || pitch.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (pitch_bytes, bytes) = pitched(width_bytes.into(), height.into(), element_bytes)?;
        let pitch_bytes = c_uint::try_from(pitch_bytes).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        address.set(CUdeviceptr_v1(driver.allocate_low(bytes)?))?;
        pitch.set(pitch_bytes)
    };

    cuMemAllocPitch_v2(
        address: Out<CUdeviceptr>,
        pitch: Out<usize>,
        width_bytes: usize,
        height: usize,
        element_bytes: c_uint,
    ) |driver| {
        if address.is_null() || pitch.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let (pitch_bytes, bytes) = pitched(width_bytes as u64, height as u64, element_bytes)?;
        address.set(CUdeviceptr(driver.allocate(bytes)?))?;
        pitch.set(pitch_bytes as usize)
    };

    cuMemFree(address: CUdeviceptr_v1) |driver| driver.free(address.0.into());

    // Sizes beyond 32 bits are clamped.
    cuMemGetInfo(free: Out<c_uint>, total: Out<c_uint>) |driver| {
        let (free_bytes, total_bytes) = driver.memory_info()?;
        free.set(c_uint::try_from(free_bytes).unwrap_or(c_uint::MAX))?;
        total.set(c_uint::try_from(total_bytes).unwrap_or(c_uint::MAX))
    };

    cuMemGetAddressRange(base: Out<CUdeviceptr_v1>, bytes: Out<c_uint>, address: CUdeviceptr_v1)
        |driver| {
            let (start, length) = range(driver, address.0.into())?;
            let narrow = |number: u64| c_uint::try_from(number).map_err(|_| CUresult::INVALID_VALUE);
            let (start, length) = (narrow(start)?, narrow(length)?);
            base.set_if_wanted(CUdeviceptr_v1(start));
            bytes.set_if_wanted(length);
            Ok(())
        };

    cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr)
        |driver| {
            let (start, length) = range(driver, address.0)?;
            base.set_if_wanted(CUdeviceptr(start));
            bytes.set_if_wanted(length as usize);
            Ok(())
        };

    cuPointerGetAttribute(to: Bytes, attribute: CUpointer_attribute, address: CUdeviceptr)
        |driver| driver.write_pointer_attribute(to, attribute, address.0);

    cuPointerGetAttributes(
        count: c_uint,
        attributes: In<CUpointer_attribute>,
        to: In<Bytes>,
        address: CUdeviceptr,
    ) |driver| {
        if count == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        (0..count as usize).try_for_each(|index| {
            let (to, attribute) = (to.at(index)?, attributes.at(index)?);
            driver.write_pointer_attribute_or_none(to, attribute, address.0)
        })
    };

    cuPointerSetAttribute(value: Bytes, attribute: CUpointer_attribute, address: CUdeviceptr)
        |driver| driver.set_pointer_attribute(value, attribute, address.0);
}

/// Alignment of rows, more than any copy needs.
const PITCH_BYTES: u64 = 512;

/// The pitch of rows of that width, and the size of all rows.
fn pitched(width_bytes: u64, height: u64, element_bytes: c_uint) -> Result<(u64, u64), CUresult> {
    if width_bytes == 0 || height == 0 || !matches!(element_bytes, 4 | 8 | 16) {
        return Err(CUresult::INVALID_VALUE);
    }
    let pitch = width_bytes.checked_next_multiple_of(PITCH_BYTES);
    let bytes = pitch.and_then(|pitch| pitch.checked_mul(height));
    pitch.zip(bytes).ok_or(CUresult::OUT_OF_MEMORY)
}

fn range(driver: &Driver, address: u64) -> Result<(u64, u64), CUresult> {
    match driver.allocation(address) {
        Ok(found) if found.place != Place::Pageable => Ok((found.start, found.bytes)),
        _ => Err(CUresult::NOT_FOUND),
    }
}
