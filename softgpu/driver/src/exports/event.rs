//! Events.

use std::ffi::c_uint;

use abi::types::{
    CUevent, CUevent_record_flags, CUevent_wait_flags, CUipcEventHandle, CUresult, CUstream,
};

use super::{exports, flavoured};
use crate::driver::Driver;
use crate::raw::Out;

fn number(event: CUevent) -> u64 {
    event.0.addr() as u64
}

fn elapsed(driver: &Driver, ms: &Out<f32>, start: CUevent, end: CUevent) -> Result<(), CUresult> {
    ms.set(driver.elapsed_ms(number(start), number(end))?)
}

exports! {
    cuEventCreate(event: Out<CUevent>, flags: c_uint) |driver| {
        if event.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let handle = driver.create_event(flags)?;
        event.set(CUevent(std::ptr::without_provenance_mut(handle as usize)))
    };

    cuEventDestroy_v2(event: CUevent) |driver| driver.destroy_event(number(event));

    cuEventQuery(event: CUevent) live |driver| driver.query_event(number(event));

    cuEventSynchronize(event: CUevent) live |driver| driver.synchronise_event(number(event));

    cuIpcGetEventHandle(handle: Out<CUipcEventHandle>, event: CUevent) |driver| {
        if handle.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        handle.set(driver.ipc_event_handle(number(event))?)
    };

    cuIpcOpenEventHandle(event: Out<CUevent>, handle: CUipcEventHandle) |driver| {
        if event.is_null() {
            return Err(CUresult::INVALID_VALUE);
        }
        let opened = driver.open_ipc_event(&handle)?;
        event.set(CUevent(std::ptr::without_provenance_mut(opened as usize)))
    };

    cuEventElapsedTime(ms: Out<f32>, start: CUevent, end: CUevent) |driver| elapsed(driver, &ms, start, end);

    cuEventElapsedTime_v2(ms: Out<f32>, start: CUevent, end: CUevent) |driver| elapsed(driver, &ms, start, end);
}

flavoured! {
    cuEventRecord cuEventRecord_ptsz (event: CUevent, stream: CUstream) live |driver, flavour| {
        let stream = driver.stream(stream, flavour)?;
        driver.record_event(number(event), &stream, false)
    };

    cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (event: CUevent, stream: CUstream, flags: c_uint) live
        |driver, flavour| {
            if flags & !CUevent_record_flags::EXTERNAL.0 != 0 {
                return Err(CUresult::INVALID_VALUE);
            }
            let stream = driver.stream(stream, flavour)?;
            driver.record_event(number(event), &stream, flags == CUevent_record_flags::EXTERNAL.0)
        };

    cuStreamWaitEvent cuStreamWaitEvent_ptsz (stream: CUstream, event: CUevent, flags: c_uint) live
        |driver, flavour| {
            if flags & !CUevent_wait_flags::EXTERNAL.0 != 0 {
                return Err(CUresult::INVALID_VALUE);
            }
            let stream = driver.stream(stream, flavour)?;
            driver.wait_event(&stream, number(event), flags == CUevent_wait_flags::EXTERNAL.0)
        };
}
