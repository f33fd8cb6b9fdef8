//! Order between streams on the device: waits for events, for values in memory and for semaphores,
//! and writes of such values. Nothing here launches a kernel or shows completion to the host; these
//! hooks only see the call. A stream that waits for a value which never comes blocks only itself:
//! its later work stays in flight.

use core::ffi::{c_uint, c_void};

use abi::types::{CUcontext, CUdeviceptr, CUevent, CUgreenCtx, CUstream};

use super::hook;

macro_rules! order {
    ($name:ident, $per_thread:ident $parameters:tt) => {
        order!(@one $name $parameters);
        order!(@one $per_thread $parameters);
    };
    (@one $name:ident ($($argument:ident: $type:ty),*)) => {
        hook! {
            $name($($argument: $type),*);
            after |_, _| ();
        }
    };
}

order!(
    cuStreamWaitEvent,
    cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint)
);
order!(
    cuStreamWaitValue32,
    cuStreamWaitValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint)
);
order!(
    cuStreamWaitValue32_v2,
    cuStreamWaitValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint)
);
order!(
    cuStreamWaitValue64,
    cuStreamWaitValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint)
);
order!(
    cuStreamWaitValue64_v2,
    cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint)
);
order!(
    cuStreamWriteValue32,
    cuStreamWriteValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint)
);
order!(
    cuStreamWriteValue32_v2,
    cuStreamWriteValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint)
);
order!(
    cuStreamWriteValue64,
    cuStreamWriteValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint)
);
order!(
    cuStreamWriteValue64_v2,
    cuStreamWriteValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint)
);
order!(
    cuStreamBatchMemOp,
    cuStreamBatchMemOp_ptsz(
        stream: CUstream,
        count: c_uint,
        operations: *mut c_void,
        flags: c_uint
    )
);
order!(
    cuStreamBatchMemOp_v2,
    cuStreamBatchMemOp_v2_ptsz(
        stream: CUstream,
        count: c_uint,
        operations: *mut c_void,
        flags: c_uint
    )
);
order!(
    cuSignalExternalSemaphoresAsync,
    cuSignalExternalSemaphoresAsync_ptsz(
        semaphores: *const c_void,
        parameters: *const c_void,
        count: c_uint,
        stream: CUstream
    )
);
order!(
    cuWaitExternalSemaphoresAsync,
    cuWaitExternalSemaphoresAsync_ptsz(
        semaphores: *const c_void,
        parameters: *const c_void,
        count: c_uint,
        stream: CUstream
    )
);

order!(@one cuCtxWaitEvent (context: CUcontext, event: CUevent));
order!(@one cuGreenCtxWaitEvent (context: CUgreenCtx, event: CUevent));
