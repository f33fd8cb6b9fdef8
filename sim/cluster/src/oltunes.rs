//! `OLTunes`' comparison with related work (2025, section 4): requests of eight inference models on
//! an RTX 4090, five A100s and two A30s, under placement policies that know latencies only from an
//! online predictor. Every request is a task (`requests`). A table of our simulator of one GPU
//! ([`crate::oltunes_table`]) has the truth of tasks alone and in pairs; several neighbours'
//! slowdowns are combined by a rule ([`Together`]). A task's speed changes when a neighbour starts
//! or ends. Times are ns of virtual time; latencies count from arrival.
//!
//! | policy | what it is |
//! |---|---|
//! | `oltunes` | as published, with the readings of `cluster`'s modules of it |
//! | `orion-first-free` | Orion's sharing, on the first GPU that is free |
//! | `reserve-and-pack` | A100s are for large models, all others are packed onto the rest; MPS |
//! | `pillion` | predicts and scores as `oltunes`, with deadlines, classes and balance |
//! | `NAME@PART` | an ablation |
//!
//! # What is chosen here
//! - [`LOADS`], [`SPAN_S`], and the batches and deadlines of `requests`.
//! - **Energy**: ∫ P dt of all eight GPUs, all on until [`DRAIN_S`] after the last request could
//!   arrive, with P linear in the SMs in use between rest and board power. Work after the horizon
//!   counts as well, so that no policy saves by being late. The EPC of the paper is given too, as a
//!   score.
//! - **Utilisation**: SMs in use, mean over the horizon; its *spread* is the greatest less the
//!   least of the eight.
//! - Loading of models, and the scheduler's own time, take nothing.

use std::ops::Range;

use cluster::affinity::AFFINITY_MIN;
use cluster::batch::Admission;
use cluster::objective::epc;

pub mod facts;
pub mod foresight;
pub mod requests;

mod baselines;
mod gpu;
mod known;
mod ours;
mod published;
mod together;
mod world;

use facts::{CLUSTER, Facts};
use foresight::Quality;
pub use gpu::Together;
pub use requests::{Load, Pattern, Recorded, Request};
use world::{Policy, Run, Served};

/// Loads: the rates of Table 7, and a stress of latency-critical requests.
pub const LOADS: [(&str, Load); 2] = [("table-7", Load::TABLE_7), ("stress", STRESS)];

/// Of vision, which is latency-critical, twelve times the rates. Up to eight times Orion on the
/// first free GPU is late with under one request in two thousand: every GPU has room for one.
const STRESS: Load = Load {
    vision: 12.0,
    language: 1.0,
};

/// The workload of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// How requests arrive.
    pub pattern: Pattern,
    /// And how many.
    pub load: Load,
    /// For how long, s.
    pub span_s: f64,
    /// How neighbours' slowdowns combine.
    pub together: Together,
}

impl Experiment {
    /// With requests for [`SPAN_S`], and slowdowns that add.
    #[must_use]
    pub const fn new(pattern: Pattern, load: Load) -> Self {
        Self {
            pattern,
            load,
            span_s: SPAN_S,
            together: Together::Add,
        }
    }

    fn horizon_s(&self) -> f64 {
        self.span_s + DRAIN_S
    }

    /// Its requests.
    #[must_use]
    pub fn requests(&self, facts: &Facts, seed: u64) -> Vec<Request> {
        let span_ns = (self.span_s * 1e9) as u64;
        requests::requests(facts, &self.pattern, self.load, span_ns, seed)
    }

    /// A run of a policy.
    ///
    /// # Panics
    /// If there is no such policy, or one breaks an invariant.
    #[must_use]
    pub fn play(&self, facts: &Facts, name: &str, seed: u64) -> Outcome {
        let policy = policy(name, facts, seed);
        let mut policy = policy.unwrap_or_else(|| panic!("no policy {name}"));
        let requests = self.requests(facts, seed);
        let run = world::run(facts, &requests, policy.as_mut(), self.together);
        outcome(facts, &requests, &run, self.horizon_s(), policy.foresight())
    }

    /// The mean over seeds.
    #[must_use]
    pub fn mean(&self, facts: &Facts, name: &str, seeds: Range<u64>) -> Outcome {
        let outcomes = seeds.map(|seed| self.play(facts, name, seed));
        Outcome::mean(&outcomes.collect::<Vec<_>>())
    }
}

/// The first reported seed: numbers of policies were chosen on seeds 1 to 4.
pub const FIRST_SEED: u64 = 11;

/// Time in which requests arrive, s.
pub const SPAN_S: f64 = 60.0;

/// Time for which all GPUs stay on after the last request could arrive, s.
pub const DRAIN_S: f64 = 30.0;

/// The policies that are compared.
pub const POLICIES: [&str; 4] = ["oltunes", "orion-first-free", "reserve-and-pack", "pillion"];

/// The same without parts of theirs.
pub const ABLATIONS: [&str; 10] = [
    "oltunes@no-affinity",
    "oltunes@inverted-affinity",
    "oltunes@no-window",
    "pillion@no-deadlines",
    "pillion@no-classes",
    "pillion@no-affinity",
    "pillion@no-balance",
    "pillion@no-energy",
    "pillion@no-sharing",
    "pillion@no-tuning",
];

fn policy(name: &str, facts: &Facts, seed: u64) -> Option<Box<dyn Policy>> {
    let published = |parts| -> Option<Box<dyn Policy>> {
        Some(Box::new(published::Published::new(facts, parts, seed)))
    };
    let ours =
        |parts| -> Option<Box<dyn Policy>> { Some(Box::new(ours::Ours::new(facts, parts, seed))) };
    let (all, own) = (published::Parts::ALL, ours::Parts::ALL);
    match name {
        "orion-first-free" => Some(Box::new(baselines::OrionFirstFree::default())),
        "reserve-and-pack" => Some(Box::new(baselines::ReserveAndPack::default())),
        "oltunes" => published(all),
        "oltunes@no-affinity" => published(published::Parts {
            admission: Admission::All,
            ..all
        }),
        "oltunes@inverted-affinity" => published(published::Parts {
            admission: Admission::Below(AFFINITY_MIN),
            ..all
        }),
        "oltunes@no-window" => published(published::Parts {
            window: false,
            ..all
        }),
        "pillion" => ours(own),
        "pillion@no-deadlines" => ours(ours::Parts {
            deadlines: false,
            ..own
        }),
        "pillion@no-classes" => ours(ours::Parts {
            classes: false,
            ..own
        }),
        "pillion@no-affinity" => ours(ours::Parts {
            admission: Admission::All,
            ..own
        }),
        "pillion@no-balance" => ours(ours::Parts {
            balance: false,
            ..own
        }),
        "pillion@no-energy" => ours(ours::Parts {
            energy: false,
            ..own
        }),
        "pillion@no-sharing" => ours(ours::Parts {
            sharing: false,
            ..own
        }),
        "pillion@no-tuning" => ours(ours::Parts {
            tuning: false,
            ..own
        }),
        _ => None,
    }
}

/// The result for the requests of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassOutcome {
    /// How many.
    pub requests: f64,
    /// Of them later than their deadline, 0 to 1.
    pub violations: f64,
    /// Median latency, ms.
    pub p50_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Mean wait until the start, ms.
    pub queueing_ms: f64,
    /// Mean from start to end, ms.
    pub running_ms: f64,
}

/// The result of a run, or the mean of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Latency-critical requests.
    pub critical: ClassOutcome,
    /// Throughput-oriented requests.
    pub others: ClassOutcome,
    /// Inputs answered until the horizon, per s of it.
    pub inputs_per_s: f64,
    /// By GPU, in the order of [`CLUSTER`].
    pub utilisation: [f64; CLUSTER.len()],
    /// Greatest less least utilisation.
    pub spread: f64,
    /// ∫ P dt, J.
    pub joules: f64,
    /// Σ of the paper's score over all tasks, of their times.
    pub epc: f64,
    /// Mean affinity of a task with those of its batch before it, 0 to 100; 0 without such.
    pub batch_affinity: f64,
    /// Mean speed of a task that has neighbours, over alone.
    pub kept_speed: f64,
    /// Of the predictor, with how many runs gave it; of the last run.
    pub foresight: Option<Quality>,
}

fn outcome(
    facts: &Facts,
    requests: &[Request],
    run: &Run,
    horizon_s: f64,
    foresight: Option<Quality>,
) -> Outcome {
    let horizon_ns = horizon_s * 1e9;
    let of = |is_critical| {
        let all = requests.iter().zip(&run.served);
        let of = all.filter(|(request, _)| request.is_critical == is_critical);
        class(&of.collect::<Vec<_>>())
    };
    let mut utilisation = [0.0; CLUSTER.len()];
    let (mut joules, mut shared_ns, mut kept_ns) = (0.0, 0.0, 0.0);
    for (place, gpu) in run.gpus.iter().enumerate() {
        utilisation[place] = gpu.sums.activity_ns / horizon_ns;
        let more_w = gpu.power.tdp_w - gpu.power.idle_w;
        joules += gpu.power.idle_w * horizon_s + more_w * gpu.sums.activity_ns / 1e9;
        shared_ns += gpu.sums.shared_ns;
        kept_ns += gpu.sums.kept_ns;
    }
    let all = requests.iter().zip(&run.served);
    let within = all
        .clone()
        .filter(|(_, served)| served.end_ns as f64 <= horizon_ns);
    let inputs: u32 = within.map(|(request, _)| request.inputs).sum();
    let epc = all.map(|(_, served)| score(facts, served)).sum();
    Outcome {
        critical: of(true),
        others: of(false),
        inputs_per_s: f64::from(inputs) / horizon_s,
        spread: spread(&utilisation),
        utilisation,
        joules,
        epc,
        batch_affinity: if run.affinity.1 > 0.0 {
            run.affinity.0 / run.affinity.1
        } else {
            0.0
        },
        kept_speed: if shared_ns > 0.0 {
            kept_ns / shared_ns
        } else {
            1.0
        },
        foresight,
    }
}

fn spread(utilisation: &[f64]) -> f64 {
    let most = utilisation.iter().copied().fold(0.0, f64::max);
    most - utilisation.iter().copied().fold(1.0, f64::min)
}

fn score(facts: &Facts, served: &Served) -> f64 {
    let power = facts.gpus[CLUSTER[served.gpu]].power;
    let took_s = (served.end_ns - served.start_ns) as f64 / 1e9;
    epc(power, served.share, served.memory, took_s)
}

fn class(of: &[(&Request, &Served)]) -> ClassOutcome {
    if of.is_empty() {
        return ClassOutcome::default();
    }
    let count = of.len() as f64;
    let latency = |(request, served): &(&Request, &Served)| served.end_ns - request.at_ns;
    let mut latencies: Vec<u64> = of.iter().map(latency).collect();
    latencies.sort_unstable();
    let late = of.iter().filter(|with| latency(with) > with.0.deadline_ns);
    let waited = of
        .iter()
        .map(|(request, served)| served.start_ns - request.at_ns);
    let ran = of.iter().map(|(_, served)| served.end_ns - served.start_ns);
    // The least latency that so many are within: the nearest rank.
    let rank = |part: f64| latencies[((part * count).ceil() as usize).max(1) - 1] as f64 / 1e6;
    ClassOutcome {
        requests: count,
        violations: late.count() as f64 / count,
        p50_ms: rank(0.5),
        p99_ms: rank(0.99),
        queueing_ms: waited.sum::<u64>() as f64 / count / 1e6,
        running_ms: ran.sum::<u64>() as f64 / count / 1e6,
    }
}

impl Outcome {
    /// Number by number the mean; of predictors the last.
    #[must_use]
    pub fn mean(all: &[Self]) -> Self {
        let count = all.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / count;
        let class = |of: fn(&Self) -> &ClassOutcome| ClassOutcome {
            requests: mean(&|with| of(with).requests),
            violations: mean(&|with| of(with).violations),
            p50_ms: mean(&|with| of(with).p50_ms),
            p99_ms: mean(&|with| of(with).p99_ms),
            queueing_ms: mean(&|with| of(with).queueing_ms),
            running_ms: mean(&|with| of(with).running_ms),
        };
        Self {
            critical: class(|with| &with.critical),
            others: class(|with| &with.others),
            inputs_per_s: mean(&|with| with.inputs_per_s),
            utilisation: std::array::from_fn(|gpu| mean(&|with| with.utilisation[gpu])),
            spread: mean(&|with| with.spread),
            joules: mean(&|with| with.joules),
            epc: mean(&|with| with.epc),
            batch_affinity: mean(&|with| with.batch_affinity),
            kept_speed: mean(&|with| with.kept_speed),
            foresight: all.last().and_then(|last| last.foresight.clone()),
        }
    }
}
