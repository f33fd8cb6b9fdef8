//! The profile commands as a user runs them: output, exit codes, and written files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const NCU: &str = "==PROF== Connected to process 7 (/usr/bin/job)\n\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";

/// A file of Nsight Compute with one kernel that lasts `us` µs.
fn ncu(us: &str) -> String {
    let row = |metric: &str, unit: &str, value: &str| {
        format!(
            "\"0\",\"7\",\"job\",\"h\",\"void gemm<int>(float *)\",\"1\",\"7\",\"(256, 1, 1)\",\"(640, 1, 1)\",\"0\",\"8.0\",\"GPU Speed Of Light Throughput\",\"{metric}\",\"{unit}\",\"{value}\"\n"
        )
    };
    [
        NCU.to_owned(),
        row("Duration", "usecond", us),
        row("Compute (SM) Throughput", "%", "88.25"),
        row("DRAM Throughput", "%", "12.50"),
        row("Registers Per Thread", "register/thread", "64"),
    ]
    .concat()
}

fn pillion(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
    command.arg("profile").args(arguments).args(files);
    command.output().expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn imported(folder: &Path, name: &str, us: &str) -> PathBuf {
    let (from, to) = (
        folder.join(format!("{name}.csv")),
        folder.join(format!("{name}.toml")),
    );
    fs::write(&from, ncu(us)).expect("room");
    let ended = pillion(
        &[
            "import",
            "--device",
            "A100-SXM4-80GB",
            "-o",
            to.to_str().expect("text"),
        ],
        &[&from],
    );
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(text(&ended.stdout).is_empty());
    to
}

#[test]
fn what_is_imported_is_shown_checked_and_compared() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (before, after) = (
        imported(folder.path(), "before", "12.50"),
        imported(folder.path(), "after", "25.00"),
    );
    let shown = pillion(&["show"], &[&before]);
    let shown = text(&shown.stdout);
    for expected in [
        "A100-SXM4-80GB  from before.csv",
        "1 launch of 1 kernel and shape, 12.5 us of GPU time",
        "compute 100.0 %",
        "gemm <640> x 256",
        "throughput",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let json = pillion(&["show", "--json"], &[&before]);
    let json: Value = serde_json::from_str(text(&json.stdout)).expect("JSON");
    assert_eq!(
        (&json["schema_version"], &json["totals"]["duration_ns"]),
        (&Value::from(1), &Value::from(12_500))
    );
    let kernel = &json["kernels"][0];
    assert_eq!(
        (
            &kernel["compute_pct"],
            &kernel["class"],
            &kernel["registers"]
        ),
        (
            &Value::from(88.25),
            &Value::from("compute"),
            &Value::from(64)
        )
    );
    assert_eq!(kernel["memory_pct"], Value::Null);
    let compared = pillion(&["compare"], &[&before, &after]);
    let compared = text(&compared.stdout);
    assert!(
        compared.contains("1 slower, 0 faster, 0 new, 0 gone, 0 same")
            && compared.contains("+100.0"),
        "{compared}"
    );
    let checked = pillion(&["check"], &[&before]);
    assert!(text(&checked.stdout).contains("before.toml: ok"));
    let drawn = pillion(
        &[
            "show",
            "--svg",
            folder.path().join("roof.svg").to_str().expect("text"),
        ],
        &[&before],
    );
    assert_eq!(drawn.status.code(), Some(2), "no operations were counted");
    assert!(
        text(&drawn.stderr).contains("ncu --set full"),
        "{}",
        text(&drawn.stderr)
    );
    assert!(!folder.path().join("roof.svg").exists());
}

#[test]
fn without_an_output_the_profile_goes_to_stdout_and_what_is_said_to_stderr() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.csv");
    fs::write(&file, ncu("12.50")).expect("room");
    for arguments in [vec!["import"], vec!["import", "-o", "-"]] {
        let ended = pillion(&arguments, &[&file]);
        assert!(ended.status.success());
        assert!(text(&ended.stdout).starts_with("format = \"pillion-profile\"\nversion = 2\n"));
        assert!(
            text(&ended.stderr).contains("name it with `import --device MODEL`"),
            "{}",
            text(&ended.stderr)
        );
    }
}

#[test]
fn the_standard_input_is_read_as_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.csv");
    fs::write(&file, ncu("12.50")).expect("room");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
    command
        .args(["profile", "import", "-"])
        .stdin(fs::File::open(&file).expect("there"));
    let ended = command.output().expect("it runs");
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let profile = text(&ended.stdout);
    assert!(
        profile.contains("sum = 12500") && profile.contains("sources = [\"standard input\"]"),
        "{profile}"
    );
}

#[test]
fn a_profile_is_shown_as_it_would_be_used_on_another_gpu() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let profile = imported(folder.path(), "job", "12.50");
    let on = |device: &str| pillion(&["show", "--device", device], &[&profile]);
    let shown = on("A40");
    let shown = text(&shown.stdout);
    for expected in [
        "A40  from job.csv",
        "scaled",
        "note: measured on A100-SXM4-80GB and scaled to A40",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let same = on("a100-sxm4-80gb");
    assert!(
        !text(&same.stdout).contains("scaled"),
        "{}",
        text(&same.stdout)
    );
    assert_eq!(on("A400").status.code(), Some(2));
}

#[test]
fn unusable_files_end_with_2_and_nothing_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out.toml");
    let bad = folder.path().join("bad.csv");
    fs::write(
        &bad,
        "==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
    )
    .expect("room");
    let empty = folder.path().join("empty");
    fs::write(&empty, "").expect("room");
    let good = folder.path().join("good.csv");
    fs::write(&good, ncu("12.50")).expect("room");
    let import = |files: &[&Path]| pillion(&["import", "-o", out.to_str().expect("text")], files);
    for (file, expected) in [
        (&*bad, "the tool reported: ==ERROR== ERR_NVGPUCTRPERM"),
        (&empty, "empty"),
        (Path::new("/nowhere/x"), "/nowhere/x: cannot be read"),
        (folder.path(), "cannot be read"),
    ] {
        let ended = import(&[file]);
        assert_eq!(ended.status.code(), Some(2), "{}", file.display());
        assert!(
            text(&ended.stderr).contains(expected),
            "{}",
            text(&ended.stderr)
        );
        assert!(!out.exists());
    }
    // One usable file suffices; the other is reported.
    let ended = import(&[&bad, &good]);
    assert!(ended.status.success());
    assert!(
        text(&ended.stderr).contains("not imported: ") && out.exists(),
        "{}",
        text(&ended.stderr)
    );
    for command in ["show", "check"] {
        assert_eq!(
            pillion(&[command], &[&bad]).status.code(),
            Some(2),
            "{command}"
        );
    }
    assert_eq!(pillion(&["import"], &[]).status.code(), Some(2));
    assert_eq!(
        pillion(&["import", "--device", "V1000"], &[&good])
            .status
            .code(),
        Some(2)
    );
    let copy = folder.path().join("copy.csv");
    assert_eq!(pillion(&["scrub"], &[&bad, &copy]).status.code(), Some(2));
    assert!(!copy.exists());
    assert_eq!(pillion(&["scrub"], &[&good, &copy]).status.code(), Some(0));
    assert!(import(&[&copy]).status.success());
}

/// Otherwise root would replace `/dev/null` by a file.
#[test]
fn what_is_no_file_is_written_to_and_not_replaced() {
    use std::os::unix::fs::FileTypeExt as _;
    let folder = tempfile::tempdir().expect("room");
    let counted = folder.path().join("counted.csv");
    fs::write(&counted, ncu("12.5")).expect("room");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("coreutils").success());
    let workload: &[&str] = &["workload", "resnet50-inference", "-o"];
    let (scrub, import): (&[&str], &[&str]) = (&["profile", "scrub"], &["profile", "import", "-o"]);
    for (arguments, input) in [
        (workload, None),
        (scrub, Some(&counted)),
        (import, Some(&counted)),
    ] {
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || fs::read(pipe).expect("what was written"))
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillion"));
        command.args(arguments);
        // scrub FROM TO, import -o TO FROM.
        match arguments.last() {
            Some(&"-o") => command.arg(&pipe).args(input),
            _ => command.args(input).arg(&pipe),
        };
        let ended = command.output().expect("it runs");
        let is_pipe = fs::metadata(&pipe)
            .expect("it is there")
            .file_type()
            .is_fifo();
        assert!(is_pipe, "{arguments:?}");
        assert!(ended.status.success(), "{}", text(&ended.stderr));
        assert!(!reader.join().expect("it read").is_empty(), "{arguments:?}");
    }
}
