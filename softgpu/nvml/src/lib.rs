//! A stand-in for NVIDIA's `libnvidia-ml.so.1`, the management library, on the software GPU. Tools
//! such as `gpustat`, `nvitop` and `pillion doctor` see the software GPU through it: its
//! description, the use of its memory and time, and its processes. It is installed under the name
//! `libnvidia-ml.so.1`, beside the stand-in `libcuda.so.1`.
//!
//! The environment variable `SOFTGPU_SOCKET` has the device servers' sockets, separated by `:`, one
//! per device in that order. Without it, or without a listener at one of them, `nvmlInit` returns
//! NVML_ERROR_DRIVER_NOT_LOADED. Like NVIDIA's, it ignores `CUDA_VISIBLE_DEVICES`. It asks the
//! servers at each call about the present, and does not know the virtual clock, where the present
//! is the device's instant.
//!
//! Xids and memory errors are those injected into the server (`softgpu-server --inject`). Power
//! draw, temperature and throttle reasons are reported for a device that models them
//! (`softgpu-server --governor on`), and GPM for one whose NVIDIA counterpart has it. Calls about
//! features that the software GPU lacks (fans, PCIe traffic, video engines; without a governor
//! temperature and power draw) return NVML_ERROR_NOT_SUPPORTED, as do all calls that would change a
//! device. Nothing is invented.
//! # The path of a call
//! [`exports`] has the C functions. Each enters through the [`library`], which refuses calls before
//! `nvmlInit` and turns a panic into NVML_ERROR_UNKNOWN. Handles are numbers in a table, never
//! dereferenced as addresses. Only [`raw`] accesses the application's pointers. [`device`],
//! [`usage`] and [`gpm`] compute the results; they are pure. Structures, codes and the checks of
//! arguments are those of NVIDIA's public nvml.h and its reference
//! (docs.nvidia.com/deploy/nvml-api).

mod code;
mod device;
mod exports;
mod gpm;
mod library;
mod link;
mod raw;
mod reports;
mod types;
mod usage;
