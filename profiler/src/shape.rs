//! The launch shape for a kernel with only SM need, duration and class. Orion's files have no grid,
//! block, registers or shared memory. To launch such an entry, a shape is chosen with that SM need
//! and duration: one wave of blocks fills the SMs of the measured device, so `waves = ⌈sm_needed ÷
//! 80⌉` and one block lasts `duration ÷ waves`. The limit on an SM's blocks differs by class, as in
//! real kernels: matrix kernels are limited by shared memory (one block per SM), element-wise ones
//! by threads (two), others here by registers (one). Demands are those of Orion's Table 2
//! (convolution .89 compute and .20 bandwidth on all SMs; batch norm .14 and .80, reached on 40 %
//! of them), scaled by the share of the SMs that the kernel can fill.

use crate::ResourceClass;
use crate::limits::SM_NEEDED_MAX;

/// The device of Orion's measurements, by its name in the device table.
pub const ORION_DEVICE: &str = "V100-SXM2-16GB";

/// SMs of [`ORION_DEVICE`].
pub const ORION_DEVICE_SMS: u32 = 80;

/// Share of the SMs on which a memory-bound kernel reaches its full bandwidth (Orion, Table 2).
const MEMORY_SM_SHARE: f64 = 0.4;

/// Shape and demands of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Shared memory of a block, bytes.
    pub shared_bytes: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Time of one block alone on its SM, ns; at least 1.
    pub block_ns: u64,
    /// Share of the device's compute throughput that the kernel uses on all SMs it needs, 0 to 1.
    pub compute_demand: f32,
    /// The same of the memory bandwidth.
    pub bandwidth_demand: f32,
}

/// The shape for a kernel that needs `sm_needed` SMs (clamped to 1..=[`SM_NEEDED_MAX`]; more than
/// the device has: several waves) and lasts `duration_ns` alone on [`ORION_DEVICE`].
#[must_use]
pub fn shape_for(class: ResourceClass, sm_needed: u32, duration_ns: u64) -> Shape {
    let sm_needed = sm_needed.clamp(1, SM_NEEDED_MAX);
    let waves = u64::from(sm_needed.div_ceil(ORION_DEVICE_SMS));
    let block_ns = (duration_ns.saturating_add(waves / 2) / waves).max(1);
    // In double precision, so that the shortest decimal of the result is the expected one.
    let sm_share = (f64::from(sm_needed) / f64::from(ORION_DEVICE_SMS)).min(1.0);
    let (blocks, threads, registers, shared_bytes) = match class {
        ResourceClass::Compute => (sm_needed, 512, 64, 65_536),
        ResourceClass::Memory => (2 * sm_needed, 768, 16, 0),
        ResourceClass::Unknown => (sm_needed, 1_024, 64, 0),
    };
    let (compute_demand, bandwidth_demand) = match class {
        ResourceClass::Compute => (0.89 * sm_share, 0.20 * sm_share),
        ResourceClass::Memory => {
            let reached = (sm_share / MEMORY_SM_SHARE).min(1.0);
            (0.14 * reached, 0.80 * reached)
        }
        ResourceClass::Unknown => (0.5 * sm_share, 0.4 * sm_share),
    };
    Shape {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        shared_bytes,
        registers,
        block_ns,
        compute_demand: compute_demand as f32,
        bandwidth_demand: bandwidth_demand as f32,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ORION_DEVICE_SMS, shape_for};
    use crate::ResourceClass;
    use crate::limits::SM_NEEDED_MAX;

    #[test]
    fn the_convolution_and_batch_norm_of_orions_table_2_have_its_demands() {
        let conv = shape_for(ResourceClass::Compute, 80, 1_350_000);
        assert_eq!((conv.compute_demand, conv.bandwidth_demand), (0.89, 0.20));
        assert_eq!((conv.grid, conv.block_ns), ([80, 1, 1], 1_350_000));
        let norm = shape_for(ResourceClass::Memory, 32, 930_000);
        assert_eq!((norm.compute_demand, norm.bandwidth_demand), (0.14, 0.80));
        assert_eq!((norm.grid, norm.block), ([64, 1, 1], [768, 1, 1]));
    }

    #[test]
    fn more_sms_than_the_device_has_become_waves() {
        let shape = shape_for(ResourceClass::Memory, 112_896, 3_698_000);
        assert_eq!(shape.grid, [225_792, 1, 1]);
        assert_eq!(shape.block_ns, 2_619);
        assert_eq!(shape_for(ResourceClass::Unknown, 81, 7).block_ns, 4);
    }

    proptest! {
        #[test]
        fn any_input_gives_a_launchable_shape(
            class in prop::sample::select(ResourceClass::ALL.as_slice()),
            sm_needed in any::<u32>(),
            duration_ns in any::<u64>(),
        ) {
            let shape = shape_for(class, sm_needed, duration_ns);
            prop_assert!(shape.grid[0] >= 1 && i32::try_from(shape.grid[0]).is_ok());
            prop_assert!(shape.block_ns >= 1);
            prop_assert!((0.0..=1.0).contains(&shape.compute_demand));
            prop_assert!((0.0..=1.0).contains(&shape.bandwidth_demand));
        }

        #[test]
        fn blocks_in_waves_last_as_long_as_the_kernel(
            class in prop::sample::select(ResourceClass::ALL.as_slice()),
            sm_needed in 1..=SM_NEEDED_MAX,
            duration_ns in 1u64..=600_000_000_000,
        ) {
            let waves = u64::from(sm_needed.div_ceil(ORION_DEVICE_SMS));
            let total_ns = shape_for(class, sm_needed, duration_ns).block_ns * waves;
            // Rounding a block to whole ns errs by half a ns a wave, by one for the shortest.
            prop_assert!(total_ns.abs_diff(duration_ns) <= waves);
        }
    }
}
