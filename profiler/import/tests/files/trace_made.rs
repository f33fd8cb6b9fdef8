//! Generated Chrome traces: the forms of other years and systems, and hostile ones.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use import::{Context, Error, Limits, Source};
use proptest::prelude::*;

use crate::common::read;

const KERNEL: &str = r#"{"ph": "X", "cat": "kernel", "name": "void f<float>(float*)", "pid": 0, "tid": 7, "ts": 100.5, "dur": 2.25, "args": {"External id": 3, "device": 0, "stream": 7, "correlation": 9, "registers per thread": 32, "shared memory": 4096, "grid": [80, 1, 1], "block": [256, 1, 1]}}"#;

fn source(bytes: impl AsRef<[u8]>) -> Result<Source, Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("trace");
    fs::write(&path, bytes).expect("room");
    let source = read(&path);
    if let Err(error) = &source {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    source
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("room");
    encoder.finish().expect("room")
}

#[test]
fn object_list_gzip_mark_nan_and_trailing_comma_are_all_read() {
    let list = format!("[{KERNEL}]");
    let object = format!(
        "{{\"schemaVersion\": 1, \"x\": NaN, \"traceEvents\": [{KERNEL},\n], \"y\": [1,2,],}}"
    );
    let utf16: Vec<u8> = format!("\u{feff}{object}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for bytes in [
        list.clone().into_bytes(),
        object.clone().into_bytes(),
        format!("\u{feff}{list}").into_bytes(),
        gzip(object.as_bytes()),
        utf16,
    ] {
        let source = source(&bytes).expect("a trace");
        let [launch] = &source.launches[..] else {
            panic!("one kernel")
        };
        assert_eq!(
            (launch.start_ns, launch.duration_ns),
            (Some(100_500), Some(2_250))
        );
        let kernel = &source.kernels[0];
        assert_eq!(
            (kernel.grid, kernel.registers),
            (Some([80, 1, 1]), Some(32))
        );
        assert_eq!(
            (kernel.shared.of_block(), &*kernel.names.base),
            (Some(4096), "f")
        );
    }
}

#[test]
fn an_open_list_keeps_what_was_written_and_an_open_object_is_damaged() {
    let kept = source(format!("[{KERNEL},\n{KERNEL},\n")).expect("the format allows it");
    assert_eq!(kept.launches.len(), 2);
    assert!(kept.notices[0].contains("not closed"), "{:?}", kept.notices);
    for text in [
        format!("{{\"traceEvents\": [{KERNEL},"),
        format!("{{\"traceEvents\": [{KERNEL}, {{\"ph\" 7}}]}}"),
    ] {
        let error = source(text).expect_err("cut");
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    }
    let whole = gzip(format!("[{}{KERNEL}]", format!("{KERNEL},").repeat(2000)).as_bytes());
    let error = source(&whole[..whole.len() / 2]).expect_err("cut");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn json_of_something_else_and_traces_without_kernels_say_so() {
    for (text, expected) in [
        ("{\"a\": [1, 2]}", "JSON without `traceEvents`"),
        ("{\"traceEvents\": []}", "0 events, none of CUDA"),
        (
            "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"ts\": 1}]}",
            "1 call of the CUDA API",
        ),
        ("{\"traceEvents\": 7}", "damaged"),
        (
            "[{\"name\": \"x\", \"metrics\": {}}]",
            "JSON without `traceEvents`",
        ),
    ] {
        let error = source(text).expect_err("no kernel").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn values_of_any_type_are_read_over() {
    let odd = r#"{"ph": "X", "cat": "kernel", "name": "g", "pid": "x", "tid": "stream 7", "ts": "12", "dur": null, "args": {"grid": "1", "block": {}, "device": [], "registers per thread": "48", "shared memory": -1, "External id": 1e300, "Input Dims": {"a": 1}}}"#;
    let source = source(format!(
        "[{odd}, {KERNEL}, {{}}, {{\"ph\": 7, \"args\": []}}]"
    ))
    .expect("a trace");
    assert_eq!(source.launches.len(), 2);
    assert_eq!(source.launches[0].duration_ns, None);
    assert_eq!(
        (source.kernels[0].grid, source.kernels[0].registers),
        (None, Some(48))
    );
}

#[test]
fn a_launch_knows_its_call_and_the_annotations_its_times() {
    let call = r#"{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 90, "dur": 5, "args": {"correlation": 9}}"#;
    let step = r#"{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#6", "pid": 1, "tid": 2, "ts": 80, "dur": 100}"#;
    let source = source(format!("[{step}, {KERNEL}, {call}]")).expect("a trace");
    let call = source.launches[0].call.expect("called");
    let [range] = &source.ranges[..] else {
        panic!("one annotation")
    };
    assert_eq!((call.at_ns, call.thread), (90_000, range.thread));
    assert_eq!(
        (range.start_ns, range.end_ns, &*source.range_names[0]),
        (80_000, 180_000, "ProfilerStep#6")
    );
}

#[test]
fn what_decompresses_without_end_stops_at_the_limit() {
    let bomb = gzip(&[b"[".as_slice(), &vec![b' '; 16 << 20]].concat());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bomb");
    fs::write(&path, bomb).expect("room");
    let mut context = Context {
        limits: Limits { bytes_max: 1 << 20 },
        progress: &mut |_, _| {},
    };
    let error = import::read(&path, &mut context).expect_err("too long");
    assert!(
        matches!(
            error,
            Error::TooLong {
                is_compressed: true,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn nesting_without_end_is_refused() {
    let error = source("[".repeat(1 << 20)).expect_err("no trace");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let deep = format!("[{{\"ph\": \"X\", \"args\": {}", "{\"a\":".repeat(1 << 20));
    let error = source(deep).expect_err("no trace");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_cut_or_changed_trace_is_read_or_refused(at in 0usize..1000, byte in any::<u8>(), is_cut in any::<bool>()) {
        let mut text = format!("{{\"deviceProperties\": [{{\"id\": 0, \"name\": \"T4\"}}], \"traceEvents\": [{KERNEL}, {KERNEL}]}}").into_bytes();
        let at = at % text.len();
        if is_cut {
            text.truncate(at);
        } else {
            text[at] = byte;
        }
        let _ = source(text);
    }
}

/// A product of PyTorch with its kernel, which is the same whatever dimension is summed over.
fn product(id: u32, name: &str, dims: &str, duration_us: u32) -> String {
    format!(
        r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "ts": {id}, "dur": 2, "args": {{"External id": {id}, "Input Dims": {dims}, "Input type": ["c10::Half", "c10::Half", "c10::Half"]}}}},
        {{"ph": "X", "cat": "kernel", "name": "sgemm", "ts": {id}000, "dur": {duration_us}, "args": {{"External id": {id}, "device": 0, "grid": [64, 1, 1], "block": [128, 1, 1]}}}}"#
    )
}

fn products() -> Source {
    let events = [
        product(1, "aten::mm", "[[32, 64], [64, 512]]", 10),
        product(2, "aten::addmm", "[[512], [32, 4096], [4096, 512]]", 90),
        product(3, "aten::mm", "[[32, 64], [64, 512]]", 12),
        product(4, "aten::bmm", "[[6, 32, 64], [6, 64, 512]]", 40),
        product(5, "aten::add_", "[[32, 64], [32, 64]]", 3),
    ];
    source(format!("[{}]", events.join(","))).expect("a trace")
}

#[test]
fn one_kernel_is_told_apart_by_the_products_that_launched_it() {
    let profile = import::reduce(&[products()], &import::Options::default()).expect("of one GPU");
    let told = profile.kernels.iter().map(|kernel| {
        let operator = kernel.operator.as_ref();
        let operator = operator.map_or_else(String::new, ToString::to_string);
        (operator, kernel.count, kernel.durations.p95_ns)
    });
    let told: Vec<_> = told.collect();
    let told: Vec<_> = told
        .iter()
        .map(|(name, count, p95)| (name.as_str(), *count, *p95))
        .collect();
    assert_eq!(
        told,
        [
            // Rows of PyTorch are columns of cuBLAS.
            ("gemm f16 512x32x64", 2, 12_000),
            ("gemm f16 512x32x4096", 1, 90_000),
            ("gemm f16 512x32x64 x6", 1, 40_000),
            ("", 1, 3_000),
        ]
    );
    let text = profile.write();
    let read = profiler::Profile::parse(&text, std::path::Path::new("p")).expect("our own");
    assert_eq!(read, profile);
}

#[test]
fn what_was_counted_of_a_kernel_holds_in_all_its_operators() {
    let csv = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
               \"0\",\"1\",\"p\",\"h\",\"sgemm\",\"1\",\"7\",\"(128, 1, 1)\",\"(64, 1, 1)\",\"0\",\"8.0\",\"GPU Speed Of Light Throughput\",\"Compute (SM) Throughput\",\"%\",\"81.5\"\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ncu.csv");
    fs::write(&path, csv).expect("room");
    let counted = read(&path).expect("a details page");
    let profile = import::reduce(&[products(), counted], &import::Options::default());
    let profile = profile.expect("of one GPU");
    assert_eq!(profile.kernels.len(), 4, "{:#?}", profile.notices);
    for kernel in &profile.kernels {
        let percent = kernel.evidence.compute_pct.map(|percent| percent.value());
        assert_eq!(percent, Some(81.5), "{kernel:#?}");
    }
}
