//! A GPU in software: the pure device model. [`Gpu`] takes operations (kernel launches, copies,
//! memsets, markers, waits) on streams of contexts and reports when each completes. It reads no
//! clock, does no IO, starts no thread and is deterministic: time is an argument, in nanoseconds,
//! and never goes backwards. The same calls lead to the same completions, however often
//! [`Gpu::advance`] is called in between.
//! # What is modelled
//! - SMs with limits on threads, registers, shared memory and resident blocks ([`Device`], of the
//!   crate `devices`).
//! - Blocks in waves, stream order, priorities between waiting blocks ([`Dispatch`]).
//! - Contention for compute, for memory bandwidth, and in parts that cannot be separated
//!   (`contention`), calibrated on published measurements (`docs/model.md`).
//! - The distance between one kernel of a stream and the next ([`LAUNCH_GAP_NS`]).
//! - One copy engine per direction between host and device, which takes its share of the bandwidth.
//! - Connections from host to device, which streams of a context may share (`connection`).
//! - Contexts that share the SMs (MPS) or take turns in slices ([`Sharing`]).
//! # What is not
//! - Contents and addresses of memory, caches, clocks that follow temperature (unless
//!   [`Config::governor`] is set), launch overhead of the host, warp scheduling inside an SM,
//!   clusters, cooperative launches, graphs (the caller submits their nodes).
//! - Differences between blocks of one kernel: each takes the same time alone.
//! # Words
//! *Block*, *wave*: as in CUDA; a wave is the part of a grid that is resident at once. *Cohort*:
//! blocks of one kernel that started at the same instant; they end together. *Demand*: fraction of
//! the device's compute or bandwidth that a kernel uses at full residency. *Work*: nanoseconds of
//! solo execution; under contention work advances more slowly than time. The model's statements
//! about a policy are those of a model; hardware is measured on hardware.

pub use crate::builtin::{Builtin, Fault, Memory, Param};
pub use crate::contention::Contention;
pub use crate::error::Error;
pub use crate::governor::{Governed, Governor, HOT_C};
pub use crate::gpu::{
    Completion, Config, ContextUtilisation, Dispatch, Gpu, LAUNCH_GAP_NS, Sharing, Utilisation,
    sms_of_percent,
};
pub use crate::kernel::KernelShape;
pub use crate::kernel_record::KernelRecord;
pub use crate::op::{ContextId, CopyDirection, KernelId, Op, OpKind, StreamId};
pub use crate::trace_shape::{TraceClass, shape_of_trace_entry};
pub use devices::{ComputeCapability, Device};

/// Version of the model's laws and numbers; every change of a run's results changes it
/// (`docs/model.md` has the procedure, `tests/golden.rs` detects it).
pub const MODEL_VERSION: u32 = 1;

/// The stand-in drivers' CUDA version, as `cuDriverGetVersion` writes it: 12.8, as `abi`'s types.
pub const CUDA_VERSION: i32 = 12_080;

/// Suffix of software GPUs' UUIDs, which distinguishes them from hardware: `sw-gpu`.
pub const UUID_END: [u8; 6] = *b"sw-gpu";

/// Whether a UUID in the form of NVIDIA's tools (`GPU-…`) is that of a software GPU.
pub fn is_software_uuid(uuid: &str) -> bool {
    let end: String = UUID_END.iter().map(|byte| format!("{byte:02x}")).collect();
    uuid.to_ascii_lowercase().ends_with(&end)
}

pub mod code;
pub mod module_image;
pub mod wire;

mod builtin;
mod compute;
mod connection;
mod contention;
mod copy_engine;
mod engine;
mod error;
mod flat;
mod governor;
mod gpu;
mod kernel;
mod kernel_record;
mod op;
mod sm_pool;
mod stream;
mod synthetic;
mod trace_shape;
