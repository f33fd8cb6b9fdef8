//! The driver's own entry points. Each is looked up once in the loaded `libcuda.so.1`, with the
//! real `dlsym`, on first use: a process that never touches CUDA never looks. A driver that is not
//! loaded yet is loaded only when one of our exports is called, which a program linked with libcuda
//! does. Where the program's `libcuda.so.1` is our shim, the shim does all the work and the preload
//! library steps aside. In the shim itself the driver is another file of that name; see [`find`].

#![expect(
    unsafe_code,
    reason = "asks the dynamic linker, which answers by pointers"
)]

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
#[cfg(not(shim))]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicPtr, Ordering};

use abi::ENTRY_POINT_COUNT;
use abi::types::CUresult;

use crate::platform::{config, elf, loader};

#[cfg(not(shim))]
#[path = "real/program.rs"]
mod find;
#[cfg(shim)]
#[path = "real/shim.rs"]
mod find;

macro_rules! indices {
    ($($name:ident)*) => {
        pub(crate) static HOOKED: &[usize] = &[$(abi::id::$name),*];
    };
}

abi::for_each_hooked! { indices }

static DRIVER: Driver = Driver::new();

struct Driver {
    /// Entry points: null is not looked up yet, [`MISSING`] not in this driver.
    found: [AtomicPtr<c_void>; ENTRY_POINT_COUNT],
    /// The driver's library; null while not loaded. Never closed, so that addresses stay valid.
    library: AtomicPtr<c_void>,
    #[cfg(not(shim))]
    is_shim: AtomicBool,
}

impl Driver {
    const fn new() -> Self {
        Self {
            found: [const { AtomicPtr::new(ptr::null_mut()) }; ENTRY_POINT_COUNT],
            library: AtomicPtr::new(ptr::null_mut()),
            #[cfg(not(shim))]
            is_shim: AtomicBool::new(false),
        }
    }
}

const MISSING: *mut c_void = ptr::without_provenance_mut(1);

#[inline]
pub(crate) fn entry_point(index: usize) -> Option<NonNull<c_void>> {
    known_or(index, |index| look_up(index, libc::RTLD_LAZY))
}

/// As above if it was looked up before, else the result of `first`.
#[inline]
pub(crate) fn known_or(
    index: usize,
    first: impl FnOnce(usize) -> Option<NonNull<c_void>>,
) -> Option<NonNull<c_void>> {
    // Acquire pairs with the Release store in `look_up`: the library is completely loaded.
    let found = DRIVER.found.get(index)?.load(Ordering::Acquire);
    if found.is_null() {
        return first(index);
    }
    NonNull::new(found).filter(|found| found.as_ptr() != MISSING)
}

/// As [`entry_point`], but never loads the driver.
pub(crate) fn loaded(index: usize) -> Option<NonNull<c_void>> {
    known_or(index, |index| {
        look_up(index, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
    })
}

/// Whether the driver has the entry point; does not record the look-up.
#[cfg(shim)]
pub(crate) fn has(index: usize) -> bool {
    find_in(index, libc::RTLD_LAZY).is_some()
}

/// Whether the loaded driver exports a name that our table lacks.
#[cfg(not(shim))]
pub(crate) fn has_unknown(name: &core::ffi::CStr) -> bool {
    // Acquire: as in `library`.
    NonNull::new(DRIVER.library.load(Ordering::Acquire)).is_some_and(|library| {
        // SAFETY: an open library and a string that ends in NUL.
        !unsafe { loader::dlsym()(library.as_ptr(), name.as_ptr()) }.is_null()
    })
}

#[cold]
pub(crate) fn missing() -> CUresult {
    // Nothing depends on this Acquire: only whether the pointer is null is used.
    if DRIVER.library.load(Ordering::Acquire).is_null() {
        CUresult::NO_DEVICE
    } else {
        CUresult::NOT_FOUND
    }
}

#[cold]
fn look_up(index: usize, mode: c_int) -> Option<NonNull<c_void>> {
    library(mode)?;
    let found = find_in(index, mode);
    let kept = found.map_or(MISSING, NonNull::as_ptr);
    // Release pairs with the Acquire in `known_or`.
    DRIVER.found.get(index)?.store(kept, Ordering::Release);
    found
}

fn find_in(index: usize, mode: c_int) -> Option<NonNull<c_void>> {
    let symbol = abi::ENTRY_POINTS.get(index)?.symbol;
    // SAFETY: an open library and a string that ends in NUL.
    let found = unsafe { loader::dlsym()(library(mode)?.as_ptr(), symbol.as_ptr()) };
    // A library that returns our own export is not a driver; calling it would recurse for ever.
    NonNull::new(found).filter(|found| !elf::is_ours(found.as_ptr()))
}

/// The driver's library, opened once. Racing threads open it twice, to the same handle.
fn library(mode: c_int) -> Option<NonNull<c_void>> {
    // Acquire pairs with the Release below: the library is completely loaded.
    let known = DRIVER.library.load(Ordering::Acquire);
    if let Some(known) = NonNull::new(known) {
        return Some(known);
    }
    let opened = NonNull::new(find::open(mode))?;
    // Release pairs with the Acquire above, and that of `has_unknown`.
    DRIVER.library.store(opened.as_ptr(), Ordering::Release);
    Some(opened)
}

/// Whether the program's driver is our shim, which provides the hooks itself.
#[cfg(not(shim))]
pub(crate) fn is_shim() -> bool {
    DRIVER.is_shim.load(Ordering::Relaxed)
}

#[cfg(shim)]
pub(crate) fn is_shim() -> bool {
    false
}

pub(crate) fn are_hooks_elsewhere() -> bool {
    config::is_disabled() || is_shim()
}
