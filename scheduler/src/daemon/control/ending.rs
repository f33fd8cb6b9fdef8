//! Requests of a stopper (`pillion stop`), and messages to processes that attach meanwhile.

use std::os::fd::OwnedFd;

use protocol::clock::Clock;
use protocol::hello::{Attach, Ending, Reply, Stop, send};
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use super::{Control, peer, refuse};
use crate::core::fairness::place_to_give_up;
use crate::core::job_key::{Peer, job_key};
use crate::core::ledgers::Image;
use crate::core::state::{Attached, Moment, NewPages, Refused, Stopped};

/// Watched stoppers, whose requests end with them. Beyond it the user with most loses its oldest,
/// whose requests then last their full time.
const ASKERS_MAX: usize = 64;

pub(super) struct Asker {
    pid: u32,
    uid: u32,
    pub(super) process: OwnedFd,
}

impl Control {
    pub(super) fn stop(&self, socket: &OwnedFd, uid: u32, stop: &Stop) {
        let clock = self.shared.clock();
        let meant = stopped(&stop.job, stop.user);
        let mut state = self.shared.state();
        let asked = state.stop(&meant, uid, Clock::monotonic().now_ns(), clock);
        drop(state);
        answer(socket, asked, |clients| {
            let processes = match clients {
                1 => "process",
                _ => "processes",
            };
            tracing::info!("job {:?}: asked {clients} {processes} to end", stop.job);
        });
    }

    pub(super) fn see_to(&mut self, socket: &OwnedFd, uid: u32, ending: &Ending) {
        // A stopper is identified by its process, and its requests end with the process.
        let asker = peer::of(socket).ok();
        let has_ended = |process: &Option<OwnedFd>| process.as_ref().is_some_and(peer::has_ended);
        let Some((Peer { pid, .. }, process)) = asker.filter(|asker| !has_ended(&asker.1)) else {
            return refuse(socket, "the requesting process has ended".to_owned());
        };
        // One of them may have had the same process id.
        self.drop_dead_askers();
        // The requester may have seen processes end before this daemon has.
        let clients = self.clients.iter();
        let gone: Vec<u64> = clients
            .filter(|known| known.process.as_ref().is_some_and(peer::has_ended))
            .map(|known| known.client)
            .collect();
        let by = Peer { pid, uid };
        let meant = stopped(&ending.job, ending.user);
        let at = moment();
        let mut state = self.shared.state();
        let what = (ending.within_ns, ending.is_over);
        let told = state.see_to(&meant, by, at, what, &gone);
        let is_asker = |asker: &Asker| state.is_asker(asker.pid, at.now_ns);
        self.askers
            .retain(|asker| asker.pid != pid && is_asker(asker));
        let process = process.filter(|_| state.is_asker(pid, at.now_ns));
        drop(state);
        self.askers
            .extend(process.map(|process| Asker { pid, uid, process }));
        if self.askers.len() > ASKERS_MAX {
            let place = place_to_give_up(self.askers.iter().map(|asker| asker.uid));
            place.map(|place| self.askers.remove(place));
        }
        answer(socket, told, |_| {});
    }

    pub(super) fn drop_dead_askers(&mut self) {
        let askers = std::mem::take(&mut self.askers);
        let is_dead = |asker: &Asker| peer::has_ended(&asker.process);
        let (dead, alive): (Vec<_>, Vec<_>) = askers.into_iter().partition(is_dead);
        self.askers = alive;
        for Asker { pid, .. } in dead {
            tracing::info!("process {pid}, which was ending a job, has ended");
            self.shared.state().handle_asker_death(pid, moment());
        }
    }

    /// A process becomes a client. It learns that its job is being ended before it launches
    /// anything, and gets its job's changes from the previous daemon.
    pub(super) fn enter(
        &self,
        peer: Peer,
        attach: Attach,
        pages: NewPages,
    ) -> Result<Attached, Refused> {
        let clock = self.shared.clock();
        let key = job_key(&attach.job, attach.class, peer);
        let started_ticks = Image::of(peer.pid).started_ticks;
        let (now_ns, real_ns) = (clock.now_ns(), Clock::monotonic().now_ns());
        let mut state = self.shared.state();
        let attached = state.handle_attach(now_ns, peer, attach, pages)?;
        let is_to_end = state.tell_comer(attached.client, started_ticks, real_ns, clock);
        drop(state);
        self.keep_changes(&key);
        if is_to_end {
            let (job, pid) = (&key.id, peer.pid);
            tracing::info!(
                "job {job:?} is being ended: process {pid}, which has just attached, is asked to \
                 end too"
            );
        }
        Ok(attached)
    }
}

fn moment() -> Moment {
    Moment {
        now_ns: Clock::monotonic().now_ns(),
        boot_ticks: boot_ticks(),
    }
}

/// The current time in the unit of process starts (`proc_pid_stat(5)`, field 22).
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
