//! Fragmentation gradient descent (FGD; Weng et al., USENIX ATC'23): each job goes where it makes
//! the least more of the cluster useless for typical jobs. With the usual requests m and their
//! shares p_m of all jobs, the *fragmentation* of a node is F = Σ p_m·F_m, in thousandths of a GPU:
//! F_m is all free parts of its GPUs if m asks for no GPU or does not fit there, else the free
//! parts of those GPUs that are each too small for m. A place scores ⌊100·σ((F_before − F_after) ⁄
//! 1000)⌋ with σ(x) = 1 ⁄ (1 + e^−x), as the authors' simulator has it; the truncation decides
//! ties, and with it what the policy reaches.

use crate::inventory::WHOLE_MILLI;
use crate::job::{JobSpec, Models};
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// A request that is usual, and its share of all jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Usual {
    /// As [`JobSpec::cpu_milli`].
    pub cpu_milli: u64,
    /// As [`JobSpec::gpus`].
    pub gpus: u32,
    /// As [`JobSpec::gpu_milli`].
    pub gpu_milli: u32,
    /// As [`JobSpec::models`].
    pub models: Models,
    /// Its share, 0 to 1.
    pub share: f64,
}

/// The shares of [`Usual`] requests among these jobs: the most frequent until they are 95 % of all,
/// scaled to sum to one. Ties go by CPU, part of a GPU, number of GPUs, as in the simulator of FGD.
pub fn usual<'a>(jobs: impl IntoIterator<Item = &'a JobSpec>) -> Vec<Usual> {
    let mut counts: Vec<(u64, &JobSpec)> = Vec::new();
    let mut total = 0u64;
    let mut places = std::collections::HashMap::new();
    for job in jobs {
        total += 1;
        let key = (job.cpu_milli, job.gpus, job.gpu_milli, job.models);
        let at = *places.entry(key).or_insert_with(|| {
            counts.push((0, job));
            counts.len() - 1
        });
        counts[at].0 += 1;
    }
    counts.sort_by_key(|(count, job)| {
        std::cmp::Reverse((*count, job.cpu_milli, job.gpu_milli, job.gpus))
    });
    let mut kept = 0;
    let enough = counts.iter().position(|(count, _)| {
        kept += count;
        kept * 100 >= total * 95
    });
    counts.truncate(enough.map_or(counts.len(), |last| last + 1));
    let request = |(count, job): &(u64, &JobSpec)| Usual {
        cpu_milli: job.cpu_milli,
        gpus: job.gpus,
        gpu_milli: job.gpu_milli,
        models: job.models,
        share: *count as f64 / kept as f64,
    };
    counts.iter().map(request).collect()
}

/// The rule.
#[derive(Clone, Debug)]
pub struct Fgd {
    usual: Vec<Usual>,
}

impl Fgd {
    /// With the typical requests.
    #[must_use]
    pub const fn new(usual: Vec<Usual>) -> Self {
        Self { usual }
    }

    /// F, in thousandths of a GPU, of a node with so much free; `free_milli` is by GPU.
    #[must_use]
    pub fn fragmentation(&self, node: &NodeView<'_>, cpu_milli: u64, free_milli: &[u32]) -> f64 {
        let all: u32 = free_milli.iter().sum();
        self.usual
            .iter()
            .map(|usual| {
                let fitting = free_milli.iter().filter(|&&free| free >= usual.gpu_milli);
                let useless = if usual.gpus == 0
                    || cpu_milli < usual.cpu_milli
                    || !usual.models.has(node.spec.model)
                    || (fitting.count() as u32) < usual.gpus
                {
                    all
                } else {
                    let small = free_milli.iter().filter(|&&free| free < usual.gpu_milli);
                    small.sum()
                };
                usual.share * f64::from(useless)
            })
            .sum()
    }
}

fn truncated(milli: f64) -> i64 {
    (100.0 / (1.0 + (-milli / f64::from(WHOLE_MILLI)).exp())) as i64
}

impl Rule for Fgd {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        if !node.suits(job) {
            return None;
        }
        let mut free: Vec<u32> = node.gpus.iter().map(|gpu| gpu.free_milli).collect();
        let before = self.fragmentation(node, node.free_cpu_milli, &free);
        let cpu_milli = node.free_cpu_milli - job.cpu_milli;
        let gain = |free: &[u32]| truncated(before - self.fragmentation(node, cpu_milli, free));
        if job.gpus == 1 && milli < WHOLE_MILLI {
            let mut best: Option<(i64, u32)> = None;
            for slot in 0..free.len() {
                if !node.gpus[slot].takes(job, milli) {
                    continue;
                }
                free[slot] -= milli;
                let score = gain(&free);
                free[slot] += milli;
                if best.is_none_or(|(found, _)| score > found) {
                    best = Some((score, 1 << slot));
                }
            }
            return best.map(|(score, slots)| ([score, 0, 0], slots));
        }
        let slots = super::fits::tightest(node, job, milli)?;
        for (slot, free) in free.iter_mut().enumerate() {
            if slots >> slot & 1 == 1 {
                *free -= milli;
            }
        }
        Some(([gain(&free), 0, 0], slots))
    }
}
