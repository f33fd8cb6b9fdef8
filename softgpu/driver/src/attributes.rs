//! What the device says of itself.

use abi::types::{CUdevice_attribute, CUresult};
use softgpu::Device;

use crate::driver::Driver;
use crate::modules::SHARED_BYTES_DEFAULT;

/// Where the device is on PCI, as a text.
pub(crate) const PCI_BUS_ID: &str = "0000:01:00.0";
/// The same bus as a number.
const PCI_BUS: i32 = 1;

impl Driver {
    /// What `cuDeviceGetAttribute` answers. What is not listed is 0, as in a driver that has no
    /// such feature.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, CUresult> {
        // The last attribute of CUDA 12.8; what came later is refused, as by a driver of that
        // version.
        const LAST: i32 = 144;
        if !(1..=LAST).contains(&attribute.0) {
            return Err(CUresult::INVALID_VALUE);
        }
        let device = &self.device;
        Ok(limit(device, attribute)
            .or_else(|| property(attribute))
            .unwrap_or(0))
    }
}

/// Sizes and counts.
fn limit(device: &Device, attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    let number = match attribute {
        A::MAX_THREADS_PER_BLOCK | A::MAX_BLOCK_DIM_X | A::MAX_BLOCK_DIM_Y => 1024,
        A::MAX_BLOCK_DIM_Z => 64,
        A::MAX_GRID_DIM_X => i32::MAX as u64,
        A::MAX_GRID_DIM_Y | A::MAX_GRID_DIM_Z => 65_535,
        A::MAX_SHARED_MEMORY_PER_BLOCK => SHARED_BYTES_DEFAULT.into(),
        A::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => device.shared_bytes_per_block_optin.into(),
        A::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => device.shared_bytes_per_sm.into(),
        A::RESERVED_SHARED_MEMORY_PER_BLOCK => device.shared_reserved_per_block_bytes.into(),
        A::TOTAL_CONSTANT_MEMORY => 65_536,
        A::WARP_SIZE => 32,
        A::MAX_PITCH => i32::MAX as u64,
        A::MAX_REGISTERS_PER_BLOCK | A::MAX_REGISTERS_PER_MULTIPROCESSOR => {
            device.registers_per_sm.into()
        }
        A::MULTIPROCESSOR_COUNT => device.sms.into(),
        A::MAX_THREADS_PER_MULTIPROCESSOR => device.threads_per_sm.into(),
        A::MAX_BLOCKS_PER_MULTIPROCESSOR => device.blocks_per_sm.into(),
        A::L2_CACHE_SIZE => device.l2_bytes,
        A::CLOCK_RATE => u64::from(device.max_clock_mhz) * 1000,
        // Bandwidth is clock × 2 × width ÷ 8; the table has the bandwidth, so the width is assumed.
        A::MEMORY_CLOCK_RATE => {
            u64::from(device.bandwidth_gb_s) * 8 * 1_000_000 / (2 * BUS_WIDTH_BITS)
        }
        A::GLOBAL_MEMORY_BUS_WIDTH => BUS_WIDTH_BITS,
        A::TEXTURE_ALIGNMENT | A::SURFACE_ALIGNMENT => 512,
        A::TEXTURE_PITCH_ALIGNMENT => 32,
        // One per direction.
        A::ASYNC_ENGINE_COUNT => 2,
        A::COMPUTE_CAPABILITY_MAJOR => device.compute_capability.major.into(),
        A::COMPUTE_CAPABILITY_MINOR => device.compute_capability.minor.into(),
        A::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        _ => return None,
    };
    Some(i32::try_from(number).unwrap_or(i32::MAX))
}

/// Width of the memory bus of a V100.
const BUS_WIDTH_BITS: u64 = 4096;

/// Features, and where it is.
fn property(attribute: CUdevice_attribute) -> Option<i32> {
    use CUdevice_attribute as A;
    match attribute {
        A::GPU_OVERLAP
        | A::CAN_MAP_HOST_MEMORY
        | A::CONCURRENT_KERNELS
        | A::UNIFIED_ADDRESSING
        | A::STREAM_PRIORITIES_SUPPORTED
        | A::GLOBAL_L1_CACHE_SUPPORTED
        | A::LOCAL_L1_CACHE_SUPPORTED
        | A::COMPUTE_PREEMPTION_SUPPORTED
        | A::COOPERATIVE_LAUNCH
        | A::MEMORY_POOLS_SUPPORTED => Some(1),
        A::PCI_BUS_ID => Some(PCI_BUS),
        _ => None,
    }
}
