//! Which stream an entry point means, and what it is to the context's legacy stream.

use abi::types::CUstream;

use crate::platform::sys;
use crate::platform::table::mix;
use crate::process::Handle;

/// Which stream an entry point means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// The context's default stream.
    Legacy,
    /// The calling thread's default stream.
    PerThread,
    /// One that the application made.
    Created(CUstream),
}

/// What stream 0 means to an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// [`Stream::Legacy`].
    Plain,
    /// [`Stream::PerThread`]: the `_ptsz` and `_ptds` forms.
    PerThread,
}

impl Stream {
    /// The stream that a handle means in an entry point of that flavour.
    #[inline]
    pub(crate) fn of(handle: CUstream, flavour: Flavour) -> Self {
        match (handle, flavour) {
            (CUstream::LEGACY, _) | (CUstream::NULL, Flavour::Plain) => Self::Legacy,
            (CUstream::PER_THREAD, _) | (CUstream::NULL, Flavour::PerThread) => Self::PerThread,
            _ => Self::Created(handle),
        }
    }

    /// A handle that means this stream in an entry point of either flavour.
    pub(crate) fn handle(self) -> CUstream {
        match self {
            Self::Legacy => CUstream::LEGACY,
            Self::PerThread => CUstream::PER_THREAD,
            Self::Created(handle) => handle,
        }
    }

    /// Whether it is there without having been made.
    pub(crate) fn is_default(self) -> bool {
        !matches!(self, Self::Created(_))
    }

    /// The key of this stream, which never is 0 or all ones. Handles are addresses, so their low
    /// three bits are zero; in ours they are not. `context` tells default streams of several
    /// contexts apart.
    #[inline]
    pub(super) fn key(self, context: Handle) -> u64 {
        match self {
            Self::Legacy => context.0 & !7 | 1,
            Self::PerThread => (mix(context.0) & !7) ^ (u64::from(sys::thread_id()) << 3) | 2,
            Self::Created(handle) => handle.0 as u64,
        }
    }
}

/// What a stream is to the legacy stream of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is that stream.
    Legacy,
    /// A thread's default stream, which is a blocking one.
    PerThread,
    /// A blocking stream that the application made.
    Blocking,
    /// A non-blocking stream, or one of a green context.
    NonBlocking,
}
