//! Errors of calls to the model. Each is a fault of the caller; one of the model is an assertion.

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
    /// A wait names an operation that its stream does not have yet: it could block for ever; CUDA's
    /// events cannot express it either.
    #[error("{stream} has no operation {seq}: {submitted} operations were submitted")]
    UnknownOperation {
        /// The stream to wait for.
        stream: StreamId,
        /// The requested sequence number.
        seq: u64,
        /// The last sequence number of the stream.
        submitted: u64,
    },
    /// One block does not fit on an empty SM (CUDA: invalid value or launch out of resources).
    #[error("launch does not fit the device: {limit} is {asked}, at most {available}")]
    LaunchTooLarge {
        /// The exceeded limit.
        limit: &'static str,
        /// The launch's value.
        asked: u64,
        /// The device's value.
        available: u64,
    },
    /// A field is outside its domain (zero blocks, zero time, a negative or NaN demand).
    #[error("invalid kernel shape: {0}")]
    InvalidShape(&'static str),
}
