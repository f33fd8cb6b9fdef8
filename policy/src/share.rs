//! The share of the GPU that best-effort work has beside high-priority work: 100 % less what that
//! uses of the SMs.
//!
//! **Law.** MuxFlow's (§4.2). Each second it is seen how much of the SMs high-priority work was to
//! use: Σ expected ns · min(SMs needed, SMs) / SMs, of what was launched in it. x is the mean of the
//! last [`SECONDS`], and best-effort work has 1 − x of the GPU, from [`PERCENT_MIN`] to 100 %. What
//! counts is what kernels take alone, which best-effort work beside them does not change: a share by
//! how long they took would shrink by its own fault.
//!
//! Under MPS it is a share of the SMs. Nobody can change that of a process that runs, so it holds
//! for jobs that start (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`), and one that may be is started anew
//! for it: where it differs by [`HYSTERESIS`], and not before it has run for
//! [`ShareParams::restart_ns`]. In time slices a process has all SMs in its turn, and the share is
//! one of the time, of all best-effort jobs together, while a high-priority client is there
//! ([`crate::Gate::handle_share`]).
//!
//! Or it follows how the target of high-priority requests is held: [`outer`].
//!
//! Until [`SECONDS_MIN`] were seen no share is known. While no high-priority client is there it stays
//! what it was: one may come back, and best-effort jobs keep for long what they are started with.
//!
//! Source: MuxFlow (2024) §4.2, which has the mean over a profile of the job. Ours: [`SECONDS`] is a
//! quarter of an hour, the least time between two starts; [`HYSTERESIS`] is eight times the standard
//! deviation of a minute's mean, of ten requests in a second at random that use .3. A quantile of the
//! seconds was considered and left out: of those requests the 90th percentile is .42, and what comes
//! in a burst is the gate's matter.

use std::collections::VecDeque;

pub mod outer;

use outer::{Held, Outer};

/// Seconds that the mean is of.
pub const SECONDS: usize = 900;

/// Seconds that must have been seen.
pub const SECONDS_MIN: usize = 10;

/// Best-effort work has that much, whatever high-priority work uses, per cent.
pub const PERCENT_MIN: u32 = 10;

/// A dynamic share is a multiple of that, per cent: what is learnt of kernels is kept apart for each.
pub const STEP: u32 = 5;

/// A job that has another share than it would get now by so much is started anew, per cent.
pub const HYSTERESIS: u32 = 10;

/// Between two starts of a job, unless something else is said, ns: what a start costs is seconds, and
/// the mean is of as long.
pub const RESTART_NS: u64 = SECONDS as u64 * SECOND_NS;

const SECOND_NS: u64 = 1_000_000_000;

/// What share is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareParams {
    /// Where it comes from.
    pub mode: ShareMode,
    /// A job that may be started anew runs so long before it is, ns.
    pub restart_ns: u64,
}

/// Where the share comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareMode {
    /// It is so many per cent, from [`PERCENT_MIN`] to 100.
    Static(u32),
    /// It is what high-priority work leaves.
    Dynamic,
    /// It follows how the target of high-priority requests is held ([`outer`]).
    Target,
}

/// The share as it stands, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareView {
    /// Where it comes from.
    pub mode: ShareMode,
    /// Per cent; none while it is not known.
    pub percent: Option<u32>,
    /// x, 0 to 1; none before a second was seen.
    pub used: Option<f64>,
    /// Seconds that were seen, at most [`SECONDS`].
    pub seconds: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct BeShare {
    params: Option<ShareParams>,
    /// What was used in the last seconds, 0 to 1 each.
    seconds: VecDeque<f64>,
    /// When the second that is not over began, and what was used in it, ns of all SMs.
    since_ns: Option<u64>,
    used_ns: f64,
    /// x.
    mean: Option<f64>,
    outer: Outer,
}

impl BeShare {
    /// From now on that holds, or nothing. What was seen stays.
    pub fn set(&mut self, params: Option<ShareParams>) {
        self.params = params;
    }

    /// Whether it goes by what is used.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.params
            .is_some_and(|params| params.mode == ShareMode::Dynamic)
    }

    /// Whether it goes by how the target is held.
    #[must_use]
    pub fn is_by_target(&self) -> bool {
        self.params
            .is_some_and(|params| params.mode == ShareMode::Target)
    }

    /// So the target of high-priority requests is held now; `None` where none is, or nothing is
    /// judged.
    pub fn handle_held(&mut self, now_ns: u64, held: Option<Held>) {
        self.outer.handle_held(now_ns, held);
    }

    /// High-priority clients have launched since the last call what takes `sm_ns` of all SMs' time
    /// alone; a number that is none counts as nothing. The first call, and the first after
    /// [`Self::pause`], begins a second, and what it says is of before.
    pub fn handle_used(&mut self, now_ns: u64, sm_ns: f64) {
        let Some(since_ns) = self.since_ns else {
            (self.since_ns, self.used_ns) = (Some(now_ns), 0.0);
            return;
        };
        self.used_ns += if sm_ns.is_finite() {
            sm_ns.max(0.0)
        } else {
            0.0
        };
        let passed_ns = now_ns.saturating_sub(since_ns);
        if passed_ns < SECOND_NS {
            return;
        }
        let used = (self.used_ns / passed_ns as f64).min(1.0);
        self.seconds.truncate(SECONDS - 1);
        self.seconds.push_front(used);
        let sum: f64 = self.seconds.iter().sum();
        self.mean = Some(sum / self.seconds.len() as f64);
        (self.since_ns, self.used_ns) = (Some(now_ns), 0.0);
    }

    /// Nothing is known of what high-priority work uses, or there is none: the second that has begun
    /// does not count.
    pub fn pause(&mut self) {
        self.since_ns = None;
    }

    /// The share, per cent; `None` while it is not known, and where none is to hold.
    #[must_use]
    pub fn percent(&self) -> Option<u32> {
        match self.params?.mode {
            ShareMode::Static(percent) => Some(percent),
            ShareMode::Dynamic => {
                let mean = self.mean.filter(|_| self.seconds.len() >= SECONDS_MIN)?;
                let steps = ((1.0 - mean) * 100.0 / f64::from(STEP)).round();
                Some((steps as u32 * STEP).max(PERCENT_MIN))
            }
            ShareMode::Target => {
                let steps = (self.outer.percent() / f64::from(STEP)).round();
                Some((steps as u32 * STEP).clamp(PERCENT_MIN, 100))
            }
        }
    }

    /// Whether a job that was started with `with` per cent so long ago is to be started anew.
    #[must_use]
    pub fn is_stale(&self, with: u32, runs_ns: u64) -> bool {
        let (params, now) = (self.params, self.percent());
        let pair = params.zip(now);
        pair.is_some_and(|(params, now)| {
            runs_ns >= params.restart_ns && with.abs_diff(now) >= HYSTERESIS
        })
    }

    /// As it stands; `None` where none is to hold.
    #[must_use]
    pub fn view(&self) -> Option<ShareView> {
        Some(ShareView {
            mode: self.params?.mode,
            percent: self.percent(),
            used: self.mean,
            seconds: self.seconds.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dynamic() -> BeShare {
        let mut share = BeShare::default();
        share.set(params(ShareMode::Dynamic));
        share
    }

    fn params(mode: ShareMode) -> Option<ShareParams> {
        let restart_ns = RESTART_NS;
        Some(ShareParams { mode, restart_ns })
    }

    #[test]
    fn best_effort_work_has_what_high_priority_work_leaves() {
        let mut share = dynamic();
        // What was launched before anybody counted is of no second.
        share.handle_used(0, 1e12);
        for tick in 1..=5 * 9 {
            share.handle_used(tick * SECOND_NS / 5, 0.06e9);
            assert_eq!(share.percent(), None);
        }
        for tick in 5 * 9 + 1..=5 * 60 {
            share.handle_used(tick * SECOND_NS / 5, 0.06e9);
        }
        let view = share.view().unwrap();
        assert_eq!((view.percent, view.seconds), (Some(70), 60));
        // It works more, and after a quarter of an hour nothing else is known.
        for second in 61..=960 {
            share.handle_used(second * SECOND_NS, 0.97e9);
        }
        assert_eq!(share.percent(), Some(PERCENT_MIN));
        // It is not there for an hour, and comes again.
        share.pause();
        share.handle_used(4_560 * SECOND_NS, 7e9);
        assert_eq!(share.percent(), Some(PERCENT_MIN));
        for second in 1..=900 {
            share.handle_used((4_560 + second) * SECOND_NS, 0.01e9);
        }
        assert_eq!(share.percent(), Some(100));
        share.set(None);
        assert_eq!(share.view(), None);
        assert!(!share.is_stale(90, u64::MAX));
        share.set(params(ShareMode::Static(40)));
        assert_eq!(share.percent(), Some(40));
        assert!(!share.is_dynamic());
        for (with, runs_ns, is_stale) in [
            (50, RESTART_NS, true),
            (30, RESTART_NS, true),
            (49, RESTART_NS, false),
            (31, u64::MAX, false),
            (100, RESTART_NS - 1, false),
        ] {
            assert_eq!(share.is_stale(with, runs_ns), is_stale, "{with} {runs_ns}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_told_it_is_a_share(
            told in prop::collection::vec((0..5 * SECOND_NS, any::<f64>()), 0..50),
        ) {
            let mut share = dynamic();
            let mut now_ns = 0;
            for (passed_ns, sm_ns) in told {
                now_ns += passed_ns;
                share.handle_used(now_ns, sm_ns);
                let view = share.view().unwrap();
                let is_one = |pct: u32| (PERCENT_MIN..=100).contains(&pct) && pct.is_multiple_of(STEP);
                prop_assert!(view.percent.is_none_or(is_one));
                prop_assert!(view.used.is_none_or(|used| (0.0..=1.0).contains(&used)));
                prop_assert_eq!(view.percent.is_some(), view.seconds >= SECONDS_MIN);
            }
        }
    }
}
