//! Memory: allocation, copies, fills, sharing.

use std::ffi::{c_int, c_uint, c_void};

use abi::types::{
    CUdeviceptr, CUipcMemHandle, CUmemAccessDesc, CUmemPool_attribute, CUmemoryPool, CUstream,
};

use super::exports;
use crate::copies::{Kind, Rows, copy, copy_2d_async, copy_async, unified};
use crate::device::primary_context;
use crate::error::Error;
use crate::properties::{PointerAttributes, pointer_attributes};
use crate::raw::Out;
use crate::registry;

exports! {
    // A size of 0 allocates nothing, and is no error.
    cudaMalloc(address: Out<CUdeviceptr>, bytes: usize) |driver| match bytes {
        0 => address.set(CUdeviceptr(0)),
        _ => driver.cuMemAlloc(address.pointer(), bytes),
    };

    cudaFree(address: *mut c_void) |driver| match address.is_null() {
        true => Ok(()),
        false => driver.cuMemFree(unified(address)),
    };

    cudaMallocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint)
        |driver| driver.cuMemAllocManaged(address, bytes, flags);

    cudaMallocAsync(address: Out<CUdeviceptr>, bytes: usize, stream: CUstream) |driver| match bytes {
        0 => address.set(CUdeviceptr(0)),
        _ => driver.cuMemAllocAsync(address.pointer(), bytes, stream),
    };

    cudaFreeAsync(address: *mut c_void, stream: CUstream) |driver| match address.is_null() {
        true => Ok(()),
        false => driver.cuMemFreeAsync(unified(address), stream),
    };

    cudaMallocHost(address: Out<*mut c_void>, bytes: usize) |driver| match bytes {
        0 => address.set(std::ptr::null_mut()),
        _ => driver.cuMemHostAlloc(address.pointer(), bytes, 0),
    };

    cudaHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: c_uint) |driver| match bytes {
        0 => address.set(std::ptr::null_mut()),
        _ => driver.cuMemHostAlloc(address.pointer(), bytes, flags),
    };

    cudaFreeHost(address: *mut c_void) |driver| match address.is_null() {
        true => Ok(()),
        false => driver.cuMemFreeHost(address),
    };

    cudaHostRegister(address: *mut c_void, bytes: usize, flags: c_uint)
        |driver| driver.cuMemHostRegister(address, bytes, flags);

    cudaHostUnregister(address: *mut c_void) |driver| driver.cuMemHostUnregister(address);

    cudaMemGetInfo(free: *mut usize, total: *mut usize) |driver| driver.cuMemGetInfo(free, total);

    cudaPointerGetAttributes(attributes: Out<PointerAttributes>, address: *mut c_void)
        |driver| attributes.set(pointer_attributes(driver, address)?);

    cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void)
        |driver| driver.cuMemPoolGetAttribute(pool, attribute, value);

    cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void)
        |driver| driver.cuMemPoolSetAttribute(pool, attribute, value);

    cudaMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize)
        |driver| driver.cuMemPoolSetAccess(pool, access, count);

    cudaMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize) |driver| driver.cuMemPoolTrimTo(pool, keep_bytes);

    cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, address: *mut c_void)
        |driver| driver.cuIpcGetMemHandle(handle, unified(address));

    cudaIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint)
        |driver| driver.cuIpcOpenMemHandle(address, handle, flags);

    cudaIpcCloseMemHandle(address: *mut c_void) |driver| driver.cuIpcCloseMemHandle(unified(address));

    cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: Kind)
        |driver| copy(driver, to, from, bytes, kind);

    cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: Kind, stream: CUstream)
        |driver| copy_async(driver, to, from, bytes, kind, stream);

    cudaMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: Kind, stream: CUstream
    ) |driver| {
        let to = Rows { address: to, pitch: to_pitch };
        let from = Rows { address: from, pitch: from_pitch };
        copy_2d_async(driver, to, from, [width, height], kind, stream)
    };

    cudaMemcpyPeerAsync(
        to: *mut c_void, to_device: c_int, from: *const c_void, from_device: c_int, bytes: usize, stream: CUstream
    ) |driver| {
        let to_context = primary_context(driver, to_device)?;
        let from_context = primary_context(driver, from_device)?;
        driver.cuMemcpyPeerAsync(unified(to), to_context, unified(from), from_context, bytes, stream)
    };

    cudaMemcpyToSymbol(
        symbol: *const c_void, from: *const c_void, count: usize, offset: usize, kind: Kind
    ) |driver| {
        let (address, bytes) = registry::variable(driver, symbol)?;
        if offset.checked_add(count).is_none_or(|end| end > bytes) {
            return Err(Error::INVALID_VALUE);
        }
        let to = std::ptr::with_exposed_provenance_mut(address.0 as usize + offset);
        copy(driver, to, from, count, kind)
    };

    cudaMemset(address: *mut c_void, value: c_int, count: usize)
        |driver| driver.cuMemsetD8(unified(address), value as u8, count);

    cudaMemsetAsync(address: *mut c_void, value: c_int, count: usize, stream: CUstream)
        |driver| driver.cuMemsetD8Async(unified(address), value as u8, count, stream);

    cudaGetSymbolAddress(address: Out<CUdeviceptr>, symbol: *const c_void)
        |driver| address.set(registry::variable(driver, symbol)?.0);
}
