//! Real output of Nsight Compute, 2023 to 2026; the H100's against NVIDIA's `kb.ncu_report.json`.

use std::path::{Path, PathBuf};

use import::occupancy::{Block, block_limits, threads};
use import::source::Counters;
use import::{Error, Options, Source};
use profiler::{ClassRule, Profile, ResourceClass};
use serde_json::Value;

use crate::common::{data, import, read};

const H100: &str = "ncurep_2023_h100pcie_matmul";
const RTX_5070: [(&str, u64, f64); 5] = [
    ("gemm_naive", 9_589_248, 97.32),
    ("gemm_register_blocked", 0, 0.0),
    ("gemm_tiled", 0, 0.0),
    ("saxpy", 292_928, 22.30),
    ("transpose_naive", 163_072, 6.40),
];

fn one(path: &Path) -> (Source, Profile) {
    let source = read(path).expect("a whole file");
    let profile =
        import::reduce(std::slice::from_ref(&source), &Options::default()).expect("one GPU");
    assert_eq!(
        (source.launches.len(), profile.kernels.len()),
        (1, 1),
        "{}",
        path.display()
    );
    (source, profile)
}

fn counters(source: &Source) -> &Counters {
    source.launches[0].counters.as_deref().expect("counted")
}

fn near(found: Option<f64>, expected: f64, tolerance: f64) {
    let found = found.expect("measured");
    assert!(
        (found - expected).abs() <= tolerance,
        "{found} is not {expected}"
    );
}

#[test]
fn the_h100_report_has_the_values_of_nvidias_library() {
    let folder = data();
    let (source, _) = one(&folder.join(H100).join("kb.ncu-rep"));
    let oracle =
        std::fs::read_to_string(folder.join(H100).join("kb.ncu_report.json")).expect("there");
    let oracle: Value = serde_json::from_str(&oracle).expect("JSON");
    let of = |name: &str| oracle[0]["metrics"][name][0].as_f64().expect("a number");
    let counters = counters(&source);
    near(
        counters.compute_pct,
        of("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        1e-9,
    );
    near(
        counters.memory_pct,
        of("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
        1e-9,
    );
    near(
        counters.dram_pct,
        of("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        1e-9,
    );
    near(
        counters.l2_pct,
        of("lts__throughput.avg.pct_of_peak_sustained_elapsed"),
        1e-9,
    );
    near(
        counters.l1_pct,
        of("l1tex__throughput.avg.pct_of_peak_sustained_active"),
        1e-9,
    );
    near(
        counters.dram_bytes_per_s,
        of("dram__bytes.sum.per_second"),
        1.0,
    );
    let per_cycle = of("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed");
    near(
        counters.fp32_per_s,
        2.0 * per_cycle * of("smsp__cycles_elapsed.avg.per_second"),
        1e3,
    );
}

#[test]
fn the_h100_kernel_is_bound_by_its_own_l1_and_so_not_by_memory() {
    let folder = data();
    let (source, profile) = one(&folder.join(H100).join("kb.ncu-rep"));
    let counters = counters(&source);
    // The intensity and the ridge computed by hand from this report.
    let intensity =
        counters.fp32_per_s.expect("counted") / counters.dram_bytes_per_s.expect("counted");
    let ridge =
        counters.fp32_peak_per_s.expect("there") / counters.dram_peak_bytes_per_s.expect("there");
    near(Some(intensity), 8.03, 0.01);
    near(Some(ridge), 15.7, 0.05);
    let kernel = &profile.kernels[0];
    assert_eq!(
        kernel.name,
        "matmul_kernel(const float *, const float *, float *, int)"
    );
    assert_eq!(
        kernel.mangled.as_deref(),
        Some("_Z13matmul_kernelPKfS0_Pfi")
    );
    assert_eq!(kernel.durations.sum_ns, 51_930_592);
    assert_eq!((kernel.grid, kernel.block), ([256, 256, 1], [16, 16, 1]));
    assert_eq!(
        (
            kernel.registers,
            kernel.evidence.blocks_per_sm,
            kernel.sm_needed
        ),
        (32, Some(8), 8_192)
    );
    // Bound by its own L1, hardly using device memory: for sharing it is compute.
    assert_eq!(
        (kernel.class, kernel.class_rule),
        (ResourceClass::Compute, ClassRule::Throughput)
    );
    assert_eq!(profile.gpu, "H100-PCIe");
    let measured = profile.measured.expect("stated");
    assert_eq!(
        (measured.sms, measured.clock_mhz, measured.bandwidth_gb_s),
        (Some(114), Some(1755), Some(2039))
    );
}

#[test]
fn report_raw_page_and_details_page_say_the_same() {
    let folder = data();
    let folder = folder.join(H100);
    let (exact, from_report) = one(&folder.join("kb.ncu-rep"));
    for (file, percent, nanoseconds) in [
        ("kb.ncu2024.raw.csv", 1e-5, 1),
        ("kb.ncu2024.details.csv", 0.005, 5_000),
    ] {
        let (source, profile) = one(&folder.join(file));
        let (mine, exact) = (counters(&source), counters(&exact));
        for field in [
            |c: &Counters| c.compute_pct,
            |c: &Counters| c.memory_pct,
            |c: &Counters| c.dram_pct,
            |c: &Counters| c.l2_pct,
            |c: &Counters| c.l1_pct,
        ] {
            near(field(mine), field(exact).expect("measured"), percent);
        }
        assert_eq!(mine.limits, exact.limits, "{file}");
        let (found, expected) = (&profile.kernels[0], &from_report.kernels[0]);
        let apart = found.durations.sum_ns.abs_diff(expected.durations.sum_ns);
        assert!(apart <= nanoseconds, "{file}: {apart} ns apart");
        assert_eq!(
            source.kernels[0].shared,
            read(&folder.join("kb.ncu-rep")).expect("whole").kernels[0].shared,
            "{file}"
        );
        assert_eq!(
            (found.grid, found.block, found.registers),
            (expected.grid, expected.block, expected.registers)
        );
        assert_eq!(
            (found.sm_needed, found.class),
            (expected.sm_needed, expected.class),
            "{file}"
        );
    }
}

#[test]
fn the_gb200_log_with_the_programs_own_output_is_read() {
    let folder = data();
    let path = folder.join("ncu_details_2025_gb200_cublaslt/cublaslt_ncu.log");
    let (source, profile) = one(&path);
    let kernel = &profile.kernels[0];
    assert_eq!(kernel.durations.sum_ns, 406_240);
    assert_eq!(
        (kernel.grid, kernel.block, kernel.registers),
        ([9, 32, 1], [384, 1, 1], 168)
    );
    assert_eq!(
        (
            kernel.shared_bytes,
            kernel.evidence.blocks_per_sm,
            kernel.sm_needed
        ),
        (205_696, Some(1), 288)
    );
    near(counters(&source).compute_pct, 23.59, 1e-9);
    near(counters(&source).dram_pct, 0.74, 1e-9);
    assert_eq!(
        (kernel.class, kernel.class_rule),
        (ResourceClass::Unknown, ClassRule::Throughput)
    );
    let measured = profile.measured.expect("stated");
    assert_eq!(
        (measured.sms, measured.compute_capability),
        (Some(152), Some((10, 0)))
    );
    let [no_gpu, durations] = &profile.notices[..] else {
        panic!("{:?}", profile.notices)
    };
    assert!(no_gpu.contains("--device"), "{no_gpu}");
    assert!(
        durations.contains("one by one, at base clocks"),
        "{durations}"
    );
}

#[test]
fn captures_of_powershell_with_thousands_separators_are_read() {
    let folder = data();
    let expected = std::fs::read_to_string(folder.join("EXPECT.json")).expect("there");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    for (name, duration_ns, compute_pct) in RTX_5070 {
        let file = format!("ncu_metrics_win_rtx5070/{name}.csv");
        let (source, profile) = one(&folder.join(&file));
        assert_eq!(expected[&file]["launches"], 1);
        if duration_ns > 0 {
            assert_eq!(profile.kernels[0].durations.sum_ns, duration_ns, "{name}");
            near(counters(&source).compute_pct, compute_pct, 1e-9);
        }
        assert!(counters(&source).dram_bytes_per_s.is_some(), "{name}");
    }
}

#[test]
fn bytes_of_device_memory_stand_in_for_its_share_of_the_peak() {
    let folder = data();
    let source = read(&folder.join("ncu_metrics_win_rtx5070/saxpy.csv")).expect("a table");
    let of = |source: Source| import::reduce(&[source], &Options::default()).expect("one GPU");
    assert_eq!(
        of(source.clone()).kernels[0].evidence.dram_pct,
        None,
        "no peak is known"
    );
    let mut known = source;
    // The program's own output about the card: 672 GB/s.
    known.gpus[0].bandwidth_bytes_per_s = Some(672_000_000_000);
    let kernel = of(known).kernels.remove(0);
    let dram_pct = kernel.evidence.dram_pct.map(|percent| percent.value());
    // (134 221 568 + 43 631 104) bytes in 292 928 ns.
    near(dram_pct, 90.35, 0.01);
    assert_eq!(
        (kernel.class, kernel.class_rule),
        (ResourceClass::Memory, ClassRule::Throughput)
    );
}

#[test]
fn tables_for_people_are_refused_with_the_option_that_helps() {
    let folder = data();
    for file in [
        "ncu_text_details/ncu_logs.txt",
        "ncu_text_details/triton_profile.txt",
    ] {
        let error = import(&folder.join(file)).expect_err("no CSV");
        assert!(matches!(error, Error::NotSuitable { .. }), "{error}");
        assert!(error.to_string().contains("--csv --page raw"), "{error}");
    }
}

#[test]
fn the_occupancy_rule_gives_the_limits_that_the_tool_states() {
    let folder = data();
    let files = [
        (folder.join(H100).join("kb.ncu-rep"), (9, 0)),
        (folder.join(H100).join("kb.ncu2024.raw.csv"), (9, 0)),
        (folder.join(H100).join("kb.ncu2024.details.csv"), (9, 0)),
        (
            folder.join("ncu_details_2025_gb200_cublaslt/cublaslt_ncu.log"),
            (10, 0),
        ),
    ];
    for (path, (major, minor)) in files {
        let (source, _) = one(&path);
        let stated = counters(&source).limits;
        let kernel = &source.kernels[0];
        let sm = import::occupancy::SmLimits::of(major, minor).expect("known");
        let shared =
            kernel.shared.of_block().expect("stated") + kernel.shared.driver_bytes.expect("stated");
        let block = Block {
            threads: threads(kernel.block.expect("stated")),
            registers: kernel.registers.expect("stated"),
            shared_bytes: shared,
        };
        let mine = block_limits(&sm, &block, kernel.shared.carveout_bytes);
        let mine = [mine.blocks, mine.registers, mine.shared, mine.warps].map(Some);
        assert_eq!(
            mine,
            [stated.blocks, stated.registers, stated.shared, stated.warps],
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_cut_or_changed_report_is_refused_or_read_and_never_more() {
    let folder = data();
    let whole = std::fs::read(folder.join(H100).join("kb.ncu-rep")).expect("there");
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path: PathBuf = temporary.path().join("cut.ncu-rep");
    for length in (0..whole.len()).step_by(whole.len() / 60) {
        std::fs::write(&path, &whole[..length]).expect("room");
        let error = read(&path).err().map(|error| error.to_string());
        assert!(
            error.is_some_and(|error| !error.contains('\n')),
            "{length} bytes are not whole"
        );
    }
    for index in (0..2_000).chain((2_000..whole.len()).step_by(997)) {
        let mut changed = whole.clone();
        changed[index] ^= 0xff;
        std::fs::write(&path, &changed).expect("room");
        let _ = read(&path);
    }
}
