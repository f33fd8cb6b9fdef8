//! Clients that said that the GPU serves them no more, what moves, and what is held for a fault.

use core::sync::atomic::Ordering;
use std::collections::{BTreeSet, VecDeque};

use abi::types::CUresult;
use protocol::pages::Counter;

use super::{BeJob, Client, Job, State};
use crate::core::job_key::JobKey;

/// Sticky errors of clients that are gone and that nobody has asked for yet: more than clients there can be.
const GONE_MAX: usize = super::CLIENTS_MAX;

/// A client whose context is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sticky {
    pub(crate) key: JobKey,
    pub(crate) pid: u32,
    /// A CUDA result that is sticky.
    pub(crate) code: u32,
}

/// What is held back because of a fault, until somebody says that it may go on. Each hold with its reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    /// Every best-effort job is.
    all: Option<String>,
    /// All best-effort jobs of these users are. At most [`HELD_USERS_MAX`].
    users: Vec<(u32, String)>,
    /// These are. At most [`HELD_JOBS_PER_USER`] of a user.
    jobs: Vec<(JobKey, String)>,
    /// Users who should be, and of whom that there is no room was said; at most [`HELD_USERS_MAX`], the oldest first.
    pub(super) refused: VecDeque<u32>,
    /// New high-priority jobs are not meant to come.
    draining: Option<String>,
    /// Best-effort jobs that come wait while this is so.
    pub(super) probe: Option<String>,
    /// So do those that ran under an earlier daemon.
    pub(super) is_for_returned: bool,
    /// Those that came, of the jobs that there are.
    pub(super) waiting: Vec<JobKey>,
    /// Every best-effort job is until MPS serves again, which ends by itself.
    for_mps: Option<String>,
}

/// Jobs of one user that are held by name. A user who has more of them, which may be one who calls each job otherwise, has all
/// its jobs held.
pub(crate) const HELD_JOBS_PER_USER: usize = 16;
/// Users of whom all jobs are held; of further ones no more are held than by name.
pub(crate) const HELD_USERS_MAX: usize = 64;

/// Whose best-effort jobs a hold is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose<'a> {
    /// This one.
    Job(&'a JobKey),
    /// All of that user.
    User(u32),
    /// All.
    Everybody,
}

/// Who is held now and was not before, or should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewlyHeld {
    /// The one job that was meant.
    Job,
    /// All best-effort jobs of that user.
    User(u32),
    /// All best-effort jobs.
    All,
    /// That user's jobs should be, but so are those of [`HELD_USERS_MAX`] others: nobody is held. Once, until there is room.
    Nobody(u32),
}

/// What was let go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Released {
    /// Jobs that were held by name.
    pub(crate) jobs: Vec<JobKey>,
    /// Other holds.
    pub(crate) others: usize,
}

impl Released {
    pub(crate) fn is_nothing(&self) -> bool {
        self.jobs.is_empty() && self.others == 0
    }
}

impl Holds {
    /// Why the GPU is drained, if it is.
    pub(crate) fn draining(&self) -> Option<&str> {
        self.draining.as_deref()
    }

    /// Why this job, which came while the GPU was in trouble, waits until it is healthy.
    pub(crate) fn why_waiting(&self, key: &JobKey) -> Option<&str> {
        let waits = self.waiting.contains(key);
        self.probe.as_deref().filter(|_| waits)
    }

    /// Jobs that wait for a GPU that is in trouble.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Every hold: whose jobs, and why.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (Whose<'_>, &str)> {
        let all = self.all.iter().map(|why| (Whose::Everybody, why.as_str()));
        let users = self.users.iter();
        let users = users.map(|(uid, why)| (Whose::User(*uid), why.as_str()));
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|(key, why)| (Whose::Job(key), why.as_str()));
        all.chain(users).chain(jobs)
    }

    /// Why this job is held, if it is: for its own fault first.
    pub(crate) fn why(&self, key: &JobKey) -> Option<&str> {
        let job = self.jobs.iter().find(|(held, _)| held == key);
        let user = || self.users.iter().find(|(uid, _)| *uid == key.uid);
        job.map(|(_, why)| why.as_str())
            .or_else(|| user().map(|(_, why)| why.as_str()))
            .or(self.all.as_deref())
    }

    /// Why all are held until MPS serves again, if they are.
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
            // Whoever has many user ids holds itself at most.
            return self.note_refused(uid).then_some(NewlyHeld::Nobody(uid));
        }
        self.users.push((uid, why.to_owned()));
        Some(NewlyHeld::User(uid))
    }

    /// Whether that is new.
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

/// What of the clients moves if the GPU does. Two that are equal and [`Progress::is_waiting`]: nothing has completed in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// By client: what was launched, charged and completed, and when an HP client was last heard of.
    clients: Vec<(u64, [u64; 5])>,
    /// Some client has work in flight.
    pub(crate) is_waiting: bool,
}

#[cfg(test)]
impl Progress {
    /// Of one client.
    pub(crate) fn for_test(completed_ns: u64, is_waiting: bool) -> Self {
        Self {
            clients: vec![(1, [0, 0, completed_ns, completed_ns, 0])],
            is_waiting,
        }
    }
}

/// What of a best-effort job moves. Two that are equal and [`JobProgress::is_waiting`]: nothing of it has completed in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobProgress {
    pub(crate) key: JobKey,
    /// As in [`Progress`].
    pub(crate) clients: Vec<(u64, [u64; 5])>,
    /// It has work in flight.
    pub(crate) is_waiting: bool,
}

impl Client {
    /// The sticky error that this client says it had, if it has not been taken.
    pub(super) fn take_sticky(&mut self, key: &JobKey) -> Option<Sticky> {
        let code = self.page.sticky.load(Ordering::Relaxed);
        // Whoever scribbles there has no error, and is not asked again.
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
    /// Sticky errors that clients have told of since this was last asked, those of clients that are gone among them.
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

    /// What a client said that is gone now.
    pub(super) fn keep_sticky(&mut self, sticky: Option<Sticky>) {
        if self.stickies.len() < GONE_MAX {
            self.stickies.extend(sticky);
        }
    }

    /// What moves, as of now.
    pub(crate) fn progress(&self) -> Progress {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let is_undrained = |be_job: &BeJob| !be_job.view().drained;
        Progress {
            clients: clients.map(Client::progress).collect(),
            is_waiting: self.hp.busy || self.be_jobs().any(is_undrained),
        }
    }

    /// What moves of each best-effort job, as of now. High-priority ones are left out: what one never waits for counts as in flight.
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

    /// Holds best-effort jobs until [`State::release`]. None if that was so already, or cannot be and was said. The caller rings the
    /// bell.
    pub(crate) fn hold(&mut self, whose: Whose<'_>, why: &str) -> Option<NewlyHeld> {
        let newly = match whose {
            Whose::Job(key) => self.holds.hold_job(key, why),
            Whose::User(uid) => self.holds.hold_user(uid, why),
            Whose::Everybody => self.holds.hold_all(why),
        };
        self.apply_holds();
        newly
    }

    /// Holds every best-effort job for this reason until MPS serves again, which `None` says.
    /// Whether that
    /// is new; the caller rings the bell.
    pub(crate) fn hold_for_mps(&mut self, why: Option<&str>) -> bool {
        let before = std::mem::replace(&mut self.holds.for_mps, why.map(str::to_owned));
        self.apply_holds();
        before.is_some() != why.is_some()
    }

    /// Clients by process id that have told that their contexts are lost, and live.
    pub(crate) fn lost_clients(&self) -> BTreeSet<u32> {
        self.lost().map(|(pid, _)| pid).collect()
    }

    /// Whose the client of this process id is whose context is lost, if there is one.
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

    /// Says so to every high-priority job that comes, and holds every best-effort one, until [`State::release`]. False if that was
    /// so already.
    pub(crate) fn drain_gpu(&mut self, why: &str) -> bool {
        let was_draining = self.holds.draining.replace(why.to_owned()).is_some();
        self.hold(Whose::Everybody, why);
        !was_draining
    }

    /// Lets go what was held for a fault: jobs of one id, or (`None`) everything. A job that is held with others stays so.
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
            // Who comes next waits again.
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

    /// All best-effort jobs that there are.
    pub(crate) fn best_effort_jobs(&self) -> Vec<JobKey> {
        let jobs = self.jobs.iter().filter(|job| job.be_job.is_some());
        jobs.map(|job| job.key.clone()).collect()
    }

    /// Tells every best-effort job: one that is held is so from now on, one that is not any more
    /// goes on at the next poll.
    pub(super) fn apply_holds(&mut self) {
        for Job { key, be_job, .. } in &mut self.jobs {
            if let Some(be_job) = be_job {
                be_job.set_held(self.holds.is_held(key));
            }
        }
    }

    /// All clients by process id, those that can be seen.
    pub(crate) fn pids(&self) -> BTreeSet<u32> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        clients.map(|client| client.peer.pid).collect()
    }

    /// The clients of a job by process id, those that can be seen.
    pub(crate) fn pids_of(&self, key: &JobKey) -> Vec<u32> {
        let jobs = self.jobs.iter().filter(|job| job.key == *key);
        let pids = jobs.flat_map(|job| job.clients.iter().map(|client| client.peer.pid));
        // A process may be several clients.
        let pids: BTreeSet<u32> = pids.filter(|&pid| pid != 0).collect();
        pids.into_iter().collect()
    }
}
