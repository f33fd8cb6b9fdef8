//! The kept numbers of a run: for its line and the pictures, without its million jobs.

use cluster::Class;
use cluster_sim::inflation::Allocation;
use cluster_sim::outcome::{JobRecord, Outcome, Summary};
use cluster_sim::play::Bounds;

#[derive(Debug)]
pub(crate) struct Run {
    /// Index of the workload; 0 for weeks.
    pub(crate) workload: usize,
    /// Index in the plan.
    pub(crate) policy: usize,
    pub(crate) seed: u64,
    pub(crate) facts: Facts,
}

#[derive(Debug)]
pub(crate) enum Facts {
    Weeks(Box<Weeks>),
    Inflation(Allocation),
}

/// Numbers of jobs that arrive and end.
#[derive(Debug)]
pub(crate) struct Weeks {
    pub(crate) gpus: usize,
    pub(crate) jobs: usize,
    /// Jobs that waited to the end although an empty cluster has room: their policy never places
    /// them.
    pub(crate) unplaced: usize,
    pub(crate) high_priority: Summary,
    pub(crate) best_effort: Summary,
    pub(crate) makespan_s: f64,
    pub(crate) gpus_mean: f64,
    pub(crate) gpus_most: f64,
    pub(crate) gpus_daily: Vec<f64>,
    /// Hours of GPUs with a job, until the last job ends.
    pub(crate) gpu_hours: f64,
    /// Late jobs of those with a promise, by day of arrival; none without such jobs.
    pub(crate) violations_daily: Vec<Option<f64>>,
    /// Energy of GPUs with a job.
    pub(crate) used_j: f64,
    /// Energy of GPUs without a job.
    pub(crate) idle_j: f64,
    pub(crate) bounds: Bounds,
    /// Of best-effort jobs, time from arrival to end over time alone: [`QUANTILES`] quantiles,
    /// ascending.
    pub(crate) stretches: Vec<f64>,
}

pub(crate) const QUANTILES: usize = 201;

impl Weeks {
    pub(crate) fn new(outcome: Outcome, gpus: usize, bounds: Bounds) -> Self {
        let daily = outcome.promised_daily.iter();
        let daily = daily.map(|&(all, late)| (all > 0).then(|| late as f64 / all as f64));
        Self {
            gpus,
            jobs: outcome.jobs.len(),
            unplaced: outcome.jobs.iter().filter(|job| is_unplaced(job)).count(),
            makespan_s: outcome.makespan_s,
            gpus_mean: outcome.gpus_mean,
            gpus_most: outcome.gpus_most,
            gpu_hours: outcome.gpu_hours,
            violations_daily: daily.collect(),
            stretches: stretches(&outcome.jobs),
            high_priority: outcome.high_priority,
            best_effort: outcome.best_effort,
            gpus_daily: outcome.gpus_daily,
            used_j: outcome.used_j,
            idle_j: outcome.idle_j,
            bounds,
        }
    }
}

const fn is_unplaced(job: &JobRecord) -> bool {
    job.end_ns == u64::MAX && !job.refused
}

fn stretches(jobs: &[JobRecord]) -> Vec<f64> {
    let ended = jobs
        .iter()
        .filter(|job| job.class == Class::BestEffort && job.end_ns != u64::MAX);
    let mut all: Vec<f64> = ended
        .map(|job| (job.end_ns - job.at_ns) as f64 / job.length_ns as f64)
        .collect();
    all.sort_by(f64::total_cmp);
    let Some(last) = all.len().checked_sub(1) else {
        return Vec::new();
    };
    let at = |index: usize| all[last * index / (QUANTILES - 1)];
    (0..QUANTILES).map(at).collect()
}

/// None of no values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
