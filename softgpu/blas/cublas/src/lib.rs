//! A stand-in for NVIDIA's `libcublas.so.13` (`.12` with `cfg(cuda12)`), for the software GPU.
//! Products of matrices, of a matrix and a vector, and of two vectors launch a kernel with a name,
//! a shape and a duration (`blas::Product`), which computes nothing. Everything else that PyTorch
//! imports (2.15 of CUDA 13, 2.10 of CUDA 12) returns CUBLAS_STATUS_NOT_SUPPORTED, as do calls that
//! return a number to the host. Names, prototypes and numbers are those of the public
//! `cublas_api.h` and `library_types.h`.

mod exports;
mod handle;
mod numbers;
