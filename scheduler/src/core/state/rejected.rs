//! Processes that were refused as clients.
//! A refused process retries for as long as it lives (`client/src/reconnect.rs`). So a process is
//! one entry here however often it retries, and reported by one event; the rest is counted. The
//! status lists the most recent few, divided fairly among users; [`KNOWN_MAX`] of the most recent
//! are remembered as reported.

use core::hash::{Hash, Hasher};
use std::collections::VecDeque;
use std::hash::DefaultHasher;

use serde::Serialize;

use super::State;
use crate::core::fairness::place_to_give_up;

pub(super) const LISTED_MAX: usize = 32;

/// Remembered refusals, 32 bytes each. If more processes retry in turns, each retry is news.
const KNOWN_MAX: usize = 4096;

/// A process that was refused as a client: it runs unmanaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TurnedAway {
    /// Process id; 0 if invisible from the daemon's PID namespace.
    pub pid: u32,
    /// Start of the process in clock ticks since boot; 0 if invisible.
    #[serde(skip)]
    pub started_ticks: u64,
    /// User id.
    pub uid: u32,
    /// Program; empty if not reported.
    pub name: String,
    /// Id of its job; empty if not reported.
    pub job: String,
    /// Always false, as opposed to clients.
    pub attached: bool,
    /// The last reason.
    pub reason: String,
    /// Time of the last refusal, on the daemon's clock.
    pub at_ns: u64,
}

/// A process refused once or more often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The last refusal.
    #[serde(flatten)]
    pub process: TurnedAway,
    /// Refusals so far.
    pub times: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Rejected {
    listed: VecDeque<Listed>,
    known: VecDeque<Known>,
}

#[derive(Debug)]
struct Known {
    who: Who,
    times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Seen(u32, u64),
    /// In an invisible PID namespace: its user, and a hash of its own report.
    Unseen(u32, u64),
}

impl Who {
    fn of(process: &TurnedAway) -> Self {
        if process.pid != 0 && process.started_ticks != 0 {
            return Self::Seen(process.pid, process.started_ticks);
        }
        let mut hasher = DefaultHasher::new();
        (process.pid, &process.name, &process.job).hash(&mut hasher);
        Self::Unseen(process.uid, hasher.finish())
    }
}

impl Rejected {
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Listed> {
        self.listed.iter()
    }

    fn count(&mut self, who: Who) -> u64 {
        if let Some(known) = self.known.iter_mut().find(|known| known.who == who) {
            known.times = known.times.saturating_add(1);
            return known.times;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(Known { who, times: 1 });
        1
    }

    fn list(&mut self, process: TurnedAway, times: u64) {
        let who = Who::of(&process);
        let is_same = |listed: &Listed| Who::of(&listed.process) == who;
        if let Some(place) = self.listed.iter().position(is_same) {
            self.listed.remove(place);
        } else if self.listed.len() >= LISTED_MAX {
            let uids = self.listed.iter().map(|listed| listed.process.uid);
            let place = place_to_give_up(uids);
            self.listed.remove(place.unwrap_or(0));
        }
        self.listed.push_back(Listed { process, times });
    }
}

impl State {
    /// Why the process of that id and start was refused; none if it was not, or is unlisted.
    pub(crate) fn refusal_of(&self, pid: u32, started_ticks: u64) -> Option<&str> {
        let who = Who::Seen(pid, started_ticks);
        let mut listed = self.rejected.listed();
        let listed = listed.find(|listed| Who::of(&listed.process) == who)?;
        Some(&listed.process.reason)
    }

    /// Handles a refusal. Returns whether it is the first of this process.
    pub fn handle_turned_away(&mut self, process: TurnedAway) -> bool {
        let times = self.rejected.count(Who::of(&process));
        self.rejected.list(process, times);
        times == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, started_ticks: u64, job: &str) -> TurnedAway {
        TurnedAway {
            pid,
            started_ticks,
            uid: 1000,
            name: "python".to_owned(),
            job: job.to_owned(),
            attached: false,
            reason: String::new(),
            at_ns: 0,
        }
    }

    fn is_news(away: &mut Rejected, process: TurnedAway) -> bool {
        let times = away.count(Who::of(&process));
        away.list(process, times);
        times == 1
    }

    #[test]
    fn a_process_is_news_once_and_another_of_its_number_is_another() {
        let mut away = Rejected::default();
        for (pid, started, job, expected) in [
            (7, 100, "a", true),
            (7, 100, "a", false),
            (7, 100, "b", false),
            (7, 200, "a", true),
            (8, 100, "a", true),
            (0, 0, "a", true),
            (0, 0, "a", false),
            (0, 0, "b", true),
            (7, 100, "a", false),
        ] {
            let found = is_news(&mut away, process(pid, started, job));
            assert_eq!(found, expected, "{pid} {started} {job}");
        }
        let times: Vec<u64> = away.listed().map(|listed| listed.times).collect();
        assert_eq!(times, [1, 1, 2, 1, 4]);
    }

    #[test]
    fn who_has_asked_often_is_counted_whether_it_is_listed_or_not_and_all_of_it_is_bounded() {
        let mut away = Rejected::default();
        for round in 0..3 {
            for pid in 1..=200 {
                assert_eq!(is_news(&mut away, process(pid, 1, "j")), round == 0);
            }
        }
        assert_eq!(away.listed().count(), LISTED_MAX);
        assert!(away.listed().all(|listed| listed.times == 3));
        for pid in 1..=2 * KNOWN_MAX as u32 {
            is_news(&mut away, process(pid, 2, "j"));
        }
        assert_eq!(
            (away.listed.len(), away.known.len()),
            (LISTED_MAX, KNOWN_MAX)
        );
        assert!(is_news(&mut away, process(1, 1, "j")));
    }
}
