//! Stream priorities: what the application asks for, and what it gets.
//!
//! The device has a range of priorities, of which the greater is the lower number (0 to -5 on most).
//! Between jobs high-priority must win whatever the applications ask for; inside a job the order
//! that the application asked for must stay. So the range is cut in two: high-priority jobs get the
//! greater half, best-effort jobs the lesser, and what was asked for is scaled into the half. A
//! range of one has no room, and everybody gets it; in a range of two each side has one.
//!
//! Default streams cannot be created with a priority. Launches of high-priority jobs on them carry
//! it as a launch attribute, the one that a stream with the default priority (0) would get.

use core::sync::atomic::{AtomicBool, Ordering};

use abi::types::CUresult;

/// Set once a driver refused a launch only because of the priority that we added.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether launches may carry a priority of ours, as far as the driver has said.
#[inline]
pub(crate) fn may_be_added() -> bool {
    !IS_REFUSED.load(Ordering::Relaxed)
}

/// Whether a refused launch is worth another call without our attribute: a driver that does not
/// take the attribute answers so. The application's own mistakes get the same answer twice.
pub(crate) fn may_be_why(result: CUresult) -> bool {
    matches!(result, CUresult::INVALID_VALUE | CUresult::NOT_SUPPORTED)
}

/// The launch went without the priority: no launch carries one any more.
pub(crate) fn give_up() {
    IS_REFUSED.store(true, Ordering::Relaxed);
}

/// A device's range, with the mapping of either class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Priorities {
    least: i32,
    greatest: i32,
}

/// What a stream has that nobody asked a priority for (CUDA driver API, `cuStreamCreate`).
pub(crate) const DEFAULT: i32 = 0;

/// Widest range that is believed; arithmetic below stays far from overflow. Devices have 2 to 6.
const LEVELS_MAX: i32 = 1 << 16;

impl Priorities {
    /// The range as the driver tells it, or `None` if it has no room for two classes, or no sense.
    pub(crate) fn new(least: i32, greatest: i32) -> Option<Self> {
        let levels = i64::from(least) - i64::from(greatest) + 1;
        (2..=i64::from(LEVELS_MAX))
            .contains(&levels)
            .then_some(Self { least, greatest })
    }

    /// What the driver itself makes of a number outside the range.
    pub(crate) fn clamp(&self, asked: i32) -> i32 {
        asked.clamp(self.greatest, self.least)
    }

    /// What a high-priority job gets.
    pub(crate) fn for_high_priority(&self, asked: i32) -> i32 {
        self.greatest + (self.clamp(asked) - self.greatest) * self.half() / self.levels()
    }

    /// What a best-effort job gets.
    pub(crate) fn for_best_effort(&self, asked: i32) -> i32 {
        self.least - (self.least - self.clamp(asked)) * self.half() / self.levels()
    }

    /// What a job of that class gets.
    pub(crate) fn of(&self, is_high_priority: bool, asked: i32) -> i32 {
        if is_high_priority {
            self.for_high_priority(asked)
        } else {
            self.for_best_effort(asked)
        }
    }

    fn levels(&self) -> i32 {
        self.least - self.greatest + 1
    }

    fn half(&self) -> i32 {
        self.levels() / 2
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
            [-5, -5, -4, -4, -3, -3]
        );
        assert_eq!(
            map(&|asked| priorities.for_best_effort(asked)),
            [-2, -2, -1, -1, 0, 0]
        );
    }

    #[test]
    fn one_level_has_no_room_and_nonsense_has_none() {
        assert_eq!(Priorities::new(0, 0), None);
        assert_eq!(Priorities::new(-5, 0), None);
        assert_eq!(Priorities::new(i32::MAX, i32::MIN), None);
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
    }
}
