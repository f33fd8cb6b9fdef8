//! What an operator's tool asks who ends a job (`pillion stop`).

use std::os::fd::OwnedFd;

use protocol::clock::Clock;
use protocol::hello::{Ending, Reply, Stop, send};

use super::{Control, refuse};
use crate::state::Stopped;

impl Control {
    /// Asks the clients of a job to end. Whether they do is for who asked to see.
    pub(super) fn stop(&self, socket: &OwnedFd, uid: u32, stop: &Stop) {
        let clock = self.shared.clock();
        let asked = self
            .shared
            .state()
            .stop(&stopped(&stop.job, stop.user), uid, clock);
        answer(socket, asked, |clients| {
            tracing::info!("job {:?}: {clients} processes are to end", stop.job);
        });
    }

    /// Somebody is about to end a job's processes, and sees to it that MPS is asked first.
    pub(super) fn see_to(&self, socket: &OwnedFd, uid: u32, ending: &Ending) {
        let (now_ns, within_ns) = (Clock::monotonic().now_ns(), ending.within_ns);
        let state = self.shared.state();
        let told = state.see_to(&stopped(&ending.job, ending.user), uid, now_ns, within_ns);
        drop(state);
        answer(socket, told, |_| {});
    }
}

fn stopped(job: &str, user: Option<u32>) -> Stopped<'_> {
    Stopped { job, user }
}

fn answer(socket: &OwnedFd, done: Result<usize, String>, say: impl FnOnce(usize)) {
    match done {
        Ok(clients) => {
            say(clients);
            let _ = send(socket, &Reply::Done.encode(), &[]);
        }
        Err(reason) => refuse(socket, reason),
    }
}
