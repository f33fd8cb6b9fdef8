//! Requests to end a job, and their supervision.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use protocol::clock::Clock;
use protocol::ending::seen_to_until_s;
use protocol::pages::{STOP_ASKED, STOP_OVERDUE};

use super::stopping::{Moment, Notice};
use super::{Client, Job, State};
use crate::core::job_key::{JobKey, Peer};

/// A job to end, as named by the requester.
#[derive(Clone, Copy, Debug)]
pub struct Stopped<'a> {
    /// Its id.
    pub job: &'a str,
    /// Its user; required where several users have a job of this id.
    pub user: Option<u32>,
}

impl Client {
    fn ask_to_end(&self, clock: &Clock) {
        self.page.stop.store(STOP_ASKED, Ordering::SeqCst);
        self.page.helper_bell.ring_surely(clock);
    }

    /// Whether it waits for its supervisor: a signal asked it to end, and its drain timed out.
    pub(crate) fn is_overdue(&self) -> bool {
        self.page.stop.load(Ordering::SeqCst) == STOP_OVERDUE
    }
}

impl State {
    /// Asks the clients of a job, and later ones while it is being ended, to end, if `uid` owns it
    /// or is root. Returns how many were asked. `now_ns` is real time.
    /// # Errors
    /// No client has such a job; it is another user's, which is not disclosed; or several users
    /// have one. The text is for the requester.
    pub fn stop(
        &mut self,
        stopped: &Stopped<'_>,
        uid: u32,
        now_ns: u64,
        clock: &Clock,
    ) -> Result<usize, String> {
        let (owner, clients) = self.meant(stopped, uid)?;
        clients.iter().for_each(|client| client.ask_to_end(clock));
        let count = clients.len();
        if let Some(owner) = owner {
            self.stopping.freeze(stopped.job, owner, now_ns);
        }
        told(stopped.job, uid, count)
    }

    /// Tells the clients of a job, and later ones, that `by` (if permitted) supervises their end
    /// from `at` on for `within_ns`. 0: no longer, because nobody is left if `is_over`. `gone` are
    /// clients whose processes have ended. Returns how many got the message.
    /// # Errors
    /// As [`State::stop`].
    pub fn see_to(
        &mut self,
        stopped: &Stopped<'_>,
        by: Peer,
        at: Moment,
        (within_ns, is_over): (u64, bool),
        gone: &[u64],
    ) -> Result<usize, String> {
        let job = stopped.job;
        let (owner, mut clients) = self.meant(stopped, by.uid)?;
        clients.retain(|client| !gone.contains(&client.id));
        let (ids, count): (Vec<u64>, usize) = (
            clients.iter().map(|client| client.id).collect(),
            clients.len(),
        );
        let until_ns = match owner {
            Some(owner) if within_ns == 0 => {
                let is_over = is_over && count == 0;
                self.stopping.end(job, owner, by.pid, at, is_over)
            }
            Some(owner) => self.stopping.begin(job, owner, by.pid, at, within_ns),
            None => 0,
        };
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        for client in clients.filter(|client| ids.contains(&client.id)) {
            self.tell_seen_to(client, at.now_ns, until_ns);
        }
        told(job, by.uid, count)
    }

    /// Whether process `pid` supervises the end of any job. `now_ns` is real time.
    pub(crate) fn is_asker(&self, pid: u32, now_ns: u64) -> bool {
        self.stopping.is_asker(pid, now_ns)
    }

    /// Process `pid`, perhaps a supervisor of jobs' ends, has died: as if it had given them up.
    pub(crate) fn handle_asker_death(&mut self, pid: u32, at: Moment) {
        for (id, uid, until_ns) in self.stopping.forget_asker(pid, at) {
            let is_it = |job: &&Job| job.key.id == id && job.key.uid == uid;
            let clients = self.jobs.iter().filter(is_it).flat_map(|job| &job.clients);
            clients.for_each(|client| self.tell_seen_to(client, at.now_ns, until_ns));
        }
    }

    /// Passes the state of its job's end to a client that has just attached, whose process started
    /// at `started_ticks`. Returns whether the client must end. `now_ns` is real time.
    pub fn tell_comer(
        &mut self,
        client: u64,
        started_ticks: u64,
        now_ns: u64,
        clock: &Clock,
    ) -> bool {
        let mut jobs = self.jobs.iter();
        let comer = jobs.find_map(|job| {
            let mut clients = job.clients.iter();
            let client = clients.find(|known| known.id == client)?;
            Some((&job.key, client))
        });
        let Some((key, client)) = comer else {
            return false;
        };
        match self.stopping.word(&key.id, key.uid, now_ns, started_ticks) {
            Some(Notice::Stop) => {
                client.ask_to_end(clock);
                true
            }
            Some(Notice::SeenTo(until_ns)) => {
                self.tell_seen_to(client, now_ns, until_ns);
                false
            }
            None => false,
        }
    }

    /// This daemon supervises the end of these processes of a job.
    pub(crate) fn see_to_processes(&self, key: &JobKey, pids: &[u32], now_ns: u64, within_ns: u64) {
        let until_ns = now_ns.saturating_add(within_ns);
        for client in self.clients_among(key, pids) {
            let known_ns = client.ended_from_here_until_ns.get();
            client.ended_from_here_until_ns.set(until_ns.max(known_ns));
            self.tell_seen_to(client, now_ns, until_ns);
        }
    }

    /// Publishes until when somebody supervises the client's end, ns. Only under MPS is there
    /// anything to do before a kill, so only there the client gets it.
    fn tell_seen_to(&self, client: &Client, now_ns: u64, until_ns: u64) {
        let until_ns = until_ns.max(client.ended_from_here_until_ns.get());
        client.end.seen_to_until_ns.set(until_ns);
        if self.is_on_mps(client) {
            let until_s = match until_ns.saturating_sub(now_ns) {
                0 => 0,
                within_ns => seen_to_until_s(now_ns, within_ns),
            };
            client.page.seen_to_until_s.store(until_s, Ordering::SeqCst);
        }
    }

    fn meant(
        &self,
        stopped: &Stopped<'_>,
        uid: u32,
    ) -> Result<(Option<u32>, Vec<&Client>), String> {
        let Stopped { job, user } = *stopped;
        let may_be_meant = |key: &JobKey| {
            key.id == job && (uid == 0 || key.uid == uid) && user.is_none_or(|user| key.uid == user)
        };
        let jobs = self.jobs.iter().filter(|known| may_be_meant(&known.key));
        let users: BTreeSet<u32> = jobs.clone().map(|known| known.key.uid).collect();
        if users.len() > 1 {
            let users: Vec<String> = users.iter().map(u32::to_string).collect();
            return Err(format!(
                "several users (users {}) have a job {job:?}; name the user (`--user`)",
                users.join(", ")
            ));
        }
        // A job without clients here belongs to the named user, else to the requester.
        let said = user.or(Some(uid).filter(|uid| *uid != 0));
        let owner = users.first().copied().or(said);
        let owner = owner.filter(|owner| uid == 0 || *owner == uid);
        Ok((owner, jobs.flat_map(|known| &known.clients).collect()))
    }

    pub(crate) fn stop_processes(&self, key: &JobKey, pids: &[u32], clock: &Clock) {
        for client in self.clients_among(key, pids) {
            client.ask_to_end(clock);
        }
    }

    fn clients_among(&self, key: &JobKey, pids: &[u32]) -> impl Iterator<Item = &Client> {
        let jobs = self.jobs.iter().filter(move |job| job.key == *key);
        let clients = jobs.flat_map(|job| &job.clients);
        clients.filter(move |client| pids.contains(&client.peer.pid))
    }

    /// All overdue processes. Only clients of MPS can be, whatever their pages say.
    pub(crate) fn overdue(&self) -> Vec<u32> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let overdue = clients.filter(|client| client.is_overdue() && self.is_on_mps(client));
        overdue.map(|client| client.peer.pid).collect()
    }
}

fn told(job: &str, uid: u32, count: usize) -> Result<usize, String> {
    match count {
        // Another user's job names must not leak, not even through the reason.
        0 if uid != 0 => Err(format!("no job {job:?} of your user uses this GPU")),
        0 => Err(format!("no job {job:?} uses this GPU")),
        _ => Ok(count),
    }
}
