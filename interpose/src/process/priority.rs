//! Stream priorities: those that the application asks for, and those that it gets. The device has a
//! range of priorities, where the greater priority is the lower number (0 to -5 on most). Between
//! jobs high-priority must win whatever the applications ask for; inside a job the order that the
//! application asked for must stay. So the range is cut in two: high-priority jobs get the greater
//! half (and the middle, where there is one), best-effort jobs the lesser. In each half the default
//! is the least, the level above it the next, and so on: PyTorch asks for 0 and -1 and gets two
//! levels. Levels beyond the half get its greatest; streams of different levels that now share one
//! are counted (`priorities_shared`). A range of one level is given to all; in a range of two each
//! class has one. Default streams cannot be created with a priority. Launches of high-priority jobs
//! on them carry it as a launch attribute: the one that a stream with the default priority (0)
//! would get.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::types::CUresult;

#[derive(Default)]
pub(crate) struct PriorityUse {
    /// Set once the driver refused a launch only because of the priority that we added.
    is_refused: AtomicBool,
    /// Levels that the application asked for; bit 0 is the device's least.
    asked: AtomicU64,
}

impl PriorityUse {
    /// Whether launches may carry our priority: the driver has not refused it.
    #[inline]
    pub(crate) fn may_be_added(&self) -> bool {
        !self.is_refused.load(Ordering::Relaxed)
    }

    /// A launch went only without the priority: the client's launches carry none from now on.
    pub(crate) fn give_up(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}

/// Whether to repeat a refused launch without our attribute: the answer of a driver that does not
/// support it. The application's own mistakes get the same answer twice.
pub(crate) fn may_be_why(result: CUresult) -> bool {
    matches!(result, CUresult::INVALID_VALUE | CUresult::NOT_SUPPORTED)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priorities {
    least: i32,
    greatest: i32,
}

/// The priority of a stream created without one (CUDA driver API, `cuStreamCreate`).
pub(crate) const DEFAULT: i32 = 0;

/// Widest range believed, so that the arithmetic below cannot overflow. Devices have 2 to 6.
const LEVELS_MAX: i32 = 1 << 16;

impl Priorities {
    /// The range reported by the driver; `None` if it has no room for two classes, or is invalid.
    pub(crate) fn new(least: i32, greatest: i32) -> Option<Self> {
        let levels = i64::from(least) - i64::from(greatest) + 1;
        (2..=i64::from(LEVELS_MAX))
            .contains(&levels)
            .then_some(Self { least, greatest })
    }

    /// As the driver itself treats a number outside the range.
    pub(crate) fn clamp(&self, asked: i32) -> i32 {
        asked.clamp(self.greatest, self.least)
    }

    pub(crate) fn for_high_priority(&self, asked: i32) -> i32 {
        (self.least - self.best_effort_levels() - self.level(asked)).max(self.greatest)
    }

    pub(crate) fn for_best_effort(&self, asked: i32) -> i32 {
        self.least - self.level(asked).min(self.best_effort_levels() - 1)
    }

    pub(crate) fn of(&self, is_high_priority: bool, asked: i32) -> i32 {
        if is_high_priority {
            self.for_high_priority(asked)
        } else {
            self.for_best_effort(asked)
        }
    }

    /// Notes the level a stream asked for; whether an earlier one of the client maps to the same.
    pub(crate) fn handle_asked(
        &self,
        used: &PriorityUse,
        is_high_priority: bool,
        asked: i32,
    ) -> bool {
        let before = used.asked.fetch_or(self.bit(asked), Ordering::Relaxed);
        self.is_shared(is_high_priority, asked, before)
    }

    fn is_shared(&self, is_high_priority: bool, asked: i32, others: u64) -> bool {
        let own = self.of(is_high_priority, asked);
        let levels = (self.greatest..=self.least).rev().take(u64::BITS as usize);
        levels
            .filter(|&other| others & self.bit(other) & !self.bit(asked) != 0)
            .any(|other| self.of(is_high_priority, other) == own)
    }

    /// The level's bit in `asked`; the last bit stands for all beyond.
    fn bit(&self, asked: i32) -> u64 {
        let last = u64::BITS as i32 - 1;
        1 << self.level(asked).min(last)
    }

    fn level(&self, asked: i32) -> i32 {
        self.least - self.clamp(asked)
    }

    fn best_effort_levels(&self) -> i32 {
        (self.least - self.greatest + 1) / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_levels_are_one_for_each_class() {
        let priorities = Priorities::new(0, -1).unwrap();
        for asked in [-1, 0] {
            assert_eq!(priorities.for_high_priority(asked), -1);
            assert_eq!(priorities.for_best_effort(asked), 0);
        }
    }

    #[test]
    fn six_levels_keep_three_for_each_class() {
        let priorities = Priorities::new(0, -5).unwrap();
        let map = |f: &dyn Fn(i32) -> i32| [-5, -4, -3, -2, -1, 0].map(f);
        assert_eq!(
            map(&|asked| priorities.for_high_priority(asked)),
            [-5, -5, -5, -5, -4, -3]
        );
        assert_eq!(
            map(&|asked| priorities.for_best_effort(asked)),
            [-2, -2, -2, -2, -1, 0]
        );
    }

    #[test]
    fn of_three_levels_a_high_priority_job_has_two() {
        let priorities = Priorities::new(0, -2).unwrap();
        let map = |f: &dyn Fn(i32) -> i32| [-2, -1, 0].map(f);
        assert_eq!(
            map(&|asked| priorities.for_high_priority(asked)),
            [-2, -2, -1]
        );
        assert_eq!(map(&|asked| priorities.for_best_effort(asked)), [0, 0, 0]);
    }

    #[test]
    fn one_level_has_no_room_and_nonsense_has_none() {
        assert_eq!(Priorities::new(0, 0), None);
        assert_eq!(Priorities::new(-5, 0), None);
        assert_eq!(Priorities::new(i32::MAX, i32::MIN), None);
    }

    #[test]
    fn what_a_client_asked_for_before_counts_and_what_another_did_does_not() {
        let priorities = Priorities::new(0, -5).unwrap();
        let (one, other) = (PriorityUse::default(), PriorityUse::default());
        let is_shared = |client: &PriorityUse, asked| priorities.handle_asked(client, true, asked);
        assert!(!is_shared(&one, -2) && !is_shared(&one, -2));
        assert!(!is_shared(&other, -3));
        assert!(is_shared(&one, -3));
    }

    proptest! {
        #[test]
        fn high_priority_wins_and_the_asked_order_stays(
            least in -100i32..100, levels in 2i32..20, a: i32, b: i32,
        ) {
            let greatest = least - levels + 1;
            let priorities = Priorities::new(least, greatest).unwrap();
            let (a, b) = (a.min(b), a.max(b));
            for is_high_priority in [true, false] {
                let (x, y) = (
                    priorities.of(is_high_priority, a),
                    priorities.of(is_high_priority, b),
                );
                prop_assert!(x <= y);
                prop_assert!((greatest..=least).contains(&x) && (greatest..=least).contains(&y));
            }
            prop_assert!(priorities.for_high_priority(b) < priorities.for_best_effort(a));
        }

        #[test]
        fn levels_stay_apart_as_far_as_a_class_has_levels_and_else_it_is_said(
            least in -100i32..100, levels in prop::sample::select(vec![2, 3, 6]),
        ) {
            let priorities = Priorities::new(least, least - levels + 1).unwrap();
            for (is_high_priority, own_levels) in [(true, (levels + 1) / 2), (false, levels / 2)] {
                let of = |level: i32| priorities.of(is_high_priority, least - level);
                for (a, b) in (0..levels).flat_map(|a| (0..levels).map(move |b| (a, b))) {
                    let is_apart = of(a) != of(b);
                    prop_assert_eq!(is_apart, a != b && a.min(b) < own_levels - 1);
                    let is_said = priorities.is_shared(is_high_priority, least - a, 1 << b);
                    prop_assert_eq!(is_said, a != b && !is_apart);
                }
            }
        }
    }
}
