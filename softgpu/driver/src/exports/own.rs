//! What only the software GPU has. No driver of NVIDIA's has a function of this name, so that a
//! program can ask whether it is there.

use std::ffi::c_int;

use abi::types::{CUdevice, CUresult};

use softgpu::KernelRecord;

use super::define;
use crate::captures::Care;
use crate::raw::Out;

define! {
    softgpu_block_priority(value: Out<c_int>, device: CUdevice)
        // Whether waiting blocks of a kernel with the greater priority go first, of whichever
        // process. The null mode knows no blocks.
        crate::door::enter(Care::None, move |driver| {
            let ways = driver.gpu(device)?.ways.ok_or(CUresult::NOT_SUPPORTED)?;
            value.set(ways.block_priority.into())
        })
}

define! {
    softgpu_trace_kernels()
        // From here on the driver knows when kernels ran, for the stand-in CUPTI.
        crate::door::enter(Care::None, move |driver| driver.begin_trace())
}

define! {
    softgpu_next_kernel(record: Out<KernelRecord>)
        // The next kernel that is complete; CUDA_ERROR_NOT_READY if there is none.
        crate::door::enter(Care::None, move |driver| record.set(driver.next_kernel()?))
}
