//! A job that is asked to end.

use core::sync::atomic::Ordering;

use protocol::clock::Clock;

use super::State;

impl State {
    /// Asks the clients of the jobs of that id to end, if `uid` may: it is theirs, or root's. How many were asked.
    ///
    /// # Errors
    /// No client has such a job, or it is another user's, which is not told; in words for who asked.
    pub fn stop(&self, job: &str, uid: u32, clock: &Clock) -> Result<usize, String> {
        let of_job = || self.jobs.iter().filter(|known| known.key.id == job);
        let clients = of_job()
            .filter(|known| uid == 0 || known.key.uid == uid)
            .flat_map(|known| &known.clients);
        let mut asked = 0;
        for client in clients {
            client.page.stop.store(1, Ordering::SeqCst);
            client.page.helper_bell.ring_surely(clock);
            asked += 1;
        }
        match asked {
            // What another user's jobs are called is not told, not even by the reason.
            0 if uid != 0 => Err(format!("no job {job:?} of your user uses this GPU")),
            0 => Err(format!("no job {job:?} uses this GPU")),
            _ => Ok(asked),
        }
    }
}
