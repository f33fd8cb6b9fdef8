//! Actions on faults that take long: ending a job's processes, restarting MPS. Nobody waits for
//! them.
//! - **Ending a job**: see [`super::ending`].
//! - **Restarting MPS** runs commands: programs with arguments, without a shell, with the daemon's
//!   own rights, in their own process group and with output to the daemon's log. A late command is
//!   killed with its group. At most [`COMMANDS_MAX`] run at once, [`COMMANDS_PER_USER`] of them for
//!   faults of one user's jobs, and [`COMMANDS_OF_GPU`] only for the GPU's own.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::asking::Asker;
use super::ending::{Begun, Ending, Evicted, Outcome, ToStop};
use crate::config::limits::CLIENTS_MAX;
use crate::core::job_key::JobKey;
use crate::host::program::{self, Output, Started};

pub(crate) const COMMANDS_MAX: usize = 8;
/// Of these for faults of one user's jobs.
const COMMANDS_PER_USER: usize = 2;
/// Places that all jobs' faults leave to the GPU's.
const COMMANDS_OF_GPU: usize = 2;
/// Processes being ended at once. Each takes a descriptor.
pub(crate) const ENDINGS_MAX: usize = 4 * CLIENTS_MAX;
/// Of these by rule, for one user's jobs: as many as there can be clients.
const RESTARTS_PER_USER: usize = CLIENTS_MAX;
/// Places that rules leave to evictions.
const ENDINGS_OF_EVICTION: usize = 64;
/// Evictions of one user's processes at once.
const EVICTIONS_PER_USER: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: Vec<String>,
    pub(crate) input: &'static str,
    /// It may fail, and the next runs all the same.
    pub(crate) may_fail: bool,
    pub(crate) timeout_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Doings {
    commands: Vec<Running>,
    endings: Vec<Ending>,
    asker: Asker,
    is_on_mps: bool,
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    job: Option<JobKey>,
    step: Step,
    rest: Vec<Step>,
    environment: Vec<CString>,
    started: Started,
    end_ns: u64,
    is_killed: bool,
}

impl Doings {
    /// No action yet. Under MPS a kill first asks MPS, by this command.
    pub(crate) fn new(mps: &[String]) -> Self {
        Self {
            asker: Asker::new(mps),
            ..Self::default()
        }
    }

    /// MPS shares the GPU from now on, or does not. A pending question to MPS continues.
    pub(crate) fn set_on_mps(&mut self, is_on_mps: bool) {
        self.is_on_mps = is_on_mps;
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let commands = self.commands.iter();
        let commands = commands.map(|running| running.started.process.as_fd());
        let endings = self.endings.iter().flat_map(Ending::descriptors);
        let answered = self.asker.answered();
        commands.chain(endings).chain(answered)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.endings.is_empty()
    }

    pub(crate) fn end_job(
        &mut self,
        now_ns: u64,
        job: &JobKey,
        processes: Vec<(u32, Arc<OwnedFd>)>,
        grace_ns: u64,
    ) -> Result<Begun, String> {
        if self.endings.iter().any(|ending| ending.is_of_job(job)) {
            return Ok(Begun::default());
        }
        if processes.is_empty() {
            return Err(format!(
                "job {:?} has no process that this daemon can see",
                job.id
            ));
        }
        self.check_restarts(job.uid, processes.len())?;
        let (ending, begun) = Ending::of_job(now_ns, job, processes, grace_ns);
        self.endings.push(ending);
        Ok(begun)
    }

    /// Begins to end a process that was asked to and did not. One that is already being ended with
    /// its job loses its grace; then it returns false.
    pub(crate) fn evict(&mut self, now_ns: u64, evicted: Evicted) -> Result<bool, String> {
        let pid = evicted.pid;
        let mut endings = self.endings.iter_mut();
        if let Some(ending) = endings.find(|ending| ending.has(pid)) {
            ending.cut_grace(now_ns);
            return Ok(false);
        }
        self.check_evictions(evicted.job.uid)?;
        self.endings.push(Ending::of_process(now_ns, evicted));
        Ok(true)
    }

    fn count(&self, is_counted: impl Fn(&Ending) -> bool) -> usize {
        let counted = self.endings.iter().filter(|ending| is_counted(ending));
        counted.map(Ending::left).sum()
    }

    fn check_restarts(&self, uid: u32, more: usize) -> Result<(), String> {
        let of_user = self.count(|ending| !ending.is_eviction() && ending.uid() == uid);
        if of_user + more > RESTARTS_PER_USER {
            return Err(format!(
                "{of_user} processes of this user are being ended already, and with this job's \
                 {more} they would exceed the limit of {RESTARTS_PER_USER}"
            ));
        }
        let evictions = self.count(Ending::is_eviction).max(ENDINGS_OF_EVICTION);
        let restarts = self.count(|ending| !ending.is_eviction());
        match restarts + more + evictions > ENDINGS_MAX {
            true => Err(format!(
                "{restarts} processes are being ended already, and with this job's {more} they \
                 would exceed the limit of {}",
                ENDINGS_MAX.saturating_sub(evictions)
            )),
            false => Ok(()),
        }
    }

    fn check_evictions(&self, uid: u32) -> Result<(), String> {
        let of_user = self.count(|ending| ending.is_eviction() && ending.uid() == uid);
        if of_user >= EVICTIONS_PER_USER {
            return Err(format!(
                "{of_user} processes of this user are being evicted already, and the limit is \
                 {EVICTIONS_PER_USER}"
            ));
        }
        match self.count(|_| true) {
            ENDINGS_MAX.. => Err(format!(
                "{ENDINGS_MAX} processes are being ended already, which is the limit"
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn run(
        &mut self,
        now_ns: u64,
        name: &'static str,
        steps: Vec<Step>,
        job: Option<&JobKey>,
    ) -> Result<(), String> {
        let mut steps = steps.into_iter();
        let Some(step) = steps.next() else {
            return Ok(());
        };
        self.check_room(job)?;
        let environment = program::environment(|_| false, []);
        let started = step.start(&environment)?;
        self.commands.push(Running {
            name,
            job: job.cloned(),
            end_ns: now_ns.saturating_add(step.timeout_ns),
            step,
            rest: steps.collect(),
            environment,
            started,
            is_killed: false,
        });
        Ok(())
    }

    fn check_room(&self, job: Option<&JobKey>) -> Result<(), String> {
        if self.commands.len() >= COMMANDS_MAX {
            return Err(format!("{COMMANDS_MAX} commands are running already"));
        }
        let Some(JobKey { uid, .. }) = job else {
            return Ok(());
        };
        let of_jobs = || {
            self.commands
                .iter()
                .filter_map(|running| running.job.as_ref())
        };
        if of_jobs().filter(|key| key.uid == *uid).count() >= COMMANDS_PER_USER {
            return Err(format!(
                "{COMMANDS_PER_USER} commands for faults of this user's jobs are running already"
            ));
        }
        const OF_JOBS: usize = COMMANDS_MAX - COMMANDS_OF_GPU;
        if of_jobs().count() >= OF_JOBS {
            return Err(format!(
                "{OF_JOBS} commands for faults of jobs are running already"
            ));
        }
        Ok(())
    }

    pub(crate) fn handle_overdue(&mut self, now_ns: u64, pids: &[u32]) {
        for ending in &mut self.endings {
            ending.handle_overdue(now_ns, pids);
        }
    }

    /// Continues all actions; `outcomes` gets results, `handle_spared` a process whose work MPS has
    /// ended, before its kill. Returns the processes to ask to drain.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        outcomes: &mut Vec<Outcome>,
        handle_spared: impl FnOnce(u32),
    ) -> Vec<ToStop> {
        self.commands = std::mem::take(&mut self.commands)
            .into_iter()
            .filter_map(|running| running.poll(now_ns, outcomes))
            .collect();
        let mut to_stop = Vec::new();
        if let Some(pid) = self.asker.poll_answer(&mut self.endings) {
            handle_spared(pid);
        }
        let is_on_mps = self.is_on_mps;
        self.endings
            .retain_mut(|ending| ending.poll(now_ns, is_on_mps, outcomes, &mut to_stop));
        self.asker.poll_question(now_ns, &mut self.endings);
        to_stop
    }
}

impl Step {
    fn start(&self, environment: &[CString]) -> Result<Started, String> {
        program::spawn(&self.command, self.input, &Output::Log, environment)
    }
}

impl Running {
    fn poll(mut self, now_ns: u64, outcomes: &mut Vec<Outcome>) -> Option<Self> {
        let status = match waitpid(self.started.child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => {
                if now_ns >= self.end_ns && !self.is_killed {
                    self.is_killed = true;
                    self.started.kill();
                }
                return Some(self);
            }
            Ok(WaitStatus::Exited(_, 0)) => Ok(()),
            Ok(WaitStatus::Exited(_, code)) => Err(format!("exited with status {code}")),
            Ok(WaitStatus::Signaled(..)) if self.is_killed => {
                Err("took too long and was killed".to_owned())
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Err(format!("was killed by {signal}")),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        };
        let told = match status {
            Err(why) if !self.step.may_fail => Err(why),
            _ if self.rest.is_empty() => Ok(()),
            _ => {
                let step = self.rest.remove(0);
                match step.start(&self.environment) {
                    Ok(started) => {
                        self.end_ns = now_ns.saturating_add(step.timeout_ns);
                        (self.step, self.started) = (step, started);
                        self.is_killed = false;
                        return Some(self);
                    }
                    Err(why) => {
                        outcomes.push(Outcome {
                            is_success: false,
                            text: format!("{}: {why}", self.name),
                            job: self.job,
                            ..Outcome::default()
                        });
                        return None;
                    }
                }
            }
        };
        let program = &self.step.command[0];
        outcomes.push(Outcome {
            is_success: told.is_ok(),
            text: match told {
                Ok(()) => format!("{}: {program} succeeded", self.name),
                Err(why) => format!("{}: {program} {why}", self.name),
            },
            job: self.job,
            ..Outcome::default()
        });
        None
    }
}

#[cfg(test)]
mod tests;
