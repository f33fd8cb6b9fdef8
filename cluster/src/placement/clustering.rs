//! Jobs of one shape together: `GpuClustering` of the simulator of FGD (ATC'23). A job's shape is a
//! part of one GPU, one whole GPU, two, and so on. A node scores 75 if all of its jobs with GPUs
//! have the job's shape, 50 if some have, 25 if there are none, 0 if all have others; and up to 25
//! more the less of its GPUs is free. Jobs without GPUs score 0 everywhere.

use crate::inventory::WHOLE_MILLI;
use crate::job::JobSpec;
use crate::placement::fits::tightest;
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The rule.
#[derive(Clone, Copy, Debug)]
pub struct Clustering {
    /// GPUs of the largest node, in thousandths.
    pub gpu_milli_max: u64,
}

impl Rule for Clustering {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        let slots = tightest(node, job, milli)?;
        if job.gpus == 0 {
            return Some(([0; 3], slots));
        }
        let shape = match job.gpus {
            1 if milli < WHOLE_MILLI => 0,
            gpus => gpus as usize,
        };
        let same = u32::from(node.jobs_of_shape(shape));
        let bonus = match (same, node.gpu_jobs() - same) {
            (0, 0) => 25,
            (0, _) => 0,
            (_, 0) => 75,
            (_, _) => 50,
        };
        let taken = self.gpu_milli_max.saturating_sub(node.free_milli());
        let score = 25 * taken / self.gpu_milli_max.max(1) + bonus;
        Some(([score.cast_signed(), 0, 0], slots))
    }
}
