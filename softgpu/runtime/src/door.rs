//! The entry into each call: readies driver and device, keeps errors, and catches panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::device;
use crate::driver::{self, Driver};
use crate::error::Error;

thread_local! {
    /// The result of `cudaGetLastError` in this thread.
    static LAST: Cell<Error> = const { Cell::new(Error::SUCCESS) };
}

/// Runs a call that works on the calling thread's current device.
pub(crate) fn enter(call: impl FnOnce(&'static Driver) -> Result<(), Error>) -> Error {
    enter_early(|| {
        let driver = driver::initialised()?;
        device::make_current(driver)?;
        call(driver)
    })
}

/// Runs a call that needs the driver, but not the thread's device.
pub(crate) fn enter_without_device(
    call: impl FnOnce(&'static Driver) -> Result<(), Error>,
) -> Error {
    enter_early(|| call(driver::initialised()?))
}

pub(crate) fn enter_early(call: impl FnOnce() -> Result<(), Error>) -> Error {
    // A panic is a bug of ours and must not unwind into C. The locks do not poison.
    let answer = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Error::SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => Error::UNKNOWN,
    };
    // At the very end of a thread this storage no longer exists.
    let _ = LAST.try_with(|last| last.set(answer));
    answer
}

/// Returns and resets the last error of the calling thread.
pub(crate) fn take_last_error() -> Error {
    LAST.try_with(|last| last.replace(Error::SUCCESS))
        .unwrap_or(Error::SUCCESS)
}

pub(crate) fn last_error() -> Error {
    LAST.try_with(Cell::get).unwrap_or(Error::SUCCESS)
}
