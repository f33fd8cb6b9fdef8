//! Reads code blocks out of Markdown, and compares printed lines with those of a document.

use std::iter::zip;

/// A fenced block: its language and its text.
pub(super) struct Fenced {
    pub(super) language: String,
    pub(super) text: String,
}

pub(super) fn fenced(document: &str) -> Vec<Fenced> {
    let parts = document.split("\n```").skip(1).step_by(2);
    let blocks = parts.map(|part| {
        let (language, text) = part.split_once('\n').unwrap_or((part, ""));
        Fenced {
            language: language.to_owned(),
            text: text.to_owned(),
        }
    });
    blocks.collect()
}

/// A line of a code block, indented or fenced.
pub(super) struct CodeLine {
    /// Counted from 1.
    pub(super) line: usize,
    /// The number of its block; prose separates blocks.
    pub(super) block: usize,
    pub(super) text: String,
}

/// The lines of all code blocks of a document.
pub(super) fn code_lines(document: &str) -> Vec<CodeLine> {
    let (mut found, mut is_fenced, mut is_list) = (Vec::new(), false, false);
    let mut block = 0;
    for (index, text) in document.lines().enumerate() {
        if text.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        // Indented text below an item of a list is the item's, unless it is indented further.
        let is_item = text.starts_with("- ") || text.starts_with(|c: char| c.is_ascii_digit());
        is_list = is_item || (is_list && (text.is_empty() || text.starts_with(' ')));
        let indent = if is_list { "       " } else { "    " };
        if is_fenced || text.starts_with(indent) {
            found.push(CodeLine {
                line: index + 1,
                block,
                text: text.trim().to_owned(),
            });
        } else if !text.trim().is_empty() {
            block += 1;
        }
    }
    found
}

/// Words that stand for measured ones in a document: units, and the rule that held a job last.
const UNITS: [&str; 7] = ["ns", "us", "ms", "s", "MiB", "GiB", "%"];
const A_RULE: &str = "budget";
/// At the end of a document's line: more may follow.
const MORE: &str = "…";

fn fits(printed: &str, shown: &str) -> bool {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    // An unknown value fits only where the document shows one, too.
    let is_measured = |word: &str| word == "-" || has_digit(word);
    let is_a_rule =
        |word: &str| word == "-" || word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    printed == shown
        || (has_digit(printed) && is_measured(shown))
        || (UNITS.contains(&printed) && UNITS.contains(&shown))
        || (shown == A_RULE && is_a_rule(printed))
}

/// The words of a line; a number and its unit are one.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match words.last_mut() {
            Some(last) if UNITS.contains(&word) => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// Whether a printed line has the words of a document's line, one after the other. Numbers, with
/// their units, and ids may differ.
fn line_fits(printed: &str, shown: &str) -> bool {
    let shown = shown.trim_end_matches(MORE);
    let (printed, shown) = (words(printed), words(shown));
    let pairs = |skip: usize| zip(&printed[skip..], &shown);
    let starts = 0..(printed.len() + 1).saturating_sub(shown.len());
    starts
        .into_iter()
        .any(|start| pairs(start).all(|(printed, shown)| fits(printed, shown)))
}

/// Whether a printed line has the words of a document's line, none of them another.
fn line_equals(printed: &str, shown: &str) -> bool {
    let (printed, known) = (words(printed), words(shown.trim_end_matches(MORE)));
    printed.starts_with(&known) && (printed.len() == known.len() || shown.ends_with(MORE))
}

/// The first line of a document's block that was not printed, in the order of the block. Equal
/// input gives equal output of some commands: no word of it may differ.
pub(super) fn missing<'a>(printed: &str, shown: &'a str, is_exact: bool) -> Option<&'a str> {
    let mut printed = printed.lines();
    let fits = if is_exact { line_equals } else { line_fits };
    shown
        .lines()
        .filter(|line| !line.trim().is_empty())
        .find(|shown| !printed.any(|printed| fits(printed, shown)))
}

#[test]
fn numbers_and_ids_may_differ_and_words_may_not() {
    let shown = "serve  high-priority  1  734 us  -  budget  22.0 MiB  GPU-5496531d";
    for fitting in [
        shown,
        "serve high-priority 2 2.1 ms 98.4 % class 1 GiB GPU-1",
        "serve high-priority 2 3 us 7 - 1 GiB GPU-1 more",
    ] {
        assert!(missing(fitting, shown, false).is_none(), "{fitting}");
    }
    for other in [
        "",
        "serve",
        "train high-priority 2 2.1 ms 98.4 % class 1 GiB GPU-1",
        "serve best-effort 2 2.1 ms 98.4 % class 1 GiB GPU-1",
        "serve high-priority 2 2.1 ms 98.4 % class GPU-1",
        "serve high-priority 2 - 98.4 % class 1 GiB GPU-1",
    ] {
        assert_eq!(missing(other, shown, false), Some(shown), "{other}");
    }
    assert_eq!(missing("two\none\n", "one\ntwo\n", false), Some("two"));
}

#[test]
fn no_word_differs_where_equal_input_gives_equal_output() {
    for (printed, shown, is_equal) in [
        ("  p99 10 ms, 1", "p99 10 ms, 1", true),
        ("p99 10 ms and more", "p99 10 ms …", true),
        ("p99 15 ms", "p99 10 ms", false),
        ("p99 10 ms and more", "p99 10 ms", false),
    ] {
        assert_eq!(
            missing(printed, shown, true).is_none(),
            is_equal,
            "{printed}"
        );
    }
}

#[test]
fn blocks_have_their_language_and_their_lines() {
    let blocks = fenced("text\n\n```sh\none\ntwo\n```\n\nmore\n\n```text\nthree\n```\n");
    let read: Vec<_> = blocks
        .iter()
        .map(|block| (&*block.language, &*block.text))
        .collect();
    assert_eq!(read, [("sh", "one\ntwo"), ("text", "three")]);
}
