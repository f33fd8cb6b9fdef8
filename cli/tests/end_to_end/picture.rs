//! What `pillion demo --out` writes: the timeline by the published format, the page by what a page that
//! stands alone must be, and both the same for the same seed.
//!
//! The format is Google's "Trace Event Format" (JSON object format): which keys each phase of event must
//! have, and that complete events of one thread nest or do not overlap. On our tracks nothing nests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::common::{Process, cargo_folder, clean_command, pillion};

/// Short enough that the window around the slow request has all of it.
const SECONDS: &str = "0.2";
const PAGE_BYTES_MAX: usize = 2 << 20;

fn demo(out: &Path, seed: &str) -> String {
    cargo_folder();
    let mut command = clean_command(pillion());
    command
        .args(["demo", "--device", "V100-SXM2-16GB"])
        .args(["--seconds", SECONDS, "--hp-rate", "40"])
        .args(["--seed", seed, "--json", "--out"])
        .arg(out);
    let ended = Process::start("pillion demo", command).finish_whenever();
    ended.expect_success().output
}

/// A number of ns from a JSON number of us with three decimals.
fn ns(value: &Value) -> u64 {
    let us = value
        .as_f64()
        .unwrap_or_else(|| panic!("{value}: no number"));
    assert!(us >= 0.0, "{us}");
    (us * 1e3).round() as u64
}

/// Complete events by process and track: start, end, category, name.
type Tracks = BTreeMap<(u64, u64), Vec<(u64, u64, String, String)>>;

/// Checks every event for what the format asks of it; returns what is to be looked at further.
fn checked(document: &Value) -> (Tracks, BTreeMap<u64, String>) {
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
    assert_eq!(counters.len(), processes.len(), "a counter per process");
    (tracks, processes)
}

fn expect_no_overlap(tracks: &mut Tracks) {
    for (track, spans) in tracks {
        spans.sort();
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{track:?}: {pair:?}");
        }
    }
}

#[test]
fn the_timeline_is_by_the_published_format_and_has_every_launch_that_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let results: Value = serde_json::from_str(&demo(folder.path(), "1")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("timeline.json")).unwrap();
    let timeline: Value = serde_json::from_str(&text).unwrap();
    let (mut tracks, processes) = checked(&timeline);
    assert_eq!(processes.len(), 6);
    expect_no_overlap(&mut tracks);
    let of = |pid: u64, cat: &str| {
        let spans = tracks
            .range((pid, 0)..(pid + 1, 0))
            .flat_map(|(_, spans)| spans);
        spans
            .filter(|span| span.2 == cat)
            .cloned()
            .collect::<Vec<_>>()
    };
    for (phase, jobs) in results["counts"].as_object().unwrap() {
        let about = &timeline["otherData"]["phases"][phase];
        let pid = about["pid"].as_u64().unwrap();
        let counted = jobs.as_object().unwrap().iter().map(|(job, counts)| {
            let count = counts["device"]["launches"].as_u64().unwrap();
            assert_eq!(about["launches"][job]["shown"], count, "{phase} {job}");
            count
        });
        assert_eq!(
            of(pid, "kernel").len() as u64,
            counted.sum::<u64>(),
            "{phase}"
        );
        let is_named = |span: &(u64, u64, String, String)| !span.3.is_empty();
        assert!(of(pid, "kernel").iter().all(is_named), "{phase}");
        assert!(!of(pid, "copy").is_empty(), "{phase}");
        let has_pillion = phase.ends_with("_pillion");
        assert_eq!(!of(pid, "lease").is_empty(), has_pillion, "{phase}");
        assert_eq!(!of(pid, "hold").is_empty(), has_pillion, "{phase}");
        let rules = [
            "ungated",
            "budget",
            "throttle",
            "hp-busy",
            "interference",
            "turn",
        ];
        for (_, _, _, rule) in of(pid, "hold") {
            assert!(rules.contains(&rule.as_str()), "{rule}");
        }
    }
    let rule_held = |phase: &str, rule: &str| {
        let pid = timeline["otherData"]["phases"][phase]["pid"]
            .as_u64()
            .unwrap();
        of(pid, "hold").iter().any(|span| span.3 == rule)
    };
    assert!(rule_held("timeslice_pillion", "hp-busy"));
    assert!(rule_held("mps_pillion", "interference"));
}

#[test]
fn the_report_stands_alone_is_small_and_well_formed_and_equal_for_equal_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, seed: &str| {
        let out = folder.path().join(name);
        demo(&out, seed);
        ["report.html", "timeline.json"]
            .map(|file| std::fs::read_to_string(out.join(file)).unwrap())
    };
    let first = written("first", "7");
    assert!(first == written("again", "7"), "equal seeds, other files");
    assert!(first != written("other", "8"), "other seeds, equal files");
    let page = &first[0];
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    for word in [
        "http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link",
    ] {
        assert!(!page.contains(word), "refers to something: {word}");
    }
    expect_balanced(page);
    assert!(!page.contains("NaN") && !page.contains("inf\""));
    assert!(
        page.matches("<svg viewBox=\"0 0 960").count() == 2,
        "two pictures"
    );
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    assert!(page.contains("model's word"));
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
