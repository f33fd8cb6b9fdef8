//! How well services are predicted beside trainings never met, on the table of the repository
//! (`cluster_sim::interference`); the bars are Mudi's (EuroSys'25, Table 2, Figures 11 and 12).

use cluster_sim::interference::{
    FitErrors, Judged, Question, SEEN, SEVEN_SHARES, UNSEEN, fit_errors, judge, neighbours, sample,
};
use cluster_sim::service_table::{BATCHES, SERVICES, SHARES_PCT, ServiceTable, TRAININGS};
use cluster_sim::services::Known;
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

/// Mudi's 6.4 % with six samples. Its 4.3 % with seven is missed: 5.9 %, and 6.8 % at the two
/// shares that the lines were not fitted to. Two lines fitted by least squares to all nine shares
/// have 5.7 %. The paper's own curves have 3.8 %. With large batches our latencies are in
/// proportion to 1 ⁄ Δ from 10 % of the GPU to 90 %, which has no knee.
#[test]
fn two_lines_fit_within_six_per_cent() {
    let table = table();
    let FitErrors { all, held_out } = fit_errors(&table, &SAMPLE_SHARES);
    assert!(all <= 0.064 && held_out <= 0.064, "{all} {held_out}");
    let FitErrors { all, held_out } = fit_errors(&table, &SEVEN_SHARES);
    assert!(all <= 0.0595 && held_out <= 0.069, "{all} {held_out}");
    let nine = fit_errors(&table, &SHARES_PCT.map(|pct| f64::from(pct) / 100.0)).all;
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

/// From so many latencies of each service: five draws, each the same for all services.
fn drawn(latencies: usize, services: &[usize]) -> [Judged; 5] {
    [1, 2, 3, 4, 5].map(|seed| {
        let question = Question {
            latencies: Some(latencies),
            seed,
            ..Question::mudi()
        };
        judge(&table(), &question, services)
    })
}

fn mean(all: &[Judged], number: impl Fn(&Judged) -> f64) -> f64 {
    all.iter().map(number).sum::<f64>() / all.len() as f64
}

/// Of each service 15 drawn curves of six latencies. Figure 12 has each service below the bar.
#[test]
fn ninety_latencies_are_enough_for_each_service() {
    for service in ALL {
        for judged in drawn(90, &[service]) {
            assert!(judged.latency <= LATENCY_BAR, "{service}: {judged:#?}");
        }
    }
    let latency = |latencies| mean(&drawn(latencies, &ALL), |judged| judged.latency);
    assert!(latency(90) <= 0.07 && latency(90) < 0.8 * latency(30));
}

/// The paper's errors of numbers are with 70 latencies: here eleven curves. They are met in the
/// mean of the draws. Single draws may miss: one that leaves a batch out guesses its level.
#[test]
fn seventy_latencies_are_enough_for_the_numbers() {
    let judged = drawn(70, &ALL);
    for (number, bar) in NUMBERS_BARS.into_iter().enumerate() {
        let error = mean(&judged, |judged| judged.numbers[number]);
        assert!(error <= bar, "{number}: {error}");
    }
}

/// The errors above are those of a model that knows the service and the batch and nothing of the
/// training. On our simulator trainings slow a service by amounts at most 7 % apart at one batch
/// and share (l0 by up to 34 %, where the knee is at another share), and five networks do not say
/// which of their layers cause that: no method lowers the mean's squared error by a tenth on a
/// network left out, so the mean is chosen, and R² is 0 by construction.
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
/// training's speed. It is wrong about one of four: a layer of the graph network takes half as long
/// again as one of ResNet-50 (0.164 and 0.112 ms), in many small kernels. Over all 126 ways to see
/// five of the nine trainings (`examples/interference.rs`) it helps little: the mean error of
/// speeds is 19 %, that of the mean of the seen 21 %, and squared errors of numbers are 5 to 14 %
/// above those of the mean. Five networks are few.
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
    assert!(yolo.0 > 0.85 && resnet18.0 > 0.85);
    assert!(gin.0 < 0.0 && gin.1 < 0.0);
    let layer_ms = |training| {
        let beside = neighbours(&table(), training, true).expect("the table has it");
        let layers: u32 = beside.layers.iter().sum();
        beside.iteration_ms.expect("it is asked for") / f64::from(layers)
    };
    let [gin, resnet50] = [5, 2].map(layer_ms);
    assert!((gin - 0.164).abs() < 5e-4 && (resnet50 - 0.112).abs() < 5e-4);
}

/// Learnt under the layers of another, a training's curves say nothing of unseen ones. On the
/// table's own numbers neither do its own layers, wherever the mean is chosen; the next test has
/// numbers that layers decide.
#[test]
fn layers_that_are_another_s_teach_nothing() {
    for has_time in [false, true] {
        for judged in permuted(&table(), has_time) {
            assert!(judged.r2.iter().all(|r2| *r2 <= 0.05), "{judged:#?}");
            assert!(judged.speed_r2 <= 0.05, "{judged:#?}");
        }
    }
}

fn permuted(table: &ServiceTable, has_time: bool) -> [Judged; 5] {
    [1, 2, 3, 4, 5].map(|seed| {
        let question = Question {
            is_permuted: true,
            has_time,
            seed,
            ..Question::mudi()
        };
        judge(table, &question, &ALL)
    })
}

/// The table with curves of the first training, scaled by layer time: twice the time slows by 1.23.
fn decided_by_times(table: &ServiceTable) -> ServiceTable {
    let mut text = String::from(
        "service,training,batch,share_pct,late,request_p99_ms,batch_p99_ms,iterations_per_s\n",
    );
    for (training, of) in TRAININGS.iter().enumerate() {
        let beside = neighbours(table, training, true).expect("the table has it");
        let alone_per_s = table.alone_per_s(training).expect("the table has it");
        let layers: u32 = beside.layers.iter().sum();
        let layer_ms = 1000.0 / alone_per_s / f64::from(layers);
        let slowed = layer_ms.powf(0.3);
        text += &format!(",{},,,,,,{alone_per_s}\n", of.name);
        for (service, name) in SERVICES.iter().map(|of| of.name).enumerate() {
            for batch in BATCHES {
                for pct in SHARES_PCT {
                    let cell = table.cell(service, 0, batch, pct);
                    let p99_ms = slowed * cell.expect("the table has all").batch_p99_ms;
                    let per_s = 0.5 * alone_per_s;
                    text += &format!("{name},{},{batch},{pct},0,1,{p99_ms},{per_s}\n", of.name);
                }
            }
        }
    }
    for (service, of) in SERVICES.iter().enumerate() {
        for batch in BATCHES {
            let alone_ms = table.batch_p99_alone_ms(service, batch);
            let alone_ms = alone_ms.expect("the table has all");
            text += &format!("{},,{batch},,,,{alone_ms},\n", of.name);
        }
    }
    let read = ServiceTable::read("decided-by-times.csv", text.as_bytes());
    read.unwrap_or_else(|error| panic!("{error}"))
}

/// Where the time of a layer decides, it is found from five trainings, and not if each is learnt
/// under the layers and the time of another.
#[test]
fn what_times_of_layers_decide_is_learnt_from_them_and_not_from_another_s() {
    let table = decided_by_times(&table());
    let own = Question {
        has_time: true,
        ..Question::mudi()
    };
    let own = judge(&table, &own, &ALL);
    for number in [0, 1, 3] {
        assert!(own.r2[number] > 0.8, "{own:#?}");
        for judged in permuted(&table, true) {
            assert!(judged.r2[number] <= 0.05, "{judged:#?}");
        }
    }
}

#[test]
fn the_order_in_which_trainings_are_seen_changes_nothing() {
    for has_time in [false, true] {
        let reversed = Question {
            seen: SEEN.into_iter().rev().collect(),
            has_time,
            ..Question::mudi()
        };
        assert_eq!(judge(&table(), &reversed, &ALL), mudi(has_time));
    }
}

/// Why no predictor of slopes can place badly: the order of services by Mudi's slope is the same
/// beside every training, and far from any other. BERT and RoBERTa have equal slopes.
#[test]
fn services_are_farther_apart_in_slope_than_trainings_move_one() {
    let known = Known::sampled(&table());
    let slope = |service, training| known.slope(service, training).expect("it is sampled");
    let trainings = || 0..TRAININGS.len();
    for service in ALL {
        let least = trainings().map(|training| slope(service, training));
        let least = least.fold(f64::INFINITY, f64::min);
        let most = trainings().map(|training| slope(service, training));
        let most = most.fold(0.0, f64::max);
        assert!(most / least <= 1.095, "{service}: {}", most / least);
    }
    for training in trainings() {
        let mut slopes = ALL.map(|service| slope(service, training));
        slopes.sort_by(f64::total_cmp);
        let ratios = slopes.windows(2).map(|pair| pair[1] / pair[0]);
        let apart: Vec<f64> = ratios.filter(|&ratio| ratio > 1.0 + 1e-9).collect();
        assert_eq!(apart.len(), ALL.len() - 2, "{apart:?}");
        let least = apart.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= 1.37, "{training}: {apart:?}");
    }
}

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
