//! `MuxFlow`'s comparison with related work (2024, sections 7.1, 7.3 and 7.4, Figures 8 and 10):
//! trainings of a virtual cluster of Philly beside online services, under each [`Mechanism`]. Every
//! GPU of the cluster has one service at one rate for ever, drawn by the seed. A training arrives
//! when Philly's job was submitted, waits its turn (first come, first served, no one passes), gets
//! a GPU that has no other training, the lowest in number, and stays there to its end. It runs at
//! the constant speed that [`MuxFlowTable`] has for its network beside that service.
//!
//! # What is chosen here
//! - Every training has one GPU, whatever Philly's job had: the paper counts as many trainings as
//!   the virtual cluster has jobs. Its time alone is what the job took.
//! - Its network is drawn by the seed, each of the four as often.
//! - There are [`GPUS_PER_TRAINING`] GPUs for each training that runs on the mean alone.
//! - Services and rates are drawn too, each as often; the paper's are recorded.
//!
//! *Latencies* are ÷ alone ("Online-only"), means over the time in which a service has a training
//! beside it. *Completion* is from a training's submission to its end. The *oversold GPU* is the
//! paper's equation 3, Σ time alone ÷ Σ time placed. Times are ns since the first submission.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use cluster::inventory::WHOLE_MILLI;
use cluster::placement::Holding;
use cluster::placement::best::Best;
use cluster::placement::one_each::OneEach;
use cluster::queue::{Outcome as Answer, Queue};
use cluster::{Class, Decision, Inventory, JobId, JobSpec, Model, Placement, View};
use devices::Device;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::muxflow_table::{
    DEVICE, LOADS_PCT, Mechanism, MuxFlowTable, Ratios, SERVICES, TRAININGS,
};
use crate::traces::philly;

#[cfg(test)]
mod tests;

/// The virtual clusters of the comparison. The paper's four have 1 410 to 7 287 jobs and no names;
/// these about 1 460 to 7 388 in all of Philly, half as many in a file of every second row.
pub const CLUSTERS: [&str; 4] = ["b436b2", "103959", "ee9e8c", "0e4a51"];

/// GPUs for each training that would run on the mean if all began at once and ran as alone. A
/// training has 0.3 to 0.95 of its speed alone beside a service, so that trainings wait when many
/// arrive at once, and no mechanism is short of GPUs for good.
pub const GPUS_PER_TRAINING: f64 = 3.0;

/// A training of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Its arrival.
    pub at_ns: u64,
    /// How long it takes alone.
    pub length_ns: u64,
    /// Its place in [`TRAININGS`].
    pub kind: usize,
}

/// A service that a GPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Online {
    /// Its place in [`SERVICES`].
    pub service: usize,
    /// The place of its rate in [`LOADS_PCT`].
    pub load: usize,
}

/// Input of the comparison: trainings in the order of arrival, and the service of each GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trainings.
    pub trainings: Vec<Training>,
    /// By GPU.
    pub services: Vec<Online>,
}

impl Trace {
    /// The jobs of a virtual cluster, networks and services drawn by the seed. `gpus_per_training`
    /// is usually [`GPUS_PER_TRAINING`]; `loads` selects from [`LOADS_PCT`], all by `0..3`.
    ///
    /// # Panics
    /// If there is none of `loads`.
    #[must_use]
    pub fn new(
        jobs: &[philly::Job],
        cluster: &str,
        gpus_per_training: f64,
        loads: Range<usize>,
        seed: u64,
    ) -> Self {
        assert!(
            !loads.is_empty() && loads.end <= LOADS_PCT.len(),
            "no such loads: {loads:?}"
        );
        let of: Vec<&philly::Job> = jobs.iter().filter(|job| job.cluster == cluster).collect();
        let first_s = of.first().map_or(0.0, |job| job.submit_s);
        let last_s = of.last().map_or(0.0, |job| job.submit_s);
        let alone_s: f64 = of.iter().map(|job| job.duration_s).sum();
        let wanted = gpus_per_training * alone_s / (last_s - first_s).max(1.0);
        let mut random = Pcg64::seed_from_u64(seed);
        let trainings = of.iter().map(|job| Training {
            at_ns: ((job.submit_s - first_s) * 1e9) as u64,
            length_ns: (job.duration_s * 1e9) as u64,
            kind: random.random_range(0..TRAININGS.len()),
        });
        let trainings = trainings.collect();
        let services = (0..(wanted.ceil() as usize).max(1)).map(|_| Online {
            service: random.random_range(0..SERVICES.len()),
            load: random.random_range(loads.clone()),
        });
        Self {
            services: services.collect(),
            trainings,
        }
    }

    /// The results under a mechanism.
    ///
    /// # Panics
    /// If a training or service is not in the table's lists.
    #[must_use]
    pub fn play(&self, table: &MuxFlowTable, by: Mechanism) -> Outcome {
        let mut world = World::new(self);
        world.run(|gpu, training| self.ratios(table, by, gpu, training).speed);
        let mut sums = Sums::default();
        for (training, placed) in self.trainings.iter().zip(&world.placed) {
            let ratios = self.ratios(table, by, placed.gpu, training);
            sums.add(training, placed, &ratios);
        }
        sums.outcome()
    }

    fn ratios(
        &self,
        table: &MuxFlowTable,
        by: Mechanism,
        gpu: usize,
        training: &Training,
    ) -> Ratios {
        let Online { service, load } = self.services[gpu];
        let ratios = table.ratios(service, load, training.kind, by);
        ratios.expect("places are drawn from the table's lists")
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Placed {
    gpu: usize,
    start_ns: u64,
    end_ns: u64,
}

struct World<'a> {
    trace: &'a Trace,
    view: View,
    policy: Best<OneEach>,
    queue: Queue,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    placed: Vec<Placed>,
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace) -> Self {
        let bytes = Device::by_name(DEVICE).map_or(0, |device| device.memory_bytes);
        let gpus = u32::try_from(trace.services.len()).expect("a trace has fewer than 2^32 GPUs");
        let inventory = Inventory::uniform(Model::new(DEVICE, bytes), gpus, 1);
        let mut view = View::new(inventory.expect("a node of one GPU can be"));
        let mut policy = Best::new(OneEach, Holding::ELASTIC, &view);
        for number in 0..u64::from(gpus) {
            let first = trace.trainings.len() as u64;
            let job = JobSpec {
                memory_bytes: bytes / 10 * 6,
                ..JobSpec::new(first + number, Class::HighPriority, 1, WHOLE_MILLI / 2)
            };
            match policy.place(&view, &job, 0, None) {
                Decision::Place(parts) => view.place(&job, &parts),
                other => unreachable!("a GPU is free for each service, not {other:?}"),
            }
        }
        Self {
            trace,
            view,
            policy,
            queue: Queue::new(0),
            ends: BinaryHeap::new(),
            placed: vec![Placed::default(); trace.trainings.len()],
        }
    }

    /// Runs until the last training has ended. `speed` is that of a training on a GPU, ÷ alone.
    fn run(&mut self, speed: impl Fn(usize, &Training) -> f64) {
        let trainings = &self.trace.trainings;
        let mut next = 0;
        loop {
            let arrival = trainings.get(next).map(|training| training.at_ns);
            let end = self.ends.peek().map(|&Reverse((at, _))| at);
            let now_ns = match (arrival, end) {
                (None, None) => break,
                (Some(at), end) if end.is_none_or(|end| at < end) => {
                    self.queue.push(self.job(next), at);
                    next += 1;
                    at
                }
                _ => self.handle_end(),
            };
            let answers = self.queue.poll(&mut self.view, &mut self.policy, now_ns);
            for answer in answers {
                let Answer::Placed(JobId(number), parts) = answer else {
                    unreachable!("a training fits on a GPU with a service: {answer:?}")
                };
                let (number, node) = (number as usize, parts[0].node);
                let gpu = self.view.inventory().first_gpu(node);
                let training = &trainings[number];
                let takes_ns = (training.length_ns as f64 / speed(gpu, training)).ceil();
                let end_ns = now_ns.saturating_add(takes_ns as u64);
                self.placed[number] = Placed {
                    gpu,
                    start_ns: now_ns,
                    end_ns,
                };
                self.ends.push(Reverse((end_ns, number)));
            }
        }
        assert!(self.queue.is_empty(), "no training waits for an idle GPU");
    }

    fn handle_end(&mut self) -> u64 {
        let ended = self.ends.pop();
        let Reverse((at, number)) = ended.expect("an event that is no arrival is an end");
        self.view.release(JobId(number as u64));
        self.queue.handle_release();
        at
    }

    /// A training's demands: 40 % of the memory, and the part that the service leaves.
    fn job(&self, number: usize) -> JobSpec {
        let bytes = self.view.inventory().models()[0].memory_bytes;
        JobSpec {
            memory_bytes: bytes / 10 * 4,
            floor_milli: WHOLE_MILLI / 2,
            ..JobSpec::new(number as u64, Class::BestEffort, 1, WHOLE_MILLI)
        }
    }
}

/// The result of a trace under a mechanism.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean latency ÷ alone. If `behind` is not 0, queues would grow without end and there is no
    /// such number; then it is that of the table's runs, a lower bound.
    pub latency_mean: f64,
    /// The same of the 99th percentile.
    pub latency_p99: f64,
    /// Share of the time in which the service cannot keep up with its requests, 0 to 1.
    pub behind: f64,
    /// `latency_mean` of the rest of the time; 0 where there is none.
    pub latency_mean_in_time: f64,
    /// Greatest mean latency ÷ alone of a service beside a training.
    pub latency_mean_most: f64,
    /// Mean time from submission to end, s.
    pub completion_s: f64,
    /// Mean time from submission to start, s.
    pub waiting_s: f64,
    /// Share of trainings that did not start at once, 0 to 1.
    pub waited: f64,
    /// Σ time alone ÷ Σ time placed.
    pub oversold: f64,
}

impl Outcome {
    /// Number by number the mean, of all seeds for example; of the greatest latency the greatest.
    #[must_use]
    pub fn mean(all: &[Self]) -> Self {
        let count = all.len().max(1) as f64;
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / count;
        let most = all.iter().map(|outcome| outcome.latency_mean_most);
        Self {
            latency_mean: mean(|outcome| outcome.latency_mean),
            latency_p99: mean(|outcome| outcome.latency_p99),
            behind: mean(|outcome| outcome.behind),
            latency_mean_in_time: mean(|outcome| outcome.latency_mean_in_time),
            latency_mean_most: most.fold(0.0, f64::max),
            completion_s: mean(|outcome| outcome.completion_s),
            waiting_s: mean(|outcome| outcome.waiting_s),
            waited: mean(|outcome| outcome.waited),
            oversold: mean(|outcome| outcome.oversold),
        }
    }
}

/// All mechanisms on one virtual cluster, in the order of [`Mechanism::ALL`]: means over the seeds.
#[must_use]
pub fn compare(
    jobs: &[philly::Job],
    cluster: &str,
    gpus_per_training: f64,
    loads: Range<usize>,
    seeds: Range<u64>,
    table: &MuxFlowTable,
) -> [Outcome; Mechanism::ALL.len()] {
    let traces: Vec<Trace> = seeds
        .map(|seed| Trace::new(jobs, cluster, gpus_per_training, loads.clone(), seed))
        .collect();
    Mechanism::ALL.map(|by| {
        let outcomes: Vec<Outcome> = traces.iter().map(|trace| trace.play(table, by)).collect();
        Outcome::mean(&outcomes)
    })
}

#[derive(Debug, Default)]
struct Sums {
    trainings: f64,
    placed_s: f64,
    behind_s: f64,
    latency_mean_s: f64,
    latency_mean_in_time_s: f64,
    latency_p99_s: f64,
    latency_mean_most: f64,
    alone_s: f64,
    completion_s: f64,
    waiting_s: f64,
    waited: f64,
}

impl Sums {
    fn add(&mut self, training: &Training, placed: &Placed, ratios: &Ratios) {
        let seconds = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64 / 1e9;
        let beside_s = seconds(placed.start_ns, placed.end_ns);
        let waiting_s = seconds(training.at_ns, placed.start_ns);
        self.trainings += 1.0;
        self.placed_s += beside_s;
        self.latency_mean_s += beside_s * ratios.latency_mean;
        self.latency_p99_s += beside_s * ratios.latency_p99;
        if ratios.keeps_up {
            self.latency_mean_in_time_s += beside_s * ratios.latency_mean;
        } else {
            self.behind_s += beside_s;
        }
        self.latency_mean_most = self.latency_mean_most.max(ratios.latency_mean);
        self.alone_s += seconds(0, training.length_ns);
        self.completion_s += seconds(training.at_ns, placed.end_ns);
        self.waiting_s += waiting_s;
        self.waited += f64::from(u8::from(waiting_s > 0.0));
    }

    fn outcome(&self) -> Outcome {
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let in_time_s = self.placed_s - self.behind_s;
        Outcome {
            latency_mean: ratio(self.latency_mean_s, self.placed_s),
            latency_p99: ratio(self.latency_p99_s, self.placed_s),
            behind: ratio(self.behind_s, self.placed_s),
            latency_mean_in_time: ratio(self.latency_mean_in_time_s, in_time_s),
            latency_mean_most: self.latency_mean_most,
            completion_s: ratio(self.completion_s, self.trainings),
            waiting_s: ratio(self.waiting_s, self.trainings),
            waited: ratio(self.waited, self.trainings),
            oversold: ratio(self.alone_s, self.placed_s),
        }
    }
}
