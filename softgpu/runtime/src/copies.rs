//! Copies, with the direction that the program states.

use std::ffi::{c_int, c_void};

use abi::types::{CUDA_MEMCPY2D, CUarray, CUdeviceptr, CUmemorytype, CUstream};

use crate::driver::Driver;
use crate::error::Error;

/// `enum cudaMemcpyKind`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(c_int);

impl Kind {
    const HOST_TO_HOST: Self = Self(0);
    pub(crate) const HOST_TO_DEVICE: Self = Self(1);
    const DEVICE_TO_HOST: Self = Self(2);
    const DEVICE_TO_DEVICE: Self = Self(3);
    /// The driver determines it from the addresses.
    const DEFAULT: Self = Self(4);
}

/// An address that is the same number for host and device.
pub(crate) fn unified(address: *const c_void) -> CUdeviceptr {
    CUdeviceptr(address.expose_provenance() as u64)
}

pub(crate) fn copy(
    driver: &Driver,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: Kind,
) -> Result<(), Error> {
    match kind {
        Kind::HOST_TO_DEVICE => driver.cuMemcpyHtoD(unified(to), from, bytes),
        Kind::DEVICE_TO_HOST => driver.cuMemcpyDtoH(to, unified(from), bytes),
        Kind::DEVICE_TO_DEVICE => driver.cuMemcpyDtoD(unified(to), unified(from), bytes),
        Kind::HOST_TO_HOST | Kind::DEFAULT => driver.cuMemcpy(unified(to), unified(from), bytes),
        _ => Err(Error::INVALID_MEMCPY_DIRECTION),
    }
}

pub(crate) fn copy_async(
    driver: &Driver,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: Kind,
    stream: CUstream,
) -> Result<(), Error> {
    match kind {
        Kind::HOST_TO_DEVICE => driver.cuMemcpyHtoDAsync(unified(to), from, bytes, stream),
        Kind::DEVICE_TO_HOST => driver.cuMemcpyDtoHAsync(to, unified(from), bytes, stream),
        Kind::DEVICE_TO_DEVICE => {
            driver.cuMemcpyDtoDAsync(unified(to), unified(from), bytes, stream)
        }
        Kind::HOST_TO_HOST | Kind::DEFAULT => {
            driver.cuMemcpyAsync(unified(to), unified(from), bytes, stream)
        }
        _ => Err(Error::INVALID_MEMCPY_DIRECTION),
    }
}

/// Rows of memory, `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) address: *const c_void,
    pub(crate) pitch: usize,
}

/// `cudaMemcpy2DAsync`: `height` rows of `width` bytes.
pub(crate) fn copy_2d_async(
    driver: &Driver,
    to: Rows,
    from: Rows,
    [width, height]: [usize; 2],
    kind: Kind,
    stream: CUstream,
) -> Result<(), Error> {
    use CUmemorytype as Place;
    let (source, target) = match kind {
        Kind::HOST_TO_HOST => (Place::HOST, Place::HOST),
        Kind::HOST_TO_DEVICE => (Place::HOST, Place::DEVICE),
        Kind::DEVICE_TO_HOST => (Place::DEVICE, Place::HOST),
        Kind::DEVICE_TO_DEVICE => (Place::DEVICE, Place::DEVICE),
        Kind::DEFAULT => (Place::UNIFIED, Place::UNIFIED),
        _ => return Err(Error::INVALID_MEMCPY_DIRECTION),
    };
    let copy = CUDA_MEMCPY2D {
        src_x_in_bytes: 0,
        src_y: 0,
        src_memory_type: source,
        src_host: from.address,
        src_device: unified(from.address),
        src_array: CUarray::NULL,
        src_pitch: from.pitch,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_memory_type: target,
        dst_host: to.address.cast_mut(),
        dst_device: unified(to.address),
        dst_array: CUarray::NULL,
        dst_pitch: to.pitch,
        width_in_bytes: width,
        height,
    };
    driver.cuMemcpy2DAsync(&raw const copy, stream)
}
