//! How well services are predicted beside trainings never met, on the table of the repository
//! (`cluster_sim::interference`); the bars are Mudi's (EuroSys'25, Table 2, Figures 11 and 12).

use cluster_sim::interference::{
    Judged, Question, SEEN, SEVEN_SHARES, UNSEEN, fit_error, judge, neighbours, sample,
};
use cluster_sim::service_table::{SERVICES, SHARES_PCT, ServiceTable, TRAININGS};
use learn::interference::{KINDS, Learner, Method, Settings};
use policy::latency_model::SAMPLE_SHARES;
use workloads::LayerCounts;

const _: () = assert!(LayerCounts::NAMES.len() == KINDS);

const ALL: [usize; 6] = [0, 1, 2, 3, 4, 5];

/// k1, k2, Δ0 and l0 of unseen trainings; Figure 11.
const NUMBERS_BARS: [f64; 4] = [0.23, 0.16, 0.05, 0.06];

/// With 90 latencies; Figure 12.
const LATENCY_BAR: f64 = 0.16;

fn table() -> ServiceTable {
    ServiceTable::a100().expect("it comes with the program")
}

fn mudi(has_time: bool) -> Judged {
    let question = Question {
        has_time,
        ..Question::mudi()
    };
    judge(&table(), &question, &ALL)
}

#[test]
fn five_trainings_are_seen_and_the_other_four_are_asked() {
    let mut all: Vec<usize> = SEEN.into_iter().chain(UNSEEN).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..TRAININGS.len()));
    assert_eq!(ALL.len(), SERVICES.len());
}

/// Mudi's 6.4 % with six samples. Its 4.3 % with seven is missed: 5.9 %. Two lines cannot do it:
/// fitted to all nine shares that the error is of, they have 5.7 % (and 5.1 % if what is minimised
/// is that very error). The paper's own have 3.8 %. With large batches our latencies are in
/// proportion to 1 ⁄ Δ from 10 % of the GPU to 90 %, which has no knee.
#[test]
fn two_lines_fit_within_six_per_cent() {
    let table = table();
    let six = fit_error(&table, &SAMPLE_SHARES);
    assert!(six <= 0.064, "{six}");
    let seven = fit_error(&table, &SEVEN_SHARES);
    assert!(seven <= 0.0595, "{seven}");
    let nine = fit_error(&table, &SHARES_PCT.map(|pct| f64::from(pct) / 100.0));
    assert!(nine > 0.043, "{nine}: the bar for seven can be met");
}

#[test]
fn the_numbers_of_unseen_trainings_are_within_the_paper_s_errors() {
    for has_time in [false, true] {
        let judged = mudi(has_time);
        for (error, bar) in judged.numbers.iter().zip(NUMBERS_BARS) {
            assert!(*error <= bar, "{judged:#?}");
        }
        assert!(judged.latency <= 0.066, "{judged:#?}");
    }
}

/// Of each service 15 curves of six latencies, drawn.
#[test]
fn ninety_latencies_are_enough() {
    let table = table();
    let judged = |latencies, seed| {
        let question = Question {
            latencies: Some(latencies),
            seed,
            ..Question::mudi()
        };
        judge(&table, &question, &ALL).latency
    };
    let mean = |latencies| (1..6).map(|seed| judged(latencies, seed)).sum::<f64>() / 5.0;
    for seed in 1..6 {
        assert!(judged(90, seed) <= LATENCY_BAR, "seed {seed}");
    }
    assert!(mean(90) <= 0.07 && mean(90) < 0.8 * mean(30));
}

/// What the errors above are worth: they are those of a model that knows the service and the batch
/// and nothing of the training. On our simulator the worst training slows a service by 7 % more
/// than the best, and five networks do not say which of their layers that comes from: no method
/// lowers the mean's squared error by a tenth on a network left out, so none is chosen.
#[test]
fn layers_of_five_networks_say_nothing_of_a_sixth() {
    let judged = mudi(false);
    let choices = || judged.choices.iter().flat_map(|(_, of_service)| of_service);
    assert_eq!(choices().count(), 24);
    assert!(choices().all(|choice| choice.method == Method::Mean));
    assert!(judged.r2.iter().all(|r2| r2.abs() < 1e-9), "{judged:#?}");
    assert!((judged.latency - judged.latency_of_mean).abs() < 1e-9);
}

/// The time of a layer does: a training whose kernels are short leaves memory bandwidth and SMs to
/// the service. Chosen by the networks seen, it lowers the errors of both slopes, of l0 and of the
/// training's speed. It is wrong about one of four: a layer of the graph network takes as long as
/// one of ResNet-50, in many small kernels. Over all 126 ways to see five of the nine trainings
/// (`examples/interference.rs`) it helps little: the mean error of speeds is 21 %, of layers alone
/// 24 %, and squared errors are a fifth above those of the mean. Five networks are few.
#[test]
fn the_time_of_a_layer_says_more_than_the_layers_and_misleads_about_the_graph_network() {
    let (layers, timed) = (mudi(false), mudi(true));
    for number in [0, 1, 3] {
        assert!(timed.numbers[number] < 0.95 * layers.numbers[number]);
    }
    assert!(timed.speed < 0.7 * layers.speed, "{timed:#?}");
    let r2 = |training: usize| {
        let question = Question {
            unseen: vec![training],
            has_time: true,
            ..Question::mudi()
        };
        let judged = judge(&table(), &question, &ALL);
        (judged.r2[3], judged.speed_r2)
    };
    let [gin, bert, yolo, resnet18] = UNSEEN.map(r2);
    assert!(bert.1 > 0.7 && yolo.1 > 0.8 && resnet18.1 > 0.9);
    assert!(yolo.0 > 0.9 && resnet18.0 > 0.8);
    assert!(gin.0 < 0.0 && gin.1 < 0.0);
}

/// Learnt under the layers of another, a training's curves say nothing of unseen ones.
#[test]
fn layers_that_are_another_s_teach_nothing() {
    for has_time in [false, true] {
        for seed in 1..6 {
            let question = Question {
                is_permuted: true,
                has_time,
                seed,
                ..Question::mudi()
            };
            let judged = judge(&table(), &question, &ALL);
            assert!(judged.r2.iter().all(|r2| *r2 <= 0.05), "{judged:#?}");
            assert!(judged.speed_r2 <= 0.05, "{judged:#?}");
        }
    }
}

/// A training's name is its place in the table. Models have layers, times and batches, and no
/// place: the order in which trainings are seen changes nothing.
#[test]
fn names_cannot_be_memorised() {
    for has_time in [false, true] {
        let renamed = Question {
            seen: SEEN.into_iter().rev().collect(),
            has_time,
            ..Question::mudi()
        };
        let (renamed, judged) = (judge(&table(), &renamed, &ALL), mudi(has_time));
        assert_eq!(renamed.choices, judged.choices);
        assert_eq!(renamed.numbers, judged.numbers);
        assert_eq!(
            (renamed.latency, renamed.speed),
            (judged.latency, judged.speed)
        );
    }
}

/// When an unseen training was measured beside a service, the model of that service knows it after
/// a refit.
#[test]
fn a_training_that_was_measured_is_predicted_better() {
    let (table, service, training) = (table(), 5, 5);
    let learner = Learner::new(Settings::default());
    let mut learner = learner.expect("the default is within bounds");
    let learn = |learner: &mut Learner, training| {
        for batch in [1, 4, 16, 64] {
            let sample = sample(&table, (service, training, batch), true);
            let taken = learner.push(sample.expect("the table has all pairs"));
            assert_eq!(taken, Ok(()));
        }
        let fitted = learner.refit(5).expect("it has samples").run();
        learner.swap(fitted.expect("it has samples"));
    };
    let place = (service, training, 8);
    let truth = sample(&table, place, true).expect("the table has all pairs");
    let gin = neighbours(&table, training, true).expect("the table has it");
    let off = |learner: &Learner| {
        let model = learner.model(5).expect("it was fitted");
        let found = model.predict(8, truth.alone_p99, &gin);
        let found = found.expect("the table's numbers are within bounds").curve;
        (found.knee_p99 / truth.curve.knee_p99 - 1.0).abs()
    };
    for training in SEEN {
        learn(&mut learner, training);
    }
    let before = off(&learner);
    learn(&mut learner, training);
    assert!(off(&learner) < before, "{} {before}", off(&learner));
}
