//! The outer loop: the share of best-effort work follows from how the target of high-priority
//! requests is held.
//!
//! The level ([`crate::slo`]) is the inner loop, and faster. What it cannot do is to give
//! best-effort jobs more SMs than they were started with, or to make those that run beside a request
//! take less of it. So where it stands at its end for [`PERIOD_NS`] the share changes:
//!
//! | the level | the share |
//! |---|---|
//! | at its top, and requests are within their target by more than [`SPARE`] | grows by what is left, over what a per cent was seen to cost |
//! | below −1, where nothing wide goes beside requests, and best-effort work is not paused | falls by [`STEP_DOWN`] |
//! | at its floor | stays: best-effort work is paused, and what is missed is not its doing |
//! | between | stays |
//!
//! A share that was too large is not come to again for [`TOO_LARGE_NS`], or two shares would be
//! taken in turn, and jobs be started anew each time.
//!
//! Source: GPUColo (2024) §V moves the shares of both jobs in an outer loop, and gives no law. Here
//! high-priority jobs keep all SMs.

use super::{PERCENT_MIN, SECOND_NS};

/// Between two changes: 25 periods of the level at least, and a start of a job is seconds.
pub const PERIOD_NS: u64 = 100 * SECOND_NS;

/// Of their target so much must be left for more.
pub const SPARE: f64 = 0.02;

/// What the share falls by, per cent: less starts no job anew ([`super::HYSTERESIS`]).
pub const STEP_DOWN: f64 = 10.0;

/// What it grows by at least and at most, per cent.
const STEP_UP: (f64, f64) = (10.0, 30.0);

/// So long a share that was too large is not come to again, ns.
pub const TOO_LARGE_NS: u64 = 3_600 * SECOND_NS;

/// What a per cent of the share costs requests where nothing was seen, as a share of their target.
const COST_UNKNOWN: f64 = 0.01;

/// Below this level nothing wide goes beside requests.
const NARROW: f64 = -1.0;

/// How the target of high-priority requests is held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The level, of the job that has the least.
    pub level: f64,
    /// What its requests take, over their target: 1 is the target.
    pub measured: f64,
    /// It is at its top.
    pub is_top: bool,
    /// It is at its floor.
    pub is_floor: bool,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Outer {
    percent: f64,
    /// The direction in which it is to go, and since when.
    wants: Option<(bool, u64)>,
    /// Share and measure before the last change.
    before: Option<(f64, f64)>,
    /// The least share that was too large, and when it was.
    too_large: Option<(f64, u64)>,
}

impl Default for Outer {
    fn default() -> Self {
        Self {
            percent: 100.0,
            wants: None,
            before: None,
            too_large: None,
        }
    }
}

impl Outer {
    pub(super) fn percent(&self) -> f64 {
        self.percent
    }

    /// This is how the target is held now; `None` where nobody knows.
    pub(super) fn handle_held(&mut self, now_ns: u64, held: Option<Held>) {
        let wants_more = held.and_then(|held| {
            let is_more = held.is_top && held.measured < 1.0 - SPARE;
            let is_less = held.level < NARROW && !held.is_floor;
            (is_more != is_less).then_some(is_more)
        });
        let since_ns = match (wants_more, self.wants) {
            (None, _) => return self.wants = None,
            (Some(more), Some((before, since_ns))) if more == before => since_ns,
            (Some(more), _) => return self.wants = Some((more, now_ns)),
        };
        let Some(held) = held.filter(|_| now_ns.saturating_sub(since_ns) >= PERIOD_NS) else {
            return;
        };
        let next = match wants_more == Some(true) {
            true => self.more(now_ns, held.measured),
            false => {
                self.too_large = Some((self.percent, now_ns));
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
        self.too_large = self.too_large.filter(|(_, at_ns)| is_recent(*at_ns));
        let seen = self.before.map(|(percent, before)| {
            let cost = (measured - before) / (self.percent - percent);
            if cost.is_finite() { cost } else { 0.0 }
        });
        let cost = seen
            .filter(|cost| *cost > COST_UNKNOWN / 10.0)
            .unwrap_or(COST_UNKNOWN);
        let step = ((1.0 - measured) / cost).clamp(STEP_UP.0, STEP_UP.1);
        let most = self.too_large.map_or(100.0, |(percent, _)| percent - 1.0);
        match self.percent + step <= most {
            true => self.percent + step,
            // No half step: jobs would be started anew for little.
            false if most - self.percent >= STEP_UP.0 => self.percent + STEP_UP.0,
            false => self.percent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at it each second for so long; what requests take is a function of the share.
    fn run(outer: &mut Outer, from_s: u64, seconds: u64, held: impl Fn(f64) -> Held) -> u32 {
        let mut changes = 0;
        for second in from_s..from_s + seconds {
            let before = outer.percent();
            outer.handle_held(second * SECOND_NS, Some(held(before)));
            changes += u32::from(outer.percent() != before);
        }
        changes
    }

    /// Requests that take so much of their target for each per cent, where the level can do what it can between half of it
    /// and all.
    fn plant(cost: f64) -> impl Fn(f64) -> Held {
        move |percent| {
            let open = 0.6 + cost * percent;
            Held {
                level: if open > 1.3 { -3.0 } else { 0.95 },
                measured: open.min(1.0),
                is_top: open < 1.0,
                is_floor: false,
            }
        }
    }

    #[test]
    fn it_falls_to_what_the_level_can_do_and_grows_to_what_is_left() {
        let mut outer = Outer::default();
        run(&mut outer, 0, 3_000, plant(0.01));
        // From 70 % on something wide goes beside.
        assert_eq!(outer.percent(), 70.0);
        // Less disturbs: another batch, it may be. What was too large is so for an hour.
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
        // At 35 % the level can do the rest; it comes there in steps of ten, and stays for good.
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
        };
        let mut outer = Outer::default();
        assert_eq!(run(&mut outer, 0, 5_000, floor), 0);
        // A look that finds nothing begins the period anew.
        for second in 0..1_000 {
            let held = (second % 90 != 0).then(|| plant(0.02)(100.0));
            outer.handle_held(second * SECOND_NS, held);
        }
        assert_eq!(outer.percent(), 100.0);
    }
}
