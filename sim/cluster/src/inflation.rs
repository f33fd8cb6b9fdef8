//! How much of a cluster can be allocated: jobs arrive until they ask for more than there is, and
//! none ever leaves (FGD, USENIX ATC'23, section 6; the "inflation" of its authors' simulator).
//! 1. The jobs of a trace are shuffled; rows of it, drawn again at random, follow until all jobs
//!    together ask for [`Inflation::target`] of the cluster's GPUs. (Of a trace that asks for more,
//!    jobs are removed at random.)
//! 2. The nodes get an order at random, which breaks all ties.
//! 3. A job that fits nowhere is dropped and never tried again, but counts as *arrived*.
//!
//! Arrived and allocated are shares of all GPUs. For each whole per cent of arrived the result has
//! the mean of the allocations after each arrival there.

use cluster::inventory::WHOLE_MILLI;
use cluster::{Decision, Inventory, JobId, JobSpec, NodeId, Placement, View};

use crate::published_random::PublishedRandom;

/// The experiment.
#[derive(Clone, Debug)]
pub struct Inflation {
    /// The cluster, with its nodes in the order of their names.
    pub inventory: Inventory,
    /// The jobs of the trace, in the order of their names.
    pub jobs: Vec<JobSpec>,
    /// How much of the GPUs all jobs together ask for; 1.3 as published.
    pub target: f64,
}

/// The allocation of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// How many jobs arrived.
    pub arrived: usize,
    /// How many of them fit nowhere.
    pub dropped: usize,
    /// Share of the GPUs that was allocated at the end, 0 to 1.
    pub allocated: f64,
    /// By whole per cent of arrived, from 0: mean of allocated, in per cent, if any arrival is
    /// there.
    pub allocated_pct_at: Vec<Option<f64>>,
}

impl Allocation {
    /// The allocation when so many per cent had arrived; of the next bin below or above where no
    /// arrival falls there, as the published tables have it.
    #[must_use]
    pub fn at(&self, pct: usize) -> Option<f64> {
        let bin = |at: usize| self.allocated_pct_at.get(at).copied().flatten();
        bin(pct)
            .or_else(|| bin(pct.checked_sub(1)?))
            .or_else(|| bin(pct + 1))
    }
}

impl Inflation {
    /// Plays it under the policy that `policy` makes of the empty cluster and the order of ties.
    pub fn run(
        &self,
        seed: u32,
        policy: impl FnOnce(&View, Vec<NodeId>, u64) -> Box<dyn Placement>,
    ) -> Allocation {
        let mut random = PublishedRandom::new(seed);
        let arrivals = self.arrivals(&mut random);
        let order = self.order(&mut random);
        let mut view = View::new(self.inventory.clone());
        let mut policy = policy(&view, order, random.bits());
        let mut bins = Bins::new(self.inventory.gpus().max(1));
        let mut dropped = 0;
        for (number, &row) in arrivals.iter().enumerate() {
            let job = JobSpec {
                id: JobId(number as u64),
                ..self.jobs[row].clone()
            };
            let decision = policy.place(&view, &job, number as u64, None);
            let milli = u64::from(job.gpus) * u64::from(job.gpu_milli);
            if let Decision::Place(parts) = decision {
                view.place(&job, &parts);
                bins.add(milli, milli);
            } else {
                dropped += 1;
                bins.add(milli, 0);
            }
        }
        bins.allocation(arrivals.len(), dropped)
    }

    fn arrivals(&self, random: &mut PublishedRandom) -> Vec<usize> {
        // The published runs log one number first.
        random.bits();
        let mut rows: Vec<usize> = (0..self.jobs.len()).collect();
        random.shuffle(&mut rows);
        let all = self.inventory.gpus() as f64 * f64::from(WHOLE_MILLI);
        let target = (self.target * all).round() as u64;
        let milli = |job: &JobSpec| u64::from(job.gpus) * u64::from(job.gpu_milli);
        let mut asked: u64 = self.jobs.iter().map(milli).sum();
        if asked == 0 {
            return rows;
        }
        while asked > target {
            let row = rows.remove(random.below(rows.len() as u32) as usize);
            asked -= milli(&self.jobs[row]);
        }
        // The first draw that would pass the target by one of its GPUs, as published, ends the
        // drawing.
        loop {
            let row = random.below(self.jobs.len() as u32) as usize;
            let job = &self.jobs[row];
            if asked + u64::from(job.gpu_milli) > target {
                return rows;
            }
            asked += milli(job);
            rows.push(row);
        }
    }

    fn order(&self, random: &mut PublishedRandom) -> Vec<NodeId> {
        // The published runs draw ten numbers elsewhere while the scheduler starts.
        for _ in 0..10 {
            random.bits();
        }
        let ranks = random.permutation(self.inventory.nodes().len());
        let mut order = vec![NodeId(0); ranks.len()];
        for (node, rank) in ranks.into_iter().enumerate() {
            order[rank] = NodeId(node as u32);
        }
        order
    }
}

struct Bins {
    all: f64,
    arrived_milli: u64,
    allocated_milli: u64,
    sums: Vec<(f64, u32)>,
}

impl Bins {
    fn new(gpus: usize) -> Self {
        Self {
            all: gpus as f64 * f64::from(WHOLE_MILLI),
            arrived_milli: 0,
            allocated_milli: 0,
            sums: Vec::new(),
        }
    }

    fn add(&mut self, arrived_milli: u64, allocated_milli: u64) {
        self.arrived_milli += arrived_milli;
        self.allocated_milli += allocated_milli;
        let bin = (100.0 * self.arrived_milli as f64 / self.all).round() as usize;
        if self.sums.len() <= bin {
            self.sums.resize(bin + 1, (0.0, 0));
        }
        // The published tables have two decimals.
        let pct = (10_000.0 * self.allocated_milli as f64 / self.all).round() / 100.0;
        self.sums[bin].0 += pct;
        self.sums[bin].1 += 1;
    }

    fn allocation(self, arrived: usize, dropped: usize) -> Allocation {
        let mean = |&(sum, count): &(f64, u32)| (count > 0).then(|| sum / f64::from(count));
        Allocation {
            arrived,
            dropped,
            allocated: self.allocated_milli as f64 / self.all,
            allocated_pct_at: self.sums.iter().map(mean).collect(),
        }
    }
}
