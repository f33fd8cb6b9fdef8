//! How a client's level follows from its requests: from the number that miss their target
//! ([`crate::slo`]), or from their mean ([`crate::slo_mean`]).

use super::kind::Target;
use crate::pillion::Goal;
use crate::slo::{GREATEST, LEAST, Level};
use crate::slo_mean::{MeanLevel, NEAR, Period, SlopeView};

const PERIOD_LEAST_NS: u64 = 100_000_000;

/// Requests of a period in a closed loop.
const REQUESTS_CLOSED: u32 = 4;

/// Requests of a period with random arrivals: as many as make the mean certain to [`SURE`] slacks,
/// by the variance of previous periods, within these bounds. The period's own variance would be
/// biased: a period that ends once its requests look alike misses the long ones.
const REQUESTS_OPEN: (f64, f64) = (20.0, 400.0);

/// See [`REQUESTS_OPEN`]. With this certainty a step of the level rarely exceeds its maximum.
/// Shortened steps would let the mean exceed the goal: a queue is long for a short time and short
/// for a long one, so mostly the falls would be shortened.
const SURE: f64 = 0.25;

/// The factor on the standard error: requests that wait for each other are late together.
const TOGETHER: f64 = 2.0;

/// In a closed loop a request arrives within this share of the previous one's latency.
const CLOSED: f64 = 0.05;

/// The least slack, as a share of the target.
const SLACK_LEAST: f64 = 0.01;

#[derive(Clone, Debug)]
pub(super) enum Law {
    Quantile(Level),
    Mean(Box<Means>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Means {
    level: MeanLevel,
    began_ns: u64,
    count: u32,
    /// Sums of the requests' latencies, in slacks, and of their squares.
    sum: f64,
    squares: f64,
    /// Requests for which best-effort work did not want to go, or another law held it.
    held: u32,
    /// The mean of the last period, in slacks.
    mean: f64,
    /// The variance of a request, over this period and the previous ones.
    variance: f64,
    /// A request of the period did not come in a closed loop.
    is_open: bool,
    ended_ns: u64,
    requests: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) arrived_ns: u64,
    pub(super) began_ns: u64,
    pub(super) at_ns: u64,
    pub(super) alone_ns: u64,
    pub(super) target: Target,
    pub(super) may_rise: bool,
}

impl Law {
    /// The law of a goal, starting at a level.
    pub(super) fn new(goal: &Goal, level: f64, has_missed: bool) -> Self {
        match goal.slo.is_mean() {
            // At level 0 requests end on their target at the latest; above it nothing guards them.
            true => Self::Mean(Box::new(Means {
                level: MeanLevel::begin(MeanLevel::value_of(level.min(0.0))),
                ..Means::default()
            })),
            false => Self::Quantile(Level::begin(level, has_missed)),
        }
    }

    /// Replaces the goal. A quantile keeps its level: a miss is a miss. A mean's state is in slacks
    /// of the previous goal, so it restarts. Levels above 0 differ in meaning between both laws.
    pub(super) fn handle_goal(&mut self, before: &Goal, goal: &Goal) {
        *self = match (before.slo.is_mean(), goal.slo.is_mean()) {
            (false, false) => return,
            (true, true) if before == goal => return,
            (true, true) => Self::new(goal, self.value(), true),
            (true, false) | (false, true) => Self::new(goal, self.kept(), self.has_missed()),
        };
    }

    /// The level at which the next daemon may start, with either law.
    pub(super) fn kept(&self) -> f64 {
        match self {
            Self::Quantile(level) => level.value(),
            Self::Mean(_) => self.value().min(0.0),
        }
    }

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

    /// The level at which best-effort work is paused, for a goal with this share of misses.
    pub(super) fn paused_at(&self, miss: f64) -> f64 {
        match self {
            Self::Quantile(level) => LEAST + level.fall(miss),
            // The law's own small steps are no reason to end a pause.
            Self::Mean(_) => LEAST + 0.05,
        }
    }

    pub(super) fn is_at_floor(&self, miss: f64) -> bool {
        match self {
            Self::Quantile(level) => level.is_at_floor(miss),
            Self::Mean(_) => self.value() <= self.paused_at(miss),
        }
    }

    /// Judged requests, those that missed, and those that missed at the floor.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        match self {
            Self::Quantile(level) => (level.requests, level.misses, level.misses_at_floor),
            Self::Mean(means) => (means.requests, 0, 0),
        }
    }

    pub(super) fn slope(&self) -> Option<SlopeView> {
        match self {
            Self::Quantile(_) => None,
            Self::Mean(means) => means.level.slope(),
        }
    }

    /// The least predicted slack of a request, as a share of its target, beside which best-effort
    /// work goes; a fresh request has `fresh` of it. For a mean: all of it at level −1, nothing at
    /// level 0, where a request ends on its target, as far as predictions hold; above that they may
    /// pass it, without limit at level 1.
    pub(super) fn threshold(&self, fresh: f64) -> f64 {
        let level = self.value();
        match self {
            Self::Quantile(_) => 0.5 * (1.0 - level),
            Self::Mean(_) if level <= -1.0 => f64::INFINITY,
            Self::Mean(_) if level <= 0.0 => -fresh * level,
            Self::Mean(_) => -fresh * level / (GREATEST - level).max(1e-3),
        }
    }

    pub(super) fn has_time_to_spare(&self) -> bool {
        match self {
            Self::Quantile(level) => level.value() > SPARE_FROM,
            // The guard alone bounds a request. If the priority were given up at some level, the
            // mean would jump there, and no level would give the means in between.
            Self::Mean(_) => true,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Quantile(level) => level.value() < 0.0,
            Self::Mean(means) => means.mean > 1.0 + NEAR,
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
        // A request that began before the level changed is weak evidence about the new level.
        if judged.began_ns < self.began_ns {
            return;
        }
        let target = judged.target.ns as f64;
        let slack = (target - judged.alone_ns as f64).max(SLACK_LEAST * target);
        let took = 1.0 + (took_ns - target) / slack.max(1.0);
        self.count += 1;
        self.sum += took;
        self.squares += took * took;
        self.held += u32::from(!judged.may_rise);
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
            may_rise: self.held <= self.count / 2,
        });
        *self = Self {
            level: self.level.clone(),
            began_ns: now_ns,
            ended_ns: now_ns,
            requests: self.requests,
            mean,
            variance: match self.variance > 0.0 {
                true => (self.variance + variance) / 2.0,
                false => variance,
            },
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pillion::Slo;

    const MS: u64 = 1_000_000;

    const MEAN: Goal = Goal {
        slo: Slo::MeanNs(90 * MS),
        miss: 0.01,
    };

    const QUANTILE: Goal = Goal {
        slo: Slo::LatencyNs(90 * MS),
        miss: 0.01,
    };

    /// Requests of 65 ms solo with these latencies and pauses; returns the number of periods.
    fn run(law: &mut Law, took_ms: &[u64], pause_ms: u64, may_rise: bool) -> u64 {
        let mut at_ns = match law {
            Law::Mean(means) => means.ended_ns,
            Law::Quantile(_) => 0,
        };
        for took_ms in took_ms {
            let arrived_ns = at_ns + pause_ms * MS;
            at_ns = arrived_ns + took_ms * MS;
            law.handle_request(&Judged {
                arrived_ns,
                began_ns: arrived_ns,
                at_ns,
                alone_ns: 65 * MS,
                target: Target {
                    ns: 90 * MS,
                    miss: 0.01,
                },
                may_rise,
            });
        }
        match law {
            Law::Mean(means) => means.level.periods(),
            Law::Quantile(_) => 0,
        }
    }

    #[test]
    fn a_period_is_four_requests_of_a_closed_loop_and_more_at_random() {
        let mut law = Law::new(&MEAN, 0.0, false);
        assert_eq!(run(&mut law, &[80; 12], 0, true), 3);
        // All alike: the mean is certain after the least number.
        assert_eq!(run(&mut law, &[80; 40], 50, true), 5);
        // At a deviation of 1.6 slacks certainty takes 164: 4 times 2.56 over a sixteenth.
        let mixed: Vec<u64> = (0..184).map(|n| 50 + 80 * (n % 2)).collect();
        assert_eq!(run(&mut law, &mixed[..20], 50, true), 6);
        let after = run(&mut law, &mixed[..80], 50, true);
        assert_eq!(run(&mut law, &mixed[..100], 50, true), after + 1);
        // A period lasts 100 ms at least.
        let mut law = Law::new(&MEAN, 0.0, false);
        assert_eq!(run(&mut law, &[10; 9], 0, true), 0);
        assert_eq!(run(&mut law, &[10; 1], 0, true), 1);
    }

    #[test]
    fn a_mean_over_its_target_lowers_the_level_and_one_below_raises_it_unless_most_of_it_was_held()
    {
        let level = |took_ms: u64, may_rise| {
            let mut law = Law::new(&MEAN, -0.5, false);
            run(&mut law, &[took_ms; 8], 0, may_rise);
            (law.value(), law.is_over())
        };
        assert!(level(120, true).0 < -1.0 && level(120, true).1);
        assert!(level(120, false).0 < -0.6);
        assert!(level(70, true).0 > 0.0 && !level(70, true).1);
        assert!((level(70, false).0 + 0.5).abs() < 0.03);
        // Less than half of a period held is no reason to rise.
        let mut law = Law::new(&MEAN, -0.5, false);
        run(&mut law, &[70; 1], 0, false);
        run(&mut law, &[70; 7], 0, true);
        assert!(law.value() > 0.0);
    }

    #[test]
    fn another_goal_begins_anew_and_no_law_takes_a_level_without_a_guard_from_the_other() {
        let mut law = Law::new(&QUANTILE, 0.9, true);
        law.handle_goal(&QUANTILE, &MEAN);
        assert!(law.value().abs() < 0.03, "{law:?}");
        run(&mut law, &[66; 40], 0, true);
        assert!(law.value() > 0.9, "{law:?}");
        assert!(law.kept() <= 0.0);
        let other = Goal {
            slo: Slo::MeanNs(180 * MS),
            ..MEAN
        };
        let before = law.value();
        law.handle_goal(&MEAN, &MEAN);
        assert_eq!(law.value(), before);
        law.handle_goal(&MEAN, &other);
        assert!(law.value() <= 0.03, "{law:?}");
        assert_eq!(run(&mut law, &[100; 4], 0, true), 1, "{law:?}");
        // A low level is kept as it is, and means the same.
        let mut law = Law::new(&QUANTILE, -4.0, true);
        law.handle_goal(&QUANTILE, &MEAN);
        assert!((law.value() + 4.0).abs() < 0.03, "{law:?}");
        law.handle_goal(&MEAN, &QUANTILE);
        assert!((law.value() + 4.0).abs() < 0.03, "{law:?}");
    }

    #[test]
    fn the_guard_of_a_mean_leaves_all_of_the_slack_at_minus_one_and_none_at_nought() {
        let at = |level: f64| {
            let mut law = Law::new(&MEAN, 0.0, false);
            if let Law::Mean(means) = &mut law {
                means.level = MeanLevel::begin(level);
            }
            law.threshold(0.3)
        };
        assert_eq!(at(-2.0), f64::INFINITY);
        assert!((at(-0.98) - 0.3).abs() < 0.02);
        assert!((at(-0.5) - 0.15).abs() < 0.02);
        assert!(at(0.02).abs() < 0.02);
        assert!(at(0.5) < -0.25);
        assert!(at(1.0) < -10.0);
    }
}
