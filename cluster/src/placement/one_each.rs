//! At most one job of each class on a GPU: MuxFlow (section 8, "the number of shared workloads"),
//! which gives best-effort jobs to GPUs in the order in which both arrive (section 6: first come,
//! first served). A GPU with a job of the other class is taken before a free one, so that
//! best-effort jobs run beside high-priority ones; of several the first in the order of ties.

use crate::job::JobSpec;
use crate::placement::{Rule, Score};
use crate::view::{GpuState, NodeView};

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct OneEach;

impl Rule for OneEach {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        if job.gpus == 0 || !node.suits(job) {
            return super::fits::tightest(node, job, milli).map(|slots| ([0; 3], slots));
        }
        let gpus = node.gpus.iter().enumerate();
        let fitting = gpus.filter(|(_, gpu)| is_alone(gpu, job) && gpu.takes(job, milli));
        let mut slots: Vec<(bool, usize)> =
            fitting.map(|(slot, gpu)| (gpu.is_free(), slot)).collect();
        slots.sort_unstable();
        let chosen = slots.get(..job.gpus as usize)?;
        let free = chosen.iter().filter(|(free, _)| *free).count();
        let set = chosen.iter().fold(0, |set, (_, slot)| set | 1u32 << slot);
        Some(([-(free as i64), 0, 0], set))
    }
}

/// Whether the GPU has no job of its class; an instance is a GPU of its own.
fn is_alone(gpu: &GpuState, job: &JobSpec) -> bool {
    gpu.layout.is_some() || gpu.of(job.class).next().is_none()
}
