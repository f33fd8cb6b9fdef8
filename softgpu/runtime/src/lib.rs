//! A stand-in for NVIDIA's `libcudart.so.13` (and, compiled with `cfg(cuda12)`, `libcudart.so.12`), for programs that are
//! to run on the software GPU.
//!
//! NVIDIA's own runtime authenticates the driver through a table that it asks `cuGetExportTable` for, and runs on no
//! other driver; the stand-in driver denies that table and always will. So programs that are built on the runtime, such
//! as PyTorch's wheels, get this library in the runtime's place. It is written from the public headers
//! (`cuda_runtime_api.h`, `driver_types.h`, `crt/host_runtime.h`) and their documentation, and calls nothing but the
//! public driver API, which it finds as the real one does: it opens `libcuda.so.1` and asks `cuGetProcAddress` for the
//! rest. So what is hooked there sees what a program does through the runtime.
//!
//! It has the functions that PyTorch imports (2.15 of CUDA 13, 2.10 of CUDA 12), and no others: a program that wants
//! another one is told so by the dynamic linker. Of those, graph nodes that are added by hand, conditional nodes,
//! drawings of graphs and unified function pointers answer cudaErrorNotSupported. It asks for a driver of CUDA 12.8, where
//! the real one of CUDA 13 wants one of CUDA 13.
//!
//! # How a call goes
//!
//! [`exports`] has the C functions. Each enters by the [`door`], which makes the calling thread's device ready, keeps
//! the last error, and turns a panic into cudaErrorUnknown. Handles are the driver's. Kernels and variables that
//! compilers register at start ([`registry`]) are looked up by the addresses of their host halves, and loaded when they
//! are first used. The application's pointers go to the driver as they came; the few that are read or written here are
//! in [`raw`].

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
