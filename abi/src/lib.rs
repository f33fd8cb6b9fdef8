//! The CUDA driver's binary interface, as data: which entry points exist, and
//! the types that cross them.
//!
//! Two libraries stand where an application expects `libcuda.so.1`: the
//! interposer, which forwards to the real one, and the software GPU's driver,
//! which replaces it. Both take their list of entry points and their types from
//! here, so that there is one list and one definition.
//!
//! - [`ENTRY_POINTS`] is generated from `entry_points.csv`: for each ELF symbol
//!   the API name that `cuGetProcAddress` knows it by, the CUDA version that
//!   brought this form, its stream flavour, and what we do with it.
//! - [`OPERATORS`] is generated from `operators.csv`: the calls of cuBLAS,
//!   cuBLASLt and cuDNN by which the kernels inside are named.
//! - [`types`] has the handles, structures and values. They are our own rather
//!   than cudarc's because a C enum as a Rust enum makes a value from a newer
//!   driver undefined behaviour; ours carry any value. The tests compare them
//!   with cudarc's.
//!
//! Words. A *symbol* is what the ELF file exports (`cuMemAlloc_v2`); an *api*
//! is the name without version and flavour (`cuMemAlloc`); a *version* is CUDA's
//! `major * 1000 + minor * 10`; an entry point is *per-thread* if its stream 0
//! means the calling thread's own stream (`_ptsz`, `_ptds`) rather than the
//! legacy stream of the context.
//!
//! No behaviour, no dependency, no allocation, no `std`.

#![no_std]

mod entry_point;
mod operator;
pub mod types;

pub use entry_point::{
    Category, ENTRY_POINT_COUNT, ENTRY_POINTS, ENTRY_POINTS_CSV, EntryPoint, Route, first_version,
    id, lookup, newest,
};
pub use operator::{Library, OPERATOR_COUNT, OPERATOR_NAMES, OPERATORS, Operator, lookup_operator};
