//! The share of the GPU for best-effort work: 100 % less high-priority work's use of the SMs.
//!
//! **Law.** MuxFlow's (§4.2). Each second gives high-priority work's expected use of the SMs: Σ
//! expected ns · min(SMs needed, SMs) / SMs, over the second's launches. x is the mean of the last
//! [`SECONDS`], and best-effort work has 1 − x of the GPU, from [`PERCENT_MIN`] to 100 %. Solo
//! durations count: a share by actual durations would shrink by its own effect. The share is
//! unknown until [`SECONDS_MIN`] were observed. Without a high-priority client it stays unchanged:
//! one may come back, and best-effort jobs keep their initial share for long.
//!
//! Under MPS it is a share of the SMs. It cannot change for a running process, so it applies to
//! starting jobs (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`), and a job that allows it is restarted for
//! it: where the share differs by [`HYSTERESIS`], and not before it has run for
//! [`ShareParams::restart_ns`]. In time slices it is a share of the time, of all best-effort jobs
//! together, while a high-priority client is attached ([`crate::Gate::handle_share`]).
//! Alternatively it follows how well the target of high-priority requests is kept: [`outer`].
//!
//! Source: MuxFlow (2024) §4.2, with the mean over a job's profile. Ours: [`SECONDS`] is a quarter
//! of an hour, the least time between two starts; [`HYSTERESIS`] is eight times the standard
//! deviation of a minute's mean, of ten random requests a second that use .3. A quantile of the
//! seconds was rejected: the 90th percentile of those requests is .42, and the gate handles bursts.

use std::collections::VecDeque;

pub mod outer;

use outer::{Held, Outer};

/// The number of seconds in the mean.
pub const SECONDS: usize = 900;

/// Seconds that must have been observed.
pub const SECONDS_MIN: usize = 10;

/// The least share of best-effort work, whatever high-priority work uses, per cent.
pub const PERCENT_MIN: u32 = 10;

/// Dynamic shares are multiples of this, per cent: kernel durations are learnt for each.
pub const STEP: u32 = 5;

/// A job is restarted when its share differs from the current one by this much, per cent.
pub const HYSTERESIS: u32 = 10;

/// The default least time between starts of a job, ns: as long as the mean; a start costs seconds.
pub const RESTART_NS: u64 = SECONDS as u64 * SECOND_NS;

const SECOND_NS: u64 = 1_000_000_000;

/// The configured share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareParams {
    /// Its source.
    pub mode: ShareMode,
    /// The least time that a restartable job runs before a restart, ns.
    pub restart_ns: u64,
}

/// The source of the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareMode {
    /// Fixed, in per cent from [`PERCENT_MIN`] to 100.
    Static(u32),
    /// The part that high-priority work leaves.
    Dynamic,
    /// Follows how well the target of high-priority requests is kept ([`outer`]).
    Target,
}

/// The current share, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareView {
    /// Its source.
    pub mode: ShareMode,
    /// Per cent; `None` while unknown.
    pub percent: Option<u32>,
    /// x, 0 to 1; `None` before the first second.
    pub used: Option<f64>,
    /// Observed seconds, at most [`SECONDS`].
    pub seconds: usize,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct BeShare {
    params: Option<ShareParams>,
    seconds: VecDeque<f64>,
    /// When the current second began, and the use in it, ns of all SMs.
    since_ns: Option<u64>,
    used_ns: f64,
    /// x.
    mean: Option<f64>,
    outer: Outer,
}

impl BeShare {
    /// Replaces the configured share; `None`: none. Observations stay.
    pub fn set(&mut self, params: Option<ShareParams>) {
        self.params = params;
    }

    /// Whether it follows the use.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.params
            .is_some_and(|params| params.mode == ShareMode::Dynamic)
    }

    /// Whether it follows the target.
    #[must_use]
    pub fn is_by_target(&self) -> bool {
        self.params
            .is_some_and(|params| params.mode == ShareMode::Target)
    }

    /// How well the target of high-priority requests is kept now; `None` where nothing is judged.
    pub fn handle_held(&mut self, now_ns: u64, held: Option<Held>) {
        self.outer.handle_held(now_ns, held);
    }

    /// High-priority clients have launched work of `sm_ns` solo ns of all SMs since the last call;
    /// NaN counts as 0. The first call, and the first after [`Self::pause`], begins a second, and
    /// its value belongs to the time before.
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

    /// High-priority work's use is unknown, or there is none: the current second does not count.
    pub fn pause(&mut self) {
        self.since_ns = None;
    }

    /// The share, per cent; `None` while unknown, and where none is configured.
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

    /// Whether to restart a job that was started with `with` per cent this long ago.
    #[must_use]
    pub fn is_stale(&self, with: u32, runs_ns: u64) -> bool {
        let (params, now) = (self.params, self.percent());
        let pair = params.zip(now);
        pair.is_some_and(|(params, now)| {
            runs_ns >= params.restart_ns && with.abs_diff(now) >= HYSTERESIS
        })
    }

    /// The current share; `None` where none is configured.
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
        // Launches from before the first call belong to no second.
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
        // The load grows, and after a quarter of an hour all earlier seconds have left the mean.
        for second in 61..=960 {
            share.handle_used(second * SECOND_NS, 0.97e9);
        }
        assert_eq!(share.percent(), Some(PERCENT_MIN));
        // It is absent for an hour, and returns.
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
