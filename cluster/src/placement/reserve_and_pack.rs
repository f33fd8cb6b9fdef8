//! Reserving and packing (R&P; Weng et al., NSDI'22, section 5, as OLTunes compares with it): GPUs
//! of the strongest models are kept for jobs that need whole GPUs, all others are packed onto the
//! rest. A job of whole GPUs goes to the reserved models first, any other job to the others first;
//! among equals to the node with the least left.

use crate::inventory::WHOLE_MILLI;
use crate::job::{JobSpec, Models};
use crate::placement::fits::tightest;
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct ReserveAndPack {
    /// The models that are kept.
    pub reserved: Models,
}

impl Rule for ReserveAndPack {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        let slots = tightest(node, job, milli)?;
        let needs = job.gpus > 0 && job.gpu_milli == WHOLE_MILLI;
        let apt = self.reserved.has(node.spec.model) == needs;
        let left = node.free_milli() - u64::from(job.gpus) * u64::from(milli);
        Some(([i64::from(apt), -left.cast_signed(), 0], slots))
    }
}
