//! Kernel durations, learnt from the observed times of completion. Profiles are old, of another
//! device, or absent. Best-effort work is bounded by expected durations, so a wrong one must be
//! corrected as soon as the kernel has run. Each client keeps a table of kernel numbers below
//! [`KERNELS_MAX`], one per name, grid, block and shared memory.
//! ## What is observed
//! Completions are observed late, and for several launches at once. On an ordered stream, two
//! bounds are certain for each *batch*, the launches between two observed completions:
//! ```text
//! before │ not complete  complete │  … batch …  │ not complete  complete │
//!        │            a0       b0 │ first  last │            a1       b1 │
//!
//! at most   b1 − max(a0, first launch)   it began after its launch and the batch before
//! at least  a1 − max(b0, last launch)    from then on nothing but it was in the stream
//! ```
//! An expected duration between both bounds ([`Seen`]) stays. Otherwise the durations of the
//! batch's kernels move towards the nearer bound, all by the same factor, each by a part of the way
//! equal to its share of the batch: other batches with the kernel show which part is its own. The
//! n-th observation of a kernel that fills its batch moves it 1/n of the way, but at least [`DOWN`]
//! of the way when it was shorter and [`UP`] when it was longer: other work on the device lengthens
//! a batch, and nothing shortens it. In balance an estimate is a low quantile, near the median
//! where nothing disturbs.
//!
//! Kernels much shorter than the polling interval are learnt as sums only, which suffices. If a
//! batch is shorter than expected, its kernels without a profile, if any, get the difference. The
//! spread of a kernel around its estimate is learnt from batches that it fills alone ([`FILLS`]):
//! the mean distance of the logarithms, an eighth of it from each further batch. Without a polling
//! thread, the application's own synchronisations are the observations. The work was certainly
//! incomplete only until shortly before such a call returned, so these lengthen an estimate by
//! [`UP`] of the way from the first time on.

use std::collections::VecDeque;

/// Kernels that are learnt; greater numbers keep their prior. As many as the preload library keeps,
/// with its graphs (32768 and 16384). 768 KiB at most.
pub const KERNELS_MAX: usize = 3 << 14;

/// Launches in flight remembered per stream, 192 KiB at most; further ones teach nothing. A
/// training step has fewer between synchronisations, if these alone report completion.
pub const LAUNCHES_MAX: usize = 4096;

/// The bounds on a batch's duration, ns: see the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// It took at least this long.
    pub least_ns: u64,
    /// It took at most this long.
    pub most_ns: u64,
    /// The lower bound comes from a waiting thread; see [`Completed::is_waited`].
    pub is_waited: bool,
}

/// A launch of a batch: its kernel, and the duration expected at the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The kernel's number.
    pub kernel: u32,
    /// The prior: the profile's duration, or the assumption for a kernel without a profile, ns.
    pub told_ns: u64,
    /// The prior comes from a profile.
    pub is_told: bool,
}

/// The learnt durations.
#[derive(Debug, Default)]
pub struct Durations {
    /// By the kernel's number; grows to the greatest number observed complete.
    estimates: Vec<Estimate>,
    taught: usize,
    /// Kernels with a lower bound from some batch.
    seen: usize,
    launches: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// 0: the prior holds.
    ns: u32,
    launches: u32,
    /// Mean distance between the logarithms of observed and expected durations, in
    /// [`SPREAD_UNIT`]s; `None` before the first batch that determines it.
    spread: Option<u16>,
    /// Batches that contained the kernel, up to 255.
    batches: u8,
    in_batch: u16,
}

const _: () = assert!(KERNELS_MAX * size_of::<Estimate>() == 768 << 10);

/// What a kernel's launches have taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taught {
    /// Expected duration, ns: a low quantile, near the median. 0: the uncontradicted prior.
    pub ns: u64,
    /// The duration that hardly any launch exceeds, in thousandths of `ns` (1000: as long), up to
    /// [`LATEST_PER_MILLE_MAX`]. `None` if no batch determines it.
    pub latest_per_mille: Option<u32>,
    /// Some batch gave a lower bound. Otherwise `ns` is 0 and the prior was neither contradicted
    /// nor confirmed, for example because all launches went beside high-priority work.
    pub is_seen: bool,
    /// Launches that were observed complete.
    pub launches: u64,
}

impl Durations {
    /// The kernel's expected duration.
    #[must_use]
    pub fn expected_ns(&self, kernel: u32, told_ns: u64) -> u64 {
        match self.estimates.get(kernel as usize) {
            Some(estimate) if estimate.ns > 0 => estimate.ns.into(),
            _ => told_ns,
        }
    }

    /// What launches have taught about a kernel; `None` if none was observed complete.
    #[must_use]
    pub fn taught(&self, kernel: u32) -> Option<Taught> {
        let estimate = self.estimates.get(kernel as usize)?;
        (estimate.launches > 0).then(|| Taught {
            ns: estimate.ns.into(),
            latest_per_mille: estimate.spread.map(|spread| {
                let spread = f64::from(spread) * SPREAD_UNIT;
                let latest = libm::exp(SPREADS_TO_LATEST * spread) * 1000.0;
                (latest as u32).min(LATEST_PER_MILLE_MAX)
            }),
            is_seen: estimate.batches > 0,
            launches: estimate.launches.into(),
        })
    }

    /// The same for every kernel observed complete.
    pub fn all(&self) -> impl Iterator<Item = (u32, Taught)> + '_ {
        let kernels = 0..self.estimates.len() as u32;
        kernels.filter_map(|kernel| Some((kernel, self.taught(kernel)?)))
    }

    /// Whether some batch gave a lower bound on the kernel's duration ([`Taught::is_seen`]).
    #[must_use]
    pub fn is_seen(&self, kernel: u32) -> bool {
        let estimate = self.estimates.get(kernel as usize);
        estimate.is_some_and(|estimate| estimate.batches > 0)
    }

    /// A batch was observed complete, with nothing of high priority beside it.
    pub fn handle_batch(&mut self, batch: &[Launched], seen: Seen) {
        if batch.is_empty() || batch.len() > LAUNCHES_MAX || seen.least_ns > seen.most_ns {
            return;
        }
        let expected = batch.iter().map(|launch| self.expected_of(launch));
        let expected_ns = expected.fold(0, u64::saturating_add).max(1);
        let nearest_ns = expected_ns.clamp(seen.least_ns, seen.most_ns).max(1);
        // An upper bound that agrees teaches nothing, and is not a kernel's first observation.
        let is_telling = nearest_ns != expected_ns || seen.least_ns != 0;
        self.count(batch, expected_ns, is_telling.then_some(nearest_ns));
        if !is_telling {
            return;
        }
        let factor = nearest_ns as f64 / expected_ns as f64;
        let all_told = batch.iter().all(|launch| launch.is_told);
        for launch in batch {
            if let Some(estimate) = self.estimate_mut(launch.kernel) {
                estimate.in_batch += 1;
            }
        }
        let mut first_seen = 0;
        for launch in batch {
            let before_ns = self.expected_of(launch) as f64;
            let Some(estimate) = self.estimate_mut(launch.kernel) else {
                continue;
            };
            // The first launch in the batch moves the estimate for all of its launches.
            let launches = core::mem::take(&mut estimate.in_batch);
            if launches == 0 || (factor < 1.0 && launch.is_told && !all_told) {
                continue;
            }
            let share = (f64::from(launches) * before_ns / expected_ns as f64).min(1.0);
            let first = 1.0 / (1.0 + f64::from(estimate.batches));
            let rate = match factor > 1.0 {
                true if seen.is_waited => UP,
                true => first.max(UP),
                false => first.max(DOWN),
            };
            first_seen += usize::from(estimate.batches == 0);
            estimate.batches = estimate.batches.saturating_add(1);
            if nearest_ns != expected_ns {
                let after_ns = before_ns * libm::pow(factor, rate * share);
                // At least 1, because 0 means "the prior"; four seconds at most.
                estimate.ns = (after_ns as u32).max(1);
            }
        }
        self.seen += first_seen;
    }

    /// The number belongs to another kernel from now on.
    pub fn forget(&mut self, kernel: u32) {
        if let Some(estimate) = self.estimates.get_mut(kernel as usize) {
            self.taught -= usize::from(estimate.launches > 0);
            self.seen -= usize::from(estimate.batches > 0);
            *estimate = Estimate::default();
        }
    }

    /// How many kernels [`Durations::taught`] knows.
    #[must_use]
    pub fn taught_kernels(&self) -> usize {
        self.taught
    }

    /// Kernels with a lower bound from some batch.
    #[must_use]
    pub fn seen_kernels(&self) -> usize {
        self.seen
    }

    /// How many launches have taught something.
    #[must_use]
    pub fn taught_launches(&self) -> u64 {
        self.launches
    }

    /// How many kernels are expected to take another time than their prior.
    #[must_use]
    pub fn learnt(&self) -> usize {
        let learnt = self.estimates.iter().filter(|estimate| estimate.ns > 0);
        learnt.count()
    }

    fn count(&mut self, batch: &[Launched], expected_ns: u64, nearest_ns: Option<u64>) {
        let off_of = |ns: u64| libm::log(ns as f64 / expected_ns as f64).abs() / SPREAD_UNIT;
        let off = nearest_ns.map(off_of);
        for launch in batch {
            let fills = self.expected_of(launch) as f64 >= FILLS * expected_ns as f64;
            let Some(estimate) = self.estimate_mut(launch.kernel) else {
                continue;
            };
            let is_first = estimate.launches == 0;
            estimate.launches = estimate.launches.saturating_add(1);
            // The first observation is compared with the prior, which may be arbitrarily wrong.
            if let Some(off) = off.filter(|_| fills && estimate.batches > 0) {
                let before = f64::from(estimate.spread.unwrap_or(0));
                estimate.spread = Some((before + (off - before) / SPREAD_BATCHES) as u16);
            }
            self.taught += usize::from(is_first);
            self.launches += 1;
        }
    }

    fn expected_of(&self, launch: &Launched) -> u64 {
        self.expected_ns(launch.kernel, launch.told_ns)
    }

    fn estimate_mut(&mut self, kernel: u32) -> Option<&mut Estimate> {
        let index = kernel as usize;
        if index >= KERNELS_MAX {
            return None;
        }
        if index >= self.estimates.len() {
            self.estimates.resize(index + 1, Estimate::default());
        }
        self.estimates.get_mut(index)
    }
}

/// When a completion occurred: between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The last poll that found it incomplete, ns.
    pub after_ns: u64,
    /// The poll that found it complete, ns.
    pub by_ns: u64,
    /// `after_ns` is not a poll but the end of a thread's wait, which may have waited for a
    /// processor, too: the bound is not certain.
    pub is_waited: bool,
}

/// The launches of one stream between launch and completion.
#[derive(Debug, Default)]
pub struct InFlight {
    /// In order, each with its mark and time of launch; at most [`LAUNCHES_MAX`].
    launches: VecDeque<(u64, Launched, u64)>,
    /// The mark of the last launch that found no room.
    lost: Option<u64>,
    before: Option<Completed>,
    batch: Vec<Launched>,
}

impl InFlight {
    /// A launch went at `at_ns`; marks grow.
    pub fn handle_launch(&mut self, mark: u64, launch: Launched, at_ns: u64) {
        if self.launches.len() >= LAUNCHES_MAX {
            self.handle_lost(mark);
            return;
        }
        self.launches.push_back((mark, launch, at_ns));
    }

    /// Launches up to `mark` went unobserved: no batch up to there is known completely.
    pub fn handle_lost(&mut self, mark: u64) {
        self.lost = self.lost.max(Some(mark));
    }

    /// Everything up to `mark` was observed complete. `is_alone`: no high-priority launch since the
    /// first of these. Teaches `durations`, and returns the launches now complete.
    pub fn handle_complete(
        &mut self,
        mark: u64,
        completed: Completed,
        is_alone: bool,
        durations: &mut Durations,
    ) -> &[Launched] {
        self.batch.clear();
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        while let Some(&(_, launch, at_ns)) = self.launches.front().filter(|(at, ..)| *at <= mark) {
            self.launches.pop_front();
            self.batch.push(launch);
            first_ns = first_ns.min(at_ns);
            last_ns = last_ns.max(at_ns);
        }
        let before = self.before.replace(completed);
        if let Some(lost) = self.lost {
            // Up to there a batch is not known completely.
            self.lost = Some(lost).filter(|&lost| lost > mark);
            return &self.batch;
        }
        let began_ns = before.map_or(first_ns, |before| before.after_ns.max(first_ns));
        let alone_ns = before.map_or(last_ns, |before| before.by_ns.max(last_ns));
        let least_ns = completed.after_ns.saturating_sub(alone_ns + START_NS);
        let seen = Seen {
            least_ns: if is_alone { least_ns } else { 0 },
            most_ns: completed.by_ns.saturating_sub(began_ns),
            is_waited: completed.is_waited,
        };
        durations.handle_batch(&self.batch, seen);
        &self.batch
    }

    /// The number belongs to another kernel from now on: batches with it in flight teach nothing.
    pub fn forget(&mut self, kernel: u32) {
        let theirs = self.launches.iter().rev();
        let last = theirs
            .into_iter()
            .find(|(_, launch, _)| launch.kernel == kernel);
        if let Some(&(mark, ..)) = last {
            self.handle_lost(mark);
        }
    }

    /// When the first launch after `mark` went, ns; `None` if none is remembered.
    #[must_use]
    pub fn launched_behind(&self, mark: u64) -> Option<u64> {
        let behind = self.launches.iter().find(|(at, ..)| *at > mark);
        behind.map(|&(_, _, at_ns)| at_ns)
    }

    /// The mark of the first launch in flight.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.launches.front().map(|(mark, ..)| *mark)
    }
}

/// A generous bound on the time from a launch until the device begins it: 3 µs on a V100.
const START_NS: u64 = 10_000;

/// The share of a batch from which on a kernel fills it.
const FILLS: f64 = 0.9;

/// A unit of [`Estimate::spread`]: factors up to e^16.
const SPREAD_UNIT: f64 = 1.0 / 4_096.0;

/// The divisor that gives a batch's weight in the spread.
const SPREAD_BATCHES: f64 = 8.0;

/// Mean distances from the estimate to the longest; 2.06: a normal distribution's 95th percentile.
const SPREADS_TO_LATEST: f64 = 2.06;

/// The cap on [`Taught::latest_per_mille`].
pub const LATEST_PER_MILLE_MAX: u32 = 4_000;

/// Part of the way to a longer duration.
const UP: f64 = 0.15;

/// Part of the way to a shorter one.
const DOWN: f64 = 0.3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: u64 = 1_000;
    const LOOK_NS: u64 = 20 * US;

    /// Launches kernels of these true durations, `groups` at a time, polled every 20 µs; returns
    /// what is expected of each in the end. Each group takes `disturb` longer.
    fn learnt(
        told: &[u64],
        truth: &[u64],
        groups: &[usize],
        rounds: usize,
        disturb_ns: u64,
    ) -> Vec<u64> {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        let (mut now_ns, mut mark, mut next) = (0, 0, 0);
        for round in 0..rounds {
            let began_ns = now_ns;
            for _ in 0..groups[round % groups.len()] {
                mark += 1;
                let launched = Launched {
                    kernel: next as u32,
                    told_ns: told[next],
                    is_told: true,
                };
                in_flight.handle_launch(mark, launched, began_ns);
                now_ns += truth[next];
                next = (next + 1) % truth.len();
            }
            now_ns += disturb_ns;
            let by_ns = now_ns.next_multiple_of(LOOK_NS);
            let completed = Completed {
                after_ns: by_ns - LOOK_NS,
                by_ns,
                is_waited: false,
            };
            in_flight.handle_complete(mark, completed, true, &mut durations);
            now_ns = by_ns;
        }
        let kernels = (0..).zip(told);
        kernels
            .map(|(kernel, &told_ns)| durations.expected_ns(kernel, told_ns))
            .collect()
    }

    #[test]
    fn a_kernel_that_takes_ten_times_as_long_as_told_is_known_when_it_was_seen_once() {
        let after = learnt(&[100 * US], &[1_000 * US], &[1], 1, 0);
        // Between the two polls, and the time until a launch begins.
        assert!((950 * US..=1_020 * US).contains(&after[0]), "{after:?}");
    }

    #[test]
    fn a_kernel_that_fills_its_batch_with_others_of_its_own_is_known_when_it_was_seen_once() {
        let (mut durations, batch) = (Durations::default(), [launched(0, 100 * US); 20]);
        let seen = Seen {
            least_ns: 40_000 * US,
            most_ns: 40_020 * US,
            is_waited: false,
        };
        durations.handle_batch(&batch, seen);
        let learnt_ns = durations.expected_ns(0, 0);
        assert!((1_990 * US..2_010 * US).contains(&learnt_ns), "{learnt_ns}");
    }

    fn launched(kernel: u32, told_ns: u64) -> Launched {
        Launched {
            kernel,
            told_ns,
            is_told: false,
        }
    }

    #[test]
    fn of_kernels_that_are_seen_together_each_is_learnt_from_where_it_is_seen_with_others() {
        let truth = [1_000 * US, 100 * US, 400 * US];
        let after = learnt(&[100 * US; 3], &truth, &[1, 2, 3, 2], 400, 0);
        for (learnt_ns, true_ns) in after.iter().zip(truth) {
            let off_ns = learnt_ns.abs_diff(true_ns);
            assert!(off_ns <= true_ns / 5, "{after:?}");
        }
    }

    #[test]
    fn how_many_launches_taught_and_how_far_they_lie_apart_is_told() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        assert_eq!(durations.taught(0), None);
        let mut now_ns = 0;
        let mut run = |durations: &mut Durations, kernel, took_ns| {
            now_ns += 1_000 * US;
            let launched = Launched {
                kernel,
                told_ns: 100 * US,
                is_told: false,
            };
            in_flight.handle_launch(now_ns, launched, now_ns);
            let completed = Completed {
                after_ns: now_ns + took_ns - LOOK_NS,
                by_ns: now_ns + took_ns,
                is_waited: false,
            };
            in_flight.handle_complete(now_ns, completed, true, durations);
        };
        for round in 0..200 {
            run(&mut durations, 0, 400 * US);
            run(
                &mut durations,
                1,
                if round % 2 == 0 { 400 * US } else { 600 * US },
            );
            run(&mut durations, 2, 105 * US);
        }
        let [steady, varied, right] = [0, 1, 2].map(|kernel| durations.taught(kernel).unwrap());
        assert_eq!((steady.launches, varied.launches), (200, 200));
        assert!(steady.latest_per_mille <= Some(1_050), "{steady:?}");
        let latest_ns = varied.ns * u64::from(varied.latest_per_mille.unwrap()) / 1_000;
        assert!((550 * US..=900 * US).contains(&latest_ns), "{varied:?}");
        assert_eq!(
            (durations.taught_kernels(), durations.seen_kernels()),
            (3, 3)
        );
        durations.forget(1);
        assert_eq!((durations.taught_kernels(), durations.taught(1)), (2, None));
        assert_eq!(durations.seen_kernels(), 2);
        assert_eq!((right.ns, right.latest_per_mille), (0, Some(1_000)));
        assert!(right.is_seen && durations.is_seen(0));
    }

    #[test]
    fn of_a_kernel_that_is_never_alone_nothing_is_seen() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        for round in 1..9 {
            let at_ns = round * 1_000 * US;
            in_flight.handle_launch(round, launched(0, 100 * US), at_ns);
            let completed = Completed {
                after_ns: at_ns + 400 * US,
                by_ns: at_ns + 420 * US,
                is_waited: false,
            };
            in_flight.handle_complete(round, completed, false, &mut durations);
        }
        let taught = durations.taught(0).unwrap();
        assert_eq!((taught.launches, taught.ns), (8, 0));
        assert!(!taught.is_seen && taught.latest_per_mille.is_none());
        assert_eq!((durations.seen_kernels(), durations.is_seen(0)), (0, false));
    }

    #[test]
    fn what_is_right_stays_what_it_was_told_to_the_nanosecond() {
        let truth = [700 * US, 40 * US, 333 * US];
        assert_eq!(learnt(&truth, &truth, &[1, 3, 2], 500, 0), truth);
    }

    #[test]
    fn what_is_told_too_long_is_mended_too() {
        let after = learnt(&[5_000 * US], &[500 * US], &[1], 20, 0);
        assert!((500 * US..=540 * US).contains(&after[0]), "{after:?}");
    }

    #[test]
    fn high_priority_work_beside_it_makes_no_kernel_longer() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        in_flight.handle_launch(
            1,
            Launched {
                kernel: 3,
                told_ns: 10 * US,
                is_told: true,
            },
            0,
        );
        let late = Completed {
            after_ns: 5_000 * US,
            by_ns: 5_020 * US,
            is_waited: false,
        };
        in_flight.handle_complete(1, late, false, &mut durations);
        assert_eq!(
            (durations.expected_ns(3, 10 * US), durations.learnt()),
            (10 * US, 0)
        );
    }

    #[test]
    fn a_kernel_that_is_disturbed_half_of_the_time_is_not_taken_for_twice_as_long() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        let mut now_ns = 0;
        for round in 0..400_u64 {
            in_flight.handle_launch(
                round,
                Launched {
                    kernel: 0,
                    told_ns: 500 * US,
                    is_told: true,
                },
                now_ns,
            );
            now_ns += if round % 2 == 0 { 500 * US } else { 1_000 * US };
            let completed = Completed {
                after_ns: now_ns - LOOK_NS,
                by_ns: now_ns,
                is_waited: false,
            };
            in_flight.handle_complete(round, completed, true, &mut durations);
        }
        let after_ns = durations.expected_ns(0, 0);
        assert!((500 * US..700 * US).contains(&after_ns), "{after_ns}");
    }

    #[test]
    fn tables_are_bounded_and_a_launch_that_was_not_remembered_spoils_its_batch_alone() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        let launched = Launched {
            kernel: u32::MAX,
            told_ns: US,
            is_told: true,
        };
        for mark in 1..=LAUNCHES_MAX as u64 + 1 {
            in_flight.handle_launch(mark, launched, 0);
        }
        let at = |by_us: u64| Completed {
            after_ns: (by_us - 20) * US,
            by_ns: by_us * US,
            is_waited: false,
        };
        in_flight.handle_complete(LAUNCHES_MAX as u64 + 1, at(100), true, &mut durations);
        assert_eq!((durations.learnt(), in_flight.first()), (0, None));
        // Its number is too great to be learnt; the next one's is not.
        let mark = LAUNCHES_MAX as u64 + 2;
        in_flight.handle_launch(
            mark,
            Launched {
                kernel: 0,
                told_ns: US,
                is_told: true,
            },
            100 * US,
        );
        in_flight.handle_complete(mark, at(1_100), true, &mut durations);
        assert_eq!(durations.learnt(), 1);
        assert_eq!(durations.expected_ns(u32::MAX, 7), 7);
    }

    /// The durations learnt from sums of two kernels with these priors, the first from a profile.
    fn learnt_of_sum(told: [u64; 2], sum_ns: u64, is_waited: bool) -> [u64; 2] {
        let mut durations = Durations::default();
        let batch = [(0, true), (1, false)].map(|(kernel, is_told)| Launched {
            kernel,
            told_ns: told[kernel as usize],
            is_told,
        });
        let seen = Seen {
            least_ns: sum_ns,
            most_ns: sum_ns,
            is_waited,
        };
        durations.handle_batch(&batch, seen);
        [0, 1].map(|kernel| durations.expected_ns(kernel, told[kernel as usize]))
    }

    #[test]
    fn what_is_shorter_is_so_by_kernels_that_no_profile_told() {
        let after = learnt_of_sum([2_000 * US, 2_000 * US], 2_500 * US, true);
        assert_eq!(after[0], 2_000 * US);
        assert!(after[1] < 2_000 * US, "{after:?}");
    }

    #[test]
    fn of_what_a_thread_that_waited_tells_no_sight_is_taken_at_its_word() {
        let sum_ns = 20_000 * US;
        let looked = learnt_of_sum([100 * US; 2], sum_ns, false);
        let waited = learnt_of_sum([100 * US; 2], sum_ns, true);
        for (looked, waited) in looked.into_iter().zip(waited) {
            assert!(
                100 * US < waited && waited * 2 < looked,
                "{waited} {looked}"
            );
        }
    }

    #[test]
    fn a_number_that_is_given_to_another_kernel_is_not_taught_by_the_launches_of_the_first() {
        let (mut durations, mut in_flight) = (Durations::default(), InFlight::default());
        let launched = |kernel| Launched {
            kernel,
            told_ns: US,
            is_told: true,
        };
        for (mark, kernel) in [(1, 0), (2, 0), (3, 1)] {
            in_flight.handle_launch(mark, launched(kernel), 0);
        }
        durations.forget(0);
        in_flight.forget(0);
        let at = |by_us: u64| Completed {
            after_ns: (by_us - 20) * US,
            by_ns: by_us * US,
            is_waited: false,
        };
        for mark in 1..=2 {
            in_flight.handle_complete(mark, at(mark * 1_000), true, &mut durations);
        }
        assert_eq!(durations.learnt(), 0);
        in_flight.handle_complete(3, at(3_000), true, &mut durations);
        assert!((950 * US..=1_020 * US).contains(&durations.expected_ns(1, 0)));
    }

    proptest! {
        #[test]
        fn an_estimate_stays_between_what_was_told_and_what_was_seen(
            told_ns in 1..4_000_000_000_u64,
            seen in prop::collection::vec((0..4_000_000_000_u64, 0..1_000_000_u64), 1..50),
        ) {
            let mut durations = Durations::default();
            let launched = Launched { kernel: 5, told_ns, is_told: true };
            let (mut least_ns, mut most_ns) = (told_ns, told_ns);
            for (at_least_ns, width_ns) in seen {
                let seen = Seen { least_ns: at_least_ns, most_ns: at_least_ns + width_ns, is_waited: false };
                durations.handle_batch(&[launched], seen);
                least_ns = least_ns.min(seen.most_ns.max(1));
                most_ns = most_ns.max(seen.least_ns);
                let expected_ns = durations.expected_ns(5, told_ns);
                // Each step may round down by one, and there are at most fifty.
                prop_assert!(expected_ns + 50 >= least_ns && expected_ns <= most_ns.max(1) + 1);
            }
        }
    }
}
