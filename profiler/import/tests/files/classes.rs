//! Classes from shapes against those from counters: the source of the table in `docs/formats.md`.

use std::path::Path;

use import::Options;
use tempfile::TempDir;

use crate::common::{data, import, read};

/// A kernel measured by Nsight Compute: the peak bandwidth if the file lacks it (the RTX 5070's as
/// printed by the program), the model whose ridge judges shapes, operator and inputs.
struct Case {
    name: &'static str,
    file: &'static str,
    bandwidth_gb_s: Option<u64>,
    model: &'static str,
    operator: &'static str,
    dims: &'static str,
}

const fn of_5070(
    name: &'static str,
    file: &'static str,
    operator: &'static str,
    dims: &'static str,
) -> Case {
    Case {
        name,
        file,
        bandwidth_gb_s: Some(672),
        // The table has no RTX 5070; this is the one of its architecture.
        model: "NVIDIA GeForce RTX 5060 Ti",
        operator,
        dims,
    }
}

const SQUARE_2048: &str = "[[2048, 2048], [2048, 2048]]";

const CASES: [Case; 6] = [
    of_5070(
        "matrix product, naive (RTX 5070)",
        "ncu_metrics_win_rtx5070/gemm_naive.csv",
        "aten::mm",
        SQUARE_2048,
    ),
    of_5070(
        "matrix product, tiled (RTX 5070)",
        "ncu_metrics_win_rtx5070/gemm_tiled.csv",
        "aten::mm",
        SQUARE_2048,
    ),
    of_5070(
        "matrix product, blocked in registers (RTX 5070)",
        "ncu_metrics_win_rtx5070/gemm_register_blocked.csv",
        "aten::mm",
        SQUARE_2048,
    ),
    of_5070(
        "saxpy (RTX 5070)",
        "ncu_metrics_win_rtx5070/saxpy.csv",
        "aten::add_",
        "[[16777216], [16777216]]",
    ),
    of_5070(
        "transposition, naive (RTX 5070)",
        "ncu_metrics_win_rtx5070/transpose_naive.csv",
        "aten::copy_",
        SQUARE_2048,
    ),
    Case {
        name: "matrix product, naive (H100 PCIe)",
        file: "ncurep_2023_h100pcie_matmul/kb.ncu-rep",
        bandwidth_gb_s: None,
        model: "NVIDIA H100 PCIe",
        operator: "aten::mm",
        dims: "[[4096, 4096], [4096, 4096]]",
    },
];

fn counted(folder: &Path, case: &Case) -> (f64, f64, &'static str) {
    let mut source = read(&folder.join(case.file)).expect("a measured kernel");
    if let Some(bandwidth) = case.bandwidth_gb_s {
        source.gpus[0].bandwidth_bytes_per_s = Some(bandwidth * 1_000_000_000);
    }
    let profile = import::reduce(&[source], &Options::default()).expect("of one GPU");
    let kernel = &profile.kernels[0];
    let percent = |percent: Option<profiler::profile::Percent>| percent.expect("counted").value();
    let (compute, dram) = (kernel.evidence.compute_pct, kernel.evidence.dram_pct);
    (percent(compute), percent(dram), kernel.class.word())
}

fn estimated(case: &Case) -> &'static str {
    let text = format!(
        r#"{{"deviceProperties": [{{"id": 0, "name": "{}"}}], "traceEvents": [
        {{"ph": "X", "cat": "cpu_op", "name": "{}", "ts": 1, "dur": 2, "args": {{"External id": 3, "Input Dims": {}, "Input type": ["float", "float"]}}}},
        {{"ph": "X", "cat": "kernel", "name": "f", "ts": 2, "dur": 9, "args": {{"External id": 3, "device": 0, "grid": [64, 64, 1], "block": [32, 32, 1]}}}}]}}"#,
        case.model, case.operator, case.dims,
    );
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("trace.json");
    std::fs::write(&path, text).expect("room");
    let profile = import(&path).expect("a trace");
    assert_eq!(
        profile.kernels[0].class_rule.word(),
        "estimated",
        "{}",
        case.name
    );
    profile.kernels[0].class.word()
}

#[test]
fn the_documented_agreement_of_estimates_and_counters_is_what_comes_out() {
    let folder = data();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let docs = std::fs::read_to_string(docs).expect("there");
    let mut agreeing = 0;
    for case in &CASES {
        let (compute_pct, dram_pct, class) = counted(&folder, case);
        let guess = estimated(case);
        let (name, operator) = (case.name, case.operator);
        let row = format!(
            "| {name} | {compute_pct:.1} | {dram_pct:.1} | `{class}` | `{operator}` | `{guess}` |"
        );
        assert!(docs.contains(&row), "not in docs/formats.md:\n{row}");
        agreeing += usize::from(class == guess);
    }
    let sum = format!("{agreeing} of {} agree", CASES.len());
    assert!(docs.contains(&sum), "not in docs/formats.md: {sum}");
}
