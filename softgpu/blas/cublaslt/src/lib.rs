//! A stand-in for NVIDIA's `libcublasLt.so.13` (and, compiled with `cfg(cuda12)`, `libcublasLt.so.12`), for programs that are to
//! run on the software GPU.
//!
//! `cublasLtMatmul` launches a kernel with a name, a shape and a duration (`blas::Product`), which computes nothing; what
//! is to be done after the product (bias, activation) is taken to cost nothing more, and there is one algorithm. What
//! else PyTorch imports (2.15 of CUDA 13, 2.10 of CUDA 12) answers CUBLAS_STATUS_NOT_SUPPORTED. Names, prototypes and numbers are those of the public
//! `cublasLt.h` and `library_types.h`.

mod descriptors;
mod exports;
