//! A cluster, its jobs and the knowledge of both: the input of a policy.

use cluster::interference::Pairs;
use cluster::placement::fgd::{Usual, usual};
use cluster::placement::registry::{Chosen, Setting};
use cluster::placement::{Holding, Placement};
use cluster::{Class, Inventory, JobSpec, Models, NodeId, View};

use crate::meter::DAY_NS;
use crate::outcome::Outcome;
use crate::sources;
use crate::world::{Arrival, Physics, Watch, play};

/// The input of a run.
#[derive(Clone, Debug)]
pub struct Play {
    /// The cluster.
    pub inventory: Inventory,
    /// Its jobs, in the order of their arrival.
    pub arrivals: Vec<Arrival>,
    /// The GPUs' behaviour.
    pub physics: Physics,
    /// The policies' knowledge of pairs; as in `physics` unless an experiment says otherwise.
    pub known: Pairs,
    usual: Vec<Usual>,
    promised: Vec<Usual>,
    strongest: Models,
}

/// GPUs that the jobs would need at least, and without sharing, by arithmetic alone: means to the
/// horizon, of jobs that start when they arrive and run as long as alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// One GPU for each GPU of each job.
    pub exclusive: f64,
    /// As `exclusive`, with five GPUs of inference for each of training, whatever there is to do
    /// (GPUColo's *Separate*): 6 max(n_inf ⁄ 5, n_tr).
    pub separate: f64,
    /// The use of high-priority jobs or the memory of all jobs, whichever is more, summed over the
    /// models of GPU: no placement can do with less, as long as jobs run at their speed alone.
    /// Leaves out that jobs do not divide, and all use of best-effort jobs.
    pub least: f64,
}

impl Play {
    /// With policies that know how jobs run beside each other.
    #[must_use]
    pub fn new(inventory: Inventory, arrivals: Vec<Arrival>, physics: Physics) -> Self {
        // No policy knows the future: the first day's jobs are taken for typical.
        let first = arrivals.first().map_or(0, |arrival| arrival.at_ns) + DAY_NS;
        let seen = arrivals.iter().take_while(|arrival| arrival.at_ns < first);
        let seen: Vec<&JobSpec> = seen.map(|arrival| &arrival.job).collect();
        let held = seen
            .iter()
            .filter(|job| job.class == Class::HighPriority && job.gpus > 0);
        let held: Vec<JobSpec> = held
            .map(|&job| JobSpec {
                gpu_milli: Holding::PROMISED.of(job),
                ..job.clone()
            })
            .collect();
        let all = usual(seen.iter().copied());
        Self {
            promised: if held.is_empty() {
                all.clone()
            } else {
                usual(&held)
            },
            usual: all,
            strongest: sources::strongest(&inventory),
            known: physics.pairs.clone(),
            inventory,
            arrivals,
            physics,
        }
    }

    /// The policy, made for this cluster.
    #[must_use]
    pub fn policy(&self, chosen: &Chosen, seed: u64) -> Box<dyn Placement> {
        let view = View::new(self.inventory.clone());
        let nodes = u32::try_from(view.len()).expect("an inventory has fewer than 2^32 nodes");
        let order: Vec<NodeId> = (0..nodes).map(NodeId).collect();
        let mut setting = Setting::new(&view, &order, &self.usual, &self.known);
        setting.power = &self.physics.power;
        setting.promised = &self.promised;
        setting.strongest = self.strongest;
        setting.seed = seed;
        chosen.make(&setting)
    }

    /// Plays all jobs under a policy.
    pub fn run(&self, policy: &mut dyn Placement, watch: &mut dyn Watch) -> Outcome {
        let inventory = self.inventory.clone();
        play(inventory, &self.arrivals, &self.physics, policy, watch)
    }

    /// See [`Bounds`].
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let mut changes: Vec<(u64, i64, &JobSpec)> = Vec::with_capacity(2 * self.arrivals.len());
        for arrival in &self.arrivals {
            changes.push((arrival.at_ns, 1, &arrival.job));
            changes.push((
                arrival.at_ns.saturating_add(arrival.length_ns),
                -1,
                &arrival.job,
            ));
        }
        changes.sort_unstable_by_key(|&(at, sign, job)| (at, sign, job.id));
        let mut sums = Sums::new(&self.inventory);
        let mut bounds = Bounds::default();
        let mut since = 0;
        for (at, sign, job) in changes {
            let until = at.min(self.physics.horizon_ns);
            if until > since {
                let seconds = (until - since) as f64 / 1e9;
                sums.add_to(&mut bounds, seconds);
                since = until;
            }
            sums.change(sign, job);
        }
        let all = self.physics.horizon_ns.max(1) as f64 / 1e9;
        bounds.exclusive /= all;
        bounds.separate /= all;
        bounds.least /= all;
        bounds
    }

    /// The same with another S ([`Pairs::speed_max`]), which policies know.
    #[must_use]
    pub fn with_speed_max(mut self, speed_max: f64) -> Self {
        self.physics.pairs = self.physics.pairs.with_speed_max(speed_max);
        self.known = self.known.with_speed_max(speed_max);
        self
    }
}

struct Sums {
    inference: i64,
    training: i64,
    /// For each model: thousandths that high-priority jobs use, and bytes of all jobs.
    models: Vec<(i64, i64)>,
    memory_bytes: Vec<u64>,
}

impl Sums {
    fn new(inventory: &Inventory) -> Self {
        Self {
            inference: 0,
            training: 0,
            models: vec![(0, 0); inventory.models().len()],
            memory_bytes: inventory.models().iter().map(|m| m.memory_bytes).collect(),
        }
    }

    fn change(&mut self, sign: i64, job: &JobSpec) {
        let gpus = sign * i64::from(job.gpus);
        // Counted for its first model: the bound is of experiments whose jobs are bound to one.
        let model = (0..self.models.len() as u16).find(|&m| job.models.has(cluster::ModelId(m)));
        let Some(model) = model else { return };
        let (milli, bytes) = &mut self.models[usize::from(model)];
        match job.class {
            Class::HighPriority => {
                self.inference += gpus;
                *milli += gpus * i64::from(job.gpu_milli);
            }
            Class::BestEffort => self.training += gpus,
        }
        *bytes += gpus * job.memory_bytes.cast_signed();
    }

    fn add_to(&self, bounds: &mut Bounds, seconds: f64) {
        let (inference, training) = (self.inference as f64, self.training as f64);
        bounds.exclusive += seconds * (inference + training);
        bounds.separate += seconds * 6.0 * (inference / 5.0).max(training);
        let models = self.models.iter().zip(&self.memory_bytes);
        let least: f64 = models
            .map(|(&(milli, bytes), &has)| {
                (milli as f64 / 1000.0).max(bytes as f64 / has.max(1) as f64)
            })
            .sum();
        bounds.least += seconds * least;
    }
}
