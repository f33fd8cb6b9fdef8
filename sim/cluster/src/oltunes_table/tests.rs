//! Tests of the table with made-up numbers, and that all names are known.

use std::fmt::Write as _;

use sim::PolicySpec;

use super::measure::{Bench, MeasureError};
use super::{
    Alone, BATCHES, GPUS, InferenceTable, MODELS, Mechanism, PAIR_BATCHES, PAIRS, RATIO_BATCHES,
    RATIO_GPU, Ratio, SHARES_PCT, pair_batch,
};

const COLUMNS: &str = "gpu,model,batch,share_pct,latency_ms,sm_activity,beside,beside_batch,\
                       mechanism,speed,beside_speed,compute_kernels,memory_kernels\n";

/// A batch alone takes 1000 ms per GPU, 100 per model and 1 per input, ÷ share. A task keeps 0.001
/// for each input, and 0.1 more by mechanism; so does its neighbour, and 0.5 more on the last GPU.
fn made_up() -> String {
    let mut text = format!("# A comment.\n{COLUMNS}");
    for (model, of) in MODELS.iter().enumerate() {
        for batch in RATIO_BATCHES {
            let (gpu, name) = (GPUS[RATIO_GPU], of.name);
            let _ = writeln!(text, "{gpu},{name},{batch},,,,,,,,,{model},{batch}");
        }
    }
    for (gpu, name) in GPUS.iter().enumerate() {
        for (model, of) in MODELS.iter().enumerate() {
            for (batch, pct) in BATCHES.iter().flat_map(|b| SHARES_PCT.map(|pct| (b, pct))) {
                let ms = (1000 * gpu as u32 + 100 * model as u32 + batch) * 100 / pct;
                let row = format!("{name},{},{batch},{pct}", of.name);
                let _ = writeln!(text, "{row},{ms},{},,,,,,,", f64::from(pct) / 200.0);
            }
        }
        let tasks = || {
            MODELS
                .iter()
                .flat_map(|of| PAIR_BATCHES.map(|b| (of.name, b)))
        };
        for by in Mechanism::ALL {
            for (place, (of, batch)) in tasks().enumerate() {
                let first = if by.is_symmetric() { place } else { 0 };
                for (beside, other) in tasks().skip(first) {
                    let [speed, beside_speed] = speeds(by, gpu, batch, other);
                    let row = format!("{name},{of},{batch},,,,{beside},{other},{}", by.name());
                    let _ = writeln!(text, "{row},{speed},{beside_speed},,");
                }
            }
        }
    }
    text
}

fn speeds(by: Mechanism, gpu: usize, batch: u32, beside: u32) -> [f64; 2] {
    let of_gpu = if gpu == 2 && !by.is_symmetric() {
        0.5
    } else {
        0.0
    };
    let speed = |batch: u32| f64::from(batch) / 1000.0 + f64::from(by as u32) / 10.0;
    [speed(batch), speed(beside) + of_gpu]
}

fn read(text: &str) -> Result<InferenceTable, String> {
    InferenceTable::read("t.csv", text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn a_number_is_what_the_row_has() {
    let table = read(&made_up()).expect("it is right");
    let alone = Alone {
        latency_ms: 2716.0 * 2.5,
        sm_activity: 0.2,
    };
    assert_eq!(table.alone(2, 7, 16, 40), Some(alone));
    let ratio = |memory_kernels| Ratio {
        compute_kernels: 5,
        memory_kernels,
    };
    assert_eq!(table.ratio(5), ratio(1));
    assert_eq!(table.ratio_of_batch(5, 16), Some(ratio(16)));
    for by in Mechanism::ALL {
        for gpu in 0..GPUS.len() {
            let told = table.speed_beside(by, gpu, (7, 1), (2, 32));
            assert_eq!(told, Some(speeds(by, gpu, 1, 32)), "{by:?}");
            let turned = table.speed_beside(by, gpu, (2, 32), (7, 1));
            assert_eq!(turned, Some(speeds(by, gpu, 32, 1)), "{by:?}");
            let itself = table.speed_beside(by, gpu, (7, 32), (7, 32));
            assert_eq!(itself, Some(speeds(by, gpu, 32, 32)), "{by:?}");
        }
    }
}

#[test]
fn between_the_batches_of_pairs_the_nearest_by_ratio_counts() {
    let nearest = [1, 2, 3, 8, 15, 16, 32, 64, 4096, u32::MAX].map(pair_batch);
    assert_eq!(nearest, [1, 1, 8, 8, 8, 32, 32, 32, 32, 32]);
    let table = read(&made_up()).expect("it is right");
    let by = Mechanism::Orion;
    assert_eq!(
        table.speed_beside(by, 0, (3, 2), (4, 64)),
        table.speed_beside(by, 0, (3, 1), (4, 32))
    );
}

#[test]
fn outside_of_the_lists_there_is_nothing() {
    let table = read(&made_up()).expect("it is right");
    for (gpu, model, batch, pct) in [
        (3, 0, 1, 100),
        (0, 8, 1, 100),
        (0, 0, 2, 100),
        (0, 0, 1, 50),
    ] {
        assert_eq!(table.alone(gpu, model, batch, pct), None);
    }
    for by in Mechanism::ALL {
        for (gpu, of, beside) in [
            (3, (0, 1), (0, 1)),
            (0, (8, 1), (0, 1)),
            (0, (0, 1), (8, 1)),
            (0, (0, 0), (0, 1)),
        ] {
            assert_eq!(table.speed_beside(by, gpu, of, beside), None);
        }
    }
    assert_eq!(table.ratio_of_batch(0, 8), None);
    assert_eq!(table.ratio_of_batch(8, 16), None);
}

fn assert_refused(right: &str, wrong: &str, said: &str) {
    let whole = made_up();
    let line = whole.lines().position(|line| line == right);
    let line = line.expect("the row is there") + 1;
    let changed = whole.replacen(&format!("\n{right}\n"), &format!("\n{wrong}\n"), 1);
    let error = read(&changed).expect_err(wrong);
    let begin = format!("t.csv:{line}: {said}");
    assert!(
        error.starts_with(&begin) && error.contains("expected"),
        "{error}, not {begin}"
    );
}

#[test]
fn a_wrong_row_alone_is_refused_with_its_line() {
    const RIGHT: &str = "A30,bert-base,4,40,6010,0.2,,,,,,,";
    for (wrong, said) in [
        ("A3,bert-base,4,40,6010,0.2,,,,,,,", "gpu \"A3\": "),
        ("A30,bert,4,40,6010,0.2,,,,,,,", "model \"bert\": "),
        ("A30,bert-base,2,40,6010,0.2,,,,,,,", "batch is 2: "),
        ("A30,bert-base,,40,6010,0.2,,,,,,,", "batch is empty: "),
        ("A30,bert-base,4,50,6010,0.2,,,,,,,", "share_pct is 50: "),
        ("A30,bert-base,4,40,,0.2,,,,,,,", "latency_ms is empty: "),
        ("A30,bert-base,4,40,0,0.2,,,,,,,", "latency_ms is 0: "),
        ("A30,bert-base,4,40,6010,1.2,,,,,,,", "sm_activity is 1.2: "),
        ("A30,bert-base,4,40,6010,NaN,,,,,,,", "sm_activity is NaN: "),
        (
            "A30,bert-base,4,,6010,0.2,,,,,,,",
            "expected exactly one of ",
        ),
        (
            "A30,bert-base,4,20,6010,0.2,,,,,,,",
            "the row appears twice",
        ),
    ] {
        assert_refused(RIGHT, wrong, said);
    }
}

#[test]
fn a_wrong_row_of_a_pair_is_refused_with_its_line() {
    const RIGHT: &str = "A30,resnet18,1,,,,yolov5n,8,mps,0.001,0.008,,";
    for (wrong, said) in [
        (
            "A30,resnet18,1,,,,yolov5,8,mps,0.001,0.008,,",
            "beside \"yolov5\": ",
        ),
        (
            "A30,resnet18,4,,,,yolov5n,8,mps,0.001,0.008,,",
            "batch is 4: ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,,mps,0.001,0.008,,",
            "beside_batch is empty: ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,8,mp,0.001,0.008,,",
            "mechanism \"mp\": ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,8,,0.001,0.008,,",
            "mechanism \"\": ",
        ),
        (
            "A30,yolov5n,8,,,,resnet18,1,mps,0.008,0.001,,",
            "yolov5n comes after its neighbour under mps: ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,8,mps,-1,0.008,,",
            "speed is -1: ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,8,mps,0.001,1.06,,",
            "beside_speed is 1.06: ",
        ),
        (
            "A30,resnet18,1,20,,,yolov5n,8,mps,0.001,0.008,,",
            "expected exactly one of ",
        ),
        (
            "A30,resnet18,1,,,,yolov5n,1,mps,0.001,0.008,,",
            "the row appears twice",
        ),
    ] {
        assert_refused(RIGHT, wrong, said);
    }
}

#[test]
fn a_wrong_row_of_kernels_is_refused_with_its_line_and_a_missing_one_is_counted() {
    const RIGHT: &str = "A100-SXM4-40GB,gpt2,16,,,,,,,,,7,16";
    for (wrong, said) in [
        (
            "A30,gpt2,16,,,,,,,,,7,16",
            "compute_kernels on A30: expected on A100",
        ),
        ("A100-SXM4-40GB,gpt2,8,,,,,,,,,7,16", "batch is 8: "),
        (
            "A100-SXM4-40GB,gpt2,16,,,,,,,,,7,",
            "memory_kernels is empty: ",
        ),
        (
            "A100-SXM4-40GB,gpt2,1,,,,,,,,,7,16",
            "the row appears twice",
        ),
    ] {
        assert_refused(RIGHT, wrong, said);
    }
    let whole = made_up();
    let missing = whole.replacen(&format!("{RIGHT}\n"), "", 1);
    let all = PAIRS + 3 * 8 * 6 * 5 + 8 * 2;
    let error = read(&missing).expect_err("a row is missing");
    let expected = format!("t.csv: 1 of {all} rows are missing: expected each once");
    assert_eq!(error, expected);
    assert!(read(&whole.replacen("sm_activity", "sm", 1)).is_err());
    assert!(read(&whole.replacen(",7,16", ",7,many", 1)).is_err());
    assert!(read("").is_err());
}

#[test]
fn what_is_not_in_the_lists_cannot_be_measured() {
    let mut bench = Bench::new();
    let said = |error: MeasureError| error.to_string();
    let error = bench.alone(3, 0, 1, 100).map_err(said);
    assert_eq!(error, Err("no GPU 3: expected 0 to 2".to_owned()));
    let error = bench.ratio(8, 1).map_err(said);
    assert_eq!(error, Err("no model 8: expected 0 to 7".to_owned()));
    let error = bench.speeds(Mechanism::Mps, 0, (0, 0), (0, 1));
    let error = error.map_err(said);
    assert_eq!(error, Err("batch 0: expected 1 to 4096".to_owned()));
}

#[test]
fn every_mechanism_is_a_policy_of_the_simulator() {
    for by in Mechanism::ALL {
        assert!(by.name().parse::<PolicySpec>().is_ok(), "{by:?}");
    }
}

#[test]
fn a_task_holds_its_parameters_and_more_with_a_larger_batch() {
    for (model, of) in MODELS.iter().enumerate() {
        let bytes = BATCHES.map(|batch| InferenceTable::memory_bytes(model, batch));
        assert!(bytes.is_sorted_by(|less, more| less < more), "{}", of.name);
        // All batches fit the smallest of the GPUs, which has 24 GB.
        assert!(bytes[BATCHES.len() - 1] < 12_000_000_000, "{}", of.name);
    }
    // 1.3 billion parameters in 4 bytes.
    let gpt2 = InferenceTable::memory_bytes(7, 1);
    assert!((5_700_000_000..6_000_000_000).contains(&gpt2), "{gpt2}");
}
