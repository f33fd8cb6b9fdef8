//! Physical memory and address space, and memory shared between processes.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use abi::types::{
    CUdeviceptr, CUipcMemHandle, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation,
    CUresult,
};
use softgpu::wire::GRANULARITY_BYTES;

use super::exports;
use crate::driver::Driver;
use crate::raw::{Bytes, In, Out};

fn open(
    driver: &Driver,
    address: &Out<CUdeviceptr>,
    handle: &CUipcMemHandle,
    flags: c_uint,
) -> Result<(), CUresult> {
    if address.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    address.set(CUdeviceptr(driver.open_ipc(handle, flags)?))
}

exports! {
    cuMemCreate(
        handle: Out<CUmemGenericAllocationHandle>,
        bytes: usize,
        properties: In<CUmemAllocationProp>,
        flags: c_ulonglong,
    ) |driver| {
        let properties = properties.get()?;
        if handle.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let created = driver.create_physical(bytes as u64, &properties, flags)?;
        handle.set(CUmemGenericAllocationHandle(created))
    };

    cuMemRelease(handle: CUmemGenericAllocationHandle) |driver| driver.release_physical(handle.0);

    cuMemRetainAllocationHandle(handle: Out<CUmemGenericAllocationHandle>, address: Bytes) |driver| {
        if handle.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        handle.set(CUmemGenericAllocationHandle(driver.retain_physical(address.address())?))
    };

    cuMemGetAllocationPropertiesFromHandle(
        properties: Out<CUmemAllocationProp>,
        handle: CUmemGenericAllocationHandle,
    ) |driver| properties.set(driver.physical_properties(handle.0)?);

    cuMemGetAllocationGranularity(
        bytes: Out<usize>,
        properties: In<CUmemAllocationProp>,
        option: CUmemAllocationGranularity_flags,
    ) |driver| {
        driver.check_properties(&properties.get()?)?;
        if option.name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        bytes.set(GRANULARITY_BYTES as usize)
    };

    cuMemAddressReserve(
        address: Out<CUdeviceptr>,
        bytes: usize,
        align: usize,
        wish: CUdeviceptr,
        flags: c_ulonglong,
    ) |driver| {
        if address.is_null() || flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        address.set(CUdeviceptr(driver.reserve(bytes as u64, align as u64, wish.0)?))
    };

    cuMemAddressFree(address: CUdeviceptr, bytes: usize)
        |driver| driver.unreserve(address.0, bytes as u64);

    cuMemMap(
        address: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: c_ulonglong,
    ) |driver| driver.map(address.0, bytes as u64, offset as u64, handle.0, flags);

    cuMemUnmap(address: CUdeviceptr, bytes: usize) |driver| driver.unmap(address.0, bytes as u64);

    cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: In<CUmemAccessDesc>, count: usize)
        |driver| {
            if count == 0 {
                return Err(CUresult::INVALID_VALUE);
            }
            (0..count).try_for_each(|index| {
                driver.set_access(address.0, bytes as u64, access.at(index)?)
            })
        };

    cuMemGetAccess(flags: Out<c_ulonglong>, location: In<CUmemLocation>, address: CUdeviceptr)
        |driver| flags.set(driver.access(location.get()?, address.0)?.0.into());

    cuMemExportToShareableHandle(
        exported: Out<c_void>,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: c_ulonglong,
    ) |driver| {
        if exported.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        exported.cast::<c_int>().set(driver.export_physical(handle.0, kind, flags)?)
    };

    // The descriptor is passed as a number in place of a pointer.
    cuMemImportFromShareableHandle(
        handle: Out<CUmemGenericAllocationHandle>,
        exported: Bytes,
        kind: CUmemAllocationHandleType,
    ) |driver| {
        if handle.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let imported = driver.import_physical(exported.address() as c_int, kind)?;
        handle.set(CUmemGenericAllocationHandle(imported))
    };

    cuIpcGetMemHandle(handle: Out<CUipcMemHandle>, address: CUdeviceptr) |driver| {
        if handle.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        handle.set(driver.ipc_handle(address.0)?)
    };

    cuIpcOpenMemHandle(address: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: c_uint)
        |driver| open(driver, &address, &handle, flags);

    cuIpcOpenMemHandle_v2(address: Out<CUdeviceptr>, handle: CUipcMemHandle, flags: c_uint)
        |driver| open(driver, &address, &handle, flags);

    cuIpcCloseMemHandle(address: CUdeviceptr) |driver| driver.close_ipc(address.0);
}
