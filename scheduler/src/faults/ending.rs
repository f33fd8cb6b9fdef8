//! Ends a job, or one process of it, step by step; nobody waits for it.
//! - **A job** is ended as by `pillion stop`: SIGTERM, on which it may save its state; after the
//!   grace its processes are asked to stop launching and to die once nothing is in flight; then
//!   SIGKILL, under MPS only after MPS was asked to end the work in flight ([`super::asking`]). For
//!   a process whose own drain times out earlier ([`Overdue`]) MPS is asked at once, and it is
//!   killed alone; if MPS refuses, it keeps the others' grace, as its work may still end by itself.
//!   Only clients at the begin are ended: the job's supervisor may start new ones meanwhile. An
//!   evicted process (for its memory, or as unmanaged) that did not end when asked takes the same
//!   steps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use protocol::ending::{DRAIN_NS, FROZEN_NS, KILL_NS, TERMINATE_NS};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

use super::asking::Answer;
use crate::core::job_key::JobKey;
use crate::host::peer::has_ended;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    pub(crate) job: Option<JobKey>,
    pub(crate) text: String,
    /// A process to evict that this daemon may not kill.
    pub(crate) out_of_reach: Option<u32>,
}

/// For processes that may not be signalled.
const DENIED: &str = "this daemon runs as another user and has no CAP_KILL";

#[derive(Debug)]
pub(super) struct Ending {
    job: JobKey,
    evicted: Option<u32>,
    processes: Vec<(u32, Arc<OwnedFd>)>,
    count: usize,
    stage: Stage,
    next_ns: u64,
    /// Those about which MPS must still be asked, or answer.
    unasked: Vec<u32>,
    pub(super) current: Option<u32>,
    /// The last question about any of them; 0: none yet.
    pub(super) turn: u64,
    refusals: Vec<(u32, String)>,
    /// Number that this daemon may not kill.
    denied: usize,
    overdue: Vec<Overdue>,
}

#[derive(Debug)]
struct Overdue {
    pid: u32,
    end_ns: u64,
    answer: Option<Answer>,
    /// It was killed, or is left until the grace is over.
    is_settled: bool,
}

#[derive(Debug)]
pub(crate) struct Evicted {
    pub(crate) job: JobKey,
    pub(crate) pid: u32,
    pub(crate) process: Arc<OwnedFd>,
    /// Only a client's library can be asked to drain.
    pub(crate) is_client: bool,
    pub(crate) why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked,
    Draining,
    Terminating,
    Killed,
}

/// Number of processes being ended, and of those that this daemon may not signal (no CAP_KILL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) count: usize,
    pub(crate) denied: usize,
}

pub(crate) type ToStop = (JobKey, Vec<u32>);

impl Ending {
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
            // None was asked, so there is no grace: ask each process's library at once.
            ending.next_ns = now_ns;
        }
        (ending, begun)
    }

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

    pub(super) fn is_of_job(&self, job: &JobKey) -> bool {
        self.job == *job && self.evicted.is_none()
    }

    pub(super) fn has(&self, pid: u32) -> bool {
        self.processes.iter().any(|(known, _)| *known == pid)
    }

    pub(super) fn left(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn is_eviction(&self) -> bool {
        self.evicted.is_some()
    }

    pub(super) fn uid(&self) -> u32 {
        self.job.uid
    }

    pub(super) fn cut_grace(&mut self, now_ns: u64) {
        if self.stage == Stage::Asked {
            self.next_ns = self.next_ns.min(now_ns);
        }
    }

    pub(super) fn left_ns(&self, now_ns: u64) -> u64 {
        let of_current = self.unasked.first();
        let is_its = |overdue: &&Overdue| of_current == Some(&overdue.pid);
        let overdue = self.overdue.iter().find(is_its);
        let end_ns = overdue.map_or(self.next_ns, |overdue| overdue.end_ns);
        end_ns.saturating_sub(now_ns)
    }

    /// Number of processes about which MPS must be asked, now or after their drain.
    pub(super) fn unasked_count(&self) -> usize {
        match self.stage {
            Stage::Draining => self.processes.len(),
            _ => self.unasked.len(),
        }
    }

    pub(super) fn unasked(&self) -> Option<(u32, Arc<OwnedFd>)> {
        let first = self.unasked.first()?;
        let mut processes = self.processes.iter();
        let (pid, process) = processes.find(|(pid, _)| pid == first)?;
        Some((*pid, Arc::clone(process)))
    }

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

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().map(|(_, process)| process.as_fd())
    }

    /// Returns the number that may not be signalled. Ended ones need no signal.
    fn signal(&self, signal: Signal) -> usize {
        let is_denied = |process| pidfd_send_signal(process, signal) == Err(Errno::PERM);
        let processes = self.processes.iter();
        processes.filter(|(_, process)| is_denied(process)).count()
    }

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

    /// Kills those whose work MPS has ended. The others wait for the grace and another question.
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

    fn late(&mut self, pid: u32) -> String {
        match self.current.take_if(|current| *current == pid) {
            Some(_) => "MPS has not answered in time".to_owned(),
            None => "MPS was not asked: the time was used for other processes".to_owned(),
        }
    }

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

    fn outcome(&self, left: usize) -> Outcome {
        let (id, count, denied) = (&self.job.id, self.count, self.denied);
        let text = match (self.evicted, left, denied) {
            (Some(pid), 0, _) => format!("job {id:?}: its process {pid} has ended"),
            (Some(pid), _, 0) => {
                format!("job {id:?}: its process {pid} was killed but has not exited")
            }
            (Some(pid), ..) => {
                format!("job {id:?}: its process {pid} has not ended, and {DENIED}")
            }
            (None, 0, _) if count == 1 => format!("job {id:?}: its process has ended"),
            (None, 0, _) => format!("job {id:?}: its {count} processes have ended"),
            (None, _, 0) if count == 1 => {
                format!("job {id:?}: its process was killed but has not exited")
            }
            (None, _, 0) => {
                format!("job {id:?}: {left} of {count} processes were killed but have not exited")
            }
            (None, ..) if count == 1 => {
                format!("job {id:?}: its process has not ended, and {DENIED}")
            }
            (None, ..) => {
                format!(
                    "job {id:?}: {left} of {count} processes have not ended; for {denied} of them, \
                     {DENIED}"
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

    /// Begins the next stage; returns its longest duration, ns.
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
                // Later answers are about all processes.
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
            // A process that may not be killed dies by itself, if its library works.
            _ => FROZEN_NS,
        }
    }

    fn refused(&self, count: usize, pid: u32, why: &str) -> Outcome {
        let id = &self.job.id;
        let end = match count {
            1 => "that process ends",
            _ => "those processes end",
        };
        let text = format!(
            "job {id:?}: MPS did not end the work of {count} of its processes, so other clients of \
             MPS may fail when {end}; process {pid}: {why}"
        );
        Outcome {
            job: Some(self.job.clone()),
            text,
            ..Outcome::default()
        }
    }
}
