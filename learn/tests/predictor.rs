//! The predictor: which learner is served, when forests are fitted, and model files.

use learn::features::{Field, Schema, Value};
use learn::predictor::{Learner, Predictor, PredictorError, Settings};
use proptest::prelude::*;

fn schema() -> Schema {
    let fields = vec![
        Field::category("network", 16),
        Field::category("gpu", 16),
        Field::number("batch", 0.0, 10.0),
    ];
    Schema::new(fields).expect("three fields with names and a range")
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.forest.trees = 10;
    settings
}

fn sample(number: u64) -> (String, String, f64) {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let network = format!("network {}", bits % 5);
    let gpu = format!("gpu {}", bits / 5 % 3);
    (network, gpu, (bits / 15 % 11) as f64)
}

fn learn(
    predictor: &mut Predictor,
    numbers: std::ops::Range<u64>,
    target: impl Fn(&str, &str, f64) -> f64,
) {
    for number in numbers {
        let (network, gpu, batch) = sample(number);
        let values = [
            Value::Name(&network),
            Value::Name(&gpu),
            Value::Number(batch),
        ];
        let target = target(&network, &gpu, batch);
        predictor.learn(&values, target).expect("a sample in range");
        if let Some(refit) = predictor.poll_refit() {
            predictor.handle_refitted(refit.run().expect("samples in range"));
        }
    }
}

/// A jump that is no product of features: a tree finds it, a machine does not.
fn jump(_: &str, _: &str, batch: f64) -> f64 {
    f64::from(u8::from(batch > 3.0 && batch < 7.0))
}

fn product(network: &str, gpu: &str, _: f64) -> f64 {
    let number = |name: &str| f64::from(name.as_bytes().last().map_or(0, |byte| byte - b'0'));
    number(network) + number(gpu) + number(network) * number(gpu)
}

fn predictor() -> Predictor {
    Predictor::new(schema(), settings()).expect("settings in range")
}

#[test]
fn the_better_learner_is_served_and_says_so() {
    let mut predictor = predictor();
    assert_eq!(predictor.served(), Learner::Machine);
    learn(&mut predictor, 0..400, jump);
    assert_eq!(predictor.served(), Learner::Forest);
    let [machine, forest, linear] = predictor.quality();
    assert!(
        forest.r2 > Some(0.9) && forest.r2 > machine.r2,
        "{machine:?} {forest:?}"
    );
    assert_eq!((machine.samples, linear.samples), (399, 399));
    assert!(forest.samples > 300 && forest.rmse < machine.rmse);

    let (network, gpu, batch) = sample(1);
    let values = [
        Value::Name(&network),
        Value::Name(&gpu),
        Value::Number(batch),
    ];
    let served = predictor.predict(&values).unwrap().unwrap();
    let all = predictor.predictions(&values).unwrap();
    assert_eq!(
        (served.served, Some(served.value)),
        (Learner::Forest, all[1])
    );
}

#[test]
fn a_name_that_the_forest_does_not_know_is_the_machine_s() {
    let mut predictor = predictor();
    learn(&mut predictor, 0..400, jump);
    let served = |predictor: &Predictor, network| {
        let values = [
            Value::Name(network),
            Value::Name("gpu 1"),
            Value::Number(5.0),
        ];
        predictor.predict(&values).unwrap().unwrap().served
    };
    assert_eq!(served(&predictor, "network 1"), Learner::Forest);
    assert_eq!(served(&predictor, "a new one"), Learner::Machine);
    // The machine has learnt the name, the forest not yet.
    let values = [
        Value::Name("a new one"),
        Value::Name("gpu 1"),
        Value::Missing,
    ];
    predictor.learn(&values, 0.5).unwrap();
    assert_eq!(predictor.served(), Learner::Forest);
    assert_eq!(served(&predictor, "a new one"), Learner::Machine);
}

#[test]
fn what_the_forest_cannot_know_does_not_count_against_it() {
    let mut predictor = predictor();
    learn(&mut predictor, 0..400, jump);
    assert_eq!(predictor.served(), Learner::Forest);
    for number in 0..200_u64 {
        let (_, gpu, batch) = sample(number);
        let values = [
            Value::Name("a new one"),
            Value::Name(&gpu),
            Value::Number(batch),
        ];
        let [machine, forest, _] = predictor.learn(&values, 5.0).unwrap();
        let is_worse = |machine: f64, forest: f64| (forest - 5.0).abs() > (machine - 5.0).abs();
        assert!(number < 50 || machine.zip(forest).is_some_and(|(a, b)| is_worse(a, b)));
    }
    assert_eq!(predictor.served(), Learner::Forest);
}

#[test]
fn when_jobs_change_the_learner_that_predicts_the_new_ones_is_served() {
    let mut predictor = predictor();
    learn(&mut predictor, 0..400, jump);
    assert_eq!(predictor.served(), Learner::Forest);
    // Forests are fitted to old samples and new ones alike; the machine has moved on.
    learn(&mut predictor, 400..560, product);
    assert_eq!(predictor.served(), Learner::Machine);
}

#[test]
fn a_sample_is_predicted_before_it_is_learnt() {
    let mut predictor = predictor();
    let values = [Value::Name("a"), Value::Name("b"), Value::Number(1.0)];
    assert_eq!(predictor.predict(&values), Ok(None));
    assert_eq!(predictor.learn(&values, 5.0), Ok([None; 3]));
    let [machine, ..] = predictor.learn(&values, 500.0).unwrap();
    assert!(machine.is_some_and(|machine| (machine - 5.0).abs() < 0.01));
}

#[test]
fn a_refit_is_due_by_growth_and_at_most_one_is_out() {
    let mut by_growth = settings();
    by_growth.refit_error = 1000.0;
    let mut predictor = Predictor::new(schema(), by_growth).unwrap();
    let mut taken = Vec::new();
    for number in 0..200 {
        let (network, gpu, batch) = sample(number);
        let values = [
            Value::Name(&network),
            Value::Name(&gpu),
            Value::Number(batch),
        ];
        predictor.learn(&values, 1.0).unwrap();
        if let Some(refit) = predictor.poll_refit() {
            taken.push(refit.samples());
            assert!(predictor.poll_refit().is_none());
            predictor.handle_refitted(refit.run().unwrap());
        }
    }
    assert_eq!(taken, [16, 32, 48, 64, 80, 96, 116, 140, 168]);
}

#[test]
fn an_error_above_the_threshold_makes_a_refit_due_at_once() {
    let mut predictor = predictor();
    learn(&mut predictor, 0..300, jump);
    let (network, gpu, batch) = sample(1);
    let values = [
        Value::Name(&network),
        Value::Name(&gpu),
        Value::Number(batch),
    ];
    assert!(predictor.poll_refit().is_none());
    predictor.learn(&values, 100.0).unwrap();
    let refit = predictor.poll_refit().unwrap();
    assert_eq!(refit.samples(), 301);
    // If this one is lost, growth by a fifth still brings the next one.
    drop(refit);
    predictor.handle_refit_failed();
    let mut grown = 0;
    let next = loop {
        match predictor.poll_refit() {
            Some(next) => break next,
            None => predictor.learn(&values, jump("", "", batch)).unwrap(),
        };
        grown += 1;
    };
    assert!((1..=61).contains(&grown), "{grown}");
    assert_eq!(next.samples(), 301 + grown);
    assert_eq!(
        predictor.predictions(&values).unwrap()[1].map(f64::is_finite),
        Some(true)
    );
}

#[test]
fn samples_are_bounded_even_if_no_refit_comes_back() {
    let mut few = settings();
    few.samples_max = 20;
    let mut predictor = Predictor::new(schema(), few).unwrap();
    learn(&mut predictor, 0..50, product);
    let lost = loop {
        let (network, gpu, batch) = sample(predictor.seen());
        let values = [
            Value::Name(&network),
            Value::Name(&gpu),
            Value::Number(batch),
        ];
        predictor.learn(&values, 1.0).unwrap();
        if let Some(refit) = predictor.poll_refit() {
            break refit;
        }
    };
    assert_eq!(lost.samples(), 20);
    let size = |predictor: &Predictor| predictor.to_bytes().len();
    learn(&mut predictor, 100..200, product);
    let before = size(&predictor);
    learn(&mut predictor, 200..2000, product);
    assert!(size(&predictor) < before + before / 10);
    let loaded = Predictor::from_bytes("f", &predictor.to_bytes()).unwrap();
    assert_eq!(loaded.seen(), predictor.seen());
    predictor.handle_refitted(lost.run().unwrap());
    learn(&mut predictor, 2000..2100, product);
}

#[test]
fn settings_out_of_range_are_refused() {
    let mut wrong = settings();
    wrong.refit_growth = 0.0;
    let refused = Predictor::new(schema(), wrong).unwrap_err();
    assert_eq!(refused, PredictorError::Settings(Box::new(wrong)));
}

#[test]
fn a_loaded_predictor_predicts_and_goes_on_to_the_bit() {
    let mut predictor = predictor();
    learn(&mut predictor, 0..333, product);
    let bytes = predictor.to_bytes();
    let mut loaded = Predictor::from_bytes("model", &bytes).unwrap();
    assert_eq!(loaded.to_bytes(), bytes);
    for _ in 0..2 {
        for number in 0..100 {
            let (network, gpu, batch) = sample(number);
            let values = [
                Value::Name(&network),
                Value::Name(&gpu),
                Value::Number(batch),
            ];
            let bits = |predictor: &Predictor| {
                predictor
                    .predictions(&values)
                    .unwrap()
                    .map(|one| one.map(f64::to_bits))
            };
            assert_eq!(bits(&loaded), bits(&predictor), "sample {number}");
        }
        assert_eq!(loaded.quality(), predictor.quality());
        assert_eq!(loaded.served(), predictor.served());
        learn(&mut predictor, 333..500, product);
        learn(&mut loaded, 333..500, product);
    }
    assert_eq!(loaded.to_bytes(), predictor.to_bytes());
}

fn file() -> Vec<u8> {
    let mut predictor = predictor();
    learn(&mut predictor, 0..40, product);
    predictor.to_bytes()
}

#[test]
fn a_file_that_is_wrong_is_refused_with_a_sentence() {
    let bytes = file();
    let text = String::from_utf8(bytes.clone()).unwrap();
    let refused = |bytes: &[u8]| Predictor::from_bytes("a/b", bytes).unwrap_err().to_string();
    assert_eq!(
        refused(b"{}"),
        "a/b: begins with \"{}\": expected the header of a model of Pillion, JSON with \
         \"format\":\"pillion-model\""
    );
    let other = text.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(
        refused(other.as_bytes()),
        "a/b: a model file of version 2: expected version 1"
    );
    let other = text.replacen("\"predictor\"", "\"interference\"", 1);
    assert_eq!(
        refused(other.as_bytes()),
        "a/b: a model of the kind \"interference\": expected \"predictor\""
    );
    let all = bytes.len() - bytes.iter().position(|&byte| byte == b'\n').unwrap() - 1;
    assert_eq!(
        refused(&bytes[..bytes.len() - 9]),
        format!(
            "a/b: {} bytes after the header: expected {all}, as the header says",
            all - 9
        )
    );
    let other = text.replacen("\"trees\":10", "\"trees\":11", 1);
    let error = refused(other.as_bytes());
    assert!(
        error.starts_with("a/b: damaged: its checksum is "),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_flipped_byte_is_refused_or_changes_nothing(place: prop::sample::Index, flip in 1..=255_u8) {
        let right = file();
        let mut bytes = right.clone();
        bytes[place.index(right.len())] ^= flip;
        match Predictor::from_bytes("a/b", &bytes) {
            Ok(read) => prop_assert_eq!(read.to_bytes(), right),
            Err(error) => prop_assert!(error.to_string().starts_with("a/b: ")),
        }
    }

    #[test]
    fn a_truncated_file_is_refused(place: prop::sample::Index) {
        let right = file();
        let cut = &right[..place.index(right.len())];
        let error = Predictor::from_bytes("a/b", cut).expect_err("a refusal");
        prop_assert!(error.to_string().starts_with("a/b: "));
    }

    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        prop_assert!(Predictor::from_bytes("a/b", &bytes).is_err());
    }
}
