//! What only the software GPU has. No driver of NVIDIA's has a function of this name, so that a
//! program can ask whether it is there.

use std::ffi::c_int;

use abi::types::{CUdevice, CUresult};

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
