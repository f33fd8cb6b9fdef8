//! What a status says of how long a high-priority job's requests took.

use serde::Serialize;

use crate::core::state::{Recent, RequestRecord, Requests};

/// The requests of a high-priority job that have ended under this daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestsStatus {
    /// How many.
    pub count: u64,
    /// What they took together.
    pub sum_ns: u64,
    /// How many took so long at most, for twelve times from 1 ms to 5 s.
    pub buckets: Vec<BucketStatus>,
    /// Those of the last minute; of a job that has ended, of its last.
    pub recent: RecentStatus,
    /// What a request may take from its arrival on, as of the last that ended; none while that is
    /// not known, and where requests are not marked. Where a mean is held it is the mean's.
    pub target_ns: Option<u64>,
    /// Requests that had a target of their own, and those of them that took longer.
    pub judged: u64,
    /// See `judged`.
    pub over_target: u64,
    /// Of those that were judged in the last minute, the share within the target, 0 to 1; none
    /// before one was.
    pub within_target: Option<f64>,
    /// The target was missed (event `slo-missed`), and has not been met again.
    pub is_missed: bool,
    /// Marked requests by kind.
    pub kinds: Vec<KindStatus>,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindStatus {
    /// As its program counts kinds; none: all kinds after the first four.
    pub kind: Option<u32>,
    /// As of the job.
    pub count: u64,
    /// As of the job.
    pub sum_ns: u64,
    /// As of the job.
    pub recent: RecentStatus,
    /// As of the job.
    pub target_ns: Option<u64>,
    /// As of the job.
    pub judged: u64,
    /// As of the job.
    pub over_target: u64,
}

/// Requests that took so long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BucketStatus {
    /// How long.
    pub le_ns: u64,
    /// How many, those of shorter buckets with them.
    pub count: u64,
}

/// Requests of the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecentStatus {
    /// The first may have ended so long ago.
    pub over_ns: u64,
    /// How many.
    pub count: u64,
    /// What half of them took at most, to one per cent; none where there are none.
    pub p50_ns: Option<u64>,
    /// What 99 of 100 took at most.
    pub p99_ns: Option<u64>,
}

impl RequestsStatus {
    /// As of `now_ns`; none where no request has ended.
    pub(super) fn of(requests: &Requests, is_missed: bool, now_ns: u64) -> Option<Self> {
        if requests.is_empty() {
            return None;
        }
        let all = requests.all();
        let recent = all.recent(now_ns);
        let buckets = all.cumulative();
        Some(Self {
            count: all.count,
            sum_ns: all.sum_ns,
            buckets: buckets
                .map(|(le_ns, count)| BucketStatus { le_ns, count })
                .collect(),
            recent: RecentStatus::of(&recent),
            target_ns: all.target_ns,
            judged: all.judged,
            over_target: all.over_target,
            within_target: recent.within_target,
            is_missed,
            kinds: (requests.kinds())
                .map(|(kind, record)| KindStatus::of(kind, record, now_ns))
                .collect(),
        })
    }
}

impl KindStatus {
    fn of(kind: Option<u32>, record: &RequestRecord, now_ns: u64) -> Self {
        Self {
            kind,
            count: record.count,
            sum_ns: record.sum_ns,
            recent: RecentStatus::of(&record.recent(now_ns)),
            target_ns: record.target_ns,
            judged: record.judged,
            over_target: record.over_target,
        }
    }
}

impl RecentStatus {
    fn of(recent: &Recent) -> Self {
        Self {
            over_ns: recent.over_ns,
            count: recent.count,
            p50_ns: recent.p50_ns,
            p99_ns: recent.p99_ns,
        }
    }
}
