//! One-dimensional copies to and from arrays and between contexts, and the forms of CUDA 2.

use std::ffi::{c_uchar, c_uint, c_ushort};

use abi::types::{CUarray, CUcontext, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use softgpu::wire::Extent;

use super::copy::{copy, set};
use super::{exports, flavoured};
use crate::boxes::{BoxCopy, Memory, Side};
use crate::copies::Kind;
use crate::driver::Driver;
use crate::raw::Bytes;
use crate::streams::Flavour;

fn number(address: impl Into<Address>) -> u64 {
    address.into().0
}

struct Address(u64);

impl From<CUdeviceptr_v1> for Address {
    fn from(address: CUdeviceptr_v1) -> Self {
        Self(address.0.into())
    }
}

impl From<CUdeviceptr> for Address {
    fn from(address: CUdeviceptr) -> Self {
        Self(address.0)
    }
}

enum End {
    Array(CUarray, u64),
    Device(u64),
    Host(Bytes),
}

fn copy_array(
    driver: &Driver,
    flavour: Flavour,
    stream: Option<CUstream>,
    [to, from]: [End; 2],
    bytes: u64,
) -> Result<(), CUresult> {
    let waits = stream.is_none();
    let stream = driver.stream(stream.unwrap_or(CUstream::NULL), flavour)?;
    let side = |end: End| {
        let memory = match end {
            End::Array(array, offset) => {
                Memory::Inside(driver.array_row(array.0.addr() as u64, offset, bytes)?)
            }
            End::Device(address) => Memory::Device(address),
            End::Host(bytes) => Memory::Host(bytes.address()),
        };
        Ok(Side {
            memory,
            offset: [0; 3],
            pitch: [bytes, 1],
        })
    };
    let extent = Extent {
        width: bytes,
        height: 1,
        depth: 1,
    };
    let copy = BoxCopy {
        to: side(to)?,
        from: side(from)?,
        extent,
        waits,
    };
    driver.copy_box(&stream, &copy)
}

/// Copies between contexts, which must exist.
fn copy_peer(
    driver: &Driver,
    flavour: Flavour,
    stream: Option<CUstream>,
    [to, from]: [u64; 2],
    contexts: [CUcontext; 2],
    bytes: usize,
) -> Result<(), CUresult> {
    for context in contexts {
        driver.context(context.0.addr() as u64)?;
    }
    copy(
        driver,
        flavour,
        stream,
        Kind::DeviceToDevice,
        [to, from],
        bytes,
    )
}

/// The forms of CUDA 2, which have one flavour.
const LEGACY: Flavour = Flavour::Legacy;

/// Defines the forms of a copy with an array: of CUDA 2, and current, stream-ordered or not.
macro_rules! array_copies {
    ($v1:ident $plain:ident $per_thread:ident
        ($($arg:ident: $v1_type:ty | $type:ty),*) $to:expr, $from:expr) => {
        exports! {
            $v1($($arg: $v1_type),*, bytes: c_uint) live |driver| {
                copy_array(driver, LEGACY, None, [$to, $from], bytes.into())
            };
        }
        flavoured! {
            $plain $per_thread ($($arg: $type),*, bytes: usize) live |driver, flavour| {
                copy_array(driver, flavour, None, [$to, $from], bytes as u64)
            };
        }
    };
    (async $v1:ident $plain:ident $per_thread:ident
        ($($arg:ident: $v1_type:ty | $type:ty),*) $to:expr, $from:expr) => {
        exports! {
            $v1($($arg: $v1_type),*, bytes: c_uint, stream: CUstream) live |driver| {
                copy_array(driver, LEGACY, Some(stream), [$to, $from], bytes.into())
            };
        }
        flavoured! {
            $plain $per_thread ($($arg: $type),*, bytes: usize, stream: CUstream) live
                |driver, flavour| {
                    copy_array(driver, flavour, Some(stream), [$to, $from], bytes as u64)
                };
        }
    };
}

array_copies!(cuMemcpyHtoA cuMemcpyHtoA_v2 cuMemcpyHtoA_v2_ptds
    (to: CUarray | CUarray, at: c_uint | usize, from: Bytes | Bytes)
    End::Array(to, at as u64), End::Host(from));
array_copies!(async cuMemcpyHtoAAsync cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz
    (to: CUarray | CUarray, at: c_uint | usize, from: Bytes | Bytes)
    End::Array(to, at as u64), End::Host(from));
array_copies!(cuMemcpyAtoH cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds
    (to: Bytes | Bytes, from: CUarray | CUarray, at: c_uint | usize)
    End::Host(to), End::Array(from, at as u64));
array_copies!(async cuMemcpyAtoHAsync cuMemcpyAtoHAsync_v2 cuMemcpyAtoHAsync_v2_ptsz
    (to: Bytes | Bytes, from: CUarray | CUarray, at: c_uint | usize)
    End::Host(to), End::Array(from, at as u64));
array_copies!(cuMemcpyDtoA cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds
    (to: CUarray | CUarray, at: c_uint | usize, from: CUdeviceptr_v1 | CUdeviceptr)
    End::Array(to, at as u64), End::Device(number(from)));
array_copies!(cuMemcpyAtoD cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds
    (to: CUdeviceptr_v1 | CUdeviceptr, from: CUarray | CUarray, at: c_uint | usize)
    End::Device(number(to)), End::Array(from, at as u64));
array_copies!(cuMemcpyAtoA cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds
    (to: CUarray | CUarray, at: c_uint | usize, from: CUarray | CUarray, from_at: c_uint | usize)
    End::Array(to, at as u64), End::Array(from, from_at as u64));

exports! {
    cuMemcpyHtoD(to: CUdeviceptr_v1, from: Bytes, bytes: c_uint) live
        |driver| copy(driver, LEGACY, None, Kind::HostToDevice, [to.0.into(), from.address()], bytes as usize);
    cuMemcpyHtoDAsync(to: CUdeviceptr_v1, from: Bytes, bytes: c_uint, stream: CUstream) live
        |driver| copy(driver, LEGACY, Some(stream), Kind::HostToDevice, [to.0.into(), from.address()], bytes as usize);
    cuMemcpyDtoH(to: Bytes, from: CUdeviceptr_v1, bytes: c_uint) live
        |driver| copy(driver, LEGACY, None, Kind::DeviceToHost, [to.address(), from.0.into()], bytes as usize);
    cuMemcpyDtoHAsync(to: Bytes, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream) live
        |driver| copy(driver, LEGACY, Some(stream), Kind::DeviceToHost, [to.address(), from.0.into()], bytes as usize);
    cuMemcpyDtoD(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint) live
        |driver| copy(driver, LEGACY, None, Kind::DeviceToDevice, [to.0.into(), from.0.into()], bytes as usize);
    cuMemcpyDtoDAsync(to: CUdeviceptr_v1, from: CUdeviceptr_v1, bytes: c_uint, stream: CUstream) live
        |driver| copy(driver, LEGACY, Some(stream), Kind::DeviceToDevice, [to.0.into(), from.0.into()], bytes as usize);

    cuMemsetD8(to: CUdeviceptr_v1, value: c_uchar, count: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, CUdeviceptr(to.0.into()), 1, value.into(), count as usize);
    cuMemsetD16(to: CUdeviceptr_v1, value: c_ushort, count: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, CUdeviceptr(to.0.into()), 2, value.into(), count as usize);
    cuMemsetD32(to: CUdeviceptr_v1, value: c_uint, count: c_uint) live
        |driver| set(driver, LEGACY, CUstream::NULL, CUdeviceptr(to.0.into()), 4, value, count as usize);
}

flavoured! {
    cuMemcpyPeer cuMemcpyPeer_ptds (
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize
    ) live |driver, flavour|
        copy_peer(driver, flavour, None, [to.0, from.0], [to_context, from_context], bytes);

    cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz (
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream
    ) live |driver, flavour|
        copy_peer(driver, flavour, Some(stream), [to.0, from.0], [to_context, from_context], bytes);
}
