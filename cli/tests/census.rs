//! Checks the census of failures: `census.csv` has one line for each of the 173 ways in which
//! similar libraries are known to have failed. Each line names the tests that show that Pillion
//! does not fail so, or why no test of this workspace can. A test names its cases in a comment
//! above it, `census: A7, A9` after two slashes. The table names the test as `file::test`, the file
//! without its ending (or its folder's name, for `mod.rs`, `main.rs` and `tests.rs`). Both sides
//! are compared, so no mark or line can be forgotten, and a renamed or removed test is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Cases per class, as the field study counts them.
const CLASSES: [(char, usize); 12] = [
    ('A', 29),
    ('B', 15),
    ('C', 6),
    ('D', 24),
    ('E', 17),
    ('F', 9),
    ('G', 10),
    ('H', 15),
    ('I', 18),
    ('J', 14),
    ('K', 8),
    ('L', 8),
];
const REASONS: [&str; 9] = [
    "needs real driver",
    "needs MPS",
    "needs root/container",
    "other product's design",
    "belongs to issue Memory quota",
    "belongs to issue Life and death",
    "belongs to issue First ten minutes",
    "belongs to issue Gate",
    "belongs to issue Hardware",
];
/// Least number of cases with a test.
const TESTED_MIN: usize = 60;
/// The mark in a comment above a test. Assembled here, so that this file does not mark itself.
const MARK: &str = concat!("// cen", "sus:");

#[derive(Debug)]
struct Case {
    id: String,
    title: String,
    verdict: Verdict,
}

#[derive(Debug)]
enum Verdict {
    Tests(BTreeSet<String>),
    Reason(String),
}

fn workspace() -> &'static Path {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.expect("the crate lies in the workspace")
}

/// The fields of a line; a quoted one may contain commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("never empty").push(c),
        }
    }
    fields
}

fn table() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/census.csv");
    let text = fs::read_to_string(path).expect("the table is there");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,title,verdict"));
    lines
        .map(|line| {
            let [id, title, verdict]: [String; 3] = fields(line)
                .try_into()
                .unwrap_or_else(|_| panic!("not three fields: {line}"));
            let verdict = if verdict.contains("::") {
                Verdict::Tests(verdict.split(' ').map(str::to_owned).collect())
            } else {
                Verdict::Reason(verdict)
            };
            Case { id, title, verdict }
        })
        .collect()
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![workspace().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("a folder of the workspace").path();
            let name = path.file_name().expect("an entry has a name");
            let name = name.to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                found.push((path, text));
            }
        }
    }
    found
}

fn module(path: &Path) -> String {
    let stem = path.file_stem().expect("a source has a name");
    let folder = path.parent().and_then(Path::file_name);
    match stem.to_str().expect("our paths are text") {
        "mod" | "main" | "tests" => folder.expect("a source lies in a folder"),
        _ => stem,
    }
    .to_string_lossy()
    .into_owned()
}

fn function_on(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let name = line.strip_prefix("fn ")?;
    Some(&name[..name.find(['(', '<'])?])
}

fn tests_in(path: &Path, text: &str) -> Vec<(String, Vec<String>)> {
    let module = module(path);
    let mut tests = Vec::new();
    let (mut is_test, mut marked) = (false, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(list) = trimmed.strip_prefix(MARK) {
            marked.extend(list.split(',').map(|id| id.trim().to_owned()));
        }
        is_test |= trimmed.starts_with("#[test]");
        if let Some(name) = function_on(line) {
            assert!(
                is_test || marked.is_empty(),
                "{}:{}: marked, but no test",
                path.display(),
                number + 1
            );
            if is_test {
                tests.push((format!("{module}::{name}"), std::mem::take(&mut marked)));
            }
            is_test = false;
        }
    }
    assert!(marked.is_empty(), "{}: a mark of nothing", path.display());
    tests
}

fn all_tests() -> Vec<(String, Vec<String>)> {
    sources()
        .iter()
        .flat_map(|(path, text)| tests_in(path, text))
        .collect()
}

#[test]
fn every_case_is_in_the_table_once_and_in_order() {
    let expected: Vec<String> = CLASSES
        .iter()
        .flat_map(|(class, count)| (1..=*count).map(move |number| format!("{class}{number}")))
        .collect();
    assert_eq!(expected.len(), 173);
    let found: Vec<String> = table().into_iter().map(|case| case.id).collect();
    assert_eq!(found, expected);
}

#[test]
fn every_case_has_a_title_and_a_test_or_a_reason_of_the_list() {
    for case in table() {
        assert!(!case.title.is_empty(), "{case:?}");
        match &case.verdict {
            Verdict::Tests(tests) => assert!(!tests.is_empty(), "{case:?}"),
            Verdict::Reason(reason) => assert!(REASONS.contains(&&**reason), "{case:?}"),
        }
    }
}

#[test]
fn table_and_marks_say_the_same_and_every_test_is_there() {
    let mut marked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (name, ids) in all_tests() {
        for id in ids {
            marked.entry(id).or_default().insert(name.clone());
        }
        names.insert(name);
    }
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for case in table() {
        if let Verdict::Tests(tests) = case.verdict {
            let gone: Vec<_> = tests.difference(&names).collect();
            assert!(gone.is_empty(), "{}: no such test: {gone:?}", case.id);
            listed.insert(case.id, tests);
        }
    }
    for (id, tests) in &marked {
        assert_eq!(
            listed.get(id),
            Some(tests),
            "{id}: the table, then the marks"
        );
    }
    let unmarked: Vec<_> = listed
        .keys()
        .filter(|id| !marked.contains_key(*id))
        .collect();
    assert!(
        unmarked.is_empty(),
        "in the table, but no test is marked with it: {unmarked:?}"
    );
    println!("{} of 173 cases have a test", listed.len());
    assert!(listed.len() >= TESTED_MIN, "{}", listed.len());
}

#[test]
fn marks_are_read_with_the_test_they_stand_above() {
    let text = format!(
        "{MARK} A1, B2\n#[test]\nfn first() {{}}\nfn helper() {{}}\n#[test]\nfn second() {{}}\n\
         #[test]\n{MARK} C3\n{MARK} C4\npub(crate) fn third(x in 0..1) {{}}\n"
    );
    let tests = tests_in(Path::new("a/tests/doors.rs"), &text);
    let ids = |ids: &[&str]| -> Vec<String> { ids.iter().map(|&id| id.to_owned()).collect() };
    assert_eq!(
        tests,
        [
            ("doors::first".to_owned(), ids(&["A1", "B2"])),
            ("doors::second".to_owned(), ids(&[])),
            ("doors::third".to_owned(), ids(&["C3", "C4"])),
        ]
    );
    assert_eq!(
        module(Path::new("interpose/src/kernels/identify.rs")),
        "identify"
    );
    assert_eq!(fields("A1,\"a, b\",c"), ["A1", "a, b", "c"]);
}
