//! Readers of Nsight Compute's output, CSV and reports: both end in [`metrics`], in base units.

pub(crate) mod csv;
mod metrics;
pub(crate) mod report;
pub(crate) mod scrub;
mod separators;
mod units;

use std::collections::HashMap;

use crate::error::Error;
use crate::name::Names;
use crate::source::{Kernel, Launch, SourceBuilder};
use metrics::Values;

struct Measured {
    names: Names,
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    compute_capability: Option<(u32, u32)>,
    device: i64,
    stream: Option<u32>,
    values: Values,
    gpu_name: Option<String>,
}

struct Collector<'r, 'b> {
    builder: &'r mut SourceBuilder<'b>,
    gpus: HashMap<i64, u16>,
}

impl<'r, 'b> Collector<'r, 'b> {
    fn new(builder: &'r mut SourceBuilder<'b>) -> Self {
        Self {
            builder,
            gpus: HashMap::new(),
        }
    }

    fn add(&mut self, measured: Measured) -> Result<(), Error> {
        let values = &measured.values;
        let mut grid = measured.grid.or_else(|| values.grid());
        let mut block = measured.block.or_else(|| values.block());
        if grid.is_none() || block.is_none() {
            let line = |size: Option<u32>| Some([size?, 1, 1]);
            grid = grid.or_else(|| line(values.grid_size()));
            block = block.or_else(|| line(values.block_size()));
            if grid.is_some() && block.is_some() {
                self.builder.notice(
                    "the file has the numbers of blocks and threads, not their shape: a single \
                     row is assumed; `ncu --page raw` has the shape",
                );
            }
        }
        let kernel = self.builder.kernel(Kernel {
            names: measured.names,
            grid,
            block,
            registers: values.registers(),
            shared: values.shared(),
            cluster_blocks: values.cluster_blocks(),
            operator: None,
        })?;
        let mut gpu = values.gpu();
        gpu.name = measured.gpu_name;
        gpu.compute_capability = measured.compute_capability.or(gpu.compute_capability);
        let gpu = match self.gpus.get(&measured.device) {
            Some(&index) => {
                self.builder.complete_gpu(index, gpu);
                index
            }
            None => {
                let index = self.builder.gpu(gpu)?;
                self.gpus.insert(measured.device, index);
                index
            }
        };
        self.builder.launch(Launch {
            kernel,
            gpu,
            stream: measured.stream,
            start_ns: None,
            duration_ns: values.duration_ns(),
            call: None,
            counters: Some(Box::new(values.counters())),
            work: None,
        })
    }
}
