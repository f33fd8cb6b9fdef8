//! Changes of a running job: its memory quota, its cap on GPU time, its request target, and its
//! promises, which only the operator changes: other users' jobs pay for them.

use std::fmt::Display;
use std::io;
use std::os::fd::OwnedFd;

use protocol::compute::{self, CapChange};
use protocol::hello::{JobClass, Reply, Set, send};
use protocol::promise::{self, LeastChange, Promise, WeightChange};
use protocol::quota::Quota;
use protocol::slo::{self, SloChange};

use super::Control;
use super::away::refuse;
use crate::core::job_key::JobKey;
use crate::core::ledgers::LedgerError;
use crate::host::granted::GrantedFile;
use crate::report::status::Viewer;

impl Control {
    pub(super) fn set(&self, socket: &OwnedFd, uid: u32, set: &Set) {
        match self.try_set(uid, set) {
            Ok(()) => {
                let _ = send(socket, &Reply::Done.encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    /// All or nothing: checks everything before any change, and first writes the file, which may
    /// fail.
    fn try_set(&self, uid: u32, set: &Set) -> Result<(), String> {
        let whose = Some(uid).filter(|&uid| uid != 0);
        let slo = self.slo_change(whose, set)?;
        let cap = self.cap_change(whose, set)?;
        let promise = self.promise_change(uid, set, cap.as_ref())?;
        let is_empty = slo.is_none() && cap.is_none() && promise.is_none();
        let memory = match set.memory.is_empty() && !is_empty {
            true => None,
            false => self.memory_change(whose, set)?,
        };
        if let Some((jobs, _)) = &promise {
            self.keep_granted(jobs)?;
        }
        if let Some((_, quota)) = &memory {
            // Checked above: cannot be refused any more.
            let mut ledgers = self.shared.ledgers();
            let set_jobs = ledgers.set_quota(&set.job, whose, *quota);
            set_jobs.map_err(|error| error.to_string())?;
        }
        for (key, quota) in keys_of(memory) {
            note(uid, &key, "memory quota", quota);
        }
        for (key, change) in keys_of(slo) {
            self.shared.state().handle_slo(&key, change);
            self.shared.ledgers().keep_slo(&key, change);
            note(uid, &key, "latency target", change);
        }
        for (key, change) in keys_of(cap) {
            self.shared.state().handle_cap(&key, change);
            self.shared.ledgers().keep_cap(&key, change);
            note(uid, &key, "cap of the GPU's time", change);
        }
        if let Some((jobs, change)) = promise {
            for (key, promise) in jobs {
                self.shared.state().handle_promise(&key, promise);
                self.shared.ledgers().keep_promise(&key, promise);
                note_promise(uid, &key, change);
            }
        }
        self.shared.ring();
        self.shared.note_telemetry();
        Ok(())
    }

    fn slo_change(&self, whose: Option<u32>, set: &Set) -> Result<Change<SloChange>, String> {
        if set.slo.is_empty() {
            return Ok(None);
        }
        let change = SloChange::parse(&set.slo).ok_or_else(|| {
            let (to, expected, default) = (&set.slo, slo::EXPECTED, slo::DEFAULT);
            format!("latency target {to:?} is invalid; expected {expected}, or {default}")
        })?;
        let jobs = self.shared.state().slo_jobs(&set.job, whose);
        Ok(Some((jobs.map_err(|refused| refused.to_string())?, change)))
    }

    fn cap_change(&self, whose: Option<u32>, set: &Set) -> Result<Change<CapChange>, String> {
        if set.compute.is_empty() {
            return Ok(None);
        }
        let change = CapChange::parse(&set.compute).ok_or_else(|| {
            let (to, expected, default) = (&set.compute, compute::EXPECTED, compute::DEFAULT);
            format!("cap {to:?} is invalid; expected {expected}, or {default}")
        })?;
        let jobs = self.shared.state().cap_jobs(&set.job, whose);
        Ok(Some((jobs.map_err(|refused| refused.to_string())?, change)))
    }

    /// The jobs and their new promises, given the change of caps, and the change itself.
    /// Withdrawing everything needs no present job: another one of its id could claim it.
    fn promise_change(
        &self,
        uid: u32,
        set: &Set,
        cap: Option<&(Vec<JobKey>, CapChange)>,
    ) -> Result<Option<Promised>, String> {
        if set.weight.is_empty() && set.min_progress.is_empty() {
            return Ok(None);
        }
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may change the weight or the least share of a job: \
                       a change takes GPU time from other users' jobs";
            return Err(why.to_owned());
        }
        let change = promise_of(set)?;
        let granted = match change.is_take_back() {
            true => self.granted_jobs(&set.job)?,
            false => Vec::new(),
        };
        let found = self.shared.state().promise_jobs(&set.job, change, cap);
        let mut jobs = match found {
            Err(refused) if granted.is_empty() => return Err(refused.to_string()),
            found => found.unwrap_or_default(),
        };
        for key in granted {
            if jobs.iter().all(|(known, _)| *known != key) {
                jobs.push((key, change));
            }
        }
        Ok(Some((jobs, change)))
    }

    fn granted_jobs(&self, id: &str) -> Result<Vec<JobKey>, String> {
        let file = self.granted();
        let uids = file.users_of(id).map_err(|error| unkept(&file, &error))?;
        let keys = uids.into_iter().map(|uid| JobKey {
            id: id.to_owned(),
            uid,
            class: JobClass::BestEffort,
        });
        Ok(keys.collect())
    }

    fn keep_granted(&self, jobs: &[(JobKey, Promise)]) -> Result<(), String> {
        let known = self.shared.ledgers().best_effort_jobs();
        let words = jobs.iter().map(|(key, promise)| {
            let word = (!promise.is_default()).then(|| promise.to_word());
            (key.clone(), word)
        });
        let words: Vec<(JobKey, Option<u64>)> = words.collect();
        let file = self.granted();
        let kept = file.keep(&words, &known);
        kept.map_err(|error| unkept(&file, &error))
    }

    fn granted(&self) -> GrantedFile {
        GrantedFile::beside(self.seat.path(), &self.identity.gpu.uuid)
    }

    fn memory_change(&self, whose: Option<u32>, set: &Set) -> Result<Change<Quota>, String> {
        let quota = Quota::parse(&set.memory)
            .filter(|quota| !quota.is_too_small())
            .ok_or_else(|| LedgerError::Quota(set.memory.clone()).to_string())?;
        let jobs = self.shared.ledgers().quota_jobs(&set.job, whose, quota);
        let jobs = jobs.map_err(|error| error.to_string())?;
        match jobs.is_empty() {
            // Another user's job names must not leak, not even through the reason.
            true if whose.is_some() => Err(format!(
                "no job {:?} of your user holds memory of this GPU",
                set.job
            )),
            true => Err(format!("no job {:?} holds memory of this GPU", set.job)),
            false => Ok(Some((jobs, quota))),
        }
    }

    /// A process of a job has come: applies the job's changes from the previous daemon.
    pub(super) fn keep_changes(&self, key: &JobKey) {
        let (slo, cap, promise) = {
            let ledgers = self.shared.ledgers();
            // High-priority jobs get no promises, whatever they have written.
            let is_best_effort = key.class == JobClass::BestEffort;
            let promise = ledgers.promise_of(key).filter(|_| is_best_effort);
            (ledgers.slo_of(key), ledgers.cap_of(key), promise)
        };
        if let Some(change) = slo {
            self.shared.state().handle_slo(key, change);
        }
        if let Some(change) = cap {
            self.shared.state().handle_cap(key, change);
        }
        if let Some(promise) = promise.filter(|promise| self.is_granted(key, *promise)) {
            self.shared.state().handle_promise(key, promise);
        }
    }

    /// Whether the operator has granted it: the job's processes can forge their ledger.
    fn is_granted(&self, key: &JobKey, promise: Promise) -> bool {
        let file = self.granted();
        let found = file.is_granted(key.uid, &key.id, promise.to_word());
        let path = file.path().display();
        found.unwrap_or_else(|error| {
            tracing::warn!(
                "job {:?}: using the configuration's weight and least share: cannot read those \
                 that were set: {path}: {error}",
                key.id
            );
            false
        })
    }
}

type Change<C> = Option<(Vec<JobKey>, C)>;
type Promised = (Vec<(JobKey, Promise)>, Promise);

fn keys_of<C: Copy>(change: Change<C>) -> impl Iterator<Item = (JobKey, C)> {
    let changes = change.into_iter();
    changes.flat_map(|(keys, change)| keys.into_iter().map(move |key| (key, change)))
}

fn promise_of(set: &Set) -> Result<Promise, String> {
    let wrong = |what: &str, to: &str, expected: &str| {
        let default = promise::DEFAULT;
        format!("{what} {to:?} is invalid; expected {expected}, or {default}")
    };
    let mut change = Promise::default();
    if !set.weight.is_empty() {
        let weight = WeightChange::parse(&set.weight)
            .ok_or_else(|| wrong("weight", &set.weight, promise::WEIGHT_EXPECTED))?;
        change.weight = Some(weight);
    }
    if !set.min_progress.is_empty() {
        let (to, expected) = (&set.min_progress, promise::LEAST_EXPECTED);
        let least = LeastChange::parse(to).ok_or_else(|| wrong("least share", to, expected))?;
        change.least = Some(least);
    }
    Ok(change)
}

fn unkept(file: &GrantedFile, error: &io::Error) -> String {
    let path = file.path().display();
    format!("cannot save weights and least shares for the next daemon: {path}: {error}")
}

fn note(by: u32, key: &JobKey, what: &str, to: impl Display) {
    let (class, id, uid) = (key.class.name(), &key.id, key.uid);
    tracing::info!("{class} job {id:?} of user {uid}: user {by} has set its {what} to {to}");
}

fn note_promise(by: u32, key: &JobKey, change: Promise) {
    if let Some(weight) = change.weight {
        note(by, key, "weight", weight);
    }
    if let Some(least) = change.least {
        note(by, key, "least share", least);
    }
}
