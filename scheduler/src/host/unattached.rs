//! The jobs of processes that are no clients, as far as the kernel reports.
//! A process that was started with the library switched off, without its environment, or is linked
//! statically, has memory outside all accounts. It belongs to the job of its user that its
//! environment names (`PILLION_JOB`), or to that of a client among its ancestors.

use std::fs;

use crate::core::job_key::JobKey;
use crate::core::unaccounted_memory::Holding;

/// Generations of ancestors examined.
pub const GENERATIONS_MAX: usize = 64;
const VARIABLE: &[u8] = b"PILLION_JOB=";

pub(crate) fn job_of(pid: u32, holdings: &[Holding]) -> Option<JobKey> {
    // Its real user; none once it has ended.
    let uid = real_uid(pid)?;
    let environment = fs::read(format!("/proc/{pid}/environ")).ok();
    // A process that names a job belongs to that job or to none.
    if let Some(id) = environment.as_deref().and_then(job_id) {
        let mut holdings = holdings.iter();
        let found = holdings.find(|holding| holding.job.id == id && holding.job.uid == uid);
        return found.map(|found| found.job.clone());
    }
    let client = |ancestor| holdings.iter().find(|holding| holding.pid == ancestor);
    let by_descent = ancestors(pid).find_map(client);
    let found = by_descent.filter(|found| found.job.uid == uid);
    found.map(|found| found.job.clone())
}

/// Ancestors of a job's process that belong to the job themselves, by environment and user: they
/// have started it, and may restart it. Nearest first.
#[must_use]
pub fn supervisors(pid: u32, job: &str, uid: u32) -> Vec<u32> {
    let is_its = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok();
        let id = environment.as_deref().and_then(job_id);
        id.as_deref() == Some(job) && real_uid(*pid) == Some(uid)
    };
    ancestors(pid).filter(is_its).collect()
}

/// Ancestors of a process, nearest first, without process 1; at most [`GENERATIONS_MAX`].
pub fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    let parent_of = |pid: &u32| parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    std::iter::successors(parent_of(&pid), parent_of).take(GENERATIONS_MAX)
}

/// Real user of a process (proc_pid_status(5)).
pub(crate) fn real_uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The job named by an environment (proc_pid_environ(5)).
pub(crate) fn job_id(environment: &[u8]) -> Option<String> {
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
