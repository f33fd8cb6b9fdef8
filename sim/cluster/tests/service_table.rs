//! The service table of the repository: properties of its numbers, which the simulator reproduces.

use cluster_sim::service_table::measure::Bench;
use cluster_sim::service_table::{BATCHES, Cell, SERVICES, SHARES_PCT, ServiceTable, TRAININGS};
use cluster_sim::table::four_digits;

fn table() -> ServiceTable {
    ServiceTable::a100().expect("it comes with the program")
}

fn curves() -> impl Iterator<Item = (usize, usize, u32)> {
    let pairs = (0..SERVICES.len())
        .flat_map(|service| (0..TRAININGS.len()).map(move |training| (service, training)));
    pairs.flat_map(|(service, training)| BATCHES.map(|batch| (service, training, batch)))
}

fn cells(table: &ServiceTable, (service, training, batch): (usize, usize, u32)) -> Vec<Cell> {
    let cells = SHARES_PCT.map(|pct| table.cell(service, training, batch, pct).copied());
    cells.into_iter().flatten().collect()
}

fn shown((service, training, batch): (usize, usize, u32)) -> String {
    let (service, training) = (SERVICES[service].name, TRAININGS[training].name);
    format!("{service}@{batch} beside {training}")
}

#[test]
fn the_simulator_finds_the_tables_numbers_again() {
    let (table, mut bench) = (table(), Bench::new());
    for (service, training, batch, pct) in RECOMPUTED {
        let found = bench.cell(service, training, batch, pct);
        let found = found.expect("it can be run");
        let found = Cell {
            late: four_digits(found.late),
            request_p99_ms: found.request_p99_ms.map(four_digits),
            batch_p99_ms: four_digits(found.batch_p99_ms),
            iterations_per_s: four_digits(found.iterations_per_s),
        };
        let shown = shown((service, training, batch));
        let told = table.cell(service, training, batch, pct);
        assert_eq!(told, Some(&found), "{shown}, {pct} %");
    }
    let alone = bench.training_alone_per_s(6).expect("it can be run");
    assert_eq!(table.alone_per_s(6), Some(four_digits(alone)));
    let alone = bench.batch_p99_alone_ms(0, 32).expect("it can be run");
    assert_eq!(table.batch_p99_alone_ms(0, 32), Some(four_digits(alone)));
}

/// Service, training, batch and share: corners of the grid and its middle; each service appears.
const RECOMPUTED: [(usize, usize, u32, u32); 7] = [
    (0, 0, 1, 10),
    (0, 8, 64, 10),
    (5, 0, 1, 90),
    (1, 2, 8, 30),
    (2, 6, 4, 50),
    (3, 7, 16, 40),
    (4, 4, 8, 20),
];

#[test]
fn every_number_can_be_meant() {
    let table = table();
    for place in curves() {
        let cells = cells(&table, place);
        assert_eq!(cells.len(), SHARES_PCT.len());
        for cell in cells {
            let shown = shown(place);
            let p99_ms = cell.request_p99_ms;
            assert!((0.0..=1.0).contains(&cell.late), "{shown}: {cell:?}");
            assert!(
                cell.batch_p99_ms.is_finite() && cell.batch_p99_ms > 0.0,
                "{shown}: {cell:?}"
            );
            assert!(
                cell.iterations_per_s.is_finite() && cell.iterations_per_s > 0.0,
                "{shown}: {cell:?}"
            );
            // A request waits for its batch, so it takes no less.
            assert!(
                p99_ms.is_none_or(|ms| ms.is_finite() && ms > 0.0),
                "{shown}: {cell:?}"
            );
            // The 99th percentile is above the target where more than 1 % are late.
            let slo_ms = SERVICES[place.0].slo_ms;
            let is_late = p99_ms.is_none_or(|ms| ms > slo_ms);
            assert!(is_late == (cell.late > 0.01), "{shown}: {cell:?}");
        }
    }
}

#[test]
fn a_training_is_slower_beside_a_service_and_slower_with_fewer_sms() {
    let table = table();
    let mut exceptions = Vec::new();
    for place in curves() {
        let alone = table.alone_per_s(place.1).expect("it is there");
        let speeds: Vec<f64> = cells(&table, place)
            .iter()
            .map(|cell| cell.iterations_per_s)
            .collect();
        assert!(
            speeds.iter().all(|&speed| speed <= alone),
            "{}: {speeds:?}",
            shown(place)
        );
        let rises = speeds
            .windows(2)
            .filter(|pair| pair[1] > 1.01 * pair[0])
            .count();
        if rises > 0 {
            exceptions.push(format!("{}: {speeds:?}", shown(place)));
        }
    }
    assert!(
        exceptions.is_empty(),
        "{} {exceptions:#?}",
        exceptions.len()
    );
}

#[test]
fn with_a_smaller_share_no_fewer_requests_are_late() {
    let table = table();
    let mut exceptions = Vec::new();
    for place in curves() {
        let late: Vec<f64> = cells(&table, place).iter().map(|cell| cell.late).collect();
        if late.windows(2).any(|pair| pair[0] < pair[1] - 0.02) {
            exceptions.push(format!("{}: {late:?}", shown(place)));
        }
    }
    assert!(
        exceptions.is_empty(),
        "{} {exceptions:#?}",
        exceptions.len()
    );
}

/// Each of the nine trainings is at least 1.39 times as fast beside the service that suits it best
/// as beside the one that suits it worst, and seven of them are at least 1.95 times as fast.
#[test]
fn it_matters_beside_which_service_a_training_runs() {
    let table = table();
    let mut gains = Vec::new();
    for training in 0..TRAININGS.len() {
        let best = (0..SERVICES.len()).map(|service| {
            let best = table.best(service, training, 0.01);
            best.expect("some setting keeps the target")
                .cell
                .iterations_per_s
        });
        let speeds: Vec<f64> = best.collect();
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        gains.push(most / least);
    }
    assert!(gains.iter().all(|&gain| gain > 1.38), "{gains:?}");
    assert!(
        gains.iter().filter(|&&gain| gain > 1.9).count() == 7,
        "{gains:?}"
    );
}
