//! The device's attributes.

use abi::types::{CUdevice_attribute, CUresult};
use softgpu::Device;

use crate::driver::Gpu;
use crate::functions::SHARED_BYTES_DEFAULT;

/// PCI bus of the machine's first device; the others follow.
const PCI_BUS_FIRST: usize = 1;

impl Gpu {
    /// Number of its PCI bus.
    pub(crate) fn pci_bus(&self) -> usize {
        PCI_BUS_FIRST + self.place
    }

    pub(crate) fn pci_bus_id(&self) -> String {
        format!("0000:{:02x}:00.0", self.pci_bus())
    }

    /// SMs that this process's kernels may use: under MPS as many as it requested.
    pub(crate) fn sms(&self) -> u32 {
        let sms = self.device.sms;
        let is_mps = self.ways.is_some_and(|ways| ways.is_mps);
        let percent = self.active_percent.filter(|_| is_mps);
        percent.map_or(sms, |percent| softgpu::sms_of_percent(sms, percent))
    }

    /// The result of `cuDeviceGetAttribute`. Unlisted ones are 0, as without the feature.
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, CUresult> {
        // The last attribute of CUDA 12.8; later ones are refused, as by a driver of that version.
        const LAST: i32 = 144;
        if !(1..=LAST).contains(&attribute.0) {
            return Err(CUresult::INVALID_VALUE);
        }
        if attribute == CUdevice_attribute::PCI_BUS_ID {
            return Ok(self.pci_bus() as i32);
        }
        if attribute == CUdevice_attribute::MPS_ENABLED {
            // Unknown without a server: refused, as by a driver that lacks it.
            let ways = self.ways.ok_or(CUresult::INVALID_VALUE)?;
            return Ok(ways.is_mps.into());
        }
        if attribute == CUdevice_attribute::MULTIPROCESSOR_COUNT {
            return Ok(self.sms() as i32);
        }
        Ok(limit(&self.device, attribute)
            .or_else(|| property(attribute))
            .unwrap_or(0))
    }
}

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
        A::MAX_THREADS_PER_MULTIPROCESSOR => device.threads_per_sm.into(),
        A::MAX_BLOCKS_PER_MULTIPROCESSOR => device.blocks_per_sm.into(),
        A::L2_CACHE_SIZE => device.l2_bytes,
        A::CLOCK_RATE => u64::from(device.max_clock_mhz) * 1000,
        A::MEMORY_CLOCK_RATE => device.memory_clock_khz().into(),
        A::GLOBAL_MEMORY_BUS_WIDTH => Device::BUS_WIDTH_BITS,
        A::TEXTURE_ALIGNMENT | A::SURFACE_ALIGNMENT => 512,
        A::TEXTURE_PITCH_ALIGNMENT => 32,
        A::ASYNC_ENGINE_COUNT => 2,
        A::COMPUTE_CAPABILITY_MAJOR => device.compute_capability.major.into(),
        A::COMPUTE_CAPABILITY_MINOR => device.compute_capability.minor.into(),
        A::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        _ => return None,
    };
    Some(i32::try_from(number).unwrap_or(i32::MAX))
}

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
        | A::MEMORY_POOLS_SUPPORTED
        | A::MANAGED_MEMORY
        | A::CONCURRENT_MANAGED_ACCESS
        | A::HOST_REGISTER_SUPPORTED
        | A::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | A::IPC_EVENT_SUPPORTED
        | A::CAN_USE_64_BIT_STREAM_MEM_OPS
        | A::CAN_USE_STREAM_WAIT_VALUE_NOR => Some(1),
        _ => None,
    }
}
