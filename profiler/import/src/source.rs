//! A file's content, in one form for all formats: the readers' output and the reduction's input. A
//! [`Source`] is one file. Its launches are rows: kernel, time, duration, GPU and stream. A kernel
//! is one function in one launch shape, kept once ([`SourceBuilder::kernel`]), so that a file of a
//! million launches takes some 80 MB. Counters of Nsight Compute belong to their launch. Reports
//! with only sums give [`Summary`] rows. **Every unstated value is `None`.** A reader never fills
//! in usual values, and never judges: the reduction does, of SMs, classes and requests.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use profiler::limits::{BLOCK_MAX, BLOCK_THREADS_MAX, GRID_MAX, REGISTERS_MAX, SHARED_BYTES_MAX};
use profiler::{KernelProfile, Operator};

use crate::detect::Format;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::limits::{GPUS_MAX, KERNELS_MAX, LAUNCHES_MAX, NAMES_BYTES_MAX, RANGES_MAX};
use crate::name::Names;

/// The content of one file.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name without its folder, for display.
    pub label: String,
    /// The file's format.
    pub format: Format,
    /// Version of the tool that wrote it, if stated.
    pub tool_version: Option<String>,
    /// The GPUs of the launches; [`Launch::gpu`] is an index into these.
    pub gpus: Vec<Gpu>,
    /// The kernels, each in one shape; [`Launch::kernel`] is an index into these.
    pub kernels: Vec<Kernel>,
    /// The launches, in order of their starts where the file has them, else as in the file.
    pub launches: Vec<Launch>,
    /// Sums over launches, from reports without anything finer.
    pub summaries: Vec<Summary>,
    /// Named ranges (NVTX, annotations of PyTorch), on the clock of [`Call::at_ns`].
    pub ranges: Vec<Range>,
    /// Names of ranges; [`Range::name`] is an index into these.
    pub range_names: Vec<String>,
    /// Notices for the user, one sentence each.
    pub notices: Vec<String>,
    /// Judged entries from a profile, or a file readable as one, by index of the kernel.
    pub known: HashMap<u32, KernelProfile>,
}

/// One function in one launch shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Its names.
    pub names: Names,
    /// Blocks in x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Threads of a block in x, y, z.
    pub block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: Option<u32>,
    /// Shared memory.
    pub shared: SharedMemory,
    /// Blocks of a cluster, where it was launched in clusters of more than one.
    pub cluster_blocks: Option<u32>,
    /// The operator that launched it, where the file states it.
    pub operator: Option<Arc<Operator>>,
}

/// Shared memory of a block, in the parts that tools distinguish; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedMemory {
    /// Declared by the kernel.
    pub static_bytes: Option<u32>,
    /// Requested at launch.
    pub dynamic_bytes: Option<u32>,
    /// Static and dynamic together, where a tool (PyTorch) states nothing finer.
    pub both_bytes: Option<u32>,
    /// Reserved by the driver.
    pub driver_bytes: Option<u32>,
    /// The carve-out: the SM's actual shared memory for all blocks, not the device's maximum.
    pub carveout_bytes: Option<u32>,
}

impl SharedMemory {
    /// Static and dynamic shared memory of a block together.
    #[must_use]
    pub fn of_block(&self) -> Option<u32> {
        let sum = self.static_bytes.zip(self.dynamic_bytes);
        sum.map(|(fixed, dynamic)| fixed.saturating_add(dynamic))
            .or(self.both_bytes)
    }
}

/// One launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel: an index into [`Source::kernels`].
    pub kernel: u32,
    /// The GPU: an index into [`Source::gpus`].
    pub gpu: u16,
    /// The stream, as the tool numbers them within the process.
    pub stream: Option<u32>,
    /// Its start on the GPU, on the file's own clock.
    pub start_ns: Option<i64>,
    /// Its duration.
    pub duration_ns: Option<u64>,
    /// The host call that launched it.
    pub call: Option<Call>,
    /// Nsight Compute's counters of it.
    pub counters: Option<Box<Counters>>,
    /// Its work, if the shapes of its operator's tensors determine it.
    pub work: Option<Arc<Work>>,
}

/// A call that launched a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The calling thread, as the file numbers threads; comparable with [`Range::thread`].
    pub thread: u64,
    /// Its time, on the clock of [`Range::start_ns`].
    pub at_ns: i64,
}

/// Counters of one launch. Throughputs are percent of the device's peak while the kernel ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// `sm__throughput`: the busiest part of the SMs.
    pub compute_pct: Option<f64>,
    /// `gpu__compute_memory_throughput`: the busiest of L1, L2 and device memory.
    pub memory_pct: Option<f64>,
    /// `gpu__dram_throughput` or `dram__throughput`: device memory.
    pub dram_pct: Option<f64>,
    /// `lts__throughput`: level 2 cache.
    pub l2_pct: Option<f64>,
    /// `l1tex__throughput`: level 1 caches.
    pub l1_pct: Option<f64>,
    /// Bytes per second to and from device memory.
    pub dram_bytes_per_s: Option<f64>,
    /// Device memory's peak at its actual clock, bytes per second.
    pub dram_peak_bytes_per_s: Option<f64>,
    /// Single-precision operations per second by the FP32 units; an FMA counts as two.
    pub fp32_per_s: Option<f64>,
    /// The FP32 units' peak at their actual clock, operations per second.
    pub fp32_peak_per_s: Option<f64>,
    /// Double- and half-precision operations per second, counted the same way.
    pub fp64_fp16_per_s: Option<f64>,
    /// Share of time that tensor pipes were busy. No count above includes their operations.
    pub tensor_pct: Option<f64>,
    /// Blocks per SM, as the tool computed the limits.
    pub limits: StatedLimits,
    /// Grid ÷ (SMs × blocks per SM), as the tool computed it.
    pub waves_per_sm: Option<f64>,
    /// SMs × time busy ÷ SMs × time.
    pub sm_active_pct: Option<f64>,
}

/// Limits on resident blocks per SM as a tool stated them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatedLimits {
    /// By the slots for blocks.
    pub blocks: Option<u32>,
    /// By registers.
    pub registers: Option<u32>,
    /// By shared memory.
    pub shared: Option<u32>,
    /// By warps.
    pub warps: Option<u32>,
    /// By barriers (tools since 2025).
    pub barriers: Option<u32>,
}

impl StatedLimits {
    /// The least of them, if the four that every tool states are present and none is 0.
    #[must_use]
    pub fn blocks_per_sm(&self) -> Option<u32> {
        let four = [self.blocks?, self.registers?, self.shared?, self.warps?];
        let least = four.into_iter().chain(self.barriers).min();
        least.filter(|&blocks| blocks > 0)
    }
}

/// An operator's work, from the shapes of its tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The operator, for display.
    pub operator: &'static str,
    /// Floating-point operations.
    pub flop: f64,
    /// Bytes of its tensors, each read or written once.
    pub bytes: f64,
    /// Whether tensor cores can do it (by element type).
    pub is_tensor: bool,
    /// The library call that does it, if Pillion labels it.
    pub call: Option<Arc<Operator>>,
}

impl Work {
    /// Whether it is a product or a convolution, which libraries do with several kernels.
    #[must_use]
    pub fn is_product(&self) -> bool {
        self.operator != ELEMENTWISE
    }
}

/// The operator of a [`Work`] with a few operations for each element.
pub const ELEMENTWISE: &str = "elementwise";

/// Sums over the launches of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// The kernel: an index into [`Source::kernels`].
    pub kernel: u32,
    /// Launches.
    pub count: u64,
    /// The sum of their durations.
    pub sum_ns: u64,
    /// The median, where the report has one.
    pub median_ns: Option<u64>,
    /// The 95th percentile, where the file has it.
    pub p95_ns: Option<u64>,
    /// The longest, where the report has it.
    pub max_ns: Option<u64>,
    /// Standard deviation, where the report has it.
    pub deviation_ns: Option<u64>,
}

/// A named interval of a thread's time.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// An index into [`Source::range_names`].
    pub name: u32,
    /// The thread.
    pub thread: u64,
    /// When it began.
    pub start_ns: i64,
    /// When it ended.
    pub end_ns: i64,
}

/// Builds a [`Source`], keeping the bounds of [`limits`](crate::limits).
pub struct SourceBuilder<'a> {
    path: &'a Path,
    source: Source,
    kernels: HashMap<Kernel, u32>,
    range_names: HashMap<String, u32>,
    names_bytes: usize,
}

impl<'a> SourceBuilder<'a> {
    /// An empty source of the file at `path`.
    #[must_use]
    pub fn new(path: &'a Path, format: Format) -> Self {
        let label = path.file_name().map(|name| name.to_string_lossy());
        let label = label.and_then(|name| crate::name::clean(&name));
        Self {
            path,
            source: Source {
                label: label.map_or_else(|| "-".to_owned(), |label| label.to_string()),
                format,
                tool_version: None,
                gpus: Vec::new(),
                kernels: Vec::new(),
                launches: Vec::new(),
                summaries: Vec::new(),
                ranges: Vec::new(),
                range_names: Vec::new(),
                notices: Vec::new(),
                known: HashMap::new(),
            },
            kernels: HashMap::new(),
            range_names: HashMap::new(),
            names_bytes: 0,
        }
    }

    /// The index of `kernel`, added if new. Values beyond [`profiler::limits`] count as unstated.
    /// # Errors
    /// [`Error::TooMany`] beyond [`KERNELS_MAX`] or [`NAMES_BYTES_MAX`].
    pub fn kernel(&mut self, kernel: Kernel) -> Result<u32, Error> {
        let kernel = possible(kernel);
        if let Some(&index) = self.kernels.get(&kernel) {
            return Ok(index);
        }
        self.names_bytes += kernel.names.shown.len();
        self.checked(self.names_bytes, NAMES_BYTES_MAX, "bytes of names")?;
        let index = self.checked(self.source.kernels.len(), KERNELS_MAX, "different kernels")?;
        self.source.kernels.push(kernel.clone());
        self.kernels.insert(kernel, index);
        Ok(index)
    }

    /// Adds a GPU and returns its index.
    /// # Errors
    /// [`Error::TooMany`] beyond [`GPUS_MAX`].
    pub fn gpu(&mut self, gpu: Gpu) -> Result<u16, Error> {
        let index = self.checked(self.source.gpus.len(), GPUS_MAX, "GPUs")?;
        self.source.gpus.push(gpu);
        // GPUS_MAX fits.
        Ok(index as u16)
    }

    /// Completes a GPU by another launch's description.
    pub fn complete_gpu(&mut self, index: u16, other: Gpu) {
        if let Some(gpu) = self.source.gpus.get_mut(usize::from(index)) {
            gpu.complete(other);
        }
    }

    /// Adds a launch.
    /// # Errors
    /// [`Error::TooMany`] beyond [`LAUNCHES_MAX`].
    pub fn launch(&mut self, launch: Launch) -> Result<(), Error> {
        self.checked(self.source.launches.len(), LAUNCHES_MAX, "launches")?;
        self.source.launches.push(launch);
        Ok(())
    }

    /// Adds sums.
    /// # Errors
    /// [`Error::TooMany`] beyond [`KERNELS_MAX`].
    pub fn summary(&mut self, summary: Summary) -> Result<(), Error> {
        self.checked(self.source.summaries.len(), KERNELS_MAX, "rows of sums")?;
        self.source.summaries.push(summary);
        Ok(())
    }

    /// Adds a named range.
    /// # Errors
    /// [`Error::TooMany`] beyond [`RANGES_MAX`].
    pub fn range(
        &mut self,
        name: &str,
        thread: u64,
        start_ns: i64,
        end_ns: i64,
    ) -> Result<(), Error> {
        self.checked(self.source.ranges.len(), RANGES_MAX, "named ranges")?;
        let name = match self.range_names.get(name) {
            Some(&index) => index,
            None => {
                // No more names than ranges, so 32 bits hold it.
                let index = self.source.range_names.len() as u32;
                self.names_bytes += name.len();
                self.checked(self.names_bytes, NAMES_BYTES_MAX, "bytes of names")?;
                self.source.range_names.push(name.to_owned());
                self.range_names.insert(name.to_owned(), index);
                index
            }
        };
        self.source.ranges.push(Range {
            name,
            thread,
            start_ns,
            end_ns,
        });
        Ok(())
    }

    /// Adds a profile's entry for a kernel.
    pub fn known(&mut self, kernel: u32, entry: KernelProfile) {
        self.source.known.insert(kernel, entry);
    }

    /// Adds a notice for the user, once.
    pub fn notice(&mut self, notice: impl Into<String>) {
        let notice = notice.into();
        if !self.source.notices.contains(&notice) {
            self.source.notices.push(notice);
        }
    }

    /// The version of the tool that wrote the file.
    pub fn tool_version(&mut self, version: &str) {
        self.source.tool_version = crate::name::clean(version).map(|version| version.to_string());
    }

    /// The same kernel in an operator.
    /// # Errors
    /// Those of [`SourceBuilder::kernel`].
    pub fn kernel_in(&mut self, kernel: u32, operator: &Arc<Operator>) -> Result<u32, Error> {
        let Some(kernel) = self.source.kernels.get(kernel as usize) else {
            return Ok(kernel);
        };
        let kernel = Kernel {
            operator: Some(Arc::clone(operator)),
            ..kernel.clone()
        };
        self.kernel(kernel)
    }

    /// The launches so far, for completion.
    pub fn launches_mut(&mut self) -> &mut [Launch] {
        &mut self.source.launches
    }

    /// Whether there is neither a launch nor a sum.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.source.launches.is_empty() && self.source.summaries.is_empty()
    }

    /// The source, its launches in order of their start.
    #[must_use]
    pub fn finish(mut self) -> Source {
        // Stable, so that launches without a start stay as in the file.
        self.source.launches.sort_by_key(|launch| launch.start_ns);
        self.source
    }

    fn checked(&self, count: usize, limit: usize, what: &'static str) -> Result<u32, Error> {
        if count >= limit {
            let path = self.path.to_owned();
            return Err(Error::too_many(&path, what, limit));
        }
        // Every bound on indexed items fits in 32 bits.
        Ok(count as u32)
    }
}

fn possible(mut kernel: Kernel) -> Kernel {
    let in_range = |shape: &[u32; 3], most: [u32; 3]| {
        shape
            .iter()
            .zip(most)
            .all(|(&extent, most)| (1..=most).contains(&extent))
    };
    kernel.grid = kernel.grid.filter(|grid| in_range(grid, GRID_MAX));
    kernel.block = kernel.block.filter(|block| {
        in_range(block, BLOCK_MAX) && block.iter().product::<u32>() <= BLOCK_THREADS_MAX
    });
    // A shape is both or nothing.
    if kernel.grid.is_none() || kernel.block.is_none() {
        (kernel.grid, kernel.block) = (None, None);
    }
    kernel.registers = kernel.registers.filter(|n| (1..=REGISTERS_MAX).contains(n));
    let size = |bytes: Option<u32>| bytes.filter(|&bytes| bytes <= SHARED_BYTES_MAX);
    kernel.shared = SharedMemory {
        static_bytes: size(kernel.shared.static_bytes),
        dynamic_bytes: size(kernel.shared.dynamic_bytes),
        both_bytes: size(kernel.shared.both_bytes),
        driver_bytes: size(kernel.shared.driver_bytes),
        // A carve-out of 0 means unknown in old tools.
        carveout_bytes: size(kernel.shared.carveout_bytes).filter(|&bytes| bytes > 0),
    };
    kernel.cluster_blocks = kernel.cluster_blocks.filter(|&blocks| blocks > 1);
    kernel
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Kernel, SharedMemory, SourceBuilder};
    use crate::{Format, Names};

    fn kernel(grid: [u32; 3]) -> Kernel {
        Kernel {
            names: Names::new("f(int)").expect("a name"),
            grid: Some(grid),
            block: Some([256, 1, 1]),
            registers: Some(32),
            shared: SharedMemory::default(),
            cluster_blocks: Some(1),
            operator: None,
        }
    }

    #[test]
    fn a_kernel_and_shape_is_kept_once() {
        let mut builder = SourceBuilder::new(Path::new("/x/report.sqlite"), Format::NsysSqlite);
        assert_eq!(builder.kernel(kernel([1, 1, 1])).ok(), Some(0));
        assert_eq!(builder.kernel(kernel([2, 1, 1])).ok(), Some(1));
        assert_eq!(builder.kernel(kernel([1, 1, 1])).ok(), Some(0));
        let source = builder.finish();
        assert_eq!((source.kernels.len(), &*source.label), (2, "report.sqlite"));
        assert_eq!(source.kernels[0].cluster_blocks, None);
    }

    #[test]
    fn what_cuda_cannot_have_launched_is_not_stated() {
        let mut builder = SourceBuilder::new(Path::new("r"), Format::NsysSqlite);
        for (grid, block) in [
            ([0, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [1024, 2, 1]),
            ([1, 65_536, 1], [1, 1, 1]),
        ] {
            let impossible = Kernel {
                block: Some(block),
                ..kernel(grid)
            };
            builder.kernel(impossible).expect("there is room");
        }
        let source = builder.finish();
        assert_eq!(source.kernels.len(), 1, "all the same without a shape");
        assert_eq!(
            (source.kernels[0].grid, source.kernels[0].block),
            (None, None)
        );
    }
}
