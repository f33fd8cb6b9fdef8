//! What can be asked of the GPU: identifiers and operations.

use std::fmt;

use crate::kernel::KernelShape;

/// One process's context on the GPU. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextId(pub u32);

/// One stream. Unique over all contexts of a [`crate::Gpu`], never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A kernel that [`crate::Gpu::prepare`] has checked and worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(pub(crate) u32);

/// One operation on a stream. A stream executes its operations one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A kernel launch.
    Kernel {
        /// Grid, resources of a block, time and demands.
        shape: KernelShape,
        /// The launch attribute that overrides the stream's priority. As in CUDA, the lower number
        /// goes first.
        priority: Option<i32>,
    },
    /// The launch of a prepared kernel: the same as [`Op::Kernel`] with its shape, and faster.
    Prepared {
        /// The kernel, of this GPU.
        kernel: KernelId,
        /// As in [`Op::Kernel`].
        priority: Option<i32>,
    },
    /// A copy. None bytes complete at once, in order.
    Copy {
        /// From where to where.
        direction: CopyDirection,
        /// How much.
        bytes: u64,
    },
    /// Fill device memory. None bytes complete at once, in order.
    Memset {
        /// How much.
        bytes: u64,
    },
    /// Completes when everything before it in its stream has (an event record).
    Marker,
    /// Completes when operation `seq` of `stream` has, or when that stream is gone.
    Wait {
        /// The stream to wait for; any context's.
        stream: StreamId,
        /// Its operation, which must have been submitted.
        seq: u64,
    },
    /// Completes when [`crate::Gpu::release`] says so: the host has a part in the stream's order.
    Hold,
}

impl Op {
    /// What is left of the operation when its arguments are dropped.
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

/// From where to where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyDirection {
    /// Over the bus to the GPU; its own engine.
    HostToDevice,
    /// Over the bus from the GPU; its own engine.
    DeviceToHost,
    /// Inside the GPU's memory; competes with kernels for bandwidth.
    DeviceToDevice,
}

/// Which kind of operation completed.
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
