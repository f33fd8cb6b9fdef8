//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort};

use abi::types::{CUdeviceptr, CUresult, CUstream};

use super::flavoured;
use crate::copies::{Copy, Kind};
use crate::driver::Driver;
use crate::raw::Bytes;
use crate::streams::Flavour;

/// Copies on a stream, or, for a call without one, on the default stream and synchronously.
pub(super) fn copy(
    driver: &Driver,
    flavour: Flavour,
    stream: Option<CUstream>,
    kind: Kind,
    [to, from]: [u64; 2],
    bytes: usize,
) -> Result<(), CUresult> {
    let waits = stream.is_none();
    let stream = driver.stream(stream.unwrap_or(CUstream::NULL), flavour)?;
    driver.copy(
        &stream,
        Copy {
            to,
            from,
            bytes: bytes as u64,
            kind,
            waits,
        },
    )
}

pub(super) fn set(
    driver: &Driver,
    flavour: Flavour,
    stream: CUstream,
    to: CUdeviceptr,
    width_bytes: u32,
    value: u32,
    count: usize,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    driver.set(&stream, to.0, width_bytes, value, count as u64)
}

flavoured! {
    cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds (to: CUdeviceptr, from: Bytes, bytes: usize) live
        |driver, flavour| copy(driver, flavour, None, Kind::HostToDevice, [to.0, from.address()], bytes);

    cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz (to: CUdeviceptr, from: Bytes, bytes: usize, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), Kind::HostToDevice, [to.0, from.address()], bytes);

    cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds (to: Bytes, from: CUdeviceptr, bytes: usize) live
        |driver, flavour| copy(driver, flavour, None, Kind::DeviceToHost, [to.address(), from.0], bytes);

    cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz (to: Bytes, from: CUdeviceptr, bytes: usize, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), Kind::DeviceToHost, [to.address(), from.0], bytes);

    cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) live
        |driver, flavour| copy(driver, flavour, None, Kind::DeviceToDevice, [to.0, from.0], bytes);

    cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), Kind::DeviceToDevice, [to.0, from.0], bytes);

    cuMemcpy cuMemcpy_ptds (to: CUdeviceptr, from: CUdeviceptr, bytes: usize) live
        |driver, flavour| copy(driver, flavour, None, Kind::Unified, [to.0, from.0], bytes);

    cuMemcpyAsync cuMemcpyAsync_ptsz (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) live
        |driver, flavour| copy(driver, flavour, Some(stream), Kind::Unified, [to.0, from.0], bytes);

    cuMemsetD8_v2 cuMemsetD8_v2_ptds (to: CUdeviceptr, value: c_uchar, count: usize) live
        |driver, flavour| set(driver, flavour, CUstream::NULL, to, 1, value.into(), count);

    cuMemsetD8Async cuMemsetD8Async_ptsz (to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) live
        |driver, flavour| set(driver, flavour, stream, to, 1, value.into(), count);

    cuMemsetD16_v2 cuMemsetD16_v2_ptds (to: CUdeviceptr, value: c_ushort, count: usize) live
        |driver, flavour| set(driver, flavour, CUstream::NULL, to, 2, value.into(), count);

    cuMemsetD16Async cuMemsetD16Async_ptsz (to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) live
        |driver, flavour| set(driver, flavour, stream, to, 2, value.into(), count);

    cuMemsetD32_v2 cuMemsetD32_v2_ptds (to: CUdeviceptr, value: c_uint, count: usize) live
        |driver, flavour| set(driver, flavour, CUstream::NULL, to, 4, value, count);

    cuMemsetD32Async cuMemsetD32Async_ptsz (to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) live
        |driver, flavour| set(driver, flavour, stream, to, 4, value, count);
}
