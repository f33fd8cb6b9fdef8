//! Objects that compilers register when a program starts: fat binaries, and their kernels and
//! variables, by the addresses of their host symbols. An image is loaded at their first use.

use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_void};
use std::sync::LazyLock;

use abi::types::{CUdeviceptr, CUkernel, CUlibrary};
use parking_lot::RwLock;

use crate::driver::Driver;
use crate::error::Error;

/// The handle of a registered fat binary: a number, 0 for none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Image(usize);

/// An address registered by the program; the runtime passes it to the driver and compares it.
type Address = usize;

#[derive(Debug, Default)]
struct Registry {
    images: HashMap<Image, LoadedImage>,
    kernels: HashMap<Address, Kernel>,
    variables: HashMap<Address, Variable>,
    /// Kernels that the program obtained as such, which it may pass in place of a host function.
    handed_out: HashSet<Address>,
    last: usize,
}

#[derive(Debug)]
struct LoadedImage {
    /// The compiler's wrapper in the program.
    wrapper: Address,
    library: Option<Handle>,
}

#[derive(Clone, Copy, Debug)]
struct Kernel {
    image: Image,
    name: Address,
    handle: Option<Handle>,
}

#[derive(Clone, Copy, Debug)]
struct Variable {
    image: Image,
    name: Address,
    bytes: usize,
}

/// A handle of the driver's as a number, so that threads can share it.
#[derive(Clone, Copy, Debug)]
struct Handle(usize);

impl Handle {
    fn of(pointer: *mut c_void) -> Self {
        Self(pointer.expose_provenance())
    }

    fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

pub(crate) fn register_image(wrapper: *mut c_void) -> Image {
    let mut registry = REGISTRY.write();
    registry.last += 1;
    let image = Image(registry.last);
    let wrapper = wrapper.expose_provenance();
    let loaded = LoadedImage {
        wrapper,
        library: None,
    };
    registry.images.insert(image, loaded);
    image
}

/// Removes a fat binary, whose part of the program is unloaded. Its kernels and variables can no
/// longer be used; the driver, which may be unloaded by now, keeps what it has loaded until the
/// end.
pub(crate) fn forget_image(image: Image) {
    // In a child of `fork` the lock's holder may not exist, and an ending process needs no removal.
    if let Some(mut registry) = REGISTRY.try_write() {
        registry.images.remove(&image);
    }
}

pub(crate) fn register_kernel(image: Image, host: *const c_void, name: *const c_char) {
    let kernel = Kernel {
        image,
        name: name.expose_provenance(),
        handle: None,
    };
    REGISTRY
        .write()
        .kernels
        .insert(host.expose_provenance(), kernel);
}

pub(crate) fn register_variable(
    image: Image,
    host: *const c_void,
    name: *const c_char,
    bytes: usize,
) {
    let variable = Variable {
        image,
        name: name.expose_provenance(),
        bytes,
    };
    REGISTRY
        .write()
        .variables
        .insert(host.expose_provenance(), variable);
}

/// Records a kernel that the program obtained as such.
pub(crate) fn note_kernel(kernel: CUkernel) {
    let address = kernel.0.expose_provenance();
    REGISTRY.write().handed_out.insert(address);
}

/// The kernel of a host function, or a kernel passed in its place.
pub(crate) fn kernel(driver: &Driver, host: *const c_void) -> Result<CUkernel, Error> {
    let address = host.expose_provenance();
    let known = {
        let registry = REGISTRY.read();
        if registry.handed_out.contains(&address) {
            return Ok(kernel_of(Handle(address)));
        }
        registry.kernels.get(&address).copied()
    };
    let known = known.ok_or(Error::INVALID_DEVICE_FUNCTION)?;
    if let Some(handle) = known.handle {
        return Ok(kernel_of(handle));
    }
    let library = load(driver, known.image)?;
    let mut kernel = CUkernel::NULL;
    let name = std::ptr::with_exposed_provenance(known.name);
    let asked = driver.cuLibraryGetKernel(&raw mut kernel, library, name);
    asked.map_err(|_| Error::INVALID_DEVICE_FUNCTION)?;
    if let Some(known) = REGISTRY.write().kernels.get_mut(&address) {
        known.handle = Some(Handle::of(kernel.0));
    }
    Ok(kernel)
}

pub(crate) fn variable(
    driver: &Driver,
    host: *const c_void,
) -> Result<(CUdeviceptr, usize), Error> {
    let address = host.expose_provenance();
    let known = REGISTRY.read().variables.get(&address).copied();
    let known = known.ok_or(Error::INVALID_SYMBOL)?;
    let library = load(driver, known.image)?;
    let (mut place, mut bytes) = (CUdeviceptr(0), 0);
    let name = std::ptr::with_exposed_provenance(known.name);
    let asked = driver.cuLibraryGetGlobal(&raw mut place, &raw mut bytes, library, name);
    asked.map_err(|_| Error::INVALID_SYMBOL)?;
    Ok((place, bytes.min(known.bytes.max(1))))
}

pub(crate) fn load(driver: &Driver, image: Image) -> Result<CUlibrary, Error> {
    // Loads under the lock, so that only one of two threads does it.
    let mut registry = REGISTRY.write();
    let found = registry.images.get_mut(&image);
    let found = found.ok_or(Error::INVALID_DEVICE_FUNCTION)?;
    if let Some(library) = found.library {
        return Ok(CUlibrary(library.pointer()));
    }
    let mut library = CUlibrary::NULL;
    let none = std::ptr::null_mut();
    driver.cuLibraryLoadData(
        &raw mut library,
        std::ptr::with_exposed_provenance(found.wrapper),
        none,
        std::ptr::null_mut(),
        0,
        none,
        std::ptr::null_mut(),
        0,
    )?;
    found.library = Some(Handle::of(library.0));
    Ok(library)
}

fn kernel_of(handle: Handle) -> CUkernel {
    CUkernel(handle.pointer())
}
