//! Status of processes that use the GPU outside Pillion.

use serde::Serialize;

use super::Viewer;
use crate::core::unmanaged::Named;

/// Processes that use the GPU and are no clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnmanagedStatus {
    /// All of them.
    pub count: usize,
    /// The visible ones, by process id: all for the operator, a user's own for that user.
    pub processes: Vec<UnmanagedProcess>,
}

/// One such process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnmanagedProcess {
    /// Process id, as NVML reports it.
    pub pid: u32,
    /// User id; none if invisible.
    pub uid: Option<u32>,
    /// Program; empty if invisible.
    pub name: String,
    /// Job named by its environment; empty if none.
    pub job: String,
    /// Its GPU memory; none if NVML does not report it.
    pub memory_bytes: Option<u64>,
    /// First seen, on the daemon's clock.
    pub since_ns: u64,
    /// Why it is no client, as far as visible.
    pub reason: String,
}

impl UnmanagedStatus {
    pub(crate) fn of(named: &[Named], viewer: Viewer) -> Self {
        let sees = |named: &&Named| match named.known.uid {
            Some(uid) => viewer.sees(uid),
            None => viewer == Viewer::Operator,
        };
        Self {
            count: named.len(),
            processes: named.iter().filter(sees).map(Into::into).collect(),
        }
    }
}

impl From<&Named> for UnmanagedProcess {
    fn from(named: &Named) -> Self {
        let known = named.known.clone();
        Self {
            pid: named.pid,
            uid: known.uid,
            name: known.name,
            job: known.job,
            memory_bytes: named.memory_bytes,
            since_ns: named.since_ns,
            reason: known.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::unmanaged::Known;

    #[test]
    fn the_operator_sees_all_and_a_user_those_of_that_user_and_how_many_there_are() {
        let named = |pid, uid| Named {
            pid,
            started_ticks: 1,
            since_ns: 5,
            memory_bytes: Some(7),
            known: Known {
                uid,
                ..Known::default()
            },
        };
        let all = [named(1, Some(1000)), named(2, Some(1001)), named(3, None)];
        for (viewer, pids) in [
            (Viewer::Operator, &[1, 2, 3][..]),
            (Viewer::User(1001), &[2]),
            (Viewer::User(1002), &[]),
        ] {
            let status = UnmanagedStatus::of(&all, viewer);
            let shown: Vec<u32> = status.processes.iter().map(|it| it.pid).collect();
            assert_eq!((status.count, &*shown), (3, pids), "{viewer:?}");
        }
        let shown = serde_json::to_value(UnmanagedStatus::of(&all[..1], Viewer::Operator));
        let expected = serde_json::json!({"count": 1, "processes": [{
            "pid": 1, "uid": 1000, "name": "", "job": "", "memory_bytes": 7, "since_ns": 5, "reason": ""
        }]});
        assert_eq!(shown.unwrap(), expected);
    }
}
