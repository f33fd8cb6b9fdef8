//! A job that is asked to end, and who sees to that.

use core::sync::atomic::Ordering;

use policy::Sharing;
use protocol::clock::Clock;
use protocol::ending::seen_to_until_s;
use protocol::pages::{STOP_ASKED, STOP_OVERDUE};

use super::{Client, JobKey, State};

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
    /// Asks the clients of the jobs of that id to end, if `uid` may: it is theirs, or root's. How many were asked.
    ///
    /// # Errors
    /// No client has such a job, or it is another user's, which is not told; in words for who asked.
    pub fn stop(&self, job: &str, uid: u32, clock: &Clock) -> Result<usize, String> {
        self.of_stopped(job, uid, |client| client.ask_to_end(clock))
    }

    /// Tells the clients of the jobs of that id, if `uid` may, that somebody ends them and needs so long, real time being `now_ns`; 0:
    /// nobody does any more. How many were told.
    ///
    /// # Errors
    /// As [`State::stop`].
    pub fn see_to(
        &self,
        job: &str,
        uid: u32,
        now_ns: u64,
        within_ns: u64,
    ) -> Result<usize, String> {
        self.of_stopped(job, uid, |client| {
            self.tell_seen_to(client, now_ns, within_ns)
        })
    }

    /// The same for these processes of a job.
    pub(crate) fn see_to_processes(&self, key: &JobKey, pids: &[u32], now_ns: u64, within_ns: u64) {
        for client in self.clients_among(key, pids) {
            self.tell_seen_to(client, now_ns, within_ns);
        }
    }

    /// Only where MPS shares the GPU is there anything to be done before a kill.
    fn tell_seen_to(&self, client: &Client, now_ns: u64, within_ns: u64) {
        if self.sharing == Sharing::Mps {
            let until_s = match within_ns {
                0 => 0,
                _ => seen_to_until_s(now_ns, within_ns),
            };
            client.page.seen_to_until_s.store(until_s, Ordering::SeqCst);
        }
    }

    fn of_stopped(&self, job: &str, uid: u32, act: impl Fn(&Client)) -> Result<usize, String> {
        let of_job = self.jobs.iter().filter(|known| known.key.id == job);
        let clients = of_job
            .filter(|known| uid == 0 || known.key.uid == uid)
            .flat_map(|known| &known.clients);
        let mut count = 0;
        for client in clients {
            act(client);
            count += 1;
        }
        match count {
            // What another user's jobs are called is not told, not even by the reason.
            0 if uid != 0 => Err(format!("no job {job:?} of your user uses this GPU")),
            0 => Err(format!("no job {job:?} uses this GPU")),
            _ => Ok(count),
        }
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

    /// The processes that are overdue, of whichever job. Where MPS does not share the GPU none is, whatever a client says.
    pub(crate) fn overdue(&self) -> Vec<u32> {
        let jobs = self.jobs.iter().filter(|_| self.sharing == Sharing::Mps);
        let clients = jobs.flat_map(|job| &job.clients);
        let overdue = clients.filter(|client| client.is_overdue());
        overdue.map(|client| client.peer.pid).collect()
    }
}
