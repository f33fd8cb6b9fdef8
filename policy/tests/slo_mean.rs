//! The level for a mean, on nonlinear plants, from any start.

use policy::slo::GREATEST;
use policy::slo_mean::{MEAN_LEAST, MeanLevel, Period};
use proptest::prelude::*;

/// The mean latency at a level, in slacks: grows with the duty up to −1, and with the work beside
/// requests above it. Where it is 1 its slope is 0.5 to 2.5.
#[derive(Clone, Copy, Debug)]
struct Plant {
    duty: f64,
    beside: f64,
    power: f64,
}

impl Plant {
    fn mean(&self, value: f64) -> f64 {
        let duty = ((value - MEAN_LEAST) / 4.0).clamp(0.0, 1.0);
        self.duty * duty + self.beside * (value + 1.0).max(0.0).powf(self.power)
    }

    fn reaches_target(&self) -> bool {
        self.mean(MEAN_LEAST + 0.1) < 1.0 && self.mean(GREATEST - 0.1) > 1.0
    }
}

/// The means of periods, each with noise up to `most`, which the law knows.
fn run(level: &mut MeanLevel, plant: &Plant, noise: &[f64], most: f64) -> Vec<f64> {
    let periods = noise.iter().map(|noise| {
        let mean = plant.mean(level.value());
        level.handle_period(&Period {
            mean: mean + noise * most,
            // Uniform between both ends.
            error: most / 3.0_f64.sqrt(),
            may_rise: true,
        });
        mean
    });
    periods.collect()
}

/// A number from 0 to 1 (xorshift, Marsaglia 2003).
fn drawn(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

fn drawn_plant(state: &mut u64) -> Plant {
    loop {
        let plant = Plant {
            duty: 0.6 * drawn(state),
            beside: 0.4 + 1.6 * drawn(state),
            power: 0.7 + 0.9 * drawn(state),
        };
        if plant.reaches_target() {
            return plant;
        }
    }
}

/// Over 10 000 plants, from any start or after 40 periods of another plant: how many have a mean
/// after the tenth period that is off by more than 0.07 slacks (2 % of a target of 1.4 times solo);
/// and the greatest error.
fn off_after_ten_periods(is_after_another: bool) -> (u32, f64) {
    let (mut state, mut off, mut most) = (88_172_645_463_325_252, 0, 0.0_f64);
    for _ in 0..10_000 {
        let (plant, other) = (drawn_plant(&mut state), drawn_plant(&mut state));
        let start = MEAN_LEAST + (GREATEST - MEAN_LEAST) * drawn(&mut state);
        let mut level = MeanLevel::begin(start);
        if is_after_another {
            run(&mut level, &other, &[0.0; 40], 0.0);
        }
        let means = run(&mut level, &plant, &[0.0; 100], 0.0);
        let errors = means.iter().skip(10).map(|mean| (mean - 1.0).abs());
        let worst = errors.fold(0.0, f64::max);
        off += u32::from(worst > 0.07);
        most = most.max(worst);
        let at = level.value();
        let slope = (plant.mean(at + 0.01) - plant.mean(at - 0.01)) / 0.02;
        let known = level.slope();
        let is_it = known.is_some_and(|known| (0.5..2.0).contains(&(known.m / slope)));
        assert!(is_it, "{known:?}, {slope}");
    }
    (off, most)
}

#[test]
fn the_target_is_held_after_ten_periods_from_any_start() {
    let (off, most) = off_after_ten_periods(false);
    assert!(off <= 2 && most < 0.15, "{off} of 10 000, {most} slacks");
}

#[test]
fn a_plant_that_changes_is_followed_within_ten_periods() {
    let (off, most) = off_after_ten_periods(true);
    assert!(off <= 2 && most < 0.15, "{off} of 10 000, {most} slacks");
}

/// Over 1000 plants with noise up to `most`: the worst mean of the means; the median deviation of
/// single ones; and the worst autocorrelation at a lag of one, in the direction of a cycle of two.
fn with_noise(most: f64) -> (f64, f64, f64) {
    let mut state = 88_172_645_463_325_252;
    let (mut off, mut spreads, mut cycle) = (0.0_f64, Vec::new(), 0.0_f64);
    for _ in 0..1_000 {
        let plant = drawn_plant(&mut state);
        let start = MEAN_LEAST + (GREATEST - MEAN_LEAST) * drawn(&mut state);
        let noise: Vec<f64> = (0..400).map(|_| 2.0 * drawn(&mut state) - 1.0).collect();
        let means = run(&mut MeanLevel::begin(start), &plant, &noise, most);
        let late = &means[50..];
        let mean = mean_of(late);
        off = off.max((mean - 1.0).abs());
        let squares: Vec<f64> = late.iter().map(|m| (m - mean).powi(2)).collect();
        let products: Vec<f64> = late
            .windows(2)
            .map(|w| (w[0] - mean) * (w[1] - mean))
            .collect();
        spreads.push(mean_of(&squares).sqrt());
        cycle = cycle.min(mean_of(&products) / mean_of(&squares));
    }
    spreads.sort_by(f64::total_cmp);
    (off, spreads[500], cycle)
}

/// The standard deviation of the noise is 0.58 of `most`.
#[test]
fn noise_makes_no_limit_cycle() {
    for (most, off_most, spread_most) in NOISE {
        let (off, spread, cycle) = with_noise(most);
        assert!(off <= off_most, "{most}: {off}");
        assert!(spread <= spread_most, "{most}: {spread}");
        assert!(cycle > -0.4, "{most}: {cycle}");
    }
}

const NOISE: [(f64, f64, f64); 3] = [(0.05, 0.01, 0.03), (0.2, 0.03, 0.09), (0.4, 0.06, 0.18)];

fn mean_of(means: &[f64]) -> f64 {
    means.iter().sum::<f64>() / means.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn it_stays_within_its_range_whatever_it_is_told(
        periods in prop::collection::vec((any::<f64>(), any::<f64>(), any::<bool>()), 0..60),
        start in any::<f64>(),
    ) {
        let mut level = MeanLevel::begin(start);
        for (mean, error, may_rise) in periods {
            let before = level.value();
            level.handle_period(&Period { mean, error, may_rise });
            prop_assert!((MEAN_LEAST..=GREATEST).contains(&level.value()), "{level:?}");
            // Except for the alternating move of the applied level.
            prop_assert!(may_rise || level.value() <= before + 0.04 + 1e-9, "{before}, {level:?}");
        }
    }
}

#[test]
fn it_comes_to_the_ends_and_back_without_windup() {
    let mut level = MeanLevel::default();
    let told = |level: &mut MeanLevel, mean| {
        level.handle_period(&Period {
            mean,
            error: 0.0,
            may_rise: true,
        });
    };
    for _ in 0..100 {
        told(&mut level, 0.3);
    }
    assert!(level.value() > GREATEST - 0.05, "{level:?}");
    for _ in 0..100 {
        told(&mut level, 3.0);
    }
    assert!(level.value() < MEAN_LEAST + 0.05, "{level:?}");
    // From there it needs six units, and has made them after eight periods.
    for _ in 0..8 {
        told(&mut level, 0.3);
    }
    assert!(level.value() > 0.0, "{level:?}");
}

#[test]
fn the_part_of_the_scale_in_which_nothing_changes_is_left_out() {
    for (value, at) in [
        (1.0, 1.0),
        (-0.5, -0.5),
        (-1.5, -2.5),
        (MEAN_LEAST, policy::slo::LEAST),
    ] {
        let mut level = MeanLevel::begin(value);
        level.handle_period(&Period {
            mean: 1.0,
            error: 0.0,
            may_rise: true,
        });
        assert!((level.level() - at).abs() < 0.021, "{value}: {level:?}");
        assert!((MeanLevel::value_of(at) - value).abs() < 1e-9);
    }
    assert_eq!(MeanLevel::value_of(-1.3), -1.0);
}
