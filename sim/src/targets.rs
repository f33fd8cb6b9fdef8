//! Whether a target is held and spent: the verdicts of the suite `slo`. A *row* is a run whose
//! high-priority job marks its requests, with a target. It is compared with runs of the same
//! arrivals and jobs: the job alone (its result while best-effort work is paused, the least
//! possible target), unheld best-effort work, and several targets without marks. A target that is a
//! multiple is one of the solo 99th percentile *of the judged requests*, unknown to the policy: the
//! policy computes one from the requests so far, and states that. Both verdicts are given; the
//! first is the stricter one where the policy errs.
//!
//! | load | p99 ÷ target | requests over the target |
//! |---|---|---|
//! | a fifth of the time | 0.95 to 1.02 | 1.1 % |
//! | half | 0.95 to 1.03 | 1.15 % |
//! | seven tenths | 0.92 to 1.06 | 1.4 % |
//! | any, equal intervals | 0.99 to 1.01 | as above |
//!
//! A row does not count where the target is above nine tenths of the latency beside ungated work
//! (little delays the requests, and nothing has to be held), or below the solo latency.

use std::fmt;

use policy::slo::{GREATEST, LEAST, STEP};
use policy::{Slo, SloView};
use profiler::quantile::nearest_rank;

use crate::arrivals::Arrivals;
use crate::experiment::Experiment;
use crate::job::JobClass;
use crate::outcome::JobOutcome;
use crate::schedulers::PolicySpec;

/// A run's role in the suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    /// Nothing holds best-effort work.
    Ungated,
    /// The policy has a target and no marks.
    Unmarked,
    /// A row: this target, and marks.
    Marked(Slo),
}

impl Side {
    /// The role of a run of this experiment, if any; its first job is the high-priority one.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Option<Self> {
        let job = experiment.jobs.first()?;
        match (&experiment.policy, job.class) {
            (_, JobClass::BestEffort) => None,
            (PolicySpec::Mps, _) => Some(Self::Ungated),
            (PolicySpec::Pillion(_), _) if !job.marks => Some(Self::Unmarked),
            (PolicySpec::Pillion(spec), _) => {
                let slo = spec.params.goal(true).slo;
                (!slo.is_mean()).then_some(Self::Marked(slo))
            }
            _ => None,
        }
    }
}

/// The comparisons for rows with the same jobs and arrivals.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    ungated_ns: Option<u64>,
    unmarked: Vec<(u64, f64)>,
}

/// Best-effort work's share without marks at the same 99th percentile of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unmarked {
    /// Its share.
    pub share: f64,
    /// No two targets without marks enclose the percentile: it is the share of the nearest.
    pub is_nearest: bool,
}

impl Beside {
    /// A run in that role, with the high-priority job's latencies and best-effort work's share.
    pub fn handle_run(&mut self, side: Side, latencies_ns: &[u64], share: f64) {
        let Some(p99_ns) = p99_ns(latencies_ns) else {
            return;
        };
        match side {
            Side::Ungated => self.ungated_ns = Some(p99_ns),
            Side::Unmarked => {
                let at = self.unmarked.partition_point(|&(ns, _)| ns < p99_ns);
                self.unmarked.insert(at, (p99_ns, share));
            }
            Side::Marked(_) => {}
        }
    }

    /// Best-effort work's share without marks at that p99, interpolated between two targets.
    #[must_use]
    pub fn unmarked(&self, p99_ns: u64) -> Option<Unmarked> {
        let at = self.unmarked.partition_point(|&(ns, _)| ns < p99_ns);
        let nearest = |&(_, share): &(u64, f64)| Unmarked {
            share,
            is_nearest: true,
        };
        let (Some(&above), Some(before)) = (self.unmarked.get(at), at.checked_sub(1)) else {
            let ends = [self.unmarked.first(), self.unmarked.last()];
            return ends[usize::from(at > 0)].map(nearest);
        };
        let below = self.unmarked[before];
        let part = (p99_ns - below.0) as f64 / (above.0 - below.0) as f64;
        Some(Unmarked {
            share: below.1 + part * (above.1 - below.1),
            is_nearest: false,
        })
    }
}

/// One target of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The requested target.
    pub asked: Slo,
    /// The same in ns, for the judged requests.
    pub target_ns: u64,
    /// Their 99th percentile.
    pub p99_ns: u64,
    /// The share of them over the target.
    pub missed: f64,
    /// Their solo 99th percentile.
    pub solo_ns: u64,
    /// The same beside ungated work.
    pub ungated_ns: u64,
    /// Best-effort work's share of its solo rate, of all jobs together.
    pub share: f64,
    /// The same without marks.
    pub unmarked: Option<Unmarked>,
    /// The share of time in which requests keep the device busy.
    pub load: f64,
    /// The policy's own view and counts.
    pub view: Option<SloView>,
    /// Whether the target was held.
    pub verdict: Verdict,
    /// The same for the policy's own final target and count of misses; `None` without a target.
    pub stated: Option<Verdict>,
}

/// Whether a target was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Held, and spent.
    Held,
    /// Requests took longer.
    Passed,
    /// Requests took less than they may, so best-effort work has less than it could.
    Unspent,
    /// More of them than allowed took longer, though the percentile is within the tolerance.
    Misses,
    /// Not judged: nothing has to be held.
    Far,
    /// Not judged: requests take longer with best-effort work paused.
    Unreachable,
}

impl Verdict {
    /// Whether it is evidence about the policy.
    #[must_use]
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Far | Self::Unreachable)
    }

    fn of(tolerance: &Tolerance, target: f64, p99: f64, missed: f64, ends: (f64, f64)) -> Self {
        let (solo, ungated) = ends;
        let over = p99 / target;
        if target < solo {
            Self::Unreachable
        } else if target > FAR * ungated {
            Self::Far
        } else if over > tolerance.most {
            Self::Passed
        } else if over < tolerance.least {
            Self::Unspent
        } else if missed > tolerance.missed {
            Self::Misses
        } else {
            Self::Held
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "held",
            Self::Passed => "missed: over",
            Self::Unspent => "missed: under",
            Self::Misses => "missed: too many",
            Self::Far => "counts not: target above .9 of ungated",
            Self::Unreachable => "counts not: paused takes longer",
        })
    }
}

/// The tolerance of a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Least p99 ÷ target.
    pub least: f64,
    /// Greatest p99 ÷ target.
    pub most: f64,
    /// Share of requests over the target.
    pub missed: f64,
}

impl Tolerance {
    /// The tolerance for requests that keep the device busy for that share of the time.
    #[must_use]
    pub fn of(load: f64, arrivals: &Arrivals) -> Self {
        let (least, most, missed) = match load {
            ..0.35 => (0.95, 1.02, 0.011),
            ..0.6 => (0.95, 1.03, 0.0115),
            _ => (0.92, 1.06, 0.014),
        };
        let (least, most) = match arrivals {
            Arrivals::Uniform { .. } => (0.99, 1.01),
            _ => (least, most),
        };
        Self {
            least,
            most,
            missed,
        }
    }
}

impl Row {
    /// A row for a run with the target `asked`; `None` without requests or an ungated run.
    #[must_use]
    pub fn new(
        experiment: &Experiment,
        asked: Slo,
        (hp, solo): (&JobOutcome, &JobOutcome),
        share: f64,
        beside: &Beside,
    ) -> Option<Self> {
        let latencies_ns = &hp.latencies_ns;
        let (p99_ns, solo_ns) = (p99_ns(latencies_ns)?, p99_ns(&solo.latencies_ns)?);
        let ungated_ns = beside.ungated_ns?;
        let arrivals = &experiment.jobs.first()?.arrivals;
        // The shortest request did not wait for another.
        let service_ns = *solo.latencies_ns.iter().min()?;
        let load = service_ns as f64 / 1e9 * arrivals.per_s()?;
        let tolerance = Tolerance::of(load, arrivals);
        let target_ns = asked.target_ns(solo_ns);
        let over = latencies_ns.iter().filter(|&&ns| ns > target_ns).count();
        let missed = over as f64 / latencies_ns.len() as f64;
        let of = |target_ns: u64, missed: f64| {
            let ends = (solo_ns as f64, ungated_ns as f64);
            Verdict::of(&tolerance, target_ns as f64, p99_ns as f64, missed, ends)
        };
        let view = hp.slo;
        let stated = view.and_then(|view| Some((view.target_ns?, view)));
        Some(Self {
            asked,
            target_ns,
            p99_ns,
            missed,
            solo_ns,
            ungated_ns,
            share,
            unmarked: beside.unmarked(p99_ns),
            load,
            view,
            verdict: of(target_ns, missed),
            stated: stated.map(|(target_ns, view)| {
                of(target_ns, view.misses as f64 / view.requests.max(1) as f64)
            }),
        })
    }

    /// The percentile over the target.
    #[must_use]
    pub fn over(&self) -> f64 {
        self.p99_ns as f64 / self.target_ns.max(1) as f64
    }

    /// Best-effort work's share, over that without marks.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        self.unmarked.map(|unmarked| self.share / unmarked.share)
    }
}

/// Whether the policy has kept its bound: misses − misses at the floor ≤ α (requests + range/η).
#[must_use]
pub fn keeps_bound(view: &SloView) -> bool {
    let spent = view.misses.saturating_sub(view.misses_at_floor);
    let most = view.goal.miss * (view.requests as f64 + (GREATEST - LEAST) / STEP);
    // The level is a sum of thousands of steps that are no binary fractions.
    spent as f64 <= most * (1.0 + 1e-6)
}

/// A target above this share of the latency beside ungated work does not count.
const FAR: f64 = 0.9;

fn p99_ns(latencies_ns: &[u64]) -> Option<u64> {
    let mut sorted = latencies_ns.to_vec();
    sorted.sort_unstable();
    nearest_rank(&sorted, 990)
}

#[cfg(test)]
mod tests {
    use policy::{Goal, SloEnd};

    use super::*;

    #[test]
    fn between_two_targets_without_marks_their_shares_are_mixed_and_beyond_them_the_nearest_is_taken()
     {
        let mut beside = Beside::default();
        assert_eq!(beside.unmarked(7), None);
        for (p99_ns, share) in [(30, 0.8), (10, 0.4), (20, 0.5)] {
            beside.handle_run(Side::Unmarked, &[p99_ns], share);
        }
        for (p99_ns, share, is_nearest) in [
            (5, 0.4, true),
            (15, 0.45, false),
            (20, 0.5, false),
            (27, 0.71, false),
            (31, 0.8, true),
        ] {
            let unmarked = beside.unmarked(p99_ns).unwrap();
            assert!(
                (unmarked.share - share).abs() < 1e-9,
                "{p99_ns}: {unmarked:?}"
            );
            assert_eq!(unmarked.is_nearest, is_nearest, "{p99_ns}");
        }
    }

    #[test]
    fn a_target_is_held_within_the_tolerance_of_its_load() {
        let poisson = Arrivals::Poisson { per_s: 1.0 };
        let uniform = Arrivals::Uniform { per_s: 1.0 };
        let of = |load, arrivals, p99, missed| {
            let tolerance = Tolerance::of(load, arrivals);
            Verdict::of(&tolerance, 10.0, p99, missed, (8.0, 20.0))
        };
        assert_eq!(of(0.2, &poisson, 10.19, 0.01), Verdict::Held);
        assert_eq!(of(0.2, &poisson, 10.21, 0.01), Verdict::Passed);
        assert_eq!(of(0.2, &poisson, 9.49, 0.01), Verdict::Unspent);
        assert_eq!(of(0.2, &poisson, 10.1, 0.0111), Verdict::Misses);
        assert_eq!(of(0.5, &poisson, 10.29, 0.0114), Verdict::Held);
        assert_eq!(of(0.7, &poisson, 10.59, 0.0139), Verdict::Held);
        assert_eq!(of(0.7, &poisson, 9.21, 0.0139), Verdict::Held);
        assert_eq!(of(0.7, &uniform, 10.11, 0.01), Verdict::Passed);
        assert_eq!(of(0.7, &uniform, 9.91, 0.01), Verdict::Held);
    }

    #[test]
    fn what_is_far_or_cannot_be_reached_does_not_count() {
        let tolerance = Tolerance::of(0.2, &Arrivals::Closed);
        let of = |ends| Verdict::of(&tolerance, 10.0, 30.0, 1.0, ends);
        assert_eq!(of((10.0, 11.2)), Verdict::Passed);
        assert_eq!(of((10.0, 11.0)), Verdict::Far);
        assert_eq!(of((10.1, 40.0)), Verdict::Unreachable);
    }

    #[test]
    fn a_miss_more_than_the_bound_is_found() {
        let view = |misses, misses_at_floor| SloView {
            goal: Goal {
                slo: Slo::Slowdown(2.0),
                miss: 0.01,
            },
            target_ns: None,
            measured_ns: None,
            level: 0.0,
            slope: None,
            requests: 1_000,
            misses,
            misses_at_floor,
            end: SloEnd::Held,
        };
        // 0.01 × (1000 + 7000) = 80.
        assert!(keeps_bound(&view(80, 0)));
        assert!(!keeps_bound(&view(81, 0)));
        assert!(keeps_bound(&view(181, 101)));
    }
}
