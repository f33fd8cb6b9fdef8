//! From what a kernel does to how long it takes, in which shape, and what bounds it.
//!
//! **Time** is the larger of arithmetic and traffic, plus what a launch costs. Arithmetic of a
//! product: its output is cut into tiles, one block each (and k into parts where the library does
//! that); an SM works through its share of the blocks at a share of its peak, so what counts is the
//! SM with the most blocks. The library is taken to choose the fastest of its tilings. Traffic:
//! bytes at a share of the bandwidth, less what the level 2 cache still holds.
//!
//! **Class**, by Orion's rule: products by their arithmetic intensity against the device's ridge;
//! passes with arithmetic are memory-bound; others if they keep the memory 60 % busy, else unknown.

use profiler::limits::{DURATION_NS_MAX, SM_NEEDED_MAX};
use profiler::{ResourceClass, TraceKernel};
use softgpu::{Device, KernelShape};

use crate::Precision;
use crate::efficiency::{MATRIX_UNITS_SHARE, of_algorithm, of_family};
use crate::work::{Algorithm, Family, Kernel, Matrix, Stream, Work};

/// A tile of a product's output, its threads, and how well it feeds the SM.
struct Tile {
    rows: f64,
    columns: f64,
    threads: u32,
    registers: u32,
    share: f64,
}

/// The tilings of cuBLAS on a V100, by the names of its kernels: `sgemm_128x64`, `sgemm_32x128` and
/// `sgemm_32x32_sliced`. Smaller tiles load more for each multiplication. With 128 registers and
/// 128 threads four blocks of the large one share an SM, as the recorded SM needs say.
const TILES: [Tile; 3] = [
    Tile {
        rows: 128.0,
        columns: 64.0,
        threads: 128,
        registers: 128,
        share: 1.0,
    },
    Tile {
        rows: 32.0,
        columns: 128.0,
        threads: 128,
        registers: 96,
        share: 0.95,
    },
    Tile {
        rows: 32.0,
        columns: 32.0,
        threads: 128,
        registers: 80,
        share: 0.55,
    },
];

/// Parts into which k may be cut.
const SPLITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// Threads of a block that passes over arrays, and elements that each thread takes (PyTorch's
/// vectorised kernels; with 16 such blocks on an SM the recorded SM needs come out).
const STREAM_THREADS: u32 = 128;
const STREAM_ELEMENTS_PER_BLOCK: f64 = 512.0;
const STREAM_REGISTERS: u32 = 32;

/// Throughput as a share of the peak, from which a pass without arithmetic counts as memory-bound
/// (Orion, §5.2).
const BUSY_SHARE: f64 = 0.6;

/// Greatest demand: what an isolated kernel was seen to reach (Orion, Table 2: 0.89).
const DEMAND_MAX: f64 = 0.9;

/// Multiply-adds in 16 bits that the matrix units of an SM start per clock, dense; `None` where the
/// device has none that count. NVIDIA's papers: Volta, Turing, A100, GA102, Ada, Hopper, Blackwell.
pub(crate) fn matrix_units_per_clock(device: &Device) -> Option<f64> {
    let capability = device.compute_capability;
    match (capability.major, capability.minor) {
        (7, _) | (8, 6..) | (12, _) => Some(512.0),
        (8, _) => Some(1024.0),
        (9, _) => Some(2048.0),
        (10, _) => Some(4096.0),
        _ => None,
    }
}

struct Tiling {
    blocks: f64,
    threads: u32,
    registers: u32,
    arithmetic_ns: f64,
}

pub(crate) fn trace_kernel(kernel: &Kernel, device: &Device, precision: Precision) -> TraceKernel {
    let cost = match kernel.work {
        Work::Matrix(matrix) => product(&matrix, device, precision),
        Work::Stream(stream) => pass(&stream, device, precision),
    };
    let grid = cost.blocks.clamp(1.0, f64::from(SM_NEEDED_MAX)) as u32;
    let duration_ns = (cost.time_ns.round() as u64).clamp(1, DURATION_NS_MAX);
    let mut shape = KernelShape {
        grid_blocks: u64::from(grid),
        threads_per_block: cost.threads,
        registers_per_thread: cost.registers,
        shared_bytes_per_block: 0,
        block_ns: 1,
        compute_demand: 0.0,
        bandwidth_demand: 0.0,
    };
    // Blocks of this size fit on an SM of every device of the table (tested).
    let waves = shape.waves(device).unwrap_or(1).max(1);
    shape.block_ns = ((duration_ns + waves / 2) / waves).max(1);
    let sm_needed = shape.sm_needed(device).unwrap_or(1).min(SM_NEEDED_MAX);
    let demand = |busy_ns: f64| ((busy_ns / cost.time_ns).min(DEMAND_MAX) * 1e3).round() / 1e3;
    TraceKernel {
        name: kernel.name.clone(),
        source_name: kernel.family().to_owned(),
        class: cost.class,
        grid: [grid, 1, 1],
        block: [cost.threads, 1, 1],
        shared_bytes: 0,
        registers: cost.registers,
        sm_needed,
        block_ns: shape.block_ns,
        duration_ns,
        compute_demand: demand(cost.compute_ns) as f32,
        bandwidth_demand: demand(cost.traffic_ns) as f32,
    }
}

struct Cost {
    time_ns: f64,
    /// The same at the device's peaks.
    compute_ns: f64,
    traffic_ns: f64,
    blocks: f64,
    threads: u32,
    registers: u32,
    class: ResourceClass,
}

fn product(matrix: &Matrix, device: &Device, precision: Precision) -> Cost {
    let efficiency = of_algorithm(matrix.algorithm);
    let (peak, units_share) = match (precision, matrix_units_per_clock(device)) {
        (Precision::Fp16, Some(per_clock)) => (peak_of(per_clock, device), MATRIX_UNITS_SHARE),
        _ => (peak_of(f64::from(device.fp32_per_clk_per_sm), device), 1.0),
    };
    let reached = peak * efficiency.share * units_share;
    let tiling = match matrix.algorithm {
        Algorithm::Winograd => winograd(matrix, device, reached),
        _ => fastest_tiling(matrix, device, reached, efficiency.steps_extra),
    };
    let bytes = matrix.numbers * precision.bytes();
    let bandwidth = f64::from(device.bandwidth_gb_s);
    let streaming = of_family(Family::Norm);
    let traffic_ns = bytes / bandwidth;
    let time_ns = efficiency.launch_ns + tiling.arithmetic_ns.max(traffic_ns / streaming.share);
    let intensity = matrix.flops() / bytes;
    // Operations per ns at peak over bytes per ns at peak.
    let ridge = peak * f64::from(device.sms) / bandwidth;
    Cost {
        time_ns,
        compute_ns: matrix.flops() / (peak * f64::from(device.sms)),
        traffic_ns,
        blocks: tiling.blocks,
        threads: tiling.threads,
        registers: tiling.registers,
        class: if intensity > ridge * RIDGE_SHARE {
            ResourceClass::Compute
        } else {
            ResourceClass::Memory
        },
    }
}

/// Orion's threshold of 9.72 operations per byte as a share of a V100's ridge, 15.7 T / 0.898 T.
const RIDGE_SHARE: f64 = 9.72 / 17.45;

fn peak_of(multiply_adds_per_clock: f64, device: &Device) -> f64 {
    2.0 * multiply_adds_per_clock * f64::from(device.max_clock_mhz) / 1e3
}

/// The tiling under which the busiest SM is done first. `reached`: operations per ns and SM.
fn fastest_tiling(matrix: &Matrix, device: &Device, reached: f64, steps_extra: f64) -> Tiling {
    let is_product = matrix.algorithm == Algorithm::Product;
    let splits: &[f64] = if is_product { &SPLITS } else { &SPLITS[..1] };
    let mut best: Option<Tiling> = None;
    for tile in &TILES {
        for &split in splits {
            let tiling = tiling(matrix, tile, split, device, reached, steps_extra);
            let is_better = best
                .as_ref()
                .is_none_or(|best| tiling.arithmetic_ns < best.arithmetic_ns);
            if is_better {
                best = Some(tiling);
            }
        }
    }
    best.unwrap_or_else(|| tiling(matrix, &TILES[0], 1.0, device, reached, steps_extra))
}

fn tiling(
    matrix: &Matrix,
    tile: &Tile,
    split: f64,
    device: &Device,
    reached: f64,
    steps_extra: f64,
) -> Tiling {
    let tiles = (matrix.m / tile.rows).ceil() * (matrix.n / tile.columns).ceil();
    let blocks = matrix.batch * tiles * split;
    let per_sm = (blocks / f64::from(device.sms)).ceil();
    let steps = (matrix.k / split).ceil() + steps_extra;
    let operations = per_sm * 2.0 * tile.rows * tile.columns * steps;
    Tiling {
        blocks,
        threads: tile.threads,
        registers: tile.registers,
        arithmetic_ns: operations / (reached * tile.share),
    }
}

/// Winograd's kernel fills the device whatever the sizes; its loss is the rounding up of output
/// tiles of 2 x 2 to multiples of 128.
fn winograd(matrix: &Matrix, device: &Device, reached: f64) -> Tiling {
    let tiles = (matrix.batch * matrix.m / 4.0).ceil();
    let padded = (tiles / WINOGRAD_TILES).ceil() * WINOGRAD_TILES;
    let operations = matrix.flops() / WINOGRAD_SAVING * (padded / tiles);
    let blocks = (padded / 32.0) * (matrix.n / 32.0).ceil();
    Tiling {
        blocks,
        threads: 256,
        registers: 128,
        arithmetic_ns: operations / (reached * f64::from(device.sms)),
    }
}

const WINOGRAD_TILES: f64 = 128.0;
const WINOGRAD_SAVING: f64 = 2.25;

fn pass(stream: &Stream, device: &Device, precision: Precision) -> Cost {
    let efficiency = of_family(stream.family);
    let bytes = stream.numbers * precision.bytes();
    let uncached = (bytes - efficiency.cached * device.l2_bytes as f64).max(0.0);
    let bandwidth = f64::from(device.bandwidth_gb_s);
    let streamed_ns = efficiency.launch_ns + uncached / (bandwidth * efficiency.share);
    let time_ns = streamed_ns.max(efficiency.least_ns);
    let traffic_ns = bytes / bandwidth;
    let peak = peak_of(f64::from(device.fp32_per_clk_per_sm), device) * f64::from(device.sms);
    Cost {
        time_ns,
        compute_ns: stream.flops / peak,
        traffic_ns,
        blocks: (stream.elements / STREAM_ELEMENTS_PER_BLOCK).ceil(),
        threads: STREAM_THREADS,
        registers: STREAM_REGISTERS,
        class: if stream.flops > 0.0 || uncached / bandwidth / time_ns >= BUSY_SHARE {
            ResourceClass::Memory
        } else {
            ResourceClass::Unknown
        },
    }
}
