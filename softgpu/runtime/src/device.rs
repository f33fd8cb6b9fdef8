//! The current device of a thread, and that device's primary context.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use abi::types::{CUcontext, CUdevice, CUdevice_attribute};

use crate::driver::Driver;
use crate::error::Error;

/// Devices whose primary contexts are remembered; beyond, each change of device retains it again.
const DEVICES: usize = 64;

/// The retained primary contexts. They are never released, as in the real runtime.
static PRIMARY: [AtomicPtr<std::ffi::c_void>; DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];

thread_local! {
    /// The last `cudaSetDevice` of this thread.
    static CHOSEN: Cell<c_int> = const { Cell::new(0) };
}

fn chosen() -> c_int {
    CHOSEN.try_with(Cell::get).unwrap_or(0)
}

pub(crate) fn device(driver: &Driver, ordinal: c_int) -> Result<CUdevice, Error> {
    let mut device = CUdevice::INVALID;
    driver
        .cuDeviceGet(&raw mut device, ordinal)
        .map_err(|error| match error {
            Error::INVALID_VALUE => Error::INVALID_DEVICE,
            error => error,
        })?;
    Ok(device)
}

pub(crate) fn primary_context(driver: &Driver, ordinal: c_int) -> Result<CUcontext, Error> {
    let device = device(driver, ordinal)?;
    let place = usize::try_from(ordinal)
        .ok()
        .and_then(|ordinal| PRIMARY.get(ordinal));
    // Acquire pairs with the Release below: a thread that sees the context may use it.
    let known = place.map(|place| CUcontext(place.load(Ordering::Acquire)));
    if let Some(known) = known.filter(|known| !known.is_null()) {
        return Ok(known);
    }
    let mut context = CUcontext::NULL;
    driver.cuDevicePrimaryCtxRetain(&raw mut context, device)?;
    if let Some(place) = place {
        // Two threads at once have both retained it, and it is the same one.
        place.store(context.0, Ordering::Release);
    }
    Ok(context)
}

/// Gives the calling thread a context if it has none: its device's primary one.
pub(crate) fn make_current(driver: &Driver) -> Result<(), Error> {
    let mut context = CUcontext::NULL;
    driver.cuCtxGetCurrent(&raw mut context)?;
    if context.is_null() {
        driver.cuCtxSetCurrent(primary_context(driver, chosen())?)?;
    }
    Ok(())
}

/// Implements `cudaSetDevice`: chooses, and makes the primary context current.
pub(crate) fn choose(driver: &Driver, ordinal: c_int) -> Result<(), Error> {
    driver.cuCtxSetCurrent(primary_context(driver, ordinal)?)?;
    // At the very end of a thread this storage no longer exists.
    let _ = CHOSEN.try_with(|chosen| chosen.set(ordinal));
    Ok(())
}

/// Result of `cudaGetDevice`: the current context's device, else the chosen one; creates no
/// context.
pub(crate) fn current(driver: &Driver) -> c_int {
    let mut device = CUdevice::INVALID;
    match driver.cuCtxGetDevice(&raw mut device) {
        Ok(()) => device.0,
        Err(_) => chosen(),
    }
}

pub(crate) fn attribute(
    driver: &Driver,
    device: CUdevice,
    attribute: CUdevice_attribute,
) -> Result<c_int, Error> {
    let mut value = 0;
    driver.cuDeviceGetAttribute(&raw mut value, attribute, device)?;
    Ok(value)
}
