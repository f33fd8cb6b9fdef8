//! The fit of two lines: recovers two lines, has no better fit, and refuses invalid samples.

use policy::latency_model::{
    FitError, PieceWise, SAMPLE_SHARES, SAMPLES_MAX, SAMPLES_MIN, SHARE_MARGIN, fit,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Curve {
    knee: f64,
    p99: f64,
    below: f64,
    above: f64,
}

impl Curve {
    fn at(&self, share: f64) -> f64 {
        let off = share - self.knee;
        self.p99 + off * if off <= 0.0 { self.below } else { self.above }
    }

    fn samples(&self, shares: &[f64]) -> Vec<(f64, f64)> {
        let shares = shares.iter();
        shares.map(|&share| (share, self.at(share))).collect()
    }
}

/// In milliseconds; bent up as latencies are, or down. Above 0 at share 1.
fn any_curve() -> impl Strategy<Value = Curve> {
    let slopes = prop_oneof![
        (1.0..100.0_f64, 0.0..0.8_f64),
        (0.0..0.8_f64, 1.0..10.0_f64),
        (Just(0.0), 1.0..10.0_f64),
        (1.0..100.0_f64, Just(0.0)),
    ];
    let scale = prop_oneof![Just(1.0), Just(1e6)];
    (0.05..0.95_f64, 10.0..50.0_f64, slopes, scale).prop_map(
        |(knee, p99, (below, above), scale)| Curve {
            knee,
            p99: p99 * scale,
            below: -below * scale,
            above: -above * scale,
        },
    )
}

/// At least two on each side of the knee, at least a hundredth apart, in any order.
fn any_shares(knee: f64) -> impl Strategy<Value = Vec<f64>> {
    let side = |from: f64, to: f64| {
        let gaps = prop::collection::vec(0.1..1.0_f64, 3..8);
        gaps.prop_map(move |gaps| {
            let whole: f64 = gaps.iter().sum();
            let mut at = from;
            let inner = gaps.iter().take(gaps.len() - 1);
            inner
                .map(|gap| {
                    at += (to - from) * gap / whole;
                    at
                })
                .collect::<Vec<f64>>()
        })
    };
    (side(0.0, knee), side(knee, 1.0), any::<u64>()).prop_map(|(mut shares, above, seed)| {
        shares.extend(above);
        let turns = seed as usize % shares.len();
        shares.rotate_left(turns);
        shares
    })
}

fn curve_and_shares() -> impl Strategy<Value = (Curve, Vec<f64>)> {
    let both = any_curve().prop_flat_map(|curve| {
        let shares = any_shares(curve.knee);
        (Just(curve), shares)
    });
    both.prop_filter("enough", |(_, shares)| shares.len() >= SAMPLES_MIN)
}

/// Any latencies, also rising ones.
fn any_samples() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let places = prop::sample::subsequence((1..=20).collect::<Vec<u32>>(), SAMPLES_MIN..9);
    places.prop_flat_map(|places| {
        let latencies = prop::collection::vec(1.0..20.0_f64, places.len());
        let shares = places.into_iter().map(|place| f64::from(place) / 20.0);
        let shares: Vec<f64> = shares.collect();
        latencies.prop_map(move |latencies| shares.iter().copied().zip(latencies).collect())
    })
}

fn residual(samples: &[(f64, f64)], at: impl Fn(f64) -> f64) -> f64 {
    let errors = samples.iter().map(|&(share, p99)| (at(share) - p99) / p99);
    errors.map(|error| error * error).sum()
}

proptest! {
    #[test]
    fn two_lines_without_noise_are_recovered((curve, shares) in curve_and_shares()) {
        let model = fit(&curve.samples(&shares)).expect("they are right");
        let close = |got: f64, want: f64, scale: f64| (got - want).abs() <= 1e-6 * scale;
        prop_assert!(close(model.knee_share, curve.knee, 1.0), "{model:?}");
        prop_assert!(close(model.knee_p99, curve.p99, curve.p99), "{model:?}");
        prop_assert!(close(model.slope_below, curve.below, curve.p99), "{model:?}");
        prop_assert!(close(model.slope_above, curve.above, curve.p99), "{model:?}");
        prop_assert!(model.residual < 1e-18);
        for share in 1..=100 {
            let share = f64::from(share) / 100.0;
            prop_assert!(close(model.at(share), curve.at(share), curve.p99));
        }
    }

    #[test]
    fn one_line_is_recovered_as_one(p99 in 10.0..50.0_f64, slope in 0.0..9.0_f64, shares in any_shares(0.5)) {
        prop_assume!(shares.len() >= SAMPLES_MIN);
        let samples: Vec<_> = shares.iter().map(|&share| (share, p99 - slope * share)).collect();
        let model = fit(&samples).expect("they are right");
        prop_assert_eq!(model.slope_below, model.slope_above);
        for share in [0.01, 0.3, 0.7, 1.0] {
            prop_assert!((model.at(share) - (p99 - slope * share)).abs() < 1e-6);
        }
    }

    #[test]
    fn latencies_that_rise_are_fitted_by_a_level(slope in 0.1..9.0_f64, shares in any_shares(0.5)) {
        prop_assume!(shares.len() >= SAMPLES_MIN);
        let samples: Vec<_> = shares.iter().map(|&share| (share, 5.0 + slope * share)).collect();
        let model = fit(&samples).expect("they are right");
        prop_assert_eq!((model.slope_below, model.slope_above), (0.0, 0.0));
    }

    #[test]
    fn slopes_do_not_rise_and_the_residual_is_that_of_the_samples(samples in any_samples()) {
        let model = fit(&samples).expect("they are right");
        prop_assert!(model.slope_below <= 0.0 && model.slope_above <= 0.0);
        let of_samples = residual(&samples, |share| model.at(share));
        prop_assert!((of_samples - model.residual).abs() <= 1e-12 * (1.0 + of_samples));
        let least = samples.iter().map(|of| of.0).fold(1.0, f64::min);
        let greatest = samples.iter().map(|of| of.0).fold(0.0, f64::max);
        prop_assert_eq!(model.sampled, [least, greatest]);
        prop_assert!((least..=greatest).contains(&model.knee_share));
    }

    #[test]
    fn the_least_share_is_where_the_limit_is_crossed(samples in any_samples(), limit in 1.0..20.0_f64) {
        let model = fit(&samples).expect("they are right");
        let [least, greatest] = model.sampled;
        match model.least_share(limit) {
            None => prop_assert!(model.at(greatest) > limit),
            Some(share) => {
                prop_assert!((least..=greatest).contains(&share));
                prop_assert!(model.at(share) <= limit * (1.0 + 1e-9));
                let before = share - 1e-6;
                prop_assert!(share == least || model.at(before) > limit * (1.0 - 1e-9));
                let margin = model.share_with_margin(limit);
                prop_assert_eq!(margin, Some((share * (1.0 + SHARE_MARGIN)).min(1.0)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Knees and slopes on a grid of about a hundredth, then finer about the best.
    #[test]
    fn no_two_lines_of_a_grid_fit_better(samples in any_samples()) {
        let model = fit(&samples).expect("they are right");
        let [least, greatest] = model.sampled;
        let steepest = 20.0 / 0.05;
        let whole = [(least, greatest), (-steepest, 0.0), (-steepest, 0.0)];
        let mut best = searched(&samples, whole);
        let mut width = 1.0;
        for _ in 0..12 {
            width *= 0.5;
            let around = |index: usize| {
                let (from, to): (f64, f64) = whole[index];
                let half = (to - from) * width / 2.0;
                ((best.1[index] - half).max(from), (best.1[index] + half).min(to))
            };
            let nearer = searched(&samples, [around(0), around(1), around(2)]);
            if nearer.0 < best.0 {
                best = nearer;
            }
        }
        prop_assert!(model.residual <= best.0 + 1e-12, "{} > {best:?}", model.residual);
        prop_assert!(best.0 <= model.residual * 1.5 + 1e-3, "{} < {best:?}", model.residual);
    }
}

/// The least residual on a grid within these bounds of knee and slopes, and its place.
fn searched(samples: &[(f64, f64)], bounds: [(f64, f64); 3]) -> (f64, [f64; 3]) {
    const PLACES: u32 = 40;
    let place = |index: u32, (from, to): (f64, f64)| {
        from + (to - from) * f64::from(index) / f64::from(PLACES)
    };
    let mut best = (f64::INFINITY, [0.0; 3]);
    for knee in (0..=PLACES).map(|index| place(index, bounds[0])) {
        for below in (0..=PLACES).map(|index| place(index, bounds[1])) {
            for above in (0..=PLACES).map(|index| place(index, bounds[2])) {
                let bend = |share: f64| (share - knee) * if share <= knee { below } else { above };
                let weights = samples.iter().map(|&(_, p99)| 1.0 / (p99 * p99));
                let rests = samples
                    .iter()
                    .map(|&(share, p99)| (p99 - bend(share)) / (p99 * p99));
                let level = rests.sum::<f64>() / weights.sum::<f64>();
                let of_grid = residual(samples, |share| level + bend(share));
                if of_grid < best.0 {
                    best = (of_grid, [knee, below, above]);
                }
            }
        }
    }
    best
}

fn worked() -> PieceWise {
    let curve = Curve {
        knee: 0.4,
        p99: 20.0,
        below: -100.0,
        above: -10.0,
    };
    fit(&curve.samples(&SAMPLE_SHARES)).expect("they are right")
}

#[test]
fn a_share_follows_from_a_limit() {
    // 50 ms at .1, 20 at .4, 15 at .9.
    let model = worked();
    let near = |got: Option<f64>, want: f64| got.is_some_and(|got| (got - want).abs() < 1e-9);
    assert!(near(model.least_share(30.0), 0.3));
    assert!(near(model.least_share(20.0), 0.4));
    assert!(near(model.least_share(18.0), 0.6));
    assert!(near(model.share_with_margin(18.0), 0.66));
    // Nothing is known below a tenth, and a limit that .9 does not keep is kept by none.
    assert_eq!(model.least_share(1000.0), Some(0.1));
    assert_eq!(model.least_share(14.9), None);
    assert_eq!(model.least_share(f64::NAN), None);
    assert!(near(model.share_with_margin(15.1), 0.979));
    // The margin leaves nothing beyond the whole GPU.
    let flat = fit(&[(0.5, 9.0), (0.6, 8.0), (0.8, 7.0), (0.95, 6.0), (1.0, 5.0)]).expect("right");
    assert_eq!(flat.share_with_margin(flat.at(1.0)), Some(1.0));
}

#[test]
fn what_is_no_curve_is_refused_in_words() {
    let five = [(0.1, 5.0), (0.3, 4.0), (0.5, 3.0), (0.7, 2.0), (0.9, 1.0)];
    assert!(fit(&five).is_ok());
    let refused = |samples: &[(f64, f64)]| fit(samples).expect_err("it is wrong").to_string();
    assert_eq!(refused(&five[..4]), "4 samples: a fit needs at least 5");
    let many: Vec<_> = (1..=65).map(|of| (f64::from(of) / 65.0, 1.0)).collect();
    assert!(fit(&many[..SAMPLES_MAX]).is_ok());
    assert_eq!(refused(&many), "65 samples: a fit takes at most 64");
    let with = |sample| [five[0], five[1], five[2], five[3], sample];
    for share in [0.0, -0.1, 1.000_001, f64::NAN, f64::INFINITY] {
        let error = FitError::Share { share }.to_string();
        assert_eq!(refused(&with((share, 1.0))), error);
        assert_eq!(
            error,
            format!("share {share}: expected more than 0 and at most 1")
        );
    }
    for p99 in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e16, 1e-13] {
        assert_eq!(
            refused(&with((0.9, p99))),
            format!("latency {p99} at share 0.9: expected 1e-12 to 1e15")
        );
    }
    assert_eq!(
        refused(&with((0.5, 1.0))),
        "two samples at share 0.5: shares must differ"
    );
}
