//! Scrubs a daemon's configuration file line by line, so that a syntax error stays at its place.
//! Keys, numbers and Pillion's own keywords stay. Comments are removed, and every other text is
//! replaced by a pseudonym, whether a job, a user, a path or anything else.

use policy::Policy;
use scheduler::core::event::Kind;

use super::scrub::{Class, Scrubber, Tally};

/// Keywords of configuration values, besides the policies and the kinds of faults.
pub(super) const WORDS: [&str; 33] = [
    "auto",
    "mps",
    "timeslice",
    "run",
    "hold",
    "refuse",
    "gate",
    "report",
    "evict",
    "ignore",
    "dynamic",
    "static",
    "target",
    "off",
    "on",
    "unlimited",
    "measured",
    "default",
    "hold-be",
    "restart-job",
    "restart-mps",
    "drain-gpu",
    "high-priority",
    "best-effort",
    "quit",
    "-d",
    "-p",
    "memory",
    "compute",
    "temperature",
    "true",
    "false",
    "nan",
];
/// Keys whose values are users or groups, also by number.
const WHOSE: [&str; 4] = ["user", "users", "group", "groups"];
/// Longest text that is a size, a time or a share.
const QUANTITY_CHARS: usize = 12;

struct Scrubbing<'a> {
    scrubber: &'a mut Scrubber,
    tally: &'a mut Tally,
    /// Parts of the current table's name.
    table: Vec<String>,
    /// The end marker of a multi-line text, which is left out.
    until: Option<&'static str>,
    /// Open brackets of a list that continues in the next line, and the key of that list.
    open: usize,
    key: String,
}

/// Learns the names, too, so that messages about the file contain none.
pub(super) fn scrubbed(text: &str, scrubber: &mut Scrubber, tally: &mut Tally) -> String {
    let mut scrubbing = Scrubbing {
        scrubber,
        tally,
        table: Vec::new(),
        until: None,
        open: 0,
        key: String::new(),
    };
    let mut made = String::new();
    for line in text.lines() {
        made.push_str(&scrubbing.line(line));
        made.push('\n');
    }
    made
}

impl Scrubbing<'_> {
    fn line(&mut self, line: &str) -> String {
        if let Some(until) = self.until {
            if line.contains(until) {
                self.until = None;
            }
            return "# (text left out)".to_owned();
        }
        for quotes in ["\"\"\"", "'''"] {
            if line.matches(quotes).count() == 1 {
                self.until = Some(quotes);
                return "# (text left out)".to_owned();
            }
        }
        let indent = line.len() - line.trim_start().len();
        let (space, body) = line.split_at(indent);
        let scrubbed = match body.starts_with('[') && self.open == 0 {
            true => self.header(body),
            false => self.pair(body),
        };
        format!("{space}{scrubbed}")
    }

    /// The name of a table: `[jobs.train]`.
    fn header(&mut self, body: &str) -> String {
        let mut at = 0;
        let mut parts = Vec::new();
        let mut made = String::new();
        while let Some(first) = body[at..].chars().next() {
            let rest = &body[at..];
            match first {
                '#' => {
                    made.push('#');
                    break;
                }
                '"' | '\'' => {
                    let (bytes, text) = string(rest);
                    let name = self.named(&parts, parts.len(), text, true);
                    parts.push(text.to_owned());
                    made.push_str(&format!("{first}{name}{first}"));
                    at += bytes;
                }
                c if is_bare(c) => {
                    let word = &rest[..bare(rest)];
                    let name = self.named(&parts, parts.len(), word, false);
                    parts.push(word.to_owned());
                    made.push_str(&name);
                    at += word.len();
                }
                other => {
                    made.push(other);
                    at += other.len_utf8();
                }
            }
        }
        self.table = parts;
        made
    }

    /// `key = value`, or a line of a list. A line without `=` is neither; all of it may be names.
    fn pair(&mut self, body: &str) -> String {
        let mut made = String::new();
        let mut at = 0;
        let mut path = self.table.clone();
        let mut is_value = self.open > 0 || !body.contains('=');
        let mut braces = 0;
        while let Some(first) = body[at..].chars().next() {
            let rest = &body[at..];
            if first == '#' {
                made.push('#');
                break;
            }
            let is_string = matches!(first, '"' | '\'');
            if !is_string && !is_bare(first) {
                self.count(first, is_value, &mut braces);
                is_value |= first == '=';
                made.push(first);
                at += first.len_utf8();
                continue;
            }
            let (bytes, text) = match is_string {
                true => string(rest),
                false => (bare(rest), &rest[..bare(rest)]),
            };
            let quote = if is_string { &rest[..1] } else { "" };
            let is_key = !is_value || rest[bytes..].trim_start().starts_with('=');
            let named = match (is_key, is_value) {
                (true, false) => {
                    let named = self.named(&path, path.len(), text, is_string);
                    path.push(text.to_owned());
                    named
                }
                (true, true) => self.named(
                    &path,
                    (path.len() + braces).saturating_sub(1),
                    text,
                    is_string,
                ),
                (false, _) => self.value(text),
            };
            if is_key {
                self.key = text.to_owned();
            }
            let is_closed = bytes > 1 && rest[..bytes].ends_with(quote);
            made.push_str(&format!(
                "{quote}{named}{}",
                if is_closed { quote } else { "" }
            ));
            at += bytes;
        }
        made
    }

    fn count(&mut self, c: char, is_value: bool, braces: &mut usize) {
        match c {
            '[' if is_value => self.open += 1,
            ']' if is_value => self.open = self.open.saturating_sub(1),
            '{' => *braces += 1,
            '}' => *braces = braces.saturating_sub(1),
            _ => {}
        }
    }

    /// A part of a key at `depth` in tables whose names begin with `before`.
    fn named(&mut self, before: &[String], depth: usize, word: &str, is_string: bool) -> String {
        let is_jobs = |table: Option<&String>| table.is_some_and(|table| table == "jobs");
        let is_below = is_jobs(before.last()) && depth == before.len();
        match is_below || (is_jobs(before.first()) && depth == 1) {
            true => self.name(Class::Job, word),
            _ if is_string => self.name(Class::Word, word),
            _ => word.to_owned(),
        }
    }

    fn name(&mut self, class: Class, name: &str) -> String {
        self.scrubber.learn(class, name);
        self.scrubber.replaced(class, name, self.tally)
    }

    fn value(&mut self, text: &str) -> String {
        if WHOSE.contains(&&*self.key) {
            return self.name(Class::User, text);
        }
        let is_known = WORDS.contains(&text)
            || Policy::NAMES.contains(&text)
            || Kind::ALL.iter().any(|kind| kind.name() == text);
        if text.is_empty() || is_known || is_quantity(text) || is_device(text) {
            return text.to_owned();
        }
        if text.starts_with('/') {
            return self.scrubber.text(text, self.tally);
        }
        self.name(Class::Word, text)
    }
}

/// The length of a quoted string with its quotes, and its content.
fn string(rest: &str) -> (usize, &str) {
    let quote = rest.chars().next().unwrap_or('"');
    let mut is_escaped = false;
    let end = rest[1..].find(|c: char| {
        let ends = c == quote && !is_escaped;
        is_escaped = quote == '"' && c == '\\' && !is_escaped;
        ends
    });
    match end {
        Some(end) => (end + 2, &rest[1..=end]),
        // An unterminated string: the file is wrong, and all of the rest may be a name.
        None => (rest.len(), &rest[1..]),
    }
}

fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || "_-".contains(c)
}

fn bare(rest: &str) -> usize {
    rest.find(|c| !is_bare(c)).unwrap_or(rest.len())
}

/// A number, maybe with its unit: `40%`, `1.2x`, `10GiB`, `15ms`.
fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || ".-+_".contains(c));
    let units = [
        "", "%", "x", "ms", "us", "ns", "s", "m", "h", "B", "b", "k", "K", "M", "G", "T", "kB",
        "KB", "MB", "GB", "TB", "Ki", "Mi", "Gi", "Ti", "KiB", "MiB", "GiB", "TiB",
    ];
    if text.parse::<f64>().is_ok() {
        return true;
    }
    let is_number = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_digit() || "-+.".contains(c));
    text.len() <= QUANTITY_CHARS && is_number && units.contains(&unit.trim_start())
}

fn is_device(text: &str) -> bool {
    let is_uuid = text.starts_with("GPU-") || text.starts_with("MIG-");
    let is_pci = text.contains(':')
        && text
            .chars()
            .all(|c| c.is_ascii_hexdigit() || ":.".contains(c));
    (is_uuid && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        || (is_pci && text.len() <= 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_numbers_and_known_words_stay_and_names_and_comments_go() {
        let text = "# GPU of the team apollo\n[gpu]\nuuid = \"GPU-1a2b\" # apollo\nsharing = \"mps\"\n\
                    [policy]\nslo_p99 = \"1.2x\"\nname = \"pillion\"\npoll_us = 50\n\
                    [jobs.apollo-train]\nweight = 3\n[jobs.\"eval 7\"]\nmax_share = 0.4\n\
                    [high_priority]\nusers = [\"1000\", \"alice\"]\ncgroups = [\"/kubepods/apollo\"]\n\
                    [socket]\npath = \"/run/pillion/GPU-1a2b.sock\"\n";
        let (mut scrubber, mut tally) = (Scrubber::default(), Tally::new());
        let expected = "#\n[gpu]\nuuid = \"GPU-1a2b\" #\nsharing = \"mps\"\n\
                        [policy]\nslo_p99 = \"1.2x\"\nname = \"pillion\"\npoll_us = 50\n\
                        [jobs.job-1]\nweight = 3\n[jobs.\"job-2\"]\nmax_share = 0.4\n\
                        [high_priority]\nusers = [\"user-1\", \"user-2\"]\ncgroups = [\"path-1\"]\n\
                        [socket]\npath = \"/run/pillion/GPU-1a2b.sock\"\n";
        assert_eq!(scrubbed(text, &mut scrubber, &mut tally), expected);
        let counted = [("job", 2), ("path", 1), ("user", 2)];
        assert_eq!(tally, Tally::from(counted));
    }

    #[test]
    fn lists_and_tables_of_several_names_have_none_left() {
        let text = "jobs = { apollo = { weight = 3 }, artemis = { weight = 2 } }\n[jobs]\ngemini = { weight = 1e1 }\n\
                    [high_priority]\nusers = [\n  \"apollo\",\n  'artemis', # gemini\n]\n\"gemini\" = 1\n";
        let (mut scrubber, mut tally) = (Scrubber::default(), Tally::new());
        assert_eq!(
            scrubbed(text, &mut scrubber, &mut tally),
            "jobs = { job-1 = { weight = 3 }, job-2 = { weight = 2 } }\n[jobs]\njob-3 = { weight = 1e1 }\n\
             [high_priority]\nusers = [\n  \"user-1\",\n  'user-2', #\n]\n\"word-1\" = 1\n"
        );
    }

    #[test]
    fn a_file_that_is_wrong_has_as_many_lines_and_no_name() {
        let text = "[gpu\nindex = first\njobs.apollo.weight = 2\nnote = \"apollo\nx = '''apollo\napollo\n'''\ny = 1\n";
        let (mut scrubber, mut tally) = (Scrubber::default(), Tally::new());
        let made = scrubbed(text, &mut scrubber, &mut tally);
        assert_eq!(made.lines().count(), text.lines().count());
        assert!(
            !made.contains("apollo") && !made.contains("first"),
            "{made}"
        );
        assert!(
            made.contains("jobs.job-1.weight = 2") && made.ends_with("y = 1\n"),
            "{made}"
        );
    }
}
