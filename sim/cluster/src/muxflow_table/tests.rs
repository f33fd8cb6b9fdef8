//! Tests of the table with made-up numbers, and that all names are known.

use sim::PolicySpec;

use super::measure::Bench;
use super::{Cell, LOADS_PCT, Latency, Mechanism, MuxFlowTable, SERVICES, TRAININGS};

/// A table in which a latency is (mechanism + 2) x load alone, whose 99th percentile is twice that,
/// and a training has a speed of 1 ÷ (place of its network + 2) under the first mechanism, and
/// twice, three times ... that under others, of 10 alone.
pub(crate) fn made_up() -> String {
    let mut text = String::from(
        "service,load_pct,training,mechanism,mean_ms,p99_ms,behind_s,iterations_per_s\n",
    );
    for training in TRAININGS {
        text += &format!(",,{},,,,,10\n", training.name);
    }
    for service in SERVICES {
        for pct in LOADS_PCT {
            text += &format!("{},{pct},,,{pct},{},,\n", service.name, 2 * pct);
            for (place, training) in TRAININGS.iter().enumerate() {
                for by in Mechanism::ALL {
                    let mean_ms = (by as u32 + 2) * pct;
                    let p99_ms = 2 * mean_ms;
                    let behind_s = if by == Mechanism::TimeSharing {
                        2.5
                    } else {
                        0.25
                    };
                    let per_s = 10.0 * f64::from(by as u32 + 1) / (place + 2) as f64;
                    let names = format!("{},{pct},{},{}", service.name, training.name, by.name());
                    text += &format!("{names},{mean_ms},{p99_ms},{behind_s},{per_s}\n");
                }
            }
        }
    }
    text
}

fn read(text: &str) -> Result<MuxFlowTable, String> {
    MuxFlowTable::read("t.csv", text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn a_cell_is_what_the_row_has() {
    let table = read(&made_up()).expect("it is right");
    let cell = Cell {
        latency: Latency {
            mean_ms: 160.0,
            p99_ms: 320.0,
        },
        behind_s: 0.25,
        iterations_per_s: 6.0,
    };
    assert_eq!(table.cell(2, 1, 3, Mechanism::PriorityStreams), Some(&cell));
    let ratios = table
        .ratios(1, 2, 0, Mechanism::TimeSharing)
        .expect("it is there");
    assert_eq!(
        (ratios.latency_mean, ratios.latency_p99, ratios.speed),
        (2.0, 2.0, 0.5)
    );
    assert!(!ratios.keeps_up);
    let ratios = table
        .ratios(1, 2, 0, Mechanism::MuxFlow)
        .expect("it is there");
    assert!(ratios.keeps_up);
}

#[test]
fn outside_of_the_lists_there_is_nothing() {
    let table = read(&made_up()).expect("it is right");
    let by = Mechanism::MuxFlow;
    for (service, load, training) in [(3, 0, 0), (0, 3, 0), (0, 0, 4)] {
        assert_eq!(table.cell(service, load, training, by), None);
        assert_eq!(table.ratios(service, load, training, by), None);
    }
    assert_eq!(table.latency_alone(3, 0), None);
    assert_eq!(table.latency_alone(0, 3), None);
    assert_eq!(table.alone_per_s(4), None);
}

#[test]
fn a_wrong_table_is_refused_with_its_line() {
    const RIGHT: &str = "resnet50,20,resnet50,pb-time-sharing,60,120,0.25,10";
    let whole = made_up();
    assert!(whole.contains(RIGHT));
    let cases = [
        (
            "resnet5,20,resnet50,pb-time-sharing,60,120,0.25,10",
            "service \"resnet5\": ",
        ),
        (
            "resnet50,20,resnet,pb-time-sharing,60,120,0.25,10",
            "training \"resnet\": ",
        ),
        (
            "resnet50,30,resnet50,pb-time-sharing,60,120,0.25,10",
            "load_pct is 30: ",
        ),
        (
            "resnet50,,resnet50,pb-time-sharing,60,120,0.25,10",
            "load_pct is empty: ",
        ),
        (
            "resnet50,20,resnet50,mps,60,120,0.25,10",
            "mechanism \"mps\": ",
        ),
        (
            "resnet50,20,resnet50,pb-time-sharing,,120,0.25,10",
            "mean_ms is empty: ",
        ),
        (
            "resnet50,20,resnet50,pb-time-sharing,60,0,0.25,10",
            "p99_ms is 0: ",
        ),
        (
            "resnet50,20,resnet50,pb-time-sharing,60,120,-1,10",
            "behind_s is -1: ",
        ),
        (
            "resnet50,20,resnet50,pb-time-sharing,60,120,0.5,NaN",
            "iterations_per_s is NaN: ",
        ),
        (
            ",20,,pb-time-sharing,60,120,0.25,10",
            "neither service nor training: ",
        ),
    ];
    for (wrong, said) in cases {
        let error = read(&whole.replacen(RIGHT, wrong, 1)).expect_err(wrong);
        let is_right = error.starts_with(&format!("t.csv:8: {said}"));
        assert!(is_right && error.contains("expected"), "{error}");
    }
    let twice = whole.replacen(RIGHT, "resnet50,20,resnet50,time-sharing,60,120,0.25,10", 1);
    let error = read(&twice).expect_err("a row is there twice");
    assert_eq!(error, "t.csv:8: the row appears twice: expected once");
    let missing = whole.replacen(&format!("{RIGHT}\n"), "", 1);
    let error = read(&missing).expect_err("a row is missing");
    assert_eq!(
        error,
        "t.csv: 1 of 229 rows are missing: expected each once"
    );
    assert!(read(&whole.replacen("mean_ms", "mean", 1)).is_err());
    assert!(read(&whole.replacen("0.25", "late", 1)).is_err());
    assert!(read("").is_err());
}

#[test]
fn what_is_not_in_the_lists_cannot_be_measured() {
    let mut bench = Bench::new();
    let cases = [
        ((3, 0, 0), "no service 3: expected 0 to 2"),
        ((0, 3, 0), "no rate 3: expected 0 to 2"),
        ((0, 0, 4), "no training 4: expected 0 to 3"),
    ];
    for ((service, load, training), said) in cases {
        let error = bench.cell(service, load, training, Mechanism::MuxFlow);
        assert_eq!(error.expect_err("a refusal").to_string(), said);
    }
}

#[test]
fn every_mechanism_is_a_policy_of_the_simulator() {
    for by in Mechanism::ALL {
        let (_, policy) = by.scenario();
        let name = policy.split('"').nth(1).expect("a name in quotes");
        assert!(name.parse::<PolicySpec>().is_ok(), "{name}");
    }
}
