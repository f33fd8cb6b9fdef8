//! How fast jobs run beside each other on one GPU.
//!
//! # The model
//!
//! A job uses d of a GPU when it is alone there (its demand, 0 to 1), and does its work at speed 1
//! then. With a share s of the GPU it runs at min(S, s ⁄ d): given more than its demand it gains, up to
//! S = [`SPEED_MAX`]. Each neighbour takes a part of that: a job *keeps* a part q of its speed beside a
//! neighbour that uses half of the GPU ([`Pairs`]), and 1 − 2 s' (1 − q) beside one that uses s'. The
//! parts of several neighbours are multiplied.
//!
//! # The shares
//!
//! Best-effort jobs together get x of the GPU, divided in proportion to their demands; high-priority
//! jobs share the rest in proportion to theirs. x is as large as best-effort jobs can use, but not
//! so large that a high-priority job runs slower than it needs, and never less than the floors of the
//! best-effort jobs. Pillion's and GPUColo's control of latency both settle there: what
//! they differ in is how fast, which is below the time that this model resolves.
//!
//! Published measurements of pairs are of equal jobs on one GPU (Gavel, OSDI'20: co-located trainings
//! under MPS); that the effect is linear in the neighbour's share and multiplies over neighbours is
//! an assumption.

use crate::inventory::WHOLE_MILLI;
use crate::job::{Class, JobSpec, WorkloadId};
use crate::view::{GpuState, Resident};

/// How much faster than alone on its demand a job becomes with more than its demand, at most: what a
/// job asks for is a little less than what it can use.
pub const SPEED_MAX: f64 = 1.1;

/// Least part that a job keeps beside neighbours, however many.
const KEPT_MIN: f64 = 0.05;

/// What each workload keeps of its speed beside each other one.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    workloads: usize,
    lost: Vec<f64>,
}

impl Pairs {
    /// A table of so many workloads; `kept` gives what the first keeps beside the second while that
    /// uses half of the GPU, 0 to 1.
    pub fn new(workloads: usize, kept: impl Fn(usize, usize) -> f64) -> Self {
        let pairs = (0..workloads).flat_map(|job| (0..workloads).map(move |beside| (job, beside)));
        let lost = pairs.map(|(job, beside)| 1.0 - kept(job, beside).clamp(0.0, 1.0));
        Self {
            workloads,
            lost: lost.collect(),
        }
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

    /// What the job keeps beside a neighbour that uses `share` of the GPU.
    #[must_use]
    pub fn kept(&self, job: WorkloadId, beside: WorkloadId, share: f64) -> f64 {
        let place = usize::from(job.0) * self.workloads + usize::from(beside.0);
        let lost = self.lost.get(place).copied().unwrap_or(0.0);
        (1.0 - 2.0 * share * lost).max(0.0)
    }
}

/// A job on a GPU as this model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenant {
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
}

impl Tenant {
    /// Of a job that is there; a best-effort job's floor is what it holds.
    #[must_use]
    pub fn of_resident(resident: &Resident) -> Self {
        let held = resident.held_milli.min(resident.gpu_milli);
        Self::new(
            resident.class,
            resident.workload,
            resident.gpu_milli,
            held,
            resident.slo_milli,
        )
    }

    /// Of a job that would hold so much.
    #[must_use]
    pub fn of_job(job: &JobSpec, held_milli: u32) -> Self {
        let held = held_milli.min(job.gpu_milli);
        Self::new(job.class, job.workload, job.gpu_milli, held, job.slo_milli)
    }

    fn new(
        class: Class,
        workload: WorkloadId,
        gpu_milli: u32,
        held_milli: u32,
        slo_milli: Option<u32>,
    ) -> Self {
        let part = |milli: u32| f64::from(milli) / f64::from(WHOLE_MILLI);
        let high = class == Class::HighPriority;
        Self {
            class,
            workload,
            demand: part(gpu_milli).max(1e-3),
            floor: if high { 0.0 } else { part(held_milli) },
            need: match slo_milli {
                Some(slo) if high => f64::from(WHOLE_MILLI) / f64::from(slo.max(1)),
                _ => 0.0,
            },
        }
    }
}

/// How the jobs of one GPU run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Speed of each job, in the order of the tenants.
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

/// The tenants of a GPU.
#[must_use]
pub fn tenants(gpu: &GpuState) -> Vec<Tenant> {
    gpu.residents.iter().map(Tenant::of_resident).collect()
}

/// How these jobs run on one GPU. `settled` is overwritten: its memory is used again.
pub fn settle(tenants: &[Tenant], pairs: &Pairs, settled: &mut Settled) {
    let sum = |class| {
        let of = tenants.iter().filter(|t| t.class == class);
        of.map(|t| t.demand).sum::<f64>()
    };
    let demands = (sum(Class::HighPriority), sum(Class::BestEffort));
    let floors: f64 = tenants.iter().map(|t| t.floor).sum();
    let least = floors.min(1.0);
    let most = (SPEED_MAX * demands.1).clamp(least, 1.0);
    let mut keeps = |x: f64| {
        share_out(tenants, demands, x, settled);
        let speeds = tenants.iter().enumerate();
        speeds
            .filter(|(_, t)| t.need > 0.0)
            .all(|(index, t)| speed(tenants, pairs, &settled.shares, index) >= t.need)
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
    share_out(tenants, demands, x, settled);
    settled.speeds.clear();
    for index in 0..tenants.len() {
        let speed = speed(tenants, pairs, &settled.shares, index);
        settled.speeds.push(speed);
    }
}

/// Gives best-effort jobs x of the GPU together, and high-priority jobs the rest.
fn share_out(tenants: &[Tenant], demands: (f64, f64), x: f64, settled: &mut Settled) {
    let high = if demands.0 > 0.0 {
        SPEED_MAX.min((1.0 - x) / demands.0)
    } else {
        0.0
    };
    let low = if demands.1 > 0.0 { x / demands.1 } else { 0.0 };
    settled.shares.clear();
    settled.shares.extend(tenants.iter().map(|tenant| {
        tenant.demand
            * if tenant.class == Class::HighPriority {
                high
            } else {
                low.min(SPEED_MAX)
            }
    }));
}

fn speed(tenants: &[Tenant], pairs: &Pairs, shares: &[f64], index: usize) -> f64 {
    let own = &tenants[index];
    let others = tenants.iter().zip(shares).enumerate();
    let kept = others
        .filter(|(other, _)| *other != index)
        .map(|(_, (tenant, &share))| pairs.kept(own.workload, tenant.workload, share))
        .product::<f64>();
    (shares[index] / own.demand).min(SPEED_MAX) * kept.max(KEPT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(class: Class, demand: f64, floor: f64, need: f64) -> Tenant {
        Tenant {
            class,
            workload: WorkloadId(0),
            demand,
            floor,
            need,
        }
    }

    fn speeds(tenants: &[Tenant], pairs: &Pairs) -> Vec<f64> {
        let mut settled = Settled::default();
        settle(tenants, pairs, &mut settled);
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
            &speeds(&[tenant(HP, 0.5, 0.0, 0.0)], &Pairs::none()),
            &[1.1],
        );
        close(
            &speeds(&[tenant(BE, 1.0, 0.1, 0.0)], &Pairs::none()),
            &[1.0],
        );
    }

    /// Σ d = 1: both at exactly their demand.
    #[test]
    fn demands_of_the_whole_gpu_leave_no_gain() {
        let two = [tenant(HP, 0.6, 0.0, 1.04), tenant(HP, 0.4, 0.0, 1.04)];
        close(&speeds(&two, &Pairs::none()), &[1.0, 1.0]);
    }

    /// Of 0.5 the job needs 1.04: a share of 0.52. The training gets 0.48 of its 0.8.
    #[test]
    fn a_training_gets_what_the_promise_leaves() {
        let two = [tenant(HP, 0.5, 0.0, 1.04), tenant(BE, 0.8, 0.1, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[1.04, 0.6]);
    }

    /// Beside a neighbour of half of the GPU the job keeps 0.8, so it loses 0.4 x beside x. It needs
    /// 1.04 = min(1.1, (1 − x) ⁄ 0.5) (1 − 0.4 x): at 1.1 that is x = 0.136.
    #[test]
    fn a_noisy_training_gets_less() {
        let two = [tenant(HP, 0.5, 0.0, 1.04), tenant(BE, 0.8, 0.1, 0.0)];
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
        let two = [tenant(HP, 1.0, 0.0, 1.04), tenant(BE, 0.8, 0.2, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[0.8, 0.25]);
    }

    #[test]
    fn two_trainings_share_by_demand() {
        let two = [tenant(BE, 1.0, 0.1, 0.0), tenant(BE, 0.5, 0.1, 0.0)];
        close(&speeds(&two, &Pairs::none()), &[1.0 / 1.5, 1.0 / 1.5]);
    }
}
