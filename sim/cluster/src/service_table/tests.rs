//! A made-up table, whose numbers say where they stand.

use std::fmt::Write as _;

use super::{BATCHES, SERVICES, SHARES_PCT, ServiceTable, TRAININGS};

const COLUMNS: &str =
    "service,training,batch,share_pct,late,request_p99_ms,batch_p99_ms,iterations_per_s\n";

/// Services answer at 20 % and more; nothing else depends on more than batch and share.
fn made_up() -> String {
    let mut text = format!("# A comment.\n{COLUMNS}");
    for (place, training) in TRAININGS.iter().enumerate() {
        let _ = writeln!(text, ",{},,,,,,{}", training.name, 1000 + place);
    }
    for (place, service) in SERVICES.iter().enumerate() {
        for batch in BATCHES {
            let _ = writeln!(
                text,
                "{},,{batch},,,,{},",
                service.name,
                100 * place as u32 + batch
            );
        }
        for training in TRAININGS {
            for (batch, pct) in BATCHES.iter().flat_map(|b| SHARES_PCT.map(|pct| (b, pct))) {
                let (service, training) = (service.name, training.name);
                let (late, p99) = match pct {
                    10 => (1.0, String::new()),
                    _ => (1.0 - f64::from(pct) / 100.0, (1000 - pct).to_string()),
                };
                let (batch_p99, per_s) = (batch * (100 - pct), 10 * (100 - pct) + batch);
                let _ = writeln!(
                    text,
                    "{service},{training},{batch},{pct},{late},{p99},{batch_p99},{per_s}"
                );
            }
        }
    }
    text
}

fn read(text: &str) -> Result<ServiceTable, String> {
    ServiceTable::read("t.csv", text.as_bytes()).map_err(|error| error.to_string())
}

fn is_near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found - wanted).abs() < 1e-9)
}

#[test]
fn on_the_grid_the_table_says_what_the_file_says() {
    let table = read(&made_up()).expect("it is right");
    assert!(is_near(table.late(5, 8, 64, 0.3), 0.7));
    assert!(is_near(table.late(5, 8, 64, 0.1 + 0.2), 0.7));
    assert!(is_near(table.request_p99_ms(0, 0, 1, 0.9), 910.0));
    assert!(is_near(table.batch_p99_ms(2, 3, 16, 0.5), 800.0));
    assert!(is_near(table.iterations_per_s(0, 0, 1, 0.1), 901.0));
    assert_eq!(table.alone_per_s(8), Some(1008.0));
    assert_eq!(table.batch_p99_alone_ms(3, 32), Some(332.0));
    let cell = table.cell(1, 2, 8, 40).expect("it is on the grid");
    assert_eq!((cell.late, cell.iterations_per_s), (0.6, 608.0));
}

#[test]
fn between_two_shares_lies_the_straight_line() {
    let table = read(&made_up()).expect("it is right");
    assert!(is_near(table.late(1, 1, 4, 0.25), 0.75));
    assert!(is_near(table.late(1, 1, 4, 0.11), 0.98));
    assert!(is_near(table.request_p99_ms(1, 1, 4, 0.899), 910.1));
    assert!(is_near(table.batch_p99_ms(1, 1, 4, 0.333), 4.0 * 66.7));
    assert!(is_near(table.iterations_per_s(1, 1, 4, 0.15), 854.0));
}

#[test]
fn outside_of_the_grid_there_is_nothing() {
    let table = read(&made_up()).expect("it is right");
    for share in [0.0, 0.099, 0.901, 1.0, -0.5, f64::NAN, f64::INFINITY] {
        assert_eq!(table.late(0, 0, 1, share), None, "{share}");
        assert_eq!(table.iterations_per_s(0, 0, 1, share), None, "{share}");
    }
    assert_eq!(table.late(6, 0, 1, 0.5), None);
    assert_eq!(table.late(0, 9, 1, 0.5), None);
    assert_eq!(table.late(0, 0, 3, 0.5), None);
    assert!(table.cell(0, 0, 1, 15).is_none() && table.cell(0, 9, 1, 10).is_none());
    assert_eq!(table.alone_per_s(9), None);
    assert_eq!(table.batch_p99_alone_ms(6, 1), None);
    assert_eq!(table.batch_p99_alone_ms(0, 5), None);
    assert!(table.best(6, 0, 1.0).is_none() && table.best(0, 9, 1.0).is_none());
}

#[test]
fn no_percentile_of_requests_is_told_beside_a_share_that_cannot_keep_up() {
    let table = read(&made_up()).expect("it is right");
    assert_eq!(table.request_p99_ms(0, 0, 1, 0.1), None);
    assert_eq!(table.request_p99_ms(0, 0, 1, 0.15), None);
    assert!(is_near(table.request_p99_ms(0, 0, 1, 0.2), 980.0));
}

#[test]
fn the_best_setting_is_the_fastest_with_so_few_late_requests() {
    let table = read(&made_up()).expect("it is right");
    let best = table.best(0, 0, 0.35).expect("there is one");
    assert_eq!((best.batch, best.share_pct), (64, 70));
    assert!(table.best(0, 0, 0.05).is_none());
    let any = table.best(0, 0, 1.0).expect("there is one");
    assert_eq!((any.batch, any.share_pct), (64, 10));
}

#[test]
fn a_wrong_table_is_refused_with_its_line() {
    const RIGHT: &str = "resnet50,vgg16,1,20,0.8,980,80,801";
    let whole = made_up();
    let cases = [
        ("resnet5,vgg16,1,20,0.8,980,80,801", "service \"resnet5\": "),
        ("resnet50,vgg,1,20,0.8,980,80,801", "training \"vgg\": "),
        ("resnet50,vgg16,3,20,0.8,980,80,801", "batch is 3: "),
        ("resnet50,vgg16,1,25,0.8,980,80,801", "share is 25: "),
        ("resnet50,vgg16,1,20,1.8,980,80,801", "late is 1.8: "),
        ("resnet50,vgg16,1,20,0.8,,80,801", "no request_p99_ms, "),
        (
            "resnet50,vgg16,1,20,0.8,980,,801",
            "batch_p99_ms is empty: ",
        ),
        ("resnet50,vgg16,1,20,0.8,980,80,NaN", "NaN: "),
        ("resnet50,vgg16,1,20,0.8,980,80,-1", "-1: "),
        (",,1,20,0.8,980,80,801", "neither service nor training: "),
    ];
    for (wrong, said) in cases {
        let error = read(&whole.replacen(RIGHT, wrong, 1)).expect_err(wrong);
        let is_right = error.starts_with(&format!("t.csv:20: {said}"));
        assert!(is_right && error.contains("expected"), "{error}");
    }
    let twice = whole.replacen(RIGHT, "resnet50,vgg16,1,30,0.8,980,80,801", 1);
    let error = read(&twice).expect_err("a row is there twice");
    assert_eq!(error, "t.csv:21: the row appears twice: expected once");
    let missing = whole.replacen(&format!("{RIGHT}\n"), "", 1);
    let error = read(&missing).expect_err("a row is missing");
    let expected = "t.csv: 1 of 3453 rows are missing: expected each once";
    assert_eq!(error, expected);
    assert!(read(&whole.replacen("late", "lat", 1)).is_err());
    assert!(read(&whole.replacen("801", "fast", 1)).is_err());
    assert!(read("").is_err());
}

#[test]
fn every_training_has_layers_to_predict_from() {
    for training in TRAININGS {
        let counts = training.layer_counts().expect("it is a workload");
        assert!(counts.to_array().iter().sum::<u32>() > 3, "{training:?}");
    }
    let weights: u32 = TRAININGS.iter().map(|training| training.weight).sum();
    assert_eq!(weights, 102);
}
