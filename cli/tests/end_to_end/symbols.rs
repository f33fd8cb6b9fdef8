//! What the two libraries export and need, as `nm` and `readelf` see it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use abi::{ENTRY_POINTS, EntryPoint, Route};

use crate::common::{cargo_folder, library};

/// libc's family, present on every system. `libgcc_s` is in the native build only; the artefact that is released does
/// without, which CI checks.
const MAY_NEED: [&str; 7] = [
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
];

fn output(tool: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(tool);
    let command = command.args(arguments).arg(library);
    let output = command.output().expect("binutils are installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn exported(library: &Path) -> BTreeSet<String> {
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

#[test]
fn the_preload_library_exports_exactly_the_hooked_entry_points_and_dlsym() {
    let mut expected = table(|entry| entry.route == Route::Hook);
    expected.insert("dlsym".to_owned());
    expect_equal(&exported(&library()), &expected);
}

#[test]
fn the_stand_in_driver_exports_exactly_the_table() {
    expect_equal(
        &exported(&cargo_folder().join("libcuda.so")),
        &table(|_| true),
    );
}

#[test]
fn the_preload_library_needs_nothing_but_libcs_family() {
    let text = output("readelf", &["-d", "-W"], &library());
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split(']').next())
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{text}");
    for library in needed {
        assert!(MAY_NEED.contains(&library), "needs {library}");
    }
}

#[test]
fn the_stand_in_driver_has_the_drivers_soname_and_binds_to_itself() {
    let text = output("readelf", &["-d", "-W"], &cargo_folder().join("libcuda.so"));
    assert!(text.contains("[libcuda.so.1]"), "{text}");
    assert!(text.contains("SYMBOLIC"), "{text}");
}
