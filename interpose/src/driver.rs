//! The driver's functions that we call for ourselves, with safe signatures.
//!
//! Handles are tokens: ours come from the driver or from the application, which vouches for them
//! towards the driver exactly as it does when it passes them there itself. A function that this
//! driver lacks answers [`CUresult::NOT_FOUND`].

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

use abi::types::{
    CUcontext, CUdevice, CUevent, CUevent_flags, CUfunction, CUkernel, CUresult, CUstream,
    CUstreamCaptureMode, CUstreamCaptureStatus, CUuuid,
};

use crate::real;

/// Calls an entry point by its symbol, with arguments of the given types.
macro_rules! call {
    ($symbol:ident($($argument:expr => $type:ty),*)) => {
        match real::entry_point(abi::id::$symbol) {
            None => CUresult::NOT_FOUND,
            Some(address) => {
                // SAFETY: the table's prototype of this symbol has these types; see `abi`.
                let function = unsafe {
                    core::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn($($type),*) -> CUresult,
                    >(address.as_ptr())
                };
                // SAFETY: pointers among the arguments are to locals that outlive the call;
                // handles are the driver's own, see the module's text.
                unsafe { function($($argument),*) }
            }
        }
    };
}

/// Whether this driver has the entry point.
pub(crate) fn has(index: usize) -> bool {
    real::entry_point(index).is_some()
}

/// The calling thread's context; null if it has none.
pub(crate) fn current_context() -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    checked(
        call!(cuCtxGetCurrent(&raw mut context => *mut CUcontext)),
        context,
    )
}

/// Makes `context` the calling thread's.
pub(crate) fn set_current_context(context: CUcontext) -> CUresult {
    call!(cuCtxSetCurrent(context => CUcontext))
}

/// The device of the calling thread's context.
pub(crate) fn current_device() -> Result<CUdevice, CUresult> {
    let mut device = CUdevice::INVALID;
    let result = call!(cuCtxGetDevice(&raw mut device => *mut CUdevice));
    checked(result, device)
}

/// Whether a device's primary context is alive; a driver that does not say is believed to have it.
pub(crate) fn is_primary_context_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    let result = call!(cuDevicePrimaryCtxGetState(
        device => CUdevice,
        &raw mut flags => *mut c_uint,
        &raw mut active => *mut c_int
    ));
    result != CUresult::SUCCESS || active != 0
}

/// Runs `body` with `context` current, then restores what was.
pub(crate) fn with_context<T>(context: CUcontext, body: impl FnOnce() -> T) -> Result<T, CUresult> {
    checked(call!(cuCtxPushCurrent_v2(context => CUcontext)), ())?;
    let value = body();
    let mut popped = CUcontext::NULL;
    checked(
        call!(cuCtxPopCurrent_v2(&raw mut popped => *mut CUcontext)),
        value,
    )
}

/// A device's UUID, a MIG instance's own where the driver tells them apart.
pub(crate) fn device_uuid(device: CUdevice) -> Result<CUuuid, CUresult> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let newer = call!(cuDeviceGetUuid_v2(&raw mut uuid => *mut CUuuid, device => CUdevice));
    if newer == CUresult::SUCCESS {
        return Ok(uuid);
    }
    let result = call!(cuDeviceGetUuid(&raw mut uuid => *mut CUuuid, device => CUdevice));
    checked(result, uuid)
}

/// Least and greatest stream priority of the current context. Greater is the lower number.
pub(crate) fn priority_range() -> Result<(c_int, c_int), CUresult> {
    let (mut least, mut greatest) = (0, 0);
    let result = call!(cuCtxGetStreamPriorityRange(
        &raw mut least => *mut c_int,
        &raw mut greatest => *mut c_int
    ));
    checked(result, (least, greatest))
}

/// The context that a stream belongs to.
pub(crate) fn stream_context(stream: CUstream) -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    let result = call!(cuStreamGetCtx(stream => CUstream, &raw mut context => *mut CUcontext));
    checked(result, context)
}

/// Creates a stream with a priority for the application, where it says.
pub(crate) fn create_stream(to: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult {
    call!(cuStreamCreateWithPriority(
        to => *mut CUstream,
        flags => c_uint,
        priority => c_int
    ))
}

/// Whether launches on the stream are recorded into a graph instead of run. Where the driver will
/// not say because a capture elsewhere forbids the question, they are not run either.
pub(crate) fn is_capturing(stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    let result = call!(cuStreamIsCapturing(
        stream => CUstream,
        &raw mut status => *mut CUstreamCaptureStatus
    ));
    match result {
        CUresult::SUCCESS => status != CUstreamCaptureStatus::NONE,
        CUresult::NOT_FOUND => false,
        _ => true,
    }
}

/// Lets this thread do what a capture in another thread would forbid it.
pub(crate) fn relax_capture_mode() -> CUresult {
    let mut mode = CUstreamCaptureMode::RELAXED;
    call!(cuThreadExchangeStreamCaptureMode(&raw mut mode => *mut CUstreamCaptureMode))
}

/// A new event that only says whether it has been reached.
pub(crate) fn new_event() -> Result<CUevent, CUresult> {
    let mut event = CUevent::NULL;
    let flags = CUevent_flags::DISABLE_TIMING.0;
    let result = call!(cuEventCreate(&raw mut event => *mut CUevent, flags => c_uint));
    checked(result, event)
}

/// Ends an event.
pub(crate) fn destroy_event(event: CUevent) -> CUresult {
    call!(cuEventDestroy_v2(event => CUevent))
}

/// Puts the event behind everything launched on the stream so far.
pub(crate) fn record_event(event: CUevent, stream: CUstream) -> CUresult {
    call!(cuEventRecord(event => CUevent, stream => CUstream))
}

/// Whether the event has been reached.
pub(crate) fn query_event(event: CUevent) -> CUresult {
    call!(cuEventQuery(event => CUevent))
}

/// What `take` makes of the name of a function. The name is good only during the call.
pub(crate) fn function_name<T>(function: CUfunction, take: impl FnOnce(&str) -> T) -> Option<T> {
    let mut name: *const c_char = ptr::null();
    let result = call!(cuFuncGetName(&raw mut name => *mut *const c_char, function => CUfunction));
    text(result, name).map(take)
}

/// The same for a library's kernel.
pub(crate) fn kernel_name<T>(kernel: CUkernel, take: impl FnOnce(&str) -> T) -> Option<T> {
    let mut name: *const c_char = ptr::null();
    let result = call!(cuKernelGetName(&raw mut name => *mut *const c_char, kernel => CUkernel));
    text(result, name).map(take)
}

fn checked<T>(result: CUresult, value: T) -> Result<T, CUresult> {
    if result == CUresult::SUCCESS {
        Ok(value)
    } else {
        Err(result)
    }
}

/// A name that the driver gave, for as long as the module lives.
fn text<'a>(result: CUresult, name: *const c_char) -> Option<&'a str> {
    if result != CUresult::SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: the driver reported success, so the pointer is to a string that ends in NUL; it lies
    // in the module, which the application keeps while it launches the function.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}
