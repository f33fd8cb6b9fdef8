//! The entry into each call: checks initialisation, and catches panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abi::types::CUresult;

use crate::captures::Care;
use crate::driver::{self, Driver};
use crate::fork_guard::{Mode, mode};
use crate::thread;

/// Runs a call that needs an initialised driver, unless a capture forbids it or a host function
/// called by the driver makes it.
pub(crate) fn enter(
    care: Care,
    call: impl FnOnce(&'static Driver) -> Result<(), CUresult>,
) -> CUresult {
    enter_early(|| {
        let driver = driver::live().ok_or(CUresult::NOT_INITIALIZED)?;
        if thread::is_in_host_call() {
            return Err(CUresult::NOT_PERMITTED);
        }
        driver.check_capture(care)?;
        call(driver)
    })
}

/// Runs a call that needs no initialisation.
pub(crate) fn enter_early(call: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    // A panic must not unwind into C. All state is behind locks, which do not poison; at worst a
    // table misses an entry.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUresult::UNKNOWN,
    }
}

/// Whether the process is in null mode, where server calls succeed at once. Costs two loads.
#[inline]
pub(crate) fn is_null() -> bool {
    mode() == Mode::Null
}

/// Refuses a call of an entry point that the software GPU lacks.
pub(crate) fn refuse() -> CUresult {
    enter(Care::None, |driver| {
        driver.link.count_not_supported();
        Err(CUresult::NOT_SUPPORTED)
    })
}
