//! How fast jobs run beside each other on one GPU.
//!
//! # The model
//! Alone, a job uses d of a GPU (its demand, 0 to 1) at speed 1. With a share s of the GPU it runs
//! at min(S, s ⁄ d): with more than its demand it gains, up to S ([`Pairs::speed_max`]). Beside a
//! neighbour that uses half of the GPU a job *keeps* a part q of its speed ([`Pairs`]), and 1 − 2
//! s' (1 − q) beside one that uses s'. The parts of several neighbours are multiplied.
//!
//! # The shares
//! Best-effort jobs together get x of the GPU: first their floors, the rest in proportion to what
//! they want beyond them. High-priority jobs share what is left in proportion to their demands. x
//! is as large as best-effort jobs can use without making a high-priority job slower than it needs,
//! and never less than the floors. Pillion's and GPUColo's control of latency both settle there;
//! they differ in how fast, below the time that this model resolves.
//!
//! Published measurements of pairs are of equal jobs on one GPU (Gavel, OSDI'20: trainings under
//! MPS); an effect linear in the neighbour's share and multiplied over neighbours is an assumption.

use crate::inventory::WHOLE_MILLI;
use crate::job::{Class, JobSpec, WorkloadId};
use crate::view::Resident;

/// S, unless an experiment says otherwise. Unpublished: GPUColo's simulator needs it above 1 (its
/// promise is 0.96 of the time alone), and does not say how much. docs/cluster.md has others.
pub const SPEED_MAX: f64 = 1.1;

/// Speeds are equal that differ by less: so much is lost to rounding.
pub const SPEED_STEP: f64 = 1e-9;

/// Least part that a job keeps beside neighbours, however many.
pub const KEPT_MIN: f64 = 0.05;

/// The part of its speed that each workload keeps beside each other one.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    workloads: usize,
    lost: Vec<f64>,
    speed_max: f64,
}

impl Pairs {
    /// A table; the first keeps `kept`, 0 to 1, beside the second while that uses half of the GPU.
    pub fn new(workloads: usize, kept: impl Fn(usize, usize) -> f64) -> Self {
        let pairs = (0..workloads).flat_map(|job| (0..workloads).map(move |beside| (job, beside)));
        let lost = pairs.map(|(job, beside)| 1.0 - kept(job, beside).clamp(0.0, 1.0));
        Self {
            workloads,
            lost: lost.collect(),
            speed_max: SPEED_MAX,
        }
    }

    /// The same with another S.
    #[must_use]
    pub fn with_speed_max(self, speed_max: f64) -> Self {
        Self { speed_max, ..self }
    }

    /// S: the highest speed of a job with more than its demand, relative to its speed alone.
    #[must_use]
    pub const fn speed_max(&self) -> f64 {
        self.speed_max
    }

    /// No job notices another.
    #[must_use]
    pub fn none() -> Self {
        Self::new(1, |_, _| 1.0)
    }

    /// How many workloads it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.workloads
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.workloads == 0
    }

    /// Sets what the job keeps beside a half-GPU neighbour. Ignores unknown workloads.
    pub fn set(&mut self, job: WorkloadId, beside: WorkloadId, kept: f64) {
        let (job, beside) = (usize::from(job.0), usize::from(beside.0));
        if job < self.workloads && beside < self.workloads {
            self.lost[job * self.workloads + beside] = 1.0 - kept.clamp(0.0, 1.0);
        }
    }

    /// The part that the job keeps beside a neighbour with `share`; 1 for unknown workloads.
    #[must_use]
    pub fn kept(&self, job: WorkloadId, beside: WorkloadId, share: f64) -> f64 {
        let (job, beside) = (usize::from(job.0), usize::from(beside.0));
        if job >= self.workloads || beside >= self.workloads {
            return 1.0;
        }
        let lost = self.lost[job * self.workloads + beside];
        (1.0 - 2.0 * share * lost).max(0.0)
    }
}

/// A job on a GPU as this model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharer {
    /// Its class.
    pub class: Class,
    /// Its row in [`Pairs`].
    pub workload: WorkloadId,
    /// d, above 0.
    pub demand: f64,
    /// Share that a best-effort job has at least; 0 for others.
    pub floor: f64,
    /// Speed that a high-priority job needs to keep its promise; 0 without one.
    pub need: f64,
    /// Most share that a gang that waits for its other GPUs can use. Infinite for others.
    pub cap: f64,
}

impl Sharer {
    /// Of a job that is there.
    #[must_use]
    pub fn of_resident(resident: &Resident) -> Self {
        Self::new(
            resident.class,
            resident.workload,
            resident.gpu_milli,
            resident.floor_milli,
            resident.slo_milli,
        )
    }

    /// Of a job that would be.
    #[must_use]
    pub fn of_job(job: &JobSpec) -> Self {
        Self::new(
            job.class,
            job.workload,
            job.gpu_milli,
            job.floor_milli,
            job.slo_milli,
        )
    }

    fn new(
        class: Class,
        workload: WorkloadId,
        gpu_milli: u32,
        floor_milli: u32,
        slo_milli: Option<u32>,
    ) -> Self {
        let part = |milli: u32| f64::from(milli) / f64::from(WHOLE_MILLI);
        let high = class == Class::HighPriority;
        Self {
            class,
            workload,
            demand: part(gpu_milli).max(1e-3),
            floor: if high { 0.0 } else { part(floor_milli) },
            need: match slo_milli {
                Some(slo) if high => f64::from(WHOLE_MILLI) / f64::from(slo.max(1)),
                _ => 0.0,
            },
            cap: f64::INFINITY,
        }
    }

    fn want(&self, speed_max: f64) -> f64 {
        (self.demand * speed_max).min(self.cap)
    }

    fn least(&self, speed_max: f64) -> f64 {
        self.floor.min(self.want(speed_max))
    }
}

/// How the jobs of one GPU run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Speed of each job, in the order of the sharers.
    pub speeds: Vec<f64>,
    /// Share of the GPU that each uses.
    pub shares: Vec<f64>,
}

impl Settled {
    /// Share of the GPU that is used.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.shares.iter().sum::<f64>().min(1.0)
    }
}

/// How these jobs run on one GPU. `settled` is overwritten: its memory is used again.
pub fn settle(sharers: &[Sharer], pairs: &Pairs, settled: &mut Settled) {
    let low = || sharers.iter().filter(|s| s.class == Class::BestEffort);
    let least: f64 = low().map(|s| s.least(pairs.speed_max)).sum();
    let most: f64 = low().map(|s| s.want(pairs.speed_max)).sum();
    let (least, most) = (least.min(1.0), most.min(1.0));
    let mut keeps = |x: f64| {
        share_out(sharers, pairs.speed_max, x, settled);
        let promised = sharers.iter().enumerate().filter(|(_, s)| s.need > 0.0);
        let mut speeds = promised.map(|(index, s)| (speed(sharers, pairs, settled, index), s.need));
        speeds.all(|(speed, need)| speed >= need - SPEED_STEP)
    };
    let mut x = most;
    if !keeps(most) {
        x = least;
        if keeps(least) {
            let (mut held, mut broken) = (least, most);
            // To a ten-thousandth of the GPU.
            for _ in 0..14 {
                let middle = f64::midpoint(held, broken);
                if keeps(middle) {
                    held = middle;
                } else {
                    broken = middle;
                }
            }
            x = held;
        }
    }
    share_out(sharers, pairs.speed_max, x, settled);
    settled.speeds.clear();
    for index in 0..sharers.len() {
        let speed = speed(sharers, pairs, settled, index);
        settled.speeds.push(speed);
    }
}

/// How jobs run in instances with such parts of one GPU: each as alone on its part.
pub fn settle_apart(sharers: &[Sharer], parts: &[f64], pairs: &Pairs, settled: &mut Settled) {
    settled.shares.clear();
    settled.speeds.clear();
    for (sharer, part) in sharers.iter().zip(parts) {
        let share = sharer.want(pairs.speed_max).min(*part);
        settled.shares.push(share);
        settled.speeds.push(share / sharer.demand);
    }
}

fn share_out(sharers: &[Sharer], speed_max: f64, x: f64, settled: &mut Settled) {
    let high = sharers.iter().filter(|s| s.class == Class::HighPriority);
    let demand: f64 = high.map(|s| s.demand).sum();
    let gain = (1.0 - x).max(0.0) / f64::max(demand, 1e-12);
    settled.shares.clear();
    settled
        .shares
        .extend(sharers.iter().map(|sharer| match sharer.class {
            Class::HighPriority => (sharer.demand * gain).min(sharer.want(speed_max)),
            Class::BestEffort => UNSHARED,
        }));
    // The rest is divided anew for each job that reaches its cap, since others get what it leaves.
    while let Some(capped) = share_rest(sharers, speed_max, x, settled) {
        settled.shares[capped] = sharers[capped].cap;
    }
}

/// Of a best-effort job without a share yet.
const UNSHARED: f64 = -1.0;

/// Divides the rest of x by demand, floors first; or finds a job that would get more than its cap.
fn share_rest(sharers: &[Sharer], speed_max: f64, x: f64, settled: &mut Settled) -> Option<usize> {
    let low = |(index, sharer): &(usize, &Sharer)| {
        sharer.class == Class::BestEffort && settled.shares[*index] == UNSHARED
    };
    let (mut shared, mut floors, mut beyond) = (0.0, 0.0, 0.0);
    for (index, sharer) in sharers.iter().enumerate() {
        if low(&(index, sharer)) {
            floors += sharer.least(speed_max);
            beyond += sharer.demand * speed_max - sharer.least(speed_max);
        } else if sharer.class == Class::BestEffort {
            shared += settled.shares[index];
        }
    }
    let left = (x - shared).max(0.0);
    // More floors than there is of the GPU are cut alike.
    let cut = if floors > left { left / floors } else { 1.0 };
    let rest = ((left - floors).max(0.0) / f64::max(beyond, 1e-12)).min(1.0);
    let share = |sharer: &Sharer| {
        let least = sharer.least(speed_max);
        least * cut + rest * (sharer.demand * speed_max - least)
    };
    let capped = sharers.iter().enumerate().filter(low);
    let mut capped = capped.filter(|(_, sharer)| share(sharer) > sharer.cap);
    if let Some((index, _)) = capped.next() {
        return Some(index);
    }
    for (index, sharer) in sharers.iter().enumerate() {
        if sharer.class == Class::BestEffort && settled.shares[index] == UNSHARED {
            settled.shares[index] = share(sharer);
        }
    }
    None
}

fn speed(sharers: &[Sharer], pairs: &Pairs, settled: &Settled, index: usize) -> f64 {
    let own = &sharers[index];
    let others = sharers.iter().zip(&settled.shares).enumerate();
    let kept = others
        .filter(|(other, _)| *other != index)
        .map(|(_, (sharer, &share))| pairs.kept(own.workload, sharer.workload, share))
        .product::<f64>();
    (settled.shares[index] / own.demand).min(pairs.speed_max) * kept.max(KEPT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharer(class: Class, demand: f64, floor: f64, need: f64) -> Sharer {
        Sharer {
            class,
            workload: WorkloadId(0),
            demand,
            floor,
            need,
            cap: f64::INFINITY,
        }
    }

    fn speeds(sharers: &[Sharer], pairs: &Pairs) -> Vec<f64> {
        let mut settled = Settled::default();
        settle(sharers, pairs, &mut settled);
        assert!(
            settled.shares.iter().sum::<f64>() <= 1.0 + 1e-9,
            "{settled:?}"
        );
        settled.speeds
    }

    fn close(found: &[f64], right: &[f64]) {
        let near = found.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-3);
        assert!(
            near && found.len() == right.len(),
            "{found:?}, not {right:?}"
        );
    }

    const HP: Class = Class::HighPriority;
    const BE: Class = Class::BestEffort;

    #[test]
    fn a_job_alone_gains_a_tenth() {
        close(
            &speeds(&[sharer(HP, 0.5, 0.0, 0.0)], &Pairs::none()),
            &[1.1],
        );
        close(
            &speeds(&[sharer(BE, 1.0, 0.1, 0.0)], &Pairs::none()),
            &[1.0],
        );
    }

    /// Σ d = 1: both at exactly their demand.
    #[test]
    fn demands_of_the_whole_gpu_leave_no_gain() {
        let two = [sharer(HP, 0.6, 0.0, 1.04), sharer(HP, 0.4, 0.0, 1.04)];
        close(&speeds(&two, &Pairs::none()), &[1.0, 1.0]);
    }

    /// Of 0.5 the job needs 1.04: a share of 0.52. The training gets 0.48 of its 0.8.
    #[test]
    fn a_training_gets_what_the_promise_leaves() {
        let two = [sharer(HP, 0.5, 0.0, 1.04), sharer(BE, 0.8, 0.1, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[1.04, 0.6]);
    }

    /// Beside a neighbour of half of the GPU the job keeps 0.8, so it loses 0.4 x beside x. It
    /// needs 1.04 = min(1.1, (1 − x) ⁄ 0.5) (1 − 0.4 x): at 1.1 that is x = 0.136.
    #[test]
    fn a_noisy_training_gets_less() {
        let two = [sharer(HP, 0.5, 0.0, 1.04), sharer(BE, 0.8, 0.1, 0.0)];
        let found = speeds(&two, &Pairs::new(1, |_, _| 0.8));
        assert!((found[0] - 1.04).abs() < 1e-3, "{found:?}");
        let x = (1.0 - 1.04 / 1.1) / 0.4;
        let training = x / 0.8 * (1.0 - 2.0 * 0.55 * 0.2);
        assert!(
            (found[1] - training).abs() < 1e-3,
            "{found:?}, not {training}"
        );
    }

    #[test]
    fn a_training_never_gets_less_than_its_floor() {
        let two = [sharer(HP, 1.0, 0.0, 1.04), sharer(BE, 0.8, 0.2, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[0.8, 0.25]);
    }

    /// They want 1.1 and 0.55: beyond the floors 1 and 0.45 of the 0.8 that are left.
    #[test]
    fn two_trainings_share_what_floors_leave() {
        let two = [sharer(BE, 1.0, 0.1, 0.0), sharer(BE, 0.5, 0.1, 0.0)];
        let beyond = 0.8 / 1.45;
        let right = [0.1 + beyond, (0.1 + 0.45 * beyond) / 0.5];
        close(&speeds(&two, &Pairs::none()), &right);
    }

    /// The gang can use 0.3, and the other training gets the rest.
    #[test]
    fn a_gang_that_waits_leaves_its_share() {
        let mut gang = sharer(BE, 1.0, 0.01, 0.0);
        gang.cap = 0.3;
        let two = [gang, sharer(BE, 0.6, 0.01, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[0.3, 1.1]);
    }

    /// 0.81 and 0.15: exactly what 0.96 of the time takes, whatever the sums round to.
    #[test]
    fn a_promise_is_kept_to_the_last_bit() {
        let need = 1000.0 / 960.0;
        let three = [
            sharer(HP, 0.81, 0.0, need),
            sharer(HP, 0.15, 0.0, need),
            sharer(BE, 1.0, 0.0, 0.0),
        ];
        let found = speeds(&three, &Pairs::none());
        assert!(
            found[..2].iter().all(|speed| *speed >= need - SPEED_STEP),
            "{found:?}"
        );
    }
}
