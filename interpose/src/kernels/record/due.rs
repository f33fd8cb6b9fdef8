//! When the next launch of a kernel, or of a graph, is timed. After the first ones about one in
//! [`EVERY`], at random distances: in a program that launches a kernel in turn with different
//! durations, a fixed distance would always time the same turn. The same bias arises where pairs of
//! events are scarce: the launches that find one are those after a wait of the program. So a launch
//! that finds none also picks the next attempt at random.

use core::sync::atomic::{AtomicU32, Ordering};

/// In the long run one in so many launches is timed, on average.
const EVERY: u32 = 32;
/// While there are too few durations, one in so many.
const EVERY_AT_FIRST: u32 = 4;
/// Most launches tried at these rates, with or without result: on an idle stream a kernel that
/// takes less than its own launch never yields a duration.
const TRIED_MAX: u32 = 256;

/// The schedule (see the module's head). Launches are counted modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Due {
    seen: AtomicU32,
    /// The next launch that is due.
    from: AtomicU32,
    tried: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// No duration: each launch is due.
    Nothing,
    Little,
    Enough,
}

impl Due {
    pub(crate) fn see(&self) -> bool {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        seen.wrapping_sub(self.from.load(Ordering::Relaxed)) < 1 << 31
    }

    pub(crate) fn tried(&self) -> u32 {
        self.tried.load(Ordering::Relaxed)
    }

    pub(crate) fn handle_tried(&self, known: Known, random: u64) {
        let tried = self.tried().saturating_add(1);
        self.tried.store(tried, Ordering::Relaxed);
        self.put_off(known, random);
    }

    /// Picks the next due launch, after this one was timed or found no pair of events.
    pub(crate) fn put_off(&self, known: Known, random: u64) {
        let every = match known {
            _ if self.tried() >= TRIED_MAX => EVERY,
            Known::Nothing => 1,
            Known::Little => EVERY_AT_FIRST,
            Known::Enough => EVERY,
        };
        // Uniform from the next one to the one at twice the distance.
        let further = (random % u64::from(2 * every - 1)) as u32;
        let seen = self.seen.load(Ordering::Relaxed);
        self.from
            .store(seen.wrapping_add(further), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// Which of `launches` are timed, if each due one can be.
    fn timed(launches: u32, known: Known) -> Vec<u32> {
        let (due, mut state) = (Due::default(), 7);
        let is_timed = |_: &u32| {
            let is_due = due.see();
            if is_due {
                due.handle_tried(known, random(&mut state));
            }
            is_due
        };
        (0..launches).filter(is_timed).collect()
    }

    #[test]
    fn one_in_so_many_is_timed_and_each_turn_of_a_program_as_often() {
        const LAUNCHES: u32 = 1 << 20;
        let timed = timed(LAUNCHES, Known::Enough);
        let expected = (LAUNCHES / EVERY) as usize;
        assert!(timed.len().abs_diff(expected) < expected / 50);
        for turns in [2_u32, 8, 32, 64] {
            let mut counts = vec![0_u32; turns as usize];
            timed
                .iter()
                .for_each(|number| counts[(number % turns) as usize] += 1);
            let even = timed.len() as u32 / turns;
            assert!(
                counts.iter().all(|count| count.abs_diff(even) < even / 5),
                "{turns}: {counts:?}"
            );
        }
    }

    #[test]
    fn where_pairs_are_free_at_the_beginning_of_each_round_alone_other_turns_are_timed_too() {
        const TURNS: u32 = 32;
        let (due, mut state) = (Due::default(), 7);
        let mut counts = [0_u32; TURNS as usize];
        for _round in 0..20_000 {
            let mut free = 4;
            for count in &mut counts {
                if !due.see() {
                    continue;
                }
                if free > 0 {
                    free -= 1;
                    *count += 1;
                    due.handle_tried(Known::Enough, random(&mut state));
                } else {
                    due.put_off(Known::Enough, random(&mut state));
                }
            }
        }
        let even = counts.iter().sum::<u32>() / TURNS;
        assert!(
            counts.iter().all(|count| count.abs_diff(even) < even / 4),
            "{counts:?}"
        );
    }

    #[test]
    fn tries_that_tell_nothing_are_bounded() {
        let timed = timed(100_000, Known::Nothing);
        let few = (TRIED_MAX + 100_000 / EVERY) as usize;
        assert!(timed.len() < few + few / 10, "{}", timed.len());
        let are_first = timed.iter().zip(0..TRIED_MAX).all(|(timed, n)| *timed == n);
        assert!(are_first, "the first are all tried");
    }

    #[test]
    fn a_launch_that_is_due_and_is_neither_timed_nor_put_off_leaves_the_next_one_due() {
        let due = Due::default();
        assert!(due.see() && due.see());
        // The third is due, and the next one comes two later.
        due.put_off(Known::Enough, 2);
        let next: Vec<bool> = (0..5).map(|_| due.see()).collect();
        assert_eq!(next, [false, false, true, true, true]);
    }

    #[test]
    fn counts_may_begin_anew() {
        let due = Due::default();
        due.seen.store(u32::MAX, Ordering::Relaxed);
        due.from.store(u32::MAX - 1, Ordering::Relaxed);
        assert!(due.see());
        due.put_off(Known::Enough, 1);
        assert!(!due.see() && due.see());
    }
}
