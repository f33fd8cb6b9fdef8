//! `pillion status` as people see it: captures at three widths, and no line wider than allowed,
//! whatever the documents contain.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::text::width;
use super::{Options, Seen, legible, lines};

const WIDTHS: [usize; 3] = [80, 100, 200];

/// A serving job beside a training one, with an unmanaged process.
fn usual() -> Value {
    let text = include_str!("captures/usual.json");
    serde_json::from_str(text).unwrap()
}

/// Every possible trouble, with overlong names: `usual` with places replaced from `troubles.json`.
fn troubled() -> Value {
    let mut status = usual();
    let text = include_str!("captures/troubles.json");
    let troubles: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    for (place, value) in troubles {
        let (parent, name) = place.rsplit_once('/').unwrap();
        status.pointer_mut(parent).unwrap()[name] = value;
    }
    status
}

/// Several daemons, one of an older version, and one that does not answer.
fn many() -> Seen {
    let mut older = usual();
    older["gpu"]["uuid"] = json!("GPU-5a3c1e77-9b1d-0000-0000-000000000000");
    older.as_object_mut().unwrap().remove("unmanaged");
    for job in older["jobs"].as_array_mut().unwrap() {
        job.as_object_mut().unwrap().remove("requests");
    }
    let mut crowded = troubled();
    crowded["gpu"]["uuid"] = json!("MIG-41b36a4e-0000-5e6f-a1b2-c3d4e5f60718");
    let job = crowded["jobs"][0].clone();
    let jobs = crowded["jobs"].as_array_mut().unwrap();
    jobs.extend((0..30).map(|number| {
        let mut job = job.clone();
        job["job"] = json!(format!("{number}-{}", "x".repeat(number * 7)));
        job
    }));
    let silent = "/run/pillion/GPU-00000000-1111-2222-3333-444444444444.sock";
    let error = "the daemon speaks protocol 9.0 and this program 3.7: which is newer is not known";
    Seen {
        daemons: vec![usual(), older, crowded, json!({})],
        silent: vec![(silent.to_owned(), error.to_owned())],
    }
}

fn one(status: Value) -> Seen {
    Seen {
        daemons: vec![status],
        silent: Vec::new(),
    }
}

fn options(explain: Option<&str>, all: bool) -> Options {
    Options {
        explain: explain.map(str::to_owned),
        all,
        watch: false,
        json: false,
    }
}

fn shown(seen: &Seen, explain: Option<&str>, all: bool, columns: usize) -> Vec<String> {
    let lines = lines(seen, &options(explain, all), columns);
    lines.unwrap_or_else(|failure| panic!("{}", failure.why()))
}

fn everything() -> Vec<(&'static str, Seen, Option<String>)> {
    let id = |seen: &Seen, job: usize| {
        let id = seen.daemons[0]["jobs"][job]["job"].as_str();
        id.map(str::to_owned)
    };
    let uuid = |seen: &Seen| seen.daemons[0]["gpu"]["uuid"].as_str().map(str::to_owned);
    let [usual, troubled] = [|| one(usual()), || one(troubled())];
    vec![
        ("usual", usual(), None),
        ("troubled", troubled(), None),
        ("many", many(), None),
        ("none", Seen::default(), None),
        ("hp of usual", usual(), id(&usual(), 1)),
        ("be of usual", usual(), id(&usual(), 0)),
        ("ended of usual", usual(), id(&usual(), 2)),
        ("hp of troubled", troubled(), id(&troubled(), 1)),
        ("be of troubled", troubled(), id(&troubled(), 0)),
        ("gpu of troubled", troubled(), uuid(&troubled())),
        ("hp of many", many(), id(&usual(), 1)),
    ]
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for (name, seen, explain) in everything() {
        for columns in (20..=300).chain([1000]) {
            for all in [false, true] {
                let lines = shown(&seen, explain.as_deref(), all, columns);
                for line in &lines {
                    assert!(width(line) <= columns, "{name} at {columns}: {line}");
                    assert!(!line.chars().any(char::is_control), "{name}: {line:?}");
                }
            }
        }
    }
}

#[test]
fn a_gpu_and_a_job_have_one_line_each_at_every_width() {
    let seen = many();
    let listed = |status: &Value| {
        let jobs = status["jobs"].as_array().into_iter().flatten();
        jobs.filter(|job| job["ended_ns"].is_null()).count()
    };
    let jobs: usize = seen.daemons.iter().map(listed).sum();
    for columns in WIDTHS {
        let lines = shown(&seen, None, false, columns);
        let parts: Vec<&[String]> = lines.split(String::is_empty).collect();
        assert_eq!(parts[0].len(), 1 + seen.daemons.len(), "{lines:#?}");
        assert_eq!(parts[1].len(), 1 + jobs, "{lines:#?}");
    }
}

#[test]
fn what_the_issue_is_about_is_seen_at_eighty_columns() {
    let lines = shown(&one(usual()), None, false, 80);
    for part in [
        "HP P50",
        "HP P99",
        "TARGET",
        "BE SHARE",
        "UNMANAGED",
        "6.81 ms",
        "9.10 ms",
        "99.1 %",
    ] {
        assert!(
            lines.iter().any(|line| line.contains(part)),
            "no {part}: {lines:#?}"
        );
    }
}

proptest! {
    #[test]
    fn whatever_jobs_and_programs_are_called_the_table_fits(
        names in proptest::collection::vec("\\PC{0,50}", 1..5),
        columns in 20..250_usize,
    ) {
        let mut status = usual();
        for (job, name) in status["jobs"].as_array_mut().unwrap().iter_mut().zip(&names) {
            job["job"] = json!(name);
            job["clients"] = json!([{"pid": 7, "name": name}]);
        }
        status["gpu"]["name"] = json!(names[0]);
        let lines = shown(&one(status), None, true, columns);
        prop_assert!(lines.iter().all(|line| width(line) <= columns), "{lines:#?}");
    }
}

#[test]
fn ended_jobs_and_gpu_time_are_shown_where_all_is_asked_for() {
    let lines = |all: bool| shown(&one(usual()), None, all, 200).join("\n");
    for part in ["nightly", "GPU TIME", "USER", "ended", "2.5 ms", "327 s"] {
        assert!(lines(true).contains(part), "no {part} in {}", lines(true));
        assert!(!lines(false).contains(part), "{part} in {}", lines(false));
    }
}

#[test]
fn a_name_that_nobody_has_is_answered_with_the_nearest_one() {
    let why = |name: &str| {
        let unknown = lines(&one(usual()), &options(Some(name), false), 80);
        unknown.unwrap_err().why()
    };
    let said = why("srve");
    assert!(
        said.contains("no job and no GPU has the id \"srve\"; did you mean \"serve\"?"),
        "{said}"
    );
    assert!(
        said.contains("`pillion status --all` lists the ids"),
        "{said}"
    );
    assert!(!why("banana").contains("did you mean"));
    // Too short for a GPU's UUID.
    assert!(why("GPU-").contains("no job and no GPU"));
    let lines = shown(&one(usual()), Some("GPU-5a3c"), false, 80);
    assert!(
        lines[0].starts_with("Tesla V100-SXM2-16GB GPU-5a3c1e77"),
        "{lines:#?}"
    );
    let lines = shown(&Seen::default(), Some("serve"), false, 80);
    assert_eq!(lines, ["no daemon is running"]);
}

/// The captures are files, so that they can be read as displayed. To update them, run
/// `PILLION_TAKE_CAPTURES=1 cargo test -p pillion-cli captures` and check the differences.
#[test]
fn captures_are_as_they_were() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/status/captures");
    let takes = std::env::var_os("PILLION_TAKE_CAPTURES").is_some();
    let views = [
        ("usual", one(usual()), None),
        ("troubled", one(troubled()), None),
        ("several", several(), None),
        ("explained", one(usual()), Some("serve")),
        (
            "explained-best-effort",
            one(usual()),
            Some("23993-b1d6e64669"),
        ),
    ];
    for (name, seen, explain) in views {
        for columns in WIDTHS {
            let mut text = shown(&seen, explain, false, columns).join("\n");
            text.push('\n');
            let path = folder.join(format!("{name}-{columns}.txt"));
            if takes {
                std::fs::write(&path, &text).unwrap();
            }
            let taken = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(text, taken, "{}", path.display());
        }
    }
}

/// Two GPUs, one of which has an older daemon.
fn several() -> Seen {
    let mut seen = many();
    seen.daemons.truncate(2);
    seen.daemons[1]["gpu"]["uuid"] = json!("GPU-c09f1ad2-0000-0000-0000-000000000000");
    seen
}

#[test]
fn names_do_not_drive_the_terminal() {
    let troubled = legible(&troubled());
    let name = troubled["jobs"][0]["clients"][0]["name"].as_str().unwrap();
    assert_eq!(name, "a\u{fffd}[2J\u{fffd}b");
}
