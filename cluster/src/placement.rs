//! The policies, and the one interface between them and their caller. Most are a [`Rule`] by which
//! a place on one node is better than another, a small file and a line in [`registry`]; the search
//! for the best node, ties, gangs over several nodes, and the memory of scores are common
//! ([`best`]).

pub mod beside;
pub mod best;
pub mod clustering;
pub mod dot_product;
mod ever;
pub mod fgd;
pub mod fits;
pub mod gang;
pub mod gpu_packing;
pub mod least_risk;
pub mod one_each;
pub mod random;
pub mod registry;
pub mod reserve_and_pack;
pub mod strict;

use crate::interference::Sharer;
use crate::inventory::{NodeId, WHOLE_MILLI};
use crate::job::{Class, JobSpec};
use crate::mig::Start;
use crate::view::{NodeView, View};

/// GPUs of one node that a job gets, and how much of each it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The node.
    pub node: NodeId,
    /// Its GPUs, a bit for each slot; none for a job that asks for none.
    pub slots: u32,
    /// The part of each that the job holds.
    pub milli: u32,
    /// Where its MIG instance begins, if it asks for one.
    pub start: Option<Start>,
}

impl Part {
    /// These GPUs of a node for the job. An instance starts where it leaves the most to others.
    pub(crate) fn new(node: &NodeView<'_>, slots: u32, milli: u32, job: &JobSpec) -> Self {
        let gpu = node.gpus.get(slots.trailing_zeros() as usize);
        let layout = gpu.and_then(|gpu| gpu.layout.as_ref());
        let start = layout.zip(job.instance);
        Self {
            node: node.id,
            slots,
            milli,
            start: start.and_then(|(layout, profile)| layout.best_start(profile)),
        }
    }

    /// The slots, from the lowest.
    pub fn slots(&self) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots;
        (0..32).filter(move |slot| slots >> slot & 1 == 1)
    }

    /// Its group of jobs on a node: 0 for a part of one GPU, else the number of GPUs; or `None`.
    pub(crate) fn shape(&self) -> Option<usize> {
        let gpus = self.slots.count_ones() as usize;
        match gpus {
            0 => None,
            1 if self.milli < WHOLE_MILLI => Some(0),
            _ => Some(gpus),
        }
    }
}

/// Why a job is not placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It would fit into the cluster, but not beside the jobs that are there.
    #[error("no node has room for the job now")]
    Busy,
    /// It would not fit into the cluster if that were empty.
    #[error("no node is large enough for the job and has a GPU model that the job accepts")]
    Never,
}

/// The answer of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job runs on these parts; a gang's parts have all of its GPUs.
    Place(Vec<Part>),
    /// The job waits.
    Wait(Reason),
    /// This cluster can never run the job.
    Refuse(Reason),
}

/// How good a place is: the greater the better, the first number first.
pub type Score = [i64; 3];

/// A place that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its best GPUs for the job.
    pub slots: u32,
    /// Its score.
    pub score: Score,
}

/// A policy. Equal calls in equal order have equal answers.
pub trait Placement {
    /// Where the job goes. `now_ns` is the time since some fixed start. A [`Decision::Wait`] lasts
    /// until a job is released. `candidates` gets every considered single node, in order of ties.
    fn place(
        &mut self,
        view: &View,
        job: &JobSpec,
        now_ns: u64,
        candidates: Option<&mut Vec<Candidate>>,
    ) -> Decision;

    /// Whether no job may pass one of its class that waits for the same models, however short.
    fn is_strict(&self) -> bool {
        false
    }

    /// Jobs run beside each other, and this was measured. A policy that predicts may learn from it.
    fn handle_measured(&mut self, _measured: Measured<'_>) {}
}

/// How the jobs of one GPU run, as it was measured there: what a daemon reports.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// The jobs.
    pub sharers: &'a [Sharer],
    /// Share of the GPU that each uses.
    pub shares: &'a [f64],
    /// Speed of each.
    pub speeds: &'a [f64],
}

/// By which a place on a node is better than another. An answer depends on the node's state, on the
/// job's demands, and on what was learnt, so the search may keep it until one of them changes.
pub trait Rule {
    /// The best GPUs of the node for a job that holds `milli` of each, and their score, if it fits.
    fn score(&self, node: &NodeView<'_>, job: &JobSpec, milli: u32) -> Option<(Score, u32)>;

    /// Whether places depend on present jobs, so that an empty cluster says nothing about them.
    fn needs_neighbours(&self) -> bool {
        false
    }

    /// Learns from measurements; returns whether scores may have changed.
    fn handle_measured(&mut self, _measured: Measured<'_>) -> bool {
        false
    }
}

/// How much of each of its GPUs a job holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The part that it uses alone.
    Demand,
    /// What keeps its promise: its use alone, divided by the part of its time alone in which it
    /// must end ([`JobSpec::slo_milli`]), at most all. Its use alone where it has no promise.
    Promise,
    /// The least with which it makes progress ([`JobSpec::floor_milli`]).
    Floor,
    /// All of it: no job shares it.
    Whole,
}

impl Hold {
    const fn of(self, job: &JobSpec) -> u32 {
        match (self, job.slo_milli) {
            (Self::Promise, Some(slo)) if slo > 0 => {
                let milli = (job.gpu_milli as u64 * 1000).div_ceil(slo as u64);
                if milli > WHOLE_MILLI as u64 {
                    WHOLE_MILLI
                } else {
                    milli as u32
                }
            }
            (Self::Demand | Self::Promise, _) => job.gpu_milli,
            (Self::Floor, _) => job.floor_milli,
            (Self::Whole, _) => WHOLE_MILLI,
        }
    }
}

/// How much jobs of each class hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// High-priority jobs.
    pub high_priority: Hold,
    /// Best-effort jobs.
    pub best_effort: Hold,
}

impl Holding {
    /// All hold as much as they use alone, so that no two jobs ever compete.
    pub const DEMAND: Self = Self::new(Hold::Demand, Hold::Demand);
    /// No job shares a GPU.
    pub const WHOLE: Self = Self::new(Hold::Whole, Hold::Whole);
    /// High-priority jobs share GPUs with each other; best-effort jobs have theirs to themselves.
    pub const SEPARATE: Self = Self::new(Hold::Demand, Hold::Whole);
    /// High-priority jobs hold as much as they use alone, best-effort jobs take the rest.
    pub const ELASTIC: Self = Self::new(Hold::Demand, Hold::Floor);
    /// High-priority jobs hold as much as keeps their promises, best-effort jobs take the rest.
    pub const PROMISED: Self = Self::new(Hold::Promise, Hold::Floor);

    const fn new(high_priority: Hold, best_effort: Hold) -> Self {
        Self {
            high_priority,
            best_effort,
        }
    }

    /// For that job.
    #[must_use]
    pub const fn of(self, job: &JobSpec) -> u32 {
        if job.instance.is_some() {
            return job.gpu_milli;
        }
        match job.class {
            Class::HighPriority => self.high_priority.of(job),
            Class::BestEffort => self.best_effort.of(job),
        }
    }
}
