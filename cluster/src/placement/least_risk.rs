//! Pillion's placement: the least predicted risk for promises, then the least of the cluster spent,
//! then the least energy for the work.
//!
//! 1. **Risk**: by how much the high-priority jobs of the GPU would miss the speeds that they need
//!    ([`Tenant::need`]) if its best-effort jobs ran at no more than their floors, summed, in
//!    thousandths. That is the worst that a gate can be driven to, so a place without risk stays
//!    without risk whatever the best-effort jobs do.
//! 2. **Spent**: how much less of the GPU is of use to the jobs that usually come. A free GPU is of
//!    use as a whole; of a used one, what is free counts for the share of usual requests that fit
//!    into it (the fragmentation of FGD, ATC'23, for one GPU). So a job goes where what it leaves is
//!    useful, or where nothing useful was; and a free GPU is begun last.
//! 3. **Energy**: how much more power the GPU takes, for each unit of speed that all jobs together
//!    gain.
//!
//! Each of the three can be switched off, which the simulator's ablation does.

use crate::interference::{Pairs, SPEED_MAX, Tenant};
use crate::inventory::WHOLE_MILLI;
use crate::job::{Class, JobSpec};
use crate::placement::fgd::Usual;
use crate::placement::{Rule, Score};
use crate::view::{GpuState, NodeView};

/// Power of one model of GPU, as far as the policy knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watts {
    /// With nothing to do.
    pub idle: f64,
    /// With all of it in use.
    pub full: f64,
}

/// Which of the three count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Risk.
    pub risk: bool,
    /// Spent.
    pub spent: bool,
    /// Energy.
    pub energy: bool,
}

impl Terms {
    /// All three.
    pub const ALL: Self = Self {
        risk: true,
        spent: true,
        energy: true,
    };
}

/// The rule.
#[derive(Clone, Debug)]
pub struct LeastRisk {
    pairs: Pairs,
    watts: Vec<Watts>,
    terms: Terms,
    /// By what is free of a used GPU, from 0 to 1000: what of it is of use.
    useful: Vec<u32>,
}

impl LeastRisk {
    /// With what is known of pairs, of each model's power, and of what usually comes.
    #[must_use]
    pub fn new(pairs: Pairs, watts: Vec<Watts>, usual: &[Usual], terms: Terms) -> Self {
        let gpus = usual.iter().filter(|usual| usual.gpus > 0);
        let asked: Vec<(u32, f64)> = gpus.map(|u| (u.gpu_milli, u.share)).collect();
        let all: f64 = asked.iter().map(|(_, share)| share).sum();
        let useful = (0..=WHOLE_MILLI).map(|free| {
            let fitting = asked.iter().filter(|(milli, _)| *milli <= free);
            let share = fitting.map(|(_, share)| share).sum::<f64>() / all.max(1e-9);
            (f64::from(free) * share) as u32
        });
        Self {
            pairs,
            watts,
            terms,
            useful: useful.collect(),
        }
    }

    /// The score of one GPU.
    fn of_gpu(&self, node: &NodeView<'_>, gpu: &GpuState, job: &JobSpec, milli: u32) -> Score {
        let before: Vec<Tenant> = gpu.residents.iter().map(Tenant::of_resident).collect();
        let mut after = before.clone();
        after.push(Tenant::of_job(job, milli));
        let risk = if self.terms.risk {
            self.risk(&after)
        } else {
            0
        };
        let spent = if self.terms.spent {
            self.spent(gpu, milli)
        } else {
            0
        };
        let energy = if self.terms.energy {
            self.energy(node, &before, &after)
        } else {
            0
        };
        [-risk, -spent, -energy]
    }

    fn risk(&self, tenants: &[Tenant]) -> i64 {
        let floors: f64 = tenants.iter().map(|t| t.floor).sum();
        let high = tenants.iter().filter(|t| t.class == Class::HighPriority);
        let demand: f64 = high.map(|t| t.demand).sum();
        let gain = SPEED_MAX.min((1.0 - floors).max(0.0) / demand.max(1e-9));
        let share = |tenant: &Tenant| match tenant.class {
            Class::HighPriority => gain * tenant.demand,
            Class::BestEffort => tenant.floor,
        };
        let promised = tenants.iter().enumerate().filter(|(_, t)| t.need > 0.0);
        let missed = promised.map(|(index, tenant)| {
            let others = tenants
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let kept: f64 = others
                .map(|(_, other)| {
                    self.pairs
                        .kept(tenant.workload, other.workload, share(other))
                })
                .product();
            // Below a thousandth is rounding, of what jobs hold as of the sums here.
            let missed = 1000.0 * (tenant.need - gain * kept);
            if missed < 1.0 {
                0
            } else {
                missed.ceil() as i64
            }
        });
        missed.sum()
    }

    /// In thousandths of a GPU.
    fn spent(&self, gpu: &GpuState, milli: u32) -> i64 {
        let useful = |free: u32| i64::from(self.useful[free.min(WHOLE_MILLI) as usize]);
        let before = if gpu.is_free() {
            i64::from(WHOLE_MILLI)
        } else {
            useful(gpu.free_milli)
        };
        before - useful(gpu.free_milli.saturating_sub(milli))
    }

    /// In mW for each unit of speed.
    fn energy(&self, node: &NodeView<'_>, before: &[Tenant], after: &[Tenant]) -> i64 {
        let model = usize::from(node.spec.model.0);
        let Some(watts) = self.watts.get(model) else {
            return 0;
        };
        let (work_before, busy_before) = self.work(before);
        let (work_after, busy_after) = self.work(after);
        let more = (watts.full - watts.idle) * (busy_after - busy_before).max(0.0);
        // What the job adds, less what it takes from its neighbours.
        let gained = (work_after - work_before).max(1e-3);
        (1000.0 * more / gained) as i64
    }

    /// Speeds of all jobs, summed, and the part of the GPU that is in use: high-priority jobs at the
    /// speeds that they need, best-effort jobs with the rest.
    fn work(&self, tenants: &[Tenant]) -> (f64, f64) {
        let of = |class| tenants.iter().filter(move |t: &&Tenant| t.class == class);
        let needed = of(Class::HighPriority).map(|t| t.demand * t.need.max(1.0));
        let high = needed.sum::<f64>().min(1.0);
        let wanted: f64 = of(Class::BestEffort).map(|t| t.demand).sum();
        let low = (1.0 - high).min(wanted);
        let share = |tenant: &Tenant| match tenant.class {
            Class::HighPriority => tenant.demand * tenant.need.max(1.0),
            Class::BestEffort => low * tenant.demand / wanted.max(1e-9),
        };
        let speeds = tenants.iter().enumerate().map(|(index, tenant)| {
            let others = tenants
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index);
            let kept: f64 = others
                .map(|(_, other)| {
                    self.pairs
                        .kept(tenant.workload, other.workload, share(other))
                })
                .product();
            share(tenant) / tenant.demand * kept
        });
        (speeds.sum(), high + low)
    }
}

impl Rule for LeastRisk {
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        if job.gpus == 0 || !node.suits(job) {
            return super::fits::tightest(node, job, milli).map(|slots| ([0; 3], slots));
        }
        let fitting = node.gpus.iter().enumerate();
        let fitting = fitting.filter(|(_, gpu)| gpu.fits(milli, job.memory_bytes));
        let mut scored: Vec<(Score, usize)> = Vec::with_capacity(node.gpus.len());
        let mut free: Option<Score> = None;
        for (slot, gpu) in fitting {
            // Free GPUs of one node are alike.
            let score = match free {
                Some(score) if gpu.is_free() => score,
                _ => self.of_gpu(node, gpu, job, milli),
            };
            if gpu.is_free() {
                free = Some(score);
            }
            scored.push((score, slot));
        }
        let count = job.gpus as usize;
        if scored.len() < count {
            return None;
        }
        scored.sort_by_key(|&(score, slot)| (std::cmp::Reverse(score), slot));
        let chosen = &scored[..count];
        let slots = chosen.iter().fold(0, |set, (_, slot)| set | 1u32 << slot);
        let sum = chosen.iter().fold([0; 3], |sum: Score, (score, _)| {
            [sum[0] + score[0], sum[1] + score[1], sum[2] + score[2]]
        });
        Some((sum, slots))
    }
}
