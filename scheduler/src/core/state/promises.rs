//! GPU time of single best-effort jobs: their caps ([`policy::usage`]) and promises
//! ([`policy::terms`]).
//!
//! A job may ask for a cap at its start (`pillion run --compute`): the first of its processes that
//! asks decides for all, as for its memory quota. `pillion set --compute` changes it. Both hold
//! while a process of the job exists, and the change survives a restart of the daemon in the job's
//! ledger ([`protocol::ledger::Ledger::compute`]). The operator's rule (`[jobs.NAME] max_share`)
//! bounds both.
//!
//! Only the operator promises, in a rule or by `pillion set --weight` and `--min-progress`. The
//! latter overrides the rule, holds as long, and survives a restart of the daemon
//! ([`protocol::ledger::Ledger::promise`], [`crate::host::granted`]).

use policy::usage::Debt;
use policy::{DeviceReading, JobId, JobTerms};
use protocol::compute::{Cap, CapChange};
use protocol::hello::JobClass;
use protocol::promise::{self, Change, Least, Promise};

use super::{Job, State};
use crate::config::JobRule;
use crate::core::job_key::JobKey;

const _: () = assert!(policy::terms::WEIGHT_MAX == promise::WEIGHT_MAX as u32);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobCap {
    asked: Option<Cap>,
    set: Option<CapChange>,
    promise: Promise,
    debt: Option<Debt>,
    /// Sum of its clients' numbers at the last measurement of use.
    measured: u64,
    /// Rules for the job; none: not looked up yet.
    ruled: Option<Ruled>,
    /// Share of the SMs at its start, per cent, if it may be restarted.
    pub(super) started_with: Option<u32>,
    pub(super) is_stale: bool,
    /// Was ended for another share while it had this one, per cent, and has started again.
    pub(super) ended_with: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Ruled {
    most: Cap,
    promise: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Promised {
    /// Quanta in its turns.
    pub(crate) weight: (u32, CapOrigin),
    /// Least share of its rate alone, 0 to 1; 0 promises nothing.
    pub(crate) least: (f64, CapOrigin),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapOrigin {
    Configuration,
    Run,
    Set,
}

impl CapOrigin {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Run => "run",
            Self::Set => "set",
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CapRefused {
    #[error("no job {0:?} is a client of this GPU's daemon")]
    NoJob(String),
    #[error("no job {0:?} of your user is a client of this GPU's daemon")]
    NoJobOfUser(String),
    #[error("job {0:?} is high-priority and never held: only best-effort jobs have a cap")]
    HighPriority(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PromiseRefused {
    #[error("no job {0:?} is a client of this GPU's daemon")]
    NoJob(String),
    #[error(
        "job {0:?} is high-priority and takes no turns: only best-effort jobs have a weight and a \
         least share"
    )]
    HighPriority(String),
    #[error(
        "policy {0} ignores weights and least shares; nearest is name = \"pillion\" in [policy]"
    )]
    Policy(&'static str),
    #[error("least share {least} exceeds the cap of job {id:?}; nearest is {cap}")]
    Cap { id: String, least: Least, cap: Cap },
}

/// Whether a rule contains more than a cap.
fn promises(rule: &JobRule) -> bool {
    rule.weight != 1 || rule.min_progress > 0.0
}

/// Whether two sets of rules differ in promises; the policy gets caps at each poll.
pub(super) fn differ(some: &[JobRule], others: &[JobRule]) -> bool {
    fn promised(rules: &[JobRule]) -> impl Iterator<Item = (&str, u32, f64)> {
        let promised = rules.iter().filter(|rule| promises(rule));
        promised.map(|rule| (&*rule.name, rule.weight, rule.min_progress))
    }
    !promised(some).eq(promised(others))
}

impl JobCap {
    pub(super) fn of_ended(self, debt: Option<Debt>) -> Self {
        Self {
            debt,
            ended_with: self.started_with.filter(|_| self.is_stale),
            ..Self::default()
        }
    }

    fn in_force(&self, most: Cap) -> (Cap, CapOrigin) {
        let (own, origin) = match (self.set, self.asked) {
            (Some(CapChange::To(cap)), _) => (cap, CapOrigin::Set),
            (None, Some(cap)) => (cap, CapOrigin::Run),
            (Some(CapChange::Default), _) | (None, None) => (most, CapOrigin::Configuration),
        };
        match own <= most {
            true => (own, origin),
            false => (most, CapOrigin::Configuration),
        }
    }

    fn promised(&self, rule: Option<&JobRule>) -> Promised {
        Promised {
            weight: match self.promise.weight {
                Some(Change::To(weight)) => (weight.quanta(), CapOrigin::Set),
                Some(Change::Default) | None => {
                    let weight = rule.map_or(1, |rule| rule.weight);
                    (weight, CapOrigin::Configuration)
                }
            },
            least: match self.promise.least {
                Some(Change::To(least)) => (least.share(), CapOrigin::Set),
                Some(Change::Default) | None => {
                    let least = rule.map_or(0.0, |rule| rule.min_progress);
                    (least, CapOrigin::Configuration)
                }
            },
        }
    }

    pub(super) fn forget_rules(&mut self) {
        self.ruled = None;
    }

    /// A process of the job asks for that cap; empty: for none. `restartable` is its report of its
    /// start ([`protocol::hello::Attach::restartable`]).
    pub(super) fn handle_asked(&mut self, key: &JobKey, asked: &str, restartable: &str) {
        if key.class != JobClass::BestEffort {
            return;
        }
        self.ruled = None;
        // The last of several processes counts: a restarted one has the current share.
        self.is_stale = false;
        self.started_with = restartable.parse().ok();
        if asked.is_empty() {
            return;
        }
        match (Cap::parse(asked), self.asked) {
            (Some(asked), None) => self.asked = Some(asked),
            (Some(asked), Some(known)) if asked != known => tracing::warn!(
                "job {:?} keeps its cap of {known}; a process of it requested {asked}, which is \
                 ignored",
                key.id
            ),
            (Some(_), Some(_)) => {}
            (None, _) => tracing::warn!(
                "job {:?} requested a cap of {asked:?}, which is invalid and ignored",
                key.id
            ),
        }
    }
}

impl Job {
    fn rules<'r>(&self, rules: &'r [JobRule]) -> impl Iterator<Item = &'r JobRule> {
        rules.iter().filter(|rule| {
            let mut programs = self.clients.iter().map(|client| &client.name);
            rule.name == self.key.id || programs.any(|name| *name == rule.name)
        })
    }

    /// The rules' bound; the least of several, because the user chooses the job's name.
    fn most(&self, rules: &[JobRule]) -> Cap {
        let most = self.rules(rules).filter_map(|rule| rule.max_share).min();
        most.unwrap_or(Cap::NONE)
    }

    fn cap_by(&self, rules: &[JobRule]) -> (Cap, CapOrigin) {
        self.cap.in_force(self.most(rules))
    }

    fn cap_with(&self, change: Option<CapChange>, rules: &[JobRule]) -> Cap {
        let cap = JobCap {
            set: change.or(self.cap.set),
            ..self.cap
        };
        cap.in_force(self.most(rules)).0
    }

    fn ruled(&mut self, rules: &[JobRule]) -> Ruled {
        if let Some(ruled) = self.cap.ruled {
            return ruled;
        }
        let most = self.most(rules);
        let promise = self.rules(rules).find(|rule| promises(rule));
        let place = |found: &JobRule| rules.iter().position(|rule| core::ptr::eq(rule, found));
        *self.cap.ruled.insert(Ruled {
            most,
            promise: promise.and_then(place),
        })
    }

    /// Its promises, and whether they are kept; `None` for high-priority and without promises.
    fn terms(&mut self, rules: &[JobRule]) -> Option<(JobId, JobTerms)> {
        let ruled = self.ruled(rules);
        let rule = ruled.promise.and_then(|place| rules.get(place));
        if rule.is_none() && self.cap.promise == Promise::default() {
            return None;
        }
        let promised = self.cap.promised(rule);
        let (cap, _) = self.cap.in_force(ruled.most);
        let be_job = self.be_job.as_ref()?;
        let share = be_job.progress().share().map_or(1.0, |share| share.value());
        let terms = JobTerms {
            weight: promised.weight.0,
            // A promise cannot exceed the cap.
            is_behind: share < promised.least.0.min(cap.share()),
        };
        Some((be_job.id(), terms))
    }
}

impl State {
    pub(crate) fn cap(&self, job: &Job) -> (Cap, CapOrigin) {
        job.cap_by(&self.rules)
    }

    /// A best-effort job's promises; none where the policy ignores them.
    pub(crate) fn promised(&self, job: &Job) -> Option<Promised> {
        (job.be_job.is_some() && self.pillion().is_some()).then(|| {
            let rule = job.rules(&self.rules).find(|rule| promises(rule));
            job.cap.promised(rule)
        })
    }

    /// Hands caps to the policy, before it gets the use.
    pub(super) fn hand_over_caps(&mut self, now_ns: u64) {
        for job in &mut self.jobs {
            let most = job.ruled(&self.rules).most;
            if let Some(be_job) = &job.be_job {
                let (cap, _) = job.cap.in_force(most);
                self.gate.handle_cap(be_job.id(), cap.share());
                if let Some(debt) = job.cap.debt.take() {
                    self.gate.restore_debt(now_ns, be_job.id(), debt);
                }
            }
        }
    }

    /// Whether a law needs readings: a job's cap, or a throttle beside a high-priority job.
    pub(crate) fn wants_telemetry(&self) -> bool {
        self.has_caps() || self.is_throttled()
    }

    pub(crate) fn has_caps(&self) -> bool {
        let mut jobs = self.jobs.iter().filter(|job| job.be_job.is_some());
        jobs.any(|job| self.cap(job).0 < Cap::NONE)
    }

    pub(crate) fn is_throttled(&self) -> bool {
        let is_set = self.gate.throttle_view(0).is_some();
        is_set && self.jobs.iter().any(|job| job.be_job.is_none())
    }

    pub(crate) fn handle_reading(&mut self, now_ns: u64, reading: DeviceReading) {
        self.gate.handle_reading(now_ns, reading);
    }

    /// Handles measured compute times of processes, as shares from 0 to 1; others did not compute,
    /// or are invisible. A job with an invisible process is not measured. If a process came or
    /// left, the job's measurement restarts: its charges are in the job's sum.
    pub(crate) fn handle_uses(
        &mut self,
        now_ns: u64,
        uses: impl Iterator<Item = (u32, f64)> + Clone,
    ) {
        for job in &mut self.jobs {
            let Some(be_job) = &job.be_job else { continue };
            let mut pids = job.clients.iter().map(|client| client.peer.pid);
            if pids.any(|pid| pid == 0) {
                continue;
            }
            let numbers = job.clients.iter().map(|client| client.id);
            let clients = numbers.fold(job.clients.len() as u64, u64::wrapping_add);
            if std::mem::replace(&mut job.cap.measured, clients) != clients {
                self.gate.handle_other_processes(be_job.id());
            }
            let its = uses.clone().filter(|(pid, _)| {
                let mut clients = job.clients.iter();
                clients.any(|client| client.peer.pid == *pid)
            });
            let share = its.map(|(_, share)| share).sum();
            self.gate.handle_busy(now_ns, be_job.id(), share);
        }
    }

    pub(super) fn hand_over_terms(&mut self) {
        for job in &mut self.jobs {
            if let Some((id, terms)) = job.terms(&self.rules) {
                self.gate.handle_terms(id, terms);
            }
        }
    }

    /// The best-effort jobs of that id, of all users if `uid` is none, whose cap may change.
    pub(crate) fn cap_jobs(&self, id: &str, uid: Option<u32>) -> Result<Vec<JobKey>, CapRefused> {
        let is_meant = |job: &&Job| job.key.id == id && uid.is_none_or(|uid| uid == job.key.uid);
        let meant = || self.jobs.iter().filter(is_meant).map(|job| &job.key);
        let best_effort = meant().filter(|key| key.class == JobClass::BestEffort);
        let best_effort: Vec<JobKey> = best_effort.cloned().collect();
        match (best_effort.is_empty(), meant().next(), uid) {
            (false, ..) => Ok(best_effort),
            (true, Some(_), _) => Err(CapRefused::HighPriority(id.to_owned())),
            // Another user's job names must not leak, not even through the reason.
            (true, None, Some(_)) => Err(CapRefused::NoJobOfUser(id.to_owned())),
            (true, None, None) => Err(CapRefused::NoJob(id.to_owned())),
        }
    }

    pub(crate) fn handle_cap(&mut self, key: &JobKey, change: CapChange) {
        let is_it = |job: &&mut Job| job.key == *key && key.class == JobClass::BestEffort;
        if let Some(job) = self.jobs.iter_mut().find(is_it) {
            job.cap.set = Some(change);
        }
    }

    /// The best-effort jobs of that id, each with its promise after the change; `cap`: a change of
    /// caps in the same request. Error: no such job, a policy that ignores promises (they may
    /// always be withdrawn), or a cap below the least share.
    pub(crate) fn promise_jobs(
        &self,
        id: &str,
        change: Promise,
        cap: Option<&(Vec<JobKey>, CapChange)>,
    ) -> Result<Vec<(JobKey, Promise)>, PromiseRefused> {
        let is_looked_at = self.pillion().is_some() || change.is_take_back();
        let keys = match self.cap_jobs(id, None) {
            Ok(keys) if is_looked_at => keys,
            Ok(_) => return Err(PromiseRefused::Policy(self.gate.policy().name())),
            Err(CapRefused::HighPriority(id)) => return Err(PromiseRefused::HighPriority(id)),
            Err(_) => return Err(PromiseRefused::NoJob(id.to_owned())),
        };
        let jobs = self.jobs.iter().filter(|job| keys.contains(&job.key));
        let promised = jobs.map(|job| {
            let cap = cap.filter(|(keys, _)| keys.contains(&job.key));
            let cap = job.cap_with(cap.map(|(_, change)| *change), &self.rules);
            match change.least {
                Some(Change::To(least)) if least.share() > cap.share() => {
                    let id = id.to_owned();
                    Err(PromiseRefused::Cap { id, least, cap })
                }
                _ => Ok((job.key.clone(), job.cap.promise.changed_by(change))),
            }
        });
        promised.collect()
    }

    pub(crate) fn handle_promise(&mut self, key: &JobKey, change: Promise) {
        let is_it = |job: &&mut Job| job.key == *key && key.class == JobClass::BestEffort;
        if let Some(job) = self.jobs.iter_mut().find(is_it) {
            job.cap.promise = job.cap.promise.changed_by(change);
        }
    }
}
