//! The creation of contexts: when a process becomes a client.

use core::ffi::{c_int, c_uint, c_void};

use abi::types::{CUcontext, CUdevice, CUexecAffinityParam, CUresult};

use super::{hook, stored};
use crate::lifecycle;

hook! {
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    // SAFETY: this call's output parameter.
    after |_, result| unsafe { handle_created(context, device, result) };
}

hook! {
    cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, result) };
}

hook! {
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, result) };
}

hook! {
    cuCtxCreate_v3(
        context: *mut CUcontext,
        affinities: *mut CUexecAffinityParam,
        count: c_int,
        flags: c_uint,
        device: CUdevice,
    );
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, result) };
}

hook! {
    cuCtxCreate_v4(
        context: *mut CUcontext,
        parameters: *mut c_void,
        flags: c_uint,
        device: CUdevice,
    );
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, result) };
}

/// # Safety
/// As [`stored`].
unsafe fn handle_created(context: *const CUcontext, device: CUdevice, result: CUresult) {
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { stored(context, result) }.filter(|c| !c.is_null()) {
        lifecycle::handle_context(context, device);
    }
}
