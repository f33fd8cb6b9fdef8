//! Changes of a running job: what it may hold of the GPU's memory, and what its requests may take.

use std::os::fd::OwnedFd;

use protocol::hello::{Reply, Set, send};
use protocol::quota::Quota;
use protocol::slo::{self, SloChange};

use super::Control;
use super::away::refuse;
use crate::core::job_key::JobKey;
use crate::core::ledgers::LedgerError;

impl Control {
    /// Changes a running job for a process of that user.
    pub(super) fn set(&self, socket: &OwnedFd, uid: u32, set: &Set) {
        match self.try_set(uid, set) {
            Ok(()) => {
                let changes = [
                    ("it may hold ", &set.memory),
                    ("a request may take ", &set.slo),
                ];
                for (what, to) in changes.into_iter().filter(|(_, to)| !to.is_empty()) {
                    tracing::info!("job {:?}: {what}{to}", set.job);
                }
                let _ = send(socket, &Reply::Done.encode(), &[]);
            }
            Err(reason) => refuse(socket, reason),
        }
    }

    /// All of it or nothing: what requests may take is changed last, by when nothing can be refused any more.
    fn try_set(&self, uid: u32, set: &Set) -> Result<(), String> {
        let whose = Some(uid).filter(|&uid| uid != 0);
        if set.slo.is_empty() {
            return self.set_memory(whose, set);
        }
        let change = SloChange::parse(&set.slo).ok_or_else(|| {
            let (to, expected, default) = (&set.slo, slo::EXPECTED, slo::DEFAULT);
            format!("what its requests may take is {to:?}; needed is {expected}, or {default}")
        })?;
        let jobs = self.shared.state().slo_jobs(&set.job, whose);
        let jobs = jobs.map_err(|refused| refused.to_string())?;
        if !set.memory.is_empty() {
            self.set_memory(whose, set)?;
        }
        for key in &jobs {
            self.shared.state().handle_slo(key, change);
            self.shared.ledgers().keep_slo(key, change);
        }
        self.shared.ring();
        Ok(())
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
    pub(super) fn keep_slo(&self, key: &JobKey) {
        let change = self.shared.ledgers().slo_of(key);
        if let Some(change) = change {
            self.shared.state().handle_slo(key, change);
        }
    }
}
