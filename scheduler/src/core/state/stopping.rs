//! Jobs that are being ended, for clients that attach meanwhile.
//! A stopper (`pillion stop`) asks the processes that it sees. A client that attaches between two
//! of its polls, or after the last one, learns from the daemon, before its hello is answered, that
//! its end is supervised, and whether the job's processes were asked to stop launching. A job is an
//! id and a user.
//!
//! Several stoppers may end a job at once; it is being ended until the last of them is done. When
//! that one reports that no process of the job is left, the job is *over*. A process that was
//! started while the job was being ended (by a supervisor that restarts it) and attaches only then
//! is asked to end, too, for [`LATE_NS`]. One that was started before or after is not, even if the
//! job is ended once more within that time: `pillion stop job; PILLION_JOB=job exec program` starts
//! a new one. A job that was given up continues, with all that it starts, and so does a job whose
//! last stopper has died.
//!
//! The rule `restart-job` has no entry here: whatever attaches after it began is the restarted job.

use std::collections::VecDeque;

use crate::core::fairness::place_to_give_up;

/// Known jobs being ended. The user with most of them loses the oldest first.
pub(super) const STOPPING_MAX: usize = 64;

/// Time for a process started while its job was being ended to attach, ns: it first loads weights.
const LATE_NS: u64 = 60_000_000_000;

/// Stoppers of a job, and remembered intervals of being ended; the oldest is dropped.
const ASKERS_MAX: usize = 8;

/// Time of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub now_ns: u64,
    /// `CLOCK_BOOTTIME` in clock ticks, the unit of a process's start in `proc_pid_stat(5)`.
    pub boot_ticks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// Its end is supervised until this time, ns.
    SeenTo(u64),
    Stop,
}

#[derive(Debug)]
struct Entry {
    id: String,
    uid: u32,
    /// Intervals in which it was being ended, now over: processes started in one were restarted.
    over: VecDeque<(u64, u64)>,
    begun_ticks: u64,
    /// Stoppers, and until when each ends it at most; empty: over.
    askers: Vec<(u32, u64)>,
    until_ns: u64,
    is_frozen: bool,
}

#[derive(Debug, Default)]
pub(super) struct Stopping {
    entries: VecDeque<Entry>,
}

impl Stopping {
    fn find(&mut self, id: &str, uid: u32, now_ns: u64) -> Option<&mut Entry> {
        self.entries.retain(|entry| now_ns < entry.until_ns);
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| entry.uid == uid && entry.id == id)
    }

    /// `asker` ends the job from `at` on, for `within_ns`. Returns until when any asker does, ns.
    pub(super) fn begin(
        &mut self,
        id: &str,
        uid: u32,
        asker: u32,
        at: Moment,
        within_ns: u64,
    ) -> u64 {
        let until_ns = at.now_ns.saturating_add(within_ns);
        if let Some(entry) = self.find(id, uid, at.now_ns) {
            if entry.askers.is_empty() {
                entry.begun_ticks = at.boot_ticks;
                entry.is_frozen = false;
            }
            entry.askers.retain(|(known, _)| *known != asker);
            if entry.askers.len() >= ASKERS_MAX {
                entry.askers.remove(0);
            }
            entry.askers.push((asker, until_ns));
            let untils = entry.askers.iter().map(|(_, until_ns)| *until_ns);
            entry.until_ns = untils.max().unwrap_or(until_ns);
            return entry.until_ns;
        }
        if self.entries.len() >= STOPPING_MAX {
            let place = place_to_give_up(self.entries.iter().map(|entry| entry.uid));
            place.and_then(|place| self.entries.remove(place));
        }
        self.entries.push_back(Entry {
            id: id.to_owned(),
            uid,
            over: VecDeque::new(),
            begun_ticks: at.boot_ticks,
            askers: vec![(asker, until_ns)],
            until_ns,
            is_frozen: false,
        });
        until_ns
    }

    pub(super) fn freeze(&mut self, id: &str, uid: u32, now_ns: u64) {
        if let Some(entry) = self.find(id, uid, now_ns) {
            entry.is_frozen |= !entry.askers.is_empty();
        }
    }

    /// `asker` is done; `is_over`: no process is left. Returns until when another ends it, or 0.
    pub(super) fn end(&mut self, id: &str, uid: u32, asker: u32, at: Moment, is_over: bool) -> u64 {
        let Some(entry) = self.find(id, uid, at.now_ns) else {
            return 0;
        };
        let was_ended = !entry.askers.is_empty();
        let goes_on = |(known, until_ns): &(u32, u64)| *known != asker && at.now_ns < *until_ns;
        entry.askers.retain(goes_on);
        let others = entry.askers.iter().map(|(_, until_ns)| *until_ns).max();
        if let Some(until_ns) = others {
            entry.until_ns = until_ns;
            return until_ns;
        }
        if is_over && was_ended {
            entry.until_ns = at.now_ns.saturating_add(LATE_NS);
            entry.over.push_back((entry.begun_ticks, at.boot_ticks));
            if entry.over.len() > ASKERS_MAX {
                entry.over.pop_front();
            }
        } else if was_ended {
            self.entries
                .retain(|entry| entry.uid != uid || entry.id != id);
        }
        0
    }

    pub(super) fn is_asker(&self, asker: u32, now_ns: u64) -> bool {
        let askers = self.entries.iter().flat_map(|entry| &entry.askers);
        let mut until = askers.filter(|(known, _)| *known == asker);
        until.any(|(_, until_ns)| now_ns < *until_ns)
    }

    /// `asker` has died and gives up its jobs. Returns each, and until when another ends it, or 0.
    pub(super) fn forget_asker(&mut self, asker: u32, at: Moment) -> Vec<(String, u32, u64)> {
        self.entries.retain(|entry| at.now_ns < entry.until_ns);
        let is_its = |entry: &&Entry| entry.askers.iter().any(|(known, _)| *known == asker);
        let its = self.entries.iter().filter(is_its);
        let its: Vec<_> = its.map(|entry| (entry.id.clone(), entry.uid)).collect();
        its.into_iter()
            .map(|(id, uid)| {
                let until_ns = self.end(&id, uid, asker, at, false);
                (id, uid, until_ns)
            })
            .collect()
    }

    /// The message to an attaching process of a job; `started_ticks` is 0 if invisible.
    pub(super) fn word(
        &mut self,
        id: &str,
        uid: u32,
        now_ns: u64,
        started_ticks: u64,
    ) -> Option<Notice> {
        let entry = self.find(id, uid, now_ns)?;
        if entry.askers.is_empty() {
            let is_within = |(begun, over): &(u64, u64)| (*begun..*over).contains(&started_ticks);
            let is_its = started_ticks != 0 && entry.over.iter().any(is_within);
            return is_its.then_some(Notice::Stop);
        }
        Some(match entry.is_frozen {
            true => Notice::Stop,
            false => Notice::SeenTo(entry.until_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(s: u64) -> Moment {
        Moment {
            now_ns: s * S,
            boot_ticks: s * 100,
        }
    }

    /// The message to a process that attaches and was started at these seconds.
    fn word(stopping: &mut Stopping, uid: u32, now_s: u64, started_s: u64) -> Option<Notice> {
        stopping.word("job", uid, now_s * S, started_s * 100)
    }

    #[test]
    fn who_comes_to_a_job_that_is_being_ended_is_told_as_the_others_were() {
        let mut stopping = Stopping::default();
        assert_eq!(word(&mut stopping, 1, 10, 5), None);
        stopping.freeze("job", 1, 10 * S);
        assert_eq!(word(&mut stopping, 1, 10, 5), None);
        stopping.begin("job", 1, 7, at(10), 30 * S);
        let seen_to = Some(Notice::SeenTo(40 * S));
        assert_eq!(word(&mut stopping, 1, 20, 5), seen_to);
        assert_eq!(word(&mut stopping, 1, 20, 0), seen_to);
        assert_eq!(word(&mut stopping, 2, 20, 5), None);
        assert_eq!(stopping.word("other", 1, 20 * S, 500), None);
        stopping.begin("job", 1, 7, at(20), 30 * S);
        stopping.freeze("job", 1, 21 * S);
        assert_eq!(word(&mut stopping, 1, 22, 5), Some(Notice::Stop));
        assert_eq!(word(&mut stopping, 1, 50, 5), None);
        assert!(stopping.entries.is_empty());
    }

    #[test]
    fn of_who_comes_after_a_job_is_over_those_are_told_that_were_started_meanwhile() {
        let mut stopping = Stopping::default();
        stopping.begin("job", 1, 7, at(10), 30 * S);
        stopping.end("job", 1, 7, at(20), true);
        for (started_s, told) in [
            (5, None),
            (10, Some(Notice::Stop)),
            (19, Some(Notice::Stop)),
            (20, None),
            (21, None),
            (0, None),
        ] {
            assert_eq!(word(&mut stopping, 1, 21, started_s), told, "{started_s}");
        }
        assert_eq!(word(&mut stopping, 1, 79, 19), Some(Notice::Stop));
        assert_eq!(word(&mut stopping, 1, 80, 19), None);
        stopping.begin("job", 1, 7, at(90), 30 * S);
        stopping.freeze("job", 1, 91 * S);
        stopping.end("job", 1, 7, at(95), false);
        assert_eq!(word(&mut stopping, 1, 96, 92), None);
        stopping.begin("job", 1, 7, at(100), 30 * S);
        stopping.freeze("job", 1, 101 * S);
        stopping.end("job", 1, 7, at(102), true);
        stopping.begin("job", 1, 7, at(110), 30 * S);
        let seen_to = Some(Notice::SeenTo(140 * S));
        assert_eq!(word(&mut stopping, 1, 111, 105), seen_to);
        stopping.end("job", 1, 7, at(120), true);
        // A process started in between is a new job.
        for (started_s, told) in [
            (101, Some(Notice::Stop)),
            (105, None),
            (115, Some(Notice::Stop)),
            (121, None),
        ] {
            assert_eq!(word(&mut stopping, 1, 122, started_s), told, "{started_s}");
        }
        stopping.end("job", 1, 7, at(122), false);
        assert_eq!(word(&mut stopping, 1, 123, 115), Some(Notice::Stop));
    }

    #[test]
    fn a_job_that_two_end_is_ended_until_both_have_done_so() {
        let mut stopping = Stopping::default();
        assert_eq!(stopping.begin("job", 1, 7, at(10), 30 * S), 40 * S);
        assert_eq!(stopping.begin("job", 1, 8, at(12), 10 * S), 40 * S);
        assert_eq!(stopping.end("job", 1, 7, at(13), false), 22 * S);
        let seen_to = Some(Notice::SeenTo(22 * S));
        assert_eq!(word(&mut stopping, 1, 14, 5), seen_to);
        assert_eq!(stopping.end("job", 1, 8, at(15), true), 0);
        assert_eq!(word(&mut stopping, 1, 16, 12), Some(Notice::Stop));
        assert_eq!(word(&mut stopping, 1, 16, 15), None);
    }

    #[test]
    fn what_somebody_ended_who_has_died_is_given_up_unless_another_ends_it() {
        let mut stopping = Stopping::default();
        stopping.begin("job", 1, 7, at(10), 30 * S);
        stopping.freeze("job", 1, 10 * S);
        stopping.begin("shared", 1, 7, at(10), 30 * S);
        stopping.begin("shared", 1, 8, at(11), 20 * S);
        stopping.begin("other", 1, 8, at(11), 20 * S);
        assert!(stopping.is_asker(7, 12 * S));
        let told = stopping.forget_asker(7, at(12));
        let given_up = ("job".to_owned(), 1, 0);
        assert_eq!(told, [given_up, ("shared".to_owned(), 1, 31 * S)]);
        assert!(!stopping.is_asker(7, 12 * S));
        assert!(stopping.is_asker(8, 12 * S));
        assert!(!stopping.is_asker(8, 31 * S));
        assert_eq!(word(&mut stopping, 1, 13, 11), None);
        let seen_to = Some(Notice::SeenTo(31 * S));
        for job in ["shared", "other"] {
            assert_eq!(stopping.word(job, 1, 13 * S, 1_100), seen_to, "{job}");
        }
        assert_eq!(stopping.forget_asker(7, at(14)), []);
    }

    #[test]
    fn a_user_who_stops_many_jobs_forgets_its_own() {
        let mut stopping = Stopping::default();
        stopping.begin("job", 2, 7, at(1), 30 * S);
        for job in 0..2 * STOPPING_MAX {
            stopping.begin(&job.to_string(), 1, 7, at(2), 30 * S);
            assert!(stopping.entries.len() <= STOPPING_MAX);
        }
        stopping.begin("job", 3, 7, at(3), 30 * S);
        assert_eq!(stopping.entries.len(), STOPPING_MAX);
        for uid in [2, 3] {
            assert!(word(&mut stopping, uid, 4, 0).is_some(), "{uid}");
        }
    }
}
