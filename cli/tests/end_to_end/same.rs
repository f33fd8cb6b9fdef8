//! No visible difference: random programs of driver calls see the same result codes and bytes under
//! the library, in each class and switched off, as with the driver alone. A *script* is a list of
//! calls that `programs/script.c` makes. It is drawn from the table of entry points: each parameter
//! is NULL, an invalid handle, a handle from an earlier call, a number, a buffer or a text, as its
//! type in the prototype allows. proptest shrinks a script that shows a difference.

use std::fmt::Write;

use abi::{ENTRY_POINTS, EntryPoint, Route};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use protocol::hello::JobClass;

use crate::common::{Program, Stage, collect, library, tools};

const CALLS_MAX: usize = 40;
/// Random scripts; each is four processes.
const SCRIPTS: u32 = 200;
/// Selects the scripts in the environment, and is printed with a failure.
const SEED: &str = "PILLION_TEST_SEED";
const PARAMETERS_MAX: usize = 16;

/// Types whose values come from the driver.
const HANDLES: [&str; 18] = [
    "CUarray",
    "CUcontext",
    "CUdeviceptr",
    "CUevent",
    "CUexternalMemory",
    "CUfunction",
    "CUgraph",
    "CUgraphExec",
    "CUgraphNode",
    "CUgreenCtx",
    "CUkernel",
    "CUlibrary",
    "CUlinkState",
    "CUmemGenericAllocationHandle",
    "CUmemoryPool",
    "CUmipmappedArray",
    "CUmodule",
    "CUstream",
];
/// Functions that the driver calls back.
const CALLBACKS: [&str; 6] = [
    "CUasyncCallback",
    "CUcoredumpStatusCallback",
    "CUgraphRecaptureCallback",
    "CUhostFn",
    "CUoccupancyB2DSize",
    "CUstreamCallback",
];
/// Structures passed by value on the stack, where the program has zeros.
const ON_STACK: [&str; 2] = ["CUipcMemHandle", "CUipcEventHandle"];
/// Calls that a random script must not make, since they would wait for a value that nobody writes.
const WAITS_FOR_EVER: [&str; 3] = ["WaitValue", "BatchMemOp", "ExternalSemaphores"];

/// A script's opening, after its early calls: a context, module, two vectors, a stream, an event.
const OPENING: &str = "\
cuInit i0
cuDeviceGet b i0
cuCtxCreate_v2 oCUcontext i0 i0
cuModuleLoadData oCUmodule M
cuModuleGetFunction oCUfunction hCUmodule:0 ssaxpy
cuMemAlloc_v2 oCUdeviceptr i16384
cuMemAlloc_v2 oCUdeviceptr i16384
cuStreamCreate oCUstream i0
cuStreamCreateWithPriority oCUstream i1 i-1
cuEventCreate oCUevent i0
";

/// Calls that random parameters seldom get right.
const RIGHT: [&str; 24] = [
    "cuLaunchKernel hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 n P n",
    "cuLaunchKernel hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 hCUstream:0 P n",
    "cuLaunchKernel_ptsz hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 n P n",
    "cuLaunchKernelEx C hCUfunction:0 P n",
    "cuLaunchKernelEx D hCUfunction:0 P n",
    "cuLaunchCooperativeKernel hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 n P",
    "cuLaunchKernel hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 hCUstream:1 Q n",
    "cuLaunchKernel hCUfunction:0 i0 i1 i1 i256 i1 i1 i0 n P n",
    "cuLaunchKernel hCUfunction:0 i1 i1 i1 i4096 i1 i1 i0 n P n",
    "cuMemcpyHtoD_v2 hCUdeviceptr:0 b i4096",
    "cuMemcpyDtoH_v2 b hCUdeviceptr:1 i256",
    "cuMemcpyHtoDAsync_v2 hCUdeviceptr:0 b i4096 hCUstream:0",
    "cuMemsetD8_v2 hCUdeviceptr:0 i7 i256",
    "cuMemAlloc_v2 oCUdeviceptr i4096",
    "cuMemFree_v2 hCUdeviceptr:2",
    "cuEventRecord hCUevent:0 hCUstream:0",
    "cuEventSynchronize hCUevent:0",
    "cuStreamWaitEvent hCUstream:1 hCUevent:0 i0",
    "cuStreamSynchronize hCUstream:0",
    "cuCtxSetCurrent n",
    "cuCtxSetCurrent hCUcontext:0",
    "cuStreamBeginCapture_v2 hCUstream:0 i1",
    "cuStreamEndCapture hCUstream:0 oCUgraph",
    "cuGraphInstantiateWithFlags oCUgraphExec hCUgraph:0 i0",
];

/// Names to look up: valid ones of several libraries and versions, invalid ones, and none.
const NAMES: [&str; 14] = [
    "cuLaunchKernel",
    "cuMemAlloc",
    "cuCtxCreate",
    "cuGetProcAddress",
    "cuLaunchKernelEx",
    "cuMemAlloc_v2",
    "cuLaunchKernel_ptsz",
    "culaunchkernel",
    "cuNothing",
    "cublasCreate_v2",
    "cudnnCreate",
    "curl_easy_init",
    "",
    "cu",
];

/// CUDA versions for look-ups: the oldest, those that matter, and a future one.
const VERSIONS: [u32; 6] = [2_000, 11_030, 12_000, 12_090, 13_000, 99_999];

fn parameters(entry_point: &EntryPoint) -> Vec<(&'static str, &'static str)> {
    let prototype = entry_point.prototype.trim();
    if matches!(prototype, "" | "void") {
        return Vec::new();
    }
    let parameters = prototype.split(',').map(str::trim);
    parameters
        .map(|parameter| {
            let name = parameter.trim_end_matches("[]");
            let start = name.rfind(|c: char| !c.is_alphanumeric() && c != '_');
            let (kind, name) = name.split_at(start.map_or(0, |at| at + 1));
            (kind.trim(), name)
        })
        .collect()
}

/// One argument for a parameter; choice 0 is NULL if possible: scripts shrink towards that.
fn argument(kind: &str, name: &str, choice: u8) -> Option<String> {
    let pick = |words: &[&str]| words[usize::from(choice) % words.len()].to_owned();
    let base = kind.trim_start_matches("const ").trim_end_matches('*');
    let base = base.trim();
    let is_pointer = kind.ends_with('*');
    let text = match (kind, name) {
        (kind, _) if ON_STACK.contains(&kind) || kind == "float" => return None,
        (kind, _) if CALLBACKS.contains(&kind) => pick(&["n", "F"]),
        ("const char *", _) => pick(&["n", "ssaxpy", "sfill", "snothing", "s"]),
        ("void **", "kernelParams") => pick(&["n", "P", "P", "P", "Q"]),
        ("void **", "extra") => pick(&["n", "n", "n", "n", "n", "b"]),
        ("void **", _) => pick(&["n", "oaddress"]),
        ("const void *", "image" | "fatCubin" | "code") => pick(&["n", "M", "b"]),
        ("const CUlaunchConfig *", _) => pick(&["n", "C", "D", "b"]),
        ("void *", _) => pick(&["n", "b", "haddress:0"]),
        ("CUdevice", _) => pick(&["i0", "i0", "i1", "i-1", "i99"]),
        (kind, _) if HANDLES.contains(&kind.trim_end_matches("_v1")) => {
            let kind = kind.trim_end_matches("_v1");
            match choice % 6 {
                0 => "n".to_owned(),
                1 => "x".to_owned(),
                k => format!("h{kind}:{}", k - 2),
            }
        }
        (kind, _) if is_pointer && HANDLES.contains(&base) && kind.starts_with("const") => {
            match choice % 3 {
                0 => "n".to_owned(),
                1 => "b".to_owned(),
                _ => format!("a{base}:0"),
            }
        }
        _ if is_pointer && HANDLES.contains(&base) => {
            if choice.is_multiple_of(4) {
                "n".to_owned()
            } else {
                format!("o{base}")
            }
        }
        _ if is_pointer => pick(&["n", "b", "b", "b"]),
        (_, name) if name.contains("lags") || name.contains("riority") => {
            pick(&["i0", "i1", "i2", "i4", "i-1", "i-5", "i64"])
        }
        ("size_t", _) => pick(&["i0", "i1", "i4", "i256", "i4096"]),
        _ => pick(&["i0", "i1", "i2", "i1", "i3", "i32", "i1"]),
    };
    Some(text)
}

fn line(entry_point: &EntryPoint, choices: &[u8]) -> String {
    let mut line = entry_point.symbol.to_str().unwrap().to_owned();
    for (at, (kind, name)) in parameters(entry_point).into_iter().enumerate() {
        if let Some(argument) = argument(kind, name, choices[at % choices.len()]) {
            write!(line, " {argument}").unwrap();
        }
    }
    line
}

fn hooked() -> Vec<&'static EntryPoint> {
    ENTRY_POINTS
        .iter()
        .filter(|entry_point| entry_point.route == Route::Hook)
        .collect()
}

/// Entry points for random scripts: all hooked ones, and queries whose answers must not change.
fn callable() -> Vec<&'static EntryPoint> {
    let asks = |symbol: &str| {
        ["cuDeviceGetAttribute", "cuCtxGet", "cuPointerGetAttribute"]
            .iter()
            .any(|start| symbol.starts_with(start))
    };
    ENTRY_POINTS
        .iter()
        .filter(|entry_point| {
            let symbol = entry_point.symbol.to_str().unwrap();
            let waits = WAITS_FOR_EVER.iter().any(|part| symbol.contains(part));
            !waits
                && symbol != "cuStreamDestroy"
                && (entry_point.route == Route::Hook || asks(symbol))
        })
        .collect()
}

fn any_line() -> impl Strategy<Value = String> {
    let callable = callable();
    let count = callable.len();
    let drawn = (0..count, prop::collection::vec(any::<u8>(), PARAMETERS_MAX))
        .prop_map(move |(at, choices)| line(callable[at], &choices));
    let names = prop::sample::select(&NAMES[..]);
    let versions = prop::sample::select(&VERSIONS[..]);
    prop_oneof![
        6 => drawn.clone(),
        6 => prop::sample::select(&RIGHT[..]).prop_map(str::to_owned),
        1 => drawn.prop_map(|line| format!("@ {line}")),
        1 => (names, versions, 0..4_u32)
            .prop_map(|(name, version, flags)| format!("! {name} {version} {flags}")),
        1 => prop::sample::select(&NAMES[..]).prop_map(|name| format!("? {name}")),
    ]
}

fn any_script() -> impl Strategy<Value = String> {
    let early = prop::collection::vec(any_line(), 0..4);
    let late = prop::collection::vec(any_line(), 0..CALLS_MAX);
    (early, late).prop_map(|(early, late)| {
        let mut script = String::new();
        for line in early {
            writeln!(script, "{line}").unwrap();
        }
        script.push_str(OPENING);
        for line in late {
            writeln!(script, "{line}").unwrap();
        }
        script
    })
}

/// How often a script must show a difference that may be a kernel's fault in another call.
const TRIES: usize = 5;

/// Result codes of a kernel's fault, which every call returns once the device has reached it:
/// illegal address to launch failed, without peer access and contexts, which are a call's own.
const FAULTS: [&str; 11] = [
    "700", "701", "702", "703", "710", "714", "715", "716", "717", "718", "719",
];

struct Difference {
    text: String,
    /// Whether another call may have reported a kernel's fault.
    is_of_fault: bool,
}

/// The first differing lines of two outputs; at the end of one, the other's line and nothing.
fn first_difference<'a>(bare: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let mut lines = (bare.lines(), other.lines());
    loop {
        match (lines.0.next(), lines.1.next()) {
            (None, None) => return None,
            (bare, other) if bare != other => {
                return Some((bare.unwrap_or(""), other.unwrap_or("")));
            }
            _ => {}
        }
    }
}

fn is_of_fault((bare, other): (&str, &str)) -> bool {
    let tells_fault = |line: &str| {
        let codes = ["-> ", ", then "].iter().filter_map(|before| {
            let (_, after) = line.split_once(before)?;
            after.split([' ', ',']).next()
        });
        codes.into_iter().any(|code| FAULTS.contains(&code))
    };
    tells_fault(bare) != tells_fault(other)
}

impl Stage {
    /// The script's output and end: with the driver alone, and in each way that must match it.
    fn outputs(&self, script: &str) -> [(&'static str, String); 4] {
        let path = self.gpu.path("script");
        std::fs::write(&path, script).unwrap();
        ["bare", "high-priority", "best-effort", "disabled"].map(|way| {
            let job = self.gpu.job(way, Program::Unlinked("script"));
            let job = job.args(&[path.to_str().unwrap()]);
            let job = match way {
                "bare" => job,
                "high-priority" => job.high_priority(&self.daemon),
                "best-effort" => job.best_effort(&self.daemon),
                _ => job.best_effort(&self.daemon).env("PILLION_DISABLE", "1"),
            };
            // A quota makes the device look smaller, as intended.
            let ended = job.env("PILLION_MEMORY", "unlimited").run();
            (way, format!("{}{}", ended.output, ended.status))
        })
    }

    /// The first difference. If other calls report a fault, it must recur each time: the call that
    /// reports a kernel's fault depends on when the device reaches it, in real time and without
    /// Pillion as well; a difference of ours recurs whenever the script is run.
    fn difference(&self, script: &str) -> Option<String> {
        let first = self.difference_once(script)?;
        if !first.is_of_fault {
            return Some(first.text);
        }
        for _ in 1..TRIES {
            let again = self.difference_once(script)?;
            if !again.is_of_fault {
                return Some(again.text);
            }
        }
        Some(first.text)
    }

    fn difference_once(&self, script: &str) -> Option<Difference> {
        let [(_, bare), others @ ..] = self.outputs(script);
        others.into_iter().find_map(|(way, output)| {
            let first = first_difference(&bare, &output)?;
            Some(Difference {
                is_of_fault: is_of_fault(first),
                text: format!("{way}: {first:?}\nscript:\n{script}"),
            })
        })
    }

    fn expect_no_difference(&self, script: &str) {
        if let Some(difference) = self.difference(script) {
            panic!("{difference}");
        }
    }
}

/// 1 unless the environment says otherwise, so that a run can be repeated.
fn seed() -> u8 {
    let seed = std::env::var(SEED).unwrap_or_default();
    seed.parse().unwrap_or(1)
}

// census: B1, B6, C4, C6, I6
#[test]
fn random_programs_see_no_difference() {
    let stage = Stage::new();
    let config = Config {
        cases: SCRIPTS,
        max_shrink_iters: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let seed = seed();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    println!("{SEED}={seed}");
    TestRunner::new_with_rng(config, rng)
        .run(&any_script(), |script| {
            stage
                .difference(&script)
                .map_or(Ok(()), |difference| Err(TestCaseError::fail(difference)))
        })
        .unwrap();
}

/// Lines that call `entry_point` with NULL and 0, then with NULL in one parameter after the other.
fn with_nulls(entry_point: &EntryPoint) -> Vec<String> {
    let count = parameters(entry_point).len().max(1);
    let mut lines = vec![line(entry_point, &[0; PARAMETERS_MAX])];
    for null_at in 0..count {
        // 2: the first handle of the type, a buffer, a small number.
        let mut choices = [2; PARAMETERS_MAX];
        choices[null_at] = 0;
        lines.push(line(entry_point, &choices));
    }
    lines.dedup();
    lines
}

/// Each call in three states: before `cuInit`, on a thread without a context, in a context.
// census: B1, C1, C2
#[test]
fn null_in_any_parameter_of_any_hook_is_answered_as_by_the_driver() {
    let stage = Stage::new();
    let mut early = String::new();
    for entry_point in hooked() {
        let symbol = entry_point.symbol.to_str().unwrap();
        let waits = WAITS_FOR_EVER.iter().any(|part| symbol.contains(part));
        let lines = with_nulls(entry_point);
        // All NULL cannot wait for anything.
        let lines = if waits { &lines[..1] } else { &lines };
        let mut script = OPENING.to_owned();
        for line in lines {
            writeln!(script, "@ {line}\n{line}\ncuCtxGetCurrent b").unwrap();
        }
        stage.expect_no_difference(&script);
        if symbol != "cuInit" {
            writeln!(early, "{}", lines[0]).unwrap();
        }
    }
    stage.expect_no_difference(&early);
}

// census: A8, A18, A23
#[test]
fn every_name_at_every_version_is_answered_as_by_the_driver() {
    let stage = Stage::new();
    let mut script = String::new();
    for name in NAMES {
        writeln!(script, "? {name}").unwrap();
        for version in VERSIONS {
            for flags in 0..4 {
                writeln!(script, "! {name} {version} {flags}").unwrap();
            }
        }
    }
    // Before and after the driver is initialised.
    stage.expect_no_difference(&format!("{script}{OPENING}{script}"));
}

// census: B5
#[test]
fn attributes_of_memory_of_every_kind_are_the_drivers() {
    let stage = Stage::new();
    let mut script = format!(
        "{OPENING}cuMemAllocManaged oCUdeviceptr i4096 i1\ncuMemHostAlloc oaddress i4096 i2\n"
    );
    for attribute in 1..=24 {
        for place in ["hCUdeviceptr:0", "hCUdeviceptr:2", "haddress:0", "x"] {
            writeln!(script, "cuPointerGetAttribute b i{attribute} {place}").unwrap();
        }
    }
    stage.expect_no_difference(&script);
}

/// Calls like a library loaded by Python: by `ctypes`, from a thread that never had a context.
const PYTHON: &str = "\
import ctypes, threading
driver = ctypes.CDLL('libcuda.so.1')
out, zeros = ctypes.c_uint64(), ctypes.create_string_buffer(256)
def call():
    print('create', driver.cuMemCreate(ctypes.byref(out), ctypes.c_size_t(2 << 20), zeros, ctypes.c_uint64(0)))
    print('alloc', driver.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(4096)))
    print('device', driver.cuCtxGetDevice(ctypes.byref(out)))
    print('managed', driver.cuMemAllocManaged(ctypes.byref(out), ctypes.c_size_t(4096), 1))
call()
print('init', driver.cuInit(0))
for _ in range(3):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
";

// census: C1, C3
#[test]
fn a_library_loaded_by_python_may_allocate_without_a_context() {
    let python = tools::python(&["ctypes"]);
    let stage = Stage::new();
    let run = |class: Option<JobClass>| {
        let mut command = stage.gpu.command(&python);
        command.args(["-c", PYTHON]);
        if let Some(class) = class {
            command
                .env("LD_PRELOAD", library())
                .env("PILLION_SOCKET", stage.daemon.socket())
                .env("PILLION_CLASS", class.name());
        }
        collect(command).expect_success()
    };
    let alone = run(None);
    assert!(alone.output.contains("init 0\n"), "{alone:#?}");
    for class in [JobClass::HighPriority, JobClass::BestEffort] {
        assert_eq!(run(Some(class)).output, alone.output, "{class:?}");
    }
}

#[test]
fn an_error_that_sticks_sticks_in_every_call_alike() {
    let stage = Stage::new();
    let mut script = OPENING.to_owned();
    script.push_str("cuLaunchKernel hCUfunction:0 i1 i1 i1 i256 i1 i1 i0 n Q n\n");
    for entry_point in callable() {
        writeln!(script, "{}", line(entry_point, &[2; PARAMETERS_MAX])).unwrap();
    }
    let [(_, bare), ..] = stage.outputs(&script);
    assert!(bare.contains(", then 700\n"), "the kernel faults: {bare}");
    stage.expect_no_difference(&script);
}

#[test]
fn a_stream_whose_destruction_is_refused_keeps_the_priority_that_was_asked_for() {
    let stage = Stage::new();
    // The stand-in refuses the first form of the call, or a second destruction.
    let script = "cuStreamGetPriority hCUstream:1 b\ncuStreamDestroy hCUstream:1\n\
                  cuStreamGetPriority hCUstream:1 b\ncuStreamDestroy_v2 hCUstream:1\n\
                  cuStreamGetPriority hCUstream:1 b\n";
    stage.expect_no_difference(&format!("{OPENING}{script}"));
}

#[test]
fn a_visible_difference_would_be_seen() {
    let stage = Stage::new();
    let same = stage.outputs("cuInit i0\ncuDeviceGet b i0\n");
    for (way, output) in &same {
        assert!(
            output.starts_with("cuInit -> 0\ncuDeviceGet -> 0 [ ]\n"),
            "{way}: {output}"
        );
    }
    let [(_, one), ..] = stage.outputs("cuInit i0\ncuDeviceGet b i1\n");
    assert!(one.contains("cuDeviceGet -> 101"), "{one}");
    // The opening is right: nothing in it fails.
    let [(_, opening), ..] = stage.outputs(OPENING);
    assert!(
        opening
            .lines()
            .filter(|line| line.contains(" -> 0"))
            .count()
            >= 10,
        "{opening}"
    );
}

#[test]
fn only_a_fault_told_by_another_call_may_be_tried_again() {
    let of = |bare, other| first_difference(bare, other).map(is_of_fault);
    let right = "cuInit -> 0\ncuMemFree_v2 -> 0\ncuCtxSynchronize -> 0, then 0\n";
    assert_eq!(of(right, right), None);
    for (other, is_of_fault) in [
        ("cuInit -> 0\ncuMemFree_v2 -> 700\n", true),
        (
            "cuInit -> 0\ncuMemFree_v2 -> 0\ncuCtxSynchronize -> 0, then 719\n",
            true,
        ),
        ("cuInit -> 0\ncuMemFree_v2 -> 1\n", false),
        ("cuInit -> 0\ncuMemFree_v2 -> 7001\n", false),
        ("cuInit -> 0\ncuMemFree_v2 -> 0 [ 700 ]\n", false),
        ("cuInit -> 0\ncuMemFree_v2 -> 709\n", false),
        ("cuInit -> 0\n", false),
        (
            "cuInit -> 0\ncuMemFree_v2 -> 0\ncuCtxSynchronize -> 0, then 0\nkilled",
            false,
        ),
    ] {
        assert_eq!(of(right, other), Some(is_of_fault), "{other}");
    }
    // Both report one, but not the same.
    assert_eq!(of("cuInit -> 700\n", "cuInit -> 719\n"), Some(false));
}

#[test]
fn parameters_are_read_from_prototypes() {
    let by_symbol = |symbol: &std::ffi::CStr| &ENTRY_POINTS[abi::lookup(symbol).unwrap()];
    assert_eq!(
        line(by_symbol(c"cuMemAlloc_v2"), &[1; PARAMETERS_MAX]),
        "cuMemAlloc_v2 oCUdeviceptr i1"
    );
    assert_eq!(
        line(by_symbol(c"cuMemFree_v2"), &[2; PARAMETERS_MAX]),
        "cuMemFree_v2 hCUdeviceptr:0"
    );
    assert_eq!(
        line(by_symbol(c"cuCtxSynchronize"), &[1]),
        "cuCtxSynchronize"
    );
    for entry_point in &ENTRY_POINTS {
        assert!(
            parameters(entry_point).len() <= PARAMETERS_MAX,
            "{:?}",
            entry_point.symbol
        );
    }
}
