//! What single best-effort jobs may use of the GPU's time: the most ([`policy::usage`]), and what
//! they were promised ([`policy::terms`]).
//!
//! A job may ask for a cap when it starts (`pillion run --compute`): the first of its processes
//! that asks speaks for all, as with its quota of memory. `pillion set --compute` changes it. Both
//! hold while a process of the job is there, and the change outlives this daemon in the job's
//! ledger ([`protocol::ledger::Ledger::compute`]). What the operator's rule says (`[jobs.NAME]
//! max_share`) is the most that either may come to.
//!
//! What a job is promised is the operator's to say, in a rule or by `pillion set --weight` and
//! `--min-progress`, which goes before the rule, as long, and outlives this daemon
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

/// What a job says of the most that it may use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobCap {
    asked: Option<Cap>,
    set: Option<CapChange>,
    /// What was changed of its promises.
    promise: Promise,
    /// What the job owes since it was here before.
    debt: Option<Debt>,
    /// The sum of its clients' numbers when what they use was measured last.
    measured: u64,
    /// What the rules say of the job; nothing: that is to be looked for.
    ruled: Option<Ruled>,
    /// The share of the SMs that it was started with, per cent, if it may be started anew.
    pub(super) started_with: Option<u32>,
    /// It is being ended for another one.
    pub(super) is_stale: bool,
    /// It was ended for another share while it had this one, per cent, and has begun again.
    pub(super) ended_with: Option<u32>,
}

/// What the operator's rules say of a job.
#[derive(Clone, Copy, Debug)]
struct Ruled {
    most: Cap,
    /// Place of the rule that promises it something.
    promise: Option<usize>,
}

/// What a best-effort job is promised, and who says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Promised {
    /// Quanta in its turns.
    pub(crate) weight: (u32, CapOrigin),
    /// Least share of its rate alone, 0 to 1; 0 promises nothing.
    pub(crate) least: (f64, CapOrigin),
}

/// Where the cap comes from that is in force, or a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapOrigin {
    /// The daemon's configuration; it may be that it says nothing.
    Configuration,
    /// The job asked for it.
    Run,
    /// It was changed.
    Set,
}

impl CapOrigin {
    /// The word in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Run => "run",
            Self::Set => "set",
        }
    }
}

/// Why a job's cap is not changed. For who asks.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CapRefused {
    #[error("no job {0:?} is a client of this GPU's daemon")]
    NoJob(String),
    #[error("no job {0:?} of your user is a client of this GPU's daemon")]
    NoJobOfUser(String),
    #[error(
        "job {0:?} is high-priority, which nothing holds back: only best-effort jobs have a cap"
    )]
    HighPriority(String),
}

/// Why what a job is promised is not changed. For who asks, who is the operator.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PromiseRefused {
    #[error("no job {0:?} is a client of this GPU's daemon")]
    NoJob(String),
    #[error(
        "job {0:?} is high-priority, which waits for no turn: only best-effort jobs have a weight and a least share"
    )]
    HighPriority(String),
    #[error(
        "policy {0} does not look at weights and least shares; nearest is name = \"pillion\" in [policy]"
    )]
    Policy(&'static str),
    #[error("its least share is {least}, and its cap lets job {id:?} have less; nearest is {cap}")]
    Cap { id: String, least: Least, cap: Cap },
}

/// Whether a rule says more than a cap.
fn promises(rule: &JobRule) -> bool {
    rule.weight != 1 || rule.min_progress > 0.0
}

/// Whether jobs are promised other things by one than by the other; caps aside, which the policy is
/// told at each poll.
pub(super) fn differ(some: &[JobRule], others: &[JobRule]) -> bool {
    fn promised(rules: &[JobRule]) -> impl Iterator<Item = (&str, u32, f64)> {
        let promised = rules.iter().filter(|rule| promises(rule));
        promised.map(|rule| (&*rule.name, rule.weight, rule.min_progress))
    }
    !promised(some).eq(promised(others))
}

impl JobCap {
    /// What is kept of it when the job has ended.
    pub(super) fn of_ended(self, debt: Option<Debt>) -> Self {
        Self {
            debt,
            ended_with: self.started_with.filter(|_| self.is_stale),
            ..Self::default()
        }
    }

    /// `most` is what the operator allows.
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

    /// What holds where that rule says something of it.
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

    /// Its processes are others, or the rules are.
    pub(super) fn forget_rules(&mut self) {
        self.ruled = None;
    }

    /// A process of the job asks for that cap; empty: for none. `restartable` is what it says of its
    /// start ([`protocol::hello::Attach::restartable`]).
    pub(super) fn handle_asked(&mut self, key: &JobKey, asked: &str, restartable: &str) {
        if key.class != JobClass::BestEffort {
            return;
        }
        self.ruled = None;
        // Of several processes the last: who was started anew has the share of now.
        self.is_stale = false;
        self.started_with = restartable.parse().ok();
        if asked.is_empty() {
            return;
        }
        match (Cap::parse(asked), self.asked) {
            (Some(asked), None) => self.asked = Some(asked),
            (Some(asked), Some(known)) if asked != known => tracing::warn!(
                "job {:?} keeps its cap of {known}; a process of it asks for {asked}",
                key.id
            ),
            (Some(_), Some(_)) => {}
            (None, _) => tracing::warn!(
                "job {:?} asks for a cap of {asked:?}, which says nothing",
                key.id
            ),
        }
    }
}

impl Job {
    /// The operator's rules for it, by its id or the name of a program of it.
    fn rules<'r>(&self, rules: &'r [JobRule]) -> impl Iterator<Item = &'r JobRule> {
        rules.iter().filter(|rule| {
            let mut programs = self.clients.iter().map(|client| &client.name);
            rule.name == self.key.id || programs.any(|name| *name == rule.name)
        })
    }

    /// The most that the rules allow it. Of several the least holds: which name a job has is its
    /// user's to say.
    fn most(&self, rules: &[JobRule]) -> Cap {
        let most = self.rules(rules).filter_map(|rule| rule.max_share).min();
        most.unwrap_or(Cap::NONE)
    }

    /// The most that it may use, and who says so.
    fn cap_by(&self, rules: &[JobRule]) -> (Cap, CapOrigin) {
        self.cap.in_force(self.most(rules))
    }

    /// The most that it may use once that is changed of it; none: nothing.
    fn cap_with(&self, change: Option<CapChange>, rules: &[JobRule]) -> Cap {
        let cap = JobCap {
            set: change.or(self.cap.set),
            ..self.cap
        };
        cap.in_force(self.most(rules)).0
    }

    /// What the rules say of it, found by its names once.
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

    /// What it was promised, and whether it gets it; `None` for a high-priority job, and one that
    /// nobody has promised anything.
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
            // Nobody can give it more than it may have.
            is_behind: share < promised.least.0.min(cap.share()),
        };
        Some((be_job.id(), terms))
    }
}

impl State {
    /// The most that a best-effort job may use, and who says so.
    pub(crate) fn cap(&self, job: &Job) -> (Cap, CapOrigin) {
        job.cap_by(&self.rules)
    }

    /// What a best-effort job is promised; none where the policy does not look at that.
    pub(crate) fn promised(&self, job: &Job) -> Option<Promised> {
        (job.be_job.is_some() && self.pillion().is_some()).then(|| {
            let rule = job.rules(&self.rules).find(|rule| promises(rule));
            job.cap.promised(rule)
        })
    }

    /// Tells the policy what jobs may use. Before it hears of what they have used.
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

    /// Whether a law goes by what the device is read to do: a job has a cap, or a high-priority one is
    /// there and best-effort work is throttled.
    pub(crate) fn wants_telemetry(&self) -> bool {
        self.has_caps() || self.is_throttled()
    }

    /// Whether a job has a cap.
    pub(crate) fn has_caps(&self) -> bool {
        let mut jobs = self.jobs.iter().filter(|job| job.be_job.is_some());
        jobs.any(|job| self.cap(job).0 < Cap::NONE)
    }

    /// Whether a high-priority job is there, and a throttle.
    pub(crate) fn is_throttled(&self) -> bool {
        let is_set = self.gate.throttle_view(0).is_some();
        is_set && self.jobs.iter().any(|job| job.be_job.is_none())
    }

    /// The device was read.
    pub(crate) fn handle_reading(&mut self, now_ns: u64, reading: DeviceReading) {
        self.gate.handle_reading(now_ns, reading);
    }

    /// Processes were measured to compute in so much of the time lately, 0 to 1; others did not, or
    /// are not seen. Of a job of which a process cannot be seen nothing follows, and where one came
    /// or left it begins anew: what it had charged is in the job's sum.
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

    /// Tells the policy what jobs were promised.
    pub(super) fn hand_over_terms(&mut self) {
        for job in &mut self.jobs {
            if let Some((id, terms)) = job.terms(&self.rules) {
                self.gate.handle_terms(id, terms);
            }
        }
    }

    /// The best-effort jobs of that id, and of that user unless `uid` is none, whose cap may be
    /// changed ([`Self::handle_cap`]).
    ///
    /// # Errors
    ///
    /// There is none.
    pub(crate) fn cap_jobs(&self, id: &str, uid: Option<u32>) -> Result<Vec<JobKey>, CapRefused> {
        let is_meant = |job: &&Job| job.key.id == id && uid.is_none_or(|uid| uid == job.key.uid);
        let meant = || self.jobs.iter().filter(is_meant).map(|job| &job.key);
        let best_effort = meant().filter(|key| key.class == JobClass::BestEffort);
        let best_effort: Vec<JobKey> = best_effort.cloned().collect();
        match (best_effort.is_empty(), meant().next(), uid) {
            (false, ..) => Ok(best_effort),
            (true, Some(_), _) => Err(CapRefused::HighPriority(id.to_owned())),
            // What another user's jobs are called is not told, not even by the reason.
            (true, None, Some(_)) => Err(CapRefused::NoJobOfUser(id.to_owned())),
            (true, None, None) => Err(CapRefused::NoJob(id.to_owned())),
        }
    }

    /// A job's cap is changed, here or, as its ledger says, under the daemon before.
    pub(crate) fn handle_cap(&mut self, key: &JobKey, change: CapChange) {
        let is_it = |job: &&mut Job| job.key == *key && key.class == JobClass::BestEffort;
        if let Some(job) = self.jobs.iter_mut().find(is_it) {
            job.cap.set = Some(change);
        }
    }

    /// The best-effort jobs of that id, whose promises may be changed ([`Self::handle_promise`]),
    /// and what of each is changed then, with what was before. `cap` is changed with it.
    ///
    /// # Errors
    ///
    /// There is none, or nobody would look at it; but it may always be taken back. Or a job could
    /// not have as much as its least share.
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

    /// What a job is promised is changed, here or under the daemon before.
    pub(crate) fn handle_promise(&mut self, key: &JobKey, change: Promise) {
        let is_it = |job: &&mut Job| job.key == *key && key.class == JobClass::BestEffort;
        if let Some(job) = self.jobs.iter_mut().find(is_it) {
            job.cap.promise = job.cap.promise.changed_by(change);
        }
    }
}
