//! A job, or one process of it, that is made to end, step by step; nobody waits for it.
//!
//! **A job is ended** as `pillion stop` does it: SIGTERM, on which it may save what it has; after
//! the grace its processes are asked to launch nothing more and to die once nothing is in flight;
//! then SIGKILL, where MPS shares the GPU not before that was asked to end what is in flight
//! ([`super::asking`]). One whose own time to drain is over before ([`Overdue`]) is asked for at
//! once, and killed alone; if MPS refuses, it has the grace that the others have, as its work may
//! still end by itself. Only those that were clients when it began: its supervisor may start new
//! ones meanwhile. A process that is evicted (for its memory, or because it is unmanaged), and did
//! not end when it was asked, is ended in the same steps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use protocol::ending::{DRAIN_NS, FROZEN_NS, KILL_NS, TERMINATE_NS};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::asking::Answer;
use crate::core::job_key::JobKey;
use crate::host::peer::has_ended;

/// What came of something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    pub(crate) job: Option<JobKey>,
    pub(crate) text: String,
    /// A process that was to be evicted, and this daemon may not kill.
    pub(crate) out_of_reach: Option<u32>,
}

/// Of processes that may not be sent signals.
const DENIED: &str = "this daemon is not of the user and has no CAP_KILL";

/// A job whose processes are to end, or one process of it.
#[derive(Debug)]
pub(super) struct Ending {
    job: JobKey,
    /// The one process, if it is evicted.
    evicted: Option<u32>,
    processes: Vec<(u32, Arc<OwnedFd>)>,
    count: usize,
    stage: Stage,
    /// When the next stage begins.
    next_ns: u64,
    /// About which of them MPS has still to be asked, or to answer.
    unasked: Vec<u32>,
    /// About which of these it was asked.
    pub(super) current: Option<u32>,
    /// Which question was the last one about any of them; 0: none yet.
    pub(super) turn: u64,
    /// Whose work MPS did not end, and why.
    refusals: Vec<(u32, String)>,
    /// How many may not be killed by this daemon.
    denied: usize,
    /// Those who need not wait for the others.
    overdue: Vec<Overdue>,
}

/// A process that a signal has asked to end, and that has work in flight when its time to drain is over.
#[derive(Debug)]
struct Overdue {
    pid: u32,
    /// MPS has to answer before.
    end_ns: u64,
    /// What it did, until that is looked at.
    answer: Option<Answer>,
    /// It was killed, or is left until the grace is over.
    is_settled: bool,
}

/// A process that was asked to end by rule, in vain.
#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) job: JobKey,
    pub(crate) pid: u32,
    pub(crate) process: Arc<OwnedFd>,
    /// Only of a client can its library be asked to drain.
    pub(crate) is_client: bool,
    /// For what it is ended, for people.
    pub(crate) why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Draining,
    Terminating,
    Killed,
}

/// Of how many processes the end has begun, and how many of them may not be sent signals by this daemon (no CAP_KILL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) count: usize,
    pub(crate) denied: usize,
}

/// A job whose processes are to launch nothing more and to end.
pub(crate) type ToStop = (JobKey, Vec<u32>);

impl Ending {
    /// Begins to end these processes of a job.
    pub(super) fn of_job(
        now_ns: u64,
        job: &JobKey,
        processes: Vec<(u32, Arc<OwnedFd>)>,
        grace_ns: u64,
    ) -> (Self, Begun) {
        let next_ns = now_ns.saturating_add(grace_ns);
        let mut ending = Self::new(job.clone(), processes, Stage::Asked, next_ns);
        let begun = Begun {
            count: ending.count,
            denied: ending.signal(Signal::TERM),
        };
        if begun.denied == begun.count {
            // Nobody was asked, so there is no grace: each process's own library is asked at once.
            ending.next_ns = now_ns;
        }
        (ending, begun)
    }

    /// Begins to end a process that was asked to and did not.
    pub(super) fn of_process(now_ns: u64, evicted: Evicted) -> Self {
        let stage = match evicted.is_client {
            true => Stage::Asked,
            false => Stage::Draining,
        };
        let processes = vec![(evicted.pid, evicted.process)];
        Self {
            evicted: Some(evicted.pid),
            ..Self::new(evicted.job, processes, stage, now_ns)
        }
    }

    fn new(job: JobKey, processes: Vec<(u32, Arc<OwnedFd>)>, stage: Stage, next_ns: u64) -> Self {
        Self {
            job,
            evicted: None,
            count: processes.len(),
            processes,
            stage,
            next_ns,
            unasked: Vec::new(),
            current: None,
            turn: 0,
            refusals: Vec::new(),
            denied: 0,
            overdue: Vec::new(),
        }
    }

    /// Whether it is of this whole job.
    pub(super) fn is_of_job(&self, job: &JobKey) -> bool {
        self.job == *job && self.evicted.is_none()
    }

    /// Whether it ends this process.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.processes.iter().any(|(known, _)| *known == pid)
    }

    /// How many processes it has still to end.
    pub(super) fn left(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn is_eviction(&self) -> bool {
        self.evicted.is_some()
    }

    /// Whose job it is of.
    pub(super) fn uid(&self) -> u32 {
        self.job.uid
    }

    /// No process of it has any more time to end by itself.
    pub(super) fn cut_grace(&mut self, now_ns: u64) {
        if self.stage == Stage::Asked {
            self.next_ns = self.next_ns.min(now_ns);
        }
    }

    /// How long MPS may take to answer, ns.
    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        let of_current = self.unasked.first();
        let is_its = |overdue: &&Overdue| of_current == Some(&overdue.pid);
        let overdue = self.overdue.iter().find(is_its);
        let end_ns = overdue.map_or(self.next_ns, |overdue| overdue.end_ns);
        end_ns.saturating_sub(now_ns)
    }

    /// About how many processes MPS is to be asked, now or once they had time to drain.
    pub(super) fn unasked_count(&self) -> usize {
        match self.stage {
            Stage::Draining => self.processes.len(),
            _ => self.unasked.len(),
        }
    }

    /// A process about which MPS is to be asked.
    pub(super) fn unasked(&self) -> Option<(u32, Arc<OwnedFd>)> {
        let first = self.unasked.first()?;
        let mut processes = self.processes.iter();
        let (pid, process) = processes.find(|(pid, _)| pid == first)?;
        Some((*pid, Arc::clone(process)))
    }

    /// What MPS did about a process, if that is waited for.
    pub(super) fn handle_answer(&mut self, pid: u32, answer: &Answer) {
        let Some(place) = self.unasked.iter().position(|unasked| *unasked == pid) else {
            return;
        };
        self.unasked.remove(place);
        self.current = None;
        if let Some(overdue) = self.overdue.iter_mut().find(|overdue| overdue.pid == pid) {
            overdue.answer = Some(answer.clone());
        } else if let Err(why) = answer {
            self.refusals.push((pid, why.clone()));
        }
    }

    /// Readable when a process has ended.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().map(|(_, process)| process.as_fd())
    }

    /// Returns how many may not be sent it. One that has ended needs none.
    fn signal(&self, signal: Signal) -> usize {
        let is_denied = |process| pidfd_send_signal(process, signal) == Err(Errno::PERM);
        let processes = self.processes.iter();
        processes.filter(|(_, process)| is_denied(process)).count()
    }

    /// These processes, of whichever job, are overdue.
    pub(super) fn handle_overdue(&mut self, now_ns: u64, pids: &[u32]) {
        let is_before_mps = matches!(self.stage, Stage::Asked | Stage::Draining);
        for pid in pids.iter().filter(|_| is_before_mps) {
            let is_known = self.overdue.iter().any(|overdue| overdue.pid == *pid);
            if self.has(*pid) && !is_known {
                self.unasked.push(*pid);
                self.overdue.push(Overdue {
                    pid: *pid,
                    end_ns: now_ns.saturating_add(TERMINATE_NS),
                    answer: None,
                    is_settled: false,
                });
            }
        }
    }

    /// Those whose work MPS has ended are killed. Of whom it refused that, or did not answer in time, it is asked again after the grace.
    fn poll_overdue(&mut self, now_ns: u64) {
        for place in 0..self.overdue.len() {
            let overdue = &mut self.overdue[place];
            let (pid, is_late) = (overdue.pid, now_ns >= overdue.end_ns);
            let answer = overdue.answer.take();
            if overdue.is_settled || (answer.is_none() && !is_late) {
                continue;
            }
            overdue.is_settled = true;
            self.unasked.retain(|unasked| *unasked != pid);
            self.current.take_if(|current| *current == pid);
            if answer != Some(Ok(())) {
                continue;
            }
            let process = self.processes.iter().find(|(known, _)| *known == pid);
            let killed = process.map(|(_, process)| pidfd_send_signal(process, Signal::KILL));
            if killed == Some(Err(Errno::PERM)) {
                self.denied += 1;
            }
        }
    }

    /// Why MPS did nothing about a process in time.
    fn late(&mut self, pid: u32) -> String {
        match self.current.take_if(|current| *current == pid) {
            Some(_) => "it has not answered in time".to_owned(),
            None => "it was not asked: others took the time".to_owned(),
        }
    }

    /// Whether it goes on.
    pub(super) fn poll(
        &mut self,
        now_ns: u64,
        is_on_mps: bool,
        outcomes: &mut Vec<Outcome>,
        to_stop: &mut Vec<ToStop>,
    ) -> bool {
        self.processes.retain(|(_, process)| !has_ended(process));
        let processes = &self.processes;
        let is_there = |pid: &u32| processes.iter().any(|(known, _)| known == pid);
        self.unasked.retain(is_there);
        self.refusals.retain(|(pid, _)| is_there(pid));
        self.overdue.retain(|overdue| is_there(&overdue.pid));
        self.poll_overdue(now_ns);
        let left = self.processes.len();
        let is_given_up = now_ns >= self.next_ns && self.stage == Stage::Killed;
        if left == 0 || is_given_up {
            outcomes.push(self.outcome(left));
            return false;
        }
        let is_answered = self.stage == Stage::Terminating && self.unasked.is_empty();
        if now_ns >= self.next_ns || is_answered {
            let next_ns = self.advance(is_on_mps, outcomes, to_stop);
            self.next_ns = now_ns.saturating_add(next_ns);
        }
        true
    }

    /// What came of it, with so many processes left.
    fn outcome(&self, left: usize) -> Outcome {
        let (id, count, denied) = (&self.job.id, self.count, self.denied);
        let text = match (self.evicted, left, denied) {
            (Some(pid), 0, _) => format!("job {id:?}: its process {pid} has ended"),
            (Some(pid), _, 0) => {
                format!("job {id:?}: its process {pid} does not end although it was killed")
            }
            (Some(pid), ..) => {
                format!("job {id:?}: its process {pid} has not ended, and {DENIED}")
            }
            (None, 0, _) => format!("job {id:?}: its {count} processes have ended"),
            (None, _, 0) => format!(
                "job {id:?}: {left} of {count} processes do not end although they were killed"
            ),
            (None, ..) => {
                format!(
                    "job {id:?}: {left} of {count} processes have not ended; of {denied} {DENIED}"
                )
            }
        };
        Outcome {
            is_success: left == 0,
            job: Some(self.job.clone()),
            text,
            out_of_reach: self.evicted.filter(|_| left > 0),
        }
    }

    /// Begins the next stage; how long it takes at most, ns.
    fn advance(
        &mut self,
        is_on_mps: bool,
        outcomes: &mut Vec<Outcome>,
        to_stop: &mut Vec<ToStop>,
    ) -> u64 {
        match self.stage {
            Stage::Asked => {
                self.stage = Stage::Draining;
                let pids = self.processes.iter().map(|(pid, _)| *pid).collect();
                to_stop.push((self.job.clone(), pids));
                DRAIN_NS
            }
            Stage::Draining if is_on_mps => {
                self.stage = Stage::Terminating;
                // From now on what is answered is about all.
                self.overdue.clear();
                self.unasked = self.processes.iter().map(|(pid, _)| *pid).collect();
                TERMINATE_NS
            }
            Stage::Terminating => {
                for pid in std::mem::take(&mut self.unasked) {
                    let why = self.late(pid);
                    self.refusals.push((pid, why));
                }
                self.current = None;
                let count = self.refusals.len();
                let first = self.refusals.first();
                outcomes.extend(first.map(|(pid, why)| self.refused(count, *pid, why)));
                self.kill()
            }
            Stage::Draining | Stage::Killed => self.kill(),
        }
    }

    fn kill(&mut self) -> u64 {
        self.stage = Stage::Killed;
        self.denied = self.signal(Signal::KILL);
        match self.denied {
            0 => KILL_NS,
            // Whoever may not be killed dies by itself, if its library works.
            _ => FROZEN_NS,
        }
    }

    /// What MPS did not do before the kill.
    fn refused(&self, count: usize, pid: u32, why: &str) -> Outcome {
        let id = &self.job.id;
        let text = format!(
            "job {id:?}: MPS did not end the work of {count} of its processes, which may take others along when they end; \
             of process {pid}: {why}"
        );
        Outcome {
            job: Some(self.job.clone()),
            text,
            ..Outcome::default()
        }
    }
}
