//! When to poll an event. Most polls of a device are in vain: each answer costs a wake-up, and a
//! late answer keeps best-effort work waiting. The first poll of an event therefore comes after a
//! *part* of the expected duration of the work before it. The part, 1 at most, follows from the
//! polls' results: three of ten first polls are to find the event reached. Further polls come every
//! pause, and for work of many pauses after a 64th of its time so far. Work that takes longer than
//! expected is polled from its expected end on. Learnt durations ([`crate::durations`]) correct
//! that end, and they learn from early polls.

/// Successful first polls of ten. With five, two jobs that take turns both lost a tenth of their
/// rate in the simulator: the other's work delays the events of each.
const REACHED_OF_TEN: f64 = 3.0;

/// The part grows by three tenths of this after a vain first poll, and shrinks by seven tenths
/// after a successful one: both balance at three of ten.
const STEP: f64 = 0.04;

/// The least part. Expectations that are further off cost polls, as many as without a part.
const PART_MIN: f64 = 1.0 / 64.0;

const PART: f64 = 0.5;

/// Work that has taken this many pauses is polled less often.
const PAUSES: u64 = 64;

/// Likewise for unfollowed work of unknown length: a millisecond's precision suffices for its end.
const PAUSES_UNKNOWN: u64 = 16;

const PAUSE_NS_MAX: u64 = 1_000_000;

/// The latest first poll after recording the event, ns: expectations may be wrong by far.
const FIRST_NS_MAX: u64 = 10_000_000;

/// A first poll counts as finding the event reached only if it was at most this many pauses late.
const LATE_PAUSES: u64 = 10;

/// A recorded event, and since when the work before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// When to poll, ns.
    pub at_ns: u64,
    /// Since when the work runs, as far as is known, ns.
    since_ns: u64,
    /// The next poll is later by the work's time so far divided by this.
    pauses: u64,
    /// The part determined the time, and no poll has happened yet.
    is_first: bool,
}

/// How early one client's helper polls.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    part: f64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { part: PART }
    }
}

impl Looks {
    /// The first poll of an event recorded at `now_ns` behind work that runs since `since_ns` (0:
    /// since now) and should take `expected_ns`: after `pause_ns` at the earliest.
    #[must_use]
    pub fn first(&self, now_ns: u64, since_ns: u64, expected_ns: u64, pause_ns: u64) -> Look {
        let since_ns = if since_ns == 0 { now_ns } else { since_ns };
        let part_ns = (expected_ns as f64 * self.part) as u64;
        let due_ns = since_ns.saturating_add(part_ns);
        let soon_ns = now_ns.saturating_add(pause_ns);
        let late_ns = now_ns.saturating_add(FIRST_NS_MAX).max(soon_ns);
        Look {
            at_ns: due_ns.clamp(soon_ns, late_ns),
            since_ns,
            pauses: PAUSES,
            is_first: (soon_ns + 1..=late_ns).contains(&due_ns),
        }
    }

    /// The first poll of an event behind an unknown amount of work.
    #[must_use]
    pub fn first_unknown(now_ns: u64, pause_ns: u64) -> Look {
        Look {
            at_ns: now_ns.saturating_add(pause_ns),
            since_ns: now_ns,
            pauses: PAUSES_UNKNOWN,
            is_first: false,
        }
    }

    /// A poll at `now_ns` found the event reached, or not; returns the next poll, where it was not.
    pub fn handle_look(
        &mut self,
        look: &Look,
        now_ns: u64,
        is_reached: bool,
        pause_ns: u64,
    ) -> Look {
        // A punctual poll might have found the event not reached.
        let late_ns = now_ns.saturating_sub(look.at_ns);
        let counts = !is_reached || late_ns <= pause_ns.saturating_mul(LATE_PAUSES);
        if look.is_first && counts {
            let tenths = match is_reached {
                true => REACHED_OF_TEN - 10.0,
                false => REACHED_OF_TEN,
            };
            self.part = (self.part * (1.0 + STEP * tenths / 10.0)).clamp(PART_MIN, 1.0);
        }
        look.next(now_ns, pause_ns)
    }
}

impl Look {
    fn next(&self, now_ns: u64, pause_ns: u64) -> Self {
        let taken_ns = now_ns.saturating_sub(self.since_ns);
        let by_taken_ns = (taken_ns / self.pauses.max(1)).min(PAUSE_NS_MAX);
        Self {
            at_ns: now_ns.saturating_add(pause_ns.max(by_taken_ns)),
            is_first: false,
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const PAUSE_NS: u64 = 20 * US;

    /// Polls until work of `takes_ns` is seen complete: how many, and how late the last was.
    fn follow(looks: &mut Looks, expected_ns: u64, takes_ns: u64) -> (u32, u64) {
        let mut look = looks.first(0, 0, expected_ns, PAUSE_NS);
        for count in 1.. {
            let now_ns = look.at_ns;
            let is_reached = now_ns >= takes_ns;
            look = looks.handle_look(&look, now_ns, is_reached, PAUSE_NS);
            if is_reached {
                return (count, now_ns - takes_ns);
            }
        }
        unreachable!()
    }

    /// Of the last thousand of 2000 events: mean polls, the last poll's mean delay in us, and
    /// successful first polls.
    fn means(expected_us: u64, takes_us: impl Fn(u64) -> u64) -> (f64, f64, f64) {
        let mut looks = Looks::default();
        let followed = (0..2_000).map(|n| follow(&mut looks, expected_us * US, takes_us(n) * US));
        let last: Vec<_> = followed.skip(1_000).collect();
        let mean = |sum: f64| sum / last.len() as f64;
        (
            mean(last.iter().map(|(count, _)| f64::from(*count)).sum()),
            mean(last.iter().map(|(_, late_ns)| *late_ns as f64 / 1e3).sum()),
            mean(last.iter().filter(|(count, _)| *count == 1).count() as f64),
        )
    }

    #[test]
    fn work_that_takes_what_is_expected_needs_two_looks() {
        // Of 285 to 305 us: between the first poll and the end are two pauses at most.
        let (count, late_us, reached) = means(300, |n| 285 + n * 7 % 20);
        assert!(count < 2.5 && late_us < 15.0, "{count} {late_us}");
        assert!((0.25..=0.35).contains(&reached), "{reached}");
    }

    #[test]
    fn expectations_that_are_too_long_are_corrected() {
        let (count, late_us, reached) = means(3_000, |n| 285 + n * 7 % 20);
        assert!(count < 2.5 && late_us < 20.0, "{count} {late_us}");
        assert!((0.25..=0.35).contains(&reached), "{reached}");
    }

    #[test]
    fn work_that_takes_longer_than_expected_is_seen_a_sixtyfourth_late_at_most() {
        for takes_us in [300, 5_000, 100_000] {
            let mut looks = Looks::default();
            let (count, late_ns) = follow(&mut looks, 100 * US, takes_us * US);
            let late_max_ns = PAUSE_NS.max(takes_us * US / PAUSES);
            assert!(
                late_ns <= late_max_ns && count < 400,
                "{takes_us}: {count} {late_ns}"
            );
        }
    }

    #[test]
    fn an_event_behind_work_that_should_be_over_is_looked_at_after_a_pause() {
        let mut looks = Looks::default();
        let look = looks.first(1_000 * US, 500 * US, 100 * US, PAUSE_NS);
        assert_eq!(look.at_ns, 1_020 * US);
        let before = looks.part;
        _ = looks.handle_look(&look, look.at_ns, true, PAUSE_NS);
        assert!(looks.part.to_bits() == before.to_bits());
    }

    #[test]
    fn a_look_that_came_late_says_nothing_of_the_part() {
        let mut looks = Looks::default();
        let look = looks.first(0, 0, 1_000 * US, PAUSE_NS);
        assert_eq!(look.at_ns, 500 * US);
        let before = looks.part;
        _ = looks.handle_look(&look, 2_000 * US, true, PAUSE_NS);
        assert!(looks.part.to_bits() == before.to_bits());
        _ = looks.handle_look(&look, 2_000 * US, false, PAUSE_NS);
        assert!(looks.part > before);
    }

    #[test]
    fn no_look_is_far_off_whatever_is_expected_and_since_when() {
        let now_ns = 1_000_000_000_000_000;
        let mut looks = Looks::default();
        for since_ns in [0, 1, now_ns] {
            let look = looks.first(now_ns, since_ns, u64::MAX, PAUSE_NS);
            assert_eq!(look.at_ns, now_ns + FIRST_NS_MAX);
            let next = looks.handle_look(&look, look.at_ns, false, PAUSE_NS);
            assert!(next.at_ns <= look.at_ns + PAUSE_NS_MAX);
        }
        assert!(looks.part.to_bits() == PART.to_bits());
    }

    #[test]
    fn what_was_not_followed_is_found_complete_within_a_millisecond_by_few_looks() {
        for takes_us in [0, 10, 2_000, 9_000, 500_000] {
            let mut look = Looks::first_unknown(0, PAUSE_NS);
            let mut count = 1;
            while look.at_ns < takes_us * US {
                look = look.next(look.at_ns, PAUSE_NS);
                count += 1;
            }
            assert!(look.at_ns - takes_us * US <= PAUSE_NS_MAX);
            assert!(count <= 75 || takes_us > 10_000, "{takes_us}: {count}");
        }
    }
}
