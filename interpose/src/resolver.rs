//! The third door: `cuGetProcAddress`.
//!
//! The driver answers first; then the address it answered is looked for among the driver's own
//! exports that we hook. Names and versions are never interpreted: 21 families of entry points
//! change their parameters between versions, and only the driver knows which one it chose. So what
//! the application gets is the hook of exactly the function that it would have got.

use core::ffi::{CStr, c_void};

use crate::exports;
use crate::real;

/// The hook for an address that the driver gave for `api`, if it is that of a hooked entry point.
pub(crate) fn substitute(
    answered: *mut c_void,
    api: Option<&CStr>,
    per_thread: bool,
) -> Option<*mut c_void> {
    let mut candidates = exports::hooked_indices()
        .filter(|&index| real::loaded(index).is_some_and(|address| address.as_ptr() == answered));
    let first = candidates.next()?;
    let Some(second) = candidates.next() else {
        return exports::hook_of(first);
    };
    // A driver may implement several entry points by one function. Then, and only then, what was
    // asked for tells which is meant.
    let is_meant = |&index: &usize| {
        abi::ENTRY_POINTS.get(index).is_some_and(|entry_point| {
            entry_point.per_thread == per_thread
                && api.is_some_and(|api| api.to_bytes() == entry_point.api.as_bytes())
        })
    };
    [first, second]
        .into_iter()
        .chain(candidates)
        .find(is_meant)
        .and_then(exports::hook_of)
}
