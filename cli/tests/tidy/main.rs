//! Rules for the sources, for the documents, and for the strings that users meet.

mod sources;
mod strings;
mod width;

use std::path::PathBuf;

use sources::sources;

/// Limit on the lines of a file, tables of entry points excepted (STYLE.md).
const LINES_MAX: usize = 800;

fn code(text: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let lines: Vec<&str> = text.lines().filter(is_code).collect();
    lines.join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn files_are_short_enough_to_read() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path))
        .filter(|(lines, _)| *lines >= LINES_MAX)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(_, text)| !text.trim_start_matches("#!").starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "no //! at the top of {silent:#?}");
}

#[test]
fn nothing_is_left_undone_or_switched_off() {
    // Assembled here, so that this file does not find itself.
    let notes = [
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("XX", "X"),
    ];
    let ignored = concat!("#[", "ignore");
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let note = notes
            .iter()
            .find(|note| words(&text).any(|word| word == **note));
        let is_ignored = text.contains(ignored).then_some(&ignored);
        faults.extend(note.or(is_ignored).map(|what| format!("{path}: {what}")));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The interposer's own driver calls use `call!`; none may wait for the device, except in a process
/// that a signal ends.
// census: K7
#[test]
fn the_interposer_never_waits_for_the_device_of_its_own_accord() {
    let mut calls = 0;
    for (path, text) in sources() {
        if !path.starts_with("interpose/src/") {
            continue;
        }
        for call in code(&text).split("call!(").skip(1) {
            let symbol = words(call).find(|word| !word.is_empty()).unwrap_or("");
            let may_wait = path == "interpose/src/driver/calls/ending.rs";
            let waits = symbol.contains("Synchronize");
            assert!(!waits || may_wait, "{path} calls {symbol}");
            calls += usize::from(symbol.starts_with("cu"));
        }
    }
    assert!(calls > 10, "only {calls} calls found");
    let users = sources().into_iter().filter(|(path, text)| {
        path.starts_with("interpose/src/") && code(text).contains("ending::synchronize")
    });
    let users: Vec<_> = users.map(|(path, _)| path).collect();
    assert_eq!(users, ["interpose/src/daemon/helper.rs"]);
}

#[test]
fn no_path_of_a_developers_machine_is_in_the_sources() {
    let homes = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
    ];
    let faults: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|(_, text)| homes.iter().any(|home| text.contains(home)))
        .map(|(path, _)| path.into())
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
