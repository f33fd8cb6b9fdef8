//! Used GPUs before free ones, used nodes before free ones: `GpuPacking` of the simulator of FGD
//! (ATC'23). A node with nothing on its n GPUs scores 33 − n. Otherwise a node on which the job
//! takes k free GPUs scores 50 − k, and one with a partly used GPU that the job fits on 100 − ⌊f ⁄
//! 100⌋, where f is the free part of that GPU. Jobs without GPUs score 0 everywhere.

use crate::inventory::WHOLE_MILLI;
use crate::job::JobSpec;
use crate::placement::fits::tightest;
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct GpuPacking;

impl Rule for GpuPacking {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        let slots = tightest(node, job, milli)?;
        if job.gpus == 0 {
            return Some(([0; 3], slots));
        }
        let chosen = node.gpus.iter().enumerate();
        let mut chosen = chosen.filter(|(slot, _)| slots >> slot & 1 == 1);
        let free = chosen
            .clone()
            .filter(|(_, gpu)| gpu.free_milli == WHOLE_MILLI);
        let free = free.count() as i64;
        let score = if node.gpus.iter().all(|gpu| gpu.free_milli == WHOLE_MILLI) {
            33 - node.gpus.len() as i64
        } else if free > 0 {
            50 - free
        } else {
            let first = chosen.next().map_or(0, |(_, gpu)| gpu.free_milli);
            100 - i64::from(first / 100)
        };
        Some(([score, 0, 0], slots))
    }
}
