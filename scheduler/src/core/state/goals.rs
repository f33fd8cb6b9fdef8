//! Request targets of single high-priority jobs that override the configuration.
//! A job may ask for one at its start (`pillion run --slo`): the first of its processes that asks
//! decides for all, as for its memory quota. `pillion set --slo` changes it. Both hold while a
//! process of the job exists, and the change survives a restart of the daemon in the job's ledger
//! ([`protocol::ledger::Ledger::slo`]).

use policy::{Goal, PillionParams, Policy, Slo, SloEnd, SloView};
use protocol::hello::JobClass;
use protocol::slo::{SloAsked, SloChange};

use super::marks::Source;
use super::{Job, State};
use crate::core::event::{Draft, Kind};
use crate::core::job_key::JobKey;

/// After so many unmarked requests a target in ms is reported as useless: marks come earlier.
const UNMARKED: u64 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobGoal {
    asked: Option<SloAsked>,
    set: Option<SloChange>,
    is_unmarked_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Configuration,
    Run,
    Set,
    /// The program's own mark for the kind of most of its requests.
    Marks,
}

impl Origin {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Run => "run",
            Self::Set => "set",
            Self::Marks => "marks",
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SetRefused {
    #[error("no job {0:?} is a client of this GPU's daemon")]
    NoJob(String),
    #[error("no job {0:?} of your user is a client of this GPU's daemon")]
    NoJobOfUser(String),
    #[error("job {0:?} is best-effort: only high-priority jobs have a latency target")]
    BestEffort(String),
    #[error("policy {0} ignores latency targets; nearest is name = \"pillion\" in [policy]")]
    Policy(&'static str),
}

impl JobGoal {
    fn own(&self) -> (Option<Slo>, Origin) {
        match (self.set, self.asked) {
            (Some(SloChange::To(asked)), _) => (Some(slo_of(asked)), Origin::Set),
            (None, Some(asked)) => (Some(slo_of(asked)), Origin::Run),
            (Some(SloChange::Default), _) | (None, None) => (None, Origin::Configuration),
        }
    }

    /// The goal for the policy; none where the configuration holds.
    fn for_policy(&self, params: Option<&PillionParams>) -> Option<Goal> {
        let (slo, params) = (self.own().0?, params?);
        // A request is a number; the configuration decides whether it bounds a mean or quantile.
        let is_mean = matches!(params.slo, Some(Slo::MeanSlowdown(_) | Slo::MeanNs(_)));
        Some(Goal {
            slo: if is_mean { slo.of_mean() } else { slo },
            miss: params.miss,
        })
    }

    pub(crate) fn in_force(&self, params: &PillionParams, is_marked: bool) -> (Goal, Origin) {
        let goal = self.for_policy(Some(params));
        let goal = goal.unwrap_or_else(|| params.goal(is_marked));
        (goal, self.own().1)
    }

    pub(super) fn handle_asked(&mut self, key: &JobKey, asked: &str) {
        if asked.is_empty() || key.class != JobClass::HighPriority {
            return;
        }
        match (SloAsked::parse(asked), self.asked) {
            (Some(asked), None) => self.asked = Some(asked),
            (Some(asked), Some(known)) if asked != known => tracing::warn!(
                "job {:?} keeps its target of {known}; a process of it requested {asked}, which is \
                 ignored",
                key.id
            ),
            (Some(_), Some(_)) => {}
            (None, _) => tracing::warn!(
                "job {:?} requested a target of {asked:?}, which is invalid and ignored",
                key.id
            ),
        }
    }
}

fn slo_of(asked: SloAsked) -> Slo {
    match asked {
        SloAsked::Times(times) => Slo::Slowdown(times),
        SloAsked::Ns(ns) => Slo::LatencyNs(ns),
    }
}

impl State {
    /// Parameters of `pillion`, the only policy with request targets.
    pub(crate) fn pillion(&self) -> Option<&PillionParams> {
        match self.gate.policy() {
            Policy::Pillion(params) => Some(params),
            _ => None,
        }
    }

    /// How a job keeps its target: the view of the client with the least level, which binds, with
    /// the counts of all (of unjudged ones only if all are). None while no client marks, or the
    /// policy does not know the last change.
    pub(crate) fn slo_view(&self, job: &Job) -> Option<SloView> {
        let goal = job.goal.for_policy(self.pillion());
        let told = job.clients.iter().filter(|client| client.goal_told == goal);
        let views = || {
            let clients = told.clone();
            clients.filter_map(|client| self.gate.slo_view(client.id))
        };
        let is_learning = |view: &SloView| view.end == SloEnd::Learning;
        let least = views().min_by(|a, b| {
            let by_level = a.level.total_cmp(&b.level);
            is_learning(a).cmp(&is_learning(b)).then(by_level)
        })?;
        let sum = |count: fn(&SloView) -> u64| views().map(|view| count(&view)).sum();
        Some(SloView {
            requests: sum(|view| view.requests),
            misses: sum(|view| view.misses),
            misses_at_floor: sum(|view| view.misses_at_floor),
            ..least
        })
    }

    /// The high-priority jobs of that id, of all users if `uid` is none, whose goal may change.
    pub(crate) fn slo_jobs(&self, id: &str, uid: Option<u32>) -> Result<Vec<JobKey>, SetRefused> {
        let is_meant = |job: &&Job| job.key.id == id && uid.is_none_or(|uid| uid == job.key.uid);
        let meant = || self.jobs.iter().filter(is_meant).map(|job| &job.key);
        let high = meant().filter(|key| key.class == JobClass::HighPriority);
        let high: Vec<JobKey> = high.cloned().collect();
        let id = id.to_owned();
        match (high.is_empty(), meant().next(), uid) {
            (false, ..) if self.pillion().is_some() => Ok(high),
            (false, ..) => Err(SetRefused::Policy(self.gate.policy().name())),
            (true, Some(_), _) => Err(SetRefused::BestEffort(id)),
            // Another user's job names must not leak, not even through the reason.
            (true, None, Some(_)) => Err(SetRefused::NoJobOfUser(id)),
            (true, None, None) => Err(SetRefused::NoJob(id)),
        }
    }

    /// A job's target changes, here or, by its ledger, under the previous daemon.
    pub(crate) fn handle_slo(&mut self, key: &JobKey, change: SloChange) {
        let mut jobs = self.jobs.iter_mut();
        let is_it = |job: &&mut Job| job.key == *key && key.class == JobClass::HighPriority;
        if let Some(job) = jobs.find(is_it)
            && job.goal.set != Some(change)
        {
            job.goal.set = Some(change);
            job.goal.is_unmarked_told = false;
        }
    }

    /// Passes changed goals of clients to the policy. Before the policy gets requests.
    pub(super) fn hand_over_goals(&mut self) {
        let params = match self.gate.policy() {
            Policy::Pillion(params) => Some(*params),
            _ => None,
        };
        for job in &mut self.jobs {
            let goal = job.goal.for_policy(params.as_ref());
            for client in &mut job.clients {
                if client.hp_client.is_some() && client.goal_told != goal {
                    self.gate.handle_goal(client.id, goal);
                    client.goal_told = goal;
                }
            }
        }
    }

    /// Reports, once each, the jobs with a time target that mark no requests: inferred requests
    /// have no arrival time, so such a target is not kept.
    pub(crate) fn take_unmarked(&mut self) -> Vec<Draft> {
        let Some(params) = self.pillion().copied() else {
            return Vec::new();
        };
        let jobs = self
            .jobs
            .iter_mut()
            .filter(|job| !job.goal.is_unmarked_told);
        let jobs = jobs.filter_map(|job| {
            let goal = job.goal.in_force(&params, true).0;
            let client = job.clients.iter().find(|client| {
                let marks = client.hp_client.as_ref().map(|hp_client| hp_client.marks());
                let inferred = marks.filter(|marks| marks.source() == Source::Inferred);
                inferred.is_some_and(|marks| marks.all_inferred() >= UNMARKED)
            })?;
            let is_time = matches!(goal.slo, Slo::LatencyNs(_) | Slo::MeanNs(_));
            is_time.then(|| {
                job.goal.is_unmarked_told = true;
                let text = format!(
                    "job {:?} has a target of {}, but its program marks no requests: their arrival \
                     is unknown, so the target is not held {}",
                    job.key.id,
                    goal.slo,
                    if goal.slo.is_mean() {
                        "as a mean"
                    } else {
                        "at a quantile"
                    }
                );
                let draft = Draft::new(Kind::SloUnmarked, text);
                draft.of_job(&job.key).pid(client.peer.pid)
            })
        });
        jobs.collect()
    }
}
