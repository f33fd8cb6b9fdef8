//! Initialisation, and the ways to other entry points.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use abi::types::{CUdriverProcAddress_flags, CUdriverProcAddressQueryResult, CUresult};

use super::hook;
use crate::dispatch::guard;
use crate::dispatch::telemetry::{self, Door};
use crate::driver::real;
use crate::hooks::{cuda, resolver};

hook! {
    cuInit(flags: c_uint);
    after |_, _| ();
}

/// Defines a resolver. It does not use [`hook!`]: it has no state to guard, and must return hooks
/// also to callers within another hook, such as a tool that `cuInit` loads.
macro_rules! resolver {
    ($name:ident($($more:ident: $type:ty)?)) => {
        /// The hook of this symbol. Safety: as the driver's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, expect(non_snake_case, reason = "named exactly like the symbol"))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            symbol: *const c_char,
            function: *mut *mut c_void,
            cuda_version: c_int,
            flags: u64,
            $($more: $type,)?
        ) -> CUresult {
            const _: () = assert!(
                matches!(abi::ENTRY_POINTS[abi::id::$name].route, abi::Route::Hook),
                "exported but not routed to a hook"
            );
            type Real = unsafe extern "C-unwind" fn(
                *const c_char, *mut *mut c_void, c_int, u64, $($type,)?
            ) -> CUresult;
            let Some(address) = real::entry_point(abi::id::$name) else {
                return real::missing();
            };
            // SAFETY: the driver's function of this symbol, with these types in `abi`'s prototype.
            let real = unsafe { core::mem::transmute::<*mut c_void, Real>(address.as_ptr()) };
            // SAFETY: the application's own arguments, passed on.
            let result = unsafe { real(symbol, function, cuda_version, flags, $($more,)?) };
            if result == CUresult::SUCCESS && !function.is_null() && !real::are_hooks_elsewhere() {
                // SAFETY: on success the driver's answer is there; the symbol is a string.
                guard::follow(abi::id::$name, || unsafe {
                    replace_answer(symbol, function, cuda_version, flags);
                });
            }
            result
        }
        crate::hooks::cuda::signature! {
            $name(*const c_char, *mut *mut c_void, c_int, u64 $(, $type)?)
        }
    };
}

resolver!(cuGetProcAddress());
resolver!(cuGetProcAddress_v2(status: *mut CUdriverProcAddressQueryResult));

/// Replaces the driver's answer by the hook, if there is one. Safety: `function` is where the
/// driver stored its answer; `symbol` is null or ends in NUL.
unsafe fn replace_answer(
    symbol: *const c_char,
    function: *mut *mut c_void,
    cuda_version: c_int,
    flags: u64,
) {
    // SAFETY: see above.
    let answered = unsafe { *function };
    if answered.is_null() {
        return;
    }
    // SAFETY: see above.
    let api = (!symbol.is_null()).then(|| unsafe { CStr::from_ptr(symbol) });
    let asked = u64::from(CUdriverProcAddress_flags::PER_THREAD_DEFAULT_STREAM.0);
    let per_thread = flags & asked != 0;
    // The driver treats a version below 0 the same way.
    let version = cuda_version.cast_unsigned();
    let index = resolver::substitute(answered, api, version, per_thread);
    if let Some((index, hook)) = index.and_then(|index| Some((index, cuda::hook_of(index)?))) {
        telemetry::handle_resolved(Door::ProcAddress, index, true);
        // SAFETY: see above.
        unsafe { *function = hook };
    } else if let Some(api) = api {
        let known = api.to_str().ok();
        match known.and_then(|api| abi::newest(api, version, per_thread)) {
            Some(index) if cuda::hook_of(index).is_some() => telemetry::handle_passed_by(index),
            Some(index) => telemetry::handle_resolved(Door::ProcAddress, index, false),
            None => telemetry::handle_unknown(api),
        }
    }
}
