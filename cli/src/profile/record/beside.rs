//! Determines whether other jobs had processes on the job's GPUs, as far as daemons report.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use protocol::hello::ask_status_within;
use serde_json::Value;

use crate::daemons;

const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Daemons with processes of another job; `own`: with this job.
    others: HashSet<PathBuf>,
    own: HashSet<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The user's id for the job.
    pub(super) id: Option<String>,
    /// `pillion run`, which derives an id from its process id.
    pub(super) pid: i32,
}

impl Beside {
    /// Queries all daemons; there is no job before the start.
    pub(super) fn look(&mut self, job: Option<&Job>) {
        for socket in daemons::sockets() {
            let status = ask_status_within(&socket, PATIENCE).ok();
            let status: Option<Value> = status.and_then(|text| serde_json::from_str(&text).ok());
            if let Some(status) = status {
                self.add(socket, &status, job);
            }
        }
    }

    fn add(&mut self, socket: PathBuf, status: &Value, job: Option<&Job>) {
        let is_own = |told: &Value| {
            let id = told["job"].as_str().unwrap_or_default();
            job.is_some_and(|job| job.is(id))
        };
        let has_clients = |told: &Value| {
            told["clients"]
                .as_array()
                .is_some_and(|all| !all.is_empty())
        };
        let jobs = status["jobs"].as_array().map_or(&[][..], |jobs| jobs);
        let hidden = ["high_priority", "best_effort"]
            .iter()
            .any(|class| status["others"][class].as_u64().unwrap_or(0) > 0);
        if hidden || jobs.iter().any(|told| has_clients(told) && !is_own(told)) {
            self.others.insert(socket.clone());
        }
        if jobs.iter().any(is_own) {
            self.own.insert(socket);
        }
    }

    /// Whether one daemon has both.
    pub(super) fn is_any(&self) -> bool {
        !self.others.is_disjoint(&self.own)
    }
}

impl Job {
    fn is(&self, id: &str) -> bool {
        let made_up = id.strip_prefix(&self.pid.to_string());
        self.id.as_deref() == Some(id) || made_up.is_some_and(|rest| rest.starts_with('-'))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job() -> Job {
        Job {
            id: Some("train".to_owned()),
            pid: 12,
        }
    }

    /// The result for two daemons' statuses.
    fn is_beside(first: &Value, second: &Value) -> bool {
        let mut beside = Beside::default();
        beside.add("first".into(), first, Some(&job()));
        beside.add("second".into(), second, Some(&job()));
        beside.is_any()
    }

    #[test]
    fn another_job_counts_on_a_gpu_of_the_job_and_while_it_has_processes() {
        let told = |id: &str, clients: &[u32]| json!({ "job": id, "clients": clients });
        let status = |jobs: &[Value]| json!({ "jobs": jobs, "others": { "high_priority": 0 } });
        let own = status(&[told("12-1f00", &[1])]);
        let other = status(&[told("other", &[2])]);
        let both = status(&[told("12-1f00", &[]), told("other", &[2])]);
        let named = status(&[told("train", &[1]), told("121-1f00", &[2])]);
        let ended = status(&[told("12-1f00", &[1]), told("other", &[])]);
        let hidden = json!({ "jobs": [told("train", &[])], "others": { "best_effort": 1 } });
        assert!(!is_beside(&own, &other) && !is_beside(&own, &own));
        assert!(!is_beside(&other, &other) && !is_beside(&ended, &other));
        for status in [&both, &named, &hidden] {
            assert!(is_beside(status, &other), "{status}");
        }
    }

    #[test]
    fn who_was_there_before_the_start_counts() {
        let mut beside = Beside::default();
        let told = |id: &str| json!({ "jobs": [{ "job": id, "clients": [1] }] });
        beside.add("gpu".into(), &told("other"), None);
        assert!(!beside.is_any());
        beside.add("gpu".into(), &told("train"), Some(&job()));
        assert!(beside.is_any());
    }
}
