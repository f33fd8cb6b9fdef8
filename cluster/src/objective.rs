//! Which GPU and which setting suit an inference task: `OLTunes`' objective (2025, section 3.3.3).
//! For every GPU and every combination of batch, share of the SMs and memory, a predictor gives a
//! latency ŷ and a throughput. The best has the greatest score (equation 4; T is the deadline)
//!
//! f = λ / ŷ + (1 − λ) · throughput + α · max(0, T − ŷ) − β · EPC
//!
//! EPC is the *estimated power consumption* (equation 7): a score, no energy, as it adds watts to
//! watts × seconds. Latencies are in s, memory in bytes, shares of the SMs 0 to 1.
//!
//! # What is chosen here
//! - **Sign of EPC.** The paper adds β · EPC to what is maximised, and its examples prefer less of
//!   it. So it is subtracted. The term in α rewards slack, as written.
//! - **Scale.** The paper adds seconds, rates and watts. Here each term is normalised over the
//!   task's candidates to 0 to 1: 1/ŷ, the throughput and EPC by their greatest value, the slack by
//!   T. A weight then says how much a term may outweigh another, on any set of GPUs.
//! - **Weights.** α and the least and greatest β are not published ([`Weights`]). β "denotes the
//!   overall system load": it grows in a straight line with the load.
//! - **How many.** The text keeps "the best three combinations", equation 5 the "top 2" GPUs.
//!   [`choose`] takes the two GPUs with the greatest f, then the three best combinations on those.

use crate::energy::Power;
use crate::inventory::ModelId;

/// GPUs that a task keeps (equation 5).
pub const GPUS_KEPT: usize = 2;

/// Combinations that it keeps (section 3.3.3).
pub const COMBINATIONS_KEPT: usize = 3;

/// Weights of the terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// α, of slack.
    pub alpha: f64,
    /// β of an idle cluster.
    pub beta_idle: f64,
    /// β of a cluster in full use.
    pub beta_full: f64,
}

impl Default for Weights {
    /// Slack and speed count alike; energy never outweighs either alone.
    fn default() -> Self {
        Self {
            alpha: 1.0,
            beta_idle: 0.1,
            beta_full: 1.0,
        }
    }
}

impl Weights {
    /// β at a load, which is clamped to 0 to 1.
    #[must_use]
    pub fn beta(&self, load: f64) -> f64 {
        self.beta_idle + (self.beta_full - self.beta_idle) * load.clamp(0.0, 1.0)
    }
}

/// The properties of a task that the objective uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish {
    /// λ: weight of latency, 0 to 1. Above 0.5 a task is latency-critical (LC), else the other
    /// (TO).
    pub lambda: f64,
    /// T, s.
    pub deadline_s: f64,
}

/// A setting on a model of GPU, and its predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combination {
    /// The model of GPU.
    pub gpu: ModelId,
    /// Inputs of a run.
    pub batch: u32,
    /// Share of the SMs, 0 to 1.
    pub share: f64,
    /// Memory that the task then uses.
    pub memory_bytes: u64,
    /// ŷ of a run, s.
    pub latency_s: f64,
    /// Inputs a second.
    pub throughput_per_s: f64,
    /// `OLTunes`' score of power ([`epc`]), without unit.
    pub epc: f64,
}

/// Equation 7: `memory` is the used part of the GPU's. The number has no unit.
#[must_use]
pub fn epc(power: Power, share: f64, memory: f64, latency_s: f64) -> f64 {
    power.idle_w + (power.tdp_w - power.idle_w) * share * memory * latency_s
}

/// The candidates that a task keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// Its GPUs, the best first, at most [`GPUS_KEPT`].
    pub gpus: Vec<ModelId>,
    /// On these GPUs, the best first, at most [`COMBINATIONS_KEPT`].
    pub combinations: Vec<Combination>,
}

/// The best GPUs and combinations, at a load of 0 to 1. Equal scores keep the candidates' order.
///
/// # Panics
/// If a latency is not positive or a score is no number: predictions are checked before.
#[must_use]
pub fn choose(wish: Wish, candidates: &[Combination], weights: &Weights, load: f64) -> Choice {
    let scores = scores(wish, candidates, weights, load);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&one, &other| scores[other].total_cmp(&scores[one]));
    let mut choice = Choice::default();
    for &place in &order {
        let gpu = candidates[place].gpu;
        if !choice.gpus.contains(&gpu) && choice.gpus.len() < GPUS_KEPT {
            choice.gpus.push(gpu);
        }
    }
    let ordered = order.iter().map(|&place| candidates[place]);
    let kept = ordered.filter(|combination| choice.gpus.contains(&combination.gpu));
    choice.combinations = kept.take(COMBINATIONS_KEPT).collect();
    choice
}

/// f of each candidate.
///
/// # Panics
/// As [`choose`].
#[must_use]
pub fn scores(wish: Wish, candidates: &[Combination], weights: &Weights, load: f64) -> Vec<f64> {
    let most = |of: fn(&Combination) -> f64| candidates.iter().map(of).fold(0.0, f64::max);
    let speed = |combination: &Combination| 1.0 / combination.latency_s;
    let (fastest, widest) = (most(speed), most(|with| with.throughput_per_s));
    let dearest = most(|with| with.epc);
    let part = |value: f64, most: f64| if most > 0.0 { value / most } else { 0.0 };
    let of = candidates.iter().map(|with| {
        let slack = (wish.deadline_s - with.latency_s).max(0.0);
        let score = wish.lambda * part(speed(with), fastest)
            + (1.0 - wish.lambda) * part(with.throughput_per_s, widest)
            + weights.alpha * part(slack, wish.deadline_s)
            - weights.beta(load) * part(with.epc, dearest);
        assert!(with.latency_s > 0.0 && score.is_finite(), "{with:?}");
        score
    });
    of.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Power = Power {
        idle_w: 60.0,
        tdp_w: 300.0,
    };
    const B: Power = Power {
        idle_w: 60.0,
        tdp_w: 200.0,
    };
    const GIB: u64 = 1 << 30;

    fn on(gpu: u16, batch: u32, latency_s: f64, epc: f64) -> Combination {
        Combination {
            gpu: ModelId(gpu),
            batch,
            share: 1.0,
            memory_bytes: GIB,
            latency_s,
            throughput_per_s: f64::from(batch) / latency_s,
            epc,
        }
    }

    #[test]
    fn the_estimate_gives_the_papers_four_examples() {
        assert!((epc(A, 0.7, 8.0 / 16.0, 12.0) - 1068.0).abs() < 1e-9);
        assert!((epc(B, 0.7, 6.0 / 12.0, 19.0) - 991.0).abs() < 1e-9);
        assert!((epc(A, 0.2, 8.0 / 16.0, 2.0) - 108.0).abs() < 1e-9);
        // The text says 3.5 s, the equation below it 3.8 s: 113.2 is that of the latter.
        assert!((epc(B, 0.2, 6.0 / 12.0, 3.8) - 113.2).abs() < 1e-9);
        assert!((epc(B, 0.2, 6.0 / 12.0, 3.5) - 109.0).abs() < 1e-9);
    }

    #[test]
    fn of_two_that_differ_in_power_alone_the_cheaper_wins_and_by_more_under_load() {
        let wish = Wish {
            lambda: 0.3,
            deadline_s: 60.0,
        };
        let both = [on(0, 8, 12.0, 1068.0), on(1, 8, 12.0, 991.0)];
        let difference = |load| {
            let of = scores(wish, &both, &Weights::default(), load);
            of[1] - of[0]
        };
        assert!(difference(0.0) > 0.0);
        assert!(difference(1.0) > 5.0 * difference(0.0));
        let choice = choose(wish, &both, &Weights::default(), 0.5);
        assert_eq!(choice.gpus, [ModelId(1), ModelId(0)]);
    }

    #[test]
    fn two_gpus_are_kept_and_three_combinations_of_these() {
        let wish = Wish {
            lambda: 0.9,
            deadline_s: 10.0,
        };
        let all = [
            on(0, 1, 1.0, 100.0),
            on(1, 1, 1.5, 100.0),
            on(2, 1, 9.0, 100.0),
            on(0, 8, 2.0, 100.0),
            on(1, 8, 3.0, 100.0),
        ];
        let choice = choose(wish, &all, &Weights::default(), 0.0);
        assert_eq!(choice.gpus, [ModelId(0), ModelId(1)]);
        assert_eq!(choice.combinations, [all[0], all[1], all[3]]);
    }

    #[test]
    fn a_critical_task_prefers_latency_and_one_for_throughput_the_large_batch() {
        let all = [on(0, 1, 0.01, 100.0), on(0, 32, 0.1, 100.0)];
        let best = |lambda| {
            let wish = Wish {
                lambda,
                deadline_s: 60.0,
            };
            choose(wish, &all, &Weights::default(), 0.0).combinations[0].batch
        };
        assert_eq!((best(0.9), best(0.1)), (1, 32));
    }

    #[test]
    fn a_task_without_candidates_keeps_nothing() {
        let wish = Wish {
            lambda: 0.9,
            deadline_s: 10.0,
        };
        assert_eq!(
            choose(wish, &[], &Weights::default(), 0.0),
            Choice::default()
        );
    }

    proptest! {
        #[test]
        fn less_latency_or_less_power_never_scores_less(
            lambda in 0.0..1.0f64, latency in 0.1..10.0f64, faster in 0.1..1.0f64,
            epc in 60.0..1e3f64, cheaper in 0.1..1.0f64, load in 0.0..1.0f64,
        ) {
            let wish = Wish { lambda, deadline_s: 5.0 };
            let all = [
                on(0, 4, latency, epc),
                on(1, 4, latency * faster, epc),
                on(2, 4, latency, epc * cheaper),
            ];
            let of = scores(wish, &all, &Weights::default(), load);
            prop_assert!(of[1] >= of[0] && of[2] >= of[0], "{of:?}");
        }

        #[test]
        fn scores_do_not_depend_on_units(scale in 0.01..100.0f64, load in 0.0..1.0f64) {
            let plain = [on(0, 4, 1.0, 100.0), on(1, 8, 1.5, 80.0), on(2, 1, 0.2, 300.0)];
            let scaled = plain.map(|with| Combination {
                latency_s: with.latency_s * scale,
                throughput_per_s: with.throughput_per_s / scale,
                ..with
            });
            let wish = |deadline_s| Wish { lambda: 0.6, deadline_s };
            let [one, other] = [(wish(2.0), plain), (wish(2.0 * scale), scaled)]
                .map(|(wish, all)| scores(wish, &all, &Weights::default(), load));
            for (one, other) in one.iter().zip(&other) {
                prop_assert!((one - other).abs() < 1e-9);
            }
        }
    }
}
