//! The files of `pillion demo --out`: the timeline conforms to the published format, the page
//! stands alone, and both are equal for equal seeds, except the page's foot. The format is Google's
//! "Trace Event Format" (JSON object format): the keys that each phase of event must have, and
//! complete events of one thread that nest or do not overlap. On our tracks nothing nests.

use std::path::Path;

use serde_json::Value;

use crate::common::{Process, cargo_folder, clean_command, pillion};
use crate::pages::{checked, expect_no_overlap, expect_page};

/// Short enough for the window around the slow request to contain everything.
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

#[test]
fn the_timeline_is_by_the_published_format_and_has_every_launch_that_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let results: Value = serde_json::from_str(&demo(folder.path(), "1")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("timeline.json")).unwrap();
    let timeline: Value = serde_json::from_str(&text).unwrap();
    let (mut tracks, processes, counters) = checked(&timeline);
    assert_eq!(processes.len(), 6);
    assert_eq!(counters, 6, "busy SMs in each process");
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
        let read = |file: &str| std::fs::read_to_string(out.join(file)).unwrap();
        [
            without_foot(&read("report.html"), &out),
            read("timeline.json"),
        ]
    };
    let first = written("first", "7");
    assert!(first == written("again", "7"), "equal seeds, other files");
    assert!(first != written("other", "8"), "other seeds, equal files");
    let page = &first[0];
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    expect_page(page);
    expect_rules_for_the_screen(page);
    assert!(
        page.matches("<svg viewBox=\"0 0 960").count() == 3,
        "three pictures"
    );
    for words in [">p50 ", ">p99 ", "Rate of the best-effort job", "/s ("] {
        assert!(page.contains(words), "{words}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    assert!(page.contains("numbers come from the model"));
}

/// The page without its last line, which must contain the version, a day, and the command.
fn without_foot(page: &str, out: &Path) -> String {
    let (before, rest) = page
        .split_once("<p class=\"note\" id=\"made\">")
        .expect("a foot");
    let (foot, after) = rest.split_once("</p>").expect("its end");
    let version = format!("Pillion {}, 20", env!("CARGO_PKG_VERSION"));
    assert!(
        foot.starts_with(&version) && foot.contains(" UTC, by <code>pillion demo "),
        "{foot}"
    );
    assert!(foot.contains(out.to_str().unwrap()), "{foot}");
    [before, after].concat()
}

/// The style's brackets are closed, and the page's rules are not within one for paper or the dark.
fn expect_rules_for_the_screen(page: &str) {
    let style = page
        .split("<style>")
        .nth(1)
        .and_then(|rest| rest.split("</style>").next());
    let style = style.expect("a style");
    let depth_at = |end: usize| {
        let count = |bracket: char| style[..end].matches(bracket).count();
        count('{')
            .checked_sub(count('}'))
            .expect("as many closed as opened")
    };
    for rule in [
        "body { background",
        "svg { width: 100%",
        ".k-hp {",
        "table { border-collapse",
    ] {
        let at = style.find(rule).unwrap_or_else(|| panic!("no rule {rule}"));
        assert_eq!(depth_at(at), 0, "{rule} is within another rule");
    }
    assert_eq!(depth_at(style.len()), 0);
}
