//! The model of interference: what it takes, gives, and cannot know.

use learn::interference::{
    Curve, KINDS, Kept, Learner, Method, Model, Neighbours, Number, SAMPLES_MAX, Sample, Settings,
    fit,
};
use policy::latency_model;

const BATCHES: [u32; 4] = [1, 4, 16, 64];

/// Twelve networks with as many convolutions and activations as their number says.
fn neighbours(network: u32) -> Neighbours {
    let mut layers = [0; KINDS];
    layers[0] = 4 * network * network;
    layers[2] = 3 + network;
    Neighbours {
        layers,
        iteration_ms: None,
    }
}

/// A service of 2 ms in batches of 1, which neighbours slow by a part that grows with their layers.
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

#[test]
fn a_network_that_was_never_measured_is_predicted_from_its_layers() {
    let model = fitted(&samples((0..12).filter(|network| *network != 6)));
    let truth = sample(6, 16);
    let found = model.predict(16, truth.alone_p99, &truth.neighbours);
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

/// A batch between two measured ones is between both, relative to the service alone.
#[test]
fn a_batch_that_was_never_measured_is_predicted_from_those_beside_it() {
    let model = fitted(&samples(0..12));
    let truth = sample(5, 8);
    let found = model.predict(8, truth.alone_p99, &truth.neighbours).curve;
    assert!((found.knee_p99 / truth.curve.knee_p99 - 1.0).abs() < 0.05);
}

/// Whatever is asked: slopes do not rise, knees are at sampled shares, latencies are above 0.
#[test]
fn predictions_are_latencies() {
    let model = fitted(&samples(0..4));
    for counts in [[0; KINDS], [u32::MAX; KINDS], [1; KINDS]] {
        for batch in [0, 1, 1000, u32::MAX] {
            let neighbours = Neighbours {
                layers: counts,
                iteration_ms: Some(1e-9),
            };
            let found = model.predict(batch, 2.0, &neighbours);
            let curve = found.curve;
            assert!(
                curve.slope_below < 0.0 && curve.slope_above < 0.0,
                "{curve:?}"
            );
            assert!((0.1..=0.9).contains(&curve.knee_share), "{curve:?}");
            assert!(curve.at(0.1) > 0.0 && curve.at(0.9) > 0.0, "{curve:?}");
            let speeds = found.speeds.unwrap();
            assert!(speeds.iter().all(|speed| (0.0..=1.0).contains(speed)));
        }
    }
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
    let asked = |model: &Model| model.predict(2, 3.0, &neighbours(9));
    let one = asked(&fitted(&samples));
    samples.reverse();
    samples.swap(3, 11);
    assert_eq!(asked(&fitted(&samples)), one);
}

#[test]
fn what_is_kept_gives_the_same_models_again() {
    let mut learner = Learner::new(Settings::default());
    for sample in samples(0..5) {
        learner.push(sample).unwrap();
    }
    assert!(learner.model(7).is_none() && learner.refit(8).is_none());
    learner.swap(learner.refit(7).unwrap().run().unwrap());
    let kept = learner.kept();
    assert_eq!(kept.samples.len(), 20);
    let mut again = Learner::from_kept(Kept::clone(&kept)).unwrap();
    again.swap(again.refit(7).unwrap().run().unwrap());
    let asked = |learner: &Learner| learner.model(7).unwrap().predict(2, 3.0, &neighbours(9));
    assert_eq!(asked(&again), asked(&learner));
}

/// A thread fits while the old model serves.
#[test]
fn a_refit_can_be_made_elsewhere() {
    fn sent<T: Send + 'static>(_: &T) {}
    let mut learner = Learner::new(Settings::default());
    for sample in samples(0..3) {
        learner.push(sample).unwrap();
    }
    let refit = learner.refit(7).unwrap();
    sent(&refit);
    let before = refit.clone().run().unwrap();
    sent(&before);
    learner.swap(before);
    let (truth, asked) = (sample(11, 4), neighbours(11));
    let off = |learner: &Learner| {
        let found = learner
            .model(7)
            .unwrap()
            .predict(4, truth.alone_p99, &asked);
        (found.curve.knee_p99 / truth.curve.knee_p99 - 1.0).abs()
    };
    let old = off(&learner);
    for sample in samples(3..12) {
        learner.push(sample).unwrap();
    }
    assert_eq!(off(&learner), old, "samples are not known before the swap");
    learner.swap(learner.refit(7).unwrap().run().unwrap());
    assert!(off(&learner) < 0.5 * old);
}

#[test]
fn samples_are_bounded_and_newer_ones_replace_older() {
    let mut learner = Learner::new(Settings::default());
    let mut measured = sample(1, 4);
    for p99 in [3.0, 5.0] {
        measured.curve.knee_p99 = p99;
        learner.push(measured).unwrap();
    }
    assert_eq!(learner.kept().samples, [measured]);
    for batch in 0..SAMPLES_MAX as u32 {
        learner.push(sample(2, 1 + batch)).unwrap();
    }
    let kept = learner.kept().samples;
    assert_eq!(kept.len(), SAMPLES_MAX);
    assert_eq!(kept[0], sample(2, 1));
}

#[test]
fn what_is_no_sample_is_refused_in_words() {
    let said = |change: fn(&mut Sample)| {
        let mut sample = sample(1, 4);
        change(&mut sample);
        let error = Learner::default().push(sample).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        said(|s| s.batch = 0),
        "a batch of 0: expected 1 request at least"
    );
    assert_eq!(
        said(|s| s.alone_p99 = 0.0),
        "latency 0: expected 1e-12 to 1e15"
    );
    assert_eq!(
        said(|s| s.curve.slope_above = 0.5),
        "slope 0.5: expected a finite number, 0 at most"
    );
    assert_eq!(
        said(|s| s.curve.knee_share = 0.95),
        "knee at share 0.95 of those from 0.1 to 0.9: expected 0 < least ≤ knee ≤ greatest ≤ 1"
    );
    assert_eq!(
        said(|s| s.speeds = Some([2.0; 6])),
        "speed 2: expected 0 to 1.05 of that alone"
    );
    assert_eq!(
        said(|s| s.neighbours.iteration_ms = Some(f64::NAN)),
        "an iteration of NaN ms: expected a finite number above 0"
    );
    assert!(fit(&[], &Settings::default()).is_err());
    assert_eq!(sample(1, 1).check(), Ok(()));
}

/// Curves without noise come through the fit and the model of one network unchanged.
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
    let found = model.predict(4, 8.0, &neighbours(3)).curve;
    for share in [0.1, 0.25, 0.4, 0.55, 0.9] {
        assert!((found.at(share) / at(share) - 1.0).abs() < 1e-6);
    }
}
