//! Status of a high-priority job's request durations.

use serde::Serialize;

use crate::core::state::{Recent, RequestRecord, Requests};

/// Requests of a high-priority job that have ended under this daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestsStatus {
    /// Their number.
    pub count: u64,
    /// Sum of their durations.
    pub sum_ns: u64,
    /// Numbers up to each of twelve durations from 1 ms to 5 s.
    pub buckets: Vec<BucketStatus>,
    /// Requests of the last minute; for an ended job, of its last.
    pub recent: RecentStatus,
    /// Target from arrival on, as of the last ended request; none while unknown, and for unmarked
    /// requests. With a mean target, the mean's.
    pub target_ns: Option<u64>,
    /// Requests with their own target, and those over it.
    pub judged: u64,
    /// See `judged`.
    pub over_target: u64,
    /// Share within the target of those judged in the last minute, 0 to 1; none before one was.
    pub within_target: Option<f64>,
    /// The target was missed (event `slo-missed`), and has not been met again.
    pub is_missed: bool,
    /// Marked requests by kind.
    pub kinds: Vec<KindStatus>,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindStatus {
    /// By the program's numbering; none: all kinds after the first four.
    pub kind: Option<u32>,
    /// As [`RequestsStatus::count`].
    pub count: u64,
    /// As [`RequestsStatus::sum_ns`].
    pub sum_ns: u64,
    /// As [`RequestsStatus::recent`].
    pub recent: RecentStatus,
    /// As [`RequestsStatus::target_ns`].
    pub target_ns: Option<u64>,
    /// As [`RequestsStatus::judged`].
    pub judged: u64,
    /// As [`RequestsStatus::over_target`].
    pub over_target: u64,
}

/// Requests up to a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BucketStatus {
    /// The duration.
    pub le_ns: u64,
    /// Their number, cumulative.
    pub count: u64,
}

/// Requests of the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecentStatus {
    /// Age of the window's begin.
    pub over_ns: u64,
    /// Their number.
    pub count: u64,
    /// Median duration, to one per cent; none without requests.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
}

impl RequestsStatus {
    /// As of `now_ns`; none if no request has ended.
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
