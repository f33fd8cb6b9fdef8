//! Real reports of `nsys stats` and kernel files of Orion against the run's SQLite, and each other.

use std::path::Path;

use import::{Error, Options};
use profiler::Profile;

use crate::common::{data, import, read};

fn folder() -> std::path::PathBuf {
    data().join("nsys_stats_t4_by_version")
}

fn totals(profile: &Profile) -> (u64, u64) {
    let count = profile.kernels.iter().map(|kernel| kernel.count).sum();
    let sum_ns = profile
        .kernels
        .iter()
        .map(|kernel| kernel.durations.sum_ns)
        .sum();
    (count, sum_ns)
}

#[test]
fn sums_are_those_of_the_export_they_were_made_from() {
    let folder = folder();
    let sqlite = folder.join("../nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite");
    let exact = import(&sqlite).expect("whole");
    assert_eq!(totals(&exact), (3_689, 1_131_742_684));
    for file in ["kern_gb_sum", "kern_sum", "kern_sum-base", "sum"] {
        let profile =
            import(&folder.join(format!("t4cupy_2023.4_cuda_gpu_{file}.csv"))).expect("a report");
        assert_eq!(totals(&profile), totals(&exact), "{file}");
    }
    // Means with one decimal.
    let profile = import(&folder.join("t4cupy_2023.4_cuda_kern_exec_sum.csv")).expect("a report");
    let (count, sum_ns) = totals(&profile);
    assert_eq!(count, 3_689);
    assert!(sum_ns.abs_diff(1_131_742_684) < 3_689, "{sum_ns}");
}

#[test]
fn shapes_are_those_of_the_export() {
    let folder = folder();
    let exact =
        import(&folder.join("../nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite")).expect("whole");
    let shapes = import(&folder.join("t4cupy_2023.4_cuda_gpu_kern_gb_sum.csv")).expect("a report");
    for kernel in &shapes.kernels {
        let same = exact.kernels.iter().find(|other| {
            (&other.name, other.grid, other.block) == (&kernel.name, kernel.grid, kernel.block)
        });
        let same = same.expect("in the export too");
        assert_eq!(
            (kernel.count, kernel.durations.sum_ns),
            (same.count, same.durations.sum_ns)
        );
    }
    for file in ["cuda_gpu_trace.head400", "cuda_kern_exec_trace.head400"] {
        let profile = import(&folder.join(format!("t4cupy_2023.4_{file}.csv"))).expect("a report");
        for kernel in &profile.kernels {
            assert!(
                exact
                    .kernels
                    .iter()
                    .any(|other| (&other.name, other.grid, other.block)
                        == (&kernel.name, kernel.grid, kernel.block)),
                "{}",
                kernel.name
            );
        }
    }
    let trace = import(&folder.join("t4cupy_2023.4_cuda_gpu_trace.head400.csv")).expect("a report");
    let of = |profile: &Profile| {
        profile
            .kernels
            .iter()
            .find(|kernel| kernel.name == "cupy_fill")
            .map(|kernel| {
                (
                    kernel.registers,
                    kernel.sm_needed,
                    kernel.evidence.blocks_per_sm,
                )
            })
    };
    assert_eq!(of(&trace), of(&exact));
    assert_eq!(trace.gpu, "T4");
}

#[test]
fn reports_of_2022_are_read() {
    let folder = folder();
    for file in [
        "gpukernsum",
        "gputrace",
        "gpusum",
        "kernexecsum",
        "kernexectrace",
    ] {
        let profile =
            import(&folder.join(format!("t4vecadd_2022.4_{file}.csv"))).expect("a report");
        assert_eq!(totals(&profile), (2, 8_511), "{file}");
        assert_eq!(
            profile.kernels[0].name,
            "vecAdd(double *, double *, double *, int)"
        );
        let has_shape = !["gpusum", "kernexecsum"].contains(&file);
        assert_eq!(
            profile.kernels[0].grid,
            if has_shape { [16, 1, 1] } else { [0; 3] },
            "{file}"
        );
    }
    let profile = import(&folder.join("t4vecadd_2023.4_two_reports_with_banners.txt"))
        .expect("the first of two");
    assert_eq!(totals(&profile), (2, 8_511));
}

#[test]
fn reports_without_kernels_are_refused() {
    let folder = folder();
    for file in [
        "t4cupy_2023.4_cuda_gpu_mem_time_sum.csv",
        "t4cupy_2023.4_nvtx_gpu_proj_trace.csv",
        "t4cupy_2023.4_nvtx_kern_sum.csv",
        "t4cupy_2023.4_nvtx_pushpop_trace.csv",
        "t4cupy_2023.4_nvtx_sum.csv",
        "t4vecadd_2022.4_cudaapisum.csv",
        "t4vecadd_2022.4_gpumemtimesum.csv",
    ] {
        let error = import(&folder.join(file)).expect_err("no kernels");
        assert!(matches!(error, Error::NoKernels { .. }), "{file}: {error}");
        assert!(error.to_string().contains("cuda_gpu_trace"), "{error}");
    }
    for file in [
        "nsys_2024.5_a100_80_cloverleaf/cloverleaf_gpu_trace.csv",
        "nsys_2024.6_h100_nvfuser/nsys-log.txt",
    ] {
        let error =
            import(&folder.join("..").join(file)).expect_err("of another tool, or for people");
        assert!(
            matches!(
                error,
                Error::UnknownFormat { .. } | Error::NotSuitable { .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn orions_files_and_profiles_are_read_and_profiles_come_back_as_they_were() {
    let folder = data();
    let orion = folder.join("../orion/model_kernels/resnet50_4_fwd");
    if !orion.is_file() {
        panic!("{} is not there", orion.display());
    }
    let profile = import(&orion).expect("Orion's");
    assert_eq!(totals(&profile).0, 175);
    assert_eq!(profile, Profile::load(&orion).expect("Orion's"));

    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("cupy.toml");
    let exact = import(&folder.join("nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite")).expect("whole");
    std::fs::write(&path, exact.write()).expect("room");
    let again = import(&path).expect("a profile");
    assert_eq!(
        (again.gpu, again.kernels),
        (exact.gpu.clone(), exact.kernels.clone())
    );
    let both = [
        read(&path).expect("a profile"),
        read(&path).expect("a profile"),
    ];
    let doubled = import::reduce(&both, &Options::default()).expect("one GPU");
    assert_eq!(totals(&doubled), (2 * 3_689, 2 * 1_131_742_684));
}

#[test]
fn durations_come_from_nsight_systems_and_ratios_from_nsight_compute() {
    let folder = data();
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let header = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"";
    let row = |name: &str, grid: &str, metric: &str, unit: &str, value: &str| {
        format!(
            "\"0\",\"7\",\"p\",\"h\",\"{name}\",\"1\",\"7\",\"(256, 1, 1)\",\"{grid}\",\"0\",\"7.5\",\"GPU Speed Of Light Throughput\",\"{metric}\",\"{unit}\",\"{value}\"\n"
        )
    };
    let counted = temporary.path().join("ncu.csv");
    let name = "vecAdd(double*, double*, double*, int)";
    let text = [
        header.to_owned() + "\n",
        row(name, "(16, 1, 1)", "Duration", "usecond", "9.99"),
        row(name, "(16, 1, 1)", "Compute (SM) Throughput", "%", "10.50"),
        row(name, "(16, 1, 1)", "DRAM Throughput", "%", "80.25"),
        row(
            "elsewhere(int)",
            "(16, 1, 1)",
            "Duration",
            "usecond",
            "5.00",
        )
        .replacen("\"0\"", "\"1\"", 1),
    ]
    .concat();
    std::fs::write(&counted, text).expect("room");
    let join = |first: &Path, second: &Path| {
        let sources = [
            read(first).expect("readable"),
            read(second).expect("readable"),
        ];
        import::reduce(&sources, &Options::default()).expect("one GPU")
    };
    let timed = folder.join("nsys_stats_t4_by_version/t4vecadd_2022.4_gputrace.csv");
    for profile in [join(&timed, &counted), join(&counted, &timed)] {
        assert_eq!(profile.kernels.len(), 2);
        let kernel = profile
            .kernels
            .iter()
            .find(|kernel| kernel.name.starts_with("vecAdd"))
            .expect("there");
        assert_eq!((kernel.count, kernel.durations.sum_ns), (2, 8_511));
        assert_eq!(kernel.evidence.dram_pct.map(|pct| pct.value()), Some(80.25));
        assert_eq!(kernel.class, profiler::ResourceClass::Memory);
        let is_said = |notice: &String| {
            notice.contains("1 of its kernels and shapes match none of the other files")
                && notice.contains("elsewhere")
        };
        assert!(profile.notices.iter().any(is_said), "{:?}", profile.notices);
    }
}

#[test]
fn reports_with_other_units_and_orders_of_columns_say_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("report.csv");
    for (text, count, sum_ns) in [
        (
            "Name,Total Time (us),Time (%),Instances,Avg (us),Max (us)\nf,1.5,95.0,4,0.375,0.6\n",
            4,
            1_500,
        ),
        (
            "Start(nsec),Duration(nsec),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Device,Name\n5,1500,1,64,1,1,128,1,1,Tesla T4 (0),f\n",
            1,
            1_500,
        ),
        (
            "Name,Device,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Duration (ms),Start (ms)\nf,Tesla T4 (0),64,1,1,128,1,1,0.0015,5\n",
            1,
            1_500,
        ),
    ] {
        std::fs::write(&path, text).expect("room");
        let profile = import(&path).expect("a report");
        let kernel = &profile.kernels[0];
        assert_eq!(
            (kernel.count, kernel.durations.sum_ns),
            (count, sum_ns),
            "{text}"
        );
    }
}
