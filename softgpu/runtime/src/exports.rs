//! The stand-in's C functions of `cuda_runtime_api.h` and `crt/host_runtime.h`. Each calls into
//! `crate::door` with a short closure. The driver's arguments pass unchanged.

#![expect(unsafe_code, reason = "exports C functions")]

mod code;
#[cfg(cuda12)]
mod cuda12;
#[cfg(not(cuda12))]
mod cuda13;
mod device;
mod event;
mod graph;
mod launch;
mod memory;
mod register;
mod stream;

/// Defines exported functions. `|driver|` runs with the thread's device ready, `anywhere |driver|`
/// once the driver is initialised, `early ||` always.
macro_rules! exports {
    () => {};
    ($name:ident($($arg:ident: $type:ty),* $(,)?) early || $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*) $crate::door::enter_early(move || $body) }
        $crate::exports::exports! { $($rest)* }
    };
    ($name:ident($($arg:ident: $type:ty),* $(,)?) anywhere |$driver:pat_param| $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*)
            $crate::door::enter_without_device(move |$driver| $body)
        }
        $crate::exports::exports! { $($rest)* }
    };
    ($name:ident($($arg:ident: $type:ty),* $(,)?) |$driver:pat_param| $body:expr; $($rest:tt)*) => {
        $crate::exports::define! { $name($($arg: $type),*) $crate::door::enter(move |$driver| $body) }
        $crate::exports::exports! { $($rest)* }
    };
}

macro_rules! define {
    ($name:ident($($arg:ident: $type:ty),*) $body:expr) => {
        $crate::exports::define! { $name($($arg: $type),*) -> $crate::error::Error { $body } }
    };
    ($name:ident($($arg:ident: $type:ty),*) -> $result:ty { $body:expr }) => {
        #[allow(clippy::too_many_arguments, reason = "the prototype is the runtime's")]
        // SAFETY: the name is the runtime's own: nothing else in its process has this name.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $type),*) -> $result {
            $body
        }
    };
}

use {define, exports};
