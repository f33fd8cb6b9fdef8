//! Orion's published files, outside the repository (`testing::data`): counts, sums and classes
//! against independently computed figures, and every file through every format.

#[macro_use]
extern crate testing;

use std::path::PathBuf;
use std::process::ExitCode;

use profiler::{Format, Match, Profile, ProfileIndex, ResourceClass, Trace, orion};

fn main() -> ExitCode {
    testing::main()
}

struct Expected {
    file: &'static str,
    launches: usize,
    duration_ns_sum: u64,
    /// Compute-bound, memory-bound and other launches.
    classes: [usize; 3],
    /// Launches that need more SMs than a V100's 80, percent.
    over_80_sms_pct: u64,
    duration_us_max: u64,
}

/// Counts, class counts, share over 80 SMs, longest launch: from the study of Orion's artefact;
/// sums, and all of `mobilenetv2_32_fb1` and `resnet50_32_fb0`, by `awk` over the columns.
const FILES: [Expected; 11] = [
    expected("resnet50_4_fwd", 175, 6_498_424, [54, 80, 41], 39, 380),
    expected("resnet101_4_fwd", 345, 11_567_105, [105, 148, 92], 35, 380),
    expected("mobilenetv2_4_fwd", 152, 2_262_977, [34, 82, 36], 26, 65),
    expected("bert_2_fwd", 572, 48_625_298, [193, 202, 177], 85, 517),
    expected("resnet50_32_fb0", 624, 4_368, [0, 0, 624], 0, 0),
    expected(
        "resnet50_32_fb1",
        946,
        95_277_683,
        [158, 569, 219],
        37,
        1_238,
    ),
    expected(
        "resnet101_32_fb1",
        1_847,
        155_933_460,
        [311, 1_113, 423],
        37,
        1_265,
    ),
    expected(
        "mobilenetv2_32_fb1",
        890,
        40_476_339,
        [89, 588, 213],
        25,
        1_232,
    ),
    expected(
        "mobilenetv2_64_fb1",
        890,
        74_896_890,
        [85, 592, 213],
        28,
        2_465,
    ),
    expected(
        "mobilenetv2_96_fb1",
        890,
        109_567_537,
        [84, 593, 213],
        29,
        3_698,
    ),
    expected(
        "bert_8_fb1",
        4_777,
        190_766_381,
        [290, 3_216, 1_271],
        23,
        1_081,
    ),
];

const fn expected(
    file: &'static str,
    launches: usize,
    duration_ns_sum: u64,
    classes: [usize; 3],
    over_80_sms_pct: u64,
    duration_us_max: u64,
) -> Expected {
    Expected {
        file,
        launches,
        duration_ns_sum,
        classes,
        over_80_sms_pct,
        duration_us_max,
    }
}

fn model_kernels() -> Vec<(PathBuf, &'static Expected)> {
    let folder = testing::data("orion");
    FILES
        .iter()
        .map(|file| (folder.join("model_kernels").join(file.file), file))
        .collect()
}

#[test]
fn every_file_has_the_launches_times_and_classes_that_were_counted_independently() {
    for (path, expected) in model_kernels() {
        let entries = orion::read(&path).expect("a published file");
        let file = expected.file;
        assert_eq!(entries.len(), expected.launches, "{file}");
        let sum_ns: u64 = entries.iter().map(|entry| entry.duration_ns).sum();
        assert_eq!(sum_ns, expected.duration_ns_sum, "{file}");
        let count = |class| entries.iter().filter(|entry| entry.class == class).count();
        assert_eq!(ResourceClass::ALL.map(count), expected.classes, "{file}");
        let over_80_sms = entries.iter().filter(|entry| entry.sm_needed > 80).count();
        let over_80_sms_pct = (over_80_sms as f64 * 100.0 / entries.len() as f64).round() as u64;
        assert_eq!(over_80_sms_pct, expected.over_80_sms_pct, "{file}");
        let longest_ns = entries.iter().map(|entry| entry.duration_ns).max();
        assert_eq!(
            longest_ns.map(|ns| (ns + 500) / 1000),
            Some(expected.duration_us_max),
            "{file}"
        );
    }
}

#[test]
fn every_other_file_of_the_folder_reads_too() {
    let folder = testing::data("orion");
    for file in folder.join("model_kernels").read_dir().expect("a folder") {
        let path = file.expect("an entry").path();
        assert!(Trace::read(&path).is_ok(), "{}", path.display());
    }
}

#[test]
fn a_trace_lasts_as_long_as_its_file_within_half_a_percent() {
    for (path, expected) in model_kernels() {
        let trace = Trace::read(&path).expect("a published file");
        assert_eq!(trace.launches.len(), expected.launches, "{}", expected.file);
        let per_mille_off = |sum_ns: u64| {
            sum_ns.abs_diff(expected.duration_ns_sum) * 1000 / expected.duration_ns_sum
        };
        assert!(
            per_mille_off(trace.duration_ns_sum()) < 5,
            "{}",
            expected.file
        );
        // The device's time: waves of blocks, each rounded to a whole ns.
        let waves_ns: u64 = trace
            .launched()
            .map(|kernel| u64::from(kernel.sm_needed.div_ceil(80)) * kernel.block_ns)
            .sum();
        assert!(per_mille_off(waves_ns) < 5, "{}", expected.file);
    }
}

#[test]
fn a_launch_lasts_as_long_as_its_row_within_the_width_of_a_bin() {
    for (path, expected) in model_kernels() {
        let entries = orion::read(&path).expect("a published file");
        let trace = Trace::from_orion(&entries);
        for (kernel, entry) in trace.launched().zip(&entries) {
            let off_ns = kernel.duration_ns.abs_diff(entry.duration_ns);
            // Two digits: a bin is at most a tenth of its value wide.
            assert!(
                off_ns * 10 <= entry.duration_ns,
                "{} {}",
                expected.file,
                kernel.name
            );
        }
        assert!(
            trace.kernels.len() < entries.len(),
            "{}: no two rows alike",
            expected.file
        );
    }
}

#[test]
fn every_file_survives_our_trace_and_profile_formats() {
    for (path, expected) in model_kernels() {
        let trace = Trace::read(&path).expect("a published file");
        let text = trace.write();
        assert_eq!(Format::detect(&text), Some(Format::Trace));
        assert_eq!(
            Trace::parse(&text, &path).expect("our own text"),
            trace,
            "{}",
            expected.file
        );
        let profile = Profile::load(&path).expect("a published file");
        assert_eq!(profile.sources, [expected.file]);
        let text = profile.write();
        assert_eq!(Format::detect(&text), Some(Format::Profile));
        assert_eq!(Profile::parse(&text, &path).expect("our own text"), profile);
    }
}

#[test]
fn every_launch_of_a_trace_is_found_exactly_in_its_own_profile() {
    for (path, expected) in model_kernels() {
        let trace = Trace::read(&path).expect("a published file");
        let index = ProfileIndex::new(Profile::load(&path).expect("a published file"));
        for kernel in trace.launched() {
            let (found, quality) =
                index.find(&kernel.name, kernel.grid, kernel.block, kernel.shared_bytes);
            assert_eq!(quality, Match::Exact, "{} {}", expected.file, kernel.name);
            assert_eq!(
                found.map(|found| found.durations.p95_ns),
                Some(kernel.duration_ns)
            );
        }
        let launches: u64 = index
            .profile()
            .kernels
            .iter()
            .map(|kernel| kernel.count)
            .sum();
        assert_eq!(launches, expected.launches as u64);
    }
}

#[test]
fn the_published_file_with_unquoted_commas_is_refused_with_line_and_reason() {
    let folder = testing::data("orion");
    let path = folder.join("profiles/resnet50_32_fb1_new");
    for error in [Trace::read(&path).err(), Profile::load(&path).err()] {
        let error = error.expect("the file is malformed").to_string();
        assert!(
            error.contains("resnet50_32_fb1_new:404: 37 fields; expected 5 (Name,"),
            "{error}"
        );
        assert!(error.contains("bn_bw_1C11_singleread"), "{error}");
        assert!(error.contains("contains 32 unquoted commas"), "{error}");
    }
}

#[test]
fn files_of_other_formats_are_refused_as_such() {
    let folder = testing::data("orion");
    for file in [
        "traces/inter_arrival_times.json",
        "results/hp.json",
        "LICENSE.MIT",
    ] {
        let path = folder.join(file);
        let error = Trace::read(&path).expect_err("not a trace").to_string();
        assert!(error.contains("accepted here: a Pillion trace"), "{error}");
        let error = Profile::load(&path).expect_err("not a profile").to_string();
        assert!(
            error.contains("accepted here: a Pillion profile"),
            "{error}"
        );
    }
}
