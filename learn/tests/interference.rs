//! The model of interference.

use learn::interference::{
    Curve, ITERATIONS_MS, InterferenceError, KINDS, Kept, Learner, Method, Model, Neighbours,
    Number, Prediction, SAMPLES_MAX, SERVICES_MAX, SLOPE_MAX, Sample, Settings, TREES_MAX, fit,
};
use policy::latency_model;

const BATCHES: [u32; 4] = [1, 4, 16, 64];

/// Twelve networks with as many convolutions and activations as their number.
fn neighbours(network: u32) -> Neighbours {
    let mut layers = [0; KINDS];
    layers[0] = 4 * network * network;
    layers[2] = 3 + network;
    Neighbours {
        layers,
        iteration_ms: None,
    }
}

/// A service of 2 ms in batches of 1, slowed by a part that grows with the layers.
fn sample(network: u32, batch: u32) -> Sample {
    let neighbours = neighbours(network);
    let slowed = 1.0 + 0.1 * f64::from(neighbours.layers[0]).ln_1p();
    let alone_p99 = 2.0 * f64::from(batch);
    Sample {
        service: 7,
        batch,
        neighbours,
        alone_p99,
        curve: Curve {
            knee_share: 0.4,
            knee_p99: 1.5 * alone_p99 * slowed,
            slope_below: -9.0 * alone_p99 * slowed,
            slope_above: -0.5 * alone_p99 * slowed,
            sampled: [0.1, 0.9],
        },
        speeds: Some([0.9, 0.8, 0.7, 0.5, 0.3, 0.1].map(|speed| speed / slowed)),
    }
}

fn samples(networks: impl Iterator<Item = u32>) -> Vec<Sample> {
    let pairs = networks.flat_map(|network| BATCHES.map(|batch| (network, batch)));
    pairs
        .map(|(network, batch)| sample(network, batch))
        .collect()
}

fn fitted(samples: &[Sample]) -> Model {
    fit(samples, &Settings::default()).expect("there are samples")
}

fn learner() -> Learner {
    Learner::new(Settings::default()).expect("the default is within bounds")
}

fn asked(model: &Model, batch: u32, alone_p99: f64, beside: &Neighbours) -> Prediction {
    let found = model.predict(batch, alone_p99, beside);
    found.expect("the question is within bounds")
}

#[test]
fn a_network_that_was_never_measured_is_predicted_from_its_layers() {
    let model = fitted(&samples((0..12).filter(|network| *network != 6)));
    let truth = sample(6, 16);
    let found = asked(&model, 16, truth.alone_p99, &truth.neighbours);
    let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.03;
    assert!(
        near(found.curve.knee_p99, truth.curve.knee_p99),
        "{found:?}"
    );
    assert!(
        near(found.curve.slope_below, truth.curve.slope_below),
        "{found:?}"
    );
    assert!(
        near(found.curve.slope_above, truth.curve.slope_above),
        "{found:?}"
    );
    assert!(near(found.curve.knee_share, 0.4), "{found:?}");
    assert_ne!(model.choice(Number::KneeP99, false).method, Method::Mean);
    for (found, truth) in found.speeds.unwrap().iter().zip(truth.speeds.unwrap()) {
        assert!(near(*found, truth), "{found} {truth}");
    }
}

#[test]
fn a_batch_that_was_never_measured_is_predicted_from_those_beside_it() {
    let model = fitted(&samples(0..12));
    let truth = sample(5, 8);
    let found = asked(&model, 8, truth.alone_p99, &truth.neighbours).curve;
    assert!((found.knee_p99 / truth.curve.knee_p99 - 1.0).abs() < 0.05);
}

/// Layers take e^0.5 times as long from one to the next, and slow the service by e^0.1.
fn timed(network: u32, batch: u32) -> Sample {
    let mut sample = sample(1, batch);
    sample.neighbours.layers[4] = network;
    let layers = sample.neighbours.layers.iter().sum::<u32>();
    sample.neighbours.iteration_ms = Some(f64::from(layers) * f64::exp(0.5 * f64::from(network)));
    let slowed = f64::exp(0.1 * f64::from(network));
    sample.curve.knee_p99 *= slowed;
    sample.curve.slope_below *= slowed;
    sample.curve.slope_above *= slowed;
    sample
}

#[test]
fn predictions_are_latencies() {
    let networks = 0..9;
    let samples: Vec<Sample> = networks
        .flat_map(|network| BATCHES.map(|batch| timed(network, batch)))
        .collect();
    let most = samples.iter().map(|s| s.curve.knee_p99 / s.alone_p99);
    let most = most.fold(0.0, f64::max);
    let model = fitted(&samples);
    for number in [Number::KneeP99, Number::SlopeBelow, Number::SlopeAbove] {
        assert_eq!(model.choice(number, true).method, Method::Ridge);
    }
    for counts in [[0; KINDS], [u32::MAX; KINDS], [1; KINDS]] {
        for batch in [1, 1000, u32::MAX] {
            for time in [
                None,
                Some(*ITERATIONS_MS.start()),
                Some(*ITERATIONS_MS.end()),
            ] {
                let beside = Neighbours {
                    layers: counts,
                    iteration_ms: time,
                };
                let found = asked(&model, batch, 2.0, &beside);
                let curve = found.curve;
                let numbers = [curve.slope_below, curve.slope_above, curve.knee_p99];
                assert!(numbers.iter().all(|number| number.is_finite()), "{curve:?}");
                assert!(curve.slope_below < 0.0 && curve.slope_above < 0.0);
                assert!((0.1..=0.9).contains(&curve.knee_share), "{curve:?}");
                assert!(curve.at(0.1) > 0.0 && curve.at(0.9) > 0.0, "{curve:?}");
                assert!(curve.knee_p99 <= 2.0 * most * (1.0 + 1e-9), "{curve:?}");
                let speeds = found.speeds.unwrap();
                assert!(speeds.iter().all(|speed| (0.0..=1.0).contains(speed)));
            }
        }
    }
}

#[test]
fn a_question_without_an_answer_is_refused() {
    let model = fitted(&samples(0..4));
    let beside = neighbours(1);
    let asked = |batch, alone_p99| model.predict(batch, alone_p99, &beside).err();
    assert_eq!(asked(0, 2.0), Some(InterferenceError::Batch));
    for p99 in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let error = asked(1, p99);
        assert!(matches!(error, Some(InterferenceError::Latency { .. })));
    }
    for time in [0.0, -1.0, f64::INFINITY, f64::NAN] {
        let beside = Neighbours {
            iteration_ms: Some(time),
            ..beside
        };
        let error = model.predict(1, 2.0, &beside).err();
        assert!(matches!(error, Some(InterferenceError::Iteration { .. })));
    }
}

/// If each measured time made a network, a method that memorises networks would win.
#[test]
fn what_networks_have_by_chance_is_not_learnt_from_times_that_jitter() {
    let by_chance = [3.0, -1.0, 2.0, -4.0, 1.0, 4.0, -3.0, 0.0, -2.0];
    let mut samples = Vec::new();
    for (network, chance) in (0..).zip(by_chance) {
        for (number, batch) in (0..).zip(BATCHES) {
            let mut sample = timed(network, batch);
            let jitter = 1.0 + 1e-3 * f64::sin(f64::from(7 * network + 3 * number));
            let time = sample.neighbours.iteration_ms;
            sample.neighbours.iteration_ms = time.map(|time| time * jitter);
            sample.curve.knee_p99 = sample.alone_p99 * f64::exp(0.2 * chance);
            samples.push(sample);
        }
    }
    let choice = fitted(&samples).choice(Number::KneeP99, true);
    assert_eq!(choice.method, Method::Mean, "{choice:?}");
}

/// Of two trainings with the same layers, one is twice as hard on the service as the other.
#[test]
fn trainings_with_equal_features_get_equal_predictions() {
    let (soft, mut hard) = (samples(0..5), samples(0..5));
    for sample in &mut hard {
        sample.curve.knee_p99 *= 2.0;
    }
    let found = |one: &[Sample], other: &[Sample]| {
        let model = fitted(&[one, other].concat());
        asked(&model, 4, 8.0, &neighbours(3))
    };
    let both = found(&soft, &hard);
    assert_eq!(found(&hard, &soft), both, "the last is not remembered");
    let hardness = both.curve.knee_p99 / sample(3, 4).curve.knee_p99;
    assert!(hardness > 1.2 && hardness < 1.8, "{hardness}");
}

#[test]
fn layers_of_several_trainings_are_summed() {
    let mut both = neighbours(2).and(neighbours(3));
    assert_eq!(both.layers[0], 16 + 36);
    assert_eq!(both.iteration_ms, None);
    both.iteration_ms = Some(3.0);
    let timed = both.and(both);
    assert_eq!(timed.iteration_ms, Some(6.0));
}

#[test]
fn the_order_of_samples_changes_nothing() {
    let mut samples = samples(0..6);
    let asked = |model: &Model| asked(model, 2, 3.0, &neighbours(9));
    let one = asked(&fitted(&samples));
    samples.reverse();
    samples.swap(3, 11);
    assert_eq!(asked(&fitted(&samples)), one);
}

#[test]
fn what_is_kept_gives_the_same_models_again() {
    let mut learner = learner();
    for sample in samples(0..5) {
        learner.push(sample).unwrap();
    }
    assert!(learner.model(7).is_none() && learner.refit(8).is_none());
    learner.swap(learner.refit(7).unwrap().run().unwrap());
    let kept = learner.kept();
    assert_eq!(kept.samples.len(), 20);
    let mut again = Learner::from_kept(Kept::clone(&kept)).unwrap();
    again.swap(again.refit(7).unwrap().run().unwrap());
    let asked = |of: &Learner| asked(of.model(7).unwrap(), 2, 3.0, &neighbours(9));
    assert_eq!(asked(&again), asked(&learner));
}

#[test]
fn a_refit_can_be_made_elsewhere() {
    fn sent<T: Send + 'static>(_: &T) {}
    let mut learner = learner();
    for sample in samples(0..3) {
        learner.push(sample).unwrap();
    }
    let refit = learner.refit(7).unwrap();
    sent(&refit);
    let before = refit.clone().run().unwrap();
    sent(&before);
    assert!(learner.swap(before));
    let (truth, beside) = (sample(11, 4), neighbours(11));
    let off = |learner: &Learner| {
        let model = learner.model(7).unwrap();
        let found = asked(model, 4, truth.alone_p99, &beside);
        (found.curve.knee_p99 / truth.curve.knee_p99 - 1.0).abs()
    };
    let old = off(&learner);
    for sample in samples(3..12) {
        learner.push(sample).unwrap();
    }
    assert_eq!(off(&learner), old, "samples are not known before the swap");
    let slow = refit.run().unwrap();
    assert!(learner.swap(learner.refit(7).unwrap().run().unwrap()));
    let new = off(&learner);
    assert!(new < 0.5 * old);
    assert!(!learner.swap(slow), "it was begun before the one served");
    assert_eq!(off(&learner), new);
}

#[test]
fn a_sample_replaces_those_of_the_same_pair_measured_before() {
    let kept = |times: &[Option<f64>]| {
        let mut learner = learner();
        for &time in times {
            let mut sample = sample(1, 4);
            sample.neighbours.iteration_ms = time;
            learner.push(sample).unwrap();
        }
        let times = learner.kept().samples.into_iter();
        let times = times.map(|sample| sample.neighbours.iteration_ms);
        times.collect::<Vec<_>>()
    };
    assert_eq!(kept(&[Some(5.0), Some(5.2)]), [Some(5.2)]);
    assert_eq!(kept(&[Some(5.0), Some(9.0)]), [Some(5.0), Some(9.0)]);
    assert_eq!(kept(&[None, Some(5.0)]), [Some(5.0)]);
    assert_eq!(kept(&[Some(5.0), None]), [Some(5.0), None]);
    assert_eq!(kept(&[None, None]), [None]);
}

#[test]
fn the_network_with_the_most_samples_is_forgotten_first() {
    let mut learner = learner();
    for network in 3..6 {
        learner.push(sample(network, 4)).unwrap();
    }
    for batch in 0..2 * SAMPLES_MAX as u32 {
        learner.push(sample(2, 1 + batch)).unwrap();
    }
    let kept = learner.kept().samples;
    assert_eq!(kept.len(), SAMPLES_MAX);
    assert_eq!(kept[..3], [3, 4, 5].map(|network| sample(network, 4)));
    let newest = 2 * SAMPLES_MAX as u32;
    assert_eq!(kept.last(), Some(&sample(2, newest)));
}

#[test]
fn services_and_settings_are_bounded() {
    let mut learner = learner();
    let of = |service| Sample {
        service,
        ..sample(1, 4)
    };
    for service in 0..SERVICES_MAX as u16 {
        learner.push(of(service)).unwrap();
    }
    let service = SERVICES_MAX as u16;
    let refused = InterferenceError::TooManyServices { service };
    assert_eq!(learner.push(of(service)), Err(refused));
    assert_eq!(learner.push(of(0)), Ok(()));
    for (trees, leaf_samples_min) in [(0, 1), (TREES_MAX + 1, 1), (1, 0), (1, SAMPLES_MAX + 1)] {
        let settings = Settings {
            trees,
            leaf_samples_min,
            seed: 1,
        };
        let refused = InterferenceError::Settings {
            trees,
            leaf_samples_min,
        };
        assert_eq!(Learner::new(settings).err(), Some(refused.clone()));
        assert_eq!(fit(&[sample(1, 4)], &settings).err(), Some(refused));
    }
}

#[test]
fn one_wrong_sample_stops_no_model() {
    let mut learner = learner();
    for sample in samples(0..5) {
        learner.push(sample).unwrap();
    }
    let wrong = |change: &dyn Fn(&mut Sample)| {
        let mut sample = sample(7, 4);
        change(&mut sample);
        sample
    };
    let alone = sample(7, 4).alone_p99;
    let refused = [-f64::MAX, -1.001 * SLOPE_MAX * alone, f64::NAN];
    for slope in refused {
        let pushed = learner.push(wrong(&|s| s.curve.slope_below = slope));
        assert!(matches!(pushed, Err(InterferenceError::Slope { .. })));
    }
    for iteration_ms in [5e-324, f64::MAX] {
        let pushed = learner.push(wrong(&|s| s.neighbours.iteration_ms = Some(iteration_ms)));
        assert!(matches!(pushed, Err(InterferenceError::Iteration { .. })));
    }
    learner
        .push(wrong(&|s| s.curve.slope_below = -SLOPE_MAX * s.alone_p99))
        .unwrap();
    learner
        .push(wrong(&|s| {
            s.neighbours.iteration_ms = Some(*ITERATIONS_MS.start())
        }))
        .unwrap();
    let fitted = learner.refit(7).unwrap().run();
    assert!(learner.swap(fitted.unwrap()));
    let found = asked(learner.model(7).unwrap(), 1, 2.0, &neighbours(2));
    assert!((found.curve.knee_p99 / sample(2, 1).curve.knee_p99 - 1.0).abs() < 0.1);
}

#[test]
fn a_model_is_of_one_service() {
    let other = Sample {
        service: 8,
        ..sample(2, 4)
    };
    let error = fit(&[sample(1, 4), other], &Settings::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a sample of service 8 among those of 7: expected one service"
    );
}

#[test]
fn what_is_no_sample_is_refused_in_words() {
    let said = |change: fn(&mut Sample)| {
        let mut sample = sample(1, 4);
        change(&mut sample);
        let error = learner().push(sample).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        said(|s| s.batch = 0),
        "a batch of 0: expected at least 1 request"
    );
    assert_eq!(
        said(|s| s.alone_p99 = 0.0),
        "latency 0: expected 1e-12 to 1e15"
    );
    assert_eq!(
        said(|s| s.curve.slope_above = 0.5),
        "slope 0.5, 8 alone: expected -8000 to 0"
    );
    assert_eq!(
        said(|s| s.curve.knee_p99 = 1e4),
        "latency 10000 at the knee, 8 alone: expected 1e-3 to 1e3 times the latency alone"
    );
    assert_eq!(
        said(|s| {
            s.curve.knee_p99 = 8.0;
            s.curve.slope_above = -16.0;
        }),
        "latency 0 at share 0.9 of the curve: expected more than 0"
    );
    assert_eq!(
        said(|s| s.curve.knee_share = 0.95),
        "knee at share 0.95 of those from 0.1 to 0.9: expected 0 < least ≤ knee ≤ greatest ≤ 1"
    );
    assert_eq!(
        said(|s| s.speeds = Some([2.0; 6])),
        "speed 2: expected 0 to 1.05 times the speed alone"
    );
    assert_eq!(
        said(|s| s.neighbours.iteration_ms = Some(f64::NAN)),
        "an iteration of NaN ms: expected 1e-6 to 1e9"
    );
    assert!(fit(&[], &Settings::default()).is_err());
    assert_eq!(sample(1, 1).check(), Ok(()));
}

#[test]
fn a_curve_without_noise_is_recovered() {
    let truth = sample(3, 4).curve;
    let at = |share: f64| {
        let off: f64 = share - truth.knee_share;
        truth.knee_p99 + off.min(0.0) * truth.slope_below + off.max(0.0) * truth.slope_above
    };
    let measured: Vec<(f64, f64)> = latency_model::SAMPLE_SHARES
        .iter()
        .map(|&share| (share, at(share)))
        .collect();
    let curve = Curve::from(latency_model::fit(&measured).unwrap());
    let model = fitted(&[Sample {
        curve,
        ..sample(3, 4)
    }]);
    let found = asked(&model, 4, 8.0, &neighbours(3)).curve;
    for share in [0.1, 0.25, 0.4, 0.55, 0.9] {
        assert!((found.at(share) / at(share) - 1.0).abs() < 1e-6);
    }
}
