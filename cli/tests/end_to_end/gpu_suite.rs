//! The GPU suite (`benches/gpu`) packs, runs on a software GPU, and ends properly in every case. It
//! is meant for machines with a GPU, where people run it; these tests keep it from rotting. Most of
//! it runs with an interpreter without PyTorch, and parts that need PyTorch must say so. One test,
//! if PyTorch is installed, runs small programs of it in every state of whole programs: their
//! results mean nothing there and are not judged, Pillion's counts are.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{
    Cuda, Ended, Process, cargo_folder, clean_command, collect, tools, try_until, workspace,
    write_script,
};
use crate::torch;

/// Every part, in order of execution.
const PARTS: [&str; 13] = [
    "harmless",
    "doors",
    "cost",
    "completion",
    "streams",
    "device",
    "profile",
    "share",
    "quota",
    "signals",
    "demo",
    "power",
    "model",
];
/// The parts with nothing to do without PyTorch.
const OF_TORCH: [&str; 2] = ["harmless", "profile"];
/// The suite runs no code of frameworks here, so any model would do; this one suits them.
const DEVICE: &str = "A100-SXM4-40GB";

fn suite() -> PathBuf {
    workspace().join("benches/gpu")
}

struct Packed {
    python: PathBuf,
    folder: TempDir,
}

impl Packed {
    fn new() -> Self {
        let python = tools::python(&[]);
        let folder = tempfile::tempdir().unwrap();
        let mut pack = Command::new(suite().join("pack"));
        pack.arg(folder.path().join("built"));
        pack.env("BUILT", cargo_folder());
        let pack = Process::start("pack", pack);
        pack.finish_whenever().expect_success();
        Self { python, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `run` with these arguments, on its own software GPU, with an interpreter without PyTorch.
    fn run(&self, arguments: &[&str]) -> Command {
        self.run_with(&self.without_torch(), arguments)
    }

    fn run_with(&self, interpreter: &Path, arguments: &[&str]) -> Command {
        // A shell starts background programs with SIGINT ignored, which is not tested here.
        let mut command = clean_command("env");
        command.arg("--default-signal=INT").arg(&self.python);
        command.arg(suite().join("run")).arg("--programs");
        command.arg(self.path("built"));
        command.args(["--software-gpu", DEVICE, "--quick", "--seconds", "0.5"]);
        command.arg("--python").arg(interpreter);
        command.args(arguments);
        command.env("TMPDIR", self.folder.path());
        command
    }

    fn without_torch(&self) -> PathBuf {
        let path = self.path("no-torch");
        let script = "#!/bin/sh\necho 'no torch, as the test wants it' >&2\nexit 1\n";
        write_script(&path, script);
        path
    }

    fn finished(&self, parts: &str, out: &str, more: &[&str]) -> Ended {
        self.finished_with(&self.without_torch(), parts, out, more)
    }

    fn finished_with(&self, interpreter: &Path, parts: &str, out: &str, more: &[&str]) -> Ended {
        let mut command = self.run_with(interpreter, &["--only", parts, "--out"]);
        command.arg(self.path(out)).args(more);
        Process::start("gpu suite", command).finish_whenever()
    }

    /// An interpreter whose programs attach and report like the suite's; GPT's hang, with a child.
    fn with_programs_that_hang(&self) -> PathBuf {
        let path = self.path("no-torch");
        let script = format!(
            "#!{}\n\
             import ctypes, json, subprocess, sys\n\
             if sys.argv[1] == '-c':\n    print('0.0')\n    sys.exit()\n\
             if 'gpt' in sys.argv:\n    \
             child = subprocess.Popen(['sleep', '1000'])\n    \
             open('{}', 'a').write(f'{{child.pid}} ')\n    child.wait()\n\
             cuda, context = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p()\n\
             assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n\
             print(json.dumps({{'digest': 'same', 'values': [1.0], 'reserved_bytes': 0}}), flush=True)\n\
             sys.stdin.read()\n",
            self.python.display(),
            self.path("built/children").display()
        );
        write_script(&path, &script);
        path
    }

    fn document(&self, out: &str, name: &str) -> Value {
        json(&self.path(out).join(format!("{name}.json")))
    }
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn held(document: &Value) -> Vec<Option<bool>> {
    let bounds = document["bounds"].as_array().expect("a list of bounds");
    bounds.iter().map(|bound| bound["held"].as_bool()).collect()
}

#[test]
fn every_part_runs_on_a_software_gpu_and_says_that_it_is_one() {
    let packed = Packed::new();
    let ended = packed
        .finished(&PARTS.join(","), "out", &["--budget", "600"])
        .expect_success();
    assert!(
        ended.output.contains("SOFTWARE GPU: results are modelled"),
        "{ended:#?}"
    );
    assert_eq!(
        packed.document("out", "machine")["gpu"]["software_gpu"],
        true
    );
    for part in PARTS {
        let document = packed.document("out", part);
        assert_eq!(document["software_gpu"], true, "{document:#}");
        let status = if OF_TORCH.contains(&part) {
            "skipped"
        } else {
            "done"
        };
        assert_eq!(document["status"], status, "{document:#} {ended:#?}");
        assert!(!held(&document).contains(&Some(false)), "{document:#}");
        assert!(ended.output.contains(&format!("\n{part} ")), "{ended:#?}");
    }
    // Bounds about hardware are not judged here, the others are.
    for timed in ["cost", "share"] {
        let document = packed.document("out", timed);
        let held = held(&document);
        assert!(
            !held.is_empty() && held.iter().all(Option::is_none),
            "{document:#}"
        );
    }
    for judged in ["doors", "quota", "signals"] {
        assert!(
            held(&packed.document("out", judged)).contains(&Some(true)),
            "{judged}"
        );
    }
    expect_power(&packed.document("out", "power"));
    // The model has a point for each measured one of the curve, or gives the reason.
    let points = |part: &str| {
        let document = packed.document("out", part);
        let rows = document["rows"].as_array().expect("a list of rows");
        rows.iter()
            .filter(|row| row["kernel_us"].is_number())
            .count()
    };
    let model = packed.document("out", "model");
    let skipped = model["skipped"].as_array().expect("a list").len();
    assert!(points("share") > 0, "{ended:#?}");
    assert_eq!(points("model") + skipped, points("share"), "{model:#}");
    let tar = packed.path("out").join("results-software-gpu.tar.gz");
    assert!(tar.is_file(), "{ended:#?}");
    let left: Vec<_> = std::fs::read_dir(packed.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| !["built", "out", "no-torch"].iter().any(|ours| name == ours))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The governor of the software GPU has the law that `power` compares with.
fn expect_power(document: &Value) {
    let rows = document["rows"].as_array().expect("a list of rows");
    let of = |state: &str, key: &str| {
        let row = rows.iter().find(|row| row["state"] == state);
        let value = row.and_then(|row| row[key].as_f64());
        value.unwrap_or_else(|| panic!("no {key} of {state}: {document:#}"))
    };
    for state in ["idle", "context"] {
        assert_eq!(of(state, "power_w"), of("context", "model_w"), "{state}");
    }
    for state in ["compute", "memory", "half"] {
        assert!(of(state, "power_w") > of("context", "power_w"), "{state}");
        assert!(of(state, "model_w") > of("context", "model_w"), "{state}");
    }
}

#[test]
fn a_part_that_overruns_is_ended_and_the_next_one_runs() {
    let packed = Packed::new();
    // Less than `cost` takes to calibrate its processes, more than the next part needs to be tried.
    let ended = packed.finished("cost,doors", "out", &["--budget", "1"]);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let cost = packed.document("out", "cost");
    assert_eq!(cost["status"], "ended", "{cost:#}");
    let why = cost["why"].as_str().expect("a reason");
    assert!(why.contains("budget of 1 s"), "{why}");
    assert!(packed.path("out").join("doors.json").is_file());
}

#[test]
fn a_program_that_hangs_is_named_and_costs_no_other_its_result() {
    let packed = Packed::new();
    // A program hangs if it is silent for half of the remaining time.
    let more = [
        "--budget",
        "30",
        "--with",
        "harmless=--only-program resnet50-inference,gpt-training-amp",
    ];
    let interpreter = packed.with_programs_that_hang();
    let ended = packed.finished_with(&interpreter, "harmless", "out", &more);
    let document = packed.document("out", "harmless");
    let rows = document["rows"].as_array().expect("a list of rows");
    let row = |program: &str| rows.iter().find(|row| row["program"] == program);
    let right = row("resnet50-inference").unwrap_or_else(|| panic!("{document:#} {ended:#?}"));
    assert_eq!(right["differs"], 0, "{document:#}");
    // In any case it names the program that it waits for.
    let hangs = row("gpt-training-amp").map_or(&document["why"], |row| &row["failed"]);
    assert!(
        hangs.to_string().contains("gpt-training-amp"),
        "{document:#} {ended:#?}"
    );
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let children = std::fs::read_to_string(packed.path("built/children")).expect("it was started");
    for child in children.split_whitespace() {
        let folder = PathBuf::from("/proc").join(child);
        assert!(!folder.exists(), "{child} lives on: {ended:#?}");
    }
}

#[test]
fn what_no_time_is_left_for_is_said_and_the_tar_is_where_it_was_asked_for() {
    let packed = Packed::new();
    let copy = packed.path("elsewhere/mine.tar.gz");
    let copy = copy.to_str().expect("a temporary folder's name is text");
    let more = ["--deadline", "0.5", "--tar", copy];
    let ended = packed.finished("doors,quota", "out", &more);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    assert!(ended.output.contains("not run: doors, quota"), "{ended:#?}");
    let mut list = Command::new("tar");
    list.args(["-tzf", copy]);
    let ended = collect(list).expect_success();
    for name in ["machine.json", "summary.txt"] {
        assert!(ended.output.contains(name), "{ended:#?}");
    }
}

#[test]
fn whole_programs_of_pytorch_are_compared_shared_and_timed() {
    let torch = torch::python(Cuda::V13);
    let packed = Packed::new();
    let more = [
        "--budget",
        "1800",
        "--with",
        "harmless=--only-program gpt-training-amp",
        "--with",
        "share=--no-curve --pairs 'gpt-generation + resnet50-training'",
        // So long that a request is due, however slow the machine is at answering one.
        "--seconds",
        "3",
    ];
    let ended = packed.finished_with(&torch, "harmless,share,cost", "out", &more);
    let ended = ended.expect_success();
    for part in ["harmless", "share", "cost"] {
        let document = packed.document("out", part);
        assert_eq!(document["status"], "done", "{document:#} {ended:#?}");
    }
    let harmless = packed.document("out", "harmless");
    let row = &harmless["rows"][0];
    for counter in ["launches_hp", "launches_be", "reserved_bytes_hp"] {
        assert!(row[counter].as_u64() > Some(0), "{counter}: {harmless:#}");
    }
    assert_eq!(row["launches_hp"], row["launches_be"], "{harmless:#}");
    // The programs' ends and the account depend on Pillion, whatever kernels compute.
    assert!(
        held(&harmless)
            .iter()
            .filter(|held| **held == Some(true))
            .count()
            >= 5,
        "{harmless:#}"
    );
    let share = packed.document("out", "share");
    let rows = share["rows"].as_array().expect("a list of rows");
    let modes: Vec<_> = rows.iter().filter_map(|row| row["mode"].as_str()).collect();
    let all = [
        "alone",
        "timeslice",
        "mps+pillion",
        "mps+priority",
        "mps",
        "timeslice+pillion",
        "mps+pillion-2x",
        "mps+pillion-marked",
    ];
    assert_eq!(modes, all, "{share:#} {ended:#?}");
    let cost = packed.document("out", "cost");
    let rows = cost["rows"].as_array().expect("a list of rows");
    let timed = rows.iter().filter(|row| row["step_ms"].is_object());
    assert_eq!(timed.count(), 2 * 3, "{cost:#}");
    let bounds = cost["bounds"].as_array().expect("a list of bounds");
    let ends = bounds.iter().filter(|bound| {
        bound["what"]
            .as_str()
            .is_some_and(|what| what.contains("end to end"))
    });
    assert_eq!(ends.count(), 2 * 2, "{cost:#}");
}

#[test]
fn what_is_interrupted_leaves_what_there_is_in_a_tar() {
    for signal in [Signal::INT, Signal::TERM] {
        expect_a_tar_after(signal);
    }
}

fn expect_a_tar_after(signal: Signal) {
    let packed = Packed::new();
    let mut command = packed.run(&["--only", "doors,cost", "--out"]);
    command.arg(packed.path("out"));
    let mut process = Process::start("gpu suite", command);
    let doors = packed.path("out").join("doors.json");
    // The suite watches its parts itself, and one may take longer than the usual timeout.
    while process.is_running() && !doors.is_file() {
        let _ = try_until(|| doors.is_file() || !process.is_running());
    }
    process.signal(signal);
    let ended = process.finish_whenever();
    assert_eq!(ended.code(), 1, "{ended:#?}");
    assert!(ended.output.contains("INTERRUPTED"), "{ended:#?}");
    let tar = packed.path("out").join("results-software-gpu.tar.gz");
    assert!(tar.is_file(), "{ended:#?}");
}

#[test]
fn results_of_a_software_gpu_do_not_go_among_those_of_hardware() {
    let packed = Packed::new();
    let out = "benches/results/2026-01-01-software";
    let ended = packed.finished("doors", out, &[]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    let ended = ended.expect_errors(&["do not go under benches/results"]);
    assert!(!packed.path(out).exists(), "{ended:#?}");
}

#[test]
fn what_cannot_be_run_is_said_with_status_2() {
    let packed = Packed::new();
    let unknown = packed.finished("dors", "out", &[]);
    assert_eq!(unknown.code(), 2, "{unknown:#?}");
    unknown.expect_errors(&["no part dors"]);
    let nowhere = packed.path("nowhere");
    let nowhere = nowhere.to_str().expect("a temporary folder's name is text");
    let unbuilt = packed.finished("doors", "out", &["--programs", nowhere]);
    assert_eq!(unbuilt.code(), 2, "{unbuilt:#?}");
    unbuilt.expect_errors(&["benches/gpu/pack builds it"]);
}

#[test]
fn the_suites_python_compiles_explains_itself_and_computes_rightly() {
    let python = tools::python(&[]);
    let mut tests = clean_command(&python);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    tests.args(["-m", "unittest", "discover", "-s"]);
    tests.arg(suite().join("suite")).arg("-t").arg(suite());
    let tests = Process::start("unittest", tests);
    tests
        .finish_whenever()
        .expect_success()
        .expect_errors(&["Ran ", "OK"]);
    let folders = ["parts", "programs", "suite"];
    let sources = folders.iter().flat_map(|folder| {
        let entries = std::fs::read_dir(suite().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let sources: Vec<PathBuf> = sources
        .filter(|path| path.extension().is_some_and(|end| end == "py"))
        .chain([suite().join("run")])
        .collect();
    assert!(sources.len() > PARTS.len(), "{sources:?}");
    let mut compile = clean_command(&python);
    compile.args([
        "-c",
        "import sys\nfor name in sys.argv[1:]: compile(open(name).read(), name, 'exec')",
    ]);
    compile.args(&sources);
    collect(compile).expect_success();
    for part in PARTS {
        let mut help = clean_command(&python);
        help.arg("-B").arg(suite().join(format!("parts/{part}.py")));
        let ended = collect_with(help, "--help").expect_success();
        assert!(ended.output.contains(&format!("{part}: ")), "{ended:#?}");
    }
}

fn collect_with(mut command: Command, argument: &str) -> Ended {
    command.arg(argument);
    collect(command)
}
