//! What the stand-ins for cuBLAS and cuBLASLt share: the launch of a product of matrices on the software GPU.
//!
//! NVIDIA's own libraries contain the CUDA runtime and so run on NVIDIA's driver only. For programs that are to run on
//! the software GPU, the stand-ins (`softgpu/blas/cublas`, `softgpu/blas/cublaslt`) take the same calls, from the public
//! headers, and launch one kernel for each product, through the public driver API. The kernel has a name, a shape and
//! a duration ([`Product`]); it computes nothing. A real driver refuses its image.
//!
//! As NVIDIA's cuBLASLt does, it asks the driver's library for its symbols by name ([`launch`]), which is another way
//! in than the runtime's.

mod driver;
mod exports;
mod product;
pub mod raw;
mod status;

pub use crate::driver::{has_context, launch};
pub use crate::product::{Number, Product};
pub use crate::status::{Status, enter};
