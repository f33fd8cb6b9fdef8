//! Jobs that are being stopped, for who attaches meanwhile.
//!
//! What ends a job (`pillion stop`) asks those whom it sees. Whoever attaches between two of its looks, or after the last one, is told by
//! the daemon, before its hello is answered: that somebody sees to its end, and once the job's processes are asked to launch nothing more,
//! the same. A job is an id and a user.
//!
//! When nobody ends the job any more and no process of it is there, it is *over*. A process that was started while it was being
//! ended (a supervisor has started anew what ended) and attaches only then is asked to end, too, for [`LATE_NS`]. One that was started
//! before or after is not: `pillion stop job; exec pillion run job` starts a new one.
//!
//! The rule `restart-job` has no entry here: what attaches after it began is the job that has come back.

use std::collections::VecDeque;

use crate::access::place_to_give_up;

/// Jobs of which that is known at once. A user who has most of them loses the oldest of them first.
pub(super) const STOPPING_MAX: usize = 64;

/// How long a process that was started while its job was being ended may take to attach, ns: it loads libraries and weights before.
const LATE_NS: u64 = 60_000_000_000;

/// When something is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub now_ns: u64,
    /// `CLOCK_BOOTTIME` in the clock ticks in which `proc_pid_stat(5)` says when a process started.
    pub boot_ticks: u64,
}

/// What a process that attaches is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Somebody sees to its end, for so long, ns.
    SeenTo(u64),
    /// To launch nothing more and to end.
    Stop,
}

#[derive(Debug)]
struct Entry {
    id: String,
    uid: u32,
    /// Before it, nothing was started anew.
    begun_ticks: u64,
    /// Then it is forgotten.
    until_ns: u64,
    /// Its processes are asked to launch nothing more.
    is_frozen: bool,
    /// When it was over.
    over_ticks: Option<u64>,
}

/// The jobs that are being stopped, the oldest first.
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

    /// Somebody ends it from `at` on, for so long.
    pub(super) fn begin(&mut self, id: &str, uid: u32, at: Moment, within_ns: u64) {
        let until_ns = at.now_ns.saturating_add(within_ns);
        if let Some(entry) = self.find(id, uid, at.now_ns) {
            entry.until_ns = until_ns;
            // Nobody is left of those whom that was for.
            entry.is_frozen &= entry.over_ticks.take().is_none();
            return;
        }
        if self.entries.len() >= STOPPING_MAX {
            let place = place_to_give_up(self.entries.iter().map(|entry| entry.uid));
            place.and_then(|place| self.entries.remove(place));
        }
        self.entries.push_back(Entry {
            id: id.to_owned(),
            uid,
            begun_ticks: at.boot_ticks,
            until_ns,
            is_frozen: false,
            over_ticks: None,
        });
    }

    /// Its processes are asked to launch nothing more, if it is known.
    pub(super) fn freeze(&mut self, id: &str, uid: u32, now_ns: u64) {
        if let Some(entry) = self.find(id, uid, now_ns) {
            entry.is_frozen |= entry.over_ticks.is_none();
        }
    }

    /// Nobody ends it any more, if it is known; `is_over`: because nobody is there.
    pub(super) fn end(&mut self, id: &str, uid: u32, at: Moment, is_over: bool) {
        let late_ns = at.now_ns.saturating_add(LATE_NS);
        let Some(entry) = self.find(id, uid, at.now_ns) else {
            return;
        };
        if is_over {
            entry.until_ns = late_ns;
            entry.over_ticks.get_or_insert(at.boot_ticks);
        } else {
            self.entries
                .retain(|entry| entry.uid != uid || entry.id != id);
        }
    }

    /// What a process of a job that attaches is told; `started_ticks` is 0 if it cannot be seen when it started.
    pub(super) fn word(
        &mut self,
        id: &str,
        uid: u32,
        now_ns: u64,
        started_ticks: u64,
    ) -> Option<Word> {
        let entry = self.find(id, uid, now_ns)?;
        match entry.over_ticks {
            Some(over_ticks) => {
                let is_its = (entry.begun_ticks..over_ticks).contains(&started_ticks);
                (is_its && started_ticks != 0).then_some(Word::Stop)
            }
            None if entry.is_frozen => Some(Word::Stop),
            None => Some(Word::SeenTo(entry.until_ns - now_ns)),
        }
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

    /// What who attaches at that second is told, having started in that one.
    fn word(stopping: &mut Stopping, uid: u32, now_s: u64, started_s: u64) -> Option<Word> {
        stopping.word("job", uid, now_s * S, started_s * 100)
    }

    #[test]
    fn who_comes_to_a_job_that_is_being_ended_is_told_as_the_others_were() {
        let mut stopping = Stopping::default();
        assert_eq!(word(&mut stopping, 1, 10, 5), None);
        stopping.freeze("job", 1, 10 * S);
        assert_eq!(word(&mut stopping, 1, 10, 5), None);
        stopping.begin("job", 1, at(10), 30 * S);
        let seen_to = Some(Word::SeenTo(20 * S));
        assert_eq!(word(&mut stopping, 1, 20, 5), seen_to);
        assert_eq!(word(&mut stopping, 1, 20, 0), seen_to);
        // Another's of that name, and another of the user's.
        assert_eq!(word(&mut stopping, 2, 20, 5), None);
        assert_eq!(stopping.word("other", 1, 20 * S, 500), None);
        stopping.begin("job", 1, at(20), 30 * S);
        stopping.freeze("job", 1, 21 * S);
        assert_eq!(word(&mut stopping, 1, 22, 5), Some(Word::Stop));
        // Whoever ended it has itself ended.
        assert_eq!(word(&mut stopping, 1, 50, 5), None);
        assert!(stopping.entries.is_empty());
    }

    #[test]
    fn of_who_comes_after_a_job_is_over_those_are_told_that_were_started_meanwhile() {
        let mut stopping = Stopping::default();
        stopping.begin("job", 1, at(10), 30 * S);
        stopping.end("job", 1, at(20), true);
        for (started_s, told) in [
            (5, None),
            (10, Some(Word::Stop)),
            (19, Some(Word::Stop)),
            (20, None),
            (21, None),
            (0, None),
        ] {
            assert_eq!(word(&mut stopping, 1, 21, started_s), told, "{started_s}");
        }
        assert_eq!(word(&mut stopping, 1, 79, 19), Some(Word::Stop));
        assert_eq!(word(&mut stopping, 1, 80, 19), None);
        // One that was given up goes on, with all that it starts.
        stopping.begin("job", 1, at(90), 30 * S);
        stopping.freeze("job", 1, 91 * S);
        stopping.end("job", 1, at(95), false);
        assert_eq!(word(&mut stopping, 1, 96, 92), None);
        // One that is ended again is ended as the first time.
        stopping.begin("job", 1, at(100), 30 * S);
        stopping.freeze("job", 1, 101 * S);
        stopping.end("job", 1, at(102), true);
        stopping.begin("job", 1, at(110), 30 * S);
        let seen_to = Some(Word::SeenTo(29 * S));
        assert_eq!(word(&mut stopping, 1, 111, 105), seen_to);
        stopping.end("job", 1, at(120), true);
        assert_eq!(word(&mut stopping, 1, 121, 105), Some(Word::Stop));
    }

    #[test]
    fn a_user_who_stops_many_jobs_forgets_its_own() {
        let mut stopping = Stopping::default();
        stopping.begin("job", 2, at(1), 30 * S);
        for job in 0..2 * STOPPING_MAX {
            stopping.begin(&job.to_string(), 1, at(2), 30 * S);
            assert!(stopping.entries.len() <= STOPPING_MAX);
        }
        stopping.begin("job", 3, at(3), 30 * S);
        assert_eq!(stopping.entries.len(), STOPPING_MAX);
        for uid in [2, 3] {
            assert!(word(&mut stopping, uid, 4, 0).is_some(), "{uid}");
        }
    }
}
