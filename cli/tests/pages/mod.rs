//! Checks a timeline against the published format, and pages and pictures that stand alone. The
//! format is Google's "Trace Event Format" (JSON object format): the keys that each phase of event
//! must have, and complete events of one thread that nest or do not overlap. On our tracks nothing
//! nests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A number of ns from a JSON number of us with three decimals.
fn ns(value: &Value) -> u64 {
    let us = value
        .as_f64()
        .unwrap_or_else(|| panic!("{value}: no number"));
    assert!(us >= 0.0, "{us}");
    (us * 1e3).round() as u64
}

/// Complete events by process and track: start, end, category, name.
pub(crate) type Tracks = BTreeMap<(u64, u64), Vec<(u64, u64, String, String)>>;

/// Checks every event; returns complete events, names of processes, and the number of counters.
pub(crate) fn checked(document: &Value) -> (Tracks, BTreeMap<u64, String>, usize) {
    let mut tracks = Tracks::new();
    let mut processes = BTreeMap::new();
    let mut named = BTreeSet::new();
    let mut counters: BTreeMap<(u64, String), u64> = BTreeMap::new();
    let mut open: BTreeMap<String, u64> = BTreeMap::new();
    for event in document["traceEvents"].as_array().unwrap() {
        let text = |key: &str| {
            event[key]
                .as_str()
                .unwrap_or_else(|| panic!("{key}: {event}"))
        };
        let pid = event["pid"].as_u64().unwrap();
        let tid = event["tid"].as_u64().unwrap();
        let name = text("name").to_owned();
        assert!(!name.is_empty(), "{event}");
        match text("ph") {
            "M" => {
                let given = event["args"]["name"].as_str().unwrap().to_owned();
                match name.as_str() {
                    "process_name" => drop(processes.insert(pid, given)),
                    "thread_name" => assert!(named.insert((pid, tid)), "{event}"),
                    _ => panic!("{event}"),
                }
            }
            "X" => {
                let (start, duration) = (ns(&event["ts"]), ns(&event["dur"]));
                assert!(event["args"].is_object(), "{event}");
                let span = (start, start + duration, text("cat").to_owned(), name);
                tracks.entry((pid, tid)).or_default().push(span);
            }
            "C" => {
                let at = ns(&event["ts"]);
                let last = counters.entry((pid, name)).or_default();
                assert!(*last <= at, "{event} comes after {last}");
                *last = at;
                let values = event["args"].as_object().unwrap();
                let is_right = |sms: &Value| sms.as_u64().is_some_and(|sms| sms <= 80);
                assert!(
                    !values.is_empty() && values.values().all(is_right),
                    "{event}"
                );
            }
            "b" => drop(open.insert(text("id").to_owned(), ns(&event["ts"]))),
            "e" => {
                let begun = open.remove(text("id")).unwrap_or_else(|| panic!("{event}"));
                assert!(
                    begun <= ns(&event["ts"]) && text("cat") == "request",
                    "{event}"
                );
            }
            other => panic!("{other}: {event}"),
        }
    }
    assert!(open.is_empty(), "begun and not ended: {open:?}");
    for &track in tracks.keys() {
        assert!(named.contains(&track), "{track:?} has no name");
    }
    (tracks, processes, counters.len())
}

pub(crate) fn expect_no_overlap(tracks: &mut Tracks) {
    for (track, spans) in tracks {
        spans.sort();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{track:?}: {pair:?}");
        }
    }
}

/// Refers to nothing outside, is well formed, and has no NaN.
pub(crate) fn expect_page(page: &str) {
    for word in [
        "https:", "src=", "href=", "url(", "@import", "<script", "<link", "NaN", "inf\"",
    ] {
        assert!(!page.contains(word), "refers to something: {word}");
    }
    // A picture alone names its language; nothing is fetched from there.
    let named = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!named.contains("//") && !named.contains("http:"));
    expect_balanced(page);
}

/// Every element is closed, in order; attributes are quoted.
fn expect_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
            continue;
        }
        let name = tag.split(' ').next().unwrap_or_default();
        let is_void = tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name);
        if !is_void {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
}
