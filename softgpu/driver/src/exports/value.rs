//! Values in memory that streams wait for and write. The forms before CUDA 11.7, which drivers
//! offer behind a switch, behave the same here.

use std::ffi::c_uint;

use abi::types::{CUdeviceptr, CUresult, CUstream, CUstreamBatchMemOpParams};
use softgpu::wire::Work;

use super::flavoured;
use crate::driver::Driver;
use crate::raw::In;
use crate::streams::Flavour;
use crate::values::BATCH_MAX;

fn wait(
    driver: &Driver,
    (stream, flavour): (CUstream, Flavour),
    at: CUdeviceptr,
    (width_bytes, value): (u32, u64),
    flags: c_uint,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    let operation = driver.check_wait(at.0, width_bytes, value, flags)?;
    driver.put_operations(&stream, &[operation])
}

fn write(
    driver: &Driver,
    (stream, flavour): (CUstream, Flavour),
    to: CUdeviceptr,
    (width_bytes, value): (u32, u64),
    flags: c_uint,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    let operation = driver.check_write(to.0, width_bytes, value, flags)?;
    driver.put_operations(&stream, &[operation])
}

/// Puts nothing on the stream unless all of it can be put.
fn batch(
    driver: &Driver,
    (stream, flavour): (CUstream, Flavour),
    count: c_uint,
    operations: &In<CUstreamBatchMemOpParams>,
    flags: c_uint,
) -> Result<(), CUresult> {
    let stream = driver.stream(stream, flavour)?;
    if count > BATCH_MAX || flags != 0 {
        return Err(CUresult::INVALID_VALUE);
    }
    let operations: Vec<Option<Work>> = (0..count as usize)
        .map(|index| driver.check_batched(&operations.at(index)?))
        .collect::<Result<_, _>>()?;
    let operations: Vec<Work> = operations.into_iter().flatten().collect();
    driver.put_operations(&stream, &operations)
}

flavoured! {
    cuStreamWaitValue32 cuStreamWaitValue32_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) live
        |driver, flavour| wait(driver, (stream, flavour), address, (4, value.into()), flags);

    cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) live
        |driver, flavour| wait(driver, (stream, flavour), address, (4, value.into()), flags);

    cuStreamWaitValue64 cuStreamWaitValue64_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) live
        |driver, flavour| wait(driver, (stream, flavour), address, (8, value), flags);

    cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) live
        |driver, flavour| wait(driver, (stream, flavour), address, (8, value), flags);

    cuStreamWriteValue32 cuStreamWriteValue32_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) live
        |driver, flavour| write(driver, (stream, flavour), address, (4, value.into()), flags);

    cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) live
        |driver, flavour| write(driver, (stream, flavour), address, (4, value.into()), flags);

    cuStreamWriteValue64 cuStreamWriteValue64_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) live
        |driver, flavour| write(driver, (stream, flavour), address, (8, value), flags);

    cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) live
        |driver, flavour| write(driver, (stream, flavour), address, (8, value), flags);

    cuStreamBatchMemOp cuStreamBatchMemOp_ptsz
        (stream: CUstream, count: c_uint, operations: In<CUstreamBatchMemOpParams>, flags: c_uint) live
        |driver, flavour| batch(driver, (stream, flavour), count, &operations, flags);

    cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz
        (stream: CUstream, count: c_uint, operations: In<CUstreamBatchMemOpParams>, flags: c_uint) live
        |driver, flavour| batch(driver, (stream, flavour), count, &operations, flags);
}
