//! Judged kernels: Pillion's profiles and traces, Orion's files; joined with others, or each other.

use std::path::Path;
use std::sync::Arc;

use profiler::{KernelProfile, Profile};

use crate::detect::Format;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::name::Names;
use crate::source::{Kernel, SharedMemory, Source, SourceBuilder, Summary};

pub(crate) fn read(path: &Path) -> Result<Source, Error> {
    let profile = Profile::load(path)?;
    let mut builder = SourceBuilder::new(path, Format::Profiler);
    let measured = profile.measured.clone().unwrap_or_default();
    builder.gpu(Gpu {
        name: Some(profile.gpu.clone()),
        compute_capability: measured.compute_capability,
        sms: measured.sms,
        bandwidth_bytes_per_s: measured
            .bandwidth_gb_s
            .map(|gb| u64::from(gb) * 1_000_000_000),
        clock_hz: measured.clock_mhz.map(|mhz| u64::from(mhz) * 1_000_000),
        ..Gpu::default()
    })?;
    for notice in &profile.notices {
        builder.notice(notice.clone());
    }
    for known in profile.kernels {
        let Some(kernel) = kernel(&known) else {
            continue;
        };
        let kernel = builder.kernel(kernel)?;
        builder.summary(Summary {
            kernel,
            count: known.count,
            sum_ns: known.durations.sum_ns,
            median_ns: Some(known.durations.median_ns),
            p95_ns: Some(known.durations.p95_ns),
            max_ns: None,
            deviation_ns: None,
        })?;
        builder.known(kernel, known);
    }
    if builder.is_empty() {
        return Err(Error::no_kernels(
            path,
            "a profile without kernels",
            "import its source files again",
        ));
    }
    Ok(builder.finish())
}

fn kernel(known: &KernelProfile) -> Option<Kernel> {
    let mut names = Names::new(&known.name)?;
    if let Some(mangled) = &known.mangled {
        names = names.with_mangled(mangled);
    }
    Some(Kernel {
        names,
        grid: Some(known.grid),
        block: Some(known.block),
        registers: Some(known.registers),
        shared: SharedMemory {
            static_bytes: known.evidence.static_shared_bytes,
            dynamic_bytes: Some(known.shared_bytes),
            ..SharedMemory::default()
        },
        cluster_blocks: None,
        operator: known.operator.clone().map(Arc::new),
    })
}
