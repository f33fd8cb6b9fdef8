//! The outer loop: best-effort work's share follows how well HP requests keep their target. The
//! level ([`crate::slo`]) is the inner, faster loop. It cannot give best-effort jobs more SMs than
//! they were started with, or make those beside a request use less of it. So where it stays at its
//! end for [`PERIOD_NS`] the share changes:
//! - At its top, and requests are within their target by more than [`SPARE`]: the share grows by
//!   the rest of the target, over the observed cost of a per cent of the share.
//! - Below −1 (nothing wide goes beside requests) and above its floor: it falls by [`STEP_DOWN`].
//! - At its floor it stays: paused work causes no misses. It also stays between −1 and the top.
//!
//! After a fall it does not grow for [`TOO_LARGE_NS`]; otherwise two shares would alternate, and
//! jobs be restarted each time. It changes only while it is in force: under MPS a job has its
//! initial share, and nothing is known of a share that was not tried. Source: GPUColo (2024) §V
//! moves the shares of both jobs in an outer loop, and gives no law. Here HP jobs keep all SMs.

use super::{PERCENT_MIN, SECOND_NS};

/// Between two changes: 25 periods of the level at least, and a start of a job takes seconds.
pub const PERIOD_NS: u64 = 100 * SECOND_NS;

/// The part of their target that must be left for a larger share.
pub const SPARE: f64 = 0.02;

/// A fall, per cent: a smaller one restarts no job ([`super::HYSTERESIS`]).
pub const STEP_DOWN: f64 = 10.0;

/// The least and greatest growth, per cent.
const STEP_UP: (f64, f64) = (10.0, 30.0);

/// The time without growth after a fall, ns.
pub const TOO_LARGE_NS: u64 = 3_600 * SECOND_NS;

/// Requests that ended longer ago are out of date, ns.
const STALE_NS: u64 = 10 * SECOND_NS;

/// The assumed cost of a per cent of the share, as a share of the requests' target.
const COST_UNKNOWN: f64 = 0.01;

/// Below this level nothing wide goes beside requests.
const NARROW: f64 = -1.0;

/// How well the target of high-priority requests is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The least level of the jobs.
    pub level: f64,
    /// Its requests' latency over their target: 1 is the target.
    pub measured: f64,
    /// The level is at its top.
    pub is_top: bool,
    /// The level is at its floor.
    pub is_floor: bool,
    /// Judged requests so far, of all jobs.
    pub requests: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Outer {
    percent: f64,
    /// The direction in which it is to go, and since when.
    wants: Option<(bool, u64)>,
    /// Share and measure before the last change.
    before: Option<(f64, f64)>,
    fell_ns: Option<u64>,
    /// Judged requests, and when there was a new one.
    judged: (u64, u64),
}

impl Default for Outer {
    fn default() -> Self {
        Self {
            percent: 100.0,
            wants: None,
            before: None,
            fell_ns: None,
            judged: (0, 0),
        }
    }
}

impl Outer {
    pub(super) fn percent(&self) -> f64 {
        self.percent
    }

    pub(super) fn handle_held(&mut self, now_ns: u64, held: Option<Held>) {
        let requests = held.map_or(self.judged.0, |held| held.requests);
        if requests != self.judged.0 {
            self.judged = (requests, now_ns);
        }
        let is_stale = now_ns.saturating_sub(self.judged.1) > STALE_NS;
        let Some(held) = held.filter(|_| !is_stale) else {
            // One poll without an observation is no reason to restart the period.
            self.wants = self.wants.filter(|_| !is_stale);
            return;
        };
        let is_more = held.is_top && held.measured < 1.0 - SPARE;
        let is_less = held.level < NARROW && !held.is_floor;
        let wants_more = (is_more != is_less).then_some(is_more);
        let since_ns = match (wants_more, self.wants) {
            (None, _) => return self.wants = None,
            (Some(more), Some((before, since_ns))) if more == before => since_ns,
            (Some(more), _) => return self.wants = Some((more, now_ns)),
        };
        if now_ns.saturating_sub(since_ns) < PERIOD_NS {
            return;
        }
        let next = match wants_more == Some(true) {
            true => self.more(now_ns, held.measured),
            false => {
                self.fell_ns = Some(now_ns);
                self.percent - STEP_DOWN
            }
        };
        let next = next.clamp(f64::from(PERCENT_MIN), 100.0);
        if next != self.percent {
            self.before = Some((self.percent, held.measured));
            self.percent = next;
        }
        self.wants = None;
    }

    fn more(&mut self, now_ns: u64, measured: f64) -> f64 {
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < TOO_LARGE_NS;
        if self.fell_ns.is_some_and(is_recent) {
            return self.percent;
        }
        let seen = self.before.map(|(percent, before)| {
            let cost = (measured - before) / (self.percent - percent);
            if cost.is_finite() { cost } else { 0.0 }
        });
        let cost = seen
            .filter(|cost| *cost > COST_UNKNOWN / 10.0)
            .unwrap_or(COST_UNKNOWN);
        self.percent + ((1.0 - measured) / cost).clamp(STEP_UP.0, STEP_UP.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outer: &mut Outer, from_s: u64, seconds: u64, held: impl Fn(f64) -> Held) -> u32 {
        let mut changes = 0;
        for second in from_s..from_s + seconds {
            let before = outer.percent();
            let held = Held {
                requests: second + 1,
                ..held(before)
            };
            outer.handle_held(second * SECOND_NS, Some(held));
            changes += u32::from(outer.percent() != before);
        }
        changes
    }

    /// Requests take `cost` of their target per cent; the level handles shares from half of it on.
    fn plant(cost: f64) -> impl Fn(f64) -> Held {
        move |percent| {
            let open = 0.6 + cost * percent;
            Held {
                level: if open > 1.3 { -3.0 } else { 0.95 },
                measured: open.min(1.0),
                is_top: open < 1.0,
                is_floor: false,
                requests: 0,
            }
        }
    }

    #[test]
    fn it_falls_to_what_the_level_can_do_and_grows_to_what_is_left() {
        let mut outer = Outer::default();
        run(&mut outer, 0, 3_000, plant(0.01));
        // From 70 % on something wide goes beside.
        assert_eq!(outer.percent(), 70.0);
        // Less disturbance, perhaps from another batch. It does not grow for an hour.
        run(&mut outer, 3_000, 600, plant(0.003));
        assert_eq!(outer.percent(), 70.0);
        run(&mut outer, 3_600, 3_600, plant(0.003));
        assert_eq!(outer.percent(), 100.0);
    }

    #[test]
    fn it_changes_no_faster_than_each_hundred_seconds_and_stands_still_where_nothing_is_left() {
        let mut outer = Outer::default();
        assert_eq!(run(&mut outer, 0, 100, plant(0.02)), 0);
        assert_eq!(run(&mut outer, 100, 202, plant(0.02)), 2);
        assert_eq!(outer.percent(), 80.0);
        run(&mut outer, 302, 3_000, plant(0.02));
        // At 35 % the level can do the rest; the share goes there by tens, and stays.
        assert_eq!(outer.percent(), 30.0);
        assert_eq!(run(&mut outer, 4_000, 20_000, plant(0.02)), 0);
    }

    #[test]
    fn at_the_floor_and_without_news_nothing_changes() {
        let floor = |_| Held {
            level: -6.0,
            measured: 1.5,
            is_top: false,
            is_floor: true,
            requests: 0,
        };
        let mut outer = Outer::default();
        assert_eq!(run(&mut outer, 0, 5_000, floor), 0);
        // The period restarts after more than ten seconds of polls without an observation.
        for second in 5_000..6_000 {
            let held = Held {
                requests: second,
                ..plant(0.02)(100.0)
            };
            outer.handle_held(second * SECOND_NS, (second % 90 < 75).then_some(held));
        }
        for second in 6_000..7_000 {
            outer.handle_held(second * SECOND_NS, Some(plant(0.02)(100.0)));
        }
        assert_eq!(outer.percent(), 100.0);
    }
}
