//! The interface for programs that use Pillion directly: `include/pillion.h`. One function,
//! `pillion_api`, returns a table of functions. The table grows only at its end and states its
//! size, so that programs and libraries of different versions work together.

#![expect(unsafe_code, reason = "a symbol for programs")]

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::process::batch_handlers::OnBatch;
use crate::process::batches;
use crate::process::marks::{self, Beginning, Ending};

/// Version of this interface; it changes if a function's meaning does.
const ABI: u32 = 1;

/// `pillion_v1`.
#[repr(C)]
pub(super) struct Api {
    size: u32,
    abi: u32,
    begin: extern "C" fn(u64, u32, u32) -> u64,
    end: extern "C" fn(u64) -> c_int,
    cancel: extern "C" fn(u64) -> c_int,
    slo: extern "C" fn(u32, u64, u32) -> c_int,
    iteration: extern "C" fn() -> c_int,
    batch_range: extern "C" fn(u32, u32, u32, u32) -> c_int,
    batch_wanted: extern "C" fn(u32, u32) -> u32,
    on_batch: extern "C" fn(u32, Option<OnBatch>, *mut c_void) -> c_int,
}

const _: () = assert!(size_of::<Api>() == 8 + 8 * 8);

const API: &Api = &Api {
    size: size_of::<Api>() as u32,
    abi: ABI,
    begin,
    end,
    cancel,
    slo,
    iteration,
    batch_range,
    batch_wanted,
    on_batch,
};

/// The functions of interface version `abi`; null if this library does not have that version.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(super) extern "C" fn pillion_api(abi: u32) -> *const Api {
    match abi {
        ABI => API,
        _ => ptr::null(),
    }
}

extern "C" fn begin(arrived_ns: u64, kind: u32, batch: u32) -> u64 {
    marks::begin(&Beginning {
        arrived_ns,
        kind,
        batch,
        is_nvtx: false,
    })
}

extern "C" fn end(id: u64) -> c_int {
    result(marks::end(id, Ending::default()))
}

extern "C" fn cancel(id: u64) -> c_int {
    let is_cancelled = true;
    result(marks::end(
        id,
        Ending {
            is_cancelled,
            ..Ending::default()
        },
    ))
}

extern "C" fn slo(kind: u32, ns: u64, per_mille: u32) -> c_int {
    result(marks::target(kind, ns, per_mille))
}

extern "C" fn iteration() -> c_int {
    result(marks::iteration())
}

extern "C" fn batch_range(kind: u32, least: u32, most: u32, step: u32) -> c_int {
    result(batches::set_range(kind, least, most, step))
}

extern "C" fn batch_wanted(kind: u32, current: u32) -> u32 {
    batches::wanted(kind).unwrap_or(current)
}

extern "C" fn on_batch(kind: u32, function: Option<OnBatch>, data: *mut c_void) -> c_int {
    result(batches::set_handler(kind, function, data))
}

fn result(is_done: bool) -> c_int {
    if is_done { 0 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_process_that_is_no_client_everything_is_refused_and_nothing_happens() {
        assert!(pillion_api(0).is_null() && pillion_api(2).is_null());
        // SAFETY: never null for this number, and never freed.
        let api = unsafe { &*pillion_api(1) };
        assert_eq!((api.size, api.abi), (72, 1));
        assert_eq!((api.begin)(0, 1, 2), 0);
        assert_eq!(((api.end)(0), (api.end)(7), (api.cancel)(7)), (-1, -1, -1));
        assert_eq!(((api.slo)(0, 1_000_000, 990), (api.iteration)()), (-1, -1));
        assert_eq!(
            ((api.batch_range)(0, 1, 8, 1), (api.batch_wanted)(0, 3)),
            (-1, 3)
        );
        assert_eq!((api.on_batch)(0, None, ptr::null_mut()), -1);
    }
}
