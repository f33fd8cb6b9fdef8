//! Safe signatures for the driver's functions that we call ourselves. Handles are tokens: ours come
//! from the driver or from the application, which vouches for them as it does when it passes them
//! to the driver. A function missing here returns [`CUresult::NOT_FOUND`].

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses"
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

use abi::types::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUarray,
    CUarray_format, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUevent_flags,
    CUfunction, CUfunction_attribute, CUgraph, CUgraphNode, CUgraphNodeType, CUgreenCtx, CUkernel,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlibrary, CUmemAllocFlags, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUpointer_attribute, CUresult, CUstream, CUstream_flags, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUuuid,
};

use crate::driver::real;
use crate::platform::sys;

macro_rules! call {
    ($symbol:ident($($argument:expr => $type:ty),*)) => {
        match real::entry_point(abi::id::$symbol) {
            None => CUresult::NOT_FOUND,
            Some(address) => {
                // SAFETY: the table's prototype of this symbol has these types; see `abi`.
                let function = unsafe {
                    core::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> CUresult,
                    >(address.as_ptr())
                };
                // SAFETY: pointers to locals that outlive the call; handles: see the module's head.
                sys::without_cancellation(|| unsafe { function($($argument),*) })
            }
        }
    };
}

pub(crate) mod ending;
pub(crate) mod memory;

pub(crate) fn has(index: usize) -> bool {
    real::entry_point(index).is_some()
}

/// Whether `cuInit` has succeeded in this process. Otherwise the driver refuses this call without
/// reading its argument (CUDA_ERROR_NOT_INITIALIZED; seen with R535 and R550).
pub(crate) fn is_initialised() -> bool {
    let mut count = 0;
    call!(cuDeviceGetCount(&raw mut count => *mut c_int)) == CUresult::SUCCESS
}

/// The driver's CUDA version, as in `cuDriverGetVersion`: 12080 is 12.8.
pub(crate) fn version() -> Option<u32> {
    let mut version = 0;
    let result = call!(cuDriverGetVersion(&raw mut version => *mut c_int));
    checked(result, version).ok()?.try_into().ok()
}

/// The calling thread's context; null if it has none.
pub(crate) fn current_context() -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    checked(
        call!(cuCtxGetCurrent(&raw mut context => *mut CUcontext)),
        context,
    )
}

pub(crate) fn set_current_context(context: CUcontext) -> CUresult {
    call!(cuCtxSetCurrent(context => CUcontext))
}

pub(crate) fn current_device() -> Result<CUdevice, CUresult> {
    let mut device = CUdevice::INVALID;
    let result = call!(cuCtxGetDevice(&raw mut device => *mut CUdevice));
    checked(result, device)
}

/// Whether a device's primary context is alive; true if the driver does not report it.
pub(crate) fn is_primary_context_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    let result = call!(cuDevicePrimaryCtxGetState(
        device => CUdevice,
        &raw mut flags => *mut c_uint,
        &raw mut active => *mut c_int
    ));
    result != CUresult::SUCCESS || active != 0
}

pub(crate) fn with_context<T>(context: CUcontext, body: impl FnOnce() -> T) -> Result<T, CUresult> {
    checked(call!(cuCtxPushCurrent_v2(context => CUcontext)), ())?;
    let value = body();
    let mut popped = CUcontext::NULL;
    checked(
        call!(cuCtxPopCurrent_v2(&raw mut popped => *mut CUcontext)),
        value,
    )
}

/// A device's UUID; for a MIG instance its own, where the driver distinguishes them.
pub(crate) fn device_uuid(device: CUdevice) -> Result<CUuuid, CUresult> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    let newer = call!(cuDeviceGetUuid_v2(&raw mut uuid => *mut CUuuid, device => CUdevice));
    if newer == CUresult::SUCCESS {
        return Ok(uuid);
    }
    let result = call!(cuDeviceGetUuid(&raw mut uuid => *mut CUuuid, device => CUdevice));
    checked(result, uuid)
}

/// A device's name; empty if the driver does not report it.
pub(crate) fn device_name(device: CUdevice) -> String {
    /// Buffer size (`NVML_DEVICE_NAME_V2_BUFFER_SIZE` is 96).
    const NAME_BYTES: usize = 256;
    let mut bytes = [0_u8; NAME_BYTES];
    let result = call!(cuDeviceGetName(
        bytes.as_mut_ptr().cast() => *mut c_char,
        NAME_BYTES as c_int => c_int,
        device => CUdevice
    ));
    let named = CStr::from_bytes_until_nul(&bytes).ok();
    let named = named.filter(|_| result == CUresult::SUCCESS);
    named.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// A device attribute; `None` where the driver has none, or reports 0, which means "none" for some.
pub(crate) fn device_attribute(device: CUdevice, attribute: CUdevice_attribute) -> Option<u32> {
    let mut value: c_int = 0;
    let result = call!(cuDeviceGetAttribute(
        &raw mut value => *mut c_int,
        attribute => CUdevice_attribute,
        device => CUdevice
    ));
    let value = u32::try_from(value).ok().filter(|&value| value > 0);
    value.filter(|_| result == CUresult::SUCCESS)
}

/// Whether contexts share a device by MPS; `None` from older drivers, which do not report it.
pub(crate) fn is_on_mps(device: CUdevice) -> Option<bool> {
    let mut value: c_int = 0;
    let result = call!(cuDeviceGetAttribute(
        &raw mut value => *mut c_int,
        CUdevice_attribute::MPS_ENABLED => CUdevice_attribute,
        device => CUdevice
    ));
    checked(result, value != 0).ok()
}

/// Least and greatest stream priority of the current context; the greatest is the lowest number.
pub(crate) fn priority_range() -> Result<(c_int, c_int), CUresult> {
    let (mut least, mut greatest) = (0, 0);
    let result = call!(cuCtxGetStreamPriorityRange(
        &raw mut least => *mut c_int,
        &raw mut greatest => *mut c_int
    ));
    checked(result, (least, greatest))
}

pub(crate) fn stream_context(stream: CUstream) -> Result<CUcontext, CUresult> {
    let mut context = CUcontext::NULL;
    let result = call!(cuStreamGetCtx(stream => CUstream, &raw mut context => *mut CUcontext));
    checked(result, context)
}

pub(crate) fn context_of_green(green: CUgreenCtx) -> Result<(CUcontext, CUdevice), CUresult> {
    let mut context = CUcontext::NULL;
    let result = call!(cuCtxFromGreenCtx(
        &raw mut context => *mut CUcontext,
        green => CUgreenCtx
    ));
    let context = checked(result, context)?;
    let device = with_context(context, current_device)??;
    Ok((context, device))
}

pub(crate) fn set_stream_priority(stream: CUstream, priority: c_int) -> CUresult {
    let value = CUlaunchAttributeValue::from_int(priority);
    call!(cuStreamSetAttribute(
        stream => CUstream,
        CUlaunchAttributeID::PRIORITY => CUlaunchAttributeID,
        &raw const value => *const CUlaunchAttributeValue
    ))
}

/// Whether the legacy stream orders it (`CU_STREAM_DEFAULT`). True if the driver reports nothing.
pub(crate) fn is_blocking(stream: CUstream) -> bool {
    let mut flags: c_uint = 0;
    let result = call!(cuStreamGetFlags(stream => CUstream, &raw mut flags => *mut c_uint));
    result != CUresult::SUCCESS || flags & CUstream_flags::NON_BLOCKING.0 == 0
}

pub(crate) fn query_stream(stream: CUstream) -> CUresult {
    call!(cuStreamQuery(stream => CUstream))
}

pub(crate) fn create_stream(to: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult {
    call!(cuStreamCreateWithPriority(
        to => *mut CUstream,
        flags => c_uint,
        priority => c_int
    ))
}

/// Whether launches on the stream are captured into a graph. If the driver refuses the query
/// because of a capture elsewhere, launches do not run either.
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

/// Whether a capture on the stream continues. A stream unknown to the driver has none.
pub(crate) fn is_still_capturing(stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::NONE;
    let result = call!(cuStreamIsCapturing(
        stream => CUstream,
        &raw mut status => *mut CUstreamCaptureStatus
    ));
    match result {
        CUresult::SUCCESS => status != CUstreamCaptureStatus::NONE,
        result => result == CUresult::STREAM_CAPTURE_IMPLICIT,
    }
}

/// Permits this thread calls that a capture in another thread would forbid.
pub(crate) fn relax_capture_mode() -> CUresult {
    let mut mode = CUstreamCaptureMode::RELAXED;
    call!(cuThreadExchangeStreamCaptureMode(&raw mut mode => *mut CUstreamCaptureMode))
}

pub(crate) fn new_event() -> Result<CUevent, CUresult> {
    let mut event = CUevent::NULL;
    let flags = CUevent_flags::DISABLE_TIMING.0;
    let result = call!(cuEventCreate(&raw mut event => *mut CUevent, flags => c_uint));
    checked(result, event)
}

pub(crate) fn new_timing_event() -> Result<CUevent, CUresult> {
    let mut event = CUevent::NULL;
    let flags = CUevent_flags::DEFAULT.0;
    let result = call!(cuEventCreate(&raw mut event => *mut CUevent, flags => c_uint));
    checked(result, event)
}

pub(crate) fn elapsed_ms(start: CUevent, end: CUevent) -> Result<f32, CUresult> {
    let mut ms = 0.0;
    let mut result = call!(cuEventElapsedTime_v2(
        &raw mut ms => *mut f32,
        start => CUevent,
        end => CUevent
    ));
    if result == CUresult::NOT_FOUND {
        result = call!(cuEventElapsedTime(
            &raw mut ms => *mut f32,
            start => CUevent,
            end => CUevent
        ));
    }
    checked(result, ms)
}

/// Runs `body` with calls permitted that captures of other threads would forbid.
pub(crate) fn with_relaxed_captures<T>(body: impl FnOnce() -> T) -> T {
    let mut mode = CUstreamCaptureMode::RELAXED;
    let exchange = |mode: &mut CUstreamCaptureMode| call!(cuThreadExchangeStreamCaptureMode(&raw mut *mode => *mut CUstreamCaptureMode));
    let is_relaxed = exchange(&mut mode) == CUresult::SUCCESS;
    let value = body();
    if is_relaxed {
        let _ = exchange(&mut mode);
    }
    value
}

pub(crate) fn destroy_event(event: CUevent) -> CUresult {
    call!(cuEventDestroy_v2(event => CUevent))
}

pub(crate) fn record_event(event: CUevent, stream: CUstream) -> CUresult {
    call!(cuEventRecord(event => CUevent, stream => CUstream))
}

pub(crate) fn query_event(event: CUevent) -> CUresult {
    call!(cuEventQuery(event => CUevent))
}

pub(crate) fn device_of_pointer(address: CUdeviceptr) -> Result<CUdevice, CUresult> {
    let mut device = CUdevice::INVALID;
    let result = call!(cuPointerGetAttribute(
        (&raw mut device).cast() => *mut c_void,
        CUpointer_attribute::DEVICE_ORDINAL => CUpointer_attribute,
        address => CUdeviceptr
    ));
    checked(result, device)
}

pub(crate) fn device_of_handle(handle: CUmemGenericAllocationHandle) -> Result<CUdevice, CUresult> {
    let nowhere = CUmemLocation {
        kind: CUmemLocationType::INVALID,
        id: CUdevice::INVALID.0,
    };
    let mut properties = CUmemAllocationProp {
        kind: CUmemAllocationType::INVALID,
        requested_handle_types: 0,
        location: nowhere,
        win32_handle_meta_data: ptr::null_mut(),
        alloc_flags: CUmemAllocFlags {
            compression_type: 0,
            gpu_direct_rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let result = call!(cuMemGetAllocationPropertiesFromHandle(
        &raw mut properties => *mut CUmemAllocationProp,
        handle => CUmemGenericAllocationHandle
    ));
    let CUmemLocation { kind, id } = checked(result, properties.location)?;
    match kind {
        CUmemLocationType::DEVICE => Ok(CUdevice(id)),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub(crate) fn array_descriptor(array: CUarray) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CUresult> {
    let mut descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        width: 0,
        height: 0,
        depth: 0,
        format: CUarray_format(0),
        num_channels: 0,
        flags: 0,
    };
    let result = call!(cuArray3DGetDescriptor_v2(
        &raw mut descriptor => *mut CUDA_ARRAY3D_DESCRIPTOR,
        array => CUarray
    ));
    checked(result, descriptor)
}

/// Passes a function's name to `take`. The name is valid only during the call.
pub(crate) fn function_name<T>(function: CUfunction, take: impl FnOnce(&str) -> T) -> Option<T> {
    let mut name: *const c_char = ptr::null();
    let result = call!(cuFuncGetName(&raw mut name => *mut *const c_char, function => CUfunction));
    text(result, name).map(take)
}

pub(crate) fn kernel_name<T>(kernel: CUkernel, take: impl FnOnce(&str) -> T) -> Option<T> {
    let mut name: *const c_char = ptr::null();
    let result = call!(cuKernelGetName(&raw mut name => *mut *const c_char, kernel => CUkernel));
    text(result, name).map(take)
}

pub(crate) fn library_kernel_count(library: CUlibrary) -> Result<u32, CUresult> {
    let mut count: c_uint = 0;
    let result = call!(cuLibraryGetKernelCount(
        &raw mut count => *mut c_uint,
        library => CUlibrary
    ));
    checked(result, count)
}

pub(crate) fn function_needs(function: CUfunction) -> Option<(u32, u32)> {
    let ask = |attribute| {
        let mut value: c_int = 0;
        let result = call!(cuFuncGetAttribute(
            &raw mut value => *mut c_int,
            attribute => CUfunction_attribute,
            function => CUfunction
        ));
        checked(result, value)
    };
    needs(ask)
}

pub(crate) fn kernel_needs(kernel: CUkernel, device: CUdevice) -> Option<(u32, u32)> {
    let ask = |attribute| {
        let mut value: c_int = 0;
        let result = call!(cuKernelGetAttribute(
            &raw mut value => *mut c_int,
            attribute => CUfunction_attribute,
            kernel => CUkernel,
            device => CUdevice
        ));
        checked(result, value)
    };
    needs(ask)
}

fn needs(ask: impl Fn(CUfunction_attribute) -> Result<c_int, CUresult>) -> Option<(u32, u32)> {
    let registers = ask(CUfunction_attribute::NUM_REGS).ok()?;
    let shared_bytes = ask(CUfunction_attribute::SHARED_SIZE_BYTES).ok()?;
    Some((
        u32::try_from(registers).unwrap_or(0),
        u32::try_from(shared_bytes).unwrap_or(0),
    ))
}

/// Blocks of a function that fit on an SM at once; `None` if none fits, or none is reported.
pub(crate) fn blocks_per_sm(function: CUfunction, threads: u32, shared_bytes: u32) -> Option<u32> {
    let mut blocks: c_int = 0;
    let threads = c_int::try_from(threads).ok()?;
    let result = call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &raw mut blocks => *mut c_int,
        function => CUfunction,
        threads => c_int,
        shared_bytes as usize => usize
    ));
    let blocks = checked(result, blocks).ok()?;
    u32::try_from(blocks).ok().filter(|&blocks| blocks > 0)
}

/// A graph's nodes; `None` if there are more than `count_max` or the driver does not report it.
pub(crate) fn graph_nodes(graph: CUgraph, count_max: usize) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    let asked = call!(cuGraphGetNodes(
        graph => CUgraph,
        ptr::null_mut() => *mut CUgraphNode,
        &raw mut count => *mut usize
    ));
    if asked != CUresult::SUCCESS || count > count_max {
        return None;
    }
    let mut nodes = vec![CUgraphNode::NULL; count];
    let told = call!(cuGraphGetNodes(
        graph => CUgraph,
        nodes.as_mut_ptr() => *mut CUgraphNode,
        &raw mut count => *mut usize
    ));
    nodes.truncate(count);
    (told == CUresult::SUCCESS).then_some(nodes)
}

pub(crate) fn node_type(node: CUgraphNode) -> Option<CUgraphNodeType> {
    let mut kind = CUgraphNodeType::EMPTY;
    let result =
        call!(cuGraphNodeGetType(node => CUgraphNode, &raw mut kind => *mut CUgraphNodeType));
    checked(result, kind).ok()
}

pub(crate) fn kernel_node(node: CUgraphNode) -> Option<CUDA_KERNEL_NODE_PARAMS> {
    let mut params = CUDA_KERNEL_NODE_PARAMS {
        v1: CUDA_KERNEL_NODE_PARAMS_v1 {
            func: CUfunction::NULL,
            grid_dim: [0; 3],
            block_dim: [0; 3],
            shared_mem_bytes: 0,
            kernel_params: ptr::null_mut(),
            extra: ptr::null_mut(),
        },
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    };
    if has(abi::id::cuGraphKernelNodeGetParams_v2) {
        let to = &raw mut params;
        let result = call!(cuGraphKernelNodeGetParams_v2(
            node => CUgraphNode,
            to => *mut CUDA_KERNEL_NODE_PARAMS
        ));
        return checked(result, params).ok();
    }
    let to = &raw mut params.v1;
    let result = call!(cuGraphKernelNodeGetParams(
        node => CUgraphNode,
        to => *mut CUDA_KERNEL_NODE_PARAMS_v1
    ));
    checked(result, params).ok()
}

pub(crate) fn child_graph(node: CUgraphNode) -> Option<CUgraph> {
    let mut graph = CUgraph::NULL;
    let result =
        call!(cuGraphChildGraphNodeGetGraph(node => CUgraphNode, &raw mut graph => *mut CUgraph));
    checked(result, graph).ok()
}

fn checked<T>(result: CUresult, value: T) -> Result<T, CUresult> {
    if result == CUresult::SUCCESS {
        Ok(value)
    } else {
        Err(result)
    }
}

/// A name from the driver, valid as long as its module.
fn text<'a>(result: CUresult, name: *const c_char) -> Option<&'a str> {
    if result != CUresult::SUCCESS || name.is_null() {
        return None;
    }
    // SAFETY: the driver reported success, so the pointer is to a string that ends in NUL, in the
    // module, which the application keeps while it launches the function.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}
