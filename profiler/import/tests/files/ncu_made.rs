//! Generated CSV of Nsight Compute: other years, locales and systems, and text without a table.

use std::fs;

use import::{Error, Options, Source};
use profiler::{ClassRule, ResourceClass};
use tempfile::TempDir;

use crate::common::{import, read};

const DETAILS_2024: &str = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\",\"Rule Description\",\"Estimated Speedup Type\",\"Estimated Speedup\"";
const DETAILS_2020: &str = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel Time\",\"Context\",\"Stream\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"";

/// A row of 2024 for a launch; ends in one bare comma, as metric rows do.
fn row(id: u32, section: &str, name: &str, unit: &str, value: &str) -> String {
    format!(
        "\"{id}\",\"7\",\"job\",\"secret.host\",\"void f<int, (bool)0>(int *)\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"{section}\",\"{name}\",\"{unit}\",\"{value}\",\n"
    )
}

fn sol(compute: &str, memory: &str, dram: &str, duration: &str) -> String {
    let section = "GPU Speed Of Light Throughput";
    [
        row(0, section, "Duration", "usecond", duration),
        row(0, section, "Compute (SM) Throughput", "%", compute),
        row(0, section, "Memory Throughput", "%", memory),
        row(0, section, "DRAM Throughput", "%", dram),
        row(
            0,
            "Memory Workload Analysis",
            "Memory Throughput",
            "Gbyte/second",
            memory,
        ),
    ]
    .concat()
}

fn file(bytes: impl AsRef<[u8]>) -> Result<Source, Error> {
    let folder: TempDir = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("out.csv");
    fs::write(&path, bytes).expect("room");
    let source = read(&path);
    if let Err(error) = &source {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    source
}

fn duration(source: &Source) -> Option<u64> {
    source.launches[0].duration_ns
}

#[test]
fn messages_output_and_rules_inside_the_table_are_passed_over() {
    let rule = "\"0\",\"7\",\"job\",\"h\",\"void f<int, (bool)0>(int *)\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"SpeedOfLight\",\"\",\"\",\"\",\"SOLBottleneck\",\"OPT\",\"This, \"\"kernel\"\"\",\"\",\"\"\n";
    let text = format!(
        "loading model...\n==PROF== Connected to process 7 (/usr/bin/job)\nepoch 1, loss 0.5\n==PROF== Profiling \"f\" - 0: 0%....100% - 8 passes\n{DETAILS_2024}\n{}{rule}==WARNING== Failed to detect compute capability, assuming 50\n    The system does not have any NVLink connections.\n\n{}==PROF== Disconnected\n",
        sol("70.5", "91.25", "85.00", "12.50"),
        row(
            1,
            "GPU Speed Of Light Throughput",
            "Duration",
            "msecond",
            "1.25"
        ),
    );
    let source = file(text).expect("a table");
    assert_eq!((source.launches.len(), source.kernels.len()), (2, 1));
    assert_eq!(
        source
            .launches
            .iter()
            .map(|l| l.duration_ns)
            .collect::<Vec<_>>(),
        [Some(12_500), Some(1_250_000)]
    );
    let profile = import::reduce(&[source], &Options::default()).expect("one GPU");
    let kernel = &profile.kernels[0];
    assert_eq!(
        (kernel.class, kernel.class_rule),
        (ResourceClass::Memory, ClassRule::Throughput)
    );
    assert_eq!(kernel.evidence.dram_pct.map(|p| p.value()), Some(85.0));
    let text = profile.write();
    assert!(
        !text.contains("secret.host") && !text.contains("/usr/bin"),
        "{text}"
    );
}

#[test]
fn every_locale_encoding_and_line_end_gives_the_same() {
    let c = format!(
        "{DETAILS_2024}\n{}",
        sol("70.5", "91.25", "85.00", "1234567.50")
    );
    let german = format!(
        "{DETAILS_2024}\n{}",
        sol("70,5", "91,25", "85,00", "1.234.567,50")
    );
    let french = format!(
        "{DETAILS_2024}\n{}",
        sol("70,5", "91,25", "85,00", "1\u{202f}234\u{202f}567,50")
    );
    let swiss = format!(
        "{DETAILS_2024}\n{}",
        sol("70.5", "91.25", "85.00", "1'234'567.50")
    );
    let english = format!(
        "{DETAILS_2024}\n{}",
        sol("70.5", "91.25", "85.00", "1,234,567.50")
    );
    let windows = format!("\u{feff}{}", english.replace('\n', "\r\n"));
    let powershell: Vec<u8> = windows.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let expected = file(&c).expect("a table");
    assert_eq!(duration(&expected), Some(1_234_567_500));
    for bytes in [
        german.into_bytes(),
        french.into_bytes(),
        swiss.into_bytes(),
        english.into_bytes(),
        windows.into_bytes(),
        powershell,
    ] {
        let source = file(&bytes).expect("a table");
        assert_eq!(source.launches[0].counters, expected.launches[0].counters);
        assert_eq!(duration(&source), duration(&expected));
    }
}

#[test]
fn an_ambiguous_number_is_refused_with_its_line_and_the_mend() {
    let text = format!(
        "{DETAILS_2024}\n{}",
        row(
            0,
            "Command line profiler metrics",
            "gpu__time_duration.sum",
            "ns",
            "32.768"
        )
    );
    let error = file(text).expect_err("thousands or decimals").to_string();
    assert!(
        error.contains("out.csv:2: `32.768` is ambiguous") && error.contains("LC_ALL=C"),
        "{error}"
    );
    // Irrelevant where the import needs nothing of it.
    let text = format!(
        "{DETAILS_2024}\n{}{}",
        row(
            0,
            "Command line profiler metrics",
            "smsp__inst_executed.sum",
            "inst",
            "32.768"
        ),
        row(
            0,
            "Command line profiler metrics",
            "gpu__time_duration.sum",
            "ns",
            "512"
        ),
    );
    assert_eq!(duration(&file(text).expect("clear")), Some(512));
}

#[test]
fn the_labels_and_columns_of_2020_are_read() {
    let row = |section: &str, name: &str, unit: &str, value: &str| {
        format!(
            "\"0\",\"7\",\"job\",\"h\",\"void f<int>(int*)\",\"2020-Apr-20 14:59:20\",\"1\",\"7\",\"{section}\",\"{name}\",\"{unit}\",\"{value}\"\n"
        )
    };
    let sol = "GPU Speed Of Light";
    for (sm, memory, dram) in [
        ("SOL SM", "SOL Memory", "SOL FB"),
        ("SM [%]", "Memory [%]", "SOL DRAM"),
        ("Compute (SM) [%]", "Memory [%]", "SOL FB"),
    ] {
        let text = [
            DETAILS_2020.to_owned() + "\n",
            row(sol, "Duration", "msecond", "1.28"),
            row(sol, sm, "%", "20.00"),
            row(sol, memory, "%", "80.00"),
            row(sol, dram, "%", "75.00"),
            row("Launch Statistics", "Grid Size", "", "5120"),
            row("Launch Statistics", "Block Size", "", "256"),
            row(
                "Launch Statistics",
                "Registers Per Thread",
                "register/thread",
                "32",
            ),
            row("Occupancy", "Block Limit SM", "block", "32"),
            row("Occupancy", "Block Limit Registers", "block", "8"),
            row("Occupancy", "Block Limit Shared Mem", "block", "32"),
            row("Occupancy", "Block Limit Warps", "block", "8"),
        ]
        .concat();
        let source = file(text).expect("a table");
        assert!(
            source.notices[0].contains("a single row is assumed"),
            "{:?}",
            source.notices
        );
        let profile = import::reduce(
            &[source],
            &Options {
                device: Some("V100-SXM2-16GB".into()),
                ..Options::default()
            },
        )
        .expect("said");
        let kernel = &profile.kernels[0];
        assert_eq!(
            (kernel.durations.sum_ns, kernel.sm_needed, kernel.class),
            (1_280_000, 640, ResourceClass::Memory)
        );
    }
}

#[test]
fn the_raw_page_is_read_with_units_in_a_row_or_in_the_header() {
    let names = [
        "gpu__time_duration.sum",
        "launch__grid_dim_x",
        "launch__grid_dim_y",
        "launch__grid_dim_z",
        "launch__block_dim_x",
        "launch__block_dim_y",
        "launch__block_dim_z",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "device__attribute_display_name",
    ];
    let fixed = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel Time\",\"Context\",\"Stream\"";
    let values = "\"5.737600\",\"64\",\"2\",\"1\",\"128\",\"1\",\"1\",\"66.281571\",\"NVIDIA A30\"";
    let launch = format!("\"0\",\"7\",\"job\",\"h\",\"f(int)\",\"t\",\"1\",\"7\",{values}\n");
    let header = |names: &[String]| {
        format!(
            "{fixed},{}\n",
            names
                .iter()
                .map(|name| format!("\"{name}\""))
                .collect::<Vec<_>>()
                .join(",")
        )
    };
    let plain: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let with_units: Vec<String> = names
        .iter()
        .map(|name| {
            if name.contains("time") {
                format!("{name} [msecond]")
            } else {
                (*name).to_owned()
            }
        })
        .collect();
    let units = "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"msecond\",\"\",\"\",\"\",\"\",\"\",\"\",\"%\",\"\"\n";
    for text in [
        format!("{}{units}{launch}", header(&plain)),
        format!("{}{launch}", header(&with_units)),
    ] {
        let source = file(text).expect("a table");
        assert_eq!(duration(&source), Some(5_737_600));
        assert_eq!(
            (source.kernels[0].grid, source.kernels[0].block),
            (Some([64, 2, 1]), Some([128, 1, 1]))
        );
        assert_eq!(
            source.gpus[0].model().map(|device| device.name.as_str()),
            Some("A30")
        );
    }
}

#[test]
fn two_runs_in_one_file_are_two_tables() {
    let one = format!("{DETAILS_2024}\n{}", sol("70.5", "91.25", "85.00", "12.50"));
    let source = file(format!("{one}==PROF== Connected\n{one}")).expect("two tables");
    assert_eq!(source.launches.len(), 2);
}

#[test]
fn what_has_no_launch_says_why() {
    let summary = "\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Invocations\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Minimum\",\"Maximum\",\"Average\"\n\"1\",\"p\",\"h\",\"f\",\"(1, 1, 1)\",\"(1, 1, 1)\",\"0\",\"8.0\",\"4\",\"s\",\"Duration\",\"ns\",\"1\",\"2\",\"1.5\"\n";
    let permission = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.";
    for (text, expected) in [
        (summary.to_owned(), "--print-summary"),
        (format!("==PROF== Connected to process 1 (x)\n{permission}\n"), "the tool reported: ==ERROR== ERR_NVGPUCTRPERM"),
        ("==PROF== Connected to process 1 (x)\n==ERROR== The application returned an error code (1).\n".to_owned(), "the tool reported: ==ERROR== The application returned an error code (1)."),
        ("==WARNING== No kernels were profiled.\n".to_owned(), "the tool reported: ==WARNING== No kernels were profiled."),
        ("==PROF== Profiling \"f\" - 0: 100% - 8 passes\n==PROF== Report: /x.ncu-rep\n".to_owned(), "the tool's progress messages without a table"),
        (format!("{DETAILS_2024}\n"), "the header of a table without launches"),
    ] {
        let error = file(&text).expect_err("no launch").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Forms without a real example: other orders of columns, locales and versions.
#[test]
fn tables_in_any_order_of_columns_say_the_same() {
    let cells = [
        ("ID", "0"),
        ("Process ID", "7"),
        ("Kernel Name", "void f<int, 3>(int *)"),
        ("Block Size", "(256, 1, 1)"),
        ("Grid Size", "(640, 1, 1)"),
        ("CC", "8.0"),
        ("Metric Name", ""),
        ("Metric Unit", ""),
        ("Metric Value", ""),
    ];
    let metrics = [
        ("Duration", "usecond", "1,234.50"),
        ("Compute (SM) Throughput", "%", "88.25"),
    ];
    let line = |cells: Vec<&str>| format!("\"{}\"\n", cells.join("\",\""));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profiles = (0..cells.len()).map(|turn| {
        let mut order: Vec<usize> = (0..cells.len()).collect();
        order.rotate_left(turn);
        let mut text = line(order.iter().map(|&at| cells[at].0).collect());
        for (name, unit, value) in metrics {
            let cell = |at: usize| match cells[at].0 {
                "Metric Name" => name,
                "Metric Unit" => unit,
                "Metric Value" => value,
                _ => cells[at].1,
            };
            text += &line(order.iter().map(|&at| cell(at)).collect());
        }
        let path = folder.path().join("table.csv");
        fs::write(&path, text).expect("room");
        import(&path).expect("a table")
    });
    let profiles: Vec<_> = profiles.collect();
    assert_eq!(profiles[0].kernels[0].durations.sum_ns, 1_234_500);
    assert!(profiles.windows(2).all(|pair| pair[0] == pair[1]));
}
