//! The stand-in driver's report to the stand-in CUPTI of a completed kernel.

use std::ffi::c_char;

/// A kernel that ran. Both sides are always of one build.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelRecord {
    /// Its name, a NUL-terminated string that is never freed.
    pub name: *const c_char,
    /// Start of its first block, ns of the device.
    pub started_ns: u64,
    /// End of its last block, ns of the device.
    pub ended_ns: u64,
    /// Ordinal of its device.
    pub device: u32,
    /// Slot of its stream, counted over all devices.
    pub stream: u32,
    /// Number of the launching call, from 1. Kernels of one graph launch share it.
    pub call: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// Dynamic shared memory of a block, bytes.
    pub dynamic_shared_bytes: u32,
    /// 1 if a graph launched it.
    pub is_in_graph: u32,
    /// Padding.
    pub pad: u32,
}

const _: () = assert!(size_of::<KernelRecord>() == 80);
