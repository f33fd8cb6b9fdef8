//! Identifiers and operations of the GPU.

use std::fmt;

use crate::kernel::KernelShape;

/// One process's context on the GPU. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// One stream. Unique over all contexts of a [`crate::Gpu`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A kernel that [`crate::Gpu::prepare`] has checked and prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(pub(crate) u32);

/// One operation on a stream. A stream executes its operations one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A kernel launch.
    Kernel {
        /// Grid, resources of a block, time and demands.
        shape: KernelShape,
        /// The launch attribute that overrides the stream's priority. As in CUDA, lower goes first.
        priority: Option<i32>,
    },
    /// The launch of a prepared kernel: the same as [`Op::Kernel`] with its shape, and faster.
    Prepared {
        /// The kernel, of this GPU.
        kernel: KernelId,
        /// As in [`Op::Kernel`].
        priority: Option<i32>,
    },
    /// A copy. A copy of no bytes completes at once, in order.
    Copy {
        /// The direction.
        direction: CopyDirection,
        /// Size.
        bytes: u64,
    },
    /// Fills device memory. A fill of no bytes completes at once, in order.
    Memset {
        /// Size.
        bytes: u64,
    },
    /// Completes when everything before it in its stream has (an event record).
    Marker,
    /// Completes when operation `seq` of `stream` has, or when that stream was removed.
    Wait {
        /// The stream to wait for, of any context.
        stream: StreamId,
        /// Its operation, which must have been submitted.
        seq: u64,
    },
    /// Completes on [`crate::Gpu::release`]: for the host's part in the stream's order.
    Hold,
}

impl Op {
    /// The operation's kind, without its arguments.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::Kernel { .. } | Self::Prepared { .. } => OpKind::Kernel,
            Self::Copy { direction, .. } => OpKind::Copy(*direction),
            Self::Memset { .. } => OpKind::Memset,
            Self::Marker => OpKind::Marker,
            Self::Wait { .. } => OpKind::Wait,
            Self::Hold => OpKind::Hold,
        }
    }
}

/// Source and destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyDirection {
    /// Over the bus to the GPU; its own engine.
    HostToDevice,
    /// Over the bus from the GPU; its own engine.
    DeviceToHost,
    /// Inside the GPU's memory; competes with kernels for bandwidth.
    DeviceToDevice,
}

/// Kind of a completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// [`Op::Kernel`] and [`Op::Prepared`].
    Kernel,
    /// [`Op::Copy`].
    Copy(CopyDirection),
    /// [`Op::Memset`].
    Memset,
    /// [`Op::Marker`].
    Marker,
    /// [`Op::Wait`].
    Wait,
    /// [`Op::Hold`].
    Hold,
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {}", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}
