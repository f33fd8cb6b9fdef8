//! The third door: `cuGetProcAddress`. The driver answers first; then its answer is searched among
//! the driver's exports that we hook. Names and versions are never interpreted: 21 families of
//! entry points change their parameters between versions, and only the driver knows which one it
//! chose. So the application gets the hook of exactly the function that it would have got.

use core::ffi::{CStr, c_void};

use crate::driver::real::{self, HOOKED};

/// The entry point whose hook replaces the driver's answer for `api`, if there is one.
pub(crate) fn substitute(
    answered: *mut c_void,
    api: Option<&CStr>,
    version: u32,
    per_thread: bool,
) -> Option<usize> {
    let mut candidates = HOOKED
        .iter()
        .copied()
        .filter(|&index| real::loaded(index).is_some_and(|address| address.as_ptr() == answered));
    let first = candidates.next()?;
    let Some(second) = candidates.next() else {
        return Some(first);
    };
    // A driver may implement several entry points by one function. Only then the request decides:
    // the newest form that is not newer than requested.
    let api = api?.to_str().ok()?;
    let meant = abi::newest(api, version, per_thread)?;
    [first, second]
        .into_iter()
        .chain(candidates)
        .find(|&index| index == meant)
}
