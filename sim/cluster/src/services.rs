//! Which service a training runs beside: Mudi's experiment (EuroSys'25, section 7.1) on a thousand
//! GPUs. Each GPU has one of six inference services ([`SERVICES`]), with 200 requests a second.
//! Trainings of nine types ([`TRAININGS`]) arrive by a recorded trace whose times are divided by
//! 80, wait in the order of their arrival, and one at a time runs on each GPU. The table
//! ([`ServiceTable`]) has the truth of a pair. A policy knows less:
//! - **Latency**: the two lines that fit the 99th percentile of batches at six shares
//!   ([`policy::latency_model`]), for each service, training and batch.
//! - **Speed of the training**: at the same six shares, and straight lines between them.
//!
//! On each GPU the same tuner chooses the batch and the share of the service, whatever policy
//! placed the training ([`Experiment::tuned`]): it tries settings from the fastest on that are
//! predicted to be near the service's target, each for [`TRY_S`], and keeps the first with at most
//! [`LATE_MAX`] late requests, as measured there. Late requests meanwhile count. The orders of
//! services:
//! - `random`, `first-fit`: none.
//! - `mudi-slope`: the least mean of the absolute slopes of the latency over all batches and both
//!   lines, in ms per share. `mudi-slope-signed`: of the slopes themselves, as the paper says
//!   literally: they are negative, so the steepest wins. `mudi-slope-slo`: `mudi-slope` divided by
//!   the service's target, as ms favour fast services.
//! - `pillion`: the greatest predicted speed of the training, of those services that are predicted
//!   to keep their targets. `inverted`: the reverse.
//! - `exhaustive`: the greatest true speed with at most [`LATE_MAX`] late requests, by trying all
//!   settings: the best for each arrival.
//! - `mudi-slope-learnt`, `pillion-learnt`: the same, four of nine trainings never run before.
//!
//! Under the last two, curves and speeds of the four trainings ([`crate::interference::UNSEEN`])
//! are predicted from their layers ([`learn::interference`]), and for `pillion-learnt` also from
//! the time of an iteration alone. When such a pair starts first, it is measured, at once, without
//! noise and at no cost, and is known as the others are from then on. Their tuner knows no more. So
//! predictions decide few starts ([`Outcome::predicted`]), and such runs say little about how good
//! predictions are; [`Learning`] has controls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cluster::placement::beside::Beside;
use cluster::placement::best::Best;
use cluster::placement::fits::FirstFit;
use cluster::placement::random::Random;
use cluster::placement::{Holding, Placement};
use cluster::queue::{Outcome as Answer, Queue};
use cluster::{Class, Inventory, JobId, JobSpec, Model, NodeId, Part, View, WorkloadId};
use policy::latency_model::{PieceWise, SAMPLE_SHARES, SHARE_MARGIN, fit};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::service_table::{
    BATCHES, REQUESTS_PER_S, SERVICES, SHARES_PCT, ServiceTable, Size, TRAININGS,
};

mod learnt;

pub use learnt::Learning;
use learnt::Learnt;

/// Share of late requests with which the best setting for an arrival still keeps a target.
pub const LATE_MAX: f64 = 0.01;

/// Most of the time that a service may be busy: beyond, its queue grows without need.
const BUSY_MAX: f64 = 0.9;

/// How long the tuner tries a setting.
pub const TRY_S: f64 = 2.0;

/// Most settings that it tries (Mudi: at most 25).
pub const TRIES_MAX: usize = 25;

/// Tried settings are predicted to take at most so much more than they may.
const TRY_SLACK: f64 = 1.25;

/// The tuner's setting of one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Requests of a batch.
    pub batch: u32,
    /// Share of the service.
    pub share: f64,
    /// Speed of the training as a part of its speed alone, as predicted.
    pub speed: f64,
}

/// How the tuner bounds the time of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The wait for the batch to fill, the batches before, and the batch together keep the target.
    Queueing,
    /// (W ⁄ b) P ≤ target, in seconds, by the paper's equation 4: it compares a share with a time.
    Paper,
}

/// The policies' knowledge of pairs.
#[derive(Clone, Debug)]
pub struct Known {
    curves: Vec<Option<PieceWise>>,
    /// By service, training, batch and sampled share: speed as a part of that alone.
    speeds: Vec<f64>,
}

fn place(service: usize, training: usize, batch: usize) -> usize {
    (service * TRAININGS.len() + training) * BATCHES.len() + batch
}

impl Known {
    /// From six samples of each curve of the table.
    #[must_use]
    pub fn sampled(table: &ServiceTable) -> Self {
        let (mut curves, mut speeds) = (Vec::new(), Vec::new());
        for service in 0..SERVICES.len() {
            for training in 0..TRAININGS.len() {
                for batch in BATCHES {
                    let p99 = |share| table.batch_p99_ms(service, training, batch, share);
                    let samples = SAMPLE_SHARES
                        .iter()
                        .map(|&share| Some((share, p99(share)?)));
                    let samples: Option<Vec<(f64, f64)>> = samples.collect();
                    curves.push(samples.and_then(|samples| fit(&samples).ok()));
                    speeds.extend(
                        SAMPLE_SHARES
                            .iter()
                            .map(|&share| speed(table, service, training, batch, share)),
                    );
                }
            }
        }
        Self { curves, speeds }
    }

    fn set(&mut self, place: usize, curve: PieceWise, speeds: [f64; SAMPLE_SHARES.len()]) {
        let count = SAMPLE_SHARES.len();
        self.curves[place] = Some(curve);
        self.speeds[place * count..(place + 1) * count].copy_from_slice(&speeds);
    }

    fn clear(&mut self, place: usize) {
        let speeds = place * SAMPLE_SHARES.len()..(place + 1) * SAMPLE_SHARES.len();
        self.curves[place] = None;
        self.speeds[speeds].fill(0.0);
    }

    fn copy(&mut self, place: usize, other: &Self) {
        let speeds = place * SAMPLE_SHARES.len()..(place + 1) * SAMPLE_SHARES.len();
        self.curves[place] = other.curves[place];
        self.speeds[speeds.clone()].copy_from_slice(&other.speeds[speeds]);
    }

    /// Speed of the training at that share of the service: on the line between the samples beside.
    fn speed(&self, place: usize, share: f64) -> f64 {
        let count = SAMPLE_SHARES.len();
        let speeds = &self.speeds[place * count..(place + 1) * count];
        let above = SAMPLE_SHARES.iter().position(|&sample| sample >= share);
        match above {
            None => speeds[count - 1],
            Some(0) => speeds[0],
            Some(above) => {
                let (low, high) = (SAMPLE_SHARES[above - 1], SAMPLE_SHARES[above]);
                let part = (share - low) / (high - low);
                speeds[above - 1] + part * (speeds[above] - speeds[above - 1])
            }
        }
    }

    /// The setting with the fastest training that is predicted to keep the target, if any.
    #[must_use]
    pub fn setting(&self, service: usize, training: usize, bound: Bound) -> Option<Setting> {
        self.settings(service, training, bound, 1.0 / (1.0 + SHARE_MARGIN))
            .into_iter()
            .next()
    }

    /// Settings whose batches are predicted within `slack` of the allowed time, the fastest first.
    fn settings(&self, service: usize, training: usize, bound: Bound, slack: f64) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (number, &batch) in BATCHES.iter().enumerate() {
            let place = place(service, training, number);
            let Some(limit_ms) = limit_ms(SERVICES[service].slo_ms, batch, bound) else {
                continue;
            };
            let Some(curve) = self.curves[place] else {
                continue;
            };
            for pct in SHARES_PCT {
                let share = f64::from(pct) / 100.0;
                if curve.at(share) <= slack * limit_ms {
                    settings.push(Setting {
                        batch,
                        share,
                        speed: self.speed(place, share),
                    });
                }
            }
        }
        settings.sort_by(|a, b| b.speed.total_cmp(&a.speed));
        settings
    }

    /// The mean of the absolute slopes over all batches and both lines, in ms per share.
    #[must_use]
    pub fn slope(&self, service: usize, training: usize) -> Option<f64> {
        let curves = (0..BATCHES.len()).map(|batch| self.curves[place(service, training, batch)]);
        let slopes = curves.map(|curve| {
            let curve = curve?;
            Some(f64::midpoint(
                curve.slope_below.abs(),
                curve.slope_above.abs(),
            ))
        });
        let slopes: Option<Vec<f64>> = slopes.collect();
        let slopes = slopes?;
        Some(slopes.iter().sum::<f64>() / slopes.len() as f64)
    }
}

fn speed(table: &ServiceTable, service: usize, training: usize, batch: u32, share: f64) -> f64 {
    let beside = table.iterations_per_s(service, training, batch, share);
    let alone = table.alone_per_s(training);
    beside
        .zip(alone)
        .map_or(0.0, |(beside, alone)| beside / alone)
}

/// The longest allowed batch; `None` if it cannot keep the target however short.
fn limit_ms(slo_ms: f64, batch: u32, bound: Bound) -> Option<f64> {
    let per_ms = REQUESTS_PER_S / 1000.0;
    let others = f64::from(batch - 1);
    let every_ms = f64::from(batch) / per_ms;
    if bound == Bound::Paper {
        return Some(slo_ms / 1000.0 * every_ms);
    }
    // The first of a batch waits for the others: their number is Poisson's, and 99 of 100 times
    // they have arrived after the mean and 2.33 deviations.
    let fill_ms = (others + 2.33 * others.sqrt()) / per_ms;
    let left_ms = slo_ms - fill_ms;
    if left_ms <= 0.0 {
        return None;
    }
    // A batch waits for those before it for P ρ ⁄ 2 (1 − ρ) in the mean (batches that arrive at
    // random, each taking P; fewer wait where batches fill regularly), and the longest of 100 about
    // 4.6 times that.
    let total = |p_ms: f64| {
        let busy = p_ms / every_ms;
        p_ms * (1.0 + 4.6 * busy / (2.0 * (1.0 - busy)) / f64::from(batch).sqrt())
    };
    let (mut keeps, mut breaks) = (0.0, left_ms.min(BUSY_MAX * every_ms));
    if total(breaks) <= left_ms {
        return Some(breaks);
    }
    for _ in 0..40 {
        let middle = f64::midpoint(keeps, breaks);
        if total(middle) <= left_ms {
            keeps = middle;
        } else {
            breaks = middle;
        }
    }
    Some(keeps)
}

/// A training of the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// Its arrival.
    pub at_ns: u64,
    /// Its place in [`TRAININGS`].
    pub training: usize,
    /// How long it runs alone.
    pub length_ns: u64,
}

/// The trainings, of so many recorded submissions (seconds, in order) whose times are divided by
/// `faster`. Types are drawn by Table 3's weights, lengths by the type's size, each length as
/// likely as another on a logarithmic scale; the longest size ends at 200 GPU-hours.
#[must_use]
pub fn tasks(submits_s: &[f64], count: usize, faster: f64, seed: u64) -> Vec<Task> {
    let mut random = Pcg64::seed_from_u64(seed);
    let all: u32 = TRAININGS.iter().map(|training| training.weight).sum();
    let first = submits_s.first().copied().unwrap_or(0.0);
    let task = |&submit_s: &f64| {
        let mut at = random.random_range(0..all);
        let training = TRAININGS.iter().position(|training| {
            let found = at < training.weight;
            at = at.saturating_sub(training.weight);
            found
        });
        let training = training.unwrap_or(0);
        let (least, most) = match TRAININGS[training].size {
            Size::Small => (0.1, 1.0),
            Size::Medium => (1.0, 10.0),
            Size::Large => (10.0, 100.0),
            Size::XLarge => (100.0, 200.0),
        };
        let hours = f64::exp(random.random_range(f64::ln(least)..f64::ln(most)));
        Task {
            at_ns: ((submit_s - first) / faster * 1e9) as u64,
            training,
            length_ns: (hours * 3_600e9) as u64,
        }
    };
    submits_s.iter().take(count).map(task).collect()
}

/// How a pair runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tuned {
    /// Share of requests that are late.
    pub late: f64,
    /// Speed of the training as a part of its speed alone.
    pub speed: f64,
    /// How many settings were tried before.
    pub tries: usize,
    /// Their shares of late requests, summed.
    pub late_tries: f64,
}

/// Speed of a training whose service keeps its target with no setting.
const PAUSED_SPEED: f64 = 0.05;

/// The experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The truth.
    pub table: ServiceTable,
    /// The policies' knowledge.
    pub known: Known,
    /// How the tuner bounds batches.
    pub bound: Bound,
    /// How many GPUs there are.
    pub gpus: u32,
    /// The trainings.
    pub tasks: Vec<Task>,
    /// Decides which GPU has which service.
    pub seed: u64,
}

/// The policies, by name.
pub const POLICIES: [&str; 10] = [
    "random",
    "first-fit",
    "mudi-slope",
    "mudi-slope-signed",
    "mudi-slope-slo",
    "pillion",
    "exhaustive",
    "inverted",
    "mudi-slope-learnt",
    "pillion-learnt",
];

/// Suffix of a policy that knows five trainings and learns the others.
const LEARNT: &str = "-learnt";

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Share of all requests that were late while a training was there, 0 to 1.
    pub violations: f64,
    /// Mean time from arrival to end.
    pub completion_s: f64,
    /// Mean time from arrival to placement.
    pub waiting_s: f64,
    /// From the first arrival to the last end.
    pub makespan_s: f64,
    /// Trainings that were placed.
    pub placed: u64,
    /// Placements where GPUs of two services or more were free.
    pub choices: u64,
    /// Those beside a service as good as the arrival's best, by true speeds, within a hundredth.
    pub best_choices: u64,
    /// Mean speed of trainings, as a part of that alone.
    pub speed: f64,
    /// How many were placed beside a service with which they were predicted, not sampled.
    pub predicted: u64,
}

struct Ended {
    at_ns: Reverse<u64>,
    task: usize,
}

impl PartialEq for Ended {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ended {}

impl PartialOrd for Ended {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ended {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, Reverse(self.task)).cmp(&(other.at_ns, Reverse(other.task)))
    }
}

impl Experiment {
    /// The setting that the tuner finds by trying.
    #[must_use]
    pub fn tuned(&self, service: usize, training: usize) -> Tuned {
        self.tuned_by(&self.known, service, training)
    }

    fn tuned_by(&self, known: &Known, service: usize, training: usize) -> Tuned {
        let tried = known.settings(service, training, self.bound, TRY_SLACK);
        let mut tuned = Tuned::default();
        for setting in tried.into_iter().take(TRIES_MAX) {
            let late = self
                .table
                .late(service, training, setting.batch, setting.share);
            let speed = speed(&self.table, service, training, setting.batch, setting.share);
            tuned.late = late.unwrap_or(1.0);
            tuned.speed = speed;
            if tuned.late <= LATE_MAX {
                return tuned;
            }
            tuned.late_tries += tuned.late;
            tuned.tries += 1;
        }
        // No setting keeps the target: the training is paused, except for a tenth of the GPU.
        Tuned {
            late: 1.0,
            speed: PAUSED_SPEED,
            ..tuned
        }
    }

    /// The best that there is, without trying.
    #[must_use]
    pub fn best(&self, service: usize, training: usize) -> Tuned {
        let best = self.table.best(service, training, LATE_MAX);
        let found = best.zip(self.table.alone_per_s(training));
        match found {
            Some((best, alone)) => Tuned {
                late: best.cell.late,
                speed: best.cell.iterations_per_s / alone,
                ..Tuned::default()
            },
            None => Tuned {
                late: 1.0,
                speed: PAUSED_SPEED,
                ..Tuned::default()
            },
        }
    }

    fn scores(&self, known: &Known, policy: &str) -> Beside {
        let policy = policy.strip_suffix(LEARNT).unwrap_or(policy);
        let micro = |number: f64| (1e6 * number) as i64;
        let score = |training: usize, service: usize| match policy {
            "mudi-slope" => Some(-micro(known.slope(service, training)?)),
            "mudi-slope-signed" => Some(micro(known.slope(service, training)?)),
            "mudi-slope-slo" => {
                let slope = known.slope(service, training)?;
                Some(-micro(slope / SERVICES[service].slo_ms))
            }
            "exhaustive" => Some(micro(self.best(service, training).speed)),
            _ => Some(micro(known.setting(service, training, self.bound)?.speed)),
        };
        let of = |training| (0..SERVICES.len()).map(move |service| (training, service));
        let scores = (0..TRAININGS.len()).map(|training| {
            let services = of(training);
            services
                .map(|(training, service)| score(training, service))
                .collect()
        });
        Beside {
            scores: scores.collect(),
        }
    }

    /// The policy of that name in [`POLICIES`]; any other is taken for `pillion`. Learning ones
    /// know all pairs here; [`Experiment::run`] lets them learn.
    #[must_use]
    pub fn policy(&self, name: &str, view: &View) -> Box<dyn Placement> {
        self.policy_by(&self.known, name, view)
    }

    fn policy_by(&self, known: &Known, name: &str, view: &View) -> Box<dyn Placement> {
        let holding = Holding::ELASTIC;
        match name {
            "random" => Box::new(Random::new(holding, self.seed)),
            "first-fit" => Box::new(Best::new(FirstFit, holding, view)),
            "inverted" => Box::new(Best::new(
                self.scores(known, name).inverted(),
                holding,
                view,
            )),
            _ => Box::new(Best::new(self.scores(known, name), holding, view)),
        }
    }

    /// The GPUs with their services, each service on as many.
    ///
    /// # Panics
    /// Never: one GPU for each node is possible.
    #[must_use]
    pub fn view(&self) -> View {
        let model = Model::new(crate::service_table::DEVICE, 40 << 30);
        let inventory = Inventory::uniform(model, self.gpus, 1).expect("one GPU for each node");
        let mut view = View::new(inventory);
        let mut services: Vec<usize> = (0..self.gpus as usize)
            .map(|gpu| gpu % SERVICES.len())
            .collect();
        services.shuffle(&mut Pcg64::seed_from_u64(self.seed));
        for (gpu, service) in services.into_iter().enumerate() {
            let number = (self.tasks.len() + gpu) as u64;
            let mut job = JobSpec::new(number, Class::HighPriority, 1, SERVICE_MILLI);
            job.workload = WorkloadId(service as u16);
            let part = Part {
                node: NodeId(gpu as u32),
                slots: 1,
                milli: SERVICE_MILLI,
                start: None,
            };
            view.place(&job, &[part]);
        }
        view
    }

    /// Plays all trainings under the policy of that name.
    #[must_use]
    pub fn run(&self, name: &str) -> Outcome {
        if name.ends_with(LEARNT) {
            return self.run_learnt(name, Learning::Measured);
        }
        let view = self.view();
        let mut policy = self.policy(name, &view);
        self.play(view, &mut *policy, name == "exhaustive")
    }

    /// Plays all trainings under a policy that knows five of them.
    #[must_use]
    pub fn run_learnt(&self, name: &str, learning: Learning) -> Outcome {
        let mut view = self.view();
        let has_time = name == "pillion-learnt";
        let learnt = Learnt::new(&self.table, &self.known, has_time, learning);
        let mut policy = self.policy_by(learnt.known(), name, &view);
        let mut run = self.begin(&view);
        run.learnt = Some(learnt);
        while let Some(now_ns) = run.next_event(&mut view) {
            run.poll(&mut view, &mut *policy, now_ns);
            if let Some(learnt) = run.learnt.as_ref().filter(|_| run.has_learnt) {
                policy = self.policy_by(learnt.known(), name, &view);
                run.has_learnt = false;
                // Trainings that fitted nowhere may fit now.
                run.queue.handle_release();
            }
        }
        run.finished()
    }

    /// Plays all trainings from that view on, under that policy; `is_exhaustive`: with the best
    /// setting for each pair in place of the tuner's.
    pub fn play(&self, mut view: View, policy: &mut dyn Placement, is_exhaustive: bool) -> Outcome {
        let mut run = self.begin(&view);
        run.is_exhaustive = is_exhaustive;
        while let Some(now_ns) = run.next_event(&mut view) {
            run.poll(&mut view, policy, now_ns);
        }
        run.finished()
    }

    fn begin(&self, view: &View) -> Run<'_> {
        let mut run = Run {
            experiment: self,
            is_exhaustive: false,
            learnt: None,
            has_learnt: false,
            queue: Queue::new(u64::MAX),
            ends: BinaryHeap::new(),
            next: 0,
            free: vec![0; SERVICES.len()],
            services: Vec::new(),
            placed_on: vec![usize::MAX; self.tasks.len()],
            late_s: 0.0,
            beside_s: 0.0,
            outcome: Outcome::default(),
        };
        run.services = view
            .nodes()
            .filter_map(|node| service_of(view, node.id))
            .collect();
        for &service in &run.services {
            run.free[service] += 1;
        }
        run
    }

    fn job(&self, task: usize) -> JobSpec {
        let mut job = JobSpec::new(task as u64, Class::BestEffort, 1, TRAINING_MILLI);
        job.workload = WorkloadId(self.tasks[task].training as u16);
        job
    }
}

/// Such parts that no GPU takes two of either, and each takes one of both.
const SERVICE_MILLI: u32 = 400;
const TRAINING_MILLI: u32 = 600;

fn service_of(view: &View, node: NodeId) -> Option<usize> {
    let service = view.node(node).gpus[0].of(Class::HighPriority).next()?;
    Some(usize::from(service.workload.0))
}

struct Run<'a> {
    experiment: &'a Experiment,
    is_exhaustive: bool,
    learnt: Option<Learnt>,
    has_learnt: bool,
    queue: Queue,
    ends: BinaryHeap<Ended>,
    next: usize,
    free: Vec<u32>,
    services: Vec<usize>,
    placed_on: Vec<usize>,
    late_s: f64,
    beside_s: f64,
    outcome: Outcome,
}

impl Run<'_> {
    /// Handles the next arrival or end, and returns its time; `None` after the last.
    fn next_event(&mut self, view: &mut View) -> Option<u64> {
        let coming = self.experiment.tasks.get(self.next).map(|task| task.at_ns);
        let ending = self.ends.peek().map(|ended| ended.at_ns.0);
        if let Some(at_ns) = coming.filter(|&at| ending.is_none_or(|end| at < end)) {
            self.queue.push(self.experiment.job(self.next), at_ns);
            self.next += 1;
            return Some(at_ns);
        }
        let ended = self.ends.pop()?;
        view.release(JobId(ended.task as u64));
        self.queue.handle_release();
        self.free[self.services[self.placed_on[ended.task]]] += 1;
        Some(ended.at_ns.0)
    }

    fn poll(&mut self, view: &mut View, policy: &mut dyn Placement, now_ns: u64) {
        for answer in self.queue.poll(view, policy, now_ns) {
            if let Answer::Placed(job, parts) = answer {
                self.handle_placed(job.0 as usize, parts[0].node.0 as usize, now_ns);
            }
        }
    }

    fn handle_placed(&mut self, number: usize, gpu: usize, now_ns: u64) {
        let task = self.experiment.tasks[number];
        let service = self.services[gpu];
        let found = match &self.learnt {
            _ if self.is_exhaustive => self.experiment.best(service, task.training),
            None => self.experiment.tuned(service, task.training),
            Some(learnt) => self
                .experiment
                .tuned_by(learnt.known(), service, task.training),
        };
        if let Some(learnt) = &mut self.learnt {
            let table = &self.experiment.table;
            self.outcome.predicted += u64::from(learnt.is_predicted(service, task.training));
            self.has_learnt |= learnt.handle_runs(table, service, task.training);
        }
        let free = (0..SERVICES.len()).filter(|&other| self.free[other] > 0);
        let free: Vec<usize> = free.collect();
        if free.len() > 1 {
            let best = |other: &usize| self.experiment.best(*other, task.training).speed;
            let fastest = free.iter().map(best).fold(0.0, f64::max);
            self.outcome.choices += 1;
            self.outcome.best_choices += u64::from(best(&service) >= 0.99 * fastest);
        }
        self.free[service] -= 1;
        self.placed_on[number] = gpu;
        let tries_s = TRY_S * found.tries as f64;
        let runs_s = tries_s + task.length_ns as f64 / 1e9 / found.speed.max(1e-3);
        self.late_s += found.late * (runs_s - tries_s) + TRY_S * found.late_tries;
        self.beside_s += runs_s;
        let waited_s = (now_ns - task.at_ns) as f64 / 1e9;
        self.outcome.placed += 1;
        self.outcome.waiting_s += waited_s;
        self.outcome.completion_s += waited_s + runs_s;
        self.outcome.speed += found.speed;
        let end_ns = now_ns + (runs_s * 1e9) as u64;
        self.outcome.makespan_s = self.outcome.makespan_s.max(end_ns as f64 / 1e9);
        self.ends.push(Ended {
            at_ns: Reverse(end_ns),
            task: number,
        });
    }

    fn finished(mut self) -> Outcome {
        let count = self.outcome.placed.max(1) as f64;
        self.outcome.waiting_s /= count;
        self.outcome.completion_s /= count;
        self.outcome.speed /= count;
        self.outcome.violations = self.late_s / self.beside_s.max(1e-9);
        self.outcome
    }
}
