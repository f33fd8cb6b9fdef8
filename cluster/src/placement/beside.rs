//! One best-effort job beside one high-priority job, chosen by a table: which service a training
//! runs beside (Mudi, EuroSys'25, section 5.2). GPUs with the same service are alike, so a policy
//! is an order of services for each training. It is made from slopes of latency curves (Mudi),
//! predicted speeds (ours), or measured speeds (the best possible for each arrival).

use crate::job::{Class, JobSpec};
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The rule: a job goes to the GPU whose high-priority job has the greatest score beside it, and to
/// none without one or with a best-effort one. Jobs of several GPUs or high priority fit nowhere.
#[derive(Clone, Debug)]
pub struct Beside {
    /// By the best-effort job's workload, then by the high-priority job's; `None`: not beside it.
    pub scores: Vec<Vec<Option<i64>>>,
}

impl Beside {
    /// The same with the best last, as with a mistaken sign.
    #[must_use]
    pub fn inverted(mut self) -> Self {
        for score in self.scores.iter_mut().flatten().flatten() {
            *score = -*score;
        }
        self
    }
}

impl Rule for Beside {
    fn needs_neighbours(&self) -> bool {
        true
    }

    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        if job.gpus != 1 || job.class == Class::HighPriority || !node.suits(job) {
            return None;
        }
        let scores = self.scores.get(usize::from(job.workload.0))?;
        let gpus = node.gpus.iter().enumerate();
        let scored = gpus.filter_map(|(slot, gpu)| {
            let service = gpu.of(Class::HighPriority).next()?;
            let is_free = gpu.of(Class::BestEffort).next().is_none();
            if !is_free || !gpu.takes(job, milli) {
                return None;
            }
            let score = scores
                .get(usize::from(service.workload.0))
                .copied()
                .flatten()?;
            Some((score, slot))
        });
        let (score, slot) = scored.max_by_key(|&(score, slot)| (score, std::cmp::Reverse(slot)))?;
        Some(([score, 0, 0], 1 << slot))
    }
}
