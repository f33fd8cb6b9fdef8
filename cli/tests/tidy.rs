//! What the sources themselves must hold: where `unsafe` may be, how long files are, nothing left undone.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file, tables of entry points excepted (STYLE.md).
const LINES_MAX: usize = 800;
/// Around the list of files in ARCHITECTURE.md.
const MARKER: &str = "<!-- unsafe-modules -->";

fn workspace() -> &'static Path {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    parent.expect("the crate lies in the workspace")
}

/// Every Rust source of the workspace, by its path from the root.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![workspace().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the workspace") {
            let path = entry.expect("a folder of the workspace").path();
            let name = path
                .file_name()
                .expect("an entry has a name")
                .to_string_lossy()
                .into_owned();
            let is_ours = !name.starts_with('.') && !name.starts_with("target");
            if path.is_dir() && is_ours {
                folders.push(path);
            } else if path.is_file() && name.ends_with(".rs") {
                found.push((
                    from_root(&path),
                    fs::read_to_string(&path).expect("sources are UTF-8"),
                ));
            }
        }
    }
    found.sort();
    assert!(found.len() > 50, "only {} sources found", found.len());
    found
}

fn from_root(path: &Path) -> String {
    let path = path.strip_prefix(workspace()).expect("found below it");
    path.to_str().expect("our paths are text").to_owned()
}

/// The words and marks of a source without comments and what is between quotes.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_bytes(rest, code.chars().next_back());
        if skipped > 0 {
            // Lines stay lines, words stay apart.
            code.push(if rest[..skipped].contains('\n') {
                '\n'
            } else {
                ' '
            });
            rest = &rest[skipped..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Length of the comment or literal at the start of `text`; 0 if there is none.
fn skipped_bytes(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_bytes(text);
    }
    let is_in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !is_in_word && let Some(bytes) = raw_string_bytes(text) {
        return bytes;
    }
    match text.as_bytes()[0] {
        b'"' => quoted_bytes(text, b'"'),
        // 'a' and '\n' are characters, 'a without an end is a lifetime.
        b'\'' if text[1..].starts_with('\\') => quoted_bytes(text, b'\''),
        b'\'' => {
            let mut chars = text[1..].char_indices();
            match (chars.next(), chars.next()) {
                (Some(_), Some((at, '\''))) => at + 2,
                _ => 0,
            }
        }
        _ => 0,
    }
}

fn block_comment_bytes(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// `r"…"`, `r#"…"#`, with b or c before it.
fn raw_string_bytes(text: &str) -> Option<usize> {
    let after = text.trim_start_matches(['b', 'c']);
    let start = text.len() - after.len();
    let after_r = after.strip_prefix('r').filter(|_| start <= 1)?;
    let body = after_r.trim_start_matches('#');
    let hashes = after_r.len() - body.len();
    let body = body.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(start + 1 + hashes + 1 + length)
}

fn quoted_bytes(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The files that ARCHITECTURE.md names, one per line between two markers.
fn named_in_architecture() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("it is there");
    let between = text.split(MARKER).nth(1);
    let between = between.unwrap_or_else(|| panic!("ARCHITECTURE.md has no two {MARKER}"));
    let lines = between.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("```"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn unsafe_is_only_in_the_modules_that_the_architecture_names() {
    let has_unsafe = |text: &str| words(&code(text)).any(|word| word == "unsafe");
    let found: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(_, text)| has_unsafe(text))
        .map(|(path, _)| path)
        .collect();
    let named = named_in_architecture();
    let unnamed: Vec<_> = found.difference(&named).collect();
    assert!(
        unnamed.is_empty(),
        "unsafe, and not in ARCHITECTURE.md: {unnamed:#?}"
    );
    let needless: Vec<_> = named.difference(&found).collect();
    assert!(
        needless.is_empty(),
        "in ARCHITECTURE.md without need: {needless:#?}"
    );
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
    // Put together here, so that this file does not find itself.
    let notes = [
        concat!("FIX", "ME"),
        concat!("TO", "DO"),
        concat!("XX", "X"),
    ];
    let calls = [concat!("to", "do!"), concat!("unimple", "mented!")];
    let ignored = concat!("#[", "ignore");
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let code = code(&text);
        let note = notes
            .iter()
            .find(|note| words(&text).any(|word| word == **note));
        let call = calls.iter().find(|call| code.contains(**call));
        let is_ignored = code.contains(ignored).then_some(&ignored);
        faults.extend(
            note.or(call)
                .or(is_ignored)
                .map(|what| format!("{path}: {what}")),
        );
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Its own calls of the driver are made by `call!`; none of them may wait for the device, but in a process that a signal ends.
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
            let may_wait = path == "interpose/src/driver/ending.rs";
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
    assert_eq!(users, ["interpose/src/helper.rs"]);
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

#[test]
fn what_is_quoted_or_commented_is_no_code() {
    for text in [
        "// unsafe",
        "/* a /* nested */ unsafe */",
        r#"let a = "unsafe \" unsafe";"#,
        "let a = r#\"unsafe \" unsafe\"#;",
        "let a = br\"unsafe\";",
        "let a = c\"unsafe\";",
        "let quote = '\"'; // unsafe\nlet other = '\"';",
        "forbid(unsafe_code)",
    ] {
        assert!(!words(&code(text)).any(|word| word == "unsafe"), "{text}");
    }
    for text in [
        "let quote = '\"'; unsafe { x('\"') }",
        "fn f<'a>(x: &'a str) { unsafe {} }",
        "\"a\" unsafe",
        "'\\'' unsafe",
        "/* */ unsafe",
        "r\"\\\" unsafe",
    ] {
        assert!(words(&code(text)).any(|word| word == "unsafe"), "{text}");
    }
}
