//! The driver for the runtime: opened once, with entry points looked up by name and version.

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses"
)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::types::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr,
    CUdriverProcAddressQueryResult, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphEdgeData, CUgraphExec, CUgraphMem_attribute, CUgraphNode, CUhostFn, CUipcEventHandle,
    CUipcMemHandle, CUkernel, CUlaunchConfig, CUlibrary, CUmemAccessDesc, CUmemPool_attribute,
    CUmemoryPool, CUpointer_attribute, CUresult, CUstream, CUstreamCallback, CUstreamCaptureMode,
    CUstreamCaptureStatus, CUuserObject, CUuuid,
};
use libloading::Library;

use crate::error::Error;

/// The CUDA version of the driver interface used, as `cuDriverGetVersion` writes it.
pub(crate) const DRIVER_VERSION: c_int = 12_080;

type GetProcAddress = extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    u64,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// Defines [`Driver`]: an entry point of that version for each line, and a method to call it.
macro_rules! entry_points {
    ($($(#[$only:meta])* $name:ident $version:literal ($($arg:ident: $type:ty),* $(,)?);)+) => {
        /// The driver's entry points; a missing one returns cudaErrorNotSupported.
        #[expect(non_snake_case, reason = "the names are the driver's")]
        pub(crate) struct Driver {
            _library: Library,
            resolve: GetProcAddress,
            $($(#[$only])* $name: Option<extern "C" fn($($type),*) -> CUresult>,)+
        }

        #[expect(non_snake_case, reason = "the names are the driver's")]
        impl Driver {
            fn ask_for_all(library: Library, resolve: GetProcAddress) -> Self {
                let find = |name: &str, version| {
                    let name = std::ffi::CString::new(name).ok()?;
                    let mut address = std::ptr::null_mut();
                    let mut found = CUdriverProcAddressQueryResult(0);
                    let code = resolve(name.as_ptr(), &raw mut address, version, 0, &raw mut found);
                    (code == CUresult::SUCCESS && !address.is_null()).then_some(address)
                };
                Self {
                    $($(#[$only])* $name: find(stringify!($name), $version).map(|address| {
                        // SAFETY: the driver reports this as its entry point of that name in the
                        // form of that version, whose public header has this prototype.
                        unsafe {
                            std::mem::transmute::<*mut c_void, extern "C" fn($($type),*) -> CUresult>(address)
                        }
                    }),)+
                    resolve,
                    _library: library,
                }
            }

            $($(#[$only])*
            #[allow(clippy::too_many_arguments, reason = "the prototype is the driver's")]
            pub(crate) fn $name(&self, $($arg: $type),*) -> Result<(), Error> {
                let Some(entry_point) = self.$name else {
                    return Err(Error::NOT_SUPPORTED);
                };
                match entry_point($($arg),*) {
                    CUresult::SUCCESS => Ok(()),
                    code => Err(code.into()),
                }
            })+
        }
    };
}

entry_points! {
    cuInit 2000 (flags: c_uint);
    cuDriverGetVersion 2020 (version: *mut c_int);
    cuDeviceGetCount 2000 (count: *mut c_int);
    cuDeviceGet 2000 (device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetName 2000 (name: *mut c_char, room: c_int, device: CUdevice);
    cuDeviceGetUuid 9020 (uuid: *mut CUuuid, device: CUdevice);
    cuDeviceTotalMem 3020 (bytes: *mut usize, device: CUdevice);
    cuDeviceGetAttribute 2000 (value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetPCIBusId 4010 (id: *mut c_char, room: c_int, device: CUdevice);
    cuDeviceCanAccessPeer 4000 (can: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDeviceGetDefaultMemPool 11020 (pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetGraphMemAttribute 11040 (device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
    cuDeviceSetGraphMemAttribute 11040 (device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
    cuDevicePrimaryCtxRetain 7000 (context: *mut CUcontext, device: CUdevice);
    cuCtxGetCurrent 4000 (context: *mut CUcontext);
    cuCtxSetCurrent 4000 (context: CUcontext);
    cuCtxGetDevice 2000 (device: *mut CUdevice);
    cuCtxSynchronize 2000 ();
    cuCtxEnablePeerAccess 4000 (peer: CUcontext, flags: c_uint);
    cuCtxGetStreamPriorityRange 5050 (least: *mut c_int, greatest: *mut c_int);
    cuStreamCreate 2000 (stream: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority 5050 (stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy 4000 (stream: CUstream);
    cuStreamQuery 2000 (stream: CUstream);
    cuStreamSynchronize 2000 (stream: CUstream);
    cuStreamWaitEvent 3020 (stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamGetPriority 5050 (stream: CUstream, priority: *mut c_int);
    cuStreamAddCallback 5000 (stream: CUstream, call: CUstreamCallback, data: *mut c_void, flags: c_uint);
    cuLaunchHostFunc 10000 (stream: CUstream, call: CUhostFn, data: *mut c_void);
    cuStreamBeginCapture 10010 (stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamBeginCaptureToGraph 12030 (
        stream: CUstream, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        mode: CUstreamCaptureMode,
    );
    cuStreamEndCapture 10000 (stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing 10000 (stream: CUstream, status: *mut CUstreamCaptureStatus);
    cuStreamGetCaptureInfo 12030 (
        stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph,
        after: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize,
    );
    cuStreamUpdateCaptureDependencies 12030 (
        stream: CUstream, after: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: c_uint,
    );
    cuThreadExchangeStreamCaptureMode 10010 (mode: *mut CUstreamCaptureMode);
    cuEventCreate 2000 (event: *mut CUevent, flags: c_uint);
    cuEventDestroy 4000 (event: CUevent);
    cuEventRecord 2000 (event: CUevent, stream: CUstream);
    cuEventRecordWithFlags 11010 (event: CUevent, stream: CUstream, flags: c_uint);
    cuEventQuery 2000 (event: CUevent);
    cuEventSynchronize 2000 (event: CUevent);
    cuEventElapsedTime 12080 (ms: *mut f32, start: CUevent, end: CUevent);
    cuMemAlloc 3020 (address: *mut CUdeviceptr, bytes: usize);
    cuMemFree 3020 (address: CUdeviceptr);
    cuMemAllocManaged 6000 (address: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemGetInfo 3020 (free: *mut usize, total: *mut usize);
    cuMemHostAlloc 2020 (address: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost 2000 (address: *mut c_void);
    cuMemHostRegister 6050 (address: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister 4000 (address: *mut c_void);
    cuMemAllocAsync 11020 (address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemFreeAsync 11020 (address: CUdeviceptr, stream: CUstream);
    cuMemPoolGetAttribute 11020 (pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAttribute 11020 (pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAccess 11020 (pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize);
    cuMemPoolTrimTo 11020 (pool: CUmemoryPool, keep_bytes: usize);
    cuPointerGetAttribute 4000 (value: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
    cuIpcGetMemHandle 4010 (handle: *mut CUipcMemHandle, address: CUdeviceptr);
    cuIpcOpenMemHandle 11000 (address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint);
    cuIpcCloseMemHandle 4010 (address: CUdeviceptr);
    cuIpcGetEventHandle 4010 (handle: *mut CUipcEventHandle, event: CUevent);
    cuIpcOpenEventHandle 4010 (event: *mut CUevent, handle: CUipcEventHandle);
    cuMemcpy 4000 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyHtoD 3020 (to: CUdeviceptr, from: *const c_void, bytes: usize);
    cuMemcpyDtoH 3020 (to: *mut c_void, from: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD 3020 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
    cuMemcpyAsync 4000 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync 3020 (to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync 3020 (to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync 3020 (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyPeerAsync 4000 (
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize,
        stream: CUstream,
    );
    cuMemcpy2DAsync 3020 (copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemsetD8 3020 (address: CUdeviceptr, value: u8, count: usize);
    cuMemsetD8Async 3020 (address: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuLibraryLoadData 12000 (
        library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    );
    cuLibraryLoadFromFile 12000 (
        library: *mut CUlibrary, path: *const c_char, jit_options: *mut c_uint, jit_values: *mut *mut c_void,
        jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void, count: c_uint,
    );
    cuLibraryUnload 12000 (library: CUlibrary);
    cuLibraryGetKernel 12000 (kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount 12040 (count: *mut c_uint, library: CUlibrary);
    cuLibraryGetGlobal 12000 (
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    );
    cuLibraryGetManaged 12000 (
        address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char,
    );
    cuLibraryGetUnifiedFunction 12000 (function: *mut *mut c_void, library: CUlibrary, name: *const c_char);
    cuKernelGetAttribute 12000 (
        value: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice,
    );
    cuKernelSetAttribute 12000 (
        attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice,
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 (
        blocks: *mut c_int, function: CUfunction, threads: c_int, dynamic_bytes: usize, flags: c_uint,
    );
    cuLaunchKernel 4000 (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, dynamic_shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    cuLaunchKernelEx 11060 (
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuLaunchCooperativeKernel 9000 (
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, dynamic_shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void,
    );
    cuGraphGetNodes 10000 (graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependencies 12030 (
        node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize,
    );
    cuGraphDestroy 10000 (graph: CUgraph);
    cuGraphInstantiateWithFlags 11040 (exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphExecDestroy 10000 (exec: CUgraphExec);
    cuGraphLaunch 10000 (exec: CUgraphExec, stream: CUstream);
    cuGraphRetainUserObject 11030 (graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
    #[cfg(cuda12)] cuGraphDebugDotPrint 11030 (graph: CUgraph, path: *const c_char, flags: c_uint);
    cuUserObjectCreate 11030 (
        object: *mut CUuserObject, address: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint,
    );
    cuUserObjectRelease 11030 (object: CUuserObject, count: c_uint);
    cuProfilerStart 4000 ();
    cuProfilerStop 4000 ();
}

impl Driver {
    /// The driver's result for an entry point, for `cudaGetDriverEntryPointByVersion`.
    pub(crate) fn entry_point(
        &self,
        name: *const c_char,
        address: *mut *mut c_void,
        version: c_int,
        flags: u64,
        found: *mut CUdriverProcAddressQueryResult,
    ) -> Result<(), Error> {
        match (self.resolve)(name, address, version, flags, found) {
            CUresult::SUCCESS => Ok(()),
            code => Err(code.into()),
        }
    }
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static IS_INITIALISED: AtomicBool = AtomicBool::new(false);

pub(crate) fn driver() -> Result<&'static Driver, Error> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    // Two threads may open it at once: that is harmless, and one of the two results is kept.
    let opened = open()?;
    Ok(DRIVER.get_or_init(|| opened))
}

pub(crate) fn initialised() -> Result<&'static Driver, Error> {
    let driver = driver()?;
    // Relaxed: `cuInit` may be repeated, so missing another thread's call is harmless.
    if !IS_INITIALISED.load(Ordering::Relaxed) {
        driver.cuInit(0)?;
        IS_INITIALISED.store(true, Ordering::Relaxed);
    }
    Ok(driver)
}

fn open() -> Result<Driver, Error> {
    // SAFETY: the library is the CUDA driver, whose initialisers may run in any program.
    let library = unsafe { Library::new("libcuda.so.1") };
    let library = library.map_err(|_| Error::INSUFFICIENT_DRIVER)?;
    let resolve: GetProcAddress = {
        // SAFETY: this symbol of the driver has this prototype, from CUDA 12.0 on.
        let symbol = unsafe { library.get::<GetProcAddress>(b"cuGetProcAddress_v2\0") };
        *symbol.map_err(|_| Error::INSUFFICIENT_DRIVER)?
    };
    let driver = Driver::ask_for_all(library, resolve);
    let mut version = 0;
    driver.cuDriverGetVersion(&raw mut version)?;
    if version < DRIVER_VERSION {
        return Err(Error::INSUFFICIENT_DRIVER);
    }
    Ok(driver)
}
