//! Real traces of PyTorch, 2021 to 2025, against `EXPECT.json` and, by kernel, `count_trace.py`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::Command;

use import::{Error, Options};
use profiler::{ClassRule, KernelProfile, Profile};
use serde_json::Value;

use crate::common::{self, data, import};

const FILES: [(&str, &str); 6] = [
    (
        "torch_2021_occ_metrics/gpu_metrics_input.json",
        "Tesla V100-DGXS-32GB",
    ),
    (
        "torch_2021_v100_resnet50/trace.json.gz",
        "Tesla V100-DGXS-32GB",
    ),
    (
        "torch_2023_a100_alexnet/trace.json.gz",
        "NVIDIA A100-PG509-200",
    ),
    ("torch_2023_a100_sampled/sampled_rank-0.json.gz", "unknown"),
    ("torch_2025_h100_bert/trace.json.gz", "H100-SXM5-80GB"),
    ("torch_2025_h100_qwen05b/trace.json.gz", "H100-SXM5-80GB"),
];

#[test]
fn counts_and_sums_are_those_computed_independently() {
    let folder = data();
    let expected = std::fs::read_to_string(folder.join("EXPECT.json")).expect("there");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    for (file, gpu) in FILES {
        let profile = import(&folder.join(file)).expect("a trace");
        let expected = &expected[file];
        let count: u64 = profile.kernels.iter().map(|kernel| kernel.count).sum();
        assert_eq!(Some(count), expected["kernels"].as_u64(), "{file}");
        let mut names: Vec<&str> = profile.kernels.iter().map(|kernel| &*kernel.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            Some(names.len() as u64),
            expected["distinct"].as_u64(),
            "{file}"
        );
        assert_eq!(profile.gpu, gpu, "{file}");
        assert_eq!(
            Profile::parse(&profile.write(), "p".as_ref()).as_ref().ok(),
            Some(&profile),
            "{file}"
        );
        // Kernels of less than a microsecond have 0 in old traces; a profile has at least 1 ns.
        let sum_ns: u64 = profile
            .kernels
            .iter()
            .map(|kernel| kernel.durations.sum_ns)
            .sum();
        let expected_ns = (expected["sum_us"].as_f64().expect("a number") * 1000.0).round() as u64;
        assert!(
            sum_ns.abs_diff(expected_ns) <= profile.kernels.len() as u64,
            "{file}: {sum_ns} {expected_ns}"
        );
    }
}

#[test]
fn every_kernel_and_shape_is_as_an_independent_count_has_it() {
    let folder = data();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/files/count_trace.py");
    for (file, _) in FILES {
        let path = folder.join(file);
        let counted = common::python(Command::new("python3").arg(script).arg(&path).arg(&folder));
        let counted: Vec<Value> = serde_json::from_str(&counted).expect("the script writes JSON");
        let profile = import(&path).expect("a trace");
        // In all its operators: the script knows none.
        let mut imported: BTreeMap<String, KernelProfile> = BTreeMap::new();
        for kernel in profile.kernels {
            let ([x, y, z], [a, b, c]) = (kernel.grid, kernel.block);
            let key = format!(
                "{}|{x},{y},{z}|{a},{b},{c}|{}",
                kernel.name, kernel.shared_bytes
            );
            match imported.entry(key) {
                Entry::Vacant(place) => _ = place.insert(kernel),
                Entry::Occupied(mut place) => {
                    let all = place.get_mut();
                    assert_ne!(all.operator, kernel.operator, "{file}");
                    all.count += kernel.count;
                    all.durations.sum_ns += kernel.durations.sum_ns;
                }
            }
        }
        assert_eq!(imported.len(), counted.len(), "{file}");
        for row in &counted {
            let kernel = &imported[row["key"].as_str().expect("a key")];
            assert_eq!(Some(kernel.count), row["count"].as_u64(), "{file} {row}");
            assert_eq!(
                Some(u64::from(kernel.registers)),
                row["registers"].as_u64(),
                "{file} {row}"
            );
            let sum_ns = row["sum_ns"].as_u64().map(|sum_ns| sum_ns.max(1));
            assert_eq!(Some(kernel.durations.sum_ns), sum_ns, "{file} {row}");
            if let Some(sm_needed) = row["sm_needed"].as_u64() {
                assert_eq!(u64::from(kernel.sm_needed), sm_needed, "{file} {row}");
                assert_eq!(
                    kernel.evidence.blocks_per_sm.map(u64::from),
                    row["blocks_per_sm"].as_u64(),
                    "{file}"
                );
            }
        }
    }
}

#[test]
fn recorded_shapes_give_products_and_elementwise_kernels_an_estimated_class() {
    let folder = data();
    let mut estimated = 0;
    for (file, _) in FILES {
        let profile = import(&folder.join(file)).expect("a trace");
        for kernel in &profile.kernels {
            assert!(
                matches!(
                    kernel.class_rule,
                    ClassRule::Estimated | ClassRule::Name | ClassRule::Unknown
                ),
                "{file}"
            );
            estimated += usize::from(kernel.class_rule == ClassRule::Estimated);
        }
    }
    assert!(estimated > 20, "{estimated}");
}

#[test]
fn what_is_no_trace_of_kernels_on_nvidia_is_refused_with_what_to_do() {
    let folder = data();
    let refused = |file: &str| {
        let error = import(&folder.join(file)).expect_err("nothing to import");
        assert!(!error.to_string().contains('\n'), "{error}");
        error
    };
    let error = refused("torch_2023_a100_cupti_ranges/trace.json.gz");
    assert!(matches!(error, Error::NoKernels { .. }), "{error}");
    assert!(
        error.to_string().contains("77 ranges of CUPTI's counters"),
        "{error}"
    );
    let error = refused("torch_2025_mi300_bert/trace.json.gz");
    assert!(matches!(error, Error::ForeignGpu { .. }), "{error}");
    assert!(error.to_string().contains("AMD Instinct MI300X"), "{error}");
    let error = refused("torch_2023_v100_dlrm/dlrm_kineto.tar.gz");
    assert!(error.to_string().contains("tar -xf"), "{error}");
}

#[test]
fn the_device_may_be_said_where_the_trace_does_not() {
    let folder = data();
    let source = common::read(&folder.join("torch_2023_a100_sampled/sampled_rank-0.json.gz"))
        .expect("a trace");
    let device = Some("A100-SXM4-80GB".to_owned());
    let profile = import::reduce(
        &[source],
        &Options {
            device,
            ..Options::default()
        },
    )
    .expect("said");
    assert_eq!(profile.gpu, "A100-SXM4-80GB");
    assert!(profile.notices.is_empty(), "{:?}", profile.notices);
    assert!(
        profile
            .kernels
            .iter()
            .all(|kernel| kernel.evidence.blocks_per_sm.is_some())
    );
}
