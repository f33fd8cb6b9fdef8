//! A stand-in for NVIDIA's `libcudart.so.13` (`.12` with `cfg(cuda12)`), for the software GPU.
//! NVIDIA's own runtime authenticates the driver through a table from `cuGetExportTable`, and runs
//! on no other driver; the stand-in driver denies that table and always will. Programs built on the
//! runtime, such as PyTorch's wheels, therefore get this library in the runtime's place. It is
//! written from the public headers (`cuda_runtime_api.h`, `driver_types.h`, `crt/host_runtime.h`)
//! and their documentation, and calls only the public driver API, which it finds as the real one
//! does: it opens `libcuda.so.1` and looks up the rest with `cuGetProcAddress`. Hooks there
//! therefore see what a program does through the runtime.
//!
//! It has only the functions that PyTorch imports (2.15 of CUDA 13, 2.10 of CUDA 12): the dynamic
//! linker reports a missing one. Of those, graph nodes added by hand, conditional nodes, drawings
//! of graphs and unified function pointers return cudaErrorNotSupported. It requires a driver of
//! CUDA 12.8, while the real one of CUDA 13 requires one of CUDA 13.
//! # The path of a call
//! [`exports`] has the C functions. Each enters through the [`door`], which readies the calling
//! thread's device, keeps the last error, and turns a panic into cudaErrorUnknown. Handles are the
//! driver's. Kernels and variables that compilers register at start ([`registry`]) are looked up by
//! the addresses of their host symbols, and loaded at their first use. The application's pointers
//! are passed to the driver unchanged; the few that are dereferenced here are in [`raw`].

mod copies;
mod device;
mod door;
mod driver;
mod error;
mod exports;
mod launches;
mod properties;
mod raw;
mod registry;
#[cfg_attr(cuda12, path = "cuda12.rs")]
#[cfg_attr(not(cuda12), path = "cuda13.rs")]
mod release;
