//! The C functions. Each calls one method of the driver through `crate::door`; none makes
//! decisions. Parameter types are those of `crate::raw`, so that no function here touches the
//! application's memory. [`ADDRESSES`] names every symbol: `abi`'s table is complete.

#![expect(unsafe_code, reason = "exports C functions")]

mod array;
mod capture;
mod context;
mod copy;
mod copy_box;
mod copy_linear;
mod device;
mod entry;
mod event;
mod exec;
mod function;
mod graph;
mod green;
mod host;
mod launch;
mod library;
mod managed;
mod memory;
mod module;
mod node;
mod own;
mod physical;
mod pool;
mod stream;
mod unsupported;
mod value;

use abi::ENTRY_POINT_COUNT;

/// Defines exported functions. `|driver|` runs once the driver is initialised; `early ||` always;
/// `live |driver|` does nothing in null mode.
macro_rules! exports {
    () => {};
    ($name:ident($($arg:ident: $type:ty),* $(,)?) early || $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*) $crate::door::enter_early(move || $body) }
        $crate::exports::exports! { $($rest)* }
    };
    ($name:ident($($arg:ident: $type:ty),* $(,)?) live |$driver:pat_param| $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*) {
            // Before the closure captures the arguments, so that they stay in registers here.
            if $crate::door::is_null() {
                $crate::event_lock::take_part_in_null_mode(
                    const { $crate::event_lock::part(abi::id::$name) },
                );
                return abi::types::CUresult::SUCCESS;
            }
            $crate::door::enter(
                const { $crate::captures::care(abi::id::$name) },
                move |$driver| $body,
            )
        } }
        $crate::exports::exports! { $($rest)* }
    };
    ($name:ident($($arg:ident: $type:ty),* $(,)?) |$driver:pat_param| $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*) $crate::door::enter(
            const { $crate::captures::care(abi::id::$name) },
            move |$driver| $body,
        ) }
        $crate::exports::exports! { $($rest)* }
    };
}

macro_rules! define {
    ($name:ident($($arg:ident: $type:ty),*) $body:expr) => {
        #[allow(clippy::too_many_arguments, reason = "the prototype is the driver's")]
        // SAFETY: the name is the driver's own: nothing else in its process has this name.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $type),*) -> abi::types::CUresult {
            $body
        }
    };
}

/// Defines both forms of functions with a stream: `|driver, flavour|` gets the meaning of stream 0.
macro_rules! flavoured {
    () => {};
    ($legacy:ident $per_thread:ident $args:tt $($live:ident)? |$driver:pat_param, $flavour:pat_param| $body:expr;
        $($rest:tt)*) => {
        $crate::exports::exports! {
            $legacy $args $($live)? |$driver| {
                let $flavour = $crate::streams::Flavour::Legacy;
                $body
            };
        }
        $crate::exports::exports! {
            $per_thread $args $($live)? |$driver| {
                let $flavour = $crate::streams::Flavour::PerThread;
                $body
            };
        }
        $crate::exports::flavoured! { $($rest)* }
    };
}

use {define, exports, flavoured};

/// An exported function's address, for `cuGetProcAddress`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) *const ());

// SAFETY: the address of a function is the same and callable in every thread.
unsafe impl Sync for Address {}

/// Every entry point's address, by its index in `abi`'s table; a missing symbol does not compile.
pub(crate) static ADDRESSES: [Address; ENTRY_POINT_COUNT] = {
    use self::{
        array::*, capture::*, context::*, copy::*, copy_box::*, copy_linear::*, device::*,
        entry::*, event::*, exec::*, function::*, graph::*, green::*, host::*, launch::*,
        library::*, managed::*, memory::*, module::*, node::*, physical::*, pool::*, stream::*,
        unsupported::*, value::*,
    };
    let mut table = [Address(std::ptr::null()); ENTRY_POINT_COUNT];
    macro_rules! enter {
        ($($name:ident)*) => { $(table[abi::id::$name] = Address($name as *const ());)* };
    }
    abi::for_each_softgpu! { enter }
    abi::for_each_not_softgpu! { enter }
    table
};
