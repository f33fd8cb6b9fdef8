//! Which GPUs of a node a job may have, and first-fit and best-fit by them. A job that holds all of
//! a GPU gets GPUs with no other job, by index. A job that holds a part of one gets the GPU with
//! the least that still suffices, lowest index first (best fit; the simulator of FGD calls it
//! `gpuSelMethod: best`), so that whole GPUs stay whole.

use crate::inventory::WHOLE_MILLI;
use crate::job::JobSpec;
use crate::placement::{Rule, Score};
use crate::view::NodeView;

/// The GPUs of the node that the job gets, as a set of slots; empty for a job that asks for none.
#[must_use]
pub fn tightest(node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<u32> {
    if !node.suits(job) {
        return None;
    }
    if job.gpus == 0 {
        return Some(0);
    }
    if milli == WHOLE_MILLI {
        return node.free_slots(job);
    }
    let mut slots = 0u32;
    for _ in 0..job.gpus {
        let gpus = node.gpus.iter().enumerate();
        let fitting = gpus.filter(|(slot, gpu)| slots >> slot & 1 == 0 && gpu.takes(job, milli));
        let (slot, _) = fitting.min_by_key(|(slot, gpu)| (gpu.free_milli, *slot))?;
        slots |= 1 << slot;
    }
    Some(slots)
}

/// The first GPUs of the node that the job may have, by index.
#[must_use]
pub fn first(node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<u32> {
    if job.gpus == 0 || milli == WHOLE_MILLI || !node.suits(job) {
        return tightest(node, job, milli);
    }
    let gpus = node.gpus.iter().enumerate();
    let fitting = gpus.filter(|(_, gpu)| gpu.takes(job, milli));
    let slots = fitting.take(job.gpus as usize);
    let (slots, count) = slots.fold((0, 0), |(set, count), (slot, _)| {
        (set | 1 << slot, count + 1)
    });
    (count == job.gpus).then_some(slots)
}

/// Any node that fits is as good as another: the first in the order of ties, and its first GPUs.
#[derive(Clone, Copy, Debug)]
pub struct FirstFit;

impl Rule for FirstFit {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        Some(([0; 3], first(node, job, milli)?))
    }
}

/// The node with the least left after the placement, host CPU and GPUs weighed alike: ⌊100 (1 − ½
/// (C − c) ⁄ Cmax − ½ (L − g) ⁄ Lmax)⌋, with C, L free host CPU and GPUs, c, g what the job asks
/// for, and Cmax, Lmax of the largest nodes. `BestFit` of the simulator of FGD (ATC'23).
#[derive(Clone, Copy, Debug)]
pub struct BestFit {
    /// Host CPU of the largest node.
    pub cpu_milli_max: u64,
    /// GPUs of the largest node, in thousandths.
    pub gpu_milli_max: u64,
}

impl Rule for BestFit {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        let slots = tightest(node, job, milli)?;
        let asked = u64::from(job.gpus) * u64::from(milli);
        let cpu = ratio(node.free_cpu_milli - job.cpu_milli, self.cpu_milli_max);
        let gpu = ratio(node.free_milli() - asked, self.gpu_milli_max);
        let score = 100.0 * (1.0 - 0.5 * cpu - 0.5 * gpu);
        Some(([score as i64, 0, 0], slots))
    }
}

/// 0 where `whole` is 0: a cluster without a host CPU does not weigh it.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
