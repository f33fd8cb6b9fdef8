//! The CUDA driver's binary interface, as data: its entry points, and the types that cross them, in
//! one list and definition for the two libraries that take the place of `libcuda.so.1`: the
//! interposer, which forwards to the real one, and the software GPU's driver, which replaces it.
//! - [`ENTRY_POINTS`] is generated from `entry_points.csv`: per ELF symbol the API name for
//!   `cuGetProcAddress`, the form's first CUDA version, its stream flavour, Pillion's treatment.
//! - [`OPERATORS`] is generated from `operators.csv`: the calls of cuBLAS, cuBLASLt and cuDNN that
//!   give the kernels inside their names.
//! - [`types`] has the handles, structures and values. They are not cudarc's, because a C enum as a
//!   Rust enum makes a value from a newer driver undefined behaviour; these types can have any
//!   value. The tests compare them with cudarc's.
//!
//! Words. A *symbol* is a name that the ELF file exports (`cuMemAlloc_v2`); an *api* is the name
//! without version and flavour (`cuMemAlloc`); a *version* is CUDA's `major * 1000 + minor * 10`;
//! an entry point is *per-thread* if its stream 0 means the calling thread's own stream (`_ptsz`,
//! `_ptds`) rather than the context's legacy stream. No behaviour, dependency, allocation or `std`.

#![no_std]

mod entry_point;
mod operator;
pub mod types;

pub use entry_point::{
    Category, ENTRY_POINT_COUNT, ENTRY_POINTS, ENTRY_POINTS_CSV, EntryPoint, Route, first_version,
    id, lookup, newest,
};
pub use operator::{Library, OPERATOR_COUNT, OPERATOR_NAMES, OPERATORS, Operator, lookup_operator};
