//! Synthetic jobs: launches of one kernel with a given length, for questions that no recording
//! answers, such as how long a best-effort kernel may be before the high-priority job notices. The
//! kernel fills the device: its blocks run in waves of as many as fit, and a wave takes `block_ns`.
//! A kernel of one wave cannot be displaced before its end, despite priorities; one of many gives
//! way after each block.

use profiler::{ResourceClass, Trace, TraceKernel};
use softgpu::{Device, KernelShape};

/// A job that launches one kernel repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Synthetic {
    /// A launch's solo duration, ns; at least 1.
    pub kernel_ns: u64,
    /// A block's approximate duration, ns: a launch has whole waves. From 1 to `kernel_ns`.
    pub block_ns: u64,
    /// Its resource class.
    pub class: ResourceClass,
    /// Launches of a request.
    pub launches: u32,
}

impl Synthetic {
    /// Its trace on `device`.
    #[must_use]
    pub fn trace(&self, device: &Device) -> Trace {
        // Orion's Table 2, as for its recordings (`softgpu::trace_shape`).
        let (compute_demand, bandwidth_demand) = match self.class {
            ResourceClass::Compute => (0.89, 0.20),
            ResourceClass::Memory => (0.14, 0.80),
            ResourceClass::Unknown => (0.5, 0.4),
        };
        let waves = (self.kernel_ns + self.block_ns / 2) / self.block_ns.max(1);
        let waves = waves.clamp(1, u64::from(WAVES_MAX)) as u32;
        let block_ns = (self.kernel_ns / u64::from(waves)).max(1);
        let one_wave = KernelShape {
            grid_blocks: 1,
            threads_per_block: THREADS,
            registers_per_thread: REGISTERS,
            shared_bytes_per_block: 0,
            block_ns,
            compute_demand: 0.0,
            bandwidth_demand: 0.0,
        };
        let fit = one_wave.blocks_per_sm(device).max(1);
        let sm_needed = waves.saturating_mul(device.sms);
        Trace {
            device: device.name.clone(),
            kernels: vec![TraceKernel {
                name: self.name(),
                source_name: self.name(),
                class: self.class,
                grid: [sm_needed.saturating_mul(fit), 1, 1],
                block: [THREADS, 1, 1],
                shared_bytes: 0,
                registers: REGISTERS,
                sm_needed,
                block_ns,
                duration_ns: block_ns * u64::from(waves),
                compute_demand,
                bandwidth_demand,
            }],
            launches: vec![0; self.launches as usize],
        }
    }

    /// Its name in results: its class, its length, and that of its blocks if they are shorter.
    #[must_use]
    pub fn name(&self) -> String {
        let class = self.class.word();
        let (kernel_us, block_us) = (self.kernel_ns as f64 / 1e3, self.block_ns as f64 / 1e3);
        match self.kernel_ns == self.block_ns {
            true => format!("{class} of {kernel_us} us"),
            false => format!("{class} of {kernel_us} us in blocks of {block_us} us"),
        }
    }
}

const THREADS: u32 = 256;
const REGISTERS: u32 = 32;
/// Waves of a kernel: a day of blocks of 1 ms exceeds any need.
const WAVES_MAX: u32 = 100_000;
