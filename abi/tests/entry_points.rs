//! The table of entry points: its order, its look-ups, its macros, and its agreement with
//! measurements of real drivers and runtimes, which lie outside the repository (`testing::data`).
#![expect(
    clippy::unwrap_used,
    reason = "tests, which Clippy does not know as such"
)]

#[macro_use]
extern crate testing;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::process::ExitCode;

use abi::{Category, ENTRY_POINT_COUNT, ENTRY_POINTS, ENTRY_POINTS_CSV, EntryPoint, Route};

fn main() -> ExitCode {
    testing::main()
}

fn data(path: &str) -> String {
    fs::read_to_string(testing::data(path)).expect("a measurement is text")
}

fn newest(api: &str, version: u32, per_thread: bool) -> Option<&'static str> {
    abi::newest(api, version, per_thread).map(|index| symbol(&ENTRY_POINTS[index]))
}

fn symbol(entry_point: &EntryPoint) -> &'static str {
    entry_point.symbol.to_str().expect("the list is ASCII")
}

fn symbols(wanted: impl Fn(&EntryPoint) -> bool) -> Vec<&'static str> {
    ENTRY_POINTS
        .iter()
        .filter(|entry_point| wanted(entry_point))
        .map(symbol)
        .collect()
}

macro_rules! names {
    ($($symbol:ident)*) => { vec![$(stringify!($symbol)),*] };
}

macro_rules! ids {
    ($($symbol:ident)*) => { vec![$((abi::id::$symbol, stringify!($symbol))),*] };
}

#[test]
fn table_is_sorted_and_without_duplicates() {
    assert!(
        ENTRY_POINTS
            .windows(2)
            .all(|pair| pair[0].symbol < pair[1].symbol)
    );
    assert_eq!(ENTRY_POINT_COUNT, ENTRY_POINTS_CSV.lines().count() - 1);
}

#[test]
fn every_symbol_is_found_and_no_other() {
    for (index, entry_point) in ENTRY_POINTS.iter().enumerate() {
        assert_eq!(abi::lookup(entry_point.symbol), Some(index));
    }
    for other in [
        c"",
        c"cu",
        c"cuLaunchKernel_v9",
        c"dlsym",
        c"cuInit ",
        c"zzz",
    ] {
        assert_eq!(abi::lookup(other), None, "{other:?}");
    }
}

#[test]
fn rows_with_a_per_thread_suffix_are_per_thread() {
    for entry_point in &ENTRY_POINTS {
        let symbol = symbol(entry_point);
        let suffixed = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
        assert_eq!(entry_point.per_thread, suffixed, "{symbol}");
    }
}

#[test]
fn macros_list_what_the_table_says() {
    assert_eq!(
        abi::for_each_hooked! { names },
        symbols(|e| e.route == Route::Hook)
    );
    assert_eq!(abi::for_each_softgpu! { names }, symbols(|e| e.softgpu));
    assert_eq!(
        abi::for_each_not_softgpu! { names },
        symbols(|e| !e.softgpu)
    );
}

#[test]
fn ids_are_the_indices_of_their_symbols() {
    let mut ids = abi::for_each_softgpu! { ids };
    ids.extend(abi::for_each_not_softgpu! { ids });
    assert_eq!(ids.len(), ENTRY_POINT_COUNT);
    for (index, name) in ids {
        assert_eq!(symbol(&ENTRY_POINTS[index]), name);
    }
}

// census: H1
#[test]
fn the_ways_to_launch_a_kernel_on_a_stream_are_hooked() {
    for api in [
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
    ] {
        for per_thread in [false, true] {
            let entry_point = &ENTRY_POINTS[abi::newest(api, 13_000, per_thread).unwrap()];
            assert_eq!(entry_point.route, Route::Hook, "{api}");
            assert_eq!(entry_point.category, Category::Launch, "{api}");
            assert!(entry_point.softgpu, "{api}");
        }
    }
}

/// The runtime authenticates the driver through it, so Pillion must never answer it.
// census: L2
#[test]
fn export_tables_are_passed_through() {
    assert_eq!(ENTRY_POINTS[abi::id::cuGetExportTable].route, Route::Pass);
}

#[test]
fn newest_is_the_newest_form_not_newer_than_asked() {
    assert_eq!(newest("cuMemAlloc", 2_000, false), Some("cuMemAlloc"));
    assert_eq!(newest("cuMemAlloc", 3_010, false), Some("cuMemAlloc"));
    assert_eq!(newest("cuMemAlloc", 3_020, false), Some("cuMemAlloc_v2"));
    assert_eq!(newest("cuMemAlloc", 13_000, false), Some("cuMemAlloc_v2"));
    assert_eq!(
        newest("cuGetProcAddress", 11_030, false),
        Some("cuGetProcAddress")
    );
    assert_eq!(
        newest("cuGetProcAddress", 12_000, false),
        Some("cuGetProcAddress_v2")
    );
    assert_eq!(newest("cuCtxCreate", 12_040, false), Some("cuCtxCreate_v3"));
    assert_eq!(newest("cuCtxCreate", 12_050, false), Some("cuCtxCreate_v4"));
}

#[test]
fn newest_answers_the_flavour_asked_for_where_it_exists() {
    assert_eq!(
        newest("cuStreamSynchronize", 7_000, false),
        Some("cuStreamSynchronize")
    );
    assert_eq!(
        newest("cuStreamSynchronize", 7_000, true),
        Some("cuStreamSynchronize_ptsz")
    );
    // As R535 and R550 answer: the api has a per-thread form, but of version 7.0.
    assert_eq!(newest("cuStreamSynchronize", 2_000, true), None);
    assert_eq!(
        newest("cuMemcpyHtoD", 12_000, true),
        Some("cuMemcpyHtoD_v2_ptds")
    );
    assert_eq!(newest("cuMemAlloc", 12_000, true), Some("cuMemAlloc_v2"));
}

#[test]
fn newest_knows_apis_only_by_their_own_name_and_age() {
    assert_eq!(newest("cuLaunchKernelEx", 11_050, false), None);
    assert_eq!(abi::first_version("cuLaunchKernelEx"), Some(11_060));
    assert_eq!(abi::first_version("cuMemAlloc"), Some(2_000));
    for unknown in [
        "",
        "cu",
        "cuMemAlloc_v2",
        "cuLaunchKernel_ptsz",
        "cuZ",
        "zzz",
    ] {
        assert_eq!(newest(unknown, 13_000, false), None, "{unknown}");
        assert_eq!(newest(unknown, u32::MAX, true), None, "{unknown}");
        assert_eq!(abi::first_version(unknown), None, "{unknown}");
    }
}

#[test]
fn every_request_of_the_real_runtimes_for_a_known_api_resolves() {
    let text = data("cuda/cudart_requests.csv");
    let mut resolved = 0;
    for line in text.lines().skip(1) {
        let mut fields = line.split(',');
        let [api, version, flags] = [(); 3].map(|()| fields.next().unwrap());
        let (version, per_thread) = (version.parse().unwrap(), flags == "2");
        let Some(first) = abi::first_version(api) else {
            assert_eq!(newest(api, version, per_thread), None, "{line}");
            continue;
        };
        assert!(version >= first, "{line}");
        let entry_point = &ENTRY_POINTS[abi::newest(api, version, per_thread).expect(line)];
        assert_eq!(entry_point.api, api);
        assert!(entry_point.version <= version, "{line}");
        // Runtimes request the per-thread flavour only of apis that have one.
        assert_eq!(entry_point.per_thread, per_thread, "{line}");
        resolved += 1;
    }
    // 505 requests were recorded, 37 of them for graphics, profiler and such.
    assert!(resolved > 450, "{resolved}");
}

/// Functions that cuda.h itself defines as calls of others: no driver exports them.
const OF_THE_HEADER: [&str; 2] = ["cuGetProcAddress_ptsz", "cuGetProcAddress_v2_ptsz"];

#[test]
fn the_table_has_every_symbol_that_was_found_in_drivers() {
    let text = data("cuda/driver_symbols.csv");
    let measured: BTreeSet<_> = text
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.splitn(6, ',').collect();
            (
                fields[0],
                fields[1],
                fields[3].parse().unwrap(),
                fields[4] == "2",
            )
        })
        .filter(|(symbol, ..)| !OF_THE_HEADER.contains(symbol))
        .collect();
    let ours: BTreeSet<_> = ENTRY_POINTS
        .iter()
        .map(|e| (symbol(e), e.api, e.version, e.per_thread))
        .collect();
    let different: Vec<_> = ours.symmetric_difference(&measured).collect();
    assert!(different.is_empty(), "{different:?}");
}

#[test]
fn lookup_takes_symbols_made_at_run_time() {
    let made = CString::new("cuLaunch".to_owned() + "Kernel").unwrap();
    assert_eq!(abi::lookup(&made), Some(abi::id::cuLaunchKernel));
}
