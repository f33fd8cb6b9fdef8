//! The types that cross the driver's entry points.
//!
//! Names are those of NVIDIA's public headers, so that a prototype can be read
//! beside the header. Everything is a transparent newtype or `repr(C)`; a value
//! that we have no name for is a value like any other. Values and layouts are
//! those of CUDA 12.8, and hold for the drivers of CUDA 11 to 13; what only a
//! newer header names says so.
//!
//! Handles are addresses in the driver or tokens of its own: we compare them
//! and pass them on, and never look behind them.

mod device_attribute;
mod flags;
mod handle;
mod launch;
mod memory;
mod module;
mod result;

pub use device_attribute::CUdevice_attribute;
pub use flags::{
    CUcomputemode, CUctx_flags, CUdriverProcAddress_flags, CUdriverProcAddressQueryResult,
    CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUexecAffinityParam,
    CUexecAffinityType, CUlimit, CUstream_flags, CUstreamCaptureMode, CUstreamCaptureStatus,
};
pub use handle::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphNode, CUkernel,
    CUlibrary, CUmemGenericAllocationHandle, CUmemoryPool, CUmodule, CUstream, CUuuid,
};
pub use launch::{CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig};
pub use memory::{
    CUmemAllocFlags, CUmemAllocationProp, CUmemAllocationType, CUmemAttach_flags,
    CUmemHostAlloc_flags, CUmemLocation, CUmemLocationType, CUmemorytype, CUpointer_attribute,
};
pub use module::{CUfunction_attribute, CUjit_option, CUmoduleLoadingMode};
pub use result::CUresult;

/// Defines a transparent newtype for what C declares as an enum, with its named
/// values and the way back from a value to the name in the header.
macro_rules! named_values {
    (
        $(#[$meta:meta])*
        $name:ident($repr:ty), $prefix:literal {
            $($(#[$value_meta:meta])* $constant:ident = $value:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(
            /// The value as the driver passes it.
            pub $repr,
        );

        impl $name {
            $($(#[$value_meta])* pub const $constant: Self = Self($value);)+

            /// The value's name in the header, or `None` if we have none for it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(concat!($prefix, stringify!($constant))),)+
                    _ => None,
                }
            }
        }
    };
}

use named_values;
