//! The stream that an entry point means, and its relation to the context's legacy stream.

use abi::types::CUstream;

use crate::platform::sys;
use crate::platform::table::mix;
use crate::process::Handle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Legacy,
    PerThread,
    Created(CUstream),
}

/// The meaning of stream 0 in an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// [`Stream::Legacy`].
    Plain,
    /// [`Stream::PerThread`]: the `_ptsz` and `_ptds` forms.
    PerThread,
}

impl Stream {
    #[inline]
    pub(crate) fn of(handle: CUstream, flavour: Flavour) -> Self {
        match (handle, flavour) {
            (CUstream::LEGACY, _) | (CUstream::NULL, Flavour::Plain) => Self::Legacy,
            (CUstream::PER_THREAD, _) | (CUstream::NULL, Flavour::PerThread) => Self::PerThread,
            _ => Self::Created(handle),
        }
    }

    pub(crate) fn handle(self) -> CUstream {
        match self {
            Self::Legacy => CUstream::LEGACY,
            Self::PerThread => CUstream::PER_THREAD,
            Self::Created(handle) => handle,
        }
    }

    pub(crate) fn is_default(self) -> bool {
        !matches!(self, Self::Created(_))
    }

    /// The key of this stream, never 0 or all ones. Handles are addresses with the low three bits
    /// zero; our keys of default streams have one of them set. `context` distinguishes default
    /// streams.
    #[inline]
    pub(super) fn key(self, context: Handle) -> u64 {
        match self {
            Self::Legacy => context.0 & !7 | 1,
            Self::PerThread => (mix(context.0) & !7) ^ (u64::from(sys::thread_id()) << 3) | 2,
            Self::Created(handle) => handle.0 as u64,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Legacy,
    /// A thread's default stream, which is a blocking one.
    PerThread,
    Blocking,
    /// A non-blocking stream, or one of a green context.
    NonBlocking,
}
