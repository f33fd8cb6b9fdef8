//! Exports and imports of the two libraries, by `nm` and `readelf`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use abi::{ENTRY_POINTS, EntryPoint, OPERATORS, Route};

use crate::common::{cargo_folder, library};

/// NVML's functions that report a job's own share.
pub(crate) const NVML: [&str; 11] = [
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
];

/// libc's family, present everywhere. `libgcc_s` is in the native build only; CI checks that the
/// released artefact does without.
const MAY_NEED: [&str; 5] = [
    "libc.so.6",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

fn shim() -> std::path::PathBuf {
    cargo_folder().join("libpillion_shim.so")
}

fn output(tool: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(tool);
    let command = command.args(arguments).arg(library);
    let output = command.output().expect("binutils are installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn exported(library: &Path) -> BTreeSet<String> {
    let text = output("nm", &["-D", "--defined-only"], library);
    text.lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|symbol| symbol.split('@').next().unwrap_or(symbol).to_owned())
        .collect()
}

fn table(is_wanted: impl Fn(&EntryPoint) -> bool) -> BTreeSet<String> {
    let wanted = ENTRY_POINTS.iter().filter(|entry| is_wanted(entry));
    wanted
        .map(|entry| entry.symbol.to_str().unwrap().to_owned())
        .collect()
}

fn expect_equal(exported: &BTreeSet<String>, expected: &BTreeSet<String>) {
    let missing: Vec<_> = expected.difference(exported).collect();
    let leaked: Vec<_> = exported.difference(expected).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
    assert!(leaked.is_empty(), "leaked: {leaked:?}");
}

/// libc's functions: the loader's doors, and those by which a program sets a signal's disposition.
const LIBC: [&str; 14] = [
    "dlsym",
    "dlvsym",
    "dlopen",
    "dlmopen",
    "sigaction",
    "signal",
    "bsd_signal",
    "ssignal",
    "sysv_signal",
    "__sysv_signal",
    "sigset",
    "kill",
    "killpg",
    "raise",
];

// census: A25, A27
#[test]
fn the_preload_library_exports_exactly_the_hooks_the_operators_and_the_doors_of_libc() {
    let mut expected = table(|entry| entry.route == Route::Hook);
    let operators = OPERATORS.iter();
    expected.extend(operators.map(|operator| operator.symbol.to_str().unwrap().to_owned()));
    expected.extend(NVML.map(str::to_owned));
    expected.extend(LIBC.map(str::to_owned));
    expected.insert("pillion_api".to_owned());
    expected.insert("InitializeInjectionNvtx2".to_owned());
    expect_equal(&exported(&library()), &expected);
}

#[test]
fn the_shim_exports_exactly_the_hooks_and_its_mark() {
    let mut expected = table(|entry| entry.route == Route::Hook);
    expected.insert("pillion_shim".to_owned());
    expect_equal(&exported(&shim()), &expected);
}

#[test]
fn the_stand_in_driver_exports_exactly_the_table_and_three_of_its_own() {
    let mut expected = table(|_| true);
    let own = ["block_priority", "next_kernel", "trace_kernels"];
    expected.extend(own.map(|name| format!("softgpu_{name}")));
    expect_equal(&exported(&cargo_folder().join("libcuda.so")), &expected);
}

// census: A11, K6
#[test]
fn our_libraries_need_nothing_but_libcs_family() {
    expect_libcs_family(&library(), &[]);
    // The driver behind it.
    expect_libcs_family(&shim(), &["$ORIGIN/driver/libcuda.so.1"]);
}

fn expect_libcs_family(library: &Path, others: &[&str]) {
    let text = output("readelf", &["-d", "-W"], library);
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split(']').next())
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{text}");
    for library in &needed {
        let may = MAY_NEED.contains(library) || others.contains(library);
        assert!(may, "needs {library}");
    }
    for other in others {
        assert!(needed.contains(other), "{text}");
    }
}

fn taken() -> Vec<String> {
    let text = output("nm", &["-D", "--undefined-only"], &library());
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    names.map(str::to_owned).collect()
}

// census: A1
#[test]
fn the_preload_library_needs_no_private_symbol_of_libc() {
    let taken = taken();
    // libc's loader functions are found in its symbol table, which this lists.
    assert!(
        taken
            .iter()
            .any(|name| name.starts_with("dl_iterate_phdr@")),
        "{taken:?}"
    );
    let private: Vec<_> = taken
        .iter()
        .filter(|name| name.contains("PRIVATE"))
        .collect();
    assert!(private.is_empty(), "{private:?}");
}

/// Functions that it does not import it cannot call: it does not change the mask of files, end the
/// process, or set a signal's disposition by libc. For two defaults it uses the function that it
/// exports itself (`signals.rs` here).
// census: G1, G3, G4
#[test]
fn the_preload_library_imports_nothing_that_takes_signals_or_ends_the_process() {
    for name in taken() {
        let name = name.split('@').next().unwrap();
        let never = [
            "signal",
            "bsd_signal",
            "sysv_signal",
            "sigset",
            "umask",
            "exit",
            "_exit",
            "kill",
            "killpg",
            "raise",
        ];
        assert!(!never.contains(&name), "takes {name}");
    }
}

/// Rust's standard library stores the program's arguments at load; C's start files have one entry.
/// Nothing else may run.
// census: A28
#[test]
fn the_preload_library_has_no_constructor_of_its_own() {
    let text = output("readelf", &["-d", "-W"], &library());
    let line = text.lines().find(|line| line.contains("(INIT_ARRAYSZ)"));
    let bytes = line.map_or(0, |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[words.len() - 2].parse::<u64>().unwrap()
    });
    assert!(bytes <= 2 * 8, "{bytes} bytes of constructors");
}

#[test]
fn the_stand_in_driver_and_the_shim_have_the_drivers_soname_and_bind_to_themselves() {
    for library in [cargo_folder().join("libcuda.so"), shim()] {
        let text = output("readelf", &["-d", "-W"], &library);
        assert!(text.contains("[libcuda.so.1]"), "{text}");
        assert!(text.contains("SYMBOLIC"), "{text}");
    }
    // A program may close its driver, but our helper thread runs in it.
    assert!(output("readelf", &["-d", "-W"], &shim()).contains("NODELETE"));
}
