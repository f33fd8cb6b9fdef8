//! Blocks on an SM and SMs needed: a tool's own, else the calculator's ([`profiler::occupancy`]).

pub use profiler::occupancy::{
    Block, BlockLimits, SmLimits, block_limits, blocks, sms_needed, threads,
};

use crate::source::{Kernel, StatedLimits};

/// Blocks of `kernel` on one SM: as the tool stated them, else by [`block_limits`]; `None` where
/// the file states too little, or where its values leave no room for one block.
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
