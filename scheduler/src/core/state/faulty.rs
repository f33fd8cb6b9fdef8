//! Clients that reported a lost context, progress of work, and holds for faults.

use core::sync::atomic::Ordering;
use std::collections::{BTreeSet, VecDeque};

use abi::types::CUresult;
use protocol::pages::Counter;

use super::{BeJob, Client, Job, State};
use crate::core::job_key::JobKey;

/// Uncollected sticky errors of departed clients: more than there can be clients.
const GONE_MAX: usize = super::CLIENTS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sticky {
    pub(crate) key: JobKey,
    pub(crate) pid: u32,
    pub(crate) code: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    all: Option<String>,
    /// All best-effort jobs of these users are held. At most [`HELD_USERS_MAX`].
    users: Vec<(u32, String)>,
    /// These jobs are held. At most [`HELD_JOBS_PER_USER`] of a user.
    jobs: Vec<(JobKey, String)>,
    /// Users whose jobs exceed [`HELD_USERS_MAX`], as reported; at most as many, oldest first.
    pub(super) refused: VecDeque<u32>,
    draining: Option<String>,
    /// Arriving best-effort jobs wait while set.
    pub(super) probe: Option<String>,
    /// So do jobs that ran under a previous daemon.
    pub(super) is_for_returned: bool,
    /// Present jobs that wait for [`Self::probe`].
    pub(super) waiting: Vec<JobKey>,
    /// Every best-effort job is held until MPS serves again, which ends the hold.
    for_mps: Option<String>,
}

/// Jobs of one user held by name. A user with more, perhaps by renaming them, has all held.
pub(crate) const HELD_JOBS_PER_USER: usize = 16;
/// Users with all jobs held; further users' jobs are held by name only.
pub(crate) const HELD_USERS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose<'a> {
    Job(&'a JobKey),
    User(u32),
    Everybody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewlyHeld {
    Job,
    User(u32),
    All,
    /// Nobody, as [`HELD_USERS_MAX`] users' jobs are held. Returned once, until there is room.
    Nobody(u32),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) jobs: Vec<JobKey>,
    pub(crate) others: usize,
}

impl Released {
    pub(crate) fn is_nothing(&self) -> bool {
        self.jobs.is_empty() && self.others == 0
    }
}

impl Holds {
    pub(crate) fn draining(&self) -> Option<&str> {
        self.draining.as_deref()
    }

    pub(crate) fn why_waiting(&self, key: &JobKey) -> Option<&str> {
        let waits = self.waiting.contains(key);
        self.probe.as_deref().filter(|_| waits)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn listed(&self) -> impl Iterator<Item = (Whose<'_>, &str)> {
        let all = self.all.iter().map(|why| (Whose::Everybody, why.as_str()));
        let users = self.users.iter();
        let users = users.map(|(uid, why)| (Whose::User(*uid), why.as_str()));
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|(key, why)| (Whose::Job(key), why.as_str()));
        all.chain(users).chain(jobs)
    }

    pub(crate) fn why(&self, key: &JobKey) -> Option<&str> {
        let job = self.jobs.iter().find(|(held, _)| held == key);
        let user = || self.users.iter().find(|(uid, _)| *uid == key.uid);
        job.map(|(_, why)| why.as_str())
            .or_else(|| user().map(|(_, why)| why.as_str()))
            .or(self.all.as_deref())
    }

    pub(crate) fn for_mps(&self) -> Option<&str> {
        self.for_mps.as_deref()
    }

    pub(crate) fn is_held(&self, key: &JobKey) -> bool {
        self.why(key).is_some() || self.why_waiting(key).is_some() || self.for_mps.is_some()
    }

    fn hold_all(&mut self, why: &str) -> Option<NewlyHeld> {
        let was_held = self.all.replace(why.to_owned()).is_some();
        (!was_held).then_some(NewlyHeld::All)
    }

    fn hold_job(&mut self, key: &JobKey, why: &str) -> Option<NewlyHeld> {
        if self.why(key).is_some() {
            return None;
        }
        let of_user = self.jobs.iter().filter(|(held, _)| held.uid == key.uid);
        if of_user.count() < HELD_JOBS_PER_USER {
            self.jobs.push((key.clone(), why.to_owned()));
            return Some(NewlyHeld::Job);
        }
        self.hold_user(key.uid, why)
    }

    fn hold_user(&mut self, uid: u32, why: &str) -> Option<NewlyHeld> {
        let is_known = self.users.iter().any(|(held, _)| *held == uid);
        if is_known || self.all.is_some() {
            return None;
        }
        if self.users.len() >= HELD_USERS_MAX {
            // A user with many user ids holds only its own jobs.
            return self.note_refused(uid).then_some(NewlyHeld::Nobody(uid));
        }
        self.users.push((uid, why.to_owned()));
        Some(NewlyHeld::User(uid))
    }

    /// Returns whether that is new.
    fn note_refused(&mut self, uid: u32) -> bool {
        if self.refused.contains(&uid) {
            return false;
        }
        if self.refused.len() >= HELD_USERS_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(uid);
        true
    }
}

/// Progress of all clients. If equal twice and [`Progress::is_waiting`], nothing has completed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// By client: launched, charged and completed, and when an HP client was last heard.
    clients: Vec<(u64, [u64; 5])>,
    pub(crate) is_waiting: bool,
}

#[cfg(test)]
impl Progress {
    pub(crate) fn for_test(completed_ns: u64, is_waiting: bool) -> Self {
        Self {
            clients: vec![(1, [0, 0, completed_ns, completed_ns, 0])],
            is_waiting,
        }
    }
}

/// A best-effort job's progress; equal twice with [`JobProgress::is_waiting`]: none in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobProgress {
    pub(crate) key: JobKey,
    pub(crate) clients: Vec<(u64, [u64; 5])>,
    pub(crate) is_waiting: bool,
}

impl Client {
    pub(super) fn take_sticky(&mut self, key: &JobKey) -> Option<Sticky> {
        let code = self.page.sticky.load(Ordering::Relaxed);
        // An invalid value is no error, and is not checked again.
        if code == 0 || std::mem::replace(&mut self.is_sticky_taken, true) {
            return None;
        }
        CUresult(code).is_sticky().then(|| Sticky {
            key: key.clone(),
            pid: self.peer.pid,
            code,
        })
    }

    fn progress(&self) -> (u64, [u64; 5]) {
        let page = &self.page;
        let load = |word: &protocol::sync::AtomicU64| word.load(Ordering::Relaxed);
        let heard_ns = self
            .hp_client
            .as_ref()
            .map_or(0, |hp_client| hp_client.heard_ns());
        let words = [
            page.counted(Counter::Launches),
            page.counted(Counter::Copies),
            load(&page.charged_ns),
            load(&page.completed_ns),
            heard_ns,
        ];
        (self.id, words)
    }
}

impl State {
    pub(crate) fn take_stickies(&mut self) -> Vec<Sticky> {
        let mut found = std::mem::take(&mut self.stickies);
        for Job { key, clients, .. } in &mut self.jobs {
            found.extend(
                clients
                    .iter_mut()
                    .filter_map(|client| client.take_sticky(key)),
            );
        }
        found
    }

    pub(super) fn keep_sticky(&mut self, sticky: Option<Sticky>) {
        if self.stickies.len() < GONE_MAX {
            self.stickies.extend(sticky);
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let is_undrained = |be_job: &BeJob| !be_job.view().drained;
        Progress {
            clients: clients.map(Client::progress).collect(),
            is_waiting: self.hp.busy || self.be_jobs().any(is_undrained),
        }
    }

    /// High-priority jobs are left out: work that they never wait for counts as in flight.
    pub(crate) fn job_progress(&self) -> Vec<JobProgress> {
        let jobs = self.jobs.iter();
        let jobs = jobs.filter_map(|job| Some((job, job.be_job.as_ref()?)));
        let progress = jobs.map(|(job, be_job)| JobProgress {
            key: job.key.clone(),
            clients: job.clients.iter().map(Client::progress).collect(),
            is_waiting: !be_job.view().drained,
        });
        progress.collect()
    }

    /// Holds best-effort jobs until [`State::release`]. `None` if they are held already, or cannot
    /// be held and that was reported. The caller rings the bell.
    pub(crate) fn hold(&mut self, whose: Whose<'_>, why: &str) -> Option<NewlyHeld> {
        let newly = match whose {
            Whose::Job(key) => self.holds.hold_job(key, why),
            Whose::User(uid) => self.holds.hold_user(uid, why),
            Whose::Everybody => self.holds.hold_all(why),
        };
        self.apply_holds();
        newly
    }

    /// Holds every best-effort job until MPS serves again (`None`). True if new: the caller rings
    /// the bell.
    pub(crate) fn hold_for_mps(&mut self, why: Option<&str>) -> bool {
        let before = std::mem::replace(&mut self.holds.for_mps, why.map(str::to_owned));
        self.apply_holds();
        before.is_some() != why.is_some()
    }

    pub(crate) fn lost_clients(&self) -> BTreeSet<u32> {
        self.lost().map(|(pid, _)| pid).collect()
    }

    pub(crate) fn lost_client(&self, pid: u32) -> Option<u32> {
        self.lost()
            .find(|(lost, _)| *lost == pid)
            .map(|(_, uid)| uid)
    }

    fn lost(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let jobs = self.jobs.iter();
        let clients = jobs
            .flat_map(|Job { key, clients, .. }| clients.iter().map(|client| (key.uid, client)));
        let is_lost =
            |client: &Client| CUresult(client.page.sticky.load(Ordering::Relaxed)).is_sticky();
        let lost = clients.filter(move |(_, client)| client.peer.pid != 0 && is_lost(client));
        lost.map(|(uid, client)| (client.peer.pid, uid))
    }

    /// Warns every new high-priority job, and holds every best-effort one, until
    /// [`State::release`]. False if already so.
    pub(crate) fn drain_gpu(&mut self, why: &str) -> bool {
        let was_draining = self.holds.draining.replace(why.to_owned()).is_some();
        self.hold(Whose::Everybody, why);
        !was_draining
    }

    /// Releases jobs of one id, or (`None`) all holds. A job that is held with others stays held.
    pub(crate) fn release(&mut self, job: Option<&str>) -> Released {
        let goes = |key: &JobKey| job.is_none_or(|id| key.id == id);
        let (gone, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.holds.jobs)
            .into_iter()
            .partition(|(key, _)| goes(key));
        self.holds.jobs = stay;
        let waiting = std::mem::take(&mut self.holds.waiting);
        let (waited, wait): (Vec<_>, Vec<_>) = waiting.into_iter().partition(goes);
        self.holds.waiting = wait;
        let mut jobs: Vec<JobKey> = gone.into_iter().map(|(key, _)| key).collect();
        jobs.extend(
            waited
                .into_iter()
                .filter(|key| !jobs.contains(key))
                .collect::<Vec<_>>(),
        );
        let mut released = Released { jobs, others: 0 };
        if job.is_none() {
            let kept = Holds {
                probe: self.holds.probe.take(),
                is_for_returned: self.holds.is_for_returned,
                ..Holds::default()
            };
            let Holds {
                all,
                users,
                draining,
                for_mps,
                ..
            } = std::mem::replace(&mut self.holds, kept);
            let others = [all, draining, for_mps];
            released.others = users.len() + others.iter().flatten().count();
        }
        self.apply_holds();
        released
    }

    pub(crate) fn best_effort_jobs(&self) -> Vec<JobKey> {
        let jobs = self.jobs.iter().filter(|job| job.be_job.is_some());
        jobs.map(|job| job.key.clone()).collect()
    }

    /// Publishes the holds to every best-effort job: a hold at once, a release at the next poll.
    pub(super) fn apply_holds(&mut self) {
        for Job { key, be_job, .. } in &mut self.jobs {
            if let Some(be_job) = be_job {
                be_job.set_held(self.holds.is_held(key));
            }
        }
    }

    pub(crate) fn pids(&self) -> BTreeSet<u32> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        clients.map(|client| client.peer.pid).collect()
    }

    pub(crate) fn pids_of(&self, key: &JobKey) -> Vec<u32> {
        let jobs = self.jobs.iter().filter(|job| job.key == *key);
        let pids = jobs.flat_map(|job| job.clients.iter().map(|client| client.peer.pid));
        // A process may be several clients.
        let pids: BTreeSet<u32> = pids.filter(|&pid| pid != 0).collect();
        pids.into_iter().collect()
    }
}
