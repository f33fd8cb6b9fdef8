//! Green contexts.

use std::ffi::{c_int, c_uint};

use abi::types::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent, CUgreenCtx,
    CUresult, CUstream, CUstream_flags,
};
use softgpu::wire::StreamKind;

use super::exports;
use crate::raw::{In, Out, handle};
use crate::streams::Flavour;

fn number(green: CUgreenCtx) -> u64 {
    green.0.addr() as u64
}

exports! {
    cuDeviceGetDevResource(device: CUdevice, resource: Out<CUdevResource>, kind: CUdevResourceType) |driver| {
        resource.set(driver.device_resource(device, kind)?)
    };

    cuCtxGetDevResource(context: CUcontext, resource: Out<CUdevResource>, kind: CUdevResourceType)
        |driver| resource.set(driver.context_resource(context.0.addr() as u64, kind)?);

    cuGreenCtxGetDevResource(green: CUgreenCtx, resource: Out<CUdevResource>, kind: CUdevResourceType)
        |driver| {
            let context = driver.context_of_green(number(green))?;
            resource.set(driver.context_resource(context, kind)?)
        };

    cuDevSmResourceSplitByCount(
        result: Out<CUdevResource>, groups: Out<c_uint>, input: In<CUdevResource>, left: Out<CUdevResource>,
        flags: c_uint, least: c_uint,
    ) |driver| {
        let wanted = groups.get()?;
        let wanted = (!result.is_null()).then_some(wanted);
        let (parts, remainder, made) = driver.split(&input.get()?, wanted, flags, least)?;
        for (index, part) in parts.into_iter().enumerate() {
            result.set_at(index, part)?;
        }
        left.set_if_wanted(remainder);
        groups.set(made)
    };

    cuDevResourceGenerateDesc(made: Out<CUdevResourceDesc>, resources: In<CUdevResource>, count: c_uint)
        |driver| {
            if made.is_null() {
                return Err(CUresult::INVALID_VALUE);
            }
            let description = driver.describe_resources(count, |index| resources.at(index))?;
            made.set(CUdevResourceDesc(handle(description)))
        };

    cuGreenCtxCreate(
        green: Out<CUgreenCtx>, resources: CUdevResourceDesc, device: CUdevice, flags: c_uint,
    ) |driver| {
        if green.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let made = driver.create_green(resources.0.addr() as u64, device, flags)?;
        green.set(CUgreenCtx(handle(made)))
    };

    cuGreenCtxDestroy(green: CUgreenCtx) |driver| driver.destroy_green(number(green));

    cuCtxFromGreenCtx(context: Out<CUcontext>, green: CUgreenCtx)
        |driver| context.set(CUcontext(handle(driver.context_of_green(number(green))?)));

    cuGreenCtxStreamCreate(stream: Out<CUstream>, green: CUgreenCtx, flags: c_uint, priority: c_int)
        |driver| {
            let context = driver.context_of_green(number(green))?;
            if stream.is_null() || CUstream_flags(flags) != CUstream_flags::NON_BLOCKING {
                return Err(CUresult::INVALID_VALUE);
            }
            let made = driver.create_stream(context, flags, priority, StreamKind::NonBlocking)?;
            stream.set(CUstream(handle(made)))
        };

    cuStreamGetGreenCtx(stream: CUstream, green: Out<CUgreenCtx>) |driver| {
        let context = driver.stream(stream, Flavour::Legacy)?.green;
        let found = context.and_then(|context| driver.context(context).ok()?.green);
        green.set(found.map_or(CUgreenCtx::NULL, |found| CUgreenCtx(handle(found.handle))))
    };

    cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) |driver| {
        let context = driver.context_of_green(number(green))?;
        driver.record_context(context, event.0.addr() as u64)
    };

    cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) |driver| {
        let context = driver.context_of_green(number(green))?;
        driver.wait_in_context(context, event.0.addr() as u64)
    };
}
