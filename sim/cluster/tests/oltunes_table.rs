//! The table of inference models on `OLTunes`' GPUs: the simulator reproduces its numbers, and they
//! are plausible.

use cluster_sim::oltunes_table::measure::Bench;
use cluster_sim::oltunes_table::{
    Alone, BATCHES, GPUS, InferenceTable, MODELS, Mechanism, PAIR_BATCHES, RATIO_BATCHES,
    SHARES_PCT, Variant,
};
use cluster_sim::table::four_digits;

fn table() -> InferenceTable {
    InferenceTable::simulated().expect("it comes with the program")
}

fn models() -> impl Iterator<Item = (usize, usize)> {
    (0..GPUS.len()).flat_map(|gpu| (0..MODELS.len()).map(move |model| (gpu, model)))
}

fn pairs() -> impl Iterator<Item = [(usize, u32); 2]> {
    let tasks = || (0..MODELS.len()).flat_map(|model| PAIR_BATCHES.map(|batch| (model, batch)));
    tasks().flat_map(move |of| tasks().map(move |beside| [of, beside]))
}

fn alone(table: &InferenceTable, (gpu, model): (usize, usize), batch: u32, pct: u32) -> Alone {
    let alone = table.alone(gpu, model, batch, pct);
    alone.expect("the place is in the lists")
}

/// Speeds that the first and the second of a pair keep, means of all pairs on all GPUs.
fn means(table: &InferenceTable, by: Mechanism) -> [f64; 2] {
    let mut sums = [0.0; 2];
    let mut count = 0.0;
    for gpu in 0..GPUS.len() {
        for [of, beside] in pairs() {
            let speeds = table.speed_beside(by, gpu, of, beside);
            let [speed, other] = speeds.expect("the pair is in the lists");
            sums = [sums[0] + speed, sums[1] + other];
            count += 1.0;
        }
    }
    sums.map(|sum| sum / count)
}

#[test]
fn the_simulator_finds_the_tables_numbers_again() {
    let (table, mut bench) = (table(), Bench::new());
    for (gpu, model, batch, pct) in [
        (0, 0, 1, 20),
        (1, 4, 16, 60),
        (2, 2, 64, 100),
        (2, 7, 8, 40),
    ] {
        let found = bench.alone(gpu, model, batch, pct);
        let found = found.expect("it can be run");
        let found = Alone {
            latency_ms: four_digits(found.latency_ms),
            sm_activity: four_digits(found.sm_activity),
        };
        let shown = (GPUS[gpu], MODELS[model].name, batch, pct);
        assert_eq!(
            table.alone(gpu, model, batch, pct),
            Some(found),
            "{shown:?}"
        );
    }
    for (by, gpu, of, beside) in RECOMPUTED {
        let found = bench.speeds(by, gpu, of, beside);
        let found = found.expect("it can be run").map(four_digits);
        let told = table.speed_beside(by, gpu, of, beside);
        let shown = (by, GPUS[gpu], MODELS[of.0].name, MODELS[beside.0].name);
        assert_eq!(told, Some(found), "{shown:?}");
    }
    for model in 0..MODELS.len() {
        for batch in RATIO_BATCHES {
            let found = bench.ratio(model, batch).expect("it can be counted");
            assert_eq!(table.ratio_of_batch(model, batch), Some(found));
        }
    }
}

type Pair = (Mechanism, usize, (usize, u32), (usize, u32));

const RECOMPUTED: [Pair; 6] = [
    (Mechanism::Mps, 0, (1, 1), (4, 8)),
    (Mechanism::Mps, 2, (3, 32), (6, 8)),
    (Mechanism::Orion, 1, (0, 8), (3, 1)),
    (Mechanism::Orion, 2, (5, 1), (2, 8)),
    (Mechanism::Pillion, 0, (4, 8), (5, 32)),
    (Mechanism::Pillion, 1, (6, 1), (0, 32)),
];

#[test]
fn a_larger_batch_takes_longer_but_on_a_whole_gpu_hardly_more_for_each_input() {
    let table = table();
    for place in models() {
        for pct in SHARES_PCT {
            let latency_ms = |batch| alone(&table, place, batch, pct).latency_ms;
            for pair in BATCHES.windows(2) {
                let (small, large) = (latency_ms(pair[0]), latency_ms(pair[1]));
                let more = f64::from(pair[1]) / f64::from(pair[0]);
                let is_more = large > small && (pct < 100 || large < 1.05 * more * small);
                let shown = (GPUS[place.0], MODELS[place.1].name, pct, pair);
                assert!(is_more, "{shown:?} {small} {large}");
            }
        }
        // A prompt of GPT-2 alone fills a GPU.
        let [one, all] = [1, 64].map(|batch| alone(&table, place, batch, 100).latency_ms);
        let most = if MODELS[place.1].family == "gpt2" {
            1.1
        } else {
            0.9
        };
        assert!(all / 64.0 < most * one, "{place:?} {one} {all}");
    }
}

#[test]
fn with_a_smaller_share_no_batch_is_faster_and_no_more_sms_are_busy_than_it_has() {
    let table = table();
    for place in models() {
        for batch in BATCHES {
            let shown = (GPUS[place.0], MODELS[place.1].name, batch);
            let found = SHARES_PCT.map(|pct| alone(&table, place, batch, pct));
            for pair in found.windows(2) {
                let is_slower = pair[0].latency_ms >= pair[1].latency_ms;
                assert!(is_slower, "{shown:?}: {found:?}");
            }
            for (alone, pct) in found.iter().zip(SHARES_PCT) {
                let activity = alone.sm_activity;
                assert!(activity > 0.0, "{shown:?}: {found:?}");
                assert!(activity <= f64::from(pct) / 100.0, "{shown:?}: {found:?}");
            }
        }
    }
}

#[test]
fn the_large_variant_of_a_family_takes_more_time_of_sms_than_the_small_one() {
    let table = table();
    let of = |variant| move |&model: &usize| MODELS[model].variant == variant;
    for low in (0..MODELS.len()).filter(of(Variant::Low)) {
        for high in (0..MODELS.len()).filter(of(Variant::High)) {
            if MODELS[low].family != MODELS[high].family {
                continue;
            }
            for (gpu, on) in GPUS.into_iter().enumerate() {
                for batch in BATCHES {
                    let sm_ms = |model| {
                        let alone = alone(&table, (gpu, model), batch, 100);
                        alone.latency_ms * alone.sm_activity
                    };
                    let shown = (on, MODELS[low].name, MODELS[high].name, batch);
                    assert!(sm_ms(high) > 2.0 * sm_ms(low), "{shown:?}");
                }
            }
        }
    }
}

#[test]
fn alone_every_model_answers_one_input_within_its_target() {
    let table = table();
    for place in models() {
        let latency_ms = alone(&table, place, 1, 100).latency_ms;
        let model = MODELS[place.1];
        assert!(latency_ms < model.slo_ms, "{} {latency_ms}", model.name);
    }
}

#[test]
fn every_task_keeps_some_speed_and_none_gains() {
    let table = table();
    for by in Mechanism::ALL {
        for (gpu, on) in GPUS.into_iter().enumerate() {
            for [of, beside] in pairs() {
                let speeds = table.speed_beside(by, gpu, of, beside);
                let speeds = speeds.expect("the pair is in the lists");
                let shown = (by, on, MODELS[of.0].name, MODELS[beside.0].name);
                let can_be = speeds.iter().all(|&speed| speed > 0.0 && speed <= 1.05);
                assert!(can_be, "{shown:?} {speeds:?}");
            }
        }
    }
}

#[test]
fn high_priority_work_keeps_more_under_orion_and_pillion_than_under_mps() {
    let table = table();
    let [mps, _] = means(&table, Mechanism::Mps);
    for by in [Mechanism::Orion, Mechanism::Pillion] {
        let [high, low] = means(&table, by);
        assert!(high > mps + 0.3 && low < mps, "{by:?}: {high} {low} {mps}");
    }
}

#[test]
fn rates_and_targets_are_those_of_the_paper() {
    let sum = |family: &str, rate: fn(&cluster_sim::oltunes_table::Model) -> f64| {
        let of = MODELS.iter().filter(|model| model.family == family);
        of.map(rate).sum::<f64>()
    };
    for (family, uniform, poisson) in [
        ("resnet", 70.0 + 40.0, 60.0 + 25.0),
        ("yolov5", 50.0, 40.0),
        ("bert", 10.0, 5.0),
        ("gpt2", 3.0, 2.0),
    ] {
        assert_eq!(sum(family, |model| model.rps_uniform), uniform, "{family}");
        assert_eq!(sum(family, |model| model.rps_poisson), poisson, "{family}");
    }
    let vision = MODELS.iter().filter(|model| model.is_vision);
    assert_eq!(vision.count(), 5);
}
