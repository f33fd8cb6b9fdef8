//! Memory.

use std::ffi::{c_uint, c_void};

use abi::types::{CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult, CUstream};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::memory::Place;
use crate::raw::{Bytes, Out};

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
        if flags != 0 || !driver.is_pinned(host.address()) {
            return Err(CUresult::INVALID_VALUE);
        }
        device.set(CUdeviceptr(host.address()))
    };

    cuPointerGetAttribute(data: Bytes, attribute: CUpointer_attribute, address: CUdeviceptr) |driver| {
        write_attribute(driver, data, attribute, address.0)
    };
}

flavoured! {
    cuMemAllocAsync cuMemAllocAsync_ptsz (address: Out<CUdeviceptr>, bytes: usize, stream: CUstream)
        |driver, flavour| {
            if address.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            driver.stream(stream, flavour)?;
            address.set(CUdeviceptr(driver.allocate(bytes as u64)?))
        };

    cuMemFreeAsync cuMemFreeAsync_ptsz (address: CUdeviceptr, stream: CUstream) |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.free_after(address.0, &stream)
    };
}

/// The type of what is written depends on the attribute; see `CUpointer_attribute`.
fn write_attribute(
    driver: &Driver,
    data: Bytes,
    attribute: CUpointer_attribute,
    address: u64,
) -> Result<(), CUresult> {
    use CUpointer_attribute as A;
    let found = driver.allocation(address)?;
    let put = |bytes: &[u8]| data.with_mut(bytes.len(), |to| to.copy_from_slice(bytes));
    let is_pinned = found.place == Place::Pinned;
    match attribute {
        A::CONTEXT => put(
            &CUcontext(std::ptr::without_provenance_mut(found.context as usize))
                .0
                .addr()
                .to_ne_bytes(),
        ),
        A::MEMORY_TYPE => {
            let kind = if is_pinned {
                CUmemorytype::HOST
            } else {
                CUmemorytype::DEVICE
            };
            put(&kind.0.to_ne_bytes())
        }
        A::DEVICE_POINTER => put(&address.to_ne_bytes()),
        A::HOST_POINTER if is_pinned => put(&address.to_ne_bytes()),
        A::BUFFER_ID => put(&found.id.to_ne_bytes()),
        A::DEVICE_ORDINAL => put(&0i32.to_ne_bytes()),
        A::IS_MANAGED | A::SYNC_MEMOPS | A::IS_LEGACY_CUDA_IPC_CAPABLE => put(&[0]),
        A::MAPPED => put(&[1]),
        A::RANGE_START_ADDR => put(&found.start.to_ne_bytes()),
        A::RANGE_SIZE => put(&found.bytes.to_ne_bytes()),
        _ => Err(CUresult::INVALID_VALUE),
    }
}
