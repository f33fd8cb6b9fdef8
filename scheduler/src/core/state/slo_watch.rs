//! Events about high-priority jobs' targets: `slo-missed`, and later `slo-met`.
//! The law of a target acts on every request, and tolerates bursts of misses ([`policy::slo`]). An
//! event reports that it fails. Four times a second the counts of each job are sampled, and two
//! windows are compared with the share α of requests that may be late:
//!
//! | window | the target is missed where |
//! |---|---|
//! | two seconds, or the time of 20 requests, at most a minute | more than half were late |
//! | the last minute | more than five times α were late |
//!
//! In both cases more requests must be late than chance explains: α of the window's requests, six
//! standard deviations of a Poisson count, and two more. Misses of a queue come in bursts. In an
//! hour's simulation of a service that was busy for six tenths of the time, with 60 requests per
//! second and a target of 1.2 times its p99 alone, up to 21 of 142 requests in two seconds were
//! late, and more than nine sixteen times. So neither window is narrower.
//!
//! A mean is missed where the last 64 requests took 1.25 times the target, or 1.02 times while
//! best-effort work is paused, at each sample for two seconds. The target is met again after ten
//! seconds in which no window reported a miss, 20 requests were judged, and no more than α and two
//! standard deviations of them were late. A job without requests meets nothing. Jobs with unmarked
//! requests have no target for a single request, and no events.

use std::collections::VecDeque;

use policy::{Goal, SloEnd, SloView};

use super::State;
use crate::core::event::{Draft, Kind};

/// Sampling interval, ns.
const LOOK_NS: u64 = 250_000_000;

/// The short window, ns, and its least number of requests.
const SHORT_NS: u64 = 2_000_000_000;
const SHORT_REQUESTS: u64 = 20;

const LONG_NS: u64 = 60_000_000_000;

/// A missed target must be kept for this long, ns, and by this many requests, to be met again.
const MET_NS: u64 = 10_000_000_000;
const MET_REQUESTS: u64 = 20;

/// Mean over target that counts as missed: always, and while best-effort work is paused.
const MEAN_FAR: f64 = 1.25;
const MEAN_NEAR: f64 = 1.02;

#[derive(Debug, Default)]
pub(crate) struct SloWatch {
    looked_ns: u64,
    goal: Option<Goal>,
    samples: VecDeque<Sample>,
    is_missed: bool,
    /// Since when no window reports a miss, and the requests judged by then.
    calm_since: Option<Sample>,
    mean_over_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    at_ns: u64,
    requests: u64,
    misses: u64,
    misses_at_floor: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    Missed {
        late: u64,
        of: u64,
        over_ns: u64,
        is_floor: bool,
    },
    MeanMissed {
        mean_ns: u64,
        is_floor: bool,
    },
    Met,
}

impl SloWatch {
    pub(crate) fn is_missed(&self) -> bool {
        self.is_missed
    }

    /// Samples the target; none: no target any more.
    fn look(&mut self, now_ns: u64, view: Option<&SloView>) -> Option<Turn> {
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return None;
        }
        self.looked_ns = now_ns;
        let Some(view) = view else {
            *self = Self {
                looked_ns: now_ns,
                ..Self::default()
            };
            return None;
        };
        let now = Sample {
            at_ns: now_ns,
            requests: view.requests,
            misses: view.misses,
            misses_at_floor: view.misses_at_floor,
        };
        // Counts drop when a process of the job leaves, or learning restarts. Misses under another
        // target tell nothing about this one.
        let is_other = self.goal.replace(view.goal) != Some(view.goal);
        if is_other || self.samples.back().is_some_and(|last| !now.is_after(last)) {
            self.samples.clear();
            self.calm_since = None;
            self.mean_over_since_ns = None;
        }
        let broken = match view.goal.slo.is_mean() {
            true => self.look_at_mean(now_ns, view),
            false => self.look_at_misses(&now, &view.goal),
        };
        self.samples.push_back(now);
        let is_old = |sample: &Sample| now_ns.saturating_sub(sample.at_ns) > LONG_NS;
        while self.samples.len() > 1 && self.samples.get(1).is_some_and(is_old) {
            self.samples.pop_front();
        }
        self.turn(&now, broken, view)
    }

    fn turn(&mut self, now: &Sample, broken: Option<Turn>, view: &SloView) -> Option<Turn> {
        if broken.is_some() {
            self.calm_since = None;
            return match std::mem::replace(&mut self.is_missed, true) {
                true => None,
                false => broken,
            };
        }
        let since = *self.calm_since.get_or_insert(*now);
        let calm = now.since(&since);
        if !self.is_missed || calm.at_ns < MET_NS || calm.requests < MET_REQUESTS {
            return None;
        }
        let is_met = match view.goal.slo.is_mean() {
            true => self.mean_over_since_ns.is_none(),
            false => calm.misses as f64 <= usual(&calm, view.goal.miss, 2.0, 0.0),
        };
        if !is_met {
            // Neither missed nor met: wait for another ten seconds.
            self.calm_since = None;
            return None;
        }
        self.is_missed = false;
        Some(Turn::Met)
    }

    fn look_at_misses(&self, now: &Sample, goal: &Goal) -> Option<Turn> {
        let missed = |window: Sample| Turn::Missed {
            late: window.misses,
            of: window.requests,
            over_ns: window.at_ns,
            is_floor: window.misses_at_floor * 2 > window.misses,
        };
        let windows = self.samples.iter().rev().map(|sample| now.since(sample));
        let is_enough = |window: &Sample| {
            window.at_ns >= SHORT_NS && window.requests >= SHORT_REQUESTS || window.at_ns >= LONG_NS
        };
        let short = windows.into_iter().find(is_enough);
        let is_over = |short: &Sample| {
            short.misses * 2 > short.requests
                && short.misses as f64 > usual(short, goal.miss, 6.0, 2.0)
        };
        if let Some(short) = short.filter(is_over) {
            return Some(missed(short));
        }
        let long = now.since(self.samples.front()?);
        let most = usual(&long, goal.miss, 6.0, 2.0) + 4.0 * long.requests as f64 * goal.miss;
        (long.misses as f64 > most).then(|| missed(long))
    }

    fn look_at_mean(&mut self, now_ns: u64, view: &SloView) -> Option<Turn> {
        let is_floor = view.end == SloEnd::Floor;
        let times = if is_floor { MEAN_NEAR } else { MEAN_FAR };
        let over = |times: f64| {
            let (mean_ns, target_ns) = view.measured_ns.zip(view.target_ns)?;
            (mean_ns as f64 > target_ns as f64 * times).then_some(mean_ns)
        };
        let mean_ns = over(times);
        self.mean_over_since_ns = match mean_ns.or(over(MEAN_NEAR).filter(|_| self.is_missed)) {
            Some(_) => self.mean_over_since_ns.or(Some(now_ns)),
            None => None,
        };
        let since_ns = self.mean_over_since_ns?;
        let turn = Turn::MeanMissed {
            mean_ns: mean_ns?,
            is_floor,
        };
        (now_ns.saturating_sub(since_ns) >= SHORT_NS).then_some(turn)
    }
}

impl Sample {
    fn is_after(&self, before: &Self) -> bool {
        self.requests >= before.requests
            && self.misses >= before.misses
            && self.misses_at_floor >= before.misses_at_floor
    }

    /// Counts since `before`; `at_ns` of the result is the elapsed time.
    fn since(&self, before: &Self) -> Self {
        Self {
            at_ns: self.at_ns.saturating_sub(before.at_ns),
            requests: self.requests.saturating_sub(before.requests),
            misses: self.misses.saturating_sub(before.misses),
            misses_at_floor: self.misses_at_floor.saturating_sub(before.misses_at_floor),
        }
    }
}

/// The most misses that chance explains at a share `miss`: mean, standard deviations, and more.
fn usual(window: &Sample, miss: f64, deviations: f64, more: f64) -> f64 {
    let mean = window.requests as f64 * miss;
    mean + deviations * mean.sqrt() + more
}

impl State {
    pub(super) fn watch_targets(&mut self, now_ns: u64) {
        for place in 0..self.jobs.len() {
            let job = &self.jobs[place];
            let is_due = now_ns.saturating_sub(job.slo_watch.looked_ns) >= LOOK_NS;
            if job.be_job.is_some() || !is_due {
                continue;
            }
            let view = self.slo_view(job);
            let job = &mut self.jobs[place];
            let Some(turn) = job.slo_watch.look(now_ns, view.as_ref()) else {
                continue;
            };
            let (kind, text) = turn.told(&job.key.id, view.as_ref());
            self.slo_news.push(Draft::new(kind, text).of_job(&job.key));
        }
    }

    pub(crate) fn take_slo_news(&mut self) -> Vec<Draft> {
        std::mem::take(&mut self.slo_news)
    }
}

impl Turn {
    fn told(self, job: &str, view: Option<&SloView>) -> (Kind, String) {
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let target = view
            .and_then(|view| view.target_ns)
            .map_or("its target".to_owned(), ms);
        let whose = |is_floor| match is_floor {
            true => "best-effort jobs are already paused, so they do not cause this",
            false => "best-effort jobs are held back further",
        };
        match self {
            Self::Missed {
                late,
                of,
                over_ns,
                is_floor,
            } => {
                let may = view.map_or(0.0, |view| view.goal.miss * 100.0);
                let (over_s, whose) = (over_ns as f64 / 1e9, whose(is_floor));
                (
                    Kind::SloMissed,
                    format!(
                        "job {job:?}: {late} of {of} requests in {over_s:.0} s took longer than \
                         {target} (allowed: {may:.1} %); {whose}"
                    ),
                )
            }
            Self::MeanMissed { mean_ns, is_floor } => (
                Kind::SloMissed,
                format!(
                    "job {job:?}: the mean of the last requests is {}, above {target}; {}",
                    ms(mean_ns),
                    whose(is_floor)
                ),
            ),
            Self::Met => (
                Kind::SloMet,
                format!("job {job:?}: requests have met {target} again for 10 s"),
            ),
        }
    }
}
