//! A stand-in for NVIDIA's `libnvidia-ml.so.1`, the management library, on the software GPU.
//!
//! Tools such as `gpustat`, `nvitop` and `pillion doctor` see the software GPU through it: what it
//! is, how much of its memory and time is used, and by which processes. It is installed under the
//! name `libnvidia-ml.so.1`, beside the stand-in `libcuda.so.1`.
//!
//! | environment | meaning |
//! |---|---|
//! | `SOFTGPU_SOCKET` | the device servers' sockets, separated by `:`, a device each in that order; without it, or if nobody listens at one of them, `nvmlInit` answers NVML_ERROR_DRIVER_NOT_LOADED |
//!
//! As NVIDIA's, it does not look at `CUDA_VISIBLE_DEVICES`. It asks the servers anew at each call
//! that is about the present, and knows nothing of the virtual clock: there, the present is the
//! instant at which the device stands.
//!
//! Xids and errors in memory are those that the server was told to have (`softgpu-server --inject`).
//!
//! Power draw, temperature and the reasons why the clock is low are told of a device that models
//! them (`softgpu-server --governor on`), and GPM of one that NVIDIA's counterpart has it of.
//!
//! What the software GPU does not have (fans, PCIe traffic, video engines; without a governor
//! temperature and power draw) answers NVML_ERROR_NOT_SUPPORTED, and so do all calls that would
//! change a device. Nothing is invented.
//!
//! # How a call goes
//!
//! [`exports`] has the C functions. Each enters by the [`library`], which says no before `nvmlInit`
//! and turns a panic into NVML_ERROR_UNKNOWN. Handles are numbers that are looked up, never
//! addresses that are followed. Pointers of the application are touched in [`raw`] only. What is
//! answered, [`device`], [`usage`] and [`gpm`] decide; they are pure.
//!
//! Structures, codes and which argument is wrong when are those of NVIDIA's public nvml.h and its
//! reference (docs.nvidia.com/deploy/nvml-api).

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
