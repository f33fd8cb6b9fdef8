//! The synthetic kernels of `pillion-replay`, as the model knows them: durations and results.
//!
//! On a GPU they are PTX (`examples/replay/src/ptx.rs`, which describes the parameters): every
//! thread runs a body `loops` times, and the first thread of each block adds its thread's sum to
//! the results. Nothing here runs PTX. The time follows from the work stated in the parameters, so
//! that measuring and calibrating such a kernel works on the software GPU as on hardware. The
//! results are those of the loops, computed without them. The buffer's words are assumed, not
//! checked, to be ones, as the kernel expects and leaves them. *Time*: a block gets its share of
//! the device's peak, compute or bandwidth, as if the device were full of blocks; 40 % of them
//! exhaust the bandwidth, as in Orion's Table 2 (see [`crate::trace_shape`]).

use crate::builtin::{BUILTIN_REGISTERS, EMPTY_KERNEL_NS, Fault, Memory};
use crate::error::Error;
use crate::kernel::KernelShape;
use crate::trace_shape::MEMORY_SATURATING_PART;
use devices::Device;

/// Words of 4 bytes that a thread loads and stores per loop, if it does.
pub(crate) const WORDS: u32 = 4;
const OPERATIONS: f64 = 2.0;
/// Each word is loaded and stored.
const BYTES: f64 = 8.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) loops: u32,
    /// Blocks that run one more loop.
    pub(crate) more: u32,
    /// Added to a thread's sum per loop: its words, and one for each multiply-add.
    pub(crate) per_loop: u32,
    pub(crate) blocks: u32,
    pub(crate) words: u32,
}

pub(crate) fn shape(
    work: &Work,
    grid_blocks: u64,
    threads_per_block: u32,
    shared_bytes_per_block: u32,
    device: &Device,
) -> Result<KernelShape, Error> {
    let empty = KernelShape {
        grid_blocks,
        threads_per_block,
        registers_per_thread: BUILTIN_REGISTERS,
        shared_bytes_per_block,
        block_ns: 1,
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
    };
    let waves = empty.waves(device)? as f64;
    let resident = empty.resident_blocks_max(device) as f64;
    let fit = f64::from(empty.blocks_per_sm(device)) * f64::from(device.sms);
    let saturating = (fit * MEMORY_SATURATING_PART).max(1.0);
    // The model's blocks are all alike, so each does its part of the additional loops.
    let loops = f64::from(work.loops) + f64::from(work.more) / grid_blocks as f64;
    let each = loops * f64::from(threads_per_block);
    let operations = each * f64::from(work.per_loop.saturating_sub(work.words)) * OPERATIONS;
    let bytes = each * f64::from(work.words) * BYTES;
    // Tera-operations and giga-bytes per second are thousands and units per nanosecond.
    let compute_ns = operations * fit / (device.fp32_tflops() * 1e3);
    let memory_ns = bytes * resident.max(saturating) / f64::from(device.bandwidth_gb_s.max(1));
    let block_ns = compute_ns.max(memory_ns) + EMPTY_KERNEL_NS / waves;
    Ok(KernelShape {
        block_ns: block_ns.ceil() as u64,
        compute_demand: compute_ns / block_ns * resident / fit,
        bandwidth_demand: memory_ns / block_ns * (resident / saturating).min(1.0),
        ..empty
    })
}

/// Adds the launch's results: the sums of its blocks, and one launch.
pub(crate) fn run(work: &Work, results: u64, memory: &mut dyn Memory) -> Result<(), Fault> {
    let loops = u64::from(work.loops) * u64::from(work.blocks) + u64::from(work.more);
    let told = [loops.wrapping_mul(work.per_loop.into()), 1];
    for (place, more) in (0..).zip(told) {
        let address = results.wrapping_add(8 * place);
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes)?;
        let total = u64::from_le_bytes(bytes).wrapping_add(more);
        memory.write(address, &total.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solo_ns(loops: u32, words: u32, per_loop: u32, grid_blocks: u64) -> u64 {
        let device = Device::by_name("V100-SXM2-16GB").unwrap();
        let work = Work {
            loops,
            per_loop,
            words,
            ..Work::default()
        };
        let shape = shape(&work, grid_blocks, 256, 0, &device).unwrap();
        shape.solo_ns(&device).unwrap()
    }

    #[test]
    fn a_full_device_computes_at_its_peak() {
        // 640 blocks of 256 threads fit; each does 1000 loops of 50 multiply-adds.
        let operations = 640.0 * 256.0 * 1000.0 * 50.0 * 2.0;
        let peak = Device::by_name("V100-SXM2-16GB").unwrap().fp32_tflops() * 1e3;
        let expected_ns = operations / peak + 1000.0;
        let error = solo_ns(1000, 0, 50, 640) as f64 / expected_ns - 1.0;
        assert!(error.abs() < 0.01, "{error}");
    }

    #[test]
    fn forty_per_cent_of_the_blocks_exhaust_the_bandwidth() {
        let bytes = 256.0 * 256.0 * 1000.0 * 32.0;
        let expected_ns = bytes / 898.0 + 1000.0;
        let error = solo_ns(1000, 4, 4, 256) as f64 / expected_ns - 1.0;
        assert!(error.abs() < 0.01, "{error}");
    }

    #[test]
    fn the_time_grows_with_the_loops() {
        for (words, per_loop) in [(0, 50), (4, 4), (4, 80)] {
            let [one, two, four] =
                [1000, 2000, 4000].map(|n| solo_ns(n, words, per_loop, 98) as f64);
            let slopes = ((four - two) / 2.0) / (two - one);
            assert!(
                one < two && (slopes - 1.0).abs() < 0.01,
                "{one} {two} {four}"
            );
        }
    }
}
