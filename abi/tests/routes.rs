//! Nothing that launches, allocates, synchronises or copies goes unhooked without a reason: every
//! such symbol, in every version and flavour, is hooked or has one in `pass_reasons.csv`.

use std::collections::{BTreeMap, BTreeSet};

use abi::{Category, ENTRY_POINTS, EntryPoint, Route};

const REASONS: &str = include_str!("../pass_reasons.csv");

/// Categories whose symbols matter to sharing.
const AUDITED: [Category; 4] = [
    Category::Launch,
    Category::Memory,
    Category::Sync,
    Category::Copy,
];

const REASON_BYTES_MIN: usize = 10;

fn reasons() -> BTreeMap<&'static str, &'static str> {
    let mut lines = REASONS.lines();
    assert_eq!(lines.next(), Some("symbol,reason"));
    lines
        .map(|line| line.split_once(',').expect("a symbol and a reason"))
        .collect()
}

fn symbol(entry_point: &EntryPoint) -> &'static str {
    entry_point.symbol.to_str().expect("the list is ASCII")
}

fn passed() -> impl Iterator<Item = &'static EntryPoint> {
    ENTRY_POINTS
        .iter()
        .filter(|entry| AUDITED.contains(&entry.category) && entry.route == Route::Pass)
}

// census: L8
#[test]
fn what_passes_unhooked_has_a_reason() {
    let reasons = reasons();
    let unexcused: Vec<_> = passed()
        .filter(|entry| !reasons.contains_key(symbol(entry)))
        .map(symbol)
        .collect();
    assert!(
        unexcused.is_empty(),
        "neither hooked nor in abi/pass_reasons.csv: {unexcused:?}"
    );
}

#[test]
fn what_is_hooked_has_no_reason() {
    let passed: BTreeSet<_> = passed().map(symbol).collect();
    let idle: Vec<_> = reasons()
        .into_keys()
        .filter(|symbol| !passed.contains(symbol))
        .collect();
    assert!(
        idle.is_empty(),
        "hooked, of another category, or no symbol at all, and yet in abi/pass_reasons.csv: {idle:?}"
    );
}

#[test]
fn reasons_are_sorted_and_say_something() {
    let lines: Vec<_> = REASONS.lines().skip(1).collect();
    assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "not sorted");
    assert_eq!(reasons().len(), lines.len(), "a symbol stands there twice");
    for (symbol, reason) in reasons() {
        assert!(reason.len() >= REASON_BYTES_MIN, "{symbol}: {reason:?}");
    }
}

#[test]
fn the_ways_into_the_driver_are_all_hooked() {
    for api in ["cuGetProcAddress", "cuInit"] {
        let forms = ENTRY_POINTS.iter().filter(|entry| entry.api == api);
        let passed: Vec<_> = forms
            .filter(|entry| entry.route == Route::Pass)
            .map(symbol)
            .collect();
        assert!(passed.is_empty(), "{passed:?}");
    }
}
