//! Functions that only the software GPU has: a program can look one up to detect it.

use std::ffi::c_int;

use abi::types::{CUdevice, CUresult};

use softgpu::KernelRecord;

use super::define;
use crate::captures::Care;
use crate::raw::Out;

define! {
    softgpu_block_priority(value: Out<c_int>, device: CUdevice)
        // Whether blocks of the highest priority start first, across processes. Null: no blocks.
        crate::door::enter(Care::None, move |driver| {
            let ways = driver.gpu(device)?.ways.ok_or(CUresult::NOT_SUPPORTED)?;
            value.set(ways.block_priority.into())
        })
}

define! {
    softgpu_trace_kernels()
        // The driver collects kernels' times from here on, for the stand-in CUPTI.
        crate::door::enter(Care::None, move |driver| driver.begin_trace())
}

define! {
    softgpu_next_kernel(record: Out<KernelRecord>)
        // The next completed kernel; CUDA_ERROR_NOT_READY if there is none.
        crate::door::enter(Care::None, move |driver| record.set(driver.next_kernel()?))
}
