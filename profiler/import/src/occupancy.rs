//! Blocks on an SM and SMs needed: a tool's own, else the calculator's ([`profiler::occupancy`]).

pub use profiler::occupancy::{
    Block, BlockLimits, SmLimits, block_limits, blocks, sms_needed, threads,
};

use crate::source::{Kernel, StatedLimits};

/// Blocks on an SM: the tool's, else by [`block_limits`]; `None` if too little is stated, or 0.
#[must_use]
pub fn blocks_per_sm(kernel: &Kernel, sm: Option<&SmLimits>, stated: &StatedLimits) -> Option<u32> {
    if let Some(blocks) = stated.blocks_per_sm() {
        return Some(blocks);
    }
    let sm = sm?;
    let driver_bytes = kernel
        .shared
        .driver_bytes
        .unwrap_or(sm.shared_reserved_bytes);
    let block = Block {
        threads: threads(kernel.block?),
        registers: kernel.registers?,
        shared_bytes: kernel.shared.of_block()?.saturating_add(driver_bytes),
    };
    let limits = block_limits(sm, &block, kernel.shared.carveout_bytes);
    Some(limits.least()).filter(|&blocks| blocks > 0)
}
