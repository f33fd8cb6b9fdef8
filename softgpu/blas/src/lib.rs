//! Shared code of the stand-ins for cuBLAS and cuBLASLt: matrix products on the software GPU.
//! NVIDIA's own libraries contain the CUDA runtime and so run only on NVIDIA's driver. For programs
//! on the software GPU, the stand-ins (`softgpu/blas/cublas`, `softgpu/blas/cublaslt`) take the
//! same calls, from the public headers, and launch one kernel for each product, through the public
//! driver API. The kernel has a name, a shape and a duration ([`Product`]) and computes nothing; a
//! real driver refuses its image. Like NVIDIA's cuBLASLt, it looks up the driver's symbols by name
//! in the library ([`launch`]), another way in than the runtime's.

mod driver;
mod exports;
mod product;
pub mod raw;
mod status;

pub use crate::driver::{has_context, launch};
pub use crate::product::{Number, Product};
pub use crate::status::{Status, enter};
