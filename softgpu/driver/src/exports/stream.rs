//! Streams.

use std::ffi::{c_int, c_uint};

use abi::types::{CUcontext, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::raw::Out;
use crate::thread;

fn create(
    driver: &Driver,
    stream: &Out<CUstream>,
    flags: c_uint,
    priority: c_int,
) -> Result<(), CUresult> {
    if stream.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let handle = driver.create_asked_stream(flags, priority)?;
    stream.set(CUstream(std::ptr::without_provenance_mut(handle as usize)))
}

exports! {
    cuStreamCreate(stream: Out<CUstream>, flags: c_uint) |driver| create(driver, &stream, flags, 0);

    cuStreamCreateWithPriority(stream: Out<CUstream>, flags: c_uint, priority: c_int)
        |driver| create(driver, &stream, flags, priority);

    cuStreamDestroy_v2(stream: CUstream) |driver| driver.destroy_stream(stream.0.addr() as u64);

    // Nothing is ever captured, so the mode forbids nothing; it is kept for whoever reads it back.
    cuThreadExchangeStreamCaptureMode(mode: Out<CUstreamCaptureMode>) |_| {
        let asked = mode.get()?;
        if asked.name().is_none() {
            return Err(CUresult::INVALID_VALUE);
        }
        mode.set(CUstreamCaptureMode(thread::exchange_capture_mode(asked.0)))
    };
}

flavoured! {
    cuStreamGetCtx cuStreamGetCtx_ptsz (stream: CUstream, context: Out<CUcontext>) |driver, flavour| {
        let handle = driver.stream(stream, flavour)?.context;
        context.set(CUcontext(std::ptr::without_provenance_mut(handle as usize)))
    };

    cuStreamGetFlags cuStreamGetFlags_ptsz (stream: CUstream, flags: Out<c_uint>)
        |driver, flavour| flags.set(driver.stream(stream, flavour)?.flags);

    cuStreamGetPriority cuStreamGetPriority_ptsz (stream: CUstream, priority: Out<c_int>)
        |driver, flavour| priority.set(driver.stream(stream, flavour)?.priority);

    cuStreamIsCapturing cuStreamIsCapturing_ptsz (stream: CUstream, status: Out<CUstreamCaptureStatus>)
        |driver, flavour| {
            driver.stream(stream, flavour)?;
            status.set(CUstreamCaptureStatus::NONE)
        };

    cuStreamSynchronize cuStreamSynchronize_ptsz (stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.synchronise_stream(&stream)
    };

    cuStreamQuery cuStreamQuery_ptsz (stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.query_stream(&stream)
    };
}
