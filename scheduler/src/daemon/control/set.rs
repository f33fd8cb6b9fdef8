//! Changes of a running job: what it may hold of the GPU's memory and use of its time, what its
//! requests may take, and what it is promised, which the operator alone changes: other users' jobs
//! pay for it.

use std::os::fd::OwnedFd;

use protocol::compute::{self, CapChange};
use protocol::hello::{Reply, Set, send};
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
    /// Changes a running job for a process of that user.
    pub(super) fn set(&self, socket: &OwnedFd, uid: u32, set: &Set) {
        match self.try_set(uid, set) {
            Ok(()) => {
                let changes = [
                    ("it may hold ", &set.memory),
                    ("a request may take ", &set.slo),
                    ("it may use ", &set.compute),
                    ("its weight is ", &set.weight),
                    ("its least share is ", &set.min_progress),
                ];
                for (what, to) in changes.into_iter().filter(|(_, to)| !to.is_empty()) {
                    tracing::info!("job {:?}: {what}{to}", set.job);
                }
                let _ = send(socket, &Reply::Done.encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    /// All of it or nothing: the quota is changed last that can be refused, and then nothing can be any more.
    fn try_set(&self, uid: u32, set: &Set) -> Result<(), String> {
        let whose = Some(uid).filter(|&uid| uid != 0);
        let slo = self.slo_change(whose, set)?;
        let cap = self.cap_change(whose, set)?;
        let promise = self.promise_change(uid, set)?;
        let is_empty = slo.is_none() && cap.is_none() && promise.is_none();
        if !set.memory.is_empty() || is_empty {
            self.set_memory(whose, set)?;
        }
        for (key, change) in keys_of(slo) {
            self.shared.state().handle_slo(&key, change);
            self.shared.ledgers().keep_slo(&key, change);
        }
        for (key, change) in keys_of(cap) {
            self.shared.state().handle_cap(&key, change);
            self.shared.ledgers().keep_cap(&key, change);
        }
        for (key, change) in keys_of(promise) {
            self.set_promise(&key, change);
        }
        self.shared.ring();
        self.shared.note_telemetry();
        Ok(())
    }

    /// Which jobs' requests may take what from now on.
    fn slo_change(&self, whose: Option<u32>, set: &Set) -> Result<Change<SloChange>, String> {
        if set.slo.is_empty() {
            return Ok(None);
        }
        let change = SloChange::parse(&set.slo).ok_or_else(|| {
            let (to, expected, default) = (&set.slo, slo::EXPECTED, slo::DEFAULT);
            format!("what its requests may take is {to:?}; needed is {expected}, or {default}")
        })?;
        let jobs = self.shared.state().slo_jobs(&set.job, whose);
        Ok(Some((jobs.map_err(|refused| refused.to_string())?, change)))
    }

    /// Which jobs may use what from now on.
    fn cap_change(&self, whose: Option<u32>, set: &Set) -> Result<Change<CapChange>, String> {
        if set.compute.is_empty() {
            return Ok(None);
        }
        let change = CapChange::parse(&set.compute).ok_or_else(|| {
            let (to, expected, default) = (&set.compute, compute::EXPECTED, compute::DEFAULT);
            format!("what it may use is {to:?}; needed is {expected}, or {default}")
        })?;
        let jobs = self.shared.state().cap_jobs(&set.job, whose);
        Ok(Some((jobs.map_err(|refused| refused.to_string())?, change)))
    }

    /// Which jobs are promised what from now on.
    fn promise_change(&self, uid: u32, set: &Set) -> Result<Change<Promise>, String> {
        if set.weight.is_empty() && set.min_progress.is_empty() {
            return Ok(None);
        }
        if Viewer::of(uid) != Viewer::Operator {
            let why = "only root and the daemon's own user may change the weight or the least share of a job: \
                       other users' jobs pay for it";
            return Err(why.to_owned());
        }
        let wrong = |what: &str, to: &str, expected: &str| {
            format!(
                "{what} is {to:?}; needed is {expected}, or {}",
                promise::DEFAULT
            )
        };
        let mut change = Promise::default();
        if !set.weight.is_empty() {
            let weight = WeightChange::parse(&set.weight)
                .ok_or_else(|| wrong("its weight", &set.weight, promise::WEIGHT_EXPECTED))?;
            change.weight = Some(weight);
        }
        if !set.min_progress.is_empty() {
            let least = LeastChange::parse(&set.min_progress).ok_or_else(|| {
                wrong(
                    "its least share",
                    &set.min_progress,
                    promise::LEAST_EXPECTED,
                )
            })?;
            change.least = Some(least);
        }
        let jobs = self.shared.state().promise_jobs(&set.job);
        Ok(Some((jobs.map_err(|refused| refused.to_string())?, change)))
    }

    fn set_promise(&self, key: &JobKey, change: Promise) {
        let promise = self.shared.state().handle_promise(key, change);
        self.shared.ledgers().keep_promise(key, promise);
        let word = (!promise.is_default()).then(|| promise.to_word());
        let file = self.granted();
        if let Err(error) = file.keep(key.uid, &key.id, word) {
            tracing::warn!(
                "job {:?}: a daemon that is started anew will not know what it is promised: {}: {error}",
                key.id,
                file.path().display()
            );
        }
    }

    /// What jobs are promised under the next daemon, too.
    fn granted(&self) -> GrantedFile {
        GrantedFile::beside(self.seat.path(), &self.identity.gpu.uuid)
    }

    fn set_memory(&self, whose: Option<u32>, set: &Set) -> Result<(), String> {
        let quota = Quota::parse(&set.memory)
            .filter(|quota| !quota.is_too_small())
            .ok_or_else(|| LedgerError::Quota(set.memory.clone()).to_string())?;
        let mut ledgers = self.shared.ledgers();
        let set_jobs = ledgers.set_quota(&set.job, whose, quota);
        match set_jobs.map_err(|error| error.to_string())? {
            // What another user's jobs are called is not told, not even by the reason.
            0 if whose.is_some() => Err(format!(
                "no job {:?} of your user holds memory of this GPU",
                set.job
            )),
            0 => Err(format!("no job {:?} holds memory of this GPU", set.job)),
            _ => Ok(()),
        }
    }

    /// A process of a job has come: what was changed of the job under the daemon before is changed here.
    pub(super) fn keep_changes(&self, key: &JobKey) {
        let (slo, cap, promise) = {
            let ledgers = self.shared.ledgers();
            let promise = ledgers.promise_of(key);
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

    /// Whether the operator has promised it: the job's processes can write into its ledger.
    fn is_granted(&self, key: &JobKey, promise: Promise) -> bool {
        let file = self.granted();
        let found = file.is_granted(key.uid, &key.id, promise.to_word());
        let path = file.path().display();
        found.unwrap_or_else(|error| {
            tracing::warn!(
                "job {:?} is promised what the configuration says: {path}: {error}",
                key.id
            );
            false
        })
    }
}

/// A change, and of which jobs.
type Change<C> = Option<(Vec<JobKey>, C)>;

fn keys_of<C: Copy>(change: Change<C>) -> impl Iterator<Item = (JobKey, C)> {
    let changes = change.into_iter();
    changes.flat_map(|(keys, change)| keys.into_iter().map(move |key| (key, change)))
}
