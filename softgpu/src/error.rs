//! What can go wrong in a call to the model. All of it is the caller's input; a fault of the model
//! itself is an assertion.

use crate::op::{ContextId, StreamId};

/// Why a call to the model was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The context was never created, or was destroyed.
    #[error("no such context: {0}")]
    UnknownContext(ContextId),
    /// The stream was never created, or was destroyed.
    #[error("no such stream: {0}")]
    UnknownStream(StreamId),
    /// A wait names an operation that its stream has not been given. (A wait for what may never
    /// come could block for ever; CUDA's events cannot express it either.)
    #[error("{stream} has no operation {seq}: it was given {submitted} so far")]
    UnknownOperation {
        /// The stream that was to be waited for.
        stream: StreamId,
        /// The sequence number asked for.
        seq: u64,
        /// The last sequence number that the stream has given out.
        submitted: u64,
    },
    /// One block of the kernel does not fit on an empty SM of the device (CUDA: invalid value or
    /// launch out of resources).
    #[error("launch does not fit the device: {limit} is {asked}, at most {available}")]
    LaunchTooLarge {
        /// The limit that is exceeded.
        limit: &'static str,
        /// What the launch asks for.
        asked: u64,
        /// What the device has.
        available: u64,
    },
    /// A field of the kernel's shape is outside its domain (zero blocks, zero time, a demand that
    /// is negative or not a number).
    #[error("invalid kernel shape: {0}")]
    InvalidShape(&'static str),
}
