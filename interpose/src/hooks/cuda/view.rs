//! A device's memory, limited to the job's view ([`crate::memory::quota::views`]).

use core::ffi::c_uint;

use abi::types::{CUdevice, CUresult};

use super::{hook, stored};
use crate::driver;
use crate::memory::quota::{self, views};

macro_rules! memory_info {
    ($name:ident, $size:ty) => {
        hook! {
            $name(free: *mut $size, total: *mut $size);
            after |_, result| {
                // SAFETY: this call's output parameters.
                let told = unsafe { stored(free, result).zip(stored(total, result)) };
                if let Some((account, (told_free, told_total))) = quota::current().zip(told) {
                    // The older form truncates its numbers; the job's view needs the whole ones.
                    let told = (told_free as u64, told_total as u64);
                    let (all_free, all_total) = if size_of::<$size>() < size_of::<u64>() {
                        driver::memory::free_and_total().unwrap_or(told)
                    } else {
                        told
                    };
                    let seen = views::memory(account, all_free, all_total);
                    // SAFETY: the driver has just written both, and the view is no larger.
                    unsafe {
                        *free = told_free.min(<$size>::try_from(seen.0).unwrap_or(<$size>::MAX));
                        *total = told_total.min(<$size>::try_from(seen.1).unwrap_or(<$size>::MAX));
                    }
                }
            };
        }
    };
}

memory_info!(cuMemGetInfo, c_uint);
memory_info!(cuMemGetInfo_v2, usize);

macro_rules! total_memory {
    ($name:ident, $size:ty) => {
        hook! {
            $name(bytes: *mut $size, device: CUdevice);
            // SAFETY: this call's output parameter.
            after |_, result| unsafe { show_total(bytes, device, result) };
        }
    };
}

total_memory!(cuDeviceTotalMem, c_uint);
total_memory!(cuDeviceTotalMem_v2, usize);

/// Safety: as [`stored`].
unsafe fn show_total<T: Copy + TryInto<u64> + TryFrom<u64>>(
    bytes: *mut T,
    device: CUdevice,
    result: CUresult,
) {
    // SAFETY: as the caller promises.
    let told = unsafe { stored(bytes, result) }.and_then(|told| told.try_into().ok());
    let Some(told) = told else {
        return;
    };
    if let Ok(seen) = T::try_from(views::total(device, told)) {
        // SAFETY: the driver has just written there.
        unsafe { *bytes = seen };
    }
}
