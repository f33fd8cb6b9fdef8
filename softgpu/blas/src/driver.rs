//! The part of the driver that a launch needs.

#![expect(
    unsafe_code,
    reason = "calls the driver's functions by their addresses"
)]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, OnceLock};

use abi::types::{CUdevice, CUfunction, CUkernel, CUlibrary, CUresult, CUstream};
use libloading::Library;
use parking_lot::Mutex;
use softgpu::Device;

use crate::product::{Kernel, Product};
use crate::status::Status;

/// Defines [`Driver`]: an entry point for each line, under its symbol in the header.
macro_rules! entry_points {
    ($($name:ident ($($type:ty),* $(,)?);)+) => {
        #[expect(non_snake_case, reason = "the names are the driver's")]
        struct Driver {
            _library: Library,
            $($name: extern "C" fn($($type),*) -> CUresult,)+
        }

        impl Driver {
            fn open() -> Option<Self> {
                // SAFETY: the library is the CUDA driver, whose initialisers may run anywhere.
                let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
                $(#[expect(non_snake_case, reason = "the names are the driver's")]
                let $name = {
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: in the public header the driver's symbol has this prototype.
                    let symbol = unsafe { library.get::<extern "C" fn($($type),*) -> CUresult>(name.as_bytes()) };
                    *symbol.ok()?
                };)+
                Some(Self { $($name,)+ _library: library })
            }
        }
    };
}

entry_points! {
    cuCtxGetDevice(*mut CUdevice);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuLibraryLoadData(
        *mut CUlibrary, *const c_void, *mut c_uint, *mut *mut c_void, c_uint, *mut c_uint, *mut *mut c_void, c_uint,
    );
    cuLibraryGetKernel(*mut CUkernel, CUlibrary, *const c_char);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
        *mut *mut c_void,
    );
}

/// A product's loaded kernel. The handle is a number, so that threads can share it.
#[derive(Clone, Debug)]
struct Loaded {
    handle: usize,
    kernel: Kernel,
}

/// Launched products, by device: as many as a program has different ones.
static LOADED: LazyLock<Mutex<HashMap<(i32, Product), Loaded>>> = LazyLock::new(Mutex::default);

fn driver() -> Result<&'static Driver, Status> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    let driver = DRIVER.get_or_init(Driver::open).as_ref();
    driver.ok_or(Status::NOT_INITIALIZED)
}

/// Checks that the calling thread has a device to launch on.
/// # Errors
/// [`Status::NOT_INITIALIZED`] if not.
pub fn has_context() -> Result<(), Status> {
    current_device(driver()?).map(drop)
}

fn current_device(driver: &Driver) -> Result<CUdevice, Status> {
    let mut device = CUdevice::INVALID;
    match (driver.cuCtxGetDevice)(&raw mut device) {
        CUresult::SUCCESS => Ok(device),
        _ => Err(Status::NOT_INITIALIZED),
    }
}

/// Launches a product's kernel on a stream of the calling thread's device.
/// # Errors
/// [`Status::NOT_INITIALIZED`] without a device, [`Status::NOT_SUPPORTED`] on a device that the
/// software GPU's table lacks or whose driver refuses the image, [`Status::EXECUTION_FAILED`] if
/// the driver refuses the launch.
pub fn launch(product: &Product, stream: CUstream) -> Result<(), Status> {
    if product.is_empty() {
        return Ok(());
    }
    let driver = driver()?;
    let device = current_device(driver)?;
    let loaded = {
        let mut loaded = LOADED.lock();
        match loaded.get(&(device.0, *product)) {
            Some(known) => known.clone(),
            None => {
                let new = load(driver, device, product)?;
                loaded.insert((device.0, *product), new.clone());
                new
            }
        }
    };
    let function = CUfunction(std::ptr::with_exposed_provenance_mut(loaded.handle));
    let (blocks, threads) = (loaded.kernel.grid_blocks, loaded.kernel.block_threads);
    let none = std::ptr::null_mut();
    let launched =
        (driver.cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, 0, stream, none, none);
    match launched {
        CUresult::SUCCESS => Ok(()),
        _ => Err(Status::EXECUTION_FAILED),
    }
}

/// Loads the image of a product's kernel, which is never unloaded.
fn load(driver: &Driver, device: CUdevice, product: &Product) -> Result<Loaded, Status> {
    let mut name = [0u8; 256];
    let asked = (driver.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, device);
    if asked != CUresult::SUCCESS {
        return Err(Status::NOT_INITIALIZED);
    }
    let text = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let device = Device::by_name(&String::from_utf8_lossy(text));
    let kernel = product.kernel(&device.map_err(|_| Status::NOT_SUPPORTED)?);
    let c_text = |text: &str| CString::new(text).map_err(|_| Status::INTERNAL_ERROR);
    let (image, name) = (c_text(&kernel.image)?, c_text(&kernel.name)?);
    let (mut library, mut handle) = (CUlibrary::NULL, CUkernel::NULL);
    let (no_options, no_values) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
    let loaded = (driver.cuLibraryLoadData)(
        &raw mut library,
        image.as_ptr().cast(),
        no_options,
        no_values,
        0,
        options,
        values,
        0,
    );
    if loaded != CUresult::SUCCESS {
        return Err(Status::NOT_SUPPORTED);
    }
    match (driver.cuLibraryGetKernel)(&raw mut handle, library, name.as_ptr()) {
        CUresult::SUCCESS => Ok(Loaded {
            handle: handle.0.expose_provenance(),
            kernel,
        }),
        _ => Err(Status::INTERNAL_ERROR),
    }
}
