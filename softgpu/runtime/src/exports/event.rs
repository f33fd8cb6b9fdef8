//! Events.

use std::ffi::c_uint;

use abi::types::{CUevent, CUipcEventHandle, CUstream};

use super::exports;

exports! {
    cudaEventCreate(event: *mut CUevent) |driver| driver.cuEventCreate(event, 0);
    cudaEventCreateWithFlags(event: *mut CUevent, flags: c_uint) |driver| driver.cuEventCreate(event, flags);
    cudaEventDestroy(event: CUevent) |driver| driver.cuEventDestroy(event);
    cudaEventRecord(event: CUevent, stream: CUstream) |driver| driver.cuEventRecord(event, stream);

    cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint)
        |driver| driver.cuEventRecordWithFlags(event, stream, flags);

    cudaEventQuery(event: CUevent) |driver| driver.cuEventQuery(event);
    cudaEventSynchronize(event: CUevent) |driver| driver.cuEventSynchronize(event);

    cudaEventElapsedTime(ms: *mut f32, start: CUevent, end: CUevent)
        |driver| driver.cuEventElapsedTime(ms, start, end);

    cudaIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent)
        |driver| driver.cuIpcGetEventHandle(handle, event);

    cudaIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle)
        |driver| driver.cuIpcOpenEventHandle(event, handle);
}
