//! A stand-in for NVIDIA's `libcublasLt.so.13` (`.12` with `cfg(cuda12)`), for the software GPU.
//! `cublasLtMatmul` launches a kernel with a name, a shape and a duration (`blas::Product`), which
//! computes nothing. Epilogues of the product (bias, activation) are assumed to cost nothing, and
//! there is one algorithm. Everything else that PyTorch imports (2.15 of CUDA 13, 2.10 of CUDA 12)
//! returns CUBLAS_STATUS_NOT_SUPPORTED. Names, prototypes and numbers are those of the public
//! `cublasLt.h` and `library_types.h`.

mod descriptors;
mod exports;
