//! A cluster's weeks of trainings and inference, made of recorded parts: no available trace of such
//! a cluster has demands, lengths and classes together (GPUColo's 57 days of Alibaba's PAI are
//! unavailable).
//! - *Trainings* have arrivals, lengths and numbers of GPUs of a recorded trace (Philly), each row
//!   repeated [`Mixed::training_copies`] times, up to [`JITTER_S`] apart, lengths times
//!   [`Mixed::training_lengths`].
//! - *Inference jobs* arrive as requests in each minute of a day ([`crate::days`] makes one of a
//!   recorded hour), each day again, times a factor for the day of the week ([`WEEK`]). They run
//!   for recorded lengths (openb), times [`Mixed::inference_lengths`].
//! - *Use of a GPU*: recorded requests (openb's `gpu_milli`). *Memory* is in proportion, as in
//!   GPUColo's Table I: 5 GB for all of a GPU for inference, 14 GB for training.
//! - *Workloads* are those of the pair table, each as likely as another.
//!
//! A job of several GPUs uses all of each, or is split into as many jobs of one GPU
//! ([`Mixed::split_gangs`]), as GPUColo's simulator does it. All draws come from the seed alone. To
//! keep the number of different requests small, as in real clusters, jobs are of [`KINDS`] kinds
//! for each class, drawn once. A kind is bound to one model of GPU, and each model has as many
//! kinds as it has of the GPUs: demands and lengths hold on that model, and nothing is assumed
//! about others.

use cluster::inventory::WHOLE_MILLI;
use cluster::{Class, Inventory, JobId, JobSpec, ModelId, Models, WorkloadId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::meter::DAY_NS;
use crate::world::Arrival;

/// Kinds of job for each class: workload, used part of a GPU, and model.
pub const KINDS: usize = 64;

/// Copies of one recorded training arrive up to so many seconds after each other.
pub const JITTER_S: f64 = 3_600.0;

/// Inference jobs by day, from Monday, ÷ the busiest. Stated, not recorded: one day is.
pub const WEEK: [f64; 7] = [1.0, 1.0, 1.0, 1.0, 0.95, 0.7, 0.65];

/// Device memory of an inference job that uses all of a GPU (GPUColo, Table I: 2.5 GB at 50 %).
pub const INFERENCE_BYTES: u64 = 5_000_000_000;

/// Device memory of a training that uses all of a GPU (GPUColo, Table I: 7 GB at 50 %).
pub const TRAINING_BYTES: u64 = 14_000_000_000;

/// A recorded training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// When it was submitted, in seconds since some start.
    pub at_s: f64,
    /// How long it ran.
    pub length_s: f64,
    /// On how many GPUs.
    pub gpus: u32,
}

/// The recorded parts.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// Trainings, of which those that arrive within the days from the first on are taken.
    pub trainings: &'a [Training],
    /// Invocations in each minute of a day.
    pub minutes: &'a [u32],
    /// Lengths of inference jobs, in seconds.
    pub lengths_s: &'a [f64],
    /// Requests of inference jobs, each below a whole GPU.
    pub inference_milli: &'a [u32],
    /// Requests of trainings of one GPU.
    pub training_milli: &'a [u32],
    /// Workloads of the pair table.
    pub workloads: u16,
    /// The cluster.
    pub inventory: &'a Inventory,
}

/// How they are put together.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    /// How long jobs arrive.
    pub days: u32,
    /// Jobs of inference, without those of the burst.
    pub inference_jobs: u64,
    /// Recorded lengths of inference jobs are multiplied by that.
    pub inference_lengths: f64,
    /// Between these days twice as many of them arrive (GPUColo, section VIII).
    pub burst_days: std::ops::Range<u32>,
    /// How often each recorded training arrives.
    pub training_copies: u32,
    /// Recorded lengths of trainings are multiplied by that.
    pub training_lengths: f64,
    /// Whether a training of several GPUs is taken for so many of one.
    pub split_gangs: bool,
    /// The least of a GPU to which a training can be held.
    pub floor_milli: u32,
    /// Promise of inference jobs, as [`JobSpec::slo_milli`].
    pub slo_milli: u32,
    /// Decides all draws.
    pub seed: u64,
}

impl Mixed {
    /// As in the comparison with GPUColo: 57 days; three jobs of inference for each training,
    /// between days 20 and 40 six; on average 2455 of inference and 604 trainings at a time, by
    /// GPUColo's published means of GPUs; promises of 0.96 of the length; trainings can be held to
    /// 1 % of a GPU, the least that MPS accepts.
    #[must_use]
    pub const fn fifty_seven_days(seed: u64) -> Self {
        Self {
            days: 57,
            inference_jobs: 640_000,
            inference_lengths: 3.59,
            burst_days: 20..40,
            training_copies: 5,
            training_lengths: 0.471,
            split_gangs: true,
            floor_milli: 10,
            slo_milli: 960,
            seed,
        }
    }

    /// All jobs, in the order of their arrival.
    #[must_use]
    pub fn arrivals(&self, parts: &Parts<'_>) -> Vec<Arrival> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let inference = kinds(&mut random, parts.inference_milli, parts);
        let training = kinds(&mut random, parts.training_milli, parts);
        let mut arrivals = self.inference(parts, &inference, &mut random);
        arrivals.extend(self.trainings(parts, &training, &mut random));
        arrivals.sort_by_key(|arrival| arrival.at_ns);
        for (number, arrival) in arrivals.iter_mut().enumerate() {
            arrival.job.id = JobId(number as u64);
        }
        arrivals
    }

    fn inference(&self, parts: &Parts<'_>, kinds: &[Kind], random: &mut Pcg64) -> Vec<Arrival> {
        let weights: Vec<u64> = parts.minutes.iter().map(|&count| count.into()).collect();
        let of_day: u64 = weights.iter().sum();
        let week = |day: u32| WEEK[day as usize % WEEK.len()];
        let all: f64 = (0..self.days).map(week).sum();
        let mut arrivals = Vec::new();
        for day in 0..self.days {
            let share = week(day) / all;
            let twice = if self.burst_days.contains(&day) {
                2.0
            } else {
                1.0
            };
            let jobs = (self.inference_jobs as f64 * share * twice).round() as u64;
            for _ in 0..jobs {
                let minute = drawn(&weights, random.random_range(0..of_day.max(1)));
                let within = random.random_range(0..60_000_000_000);
                let at_ns = u64::from(day) * DAY_NS + minute as u64 * 60_000_000_000 + within;
                let kind = kinds[random.random_range(0..kinds.len())];
                let length = parts.lengths_s[random.random_range(0..parts.lengths_s.len())];
                let mut job = kind.job(Class::HighPriority, 1, parts);
                job.slo_milli = Some(self.slo_milli);
                arrivals.push(Arrival {
                    at_ns,
                    length_ns: ns(length * self.inference_lengths),
                    job,
                });
            }
        }
        arrivals
    }

    fn trainings(&self, parts: &Parts<'_>, kinds: &[Kind], random: &mut Pcg64) -> Vec<Arrival> {
        let first = parts
            .trainings
            .iter()
            .map(|t| t.at_s)
            .fold(f64::INFINITY, f64::min);
        let until = f64::from(self.days) * 86_400.0;
        let recorded = parts.trainings.iter().filter(|t| t.at_s - first < until);
        let mut arrivals = Vec::new();
        for training in recorded {
            let jobs = if self.split_gangs { training.gpus } else { 1 };
            for _ in 0..self.training_copies {
                let mut kind = kinds[random.random_range(0..kinds.len())];
                if training.gpus > 1 {
                    kind.milli = WHOLE_MILLI;
                }
                let late = random.random_range(0.0..JITTER_S);
                let mut job = kind.job(Class::BestEffort, training.gpus / jobs, parts);
                job.spread = job.gpus > 1;
                job.floor_milli = self.floor_milli.min(kind.milli);
                let arrival = Arrival {
                    at_ns: ns((training.at_s - first + late).min(until - 1.0)),
                    length_ns: ns(training.length_s * self.training_lengths),
                    job,
                };
                arrivals.extend(std::iter::repeat_n(arrival, jobs as usize));
            }
        }
        arrivals
    }
}

#[derive(Clone, Copy)]
struct Kind {
    milli: u32,
    workload: WorkloadId,
    model: ModelId,
}

impl Kind {
    fn job(&self, class: Class, gpus: u32, parts: &Parts<'_>) -> JobSpec {
        let mut job = JobSpec::new(0, class, gpus, self.milli);
        job.workload = self.workload;
        job.models = Models::of([self.model]);
        let whole = match class {
            Class::HighPriority => INFERENCE_BYTES,
            Class::BestEffort => TRAINING_BYTES,
        };
        let has = parts.inventory.models()[usize::from(self.model.0)].memory_bytes;
        job.memory_bytes = (whole * u64::from(self.milli) / u64::from(WHOLE_MILLI)).min(has);
        job
    }
}

fn kinds(random: &mut Pcg64, milli: &[u32], parts: &Parts<'_>) -> Vec<Kind> {
    let nodes = parts.inventory.nodes();
    let mut gpus: Vec<(ModelId, u64)> = Vec::new();
    for number in 0..parts.inventory.models().len() as u16 {
        let of = nodes.iter().filter(|node| node.model.0 == number);
        gpus.push((ModelId(number), of.map(|node| u64::from(node.gpus)).sum()));
    }
    let weights: Vec<u64> = gpus.iter().map(|(_, count)| *count).collect();
    let all: u64 = weights.iter().sum();
    let kind = |number: usize| {
        let milli = milli[random.random_range(0..milli.len())];
        let workload = WorkloadId(random.random_range(0..parts.workloads));
        let at = (2 * number as u64 + 1) * all / (2 * KINDS as u64);
        Kind {
            milli,
            workload,
            model: gpus[drawn(&weights, at)].0,
        }
    };
    (0..KINDS).map(kind).collect()
}

fn drawn(weights: &[u64], at: u64) -> usize {
    let mut sum = 0;
    let found = weights.iter().position(|weight| {
        sum += weight;
        sum > at
    });
    found.unwrap_or(0)
}

/// At least a second, so that no job ends as it arrives.
fn ns(seconds: f64) -> u64 {
    (seconds.max(1.0) * 1e9) as u64
}
