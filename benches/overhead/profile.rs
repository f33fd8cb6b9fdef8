//! The kernels of the benches, as the stand-in driver's module and as the profile.

use std::fmt::Write as _;
use std::path::Path;

use profiler::profile::{ClassRule, Durations, Evidence};
use profiler::{KernelProfile, Profile, ResourceClass};

/// Blocks in x of every launch; y and z are 1.
pub(crate) const GRID: u32 = 4;
/// Threads in x of a block; y and z are 1.
pub(crate) const BLOCK: u32 = 128;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchKernel {
    pub(crate) name: &'static str,
    class: ResourceClass,
    expected_ns: u64,
}

/// A high-priority job's kernel: a little shorter than the pace of launches, so that the daemon's
/// timeline nearly always has a kernel executing and never falls behind.
pub(crate) const HIGH_PRIORITY: BenchKernel = BenchKernel {
    name: "bench_hp_compute",
    class: ResourceClass::Compute,
    expected_ns: 4_000,
};
/// The kernel of a best-effort job whose launches are measured: so short that a block does not
/// reach the throttle (100 us of expected work) and waits stay rare.
pub(crate) const TINY: BenchKernel = BenchKernel {
    name: "bench_be_tiny",
    class: ResourceClass::Compute,
    expected_ns: 2,
};
/// A kernel that may not go beside [`HIGH_PRIORITY`]: the same class.
pub(crate) const SAME_CLASS: BenchKernel = BenchKernel {
    name: "bench_be_compute",
    class: ResourceClass::Compute,
    expected_ns: 1_000,
};
pub(crate) const OTHER_CLASS: BenchKernel = BenchKernel {
    name: "bench_be_memory",
    class: ResourceClass::Memory,
    expected_ns: 1_000,
};

/// The kernel of a best-effort job that keeps the device busy: as a training step's longer ones.
pub(crate) const LONG: BenchKernel = BenchKernel {
    name: "bench_be_long",
    class: ResourceClass::Memory,
    expected_ns: 300_000,
};
pub(crate) const SERVING: BenchKernel = BenchKernel {
    name: "bench_hp_serving",
    class: ResourceClass::Compute,
    expected_ns: 100_000,
};

const ALL: [BenchKernel; 6] = [HIGH_PRIORITY, TINY, SAME_CLASS, OTHER_CLASS, LONG, SERVING];

/// The module to load: `softgpu`'s image format, with the NUL that ends it.
pub(crate) fn module_image() -> String {
    let mut text = "softgpu-module 1\n".to_owned();
    for kernel in ALL {
        let _ = writeln!(
            text,
            "kernel {} block_ns={} regs=32 shared=0 compute=0.5 bandwidth=0.1",
            kernel.name, kernel.expected_ns
        );
    }
    text.push('\0');
    text
}

pub(crate) fn write(path: &Path) -> std::io::Result<()> {
    let kernels = ALL.map(|kernel| KernelProfile {
        name: kernel.name.to_owned(),
        mangled: None,
        grid: [GRID, 1, 1],
        block: [BLOCK, 1, 1],
        shared_bytes: 0,
        count: 1,
        durations: Durations {
            sum_ns: kernel.expected_ns,
            median_ns: kernel.expected_ns,
            p95_ns: kernel.expected_ns,
        },
        registers: 32,
        sm_needed: 1,
        class: kernel.class,
        class_rule: ClassRule::Given,
        evidence: Evidence::default(),
        operator: None,
    });
    let profile = Profile {
        gpu: "V100-SXM2-16GB".to_owned(),
        sources: vec!["benches".to_owned()],
        kernels: kernels.into(),
        ..Profile::default()
    };
    std::fs::write(path, profile.write())
}
