//! Real exports of Nsight Systems, 2020 to 2026 (`testing::data`): counts and sums against
//! `EXPECT.json` and `count_nsys.py`, which has its own SQL.

use std::collections::BTreeMap;
use std::process::Command;

use profiler::Profile;
use serde_json::Value;

use crate::common::{self, data, import};

const FILES: [&str; 6] = [
    "nsys_2020_rtx6000_mordred/mordred_b.sqlite",
    "nsys_2022.2_a100_40_saxpy/pipit_saxpy.sqlite",
    "nsys_2024.5_a100_80_cloverleaf/pipit_cloverleaf.sqlite",
    "nsys_2024.6_h100_nvfuser/fuser_b.sqlite",
    "nsys_2025.3_t4_cupy_nvtx/nsightful.sqlite",
    "nsys_2026.1_rtx4060ti/testcuda.sqlite",
];

fn sum_ns(profile: &Profile) -> u64 {
    profile
        .kernels
        .iter()
        .map(|kernel| kernel.durations.sum_ns)
        .sum()
}

fn launches(profile: &Profile) -> u64 {
    profile.kernels.iter().map(|kernel| kernel.count).sum()
}

#[test]
fn counts_and_sums_are_those_computed_independently() {
    let folder = data();
    let expected = std::fs::read_to_string(folder.join("EXPECT.json")).expect("it is there");
    let expected: Value = serde_json::from_str(&expected).expect("it is JSON");
    for file in FILES {
        let profile = import(&folder.join(file)).expect("a whole export");
        let expected = &expected[file];
        assert_eq!(
            Some(launches(&profile)),
            expected["kernels"].as_u64(),
            "{file}"
        );
        assert_eq!(
            Some(sum_ns(&profile)),
            expected["sum_ns"].as_u64(),
            "{file}"
        );
        let mut names: Vec<&str> = profile.kernels.iter().map(|k| &*k.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            Some(names.len() as u64),
            expected["distinct_demangled"].as_u64(),
            "{file}"
        );
    }
}

#[derive(Debug, PartialEq)]
struct Counted {
    count: u64,
    sum_ns: u64,
    median_ns: u64,
    registers: u64,
    static_shared_bytes: u64,
    blocks_per_sm: u64,
    sm_needed: u64,
}

#[test]
fn every_kernel_and_shape_is_as_an_independent_count_has_it() {
    let folder = data();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/count_nsys.py");
    for file in FILES {
        let path = folder.join(file);
        let counted = common::python(Command::new("python3").arg(script).arg(&path).arg(&folder));
        let counted: Vec<Value> = serde_json::from_str(&counted).expect("the script writes JSON");
        let number = |row: &Value, key: &str| row[key].as_u64().expect("a number");
        let counted: BTreeMap<String, Counted> = counted
            .iter()
            .map(|row| {
                let counted = Counted {
                    count: number(row, "count"),
                    sum_ns: number(row, "sum_ns"),
                    median_ns: number(row, "median_ns"),
                    registers: number(row, "registers"),
                    static_shared_bytes: number(row, "static_shared_bytes"),
                    blocks_per_sm: number(row, "blocks_per_sm"),
                    sm_needed: number(row, "sm_needed"),
                };
                (row["key"].as_str().expect("a key").to_owned(), counted)
            })
            .collect();
        let profile = import(&path).expect("a whole export");
        let imported: BTreeMap<String, Counted> = profile
            .kernels
            .iter()
            .map(|kernel| {
                let evidence = &kernel.evidence;
                let counted = Counted {
                    count: kernel.count,
                    sum_ns: kernel.durations.sum_ns,
                    median_ns: kernel.durations.median_ns,
                    registers: kernel.registers.into(),
                    static_shared_bytes: evidence.static_shared_bytes.expect("stated").into(),
                    blocks_per_sm: evidence.blocks_per_sm.expect("known").into(),
                    sm_needed: kernel.sm_needed.into(),
                };
                let [x, y, z] = kernel.grid;
                let [a, b, c] = kernel.block;
                let shared = kernel.shared_bytes;
                (
                    format!("{}|{x},{y},{z}|{a},{b},{c}|{shared}", kernel.name),
                    counted,
                )
            })
            .collect();
        assert_eq!(imported, counted, "{file}");
    }
}

#[test]
fn each_file_names_its_gpu() {
    let folder = data();
    let gpus = [
        "Quadro RTX 6000",
        "A100-SXM4-40GB",
        "A100-SXM4-80GB",
        "H100-SXM5-80GB",
        "T4",
        "NVIDIA GeForce RTX 4060 Ti",
    ];
    for (file, gpu) in FILES.into_iter().zip(gpus) {
        let profile = import(&folder.join(file)).expect("a whole export");
        assert_eq!(profile.gpu, gpu, "{file}");
        assert!(profile.notices.is_empty(), "{file}: {:?}", profile.notices);
        let text = profile.write();
        let read = Profile::parse(&text, "p".as_ref()).expect("what is written is read");
        assert_eq!(read, profile, "{file}");
    }
}

#[test]
fn nothing_but_kernels_gets_into_a_profile() {
    let folder = data();
    for file in FILES {
        let text = import(&folder.join(file)).expect("a whole export").write();
        for word in ["PATH=", "HOME", "/usr/", "ssh", "localhost"] {
            assert!(!text.contains(word), "{file}: {word}");
        }
    }
}
