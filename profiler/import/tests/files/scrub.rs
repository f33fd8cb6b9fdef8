//! Copies for sharing: each imports to the profile of the original, and has no private data.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use import::{Context, Error, Limits, Options};
use profiler::Profile;
use tempfile::TempDir;

use crate::common::{data, read};

fn scrub(from: &Path, to: &Path) -> Result<(), Error> {
    let mut context = Context {
        limits: Limits::default(),
        progress: &mut |_, _| {},
    };
    import::scrub(from, to, &mut context)
}

fn profile(path: &Path) -> Profile {
    import::reduce(&[read(path).expect("readable")], &Options::default()).expect("of one GPU")
}

fn content(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).expect("there");
    let mut content = Vec::new();
    match bytes.starts_with(b"\x1f\x8b") {
        true => MultiGzDecoder::new(&*bytes).read_to_end(&mut content),
        false => (&*bytes).read_to_end(&mut content),
    }
    .expect("whole");
    content
}

fn has(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn a_copy_of_every_real_file_imports_to_the_same_profile() {
    let data = data();
    let (mut copied, mut refused) = (0, 0);
    for from in files(&data) {
        let folder = TempDir::new().expect("a temporary folder");
        // The label in the profile is the file's name.
        let to = folder.path().join(from.file_name().expect("a file"));
        let is_read = read(&from).is_ok();
        match scrub(&from, &to) {
            Ok(()) => {
                assert!(is_read, "{}", from.display());
                assert_eq!(profile(&to), profile(&from), "{}", from.display());
                let copy = content(&to);
                for word in ["==PROF==", "Host Name", ".py(", "python_function"] {
                    assert!(
                        !has(&copy, word),
                        "{word} in the copy of {}",
                        from.display()
                    );
                }
                copied += 1;
            }
            Err(error) => {
                let by_reason = matches!(error, Error::NotSuitable { .. });
                assert!(!is_read || by_reason, "{}: {error}", from.display());
                assert!(!to.exists(), "{}: {error}", from.display());
                refused += 1;
            }
        }
    }
    assert!(
        copied >= 20 && refused >= 20,
        "{copied} copied, {refused} refused"
    );
}

const TRACE: &str = r#"{"schemaVersion": 1, "distributedInfo": {"backend": "hunter-a"}, "trace_name": "/hunter/b.json",
"deviceProperties": [{"id": 0, "name": "Tesla T4", "computeMajor": 7, "computeMinor": 5, "numSms": 40, "hunter": "c"}],
"traceEvents": [
{"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "hunter-d"}},
{"ph": "X", "cat": "python_function", "name": "hunter_e.py(7): train", "pid": 1, "tid": 2, "ts": 1, "dur": 900, "args": {"Call stack": "hunter-f"}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": "thread hunter-g", "ts": 5.25, "dur": 100, "args": {"x": "hunter-h"}},
{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 1, "tid": "thread hunter-g", "ts": 105.25, "dur": 100},
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 6, "dur": 2, "args": {"External id": 3, "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["float", "std::hunter<i>"], "Concrete Inputs": ["", "hunter-j"]}},
{"ph": "X", "cat": "cpu_op", "name": "hunter::k", "pid": 1, "tid": 2, "ts": 6, "dur": 2, "args": {"External id": 4}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel_hunter_l", "pid": 1, "tid": "thread hunter-g", "ts": 7, "dur": 1, "args": {"correlation": 9, "cbid": "hunter-m"}},
{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "thread hunter-g", "ts": 110, "dur": 1, "args": {"correlation": 10}},
{"ph": "X", "cat": "kernel", "name": "void f<float>(float*)", "pid": 0, "tid": "stream hunter-n", "ts": 8.125, "dur": 20.5, "args": {"External id": 3, "device": 0, "stream": 7, "correlation": 9, "registers per thread": 32, "shared memory": 4096, "grid": [80, 1, 1], "block": [256, 1, 1], "hunter": "o"}},
{"ph": "X", "cat": "kernel", "name": "void f<float>(float*)", "pid": 0, "tid": 7, "ts": 111.5, "dur": 21, "args": {"External id": 3, "device": 0, "stream": 7, "correlation": 10, "registers per thread": 32, "shared memory": 4096, "grid": [80, 1, 1], "block": [256, 1, 1]}}
]}"#;

#[test]
fn a_trace_keeps_what_is_measured_and_loses_what_is_private() {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, is_compressed) in [("trace.json", false), ("trace.json.gz", true)] {
        let (from, copies) = (
            folder.path().join(name),
            folder.path().join(format!("of {name}")),
        );
        fs::create_dir(&copies).expect("room");
        let mut bytes = TRACE.as_bytes().to_vec();
        if is_compressed {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&bytes).expect("room");
            bytes = encoder.finish().expect("room");
        }
        fs::write(&from, bytes).expect("room");
        let to = copies.join(name);
        scrub(&from, &to).expect("a trace");
        let (before, after) = (profile(&from), profile(&to));
        assert_eq!(after, before);
        assert_eq!(before.requests.expect("two steps").count, 2);
        assert_eq!(before.kernels[0].class_rule.word(), "estimated");
        let copy = content(&to);
        assert!(!has(&copy, "hunter"), "{}", String::from_utf8_lossy(&copy));
        assert_eq!(
            fs::read(&to).expect("there").starts_with(b"\x1f\x8b"),
            is_compressed
        );
    }
}

/// A program's output around and in a table with a row for each metric; German number format.
const LONG: &str = "hunter's own output\n==PROF== Connected to process 7 (/srv/hunter/a.out)\n\
\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Id:Domain:hunter\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Description\"\n\
\"0\",\"7\",\"hunter.py\",\"hunter-host\",\"hunter's range\",\"void f<int>(int *, \"\"x\"\")\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"Speed\",\"Duration\",\"usecond\",\"1.234,50\",\n\
\"0\",\"7\",\"hunter.py\",\"hunter-host\",\"hunter's range\",\"void f<int>(int *, \"\"x\"\")\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"Speed\",\"Shared Memory Configuration Size\",\"Kbyte\",\"32,768\",\n\
==WARNING== hunter\n\
\"0\",\"7\",\"hunter.py\",\"hunter-host\",\"hunter's range\",\"void f<int>(int *, \"\"x\"\")\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"Speed\",\"\",\"\",\"\",\"Bottleneck\",\"see /srv/hunter/f.cu\"\n\
\"0\",\"7\",\"hunter.py\",\"hunter-host\",\"hunter's range\",\"void f<int>(int *, \"\"x\"\")\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"Speed\",\"Compute (SM) Throughput\",\"%\",\"88,25\",\n";

const WIDE: &str = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"device__attribute_display_name\",\"device__attribute_board\",\"gpu__time_duration.sum\",\"launch__registers_per_thread\"\n\
\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"nsecond\",\"register/thread\"\n\
\"0\",\"7\",\"hunter.py\",\"hunter-host\",\"f\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"7.5\",\"Tesla T4\",\"hunter's board\",\"12345.000000\",\"32\"\n";

#[test]
fn a_table_keeps_what_is_measured_and_loses_what_is_private() {
    let folder = TempDir::new().expect("a temporary folder");
    for (name, text, ns) in [("long.csv", LONG, 1_234_500), ("wide.csv", WIDE, 12_345)] {
        let from = folder.path().join(name);
        let copies = folder.path().join(format!("of {name}"));
        fs::create_dir(&copies).expect("room");
        let to = copies.join(name);
        fs::write(&from, text).expect("room");
        scrub(&from, &to).expect("a table");
        let (before, after) = (profile(&from), profile(&to));
        assert_eq!(after, before, "{name}");
        assert_eq!(before.kernels[0].durations.sum_ns, ns, "{name}");
        let copy = content(&to);
        assert!(!has(&copy, "hunter"), "{}", String::from_utf8_lossy(&copy));
    }
}

#[test]
fn what_need_not_or_cannot_be_copied_is_refused_with_the_reason() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("file");
    for (bytes, expected) in [
        (b"NVR\0\x05\0\0\0".as_slice(), "--page raw"),
        (b"Start (ns),Duration (ns),CorrId,GrdX\n", "Processing"),
        (b"format = \"pillion-profile\"\n", "share it unchanged"),
        (
            b"NVIDIA Tegra Profiler Report 2024@6",
            "nsys export --type sqlite",
        ),
        (b"{\"traceEvents\": []}", "no kernels"),
        (b"==ERROR== no\n", "==ERROR== no"),
        (b"hello", "unknown format"),
    ] {
        fs::write(&path, bytes).expect("room");
        let to = folder.path().join("copy");
        let error = scrub(&path, &to).expect_err("refused").to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert!(!to.exists(), "{error}");
    }
}
