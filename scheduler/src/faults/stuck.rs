//! A GPU that is busy and gets nothing done.

use crate::state::Progress;

/// A device that is busy for that much of the time is busy, percent: samples are rounded.
const BUSY_PCT: u32 = 99;

/// Looks for it, once for each look at the device.
#[derive(Debug, Default)]
pub(crate) struct Stuck {
    last: Progress,
    /// Since when nothing has moved although the device is busy and somebody waits for it.
    since_ns: Option<u64>,
    is_said: bool,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing has moved for so long, ns.
    Stuck(u64),
    /// It moves again.
    Moves,
}

impl Stuck {
    /// At `now_ns` the device was busy so much of the time, percent, and the clients stood so.
    pub(crate) fn handle_look(
        &mut self,
        now_ns: u64,
        busy_pct: u32,
        progress: Progress,
        limit_ns: u64,
    ) -> Option<News> {
        let is_still = busy_pct >= BUSY_PCT && progress.is_waiting && progress == self.last;
        self.last = progress;
        if !is_still {
            self.since_ns = None;
            return std::mem::take(&mut self.is_said).then_some(News::Moves);
        }
        let still_ns = now_ns.saturating_sub(*self.since_ns.get_or_insert(now_ns));
        if still_ns < limit_ns || self.is_said {
            return None;
        }
        self.is_said = true;
        Some(News::Stuck(still_ns))
    }

    /// Nobody is there to look at.
    pub(crate) fn forget(&mut self) {
        self.since_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn at(completed_ns: u64, is_waiting: bool) -> Progress {
        Progress::for_test(completed_ns, is_waiting)
    }

    #[test]
    fn it_is_said_once_that_nothing_moves_and_once_that_it_does_again() {
        let mut stuck = Stuck::default();
        let mut news = Vec::new();
        for second in 0..20 {
            let progress = at(if second < 15 { 7 } else { second }, true);
            let found = stuck.handle_look(second * SECOND_NS, 100, progress, 5 * SECOND_NS);
            news.extend(found.map(|found| (second, found)));
        }
        // The first look only says where things stand.
        assert_eq!(news, [(6, News::Stuck(5 * SECOND_NS)), (15, News::Moves)]);
    }

    #[test]
    fn a_device_that_idles_and_one_that_nobody_waits_for_are_not_stuck() {
        for (busy_pct, is_waiting) in [(98, true), (100, false)] {
            let mut stuck = Stuck::default();
            for second in 0..20 {
                let progress = at(7, is_waiting);
                let found = stuck.handle_look(second * SECOND_NS, busy_pct, progress, SECOND_NS);
                assert_eq!(found, None, "{busy_pct} {is_waiting} {second}");
            }
        }
    }
}
