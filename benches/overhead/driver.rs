//! The driver's functions, found through both doors: libc's own `dlsym`, which is not hooked, and
//! the `dlsym` that programs call, which the preload replaces. Signatures are those of cuda.h.

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses"
)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

const LIBRARY: &CStr = c"libcuda.so.1";
/// Versions under which libc exports `dlsym`; see interpose's `dlsym` module.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

type Result32 = c_uint;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Init = unsafe extern "C" fn(c_uint) -> Result32;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> Result32;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> Result32;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> Result32;
type LoadData = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Result32;
type GetFunction = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> Result32;
type StreamCreate = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Result32;
type Synchronize = unsafe extern "C" fn() -> Result32;
type Alloc = unsafe extern "C" fn(*mut u64, usize) -> Result32;
type Free = unsafe extern "C" fn(u64) -> Result32;
type GraphCreate = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Result32;
type AddKernelNode = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_void,
    *const *mut c_void,
    usize,
    *const KernelNode,
) -> Result32;
type Instantiate = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, u64) -> Result32;
type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, *mut c_void) -> Result32;
type LaunchGraph = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Result32;
type SetNode = unsafe extern "C" fn(*mut c_void, *mut c_void, *const KernelNode) -> Result32;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> Result32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// libc's own `dlsym` on the driver: the driver's function.
    Real,
    Dlsym,
    /// The first symbol in the process, as in a program linked with the driver.
    Export,
}

const PRODUCTS: &CStr = c"libcublas.so";

type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Product = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    *const f32,
    *mut f32,
    c_int,
) -> c_int;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    product: Product,
    handle: *mut c_void,
    synchronize: Synchronize,
}

impl Products {
    pub(crate) fn find(door: Door) -> anyhow::Result<Self> {
        let create: Create = function_of(PRODUCTS, door, c"cublasCreate_v2")?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is to a local that outlives the call.
        let status = unsafe { create(&raw mut handle) };
        ensure!(status == 0, "cublasCreate_v2 failed with {status}");
        Ok(Self {
            product: function_of(PRODUCTS, door, c"cublasSgemm_v2")?,
            handle,
            synchronize: function(Door::Dlsym, c"cuCtxSynchronize")?,
        })
    }

    /// Multiplies matrices of 64 x 64, by a kernel that computes nothing; whether that succeeded.
    #[inline(always)]
    pub(crate) fn multiply(&self) -> bool {
        const SIZE: c_int = 64;
        let (one, none) = (1.0, ptr::null_mut());
        // SAFETY: the library's handle, and pointers that its kernel does not follow.
        let status = unsafe {
            (self.product)(
                self.handle,
                0,
                0,
                SIZE,
                SIZE,
                SIZE,
                &raw const one,
                none,
                SIZE,
                none,
                SIZE,
                &raw const one,
                none,
                SIZE,
            )
        };
        status == 0
    }

    pub(crate) fn synchronize(&self) -> bool {
        // SAFETY: no arguments.
        unsafe { (self.synchronize)() == 0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    launch: Launch,
    alloc: Alloc,
    free: Free,
    synchronize: Synchronize,
    launch_graph: LaunchGraph,
    set_node: SetNode,
    get_attribute: GetAttribute,
}

/// CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct KernelNode {
    function: *mut c_void,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: *mut c_void,
    context: *mut c_void,
}

#[derive(Clone, Debug)]
pub(crate) struct Graph {
    exec: *mut c_void,
    nodes: Vec<*mut c_void>,
    node: KernelNode,
    stream: *mut c_void,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    function: *mut c_void,
    stream: *mut c_void,
}

/// Opens a library. It stays open.
fn library(name: &CStr) -> anyhow::Result<*mut c_void> {
    // SAFETY: the name ends in NUL; the library's initialisers are its own.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    ensure!(!handle.is_null(), "cannot open {name:?}");
    Ok(handle)
}

/// libc's `dlsym`, found by its version, which the preload's lacks.
fn real_dlsym() -> anyhow::Result<Dlsym> {
    let found = VERSIONS.iter().find_map(|version| {
        // SAFETY: both names end in NUL.
        let found =
            unsafe { libc::dlvsym(libc::RTLD_DEFAULT, c"dlsym".as_ptr(), version.as_ptr()) };
        (!found.is_null()).then_some(found)
    });
    let found = found.context("libc has no dlsym of a known version")?;
    // SAFETY: the address is that of libc's `dlsym`.
    Ok(unsafe { core::mem::transmute::<*mut c_void, Dlsym>(found) })
}

fn address(library_name: &CStr, door: Door, symbol: &CStr) -> anyhow::Result<*mut c_void> {
    let library = library(library_name)?;
    let found = match door {
        // SAFETY: an open library and a name that ends in NUL.
        Door::Real => unsafe { real_dlsym()?(library, symbol.as_ptr()) },
        // SAFETY: as above.
        Door::Dlsym => unsafe { libc::dlsym(library, symbol.as_ptr()) },
        // SAFETY: as above, with the handle for the first symbol in the process.
        Door::Export => unsafe { real_dlsym()?(libc::RTLD_DEFAULT, symbol.as_ptr()) },
    };
    ensure!(!found.is_null(), "cannot resolve {symbol:?} ({door:?})");
    Ok(found)
}

/// A function behind a door. `F` is the type of `symbol` above.
fn function<F: Copy>(door: Door, symbol: &CStr) -> anyhow::Result<F> {
    function_of(LIBRARY, door, symbol)
}

fn function_of<F: Copy>(library: &CStr, door: Door, symbol: &CStr) -> anyhow::Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = address(library, door, symbol)?;
    // SAFETY: each caller in this file names the signature that the public header gives the symbol;
    // a function pointer has the size of an address.
    Ok(unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) })
}

pub(crate) fn file_of_launch(door: Door) -> anyhow::Result<PathBuf> {
    file_of(address(LIBRARY, door, c"cuLaunchKernel")?)
}

pub(crate) fn file_of_product(door: Door) -> anyhow::Result<PathBuf> {
    file_of(address(PRODUCTS, door, c"cublasSgemm_v2")?)
}

fn file_of(address: *mut c_void) -> anyhow::Result<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: fills in the structure.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    ensure!(
        found != 0 && !info.dli_fname.is_null(),
        "an address in no file"
    );
    // SAFETY: not null, so it is a name that ends in NUL and lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Ok(PathBuf::from(name.to_string_lossy().into_owned()))
}

/// Creates a context, loads the module, finds the kernel, all through the door that programs use.
pub(crate) fn prepare(
    image: &str,
    kernel: &str,
    on_default_stream: bool,
) -> anyhow::Result<Prepared> {
    let door = Door::Dlsym;
    let (mut device, mut context, mut module) = (0, ptr::null_mut(), ptr::null_mut());
    let (mut found, mut stream) = (ptr::null_mut(), ptr::null_mut());
    let name = std::ffi::CString::new(kernel)?;
    ensure!(image.ends_with('\0'), "an image ends in NUL");
    // SAFETY: every pointer is to a local that outlives the calls, `image` and `name` end in NUL,
    // and handles come from the call before.
    unsafe {
        check("cuInit", function::<Init>(door, c"cuInit")?(0))?;
        let device_get = function::<DeviceGet>(door, c"cuDeviceGet")?;
        check("cuDeviceGet", device_get(&raw mut device, 0))?;
        let retain = function::<Retain>(door, c"cuDevicePrimaryCtxRetain")?;
        check("cuDevicePrimaryCtxRetain", retain(&raw mut context, device))?;
        let set_current = function::<SetCurrent>(door, c"cuCtxSetCurrent")?;
        check("cuCtxSetCurrent", set_current(context))?;
        let load = function::<LoadData>(door, c"cuModuleLoadData")?;
        check(
            "cuModuleLoadData",
            load(&raw mut module, image.as_ptr().cast()),
        )?;
        let get_function = function::<GetFunction>(door, c"cuModuleGetFunction")?;
        let result = get_function(&raw mut found, module, name.as_ptr());
        check("cuModuleGetFunction", result)?;
        if !on_default_stream {
            // CU_STREAM_NON_BLOCKING
            let create = function::<StreamCreate>(door, c"cuStreamCreate")?;
            check("cuStreamCreate", create(&raw mut stream, 1))?;
        }
    }
    Ok(Prepared {
        function: found,
        stream,
    })
}

impl Graph {
    pub(crate) fn make(
        door: Door,
        what: &Prepared,
        kernels: usize,
        (grid, block): (u32, u32),
    ) -> anyhow::Result<Self> {
        let node = KernelNode {
            function: what.function,
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared_bytes: 0,
            parameters: ptr::null_mut(),
            extra: ptr::null_mut(),
            kernel: ptr::null_mut(),
            context: ptr::null_mut(),
        };
        let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
        let mut nodes = vec![ptr::null_mut(); kernels];
        let create = function::<GraphCreate>(door, c"cuGraphCreate")?;
        let add = function::<AddKernelNode>(door, c"cuGraphAddKernelNode_v2")?;
        let instantiate = function::<Instantiate>(door, c"cuGraphInstantiateWithFlags")?;
        // SAFETY: every pointer is to a local that outlives the calls, handles come from earlier
        // calls, and the kernels of the benches have no parameters.
        unsafe {
            check("cuGraphCreate", create(&raw mut graph, 0))?;
            for to in &mut nodes {
                let result = add(&raw mut *to, graph, ptr::null(), 0, &raw const node);
                check("cuGraphAddKernelNode", result)?;
            }
            check("cuGraphInstantiate", instantiate(&raw mut exec, graph, 0))?;
        }
        Ok(Self {
            exec,
            nodes,
            node,
            stream: what.stream,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}

fn check(call: &str, result: Result32) -> anyhow::Result<()> {
    match result {
        0 => Ok(()),
        result => bail!("{call} failed with CUresult {result}"),
    }
}

impl Calls {
    pub(crate) fn find(door: Door) -> anyhow::Result<Self> {
        Ok(Self {
            launch: function(door, c"cuLaunchKernel")?,
            alloc: function(door, c"cuMemAlloc_v2")?,
            free: function(door, c"cuMemFree_v2")?,
            synchronize: function(door, c"cuCtxSynchronize")?,
            launch_graph: function(door, c"cuGraphLaunch")?,
            set_node: function(door, c"cuGraphExecKernelNodeSetParams_v2")?,
            get_attribute: function(door, c"cuFuncGetAttribute")?,
        })
    }

    #[inline(always)]
    pub(crate) fn launch(&self, what: &Prepared, grid: u32, block: u32) -> bool {
        // SAFETY: function and stream are alive; the benches' kernels have no parameters.
        let result = unsafe {
            (self.launch)(
                what.function,
                grid,
                1,
                1,
                block,
                1,
                1,
                0,
                what.stream,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        result == 0
    }

    #[inline(always)]
    pub(crate) fn allocate_and_free(&self, bytes: usize) -> bool {
        let mut address = 0;
        // SAFETY: the pointer is to a local; the address is the driver's own.
        unsafe { (self.alloc)(&raw mut address, bytes) == 0 && (self.free)(address) == 0 }
    }

    #[inline(always)]
    pub(crate) fn launch_graph(&self, graph: &Graph) -> bool {
        // SAFETY: executable and stream are the driver's and alive.
        unsafe { (self.launch_graph)(graph.exec, graph.stream) == 0 }
    }

    /// Sets a node's parameters to their present values; returns whether the driver succeeded.
    #[inline(always)]
    pub(crate) fn set_node(&self, graph: &Graph, index: usize) -> bool {
        let Some(&node) = graph.nodes.get(index) else {
            return false;
        };
        // SAFETY: executable and node are the driver's and alive; the parameters outlive the call.
        unsafe { (self.set_node)(graph.exec, node, &raw const graph.node) == 0 }
    }

    #[inline(always)]
    pub(crate) fn get_attribute(&self, what: &Prepared) -> bool {
        const MAX_THREADS_PER_BLOCK: c_int = 0;
        let mut value = 0;
        // SAFETY: the pointer is to a local, and the function is the driver's and alive.
        unsafe { (self.get_attribute)(&raw mut value, MAX_THREADS_PER_BLOCK, what.function) == 0 }
    }

    pub(crate) fn synchronize(&self) -> bool {
        // SAFETY: no arguments.
        unsafe { (self.synchronize)() == 0 }
    }
}
