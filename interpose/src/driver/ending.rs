//! The only calls of ours that wait for the device: in a process that is dying of a signal ([`crate::signals`]).

use core::ffi::c_void;

use abi::types::{CUresult, CUstream};

use crate::{real, sys};

/// Looks both up, so that they need no lock later.
#[cfg(not(shim))]
pub(crate) fn look_up() {
    real::entry_point(abi::id::cuCtxSynchronize);
    real::entry_point(abi::id::cuStreamSynchronize);
}

/// Waits for all work in the calling thread's context.
pub(crate) fn synchronize_context() -> CUresult {
    call!(cuCtxSynchronize())
}

/// Waits for all work in the stream.
pub(crate) fn synchronize_stream(stream: CUstream) -> CUresult {
    call!(cuStreamSynchronize(stream => CUstream))
}
