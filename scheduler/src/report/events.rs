//! Events: what an operator wants to know at three in the morning. Each goes to the log, and is
//! kept for `pillion events`.
//! - **Bounds.** Events of jobs and events of the daemon and its GPU are kept separately,
//!   [`KEPT_MAX`] of each, so that jobs cannot displace the GPU's. If there are too many of jobs,
//!   the user with most of them loses the oldest: no user can displace another's. Dropped events
//!   are counted. Texts are truncated at [`TEXT_BYTES_MAX`].
//! - **Times.** An event has the daemon's clock (`at_ns`, for differences) and the wall-clock time
//!   (`at_unix_ms`, for people and other logs, never for measurements). Numbers (`seq`) start at 1
//!   with each daemon. A missing number is of an event that the viewer may not see, or that is no
//!   longer kept.

use std::collections::{BTreeMap, VecDeque};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::core::event::{Draft, Kind, Severity};
use crate::report::status::{CONFIG_ERROR_OF_OTHERS, Viewer};

/// Version of the document: changes when a reader of the old one would be misled.
pub const SCHEMA_VERSION: u32 = 1;

/// Events of jobs kept, and as many of the daemon and its GPU: two MiB each at most.
pub const KEPT_MAX: usize = 2048;

/// Longest text, bytes: a sentence, and a quoted line of a log.
pub const TEXT_BYTES_MAX: usize = 600;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its number: 1 is the daemon's first.
    pub seq: u64,
    /// Time on the daemon's clock.
    pub at_ns: u64,
    /// Wall-clock time: ms since 1970.
    pub at_unix_ms: u64,
    /// A name of [`Kind`].
    pub kind: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// Id of its job; none: the daemon or the GPU.
    pub job: Option<String>,
    /// The job's user.
    pub uid: Option<u32>,
    /// Its process, if it is about one that is visible from here.
    pub pid: Option<u32>,
    /// Number according to the kind: a CUDA result, an Xid, a count, ns of work (`died-in-flight`),
    /// or bits of nvml.h (`slowed-down`); none for other kinds.
    pub code: Option<u64>,
    /// Description, in a sentence.
    pub text: String,
}

/// The events of a daemon.
#[derive(Debug)]
pub struct Events {
    own: VecDeque<Event>,
    of_jobs: VecDeque<Event>,
    users: BTreeMap<u32, usize>,
    last_seq: u64,
    counts: [u64; Kind::ALL.len()],
    fell_out: u64,
}

/// Numbers of events, for metrics.
#[derive(Clone, Debug, Serialize)]
pub struct EventsStatus {
    /// Number of the last; 0: none.
    pub last_seq: u64,
    /// Events no longer kept.
    pub fell_out: u64,
    /// Number of each kind since the daemon started.
    pub counts: BTreeMap<&'static str, u64>,
}

/// The document of `pillion events`.
#[derive(Clone, Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// UUID of the GPU.
    pub gpu: String,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// The daemon's start, on its clock. If it or the process id changes, numbers have restarted.
    pub daemon_started_ns: u64,
    /// The daemon's clock, for comparison with `at_ns`.
    pub now_ns: u64,
    /// Numbers of events.
    #[serde(flatten)]
    pub status: EventsStatus,
    /// Oldest first.
    pub events: Vec<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            own: VecDeque::new(),
            of_jobs: VecDeque::new(),
            users: BTreeMap::new(),
            last_seq: 0,
            counts: [0; Kind::ALL.len()],
            fell_out: 0,
        }
    }
}

impl Events {
    pub(crate) fn push(&mut self, at_ns: u64, at_unix_ms: u64, draft: Draft) -> Event {
        self.last_seq += 1;
        let count = &mut self.counts[draft.kind.index()];
        *count = count.saturating_add(1);
        // Users choose names in it, which may contain line breaks or terminal control sequences.
        let one = |c: char| match c {
            '\n' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        };
        let mut text: String = draft.text.chars().map(one).collect();
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let (job, uid) = draft.job.unzip();
        let event = Event {
            seq: self.last_seq,
            at_ns,
            at_unix_ms,
            kind: draft.kind.name(),
            severity: draft.severity,
            job,
            uid,
            pid: draft.pid,
            code: draft.code,
            text,
        };
        match uid {
            Some(uid) => self.keep_of_job(uid, event.clone()),
            None => {
                if self.own.len() >= KEPT_MAX {
                    self.own.pop_front();
                    self.fell_out += 1;
                }
                self.own.push_back(event.clone());
            }
        }
        event
    }

    fn keep_of_job(&mut self, uid: u32, event: Event) {
        *self.users.entry(uid).or_default() += 1;
        self.of_jobs.push_back(event);
        if self.of_jobs.len() <= KEPT_MAX {
            return;
        }
        let Some((&most, _)) = self.users.iter().max_by_key(|(_, count)| **count) else {
            return;
        };
        let mut events = self.of_jobs.iter();
        if let Some(oldest) = events.position(|event| event.uid == Some(most)) {
            self.of_jobs.remove(oldest);
            self.fell_out += 1;
        }
        if let Some(count) = self.users.get_mut(&most) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&most);
            }
        }
    }

    /// Numbers of events.
    #[must_use]
    pub fn status(&self) -> EventsStatus {
        let kinds = Kind::ALL.iter();
        EventsStatus {
            last_seq: self.last_seq,
            fell_out: self.fell_out,
            counts: kinds
                .map(|kind| (kind.name(), self.counts[kind.index()]))
                .collect(),
        }
    }

    /// Events after number `since` that `viewer` may see, oldest first: all without a job, and
    /// those of visible jobs. Only the operator gets the reason of a refused configuration.
    #[must_use]
    pub fn since(&self, since: u64, viewer: Viewer) -> Vec<Event> {
        let may_see =
            |event: &&Event| event.seq > since && event.uid.is_none_or(|owner| viewer.sees(owner));
        let all = self.own.iter().chain(&self.of_jobs);
        let mut events: Vec<Event> = all.filter(may_see).cloned().collect();
        if viewer != Viewer::Operator {
            let refused = Kind::ConfigRefused.name();
            let refused = events.iter_mut().filter(|event| event.kind == refused);
            refused.for_each(|event| event.text = CONFIG_ERROR_OF_OTHERS.to_owned());
        }
        events.sort_by_key(|event| event.seq);
        events
    }
}

impl Document {
    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and maps with string keys only")
    }
}

pub(crate) fn log(event: &Event) {
    let (seq, kind, job, pid, code) = (event.seq, event.kind, &event.job, event.pid, event.code);
    let (job, text) = (job.as_deref(), &event.text);
    match event.severity {
        Severity::Info => tracing::info!(kind, seq, job, pid, code, "{text}"),
        Severity::Warning => tracing::warn!(kind, seq, job, pid, code, "{text}"),
        Severity::Error => tracing::error!(kind, seq, job, pid, code, "{text}"),
    }
}

/// Wall-clock time, ms since 1970. Never for measurements.
pub(crate) fn unix_ms() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let ms = now.tv_sec.saturating_mul(1_000) + now.tv_nsec / 1_000_000;
    ms.try_into().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_user(events: &mut Events, uid: u32) -> Event {
        let draft = Draft::new(Kind::Attached, "attached").of("job", uid);
        events.push(5, 7, draft)
    }

    #[test]
    fn a_user_who_makes_events_without_end_pushes_out_only_its_own() {
        let mut events = Events::default();
        let started = events.push(0, 0, Draft::new(Kind::DaemonStarted, "started"));
        let quiet = of_user(&mut events, 1);
        for _ in 0..3 * KEPT_MAX {
            of_user(&mut events, 2);
        }
        let all = events.since(0, Viewer::Operator);
        assert_eq!(all.len(), KEPT_MAX + 1);
        assert_eq!((&all[0], &all[1]), (&started, &quiet));
        assert_eq!(all.last().unwrap().seq, 3 * KEPT_MAX as u64 + 2);
        let status = events.status();
        assert_eq!(status.fell_out, 2 * KEPT_MAX as u64 + 1);
        assert_eq!(status.counts["attached"], 3 * KEPT_MAX as u64 + 1);
        assert_eq!(status.counts["evicted"], 0, "every kind is told");
    }

    #[test]
    fn users_see_what_is_about_no_job_and_their_own() {
        let mut events = Events::default();
        let started = events.push(0, 0, Draft::new(Kind::DaemonStarted, "started"));
        let own = of_user(&mut events, 1);
        let other = of_user(&mut events, 2);
        assert_eq!(
            events.since(0, Viewer::User(1)),
            [started.clone(), own.clone()]
        );
        assert_eq!(
            events.since(1, Viewer::User(2)),
            std::slice::from_ref(&other)
        );
        assert_eq!(events.since(0, Viewer::Operator), [started, own, other]);
        assert_eq!(events.since(3, Viewer::Operator), []);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut events = Events::default();
        let text = "ä".repeat(TEXT_BYTES_MAX);
        let event = events.push(0, 0, Draft::new(Kind::TurnedAway, text));
        assert_eq!(event.text.len(), TEXT_BYTES_MAX);
        assert!(event.text.chars().all(|c| c == 'ä'));
    }

    #[test]
    fn a_text_is_one_line_and_the_configurations_faults_are_the_operators() {
        let mut events = Events::default();
        let refused = Draft::new(
            Kind::ConfigRefused,
            "gpu0.toml:1:1: secret\ngpu0.toml:2:1: more",
        );
        events.push(5, 7, refused);
        events.push(5, 7, Draft::new(Kind::Attached, "a\u{1b}[2Jb").of("job", 1));
        let all = events.since(0, Viewer::Operator);
        assert_eq!(all[0].text, "gpu0.toml:1:1: secret gpu0.toml:2:1: more");
        assert_eq!(all[1].text, "a\u{fffd}[2Jb");
        let told = events.since(0, Viewer::User(1));
        assert_eq!(told[0].text, CONFIG_ERROR_OF_OTHERS);
        assert_eq!(told[1], all[1]);
    }
}
