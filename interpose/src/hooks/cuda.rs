//! The first door: the hooks, exported under the driver's names, and the table of them. The table
//! is made from the list in `abi`: a hooked symbol without a function here does not compile, nor
//! does a function here without a hooked symbol. Every hook is written with [`hook!`], which makes
//! it go through [`crate::dispatch::guard`]. Hooks, and the driver's functions as we call them, are
//! `extern "C-unwind"`: a thread cancelled (`pthread_cancel`) in the driver unwinds through us.

#![expect(
    unsafe_code,
    reason = "hooks are C functions, called with the application's pointers"
)]

mod array;
#[cfg(test)]
mod audit;
mod capture;
mod context;
mod copy;
mod copy_shape;
mod entry;
mod graph;
mod lasting;
mod launch;
mod memory;
mod module;
mod order;
mod physical;
mod pool;
mod prefetch;
mod set;
mod stream;
mod sync;
mod view;

use core::ffi::c_void;

use abi::ENTRY_POINT_COUNT;
use abi::types::CUresult;

/// Keeps a hook's parameter types, as written, for the test against the prototypes of `abi`.
macro_rules! signature {
    ($name:ident($($type:ty),*)) => {
        #[cfg(test)]
        #[expect(non_camel_case_types, reason = "named exactly like the symbol")]
        pub(crate) enum $name {}
        #[cfg(test)]
        impl crate::hooks::cuda::audit::Signature for $name {
            const PARAMETERS: &'static [&'static str] = &[$(stringify!($type)),*];
        }
    };
}
use signature;

/// Defines one hook: its parameters, the part before the real call, the real call (with the
/// application's arguments by default), and the part after. An `always` hook also runs while the
/// process is unmanaged, because a context on another device may change that.
macro_rules! hook {
    (
        @through $pass:ident
        $name:ident($($argument:ident: $type:ty),* $(,)?);
        before |$client_before:pat_param| $before:expr;
        call |$prepared:pat_param, $real:ident| $call:expr;
        after |$client_after:pat_param, $made:pat_param, $result:pat_param| $after:expr;
    ) => {
        /// The hook of this symbol. Safety: as the driver's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[cfg_attr(test, expect(non_snake_case, reason = "named exactly like the symbol"))]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($argument: $type),*
        ) -> abi::types::CUresult {
            const _: () = assert!(
                matches!(abi::ENTRY_POINTS[abi::id::$name].route, abi::Route::Hook),
                "exported but not routed to a hook"
            );
            let Some(address) = crate::dispatch::guard::called(abi::id::$name) else {
                return crate::driver::real::missing();
            };
            // SAFETY: the driver's function of this symbol, with these types in `abi`'s prototype.
            let $real = unsafe {
                core::mem::transmute::<
                    *mut core::ffi::c_void,
                    unsafe extern "C-unwind" fn($($type),*) -> abi::types::CUresult,
                >(address.as_ptr())
            };
            crate::dispatch::guard::$pass(
                abi::id::$name,
                |client| {
                    const FAMILY: Option<protocol::pages::Counter> =
                        crate::dispatch::telemetry::family(abi::ENTRY_POINTS[abi::id::$name].category);
                    crate::dispatch::telemetry::handle_call(client, FAMILY);
                    let $client_before = client;
                    $before
                },
                |$prepared| $call,
                |$client_after, $made, $result| $after,
            )
        }
        crate::hooks::cuda::signature! { $name($($type),*) }
    };
    (
        @through $pass:ident
        $name:ident($($argument:ident: $type:ty),* $(,)?);
        before |$client_before:pat_param| $before:expr;
        after |$client_after:pat_param, $made:pat_param, $result:pat_param| $after:expr;
    ) => {
        hook! {
            @through $pass
            $name($($argument: $type),*);
            before |$client_before| $before;
            // SAFETY: the application's own arguments, passed on.
            call |_, real| unsafe { real($($argument),*) };
            after |$client_after, $made, $result| $after;
        }
    };
    (
        @through $pass:ident
        $name:ident($($argument:ident: $type:ty),* $(,)?);
        after |$client_after:pat_param, $result:pat_param| $after:expr;
    ) => {
        hook! {
            @through $pass
            $name($($argument: $type),*);
            before |_| ();
            after |$client_after, (), $result| $after;
        }
    };
    (always $($hook:tt)*) => {
        hook! { @through pass_always $($hook)* }
    };
    ($($hook:tt)*) => {
        hook! { @through pass $($hook)* }
    };
}
use hook;

type Function = unsafe extern "C-unwind" fn();

macro_rules! table_of_hooks {
    ($($name:ident)*) => {
        static HOOKS: &[Function] = &[$(
            // SAFETY: only the address is used; callers get it back as the type of the symbol.
            unsafe { core::mem::transmute::<*const (), Function>(all::$name as *const ()) },
        )*];

        /// Position in [`HOOKS`] plus one for each entry point; 0: no hook.
        static POSITIONS: [u16; ENTRY_POINT_COUNT] = {
            let indices = [$(abi::id::$name),*];
            assert!(indices.len() < u16::MAX as usize);
            let mut positions = [0; ENTRY_POINT_COUNT];
            let mut position = 0;
            while position < indices.len() {
                positions[indices[position]] = position as u16 + 1;
                position += 1;
            }
            positions
        };
    };
}

mod all {
    pub(super) use super::array::*;
    pub(super) use super::capture::*;
    pub(super) use super::context::*;
    pub(super) use super::copy::*;
    pub(super) use super::copy_shape::*;
    pub(super) use super::entry::*;
    pub(super) use super::graph::*;
    pub(super) use super::lasting::*;
    pub(super) use super::launch::*;
    pub(super) use super::memory::*;
    pub(super) use super::module::*;
    pub(super) use super::order::*;
    pub(super) use super::physical::*;
    pub(super) use super::pool::*;
    pub(super) use super::prefetch::*;
    pub(super) use super::set::*;
    pub(super) use super::stream::*;
    pub(super) use super::sync::*;
    pub(super) use super::view::*;
}

abi::for_each_hooked! { table_of_hooks }

pub(crate) fn hook_of(index: usize) -> Option<*mut c_void> {
    let position = usize::from(*POSITIONS.get(index)?).checked_sub(1)?;
    Some(*HOOKS.get(position)? as *mut c_void)
}

/// The driver's value of an output parameter, if the call succeeded and the pointer is not null.
/// Safety: `address` is null or the output parameter of a driver call that ended with `result`.
unsafe fn stored<T: Copy>(address: *const T, result: CUresult) -> Option<T> {
    if result != CUresult::SUCCESS || address.is_null() {
        return None;
    }
    // SAFETY: the driver has just written there.
    Some(unsafe { *address })
}

#[cfg(test)]
mod tests {
    use super::*;

    // census: A24
    #[test]
    fn every_hook_is_found_under_its_own_index() {
        for (index, entry_point) in abi::ENTRY_POINTS.iter().enumerate() {
            let is_hooked = entry_point.route == abi::Route::Hook;
            assert_eq!(
                hook_of(index).is_some(),
                is_hooked,
                "{:?}",
                entry_point.symbol
            );
        }
        assert_eq!(
            hook_of(abi::id::cuLaunchKernel),
            Some(all::cuLaunchKernel as *mut c_void)
        );
        assert_eq!(hook_of(ENTRY_POINT_COUNT), None);
    }
}
