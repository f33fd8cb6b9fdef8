//! A GPU that is busy without progress, and a job without progress while others progress.

use crate::core::job_key::JobKey;
use crate::core::state::{JobProgress, Progress};

/// Utilisation from which a device counts as busy, percent: samples are rounded.
const BUSY_PCT: u32 = 99;

#[derive(Debug, Default)]
pub(crate) struct Stuck {
    last: Progress,
    since_ns: Option<u64>,
    is_said: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Stuck(u64),
    Moves,
}

impl Stuck {
    pub(crate) fn handle_look(
        &mut self,
        now_ns: u64,
        busy_pct: u32,
        progress: Progress,
        limit_ns: u64,
    ) -> Option<News> {
        let is_still = busy_pct >= BUSY_PCT && progress.is_waiting && progress == self.last;
        self.last = progress;
        if !is_still {
            self.since_ns = None;
            return std::mem::take(&mut self.is_said).then_some(News::Moves);
        }
        let still_ns = now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns));
        if still_ns < limit_ns || self.is_said {
            return None;
        }
        self.is_said = true;
        Some(News::Stuck(still_ns))
    }

    pub(crate) fn forget(&mut self) {
        self.since_ns = None;
    }
}

#[derive(Debug, Default)]
pub(crate) struct StuckJobs {
    jobs: Vec<StillJob>,
    last: Progress,
    moved_ns: u64,
}

#[derive(Debug)]
struct StillJob {
    progress: JobProgress,
    since_ns: u64,
    is_said: bool,
}

impl StuckJobs {
    /// Progress of all clients and of the best-effort jobs at `now_ns`. A job is stuck without
    /// progress for `limit_ns` while others progress: if nobody does, the GPU is ([`Stuck`]).
    pub(crate) fn handle_look(
        &mut self,
        now_ns: u64,
        all: Progress,
        jobs: Vec<JobProgress>,
        limit_ns: u64,
    ) -> Vec<(JobKey, News)> {
        if all != self.last {
            self.moved_ns = now_ns;
            self.last = all;
        }
        let do_others_move = now_ns.saturating_sub(self.moved_ns) < limit_ns / 2;
        let mut before = std::mem::take(&mut self.jobs);
        let mut news = Vec::new();
        for progress in jobs {
            let is_it = |job: &StillJob| job.progress.key == progress.key;
            let known = before.iter().position(is_it);
            let known = known.map(|place| before.swap_remove(place));
            let was_said = known.as_ref().is_some_and(|job| job.is_said);
            let still = known.filter(|job| progress.is_waiting && job.progress == progress);
            if was_said && still.is_none() {
                news.push((progress.key.clone(), News::Moves));
            }
            let mut job = still.unwrap_or(StillJob {
                progress,
                since_ns: now_ns,
                is_said: false,
            });
            let still_ns = now_ns.saturating_sub(job.since_ns);
            if still_ns >= limit_ns && do_others_move && !job.is_said {
                job.is_said = true;
                news.push((job.progress.key.clone(), News::Stuck(still_ns)));
            }
            self.jobs.push(job);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use protocol::hello::JobClass;

    use super::*;

    fn job(id: &str, completed_ns: u64, is_waiting: bool) -> JobProgress {
        JobProgress {
            key: JobKey {
                id: id.to_owned(),
                uid: 1000,
                class: JobClass::BestEffort,
            },
            clients: vec![(1, [0, 0, 9, completed_ns, 0])],
            is_waiting,
        }
    }

    #[test]
    fn a_job_that_gets_nothing_done_while_others_do_is_said_once_and_once_that_it_does_again() {
        let mut stuck = StuckJobs::default();
        let mut news = Vec::new();
        for second in 0..30_u64 {
            let hung = job("hung", if second < 20 { 7 } else { second }, true);
            let jobs = vec![hung, job("moves", second, true), job("idle", 3, false)];
            let all = at(second, true);
            let found = stuck.handle_look(second * SECOND_NS, all, jobs, 5 * SECOND_NS);
            news.extend(
                found
                    .into_iter()
                    .map(|(key, found)| (second, key.id, found)),
            );
        }
        let hung = || "hung".to_owned();
        let expected = [
            (5, hung(), News::Stuck(5 * SECOND_NS)),
            (20, hung(), News::Moves),
        ];
        assert_eq!(news, expected);
    }

    #[test]
    fn where_nothing_of_anybody_moves_it_is_no_jobs() {
        let mut stuck = StuckJobs::default();
        for second in 0..30 {
            let jobs = vec![job("a", 7, true), job("b", 8, true)];
            let found = stuck.handle_look(second * SECOND_NS, at(7, true), jobs, 5 * SECOND_NS);
            assert_eq!(found, [], "{second}");
        }
    }

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(completed_ns: u64, is_waiting: bool) -> Progress {
        Progress::for_test(completed_ns, is_waiting)
    }

    #[test]
    fn it_is_said_once_that_nothing_moves_and_once_that_it_does_again() {
        let mut stuck = Stuck::default();
        let mut news = Vec::new();
        for second in 0..20 {
            let progress = at(if second < 15 { 7 } else { second }, true);
            let found = stuck.handle_look(second * SECOND_NS, 100, progress, 5 * SECOND_NS);
            news.extend(found.map(|found| (second, found)));
        }
        // The first poll is only the baseline.
        assert_eq!(news, [(6, News::Stuck(5 * SECOND_NS)), (15, News::Moves)]);
    }

    #[test]
    fn a_device_that_idles_and_one_that_nobody_waits_for_are_not_stuck() {
        for (busy_pct, is_waiting) in [(98, true), (100, false)] {
            let mut stuck = Stuck::default();
            for second in 0..20 {
                let progress = at(7, is_waiting);
                let found = stuck.handle_look(second * SECOND_NS, busy_pct, progress, SECOND_NS);
                assert_eq!(found, None, "{busy_pct} {is_waiting} {second}");
            }
        }
    }
}
