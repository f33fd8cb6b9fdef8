//! How the level of a client follows from what its requests take: by how many of them miss their
//! target ([`crate::slo`]), or by their mean ([`crate::slo_mean`]).

use super::kind::Target;
use crate::pillion::Goal;
use crate::slo::{GREATEST, LEAST, Level};
use crate::slo_mean::{MeanLevel, Period, SlopeView};

/// A period is no shorter, ns.
const PERIOD_LEAST_NS: u64 = 100_000_000;

/// Requests of a period in a closed loop.
const REQUESTS_CLOSED: u32 = 4;

/// Where they come at random: as many as make the mean sure to [`SURE`] slacks, by how requests of the
/// periods before differed, within these bounds. Not by those of the period itself: one that ends once
/// its requests look alike ends before the long ones.
const REQUESTS_OPEN: (f64, f64) = (20.0, 400.0);

/// See [`REQUESTS_OPEN`]. Steps are then seldom cut off, which would let the mean be more than asked: a
/// queue is long for a short time and short for a long one.
const SURE: f64 = 0.25;

/// Requests that wait for each other are late together, so that the standard error is so many times what it
/// would be of independent ones.
const TOGETHER: f64 = 2.0;

/// In a closed loop a request arrives when the one before has ended: no later than this share of what
/// it takes.
const CLOSED: f64 = 0.05;

/// A slack counts as no less than this share of the target.
const SLACK_LEAST: f64 = 0.01;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) enum Law {
    Quantile(Level),
    Mean(Box<Means>),
}

/// The law of the mean, and the period that is not over.
#[derive(Clone, Debug, Default)]
pub(super) struct Means {
    level: MeanLevel,
    began_ns: u64,
    count: u32,
    /// Sums of what requests took, in slacks, and of its squares.
    sum: f64,
    squares: f64,
    /// Best-effort work did not want to go all the time, or another law held it.
    was_held: bool,
    /// The variance of a request, of this period and those before.
    variance: f64,
    /// A request of the period did not come in a closed loop.
    is_open: bool,
    /// When the last request ended.
    ended_ns: u64,
    /// Requests that were judged.
    requests: u64,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) arrived_ns: u64,
    pub(super) began_ns: u64,
    pub(super) at_ns: u64,
    /// What its kind takes alone.
    pub(super) alone_ns: u64,
    pub(super) target: Target,
    pub(super) may_rise: bool,
}

impl Law {
    /// The law of a goal, that begins at a level.
    pub(super) fn new(goal: &Goal, level: f64, has_missed: bool) -> Self {
        match goal.slo.is_mean() {
            true => Self::Mean(Box::new(Means {
                level: MeanLevel::begin(MeanLevel::value_of(level)),
                ..Means::default()
            })),
            false => Self::Quantile(Level::begin(level, has_missed)),
        }
    }

    pub(super) fn is_mean(&self) -> bool {
        matches!(self, Self::Mean(_))
    }

    /// Another goal is in force: where it is of the other law, that one begins at the same level.
    pub(super) fn handle_goal(&mut self, goal: &Goal) {
        if self.is_mean() != goal.slo.is_mean() {
            *self = Self::new(goal, self.value(), self.has_missed());
        }
    }

    /// The level, from [`LEAST`] to [`GREATEST`].
    pub(super) fn value(&self) -> f64 {
        match self {
            Self::Quantile(level) => level.value(),
            Self::Mean(means) => means.level.level(),
        }
    }

    pub(super) fn has_missed(&self) -> bool {
        match self {
            Self::Quantile(level) => level.has_missed(),
            Self::Mean(_) => true,
        }
    }

    /// The level at which best-effort work is paused, of a goal of which a share may miss.
    pub(super) fn paused_at(&self, miss: f64) -> f64 {
        match self {
            Self::Quantile(level) => LEAST + level.fall(miss),
            // What it is moved by in turn is no reason to let some go.
            Self::Mean(_) => LEAST + 0.05,
        }
    }

    pub(super) fn is_at_floor(&self, miss: f64) -> bool {
        match self {
            Self::Quantile(level) => level.is_at_floor(miss),
            Self::Mean(_) => self.value() <= self.paused_at(miss),
        }
    }

    /// Requests that were judged, those of them that missed, and those of these that did so at the floor.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        match self {
            Self::Quantile(level) => (level.requests, level.misses, level.misses_at_floor),
            Self::Mean(means) => (means.requests, 0, 0),
        }
    }

    /// The slope of the mean, where one is known.
    pub(super) fn slope(&self) -> Option<SlopeView> {
        match self {
            Self::Quantile(_) => None,
            Self::Mean(means) => means.level.slope(),
        }
    }

    /// The least predicted slack of a request, as a share of its target, beside which best-effort work
    /// goes; a fresh one has `fresh` of it.
    ///
    /// Of the law of the mean it is all of it at level −1 and nothing at level 0, where a request ends on its target, as
    /// far as predictions hold; above that requests may pass their target, without limit at level 1.
    pub(super) fn threshold(&self, fresh: f64) -> f64 {
        let level = self.value();
        match self {
            Self::Quantile(_) => 0.5 * (1.0 - level),
            Self::Mean(_) if level <= -1.0 => f64::INFINITY,
            Self::Mean(_) if level <= 0.0 => -fresh * level,
            Self::Mean(_) => -fresh * level / (GREATEST - level).max(1e-3),
        }
    }

    /// Whether requests have time to spare, so that their kernels need not go first.
    pub(super) fn has_time_to_spare(&self) -> bool {
        match self {
            Self::Quantile(level) => level.value() > SPARE_FROM,
            // The guard alone bounds what a request takes. Were the priority given up at some level above, the mean
            // would jump there, and no level hold what lies between.
            Self::Mean(_) => self.value() > -1.0,
        }
    }

    pub(super) fn handle_request(&mut self, judged: &Judged) {
        match self {
            Self::Quantile(level) => {
                let is_miss = judged.took_ns() > judged.target.ns;
                level.handle_request(is_miss, judged.target.miss, judged.may_rise);
            }
            Self::Mean(means) => means.handle_request(judged),
        }
    }
}

/// Above this level requests have time to spare.
const SPARE_FROM: f64 = 0.5;

impl Judged {
    fn took_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.arrived_ns)
    }
}

impl Means {
    fn handle_request(&mut self, judged: &Judged) {
        self.requests += 1;
        let took_ns = judged.took_ns() as f64;
        let pause_ns = judged.arrived_ns as f64 - self.ended_ns as f64;
        self.is_open |= !(0.0..=CLOSED * took_ns).contains(&pause_ns);
        self.ended_ns = judged.at_ns;
        // One that began before the level changed says little of it.
        if judged.began_ns < self.began_ns {
            return;
        }
        let target = judged.target.ns as f64;
        let slack = (target - judged.alone_ns as f64).max(SLACK_LEAST * target);
        let took = 1.0 + (took_ns - target) / slack.max(1.0);
        self.count += 1;
        self.sum += took;
        self.squares += took * took;
        self.was_held |= !judged.may_rise;
        let is_long = judged.at_ns.saturating_sub(self.began_ns) >= PERIOD_LEAST_NS;
        if is_long && self.count >= self.count_wanted() {
            self.end_period(judged.at_ns);
        }
    }

    fn count_wanted(&self) -> u32 {
        let (least, most) = REQUESTS_OPEN;
        let sure = TOGETHER * TOGETHER * self.variance / (SURE * SURE);
        match self.is_open {
            true => sure.clamp(least, most) as u32,
            false => REQUESTS_CLOSED,
        }
    }

    fn end_period(&mut self, now_ns: u64) {
        let count = f64::from(self.count);
        let mean = self.sum / count;
        let variance = (self.squares - self.sum * mean).max(0.0) / (count - 1.0).max(1.0);
        let together = if self.is_open { TOGETHER } else { 1.0 };
        self.level.handle_period(&Period {
            mean,
            error: together * (variance / count).sqrt(),
            may_rise: !self.was_held,
        });
        *self = Self {
            level: self.level.clone(),
            began_ns: now_ns,
            ended_ns: now_ns,
            requests: self.requests,
            variance: match self.variance > 0.0 {
                true => (self.variance + variance) / 2.0,
                false => variance,
            },
            ..Self::default()
        };
    }
}
