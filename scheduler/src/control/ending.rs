//! What an operator's tool asks who ends a job (`pillion stop`), and what a process is told that comes to the job meanwhile.

use std::os::fd::OwnedFd;

use protocol::clock::Clock;
use protocol::hello::{Attach, Ending, Reply, Stop, send};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use super::{Control, peer, refuse};
use crate::ledgers::Image;
use crate::state::{Attached, Moment, NewPages, Peer, Refused, Stopped};

impl Control {
    /// Asks the clients of a job to end. Whether they do is for who asked to see.
    pub(super) fn stop(&self, socket: &OwnedFd, uid: u32, stop: &Stop) {
        let clock = self.shared.clock();
        let meant = stopped(&stop.job, stop.user);
        let mut state = self.shared.state();
        let asked = state.stop(&meant, uid, Clock::monotonic().now_ns(), clock);
        drop(state);
        answer(socket, asked, |clients| {
            tracing::info!("job {:?}: {clients} processes are to end", stop.job);
        });
    }

    /// Somebody is about to end a job's processes, and sees to it that MPS is asked first.
    pub(super) fn see_to(&self, socket: &OwnedFd, uid: u32, ending: &Ending) {
        // Who asks may have seen them end before we have.
        let clients = self.clients.iter();
        let gone: Vec<u64> = clients
            .filter(|known| known.process.as_ref().is_some_and(peer::has_ended))
            .map(|known| known.client)
            .collect();
        // Who ends jobs is told from others by its process.
        let pid = peer::of(socket).map_or(0, |(peer, _)| peer.pid);
        let by = Peer { pid, uid };
        let meant = stopped(&ending.job, ending.user);
        let at = Moment {
            now_ns: Clock::monotonic().now_ns(),
            boot_ticks: boot_ticks(),
        };
        let mut state = self.shared.state();
        let what = (ending.within_ns, ending.is_over);
        let told = state.see_to(&meant, by, at, what, &gone);
        drop(state);
        answer(socket, told, |_| {});
    }

    /// A process becomes a client. If its job is being ended it is told before it launches anything.
    pub(super) fn enter(
        &self,
        peer: Peer,
        attach: Attach,
        pages: NewPages,
    ) -> Result<Attached, Refused> {
        let clock = self.shared.clock();
        let job = attach.job.clone();
        let started_ticks = Image::of(peer.pid).started_ticks;
        let (now_ns, real_ns) = (clock.now_ns(), Clock::monotonic().now_ns());
        let mut state = self.shared.state();
        let attached = state.handle_attach(now_ns, peer, attach, pages)?;
        let is_to_end = state.tell_comer(attached.client, started_ticks, real_ns, clock);
        drop(state);
        if is_to_end {
            let pid = peer.pid;
            tracing::info!(
                "job {job:?} is being ended, and so is process {pid}, which comes to it"
            );
        }
        Ok(attached)
    }
}

/// What time it is where processes start (`proc_pid_stat(5)`, field 22).
fn boot_ticks() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks_per_s = clock_ticks_per_second();
    let (s, ns) = (now.tv_sec as u64, now.tv_nsec as u64);
    s * ticks_per_s + ns * ticks_per_s / 1_000_000_000
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
