//! Our only calls that wait for the device: in a dying process ([`crate::signals::handler`]).

use core::ffi::c_void;

use abi::types::{CUresult, CUstream};

use crate::driver::real;
use crate::platform::sys;

const OF_HELPERS: [usize; 13] = [
    abi::id::cuThreadExchangeStreamCaptureMode,
    abi::id::cuCtxSetCurrent,
    abi::id::cuCtxGetCurrent,
    abi::id::cuCtxPushCurrent_v2,
    abi::id::cuCtxPopCurrent_v2,
    abi::id::cuEventCreate,
    abi::id::cuEventRecord,
    abi::id::cuEventQuery,
    abi::id::cuEventDestroy_v2,
    abi::id::cuStreamIsCapturing,
    abi::id::cuStreamQuery,
    abi::id::cuCtxSynchronize,
    abi::id::cuStreamSynchronize,
];

/// Resolves the helpers' functions before a thread can be stopped with the linker's lock.
pub(crate) fn look_up() {
    for index in OF_HELPERS {
        real::entry_point(index);
    }
}

pub(crate) fn synchronize_context() -> CUresult {
    call!(cuCtxSynchronize())
}

pub(crate) fn synchronize_stream(stream: CUstream) -> CUresult {
    call!(cuStreamSynchronize(stream => CUstream))
}
