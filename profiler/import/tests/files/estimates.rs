//! Classes estimated by name against Nsight Compute's counters, and against the classes from
//! operators' shapes, on every recording of the data folder. A file with counters is a reference
//! where both throughputs are known; shapes are a weak one, as nothing was measured. The printed
//! results of the first are in `docs/formats.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use import::Options;
use import::classify::classify;
use import::source::Counters;
use profiler::family::{Launch, estimate};
use profiler::{ClassRule, KernelProfile, Profile, ResourceClass};

use crate::common::{data, read};

const DOCUMENTED: [&str; 4] = [
    "ncu_details_2025_gb200_cublaslt",
    "ncu_metrics_win_rtx5070",
    "ncu_text_details",
    "ncurep_2023_h100pcie_matmul",
];

const DOCUMENTED_SHAPES: [&str; 3] = [
    "torch_2021_v100_resnet50",
    "torch_2025_h100_bert",
    "torch_2025_h100_qwen05b",
];

#[derive(Clone, Copy, Default)]
struct Score {
    all: u64,
    classed: u64,
    right: u64,
    harmful: u64,
    slow: u64,
}

impl Score {
    fn add(&mut self, truth: ResourceClass, estimated: Option<ResourceClass>, ns: u64) {
        self.all += ns;
        let Some(estimated) = estimated else {
            return;
        };
        self.classed += ns;
        if estimated == truth {
            self.right += ns;
        } else if truth == ResourceClass::Unknown {
            self.slow += ns;
        } else {
            self.harmful += ns;
        }
    }

    fn row(self, name: &str) -> String {
        let pct = |ns: u64, of: u64| ns as f64 * 100.0 / of.max(1) as f64;
        format!(
            "| {name} | {:.3} | {:.1} | {:.1} | {:.1} | {:.1} |",
            self.all as f64 / 1e6,
            pct(self.classed, self.all),
            if self.classed == 0 {
                100.0
            } else {
                pct(self.right, self.classed)
            },
            pct(self.harmful, self.all),
            pct(self.slow, self.all),
        )
    }
}

fn files() -> Vec<(String, PathBuf)> {
    let mut files = Vec::new();
    for set in data().read_dir().expect("a folder") {
        let set = set.expect("an entry");
        let Ok(entries) = set.path().read_dir() else {
            continue;
        };
        let name = set.file_name().to_string_lossy().into_owned();
        files.extend(entries.map(|file| (name.clone(), file.expect("an entry").path())));
    }
    files.sort();
    files
}

/// A recording's profile. The RTX 5070's bandwidth is what the measured program printed.
fn profile_of(set: &str, path: &Path) -> Option<Profile> {
    let mut source = read(path).ok()?;
    if set == "ncu_metrics_win_rtx5070" {
        source.gpus[0].bandwidth_bytes_per_s = Some(672_000_000_000);
    }
    import::reduce(&[source], &Options::default()).ok()
}

fn by_name(profile: &Profile, kernel: &KernelProfile) -> Option<ResourceClass> {
    let launch = Launch {
        name: &kernel.name,
        sm_needed: kernel.evidence.blocks_per_sm.map(|_| kernel.sm_needed),
        device_sms: profile.measured.as_ref().and_then(|gpu| gpu.sms),
        duration_ns: Some(kernel.durations.median_ns),
        intensity: None,
    };
    estimate(&launch).map(|estimate| estimate.class)
}

fn scores(rules: &[ClassRule]) -> BTreeMap<String, Score> {
    let mut scores: BTreeMap<String, Score> = BTreeMap::new();
    for (set, path) in files() {
        let Some(profile) = profile_of(&set, &path) else {
            continue;
        };
        for kernel in &profile.kernels {
            if rules.contains(&kernel.class_rule) {
                let score = scores.entry(set.clone()).or_default();
                let estimated = by_name(&profile, kernel);
                score.add(kernel.class, estimated, kernel.durations.sum_ns);
            }
        }
    }
    scores
}

/// Kernels of the human-readable pages, which an import refuses: name, duration and throughputs.
fn of_pages() -> Vec<(String, u64, Counters)> {
    let mut kernels: Vec<(String, u64, Counters)> = Vec::new();
    for (set, path) in files() {
        if set != "ncu_text_details" {
            continue;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            if let Some((name, _)) = line.split_once(", Context ") {
                let end = name.rfind(" (").unwrap_or(name.len());
                kernels.push((name[..end].trim().to_owned(), 0, Counters::default()));
            } else if let Some((_, ns, counters)) = kernels.last_mut() {
                note(line, ns, counters);
            }
        }
    }
    kernels
}

fn note(line: &str, ns: &mut u64, counters: &mut Counters) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (Some(number), Some(unit)) = (words.last(), words.iter().rev().nth(1)) else {
        return;
    };
    let Ok(number) = number.replace(',', "").parse::<f64>() else {
        return;
    };
    let place = match words[..words.len() - 2].join(" ").as_str() {
        "Duration" => {
            let unit_ns = match *unit {
                "msecond" | "ms" => 1e6,
                "usecond" | "us" => 1e3,
                _ => 1.0,
            };
            *ns = (number * unit_ns) as u64;
            return;
        }
        "DRAM Throughput" => &mut counters.dram_pct,
        "L2 Cache Throughput" => &mut counters.l2_pct,
        "Compute (SM) Throughput" => &mut counters.compute_pct,
        _ => return,
    };
    *place = place.or(Some(number));
}

fn assert_documented(scores: &BTreeMap<String, Score>, sets: &[&str]) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let docs = fs::read_to_string(docs).expect("there");
    for set in sets {
        let score = scores.get(*set);
        let row = score.unwrap_or_else(|| panic!("no {set}")).row(set);
        assert!(docs.contains(&row), "not in docs/formats.md:\n{row}");
    }
}

#[test]
fn no_more_than_3_percent_of_what_was_counted_is_estimated_as_the_opposite() {
    let counted = [
        ClassRule::Throughput,
        ClassRule::Vendor,
        ClassRule::Roofline,
    ];
    let mut scores = scores(&counted);
    for (name, ns, counters) in of_pages() {
        let (truth, _) = classify(Some(&counters), None, None);
        let launch = Launch {
            name: &name,
            duration_ns: Some(ns),
            ..Launch::default()
        };
        let estimated = estimate(&launch).map(|estimate| estimate.class);
        let score = scores.entry("ncu_text_details".to_owned()).or_default();
        score.add(truth, estimated, ns);
    }
    assert_documented(&scores, &DOCUMENTED);
    let mut all = Score::default();
    for (set, score) in &scores {
        testing::print(format_args!("{}", score.row(set)));
        all.all += score.all;
        all.harmful += score.harmful;
        assert!(score.harmful * 100 <= score.all * 3, "{}", score.row(set));
    }
    assert!(all.harmful * 100 <= all.all * 3);
}

/// Known shapes decide ([`import::classify`]); `docs/formats.md` has how often names agree.
#[test]
fn names_are_set_beside_what_shapes_make() {
    let scores = scores(&[ClassRule::Estimated]);
    for (set, score) in &scores {
        testing::print(format_args!("{}", score.row(set)));
    }
    assert_documented(&scores, &DOCUMENTED_SHAPES);
}

/// Sets without counters; the least classed share of GPU time, percent, without collectives.
const CLASSED_MIN: [(&str, f64); 11] = [
    ("nsys_2022.2_a100_40_saxpy", 99.0),
    ("nsys_2024.6_h100_nvfuser", 46.0),
    ("nsys_2025.3_t4_cupy_nvtx", 99.0),
    ("nsys_2026.1_rtx4060ti", 99.0),
    ("nsys_stats_t4_by_version", 99.0),
    ("torch_2021_occ_metrics", 45.0),
    ("torch_2021_v100_resnet50", 99.0),
    ("torch_2023_a100_alexnet", 93.0),
    ("torch_2023_a100_sampled", 99.0),
    ("torch_2025_h100_bert", 99.0),
    ("torch_2025_h100_qwen05b", 99.0),
];

#[test]
fn every_recording_without_counters_gets_classes() {
    let mut classed: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (set, path) in files() {
        let Some(profile) = profile_of(&set, &path) else {
            continue;
        };
        let (of_all, of_classed) = classed.entry(set.clone()).or_default();
        for kernel in &profile.kernels {
            let is_by_name = kernel.class_rule == ClassRule::Name;
            assert_eq!(is_by_name, kernel.evidence.class_family.is_some());
            if kernel.name.contains("nccl") {
                continue;
            }
            let ns = kernel.durations.sum_ns;
            *of_all += ns;
            *of_classed += match kernel.class_rule {
                ClassRule::Name | ClassRule::Estimated => ns,
                _ => 0,
            };
        }
    }
    let pct = |set: &str| {
        let (of_all, of_classed) = classed.get(set).copied().unwrap_or_default();
        of_classed as f64 * 100.0 / of_all.max(1) as f64
    };
    for set in classed.keys() {
        testing::print(format_args!("{set}: {:.1} % classed", pct(set)));
    }
    for (set, min) in CLASSED_MIN {
        assert!(pct(set) >= min, "{set}: {:.1} %", pct(set));
    }
}
