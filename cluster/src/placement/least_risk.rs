//! Pillion's placement: the least predicted risk for promises, then the least of the cluster spent,
//! then the least energy for the work.
//! 1. **Risk**: the sum of what the GPU's jobs would fall short by, in thousandths of a speed.
//!    High-priority jobs: of the speeds that they need ([`Sharer::need`]) if best-effort jobs had
//!    only their floors, the worst that a gate can be driven to, so a place without risk stays so
//!    whatever best-effort jobs do. Best-effort jobs: of [`PROGRESS`], with what high-priority jobs
//!    leave.
//! 2. **Spent**: by how much less of the GPU is useful to typical jobs. A free GPU is useful as a
//!    whole; the free part of a used one counts for the share of typical jobs that fit into it (the
//!    fragmentation of FGD, ATC'23, for one GPU). So a job goes where what it leaves is useful, or
//!    where nothing useful was; a free GPU comes last.
//! 3. **Energy**: the GPU's additional power for each unit of speed that all jobs together gain.
//!
//! Initial knowledge of pairs was measured elsewhere, so a neighbour is expected to take [`DOUBT`]
//! more than is known for each GPU's worth that it uses, until the pair has been measured here
//! ([`LeastRisk::learn`]). Each of the three can be switched off, for the simulator's ablation.

use std::collections::HashSet;

use crate::energy::Power;
use crate::interference::{KEPT_MIN, Pairs, SPEED_STEP, Sharer};
use crate::inventory::WHOLE_MILLI;
use crate::job::{Class, JobSpec, WorkloadId};
use crate::placement::fgd::Usual;
use crate::placement::{Measured, Rule, Score};
use crate::view::{GpuState, NodeView};

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

/// Least part of its recorded speed for a best-effort job's place. Of 0.3, 0.5, 0.7 and 0.9, chosen
/// on ten days of seed 1 (docs/cluster.md): more lets trainings end sooner, on more GPUs.
pub const PROGRESS: f64 = 0.5;

/// Part of a job's speed that a neighbour on all of a GPU may take beyond what is known of the
/// pair, until the pair is measured here. Of 0, 0.05, 0.08, 0.1 and 0.2, chosen on the same ten
/// days. Without learning it does not suffice: 5.82 % of promises were late on seed 2.
pub const DOUBT: f64 = 0.1;

/// Least speed alone of a job from which something is learnt.
const SPEED_SEEN_MIN: f64 = 0.02;

/// Least part that a job keeps beside known neighbours for another to be learnt.
const KNOWN_MIN: f64 = 0.2;

/// Least share of a neighbour that is learnt: a smaller one takes too little to be seen.
const SHARE_MIN: f64 = 0.05;

const GAINED_MIN: f64 = 1e-3;

/// The energy term where nothing is gained; gangs add up to 2¹⁰ of them.
const ENERGY_MAX: i64 = 1 << 40;

/// The rule.
#[derive(Clone, Debug)]
pub struct LeastRisk {
    pairs: Pairs,
    /// Pairs that were measured here, by the job's workload and then by the other's.
    measured: HashSet<(WorkloadId, WorkloadId)>,
    power: Vec<Power>,
    terms: Terms,
    /// The useful part of a used GPU, by its free part from 0 to 1000.
    useful: Vec<u32>,
}

impl LeastRisk {
    /// With the known pairs, each model's power, and the typical requests.
    #[must_use]
    pub fn new(pairs: Pairs, power: Vec<Power>, usual: &[Usual], terms: Terms) -> Self {
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
            measured: HashSet::new(),
            power,
            terms,
            useful: useful.collect(),
        }
    }

    fn of_gpu(&self, node: &NodeView<'_>, gpu: &GpuState, job: &JobSpec, milli: u32) -> Score {
        let before: Vec<Sharer> = gpu.residents.iter().map(Sharer::of_resident).collect();
        let mut after = before.clone();
        after.push(Sharer::of_job(job));
        let risk = if self.terms.risk {
            self.risk(&after) + self.slow(&after)
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

    fn risk(&self, sharers: &[Sharer]) -> i64 {
        let floors: f64 = sharers.iter().map(|s| s.floor).sum();
        let high = sharers.iter().filter(|s| s.class == Class::HighPriority);
        let demand: f64 = high.map(|s| s.demand).sum();
        let gain = (1.0 - floors).max(0.0) / demand.max(1e-9);
        let gain = gain.min(self.pairs.speed_max());
        let share = |sharer: &Sharer| match sharer.class {
            Class::HighPriority => gain * sharer.demand,
            Class::BestEffort => sharer.floor,
        };
        let shares: Vec<f64> = sharers.iter().map(share).collect();
        let promised = sharers.iter().enumerate().filter(|(_, s)| s.need > 0.0);
        let missed = promised.map(|(index, sharer)| {
            let missed = sharer.need - gain * self.kept(sharers, index, &shares);
            if missed <= SPEED_STEP {
                0
            } else {
                (1000.0 * missed).ceil() as i64
            }
        });
        missed.sum()
    }

    fn kept(&self, sharers: &[Sharer], index: usize, shares: &[f64]) -> f64 {
        let own = sharers[index].workload;
        let others = sharers.iter().zip(shares).enumerate();
        let kept = others
            .filter(|(other, _)| *other != index)
            .map(|(_, (other, &share))| {
                let known = self.pairs.kept(own, other.workload, share);
                let is_measured = self.measured.contains(&(own, other.workload));
                let doubt = if is_measured { 0.0 } else { DOUBT };
                (known - doubt * share).max(0.0)
            });
        kept.product()
    }

    /// Learns from the jobs of one GPU: where only one of a job's neighbours is unmeasured beside
    /// it, the rest of its slowdown is that neighbour's. Returns whether a known pair changed.
    fn learn(&mut self, measured: Measured<'_>) -> bool {
        let Measured {
            sharers,
            shares,
            speeds,
        } = measured;
        let mut changed = false;
        for (index, own) in sharers.iter().enumerate() {
            let alone = (shares[index] / own.demand).min(self.pairs.speed_max());
            // Where a job hardly runs, its loss cannot be attributed.
            if alone < SPEED_SEEN_MIN || speeds[index] <= 1.01 * KEPT_MIN * alone {
                continue;
            }
            let (mut known, mut unknown) = (1.0, Vec::new());
            for (other, sharer) in sharers.iter().enumerate().filter(|(o, _)| *o != index) {
                let pair = (own.workload, sharer.workload);
                if self.measured.contains(&pair) {
                    known *= self.pairs.kept(pair.0, pair.1, shares[other]);
                } else {
                    unknown.push((pair, shares[other]));
                }
            }
            let &[(pair, share)] = unknown.as_slice() else {
                continue;
            };
            if share >= SHARE_MIN && known >= KNOWN_MIN {
                let kept = speeds[index] / alone / known;
                self.pairs
                    .set(pair.0, pair.1, 1.0 - (1.0 - kept) / (2.0 * share));
                self.measured.insert(pair);
                changed = true;
            }
        }
        changed
    }

    fn slow(&self, sharers: &[Sharer]) -> i64 {
        let shares = needed_shares(sharers);
        let low = sharers
            .iter()
            .enumerate()
            .filter(|(_, s)| s.class == Class::BestEffort);
        let missed = low.map(|(index, _)| PROGRESS - self.speed(sharers, index, &shares));
        let missed = missed.filter(|missed| *missed > SPEED_STEP);
        missed.map(|missed| (1000.0 * missed).ceil() as i64).sum()
    }

    fn speed(&self, sharers: &[Sharer], index: usize, shares: &[f64]) -> f64 {
        shares[index] / sharers[index].demand * self.kept(sharers, index, shares)
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

    /// In mW for each unit of speed; the greatest number where nothing is gained.
    fn energy(&self, node: &NodeView<'_>, before: &[Sharer], after: &[Sharer]) -> i64 {
        let power = self.power.get(usize::from(node.spec.model.0));
        power.map_or(0, |&power| self.energy_of(power, before, after))
    }

    fn energy_of(&self, power: Power, before: &[Sharer], after: &[Sharer]) -> i64 {
        let (work_before, busy_before) = self.work(before);
        let (work_after, busy_after) = self.work(after);
        let mut more = power.at(busy_after) - power.at(busy_before);
        if before.is_empty() {
            more += power.idle_w;
        }
        // What the job adds, less what it takes from its neighbours.
        let gained = work_after - work_before;
        if gained < GAINED_MIN {
            return ENERGY_MAX;
        }
        ((1000.0 * more.max(0.0) / gained) as i64).min(ENERGY_MAX)
    }

    fn work(&self, sharers: &[Sharer]) -> (f64, f64) {
        let shares = needed_shares(sharers);
        let speeds = (0..sharers.len()).map(|index| self.speed(sharers, index, &shares));
        (speeds.sum(), shares.iter().sum())
    }
}

/// Shares at which high-priority jobs run as fast as they need, or nearly; others have the rest.
fn needed_shares(sharers: &[Sharer]) -> Vec<f64> {
    let of = |class| sharers.iter().filter(move |s: &&Sharer| s.class == class);
    let needed: f64 = of(Class::HighPriority)
        .map(|s| s.demand * s.need.max(1.0))
        .sum();
    let high = needed.min(1.0);
    let wanted: f64 = of(Class::BestEffort).map(|s| s.demand).sum();
    let low = (1.0 - high).min(wanted);
    let share = |sharer: &Sharer| match sharer.class {
        Class::HighPriority => sharer.demand * sharer.need.max(1.0) * high / needed.max(1e-9),
        Class::BestEffort => low * sharer.demand / wanted.max(1e-9),
    };
    sharers.iter().map(share).collect()
}

impl Rule for LeastRisk {
    fn handle_measured(&mut self, measured: Measured<'_>) -> bool {
        self.learn(measured)
    }

    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)> {
        if job.gpus == 0 || !node.suits(job) {
            return super::fits::tightest(node, job, milli).map(|slots| ([0; 3], slots));
        }
        let fitting = node.gpus.iter().enumerate();
        let fitting = fitting.filter(|(_, gpu)| gpu.takes(job, milli));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interference::{Settled, settle};

    fn rule(pairs: Pairs) -> LeastRisk {
        let usual = [600, 300].map(|gpu_milli| Usual {
            cpu_milli: 0,
            gpus: 1,
            gpu_milli,
            models: crate::job::Models::ANY,
            share: 0.5,
        });
        let power = vec![Power {
            idle_w: 50.0,
            tdp_w: 250.0,
        }];
        LeastRisk::new(pairs, power, &usual, Terms::ALL)
    }

    fn sharer(class: Class, workload: u16, demand: f64, need: f64) -> Sharer {
        Sharer {
            class,
            workload: WorkloadId(workload),
            demand,
            floor: 0.0,
            need,
            cap: f64::INFINITY,
        }
    }

    const HP: Class = Class::HighPriority;
    const BE: Class = Class::BestEffort;

    fn learn(rule: &mut LeastRisk, truth: &Pairs, sharers: &[Sharer]) -> bool {
        let mut settled = Settled::default();
        settle(sharers, truth, &mut settled);
        rule.learn(Measured {
            sharers,
            shares: &settled.shares,
            speeds: &settled.speeds,
        })
    }

    /// Beside 0 each job keeps 0.7, beside 1 0.9, beside 2 all. A pair is learnt from two jobs; the
    /// third workload's from three, when the other two pairs of its neighbour are known.
    #[test]
    fn a_pair_is_learnt_where_it_is_the_only_new_one() {
        let truth = Pairs::new(3, |_, beside| [0.7, 0.9, 1.0][beside]);
        let mut rule = rule(Pairs::new(3, |_, _| 1.0));
        let three = [
            sharer(HP, 0, 0.4, 0.0),
            sharer(BE, 1, 0.3, 0.0),
            sharer(BE, 2, 0.2, 0.0),
        ];
        assert!(!learn(&mut rule, &truth, &three));
        assert!(learn(&mut rule, &truth, &three[..2]));
        assert!(learn(&mut rule, &truth, &three));
        let kept = |job, beside| rule.pairs.kept(WorkloadId(job), WorkloadId(beside), 0.5);
        for (job, beside, right) in [(0, 1, 0.9), (1, 0, 0.7), (0, 2, 1.0), (1, 2, 1.0)] {
            assert!((kept(job, beside) - right).abs() < 1e-6, "{job} {beside}");
        }
    }

    #[test]
    fn nothing_is_learnt_from_a_job_that_hardly_runs() {
        let truth = Pairs::new(2, |_, _| 0.0);
        let mut rule = rule(Pairs::new(2, |_, _| 1.0));
        let two = [sharer(BE, 0, 1.0, 0.0), sharer(BE, 1, 1.0, 0.0)];
        assert!(!learn(&mut rule, &truth, &two));
    }

    /// Of 0.6 the job needs 1.04: 0.624. The neighbour may hold it to nothing, and keeps all of it
    /// beside a harmless pair; else [`DOUBT`] of the share of high-priority jobs counts.
    #[test]
    fn doubt_ends_when_a_pair_is_measured() {
        let two = [sharer(HP, 0, 0.5, 1.04), sharer(HP, 1, 0.45, 0.0)];
        let harmless = Pairs::new(2, |_, _| 1.0);
        let mut rule = rule(harmless.clone());
        let doubted = rule.risk(&two);
        // 1 / 0.95 = 1.0526, less 0.1 of the neighbour's 0.474.
        assert_eq!(
            doubted,
            ((1.04 - (1.0 - 0.1 * 0.45 / 0.95) / 0.95) * 1000.0f64).ceil() as i64
        );
        assert!(learn(&mut rule, &harmless, &two));
        assert_eq!(rule.risk(&two), 0);
    }

    /// Half of the jobs hold 0.6, half 0.3. Of use is all of a free GPU or of 0.7, half of 0.5,
    /// none of 0.2.
    #[test]
    fn what_is_spent_is_what_usual_jobs_can_use_no_more() {
        let rule = rule(Pairs::none());
        let found: Vec<u32> = [1000, 700, 500, 200].map(|free| rule.useful[free]).to_vec();
        assert_eq!(found, [1000, 700, 250, 0]);
    }

    /// On a free GPU a training of half of it adds 50 W and 0.5 · 200 W, and speed 1. One that uses
    /// all of the GPU already leaves no power to add, and the two together are faster.
    #[test]
    fn energy_is_power_for_speed() {
        let rule = rule(Pairs::none());
        let one = [sharer(BE, 0, 1.0, 0.0), sharer(BE, 0, 0.5, 0.0)];
        let power = rule.power[0];
        assert_eq!(rule.energy_of(power, &[], &one[1..]), 150_000);
        assert_eq!(rule.energy_of(power, &one[..1], &one), 0);
    }
}
