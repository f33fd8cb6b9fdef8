//! Devices, versions and errors.

use std::ffi::{c_char, c_int, c_uint, c_void};

use abi::types::{
    CUdevice_attribute, CUdriverProcAddressQueryResult, CUgraphMem_attribute, CUmemoryPool,
};

use super::{define, exports};
use crate::device::{choose, current, device, primary_context};
use crate::door::{last_error, take_last_error};
use crate::driver::driver;
use crate::error::Error;
use crate::raw::{Out, write_text};
use crate::release::VERSION;

/// Size of a PCI address, from the reference.
const PCI_BYTES: usize = 13;

define! { cudaGetLastError() -> Error { take_last_error() } }
define! { cudaPeekAtLastError() -> Error { last_error() } }
define! { cudaGetErrorName(error: Error) -> *const c_char { error.name().as_ptr() } }
define! { cudaGetErrorString(error: Error) -> *const c_char { error.text().as_ptr() } }

exports! {
    cudaRuntimeGetVersion(version: Out<c_int>) early || version.set(VERSION);

    // 0 without a driver, as the reference specifies.
    cudaDriverGetVersion(version: Out<c_int>) early || match driver() {
        Ok(driver) if !version.is_null() => driver.cuDriverGetVersion(version.pointer()),
        _ => version.set(0),
    };

    cudaGetDeviceCount(count: Out<c_int>) early || {
        let counted = crate::driver::initialised().and_then(|driver| {
            let mut counted = 0;
            driver.cuDeviceGetCount(&raw mut counted).map(|()| counted)
        });
        count.set(*counted.as_ref().unwrap_or(&0))?;
        counted.map(drop)
    };

    cudaSetDevice(ordinal: c_int) anywhere |driver| choose(driver, ordinal);

    cudaGetDevice(ordinal: Out<c_int>) anywhere |driver| ordinal.set(current(driver));

    cudaDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, ordinal: c_int)
        anywhere |driver| driver.cuDeviceGetAttribute(value, attribute, device(driver, ordinal)?);

    cudaDeviceGetPCIBusId(id: Out<u8>, room: c_int, ordinal: c_int) anywhere |driver| {
        let mut text = [0; PCI_BYTES];
        let device = device(driver, ordinal)?;
        driver.cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as c_int, device)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        write_text(&id, usize::try_from(room).unwrap_or(0), &text[..end])
    };

    cudaDeviceCanAccessPeer(can: *mut c_int, ordinal: c_int, peer: c_int)
        anywhere |driver| driver.cuDeviceCanAccessPeer(can, device(driver, ordinal)?, device(driver, peer)?);

    cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint)
        |driver| driver.cuCtxEnablePeerAccess(primary_context(driver, peer)?, flags);

    cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, ordinal: c_int)
        |driver| driver.cuDeviceGetDefaultMemPool(pool, device(driver, ordinal)?);

    cudaDeviceGetGraphMemAttribute(ordinal: c_int, attribute: CUgraphMem_attribute, value: *mut c_void)
        |driver| driver.cuDeviceGetGraphMemAttribute(device(driver, ordinal)?, attribute, value);

    cudaDeviceSetGraphMemAttribute(ordinal: c_int, attribute: CUgraphMem_attribute, value: *mut c_void)
        |driver| driver.cuDeviceSetGraphMemAttribute(device(driver, ordinal)?, attribute, value);

    cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int)
        |driver| driver.cuCtxGetStreamPriorityRange(least, greatest);

    cudaDeviceSynchronize() |driver| driver.cuCtxSynchronize();

    cudaProfilerStart() |driver| driver.cuProfilerStart();
    cudaProfilerStop() |driver| driver.cuProfilerStop();

    cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, version: c_uint, flags: u64,
        found: *mut CUdriverProcAddressQueryResult
    ) anywhere |driver| {
        let version = c_int::try_from(version).map_err(|_| Error::INVALID_VALUE)?;
        driver.entry_point(symbol, function, version, flags, found)
    };
}
