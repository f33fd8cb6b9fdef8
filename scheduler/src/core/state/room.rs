//! Room for one more client: in total, and of its user.

use policy::JOBS_MAX;
use protocol::hello::JobClass;

use super::{CLIENTS_MAX, State};
use crate::config::limits::HP_ROOM;
use crate::core::job_key::JobKey;

/// Why a client cannot attach; its job then runs unmanaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The client table is full.
    #[error("{CLIENTS_MAX} clients are attached, the limit")]
    Clients,
    /// Too many best-effort jobs.
    #[error("{JOBS_MAX} best-effort jobs are attached, the limit")]
    Jobs,
    /// The remaining places are for high-priority jobs.
    #[error("the last {HP_ROOM} places for clients are reserved for high-priority jobs")]
    HpRoom,
    /// The user has reached its number of clients.
    #[error("{0} clients of your user are attached, as many as [limits] clients_per_user allows")]
    UserClients(usize),
    /// The user's remaining places are for high-priority jobs.
    #[error(
        "{0} best-effort clients of your user are attached; the rest of [limits] clients_per_user \
         is reserved for its high-priority jobs"
    )]
    UserHpRoom(usize),
    /// The user has reached its number of best-effort jobs.
    #[error(
        "{0} best-effort jobs of your user are attached, as many as [limits] jobs_per_user allows"
    )]
    UserJobs(usize),
    /// The daemon is ending.
    #[error("the daemon is shutting down")]
    Closing,
}

impl State {
    /// Whether such a process may attach, before its pages are made; the job's place if present.
    pub(crate) fn check_comer(&self, key: &JobKey) -> Result<Option<usize>, Refused> {
        let job = self.jobs.iter().position(|job| job.key == *key);
        self.check_room(key, job)?;
        self.check_share(key, job)?;
        Ok(job)
    }

    fn check_room(&self, key: &JobKey, job: Option<usize>) -> Result<(), Refused> {
        if self.is_closed {
            return Err(Refused::Closing);
        }
        if self.jobs.iter().map(|job| job.clients.len()).sum::<usize>() >= CLIENTS_MAX {
            return Err(Refused::Clients);
        }
        let best_effort = || self.jobs.iter().filter(|job| job.be_job.is_some());
        if key.class == JobClass::HighPriority {
            return Ok(());
        }
        let clients: usize = best_effort().map(|job| job.clients.len()).sum();
        if clients >= CLIENTS_MAX - HP_ROOM {
            return Err(Refused::HpRoom);
        }
        if job.is_none() && best_effort().count() >= JOBS_MAX {
            return Err(Refused::Jobs);
        }
        Ok(())
    }

    fn check_share(&self, key: &JobKey, job: Option<usize>) -> Result<(), Refused> {
        let limits = self.limits;
        let of_user = || self.jobs.iter().filter(|job| job.key.uid == key.uid);
        let clients: usize = of_user().map(|job| job.clients.len()).sum();
        if clients >= limits.clients_per_user {
            return Err(Refused::UserClients(limits.clients_per_user));
        }
        if key.class == JobClass::HighPriority {
            return Ok(());
        }
        let best_effort = || of_user().filter(|job| job.be_job.is_some());
        let clients: usize = best_effort().map(|job| job.clients.len()).sum();
        let most = limits.clients_per_user - limits.hp_room_of_user();
        if clients >= most {
            return Err(Refused::UserHpRoom(most));
        }
        if job.is_none() && best_effort().count() >= limits.jobs_per_user {
            return Err(Refused::UserJobs(limits.jobs_per_user));
        }
        Ok(())
    }
}
