//! A job that is asked to end, and who sees to that.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;

use protocol::clock::Clock;
use protocol::ending::seen_to_until_s;
use protocol::pages::{STOP_ASKED, STOP_OVERDUE};

use super::stopping::{Moment, Notice};
use super::{Client, Job, State};
use crate::core::job_key::{JobKey, Peer};

/// A job that is to end, as who asks names it.
#[derive(Clone, Copy, Debug)]
pub struct Stopped<'a> {
    /// Its id.
    pub job: &'a str,
    /// Whose it is; has to be said where several users have one.
    pub user: Option<u32>,
}

impl Client {
    /// Asks it to launch nothing more and to end.
    fn ask_to_end(&self, clock: &Clock) {
        self.page.stop.store(STOP_ASKED, Ordering::SeqCst);
        self.page.helper_bell.ring_surely(clock);
    }

    /// Whether a signal has asked its process to end, and what is in flight was not complete when its time to drain was over. It waits for
    /// who sees to its end.
    pub(crate) fn is_overdue(&self) -> bool {
        self.page.stop.load(Ordering::SeqCst) == STOP_OVERDUE
    }
}

impl State {
    /// Asks the clients of a job to end, if `uid` may: it is its, or root's; and who comes to it while somebody ends it. How many were
    /// asked. `now_ns` is real time.
    ///
    /// # Errors
    /// No client has such a job, or it is another user's, which is not told, or several users have one; in words for who asked.
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

    /// Tells the clients of a job, if `by` may, and who comes to it, that `by` ends them from `at` on and needs so long; 0: it
    /// does no more, because nobody is left if it `is_over`. `gone` are clients whose processes have ended. How many were told.
    ///
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

    /// Whether process `pid` sees to the end of any job. `now_ns` is real time.
    pub(crate) fn is_asker(&self, pid: u32, now_ns: u64) -> bool {
        self.stopping.is_asker(pid, now_ns)
    }

    /// Process `pid`, which may have ended jobs, has died: its word is taken back, as if it had given them up.
    pub(crate) fn handle_asker_death(&mut self, pid: u32, at: Moment) {
        for (id, uid, until_ns) in self.stopping.forget_asker(pid, at) {
            let is_it = |job: &&Job| job.key.id == id && job.key.uid == uid;
            let clients = self.jobs.iter().filter(is_it).flat_map(|job| &job.clients);
            clients.for_each(|client| self.tell_seen_to(client, at.now_ns, until_ns));
        }
    }

    /// A client that has just attached, whose process started at `started_ticks`, is told what those of its job were that are being ended,
    /// if they are; whether it is to launch nothing more and to end. `now_ns` is real time.
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

    /// The same for these processes of a job.
    pub(crate) fn see_to_processes(&self, key: &JobKey, pids: &[u32], now_ns: u64, within_ns: u64) {
        let until_ns = now_ns.saturating_add(within_ns);
        for client in self.clients_among(key, pids) {
            let known_ns = client.ended_from_here_until_ns.get();
            client.ended_from_here_until_ns.set(until_ns.max(known_ns));
            self.tell_seen_to(client, now_ns, until_ns);
        }
    }

    /// Somebody else does until then, ns. Only where MPS shares the GPU is there anything to be done before a kill, and told.
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

    /// Whose job is meant, if that is known, and its clients.
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
                "a job {job:?} is of each of the users {}",
                users.join(", ")
            ));
        }
        // Of a job that has no client here yet it is whose it was said to be, or who asks's.
        let said = user.or(Some(uid).filter(|uid| *uid != 0));
        let owner = users.first().copied().or(said);
        let owner = owner.filter(|owner| uid == 0 || *owner == uid);
        Ok((owner, jobs.flat_map(|known| &known.clients).collect()))
    }

    /// Asks these processes of a job to launch nothing more and to end.
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

    /// The processes that are overdue, of whichever job. What is no client of MPS is none, whatever
    /// its page says.
    pub(crate) fn overdue(&self) -> Vec<u32> {
        let clients = self.jobs.iter().flat_map(|job| &job.clients);
        let overdue = clients.filter(|client| client.is_overdue() && self.is_on_mps(client));
        overdue.map(|client| client.peer.pid).collect()
    }
}

/// How many clients of a job were told, for who asked.
fn told(job: &str, uid: u32, count: usize) -> Result<usize, String> {
    match count {
        // What another user's jobs are called is not told, not even by the reason.
        0 if uid != 0 => Err(format!("no job {job:?} of your user uses this GPU")),
        0 => Err(format!("no job {job:?} uses this GPU")),
        _ => Ok(count),
    }
}
