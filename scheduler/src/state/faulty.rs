//! Clients that said that the GPU serves them no more, what moves, and what is held for a fault.

use core::sync::atomic::Ordering;

use abi::types::CUresult;
use protocol::clock::Clock;
use protocol::pages::Counter;

use super::{Client, Job, JobKey, Lessee, State};

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

/// What is held back because of a fault, until somebody says that it may go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    /// Every best-effort job is.
    all: bool,
    /// These are. At most [`HELD_JOBS_MAX`].
    jobs: Vec<JobKey>,
    /// No new high-priority job is taken.
    draining: bool,
    /// Of the last that was held, in words.
    why: String,
}

/// Jobs that are held by name; more of them hold every job.
const HELD_JOBS_MAX: usize = 64;

impl Holds {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    pub(crate) fn is_held(&self, key: &JobKey) -> bool {
        self.all || self.jobs.contains(key)
    }

    fn is_anything(&self) -> bool {
        self.all || self.draining || !self.jobs.is_empty()
    }

    pub(crate) fn why(&self) -> Option<&str> {
        self.is_anything().then_some(&self.why)
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
        let heard_ns = self.feed.as_ref().map_or(0, |feed| feed.heard_ns());
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
        let is_undrained = |lessee: &Lessee| !lessee.view().drained;
        Progress {
            clients: clients.map(Client::progress).collect(),
            is_waiting: self.hp.busy || self.lessees().any(is_undrained),
        }
    }

    /// Holds one best-effort job, or all of them, until [`State::release`]. False if that was so already. The caller rings the bell.
    pub(crate) fn hold(&mut self, job: Option<&JobKey>, why: &str) -> bool {
        let holds = &mut self.holds;
        if job.map_or(holds.all, |key| holds.is_held(key)) {
            return false;
        }
        match job {
            Some(key) if holds.jobs.len() < HELD_JOBS_MAX => holds.jobs.push(key.clone()),
            _ => holds.all = true,
        }
        why.clone_into(&mut holds.why);
        self.apply_holds();
        true
    }

    /// Takes no new high-priority job and holds every best-effort one, until [`State::release`]. False if that was so already.
    pub(crate) fn drain_gpu(&mut self, why: &str) -> bool {
        let was_draining = std::mem::replace(&mut self.holds.draining, true);
        self.hold(None, why);
        !was_draining
    }

    /// Lets go what was held for a fault: one job by its id, or (`None`) everything. How many jobs' names or other holds were
    /// taken back. A job that is held with all others stays so.
    pub(crate) fn release(&mut self, job: Option<&str>) -> usize {
        let holds = &mut self.holds;
        let before = holds.jobs.len() + usize::from(holds.all) + usize::from(holds.draining);
        match job {
            Some(id) => holds.jobs.retain(|key| key.id != id),
            None => *holds = Holds::default(),
        }
        let after = holds.jobs.len() + usize::from(holds.all) + usize::from(holds.draining);
        self.apply_holds();
        before - after
    }

    /// Tells every lessee; what it publishes follows at the next poll.
    pub(super) fn apply_holds(&mut self) {
        for Job { key, lessee, .. } in &mut self.jobs {
            if let Some(lessee) = lessee {
                lessee.set_held(self.holds.is_held(key));
            }
        }
    }

    /// Asks these processes of a job to launch nothing more and to end.
    pub(crate) fn stop_processes(&self, key: &JobKey, pids: &[u32], clock: &Clock) {
        let jobs = self.jobs.iter().filter(|job| job.key == *key);
        let clients = jobs.flat_map(|job| &job.clients);
        for client in clients.filter(|client| pids.contains(&client.peer.pid)) {
            client.page.stop.store(1, Ordering::SeqCst);
            client.page.helper_bell.ring_surely(clock);
        }
    }

    /// The clients of a job by process id, those that can be seen.
    pub(crate) fn pids_of(&self, key: &JobKey) -> Vec<u32> {
        let jobs = self.jobs.iter().filter(|job| job.key == *key);
        let pids = jobs.flat_map(|job| job.clients.iter().map(|client| client.peer.pid));
        pids.filter(|&pid| pid != 0).collect()
    }
}
