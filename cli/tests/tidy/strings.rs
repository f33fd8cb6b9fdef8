//! The list of the strings that users meet: messages, errors, help, tables' heads, metrics' help.
//!
//! The test writes the list into `target/tmp/strings.txt`, a line for each string, to be read as a
//! whole. String literals come from the token streams of the sources; words without a space (keys,
//! names) are left out, and so are tests. Comments count where clap makes help of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::Lit;

use super::sources::sources;

/// Subjects that name nothing.
const BARE: [&str; 4] = ["who", "whoever", "what", "whatever"];
/// Expressions of a dialect, each with plain words.
const DIALECT: [(&str, &str); 8] = [
    ("is to end", "must exit, ends"),
    ("to mend", "errors, how to repair"),
    ("leave it away", "leave it out"),
    ("to load down", "to download"),
    ("begun anew", "restarted"),
    ("is told of", "is notified of"),
    ("no longer there", "missing, removed, ended"),
    ("cannot be seen", "is unknown, cannot determine"),
];
/// Derives whose doc comments are help.
const OF_CLAP: [&str; 4] = ["Args", "Parser", "Subcommand", "ValueEnum"];

struct Found {
    line: usize,
    text: String,
}

/// Collects strings of a token stream.
#[derive(Default)]
struct Reader {
    found: Vec<Found>,
    /// Doc comments before an item, until it is known whether they are help.
    docs: Vec<Found>,
    /// Whether the next body is a test's.
    is_test: bool,
    /// Whether the doc comments in the next body are help.
    becomes_help: bool,
}

impl Reader {
    /// Reads a stream; `is_help` if its doc comments are help.
    fn read(&mut self, stream: TokenStream, is_help: bool) {
        let mut tokens = stream.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    // `#![doc]` of a file is a comment, whatever it encloses.
                    if matches!(tokens.peek(), Some(TokenTree::Punct(next)) if next.as_char() == '!')
                    {
                        tokens.nth(1);
                        continue;
                    }
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && group.delimiter() == Delimiter::Bracket
                    {
                        self.read_attribute(group.stream(), is_help);
                        tokens.next();
                    }
                }
                TokenTree::Group(group) => {
                    self.read_group(group.stream(), group.delimiter(), is_help);
                }
                TokenTree::Punct(mark) if mark.as_char() == ';' => self.end_item(),
                TokenTree::Literal(literal) => {
                    let line = literal.span().start().line;
                    if let Lit::Str(text) = Lit::new(literal) {
                        let text = text.value();
                        self.found.push(Found { line, text });
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    fn read_attribute(&mut self, attribute: TokenStream, is_help: bool) {
        let text = attribute.to_string();
        let mut inner = Self::default();
        inner.read(attribute, false);
        if text.starts_with("doc =") {
            self.docs.append(&mut inner.found);
        } else {
            self.found.append(&mut inner.found);
        }
        self.is_test |= text == "test" || text.starts_with("cfg (test");
        if text.starts_with("derive") && OF_CLAP.iter().any(|name| text.contains(name)) {
            self.becomes_help = true;
        }
        if is_help || self.becomes_help {
            self.found.append(&mut self.docs);
        }
    }

    fn read_group(&mut self, stream: TokenStream, delimiter: Delimiter, is_help: bool) {
        let is_body = delimiter == Delimiter::Brace;
        if is_body && self.is_test {
            return self.end_item();
        }
        let is_help = is_help || (is_body && self.becomes_help);
        let mut inner = Self::default();
        inner.read(stream, is_help);
        self.found.append(&mut inner.found);
        if is_body {
            self.end_item();
        }
    }

    fn end_item(&mut self) {
        (self.is_test, self.becomes_help) = (false, false);
        self.docs.clear();
    }
}

/// Whether a text is for people: several words, one of them of letters alone.
fn is_for_people(text: &str) -> bool {
    let is_word = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_lowercase());
    text.trim().contains(' ') && text.split(' ').any(is_word)
}

fn is_program(path: &str) -> bool {
    let others = ["tests/", "tests.rs", "benches/", "examples/", "simulation/"];
    !others.iter().any(|other| path.contains(other))
}

/// The list: place and text, in the order of the sources.
fn strings() -> Vec<(String, String)> {
    let mut list = Vec::new();
    for (path, text) in sources() {
        if !is_program(&path) {
            continue;
        }
        let stream = text.parse::<TokenStream>();
        let mut reader = Reader::default();
        reader.read(
            stream.unwrap_or_else(|error| panic!("{path}: {error}")),
            false,
        );
        let strings = reader.found.into_iter();
        let strings = strings.filter(|found| is_for_people(&found.text));
        list.extend(strings.map(|found| (format!("{path}:{}", found.line), found.text)));
    }
    list
}

/// Clauses of a text, with the mark that ends each.
fn clauses(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['.', ';', ':', '?', '!', '\n'])
}

/// The bare subject with which a clause begins, unless the clause is a question.
fn bare_subject(clause: &str) -> Option<&'static str> {
    // The name of an argument is no word, and the end of one that has a colon in it neither.
    if clause.ends_with('?') || clause.trim_start().starts_with('{') {
        return None;
    }
    let mut words = clause.split(|c: char| !c.is_alphanumeric());
    let first = words.find(|word| !word.is_empty())?.to_lowercase();
    BARE.into_iter().find(|bare| *bare == first)
}

#[test]
fn strings_name_their_subjects_in_plain_words() {
    let list = strings();
    assert!(list.len() > 2000, "only {} strings found", list.len());
    let lines: Vec<String> = list
        .iter()
        .map(|(place, text)| format!("{place}: {}\n", text.trim().replace('\n', " / ")))
        .collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("strings.txt");
    fs::write(&path, lines.concat()).expect("room for the list");
    let mut faults = BTreeSet::new();
    for (place, text) in &list {
        for clause in clauses(text) {
            if let Some(bare) = bare_subject(clause) {
                faults.insert(format!(
                    "{place}: `{bare}` is no subject: {}",
                    clause.trim()
                ));
            }
        }
        let lower = text.to_lowercase();
        for (dialect, plain) in DIALECT {
            if lower.contains(dialect) {
                faults.insert(format!("{place}: `{dialect}` ({plain}): {text}"));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {}: {faults:#?}",
        faults.len(),
        path.display()
    );
}

#[test]
fn the_list_has_messages_and_help_and_no_tests() {
    let source = r#"
        /// Prints the help.
        #[derive(clap::Args)]
        pub struct Options {
            /// Quota of the job
            #[arg(help = "until it ends")]
            memory: u64,
        }
        /// Is a comment.
        fn message() { format!("job {} has ended", 1); let key = "job"; }
        #[cfg(test)]
        mod tests { fn text() -> &'static str { "left out of it" } }
        #[test]
        fn fact() { assert!(true, "left out too"); }
    "#;
    let mut reader = Reader::default();
    reader.read(source.parse().expect("Rust"), false);
    let texts: Vec<&str> = reader.found.iter().map(|found| found.text.trim()).collect();
    let expected = [
        "Prints the help.",
        "Quota of the job",
        "until it ends",
        "job {} has ended",
        "job",
    ];
    assert_eq!(texts, expected);
    assert!(is_for_people(texts[3]) && !is_for_people(texts[4]));
}

#[test]
fn a_clause_that_begins_with_who_or_what_has_no_subject() {
    for (text, bare) in [
        ("job ended; what it held is free", Some("what")),
        ("Whoever comes waits", Some("whoever")),
        ("What is it?", None),
        ("the job knows what it holds", None),
    ] {
        assert_eq!(clauses(text).find_map(bare_subject), bare, "{text}");
    }
}
