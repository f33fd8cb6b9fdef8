//! A stream's launches and observations: which launches form a batch, and when it was complete.

use std::collections::VecDeque;

use client::launch_log::{Launch, LaunchLog};
use policy::durations::{Completed, Durations, InFlight, Launched};

use super::index_of;
use crate::kernels::Number;

#[derive(Default)]
pub(super) struct Stream {
    /// How much of the ring was read.
    pub(super) seen: u64,
    /// The mark of the last launch read.
    last: u64,
    /// The mark up to which everything is known complete.
    pub(super) done: u64,
    pub(super) in_flight: InFlight,
    /// Epochs of the launches in flight, each with the mark of its last launch.
    epochs: VecDeque<(u64, u64)>,
    /// The last mark that was queried and not reached, and when, ns; 0 and 0 before.
    pub(super) not_yet: (u64, u64),
    /// When the helper had recorded the event behind that mark, ns. A launch admitted before that
    /// may precede the event without being in its mark: the mark is read first, and a launch counts
    /// when the driver has accepted it.
    not_yet_recorded_ns: u64,
    /// When the helper had recorded its last event, ns.
    pub(super) recorded_ns: u64,
    launches: Vec<Launch>,
}

/// Most epochs distinguished in flight.
const EPOCHS_MAX: usize = 64;

impl Stream {
    /// The last recorded event, behind `mark`, had not been reached at `asked_ns`.
    pub(super) fn handle_not_yet(&mut self, mark: u64, asked_ns: u64) {
        self.not_yet = (mark, asked_ns);
        self.not_yet_recorded_ns = self.recorded_ns;
    }

    /// Reads new launches, each once. `told` returns a number's expected duration without learning,
    /// and whether it is from a profile.
    pub(super) fn read<const PLACES: usize>(
        &mut self,
        recent: &LaunchLog<PLACES>,
        now_ns: u64,
        mut told: impl FnMut(&Launch) -> Option<(u64, bool)>,
    ) {
        self.launches.clear();
        recent.read(&mut self.seen, |launch| self.launches.push(launch));
        self.launches.sort_unstable_by_key(|launch| launch.mark);
        let launches = core::mem::take(&mut self.launches);
        for launch in &launches {
            if launch.cost_ns == 0 {
                // Uncharged (or, as only the lower bits are logged, a multiple of 4.3 s): it has
                // the mark of the launch before it, and its time counts in that or the next batch.
                self.in_flight.handle_lost(launch.mark + 1);
                continue;
            }
            if launch.mark <= self.last {
                continue;
            }
            if launch.begin() != self.last as u32 {
                // The launch before was not read.
                self.in_flight.handle_lost(launch.mark - 1);
            }
            self.last = launch.mark;
            let told = told(launch);
            if launch.mark <= self.done {
                // Seen complete before it was logged.
                continue;
            }
            self.note_epoch(launch.mark, launch.epoch);
            if (launch.kernel, launch.generation) == (Number::COPY.place, Number::COPY.generation) {
                // Its duration is a guess, for which the others would make up.
                self.in_flight.handle_lost(launch.mark);
            }
            let launched = Launched {
                kernel: told.map_or(u32::MAX, |_| index_of(launch.kernel)),
                told_ns: told.map_or_else(|| launch.cost_ns.into(), |(told_ns, _)| told_ns),
                is_told: told.is_some_and(|(_, is_told)| is_told),
            };
            self.in_flight
                .handle_launch(launch.mark, launched, launch.at_ns(now_ns));
        }
        self.launches = launches;
    }

    fn note_epoch(&mut self, mark: u64, epoch: u64) {
        let is_full = self.epochs.len() >= EPOCHS_MAX;
        match self.epochs.back_mut() {
            Some(last) if last.1 == epoch => last.0 = mark,
            Some(last) if is_full => *last = (mark, Launch::BESIDE),
            _ => self.epochs.push_back((mark, epoch)),
        }
    }

    /// The epoch of work in flight up to `done`; [`Launch::BESIDE`]: several, or beside HP.
    fn take_epoch(&mut self, done: u64) -> u64 {
        let mut all = None;
        while let Some(&(mark, epoch)) = self.epochs.front() {
            let is_another = all.is_some_and(|before| before != epoch);
            all = Some(if is_another { Launch::BESIDE } else { epoch });
            if mark > done {
                break;
            }
            self.epochs.pop_front();
            if mark == done {
                break;
            }
        }
        all.unwrap_or(Launch::BESIDE)
    }

    /// Everything up to `done` is complete, and up to `given_up` because it was given up. `waited`:
    /// the application's waits show that it was not complete before the first time (0: unknown),
    /// and was by the second. `is_alone`: whether no high-priority launch came since launches of
    /// that epoch. Teaches `durations`. Returns the newly complete launches.
    pub(super) fn complete(
        &mut self,
        (done, given_up): (u64, u64),
        (waited_ns, by_ns): (u64, u64),
        is_alone: impl FnOnce(u64) -> bool,
        durations: &mut Durations,
    ) -> &[Launched] {
        if done <= self.done {
            return &[];
        }
        if given_up > self.done || done > self.last {
            self.in_flight.handle_lost(done);
        }
        self.done = done;
        let (mark, asked_ns) = self.not_yet;
        let behind_ns = self.in_flight.launched_behind(done);
        // Launches made before may be incomplete: events and waiters read their mark first.
        let is_whole_since = |since_ns| behind_ns.is_none_or(|at_ns| at_ns > since_ns);
        let is_asked = mark <= done && is_whole_since(self.not_yet_recorded_ns);
        let asked_ns = if is_asked { asked_ns } else { 0 };
        let waited_ns = if is_whole_since(waited_ns) {
            waited_ns
        } else {
            0
        };
        let completed = Completed {
            after_ns: asked_ns.max(waited_ns),
            by_ns,
            is_waited: waited_ns > asked_ns,
        };
        let is_alone = is_alone(self.take_epoch(done));
        self.in_flight
            .handle_complete(done, completed, is_alone, durations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// A stream with launches of kernel 1 only, which the profile expects to take 100 µs.
    struct Rig {
        recent: LaunchLog<8>,
        stream: Stream,
        durations: Durations,
        mark: u64,
    }

    impl Rig {
        fn new() -> Self {
            Self {
                recent: LaunchLog::new(),
                stream: Stream::default(),
                durations: Durations::default(),
                mark: 0,
            }
        }

        fn launch(&mut self, at_ns: u64, epoch: u64) -> u64 {
            self.mark += 100 * US;
            self.push(100_000, at_ns, epoch);
            self.mark
        }

        fn push(&mut self, cost_ns: u32, at_ns: u64, epoch: u64) {
            self.recent.push(&Launch {
                mark: self.mark,
                cost_ns,
                kernel: 1,
                generation: 0,
                at_ns,
                epoch,
            });
        }

        fn look(&mut self, now_ns: u64, done: u64, is_alone: bool) {
            self.look_given_up(now_ns, (done, 0), is_alone);
        }

        fn look_given_up(&mut self, now_ns: u64, done: (u64, u64), is_alone: bool) {
            self.look_waited((0, now_ns), done, is_alone);
        }

        /// Polls with a wait's result: complete between the two times.
        fn look_waited(&mut self, (after_ns, by_ns): (u64, u64), done: (u64, u64), is_alone: bool) {
            let Self {
                recent,
                stream,
                durations,
                ..
            } = self;
            // The poll is later than the wait's end.
            stream.read(recent, by_ns + 50 * US, |_| Some((100 * US, false)));
            let waited = (after_ns, by_ns);
            _ = stream.complete(
                done,
                waited,
                |epoch| is_alone && epoch != Launch::BESIDE && epoch != 8,
                durations,
            );
        }

        /// The learnt duration, µs; 0: none.
        fn learnt_us(&self) -> u64 {
            self.durations.expected_ns(0, 0) / US
        }
    }

    #[test]
    fn a_kernel_of_5_ms_that_nobody_knows_is_known_when_it_was_seen_once() {
        let mut rig = Rig::new();
        let mark = rig.launch(1_000 * US, 7);
        rig.look(1_020 * US, 0, true);
        rig.stream.not_yet = (mark, 5_990 * US);
        rig.look(6_010 * US, mark, true);
        assert!(
            (4_950..=5_010).contains(&rig.learnt_us()),
            "{}",
            rig.learnt_us()
        );
    }

    #[test]
    fn an_event_that_was_never_seen_pending_tells_nothing_of_how_long_it_was_at_least() {
        let mut rig = Rig::new();
        let mark = rig.launch(1_000 * US, 7);
        // Behind a later launch, not this one: it shows nothing of this one.
        rig.stream.not_yet = (mark + 1, 5_990 * US);
        rig.look(6_010 * US, mark, true);
        assert_eq!(rig.learnt_us(), 0);
        // It was certainly not longer than this.
        let mark = rig.launch(7_000 * US, 7);
        rig.look(7_040 * US, mark, true);
        assert!((40..100).contains(&rig.learnt_us()), "{}", rig.learnt_us());
    }

    #[test]
    fn an_event_that_another_launch_came_before_is_no_sight_of_what_its_mark_says() {
        for (admitted_us, learnt_us) in [(1_005, 0..=0), (1_015, 4_900..=5_010)] {
            let mut rig = Rig::new();
            let mark = rig.launch(1_000 * US, 7);
            rig.look(1_002 * US, 0, true);
            // The mark is read and the event being recorded; the next kernel, 5 ms, may come first.
            let behind = rig.launch(admitted_us * US, 7);
            rig.stream.recorded_ns = 1_010 * US;
            rig.stream.handle_not_yet(mark, 5_990 * US);
            // The next event is recorded as soon as this one was reached.
            rig.stream.recorded_ns = 6_005 * US;
            rig.look(6_010 * US, mark, true);
            let learnt = rig.learnt_us();
            assert!(learnt_us.contains(&learnt), "{admitted_us}: {learnt}");
            if learnt == 0 {
                // Nor had the other one begun when the event was reached.
                rig.look(6_050 * US, behind, true);
                assert_eq!(rig.learnt_us(), 0);
            }
        }
    }

    #[test]
    fn beside_high_priority_work_a_kernel_becomes_shorter_and_never_longer() {
        for (epochs, is_alone) in [([7, 7], false), ([7, 8], true), ([Launch::BESIDE; 2], true)] {
            let mut rig = Rig::new();
            rig.launch(1_000 * US, epochs[0]);
            let mark = rig.launch(1_001 * US, epochs[1]);
            rig.look(1_020 * US, 0, true);
            rig.stream.not_yet = (mark, 5_990 * US);
            rig.look(6_010 * US, mark, is_alone);
            assert_eq!(rig.learnt_us(), 0, "{epochs:?}");
        }
    }

    #[test]
    fn a_batch_of_which_a_launch_was_not_read_teaches_nothing_and_the_next_one_does() {
        let mut rig = Rig::new();
        for n in 0..9 {
            rig.launch(n * US, 7);
        }
        rig.stream.not_yet = (rig.mark, 90_000 * US);
        rig.look(90_010 * US, rig.mark, true);
        assert_eq!(rig.learnt_us(), 0);
        let mark = rig.launch(100_000 * US, 7);
        rig.stream.not_yet = (mark, 101_000 * US);
        rig.look(101_010 * US, mark, true);
        assert!(
            (980..=1_010).contains(&rig.learnt_us()),
            "{}",
            rig.learnt_us()
        );
    }

    #[test]
    fn what_was_complete_before_it_was_written_down_is_in_no_batch() {
        let mut rig = Rig::new();
        // The thread has counted its launch and is interrupted.
        rig.mark += 100 * US;
        rig.stream.not_yet = (rig.mark, 5_990 * US);
        rig.look(6_010 * US, rig.mark, true);
        rig.push(100_000, 1_000 * US, 7);
        rig.look(6_030 * US, rig.mark, true);
        assert_eq!((rig.learnt_us(), rig.stream.in_flight.first()), (0, None));
        // Its 5 ms do not count for the next one either.
        let mark = rig.launch(7_000 * US, 7);
        rig.stream.not_yet = (mark, 8_000 * US);
        rig.look(8_010 * US, mark, true);
        assert!(
            (980..=1_010).contains(&rig.learnt_us()),
            "{}",
            rig.learnt_us()
        );
    }

    #[test]
    fn a_batch_of_which_a_launch_is_not_written_down_yet_teaches_nothing() {
        let mut rig = Rig::new();
        rig.launch(1_000 * US, 7);
        rig.look(1_020 * US, 0, true);
        rig.mark += 100 * US;
        rig.stream.not_yet = (rig.mark, 5_990 * US);
        rig.look(6_010 * US, rig.mark, true);
        assert_eq!(rig.learnt_us(), 0);
    }

    #[test]
    fn what_goes_uncharged_teaches_nothing_of_what_is_before_and_behind_it() {
        for is_before_written_first in [true, false] {
            let mut rig = Rig::new();
            let before = rig.launch(1_000 * US, 7);
            if is_before_written_first {
                rig.look(1_010 * US, 0, true);
            }
            // The daemon is gone, so these are uncharged.
            (0..3).for_each(|_| rig.push(0, 1_020 * US, Launch::BESIDE));
            rig.stream.not_yet = (before, 5_990 * US);
            rig.look(6_010 * US, before, true);
            let behind = rig.launch(6_020 * US, 7);
            rig.stream.not_yet = (behind, 11_990 * US);
            rig.look(12_010 * US, behind, true);
            assert_eq!(rig.learnt_us(), 0, "{is_before_written_first}");
            let mark = rig.launch(13_000 * US, 7);
            rig.stream.not_yet = (mark, 14_000 * US);
            rig.look(14_010 * US, mark, true);
            assert!((980..=1_010).contains(&rig.learnt_us()));
        }
    }

    #[test]
    fn what_was_given_up_teaches_nothing() {
        let mut rig = Rig::new();
        let mark = rig.launch(1_000 * US, 7);
        rig.look_given_up(1_010 * US, (mark, mark), true);
        assert_eq!(rig.learnt_us(), 0);
        let mark = rig.launch(2_000 * US, 7);
        rig.look_given_up(2_010 * US, (mark, mark - 100 * US), true);
        assert!((10..100).contains(&rig.learnt_us()), "{}", rig.learnt_us());
    }

    #[test]
    fn between_two_waits_of_the_application_kernels_are_learnt_as_a_sum() {
        let mut rig = Rig::new();
        let mut begin_us = 0;
        for (truth_us, rounds) in [(400, 40), (40, 40)] {
            for _ in 0..rounds {
                begin_us += 10_000;
                // The thread runs ahead of the device by six launches and then waits for them.
                let mark = (0..6).fold(0, |_, nth| rig.launch((begin_us + nth) * US, 7));
                // They count as complete when expected to be; that teaches nothing.
                let known = rig.stream.done;
                rig.look(begin_us * US + 10 * US, known, true);
                let end_us = begin_us + 6 * truth_us;
                let waited = ((end_us - 10) * US, end_us * US);
                rig.look_waited(waited, (mark, 0), true);
            }
            let learnt_us = rig.learnt_us();
            let off_us = learnt_us.abs_diff(truth_us);
            assert!(off_us <= truth_us / 10, "{truth_us}: {learnt_us}");
        }
    }

    #[test]
    fn a_sum_that_is_looked_at_when_the_next_one_has_begun_is_judged_by_its_own_epoch() {
        let mut rig = Rig::new();
        let mark = rig.launch(1_000 * US, 7);
        // The wait is over and the next step begun, after high-priority work, before the poll.
        let next = rig.launch(6_010 * US, 8);
        rig.look_waited((5_900 * US, 6_000 * US), (mark, 0), true);
        let learnt_us = rig.learnt_us();
        assert!(learnt_us > 100, "{learnt_us}");
        // The next one is not alone, and the one after it is again.
        let last = rig.launch(12_010 * US, 7);
        rig.look_waited((11_900 * US, 12_000 * US), (next, 0), true);
        assert_eq!(rig.learnt_us(), learnt_us);
        rig.look_waited((17_900 * US, 18_000 * US), (last, 0), true);
        assert!(rig.learnt_us() > learnt_us);
    }

    #[test]
    fn more_epochs_in_flight_than_are_told_apart_are_beside_high_priority_work() {
        let mut rig = Rig::new();
        let launches = 2 * EPOCHS_MAX as u64;
        for nth in 0..launches {
            rig.launch((1_000 + nth) * US, nth);
            rig.look(2_000 * US, 0, true);
        }
        assert!(rig.stream.epochs.len() <= EPOCHS_MAX);
        assert_eq!(rig.stream.take_epoch(100 * US), 0);
        assert_eq!(rig.stream.take_epoch(rig.mark), Launch::BESIDE);
        assert!(rig.stream.epochs.is_empty());
    }

    #[test]
    fn a_wait_that_began_before_a_launch_may_have_lasted_as_long_as_that_launch() {
        let mut rig = Rig::new();
        let mark = rig.launch(1_000 * US, 7);
        // Another thread launched after the first one had read its mark.
        let _behind = rig.launch(1_010 * US, 7);
        rig.look_waited((5_900 * US, 6_000 * US), (mark, 0), true);
        assert_eq!(rig.learnt_us(), 0);
    }
}
