//! Processes of a job that are no clients: whose they are, as far as the kernel tells.
//!
//! A process that was started with the library switched off, is linked statically or was started without its environment has
//! memory that no account has. It is the job's of its user that its environment names (`PILLION_JOB`), or that it descends from
//! a client of.

use std::fs;

use crate::excess::Holding;
use crate::state::JobKey;

/// Most generations that are looked back.
const GENERATIONS_MAX: usize = 64;
const VARIABLE: &[u8] = b"PILLION_JOB=";

/// The job of a process that has memory and no account, if it is one of those that have clients.
pub(crate) fn job_of(pid: u32, holdings: &[Holding]) -> Option<JobKey> {
    // Whoever owns its files in /proc: those of one that may not be looked into are root's.
    let uid = real_uid(pid)?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok();
    // One that names a job is of that job or of none.
    if let Some(id) = environment.as_deref().and_then(job_id) {
        let mut holdings = holdings.iter();
        let found = holdings.find(|holding| holding.job.id == id && holding.job.uid == uid);
        return found.map(|found| found.job.clone());
    }
    let by_descent = || {
        let mut ancestor = pid;
        for _ in 0..GENERATIONS_MAX {
            ancestor = parent(&fs::read_to_string(format!("/proc/{ancestor}/stat")).ok()?)?;
            let mut holdings = holdings.iter();
            if let Some(found) = holdings.find(|holding| holding.pid == ancestor) {
                return Some(found);
            }
        }
        None
    };
    let found = by_descent().filter(|found| found.job.uid == uid);
    found.map(|found| found.job.clone())
}

/// Who started a process (proc_pid_status(5)).
pub(crate) fn real_uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What an environment (proc_pid_environ(5)) calls the job.
fn job_id(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let id = variables.find_map(|variable| variable.strip_prefix(VARIABLE))?;
    let id = String::from_utf8_lossy(id).into_owned();
    Some(id).filter(|id| !id.is_empty())
}

/// The parent of a process (proc_pid_stat(5), field 4), unless it has none.
fn parent(stat: &str) -> Option<u32> {
    // The name, in parentheses, may contain anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    let parent = after_name.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (parent > 1).then_some(parent)
}

#[cfg(test)]
mod tests {
    use protocol::hello::JobClass;

    use super::*;

    #[test]
    fn the_job_is_the_environments_or_that_of_an_ancestor() {
        assert_eq!(
            job_id(b"A=1\0PILLION_JOB=7-x\0B=2\0").as_deref(),
            Some("7-x")
        );
        assert_eq!(job_id(b"PILLION_JOB=\0XPILLION_JOB=1\0"), None);
        assert_eq!(parent("12 (a) b) (c)) S 11 12 12 0"), Some(11));
        assert_eq!(parent("12 (init) S 1 12"), None);
        let own = std::process::id();
        let parent = fs::read_to_string("/proc/self/stat").unwrap();
        let parent = super::parent(&parent).unwrap();
        let job = JobKey {
            id: "job".to_owned(),
            uid: rustix::process::getuid().as_raw(),
            class: JobClass::BestEffort,
        };
        let holding = |pid| Holding {
            job: job.clone(),
            pid,
            held_bytes: 0,
            context_bytes: 0,
        };
        assert_eq!(job_of(own, &[holding(parent)]), Some(job.clone()));
        assert_eq!(job_of(own, &[holding(u32::MAX)]), None);
        let mut anothers = holding(parent);
        anothers.job.uid += 1;
        assert_eq!(job_of(own, &[anothers]), None);
    }

    #[test]
    fn a_process_is_whose_the_kernel_says() {
        let own = rustix::process::getuid().as_raw();
        assert_eq!(real_uid(std::process::id()), Some(own));
        assert_eq!(real_uid(u32::MAX), None);
    }
}
