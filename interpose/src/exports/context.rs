//! Contexts: when a process becomes a client, and when streams end that nobody destroyed.

use core::ffi::{c_int, c_uint, c_void};

use abi::types::{CUcontext, CUdevice, CUexecAffinityParam, CUresult};

use super::{hook, stored};
use crate::client::Client;
use crate::contexts::{CONTEXTS, Kind};
use crate::streams::STREAMS;
use crate::{completion, driver, helper, lifecycle, marks};

hook! {
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    // SAFETY: this call's output parameter.
    after |_, result| unsafe { handle_created(context, device, Kind::Primary, result) };
}

hook! {
    cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

hook! {
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
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
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

hook! {
    cuCtxCreate_v4(
        context: *mut CUcontext,
        parameters: *mut c_void,
        flags: c_uint,
        device: CUdevice,
    );
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

/// Defines the end of a created context.
macro_rules! destroy {
    ($name:ident) => {
        hook! {
            $name(context: CUcontext);
            before |client| client.map(|_| helper::keep_out());
            after |client, _, result| {
                if let Some(client) = client.filter(|_| result == CUresult::SUCCESS) {
                    handle_destroyed(client, context);
                }
            };
        }
    };
}

destroy!(cuCtxDestroy);
destroy!(cuCtxDestroy_v2);

/// Defines what may end a device's primary context: it does if it was retained only once.
macro_rules! release {
    ($name:ident) => {
        hook! {
            $name(device: CUdevice);
            before |client| client.map(|_| helper::keep_out());
            after |client, _, _| {
                if let Some(client) = client {
                    handle_released(client, device);
                }
            };
        }
    };
}

release!(cuDevicePrimaryCtxRelease);
release!(cuDevicePrimaryCtxRelease_v2);
release!(cuDevicePrimaryCtxReset);
release!(cuDevicePrimaryCtxReset_v2);

/// # Safety
/// As [`stored`].
unsafe fn handle_created(
    context: *const CUcontext,
    device: CUdevice,
    kind: Kind,
    result: CUresult,
) {
    // SAFETY: the caller's promise.
    if let Some(context) = unsafe { stored(context, result) }.filter(|c| !c.is_null()) {
        lifecycle::handle_context(context, device, kind);
    }
}

/// A context is gone: what ran in it is over, and its streams and our events went with it. The
/// helper is kept out of the driver until this returns.
fn handle_destroyed(client: &Client, context: CUcontext) {
    for index in STREAMS.take_out_context(context) {
        let Some(slot) = STREAMS.slot(index) else {
            continue;
        };
        marks::forget(slot);
        completion::complete(client, index, slot.issued());
        STREAMS.free(index);
    }
    CONTEXTS.handle_destroyed(context);
}

fn handle_released(client: &Client, device: CUdevice) {
    let Some(context) = CONTEXTS.primary_of(device) else {
        return;
    };
    if !driver::is_primary_context_active(device) {
        handle_destroyed(client, context);
    }
}
