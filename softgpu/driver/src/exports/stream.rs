//! Streams.

use std::ffi::{c_int, c_uint};

use abi::types::{
    CUcontext, CUdevice, CUgreenCtx, CUlaunchAttributeID, CUlaunchAttributeValue, CUresult,
    CUstream,
};
use softgpu::wire::StreamKind;

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::raw::{In, Out};

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
}

flavoured! {
    cuStreamGetCtx cuStreamGetCtx_ptsz (stream: CUstream, context: Out<CUcontext>) |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        let handle = stream.green.unwrap_or(stream.context);
        context.set(CUcontext(std::ptr::without_provenance_mut(handle as usize)))
    };

    cuStreamGetFlags cuStreamGetFlags_ptsz (stream: CUstream, flags: Out<c_uint>)
        |driver, flavour| flags.set(driver.stream(stream, flavour)?.flags);

    cuStreamGetPriority cuStreamGetPriority_ptsz (stream: CUstream, priority: Out<c_int>)
        |driver, flavour| priority.set(driver.stream(stream, flavour)?.priority);

    cuStreamSynchronize cuStreamSynchronize_ptsz (stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.synchronise_stream(&stream)
    };

    cuStreamQuery cuStreamQuery_ptsz (stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.query_stream(&stream)
    };

    cuStreamGetId cuStreamGetId_ptsz (stream: CUstream, id: Out<u64>)
        |driver, flavour| id.set(driver.stream(stream, flavour)?.id);

    cuStreamGetDevice cuStreamGetDevice_ptsz (stream: CUstream, device: Out<CUdevice>) |driver, flavour| {
        let context = driver.stream(stream, flavour)?.context;
        device.set(CUdevice(driver.context(context)?.device as c_int))
    };

    cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz
        (stream: CUstream, context: Out<CUcontext>, green: Out<CUgreenCtx>)
        |driver, flavour| {
            let stream = driver.stream(stream, flavour)?;
            let found = stream.green.and_then(|of| driver.context(of).ok()?.green);
            green.set_if_wanted(found.map_or(CUgreenCtx::NULL, |found| {
                CUgreenCtx(std::ptr::without_provenance_mut(found.handle as usize))
            }));
            context.set(CUcontext(std::ptr::without_provenance_mut(stream.context as usize)))
        };

    cuStreamSetAttribute cuStreamSetAttribute_ptsz
        (stream: CUstream, attribute: CUlaunchAttributeID, value: In<CUlaunchAttributeValue>)
        |driver, flavour| {
            let stream = driver.stream(stream, flavour)?;
            let value = value.get()?;
            match attribute {
                // A default stream's priority cannot change.
                CUlaunchAttributeID::PRIORITY if stream.kind != StreamKind::Legacy => {
                    driver.set_stream_priority(&stream, value.as_int())
                }
                // Hints about caches and waiting, which the model ignores.
                CUlaunchAttributeID::ACCESS_POLICY_WINDOW
                | CUlaunchAttributeID::SYNCHRONIZATION_POLICY
                | CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP
                | CUlaunchAttributeID::MEM_SYNC_DOMAIN => Ok(()),
                _ => Err(CUresult::INVALID_VALUE),
            }
        };

    cuStreamGetAttribute cuStreamGetAttribute_ptsz
        (stream: CUstream, attribute: CUlaunchAttributeID, value: Out<CUlaunchAttributeValue>)
        |driver, flavour| {
            let stream = driver.stream(stream, flavour)?;
            match attribute {
                CUlaunchAttributeID::PRIORITY => {
                    value.set(CUlaunchAttributeValue::from_int(stream.priority))
                }
                // They were ignored when set, so they have their defaults.
                CUlaunchAttributeID::ACCESS_POLICY_WINDOW
                | CUlaunchAttributeID::SYNCHRONIZATION_POLICY
                | CUlaunchAttributeID::MEM_SYNC_DOMAIN => {
                    value.set(CUlaunchAttributeValue { bytes: [0; 64] })
                }
                _ => Err(CUresult::INVALID_VALUE),
            }
        };

    cuStreamCopyAttributes cuStreamCopyAttributes_ptsz (to: CUstream, from: CUstream) |driver, flavour| {
        let [to, from] = [to, from].map(|stream| driver.stream(stream, flavour));
        let (to, from) = (to?, from?);
        if to.context != from.context {
            return Err(CUresult::INVALID_VALUE);
        }
        driver.set_stream_priority(&to, from.priority)
    };
}
