//! The table of services beside trainings on a T4: the simulator reproduces its numbers, and they
//! are plausible.

use cluster_sim::muxflow_table::measure::Bench;
use cluster_sim::muxflow_table::{
    Cell, LOADS_PCT, Latency, Mechanism, MuxFlowTable, SERVICES, TRAININGS,
};
use cluster_sim::table::four_digits;

fn table() -> MuxFlowTable {
    MuxFlowTable::t4().expect("it comes with the program")
}

fn rounded(Latency { mean_ms, p99_ms }: Latency) -> Latency {
    Latency {
        mean_ms: four_digits(mean_ms),
        p99_ms: four_digits(p99_ms),
    }
}

#[test]
fn the_simulator_finds_the_tables_numbers_again() {
    let (table, mut bench) = (table(), Bench::new());
    for (service, load, training, by) in RECOMPUTED {
        let found = bench.cell(service, load, training, by);
        let found = found.expect("it can be run");
        let found = Cell {
            latency: rounded(found.latency),
            behind_s: four_digits(found.behind_s),
            iterations_per_s: four_digits(found.iterations_per_s),
        };
        let told = table.cell(service, load, training, by);
        let shown = (
            SERVICES[service].name,
            LOADS_PCT[load],
            TRAININGS[training].name,
            by,
        );
        assert_eq!(told, Some(&found), "{shown:?}");
    }
    let alone = bench.latency_alone(1, 2).expect("it can be run");
    assert_eq!(table.latency_alone(1, 2), Some(rounded(alone)));
    let alone = bench.training_alone_per_s(3).expect("it can be run");
    assert_eq!(table.alone_per_s(3), Some(four_digits(alone)));
}

const RECOMPUTED: [(usize, usize, usize, Mechanism); 5] = [
    (0, 0, 0, Mechanism::TimeSharing),
    (1, 1, 1, Mechanism::PriorityTimeSharing),
    (2, 2, 2, Mechanism::PriorityStreams),
    (0, 2, 3, Mechanism::MuxFlow),
    (2, 0, 1, Mechanism::MuxFlowFixed),
];

#[test]
fn no_service_and_no_training_is_faster_than_alone() {
    let table = table();
    for (service, served) in SERVICES.iter().enumerate() {
        for (load, pct) in LOADS_PCT.into_iter().enumerate() {
            for (training, trained) in TRAININGS.iter().enumerate() {
                for by in Mechanism::ALL {
                    let ratios = table.ratios(service, load, training, by);
                    let ratios = ratios.expect("it is there");
                    let shown = (served.name, pct, trained.name, by, ratios);
                    assert!(ratios.latency_mean >= 0.999, "{shown:?}");
                    assert!(ratios.latency_p99 >= 0.99, "{shown:?}");
                    assert!(ratios.speed > 0.0 && ratios.speed <= 1.0, "{shown:?}");
                }
            }
        }
    }
}

#[test]
fn rates_are_the_papers_and_keep_the_gpu_busy_as_named() {
    for (place, service) in SERVICES.iter().enumerate() {
        for (load, per_s) in service.rates_per_s.into_iter().enumerate() {
            assert!((20.0..=190.0).contains(&per_s), "{} {per_s}", service.name);
            let alone = table().latency_alone(place, load).expect("it is there");
            // At random a request also waits: the mean is at least its own time.
            let busy = per_s * alone.mean_ms / 1000.0;
            let named = f64::from(LOADS_PCT[load]) / 100.0;
            assert!(busy > 0.9 * named, "{} {per_s}: {busy}", service.name);
        }
    }
}
