//! Arrays and mipmapped arrays, charged by the bytes of their elements, as requested by the
//! application; the driver's layout is not known. An array in an unknown format, or one that gets
//! its memory later, counts as 0 bytes.

use core::ffi::c_uint;

use abi::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUarray3D_flags, CUmipmappedArray,
};
use protocol::ledger::Kind;

use super::memory::{account_for, unless_refused};
use super::{hook, stored};
use crate::memory::counts::{handle_allocated, handle_freed};
use crate::memory::quota::blocks::Key;
use crate::memory::quota::{Charge, HELD};

macro_rules! create {
    ($name:ident, $descriptor:ty) => {
        hook! {
            $name(array: *mut CUarray, descriptor: *const $descriptor);
            before |_| {
                // SAFETY: the application's own argument, which the driver is about to read.
                let descriptor = (!descriptor.is_null()).then(|| unsafe { *descriptor });
                let bytes = descriptor.map_or(0, |descriptor| bytes_of(&descriptor.into(), 1));
                Charge::reserve(account_for(array), Kind::Array, bytes as u64)
            };
            // SAFETY: the application's own arguments, passed on.
            call |charge, real| unless_refused(charge, || unsafe { real(array, descriptor) });
            after |client, charge, result| {
                // SAFETY: the driver has read the descriptor, as it succeeded with it.
                let descriptor = unsafe { stored(descriptor, result) };
                let bytes = descriptor.map_or(0, |descriptor| bytes_of(&descriptor.into(), 1));
                handle_allocated(client, result, bytes);
                // SAFETY: this call's output parameter.
                charge.settle(result, unsafe { stored(array, result) }.map(Key::from));
            };
        }
    };
}

create!(cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1);
create!(cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR);
create!(cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1);
create!(cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR);

hook! {
    cuMipmappedArrayCreate(
        array: *mut CUmipmappedArray,
        descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: c_uint,
    );
    before |_| {
        // SAFETY: as in `create`.
        let descriptor = (!descriptor.is_null()).then(|| unsafe { *descriptor });
        let bytes = descriptor.map_or(0, |descriptor| bytes_of(&descriptor, levels));
        Charge::reserve(account_for(array), Kind::Array, bytes as u64)
    };
    // SAFETY: the application's own arguments, passed on.
    call |charge, real| unless_refused(charge, || unsafe { real(array, descriptor, levels) });
    after |client, charge, result| {
        // SAFETY: as in `create`.
        let descriptor = unsafe { stored(descriptor, result) };
        let bytes = descriptor.map_or(0, |descriptor| bytes_of(&descriptor, levels));
        handle_allocated(client, result, bytes);
        // SAFETY: this call's output parameter.
        charge.settle(result, unsafe { stored(array, result) }.map(Key::from));
    };
}

hook! {
    cuArrayDestroy(array: CUarray);
    before |_| HELD.blocks.take(array);
    after |client, block, result| {
        handle_freed(client, result, u64::MAX);
        HELD.blocks.handle_freed(block, result);
    };
}

hook! {
    cuMipmappedArrayDestroy(array: CUmipmappedArray);
    before |_| HELD.blocks.take(array);
    after |client, block, result| {
        handle_freed(client, result, u64::MAX);
        HELD.blocks.handle_freed(block, result);
    };
}

fn bytes_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> usize {
    let later = CUarray3D_flags::SPARSE.0 | CUarray3D_flags::DEFERRED_MAPPING.0;
    if descriptor.flags & later != 0 {
        return 0;
    }
    descriptor.mipmap_bytes(levels).unwrap_or(0)
}
