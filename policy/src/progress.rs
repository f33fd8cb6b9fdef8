//! How much of the GPU a best-effort job gets of what it wants, and what holds it. Decides nothing:
//! these numbers serve reports and promised shares. The daemon passes every decision about the job
//! ([`Progress::handle_decision`]), whose state holds until the next one.
//! - A job *wants* the GPU while one of its threads waits at the gate or its work is in flight.
//! - It *stands still* while a thread waits and nothing of it is in flight. That time is attributed
//!   to the rule behind the lease ([`Limit`]). With work on the GPU, waiting loses nothing.
//! - Its *work* is expected ns seen complete.
//! ## Share
//! Time is cut into windows of a second; windows in which the job wanted nothing are left out. The
//! share covers the last ten windows together:
//! - *of its solo rate*, once known: work per ns here, over work per ns in windows without an
//!   attached HP client. This includes the slowdown by work beside it, and CPU time.
//! - else *of what it asked*: the part of the time in which it did not stand still. That is an
//!   upper bound, because a kernel that runs slowly beside HP's counts in full.

use crate::{JobView, Limit};

/// Length of a window, ns.
pub const WINDOW_NS: u64 = 1_000_000_000;

/// Windows of a share.
pub const WINDOWS: usize = 10;

/// Solo time until the solo rate is known, ns: training iterations take up to about a second.
const ALONE_NS_MIN: u64 = 3 * WINDOW_NS;

/// Beyond this solo time older windows count half, so that the rate follows the job, ns.
const ALONE_NS_MAX: u64 = 60 * WINDOW_NS;

/// A part of what a job could have had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Of its solo rate, 0 to 1.
    OfAlone(f64),
    /// Of the time in which it wanted the GPU, 0 to 1.
    OfAsked(f64),
}

impl Share {
    /// The number.
    #[must_use]
    pub const fn value(self) -> f64 {
        match self {
            Self::OfAlone(share) | Self::OfAsked(share) => share,
        }
    }
}

/// The time that a job stood still, in ns, by the rule that held it, as in [`Limit::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held([u64; Limit::ALL.len()]);

impl Held {
    /// Every rule with its time.
    pub fn by_limit(&self) -> impl Iterator<Item = (Limit, u64)> + '_ {
        Limit::ALL.into_iter().zip(self.0)
    }

    /// The sum over all rules.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, limit: Limit, ns: u64) {
        self.0[limit as usize] += ns;
    }

    fn add_all(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum += ns;
        }
    }
}

/// What a job got; see the module's text.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    last: Option<Look>,
    current: Window,
    /// Earlier windows in which the job wanted something; the oldest is overwritten.
    windows: [Window; WINDOWS],
    next: usize,
    alone_ns: u64,
    alone_work_ns: u64,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at_ns: u64,
    completed_ns: u64,
    wants: bool,
    held_by: Option<Limit>,
    hp_present: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    ns: u64,
    wanted_ns: u64,
    work_ns: u64,
    held: Held,
    hp_present: bool,
}

impl Progress {
    /// A decision at `now_ns` found the job in this state; `limit` is the rule behind its lease.
    /// Time must not go backwards; a second decision at one moment replaces the first.
    pub fn handle_decision(&mut self, now_ns: u64, job: &JobView, limit: Limit, hp_present: bool) {
        let look = Look {
            at_ns: now_ns,
            completed_ns: job.completed_total_ns,
            wants: job.waiting || !job.drained,
            held_by: Some(limit)
                .filter(|&limit| job.waiting && job.drained && limit != Limit::Ungated),
            hp_present,
        };
        if let Some(last) = self.last.replace(look) {
            self.pass(&last, &look);
        }
    }

    /// The job's share; `None` until a window has ended in which it wanted anything.
    #[must_use]
    pub fn share(&self) -> Option<Share> {
        let recent = self.recent();
        if recent.ns == 0 {
            return None;
        }
        if self.alone_ns < ALONE_NS_MIN || self.alone_work_ns == 0 {
            let held = recent.held.sum_ns() as f64 / recent.ns as f64;
            return Some(Share::OfAsked((1.0 - held).max(0.0)));
        }
        let rate = recent.work_ns as f64 / recent.ns as f64;
        let alone = self.alone_work_ns as f64 / self.alone_ns as f64;
        Some(Share::OfAlone((rate / alone).min(1.0)))
    }

    /// The time covered by the share and [`Progress::held_recently`], ns.
    #[must_use]
    pub fn recent_ns(&self) -> u64 {
        self.recent().ns
    }

    /// How long it stood still in that time.
    #[must_use]
    pub fn held_recently(&self) -> Held {
        self.recent().held
    }

    /// How long it ever stood still.
    #[must_use]
    pub fn held(&self) -> Held {
        self.held
    }

    fn pass(&mut self, last: &Look, look: &Look) {
        let passed_ns = look.at_ns.saturating_sub(last.at_ns);
        let window = &mut self.current;
        window.ns += passed_ns;
        let work_ns = look.completed_ns.saturating_sub(last.completed_ns);
        window.work_ns = window.work_ns.saturating_add(work_ns);
        window.hp_present |= last.hp_present | look.hp_present;
        if last.wants {
            window.wanted_ns += passed_ns;
        }
        if let Some(limit) = last.held_by {
            window.held.add(limit, passed_ns);
            self.held.add(limit, passed_ns);
        }
        if window.ns >= WINDOW_NS {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        let window = std::mem::take(&mut self.current);
        if window.wanted_ns == 0 && window.work_ns == 0 {
            return;
        }
        self.windows[self.next] = window;
        self.next = (self.next + 1) % WINDOWS;
        if window.hp_present {
            return;
        }
        self.alone_ns += window.ns;
        self.alone_work_ns = self.alone_work_ns.saturating_add(window.work_ns);
        if self.alone_ns > ALONE_NS_MAX {
            self.alone_ns /= 2;
            self.alone_work_ns /= 2;
        }
    }

    fn recent(&self) -> Window {
        let mut sum = Window::default();
        for window in &self.windows {
            sum.ns += window.ns;
            sum.wanted_ns += window.wanted_ns;
            sum.work_ns = sum.work_ns.saturating_add(window.work_ns);
            sum.held.add_all(&window.held);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;

    const MS: u64 = 1_000_000;

    #[derive(Default)]
    struct Player {
        progress: Progress,
        now_ns: u64,
        done_ns: u64,
    }

    impl Player {
        /// For `ms`: completes `work_ns` in each.
        fn play(&mut self, ms: u64, work_ns: u64, waiting: bool, drained: bool, limit: Limit) {
            let hp_present = limit != Limit::Ungated;
            for _ in 0..ms {
                let view = JobView {
                    id: JobId(1),
                    charged_total_ns: self.done_ns + u64::from(!drained) * MS,
                    completed_total_ns: self.done_ns,
                    drained,
                    waiting,
                };
                let progress = &mut self.progress;
                progress.handle_decision(self.now_ns, &view, limit, hp_present);
                self.now_ns += MS;
                self.done_ns += work_ns;
            }
        }
    }

    fn close(found: Option<Share>, expected: Share) {
        let found = found.expect("a share");
        let same = std::mem::discriminant(&found) == std::mem::discriminant(&expected);
        let off = (found.value() - expected.value()).abs();
        assert!(same && off < 0.02, "{found:?}, not {expected:?}");
    }

    #[test]
    fn each_rule_has_its_place() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place);
        }
    }

    #[test]
    fn what_holds_a_job_still_is_counted_by_its_rule_and_a_wait_behind_its_own_work_is_not() {
        let mut job = Player::default();
        job.play(3_000, MS, true, false, Limit::Throttle);
        assert_eq!(job.progress.held(), Held::default());
        job.play(1_000, 0, true, true, Limit::HpBusy);
        job.play(500, 0, true, true, Limit::Turn);
        job.play(1_500, MS, false, false, Limit::Budget);
        let by_limit: Vec<_> = job.progress.held().by_limit().collect();
        assert!(
            by_limit.contains(&(Limit::HpBusy, 1_000 * MS)),
            "{by_limit:?}"
        );
        assert!(by_limit.contains(&(Limit::Turn, 500 * MS)), "{by_limit:?}");
        assert_eq!(job.progress.held().sum_ns(), 1_500 * MS);
        close(job.progress.share(), Share::OfAsked(0.7));
    }

    #[test]
    fn once_its_rate_alone_is_known_the_share_is_of_that() {
        let mut job = Player::default();
        // Solo it computes for a fifth of the time on the CPU.
        job.play(5_000, MS * 8 / 10, false, false, Limit::Ungated);
        close(job.progress.share(), Share::OfAlone(1.0));
        job.play(12_000, MS * 4 / 10, false, false, Limit::Budget);
        close(job.progress.share(), Share::OfAlone(0.5));
        assert_eq!(job.progress.held().sum_ns(), 0, "it was slow, not held");
    }

    #[test]
    fn time_in_which_it_wants_nothing_is_left_out() {
        let mut job = Player::default();
        job.play(30_000, 0, false, true, Limit::Ungated);
        assert_eq!(job.progress.share(), None);
        job.play(4_000, MS, false, false, Limit::Ungated);
        job.play(30_000, 0, false, true, Limit::Budget);
        job.play(12_000, MS / 4, false, false, Limit::Budget);
        close(job.progress.share(), Share::OfAlone(0.25));
    }

    #[test]
    fn the_rate_alone_follows_the_job() {
        let mut job = Player::default();
        job.play(60_000, MS, false, false, Limit::Ungated);
        job.play(400_000, MS / 2, false, false, Limit::Ungated);
        job.play(12_000, MS / 2, false, false, Limit::Budget);
        close(job.progress.share(), Share::OfAlone(1.0));
        assert_eq!(job.progress.recent_ns(), WINDOWS as u64 * WINDOW_NS);
    }

    #[test]
    fn sums_that_go_back_or_jump_break_nothing() {
        let mut progress = Progress::default();
        let mut view = JobView {
            id: JobId(1),
            charged_total_ns: 0,
            completed_total_ns: 0,
            drained: true,
            waiting: true,
        };
        for (second, done_ns) in [u64::MAX, 0, u64::MAX, 5, 1 << 63].into_iter().enumerate() {
            view.completed_total_ns = done_ns;
            progress.handle_decision(second as u64 * WINDOW_NS, &view, Limit::Ungated, false);
        }
        let share = progress.share().unwrap().value();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
