//! Contexts: when a process becomes a client, and when streams end with their context.

use core::ffi::{c_int, c_uint, c_void};

use abi::types::{
    CUcontext, CUdevResourceDesc, CUdevice, CUexecAffinityParam, CUgreenCtx, CUresult,
};
use client::marks::Marks;

use super::{hook, stored};
use crate::daemon::lifecycle;
use crate::driver;
use crate::kernels::KERNELS;
use crate::memory::quota::HELD;
use crate::process::{Handle, account};
use crate::progress::contexts::{CONTEXTS, Kind};
use crate::progress::streams::STREAMS;
use crate::progress::waking::KeptOut;
use crate::progress::{completion, recorder, stream_events, waking};

hook! {
    always cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    // SAFETY: this call's output parameter.
    after |_, result| unsafe { handle_created(context, device, Kind::Primary, result) };
}

hook! {
    always cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

hook! {
    always cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice);
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

hook! {
    always cuCtxCreate_v3(
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
    always cuCtxCreate_v4(
        context: *mut CUcontext,
        parameters: *mut c_void,
        flags: c_uint,
        device: CUdevice,
    );
    // SAFETY: as above.
    after |_, result| unsafe { handle_created(context, device, Kind::Created, result) };
}

macro_rules! destroy {
    ($name:ident) => {
        hook! {
            always $name(context: CUcontext);
            before |_| keep_out();
            after |_, _, result| {
                if result == CUresult::SUCCESS {
                    handle_destroyed(context);
                }
            };
        }
    };
}

destroy!(cuCtxDestroy);
destroy!(cuCtxDestroy_v2);

hook! {
    always cuCtxAttach(context: *mut CUcontext, flags: c_uint);
    // SAFETY: this call's output parameter.
    after |_, result| if let Some(context) = unsafe { stored(context, result) } {
        CONTEXTS.handle_attached(context);
    };
}

hook! {
    always cuCtxDetach(context: CUcontext);
    before |_| keep_out();
    after |_, _, result| {
        // The last detach destroys it. Counted and not asked, as the handle may be invalid by now.
        if result == CUresult::SUCCESS && CONTEXTS.handle_detached(context) {
            handle_destroyed(context);
        }
    };
}

hook! {
    always cuGreenCtxCreate(
        context: *mut CUgreenCtx,
        description: CUdevResourceDesc,
        device: CUdevice,
        flags: c_uint,
    );
    // SAFETY: this call's output parameter.
    after |_, result| if let Some(green) = unsafe { stored(context, result) } {
        handle_green(green);
    };
}

hook! {
    always cuCtxFromGreenCtx(context: *mut CUcontext, green: CUgreenCtx);
    after |_, result| if result == CUresult::SUCCESS {
        handle_green(green);
    };
}

hook! {
    always cuGreenCtxDestroy(green: CUgreenCtx);
    // The context cannot be found afterwards.
    before |_| (keep_out(), driver::context_of_green(green).ok());
    after |_, (_, known), result| {
        if let (Some((context, device)), CUresult::SUCCESS) = (known, result) {
            handle_green_destroyed(*context, *device);
        }
    };
}

macro_rules! release {
    ($name:ident) => {
        hook! {
            always $name(device: CUdevice);
            before |_| keep_out();
            after |_, _, _| handle_released(device);
        }
    };
}

release!(cuDevicePrimaryCtxRelease);
release!(cuDevicePrimaryCtxRelease_v2);
release!(cuDevicePrimaryCtxReset);
release!(cuDevicePrimaryCtxReset_v2);

/// Keeps the helpers out of the driver, as a context may end. Reads the record first.
fn keep_out() -> KeptOut {
    let kept_out = waking::keep_out();
    recorder::read_last();
    kept_out
}

/// Safety: as [`stored`].
unsafe fn handle_created(
    context: *const CUcontext,
    device: CUdevice,
    kind: Kind,
    result: CUresult,
) {
    // SAFETY: as the caller promises.
    if let Some(context) = unsafe { stored(context, result) }.filter(|c| !c.is_null()) {
        lifecycle::handle_context(context, device, kind);
    }
}

/// A green context is known by the context that stands for it.
fn handle_green(green: CUgreenCtx) {
    if let Ok((context, device)) = driver::context_of_green(green) {
        lifecycle::handle_context(context, device, Kind::Created);
    }
}

/// A green context is gone. Its memory is the primary context's, and ends with the last retain.
fn handle_green_destroyed(context: CUcontext, device: CUdevice) {
    if driver::is_primary_context_active(device) {
        HELD.blocks
            .handle_green_destroyed(context, CONTEXTS.primary_of(device));
    }
    handle_destroyed(context);
    handle_released(device);
}

/// A context is gone: its work is over, and its streams and our events are gone with it. The
/// helpers are kept out of the driver until this returns.
fn handle_destroyed(context: CUcontext) {
    let device = CONTEXTS.device_of(context);
    // Its modules and memory are gone with it.
    KERNELS.handle_unloaded();
    HELD.blocks.handle_context_destroyed(context);
    HELD.pools.handle_changed();
    for index in STREAMS.take_out_context(context) {
        let Some(slot) = STREAMS.slot(index) else {
            continue;
        };
        stream_events::forget(slot);
        completion::give_up(index, slot, slot.issued());
        STREAMS.free(index);
    }
    recorder::handle_context_destroyed(context);
    stream_events::forget_all_of(STREAMS.used().map(|(_, slot)| slot), Handle::from(context));
    // A capture in it ended too, for which the helpers may have stayed out.
    waking::wake_all();
    CONTEXTS.handle_destroyed(context);
    if let Some(device) = device.filter(|&device| CONTEXTS.count_on(device) == 0) {
        account::handle_last_context_destroyed(device);
    }
}

fn handle_released(device: CUdevice) {
    let Some(context) = CONTEXTS.primary_of(device) else {
        return;
    };
    if !driver::is_primary_context_active(device) {
        handle_destroyed(context);
    }
}
